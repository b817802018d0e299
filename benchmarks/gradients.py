"""What a gradient costs: backward against forward, exact and fast."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import meanformer as mf

from .fast import ACCURACY, identity_softmax, normal_tokens
from .harness import Part, Table, ratio, ratio_text, seconds, side_by_side

EXACT_SIZES = (4_096, 16_384)
FAST_SIZES = (10_000, 100_000)


def measure(say: Callable[[str], None]) -> Part:
    r"""The gradient of $\frac12\sum_i|\Gamma_\mu(x_i)|^2/n$ in all tokens and in V."""
    part = Part("gradients", "Gradients")
    head = ["sums", "k = d", "n", "forward", "forward and backward", "quotient", "compiling the gradient"]
    table = Table("Gradient of the mean of |velocity|^2 / 2 in the tokens and in V; medians (quartiles) of 5", head)
    cases: list[tuple[str, int, int]] = [("exact", 2, n) for n in EXACT_SIZES]
    cases += [("fast", k, n) for k in (2, 3) for n in FAST_SIZES]
    for sums, k, n in cases:
        say(f"{sums}, k = {k}, n = {n:,}")
        field, cloud = identity_softmax(k), normal_tokens(n, k)
        plan = mf.plan(field, cloud, ACCURACY) if sums == "fast" else None

        def energy(points: jax.Array, V: jax.Array, field: mf.Softmax = field, plan: Any = plan) -> jax.Array:
            velocity = mf.velocity(mf.Softmax(field.Q, field.K, V), mf.PointCloud(points), accuracy=plan)
            return jnp.sum(velocity**2) / (2 * points.shape[0])

        forward, backward = jax.jit(energy), jax.jit(jax.value_and_grad(energy, argnums=(0, 1)))
        arguments = (cloud.points, field.V)
        timings = side_by_side(
            {"forward": lambda f=forward, a=arguments: f(*a), "both": lambda b=backward, a=arguments: b(*a)}, 5
        )
        quotient = ratio_text(timings["both"], timings["forward"])
        row = [sums, str(k), f"{n:,}", str(timings["forward"]), str(timings["both"]), quotient]
        table.rows.append([*row, seconds(timings["both"].compiling)])
        cost = ratio(timings["both"], timings["forward"])
        part.stated(f"gradient, {sums}, k = {k}, n = {n:,}: forward and backward / forward", f"{cost:.3g}")
    part.tables.append(table)
    largest = EXACT_SIZES[-1]
    part.notes.append(
        f"One array of {largest:,} x {largest:,} numbers would take {largest**2 * 8 / 1e9:.1f} GB: the peak memory "
        "below says that none is made."
    )
    return part

r"""B4: the published integrator is written as a Runge-Kutta method of order 4, and is Euler's method.

Its stages move every token by the same vector, half the step of token $i$. The differences $z_j-z_i$ do not change
under that, and the attention matrix is not computed again: all four stages are equal, and their weighted mean is the
first one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import expm
from matplotlib.figure import Figure

import meanformer as mf

from ....plots import style
from ..base import Budget, Found, Item, Picture, Row
from .polytope import CASES, SAVE, cube, identity_field

CASE = CASES[0]
# The step of the published script first.
PUBLISHED_STEP = 0.1
REASON = (
    "its four stages shift all tokens alike and keep the attention matrix, so that they are equal: the step is Euler's"
)


def rescaled_field(d: int) -> Any:
    r"""The equation of the published script, $\dot z_i=V\sum_jP_{ij}(e^{tV}z)(z_j-z_i)$, as a field in $z$ and $t$.

    Logits are $(Qe^{tV}z_i)\cdot(Ke^{tV}z_j)$, and rows of $P$ sum to one: softmax with moving $Q$, $K$, minus $V$.
    """
    Q, K, V = jnp.eye(d), jnp.eye(d), jnp.eye(d)

    def at(t: Any) -> Any:
        grown = expm(t * V)
        return mf.Softmax(Q @ grown, K @ grown, V) + mf.Affine(-V)

    return mf.Scheduled(at)


def frozen_runge_kutta(z: np.ndarray, t: float, step: float) -> np.ndarray:
    """One step of the published scheme with V = Q = K = I, as it is written: four stages, all of them equal."""
    logits = np.exp(2 * t) * z @ z.T
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)

    def pull(shift: np.ndarray) -> np.ndarray:
        # Token i sees all tokens, itself included, shifted by its own stage.
        seen = z[None] + shift[:, None]
        return step * (np.einsum("ij,ijd->id", P, seen) - np.einsum("iid->id", seen))

    first = pull(np.zeros_like(z))
    second = pull(first / 2)
    third = pull(second / 2)
    fourth = pull(third)
    return z + (first + 2 * second + 2 * third + fourth) / 6


def published(z: np.ndarray, t1: float, step: float) -> np.ndarray:
    """The tokens by the published scheme at all its times, shape (steps + 1, n, d)."""
    path = [z]
    for k in range(round(t1 / step)):
        path.append(frozen_runge_kutta(path[-1], k * step, step))
    return np.stack(path)


def euler(tokens: mf.PointCloud, t1: float, step: float) -> Any:
    """Residual layers of this step in the rescaled frame."""
    return mf.layers(rescaled_field(tokens.d), tokens, round(t1 / step), step=step, progress=False)


def apart(one: Any, two: Any) -> float:
    """The largest distance between two positions of a token at any of the times, over the side of the cube."""
    return float(np.linalg.norm(np.asarray(one) - np.asarray(two), axis=-1).max()) / 10.0


class Compared(NamedTuple):
    """One start: the flow, the published scheme by its step, and differences between them."""

    flow: Any
    paths: dict[float, np.ndarray]  # by the published scheme, at the save times of the flow
    layers: float  # residual layers of the published step against the published scheme
    errors: dict[float, float]  # the published scheme against the flow
    higher: dict[float, float]  # a method of order 5 with the same step against the flow


def compare(seed: int, steps: tuple[float, ...]) -> Compared:
    """The published scheme, residual layers and the flow, from the same tokens."""
    tokens = cube(CASE.n, CASE.d, seed)
    options: dict[str, Any] = {"frame": mf.Rescaled(), "save": SAVE, "progress": False}
    field = identity_field(CASE.d)
    exact = mf.flow(field, tokens, CASE.t1, rtol=1e-9, atol=1e-10, **options)
    paths, errors, higher = {}, {}, {}
    for step in steps:
        every = round(CASE.t1 / step) // (SAVE - 1)
        paths[step] = published(np.asarray(tokens.points), CASE.t1, step)[::every]
        errors[step] = apart(paths[step], exact.points)
        same = mf.flow(field, tokens, CASE.t1, solver="tsit5", step=step, **options)
        higher[step] = apart(same.points, exact.points)
    layers = apart(euler(tokens, CASE.t1, PUBLISHED_STEP).points, paths[PUBLISHED_STEP])
    return Compared(exact, paths, layers, errors, higher)


def order_of(steps: tuple[float, ...], errors: dict[float, float]) -> float:
    """The order from the two smallest steps."""
    return float(np.log(errors[steps[-2]] / errors[steps[-1]]) / np.log(steps[-2] / steps[-1]))


def integrator_rows(found: list[Compared], steps: tuple[float, ...]) -> list[Row]:
    """That the published scheme is Euler's, its order, its difference to the flow, and what it does to the clusters."""
    same = max(one.layers for one in found)
    orders = np.array([order_of(steps, one.errors) for one in found])
    order = float(np.median(orders))
    rows = [
        Row(
            f"step {PUBLISHED_STEP:g}: difference of the published scheme to residual layers, over the cube's side",
            0.0,
            same,
            "1e-10",
            "holds" if same <= 1e-10 else "fails",
            REASON,
        ),
        Row(
            'order of the published "RK4"',
            4.0,
            order,
            "0.5",
            "misleads" if order < 3.5 else "holds",
            f"{orders.min():.2f} to {orders.max():.2f} in {len(found)} draws; {REASON}",
        ),
    ]
    for step in steps:
        error, fine = (max(getattr(one, name)[step] for one in found) for name in ("errors", "higher"))
        verdict = "misleads" if error > 100 * fine else "holds"
        why = f"a true method of higher order (tsit5) with the same step: {fine:.1e}"
        claim = f"step {step:g}: largest difference of the published scheme to the flow, over the side of the cube"
        rows.append(Row(claim, 0.0, error, "100 times that of tsit5", verdict, why))
    ends = [mf.PointCloud(one.paths[PUBLISHED_STEP][-1]) for one in found]
    counts = [(one.flow.clusters().count, mf.clusters(end).count) for one, end in zip(found, ends, strict=True)]
    equal = sum(a == b for a, b in counts)
    claim = f"step {PUBLISHED_STEP:g}: draws with as many clusters at $T={CASE.t1:g}$ as the flow has"
    word = "holds" if equal == len(counts) else "misleads"
    why = "so that the published pictures of the limits stand, and the paths to them are off"
    rows.append(Row(claim, "all", f"{equal} of {len(counts)}", "none", word, why if equal == len(counts) else ""))
    return rows


def compute(budget: Budget) -> Found:
    """The published setting on several draws."""
    draws, steps = budget.choose(3, 12), budget.choose((0.1, 0.05, 0.025), (0.1, 0.05, 0.025, 0.0125, 0.00625))
    found = []
    for k in range(draws):
        budget.say(k / draws, f"draw {k + 1} of {draws}")
        found.append(compare(budget.seed + k, steps))
    caption = (
        f"Left: the largest distance of a token from where the flow has it, over time, for {draws} draws by the "
        f"published scheme with its step {PUBLISHED_STEP:g} and smaller ones: paths differ, limits hardly. Right: the "
        "largest difference along the run over the step: the published scheme is of first order; tsit5 with the same "
        "steps shows what a method of higher order gives."
    )
    remark = (
        "The published code computes four stages as in the classical Runge-Kutta method, but with the attention matrix "
        "of the first one, and adds to all tokens the stage of token $i$. The right-hand side depends on differences "
        r"of tokens only, so that the four stages are equal and the step is Euler's, $z+h\,\dot z$: a residual layer."
    )
    rows = integrator_rows(found, steps)
    return Found(rows, [Picture("integrator", integrator_figure(found, steps), caption)], [remark])


def integrator_figure(found: list[Compared], steps: tuple[float, ...]) -> Figure:
    """Differences to the flow over time, and over the step."""
    shades = style.ordered_colours(np.arange(float(len(steps))))
    with style.style():
        figure = Figure(figsize=(9.8, 4.4), dpi=style.DPI, layout="constrained")
        left, right = figure.subplots(1, 2)
        for step, shade in zip(steps, shades, strict=True):
            for k, one in enumerate(found):
                gaps = np.linalg.norm(one.paths[step] - np.asarray(one.flow.points), axis=2).max(axis=1) / 10
                label = f"step {step:g}" if k == 0 else None
                left.plot(one.flow.times, gaps, color=shade, linewidth=1.2, alpha=0.85, label=label)
        left.set(xlabel="time $t$", ylabel="difference to the flow, over the side of the cube", ylim=(0, None))
        left.set_title("The published scheme takes other paths")
        for k, each in enumerate(found):
            for errors, colour, label in ((each.errors, 1, 'published "RK4"'), (each.higher, 0, "tsit5, same step")):
                values = [errors[step] for step in steps]
                look: dict[str, Any] = {"markersize": 4, "linewidth": 1.1, "alpha": 0.8}
                right.plot(steps, values, "o-", color=style.PALETTE[colour], label=label if k == 0 else None, **look)
        first = np.median([each.errors[steps[0]] for each in found])
        for power, line in ((1, ":"), (4, (0, (1, 3)))):
            guide = 2.0 * first * (np.array(steps) / steps[0]) ** power
            right.plot(steps, guide, linestyle=line, color=style.SOFT, linewidth=1.3, label=f"order {power}")
        right.set(xscale="log", yscale="log", xlabel="step", title="It is a method of first order")
        right.set_ylabel("largest difference to the flow")
        right.set_xticks(steps, [f"{step:g}" for step in steps])
        right.minorticks_off()
        for ax in (left, right):
            ax.legend(frameon=False, fontsize=8.5)
    return figure


ITEM = Item(
    id="B4",
    title="The published integrator is Euler's method",
    setting=rf"The setting of B1 with $d={CASE.d}$, $n={CASE.n}$, $T={CASE.t1:g}$, by the scheme of the published "
    r"script, which is written as a Runge-Kutta method of order 4 for $\dot z_i=V\sum_jP_{ij}(z_j-z_i)$ with step 0.1, "
    "against residual layers of the same step in the frame $z=e^{-tV}x$, and against the flow with error control.",
    compute=compute,
    minutes=(0.2, 0.4),
)

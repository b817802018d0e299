"""Sums over tokens up to an accuracy: a plan for a field and a cloud, checked on a sample of the tokens."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import QUICK, program
from .._types import Scalar, cast, common_dtype, is_traced
from .._warm import Module
from ..display.card import Html, card, shown
from ..measures.cloud import PointCloud
from ..reduce.exact import log_weights
from ..reduce.grid import LARGEST_DIMENSION
from ..reduce.plan import Asked, choose
from ..reduce.sums import AbstractSums, Exact, Fast
from .approximate import Approximate, unwrapped
from .base import AbstractField
from .kernel import AbstractAttention
from .l2 import L2
from .schedule import check_velocity
from .sigmoid import Sigmoid
from .sinkhorn import Sinkhorn
from .softmax import Softmax
from .solved import evaluate_at, evaluate_solved, problems
from .unnormalised import Unnormalised
from .view import View

EXPONENTIAL = (Softmax, L2, Sinkhorn, Unnormalised)
# Tokens on which a plan is checked: drawn at random, and the outermost ones.
RANDOM, OUTERMOST = 256, 64
# Fewer tokens than this are not worth the compiling of fast Sinkhorn iterations.
SINKHORN_TOKENS = 5_000
# How often a plan that misses its accuracy on the sample is made again, ten times stricter.
TRIES = 3


class Plan(Module):
    """How sums over tokens will be done: `mf.plan(field, tokens, accuracy=1e-6)`. Print it to read it.

    - `accuracy`: the largest error asked for, relative to the field's scale (its root mean square over random tokens);
    - `error`: the largest error measured, against exact sums, on random tokens and the outermost ones;
    - `bytes`: the memory that one evaluation of the field needs, about;
    - `words`: what will be done.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    plan = mf.plan(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens)
    print(plan)  # exact sums, some ... s for each velocity; ... GB
    assert plan.exact  # few tokens: nothing is faster
    ```
    """

    sums: AbstractSums
    """How the sums are done: what the library reads."""
    accuracy: float = eqx.field(static=True)
    """The largest error asked for, relative to the field's scale."""
    error: float = eqx.field(static=True)
    """The largest error measured on a sample; 0 for exact sums."""
    bytes: float = eqx.field(static=True)
    """The memory of one evaluation, about."""
    words: str = eqx.field(static=True)
    """What will be done, in words."""

    @property
    def exact(self) -> bool:
        """Whether all sums are exact."""
        return isinstance(self.sums, Exact)

    def __str__(self) -> str:
        measured = "" if self.exact else f"; error {self.error:.1e} measured on a sample, {self.accuracy:g} asked for"
        return f"{self.words}{measured}; {self.bytes / 1e9:.2g} GB"

    def __repr__(self) -> str:
        return f"<Plan: {self}>"

    @shown
    def _repr_html_(self) -> Html:
        error = None if self.exact else f"{self.error:.1e}, measured on a sample; {self.accuracy:g} asked for"
        return card("Plan", [("sums", self.words), ("error", error), ("memory", f"{self.bytes / 1e9:.2g} GB")])


def checked_accuracy(accuracy: Any) -> float:
    """The accuracy that is asked for, as a number."""
    value = checks.positive(accuracy, "accuracy", "1e-6 is usual; leave it out for exact sums")
    if is_traced(value) or not 1e-12 <= float(value) <= 1e-2:
        checks.refuse(
            "accuracy must be a number between 1e-12 and 0.01",
            got="a traced number" if is_traced(value) else f"accuracy = {float(value):g}",
            expected="a relative error, e.g. 1e-6",
            remedy="leave accuracy out for exact sums",
        )
    return float(value)


def plan(field: AbstractField, mu: Any, accuracy: Any = 1e-6, t: Any = 0.0) -> Plan:
    r"""How $\Gamma_\mu$ is computed at the tokens of `mu` up to `accuracy`, relative to the field's scale.

    Attention with keys of dimension 1, 2 or 3 (in each head) needs $O(n)$ work: softmax, L2, Sinkhorn, unnormalised,
    sigmoid, also masked. What is chosen depends on the number of tokens and the range of the logits; it is then checked
    against exact sums on a sample. Pass the plan where an accuracy is asked for, to plan once.

    **Arguments:** `field`, a field; `mu`, a `PointCloud`; `accuracy`, between $10^{-12}$ and 0.01; `t`, the time.

    **Returns:** a `Plan`; print it to read it.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    field = mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2))
    plan = mf.plan(field, tokens, accuracy=1e-6)
    assert mf.velocity(field, tokens, accuracy=plan).shape == (40, 2)
    ```
    """
    return planned(field, mu, accuracy, t)[0]


def planned(
    field: AbstractField, mu: Any, accuracy: Any, t: Any = 0.0, margin: float = 1.0
) -> tuple[Plan, Float[Array, "n d"] | None]:
    """The plan, and the velocities that it gave at the tokens; None if it is for exact sums."""
    accuracy, t = checked_accuracy(accuracy), checks.scalar(t, "t")
    check_velocity(field, mu, t)
    if not isinstance(mu, PointCloud):
        checks.refuse(
            "plans are for sums over tokens",
            got=checks.described(mu),
            expected="a PointCloud",
            remedy="of a Gaussian or a density take tokens: mf.to_cloud(mu, 1000, key=key)",
        )
    digits = float(jnp.finfo(common_dtype(field.terms(t), mu)).eps)
    if accuracy < 4 * digits:
        checks.refuse(
            "the accuracy is too strict for the dtype",
            got=f"accuracy = {accuracy:g} for {common_dtype(field.terms(t), mu)}",
            expected=f"accuracy >= {4 * digits:.1g}",
            remedy="loosen it, or pass float64 tokens and matrices",
        )
    if is_traced(field, mu, t):
        checks.refuse(
            "a plan needs known numbers",
            got="a traced field or tokens, under jit, vmap or grad",
            expected="numbers",
            remedy="plan outside: plan = mf.plan(field, tokens, 1e-6), then accuracy=plan inside",
        )
    field = unwrapped(field)
    field, mu, t = cast((field, mu, t), common_dtype(field.terms(t), mu))
    asked = asked_of(field, mu, t)
    # The iterations take seconds to compile, which few tokens do not pay back.
    exact = mu.n < SINKHORN_TOKENS and bool(problems(field, mu, t, View(mu.positions), Sinkhorn))
    strict = accuracy
    for _ in range(TRIES):
        choice = choose(asked, strict, margin, exact_only=exact)
        if isinstance(choice.sums, Exact):
            break
        velocity, error = tried(field, mu, t, choice.sums)
        if error <= accuracy:
            return Plan(choice.sums, accuracy, error, choice.bytes + _bytes(mu), choice.words), velocity
        strict /= 10
    slow = choose(asked_of(field, mu, t, everything=True), accuracy, margin, exact_only=True).words
    return Plan(Exact(), accuracy, 0.0, _bytes(mu), slow + _reason(field, mu, t)), None


def _reason(field: AbstractField, mu: PointCloud, t: Scalar) -> str:
    """Why sums are exact, if not because that is fastest."""
    found = problems(field, mu, t, View(mu.positions), AbstractAttention)
    widest = max((leaf.K.shape[0] for leaf, *_ in found), default=0)
    if widest > LARGEST_DIMENSION:
        return f" (keys of dimension {widest}: only up to {LARGEST_DIMENSION} can sums be fast)"
    if len(found) > len({id(a.queries) for a in asked_of(field, mu, t)}):
        return " (some have no fast form: hardmax, masked Sinkhorn or sigmoid, tokens that share positions)"
    return ""


def _bytes(mu: PointCloud) -> float:
    """Tokens, queries, keys, values and their sums, a few times over."""
    return 12.0 * mu.n * mu.d * mu.points.dtype.itemsize


def _check_logits(queries: np.ndarray, keys: np.ndarray) -> None:
    """Refuse what squares of sums cannot be made of."""
    with np.errstate(over="ignore"):
        largest = np.maximum(np.abs(queries).max(), np.abs(keys).max()) ** 2 * (8 * queries.shape[1])
    remedy = "scale the tokens, or Q and K, down: logits (Qx).(Ky) must be finite"
    checks.representable(largest, "the largest logit", remedy)


def asked_of(field: AbstractField, mu: PointCloud, t: Scalar, everything: bool = False) -> list[Asked]:
    """The sums that a field needs at the tokens of `mu`, for the planner: those that may be fast, or `everything`."""
    found = []
    for leaf, cloud, view in problems(field, mu, t, View(mu.positions), AbstractAttention):
        if isinstance(leaf, (*EXPONENTIAL, Sigmoid)) and not (isinstance(leaf, Sinkhorn) and view.causal):
            queries, keys = (np.asarray(a, float) for a in leaf.features(cloud.points, cloud.points))
            _check_logits(queries, keys)
            averages = not isinstance(leaf, Sigmoid)
            columns = leaf.V.shape[0] + int(averages)
            # Those without weight ask in a Sinkhorn problem as well, and are in its boxes.
            weights = jnp.ones_like(cloud.weights) if isinstance(leaf, Sinkhorn) else cloud.weights
            logs = np.asarray(log_weights(weights), float)
            masked = view.causal
            if (
                not everything
                and masked
                and cloud.positions is not None
                and len(np.unique(np.asarray(cloud.positions))) < cloud.n
            ):
                continue  # tokens that share a position are not cut into blocks: exact sums
            of_keys = leaf.can_mix_keys and bool(leaf.values_of_keys()[1])
            found.append(Asked(leaf.logit, queries, keys, logs, columns, masked, averages, of_keys))
            if isinstance(leaf, Sinkhorn):  # keys query as well
                found.append(Asked(leaf.logit, keys, queries, logs, columns, masked, averages, of_keys))
    return found


def tried(field: AbstractField, mu: PointCloud, t: Scalar, sums: AbstractSums) -> tuple[Float[Array, "n d"], float]:
    """The velocities with `sums`, and their largest error against exact sums on random tokens and the outermost ones,
    relative to the root mean square of the field there; also the worst marginal of Sinkhorn problems, in exact sums.
    """
    points = np.asarray(mu.points)
    drawn = np.random.default_rng(mu.n).choice(mu.n, min(RANDOM, mu.n), replace=False)
    distance = np.linalg.norm(points - points.mean(axis=0), axis=1)
    far = np.argpartition(distance, max(mu.n - OUTERMOST, 0))[-OUTERMOST:]
    rows = np.concatenate([drawn, far])
    velocity, *compared = _trial(field, mu, t, sums, jnp.asarray(rows), len(drawn))
    exact, worst = map(np.asarray, compared)
    error = np.abs(np.asarray(velocity)[rows] - exact).max()
    scale = np.sqrt((exact[: len(drawn)] ** 2).sum(axis=1).mean())
    relative = error / scale if scale > 0 else error
    return velocity, float(max(relative, worst)) if np.isfinite(error) else float("inf")


@program(options=QUICK)
def _trial(
    field: AbstractField, mu: PointCloud, t: Scalar, sums: AbstractSums, rows: Array, columns: int
) -> tuple[Float[Array, "n d"], Float[Array, "m d"], Scalar]:
    r"""The velocities with `sums`; those at some tokens in exact sums, at the potentials of `sums`; and
    $\max_j|\sum_iw_ie^{f_i+g_j+c_{ij}}-1|$ over the first so many of these tokens.
    """
    found = evaluate_solved(field, mu, mu.points, t, View(mu.positions, sums=sums))
    # In a narrow dtype exact sums would be less accurate than what they are to check.
    field, mu, t, solutions = cast((field, mu, t, found.problems), jax.dtypes.canonicalize_dtype(float))
    view = View(None if mu.positions is None else mu.positions[rows])
    exact = evaluate_at(field, mu, mu.points[rows], t, view, solutions)
    worst = [jnp.zeros((), exact.dtype)]
    leaves = problems(field, mu, t, View(mu.positions), Sinkhorn)
    for (leaf, cloud, seen), solution in zip(leaves, solutions, strict=True):
        if not seen.causal:
            worst.append(leaf.column_error(cloud, solution, rows[:columns]))
    return found.velocity, exact, jnp.stack(worst).max()


@program
def usage(field: Approximate, mu: PointCloud, t: Scalar) -> Scalar:
    """The ranges of the logits relative to what the plan covers: beyond 1, sums are NaN."""
    if not isinstance(field.sums, Fast):
        return jnp.zeros(())
    used = [jnp.zeros((), mu.points.dtype)]
    for leaf, cloud, view in problems(field, mu, t, View(mu.positions), AbstractAttention):
        if not isinstance(leaf, (*EXPONENTIAL, Sigmoid)) or (isinstance(leaf, Sinkhorn) and view.causal):
            continue
        q, y = leaf.features(cloud.points, cloud.points)
        averages = not isinstance(leaf, Sigmoid)
        both = isinstance(leaf, Sinkhorn)  # keys query as well, and tokens without weight are in the boxes
        weights = jnp.ones_like(cloud.weights) if both else cloud.weights
        used.append(field.sums.usage(leaf.logit, q, y, weights, averages, view.causal))
        if both:
            used.append(field.sums.usage(leaf.logit, y, q, weights, averages, view.causal))
        if field.sums.mixes_keys and leaf.can_mix_keys and not view.causal:
            used.append(jnp.where(leaf.values_of_keys()[1], 0, jnp.inf).astype(used[0].dtype))
    return jax.lax.stop_gradient(jnp.stack(used).max())


def check_fit(plan: Plan, field: AbstractField, mu: PointCloud, t: Scalar) -> None:
    """Refuse a plan that does not cover a cloud, where that can be known."""
    check_plan(plan, mu)
    if is_traced(plan, field, mu, t, jnp.zeros(()) + 0):
        return
    field, mu, t = cast((unwrapped(field), mu, t), common_dtype(field.terms(t), mu))
    used = float(usage(Approximate(field, plan.sums), mu, t))
    if used > 1:
        checks.refuse(
            "this plan was made for another cloud, or another field",
            got=f"ranges of logits {used:.3g} times as large as it covers",
            expected="tokens no farther apart than those it was made for",
            remedy="plan again: mf.plan(field, tokens, accuracy)",
        )


def check_plan(plan: Plan, mu: PointCloud) -> None:
    """Refuse a plan that was made for another number of tokens, where that matters."""
    labels = getattr(plan.sums, "labels", None)
    if labels is not None and labels.shape[0] != mu.n:
        checks.refuse(
            "this plan knows the clusters of other tokens",
            got=f"a plan for {labels.shape[0]} tokens, and {mu.n} tokens",
            expected="one number of tokens",
            remedy="plan again: mf.plan(field, tokens, accuracy)",
        )

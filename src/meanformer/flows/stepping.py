"""A segment of a run as one small program: steps with error control, save times, stop rules.

A run is a sequence of segments. A segment takes at most so many steps; progress, plans, journals and clocks are seen to
between segments, on the host. A segment starts afresh from (state, time, step size), which is all that the next one
needs to know.

The program holds one copy of the field and calls nothing back, so it compiles fast, and can be kept on disk. It is not
differentiated: runs under tracing are those of diffrax (`meanformer.flows.segment`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._programs.call import QUICK, program
from .._types import Scalar
from ..attention.solved import Watch
from ..outcome import Ending
from .methods import AbstractMethod, Known, Step
from .observe import Observer
from .stop import AbstractStop
from .system import AbstractSystem, is_finite

# Error control: the next step is h * clip(SAFETY * error^(-1/order), SHRINK, GROW), not shorter after a step that was
# kept, shorter after one that was not.
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
# A step that would leave less than this share of itself, or so many roundings of the time, up to the end goes there.
LEFT_OVER, ROUNDINGS = 1e-9, 64


class Control(NamedTuple):
    """How steps are chosen: by error control, or constant if `step` is given."""

    rtol: Scalar
    atol: Scalar
    step: Scalar | None

    def smallest(self, t: Scalar, t1: Scalar) -> Scalar:
        """Below this step the time itself is no longer resolved."""
        return 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t1))


class Asked(NamedTuple):
    """What is looked at on the way: the rules after each step, the observer at save times; `planned` says that the sums
    over tokens have a plan, which the tokens may outgrow.
    """

    rules: tuple[AbstractStop, ...]
    observer: Observer
    planned: bool


class Span(NamedTuple):
    """What a segment is to do: to go from `t` with steps of about `dt` towards `end`, in at most `budget` steps, and to
    save at `times` from the row `row` on.
    """

    t: Scalar
    end: Scalar
    dt: Scalar
    budget: Any
    times: Any
    row: Any


class Segment(NamedTuple):
    """What came out of a segment. `saved` has a row for each save time, of which those up to `row` are filled: the
    states, and what the observer sees of them. `watch` has the Sinkhorn problems of its kept steps, if there are any
    and the method watches them.
    """

    y: Any
    t: Scalar
    dt: Scalar
    saved: Any
    row: Int[Array, ""]
    ending: Int[Array, ""]
    outgrown: Bool[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    watch: Watch | None


class _Now(NamedTuple):
    """The state of the loop; `ending` is UNFINISHED while it goes on."""

    t: Scalar
    y: Any
    h: Scalar
    known: Known
    saved: Any
    row: Int[Array, ""]
    ending: Int[Array, ""]
    outgrown: Bool[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    first: Bool[Array, ""]


@program
def advance(
    system: AbstractSystem, method: AbstractMethod, control: Control, asked: Asked, y: Any, span: Span
) -> Segment:
    """Integrate from `span.t` towards `span.end`, no longer than the plan of the sums lasts."""
    times, end = span.times, span.end
    constant = control.step is not None

    def velocity(t: Scalar, y: Any, watch: Watch | None) -> tuple[Any, Watch | None]:
        found = system.solved(t, y, None if watch is None else watch.guesses)
        # That of a user's kind may be one for all tokens, or of another dtype.
        rates = jax.tree.map(lambda v, a: jnp.broadcast_to(v, a.shape).astype(a.dtype), found.velocity, y)
        return rates, None if watch is None else watch.after(found)

    def record(t: Scalar, y: Any) -> Any:
        return asked.observer.look(system, t, system.retract(y))

    def iterate(now: _Now) -> _Now:
        left = end - now.t
        slack = jnp.maximum(LEFT_OVER * left, ROUNDINGS * jnp.finfo(left.dtype).eps * jnp.abs(end))
        reaches = now.h >= left - slack
        h = jnp.where(now.first, 0, jnp.where(reaches, left, now.h))
        t = jnp.where(now.first, now.t, jnp.where(reaches, end, now.t + h))
        step = method.step(velocity, now.t, now.y, h, now.known, now.first)
        after = system.retract(step.y)
        finite = is_finite(after)
        error = jnp.zeros((), t.dtype) if constant else system.size_of(_scaled(control, now.y, step))
        kept = now.first | (finite if constant else (error < 1) & finite)
        # The first step only asks for the velocity, which may be no number.
        y = _where(kept & ~now.first, after, now.y)
        known = _where(kept, step.known, now.known)
        row, saved = _save(now, step, kept, t, y)
        h = jnp.where(now.first, now.h, now.h if constant else h * _factor(error, kept, method.order))
        stop, outgrown = _looked(kept, t, y, known.velocity)
        outgrown = outgrown & (now.first | ~reaches)  # at the end no other plan is needed
        # Where the plan of the sums is used up, it may be to blame: the next segment has another one.
        stalled = jnp.zeros((), bool) if known.watch is None else ~known.watch.solved & ~outgrown
        accepted = now.accepted + (kept & ~now.first).astype(int)
        rejected = now.rejected + (~kept).astype(int)
        failed = ~kept & (True if constant else h < control.smallest(now.t, end))
        ending = jnp.select(
            [failed & ~(finite & jnp.isfinite(error)), failed, stalled, stop | outgrown, kept & reaches & ~now.first],
            [Ending.NOT_FINITE, Ending.STEP_TOO_SMALL, Ending.SINKHORN_STALLED, Ending.STOPPED, Ending.REACHED],
            jnp.where(accepted + rejected >= span.budget, int(Ending.STEP_LIMIT), int(Ending.UNFINISHED)),
        ).astype(now.ending.dtype)
        t = jnp.where(kept, t, now.t)
        return _Now(t, y, h, known, saved, row, ending, outgrown & ~stop, accepted, rejected, jnp.zeros_like(now.first))

    def _save(now: _Now, step: Step, kept: Array, t: Scalar, y: Any) -> tuple[Array, Any]:
        """Fill the rows of the save times in this step."""
        length = jnp.where(t > now.t, t - now.t, 1)

        def due(carry: tuple[Array, Any]) -> Array:
            row = carry[0]
            return kept & (row < times.size) & (times[jnp.minimum(row, times.size - 1)] <= t)

        def write(carry: tuple[Array, Any]) -> tuple[Array, Any]:
            row, saved = carry
            inside = _where(times[row] == t, y, step.inside((times[row] - now.t) / length))
            values = record(times[row], inside)
            put = jax.lax.dynamic_update_index_in_dim  # which, unlike `.at`, does not ask whether the row is there
            return row + 1, jax.tree.map(lambda rows, value: put(rows, value, row, 0), saved, values)

        return jax.lax.while_loop(due, write, (now.row, now.saved))

    def _looked(kept: Array, t: Scalar, y: Any, velocity: Any) -> tuple[Array, Array]:
        """Whether a rule holds, and whether the plan of the sums is used up."""

        def speed() -> Any:
            return system.moments_of_speed(t, y, velocity)

        held = [rule(system.measure(y), t, speed) for rule in asked.rules]
        grown = system.outgrown(t, y) if asked.planned else jnp.zeros((), bool)  # pyright: ignore
        return kept & jnp.stack([*held, jnp.zeros((), bool)]).any(), kept & grown

    shapes = eqx.filter_eval_shape(record, span.t, y)
    count = jnp.zeros((), int)
    start = _Now(
        t=span.t,
        y=y,
        h=span.dt if control.step is None else control.step,
        known=Known(
            jax.tree.map(jnp.zeros_like, y) if method.chained else None,
            system.watch(span.t, y) if method.watches else None,
        ),
        saved=jax.tree.map(lambda a: jnp.zeros((times.size, *a.shape), a.dtype), shapes),
        row=span.row,
        ending=jnp.asarray(int(Ending.UNFINISHED)),
        outgrown=jnp.zeros((), bool),
        accepted=count,
        rejected=count,
        first=jnp.ones((), bool),
    )
    now = jax.lax.while_loop(lambda now: now.ending == Ending.UNFINISHED, iterate, start)
    watch = now.known.watch
    return Segment(now.y, now.t, now.h, now.saved, now.row, now.ending, now.outgrown, now.accepted, now.rejected, watch)


advance_on_grids = advance.with_options(QUICK)
"""The same, where sums over tokens are done on grids: these are not slower so."""


def _scaled(control: Control, y: Any, step: Step) -> Any:
    """The error of a step as a multiple of what is allowed."""

    def scaled(a: Array, b: Array, error: Array) -> Array:
        return error / (control.atol + control.rtol * jnp.maximum(jnp.abs(a), jnp.abs(b)))

    return jax.tree.map(scaled, y, step.y, step.error)


def _factor(error: Scalar, kept: Array, order: int) -> Scalar:
    """By how much the next step is longer."""
    wanted = SAFETY * jnp.where(jnp.isfinite(error), error, jnp.inf) ** (-1 / order)
    return jnp.where(kept, jnp.clip(wanted, 1, GROW), jnp.clip(wanted, SHRINK, SAFETY))


def _where(mask: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(mask, a, b), new, old)

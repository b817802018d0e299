"""A run as a sequence of segments, on the host; or as one segment per piece, under tracing."""

import time as clock
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._progress import Progress
from .._types import Scalar
from ..attention.approximate import Approximate
from ..outcome import Ending, Outcome
from .journal import AbstractJournal, shell_of
from .observe import Observer, recorded, stacked
from .planning import Planner
from .segment import Control, Segment, run_segment
from .stop import AbstractStop
from .system import AbstractSystem, look_at_sinkhorn
from .trajectory import Trajectory, observed

# Steps in a segment: as many as take about SEGMENT_SECONDS, so that progress is seen and a clock is kept; but enough
# for the step to grow and shrink, since a segment only hands on the length of its last step.
SEGMENT_STEPS = 64
FEWEST_STEPS = 8
SEGMENT_SECONDS = 2.0
PAIRS_PER_SECOND, TOKENS_PER_SECOND = 2e8, 1e6


def segment_steps(n: int, fast: bool = False) -> int:
    """How many steps a segment takes, from the number of tokens alone: equal runs have equal segments."""
    seconds_per_step = 6 * (n / TOKENS_PER_SECOND if fast else n**2 / PAIRS_PER_SECOND)
    return min(SEGMENT_STEPS, max(FEWEST_STEPS, int(SEGMENT_SECONDS / seconds_per_step)))


def _first_step(t0: Scalar, t1: Scalar) -> Scalar:
    """A cautious first step: error control makes it right within a few steps."""
    return 0.01 * jnp.minimum(t1 - t0, 1)


def traced_run(
    system: AbstractSystem,
    pieces: list[tuple[AbstractSystem, Scalar]],
    solver: diffrax.AbstractSolver,
    control: Control,
    rules: tuple[AbstractStop, ...],
    adjoint: diffrax.AbstractAdjoint,
    limit: int,
    times: Array,
    t0: Scalar,
    observer: Observer,
) -> Trajectory:
    """One segment per piece, with arrays for an outcome."""
    y, t, saved = system.start(), t0, None
    ending = jnp.asarray(int(Ending.REACHED))
    accepted = rejected = jnp.zeros((), int)
    for piece, end in pieces:
        segment = run_segment(
            piece, solver, control, rules, adjoint, limit, y, t, end, _first_step(t, end), times, observer, traced=True
        )
        # A piece after a failed one does not count: its rows and its state stay as they were.
        alive = ending == Ending.REACHED
        looks = [piece.sinkhorn_excess(*seen) for seen in ((t, y), (segment.t, segment.y))]
        inside = alive & (times >= t)
        saved = segment.saved if saved is None else _choose(inside, segment.saved, saved)
        y = _choose(alive, segment.y, y)
        ending = jnp.where(alive, segment.ending, ending)
        for excess in looks:
            if excess is not None:
                ending = jnp.where((ending == Ending.REACHED) & excess[1], int(Ending.SINKHORN_STALLED), ending)
        accepted, rejected = accepted + segment.accepted, rejected + segment.rejected
        t = jnp.where(alive, segment.t, t)
    assert saved is not None
    stats = {"steps": accepted, "rejected": rejected}
    return observed(observer, system, times, saved, system.snapshot(t, y), Outcome(ending, t), stats, False)


def _choose(mask: Array, new: Any, old: Any) -> Any:
    """`new` where `mask` holds, else `old`; the mask runs along the leading axes."""

    def chosen(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(chosen, new, old)


def host_run(
    system: AbstractSystem,
    pieces: list[tuple[AbstractSystem, Scalar]],
    solver: diffrax.AbstractSolver,
    control: Control,
    rules: tuple[AbstractStop, ...],
    limit: int,
    times: Array,
    t0: Scalar,
    bar: Progress,
    began: float,
    seconds: float,
    observer: Observer,
    accuracy: Any,
    journal: AbstractJournal,
) -> Trajectory:
    """Segment after segment; between them, progress is shown, plans are made, clocks and Sinkhorn problems seen to, and
    a journal kept.
    """
    y, t, dt, ending, number = system.start(), t0, _first_step(t0, pieces[0][1]), Ending.REACHED, 0
    known, kept = np.asarray(times), []
    stats: dict[str, Any] = {"steps": 0, "rejected": 0, "segments": 0}
    planner = Planner(accuracy, stats)
    before = t, y

    def carried() -> Any:
        # The start of the last segment is asked for at the end of a sampled run alone.
        return t, y, dt, planner.state(t, y), None if observer.tokens is None else before

    earlier = journal.resume(lambda: shell_of(system, observer, t0, discrete=False), carried())
    if earlier is None and known[0] == float(t0):
        kept.append((float(t0), jax.tree.map(np.asarray, recorded(observer, system, t0, y))))
    if earlier is not None:
        kept, (t, y, dt, planned, earlier_start), note = earlier
        before = (t, y) if earlier_start is None else earlier_start
        stats |= note["stats"]
        planner.restore(note["planner"], planned, lambda k: pieces[k][0])
        number, ending = note["piece"], Ending(note["ending"])
        began -= stats.pop("seconds", 0.0)
        bar.update(float(t), stats["steps"])
    seen = 0 if earlier is None else len(kept)
    adjoint = diffrax.DirectAdjoint()

    while number < len(pieces) and ending == Ending.REACHED:
        piece, end = pieces[number]
        planner.piece = number
        piece = planner.fitted(piece, t, y)
        if stats["segments"] == 0:
            bar.say(planner.said)
        ending = look_at_sinkhorn(piece, t, y, stats)
        if ending != Ending.REACHED:
            break
        gridded, before = isinstance(piece.field, Approximate), (t, y)
        budget = min(segment_steps(system.size, gridded), limit - stats["steps"] - stats["rejected"])
        if budget <= 0:
            ending = Ending.STEP_LIMIT
            break
        segment = run_segment(piece, solver, control, rules, adjoint, budget, y, t, end, dt, times, observer, gridded)
        if gridded and int(segment.ending) in (Ending.NOT_FINITE, Ending.STEP_TOO_SMALL):
            # Perhaps a stage left the plan: not an outcome before wider plans, and exact sums, say so too.
            planner.widen()
            stats["rejected"] += int(segment.accepted) + int(segment.rejected)
            continue
        kept += _rows(system, segment, known, float(t))
        stats["steps"] += int(segment.accepted)
        stats["rejected"] += int(segment.rejected)
        stats["segments"] += 1
        y, t, dt = segment.y, segment.t, segment.dt
        bar.update(float(t), stats["steps"])
        ending = Ending(int(segment.ending))
        spent = stats["steps"] + stats["rejected"]
        if (ending == Ending.STEP_LIMIT and spent < limit) or bool(segment.outgrown):
            ending = Ending.REACHED  # the segment's own limit, or the plan's: the next one goes on
        if ending == Ending.REACHED and bool(segment.reached):
            ending, number = look_at_sinkhorn(piece, t, y, stats), number + 1
            dt = dt if number == len(pieces) else _first_step(t, pieces[number][1])
        elif ending == Ending.REACHED and clock.monotonic() - began > seconds:
            ending = Ending.STOPPED
        stats["seconds"] = clock.monotonic() - began
        note = {"stats": dict(stats), "piece": number, "ending": int(ending), "planner": planner.note()}
        journal.keep(kept[seen:], carried(), note)
        seen = len(kept)
    stats["seconds"] = clock.monotonic() - began
    return _assemble(system, kept, t0, t, y, ending, stats, observer, before)


def _rows(system: AbstractSystem, segment: Segment, known: np.ndarray, start: float) -> list[tuple[float, Any]]:
    """What a segment saved, up to where it is resolved."""
    saved = jax.tree.map(np.asarray, segment.saved)
    inside = np.flatnonzero((known > start) & (known <= float(segment.t)))
    rows = [(float(known[i]), jax.tree.map(lambda a, i=i: a[i].copy(), saved)) for i in inside]
    return [(time, row) for time, row in rows if system.whole(row[0])]


@eqx.filter_jit
def _saved(system: AbstractSystem, t: Scalar, y: Any) -> Any:
    return system.snapshot(t, y)


def _assemble(
    system: AbstractSystem,
    kept: list[tuple[float, Any]],
    t0: Scalar,
    t: Scalar,
    y: Any,
    ending: Ending,
    stats: dict[str, Any],
    observer: Observer,
    before: tuple[Scalar, Any],
) -> Trajectory:
    """The trajectory up to where it is resolved; a run that ended between save times keeps its last state too."""
    final = jax.tree.map(np.asarray, _saved(system, t, y))
    whole = system.whole(final)
    if ending != Ending.REACHED and whole and (not kept or float(t) > kept[-1][0]):
        kept.append((float(t), jax.tree.map(np.asarray, recorded(observer, system, t, y))))
    if not kept:  # not even the first save time is resolved: the start is
        kept.append((float(t0), jax.tree.map(np.asarray, recorded(observer, system, t0, system.start()))))
    if not whole:  # of a sampled run the start of the last segment is the last whole state that is known
        final = kept[-1][1][0] if observer.tokens is None else jax.tree.map(np.asarray, _saved(system, *before))
    saved = stacked([row for _, row in kept])
    times = jnp.asarray([time for time, _ in kept], t.dtype)
    outcome = Outcome(jnp.asarray(int(ending)), t)
    return observed(observer, system, times, saved, jax.tree.map(jnp.asarray, final), outcome, stats, False)

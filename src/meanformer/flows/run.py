"""A run as a sequence of segments, on the host; between them, progress is shown, plans are made, clocks seen to, and
a journal kept.
"""

import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._progress import Progress
from .._types import Scalar, is_traced
from .._warm import assembled
from ..attention.approximate import Approximate
from ..attention.solved import Watch
from ..outcome import Ending, Outcome
from .journal import AbstractJournal, Kept, NoJournal, shell_of
from .observe import recorded, stacked
from .padding import padded, padded_state
from .planning import Planner
from .stepping import Asked, Segment, Span
from .system import AbstractSystem, note_watch
from .trajectory import Trajectory, observed

# Steps in a segment: as many as take about SEGMENT_SECONDS, so that progress is seen and a clock is kept; but enough
# for the step to grow and shrink, since a segment only hands on the length of its last step.
SEGMENT_STEPS = 64
FEWEST_STEPS = 8
SEGMENT_SECONDS = 2.0
PAIRS_PER_SECOND, TOKENS_PER_SECOND = 2e8, 1e6
# Save times are padded to a power of two, and to so many at least, if what is saved takes no more than so many bytes.
FEW_BYTES, FEW_ROWS = 2**24, 128

Integrate = Callable[[AbstractSystem, Asked, Any, Span], Segment]


def watching(integrate: Integrate) -> Integrate:
    """The same for a method that does not watch Sinkhorn problems: those at both ends of a segment are solved again."""

    def watched(system: AbstractSystem, asked: Asked, y: Any, span: Span) -> Segment:
        segment = integrate(system, asked, y, span)
        looks = [system.sinkhorn_excess(*end) for end in ((span.t, y), (segment.t, segment.y))]
        seen = [look for look in looks if look is not None]
        if not seen:
            return segment
        error, unsolved = (np.stack([np.asarray(look[k]) for look in seen]).max() for k in range(2))
        ending = np.asarray(int(Ending.SINKHORN_STALLED)) if unsolved and not segment.outgrown else segment.ending
        return segment._replace(watch=Watch((), error, ~unsolved), ending=ending)

    return watched


def segment_steps(n: int, fast: bool = False) -> int:
    """How many steps a segment takes, from the number of tokens alone: equal runs have equal segments."""
    seconds_per_step = 6 * (n / TOKENS_PER_SECOND if fast else n**2 / PAIRS_PER_SECOND)
    return min(SEGMENT_STEPS, max(FEWEST_STEPS, int(SEGMENT_SECONDS / seconds_per_step)))


def first_step(t0: Any, t1: Any) -> Any:
    """A cautious first step: error control makes it right within a few steps."""
    if is_traced(t0, t1):
        return 0.01 * jnp.minimum(t1 - t0, 1)
    return np.asarray(0.01 * np.minimum(np.subtract(t1, t0), 1))


@dataclass(frozen=True)
class Prepared:
    """A run that has been checked: the system, its `pieces` with their ends, who integrates them, what is looked at,
    and the limits. `accuracy` is that of the sums over tokens; `began` is when the clock started, on which `seconds`
    count; `told` goes into the stats.
    """

    system: AbstractSystem
    pieces: list[tuple[AbstractSystem, Scalar]]
    integrate: Integrate
    asked: Asked
    times: np.ndarray
    t0: Scalar
    limit: int
    accuracy: Any
    began: float
    seconds: float
    told: dict[str, Any]


def host_run(run: Prepared, bar: Progress, journal: AbstractJournal) -> Trajectory:
    """Segment after segment."""
    now = _Now(run)
    journaled = not isinstance(journal, NoJournal)
    if journaled:
        now.restore(journal.resume(lambda: shell_of(run.system, run.asked.observer, run.t0, False), now.carried()))
        bar.update(float(now.t), now.stats["steps"])
    while now.number < len(run.pieces) and now.ending == Ending.REACHED:
        piece, _ = run.pieces[now.number]
        now.planner.piece = now.number
        piece = now.planner.fitted(piece, now.t, now.y)
        if now.stats["segments"] == 0:
            bar.say(now.planner.said)
        if now.advanced(piece):
            bar.update(float(now.t), now.stats["steps"])
            if journaled:
                journal.keep(now.news(), now.carried(), now.note())
    now.stats["seconds"] = clock.monotonic() - now.began
    return now.trajectory()


class _Now:
    """Where a run is: state, time and step, the piece, and the blocks of records that were kept."""

    def __init__(self, run: Prepared):
        self.run, self.began = run, run.began
        self.t, self.y, self.dt = np.asarray(run.t0), run.system.start(), first_step(run.t0, run.pieces[0][1])
        self.number, self.ending, self.row = 0, Ending.REACHED, 0
        self.stats: dict[str, Any] = {"steps": 0, "rejected": 0, "segments": 0, **run.told}
        self.planner = Planner(run.accuracy, self.stats)
        self.before = self.t, self.y
        # Times and records, block by block, of which `seen` rows are known to the journal.
        self.blocks: list[tuple[np.ndarray, Any]] = []
        self.seen = 0
        few = run.times.size * run.asked.observer.bytes(run.system) <= FEW_BYTES
        size = max(FEW_ROWS, 1 << (run.times.size - 1).bit_length()) if few else run.times.size
        self.times = np.concatenate([run.times, np.full(size - run.times.size, np.inf, run.times.dtype)])

    @property
    def rows(self) -> int:
        """How many records were kept."""
        return sum(len(times) for times, _ in self.blocks)

    def advanced(self, piece: AbstractSystem) -> bool:
        """Integrate one segment of `piece`; False if it must be done again, or no step is left."""
        run, stats, start = self.run, self.stats, (self.t, self.y)
        gridded = isinstance(piece.field, Approximate)
        spent = stats["steps"] + stats["rejected"]
        budget = min(segment_steps(run.system.size, gridded), run.limit - spent)
        if budget <= 0:
            self.ending = Ending.STEP_LIMIT
            return False
        asked = run.asked._replace(planned=True) if gridded else run.asked
        wide = padded(piece, run.t0, asked)
        span = Span(self.t, run.pieces[self.number][1], self.dt, np.asarray(budget), self.times, np.asarray(self.row))
        segment = jax.tree.map(np.asarray, run.integrate(wide, asked, padded_state(wide, self.y), span))
        tried = int(segment.accepted) + int(segment.rejected)
        ending = Ending(int(segment.ending))
        if gridded and ending in (Ending.NOT_FINITE, Ending.STEP_TOO_SMALL):
            # Perhaps a stage left the plan: not an outcome before wider plans, and exact sums, say so too.
            self.planner.widen()
            stats["rejected"] += tried
            return False
        self.before = start
        self._keep(segment)
        stats["steps"] += int(segment.accepted)
        stats["rejected"] += int(segment.rejected)
        stats["segments"] += 1
        note_watch(segment.watch, stats)
        self.t, self.dt = segment.t, segment.dt
        self.y = segment.y if wide is piece else run.system.cut(segment.y, slice(run.system.size))
        if (ending == Ending.STEP_LIMIT and spent + tried < run.limit) or segment.outgrown:
            self.ending = Ending.REACHED  # the segment's own limit, or the plan's: the next one goes on
            if clock.monotonic() - self.began > run.seconds:
                self.ending = Ending.STOPPED
        elif ending == Ending.REACHED:
            self.number += 1
            if self.number < len(run.pieces):
                self.dt = first_step(self.t, np.asarray(run.pieces[self.number][1]))
        else:
            self.ending = ending
        stats["seconds"] = clock.monotonic() - self.began
        return True

    def _keep(self, segment: Segment) -> None:
        """Keep what a segment saved, up to where it is finite."""
        system, times = self.run.system, self.run.times
        rows = slice(self.row, min(int(segment.row), times.size))
        self.row = rows.stop
        if rows.stop > rows.start:
            # A slice would keep the rows of all segments in memory.
            few = 2 * (rows.stop - rows.start) < times.size
            states, statistics = jax.tree.map(lambda a: a[rows].copy() if few else a[rows], segment.saved)
            if self.run.asked.observer.tokens is None:
                states = system.cut(states, slice(system.size))
            states = system.snapshots(times[rows], states)
            whole = system.whole(states)
            block = times[rows], (states, statistics)
            self.blocks.append(block if whole.all() else jax.tree.map(lambda a: a[whole], block))

    def carried(self) -> Any:
        """The state from which another process goes on."""
        # The start of the last segment is asked for at the end of a sampled run alone.
        before = None if self.run.asked.observer.tokens is None else self.before
        return self.t, self.y, self.dt, self.planner.state(self.t, self.y), before

    def note(self) -> dict[str, Any]:
        """What else it needs to know."""
        stats = dict(self.stats)
        return {"stats": stats, "piece": self.number, "ending": int(self.ending), "planner": self.planner.note()}

    def news(self) -> list[tuple[float, Any]]:
        """The records that the journal has not seen, row by row."""
        blocks, self.seen = self.blocks[self.seen :], len(self.blocks)
        return [
            (float(time), jax.tree.map(lambda a, k=k: a[k], records))
            for times, records in blocks
            for k, time in enumerate(times)
        ]

    def restore(self, kept: Kept | None) -> None:
        """Go on where another process was, if there was one."""
        if kept is None:
            return
        rows, (self.t, self.y, self.dt, planned, before), note = kept
        self.before = (self.t, self.y) if before is None else before
        self.stats |= note["stats"]
        self.planner.restore(note["planner"], planned, lambda k: self.run.pieces[k][0])
        self.number, self.ending = note["piece"], Ending(note["ending"])
        self.began -= self.stats.pop("seconds", 0.0)
        self.row = int(np.searchsorted(self.run.times, float(self.t), side="right"))
        if rows:
            records = jax.tree.map(lambda *a: np.stack(a), *(row for _, row in rows))
            self.blocks.append((np.array([time for time, _ in rows], self.run.times.dtype), records))
        self.seen = len(self.blocks)

    def trajectory(self) -> Trajectory:
        """The run up to where it is resolved; one that ended between save times keeps its last state too."""
        system, observer, dtype = self.run.system, self.run.asked.observer, self.run.times.dtype

        def add(t: Any, y: Any) -> None:
            self.blocks.append((np.asarray(t, dtype)[None], recorded(observer, system, t, y)))

        last = None if not self.blocks or observer.tokens is not None else self.blocks[-1]
        if last is not None and last[0][-1] == self.t:
            final, whole = jax.tree.map(lambda a: a[-1:], last[1][0]), True
        else:
            final = _snapshot(system, self.t, self.y)
            whole = system.whole(final).all()
        if self.ending != Ending.REACHED and whole and (not self.blocks or self.t > self.blocks[-1][0][-1]):
            add(self.t, self.y)
        if not self.blocks:  # not even the first save time is resolved: the start is
            add(self.run.t0, system.start())
        saved = stacked([records for _, records in self.blocks])
        if not whole:  # of a sampled run the start of the last segment is the last whole state that is known
            final = _snapshot(system, *self.before)
            if observer.tokens is None:
                final = jax.tree.map(lambda a: a[-1:], saved[0])
        times = np.concatenate([times for times, _ in self.blocks])
        final = jax.tree.map(lambda a: a[0], final)
        times, saved, final = jax.device_put((times, saved, final))
        # Numbers that are read on the host.
        ending = assembled(Outcome, code=np.asarray(int(self.ending)), time=np.asarray(self.t))
        return observed(observer, system, times, saved, final, ending, self.stats, False)


def _snapshot(system: AbstractSystem, t: Any, y: Any) -> Any:
    """What is kept of a state, with a leading axis of length one."""
    return system.snapshots(np.asarray(t)[None], jax.tree.map(lambda a: np.asarray(a)[None], y))

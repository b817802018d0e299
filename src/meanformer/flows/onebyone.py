"""Layers one by one, on the host: for many tokens, with plans for their sums, samples and statistics."""

import itertools
import time as clock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs.call import program
from .._progress import Progress
from .._types import Scalar
from ..attention.base import AbstractField
from ..attention.schedule import Piecewise
from ..attention.solved import Watch
from ..outcome import Ending, Outcome
from .journal import AbstractJournal, shell_of
from .observe import Observer, recorded
from .planning import Planner
from .system import AbstractSystem, note_watch
from .trajectory import Trajectory, observed


def with_all_layers(system: AbstractSystem, fields: tuple[AbstractField, ...], times: Array) -> AbstractSystem:
    """The system with all its layers as one field of time."""
    whole = Piecewise(fields, np.asarray(times, float)[1:-1].tolist())
    return eqx.tree_at(lambda s: s.field, system, whole)


@program
def _layer(system: AbstractSystem, step: Scalar, t: Scalar, y: Any) -> tuple[Any, Any, Watch | None]:
    """One residual layer, what is kept of the state after it, and how its Sinkhorn problems were solved."""
    found = system.solved(t, y)
    watch = Watch((), found.error, found.solved) if found.problems else None
    y = system.retract(jax.tree.map(lambda a, v: a + step * v, y, found.velocity))
    return y, system.snapshot(t, y), watch


def one_by_one(
    system: AbstractSystem,
    fields: tuple[AbstractField, ...],
    step: Scalar,
    times: Array,
    keep: bool,
    observer: Observer,
    accuracy: Any,
    bar: Progress,
    began: float,
    journal: AbstractJournal,
) -> Trajectory:
    """The layers up to where they are finite."""
    count = len(times) - 1
    layers = fields * count if len(fields) == 1 else fields
    differ = any(a is not b for a, b in itertools.pairwise(fields))
    whole = with_all_layers(system, fields, times) if differ else system
    stats: dict[str, Any] = {"steps": 0, "rejected": 0}
    planner = Planner(accuracy, stats)
    y, ending, last = system.start(), Ending.REACHED, 0
    final = system.snapshot(times[0], y)

    def row(system: AbstractSystem, t: Scalar, y: Any) -> Any:
        return jax.tree.map(lambda a: a[0], recorded(observer, system, t, y))

    earlier = journal.resume(lambda: shell_of(whole, observer, times[0], True), (y, final, planner.state(times[0], y)))
    if earlier is None:
        kept = [(float(times[0]), row(system, times[0], y))]
    else:
        kept, (y, final, planned), note = earlier
        stats |= note["stats"]
        began -= stats.pop("seconds", 0.0)
        planner.restore(note["planner"], planned, lambda k: eqx.tree_at(lambda s: s.field, system, layers[k]))
        last, ending = note["last"], Ending(note["ending"])
    seen = 0 if earlier is None else len(kept)
    while last < count and ending == Ending.REACHED:
        t, after = times[last], times[last + 1]
        planner.piece = last
        here = planner.fitted(eqx.tree_at(lambda s: s.field, system, layers[last]), t, y)
        if last == 0:
            bar.say(planner.said)
        new, snapshot, watch = _layer(here, step, t, y)
        ending = note_watch(watch, stats)
        if not system.whole(jax.tree.map(lambda a: np.asarray(a)[None], snapshot)).all():
            ending = Ending.NOT_FINITE
        else:
            y, final, last = new, snapshot, last + 1
            stats["steps"] += 1
            if keep or last == count:
                kept.append((float(after), row(here, after, y)))
            bar.update(last, last)
        stats["seconds"] = clock.monotonic() - began
        note = {"stats": dict(stats), "last": last, "ending": int(ending), "planner": planner.note()}
        journal.keep(kept[seen:], (y, final, planner.state(times[last], y)), note)
        seen = len(kept)
    stats["seconds"] = clock.monotonic() - began
    outcome = Outcome(jnp.asarray(int(ending)), times[last])
    saved = jax.tree.map(lambda *rows: jnp.asarray(np.stack(rows)), *(record for _, record in kept))
    return observed(
        observer, whole, jnp.asarray([time for time, _ in kept], times.dtype), saved, final, outcome, stats, True
    )

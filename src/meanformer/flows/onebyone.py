"""Layers one by one, on the host: for many tokens, with plans for their sums, samples and statistics."""

import itertools
import time as clock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._progress import Progress
from .._types import Scalar
from ..attention.base import AbstractField
from ..attention.schedule import Piecewise
from ..outcome import Ending, Outcome
from .observe import Observer, recorded, stacked
from .planning import Planner
from .system import AbstractSystem, look_at_sinkhorn
from .trajectory import Trajectory, observed


def with_all_layers(system: AbstractSystem, fields: tuple[AbstractField, ...], times: Array) -> AbstractSystem:
    """The system with all its layers as one field of time."""
    whole = Piecewise(fields, np.asarray(times, float)[1:-1].tolist())
    return eqx.tree_at(lambda s: s.field, system, whole)


@eqx.filter_jit
def _layer(system: AbstractSystem, step: Scalar, t: Scalar, y: Any) -> tuple[Any, Any]:
    """One residual layer, and what is kept of the state after it."""
    y = system.retract(jax.tree.map(lambda a, v: a + step * v, y, system.velocity(t, y)))
    return y, system.snapshot(t, y)


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
) -> Trajectory:
    """The layers up to where they are finite."""
    count = len(times) - 1
    layers = itertools.repeat(fields[0], count) if len(fields) == 1 else fields
    stats: dict[str, Any] = {"steps": 0, "rejected": 0}
    planner = Planner(accuracy, stats)
    y, ending, last = system.start(), Ending.REACHED, 0
    final = system.snapshot(times[0], y)
    rows = [(0, recorded(observer, system, times[0], y))]
    for number, field in enumerate(layers):
        here = planner.fitted(eqx.tree_at(lambda s: s.field, system, field), times[number], y)
        if number == 0:
            bar.say(planner.said)
        ending = look_at_sinkhorn(here, times[number], y, stats)
        new, snapshot = _layer(here, step, times[number], y)
        if not system.whole(snapshot):
            ending = Ending.NOT_FINITE
            break
        y, final, last = new, snapshot, number + 1
        stats["steps"] += 1
        if keep or last == count:
            rows.append((last, recorded(observer, here, times[last], y)))
        bar.update(last, last)
        if ending != Ending.REACHED:
            break
    stats["seconds"] = clock.monotonic() - began
    differ = any(a is not b for a, b in itertools.pairwise(fields))
    whole = with_all_layers(system, fields, times) if differ else system
    kept = times[jnp.asarray([number for number, _ in rows])]
    outcome = Outcome(jnp.asarray(int(ending)), times[last])
    return observed(observer, whole, kept, stacked([row for _, row in rows]), final, outcome, stats, True)

"""A run under `jit`, `vmap` or `grad`: one segment per piece, by diffrax, which knows how to differentiate it."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Scalar
from ..outcome import Ending, Outcome
from .run import first_step
from .segment import Diffrax, run_segment
from .stepping import Asked, Control, Span
from .system import AbstractSystem
from .trajectory import Trajectory, observed


def traced_run(
    system: AbstractSystem,
    pieces: list[tuple[AbstractSystem, Scalar]],
    how: Diffrax,
    control: Control,
    asked: Asked,
    times: Any,
    t0: Scalar,
) -> Trajectory:
    """One segment per piece, with arrays for an outcome."""
    y, t, saved, times = system.start(), t0, None, jnp.asarray(times)
    ending = jnp.asarray(int(Ending.REACHED))
    accepted = rejected = start = jnp.zeros((), int)
    limit = jnp.asarray(how.max_steps)
    for piece, end in pieces:
        span = Span(t, end, first_step(t, end), limit, times, start)
        segment = run_segment(piece, how, control, asked, y, span)
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
        accepted = accepted + jnp.where(alive, segment.accepted, 0)
        rejected = rejected + jnp.where(alive, segment.rejected, 0)
        t = jnp.where(alive, segment.t, t)
    assert saved is not None
    # What a piece would have saved after its end is not part of a run that ended there.
    saved = _choose(times <= t, saved, jax.tree.map(lambda a: jnp.full_like(a, jnp.inf), saved))
    stats = {"steps": accepted, "rejected": rejected}
    return observed(asked.observer, system, times, saved, system.snapshot(t, y), Outcome(ending, t), stats, False)


def _choose(mask: Array, new: Any, old: Any) -> Any:
    """`new` where `mask` holds, else `old`; the mask runs along the leading axes."""

    def chosen(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(chosen, new, old)

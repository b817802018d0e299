"""The discrete deep transformer: residual layers."""

import time as clock
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .. import _checks as checks
from .._types import Points, Scalar, cast, common_dtype, is_traced
from ..attention.base import AbstractField
from ..attention.heads import stack, stackable
from ..attention.schedule import breaks_of, check_velocity
from ..attention.solved import check_masked_sinkhorn, sinkhorn_excess
from ..measures.cloud import PointCloud
from ..outcome import Ending, Outcome
from ..spaces import AbstractSpace, resolve_space
from .frames import Original
from .particles import ParticleSystem
from .trajectory import Trajectory


def layers(
    field: AbstractField | Sequence[AbstractField],
    measure: PointCloud,
    depth: int | None = None,
    *,
    step: Any = None,
    space: AbstractSpace | None = None,
    save: str = "all",
) -> Trajectory:
    r"""A residual transformer, $x^{\ell+1}=x^\ell+h\,\Gamma_{\mu^\ell}(x^\ell)$, all tokens at once (MATH c).

    It is the explicit Euler scheme of `mf.flow`, with error $O(h)$.

    **Arguments:**

    - `field`: one field, used in every layer (a scheduled one at the times $\ell h$), or a list with one field per
      layer.
    - `depth`: the number of layers, for one field.
    - `step`: $h$, by default one over the number of layers; 1 is the plain residual network.
    - `space`: on `mf.Sphere()` each layer is followed by a normalisation.
    - `save`: "all" states, or only the "final" one (with the first).

    ```python
    mf.layers(mf.Softmax(Q, K, V), tokens, depth=48)
    mf.layers([mf.Softmax(Q1, K1, V1), mf.L2(Q2, K2, V2)], tokens, step=0.5)
    ```
    """
    began = clock.monotonic()
    fields, count = _checked_layers(field, depth)
    step = checks.positive(1 / count if step is None else step, "step", "1 / depth is the default")
    checks.one_of(save, "save", ("all", "final"))
    for number, layer in enumerate(fields):
        if number == 0 or layer is not fields[number - 1]:
            check_velocity(layer, measure, jnp.zeros(()), f" (layer {number})" if len(fields) > 1 else "")
        check_masked_sinkhorn(layer, measure, jnp.zeros(()))
    space = resolve_space(space, measure.points)
    dtype = common_dtype(fields, [f.terms(jnp.zeros(())) for f in fields], measure)
    fields = tuple(cast(layer, dtype) for layer in fields)
    measure, step, space = cast((measure, step, space), dtype)
    state_bytes = measure.points.size * measure.points.dtype.itemsize
    # Even without their states, layers have a time each.
    checks.fits_in_memory(
        f"saving {count + 1} states of {measure.n} tokens" if save == "all" else f"a depth of {count} layers",
        2.5 * (count + 1) * (state_bytes if save == "all" else 8),
        "layers(..., save='final')" if save == "all" else "fewer layers; mf.flow is the limit of infinite depth",
    )
    period, stacked = _stacked(fields, count)
    system = ParticleSystem(fields[0], measure, space, Original())
    points = _run(system, stacked, step, count // period, save == "all")
    # The last resolved state, if the tokens left the floating-point range.
    finite = jnp.isfinite(points).all(axis=(1, 2))
    last = jnp.max(jnp.where(finite, jnp.arange(finite.size), 0))
    times = step * jnp.arange(count + 1, dtype=dtype)
    kept = times if save == "all" else times[jnp.asarray([0, count])]
    ending: Any = jnp.where(finite[-1], int(Ending.REACHED), int(Ending.NOT_FINITE))
    for layer, index, t in ((fields[0], 0, times[0]), (fields[-1], -1, times[-1])):
        excess = None if breaks_of(layer) else sinkhorn_excess(layer, measure.with_points(points[index]), t)
        if excess is not None:
            ending = jnp.where((ending == Ending.REACHED) & excess[1], int(Ending.SINKHORN_STALLED), ending)
    stats: dict[str, Any] = {"steps": count, "rejected": 0}
    if not is_traced(points):
        jax.block_until_ready(points)
        stats["seconds"] = clock.monotonic() - began
    return Trajectory(kept, points, None, points[last], None, Outcome(ending, kept[last]), stats, system, True)


def _checked_layers(field: Any, depth: int | None) -> tuple[tuple[AbstractField, ...], int]:
    """The distinct layers in order (one, for a single field) and their number."""
    if isinstance(field, AbstractField):
        if depth is None:
            checks.refuse(
                "how many layers?",
                got="one field and no depth",
                expected="a depth",
                remedy="layers(field, tokens, depth=48), or a list of fields",
            )
        return (field,), checks.whole(depth, "depth")
    fields = tuple(field) if isinstance(field, (list, tuple)) else ()
    if not fields or not all(isinstance(f, AbstractField) for f in fields):
        checks.refuse(
            "layers need fields",
            got=[type(f).__name__ for f in fields] or type(field).__name__,
            expected="a field, or a list of fields",
            remedy="layers([mf.Softmax(Q, K, V)] * 48, tokens)",
        )
    if depth is not None and depth != len(fields):
        checks.refuse(
            "a list of layers has its own depth",
            got=f"{len(fields)} layers and depth = {depth}",
            expected=f"depth = {len(fields)} or none",
            remedy="leave out depth",
        )
    return fields, len(fields)


def _stacked(fields: tuple[AbstractField, ...], count: int) -> tuple[int, Any]:
    """Layers as a period of blocks, stacked: equal layers compile once, however deep the network.

    Returns the period p and, for each place in the period, the fields of that place with a leading axis.
    """
    if len(fields) == 1:  # one field for all layers: repeated without a copy
        repeat = lambda a: jnp.broadcast_to(a, (count, *a.shape)) if eqx.is_array(a) else a  # noqa: E731
        return 1, (jax.tree.map(repeat, fields[0]),)
    for period in range(1, count + 1):
        if count % period == 0 and all(stackable(fields[place::period]) for place in range(period)):
            return period, tuple(stack(fields[place::period]) for place in range(period))
    raise AssertionError("every list of layers is its own period")


@eqx.filter_jit
def _run(system: ParticleSystem, stacked: tuple[Any, ...], step: Scalar, blocks: int, keep: bool) -> Points:
    """The states, first to last (or only those two)."""
    period = len(stacked)

    def layer(x: Points, t: Scalar, field: AbstractField) -> Points:
        here = eqx.tree_at(lambda s: s.field, system, field)
        return system.space.retract(x + step * here.velocity(t, x))

    arrays, others = eqx.partition(stacked, eqx.is_array)

    def block(x: Points, index_and_arrays: tuple[Array, Any]) -> tuple[Points, Any]:
        index, values = index_and_arrays
        fields = eqx.combine(values, others)
        states = []
        for place, field in enumerate(fields):
            x = layer(x, step * (index * period + place).astype(step.dtype), field)
            states.append(x)
        return x, jnp.stack(states) if keep else None

    start = system.mu.points
    last, states = jax.lax.scan(jax.checkpoint(block), start, (jnp.arange(blocks), arrays))
    if not keep:
        return jnp.stack([start, last])
    return jnp.concatenate([start[None], states.reshape(-1, *start.shape)])

"""The discrete deep transformer: residual layers."""

import itertools
import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .. import _checks as checks
from .._programs.call import program
from .._progress import Progress
from .._types import Scalar, as_array, cast, common_dtype, is_traced
from ..attention.base import AbstractField
from ..attention.facts import check_speeds
from ..attention.heads import stack, stackable
from ..attention.schedule import breaks_of, check_velocity, frozen
from ..attention.solved import check_masked_sinkhorn
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..outcome import Ending, Outcome
from ..spaces import AbstractSpace, resolve_space
from .frames import Original
from .gaussians import GaussianSystem
from .journal import AbstractJournal, checked_journal
from .observe import checked_observer
from .onebyone import one_by_one, with_all_layers
from .particles import ParticleSystem
from .planning import checked_plan
from .setup import refuse_for_gaussians
from .system import AbstractSystem
from .trajectory import Trajectory


def layers(
    field: AbstractField | Sequence[AbstractField],
    measure: PointCloud | Gaussian,
    depth: int | None = None,
    *,
    step: Any = None,
    space: AbstractSpace | None = None,
    save: str = "all",
    accuracy: Any = None,
    sample: int | None = None,
    observers: dict[str, Callable[[Any, Any], Any]] | None = None,
    progress: bool | None = None,
    journal: AbstractJournal | None = None,
) -> Trajectory:
    r"""A residual transformer (MATH c): all tokens at once take, layer after layer, the step

    $$x^{\ell+1}=x^\ell+h\,\Gamma_{\mu^\ell}(x^\ell).$$

    It is the explicit Euler scheme of `mf.flow`, with error $O(h)$. A Gaussian is pushed forward exactly,
    $L\leftarrow(I+hG)L$, $m\leftarrow m+hu$, so that covariances stay positive and keep their rank (MATH e.1).

    **Arguments:**

    - `measure`: a `PointCloud` of shape `(n, d)`, or a `Gaussian`.
    - `field`: one field, used in every layer (a scheduled one at the times $\ell h$), or a list with one field per
      layer.
    - `depth`: the number of layers, for one field.
    - `step`: $h$, by default one over the number of layers; 1 is the plain residual network.
    - `space`: on `mf.Sphere()` each layer is followed by a normalisation.
    - `save`: "all" states, or only the "final" one (with the first).
    - `accuracy`, `sample`, `observers`: as for `mf.flow`, for many tokens; `journal`: as for `mf.flow`, to go on after
      an interruption. Layers are then compiled one by one, with a `progress` bar.

    **Returns:** a `Trajectory`, with the times $\ell h$ of the layers and the states before the first and after each of
    them.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    run = mf.layers([mf.Affine(-jnp.eye(2)), mf.Affine(jnp.eye(2))], tokens, step=0.5)
    assert jnp.allclose(run.times, jnp.asarray([0.0, 0.5, 1.0]))
    assert jnp.allclose(run.final.points, 0.5 * 1.5 * tokens.points)
    ```
    """
    began = clock.monotonic()
    given = {"depth": depth, "step": step, "space": space, "save": save, "accuracy": accuracy}
    call = field, measure, given | {"sample": sample, "observers": observers}
    fields, count = _checked_layers(field, depth)
    checks.one_of(save, "save", ("all", "final"))
    if isinstance(measure, Density):
        checks.refuse(
            "layers move tokens and Gaussians",
            got="a Density",
            expected="a PointCloud or a Gaussian",
            remedy="mf.flow(field, density, t1), or layers on its cells: mf.to_cloud(density)",
        )
    check_velocity(fields[0], measure, jnp.zeros(()), " (layer 0)" if len(fields) > 1 else "")
    # Even without their states, layers have a time each.
    kept = 1 if save == "final" else sum(leaf.size for leaf in jax.tree.leaves(measure))
    if sample is not None and isinstance(measure, PointCloud):
        kept = min(kept, checks.whole(sample, "sample") * (measure.d + 2))
    checks.fits_in_memory(
        f"saving {count + 1} states" if save == "all" else f"a depth of {count} layers",
        2.5 * (count + 1) * 8 * kept,
        "layers(..., save='final')" if save == "all" else "fewer layers; mf.flow is the limit of infinite depth",
    )
    # l / L by NumPy, since l * (1 / L), which is what XLA computes, misses the breaks of a schedule by rounding.
    numbers = np.arange(count + 1)
    times = as_array(numbers / count) if step is None else checks.scalar(step, "step") * as_array(numbers, float)
    step = checks.positive(1 / count if step is None else step, "step", "1 / depth is the default")
    fields = _at_times(fields, times)
    for number, layer in enumerate(fields):
        if number == 0 or layer is not fields[number - 1]:
            check_velocity(layer, measure, jnp.zeros(()), f" (layer {number})" if len(fields) > 1 else "")
            if isinstance(measure, PointCloud):
                check_masked_sinkhorn(layer, measure, jnp.zeros(()))
            else:
                check_speeds(layer, measure, jnp.zeros(()), step)
    if isinstance(measure, Gaussian):
        refuse_for_gaussians(space, None)
        space = None
    else:
        space = resolve_space(space, measure.points)
    dtype = common_dtype(fields, [f.terms(jnp.zeros(())) for f in fields], measure)
    differ = any(a is not b for a, b in itertools.pairwise(fields))
    fields = tuple(cast(layer, dtype) for layer in fields)
    measure, step, space, times = cast((measure, step, space, times), dtype)
    if isinstance(measure, Gaussian):
        system = GaussianSystem(fields[0], measure)
    else:
        assert space is not None
        system = ParticleSystem(fields[0], measure, space, Original())
    if accuracy is not None or sample is not None or observers is not None or journal is not None:
        observer = checked_observer(sample, observers, system, times[0])
        checked_plan(accuracy, system, is_traced(system, fields, step))
        if is_traced(system, fields, step, times):
            checks.refuse(
                "layers with a sample, observers, an accuracy or a journal are not traced",
                got="traced tokens, fields or step",
                expected="known numbers",
                remedy="leave these options out under jit, vmap and grad; or use mf.flow, which takes them",
            )
        book = checked_journal(journal)
        finished = book.begin("layers", *call)
        if finished is not None:
            return finished
        with Progress(progress, 0, count, "layers", "layer") as bar:
            run = one_by_one(system, fields, step, times, save == "all", observer, accuracy, bar, began, book)
        book.finish(run)
        return run
    saved, solved = _run(system, _stacked(fields, count), step, times, save == "all")
    # The last resolved state, if the state left the floating-point range.
    finite = jnp.stack([jnp.isfinite(a).reshape(a.shape[0], -1).all(axis=1) for a in jax.tree.leaves(saved)]).all(
        axis=0
    )
    last = jnp.max(jnp.where(finite, jnp.arange(finite.size), 0))
    ending = jnp.select(
        [~finite[-1], ~solved], [int(Ending.NOT_FINITE), int(Ending.SINKHORN_STALLED)], int(Ending.REACHED)
    )
    stats: dict[str, Any] = {"steps": count, "rejected": 0}
    if not is_traced(saved):
        jax.block_until_ready(saved)
        stats["seconds"] = clock.monotonic() - began
    kept = times if save == "all" else times[jnp.asarray([0, count])]
    final = jax.tree.map(lambda a: a[last], saved)
    if differ and checks.known(times):
        system = with_all_layers(system, fields, times)
    return Trajectory(kept, saved, final, Outcome(ending, kept[last]), stats, system, True)


def _at_times(fields: tuple[AbstractField, ...], times: Array) -> tuple[AbstractField, ...]:
    """The layers with every piecewise part replaced by its piece at the time of the layer."""
    if not any(breaks_of(layer) for layer in fields):
        return fields
    if not checks.known(times):
        checks.refuse(
            "a piecewise field needs a known step",
            got="a traced step",
            expected="a number",
            remedy="keep step out of the arguments of jit, vmap and grad",
        )
    layers = fields * (times.shape[0] - 1) if len(fields) == 1 else fields
    return tuple(frozen(layer, float(t)) for layer, t in zip(layers, np.asarray(times), strict=False))


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


def _stacked(fields: tuple[AbstractField, ...], count: int) -> tuple[Any, ...] | None:
    """Layers as a period of blocks, stacked: equal layers compile once, however deep the network.

    For each place in the period, the fields of that place with a leading axis; None if one field serves all layers.
    """
    if len(fields) == 1:
        return None
    for period in range(1, count + 1):
        if count % period == 0 and all(stackable(fields[place::period]) for place in range(period)):
            return tuple(stack(fields[place::period]) for place in range(period))
    raise AssertionError("every list of layers is its own period")


@program
def _run(
    system: AbstractSystem, stacked: tuple[Any, ...] | None, step: Scalar, times: Array, keep: bool
) -> tuple[Any, Bool[Array, ""]]:
    """The states, first to last (or only those two), and whether all Sinkhorn problems on the way were solved."""
    period = 1 if stacked is None else len(stacked)
    arrays, others = eqx.partition(stacked, eqx.is_array)

    def block(carry: tuple[Any, Array], layers: tuple[Array, Any]) -> tuple[tuple[Any, Array], Any]:
        y, solved = carry
        starts, values = layers
        fields = (system.field,) if stacked is None else eqx.combine(values, others)
        states = []
        for t, field in zip(starts, fields, strict=True):
            here = eqx.tree_at(lambda s: s.field, system, field)
            found = here.solved(t, y)
            solved = solved & found.solved
            y = here.retract(jax.tree.map(lambda a, v: a + step * v, y, found.velocity))
            states.append(here.snapshot(t, y))
        return (y, solved), jax.tree.map(lambda *a: jnp.stack(a), *states) if keep else None

    start = system.start()
    first = system.snapshot(times[0], start)
    starts = times[:-1].reshape(-1, period)
    (last, solved), states = jax.lax.scan(jax.checkpoint(block), (start, jnp.asarray(True)), (starts, arrays))
    if not keep:
        return jax.tree.map(lambda a, b: jnp.stack([a, b]), first, system.snapshot(times[-1], last)), solved
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), states)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, flat), solved

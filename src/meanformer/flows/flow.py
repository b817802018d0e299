"""The verb: move a measure along the field that it makes."""

import time as clock
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._types import Scalar, as_array, cast, common_dtype, is_traced
from ..attention.base import AbstractField
from ..attention.hardmax import Hardmax
from ..attention.schedule import Piecewise, Scheduled, check_velocity
from ..attention.solved import check_masked_sinkhorn, sinkhorn_excess
from ..measures.cloud import PointCloud
from ..outcome import Ending, Outcome
from ..spaces import AbstractSpace, Euclidean, resolve_space
from .frames import Original, Rescaled
from .particles import ParticleSystem
from .progress import Progress
from .save import resolve_save
from .segment import Control, Segment, run_segment
from .solvers import resolve_solver
from .stop import AbstractStop, resolve_stop
from .trajectory import Trajectory

SEGMENT_STEPS = 64
TRACED_STEPS = 4096


def flow(
    field: AbstractField,
    measure: PointCloud,
    t1: Any,
    *,
    t0: Any = 0.0,
    solver: Any = "tsit5",
    rtol: Any = None,
    atol: Any = None,
    step: Any = None,
    save: Any = None,
    space: AbstractSpace | None = None,
    frame: Rescaled | None = None,
    stop: Any = None,
    max_steps: int | None = None,
    progress: bool | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Trajectory:
    r"""Solve $\dot x_i=\Gamma_\mu(x_i)$, the Transformer PDE for a discrete measure, from `t0` to `t1`.

    **Arguments:**

    - `field`, `measure`: an attention field and a `PointCloud`.
    - `t1`, `t0`: the time span.
    - `solver`: a name ("tsit5", "dopri8", "euler", "kvaerno5", ...) or a diffrax solver; `rtol`, `atol`: tolerances
      of its error control (1e-6 and 1e-9; in float32 1e-4 and 1e-6). `step`: a constant step instead of error control.
    - `save`: a number of equally spaced times, an array of times, `mf.log_times(...)`; by default 101 times, fewer
      for large clouds.
    - `space`: `mf.Sphere()` for tokens on a sphere. `frame`: `mf.Rescaled()` for $z=e^{-tV}x$.
    - `stop`: a rule, or several: `mf.Stationary(1e-6)`, `mf.RadiusAbove(10.0)`, `mf.WallClock(60)`, or a function
      `(mu, t) -> bool`.
    - `max_steps`: how many steps to try at the most (100,000; under tracing 4096).
    - `progress`: a bar, if the run is long (default: on a terminal).
    - `adjoint`: how diffrax differentiates; the default is reverse mode, `diffrax.ForwardMode()` is for `jax.jvp`.

    **Returns:** a `Trajectory`. Blow-up, a step limit, a stalled Sinkhorn are outcomes: see `run.outcome`. Under
    `jit`, `vmap` and `grad` the run is one compiled piece, without progress, and its outcome an array.

    ```python
    run = mf.flow(mf.Softmax(Q, K, V), tokens, t1=4.0)
    run.final.covariance, str(run.outcome)
    ```
    """
    began = clock.monotonic()
    system, t0, t1 = _checked_system(field, measure, t0, t1, space, frame)
    solver = resolve_solver(solver)
    control = _checked_control(system, solver, rtol, atol, step, t0, measure.points.dtype)
    mu = system.mu
    rules, seconds = resolve_stop(stop, mu, t0)
    rules = cast(rules, mu.points.dtype)
    state_bytes = mu.n * mu.d * mu.points.dtype.itemsize
    times = resolve_save(save, t0, t1, state_bytes)
    times = _with_breaks(times, system.field, t0, t1)
    # Under `jit` all that is computed is traced, even from numbers that are known.
    under_jit = is_traced(jnp.zeros(()) + 0)
    traced = under_jit or is_traced(system, t0, t1, times, control, rules) or _schedule_is_traced(system.field, t0)
    limit = checks.whole((TRACED_STEPS if traced else 100_000) if max_steps is None else max_steps, "max_steps")
    progress = None if progress is None else checks.flag(progress, "progress")
    if adjoint is not None and not isinstance(adjoint, diffrax.AbstractAdjoint):
        checks.refuse(
            "adjoint must be one of diffrax",
            got=repr(adjoint),
            expected="an instance, e.g. diffrax.ForwardMode()",
            remedy="leave it out for reverse mode",
        )
    pieces = _pieces(system, t0, t1, concrete=not traced)
    if traced:
        adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint
        return _traced_run(system, pieces, solver, control, rules, adjoint, limit, times, t0)
    with Progress(progress, float(t0), float(t1)) as bar:
        return _host_run(system, pieces, solver, control, rules, limit, times, t0, bar, began, seconds)


def _checked_system(
    field: AbstractField, measure: PointCloud, t0: Any, t1: Any, space: Any, frame: Any
) -> tuple[ParticleSystem, Scalar, Scalar]:
    t0, t1 = checks.scalar(t0, "t0"), _checked_end(t1)
    if not is_traced(t0, t1) and not float(t1) > float(t0):
        checks.refuse(
            "a flow runs forward in time",
            got=f"t0 = {float(t0):g}, t1 = {float(t1):g}",
            expected="t1 > t0",
            remedy="swap them; to go backwards, flow the field -1.0 * field",
        )
    check_velocity(field, measure, t0)
    dtype = common_dtype(field, field.terms(t0), measure)
    field, measure, t0, t1 = cast((field, measure, t0, t1), dtype)
    if any(_contains(piece, Piecewise) for piece in _pieces_of(field)):
        checks.refuse(
            "a piecewise field in a flow must not be inside another field",
            got=f"Piecewise inside {type(field).__name__}",
            expected="Piecewise outermost, so that no step crosses a break",
            remedy="write mf.Piecewise([2.0 * a, 2.0 * b], breaks) for 2.0 * mf.Piecewise([a, b], breaks)",
        )
    check_masked_sinkhorn(field, measure, t0)
    space = resolve_space(space, measure.points)
    if frame is not None and not isinstance(frame, Rescaled):
        checks.refuse(
            "frame is not known", got=repr(frame), expected="mf.Rescaled() or None", remedy="pass frame=mf.Rescaled()"
        )
    if frame is not None and not isinstance(space, Euclidean):
        checks.refuse(
            "the rescaled frame is Euclidean",
            got=f"frame=Rescaled() with space={type(space).__name__}()",
            expected="one of the two",
            remedy="tokens on a sphere stay bounded: leave out frame=",
        )
    bound = Original() if frame is None else frame.bind(field, t0)
    return ParticleSystem(field, measure, cast(space, dtype), bound), t0, t1


def _checked_end(t1: Any) -> Scalar:
    array = checks.to_array(t1, "t1", "a number")
    if array.ndim == 0 and checks.known(array) and float(array) == np.inf:
        checks.refuse(
            "t1 must be finite: no run reaches infinity",
            got="t1 = inf",
            expected="a finite time",
            remedy="give a finite t1 and stop=mf.Stationary(1e-6)",
        )
    return checks.scalar(t1, "t1")


def _checked_control(
    system: ParticleSystem, solver: diffrax.AbstractSolver, rtol: Any, atol: Any, step: Any, t0: Scalar, given: Any
) -> Control:
    dtype = system.mu.points.dtype
    default_rtol, default_atol = (1e-6, 1e-9) if float(jnp.finfo(dtype).eps) < 1e-10 else (1e-4, 1e-6)
    # Tokens given in a lower precision than the field's have no more digits than that, if digits are asked for.
    digits = dtype if rtol is None else given
    unit = float(jnp.finfo(digits).eps)
    rtol = checks.positive(default_rtol if rtol is None else rtol, "rtol", "1e-6 is the default")
    atol = checks.positive(default_atol if atol is None else atol, "atol", "1e-9 is the default")
    if checks.known(rtol) and float(rtol) >= 1:
        checks.refuse(
            "rtol must be below 1",
            got=f"rtol = {float(rtol):g}",
            expected="a relative error",
            remedy="1e-6 is the default, 1e-3 is coarse",
        )
    if checks.known(rtol) and float(rtol) < 50 * unit:
        checks.refuse(
            "rtol is too strict for the dtype",
            got=f"rtol = {float(rtol):.3g} for {digits} tokens",
            expected=f"rtol >= {50 * unit:.2g}",
            remedy="loosen rtol, or pass float64 tokens: points.astype('float64')",
        )
    if step is not None:
        step = cast(checks.positive(step, "step", "give the length of each step, e.g. step=0.01"), dtype)
    elif not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        checks.refuse(
            "this solver has no error estimate",
            got=f"{type(solver).__name__} without a step",
            expected="step=..., or a solver with error control",
            remedy="flow(..., step=0.01), or solver='tsit5'",
        )
    elif _contains((system.field, system.field.terms(t0)), Hardmax):
        name = type(system.field).__name__
        checks.refuse(
            "hardmax is discontinuous: error control fails on it",
            got="Hardmax without a step" if name == "Hardmax" else f"Hardmax inside {name}, without a step",
            expected="a constant step",
            remedy="flow(..., solver='euler', step=0.01), or mf.layers",
        )
    return Control(cast(rtol, dtype), cast(atol, dtype), step)


def _contains(tree: Any, kind: type) -> bool:
    """Whether a field has a part of this kind, at any depth."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return any(isinstance(node, kind) for node in nodes)


def _pieces_of(field: AbstractField) -> tuple[AbstractField, ...]:
    return field.fields if isinstance(field, Piecewise) else (field,)


def _schedule_is_traced(field: AbstractField, t0: Scalar) -> bool:
    """Whether a schedule's function closes over traced arrays, which its leaves do not show."""
    nodes = jax.tree.leaves(field, is_leaf=lambda node: isinstance(node, Scheduled))
    return any(isinstance(node, Scheduled) and is_traced(node.function(t0)) for node in nodes)


def _with_breaks(times: Array, field: AbstractField, t0: Scalar, t1: Scalar) -> Array:
    """Save times with the breaks of a piecewise field among them, so that no interval contains one."""
    if not isinstance(field, Piecewise) or not checks.known(times, t0, t1):
        return times
    inner = [b for b in field.breaks if float(t0) < b < float(t1)]
    return jnp.asarray(np.unique(np.concatenate([np.asarray(times), np.asarray(inner, times.dtype)])))


def _pieces(system: ParticleSystem, t0: Scalar, t1: Scalar, concrete: bool) -> list[tuple[ParticleSystem, Scalar]]:
    """The run as systems with continuous weights, each with its end time."""
    if not isinstance(system.field, Piecewise):
        return [(system, t1)]
    if not concrete and is_traced(t0, t1):
        checks.refuse(
            "a piecewise field needs known end times",
            got="traced t0 or t1",
            expected="numbers",
            remedy="keep t0 and t1 out of the traced arguments",
        )
    inner = np.clip(np.asarray(system.field.breaks, t0.dtype), float(t0), float(t1))
    ends = [*(as_array(b, t0.dtype) for b in inner), t1]
    systems = [eqx.tree_at(lambda s: s.field, system, f) for f in system.field.fields]
    starts = [t0, *ends[:-1]]
    return [(s, end) for s, start, end in zip(systems, starts, ends, strict=True) if float(end) > float(start)]


def _first_step(t0: Scalar, t1: Scalar) -> Scalar:
    """A cautious first step: error control makes it right within a few steps."""
    return 0.01 * jnp.minimum(t1 - t0, 1)


def _traced_run(
    system: ParticleSystem,
    pieces: list[tuple[ParticleSystem, Scalar]],
    solver: diffrax.AbstractSolver,
    control: Control,
    rules: tuple[AbstractStop, ...],
    adjoint: diffrax.AbstractAdjoint,
    limit: int,
    times: Array,
    t0: Scalar,
) -> Trajectory:
    y, t, saved = system.start(), t0, None
    ending = jnp.asarray(int(Ending.REACHED))
    accepted = rejected = jnp.zeros((), int)
    for piece, end in pieces:
        segment = run_segment(piece, solver, control, rules, adjoint, limit, y, t, end, _first_step(t, end), times)
        # A piece after a failed one does not count: its rows and its state stay as they were.
        alive = ending == Ending.REACHED
        inside = alive & (times >= t)
        saved = segment.saved if saved is None else _choose(inside, segment.saved, saved)
        y = _choose(alive, segment.y, y)
        ending = jnp.where(alive, segment.ending, ending)
        accepted, rejected = accepted + segment.accepted, rejected + segment.rejected
        t = jnp.where(alive, segment.t, t)
    assert saved is not None
    stats = {"steps": accepted, "rejected": rejected}
    points, propagators = saved
    return Trajectory(times, points, propagators, *system.saved(t, y), Outcome(ending, t), stats, system, False)


def _choose(mask: Array, new: Any, old: Any) -> Any:
    """`new` where `mask` holds, else `old`; the mask runs along the leading axes."""

    def chosen(a: Array, b: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(chosen, new, old)


def _host_run(
    system: ParticleSystem,
    pieces: list[tuple[ParticleSystem, Scalar]],
    solver: diffrax.AbstractSolver,
    control: Control,
    rules: tuple[AbstractStop, ...],
    limit: int,
    times: Array,
    t0: Scalar,
    bar: Progress,
    began: float,
    seconds: float,
) -> Trajectory:
    y, t, ending = system.start(), t0, Ending.REACHED
    known = np.asarray(times)
    rows: list[Any] = [None] * len(known)
    if known[0] == float(t0):
        rows[0] = jax.tree.map(np.asarray, _saved(system, t0, y))
    stats: dict[str, Any] = {"steps": 0, "rejected": 0, "segments": 0}
    adjoint = diffrax.DirectAdjoint()

    def keep(segment: Segment, start: float) -> None:
        saved = jax.tree.map(np.asarray, segment.saved)
        for i in np.flatnonzero((known > start) & (known <= float(segment.t))):
            rows[i] = jax.tree.map(lambda a, i=i: a[i].copy(), saved)

    for piece, end in pieces:
        dt, done = _first_step(t, end), False
        while not done and ending == Ending.REACHED:
            budget = min(SEGMENT_STEPS, limit - stats["steps"] - stats["rejected"])
            segment = run_segment(piece, solver, control, rules, adjoint, budget, y, t, end, dt, times)
            keep(segment, float(t))
            stats["steps"] += int(segment.accepted)
            stats["rejected"] += int(segment.rejected)
            stats["segments"] += 1
            y, t, dt = segment.y, segment.t, segment.dt
            bar.update(float(t), stats["steps"])
            done, ending = bool(segment.reached), Ending(int(segment.ending))
            spent = stats["steps"] + stats["rejected"]
            if ending == Ending.STEP_LIMIT and spent < limit:
                ending = Ending.REACHED  # the segment's own limit: the next one goes on
            if ending == Ending.REACHED and not done and clock.monotonic() - began > seconds:
                ending = Ending.STOPPED
            excess = sinkhorn_excess(piece.field, _original(piece, t, y), t)
            if excess is not None:
                stats["sinkhorn_error"] = max(stats.get("sinkhorn_error", 0.0), float(excess[0]))
                if bool(excess[1]) and ending == Ending.REACHED:
                    ending = Ending.SINKHORN_STALLED
        if ending != Ending.REACHED:
            break
    return _assemble(system, known, rows, t0, t, y, ending, {**stats, "seconds": clock.monotonic() - began})


@eqx.filter_jit
def _saved(system: ParticleSystem, t: Scalar, y: Any) -> Any:
    return system.saved(t, y)


def _original(system: ParticleSystem, t: Scalar, y: Any) -> PointCloud:
    """The measure out of its frame, where the field acts."""
    points, propagator = _saved(system, t, y)
    return system.mu.with_points(points if propagator is None else points @ propagator.T)


def _assemble(
    system: ParticleSystem,
    known: np.ndarray,
    rows: list[Any],
    t0: Scalar,
    t: Scalar,
    y: Any,
    ending: Ending,
    stats: dict[str, Any],
) -> Trajectory:
    """The trajectory up to where it is resolved; a run that ended between save times keeps its last state too."""
    final = jax.tree.map(np.asarray, _saved(system, t, y))
    kept = [(time, row) for time, row in zip(known, rows, strict=True) if row is not None and np.isfinite(row[0]).all()]
    whole = np.isfinite(final[0]).all()
    if ending != Ending.REACHED and whole and (not kept or float(t) > kept[-1][0]):
        kept.append((float(t), final))
    if not kept:  # not even the first save time is resolved: the start is
        kept.append((float(t0), jax.tree.map(np.asarray, _saved(system, t0, system.start()))))
    if not whole:
        final = kept[-1][1]
    points, propagators = jax.tree.map(lambda *a: jnp.stack(a), *(row for _, row in kept))
    final_points, final_propagator = jax.tree.map(jnp.asarray, final)
    times = jnp.asarray([time for time, _ in kept], t.dtype)
    outcome = Outcome(jnp.asarray(int(ending)), t)
    return Trajectory(times, points, propagators, final_points, final_propagator, outcome, stats, system, False)

"""The verb: move a measure along the field that it makes."""

import time as clock
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._programs.call import trace_state_clean
from .._progress import Progress
from .._types import cast, is_traced
from ..attention.approximate import Approximate
from ..attention.base import AbstractField
from ..attention.facts import check_speeds
from ..gaussian.march import IMPLICIT_SIZE
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..spaces import AbstractSpace
from .densities import DensitySystem, density_run, refuse_for_densities
from .domain import covering
from .endless import endless_run, with_fate
from .frames import Rescaled
from .gaussians import GaussianSystem
from .journal import AbstractJournal, checked_journal
from .methods import method_of
from .observe import checked_observer
from .planning import STATES_IN_A_STEP, checked_plan, with_sums
from .run import Integrate, Prepared, host_run, watching
from .save import resolve_save
from .setup import checked_control, checked_system, pieces, schedule_is_traced, with_breaks
from .solvers import checked_solver, diffrax_solver
from .stepping import Asked, Control, Segment, Span, advance, advance_on_grids
from .stop import resolve_stop
from .system import AbstractSystem
from .trajectory import Trajectory

TRACED_STEPS = 4096


def flow(
    field: AbstractField | Sequence[AbstractField],
    measure: PointCloud | Gaussian | Density,
    t1: Any,
    *,
    t0: Any = 0.0,
    solver: Any = None,
    rtol: Any = None,
    atol: Any = None,
    step: Any = None,
    accuracy: Any = None,
    save: Any = None,
    sample: int | None = None,
    observers: dict[str, Callable[[Any, Any], Any]] | None = None,
    space: AbstractSpace | None = None,
    frame: Rescaled | None = None,
    stop: Any = None,
    max_steps: int | None = None,
    progress: bool | None = None,
    adjoint: Any = None,
    journal: AbstractJournal | None = None,
) -> Trajectory:
    r"""Solve the Transformer PDE from `t0` to `t1`,

    $$\partial_t\mu+\operatorname{div}(\mu\,\Gamma_\mu)=0,$$

    that is, for tokens $\dot x_i=\Gamma_\mu(x_i)$, for a Gaussian its exact closure $\dot m=u$,
    $\dot\Sigma=G\Sigma+\Sigma G^\top$ where $\Gamma_\mu(x)=u+G(x-m)$ (MATH e.1), and for a density the equation
    itself on its grid, by finite volumes.

    **Arguments:**

    - `field`, `measure`: an attention field, and a `PointCloud`, a `Gaussian` or a `Density`. A list of fields is one
      field per layer: equal pieces of the time span, which no step crosses. The grid of a density is extended so far
      that its mass stays inside; its steps, and so its accuracy, follow from the cells.
    - `t1`, `t0`: the time span. With `t1=jnp.inf` a Gaussian runs until its fate is known: see `run.fate`.
    - `solver`: a name ("tsit5", "dopri8", "euler", "kvaerno5", "rodas5p", ...) or a diffrax solver; the default is
      "tsit5" for tokens and "rodas5p", which is implicit, for Gaussians (also "tsit5" if they are large, or traced).
      `rtol`, `atol`: tolerances of its error control (1e-6 and 1e-9, in float32 1e-4 and 1e-6, `atol` at most `rtol`
      of the largest coordinate at the start; Gaussians: 1e-8, and 1e-11 of the largest number at the start). `step`: a
      constant step instead of error control.
    - `accuracy`: the error that sums over tokens may have, relative to the field's scale: then keys of dimension 1, 2
      and 3 need $O(n)$ work instead of $O(n^2)$ (see `mf.plan`, which also makes a plan to pass here). By default sums
      are exact. `rtol` is at least ten times as large.
    - `save`: a number of equally spaced times, an array of times, `mf.log_times(...)`; by default 101 times, fewer
      for large clouds. `sample`: keep only so many tokens of each state, drawn at random, and the mean, the covariance
      and the radius of all of them, in `run.statistics`. `observers`: more statistics, named functions
      `(mu, t) -> array`.
    - `space`: `mf.Sphere()` for tokens on a sphere. `frame`: `mf.Rescaled()` for $z=e^{-(t-t_0)V}x$, tokens alone.
    - `stop`: a rule, or several: `mf.Stationary(1e-6)`, `mf.RadiusAbove(10.0)`, `mf.WallClock(60.0)`, or a function
      `(mu, t) -> bool`.
    - `max_steps`: how many steps to try at the most (100,000; under tracing 4096).
    - `progress`: a bar, if the run is long (default: on a terminal, in a notebook).
    - `adjoint`: how diffrax differentiates; the default is reverse mode, `diffrax.ForwardMode()` is for `jax.jvp`.
    - `journal`: `mf.Journal("runs/mine")` writes the run to a folder while it goes on; the same call goes on from there
      after an interruption, to the same bits.

    **Returns:** a `Trajectory`. Blow-up, a step limit, a stalled Sinkhorn are outcomes: see `run.outcome`; what becomes
    of a Gaussian is its `run.fate`. Under `jit`, `vmap` and `grad` the run is one compiled piece, without progress, and
    its outcome an array; rows of `states` after an early end are then not finite, and `max_steps` counts for each piece
    of a piecewise field.

    **Raises:** `InputError` for what does not fit together, `NotGaussianPreserving` for a field that has no Gaussian
    flow.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens, t1=1.0)
    assert run.outcome.ok and run.points.shape == (101, 40, 2)
    assert run.final.radius <= jnp.exp(1.0) * tokens.radius  # |V| = 1
    ```
    """
    began = clock.monotonic()
    book = checked_journal(journal)
    options = {"t1": t1, "t0": t0, "solver": solver, "rtol": rtol, "atol": atol, "step": step, "accuracy": accuracy}
    options |= {"save": save, "sample": sample, "observers": observers, "space": space, "frame": frame, "stop": stop}
    call = field, measure, options | {"max_steps": max_steps}
    system, t0, t1 = checked_system(field, measure, t0, t1, space, frame)
    if isinstance(system, GaussianSystem) and not is_traced(t1) and float(t1) == np.inf:
        unused = {"solver": solver, "atol": atol, "step": step, "adjoint": adjoint, "accuracy": accuracy}
        unused |= {"sample": sample, "observers": observers}
        return endless_run(system, t0, rtol, save, stop, max_steps, progress, unused, began, book, call)
    if isinstance(system, DensitySystem):
        unused = {"solver": solver, "rtol": rtol, "atol": atol, "step": step, "adjoint": adjoint}
        unused |= {"accuracy": accuracy, "sample": sample, "observers": observers}
        refuse_for_densities(**unused, space=space, frame=frame)
        return _density_flow(system, t0, t1, save, stop, max_steps, progress, began, book, call)
    if isinstance(system, GaussianSystem):
        check_speeds(system.field, system.mu, t0, t1)
    if solver is None:
        traced = is_traced(system, t0, t1) or schedule_is_traced(system.field, t0)
        stiff = isinstance(system, GaussianSystem) and system.unknowns <= IMPLICIT_SIZE and not traced
        solver = "rodas5p" if stiff else "tsit5"
    solver = checked_solver(solver)
    given = measure.points.dtype if isinstance(measure, PointCloud) else measure.mean.dtype
    control = checked_control(system, solver, rtol, atol, step, t0, given, accuracy)
    observer = checked_observer(sample, observers, system, t0)
    each = observer.bytes(system)
    rules, seconds = resolve_stop(stop, system.mu, t0)
    rules = cast(rules, system.dtype)
    # Under `jit` all that is computed is traced, even from numbers that are known: save times are then computed now.
    with nullcontext() if is_traced(save, t0, t1) else jax.ensure_compile_time_eval():
        times = with_breaks(resolve_save(save, t0, t1, each), system.field, t0, t1)
    under_jit = not trace_state_clean()
    traced = under_jit or is_traced(system, t0, t1, times, control, rules) or schedule_is_traced(system.field, t0)
    checked_plan(accuracy, system, traced)
    limit = checks.whole((TRACED_STEPS if traced else 100_000) if max_steps is None else max_steps, "max_steps")
    progress = None if progress is None else checks.flag(progress, "progress")
    _check_adjoint(adjoint)
    parts = pieces(system, t0, t1)
    if traced:
        if journal is not None:
            checks.refuse(
                "a journal is kept on the host",
                got="a journal under jit, vmap or grad",
                expected="known numbers",
                remedy="leave journal out, or call mf.flow outside",
            )
        if accuracy is not None:
            parts = [(with_sums(piece, accuracy), end) for piece, end in parts]
        return _traced(system, parts, solver, control, Asked(rules, observer, False), adjoint, limit, times, t0)
    checks.fits_in_memory(
        f"a run of {system.summary()}",
        STATES_IN_A_STEP * system.state_bytes + 2.5 * len(times) * each,
        "fewer tokens, or sample=1000 to keep only some of them",
    )
    finished = book.begin("flow", *call)
    if finished is not None:
        return finished
    prepared = Prepared(
        system,
        parts,
        _integrator(solver, control),
        Asked(rules, observer, False),
        np.asarray(times),
        t0,
        limit,
        accuracy,
        began,
        seconds,
        _told(solver, control),
    )
    with Progress(progress, float(t0), float(t1)) as bar:
        run = host_run(prepared, bar, book)
    run = with_fate(run, t0, control) if isinstance(system, GaussianSystem) else run
    book.finish(run)
    return run


def _integrator(solver: Any, control: Control) -> Integrate:
    """Who integrates a segment on the host: a method of our own if there is one, else diffrax."""
    method = method_of(solver)
    if method is not None:

        def by_method(system: AbstractSystem, asked: Asked, y: Any, span: Span) -> Segment:
            gridded = isinstance(system.field, Approximate) and system.field.sums.gridded
            return (advance_on_grids if gridded else advance)(system, method, control, asked, y, span)

        return by_method if method.watches else watching(by_method)
    import diffrax

    from .segment import Diffrax, run_segment

    known, adjoint = diffrax_solver(solver), diffrax.DirectAdjoint()

    def integrate(system: AbstractSystem, asked: Asked, y: Any, span: Span) -> Segment:
        return run_segment(system, Diffrax(known, adjoint, int(span.budget), False), control, asked, y, span)

    return watching(integrate)


def _told(solver: Any, control: Control) -> dict[str, Any]:
    """What a state between save times needs to know of how a run was made."""
    if control.step is not None or method_of(solver) is None:
        return {}
    return {"solver": solver, "rtol": float(control.rtol), "atol": float(control.atol)}


def _traced(
    system: AbstractSystem,
    parts: list[tuple[AbstractSystem, Any]],
    solver: Any,
    control: Control,
    asked: Asked,
    adjoint: Any,
    limit: int,
    times: Any,
    t0: Any,
) -> Trajectory:
    import diffrax

    from .segment import Diffrax
    from .traced import traced_run

    adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint
    how = Diffrax(diffrax_solver(solver), adjoint, limit, True)
    return traced_run(system, parts, how, control, asked, times, t0)


def _check_adjoint(adjoint: Any) -> None:
    if adjoint is None:
        return
    import diffrax

    if not isinstance(adjoint, diffrax.AbstractAdjoint):
        checks.refuse(
            "adjoint must be one of diffrax",
            got=repr(adjoint),
            expected="an instance, e.g. diffrax.ForwardMode()",
            remedy="leave it out for reverse mode",
        )


def _density_flow(
    system: DensitySystem,
    t0: Any,
    t1: Any,
    save: Any,
    stop: Any,
    max_steps: Any,
    progress: bool | None,
    began: float,
    book: AbstractJournal,
    call: tuple[Any, Any, dict[str, Any]],
) -> Trajectory:
    """A density by finite volumes, on a grid that holds it until the end."""
    field, rho, t0, t1 = system.field, system.mu, jnp.asarray(t0), jnp.asarray(t1)
    if not trace_state_clean() or is_traced(system, t0, t1, save) or schedule_is_traced(field, t0):
        checks.refuse(
            "the flow of a density cannot be traced",
            got="a density, a field or times under jit, vmap or grad",
            expected="known numbers",
            remedy="differentiate a flow of tokens: mf.flow(field, mf.to_cloud(rho), t1)",
        )
    rules, seconds = resolve_stop(stop, rho, t0)
    limit = checks.whole(100_000 if max_steps is None else max_steps, "max_steps")
    progress = None if progress is None else checks.flag(progress, "progress")
    system = DensitySystem(field, covering(field, rho, t0, t1))
    times = jnp.asarray(with_breaks(resolve_save(save, t0, t1, system.state_bytes), field, t0, t1))
    finished = book.begin("flow", *call)
    if finished is not None:
        return finished
    with Progress(progress, float(t0), float(t1)) as bar:
        parts = pieces(system, t0, t1)
        run = density_run(system, parts, cast(rules, system.dtype), limit, times, t0, bar, began, seconds, book)
    book.finish(run)
    return run

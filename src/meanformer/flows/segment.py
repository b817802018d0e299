"""A segment of a run by a solver of diffrax: for derivatives, and for the solvers that are diffrax's own."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._programs.call import program
from .._types import Scalar
from .._warm import Module
from ..outcome import Ending
from ..spaces import Euclidean
from .diffrax_solvers import Retracting
from .particles import ParticleSystem
from .stepping import Asked, Control, Segment, Span
from .stop import AbstractStop
from .system import AbstractSystem, is_finite


class EqualSteps(diffrax.AbstractStepSizeController):
    """Steps of one length, the last one shorter if need be.

    `diffrax.ConstantStepSize` fits its steps to the time that is left, so they would change from segment to segment.
    """

    def wrap(self, direction: Any) -> "EqualSteps":
        return self

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any) -> Any:
        return t0 + dt0, dt0

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        return True, t1, t1 + controller_state, False, controller_state, diffrax.RESULTS.successful


def _controller(control: Control, span: Span) -> diffrax.AbstractStepSizeController:
    if control.step is not None:
        return EqualSteps()
    smallest = control.smallest(span.t, span.end)
    return diffrax.PIDController(control.rtol, control.atol, dtmin=smallest, force_dtmin=False)


def _event(system: AbstractSystem, asked: Asked) -> diffrax.Event | None:
    if not asked.rules and not asked.planned:
        return None

    def held(rule: AbstractStop) -> Any:
        def condition(t: Scalar, y: Any, args: Any, **_: Any) -> Array:
            return rule(system.measure(y), t, lambda: system.moments_of_speed(t, y))

        return condition

    def outgrown(t: Scalar, y: Any, args: Any, **_: Any) -> Array:
        return system.outgrown(t, y)  # pyright: ignore[reportAttributeAccessIssue]

    return diffrax.Event([held(rule) for rule in asked.rules] + [outgrown] * asked.planned)


class Diffrax(Module):
    """A solver of diffrax, how it is differentiated, and how many steps it has memory for.

    On the host `saved` are states, as those of `meanformer.flows.stepping`; `traced` they are whole records.
    """

    solver: diffrax.AbstractSolver
    adjoint: diffrax.AbstractAdjoint
    max_steps: int = eqx.field(static=True)
    traced: bool = eqx.field(static=True)


@program
def run_segment(system: AbstractSystem, how: Diffrax, control: Control, asked: Asked, y: Any, span: Span) -> Segment:
    """Integrate from `span.t` towards `span.end`, no longer than the plan of the sums lasts."""
    t, end, observer, solver = span.t, span.end, asked.observer, how.solver
    if isinstance(system, ParticleSystem) and not isinstance(system.space, Euclidean):
        solver = Retracting(solver, system.retract)

    def look(now: Scalar, y: Any) -> Any:
        return observer.record(system, now, y) if how.traced else observer.look(system, now, system.retract(y))

    def record(now: Scalar, y: Any, args: Any) -> Any:
        if how.traced:
            return look(now, y)
        # On the host only times that are due are asked for: the others cost nothing.
        shapes = eqx.filter_eval_shape(look, now, y)
        empty = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        due = (now > t) | (now == span.times[jnp.minimum(span.row, span.times.size - 1)])
        return jax.lax.cond(due, lambda: look(now, y), lambda: empty)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(system.velocity),  # pyright: ignore[reportArgumentType]
        solver,
        t0=t,
        t1=end,
        dt0=span.dt if control.step is None else control.step,
        y0=y,
        saveat=diffrax.SaveAt(
            subs=[
                # Times outside this segment are moved to its ends, to keep one shape; their rows are not used.
                diffrax.SubSaveAt(ts=jnp.clip(span.times, t, end), fn=record),
                diffrax.SubSaveAt(t1=True),
                diffrax.SubSaveAt(steps=True, fn=lambda t, y, args: None),
            ]
        ),
        stepsize_controller=_controller(control, span),
        adjoint=how.adjoint,
        event=_event(system, asked),
        max_steps=how.max_steps,
        throw=False,
    )
    saved, last, _ = solution.ys  # pyright: ignore[reportGeneralTypeIssues]
    _, ended, step_times = solution.ts  # pyright: ignore[reportGeneralTypeIssues]
    y, reached = jax.tree.map(lambda a: a[-1], (last, ended))
    accepted = solution.stats["num_accepted_steps"]
    before = jnp.where(accepted > 1, step_times[jnp.maximum(accepted - 2, 0)], t)
    finite = is_finite(system.measure(y))
    fired = solution.event_mask if asked.planned else [jnp.asarray(False)]
    outgrown = jnp.asarray(fired[-1]) & ~jnp.any(jnp.asarray([*fired[:-1], False]))  # pyright: ignore
    ending = jnp.select(
        [
            ~finite,
            solution.result == diffrax.RESULTS.successful,
            diffrax.is_event(solution.result),
            solution.result == diffrax.RESULTS.max_steps_reached,
        ],
        [Ending.NOT_FINITE, Ending.REACHED, Ending.STOPPED, Ending.STEP_LIMIT],
        Ending.STEP_TOO_SMALL,
    )
    return Segment(
        y=y,
        t=reached,
        # An unresolved first step (nothing accepted) must not make the next step zero.
        dt=jax.lax.stop_gradient(jnp.where(accepted > 0, reached - before, span.dt / 10)),
        saved=saved,
        row=jnp.sum(span.times <= reached),
        ending=ending,
        outgrown=outgrown & (ending == Ending.STOPPED),
        accepted=accepted,
        rejected=solution.stats["num_rejected_steps"],
        watch=None,
    )

"""One compiled piece of a run: a pure function from the state at its start to the state at its end.

A run is a sequence of segments. A segment takes at most a fixed number of steps; progress, checks, saving and
stopping by the clock happen between segments, on the host. A segment starts its solver afresh from (state, time,
step size), which is all that a later segment needs to know.
"""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar
from ..outcome import Ending
from ..spaces import Euclidean
from .observe import Observer
from .particles import ParticleSystem
from .solvers import Retracting
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


class Control(eqx.Module):
    """How steps are chosen: by error control, or constant if `step` is given."""

    rtol: Scalar
    atol: Scalar
    step: Scalar | None

    def controller(self, t: Scalar, t1: Scalar) -> diffrax.AbstractStepSizeController:
        """The step size controller of a segment."""
        if self.step is not None:
            return EqualSteps()
        # Below this step the time itself is no longer resolved.
        smallest = 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t1))
        return diffrax.PIDController(self.rtol, self.atol, dtmin=smallest, force_dtmin=False)


class Segment(eqx.Module):
    """What came out of a segment. `saved` has a row for each save time; rows after `t` are not filled."""

    y: Any
    t: Scalar
    dt: Scalar
    saved: Any
    ending: Int[Array, ""]
    outgrown: Bool[Array, ""]
    reached: Bool[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]


def _event(system: AbstractSystem, rules: tuple[AbstractStop, ...], planned: bool) -> diffrax.Event | None:
    if not rules and not planned:
        return None

    def asked(rule: AbstractStop) -> Any:
        def condition(t: Scalar, y: Any, args: Any, **_: Any) -> Array:
            return rule(system.measure(y), t, lambda: system.moments_of_speed(t, y))

        return condition

    def outgrown(t: Scalar, y: Any, args: Any, **_: Any) -> Array:
        return system.outgrown(t, y)  # pyright: ignore[reportAttributeAccessIssue]

    return diffrax.Event([asked(rule) for rule in rules] + [outgrown] * planned)


@eqx.filter_jit
def run_segment(
    system: AbstractSystem,
    solver: diffrax.AbstractSolver,
    control: Control,
    rules: tuple[AbstractStop, ...],
    adjoint: diffrax.AbstractAdjoint,
    max_steps: int,
    y: Any,
    t: Scalar,
    t1: Scalar,
    dt: Scalar,
    times: Float[Array, " times"],
    observer: Observer,
    planned: bool = False,
    traced: bool = False,
) -> Segment:
    """Integrate from `t` towards `t1`, for at most `max_steps` steps, and no longer than the plan of the sums lasts."""
    if isinstance(system, ParticleSystem) and not isinstance(system.space, Euclidean):
        solver = Retracting(solver, system.retract)

    def record(now: Scalar, y: Any, args: Any) -> Any:
        if traced:
            return observer.record(system, now, y)
        # On the host only later times are asked for: the others cost nothing.
        shapes = eqx.filter_eval_shape(observer.record, system, now, y)
        empty = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        return jax.lax.cond(now > t, lambda: observer.record(system, now, y), lambda: empty)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(system.velocity),  # pyright: ignore[reportArgumentType]
        solver,
        t0=t,
        t1=t1,
        dt0=dt if control.step is None else control.step,
        y0=y,
        saveat=diffrax.SaveAt(
            subs=[
                # Times outside this segment are moved to its ends, to keep one shape; their rows are not used.
                diffrax.SubSaveAt(ts=jnp.clip(times, t, t1), fn=record),
                diffrax.SubSaveAt(t1=True),
                diffrax.SubSaveAt(steps=True, fn=lambda t, y, args: None),
            ]
        ),
        stepsize_controller=control.controller(t, t1),
        adjoint=adjoint,
        event=_event(system, rules, planned),
        max_steps=max_steps,
        throw=False,
    )
    saved, last, _ = solution.ys  # pyright: ignore[reportGeneralTypeIssues]
    _, ended, step_times = solution.ts  # pyright: ignore[reportGeneralTypeIssues]
    y, reached_time = jax.tree.map(lambda a: a[-1], (last, ended))
    accepted = solution.stats["num_accepted_steps"]
    before = jnp.where(accepted > 1, step_times[jnp.maximum(accepted - 2, 0)], t)
    finite = is_finite(system.measure(y))
    fired = solution.event_mask if planned else [jnp.asarray(False)]
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
        t=reached_time,
        # An unresolved first step (nothing accepted) must not make the next step zero.
        dt=jax.lax.stop_gradient(jnp.where(accepted > 0, reached_time - before, dt / 10)),
        saved=saved,
        ending=ending,
        outgrown=outgrown & (ending == Ending.STOPPED),
        reached=ending == Ending.REACHED,
        accepted=accepted,
        rejected=solution.stats["num_rejected_steps"],
    )

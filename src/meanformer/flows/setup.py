"""What `flow` is asked to do, checked before any computing."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .. import _draws as draws
from .._types import Scalar, as_array, as_host, cast, common_dtype, is_traced, wider
from .._warm import assembled
from ..attention.base import AbstractField
from ..attention.facts import check_moves, facts_of
from ..attention.planned import Plan, checked_accuracy
from ..attention.schedule import Piecewise, Scheduled, breaks_of, frozen, pieces_of
from ..attention.solved import check_masked_sinkhorn
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..spaces import Euclidean, resolve_space
from .densities import DensitySystem
from .frames import ORIGINAL, MovingRescaled, Rescaled
from .gaussians import GaussianSystem
from .particles import ParticleSystem
from .solvers import NAMES, estimates_errors
from .stepping import Control
from .system import AbstractSystem

# A Gaussian may be so much smaller than the smallest number over the tolerance: with that, errors are compared.
TINIEST = 2.0**-7


def checked_system(
    field: Any, measure: Any, t0: Any, t1: Any, space: Any, frame: Any
) -> tuple[AbstractSystem, Scalar, Scalar]:
    """The system that moves, and its time span, in one dtype."""
    t0, t1 = checks.number(t0, "t0"), _checked_end(t1, measure)
    if not is_traced(t0, t1) and not float(t1) > float(t0):
        checks.refuse(
            "a flow runs forward in time",
            got=f"t0 = {float(t0):g}, t1 = {float(t1):g}",
            expected="t1 > t0",
            remedy="swap them; to go backwards, flow the field -1.0 * field",
        )
    field = _as_field(field, t0, t1)
    facts = check_moves(field, measure, t0)
    dtype = wider(facts.dtype, common_dtype(measure))
    field, measure, t0, t1 = cast(field, dtype), cast(measure, dtype), as_host(t0, dtype), as_host(t1, dtype)
    if isinstance(measure, Gaussian):
        refuse_for_gaussians(space, frame)
        return GaussianSystem(field, measure), t0, t1
    if isinstance(measure, Density):
        if facts.discontinuous:
            checks.refuse(
                "hardmax looks at the edge of the support, where a density on a grid has none",
                got="Hardmax and a Density",
                expected="a field that weighs by mass",
                remedy="use tokens, or mf.Softmax with a small tau",
            )
        return DensitySystem(field, measure), t0, t1
    for piece in pieces_of(field) if facts.solves else ():
        check_masked_sinkhorn(piece, measure, t0)
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
    bound = ORIGINAL if frame is None else frame.bind(field, t0)
    space = cast(space, dtype)
    return assembled(ParticleSystem, field=field, mu=measure, space=space, frame=bound, count=None), t0, t1


def refuse_for_gaussians(space: Any, frame: Any) -> None:
    """A Gaussian lives in Euclidean space, in the original frame."""
    if space is not None and not isinstance(space, Euclidean):
        checks.refuse(
            "a Gaussian does not live on a sphere",
            got=f"space = {type(space).__name__}()",
            expected="no space",
            remedy="flow tokens: mf.flow(field, tokens, t1, space=mf.Sphere())",
        )
    if frame is not None:
        checks.refuse(
            "a Gaussian flows in the original frame",
            got=f"frame = {frame!r}",
            expected="no frame",
            remedy="push the states afterwards: run.at(t).push(jax.scipy.linalg.expm(-t * V))",
        )


def _as_field(field: Any, t0: Scalar, t1: Scalar) -> Any:
    """A list of fields, one per layer, as equal pieces of the time span."""
    if (
        not isinstance(field, (list, tuple))
        or not all(isinstance(layer, AbstractField) for layer in field)
        or not field
    ):
        return field
    known_span(t0, t1)
    if float(t1) == np.inf:
        checks.refuse(
            "layers share a finite time span",
            got=f"{len(field)} layers and t1 = inf",
            expected="a finite t1, or a single field",
            remedy="give a finite t1; then go on from run.final with one field and t1=inf",
        )
    return Piecewise(field, np.linspace(float(t0), float(t1), len(field) + 1)[1:-1].tolist())


def known_span(t0: Scalar, t1: Scalar) -> None:
    """Refuse end times that are traced, where breaks must be placed between them."""
    if not checks.known(t0, t1):
        checks.refuse(
            "a piecewise field needs known end times",
            got="traced t0 or t1",
            expected="numbers",
            remedy="keep t0 and t1 out of the arguments of jit, vmap and grad",
        )


def _checked_end(t1: Any, measure: Any) -> Scalar:
    if type(t1) is int or (type(t1) is float and math.isfinite(t1)):
        return checks.number(t1, "t1")
    array = checks.to_array(t1, "t1", "a number")
    if array.ndim == 0 and checks.known(array) and float(array) == np.inf:
        if isinstance(measure, Gaussian):
            return array
        checks.refuse(
            "t1 must be finite: tokens have no fate to run to",
            got="t1 = inf",
            expected="a finite time; t1 = inf is for Gaussians",
            remedy="give a finite t1 and stop=mf.Stationary(1e-6)",
        )
    return checks.scalar(t1, "t1")


def checked_control(
    system: AbstractSystem,
    solver: Any,
    rtol: Any,
    atol: Any,
    step: Any,
    t0: Scalar,
    given: Any,
    accuracy: Any = None,
) -> Control:
    """How the solver chooses its steps; `given` is the dtype in which the tokens came, `accuracy` that of the sums."""
    dtype = system.dtype
    double = jnp.finfo(dtype).bits >= 64
    default_rtol, default_atol = (1e-6, 1e-9) if double else (1e-4, 1e-6)
    if isinstance(system, GaussianSystem):
        # Moments have no scale of their own: what is negligible is so relative to the start.
        default_rtol = 1e-8 if double else 1e-4
        scale = system.scale()
        xp, scale = (np, np.asarray(scale)) if checks.known(scale) else (jnp, scale)
        least = float(jnp.finfo(dtype).tiny)
        # What is smaller is 0 to a program, and so are the errors of a tiny Gaussian that are compared with it.
        default_atol = xp.maximum(1e-3 * default_rtol * xp.where(scale > 0, scale, scale * 0 + 1), least)
        if atol is None and xp is np and 0 < float(scale) < TINIEST * least / default_rtol:
            checks.refuse(
                "the Gaussian is too small for the tolerances",
                got=f"a largest number of {float(scale):.3g} in {dtype}",
                expected=f"at least {TINIEST * least / default_rtol:.3g}",
                remedy="measure in smaller units: multiply mean and factor by a power of two, divide Q and K by it",
            )
    if accuracy is not None:
        # Error control takes the errors of the sums for bends of the path, and cuts its steps to nothing.
        noise = 10 * (accuracy.accuracy if isinstance(accuracy, Plan) else checked_accuracy(accuracy))
        default_rtol, default_atol = max(default_rtol, noise), max(default_atol, 1e-3 * noise)
        if (
            rtol is not None
            and checks.known(checks.scalar(rtol, "rtol"))
            and float(rtol) < 0.999 * noise
            and step is None
        ):
            checks.refuse(
                "rtol must be at least ten times the accuracy of the sums",
                got=f"rtol = {float(rtol):.3g}, accuracy = {noise / 10:.3g}",
                expected=f"rtol >= {noise:.3g}",
                remedy="loosen rtol, or ask for a better accuracy",
            )
    if isinstance(system, ParticleSystem):
        default_atol = _token_atol(system, default_atol, default_rtol)
    # Tokens given in a lower precision than the field's have no more digits than that, if digits are asked for.
    digits = dtype if rtol is None else given
    rtol = default_rtol if rtol is None else checks.relative_tolerance(rtol, digits)
    atol = default_atol if atol is None else checks.positive(atol, "atol", "1e-9 is the default")
    if step is not None:
        step = checks.positive(step, "step", "give the length of each step, e.g. step=0.01")
    elif not estimates_errors(solver):
        checks.refuse(
            "this solver has no error estimate",
            got=f"{NAMES.get(solver) if isinstance(solver, str) else type(solver).__name__} without a step",
            expected="step=..., or a solver with error control",
            remedy="flow(..., step=0.01), or solver='tsit5'",
        )
    elif facts_of(system.field, t0).discontinuous:
        name = type(system.field).__name__
        checks.refuse(
            "hardmax is discontinuous: error control fails on it",
            got="Hardmax without a step" if name == "Hardmax" else f"Hardmax inside {name}, without a step",
            expected="a constant step",
            remedy="flow(..., solver='euler', step=0.01), or mf.layers",
        )
    return Control(as_host(rtol, dtype), as_host(atol, dtype), None if step is None else as_host(step, dtype))


def _token_atol(system: ParticleSystem, atol: Any, rtol: float) -> Any:
    """The absolute tolerance for tokens of any size: `atol`, but no more than the share `rtol` of the largest number at
    the start, beyond which nothing would be controlled, and no less than what rounding leaves of it.
    """
    xp = draws.numpy_of(system.mu.points)
    size = xp.abs(xp.asarray(system.mu.points)).max()
    size = xp.where(size > 0, size, 1) if xp is np else jax.lax.stop_gradient(jnp.where(size > 0, size, 1))
    # The propagators of a moving frame are of the size of one, whatever the tokens are.
    least = 0.0 if isinstance(system.frame, MovingRescaled) else float(jnp.finfo(system.dtype).eps)
    return xp.clip(xp.asarray(atol, size.dtype), least * size, rtol * size)


def schedule_is_traced(field: AbstractField, t0: Scalar) -> bool:
    """Whether a schedule's function closes over traced arrays, which its leaves do not show."""
    if facts_of(field, t0).constant:
        return False
    nodes = jax.tree.leaves(field, is_leaf=lambda node: isinstance(node, Scheduled))
    return any(isinstance(node, Scheduled) and is_traced(node.function(t0)) for node in nodes)


def with_breaks(times: Any, field: AbstractField, t0: Scalar, t1: Scalar) -> Any:
    """Save times with the breaks of a piecewise field among them, so that no interval contains one."""
    if facts_of(field, t0).constant:
        return times
    inner = [b for b in breaks_of(field) if checks.known(times, t0, t1) and float(t0) < b < float(t1)]
    if not inner:
        return times
    return np.unique(np.concatenate([np.asarray(times), np.asarray(inner, times.dtype)]))


def pieces(system: AbstractSystem, t0: Scalar, t1: Scalar) -> list[tuple[AbstractSystem, Scalar]]:
    """The run as systems with continuous weights, each with its end time: no step crosses a break."""
    breaks = () if facts_of(system.field, t0).constant else breaks_of(system.field)
    if not breaks:
        return [(system, t1)]
    known_span(t0, t1)
    inner = [as_array(b, t0.dtype) for b in breaks if float(t0) < b < float(t1)]
    starts, ends = [t0, *inner], [*inner, t1]
    middles = [(float(a) + float(b)) / 2 for a, b in zip(starts, ends, strict=True)]
    return [
        (eqx.tree_at(lambda s: s.field, system, frozen(system.field, middle)), end)
        for middle, end in zip(middles, ends, strict=True)
    ]

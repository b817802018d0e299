r"""One problem, or a batch of them, marched through time: the factor $L$, $\dot L=GL$, with a step of its own scale.

Each accepted step is a fixed fraction of the time in which the solution changes, so that the march resolves a blow-up
($h\sim t^*-t$) and an algebraic tail ($h\sim t$) alike: it is equidistant in the rescaled time of MATH e.5. A *segment*
is a fixed number of steps, one compiled function; what the march has seen is looked at between segments.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._scale import norm
from .._types import Scalar
from .._warm import Module
from ..attention.base import AbstractField, AbstractLeaf
from ..attention.closure import closure_of, stretch_of
from ..measures.gaussian import Gaussian
from ..rosenbrock import rodas5p_step

# Up to this many unknowns a step is implicit: beyond, the factorisation of a Jacobian costs more than it saves.
IMPLICIT_SIZE = 400
# A step is at most this fraction of the time so far: a decade of time takes some 16 steps, and is looked at twice.
LONGEST = 0.15
# A direction that shrinks is resolved relative to its own size down to this share of the smallest one at the start.
FAINT = 1e-2


class March(Module):
    r"""Where a march is: `Y` $=L$, or $[L\ m]$ if the mean moves the covariance; time since the start, next step, the
    problem's unit of time $1/\gamma(0)$, the size below which no direction counts by itself, steps tried.
    """

    Y: Float[Array, "*batch d c"]
    t: Float[Array, "*batch"]
    h: Float[Array, "*batch"]
    unit: Float[Array, "*batch"]
    faint: Float[Array, "*batch"]
    tries: Int[Array, "*batch"]


class Sight(Module):
    r"""What a segment hands to the host: the state `Y`, $F=\dot Y$, `dF` $=\ddot Y$, and $G$; see `classify.look`."""

    t: Float[Array, "*batch"]
    Y: Float[Array, "*batch d c"]
    F: Float[Array, "*batch d c"]
    dF: Float[Array, "*batch d c"]
    G: Float[Array, "*batch d d"]


def mean_matters(field: AbstractField) -> bool:
    """Whether the mean takes part in the motion of the covariance."""
    return any(term.leaf.moved_by_mean for term in field.terms(jnp.zeros(())))


def leaves_of(field: AbstractField) -> list[AbstractLeaf]:
    """The leaves of a constant field."""
    return [term.leaf for term in field.terms(jnp.zeros(()))]


def bounded_speed(leaves: list[AbstractLeaf]) -> Any:
    """Whether a field with these leaves, or each of a batch of fields, can be known never to blow up."""
    return np.all(np.broadcast_arrays(*(leaf.bounded_speed for leaf in leaves)), axis=0)


def needs_patience(field: AbstractField) -> bool:
    """Whether growth may change its law late: a field that saturates, or a sum whose parts grow differently."""
    leaves = leaves_of(field)
    return any(leaf.saturates for leaf in leaves) or len({bool(np.all(leaf.bounded_speed)) for leaf in leaves}) > 1


def split(Y: Float[Array, "d c"], with_mean: bool) -> Gaussian:
    """The Gaussian of a state."""
    mean, factor = (Y[:, -1], Y[:, :-1]) if with_mean else (jnp.zeros_like(Y[:, 0]), Y)
    return Gaussian(mean, factor=factor)


def velocity(field: AbstractField, Y: Float[Array, "d c"], with_mean: bool) -> Float[Array, "d c"]:
    r"""$\dot L=GL$, and $\dot m=u$ beside it."""
    gaussian = split(Y, with_mean)
    terms = field.terms(jnp.zeros((), Y.dtype))
    if not with_mean:
        return stretch_of(terms, gaussian)
    u, _ = closure_of(terms, gaussian)
    return jnp.concatenate([stretch_of(terms, gaussian), u[:, None]], axis=1)


def start(field: AbstractField, gaussian: Gaussian, with_mean: bool) -> March:
    """The march at its start, with a cautious first step."""
    L = gaussian.factor
    Y = jnp.concatenate([L, gaussian.mean[:, None]], axis=1) if with_mean else L
    speed = norm(velocity(field, Y, with_mean)) / jnp.maximum(norm(Y), jnp.finfo(Y.dtype).tiny)
    unit = jnp.where(speed > 0, 1 / jnp.where(speed > 0, speed, 1), 1)
    lengths = norm(L, axis=0)
    least = jnp.min(jnp.where(lengths > 0, lengths, norm(L)))
    return March(Y, jnp.zeros((), Y.dtype), 0.01 * unit, unit, FAINT * least, jnp.zeros((), int))


def sight(field: AbstractField, march: March, with_mean: bool) -> Sight:
    """What is seen of a march where it is."""
    F = velocity(field, march.Y, with_mean)
    _, dF = jax.jvp(lambda Y: velocity(field, Y, with_mean), (march.Y,), (F,))
    _, G = closure_of(field.terms(jnp.zeros((), F.dtype)), split(march.Y, with_mean))
    return Sight(march.t, march.Y, F, dF, G)


def _explicit_step(flat: Any, t: Scalar, y: Array, h: Scalar) -> tuple[Array, Array]:
    import diffrax  # here, since only large Gaussians need it

    solver, term = diffrax.Dopri8(), diffrax.ODETerm(lambda t, y, args: flat(t, y))
    state = solver.init(term, t, t + h, y, None)
    moved, error, *_ = solver.step(term, jnp.zeros_like(t), h, y, None, state, made_jump=False)
    return moved, error


def step_error(error: Array, march: March, rtol: Scalar, with_mean: bool) -> Scalar:
    r"""The error of a step in units of `rtol`: root of the mean square over the columns of $L$ that are there,
    each entry relative to its row or its column, whichever is shorter.

    Columns are orthogonal but for a few steps, $L\approx US$, so that a small direction of $\Sigma$ is as exact as a
    large one: it may be the one that blows up. A row counts as far as rounding in the columns lets it.
    """
    L = split(march.Y, with_mean).factor
    rows, columns = norm(L, axis=1)[:, None], norm(L, axis=0)[None]
    rounding = 16 * jnp.finfo(L.dtype).eps / rtol
    size = jnp.maximum(jnp.maximum(jnp.minimum(rows, columns), rounding * columns), march.faint)
    if with_mean:  # which may be zero, or pass by it
        size = jnp.concatenate([size, jnp.broadcast_to(norm(march.Y), rows.shape)], axis=1)
    size = jnp.where(size > 0, size, 1)  # of a single point
    there = jnp.maximum(jnp.sum(columns > 0), 1) + int(with_mean)
    return norm(error / size) / jnp.sqrt(there) / rtol


def one_step(field: AbstractField, march: March, rtol: Scalar, with_mean: bool) -> March:
    """One step tried; the state moves if its error is small enough."""
    shape = march.Y.shape

    def flat(t: Scalar, y: Array) -> Array:
        return velocity(field, y.reshape(shape), with_mean).reshape(-1)

    h = jnp.minimum(march.h, LONGEST * (march.t + march.unit))
    take = rodas5p_step if march.Y.size <= IMPLICIT_SIZE else _explicit_step
    Y, error = (a.reshape(shape) for a in take(flat, march.t, march.Y.reshape(-1), h)[:2])
    ratio = step_error(error, march, rtol, with_mean)
    good = ratio <= 1
    # A state that is not a number is a step that was much too long.
    factor = jnp.where(jnp.isfinite(ratio), jnp.clip(0.9 * jnp.maximum(ratio, 1e-10) ** -0.2, 0.2, 5.0), 0.1)
    return March(
        Y=jnp.where(good, Y, march.Y),
        t=jnp.where(good, march.t + h, march.t),
        h=h * factor,
        unit=march.unit,
        faint=march.faint,
        tries=march.tries + 1,
    )


def segment(
    field: AbstractField, march: March, rtol: Scalar, looks: int, steps: int, with_mean: bool, keep: bool
) -> tuple[March, Sight, Any]:
    """`looks` times `steps` steps, what is seen after each of the looks, and, if asked for, all states on the way."""

    def step(march: March, _: None) -> tuple[March, Any]:
        march = one_step(field, march, rtol, with_mean)
        return march, (march.t, march.Y) if keep else None

    def stretch(march: March, _: None) -> tuple[March, Any]:
        march, path = jax.lax.scan(step, march, None, length=steps)
        return march, (sight(field, march, with_mean), path)

    march, (seen, path) = jax.lax.scan(stretch, march, None, length=looks)
    return march, seen, path

r"""One problem, or a batch of them, marched through time: the factor $L$, $\dot L=GL$, with a step of its own scale.

Each accepted step is a fixed fraction of the time in which the solution changes, so that the march resolves a blow-up
($h\sim t^*-t$) and an algebraic tail ($h\sim t$) alike: it is equidistant in the rescaled time of MATH e.5. A *segment*
is a fixed number of steps, one compiled function; what the march has seen is looked at between segments.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._types import Scalar
from ..attention.base import AbstractField
from ..attention.closure import closure_of
from ..measures.gaussian import Gaussian
from ..rosenbrock import rodas5p_step


class March(eqx.Module):
    r"""Where a march is: `Y` $=L$, or $[L\ m]$ if the mean moves the covariance; time, next step, steps tried."""

    Y: Float[Array, "*batch d c"]
    t: Float[Array, "*batch"]
    h: Float[Array, "*batch"]
    tries: Int[Array, "*batch"]


class Look(eqx.Module):
    r"""What is seen of a march at the end of a segment.

    `slopes` are $\rho_i=2t\,u_i^\top Gu_i$ of the eigenvalues of $\Sigma$, in decreasing order of them (MATH e.5);
    `growth` $=\frac d{dt}\log\operatorname{tr}\Sigma$, `exponent` $p=d\log\gamma/d\log\operatorname{tr}\Sigma$,
    `turning` $=t\|\dot\Sigma\|/\|\Sigma\|$.
    """

    t: Float[Array, "*batch"]
    log_size: Float[Array, "*batch"]
    speed: Float[Array, "*batch"]
    growth: Float[Array, "*batch"]
    exponent: Float[Array, "*batch"]
    turning: Float[Array, "*batch"]
    singular: Float[Array, "*batch r"]
    slopes: Float[Array, "*batch r"]


def mean_matters(field: AbstractField) -> bool:
    """Whether the mean takes part in the motion of the covariance."""
    return any(term.leaf.moved_by_mean for term in field.terms(jnp.zeros(())))


def split(Y: Float[Array, "d c"], with_mean: bool) -> Gaussian:
    """The Gaussian of a state."""
    mean, factor = (Y[:, -1], Y[:, :-1]) if with_mean else (jnp.zeros_like(Y[:, 0]), Y)
    return Gaussian(mean, factor=factor)


def velocity(field: AbstractField, Y: Float[Array, "d c"], with_mean: bool) -> Float[Array, "d c"]:
    r"""$\dot L=GL$, and $\dot m=u$ beside it."""
    gaussian = split(Y, with_mean)
    u, G = closure_of(field.terms(jnp.zeros((), Y.dtype)), gaussian)
    moved = G @ gaussian.factor
    return jnp.concatenate([moved, u[:, None]], axis=1) if with_mean else moved


def _square(Y: Array) -> Scalar:
    return jnp.sum(Y * Y)


def start(field: AbstractField, gaussian: Gaussian, t0: Scalar, with_mean: bool) -> March:
    """The march at its start, with a cautious first step."""
    L = gaussian.factor
    Y = jnp.concatenate([L, gaussian.mean[:, None]], axis=1) if with_mean else L
    speed = jnp.sqrt(_square(velocity(field, Y, with_mean)) / jnp.maximum(_square(Y), jnp.finfo(Y.dtype).tiny))
    h = jnp.where(speed > 0, 0.01 / jnp.where(speed > 0, speed, 1), 1)
    return March(Y, t0, h, jnp.zeros((), int))


def look(field: AbstractField, march: March, with_mean: bool) -> Look:
    """What is seen of a march where it is."""
    Y = march.Y
    F, dF = jax.jvp(lambda Y: velocity(field, Y, with_mean), (Y,), (velocity(field, Y, with_mean),))
    size = _square(Y)
    growth = 2 * jnp.sum(Y * F) / size
    acceleration = jnp.sum(F * dF) / _square(F) - growth / 2
    gaussian = split(Y, with_mean)
    _, G = closure_of(field.terms(jnp.zeros((), Y.dtype)), gaussian)
    vectors, singular, _ = jnp.linalg.svd(gaussian.factor, full_matrices=False)
    slopes = 2 * march.t * jnp.einsum("ij,ik,kj->j", vectors, G, vectors)
    # Sigma dot = G Sigma + Sigma G^T, in units of the largest entry so that nothing under- or overflows.
    unit = jnp.where(singular[0] > 0, singular[0], 1)
    L, GL = gaussian.factor / unit, G @ (gaussian.factor / unit)
    sigma_dot, sigma = GL @ L.T + L @ GL.T, L @ L.T
    turning = march.t * jnp.sqrt(_square(sigma_dot) / jnp.maximum(_square(sigma), jnp.finfo(Y.dtype).tiny))
    return Look(
        t=march.t,
        log_size=jnp.log(size),
        speed=jnp.sqrt(_square(F) / size),
        growth=growth,
        exponent=acceleration / growth,
        turning=turning,
        singular=singular,
        slopes=slopes,
    )


def one_step(field: AbstractField, march: March, rtol: Scalar, t1: Scalar, with_mean: bool) -> March:
    """One step tried; the state moves if its error is small enough."""
    shape = march.Y.shape

    def flat(t: Scalar, y: Array) -> Array:
        return velocity(field, y.reshape(shape), with_mean).reshape(-1)

    h = jnp.minimum(march.h, t1 - march.t)
    Y, error = (a.reshape(shape) for a in rodas5p_step(flat, march.t, march.Y.reshape(-1), h, autonomous=True))
    # Relative to each column: a direction that starts small is resolved too, as long as it is not negligible.
    columns = jnp.sum(march.Y * march.Y, axis=0)
    scale = jnp.maximum(columns, 1e-10 * columns.sum())
    ratio = jnp.sqrt(jnp.mean(jnp.sum(error * error, axis=0) / scale)) / rtol
    good = ratio <= 1
    # A state that is not a number is a step that was much too long.
    factor = jnp.where(jnp.isfinite(ratio), jnp.clip(0.9 * jnp.maximum(ratio, 1e-10) ** -0.2, 0.2, 5.0), 0.1)
    return March(
        Y=jnp.where(good, Y, march.Y),
        t=jnp.where(good, march.t + h, march.t),
        h=jnp.where(good & (factor > 1), jnp.maximum(march.h, h * factor), h * factor),
        tries=march.tries + 1,
    )


def segment(
    field: AbstractField, march: March, rtol: Scalar, t1: Scalar, steps: int, with_mean: bool, keep: bool
) -> tuple[March, Look, Any]:
    """`steps` steps of a march, a look at where they lead, and, if asked for, all states on the way."""

    def body(march: March, _: None) -> tuple[March, Any]:
        march = one_step(field, march, rtol, t1, with_mean)
        return march, (march.Y, march.t) if keep else None

    march, path = jax.lax.scan(body, march, None, length=steps)
    return march, look(field, march, with_mean), path

r"""Finite volumes for $\partial_t\rho+\operatorname{div}(\rho u)=0$: conservative, positive, second order.

Masses move between neighbouring cells only: $\dot m_c=-\sum_{\text{faces}}\pm F$, so that mass is conserved to
rounding. The flux through a face is upwind, $F=u\,\rho^{\text{upwind}}$, from a linear reconstruction in each cell
whose slope is limited by van Leer's harmonic mean: face values stay between those of the neighbouring cells, hence in
$[0,2\rho_c]$. What leaves a cell within $\Delta t$ is then at most
$2\Delta t\sum_a(\max|u_a|/h_a)\,m_c$, and steps with $\Delta t\sum_a\max|u_a|/h_a\le\frac12$ keep
$\rho\ge0$ (LeVeque 2002). Beyond the edge of the grid there is nothing: mass that leaves is lost, and counted.
"""

import jax.numpy as jnp
from jaxtyping import Array

from .._types import Scalar


def limited_slopes(masses: Array, axis: int) -> Array:
    """Van Leer's slopes along an axis: the harmonic mean of the two differences, and 0 where they disagree."""
    padded = jnp.pad(masses, [(1, 1) if a == axis % masses.ndim else (0, 0) for a in range(masses.ndim)])
    steps = jnp.diff(padded, axis=axis)
    behind, ahead = _ends(steps, axis)
    agree = behind * ahead > 0
    total = jnp.where(agree, behind + ahead, 1)
    # Dividing first: the product of two small differences underflows.
    return jnp.where(agree, 2 * behind * (ahead / total), 0)


def fluxes(masses: Array, u: Array, spacing: Scalar, axis: int) -> Array:
    """Mass per unit of time through all faces along an axis, positive towards higher coordinates.

    `u` is the normal velocity at the faces, one more than there are cells.
    """
    half = limited_slopes(masses, axis) / 2
    nothing = jnp.zeros_like(masses.take(jnp.arange(1), axis=axis))
    # Beside an empty cell a face value is 0 up to rounding, and must not be less.
    from_below = jnp.concatenate([nothing, jnp.maximum(masses + half, 0)], axis=axis)
    from_above = jnp.concatenate([jnp.maximum(masses - half, 0), nothing], axis=axis)
    return u / spacing * jnp.where(u > 0, from_below, from_above)


def divergence(masses: Array, u: tuple[Array, ...], spacing: Array) -> tuple[Array, Scalar]:
    """The rates of change of the masses, and of the mass lost over the edge of the grid."""
    rate, lost = jnp.zeros_like(masses), jnp.zeros((), masses.dtype)
    d = len(u)
    for a in range(d):
        axis = masses.ndim - d + a
        through = fluxes(masses, u[a], spacing[a], axis)
        entering, leaving = _ends(through, axis)
        rate = rate + (entering - leaving)
        last = through.shape[axis] - 1
        edges = through.take(jnp.asarray([0, last]), axis=axis)
        low, high = _ends(edges, axis)
        lost = lost + high.sum() - low.sum()
    return rate, lost


def courant_rate(u: tuple[Array, ...], spacing: Array) -> Scalar:
    r"""$\sum_a\max|u_a|/h_a$: half its inverse is the longest step that keeps the masses positive."""
    return sum(jnp.abs(u[a]).max() / spacing[a] for a in range(len(u)))  # pyright: ignore[reportReturnType]


def _ends(array: Array, axis: int) -> tuple[Array, Array]:
    """All but the last, and all but the first, along an axis."""
    size = array.shape[axis]
    return array.take(jnp.arange(size - 1), axis=axis), array.take(jnp.arange(1, size), axis=axis)

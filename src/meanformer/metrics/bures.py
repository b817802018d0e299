r"""The Bures-Wasserstein geometry: $W_2$ between Gaussians and its geodesics, of any ranks (MATH g)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm, unit
from .._types import cast, common_dtype
from ..measures.gaussian import Gaussian


def _pair(g1: Any, g2: Any) -> tuple[Gaussian, Gaussian]:
    """Two Gaussians of one dimension, in one dtype."""
    for name, g in (("g1", g1), ("g2", g2)):
        if not isinstance(g, Gaussian):
            checks.refuse(
                f"{name} must be a Gaussian",
                got=checks.described(g),
                expected="a Gaussian",
                remedy="mf.Gaussian(mu.mean, cov=mu.covariance) is the Gaussian with the moments of a cloud mu",
            )
    if g1.d != g2.d:
        checks.refuse(
            "the Gaussians must live in one space",
            got=f"d = {g1.d} and d = {g2.d}",
            expected="the same d",
            remedy="push one of them into the space of the other: g.push(M)",
        )
    return cast((g1, g2), common_dtype(g1, g2))


def _aligned(L1: Float[Array, "*batch d r1"], L2: Float[Array, "*batch d r2"]) -> tuple[Array, Array, Array]:
    r"""$L_1$, $L_2$ padded with zero columns to one width, and the rotation $R$ that brings $L_2R$ nearest to $L_1$.

    It is the orthogonal factor of $L_2^\top L_1$ (orthogonal Procrustes).
    """
    width = max(L1.shape[-1], L2.shape[-1])
    L1, L2 = (jnp.concatenate([L, jnp.zeros((*L.shape[:-1], width - L.shape[-1]), L.dtype)], axis=-1) for L in (L1, L2))
    one, two = (L / unit(L, (-2, -1)) for L in (L1, L2))  # the rotation does not depend on their sizes
    return L1, L2, _orthogonal_factor(jnp.einsum("...di,...dj->...ij", two, one))


@jax.custom_jvp
def _orthogonal_factor(M: Float[Array, "*batch r r"]) -> Float[Array, "*batch r r"]:
    r"""$R=UW^\top$ of $M=U\,\mathrm{diag}(S)\,W^\top$, the orthogonal factor of $M=RP$ with $P\ge0$ symmetric."""
    U, _, Wt = jnp.linalg.svd(M, full_matrices=False)
    return U @ Wt


@_orthogonal_factor.defjvp
def _orthogonal_factor_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    r"""$\dot R=U\,\Omega\,W^\top$ with $\Omega_{ij}(s_i+s_j)=(U^\top\dot MW-W^\top\dot M^\top U)_{ij}$.

    It exists wherever $M$ is regular, at equal singular values too; where $s_i=s_j=0$ the rotation is free, and rests.
    """
    (M,), (dM,) = primals, tangents
    U, S, Wt = jnp.linalg.svd(M, full_matrices=False)
    inner = jnp.swapaxes(U, -1, -2) @ dM @ jnp.swapaxes(Wt, -1, -2)
    sums = S[..., :, None] + S[..., None, :]
    free = sums <= S.shape[-1] * jnp.finfo(S.dtype).eps * S[..., :1, None]
    turn = jnp.where(free, 0, (inner - jnp.swapaxes(inner, -1, -2)) / jnp.where(free, 1, sums))
    return _orthogonal_factor(M), U @ turn @ Wt


def bures_wasserstein(g1: Gaussian, g2: Gaussian) -> Float[Array, "*batch"]:
    r"""The Wasserstein distance $W_2$ of two Gaussians: the distance itself, not its square,

    $$W_2^2=|m_1-m_2|^2+\min_{R^\top R=I}\|L_1-L_2R\|_F^2 .$$

    It is $|m_1-m_2|^2+\operatorname{tr}\Sigma_1+\operatorname{tr}\Sigma_2-2\|L_1^\top L_2\|_*$ without the cancellation
    between nearly equal Gaussians, and needs no root and no inverse of a covariance: any ranks are legal. First
    derivatives, where the distance is positive, are those of the minimum at fixed $R$; there are no second ones.

    **Arguments:** two Gaussians of one dimension; or a batch and a batch of the same shape, or a batch and a single
    one.

    **Returns:** the distance, of the shape of the batch: `()` for single Gaussians.

    **Raises:** `InputError` if the distance of finite Gaussians is beyond the floating-point range (traced, it is
    infinite).

    ```python
    g1, g2 = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2)), mf.Gaussian(jnp.zeros(2), cov=4 * jnp.eye(2))
    assert np.isclose(mf.bures_wasserstein(g1, g2), np.sqrt(2))  # (2 - 1)^2 in each of two directions
    ```

    MATH g.
    """
    g1, g2 = _pair(g1, g2)
    batch = _common_batch(g1, g2)
    m1, m2 = (jnp.broadcast_to(g.mean, (*batch, g.d)) for g in (g1, g2))
    L1, L2 = (jnp.broadcast_to(g.factor, (*batch, *g.factor.shape[-2:])) for g in (g1, g2))
    distance = _distance(m1, L1, m2, L2)
    if checks.known(distance) and not np.isfinite(np.asarray(distance)).all():
        # Rows of a run after its end are no numbers, and have no distance.
        whole = np.logical_and.reduce(
            [np.isfinite(np.asarray(a)).reshape(*batch, -1).all(-1) for a in (m1, L1, m2, L2)]
        )
        checks.representable(np.asarray(distance)[whole], "the distance")
    return distance


@program(inline=True)
def _distance(m1: Array, L1: Array, m2: Array, L2: Array) -> Array:
    L1, L2, R = _aligned(L1, L2)
    # R minimises, so its own derivative does not count: none through the svd, which has none at equal singular values.
    gap = L1 - jnp.einsum("...ij,...jk->...ik", L2, jax.lax.stop_gradient(R))
    gap = jnp.concatenate([gap, (m1 - m2)[..., None]], axis=-1)
    return norm(gap, axis=(-1, -2))


def _common_batch(g1: Gaussian, g2: Gaussian) -> tuple[int, ...]:
    one, two = g1.mean.shape[:-1], g2.mean.shape[:-1]
    if one and two and one != two:
        checks.refuse(
            "batches of Gaussians must have one shape",
            got=f"{one} and {two}",
            expected="equal leading axes, or a single Gaussian on one side",
            remedy="index one of the batches, or jax.vmap over it for all pairs",
        )
    return one or two


def bures_geodesic(g1: Gaussian, g2: Gaussian, s: Any) -> Gaussian:
    r"""The displacement interpolation from `g1` ($s=0$) to `g2` ($s=1$), on factors:

    $$m(s)=(1-s)m_1+s\,m_2,\qquad L(s)=(1-s)L_1+s\,L_2R,$$

    with the rotation $R$ of `bures_wasserstein`, so that $W_2(\mu_s,\mu_r)=|s-r|\,W_2(\mu_0,\mu_1)$, for any ranks.

    **Arguments:** two single Gaussians; `s` a number in $[0,1]$, or a vector `(T,)` of them.

    **Returns:** a `Gaussian`; for a vector `s` a batch, with means `(T, d)`.

    ```python
    g1, g2 = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2)), mf.Gaussian(jnp.zeros(2), cov=4 * jnp.eye(2))
    halfway = mf.bures_geodesic(g1, g2, 0.5)
    assert np.allclose(halfway.covariance, 1.5**2 * jnp.eye(2))
    ```

    MATH g.
    """
    g1, g2 = _pair(g1, g2)
    if g1.mean.ndim + g2.mean.ndim > 2:
        checks.refuse(
            "a geodesic joins two single Gaussians",
            got=f"means of shapes {g1.mean.shape} and {g2.mean.shape}",
            expected="means of shape (d,)",
            remedy="index the batch, or jax.vmap over it",
        )
    s = checks.to_array(s, "s", "a number in [0, 1]")
    s = checks.vector(s, "s") if s.ndim else checks.scalar(s, "s")
    if checks.known(s) and not ((np.asarray(s) >= 0) & (np.asarray(s) <= 1)).all():
        checks.refuse(
            "s must lie in [0, 1]",
            got=f"values from {float(jnp.min(s)):.6g} to {float(jnp.max(s)):.6g}",
            expected="0 <= s <= 1",
            remedy="s = 0 is the first Gaussian, s = 1 the second; a geodesic does not go on beyond them",
        )
    s = cast(s, g1.mean.dtype)
    L1, L2, R = _aligned(g1.factor, g2.factor)
    mean = jnp.multiply.outer(1 - s, g1.mean) + jnp.multiply.outer(s, g2.mean)
    return Gaussian(mean, factor=jnp.multiply.outer(1 - s, L1) + jnp.multiply.outer(s, L2 @ R))

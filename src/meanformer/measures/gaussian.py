"""Gaussian measures N(m, L L^T), of any rank."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Key, cast, common_dtype
from .cloud import PointCloud


def _factor(cov: Array) -> Array:
    """A square factor L of `cov = L L^T`; semi-definite is legal, indefinite is refused."""
    size = cov.shape[0]
    scale = jnp.abs(cov).max()
    smallest = rounding = 0.0
    if checks.known(cov):
        values = np.asarray(cov, np.float64)
        asymmetry, smallest = np.abs(values - values.T).max(), np.linalg.eigvalsh(values)[0]
        rounding = max(1e-8, 100 * float(jnp.finfo(cov.dtype).eps)) * np.abs(values).max()
        if asymmetry > rounding:
            checks.refuse(
                "cov must be symmetric",
                got=f"an asymmetry of {asymmetry:.3g}",
                expected="cov == cov.T",
                remedy="pass (cov + cov.T) / 2",
            )
        if smallest < -rounding:
            checks.refuse(
                "cov must be positive semi-definite",
                got=f"a smallest eigenvalue of {smallest:.3g}",
                expected="eigenvalues >= 0",
                remedy="a variance is not negative; a Gaussian also takes factor=L, and cov = L L^T is always legal",
            )
    # Not through eigh where it can be helped: its derivative is NaN for equal eigenvalues. Traced covariances are taken
    # to be definite.
    if not checks.known(cov) or smallest > rounding:
        return jnp.linalg.cholesky(cov)
    values, vectors = jnp.linalg.eigh(cov)
    # Round-off below zero is cut at round-off level: a singular covariance keeps its rank.
    values = jnp.where(values > size * jnp.finfo(cov.dtype).eps * scale, values, 0)
    return vectors * jnp.sqrt(values)[None]


class Gaussian(eqx.Module):
    r"""The Gaussian measure $\mathcal N(m,\Sigma)$, $\Sigma=LL^\top$ (positive semi-definite by construction).

    **Arguments:** `mean` of shape `(d,)`, and either `cov` of shape `(d, d)` or `factor` of shape `(d, r)`.

    ```python
    g = mf.Gaussian(mean=jnp.zeros(2), cov=jnp.eye(2))
    tokens = g.sample(1000, key=jax.random.key(0))
    ```
    """

    mean: Float[Array, " d"]
    factor: Float[Array, "d r"]

    def __init__(self, mean: Any, cov: Any = None, factor: Any = None):
        mean = checks.vector(mean, "mean")
        d = mean.shape[0]
        if (cov is None) == (factor is None):
            checks.refuse(
                "a Gaussian takes either cov or factor",
                got="both" if cov is not None else "neither",
                expected="exactly one of them",
                remedy="pass cov=Sigma, or factor=L with Sigma = L L^T",
            )
        name, value = ("cov", cov) if factor is None else ("factor", factor)
        value = checks.matrix(value, name)
        if value.shape[0] != d or (name == "cov" and value.shape[1] != d):
            checks.refuse(
                f"{name} must match the mean",
                got=f"{name} of shape {value.shape} for a mean of length {d}",
                expected=f"shape ({d}, {d if name == 'cov' else 'r'})",
                remedy=f"give mean and {name} of one dimension",
            )
        mean, value = cast((mean, value), common_dtype(mean, value))
        self.mean = mean
        self.factor = _factor(value) if name == "cov" else value

    @property
    def d(self) -> int:
        """Dimension."""
        return self.mean.shape[0]

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\Sigma=LL^\top$."""
        return self.factor @ self.factor.T

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        noise = jr.normal(key, (n, self.factor.shape[1]), self.mean.dtype)
        return PointCloud(self.mean[None] + noise @ self.factor.T)


class Mixture(eqx.Module):
    r"""The Gaussian mixture $\sum_c p_c\,\mathcal N(m_c,\Sigma_c)$; made by `gaussian_mixture`."""

    components: tuple[Gaussian, ...]
    weights: Float[Array, " c"]

    @property
    def d(self) -> int:
        """Dimension."""
        return self.components[0].d

    @property
    def mean(self) -> Float[Array, " d"]:
        r"""$m=\sum_c p_c m_c$."""
        return self.weights @ jnp.stack([g.mean for g in self.components])

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\Sigma=\sum_c p_c(\Sigma_c+(m_c-m)(m_c-m)^\top)$."""
        shift = jnp.stack([g.mean for g in self.components]) - self.mean[None]
        within = jnp.einsum("c,cij->ij", self.weights, jnp.stack([g.covariance for g in self.components]))
        return within + jnp.einsum("c,ci,cj->ij", self.weights, shift, shift)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, len(self.components) * self.d, key)
        which_key, *keys = jr.split(key, 1 + len(self.components))
        which = jr.choice(which_key, len(self.components), (n,), p=self.weights)
        draws = jnp.stack([g.sample(n, key=k).points for g, k in zip(self.components, keys, strict=True)])
        return PointCloud(jnp.take_along_axis(draws, which[None, :, None], axis=0)[0])


def gaussian_mixture(means: Any, covs: Any, weights: Any = None) -> Mixture:
    """The law of a mixture of Gaussians.

    **Arguments:** `means` of shape `(c, d)`; `covs` one number (isotropic variance for all), one matrix for
    all, or shape `(c, d, d)`; `weights` of shape `(c,)`, equal by default.

    ```python
    law = mf.gaussian_mixture(means=[[-2.0, 0.0], [2.0, 0.0]], covs=0.1)
    tokens = law.sample(300, key=jax.random.key(0))
    ```
    """
    means = checks.matrix(means, "means")
    count, d = means.shape
    covs = checks.finite(checks.to_array(covs, "covs"), "covs")
    if covs.ndim == 0:
        covs = covs * jnp.eye(d, dtype=covs.dtype)
    if covs.shape not in ((d, d), (count, d, d)):
        checks.refuse(
            "covs must match the means",
            got=f"shape {covs.shape} for means of shape {means.shape}",
            expected=f"a number, ({d}, {d}) or ({count}, {d}, {d})",
            remedy="give one covariance per mean, or one for all",
        )
    covs = jnp.broadcast_to(covs, (count, d, d))
    # A cloud of the means carries the check of the weights.
    if weights is not None:
        weights = checks.vector(weights, "weights", count, ", one per mean")
    centres = PointCloud(means, weights)
    components = tuple(Gaussian(m, cov=c) for m, c in zip(centres.points, covs, strict=True))
    components, shares = cast((components, centres.weights), common_dtype(components, centres))
    return Mixture(components, shares)

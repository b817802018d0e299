r"""Anisotropy as one number: how many directions carry the variance, and how far tokens point the same way (MATH g).

With $\lambda$ the spectrum of $\Sigma$ and $p=\lambda/\sum\lambda$: $1\le$ stable rank $\le$ participation ratio
$\le$ effective rank $\le d$.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm, unit
from .._types import Scalar
from ..measures.cloud import PointCloud
from ..measures.convert import spread
from ..measures.density import Density
from ..measures.gaussian import Gaussian


def _covariance(of: Any) -> Float[Array, "d d"]:
    """The covariance up to a factor: what is read off it does not depend on units."""
    measure = isinstance(of, (PointCloud, Gaussian, Density))
    covariance = spread(of)[0] if measure else checks.matrix(of, "covariance")
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        checks.refuse(
            "a covariance is a square matrix",
            got=f"shape {covariance.shape}",
            expected="(d, d)",
            remedy="pass one measure, or its covariance; use jax.vmap over a batch",
        )
    if checks.known(covariance):
        values = np.asarray(covariance)
        asymmetry = np.abs(values - values.T).max()
        if asymmetry > max(1e-8, 100 * float(jnp.finfo(covariance.dtype).eps)) * np.abs(values).max():
            checks.refuse(
                "a covariance is symmetric",
                got=f"an asymmetry of {asymmetry:.3g}",
                expected="C == C.T",
                remedy="pass (C + C.T) / 2",
            )
        if not measure:
            _check_positive(values, covariance.dtype)
    return covariance


def _check_positive(values: np.ndarray, dtype: Any) -> None:
    smallest = np.linalg.eigvalsh(np.asarray(values / unit(values), np.float64))[0]
    if smallest < -max(1e-8, 100 * float(jnp.finfo(dtype).eps)) * 2:
        checks.refuse(
            "a covariance is positive semi-definite",
            got=f"an eigenvalue of {smallest * float(unit(values)):.3g}",
            expected="eigenvalues >= 0",
            remedy="pass a measure, or the covariance of one",
        )


@program(inline=True)
def _shares(covariance: Float[Array, "d d"]) -> Float[Array, " d"]:
    spectrum = jnp.maximum(jnp.linalg.eigvalsh(covariance / unit(covariance)), 0)
    total = spectrum.sum()
    # A single point has no variance; it counts as rank 1 in one direction, so that the order of the ranks holds.
    alone = jnp.zeros_like(spectrum).at[-1].set(1)
    return jnp.where(total > 0, spectrum / jnp.where(total > 0, total, 1), alone)


def effective_rank(of: Any) -> Scalar:
    r"""The effective rank of a measure or a covariance, from the spectrum $\lambda$ of $\Sigma$:

    $$\exp\Big(-\sum_ip_i\log p_i\Big)\in[1,d],\qquad p=\lambda/\textstyle\sum\lambda .$$

    **Arguments:** a measure, or a covariance matrix of shape `(d, d)`. A single point counts as rank 1.

    **Returns:** a number of shape `()`.

    ```python
    assert np.isclose(mf.effective_rank(jnp.eye(2)), 2)
    assert np.isclose(mf.effective_rank(jnp.diag(jnp.array([1.0, 0.0]))), 1)
    ```

    MATH g; Roy and Vetterli 2007.
    """
    return _effective_rank(_shares(_covariance(of)))


@program(inline=True)
def _effective_rank(p: Float[Array, " d"]) -> Scalar:
    return jnp.exp(-jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1)), 0)))


def effective_ranks(covariances: np.ndarray) -> np.ndarray:
    """The effective rank of each of many covariances, shape `(k, d, d)`, on the host; NaN where one is not finite."""
    ranks = np.full(len(covariances), np.nan)
    finite = np.isfinite(covariances).all(axis=(1, 2))
    scaled = covariances[finite] / unit(covariances[finite], (1, 2))
    spectra = np.maximum(np.linalg.eigvalsh(scaled), 0)
    total = spectra.sum(axis=1, keepdims=True)
    shares = np.divide(spectra, total, out=np.zeros_like(spectra), where=total > 0)
    ranks[finite] = np.exp(-np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=1))
    return ranks


def participation_ratio(of: Any) -> Scalar:
    r"""The participation ratio of a measure or a covariance, from the spectrum $\lambda$ of $\Sigma$:

    $$\Big(\sum_i\lambda_i\Big)^2\Big/\sum_i\lambda_i^2\in[1,d].$$

    **Arguments:** a measure, or a covariance matrix of shape `(d, d)`. A single point counts as rank 1.

    **Returns:** a number of shape `()`.

    ```python
    assert np.isclose(mf.participation_ratio(jnp.diag(jnp.array([3.0, 1.0]))), 1.6)  # 4^2 / (9 + 1)
    ```

    MATH g.
    """
    return _participation_ratio(_shares(_covariance(of)))


@program(inline=True)
def _participation_ratio(p: Float[Array, " d"]) -> Scalar:
    return 1 / jnp.sum(p**2)


def stable_rank(of: Any) -> Scalar:
    r"""The stable rank of a measure or a covariance, from the spectrum $\lambda$ of $\Sigma$:

    $$\sum_i\lambda_i/\lambda_{\max}\in[1,d].$$

    **Arguments:** a measure, or a covariance matrix of shape `(d, d)`. A single point counts as rank 1.

    **Returns:** a number of shape `()`.

    ```python
    assert np.isclose(mf.stable_rank(jnp.diag(jnp.array([3.0, 1.0]))), 4 / 3)
    ```

    MATH g.
    """
    return _stable_rank(_shares(_covariance(of)))


@program(inline=True)
def _stable_rank(p: Float[Array, " d"]) -> Scalar:
    return 1 / p.max()


def isoscore(of: Any) -> Scalar:
    r"""IsoScore: 0 if one direction carries all the variance, 1 if all carry the same,

    $$\frac{PR-1}{d-1},$$

    with $PR$ the participation ratio. On a line, $d=1$, it is 1: the only direction is used in full.

    **Arguments:** a measure, or a covariance matrix of shape `(d, d)`.

    **Returns:** a number of shape `()`.

    ```python
    assert np.isclose(mf.isoscore(jnp.eye(2)), 1)
    assert np.isclose(mf.isoscore(jnp.diag(jnp.array([3.0, 1.0]))), 0.6)
    ```

    MATH g; Rudman et al. 2022.
    """
    return _isoscore(_shares(_covariance(of)))


@program(inline=True)
def _isoscore(p: Float[Array, " d"]) -> Scalar:
    d = p.shape[0]
    return jnp.ones((), p.dtype) if d == 1 else (_participation_ratio(p) - 1) / (d - 1)


def average_cosine(mu: PointCloud | Density) -> Scalar:
    r"""The average cosine of the angle between two different tokens, $i\ne j$, by weight,

    $$\frac{|\sum_iw_i\hat x_i|^2-\sum_iw_i^2}{(\sum_iw_i)^2-\sum_iw_i^2},\qquad\hat x=\frac x{|x|}.$$

    Tokens at zero have no direction and are left out of all sums, as are tokens of zero weight.

    **Arguments:** a `PointCloud` of points `(n, d)`, or a `Density`, by its cells.

    **Returns:** a number of shape `()`; not a number where fewer than two tokens are left.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert np.isclose(mf.average_cosine(tokens), -1 / 3)  # of the cosines 0, 0, -1
    ```

    MATH g.
    """
    if not isinstance(mu, (PointCloud, Density)) or (isinstance(mu, PointCloud) and mu.points.ndim != 2):
        checks.refuse(
            "average_cosine is that of the tokens of one measure",
            got=f"points of shape {mu.points.shape}" if isinstance(mu, PointCloud) else checks.described(mu),
            expected="a PointCloud with points of shape (n, d), or a Density",
            remedy="wrap points in mf.PointCloud; use jax.vmap over a batch",
        )
    return _average_cosine(mu.cloud() if isinstance(mu, Density) else mu)


@program(inline=True)
def _average_cosine(cloud: PointCloud) -> Scalar:
    scaled = cloud.points / unit(cloud.points, 1)
    lengths = norm(scaled, axis=1)
    w = jnp.where(lengths > 0, cloud.weights, 0)
    lengths = jnp.where(lengths > 0, lengths, 1)
    mean, alone = (w / lengths) @ scaled, jnp.sum(w**2)
    pairs = jnp.sum(w) ** 2 - alone
    some = jnp.sum(w > 0) > 1
    return jnp.where(some, (mean @ mean - alone) / jnp.where(some, pairs, 1), jnp.nan)

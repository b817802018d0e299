r"""Anisotropy of a covariance, as one number: how many directions carry its variance (MATH g).

With $\lambda$ the spectrum of $\Sigma$ and $p=\lambda/\sum\lambda$: $1\le$ stable rank $\le$ participation ratio
$\le$ effective rank $\le d$.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Scalar
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian


def _spectrum(of: Any) -> Float[Array, " d"]:
    covariance = of.covariance if isinstance(of, (PointCloud, Gaussian)) else checks.matrix(of, "covariance")
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
    return jnp.maximum(jnp.linalg.eigvalsh(covariance), 0)


def _shares(of: Any) -> Float[Array, " d"]:
    spectrum = _spectrum(of)
    total = spectrum.sum()
    # A single point has no variance; it counts as rank 1 in one direction, so that the order of the ranks holds.
    alone = jnp.zeros_like(spectrum).at[-1].set(1)
    return jnp.where(total > 0, spectrum / jnp.where(total > 0, total, 1), alone)


def effective_rank(of: Any) -> Scalar:
    r"""$\exp(-\sum_ip_i\log p_i)$ of a measure or a covariance matrix (Roy, Vetterli 2007)."""
    p = _shares(of)
    return jnp.exp(-jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1)), 0)))


def participation_ratio(of: Any) -> Scalar:
    r"""$(\sum\lambda)^2/\sum\lambda^2$ of a measure or a covariance matrix."""
    return 1 / jnp.sum(_shares(of) ** 2)


def stable_rank(of: Any) -> Scalar:
    r"""$\sum\lambda/\lambda_{\max}$ of a measure or a covariance matrix."""
    return 1 / _shares(of).max()

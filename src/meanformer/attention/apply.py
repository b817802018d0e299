"""Attention at the tokens themselves."""

from typing import Any

from jaxtyping import Array, Float

from .. import _checks as checks
from ..measures.cloud import PointCloud
from ..measures.density import Density
from .base import AbstractField, check_field
from .schedule import check_velocity


def velocity(field: AbstractField, mu: PointCloud | Density, t: Any = 0.0) -> Float[Array, "n d"]:
    r"""$\Gamma_\mu(x_i)$ at the tokens of `mu` (the cells of a density); masked fields use their positions.

    ```python
    mf.velocity(mf.Softmax(Q, K, V), tokens)     # shape (n, d)
    ```
    """
    t = checks.scalar(t, "t")
    check_velocity(field, mu, t)
    mu = mu.cloud() if isinstance(mu, Density) else mu
    return field(mu, mu.points, t)


def push_attention(field: AbstractField, mu: PointCloud, t: Any = 0.0) -> PointCloud:
    r"""The attention layer without a residual: the measure $(\Gamma_\mu)_\#\mu$."""
    t = checks.scalar(t, "t")
    check_field(field, mu, t)
    return mu.push(lambda points: field(mu, points, t))

"""Attention at the tokens themselves."""

from typing import Any

from jaxtyping import Array, Float

from .. import _checks as checks
from ..measures.cloud import PointCloud
from ..measures.density import Density
from .approximate import Approximate, unwrapped
from .base import AbstractField, check_field
from .planned import Plan, check_fit, planned
from .schedule import check_velocity


def velocity(
    field: AbstractField, mu: PointCloud | Density, t: Any = 0.0, accuracy: float | Plan | None = None
) -> Float[Array, "n d"]:
    r"""$\Gamma_\mu(x_i)$ at the tokens of `mu` (the cells of a density); masked fields use their positions.

    Sums over tokens are exact, or have the error `accuracy` relative to the field's scale: a number, or a plan
    (`mf.plan`), which is then not made again.

    ```python
    mf.velocity(mf.Softmax(Q, K, V), tokens)                     # shape (n, d)
    mf.velocity(mf.Softmax(Q, K, V), million, accuracy=1e-6)     # O(n) work, if keys have dimension 1, 2 or 3
    ```
    """
    t = checks.scalar(t, "t")
    check_velocity(field, mu, t)
    mu = mu.cloud() if isinstance(mu, Density) else mu
    if accuracy is None:
        return field(mu, mu.points, t)
    if isinstance(accuracy, Plan):
        check_fit(accuracy, field, mu, t)
        return Approximate(unwrapped(field), accuracy.sums)(mu, mu.points, t)
    computed = planned(field, mu, accuracy, t)[1]
    return field(mu, mu.points, t) if computed is None else computed


def push_attention(field: AbstractField, mu: PointCloud, t: Any = 0.0) -> PointCloud:
    r"""The attention layer without a residual: the measure $(\Gamma_\mu)_\#\mu$."""
    t = checks.scalar(t, "t")
    check_field(field, mu, t)
    return mu.push(lambda points: field(mu, points, t))

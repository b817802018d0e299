"""Attention at the tokens themselves."""

from typing import Any

from jaxtyping import Array, Float

from .. import _checks as checks
from ..measures.cloud import PointCloud
from .approximate import Approximate, unwrapped
from .base import SMALLER, AbstractField, check_field
from .planned import Plan, check_fit, planned
from .schedule import check_velocity
from .view import as_cloud


def velocity(field: AbstractField, mu: Any, t: Any = 0.0, accuracy: float | Plan | None = None) -> Float[Array, "n d"]:
    r"""$\Gamma_\mu(x_i)$ at the tokens of `mu` (the cells of a density); masked fields use their positions.

    **Arguments:**

    - `field`: a field whose values are velocities, $v=d$; `mu`: a `PointCloud` or a `Density`; `t`: the time.
    - `accuracy`: by default sums over tokens are exact. A number is the error that they may have, relative to the
      field's scale; they then need $O(n)$ work if keys have dimension 1, 2 or 3. A plan (`mf.plan`) is used as it is.

    **Returns:** the velocities, shape `(n, d)`; of a density `(cells, d)`, row by row.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    v = mf.velocity(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens)
    v[2]  # [0.788, 0.788], rounded
    assert v.shape == (3, 2)
    ```
    """
    t = checks.scalar(t, "t")
    mu = as_cloud(mu)
    check_velocity(field, mu, t)
    return checks.representable(_velocity(field, mu, t, accuracy), "the velocity", SMALLER)


def _velocity(field: AbstractField, mu: PointCloud, t: Any, accuracy: Any) -> Float[Array, "n d"]:
    if accuracy is None:
        return field(mu, mu.points, t)
    if isinstance(accuracy, Plan):
        check_fit(accuracy, field, mu, t)
        return Approximate(unwrapped(field), accuracy.sums)(mu, mu.points, t)
    computed = planned(field, mu, accuracy, t)[1]
    return field(mu, mu.points, t) if computed is None else computed


def push_attention(field: AbstractField, mu: Any, t: Any = 0.0) -> PointCloud:
    r"""The attention layer without a residual: the measure $(\Gamma_\mu)_\#\mu=\sum_iw_i\delta_{\Gamma_\mu(x_i)}$.

    **Arguments:** `field`, of values in dimension v, which need not be d; `mu`, a `PointCloud`, or a `Density`,
    which stands for tokens at the centres of its cells; `t`, the time.

    **Returns:** a `PointCloud` with points of shape `(n, v)` and the weights and positions of `mu`.

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    moved = mf.push_attention(mf.Softmax(0 * I, I, I), tokens)  # equal logits: all at the mean
    assert jnp.allclose(moved.points[0], tokens.mean) and jnp.allclose(moved.covariance, 0.0)
    ```
    """
    t = checks.scalar(t, "t")
    mu = as_cloud(mu)
    check_field(field, mu, t)
    return mu.push(lambda points: field(mu, points, t))

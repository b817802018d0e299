"""Hardmax attention."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._scale import unit
from .._types import Queries
from ..measures.cloud import PointCloud
from ..reduce.exact import ArgmaxAverage, dot, fold_tokens
from .kernel import AbstractAttention, Projections, summed_tokens
from .view import View


class Hardmax(AbstractAttention):
    r"""Hardmax attention, the limit $\tau\to0$ of softmax (MATH b.6),

    $$\Gamma_\mu(x)=\frac1{\mu(S_x)}\int_{S_x}Vy\,d\mu(y),\qquad S_x=\arg\max_{y\in\mathrm{supp}\,\mu}Qx\cdot Ky .$$

    Ties are shared by weight. The field is discontinuous in `x`: integrate it with a fixed step (`mf.layers`, or
    `flow(..., solver="euler", step=...)`), not with error control. On Gaussians it is not defined.

    **Arguments:** as for `Softmax`, without `tau`: `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`, biases.

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    P = mf.Hardmax(I, I, I).matrix(tokens)  # the first row is [0.5, 0, 0.5], a tie
    assert jnp.allclose(P[2], jnp.asarray([0.0, 0.0, 1.0]))
    ```
    """

    maps: Projections
    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    not_gaussian: ClassVar[str | None] = "looks for the farthest point of the support, and a Gaussian has none"

    def __init__(self, Q: Any, K: Any, V: Any, *, query_bias: Any = None, key_bias: Any = None, value_bias: Any = None):
        self.maps = Projections(Q, K, V, query_bias, key_bias, value_bias)

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"], view: View) -> Float[Array, "m v"]:
        # The maximum is at the same tokens in all units; their powers of two keep products within the range.
        queries, keys = self.features(x, mu.points)
        queries = queries / unit(queries, -1)
        keys = keys / unit(jnp.where(mu.visible[:, None], keys, 0))
        tokens = summed_tokens(mu, keys, values)
        return fold_tokens(ArgmaxAverage(), dot, queries, tokens, view.query_positions(mu))

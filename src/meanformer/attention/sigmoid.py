"""Sigmoid attention."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Points, Queries, Scalar, cast
from ..measures.cloud import PointCloud
from .kernel import AbstractAttention, Projections, prefix_divided, summed_tokens, temperature
from .lipschitz import Lipschitz, sizes
from .view import View


class Sigmoid(AbstractAttention):
    r"""Sigmoid attention (MATH b.4; Ramapuram et al. 2024),

    $$\Gamma_\mu(x)=\int Vy\,\sigma\big(Qx\cdot Ky/\tau+b\big)\,d\mu(y),\qquad\sigma(z)=\frac1{1+e^{-z}}.$$

    The weights do not sum to one, and Gaussians are not kept Gaussian.

    **Arguments:** as for `Softmax`: `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`, `tau`, biases; and `bias`, the
    number $b$. With `per_token=True` the sum over tokens is not divided by their number and $-\log n$ is added to the
    bias, the convention of networks (the radius bound then fails).

    ```python
    x, I = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    P = jax.nn.sigmoid(x @ x.T - 1.0) / 3
    assert jnp.allclose(mf.velocity(mf.Sigmoid(I, I, I, bias=-1.0), mf.PointCloud(x)), P @ x)
    ```
    """

    not_gaussian: ClassVar[str | None] = "weighs by a nonlinear function of the query (Stein's lemma, MATH e.2)"
    maps: Projections
    tau: Scalar
    r"""The temperature $\tau$, a number."""
    bias: Scalar
    """The number $b$ in the sigmoid."""
    per_token: bool = eqx.field(static=True)
    r"""Whether the sum over tokens is not divided by their number, with $b-\log n$ for $b$."""

    def __init__(
        self,
        Q: Any,
        K: Any,
        V: Any,
        tau: Any = 1.0,
        bias: Any = 0.0,
        *,
        per_token: bool = False,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
    ):
        self.maps = Projections(Q, K, V, query_bias, key_bias, value_bias)
        self.tau = temperature(tau, "tau", self.maps)
        self.bias = cast(checks.scalar(bias, "bias"), self.tau.dtype)
        self.per_token = checks.flag(per_token, "per_token")

    @property
    def averages(self) -> bool:
        r"""Whether $P_{ij}\ge0$ and $\sum_jP_{ij}\le1$: not with `per_token`."""
        return not self.per_token

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz | None:
        r"""From $0<\sigma<1$ and $0<\sigma'\le\frac14$."""
        if self.per_token:
            return None
        s = sizes(self.maps, 1 / self.tau, left, radius)
        return Lipschitz(s.values_in_x / 4, s.v + s.values_in_y / 4)

    def features(self, x: Queries, y: Points) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        return self.maps.queries(x) / self.tau, self.maps.keys(y)

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"], view: View) -> Float[Array, "m v"]:
        count = mu.visible.sum().astype(x.dtype) if self.per_token else jnp.ones((), x.dtype)
        # The bias enters as one more coordinate, paired with 1, so that the logit stays a dot product.
        queries, keys = self.features(x, mu.points)
        queries = jnp.pad(queries, ((0, 0), (0, 1)), constant_values=1)
        shift = jnp.broadcast_to(self.bias - jnp.log(count), (mu.n, 1))
        tokens = summed_tokens(mu, jnp.concatenate([keys, shift], axis=1), values)
        mixed = count * view.sums.summed(jax.nn.sigmoid, queries, tokens, view.query_positions(mu))
        # XLA gives a number also for the sigmoid of what is none, as a sum of products beyond the range may be.
        largest = jnp.abs(jnp.where(mu.visible[:, None], keys, 0)).max()
        known = jnp.isfinite(jnp.abs(queries).sum(axis=1) * largest)
        return prefix_divided(jnp.where(known[:, None], mixed, jnp.nan), mu, view)

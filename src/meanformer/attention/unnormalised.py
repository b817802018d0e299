"""Unnormalised exponential attention."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._scale import grown
from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from .kernel import AbstractTempered, averaged_tokens, prefix_divided
from .lipschitz import Lipschitz, sizes
from .view import View


class Unnormalised(AbstractTempered):
    r"""Unnormalised softmax attention, "USA" (MATH b.5; Geshkovski et al. 2024),

    $$\Gamma_\mu(x)=\int Vy\,e^{Qx\cdot Ky/\tau}\,d\mu(y).$$

    It leaves the floating-point range quickly; along a flow that is an outcome, not an error. Gaussians are not kept
    Gaussian.

    **Arguments:** as for `Softmax`: `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`, `tau`, biases.

    ```python
    x, I = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    P = jnp.exp(x @ x.T) / 3
    assert jnp.allclose(mf.velocity(mf.Unnormalised(I, I, I), mf.PointCloud(x)), P @ x)
    ```
    """

    averages: ClassVar[bool] = False
    not_gaussian: ClassVar[str | None] = "multiplies by the exponential of a quadratic function of the query"
    __init__ = AbstractTempered.__init__  # named here for type checkers

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"], view: View) -> Float[Array, "m v"]:
        queries, keys = self.features(x, mu.points)
        tokens = averaged_tokens(mu, keys, values)
        mean, log_total = view.sums.average(self.logit, queries, tokens, view.query_positions(mu))
        return prefix_divided(mean * jnp.exp(log_total)[:, None], mu, view)

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        s = sizes(self.maps, 1 / self.tau, left, radius)
        return Lipschitz(grown(s.values_in_x, s.logit), grown(s.v + s.values_in_y, s.logit))

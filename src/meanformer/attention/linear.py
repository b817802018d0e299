"""Linear attention."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from ..reduce.exact import Sum, dot, fold_tokens
from .closure import Closure
from .kernel import AbstractTempered, prefix_divided, summed_tokens
from .lipschitz import Lipschitz, sizes
from .view import View


def _identity(logits: Array) -> Array:
    return logits


class Linear(AbstractTempered):
    r"""Linear attention (MATH b.5),

    $$\Gamma_\mu(x)=\int Vy\,\frac{Qx\cdot Ky}\tau\,d\mu(y)=V\Big(\int yy^\top d\mu\Big)\frac{Ax}\tau .$$

    Linear in `x` and a function of the second moment only; it can blow up in finite time. Gaussians stay Gaussian.

    **Arguments:** as for `Softmax`: `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`, `tau`, biases.

    ```python
    x, I = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    moment = x.T @ x / 3
    assert jnp.allclose(mf.velocity(mf.Linear(I, I, I), mf.PointCloud(x)), x @ moment)
    ```
    """

    averages: ClassVar[bool] = False
    not_gaussian: ClassVar[str | None] = None
    moved_by_mean: ClassVar[bool] = True
    __init__ = AbstractTempered.__init__  # named here for type checkers

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"], view: View) -> Float[Array, "m v"]:
        queries, keys = self.maps.queries(x) / self.tau, self.maps.keys(mu.points)
        s = view.query_positions(mu)
        if s is None:  # the sum factorises: O(n) instead of O(n^2)
            return queries @ (keys.T @ (mu.weights[:, None] * values))
        mixed = fold_tokens(Sum(_identity), dot, queries, summed_tokens(mu, keys, values), s)
        return prefix_divided(mixed, mu, view)

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        s = sizes(self.maps, 1 / self.tau, left, radius)
        return Lipschitz(s.values_in_x, s.v_logit + s.values_in_y)

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$\Gamma(x)=\mathbb E[(Vy+b_v)(Ky+b_k)^\top](Qx+b_q)/\tau$, for any law with these moments."""
        mean = gaussian.mean
        spread = (self.V @ gaussian.factor) @ (self.K @ gaussian.factor).T
        moment = (spread + jnp.outer(self.maps.value(mean), self.maps.key(mean))) / self.tau
        return moment @ self.maps.query(mean), moment @ self.Q

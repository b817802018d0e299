"""Softmax attention."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from .closure import Closure
from .kernel import AbstractTempered, averaged_tokens
from .lipschitz import Lipschitz, sizes
from .view import View


class Softmax(AbstractTempered):
    r"""Softmax attention (MATH b.1; Castin et al. 2025),

    $$\Gamma_\mu(x)=\frac{\int Vy\,e^{Qx\cdot Ky/\tau}\,d\mu(y)}{\int e^{Qx\cdot Ky/\tau}\,d\mu(y)}.$$

    **Arguments:** `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`; the temperature `tau` divides the
    exponent (networks: $\sqrt k$); optional `query_bias`, `key_bias`, `value_bias`.

    ```python
    I = jnp.eye(2)
    mf.velocity(mf.Softmax(I, I, I), mf.PointCloud([[1.0, 0.0], [0.0, 1.0]]))
    ```
    """

    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    mixes_keys: ClassVar[bool] = True
    not_gaussian: ClassVar[str | None] = None
    __init__ = AbstractTempered.__init__  # named here for type checkers

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"] | None, view: View) -> Float[Array, "m v"]:
        queries, keys = self.features(x, mu.points)
        tokens = averaged_tokens(mu, keys, values)
        return view.sums.average(self.logit, queries, tokens, view.query_positions(mu))[0]

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        r"""$D_x\Gamma=V\operatorname{Cov}_{p_x}(y)A$, and the first variation $V(y-\bar y)e^{Ax\cdot y}/Z$ has the
        gradient $V[I+(y-\bar y)(Ax)^\top]e^{Ax\cdot y}/Z$.
        """
        s = sizes(self.maps, 1 / self.tau, left, radius)
        reach = 2 * s.in_y * radius
        return Lipschitz(s.v * s.a * radius**2, s.v * (1 + reach) * jnp.exp(reach))

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$\bar y(x)=m+\Sigma K^\top(Qx+b_q)/\tau$."""
        gain = gaussian.factor @ (self.K @ gaussian.factor).T / self.tau
        return self.maps.value(gaussian.mean + gain @ self.maps.query(gaussian.mean)), self.V @ gain @ self.Q

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        L = gaussian.factor
        return self.V @ (L @ ((self.K @ L).T @ (self.Q @ L))) / self.tau

"""Softmax attention."""

from typing import ClassVar

from jaxtyping import Array, Float

from .._scale import grown, times
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

    On a Gaussian it is affine, $\Gamma_\mu(x)=V(m+\Sigma Ax/\tau)$ with $A=K^\top Q$ (MATH e.2).

    **Arguments:**

    - `Q`, `K`: shape `(k, d)`.
    - `V`: shape `(d, d)`; as a head of `MultiHead` also `(v, d)`. Numbers are read as 1 x 1 matrices.
    - `tau`: the temperature, which divides the exponent; 1 by default, $\sqrt k$ in networks.
    - `query_bias`, `key_bias`, `value_bias`: optional, shapes `(k,)`, `(k,)` and `(v,)`; then $Qx+b_q$ stands for
      $Qx$, and so on.

    ```python
    x, I = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    P = jax.nn.softmax(x @ x.T / 0.5, axis=1)
    assert jnp.allclose(mf.velocity(mf.Softmax(I, I, I, tau=0.5), mf.PointCloud(x)), P @ x)
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
        return Lipschitz(s.v_quadratic, grown(s.v + 2 * times(s.v, s.reach), 2 * s.reach))

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$\bar y(x)=m+\Sigma K^\top(Qx+b_q)/\tau$."""
        gain = gaussian.factor @ (self.K @ gaussian.factor).T / self.tau
        return self.maps.value(gaussian.mean + gain @ self.maps.query(gaussian.mean)), self.V @ gain @ self.Q

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        L = gaussian.factor
        return self.V @ (L @ ((self.K @ L).T @ (self.Q @ L))) / self.tau

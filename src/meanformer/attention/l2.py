"""L2 attention."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._scale import grown, times, unit
from .._types import Points, Queries, Scalar
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from ..reduce.exact import minus_squared_distance
from ..reduce.sums import Logit
from .closure import Closure, ridge
from .kernel import AbstractTempered, averaged_tokens
from .lipschitz import Lipschitz, length, sizes, spectral
from .view import View


class L2(AbstractTempered):
    r"""L2 attention (MATH b.2; Kim, Papamakarios, Mnih 2021),

    $$\Gamma_\mu(x)=\frac{\int Vy\,e^{-|Qx-Ky|^2/\tau}\,d\mu(y)}{\int e^{-|Qx-Ky|^2/\tau}\,d\mu(y)}.$$

    It is softmax with $A\to2A$ and weights $w_je^{-|Ky_j|^2/\tau}$. On a Gaussian it is affine,
    $\Gamma_\mu(x)=V\big(m+H(\hat Qx-\hat Km)\big)$ with $H=2\Sigma\hat K^\top(I+2\hat K\Sigma\hat K^\top)^{-1}$,
    $\hat Q=Q/\sqrt\tau$, $\hat K=K/\sqrt\tau$ (MATH e.2).

    **Arguments:** as for `Softmax`: `Q`, `K` of shape `(k, d)`, `V` of shape `(d, d)`, biases. `tau` divides the whole
    exponent, which is not the same as dividing `Q` alone.

    ```python
    x, I = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    squares = jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)
    P = jax.nn.softmax(-squares, axis=1)
    assert jnp.allclose(mf.velocity(mf.L2(I, I, I), mf.PointCloud(x)), P @ x)
    ```
    """

    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    mixes_keys: ClassVar[bool] = True
    not_gaussian: ClassVar[str | None] = None
    saturates: ClassVar[bool] = True
    __init__ = AbstractTempered.__init__  # named here for type checkers

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"] | None, view: View) -> Float[Array, "m v"]:
        queries, keys = self.features(x, mu.points)
        tokens = averaged_tokens(mu, keys, values)
        return view.sums.average(self.logit, queries, tokens, view.query_positions(mu))[0]

    @property
    def logit(self) -> Logit:
        return minus_squared_distance

    def features(self, x: Queries, y: Points) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        unit = jnp.sqrt(self.tau)
        return self.maps.queries(x) / unit, self.maps.keys(y) / unit

    @property
    def bounded_speed(self) -> Any:
        r"""$\|G\|\le\|VK^+\|\|Q\|$ if $\ker K\subset\ker V$; else a blow-up is possible."""
        K, V = np.asarray(self.maps.K), np.asarray(self.maps.V)
        V = V / unit(V, (-2, -1))
        missed = V - V @ np.linalg.pinv(K, rcond=1e-12) @ K
        return np.linalg.norm(missed, axis=(-2, -1)) <= 1e-10 * np.linalg.norm(V, axis=(-2, -1))

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        r"""As softmax with $2A$; the exponent is at most $D^2$, $D=(q+\kappa)R+|b_q-b_k|$, with $y$-gradient at most
        $2\kappa D$; q and $\kappa$ are the norms of Q and K over $\sqrt\tau$.
        """
        s = sizes(self.maps, 1 / self.tau, left, radius)
        unit = jnp.sqrt(self.tau)
        key, query = self.maps.key_bias, self.maps.query_bias
        gap = query if key is None else -key if query is None else query - key
        norm = spectral(self.K) / unit
        D = times(spectral(self.Q) / unit + norm, radius) + length(gap, s.v.dtype) / unit
        return Lipschitz(2 * s.v_quadratic, grown(s.v + 4 * times(s.v, norm, D, radius), D**2))

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$\bar y(x)=m+H(\hat q(x)-\hat k(m))$ with $H=2\Sigma\hat K^\top(I+2\hat K\Sigma\hat K^\top)^{-1}$; a hat
        divides by $\sqrt\tau$.
        """
        unit = jnp.sqrt(self.tau)
        H = gaussian.factor @ ridge(self.K @ gaussian.factor / unit)
        gap = (self.maps.query(gaussian.mean) - self.maps.key(gaussian.mean)) / unit
        return self.maps.value(gaussian.mean + H @ gap), self.V @ H @ (self.Q / unit)

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        unit = jnp.sqrt(self.tau)
        L = gaussian.factor
        return self.V @ (L @ (ridge(self.K @ L / unit) @ (self.Q @ L / unit)))

"""L2 attention."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Queries
from ..measures.cloud import PointCloud
from ..reduce.exact import Average, fold_tokens, minus_squared_distance
from .base import View
from .kernel import AbstractTempered, averaged_tokens


class L2(AbstractTempered):
    r"""L2 attention (MATH b.2; Kim, Papamakarios, Mnih 2021),

    $$\Gamma_\mu(x)=\frac{\int Vy\,e^{-|Qx-Ky|^2/\tau}\,d\mu(y)}{\int e^{-|Qx-Ky|^2/\tau}\,d\mu(y)}.$$

    It is softmax with $A\to2A$ and weights $w_je^{-|Ky_j|^2/\tau}$. Arguments as for `Softmax`; `tau` divides the
    whole exponent, which is not the same as dividing `Q` alone.
    """

    averages: ClassVar[bool] = True
    __init__ = AbstractTempered.__init__  # named here for type checkers

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"], view: View) -> Float[Array, "m v"]:
        unit = jnp.sqrt(self.tau)
        tokens = averaged_tokens(mu, self.maps.keys(mu.points) / unit, values)
        queries = self.maps.queries(x) / unit
        mean, _ = fold_tokens(Average(), minus_squared_distance, queries, tokens, view.query_positions(mu))
        return mean

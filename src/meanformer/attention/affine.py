"""Token-wise affine maps."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Matrix, Queries, Scalar, Vector, cast, common_dtype
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from .base import AbstractLeaf
from .closure import Closure
from .lipschitz import Lipschitz, spectral
from .view import View, act


class Affine(AbstractLeaf):
    r"""The field $\Gamma_\mu(x)=Mx+b$: every token on its own. It keeps Gaussians.

    **Arguments:** `M` of shape `(d, d)`; `b` of shape `(d,)`, zero by default.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    field = mf.Affine(-jnp.eye(2), b=[1.0, 1.0])
    assert jnp.allclose(mf.velocity(field, tokens), 1.0 - tokens.points)
    ```
    """

    not_gaussian: ClassVar[str | None] = None
    M: Matrix
    """The matrix, shape `(d, d)`."""
    b: Vector | None
    """The offset, shape `(d,)`, or None."""

    def __init__(self, M: Any, b: Any = None):
        M = checks.matrix(M, "M")
        b = None if b is None else checks.vector(b, "b", M.shape[0], " = rows of M")
        self.M, self.b = cast((M, b), common_dtype(M, b))

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return x @ self.M.T if self.b is None else x @ self.M.T + self.b[None]

    @property
    def bounded_speed(self) -> bool:
        return True

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        return Lipschitz(spectral(act(left, self.M.T).T), jnp.zeros_like(radius))

    def closure(self, gaussian: Gaussian) -> Closure:
        u = self.M @ gaussian.mean
        return u if self.b is None else u + self.b, self.M

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return ()

    @property
    def dimensions(self) -> tuple[int, ...]:
        return self.M.shape

    @property
    def linear_part(self) -> tuple[Matrix, Vector | None]:
        return self.M, self.b

    @property
    def bounded(self) -> bool:
        return True

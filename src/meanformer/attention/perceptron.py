"""The token-wise perceptron of the original transformer block."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Matrix, Queries, Scalar, Vector, cast, common_dtype
from ..measures.cloud import PointCloud
from .base import AbstractLeaf
from .view import View


class Perceptron(AbstractLeaf):
    r"""The field $\Gamma_\mu(x)=W_2\,\phi(W_1x+b_1)+b_2$ (Vaswani et al. 2017): every token on its own.

    **Arguments:** `W1` of shape `(h, d)`, `W2` of shape `(d, h)`, optional `b1` `(h,)` and `b2` `(d,)`, and the
    `activation` $\phi$, `jax.nn.relu` by default.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    field = mf.Perceptron(W1=[[1.0, -1.0]], W2=[[1.0], [0.0]])  # x -> (max(x_1 - x_2, 0), 0)
    assert jnp.allclose(mf.velocity(field, tokens)[:, 0], jnp.asarray([1.0, 0.0, 0.0]))
    ```
    """

    W1: Matrix
    """The first matrix, shape `(h, d)`."""
    W2: Matrix
    """The second matrix, shape `(d, h)`."""
    b1: Vector | None
    """The first bias, shape `(h,)`, or None."""
    b2: Vector | None
    """The second bias, shape `(d,)`, or None."""
    activation: Callable[[Array], Array] = eqx.field(static=True)
    """The function between the two, of each entry."""

    def __init__(
        self, W1: Any, W2: Any, b1: Any = None, b2: Any = None, activation: Callable[[Array], Array] = jax.nn.relu
    ):
        W1, W2 = checks.matrix(W1, "W1"), checks.matrix(W2, "W2")
        if W2.shape[1] != W1.shape[0]:
            checks.refuse(
                "W2 must take what W1 gives",
                got=f"W1 of shape {W1.shape}, W2 of shape {W2.shape}",
                expected="W1 (h, d) and W2 (d, h)",
                remedy="transpose the matrices of libraries that multiply from the right",
            )
        b1 = None if b1 is None else checks.vector(b1, "b1", W1.shape[0], " = rows of W1")
        b2 = None if b2 is None else checks.vector(b2, "b2", W2.shape[0], " = rows of W2")
        if not callable(activation) or any(eqx.is_array(leaf) for leaf in jax.tree.leaves(activation)):
            checks.refuse(
                "activation must be a function",
                got=f"activation = {activation!r}",
                expected="a function of arrays, without arrays of its own",
                remedy="activation=jax.nn.relu, the default, or jax.nn.gelu",
            )
        arrays = (W1, W2, b1, b2)
        self.W1, self.W2, self.b1, self.b2 = cast(arrays, common_dtype(arrays))
        self.activation = activation

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        hidden = x @ self.W1.T if self.b1 is None else x @ self.W1.T + self.b1[None]
        out = self.activation(hidden) @ self.W2.T
        return out if self.b2 is None else out + self.b2[None]

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return ()

    @property
    def dimensions(self) -> tuple[int, int]:
        return self.W2.shape[0], self.W1.shape[1]

    @property
    def linear_part(self) -> None:
        return None

    @property
    def bounded(self) -> bool:
        return False

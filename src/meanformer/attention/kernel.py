r"""What the attention kinds share: projections to queries, keys and values, and the mixing of values."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .. import _checks as checks
from .._programs.call import program
from .._types import Matrix, Points, Queries, Scalar, Vector, cast, common_dtype
from .._warm import Module
from ..measures.cloud import PointCloud
from ..reduce.exact import Tokens, dot, log_weights
from ..reduce.grid import LARGEST_DIMENSION
from ..reduce.sums import Logit
from .base import AbstractLeaf
from .view import View

# Values are computed from keys if that makes errors larger by no more than this.
MOST_AMPLIFIED = 30.0


class Projections(Module):
    r"""The affine maps of one head: query $q=Qx+b_q$, key $k=Ky+b_k$, value $v=Vy+b_v$.

    **Arguments:** `Q` and `K` of shape `(k, d)`, `V` of shape `(v, d)` (numbers are read as 1 x 1 matrices);
    `query_bias` and `key_bias` of shape `(k,)`, `value_bias` of shape `(v,)`, or None. Points are rows.

    ```python
    maps = mf.Projections([[1.0, 2.0]], [[0.0, 1.0]], jnp.eye(2), [3.0], None, None)
    maps.queries(jnp.ones((3, 2)))  # [[6], [6], [6]]
    assert maps.key(jnp.asarray([5.0, 7.0]))[0] == 7.0
    ```
    """

    Q: Matrix
    """The query matrix, shape `(k, d)`."""
    K: Matrix
    """The key matrix, shape `(k, d)`."""
    V: Matrix
    """The value matrix, shape `(v, d)`."""
    query_bias: Vector | None
    """The bias of queries, shape `(k,)`, or None."""
    key_bias: Vector | None
    """The bias of keys, shape `(k,)`, or None."""
    value_bias: Vector | None
    """The bias of values, shape `(v,)`, or None."""

    def __init__(self, Q: Any, K: Any, V: Any, query_bias: Any = None, key_bias: Any = None, value_bias: Any = None):
        Q, K, V = (checks.matrix(M, name) for M, name in ((Q, "Q"), (K, "K"), (V, "V")))
        if Q.shape != K.shape:
            checks.refuse(
                "Q and K must have one shape",
                got=f"Q of shape {Q.shape}, K of shape {K.shape}",
                expected="both (k, d)",
                remedy="give both the same rows k, where queries Qx meet keys Ky, and columns d",
            )
        if V.shape[1] != Q.shape[1]:
            checks.refuse(
                "V must act on the same tokens as Q and K",
                got=f"V of shape {V.shape}, Q of shape {Q.shape}",
                expected=f"V of shape (v, {Q.shape[1]})",
                remedy="give Q, K and V the same number of columns d",
            )
        biases = {"query_bias": (query_bias, Q), "key_bias": (key_bias, K), "value_bias": (value_bias, V)}
        vectors = [
            None if b is None else checks.vector(b, name, M.shape[0], f" = rows of {name[0].upper()}")
            for name, (b, M) in biases.items()
        ]
        arrays = (Q, K, V, *vectors)
        self.Q, self.K, self.V, self.query_bias, self.key_bias, self.value_bias = cast(arrays, common_dtype(arrays))

    def queries(self, x: Queries) -> Float[Array, "m k"]:
        """$Qx+b_q$ for each row, shape `(m, d)` to `(m, k)`."""
        return _affine(self.Q, self.query_bias, x)

    def keys(self, y: Queries) -> Float[Array, "m k"]:
        """$Ky+b_k$ for each row, shape `(m, d)` to `(m, k)`."""
        return _affine(self.K, self.key_bias, y)

    def values(self, y: Queries) -> Float[Array, "m v"]:
        """$Vy+b_v$ for each row, shape `(m, d)` to `(m, v)`."""
        return _affine(self.V, self.value_bias, y)

    def query(self, x: Float[Array, " d"]) -> Float[Array, " k"]:
        """$Qx+b_q$ for one point, shape `(d,)` to `(k,)`."""
        return self.queries(x[None])[0]

    def key(self, y: Float[Array, " d"]) -> Float[Array, " k"]:
        """$Ky+b_k$ for one point, shape `(d,)` to `(k,)`."""
        return self.keys(y[None])[0]

    def value(self, y: Float[Array, " d"]) -> Float[Array, " v"]:
        """$Vy+b_v$ for one point, shape `(d,)` to `(v,)`."""
        return self.values(y[None])[0]


def _affine(matrix: Matrix, bias: Vector | None, x: Queries) -> Array:
    return x @ matrix.T if bias is None else x @ matrix.T + bias[None]


class AbstractAttention(AbstractLeaf):
    r"""An attention kind, with a matrix $P$ that is made from queries and keys:

    $$\Gamma_\mu(x_i)=\sum_{j=1}^nP_{ij}\,(Vy_j+b_v).$$

    A new kind gives its projections `maps`, says whether its rows are sub-probabilities (`averages`), and mixes values.
    To be of use inside `Causal`, `mix` must also read `view.query_positions(mu)`: those of the queries, or None.

    ```python
    from typing import ClassVar


    class Cosine(mf.AbstractAttention):  # P_ij = w_j cos(q_i, k_j)
        maps: mf.Projections
        averages: ClassVar[bool] = False

        def mix(self, mu, x, values, view):
            q, k = (a / jnp.linalg.norm(a, axis=1, keepdims=True) for a in self.features(x, mu.points))
            P = q @ k.T * mu.weights[None]
            return jnp.where(view.seen(mu, x), P, 0.0) @ values  # all tokens, or those that a mask leaves


    field = Cosine(mf.Projections(jnp.eye(2), jnp.eye(2), jnp.eye(2)))
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    assert jnp.allclose(3 * field.matrix(tokens)[0], jnp.asarray([1.0, 0.0, 1.0]))
    ```
    """

    maps: eqx.AbstractVar[Projections]
    """The projections to queries, keys and values."""
    averages: eqx.AbstractVar[bool]
    r"""Whether $P_{ij}\ge0$ and $\sum_jP_{ij}\le1$."""
    normalised: ClassVar[bool] = False
    r"""Whether $\sum_jP_{ij}=1$, so that a mask renormalises the rows."""

    mixes_keys: ClassVar[bool] = False
    r"""Whether the kind averages keys in place of values, if asked to (an average, so with $\sum_jP_{ij}=1$)."""

    @abc.abstractmethod
    def mix(self, mu: PointCloud, x: Queries, values: Any, view: View) -> Float[Array, "m v"]:
        r"""$\sum_jP_{ij}v_j$, shape `(m, v)`, for the rows $v_j$ of `values`, shape `(n, v)`, and queries at the points
        `x`, shape `(m, d)`; with `mixes_keys` None stands for the keys.
        """

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        values, finish = self.mixing(mu, view)
        return finish(self.mix(mu, x, values, view))

    def mixing(self, mu: PointCloud, view: View) -> tuple[Any, Callable[[Array], Array]]:
        """The values that are mixed, and what is made of them then: nothing, or values of mixed keys."""
        # Only there is it cheaper, and only there did the planner look whether it is right.
        if self.can_mix_keys and view.sums.mixes_keys and not view.causal:
            return None, self._of_mixed_keys
        return self.maps.values(mu.points), lambda mixed: mixed

    @property
    def can_mix_keys(self) -> bool:
        """Whether keys may be averaged in place of the values."""
        return self.mixes_keys and self.K.shape[0] == LARGEST_DIMENSION <= self.K.shape[1]

    def key_map(self) -> tuple[Float[Array, "k d"], Float[Array, " k"]]:
        """The keys of `features` as an affine function of the tokens: matrix and offset."""
        points = jnp.concatenate([jnp.zeros_like(self.K[:1]), jnp.eye(self.K.shape[1], dtype=self.K.dtype)])
        keys = self.features(points, points)[1]
        return (keys[1:] - keys[:1]).T, keys[0]

    def values_of_keys(self) -> tuple[Float[Array, "v k"], Bool[Array, ""]]:
        """M with V = MF, the keys being Fy + offset; and whether there is one, and it does not amplify errors much."""
        F, _ = self.key_map()
        M = self.V @ jnp.linalg.solve(F @ F.T, F).T
        size = jnp.linalg.norm(self.V)
        fine = jnp.linalg.norm(self.V - M @ F) <= 1e-10 * size
        return M, fine & (jnp.linalg.norm(M) * jnp.linalg.norm(F) <= MOST_AMPLIFIED * size)

    def _of_mixed_keys(self, keys: Float[Array, "m k"]) -> Float[Array, "m v"]:
        r"""$V\bar y+b=M(\bar k-k_0)+b$ with $M=VF^+$, for keys $k=Fy+k_0$: if $V=MF$, the mean key tells all."""
        M, fine = self.values_of_keys()
        values = (keys - self.key_map()[1][None]) @ M.T
        values = values if self.maps.value_bias is None else values + self.maps.value_bias[None]
        return jnp.where(fine, values, jnp.nan)

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return (_matrix(self, mu, None if x is mu.points else x, view),)

    @property
    def logit(self) -> Logit:
        """How a query and a key of `features` make a logit."""
        return dot

    def features(self, x: Queries, y: Points) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        """The queries of the points `x`, shape `(m, k)`, and the keys of the points `y`, shape `(n, k)`, temperature
        included.
        """
        return self.maps.queries(x), self.maps.keys(y)

    @property
    def dimensions(self) -> tuple[int, ...]:
        return self.maps.V.shape

    @property
    def linear_part(self) -> tuple[Matrix, Vector | None]:
        return self.maps.V, self.maps.value_bias

    @property
    def bounded(self) -> bool:
        return self.averages

    @property
    def Q(self) -> Matrix:
        """The query matrix, shape `(k, d)`."""
        return self.maps.Q

    @property
    def K(self) -> Matrix:
        """The key matrix, shape `(k, d)`."""
        return self.maps.K

    @property
    def V(self) -> Matrix:
        """The value matrix, shape `(v, d)`."""
        return self.maps.V

    @property
    def A(self) -> Float[Array, "d d"]:
        r"""$A=K^\top Q$, shape `(d, d)`, acting on the query: $Qx\cdot Ky=(Ax)\cdot y$ (MATH a)."""
        return self.K.T @ self.Q


def temperature(value: Any, name: str, maps: Projections) -> Scalar:
    """A positive temperature in the dtype of the matrices."""
    remedy = f"{name} divides the exponent; 1 is the default, networks use sqrt(k); mf.Hardmax is the limit 0"
    return cast(checks.positive(value, name, remedy), maps.Q.dtype)


class AbstractTempered(AbstractAttention):
    """The constructor of the kinds that have a temperature `tau` and nothing else: their final classes add no field."""

    maps: Projections
    tau: Scalar
    r"""The temperature $\tau$, a number."""

    def __init__(
        self,
        Q: Any,
        K: Any,
        V: Any,
        tau: Any = 1.0,
        *,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
    ):
        self.maps = Projections(Q, K, V, query_bias, key_bias, value_bias)
        self.tau = temperature(tau, "tau", self.maps)

    def features(self, x: Queries, y: Points) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        return self.maps.queries(x) / self.tau, self.maps.keys(y)


def mass_seen(mu: PointCloud, s: Float[Array, " m"]) -> Float[Array, " m"]:
    r"""$\theta([0,s_i])$: the mass of the tokens at positions $r\le s_i$."""
    assert mu.positions is not None
    order = jnp.argsort(mu.positions)
    cumulative = jnp.concatenate([jnp.zeros(1, mu.weights.dtype), jnp.cumsum(mu.weights[order])])
    return cumulative[jnp.searchsorted(mu.positions[order], s, side="right")]


def prefix_divided(mixed: Float[Array, "m v"], mu: PointCloud, view: View) -> Float[Array, "m v"]:
    r"""`mixed` divided by the mass seen, if the view asks for it (`Causal(..., prefix=True)`)."""
    s = view.query_positions(mu)
    if s is None or not view.prefix:
        return mixed
    mass = mass_seen(mu, s)
    return mixed / jnp.where(mass > 0, mass, 1)[:, None]


def averaged_tokens(mu: PointCloud, keys: Float[Array, "n k"], values: Float[Array, "n v"] | None) -> Tokens:
    """The tokens of `mu` for an `Average`: log-weights; without values the keys are averaged."""
    return Tokens(keys, log_weights(mu.weights), keys if values is None else values, mu.positions)


def summed_tokens(mu: PointCloud, keys: Float[Array, "n k"], values: Float[Array, "n v"]) -> Tokens:
    """The tokens of `mu` for a plain `Sum`: weights."""
    return Tokens(keys, mu.weights, values, mu.positions)


@program(inline=True)
def _matrix(kind: AbstractAttention, mu: PointCloud, x: Queries | None, view: View) -> Float[Array, "m n"]:
    # Queries that are the tokens themselves are so by identity, which arguments lose.
    return kind.mix(mu, mu.points if x is None else x, jnp.eye(mu.n, dtype=mu.points.dtype), view)

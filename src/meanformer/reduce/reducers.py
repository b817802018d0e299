r"""What is summed over the tokens: logits, weights and values, and the reducers that fold them block by block.

A block of logits has the tokens along its rows and the queries along its columns. Then maxima run down the columns,
and numerators are a short and wide matrix times the block: both are several times faster than the transposed forms.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._warm import Module

# Up to this key dimension logits are formed coordinate by coordinate, so that XLA fuses them with what follows.
SMALL_KEY_DIMENSION = 4
# The same for distances, which have no product of matrices to turn to.
SMALL_DISTANCE_DIMENSION = 16


def dot(q: Float[Array, "m k"], k: Float[Array, "n k"]) -> Float[Array, "m n"]:
    r"""Logits $q_i\cdot k_j$."""
    return q @ k.T if q.shape[1] > SMALL_KEY_DIMENSION else _dot_by_coordinates(q, k)


@jax.custom_jvp
def _dot_by_coordinates(q: Float[Array, "m k"], k: Float[Array, "n k"]) -> Float[Array, "m n"]:
    return sum(q[:, None, i] * k[None, :, i] for i in range(q.shape[1]))  # pyright: ignore[reportReturnType]


@_dot_by_coordinates.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """By products of matrices: transposed, they are such products again, and not slow sums along the rows."""
    (q, k), (q_dot, k_dot) = primals, tangents
    return _dot_by_coordinates(q, k), q_dot @ k.T + q @ k_dot.T


def minus_squared_distance(q: Float[Array, "m k"], k: Float[Array, "n k"]) -> Float[Array, "m n"]:
    r"""Logits $-|q_i-k_j|^2$, by differences: the expanded form cancels catastrophically for large norms."""
    if q.shape[1] > SMALL_DISTANCE_DIMENSION:
        return -jnp.sum((q.T[:, :, None] - k.T[:, None, :]) ** 2, axis=0)
    return -sum((q[:, None, i] - k[None, :, i]) ** 2 for i in range(q.shape[1]))  # pyright: ignore


def log_weights(weights: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""$\log w_j$, and minus infinity where $w_j=0$, without a derivative of $\log0$."""
    some = weights > 0
    return jnp.where(some, jnp.log(jnp.where(some, weights, 1)), -jnp.inf)


class Tokens(Module):
    """The side of the sum that is folded: keys, weights (log-weights for `Average`), values, positions; perhaps in
    blocks along a leading axis.
    """

    keys: Float[Array, "*blocks n k"]
    weights: Float[Array, "*blocks n"]
    values: Float[Array, "*blocks n v"]
    positions: Float[Array, "*blocks n"] | None = None


class AbstractReducer(Module):
    """What is folded over the tokens, for a block of queries and a block of tokens at a time."""

    empty_weight: eqx.AbstractVar[float]
    """The weight of a token that does not count (padding)."""

    @abc.abstractmethod
    def factors(self, tokens: Tokens) -> Float[Array, "n w"]:
        """What the weights of the pairs are multiplied by: made once, it replaces the `values` of tokens in `step`."""

    @abc.abstractmethod
    def start(self, m: int, w: int, dtype: Any) -> Any:
        """The carry before any token, for m queries and w columns of factors."""

    @abc.abstractmethod
    def step(self, carry: Any, logits: Float[Array, "n m"], seen: Bool[Array, "n m"] | None, tokens: Tokens) -> Any:
        """The carry after one more block of tokens."""

    @abc.abstractmethod
    def finish(self, carry: Any) -> Any:
        """The result, from the carry after all tokens."""


def finite_or_zero(x: Array) -> Array:
    """`x` where it is finite, else 0."""
    return jnp.where(jnp.isfinite(x), x, 0)


def with_ones(values: Float[Array, "n v"]) -> Float[Array, "n w"]:
    """One more column, of ones: the product that gives the numerators then gives the denominator too."""
    return jnp.concatenate([values, jnp.ones_like(values, shape=(values.shape[0], 1))], axis=1)


def average(sums: Float[Array, "m w"], top: Float[Array, " m"]) -> tuple[Float[Array, "m v"], Float[Array, " m"]]:
    r"""Numerators over the denominator (the last column), and the log of the denominator, which is `top` too small.

    Where the denominator is 0 nothing was seen: mean 0, and minus infinity.
    """
    total = sums[:, -1]
    some = total > 0
    safe = jnp.where(some, total, 1)
    return sums[:, :-1] / safe[:, None], jnp.where(some, top + jnp.log(safe), -jnp.inf)


class Average(AbstractReducer):
    r"""Normalised sum: returns the mean, shape `(m, v)`, and $\log\sum_je^{c_{ij}+\ell_j}$, shape `(m,)`.

    The running maximum is a shift that cancels in the result, so it carries no derivative. A query that sees no
    token gets mean 0 and log-sum minus infinity. `exp` is only asked for exponentials of negative numbers.
    """

    exp: Callable[[Array], Array] = eqx.field(static=True, default=jnp.exp)
    empty_weight: ClassVar[float] = float("-inf")

    def factors(self, tokens: Tokens) -> Array:
        return with_ones(tokens.values)

    def start(self, m: int, w: int, dtype: Any) -> Any:
        return jnp.full(m, -jnp.inf, dtype), jnp.zeros((w, m), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        top, sums = carry
        logits = logits + tokens.weights[:, None]
        if seen is not None:
            logits = jnp.where(seen, logits, -jnp.inf)
        new_top = jax.lax.stop_gradient(jnp.maximum(top, logits.max(axis=0)))
        shift = finite_or_zero(new_top)
        kept = jnp.exp(top - shift)
        p = self.exp(logits - shift[None, :])
        return new_top, kept[None, :] * sums + tokens.values.T @ p

    def finish(self, carry: Any) -> tuple[Array, Array]:
        top, sums = carry
        return average(sums.T, finite_or_zero(top))


class Sum(AbstractReducer):
    r"""Plain sum $\sum_jw_j\varphi(c_{ij})v_j$, shape `(m, v)`."""

    function: Callable[[Array], Array] = eqx.field(static=True)
    empty_weight: ClassVar[float] = 0.0

    def factors(self, tokens: Tokens) -> Array:
        return tokens.weights[:, None] * tokens.values

    def start(self, m: int, w: int, dtype: Any) -> Any:
        return jnp.zeros((w, m), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        p = self.function(logits)
        if seen is not None:
            p = jnp.where(seen, p, 0)
        return carry + tokens.values.T @ p

    def finish(self, carry: Any) -> Array:
        return carry.T


class ArgmaxAverage(AbstractReducer):
    """Weighted average of the values over the tokens of largest logit; ties are shared by weight."""

    empty_weight: ClassVar[float] = 0.0

    def factors(self, tokens: Tokens) -> Array:
        return with_ones(tokens.values)

    def start(self, m: int, w: int, dtype: Any) -> Any:
        return jnp.full(m, -jnp.inf, dtype), jnp.zeros((w, m), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        top, sums = carry
        counts = tokens.weights[:, None] > 0
        logits = jnp.where(counts if seen is None else counts & seen, logits, -jnp.inf)
        new_top = jnp.maximum(top, logits.max(axis=0))
        kept = jnp.where(top == new_top, 1, 0).astype(logits.dtype)
        p = jnp.where(logits == new_top[None, :], tokens.weights[:, None], 0)
        # While nothing has been seen, everything equals the maximum -inf; weights of unseen tokens stay out.
        p = jnp.where(jnp.isfinite(new_top)[None, :], p, 0)
        return new_top, kept[None, :] * sums + tokens.values.T @ p

    def finish(self, carry: Any) -> Array:
        top, sums = carry
        return average(sums.T, finite_or_zero(top))[0]

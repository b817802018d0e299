r"""Exact sums over tokens, blocked: O(n) memory, no n x n array, any key dimension.

Every attention is a fold over the tokens j of a logit $c(q_i,k_j)$, a weight and a value. The fold is
written once here (`fold_tokens`); what is folded is a *reducer* with `start`, `step` and `finish`:

- `Average`: $\sum_j e^{c_{ij}+\ell_j}v_j\big/\sum_je^{c_{ij}+\ell_j}$ and the log of the denominator;
- `Sum`: $\sum_j w_j\varphi(c_{ij})v_j$;
- `ArgmaxAverage`: the weighted average over $\arg\max_j c_{ij}$.

A mask is part of the fold: with positions, query i folds only the tokens with $r_j\le s_i$. A token that is
not seen enters no maximum and no sum, so later tokens never change earlier ones, to the bit.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# One block of logits is QUERY_BLOCK x KEY_BLOCK: 4 MB in float64, which stays in cache.
QUERY_BLOCK = 512
KEY_BLOCK = 1024
# Up to this key dimension logits are formed coordinate by coordinate, so that XLA fuses them with what follows.
SMALL_KEY_DIMENSION = 8


def dot(q: Float[Array, "m k"], k: Float[Array, "n k"]) -> Float[Array, "m n"]:
    r"""Logits $q_i\cdot k_j$."""
    if q.shape[1] > SMALL_KEY_DIMENSION:
        return q @ k.T
    return sum(q[:, None, i] * k[None, :, i] for i in range(q.shape[1]))  # pyright: ignore[reportReturnType]


def minus_squared_distance(q: Float[Array, "m k"], k: Float[Array, "n k"]) -> Float[Array, "m n"]:
    r"""Logits $-|q_i-k_j|^2$, by differences: the expanded form cancels catastrophically for large norms."""
    if q.shape[1] > SMALL_KEY_DIMENSION:
        return -jnp.sum((q[:, None, :] - k[None, :, :]) ** 2, axis=-1)
    return -sum((q[:, None, i] - k[None, :, i]) ** 2 for i in range(q.shape[1]))  # pyright: ignore


def log_weights(weights: Float[Array, " n"]) -> Float[Array, " n"]:
    r"""$\log w_j$, and minus infinity where $w_j=0$, without a derivative of $\log0$."""
    some = weights > 0
    return jnp.where(some, jnp.log(jnp.where(some, weights, 1)), -jnp.inf)


class Tokens(eqx.Module):
    """The side of the sum that is folded: keys, weights (log-weights for `Average`), values, positions; perhaps in
    blocks along a leading axis.
    """

    keys: Float[Array, "*blocks n k"]
    weights: Float[Array, "*blocks n"]
    values: Float[Array, "*blocks n v"]
    positions: Float[Array, "*blocks n"] | None = None


class AbstractReducer(eqx.Module):
    """What is folded over the tokens, for a block of queries and a block of tokens at a time."""

    empty_weight: eqx.AbstractVar[float]
    """The weight of a token that does not count (padding)."""

    @abc.abstractmethod
    def start(self, m: int, v: int, dtype: Any) -> Any:
        """The carry before any token."""

    @abc.abstractmethod
    def step(self, carry: Any, logits: Float[Array, "m n"], seen: Bool[Array, "m n"] | None, tokens: Tokens) -> Any:
        """The carry after one more block of tokens."""

    @abc.abstractmethod
    def finish(self, carry: Any) -> Any:
        """The result, from the carry after all tokens."""


def _finite_or_zero(x: Array) -> Array:
    return jnp.where(jnp.isfinite(x), x, 0)


class Average(AbstractReducer):
    r"""Normalised sum: returns the mean, shape `(m, v)`, and $\log\sum_je^{c_{ij}+\ell_j}$, shape `(m,)`.

    The running maximum is a shift that cancels in the result, so it carries no derivative. A query that sees no
    token gets mean 0 and log-sum minus infinity.
    """

    empty_weight: ClassVar[float] = float("-inf")

    def start(self, m: int, v: int, dtype: Any) -> Any:
        return jnp.full(m, -jnp.inf, dtype), jnp.zeros(m, dtype), jnp.zeros((m, v), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        top, total, numerator = carry
        logits = logits + tokens.weights[None, :]
        if seen is not None:
            logits = jnp.where(seen, logits, -jnp.inf)
        new_top = jax.lax.stop_gradient(jnp.maximum(top, logits.max(axis=1)))
        shift = _finite_or_zero(new_top)
        kept = jnp.exp(top - shift)
        p = jnp.exp(logits - shift[:, None])
        return new_top, kept * total + p.sum(axis=1), kept[:, None] * numerator + p @ tokens.values

    def finish(self, carry: Any) -> tuple[Array, Array]:
        top, total, numerator = carry
        some = total > 0
        safe = jnp.where(some, total, 1)
        return numerator / safe[:, None], jnp.where(some, _finite_or_zero(top) + jnp.log(safe), -jnp.inf)


class Sum(AbstractReducer):
    r"""Plain sum $\sum_jw_j\varphi(c_{ij})v_j$, shape `(m, v)`."""

    function: Callable[[Array], Array] = eqx.field(static=True)
    empty_weight: ClassVar[float] = 0.0

    def start(self, m: int, v: int, dtype: Any) -> Any:
        return jnp.zeros((m, v), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        p = tokens.weights[None, :] * self.function(logits)
        if seen is not None:
            p = jnp.where(seen, p, 0)
        return carry + p @ tokens.values

    def finish(self, carry: Any) -> Array:
        return carry


class ArgmaxAverage(AbstractReducer):
    """Weighted average of the values over the tokens of largest logit; ties are shared by weight."""

    empty_weight: ClassVar[float] = 0.0

    def start(self, m: int, v: int, dtype: Any) -> Any:
        return jnp.full(m, -jnp.inf, dtype), jnp.zeros(m, dtype), jnp.zeros((m, v), dtype)

    def step(self, carry: Any, logits: Array, seen: Array | None, tokens: Tokens) -> Any:
        top, total, numerator = carry
        counts = tokens.weights[None, :] > 0
        logits = jnp.where(counts if seen is None else counts & seen, logits, -jnp.inf)
        new_top = jnp.maximum(top, logits.max(axis=1))
        kept = jnp.where(top == new_top, 1, 0).astype(logits.dtype)
        p = jnp.where(logits == new_top[:, None], tokens.weights[None, :], 0)
        # While nothing has been seen, everything equals the maximum -inf; weights of unseen tokens stay out.
        p = jnp.where(jnp.isfinite(new_top)[:, None], p, 0)
        return new_top, kept * total + p.sum(axis=1), kept[:, None] * numerator + p @ tokens.values

    def finish(self, carry: Any) -> Array:
        _, total, numerator = carry
        return numerator / jnp.where(total > 0, total, 1)[:, None]


def _blocks(array: Array, size: int, fill: float | Array = 0.0) -> Array:
    """`array` cut into blocks of `size` rows, the last one padded with `fill`."""
    short = -array.shape[0] % size
    padding = jnp.full((short, *array.shape[1:]), fill, array.dtype)
    count = -(-array.shape[0] // size)
    return jnp.concatenate([array, padding]).reshape(count, size, *array.shape[1:])


def fold_tokens(
    reducer: AbstractReducer,
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    tokens: Tokens,
    positions: Float[Array, " m"] | None = None,
) -> Any:
    """Fold `reducer` over all `tokens` (those with position <= `positions[i]`, if given) for each query.

    Memory is O(m + n) times the width of the values, in both directions of differentiation: blocks are recomputed,
    not stored.
    """
    m, n = queries.shape[0], tokens.keys.shape[0]

    def step(carry: Any, q: Array, s: Array | None, block: Tokens) -> Any:
        seen = None if s is None else block.positions[None, :] <= s[:, None]  # pyright: ignore
        return reducer.step(carry, logit(q, block.keys), seen, block)

    def fold(q: Array, s: Array | None) -> Any:
        start = reducer.start(q.shape[0], tokens.values.shape[1], queries.dtype)
        if n <= KEY_BLOCK:
            return reducer.finish(step(start, q, s, tokens))
        body = jax.checkpoint(lambda carry, block: (step(carry, q, s, block), None))
        return reducer.finish(jax.lax.scan(body, start, blocks)[0])

    if n > KEY_BLOCK:
        blocks = Tokens(
            _blocks(tokens.keys, KEY_BLOCK),
            _blocks(tokens.weights, KEY_BLOCK, reducer.empty_weight),
            _blocks(tokens.values, KEY_BLOCK),
            None if tokens.positions is None else _blocks(tokens.positions, KEY_BLOCK),
        )
    if m <= QUERY_BLOCK:
        return fold(queries, positions)
    s_blocks = None if positions is None else _blocks(positions, QUERY_BLOCK)
    folded = jax.lax.map(jax.checkpoint(lambda qs: fold(*qs)), (_blocks(queries, QUERY_BLOCK), s_blocks))
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])[:m], folded)

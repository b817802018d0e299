r"""Exact sums over tokens, blocked: O(n) memory, no n x n array, any key dimension.

Every attention is a fold over the tokens j of a logit $c(q_i,k_j)$, a weight and a value. The fold is
written once here (`fold_tokens`); what is folded is a *reducer* with `start`, `step` and `finish`:

- `Average`: $\sum_j e^{c_{ij}+\ell_j}v_j\big/\sum_je^{c_{ij}+\ell_j}$ and the log of the denominator;
- `Sum`: $\sum_j w_j\varphi(c_{ij})v_j$;
- `ArgmaxAverage`: the weighted average over $\arg\max_j c_{ij}$.

A mask is part of the fold: with positions, query i folds only the tokens with $r_j\le s_i$. A token that is
not seen enters no maximum and no sum, so later tokens never change earlier ones, to the bit. Blocks of which no query
sees a token are skipped.

An average needs a shift of its exponents. A running maximum is one, for any logits; where a bound of the logits shows
that nothing of weight can underflow, the bound is one too, and saves a pass over all pairs (`bounds.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .. import _checks as checks
from .bounds import BOUNDS, average_within, everywhere, widest_spread
from .exponential import exp_of_negative
from .reducers import (
    AbstractReducer,
    ArgmaxAverage,
    Average,
    Sum,
    Tokens,
    dot,
    log_weights,
    minus_squared_distance,
)

__all__ = [
    "KEY_BLOCK",
    "QUERY_BLOCK",
    "AbstractReducer",
    "ArgmaxAverage",
    "Average",
    "Sum",
    "Tokens",
    "block_counts",
    "dot",
    "fold_tokens",
    "log_weights",
    "minus_squared_distance",
]

# One block of logits is QUERY_BLOCK x KEY_BLOCK: 4 MB in float64, which stays in cache.
QUERY_BLOCK = 512
KEY_BLOCK = 1024
# So many pairs take less time than is worth a second form of their sum.
FEW_PAIRS = 2**14


def block_counts(m: int, n: int) -> tuple[int, int]:
    """The numbers of blocks of `QUERY_BLOCK` queries and of `KEY_BLOCK` tokens, for m queries and n tokens."""
    return -(-m // QUERY_BLOCK), -(-n // KEY_BLOCK)


def _weighted(reducer: AbstractReducer, tokens: Tokens) -> Tokens:
    return eqx.tree_at(lambda t: t.values, tokens, reducer.factors(tokens))


def _blocks(array: Array, size: int, fill: float | Array = 0.0) -> Array:
    """`array` cut into blocks of `size` rows, the last one padded with `fill`."""
    short = -array.shape[0] % size
    padding = jnp.full((short, *array.shape[1:]), fill, array.dtype)
    count = -(-array.shape[0] // size)
    return jnp.concatenate([array, padding]).reshape(count, size, *array.shape[1:])


def _step(
    reducer: AbstractReducer,
    logit: Callable[[Array, Array], Array],
    carry: Any,
    q: Array,
    s: Array | None,
    tokens: Tokens,
) -> Any:
    seen = None if s is None else tokens.positions[:, None] <= s[None, :]  # pyright: ignore
    return reducer.step(carry, logit(tokens.keys, q), seen, tokens)


def _fold_blocks(
    reducer: AbstractReducer,
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    tokens: Tokens,
    positions: Float[Array, " m"] | None,
    keep: Bool[Array, "query_blocks key_blocks"] | None,
) -> Any:
    """`fold_tokens`, block by block: for each block of queries a scan over the blocks of tokens that are kept."""
    m, n = queries.shape[0], tokens.keys.shape[0]
    tokens = _weighted(reducer, tokens)
    many, size = min(m, QUERY_BLOCK), min(n, KEY_BLOCK)
    # Queries and values are stored by coordinates: whole rows of a block of logits are then formed at once.
    # What fills the last blocks is never seen and sees nothing.
    asked = None if positions is None else _blocks(positions, many, -jnp.inf)
    places = None if positions is None else _blocks(tokens.positions, size, jnp.inf)  # pyright: ignore
    blocks = (
        _blocks(tokens.keys, size),
        _blocks(tokens.weights, size, reducer.empty_weight),
        _blocks(tokens.values, size).swapaxes(1, 2),
        places,
    )
    if asked is not None:
        reached = places.min(axis=1)[None, :] <= asked.max(axis=1)[:, None]  # pyright: ignore
        keep = reached if keep is None else keep & reached

    def fold(q: Array, s: Array | None, kept: Array | None) -> Any:
        def body(carry: Any, item: Any) -> Any:
            (keys, weights, values, places), matters = item
            block = Tokens(keys, weights, values.T, places)

            def advance(carry: Any) -> Any:
                return _step(reducer, logit, carry, q.T, s, block)

            return advance(carry) if matters is None else jax.lax.cond(matters, advance, lambda c: c, carry), None

        start = reducer.start(many, tokens.values.shape[1], queries.dtype)
        return reducer.finish(jax.lax.scan(jax.checkpoint(body), start, (blocks, kept))[0])

    folded = jax.lax.map(jax.checkpoint(lambda item: fold(*item)), (_blocks(queries, many).swapaxes(1, 2), asked, keep))
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])[:m], folded)


def fold_tokens(
    reducer: AbstractReducer,
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    tokens: Tokens,
    positions: Float[Array, " m"] | None = None,
    keep: Bool[Array, "query_blocks key_blocks"] | None = None,
    needed: Array | None = None,
) -> Any:
    """Fold `reducer` over all `tokens` (those with position <= `positions[i]`, if given) for each query.

    `logit` is symmetric in its two arguments. With `keep`, of shape `block_counts(m, n)`, blocks of `KEY_BLOCK` tokens
    that are not kept for a block of `QUERY_BLOCK` queries are skipped, in the order given. Memory is O(m + n) times the
    width of the values, in both directions of differentiation: blocks are recomputed, not stored. Of an average, only
    the denominators may be `needed` (0 columns of values).
    """
    m, n = queries.shape[0], tokens.keys.shape[0]
    if keep is not None and keep.shape != block_counts(m, n):
        checks.refuse(
            "keep has an entry for each pair of blocks",
            got=f"shape {keep.shape} for {m} queries and {n} tokens",
            expected=f"shape {block_counts(m, n)}",
            remedy="make it with block_counts(m, n), QUERY_BLOCK and KEY_BLOCK",
        )
    if keep is None and block_counts(m, n) == (1, 1):

        def once(queries: Array, tokens: Tokens) -> Any:
            tokens = _weighted(reducer, tokens)
            start = reducer.start(m, tokens.values.shape[1], queries.dtype)
            return reducer.finish(_step(reducer, logit, start, queries, positions, tokens))

        return _as_needed(once, needed, few=m * n <= FEW_PAIRS)(queries, tokens)
    if positions is not None and keep is None:
        return _fold_in_order(reducer, logit, queries, tokens, positions)
    if not isinstance(reducer, Average):
        return _fold_blocks(reducer, logit, queries, tokens, positions, keep)

    def running(queries: Array, tokens: Tokens) -> Any:
        return _fold_blocks(Average(exp_of_negative), logit, queries, tokens, positions, keep)

    # With a mask, a bound of all tokens would let the later ones change bits of the earlier ones.
    if positions is not None or logit not in BOUNDS:
        return running(queries, tokens)
    bound = BOUNDS[logit](queries, tokens.keys, tokens.weights)

    def bounded(queries: Array, tokens: Tokens) -> Any:
        return average_within(bound, tokens, partial(_fold_blocks, positions=None, keep=keep))

    narrow = everywhere(bound.spread <= widest_spread(n, queries.dtype))
    return jax.lax.cond(narrow, _as_needed(bounded, needed), running, queries, tokens)


def _as_needed(
    fold: Callable[[Array, Tokens], Any], needed: Array | None, few: bool = False
) -> Callable[[Array, Tokens], Any]:
    """The fold of an average; where no values are needed, of its denominators alone: that takes half the time, which is
    nothing where pairs are `few`.
    """
    if needed is None or few:
        return fold

    def denominators(queries: Array, tokens: Tokens) -> tuple[Array, Array]:
        without = eqx.tree_at(lambda t: t.values, tokens, tokens.values[:, :0])
        return jnp.zeros((queries.shape[0], tokens.values.shape[1]), queries.dtype), fold(queries, without)[1]

    return lambda queries, tokens: jax.lax.cond(needed > 0, fold, denominators, queries, tokens)


def _fold_in_order(
    reducer: AbstractReducer, logit: Callable[[Array, Array], Array], queries: Array, tokens: Tokens, positions: Array
) -> Any:
    """The masked fold with tokens and queries in the order of their positions: half of the blocks are then skipped."""
    reducer = Average(exp_of_negative) if isinstance(reducer, Average) else reducer
    order, asked = jnp.argsort(tokens.positions), jnp.argsort(positions)  # pyright: ignore
    tokens = jax.tree.map(lambda a: a[order], tokens)
    folded = _fold_blocks(reducer, logit, queries[asked], tokens, positions[asked], None)
    return jax.tree.map(lambda a: a[jnp.argsort(asked)], folded)

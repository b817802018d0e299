r"""Blocks of tokens that a block of queries cannot see.

Where logits range widely, a query sees few keys: the others weigh less than the tolerance together. Tokens and queries
are put in an order that keeps neighbours together; for a block C of queries and a block D of tokens, boxes bound
the logits from above, and one token $y^*$ that is good for the centre of C bounds the sum from below:

$$\frac{\sum_{j\in D}e^{c(q,y_j)+\ell_j}}{\sum_je^{c(q,y_j)+\ell_j}}\le
\exp\Big(\max_{q\in C,\,y\in D}\big[c(q,y)-c(q,y^*)\big]+\lambda_D-\ell^*\Big),$$

where $\lambda_D$ is the log-weight of D and $\ell^*$ that of $y^*$.

What is left out is below `tolerance` of the sum, for every query, whatever the tokens are.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .exact import KEY_BLOCK, QUERY_BLOCK, Average, Tokens, dot, fold_tokens

# Blocks of tokens in which a good token for a block of queries is looked for.
CANDIDATES = 4


class Boxes(NamedTuple):
    """Blocks of points: the centres and half-widths of their boxes, and the log-weight of each block."""

    centres: Float[Array, "b k"]
    halves: Float[Array, "b k"]
    logs: Float[Array, " b"]


def order_of(points: Float[Array, "n k"]) -> Int[Array, " n"]:
    """An order in which neighbours are near: along a Z-curve through the ranks of the coordinates.

    Ranks, not coordinates, so that clusters and outliers do not make the curve coarse.
    """
    n, k = points.shape
    ranks = [jnp.argsort(jnp.argsort(points[:, a])) for a in range(k)]
    if k == 1:
        return jnp.argsort(ranks[0])
    bits = min((8 * ranks[0].dtype.itemsize - 2) // k, max(1, (n - 1).bit_length()))
    low = max(0, (n - 1).bit_length() - bits)
    code = jnp.zeros(n, ranks[0].dtype)
    for bit in range(bits):
        for a, rank in enumerate(ranks):
            code = code | (((rank >> (bit + low)) & 1) << (bit * k + a))
    return jnp.argsort(code)


def _boxes(points: Float[Array, "n k"], logs: Float[Array, " n"], size: int) -> Boxes:
    """The boxes of consecutive blocks of `size` points; what has log-weight minus infinity is in no box."""
    short = -points.shape[0] % size
    points = jnp.pad(points, ((0, short), (0, 0)))
    logs = jnp.pad(logs, (0, short), constant_values=-jnp.inf)
    blocks, present = points.reshape(-1, size, points.shape[1]), jnp.isfinite(logs).reshape(-1, size, 1)
    low = jnp.min(jnp.where(present, blocks, jnp.inf), axis=1)
    high = jnp.max(jnp.where(present, blocks, -jnp.inf), axis=1)
    empty = ~present.any(axis=1)
    low, high = jnp.where(empty, 0, low), jnp.where(empty, 0, high)
    return Boxes((low + high) / 2, (high - low) / 2, jax.nn.logsumexp(logs.reshape(-1, size), axis=1))


def _gap(logit: Callable[[Array, Array], Array], queries: Boxes, keys: Boxes, anchors: Float[Array, "b k"]) -> Array:
    r"""$\max_{q\in C,y\in D}[c(q,y)-c(q,y^*_C)]$, for every pair of blocks, from above."""
    c, r = queries.centres[:, None], queries.halves[:, None]
    d, s = keys.centres[None], keys.halves[None]
    y = anchors[:, None]
    if logit is dot:  # (c + dq).(y - y*), y in D
        return jnp.sum(c * (d - y) + jnp.abs(c) * s + r * (jnp.abs(d - y) + s), axis=-1)
    nearest = jnp.maximum(jnp.abs(c - d) - r - s, 0)
    farthest = jnp.abs(c - y) + r
    return jnp.sum(farthest**2 - nearest**2, axis=-1)


def _anchors(
    logit: Callable[[Array, Array], Array],
    queries: Boxes,
    keys: Boxes,
    points: Float[Array, "n k"],
    logs: Float[Array, " n"],
) -> tuple[Float[Array, "b k"], Float[Array, " b"]]:
    """For the centre of each block of queries, one of the best tokens, and its log-weight."""
    short = -points.shape[0] % KEY_BLOCK
    blocks = jnp.pad(points, ((0, short), (0, 0))).reshape(-1, KEY_BLOCK, points.shape[1])
    block_logs = jnp.pad(logs, (0, short), constant_values=-jnp.inf).reshape(-1, KEY_BLOCK)

    def one(c: Float[Array, " k"]) -> tuple[Array, Array]:
        if logit is dot:
            upper = keys.logs + jnp.sum(c[None] * keys.centres + jnp.abs(c)[None] * keys.halves, axis=1)
        else:
            upper = keys.logs - jnp.sum(jnp.maximum(jnp.abs(c[None] - keys.centres) - keys.halves, 0) ** 2, axis=1)
        _, best = jax.lax.top_k(upper, min(CANDIDATES, upper.size))
        near, near_logs = blocks[best].reshape(-1, c.size), block_logs[best].reshape(-1)
        chosen = jnp.argmax(logit(c[None], near)[0] + near_logs)
        return near[chosen], near_logs[chosen]

    return jax.lax.map(one, queries.centres)


def seen_blocks(
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    keys: Float[Array, "n k"],
    logs: Float[Array, " n"],
    tolerance: float,
) -> Bool[Array, "query_blocks key_blocks"]:
    """Which blocks of tokens count for which blocks of queries, both in their order."""
    queries, keys, logs = jax.lax.stop_gradient((queries, keys, logs))
    C = _boxes(queries, jnp.zeros_like(queries[:, 0]), QUERY_BLOCK)
    D = _boxes(keys, logs, KEY_BLOCK)
    anchors, anchor_logs = _anchors(logit, C, D, keys, logs)
    share = _gap(logit, C, D, anchors) + D.logs[None] - anchor_logs[:, None]
    return share > jnp.log(tolerance / D.logs.size)


def pruned_average(
    logit: Callable[[Array, Array], Array], queries: Float[Array, "m k"], tokens: Tokens, tolerance: float
) -> tuple[Float[Array, "m v"], Float[Array, " m"], Float[Array, ""]]:
    """The averages and log-sums over the blocks that count, and the share of the blocks that were looked at."""
    by_key, by_query = (order_of(jax.lax.stop_gradient(points)) for points in (tokens.keys, queries))
    sorted_tokens = Tokens(tokens.keys[by_key], tokens.weights[by_key], tokens.values[by_key])
    q = queries[by_query]
    keep = seen_blocks(logit, q, sorted_tokens.keys, sorted_tokens.weights, tolerance)
    mean, total = fold_tokens(Average(), logit, q, sorted_tokens, keep=keep)
    back = jnp.argsort(by_query)
    return mean[back], total[back], jnp.mean(keep.astype(q.dtype))


@eqx.filter_jit
def seen_share(
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    keys: Float[Array, "n k"],
    logs: Float[Array, " n"],
    tolerance: float,
) -> Float[Array, ""]:
    """The share of the blocks that count."""
    by_key, by_query = order_of(keys), order_of(queries)
    keep = seen_blocks(logit, queries[by_query], keys[by_key], logs[by_key], tolerance)
    return jnp.mean(keep.astype(queries.dtype))

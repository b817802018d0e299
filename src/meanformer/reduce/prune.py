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

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._programs.call import program
from .exact import KEY_BLOCK, QUERY_BLOCK, Average, Tokens, dot, fold_tokens

# Blocks of tokens in which a good token for a block of queries is looked for.
CANDIDATES = 4


class Boxes(NamedTuple):
    """Blocks of points: the centres and half-widths of their boxes, and the log-weight of each block."""

    centres: Float[Array, "b k"]
    halves: Float[Array, "b k"]
    logs: Float[Array, " b"]


def order_of(points: Float[Array, "n k"], block: int) -> Int[Array, " n"]:
    """An order in which blocks of `block` points are small: tiles.

    Sorted by a coordinate and cut into strips of whole blocks; in each strip sorted by the next coordinate, and so on.
    """
    n, k = points.shape
    place = jnp.arange(n)
    order, strip, size = place, jnp.zeros_like(place), n
    for a in range(k):
        order = order[jnp.lexsort((points[order, a], strip))]
        blocks = -(-size // block)
        parts = max(1, round(blocks ** (1 / (k - a))))
        # Strips are cut within strips: a new one begins where the old one does, too.
        size, within = -(-blocks // parts) * block, place % size
        begins = jnp.concatenate([jnp.zeros(1, strip.dtype), jnp.diff(strip)]) != 0
        strip = jnp.cumsum((begins | (within % size == 0)).astype(strip.dtype))
    return order


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
    r"""$\max_{q\in C,y\in D}[c(q,y)-c(q,y^*_C)]$, for every pair of blocks, exactly."""
    c, r = queries.centres[:, None], queries.halves[:, None]
    d, s = keys.centres[None], keys.halves[None]
    y = anchors[:, None]
    low, high = d - s, d + s
    if logit is dot:  # (c + dq).(p - y), convex in p: largest at an end
        dots = [c * (p - y) + r * jnp.abs(p - y) for p in (low, high)]
        return jnp.sum(jnp.maximum(*dots), axis=-1)
    # |q - y|^2 - |q - p|^2, q = c + dq: the larger of two concave functions of p, largest at c + r and at c - r.
    ends = [jnp.clip(c + r, low, high), jnp.clip(c - r, low, high)]
    distances = [(y - c) ** 2 - (p - c) ** 2 + 2 * r * jnp.abs(p - y) for p in ends]
    return jnp.sum(jnp.maximum(*distances), axis=-1)


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


def _orders(keys: Float[Array, "n k"], queries: Float[Array, "m k"]) -> tuple[Int[Array, " n"], Int[Array, " m"]]:
    return order_of(keys, KEY_BLOCK), order_of(queries, QUERY_BLOCK)


def pruned_average(
    logit: Callable[[Array, Array], Array], queries: Float[Array, "m k"], tokens: Tokens, tolerance: float
) -> tuple[Float[Array, "m v"], Float[Array, " m"], Float[Array, ""]]:
    """The averages and log-sums over the blocks that count, and the share of the blocks that were looked at."""
    by_key, by_query = _orders(*jax.lax.stop_gradient((tokens.keys, queries)))
    sorted_tokens = Tokens(tokens.keys[by_key], tokens.weights[by_key], tokens.values[by_key])
    q = queries[by_query]
    keep = seen_blocks(logit, q, sorted_tokens.keys, sorted_tokens.weights, tolerance)
    mean, total = fold_tokens(Average(), logit, q, sorted_tokens, keep=keep)
    back = jnp.argsort(by_query)
    return mean[back], total[back], jnp.mean(keep.astype(q.dtype))


@program
def seen_share(
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "m k"],
    keys: Float[Array, "n k"],
    logs: Float[Array, " n"],
    tolerance: float,
) -> Float[Array, ""]:
    """The share of the blocks that count."""
    by_key, by_query = _orders(keys, queries)
    keep = seen_blocks(logit, queries[by_query], keys[by_key], logs[by_key], tolerance)
    return jnp.mean(keep.astype(queries.dtype))

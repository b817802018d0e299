r"""Masked averages through grids: the tokens before a block of positions as grid masses, those inside exactly.

Tokens are sorted by position and cut into blocks. The masses of all earlier blocks are carried along: a block of
queries reads them off the grid, and adds the tokens of its own block that it sees. $O(n(p^k+\text{block}))$.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from .._warm import Module
from .exact import Average, Tokens, fold_tokens, minus_squared_distance
from .grid import SHARED_COLUMNS, Boxed, Grid, grid_usage, kernels, range_limit, read_off, spread


class Prefixes(Module):
    """Queries and keys in their boxes, and the log-weights tilted by the centre of the queries."""

    queries: Boxed
    keys: Boxed
    logs: Float[Array, " n"]

    def __init__(self, q: Float[Array, "n k"], y: Float[Array, "n k"], logs: Float[Array, " n"]):
        present = jnp.isfinite(logs)
        self.queries, self.keys = Boxed(q, jnp.ones(q.shape[0], bool)), Boxed(y, present)
        self.logs = jnp.where(present, logs + self.keys.offsets @ self.queries.centre, -jnp.inf)

    @property
    def top(self) -> Scalar:
        """The largest log-weight."""
        return jax.lax.stop_gradient(jnp.max(self.logs))

    def usage(self, grid: Grid) -> Scalar:
        """What `grid_usage` says; and a prefix may consist of the lightest tokens only, whose weights must not
        underflow beside the heaviest.
        """
        lightest = jnp.min(jnp.where(jnp.isfinite(self.logs), self.logs, self.top)) - self.top
        floating = (jnp.sum(self.queries.half * self.keys.half) - lightest / 2) / range_limit(self.logs.dtype)
        return jnp.maximum(grid_usage(grid, self.queries, self.keys), floating)


def prefix_average(
    grid: Grid,
    size: int,
    logit: Callable[[Array, Array], Array],
    queries: Float[Array, "n k"],
    tokens: Tokens,
    positions: Float[Array, " n"],
    q: Float[Array, "n k"],
    y: Float[Array, "n k"],
    logs: Float[Array, " n"],
) -> tuple[Float[Array, "n v"], Float[Array, " n"], Scalar]:
    r"""The means, log-sums and the range used, for tokens that query themselves at distinct positions.

    `q`, `y` and `logs` are queries, keys and log-weights with logit $q\cdot y$. Where positions are shared, all is NaN.
    """
    assert tokens.positions is not None
    order = jnp.argsort(positions)
    in_order = positions[order]
    legal = (positions == tokens.positions).all() & (in_order[1:] > in_order[:-1]).all()
    boxes = Prefixes(q[order], y[order], logs[order])
    boxed_q, boxed_y, top = boxes.queries, boxes.keys, boxes.top
    weights = jnp.exp(boxes.logs - top)
    values = tokens.values[order]
    middle = jax.lax.stop_gradient(weights @ values / weights.sum())
    columns = jnp.concatenate([weights[:, None], weights[:, None] * (values - middle[None])], axis=1)
    if columns.shape[1] <= SHARED_COLUMNS:
        sums, scales = _prefix_sums(grid, size, boxed_q, boxed_y, columns)
    else:
        one = lambda column: _prefix_sums(grid, size, boxed_q, boxed_y, column[:, None])  # noqa: E731
        sums, scales = jax.lax.map(one, columns.T)
        sums, scales = sums[..., 0].T, scales[0]
    some = sums[:, 0] > 0
    safe = jnp.where(some, sums[:, 0], 1)
    before = middle[None] + sums[:, 1:] / safe[:, None]
    log_before = jnp.where(some, jnp.log(safe) + scales + top + q[order] @ boxed_y.centre, -jnp.inf)
    if logit is minus_squared_distance:
        log_before = log_before - jnp.sum(queries**2, axis=1)[order]
    inside, log_inside = _inside(size, logit, queries[order], jax.tree.map(lambda a: a[order], tokens))
    total = jnp.logaddexp(log_before, log_inside)
    safe_total = jnp.where(jnp.isfinite(total), total, 0)
    share = jnp.exp(log_before - safe_total)[:, None], jnp.exp(log_inside - safe_total)[:, None]
    mean = share[0] * jnp.where(some[:, None], before, 0) + share[1] * inside
    back = jnp.argsort(order)
    return mean[back], total[back], jnp.where(legal, boxes.usage(grid), jnp.inf)


def _prefix_sums(
    grid: Grid, size: int, q: Boxed, y: Boxed, columns: Float[Array, "n c"]
) -> tuple[Float[Array, "n c"], Float[Array, " n"]]:
    """For each query the sums over the tokens of all earlier blocks, and their log-scales."""
    n, k = q.offsets.shape
    key_axes, query_axes = y.axes(grid), q.axes(grid)
    matrices, bounds = kernels(query_axes, key_axes)
    count = -(-n // size)

    def cut(a: Array) -> Array:
        return jnp.pad(a, ((0, count * size - n), (0, 0))).reshape(count, size, -1)

    def step(masses: Array, block: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        xi, eta, c = block
        sums = read_off(query_axes, matrices, bounds, masses, xi)
        return masses + spread(key_axes, eta, c), sums

    empty = jnp.zeros((columns.shape[1], *(grid.nodes,) * k), columns.dtype)
    _, sums = jax.lax.scan(jax.checkpoint(step), empty, (cut(q.offsets), cut(y.offsets), cut(columns)))
    return sums.reshape(-1, columns.shape[1])[:n], jnp.abs(q.offsets) @ jnp.stack(bounds)


def _inside(
    size: int, logit: Callable[[Array, Array], Array], queries: Float[Array, "n k"], tokens: Tokens
) -> tuple[Float[Array, "n v"], Float[Array, " n"]]:
    """The masked averages of each block of tokens over itself."""
    n = queries.shape[0]
    count = -(-n // size)
    assert tokens.positions is not None

    def cut(a: Array, fill: float = 0.0) -> Array:
        widths = ((0, count * size - n), *((0, 0),) * (a.ndim - 1))
        return jnp.pad(a, widths, constant_values=fill).reshape(count, size, *a.shape[1:])

    def one(block: tuple[Array, Tokens]) -> tuple[Array, Array]:
        q, inside = block
        return fold_tokens(Average(), logit, q, inside, inside.positions)

    blocks = Tokens(cut(tokens.keys), cut(tokens.weights, -jnp.inf), cut(tokens.values), cut(tokens.positions, jnp.inf))
    mean, total = jax.lax.map(jax.checkpoint(one), (cut(queries), blocks))
    return mean.reshape(-1, mean.shape[-1])[:n], total.reshape(-1)[:n]

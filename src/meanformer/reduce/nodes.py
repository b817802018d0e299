r"""Sums of a smooth function of the logit, $\sum_jw_j\varphi(q_i\cdot y_j)v_j$, through grids: keys are spread onto a
grid, the sums are done from grid to grid, exactly, and read off at the queries, by Lagrange's interpolation.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Scalar
from . import interpolate
from .exact import Sum, Tokens, dot, fold_tokens
from .grid import Boxed, Grid, gather, spread


@functools.lru_cache(maxsize=64)
def sigmoid_error(order: int, step: float) -> float:
    r"""$\max_z|\sum_l\varphi_l(u)\sigma(z+hx_l)-\sigma(z+hu)|$ for logits that change by h from node to node."""
    u, z = np.linspace(-0.5, 0.5, 33), np.linspace(-12, 12, 481)
    nodes = np.arange(order) - (order - 1) / 2
    phi = np.polynomial.polynomial.polyval(u, interpolate.weights(order, 0.0))

    def sigma(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    read = np.einsum("lu,zl->zu", phi, sigma(z[:, None] + step * nodes[None]))
    return float(np.abs(read - sigma(z[:, None] + step * u[None])).max())


@functools.lru_cache(maxsize=64)
def sigmoid_reach(order: int, k: int, tolerance: float) -> float:
    """The largest change of a logit from node to node at which a sum has an error of `tolerance` per unit of mass."""
    phi = interpolate.weights(order, 0.0)
    lebesgue = float(np.abs(np.polynomial.polynomial.polyval(np.linspace(-0.5, 0.5, 33), phi)).sum(axis=0).max())
    share = tolerance / sum(lebesgue**i for i in range(2 * k))
    low, high = 1e-3, 4.0
    while high / low > 1.02:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if sigmoid_error(order, middle) <= share else (low, middle)
    return low


def node_sum(
    grid: Grid, function: Callable[[Array], Array], queries: Float[Array, "m k1"], tokens: Tokens
) -> tuple[Float[Array, "m v"], Scalar]:
    """The sums, and the range of the logits relative to what the grid resolves.

    The last coordinate of queries and keys carries a number that is added to the logit: it is the same for all.
    """
    present = tokens.weights > 0
    q, y = Boxed(queries[:, :-1], jnp.ones(queries.shape[0], bool)), Boxed(tokens.keys[:, :-1], present)
    added = queries[0, -1] * tokens.keys[0, -1]
    query_axes, key_axes = q.axes(grid), y.axes(grid)
    masses = spread(key_axes, y.offsets, tokens.weights[:, None] * tokens.values)
    meshes = [
        jnp.stack(jnp.meshgrid(*(axis.nodes + c for axis, c in zip(axes, box.centre, strict=True)), indexing="ij"), -1)
        for axes, box in ((query_axes, q), (key_axes, y))
    ]
    at_queries, at_keys = (mesh.reshape(-1, mesh.shape[-1]) for mesh in meshes)
    at_keys = jnp.pad(at_keys, ((0, 0), (0, 1)), constant_values=1)
    at_queries = jnp.concatenate([at_queries, jnp.broadcast_to(added, (at_queries.shape[0], 1))], axis=1)
    nodes = Tokens(at_keys, jnp.ones_like(at_keys[:, 0]), masses.reshape(masses.shape[0], -1).T)
    sums = fold_tokens(Sum(function), dot, at_queries, nodes)
    grids = sums.T.reshape(masses.shape)
    read = gather(query_axes, q.offsets, grids, lambda a, nodes, points: jnp.ones_like(nodes))
    return read, node_usage(grid, q, y)


def node_usage(grid: Grid, q: Boxed, y: Boxed) -> Scalar:
    """The change of a logit from node to node, relative to what the grid resolves."""
    # From node to node of the keys a logit changes by |q| times their spacing, and the other way round.
    largest_q, largest_y = q.half + jnp.abs(q.centre), y.half + jnp.abs(y.centre)
    step = jnp.maximum((largest_q * 2 * y.half).max(), (largest_y * 2 * q.half).max()) / grid.cells
    return step * (1 + grid.order / grid.cells) / grid.reach

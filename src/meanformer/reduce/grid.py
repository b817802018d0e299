r"""Sums of exponentials over tokens through a grid, for keys of dimension 1, 2 and 3: $O(n\,p^k)$ instead of $O(n^2)$.

With keys $y_j=y_0+\eta_j$ and queries $q_i=q_0+\xi_i$ in boxes around $y_0$ and $q_0$,

$$\sum_jw_je^{q_i\cdot y_j}v_j=e^{q_i\cdot y_0}\sum_j\big(w_je^{q_0\cdot\eta_j}\big)e^{\xi_i\cdot\eta_j}v_j,$$

and $e^{\xi\cdot\eta}$ is a product over coordinates. So the keys are *spread* onto a tensor grid, p nodes per axis,
the kernel is applied along each axis as a small matrix, and the result is *gathered* at the queries, with the same p
weights (`interpolate`). Each interpolation is exact up to a relative error for every single term. All terms of a
denominator are positive, so its error is relative too, whatever its range: no cloud of tokens makes it worse. What
limits a grid is the number of nodes, $\approx2\max|\xi_a|\max|\eta_a|/\alpha$ on axis a, and the floating-point range,
$\sum_a\max|\xi_a|\max|\eta_a|\le$ `range_limit`.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar
from .._warm import Module
from . import interpolate

LARGEST_DIMENSION = 3
# Entries of the interpolation weights of the tokens that are handled at once: they stay in cache.
CHUNK_ENTRIES = 2**18
# Up to so many columns of values share the interpolation weights; more of them go one by one.
SHARED_COLUMNS = 4


class Grid(Module):
    """The shape of a grid: cells and interpolation order (even) on each axis, and the largest change of a logit from
    node to node. `fitted` weights are made for exponentials, others are Lagrange's.
    """

    cells: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)
    fitted: bool = eqx.field(static=True, default=True)

    @property
    def weights(self) -> np.ndarray:
        """The interpolation weights, as polynomials."""
        return interpolate.weights(self.order, self.reach if self.fitted else 0.0)

    @property
    def nodes(self) -> int:
        """Nodes on each axis."""
        return self.cells + self.order - 1

    @property
    def largest_range(self) -> float:
        r"""The largest $\max|\xi_a|\max|\eta_a|$ for which the weights reach.

        The nodes around the box of queries, on which the keys' interpolation must hold, are included.
        """
        return self.reach * self.cells / 2 / (1 + (self.order - 2) / self.cells)

    def bound(self, k: int) -> float:
        """The relative error of a sum of positive terms, at the most."""
        return (1 + axis_error(self.order, self.reach)) ** k - 1


@functools.lru_cache(maxsize=64)
def axis_error(order: int, reach: float) -> float:
    r"""The relative error that both interpolations together make on an axis: $\varepsilon+\Lambda\varepsilon$, with
    $\Lambda=\max\sum_l|\varphi_l(u)|e^{\alpha|x_l-u|}$.
    """
    u = np.linspace(-0.5, 0.5, 65)
    phi = np.abs(np.polynomial.polynomial.polyval(u, interpolate.weights(order, reach)))
    nodes = np.arange(order) - (order - 1) / 2
    amplification = (phi * np.exp(reach * np.abs(nodes[:, None] - u[None]))).sum(axis=0).max()
    return float((1 + amplification) * interpolate.error(order, reach))


@functools.lru_cache(maxsize=256)
def reach_for(order: int, k: int, tolerance: float) -> float:
    """The largest reach with which the sums of a `k`-dimensional grid have the relative error `tolerance`."""
    share = tolerance / k / 2  # the amplification is at least 1
    while (1 + axis_error(order, interpolate.reach_of(order, share))) ** k - 1 > tolerance:
        share /= 1.1
    return interpolate.reach_of(order, share)


def range_limit(dtype: jnp.dtype) -> float:
    r"""The largest $L=\sum_a\max|\xi_a|\max|\eta_a|$ at which no sum can underflow: all are at least $e^{-2L}$."""
    return -0.48 * float(np.log(float(jnp.finfo(dtype).tiny)))


class Axis(Module):
    """The nodes of one axis: the box is `cells` cells wide, from `-half` to `half`, with `order / 2 - 1` more on each
    side.
    """

    half: Scalar
    grid: Grid

    @property
    def spacing(self) -> Scalar:
        return 2 * self.half / self.grid.cells

    @property
    def nodes(self) -> Float[Array, " nodes"]:
        """The coordinates of the nodes."""
        offset = 0.5 * (self.grid.nodes - 1)
        return (jnp.arange(self.grid.nodes, dtype=self.half.dtype) - offset) * self.spacing

    def locate(self, x: Float[Array, " m"]) -> tuple[Int[Array, " m"], Float[Array, "m p"]]:
        """The first of the nodes around each point, and the weights of all of them."""
        place = (x + self.half) / self.spacing
        cell = jax.lax.stop_gradient(jnp.clip(jnp.floor(place), 0, self.grid.cells - 1))
        weights = interpolate.evaluated(self.grid.weights, place - cell - 0.5)
        return cell.astype(jnp.int32), weights


def _outer(weights: list[Float[Array, "m p"]]) -> Array:
    """The products of the weights of all axes, shape `(m, p, ..., p)`."""
    product = weights[0]
    for a, factor in enumerate(weights[1:], 1):
        product = product[..., None] * factor.reshape(factor.shape[0], *(1,) * a, factor.shape[1])
    return product


def _in_chunks(arrays: tuple[Array, ...], size: int) -> tuple[Array, ...]:
    """Arrays cut into chunks of rows along a new leading axis, padded with zeros."""

    def cut(array: Array) -> Array:
        count = -(-array.shape[0] // size)
        short = count * size - array.shape[0]
        return jnp.pad(array, ((0, short),) + ((0, 0),) * (array.ndim - 1)).reshape(count, size, *array.shape[1:])

    return tuple(map(cut, arrays))


def _chunk(order: int, k: int, rows: int) -> int:
    """Rows in a chunk; all chunks have as many, so that few are added to fill the last one."""
    chunks = max(1, -(-rows // max(256, CHUNK_ENTRIES // order**k)))
    return max(1, -(-rows // chunks))


def spread(
    axes: tuple[Axis, ...],
    points: Float[Array, "n k"],
    columns: Float[Array, "n c"],
    needed: Int[Array, ""] | None = None,
) -> Float[Array, "c ..."]:
    r"""Grid masses $\sum_jc_j\prod_a\varphi(\eta_{ja})$ of each column; zeros for those after the first that are
    `needed`.
    """
    grid, k = axes[0].grid, len(axes)
    count = columns.shape[1] if needed is None else needed
    windows = jax.lax.ScatterDimensionNumbers(tuple(range(1, k + 1)), (0,), tuple(range(k + 1)))

    @jax.checkpoint
    def add(masses: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        points, columns = chunk
        firsts, weights = zip(*(axis.locate(points[:, a]) for a, axis in enumerate(axes)), strict=True)
        firsts = jnp.stack(firsts, axis=1)

        def one(c: Array, masses: Array) -> Array:
            starts = jnp.concatenate([jnp.full_like(firsts[:, :1], c), firsts], axis=1)
            added = _outer(list(weights)) * columns[:, c].reshape(-1, *(1,) * k)
            mode = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
            return jax.lax.scatter_add(masses, starts, added, windows, mode=mode)

        return jax.lax.fori_loop(0, count, one, masses), None

    empty = jnp.zeros((columns.shape[1], *(grid.nodes,) * k), columns.dtype)
    chunks = _in_chunks((points, columns), _chunk(grid.order, k, points.shape[0]))
    return jax.lax.scan(add, empty, chunks)[0]


def gather(
    axes: tuple[Axis, ...],
    points: Float[Array, "m k"],
    values: Float[Array, "c ..."],
    factor: Callable[[int, Float[Array, "m p"], Float[Array, " m"]], Array],
) -> Float[Array, "m c"]:
    r"""The values of grid functions at points. `factor(a, nodes, points)` multiplies the weights on axis a."""
    order, k = axes[0].grid.order, len(axes)

    @jax.checkpoint
    def read(chunk: tuple[Array]) -> Array:
        (points,) = chunk
        firsts, weights = [], []
        for a, axis in enumerate(axes):
            first, weight = axis.locate(points[:, a])
            numbers = first[:, None] + jnp.arange(order, dtype=first.dtype)[None]
            nodes = axis.nodes[0] + axis.spacing * numbers.astype(points.dtype)
            firsts.append(first)
            weights.append(weight * factor(a, nodes, points[:, a]))
        products = _outer(weights)

        def at(grid_values: Array) -> Array:
            def one(starts: list[Array], product: Array) -> Array:
                return jnp.sum(jax.lax.dynamic_slice(grid_values, starts, (order,) * k) * product)

            return jax.vmap(one)(firsts, products)

        return jnp.stack([at(grid_values) for grid_values in values], axis=1)

    (chunks,) = _in_chunks((points,), _chunk(order, k, points.shape[0]))
    result = jax.lax.map(read, (chunks,))
    return result.reshape(-1, values.shape[0])[: points.shape[0]]


class Boxed(Module):
    """Points around the centre of a box: `points = centre + offsets`, with `abs(offsets) <= half`."""

    centre: Float[Array, " k"]
    half: Float[Array, " k"]
    offsets: Float[Array, "m k"]

    def __init__(self, points: Float[Array, "m k"], counts: Bool[Array, " m"]):
        low = jnp.min(jnp.where(counts[:, None], points, jnp.inf), axis=0)
        high = jnp.max(jnp.where(counts[:, None], points, -jnp.inf), axis=0)
        centre = jax.lax.stop_gradient((low + high) / 2)
        # A box of no width is one cell around its point; where nothing counts, the box is around 0.
        smallest = float(jnp.finfo(points.dtype).tiny) ** 0.5
        self.centre = jnp.where(jnp.isfinite(centre), centre, 0)
        half = jax.lax.stop_gradient((high - low) / 2)
        self.half = jnp.where(jnp.isfinite(half), jnp.maximum(half, smallest), smallest)
        # What does not count is brought into the box: its weight is zero, or its sum is replaced.
        offsets = jnp.where(counts[:, None], points - self.centre[None], 0)
        self.offsets = offsets

    def axes(self, grid: Grid) -> tuple[Axis, ...]:
        """The nodes of the box."""
        return tuple(Axis(half, grid) for half in self.half)


def kernels(query_axes: tuple[Axis, ...], key_axes: tuple[Axis, ...]) -> tuple[list[Array], list[Scalar]]:
    r"""The matrices $e^{\xi\eta-R|\xi|}$ between the nodes of each axis, and R, the last node of the keys.

    $\sum_aR_a|\xi_a|$ bounds all exponents, and is a sum over coordinates like them.
    """
    matrices, bounds = [], []
    for xi, eta in zip(query_axes, key_axes, strict=True):
        q, y = xi.nodes, eta.nodes
        matrices.append(jnp.exp(q[:, None] * y[None, :] - jnp.abs(q)[:, None] * y[-1]))
        bounds.append(y[-1])
    return matrices, bounds


def read_off(
    query_axes: tuple[Axis, ...],
    matrices: list[Array],
    bounds: list[Scalar],
    masses: Float[Array, "c ..."],
    offsets: Float[Array, "m k"],
    key_axes: tuple[Axis, ...] | None = None,
) -> Float[Array, "m sums"]:
    r"""The sums over grid masses at the queries, times $e^{-\sum_aR_a|\xi_a|}$.

    With `key_axes`, masses are one column, and the sums times the coordinates of the keys come after it.
    """
    count = masses.shape[0]
    for a, matrix in enumerate(matrices):
        applied = jnp.tensordot(masses, matrix, axes=((1,), (1,)))  # the first axis becomes the last one
        if key_axes is not None:
            weighted = matrix * key_axes[a].nodes[None, :]
            more = jnp.tensordot(masses[:count], weighted, axes=((1,), (1,)))
            applied = jnp.concatenate([applied, more])
        masses = applied

    def rescaled(a: int, nodes: Array, points: Array) -> Array:
        return jnp.exp(bounds[a] * (jnp.abs(nodes) - jnp.abs(points)[:, None]))

    return gather(query_axes, offsets, masses, rescaled)


def exponential_sums(
    grid: Grid,
    queries: Boxed,
    keys: Boxed,
    columns: Float[Array, "n c"],
    of_keys: bool = False,
    needed: Int[Array, ""] | None = None,
) -> tuple[Float[Array, "m sums"], Float[Array, " m"]]:
    r"""$\sum_je^{\xi_i\cdot\eta_j}c_j$ as sums and log-scales: the sum is the first times $e$ to the second.

    If `of_keys`, there is one column, and the sums of $e^{\xi_i\cdot\eta_j}c_j\eta_j$ come next, from one spreading.
    Of the columns only the first may be `needed`.
    """
    key_axes, query_axes = keys.axes(grid), queries.axes(grid)
    matrices, bounds = kernels(query_axes, key_axes)

    eta, xi, back = keys.offsets, queries.offsets, None
    if len(key_axes) == LARGEST_DIMENSION:  # the grid is larger than the cache: tokens go through it in order
        by_key, by_query = _along_cells(key_axes, eta), _along_cells(query_axes, xi)
        eta, columns, xi, back = eta[by_key], columns[by_key], xi[by_query], jnp.argsort(by_query)

    def applied(columns: Float[Array, "n c"]) -> Float[Array, "m sums"]:
        masses = spread(key_axes, eta, columns, needed)
        return read_off(query_axes, matrices, bounds, masses, xi, key_axes if of_keys else None)

    if columns.shape[1] <= SHARED_COLUMNS:
        sums = applied(columns)
    else:
        sums = jax.lax.map(lambda column: applied(column[:, None])[:, 0], columns.T).T
    return sums if back is None else sums[back], jnp.abs(queries.offsets) @ jnp.stack(bounds)


def _along_cells(axes: tuple[Axis, ...], points: Float[Array, "m k"]) -> Int[Array, " m"]:
    """An order of the points by blocks of 8 cells."""
    code = jnp.zeros(points.shape[0], jnp.int32)
    for a, axis in enumerate(axes):
        code = code * (axis.grid.nodes // 8 + 1) + axis.locate(points[:, a])[0] // 8
    return jnp.argsort(code)


def grid_average(
    grid: Grid,
    queries: Float[Array, "m k"],
    keys: Float[Array, "n k"],
    log_weights: Float[Array, " n"],
    values: Float[Array, "n v"] | None,
    counts: Bool[Array, " m"] | None = None,
    needed: Int[Array, ""] | None = None,
) -> tuple[Float[Array, "m v"], Float[Array, " m"], Scalar]:
    r"""The means with weights $e^{q_i\cdot y_j+\ell_j}$, their log-sums, and the ranges that the grid must
    cover relative to what it covers: up to 1 all is well.

    Queries that do not `count` need not lie in the box; what they get means nothing. Without `values` the keys are
    averaged, which takes one column of masses. Only the means of the first columns may be `needed`.
    """
    present = jnp.isfinite(log_weights)
    q = Boxed(queries, jnp.ones(queries.shape[0], bool) if counts is None else counts)
    y = Boxed(keys, present)
    tilted = jnp.where(present, log_weights + y.offsets @ q.centre, -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(tilted))
    top = jnp.where(jnp.isfinite(top), top, 0)
    weights = jnp.exp(tilted - top)
    total = weights.sum()
    # Errors are relative to the values: around their mean they are smallest.
    if values is None:
        middle, columns = y.centre, weights[:, None]
    else:
        middle = jax.lax.stop_gradient(weights @ values / jnp.where(total > 0, total, 1))
        columns = jnp.concatenate([weights[:, None], weights[:, None] * (values - middle[None])], axis=1)
    # Many columns go one by one, all of them; the first one is the denominator.
    first = None if needed is None or columns.shape[1] > SHARED_COLUMNS else needed + 1
    sums, scales = exponential_sums(grid, q, y, columns, values is None, first)
    some = sums[:, 0] > 0
    safe = jnp.where(some, sums[:, 0], 1)
    means = jnp.where(some[:, None], middle[None] + sums[:, 1:] / safe[:, None], 0)
    logs = jnp.where(some, jnp.log(safe) + scales + top + queries @ y.centre, -jnp.inf)
    # Weights that are no numbers have no sums.
    used = jnp.where(jnp.isnan(log_weights).any(), jnp.inf, grid_usage(grid, q, y))
    return means, logs, used


def grid_usage(grid: Grid, queries: Boxed, keys: Boxed) -> Scalar:
    """The ranges of the logits relative to what the grid and the floating-point numbers cover."""
    ranges = queries.half * keys.half
    return jnp.maximum(ranges.max() / grid.largest_range, ranges.sum() / range_limit(ranges.dtype))

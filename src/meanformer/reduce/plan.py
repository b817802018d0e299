"""Which sums over tokens are cheapest at an accuracy: the planner. It runs on the host, on known numbers.

The choice is made from bounds that hold for every cloud (`Grid.bound`, `prune.seen_blocks`), not from samples; times are
guessed from the constants below, which only have to be right in proportion.
"""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .exact import dot
from .grid import LARGEST_DIMENSION, Grid, range_limit, reach_for
from .nodes import sigmoid_reach
from .prune import seen_share
from .sums import AbstractSums, Exact, Fast, Logit

# Seconds: for a pair of the exact sums, for a token and an interpolation weight, for a multiplication of a matrix product.
PAIR, WEIGHT, PRODUCT = 1.6e-9, 1.0e-9, 4e-11
ORDERS = (4, 6, 8, 10, 12)
FAR = (0, 64, 1024)
# A grid may take this much memory.
GRID_BYTES = 2**30
# Tokens in a block of positions of masked sums.
PREFIX_BLOCK = 1024


class Asked(NamedTuple):
    """One of the sums that a field needs: features with their logit, the log-weights, the number of columns of values."""

    logit: Logit
    queries: np.ndarray
    keys: np.ndarray
    logs: np.ndarray
    columns: int
    masked: bool
    averages: bool


class Choice(NamedTuple):
    """Sums, the seconds that they are expected to take, the bytes that they need, and what they are, in words."""

    sums: AbstractSums
    seconds: float
    bytes: float
    words: str


def _halves(points: np.ndarray, counts: np.ndarray, number: int) -> np.ndarray:
    """The half-widths of the box without the `number` outermost points, as `sums.outermost` has them."""
    points = points[counts]
    if number >= points.shape[0]:
        return np.zeros(points.shape[1])
    if number:
        spread = points.std(axis=0)
        distance = np.max(np.abs(points - points.mean(axis=0)) / np.where(spread > 0, spread, 1), axis=1)
        points = points[np.argpartition(distance, points.shape[0] - number - 1)[: points.shape[0] - number]]
    return (points.max(axis=0) - points.min(axis=0)) / 2


def _rounded_up(cells: float) -> int:
    """One of few sizes (8, 12, 16, 24, ...), so that few programs are compiled."""
    power = 2 ** int(np.floor(np.log2(max(cells, 8))))
    return int(next(size for size in (power, 3 * power // 2, 2 * power) if size >= cells))


def _as_dot(asked: Asked) -> np.ndarray:
    """The queries for which the logit is a dot product, up to terms in one variable."""
    return asked.queries if asked.logit is dot else 2 * asked.queries


def choose(asked: list[Asked], accuracy: float, margin: float, exact_only: bool = False) -> Choice:
    """The cheapest sums that have the accuracy; one choice for all sums of a field.

    `margin` is the factor by which ranges may grow before the choice is made again.
    """
    pairs = [a.queries.shape[0] * a.keys.shape[0] * (0.5 if a.masked else 1) for a in asked]
    exact = Choice(Exact(), PAIR * sum(pairs), 0.0, "exact sums")
    eligible = [a.queries.shape[1] <= LARGEST_DIMENSION for a in asked]
    if exact_only or not any(eligible):
        return exact
    rest = sum(p for p, e in zip(pairs, eligible, strict=True) if not e) * PAIR
    averages = [a for a, e in zip(asked, eligible, strict=True) if e and a.averages]
    sums = [a for a, e in zip(asked, eligible, strict=True) if e and not a.averages and not a.masked]
    left_over = PAIR * sum(p for p, a in zip(pairs, asked, strict=True) if not a.averages and a.masked)
    nodes = _nodes(sums, accuracy, margin) if sums else None
    nodes_grid, nodes_seconds, nodes_bytes = nodes or (
        None,
        PAIR * sum(a.queries.shape[0] * a.keys.shape[0] for a in sums),
        0.0,
    )
    nodes_words = "" if nodes_grid is None else f"sums from grid to grid of {nodes_grid.cells} cells per axis"
    options = [exact]
    common = rest + nodes_seconds + left_over
    if averages:
        for grid, far, seconds, size in _grids(averages, accuracy, margin):
            prefix = PREFIX_BLOCK if any(a.masked for a in averages) else 0
            words = _grid_words(grid, averages[0].queries.shape[1], far)
            fast = Fast(grid, nodes_grid, far, far, accuracy / 4, prefix)
            options.append(
                Choice(fast, seconds + common, size + nodes_bytes, words + "; " * bool(nodes_words) + nodes_words)
            )
        cheap = min(options, key=lambda option: option.seconds)
        if not any(a.masked for a in averages) and cheap.seconds > 2:
            options += _pruned(averages, nodes_grid, accuracy, margin, common)
    elif nodes_grid is not None:
        options.append(Choice(Fast(None, nodes_grid, 0, 0, accuracy / 4, 0), common, nodes_bytes, nodes_words))
    return min(options, key=lambda option: option.seconds)


def _grid_words(grid: Grid, k: int, far: int) -> str:
    words = f"a grid of {' x '.join([str(grid.cells)] * k)} cells, order {grid.order}"
    return words + (f", the {far} outermost tokens exactly" if far else "")


def _dtype() -> np.dtype:
    return jax.dtypes.canonicalize_dtype(float)


def _grids(asked: list[Asked], accuracy: float, margin: float) -> list[tuple[Grid, int, float, float]]:
    """Grids that cover the ranges of all sums, with the far tokens left out, seconds and bytes."""
    found = []
    for far in FAR if not any(a.masked for a in asked) else FAR[:1]:
        widest, seconds_far = 0.0, 0.0
        legal = True
        for a in asked:
            present = np.isfinite(a.logs)
            everything = np.ones(a.queries.shape[0], bool)
            ranges = margin * _halves(_as_dot(a), everything, far) * _halves(a.keys, present, far)
            slack = 0.0
            if a.masked:
                slack = float(np.ptp(a.logs[present]) / 2)
            legal = legal and np.isfinite(ranges).all() and ranges.sum() + slack <= range_limit(_dtype())
            widest = max(widest, float(ranges.max()))
            seconds_far += far * (a.queries.shape[0] + a.keys.shape[0]) * PAIR
        if not legal:
            continue
        for order in ORDERS:
            k = max(a.queries.shape[1] for a in asked)
            reach = reach_for(order, k, accuracy / 2)
            cells = _rounded_up(max(2 * widest / reach + order - 2, 8))
            grid = Grid(cells, order, reach)
            seconds, size = seconds_far, 0.0
            for a in asked:
                k, n, m = a.queries.shape[1], a.keys.shape[0], a.queries.shape[0]
                times = max(1, -(-n // PREFIX_BLOCK)) if a.masked else 1
                seconds += (n + m) * a.columns * order**k * WEIGHT
                seconds += times * k * a.columns * float(grid.nodes) ** (k + 1) * PRODUCT
                seconds += n * PREFIX_BLOCK * PAIR if a.masked else 0.0
                size = max(size, 3.0 * 8 * min(a.columns, 4) * float(grid.nodes) ** k)
            if size <= GRID_BYTES:
                found.append((grid, far, seconds, size))
    return found


def _nodes(asked: list[Asked], accuracy: float, margin: float) -> tuple[Grid, float, float] | None:
    """The cheapest grid for sums of a smooth function, if it is cheaper than exact sums."""
    found = []
    for order in ORDERS:
        step = 0.0
        for a in asked:
            present = np.isfinite(a.logs)
            q, y = a.queries, a.keys[present]
            half_q, half_y = np.ptp(q, axis=0) / 2, np.ptp(y, axis=0) / 2
            largest_q, largest_y = np.abs(q).max(axis=0) + half_q, np.abs(y).max(axis=0) + half_y
            step = max(step, margin * 2 * float(max((largest_q * half_y).max(), (largest_y * half_q).max())))
        k = max(a.queries.shape[1] for a in asked)
        reach = sigmoid_reach(order, k, accuracy / 4)
        cells = _rounded_up(max(step / reach + order, 8))
        grid = Grid(cells, order, reach, False)
        seconds = 0.0
        for a in asked:
            k, n, m = a.queries.shape[1], a.keys.shape[0], a.queries.shape[0]
            seconds += (n + m) * a.columns * order**k * WEIGHT + float(grid.nodes) ** (2 * k) * PAIR
        found.append((grid, seconds, 3.0 * 8 * max(a.columns for a in asked) * float(grid.nodes) ** k))
    best = min(found, key=lambda option: option[1])
    exact = PAIR * sum(a.queries.shape[0] * a.keys.shape[0] for a in asked)
    return best if best[1] < exact and best[2] < GRID_BYTES else None


def _pruned(asked: list[Asked], nodes: Grid | None, accuracy: float, margin: float, common: float) -> list[Choice]:
    """Exact sums over the blocks of tokens that count; and the same with the innermost queries on a grid."""
    tolerance = accuracy / 4
    shares = [float(seen_share(a.logit, a.queries, a.keys, a.logs, tolerance)) for a in asked]
    pairs = [a.queries.shape[0] * a.keys.shape[0] for a in asked]
    order = sum(3e-7 * (a.queries.shape[0] + a.keys.shape[0]) * 3 for a in asked)
    seconds = 1.5 * PAIR * sum(s * p for s, p in zip(shares, pairs, strict=True)) + order + common
    found = [
        Choice(Fast(None, nodes, 0, 0, tolerance, 0), seconds, 0.0, f"exact sums over {max(shares):.2g} of the blocks")
    ]
    for inside in (0.5, 0.25, 0.1, 0.05, 0.02, 0.01):
        choice = _split(asked, nodes, accuracy, margin, common, inside)
        if choice is not None:
            found.append(choice)
            break
    return found


def _split(
    asked: list[Asked], nodes: Grid | None, accuracy: float, margin: float, common: float, inside: float
) -> Choice | None:
    """The innermost queries, a share `inside` of all, on a grid; the others over the blocks that count."""
    widest, seconds = 0.0, common
    n = asked[0].queries.shape[0]
    far = n - int(inside * n)
    for a in asked:
        q = _as_dot(a)
        ranges = margin * _halves(q, np.ones(len(q), bool), far) * _halves(a.keys, np.isfinite(a.logs), 0)
        if ranges.sum() > range_limit(_dtype()):
            return None
        widest = max(widest, float(ranges.max()))
        spread = q.std(axis=0)
        distance = np.max(np.abs(q - q.mean(axis=0)) / np.where(spread > 0, spread, 1), axis=1)
        outer = a.queries[np.argpartition(distance, n - far)[n - far :]]
        share = float(seen_share(a.logit, outer, a.keys, a.logs, accuracy / 4))
        seconds += 1.5 * PAIR * share * far * a.keys.shape[0] + 1e-6 * (n + a.keys.shape[0])
    k = max(a.queries.shape[1] for a in asked)
    best: Choice | None = None
    for order in ORDERS:
        reach = reach_for(order, k, accuracy / 2)
        grid = Grid(_rounded_up(max(2 * widest / reach + order - 2, 8)), order, reach)
        total, size = seconds, 0.0
        for a in asked:
            k = a.queries.shape[1]
            total += (n + a.keys.shape[0]) * a.columns * order**k * WEIGHT
            total += k * a.columns * float(grid.nodes) ** (k + 1) * PRODUCT
            size = max(size, 3.0 * 8 * min(a.columns, 4) * float(grid.nodes) ** k)
        if size <= GRID_BYTES and (best is None or total < best.seconds):
            words = f"{_grid_words(grid, k, 0)} for {inside:.0%} of the queries, exact sums over the blocks that count for others"
            best = Choice(Fast(grid, nodes, 0, far, accuracy / 4, 0), total, size, words)
    return best

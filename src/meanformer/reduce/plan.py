"""Which sums over tokens are cheapest at an accuracy: the planner. It runs on the host, on known numbers.

The choice is made from bounds that hold for every cloud (`Grid.bound`, `prune.seen_blocks`), not from samples; times
are guessed from the constants below, which only have to be right in proportion.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .exact import dot
from .grid import LARGEST_DIMENSION, Grid, range_limit, reach_for
from .nodes import sigmoid_reach
from .prune import seen_share
from .sums import AbstractSums, Exact, Fast, Logit

# Seconds: for a pair of exact sums, for a token and an interpolation weight, for a multiplication in a matrix product.
PAIR, WEIGHT, PRODUCT = 0.8e-9, 1.1e-9, 1e-10
# Seconds for a sum over a grid, however few tokens there are.
FIXED = 1e-2
# Seconds for a token and a coordinate, besides: to find its cell and the weights.
LOCATE = 3e-8
ORDERS = (4, 6, 8, 10, 12)
FAR = (0, 64, 1024)
# A grid may take this much memory.
GRID_BYTES = 2**30
# Clusters of tokens, each with its own box, at the most.
MOST_GROUPS = 8
# Seconds, and seconds for each token, from which on other ways than one grid are thought about.
WORTH_A_THOUGHT, FOR_A_TOKEN = 0.5, 1e-5
# Tokens in a block of positions of masked sums.
PREFIX_BLOCK = 1024


class Asked(NamedTuple):
    """One of the sums that a field needs: features with their logit, log-weights, the number of columns of values, and
    whether these are linear functions of the keys.
    """

    logit: Logit
    queries: np.ndarray
    keys: np.ndarray
    logs: np.ndarray
    columns: int
    masked: bool
    averages: bool
    of_keys: bool


class Choice(NamedTuple):
    """Sums, the seconds that they are expected to take, the bytes that they need, and what they are, in words."""

    sums: AbstractSums
    seconds: float
    bytes: float
    words: str


def _inner(points: np.ndarray, counts: np.ndarray, number: int) -> np.ndarray:
    """Which points count and are not among the `number` outermost ones, as `sums.outermost` has them."""
    if number == 0:
        return counts
    rows = np.flatnonzero(counts)
    seen = points[rows]
    spread = seen.std(axis=0)
    distance = np.max(np.abs(seen - seen.mean(axis=0)) / np.where(spread > 0, spread, 1), axis=1)
    inner = np.zeros_like(counts)
    if number < len(rows):
        inner[rows[np.argpartition(distance, len(rows) - number - 1)[: len(rows) - number]]] = True
    return inner


def clusters_apart(points: np.ndarray, most: int = MOST_GROUPS) -> np.ndarray | None:
    """Labels of clusters that gaps in the coordinates set apart; None if there is no wide gap, or too many.

    A cluster is cut at its widest gap, if that is wider than a quarter of its width, and most clusters are cut first.
    """
    labels = np.zeros(len(points), int)
    groups, done = [np.arange(len(points))], 0
    while done < len(groups) and len(groups) <= most:
        rows = groups[done]
        cuts = []
        for a in range(points.shape[1]):
            order = np.sort(points[rows, a])
            gaps = np.diff(order)
            if gaps.size and gaps.max() > 0.25 * (order[-1] - order[0]):
                place = int(gaps.argmax())
                cuts.append((gaps[place], a, (order[place] + order[place + 1]) / 2))
        if not cuts:
            done += 1
            continue
        _, a, cut = max(cuts)
        below = points[rows, a] < cut
        groups[done : done + 1] = [rows[below], rows[~below]]
    if not 1 < len(groups) <= most:
        return None
    for label, rows in enumerate(groups):
        labels[rows] = label
    return labels


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
    seconds = PAIR * sum(pairs)
    exact = Choice(Exact(), seconds, 0.0, f"exact sums, some {max(seconds, 0.001):.1g} s for each velocity")
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
    also = "; " * bool(nodes_words) + nodes_words
    masked = any(a.masked for a in averages)
    if averages:
        prefix = PREFIX_BLOCK if masked else 0
        k, of_keys = max(a.queries.shape[1] for a in averages), _of_keys(averages)

        def gridded(labels: np.ndarray | None) -> list[Choice]:
            groups = 1 if labels is None else int(labels.max() + 1)
            traced = None if labels is None else jnp.asarray(labels)
            return [
                Choice(
                    Fast(grid, nodes_grid, far, far, accuracy / 4, prefix, traced, groups, of_keys and groups == 1),
                    seconds + common,
                    size + nodes_bytes,
                    _grid_words(grid, k, far, groups) + also,
                )
                for grid, far, seconds, size in _grids(averages, accuracy, margin, labels)
            ]

        thought = WORTH_A_THOUGHT + FOR_A_TOKEN * sum(a.queries.shape[0] for a in averages)
        options += gridded(None)
        if not masked and _best(options).seconds > thought:
            labels = clusters_apart(averages[0].keys)
            options += [] if labels is None else gridded(labels)
        if not masked and _best(options).seconds > thought:
            options += _pruned(averages, nodes_grid, accuracy, margin, common)
    elif nodes_grid is not None:
        options.append(Choice(Fast(None, nodes_grid, 0, 0, accuracy / 4, 0), common, nodes_bytes, nodes_words))
    return _best(options)


def _of_keys(asked: list[Asked]) -> bool:
    """Whether values are averages of keys, where that pays: in three dimensions columns are dear."""
    dear = [a for a in asked if a.queries.shape[1] == LARGEST_DIMENSION and not a.masked]
    return bool(dear) and all(a.of_keys for a in dear)


def _best(options: list[Choice]) -> Choice:
    return min(options, key=lambda option: option.seconds)


def _grid_words(grid: Grid, k: int, far: int, groups: int = 1) -> str:
    words = f"a grid of {' x '.join([str(grid.cells)] * k)} cells, order {grid.order}"
    words += f" for each pair of {groups} clusters" if groups > 1 else ""
    return words + (f", the {far} outermost tokens exactly" if far else "")


def _dtype() -> np.dtype:
    return jax.dtypes.canonicalize_dtype(float)


class _Boxes(NamedTuple):
    """The boxes of one of the sums: half-widths of queries and keys, one row for each group of tokens."""

    queries: np.ndarray
    keys: np.ndarray

    @property
    def ranges(self) -> np.ndarray:
        """The ranges of the logits, for each pair of groups and each coordinate."""
        return self.queries[:, None] * self.keys[None]


def _boxes(a: Asked, far: int, labels: np.ndarray | None) -> _Boxes:
    q, present = _as_dot(a), np.isfinite(a.logs)
    inside, core = _inner(q, np.ones(len(q), bool), far), _inner(a.keys, present, far)
    groups = [slice(None)] if labels is None else [labels == g for g in range(labels.max() + 1)]

    def halves(points: np.ndarray, counts: np.ndarray) -> np.ndarray:
        chosen = [points[group][counts[group]] for group in groups]
        return np.array([np.ptp(c, axis=0) / 2 if len(c) else np.zeros(points.shape[1]) for c in chosen])

    return _Boxes(halves(q, inside), halves(a.keys, core))


def _grids(
    asked: list[Asked], accuracy: float, margin: float, labels: np.ndarray | None
) -> list[tuple[Grid, int, float, float]]:
    """Grids that cover the ranges of all sums, with the far tokens left out, seconds and bytes."""
    found = []
    pairs = 1 if labels is None else int(labels.max() + 1) ** 2
    for far in FAR if not any(a.masked for a in asked) else FAR[:1]:
        widest, legal = 0.0, True
        for a in asked:
            ranges = margin * _boxes(a, far, labels).ranges
            slack = _prefix_slack(a) if a.masked else 0.0
            legal = legal and np.isfinite(ranges).all() and ranges.sum(axis=-1).max() + slack <= range_limit(_dtype())
            widest = max(widest, float(ranges.max()))
        if not legal:
            continue
        k = max(a.queries.shape[1] for a in asked)
        for order in ORDERS:
            # The coordinates of the keys, as factors, are interpolated too: their error is larger.
            grid = _grid_for(order, k, accuracy / (4 if _of_keys(asked) else 1), widest)
            seconds, size = _grid_cost(grid, asked)
            seconds = pairs * seconds + sum(far * (a.queries.shape[0] + a.keys.shape[0]) * PAIR for a in asked)
            if size <= GRID_BYTES:
                found.append((grid, far, seconds, size))
    return found


def _prefix_slack(a: Asked) -> float:
    """Half the range of the log-weights that `prefix.prefix_average` has, tilted by the centre of the queries."""
    q, present = _as_dot(a), np.isfinite(a.logs)
    logs = a.logs if a.logit is dot else a.logs - (a.keys**2).sum(axis=1)
    centre = (q.max(axis=0) + q.min(axis=0)) / 2
    return float(np.ptp((logs + a.keys @ centre)[present]) / 2)


def _grid_for(order: int, k: int, accuracy: float, widest: float) -> Grid:
    """The grid of an order that covers a range of logits."""
    reach = reach_for(order, k, accuracy / 2)
    return Grid(_rounded_up(max(2 * widest / reach + order - 2, 8.0)), order, reach)


def _grid_cost(grid: Grid, asked: list[Asked]) -> tuple[float, float]:
    """Seconds and bytes."""
    seconds, size = FIXED * len(asked), 0.0
    for a in asked:
        k, n, m = a.queries.shape[1], a.keys.shape[0], a.queries.shape[0]
        times = -(-n // PREFIX_BLOCK) if a.masked else 1
        columns = (1 if k == LARGEST_DIMENSION and _of_keys(asked) else a.columns) * n + a.columns * m
        seconds += columns * grid.order**k * WEIGHT + (columns * LOCATE + (n + m) * LOCATE) * k
        seconds += times * k * a.columns * float(grid.nodes) ** (k + 1) * PRODUCT
        seconds += n * PREFIX_BLOCK * PAIR if a.masked else 0.0
        size = max(size, 3.0 * 8 * min(a.columns, 4) * float(grid.nodes) ** k)
    return seconds, size


def _nodes(asked: list[Asked], accuracy: float, margin: float) -> tuple[Grid, float, float] | None:
    """The cheapest grid for sums of a smooth function, if it is cheaper than exact sums."""
    found = []
    for order in ORDERS:
        step = 0.0
        for a in asked:
            present = np.isfinite(a.logs)
            q, y = a.queries, a.keys[present]
            widths = np.ptp(q, axis=0), np.ptp(y, axis=0)
            changes = np.abs(q).max(axis=0) * widths[1], np.abs(y).max(axis=0) * widths[0]
            step = max(step, margin * float(np.max(changes)))
        k = max(a.queries.shape[1] for a in asked)
        reach = sigmoid_reach(order, k, accuracy / 4)
        cells = _rounded_up(max(step / reach + order, 8.0))
        grid = Grid(cells, order, reach, False)
        seconds = FIXED * len(asked)
        for a in asked:
            k, n, m = a.queries.shape[1], a.keys.shape[0], a.queries.shape[0]
            seconds += (n + m) * a.columns * order**k * WEIGHT + float(grid.nodes) ** (2 * k) * PAIR
        found.append((grid, seconds, 3.0 * 8 * max(a.columns for a in asked) * float(grid.nodes) ** k))
    best = min(found, key=lambda option: option[1])
    exact = PAIR * sum(a.queries.shape[0] * a.keys.shape[0] for a in asked)
    return best if best[1] < exact and best[2] < GRID_BYTES else None


def _share(a: Asked, queries: np.ndarray, tolerance: float) -> float:
    """The share of the blocks that count for some queries."""
    q, y, logs = (jnp.asarray(array) for array in (queries, a.keys, a.logs))
    return float(seen_share(a.logit, q, y, logs, tolerance))


def _pruned(asked: list[Asked], nodes: Grid | None, accuracy: float, margin: float, common: float) -> list[Choice]:
    """Exact sums over the blocks of tokens that count; and the same with the innermost queries on a grid."""
    tolerance = accuracy / 4
    shares = [_share(a, a.queries, tolerance) for a in asked]
    pairs = [a.queries.shape[0] * a.keys.shape[0] for a in asked]
    order = sum(3e-7 * (a.queries.shape[0] + a.keys.shape[0]) * 3 for a in asked)
    seconds = 1.5 * PAIR * sum(s * p for s, p in zip(shares, pairs, strict=True)) + order + common
    found = [
        Choice(Fast(None, nodes, 0, 0, tolerance, 0), seconds, 0.0, f"exact sums over {max(shares):.2g} of the blocks")
    ]
    for inside in (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002):
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
        q, present = _as_dot(a), np.isfinite(a.logs)
        inner = _inner(q, np.ones(n, bool), far)
        ranges = margin * np.ptp(q[inner], axis=0) * np.ptp(a.keys[present], axis=0) / 4
        if ranges.sum() > range_limit(_dtype()):
            return None
        widest = max(widest, float(ranges.max()))
        share = _share(a, a.queries[~inner], accuracy / 4)
        seconds += 1.5 * PAIR * share * far * a.keys.shape[0] + 1e-6 * (n + a.keys.shape[0])
    k = max(a.queries.shape[1] for a in asked)
    found = []
    for order in ORDERS:
        grid = _grid_for(order, k, accuracy, widest)
        more, size = _grid_cost(grid, asked)
        words = f"{_grid_words(grid, k, 0)}, for {inside:.1%} of the queries; exact sums over blocks for the others"
        if size <= GRID_BYTES:
            found.append(Choice(Fast(grid, nodes, 0, far, accuracy / 4, 0), seconds + more, size, words))
    return _best(found) if found else None

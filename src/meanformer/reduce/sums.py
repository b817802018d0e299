"""How the sums over tokens are done: exactly, or up to an accuracy.

A field asks for `average` (normalised kinds) or `summed` (sigmoid); which `AbstractSums` answers is part of the view.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar, cast
from .._warm import Module
from .exact import Average, Sum, Tokens, dot, fold_tokens, log_weights, minus_squared_distance
from .grid import LARGEST_DIMENSION, Boxed, Grid, grid_average, grid_usage
from .nodes import node_sum, node_usage
from .prefix import Prefixes, prefix_average
from .prune import pruned_average

Logit = Callable[[Array, Array], Array]
Averages = tuple[Float[Array, "m v"], Float[Array, " m"]]

# The log-weight of a token without weight that is to lie inside the boxes: it vanishes beside any other.
WEIGHTLESS = -1e6
# More far queries than this are folded in blocks of which most are skipped; fewer are not worth an order.
FEW = 2048


def _wide() -> Any:
    """The widest floating dtype."""
    return jax.dtypes.canonicalize_dtype(float)


class AbstractSums(Module):
    """How sums over tokens are done."""

    @abc.abstractmethod
    def average(
        self,
        logit: Logit,
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
        needed: Int[Array, ""] | None = None,
    ) -> Averages:
        r"""Means with weights $e^{c(q_i,y_j)+\ell_j}$ and their log-sums; `tokens` has log-weights.

        Only the means of the first so many columns of values are `needed`, if it is given: the others may be anything.
        """

    @abc.abstractmethod
    def summed(
        self,
        function: Callable[[Array], Array],
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
    ) -> Float[Array, "m v"]:
        r"""$\sum_jw_j\varphi(q_i\cdot y_j)v_j$; `tokens` has weights."""

    @property
    def gridded(self) -> bool:
        """Whether most of the work is on grids."""
        return False

    @property
    def mixes_keys(self) -> bool:
        """Whether keys are averaged instead of values that are functions of them."""
        return False

    def log_weights(self, weights: Float[Array, " n"]) -> Float[Array, " n"]:
        """The log-weights of tokens that are both asked and asking, as in a Sinkhorn problem."""
        return log_weights(weights)


class Exact(AbstractSums):
    """Every pair of query and token, in blocks."""

    def average(
        self,
        logit: Logit,
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
        needed: Int[Array, ""] | None = None,
    ) -> Averages:
        return fold_tokens(Average(), logit, queries, tokens, positions, needed=needed)

    def summed(
        self,
        function: Callable[[Array], Array],
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
    ) -> Float[Array, "m v"]:
        return fold_tokens(Sum(function), dot, queries, tokens, positions)


class Fast(AbstractSums):
    r"""Sums up to a relative error, for keys of dimension 1, 2 and 3; others are exact.

    - `grid`: the grid for sums of exponentials; None if all queries are far;
    - `nodes`: the grid for `summed`; None if these are exact;
    - `far_keys`, `far_queries`: how many of the outermost are kept out of the grid and summed exactly;
    - `tolerance`: the share of a sum that may be left out where blocks of tokens are skipped;
    - `prefix`: tokens in a block of positions, for masked sums; 0 if these are exact;
    - `labels`, `groups`: clusters of tokens that are far apart, each with its own box: the grid is laid over each pair
      of them. None and 1 if there is one box;
    - `of_keys`: values are linear functions of the keys, which are averaged in their place.

    What a grid cannot resolve is NaN, never a wrong number.
    """

    grid: Grid | None
    nodes: Grid | None
    far_keys: int = eqx.field(static=True)
    far_queries: int = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    prefix: int = eqx.field(static=True)
    labels: Int[Array, " n"] | None = None
    groups: int = eqx.field(static=True, default=1)
    of_keys: bool = eqx.field(static=True, default=False)

    @property
    def gridded(self) -> bool:
        return self.grid is not None or self.nodes is not None

    @property
    def mixes_keys(self) -> bool:
        return self.of_keys

    def log_weights(self, weights: Float[Array, " n"]) -> Float[Array, " n"]:
        # The two halves of a Sinkhorn problem are one matrix only on the same boxes: those of all tokens.
        return jnp.maximum(log_weights(weights), WEIGHTLESS)

    def average(
        self,
        logit: Logit,
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
        needed: Int[Array, ""] | None = None,
    ) -> Averages:
        if queries.shape[1] > LARGEST_DIMENSION or logit not in (dot, minus_squared_distance):
            return Exact().average(logit, queries, tokens, positions)
        if queries.dtype != _wide():  # the floating-point range is what limits a grid
            wide = cast((queries, tokens, positions), _wide())
            return cast(self.average(logit, *wide, needed), queries.dtype)
        if positions is not None:
            if not self.prefix or self.grid is None or positions.shape[0] != tokens.keys.shape[0]:
                return Exact().average(logit, queries, tokens, positions)
            q, y, logs = as_dot(logit, queries, tokens)
            mean, total, used = prefix_average(self.grid, self.prefix, logit, queries, tokens, positions, q, y, logs)
            return _or_nan(mean, total, used)
        if self.grid is None:
            return pruned_average(logit, queries, tokens, self.tolerance)[:2]
        return self._gridded(logit, queries, tokens, self.grid, needed)

    def _gridded(
        self, logit: Logit, queries: Float[Array, "m k"], tokens: Tokens, grid: Grid, needed: Array | None
    ) -> Averages:
        """The grid for what is inside, exact sums for what is far, and the two together."""
        q, y, logs = as_dot(logit, queries, tokens)
        core, far_keys = outermost(y, logs != -jnp.inf, min(self.far_keys, y.shape[0]))
        inside, far_queries = outermost(q, jnp.ones(q.shape[0], bool), min(self.far_queries, q.shape[0]))
        logs = jnp.where(core, logs, -jnp.inf)
        if self.labels is None:
            values = None if tokens.values is tokens.keys else tokens.values
            mean, total, used = grid_average(grid, q, y, logs, values, inside, needed)
        else:
            mean, total, used = self._grouped(grid, q, y, logs, tokens.values, inside)
        if logit is minus_squared_distance:
            total = total - jnp.sum(queries**2, axis=1)
        mean, total = _or_nan(mean, total, used)
        if self.far_keys:
            few = jax.tree.map(lambda a: a[far_keys], Tokens(tokens.keys, tokens.weights, tokens.values))
            mean, total = merged((mean, total), fold_tokens(Average(), logit, queries, few))
        if self.far_queries:
            if far_queries.shape[0] > FEW:
                exact = pruned_average(logit, queries[far_queries], tokens, self.tolerance)[:2]
            else:
                exact = fold_tokens(Average(), logit, queries[far_queries], tokens)
            mean, total = mean.at[far_queries].set(exact[0]), total.at[far_queries].set(exact[1])
        return mean, total

    def _grouped(
        self, grid: Grid, q: Array, y: Array, logs: Array, values: Array, inside: Array
    ) -> tuple[Array, Array, Array]:
        """The averages over all groups, for the queries of each group: one grid for each pair."""
        labels = self.labels
        assert labels is not None

        @jax.checkpoint
        def pair(carry: tuple[Averages, Array], groups: tuple[Array, Array]) -> tuple[tuple[Averages, Array], None]:
            so_far, used = carry
            asking, seen = labels == groups[0], labels == groups[1]
            mean, total, needed = grid_average(grid, q, y, jnp.where(seen, logs, -jnp.inf), values, asking & inside)
            both = merged(so_far, (mean, total))
            kept = jax.tree.map(
                lambda new, old: jnp.where(asking.reshape(-1, *(1,) * (new.ndim - 1)), new, old), both, so_far
            )
            return (kept, jnp.maximum(used, needed)), None

        nothing = jnp.zeros((q.shape[0], values.shape[1]), q.dtype), jnp.full(q.shape[0], -jnp.inf, q.dtype)
        numbers = jnp.arange(self.groups, dtype=labels.dtype)
        pairs = jnp.repeat(numbers, self.groups), jnp.tile(numbers, self.groups)
        (averages, used), _ = jax.lax.scan(pair, (nothing, jnp.zeros((), q.dtype)), pairs)
        return *averages, used

    def summed(
        self,
        function: Callable[[Array], Array],
        queries: Float[Array, "m k"],
        tokens: Tokens,
        positions: Float[Array, " m"] | None = None,
    ) -> Float[Array, "m v"]:
        # A last column of ones in the queries, which carries a bias, is no dimension of the grid.
        if self.nodes is None or positions is not None or queries.shape[1] > LARGEST_DIMENSION + 1:
            return Exact().summed(function, queries, tokens, positions)
        sums, used = node_sum(self.nodes, function, queries, tokens)
        return jnp.where(used <= 1, sums, jnp.nan)

    def usage(
        self,
        logit: Logit,
        queries: Float[Array, "m k"],
        keys: Float[Array, "n k"],
        weights: Float[Array, " n"],
        averages: bool,
        masked: bool,
    ) -> Scalar:
        """The ranges of logits relative to what the grid resolves (see `average` and `summed`); 0 without one."""
        grid = self.grid if averages else self.nodes
        exact = masked and not (averages and self.prefix)
        if grid is None or exact or queries.shape[1] > LARGEST_DIMENSION:
            return jnp.zeros((), queries.dtype)
        if queries.dtype != _wide():
            wide = cast((queries, keys, weights), _wide())
            return self.usage(logit, *wide, averages, masked).astype(queries.dtype)
        if masked:
            q, y, logs = as_dot(logit, queries, Tokens(keys, log_weights(weights), keys))
            return Prefixes(q, y, logs).usage(grid)
        if not averages:
            y, q = Boxed(keys, weights > 0), Boxed(queries, jnp.ones(queries.shape[0], bool))
            return node_usage(grid, q, y)
        q = queries if logit is dot else 2 * queries
        core, _ = outermost(keys, weights > 0, min(self.far_keys, keys.shape[0]))
        inside, _ = outermost(q, jnp.ones(q.shape[0], bool), min(self.far_queries, q.shape[0]))
        if self.labels is None:
            return grid_usage(grid, Boxed(q, inside), Boxed(keys, core))
        groups = [
            (Boxed(q, inside & (self.labels == g)), Boxed(keys, core & (self.labels == g))) for g in range(self.groups)
        ]
        return jnp.stack([grid_usage(grid, a, b) for a, _ in groups for _, b in groups]).max()


def as_dot(logit: Logit, queries: Array, tokens: Tokens) -> tuple[Array, Array, Array]:
    r"""Queries, keys and log-weights with logit $q\cdot y$; of $-|q-y|^2$ the part $-|q|^2$ is left out."""
    if logit is dot:
        return queries, tokens.keys, tokens.weights
    return 2 * queries, tokens.keys, tokens.weights - jnp.sum(tokens.keys**2, axis=1)


def _or_nan(mean: Array, total: Array, used: Array) -> Averages:
    return jnp.where(used <= 1, mean, jnp.nan), jnp.where(used <= 1, total, jnp.nan)


def merged(a: Averages, b: Averages) -> Averages:
    """The averages over two sets of tokens as averages over both."""
    total = jnp.logaddexp(a[1], b[1])
    safe = jnp.where(jnp.isfinite(total), total, 0)
    shares = (jnp.exp(part[1] - safe)[:, None] for part in (a, b))
    mean = sum(share * part[0] for share, part in zip(shares, (a, b), strict=True))
    return mean, total  # pyright: ignore[reportReturnType]


def outermost(
    points: Float[Array, "m k"], counts: Bool[Array, " m"], number: int
) -> tuple[Bool[Array, " m"], Int[Array, " far"]]:
    """Which points are not among the `number` farthest from the middle, and which these are."""
    if number == 0:
        return counts, jnp.zeros(0, int)
    points = jax.lax.stop_gradient(points)
    share = counts.astype(points.dtype) / jnp.maximum(counts.sum(), 1).astype(points.dtype)
    middle = share @ points
    spread = jnp.sqrt(share @ (points - middle[None]) ** 2)
    distance = jnp.max(jnp.abs(points - middle[None]) / jnp.where(spread > 0, spread, 1)[None], axis=1)
    _, far = jax.lax.top_k(jnp.where(counts, distance, -1), number)
    return counts.at[far].set(False), far

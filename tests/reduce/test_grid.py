"""Sums of exponentials through grids: within their a priori bound of dense sums, for every cloud, or NaN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import BarycentricInterpolator
from scipy.special import logsumexp

from meanformer.reduce import interpolate
from meanformer.reduce.exact import Tokens, dot, minus_squared_distance
from meanformer.reduce.grid import Grid, range_limit, reach_for
from meanformer.reduce.sums import Fast, merged, outermost

N = 300
# Exponents are differences of numbers up to the range of the logits, in float64.
ROUNDING = 2.0**-50


# Interpolation on a line


def exponentials(order, a, u):
    """$e^{a(x_l-u)}$, shape (a, l, u)."""
    nodes = np.arange(order) - (order - 1) / 2
    return np.exp(a[:, None, None] * (nodes[None, :, None] - u[None, None, :]))


def phi(order, reach, u):
    return np.polynomial.polynomial.polyval(u, interpolate.weights(order, reach))


@pytest.mark.parametrize(("order", "reach"), [(4, 0.3), (6, 1.0), (8, 0.6), (12, 1.1)])
def test_weights_are_exact_at_chebyshev_exponents(order, reach):
    u = np.random.default_rng(0).uniform(-0.5, 0.5, 50)
    a = reach * np.cos((np.arange(order) + 0.5) / order * np.pi)
    read = np.einsum("lu,alu->au", phi(order, reach, u), exponentials(order, a, u))
    np.testing.assert_allclose(read, 1, rtol=0, atol=1e-13)
    # Between these points of the band, the bound is what is really there; the maximum over a mesh is not much below.
    fine_u, fine_a = np.linspace(-0.5, 0.5, 401), np.linspace(-reach, reach, 1501)
    read = np.einsum("lu,alu->au", phi(order, reach, fine_u), exponentials(order, fine_a, fine_u))
    worst, told = np.abs(read - 1).max(), interpolate.error(order, reach)
    assert told <= worst + 1e-15 and worst <= 1.01 * told + 1e-15
    # Constants are exponentials like others: their weights sum to one up to the same error.
    assert np.abs(phi(order, reach, fine_u).sum(axis=0) - 1).max() <= 1.01 * told


@pytest.mark.parametrize("order", [4, 6, 10])
def test_reach_zero_is_lagrange(order):
    u = np.linspace(-0.5, 0.5, 7)
    nodes = np.arange(order) - (order - 1) / 2
    want = np.stack([BarycentricInterpolator(nodes, row)(u) for row in np.eye(order)])
    np.testing.assert_allclose(phi(order, 0.0, u), want, rtol=0, atol=1e-13)
    got = interpolate.evaluated(interpolate.weights(order, 0.0), jnp.asarray(u))
    np.testing.assert_allclose(got.T, want, rtol=0, atol=1e-13)


def test_reach_is_the_largest_at_a_tolerance():
    for order in (4, 8):
        reaches = [interpolate.reach_of(order, tolerance) for tolerance in (1e-9, 1e-6, 1e-3)]
        assert reaches == sorted(reaches)
    assert interpolate.reach_of(8, 1e-6) > interpolate.reach_of(6, 1e-6) > interpolate.reach_of(4, 1e-6)
    reach = interpolate.reach_of(6, 1e-6)
    assert interpolate.error(6, reach) <= 1e-6 < interpolate.error(6, 1.03 * reach)
    for k in (1, 2, 3):
        assert Grid(8, 6, reach_for(6, k, 1e-6)).bound(k) <= 1e-6 < Grid(8, 6, 1.2 * reach_for(6, k, 1e-6)).bound(k)
    # Weights made for exponentials reach farther than Lagrange's.
    u, a = np.linspace(-0.5, 0.5, 65), np.asarray([-reach, reach])
    assert np.abs(np.einsum("lu,alu->au", phi(6, 0.0, u), exponentials(6, a, u)) - 1).max() > 5e-6


# Averages over tokens


@eqx.filter_jit
def averaged(sums, logit, queries, keys, logs, values, positions=None):
    return sums.average(logit, queries, Tokens(keys, logs, values, positions), positions)


@eqx.filter_jit
def usage_of(sums, logit, queries, keys, weights):
    return sums.usage(logit, queries, keys, weights, averages=True, masked=False)


def logs_of(weights):
    with np.errstate(divide="ignore"):
        return np.log(weights)


def logits(logit, q, y):
    return q @ y.T if logit is dot else -((q[:, None] - y[None]) ** 2).sum(-1)


def dense(logit, q, y, logs, values):
    """Weights of all pairs that sum to one, means and log-sums, in extended precision."""
    q, y, logs, values = (np.asarray(a, np.longdouble) for a in (q, y, logs, values))
    C = logits(logit, q, y) + logs[None]
    total = logsumexp(C, axis=1)
    p = np.exp(C - total[:, None])
    return p, p @ values, total


def check(logit, grid, cloud, got=None):
    """The averages of the cloud on the grid are as near to dense ones as the bound of the grid says.

    The numerator is around a middle m of the values: its error is at most $B\\,E|v-m|$, that of the denominator $B$.
    Returns the error of the sums, relative to the bound.
    """
    q, y, weights, values = cloud
    sums = Fast(grid, None, 0, 0, 1e-9, 0)
    arrays = (*map(jnp.asarray, (q, y)), jnp.asarray(logs_of(weights)), jnp.asarray(values))
    mean, total = (np.asarray(a, np.longdouble) for a in (averaged(sums, logit, *arrays) if got is None else got))
    p, want, want_total = dense(logit, q, y, logs_of(weights), values)
    B = grid.bound(q.shape[1])
    largest = np.abs(logits(logit, q, y)).max() + np.abs(q).max() ** 2 + np.abs(y).max() ** 2
    rounding = ROUNDING * (100 + float(largest))
    assert 100 * rounding < B, "the cloud tests rounding, not the grid"
    present = weights > 0
    middles = values[present].min(axis=0), values[present].max(axis=0)
    away = np.maximum(*(p @ np.abs(values - m) + np.abs(want - m) for m in middles))
    wide = np.abs(values).max(initial=1)
    assert (np.abs(mean - want) <= B / (1 - B) * away + rounding * wide).all()
    off = np.abs(np.expm1(total - want_total))
    assert (off <= B + rounding).all()
    return off.max() / B


def scaled(grid, q, y, usage=0.999, factor=1):
    """The cloud, scaled so that the grid is used up to `usage` (`factor` 2 for distances)."""
    ranges = factor * np.ptp(q, axis=0) * np.ptp(y, axis=0) / 4
    size = np.sqrt(usage * grid.largest_range / ranges.max())
    return size * q, size * y


def clouds(grid, k, seed=0, factor=1):
    """Clouds that are hard for a grid, one shape, that use it up; (queries, keys, weights, values)."""
    rng = np.random.default_rng(seed)
    equal = np.full(N, 1 / N)
    normal = scaled(grid, rng.normal(size=(N, k)), rng.normal(size=(N, k)), factor=factor)
    values = rng.normal(size=(N, 2))
    box = scaled(grid, rng.uniform(-1, 1, (N, k)), rng.uniform(-1, 1, (N, k)), factor=factor)
    corners = [rng.choice([-1.0, 1.0], (N, k)) for _ in range(2)]
    # Two atoms: almost all queries and keys in one corner, one in the opposite one.
    atoms = np.ones((N, k))
    atoms[0] = -1
    off_nodes = [np.concatenate([corners[0][: N // 2], rng.uniform(-1, 1, (N - N // 2, k))]) for _ in range(2)]
    heavy = np.full(N, 1e-9)
    heavy[7] = 1 - heavy.sum() + 1e-9
    spanning = 10.0 ** rng.uniform(-12, 0, N) * (np.arange(N) % 3 > 0)
    one = np.zeros(N)
    one[5] = 1.0
    flat = [np.where(np.arange(k) == k - 1, 0.7, a) if k > 1 else a for a in normal]
    fit = lambda pair: scaled(grid, *pair, factor=factor)  # noqa: E731
    return {
        "normal": (*normal, equal, values),
        "uniform": (*box, equal, values),
        "corners": (*fit(corners), equal, values),
        "corners and inside": (*fit(off_nodes), equal, values),
        "two atoms": (*fit((atoms, atoms)), equal, values),
        "one heavy token": (*normal, heavy, values),
        "weights 1e-12 to 1, and 0": (*normal, spanning / spanning.sum(), values),
        "one token of positive weight": (*normal, one, values),
        "one value is far": (*normal, equal, values + 1e6 * (np.arange(N) == 3)[:, None]),
        "all tokens equal": (np.full((N, k), 0.3), np.full((N, k), 0.3), equal, values),
        "a constant coordinate": (*flat, equal, values),
        "queries equal": (np.full((N, k), 0.3), normal[1], equal, values),
    }


GRIDS = {k: Grid(24, 6, reach_for(6, k, 1e-4)) for k in (1, 2, 3)}


@pytest.mark.parametrize("k", [1, 2, 3])
def test_error_is_below_the_bound_for_every_cloud(k):
    worst = {name: check(dot, GRIDS[k], cloud) for name, cloud in clouds(GRIDS[k], k).items()}
    # The bound is one: clouds that use the grid up come near it.
    assert max(worst.values()) > 0.05, worst


def test_error_is_below_the_bound_for_distances():
    for cloud in clouds(GRIDS[2], 2, 1, factor=2).values():
        check(minus_squared_distance, GRIDS[2], cloud)


def test_a_far_away_cloud_is_recentred():
    """Tokens at 1000: logits are large, their range is not."""
    for logit, factor in ((dot, 1), (minus_squared_distance, 2)):
        q, y, weights, values = clouds(GRIDS[2], 2, 1, factor)["normal"]
        moved = 1e3 * np.asarray([[1.0, -1.0]])
        check(logit, GRIDS[2], (q if logit is dot else q + moved, y + moved, weights, values))


def test_accuracy_is_relative_where_sums_span_hundreds():
    """Denominators from $e^{-3}$ to $e^{300}$, each with the same relative error."""
    grid = Grid(1024, 8, reach_for(8, 1, 1e-6))
    rng = np.random.default_rng(2)
    y = rng.uniform(-1, 1, (N, 1)) * 17.5
    q = rng.uniform(-1, 1, (N, 1)) * 17.5
    assert grid.largest_range > 17.5**2 and range_limit(np.dtype(float)) > 17.5**2
    weights = 10.0 ** rng.uniform(-12, 0, N)
    cloud = (q, y, weights / weights.sum(), np.exp(rng.normal(size=(N, 2))))
    _, _, total = dense(dot, q, y, logs_of(cloud[2]), cloud[3])
    assert np.ptp(total) > 250
    check(dot, grid, cloud)


def test_nan_exactly_where_the_grid_ends():
    """Up to its range the grid is right; beyond it there is no number."""
    q, y, weights, values = clouds(GRIDS[2], 2)["uniform"]
    sums = Fast(GRIDS[2], None, 0, 0, 1e-9, 0)
    for logit, factor in ((dot, 1), (minus_squared_distance, 2)):
        for usage in (0.998, 1.002):
            a, b = (jnp.asarray(x) for x in scaled(GRIDS[2], q, y, usage, factor))
            mean, total = averaged(sums, logit, a, b, jnp.asarray(logs_of(weights)), jnp.asarray(values))
            assert bool(jnp.isfinite(mean).all() & jnp.isfinite(total).all()) == (usage < 1)
            assert bool(jnp.isnan(mean).all() & jnp.isnan(total).all()) == (usage > 1)
            told = usage_of(sums, logit, a, b, jnp.asarray(weights))
            np.testing.assert_allclose(told, usage, rtol=1e-12)


def test_nan_where_floating_point_numbers_end():
    """A grid that resolves more than the numbers hold."""
    grid = Grid(2048, 6, reach_for(6, 1, 1e-3))
    limit = range_limit(np.dtype(float))
    assert grid.largest_range > 1.1 * limit
    ends = np.linspace(-1, 1, 50)[:, None]
    weights, values = np.full(50, 0.02), ends**2
    for usage in (0.99, 1.01):
        half = np.sqrt(usage * limit)
        arrays = map(jnp.asarray, (half * ends, half * ends, logs_of(weights), values))
        got = averaged(Fast(grid, None, 0, 0, 1e-9, 0), dot, *arrays)
        if usage < 1:
            check(dot, grid, (half * ends, half * ends, weights, values), got)
        assert bool(jnp.isnan(got[0]).all()) == (usage > 1)


def test_float32_is_computed_wide():
    """A range of logits for which float32 has no numbers."""
    grid = Grid(256, 6, reach_for(6, 1, 1e-4))
    q, y, weights, values = (np.asarray(a, "float32") for a in clouds(grid, 1)["uniform"])
    assert np.abs(q).max() * np.abs(y).max() > 2 * range_limit(np.dtype("float32"))
    arrays = [jnp.asarray(a) for a in (q, y, logs_of(weights), values)]
    got = averaged(Fast(grid, None, 0, 0, 1e-9, 0), dot, *arrays)
    assert all(a.dtype == jnp.float32 for a in got)
    _, want, total = dense(dot, q, y, logs_of(weights), values)
    atol = grid.bound(1) * 2 * np.ptp(values) + 1e-6
    np.testing.assert_allclose(got[0], want.astype(float), rtol=0, atol=atol)
    np.testing.assert_allclose(got[1], total.astype(float), rtol=1e-6, atol=2 * grid.bound(1))


def test_values_of_any_dimension():
    """Many columns go one by one, none is legal: the log-sums alone."""
    grid = GRIDS[1]
    q, y, weights, _ = clouds(grid, 1)["normal"]
    rng = np.random.default_rng(5)
    for width in (0, 5):
        check(dot, grid, (q, y, weights, rng.normal(size=(N, width))))


# Far tokens and groups


def test_far_tokens_are_summed_exactly():
    """Outliers in queries and keys, one of them heavy, that would take the grid to many times its range."""
    q, y, weights, values = clouds(GRIDS[2], 2)["normal"]
    rng = np.random.default_rng(3)
    q[[3, 50, 77]] *= 30
    y[[3, 9, 200]] = rng.normal(size=(3, 2)) * 40
    weights = np.where(np.arange(N) == 200, 0.5, weights)
    weights /= weights.sum()
    arrays = tuple(map(jnp.asarray, (q, y, logs_of(weights), values)))
    assert (np.ptp(q, axis=0) * np.ptp(y, axis=0) / 4).max() > 100 * GRIDS[2].largest_range
    got = averaged(Fast(GRIDS[2], None, 3, 3, 1e-9, 0), dot, *arrays)
    check(dot, GRIDS[2], (q, y, weights, values), got)
    # The far queries are exact.
    _, want, total = dense(dot, q, y, logs_of(weights), values)
    far = [3, 50, 77]
    np.testing.assert_allclose(got[0][jnp.asarray(far)], want[far].astype(float), rtol=0, atol=1e-12)
    np.testing.assert_allclose(got[1][jnp.asarray(far)], total[far].astype(float), rtol=1e-13)


def test_outermost():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 2)) * [1, 1e-3]
    points[4, 1] = 0.03  # far in the units of its own coordinate
    points[6, 0] = 1e9
    counts = np.arange(40) != 6
    core, far = jax.jit(outermost, static_argnums=2)(jnp.asarray(points), jnp.asarray(counts), 1)
    assert far.tolist() == [4] and core.sum() == 38 and not core[4] and not core[6]
    assert outermost(jnp.asarray(points), jnp.asarray(counts), 0)[1].shape == (0,)


def test_more_far_tokens_than_tokens_that_count():
    weights = np.where(np.arange(N) < 2, 0.5, 0.0)
    q, y, _, values = clouds(GRIDS[2], 2)["normal"]
    got = averaged(Fast(GRIDS[2], None, 3, 3, 1e-9, 0), dot, *map(jnp.asarray, (q, y, logs_of(weights), values)))
    check(dot, GRIDS[2], (q, y, weights, values), got)


def grouped_cloud(seed=4):
    """Three clusters far apart, one of them a single token."""
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(N) < 100, 0, 1)
    labels[7] = 2
    centres = np.asarray([[0.0, 0.0], [40.0, 10.0], [-30.0, 60.0]])
    y = centres[labels] + rng.normal(size=(N, 2)) * 0.7
    weights = rng.uniform(size=N) ** 4 * (np.arange(N) % 5 > 0)
    return labels, y, weights / weights.sum(), np.cos(y)


def test_groups_far_apart():
    """A box for each group: the grid is right where one box would be far too wide."""
    labels, y, weights, values = grouped_cloud()
    arrays = tuple(map(jnp.asarray, (y, y, logs_of(weights), values)))
    grid = Grid(32, 6, reach_for(6, 2, 1e-4))
    sums = Fast(grid, None, 0, 0, 1e-9, 0, jnp.asarray(labels), 3)
    assert 2 * (np.ptp(y, axis=0) ** 2 / 4).max() > 30 * grid.largest_range
    check(minus_squared_distance, grid, (y, y, weights, values), averaged(sums, minus_squared_distance, *arrays))
    # The range that is used is that of the widest pair of groups.
    halves = [[np.ptp(y[(labels == g) & some], axis=0) / 2 for g in range(3)] for some in (labels > -1, weights > 0)]
    ranges = max((2 * a * b).max() for a in halves[0] for b in halves[1])
    used = usage_of(sums, minus_squared_distance, *arrays[:2], jnp.asarray(weights))
    np.testing.assert_allclose(used, ranges / grid.largest_range, rtol=1e-12)


def test_merged_averages():
    """Two parts, and parts in which nothing is seen."""
    rng = np.random.default_rng(0)
    C, values = rng.normal(size=(4, 9)) * 30, rng.normal(size=(9, 2))
    C[1, :5] = C[2, 5:] = C[3] = -np.inf
    parts = []
    for columns in (slice(5), slice(5, 9)):
        with np.errstate(invalid="ignore"):
            total = logsumexp(C[:, columns], axis=1)
            mean = np.nan_to_num(np.exp(C[:, columns] - total[:, None])) @ values[columns]
        parts.append((jnp.asarray(mean), jnp.asarray(total)))
    mean, total = jax.jit(merged)(*parts)
    want = logsumexp(C[:3], axis=1)
    np.testing.assert_allclose(total[:3], want, rtol=1e-14)
    np.testing.assert_allclose(mean[:3], np.exp(C[:3] - want[:, None]) @ values, rtol=0, atol=1e-13)
    assert float(total[3]) == -np.inf and not mean[3].any()


# Masked sums


def masked_cloud(k, seed=6):
    """Tokens at distinct positions, not in their order, with weights of all sizes."""
    grid = GRIDS[k]
    q, y, _, values = clouds(grid, k, seed)["uniform"]
    rng = np.random.default_rng(seed)
    positions = rng.permutation(N) / N
    weights = 10.0 ** rng.uniform(-12, 0, N) * (np.arange(N) % 7 > 0) * (positions > 0.01)  # the first see nothing
    return grid, (q, y, weights / weights.sum(), values), positions


def dense_masked(logit, cloud, positions):
    q, y, weights, values = cloud
    C = logits(logit, *(np.asarray(a, np.longdouble) for a in (q, y))) + logs_of(weights)[None]
    C = np.where(positions[None] <= positions[:, None], C, -np.inf)
    total = np.asarray([logsumexp(row[np.isfinite(row)]) if np.isfinite(row).any() else -np.inf for row in C])
    p = np.exp(C - np.where(np.isfinite(total), total, 0)[:, None])
    return p, p @ values, total


@pytest.mark.parametrize(("k", "logit"), [(1, dot), (2, minus_squared_distance)])
def test_masked_sums(k, logit):
    grid, cloud, positions = masked_cloud(k)
    q, y, weights, values = cloud
    if logit is minus_squared_distance:
        q = q / 2
    # The earliest tokens are the lightest by far: their own sums are as good as all others.
    light = np.where(positions < 0.4, 1e-180, 1.0) * weights
    for w in (weights, light):
        arrays = tuple(map(jnp.asarray, (q, y, logs_of(w), values, positions)))
        mean, total = averaged(Fast(grid, None, 0, 0, 1e-9, 64), logit, *arrays)
        p, want, want_total = dense_masked(logit, (q, y, w, values), positions)
        seen = np.isfinite(want_total)
        assert 4 <= (~seen).sum() < 10
        np.testing.assert_array_equal(seen, np.isfinite(total))
        assert not np.asarray(mean)[~seen].any()
        B = grid.bound(k)
        away = np.maximum(*(p @ np.abs(values - m) + np.abs(want - m) for m in (values.min(0), values.max(0))))
        assert (np.abs(np.asarray(mean) - want) <= B / (1 - B) * away + 1e-12).all()
        off = np.abs(np.expm1(np.asarray(total)[seen] - want_total[seen]))
        assert (off <= B + 1e-11).all() and off.max() > 0.01 * B
    # Where the lightest tokens would underflow beside the heaviest, and where positions are shared, there is no number.
    too_light = jnp.asarray(logs_of(weights) - 700.0 * (positions < 0.4))
    shared = jnp.asarray(np.floor(positions * 100) / 100)
    for logs, places in ((too_light, arrays[4]), (arrays[2], shared)):
        mean, _ = averaged(Fast(grid, None, 0, 0, 1e-9, 64), logit, *arrays[:2], logs, arrays[3], places)
        assert jnp.isnan(mean).all()

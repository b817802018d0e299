"""Exact Wasserstein distances of weighted tokens, and the sliced ones."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

import meanformer as mf
from meanformer.measures.convert import to_density
from meanformer.measures.density import Density, with_masses
from meanformer.metrics import plan
from meanformer.metrics import wasserstein as module
from meanformer.metrics.bures import bures_wasserstein
from meanformer.metrics.wasserstein import sliced_wasserstein, wasserstein
from oracles import golden
from oracles.refusals import assert_refused

GOLDEN = {name: case for name, case in golden.load("distances").items() if name.startswith("W")}


def draw(n: int, d: int = 2, seed: int = 0, zeros: int = 0) -> mf.PointCloud:
    """Tokens with random weights, some of them zero."""
    rng = np.random.default_rng([n, d, seed])
    w = rng.dirichlet(np.ones(n))
    w[:zeros] = 0
    return mf.PointCloud(rng.normal(size=(n, d)), w / w.sum())


def normal(deviation: float, cells: int = 200) -> Density:
    """A centred Gaussian density on a line."""
    return to_density(lambda x: jnp.exp(-((x[:, 0] / deviation) ** 2) / 2), cells, low=-8.0, high=8.0)


def linear_programme(mu, nu, p):
    """W_p by a general solver (HiGHS)."""
    cost = np.linalg.norm(np.asarray(mu.points)[:, None] - np.asarray(nu.points)[None], axis=2) ** p
    n, m = cost.shape
    marginals = scipy.sparse.vstack(
        [
            scipy.sparse.kron(scipy.sparse.eye(n), np.ones((1, m))),
            scipy.sparse.kron(np.ones((1, n)), scipy.sparse.eye(m)),
        ]
    )
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    b = np.concatenate([mu.weights, nu.weights])
    return scipy.optimize.linprog(cost.ravel(), A_eq=marginals, b_eq=b, options=options).fun ** (1 / p)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    case = GOLDEN[name]
    distance = wasserstein(mf.PointCloud(case["X"], case["a"]), mf.PointCloud(case["Y"], case["b"]), float(case["p"]))
    np.testing.assert_allclose(distance, case["distance"], rtol=1e-12)


@pytest.mark.parametrize("p", [1, 1.5, 2, 4])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_agrees_with_linear_programming(d, p):
    mu, nu = draw(12, d, zeros=2), draw(9, d)
    np.testing.assert_allclose(wasserstein(mu, nu, p), linear_programme(mu, nu, p), rtol=1e-10)


def test_agrees_with_pot_and_scipy():
    mu, nu = draw(30, 1), draw(41, 1)
    x, y = mu.points[:, 0], nu.points[:, 0]
    expected = scipy.stats.wasserstein_distance(x, y, mu.weights, nu.weights)
    np.testing.assert_allclose(wasserstein(mu, nu, 1), expected, rtol=1e-13)
    arrays = [np.asarray(array) for array in (mu.weights, nu.weights, mu.points, nu.points)]
    np.testing.assert_allclose(
        wasserstein(mu, nu), np.sqrt(ot.emd2(*arrays[:2], ot.dist(*arrays[2:]))), rtol=1e-10
    )  # quantiles and the linear programme
    mu, nu = draw(30, 5), draw(41, 5)
    arrays = [np.asarray(array) for array in (mu.weights, nu.weights, mu.points, nu.points)]
    cost = ot.dist(*arrays[2:], metric="euclidean")
    np.testing.assert_allclose(wasserstein(mu, nu, 3), ot.emd2(*arrays[:2], cost**3) ** (1 / 3), rtol=1e-12)


@pytest.mark.parametrize("d", [1, 3])
def test_equal_weights_are_an_assignment(d, monkeypatch):
    rng = np.random.default_rng(d)
    X, Y = rng.normal(size=(2, 6, d))
    mu, nu = mf.PointCloud(X), mf.PointCloud(Y)
    costs = [np.linalg.norm(X - Y[list(order)], axis=1) ** 3 for order in itertools.permutations(range(6))]
    expected = np.mean(costs, axis=1).min() ** (1 / 3)
    np.testing.assert_allclose(wasserstein(mu, nu, 3), expected, rtol=1e-14)
    # Larger problems go to the network simplex, which then counts in whole numbers.
    monkeypatch.setattr(plan, "ASSIGNMENT_TOKENS", 0)
    np.testing.assert_allclose(wasserstein(mu, nu, 3), expected, rtol=1e-14)
    # Four tokens against six are twelve against twelve.
    few = mf.PointCloud(X[:4])
    twelve = mf.PointCloud(np.repeat(X[:4], 3, axis=0)), mf.PointCloud(np.repeat(Y, 2, axis=0))
    np.testing.assert_allclose(wasserstein(few, nu, 2), wasserstein(*twelve, 2), rtol=1e-14)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_translation_dilation_and_dirac(d, p):
    mu = draw(15, d)
    shift = np.arange(1.0, d + 1)
    np.testing.assert_allclose(
        wasserstein(mu, mu.push(lambda x: x + shift[None]), p), np.linalg.norm(shift), rtol=1e-10
    )
    nu = draw(10, d)
    doubled = (cloud.push(lambda x: -2 * x) for cloud in (mu, nu))
    np.testing.assert_allclose(wasserstein(*doubled, p), 2 * wasserstein(mu, nu, p), rtol=1e-13)
    dirac = mf.PointCloud(np.zeros((1, d)))
    norms = np.linalg.norm(mu.points, axis=1)
    for distance in (wasserstein(mu, dirac, p), wasserstein(dirac, mu, p)):
        np.testing.assert_allclose(distance, (mu.weights @ norms**p) ** (1 / p), rtol=1e-14)


@pytest.mark.parametrize("d", [1, 2])
def test_is_a_distance(d):
    one, two, three = draw(8, d, 1), draw(11, d, 2), draw(8, d, 3)
    for p in (1, 2):
        there = wasserstein(one, two, p)
        assert isinstance(there, float)
        np.testing.assert_allclose(there, wasserstein(two, one, p), rtol=1e-13)
        assert 0.1 < wasserstein(one, three, p) <= there + wasserstein(two, three, p) + 1e-12
    assert wasserstein(one, two, 1) < wasserstein(one, two, 2) < wasserstein(one, two, 3)
    # Zero for equal measures only: any order of the tokens, tokens of no weight, a token in two parts.
    order = np.random.default_rng(0).permutation(8)
    X, w = np.asarray(one.points), np.asarray(one.weights)
    assert wasserstein(one, mf.PointCloud(X[order], w[order])) == 0
    far = mf.PointCloud(np.concatenate([X, 1e3 + X[:1]]), np.append(w, 0))
    assert wasserstein(one, far) == 0
    split = mf.PointCloud(np.concatenate([X, X[:1]]), np.append(w * np.where(np.arange(8) == 0, 0.5, 1), w[0] / 2))
    assert wasserstein(one, split) < 1e-7
    np.testing.assert_allclose(wasserstein(split, two), wasserstein(one, two), rtol=1e-13)
    moved = X + 1e-9 * (np.arange(8) == 3)[:, None]
    np.testing.assert_allclose(wasserstein(one, mf.PointCloud(moved, w), 1), 1e-9 * d**0.5 * w[3], rtol=1e-6)


@pytest.mark.parametrize("d", [1, 2])
def test_far_clusters_keep_their_digits(d):
    """A mass of 1e-16 that crosses the gap by rounding would be a distance of 1e-4 here."""
    place = np.array([0.0, 1e4, -1e4])
    small, large = (np.repeat(place, count)[:, None] * np.ones((1, d)) for count in (7, 11))
    assert wasserstein(mf.PointCloud(small), mf.PointCloud(large)) == 0
    jittered = mf.PointCloud(large + 1e-6 * np.cos(np.arange(33.0))[:, None])
    expected = 1e-6 * np.sqrt(d * np.mean(np.cos(np.arange(33.0)) ** 2))
    np.testing.assert_allclose(wasserstein(mf.PointCloud(small), jittered), expected, rtol=1e-5)


def test_the_order_of_tokens_far_apart_changes_nothing():
    """On a line; their weights, which are not equal, are summed in one order, whatever theirs is."""
    rng = np.random.default_rng(3)
    x, w, order = np.repeat([0.0, 1e4, -1e4], 7)[:, None], rng.dirichlet(np.ones(21)), rng.permutation(21)
    assert wasserstein(mf.PointCloud(x, w), mf.PointCloud(x[order], w[order])) == 0


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("size", [1e4, 1e200])
def test_large_tokens_do_not_overflow(d, size):
    mu, nu = draw(6, d), draw(7, d)
    large = (mf.PointCloud(size * cloud.points, cloud.weights) for cloud in (mu, nu))
    np.testing.assert_allclose(wasserstein(*large, 4) / size, wasserstein(mu, nu, 4), rtol=1e-13)


def parts(n: int, total: int, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers, each positive, of sum `total`."""
    return 1 + rng.multinomial(total - n, np.full(n, 1 / n))


def of_copies(x, k, y, l, p):
    """W_p by an assignment between k_i copies of x_i and l_j copies of y_j, without those that cost more than any."""
    x, y = np.repeat(x, k, axis=0), np.repeat(y, l, axis=0)
    gaps = np.linalg.norm(x[:, None] - y[None], axis=2)
    longest = gaps.max()
    while True:
        used = gaps[scipy.optimize.linear_sum_assignment(np.minimum(gaps / longest, 1) ** p)]
        shorter = used.max() * (2 * len(x)) ** (1 / p)
        if shorter >= longest:
            return used.max() * np.mean((used / used.max()) ** p) ** (1 / p)
        longest = shorter


@pytest.mark.parametrize("far", [1e6, 1e8, 1e12, 1e100, 1e160, 1e300, 1e308])
@pytest.mark.parametrize("even", [False, True])
def test_a_token_far_away_that_stays_changes_nothing(far, even):
    """Its costs are beyond the optimum by any factor, and the rounding of its weight times its cost too."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 9, 2))
        k, l = np.full((2, 9), 2) if even else (parts(9, 18, rng), parts(9, 18, rng))
        last = 2 if even else 9
        mu, nu = (
            mf.PointCloud(np.vstack([z, [[far, 0]]]), np.append(c, last) / (18 + last)) for z, c in ((x, k), (y, l))
        )
        np.testing.assert_allclose(
            wasserstein(mu, nu), of_copies(x, k, y, l, 2) * np.sqrt(18 / (18 + last)), rtol=1e-12
        )
        a, b = rng.dirichlet(np.ones(9), 2)
        mu, nu = (mf.PointCloud(np.vstack([z, [[far, 0]]]), np.append(c, 0.5)) for z, c in ((x, a / 2), (y, b / 2)))
        near = wasserstein(mf.PointCloud(x, a), mf.PointCloud(y, b))
        np.testing.assert_allclose(wasserstein(mu, nu), near * np.sqrt(1 / 2), rtol=1e-12)


@pytest.mark.parametrize("p", [16, 32, 100])
def test_large_powers(p):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        (x, y), k, l = rng.uniform(size=(2, 20, 2)), parts(20, 60, rng), parts(20, 60, rng)
        distance = wasserstein(mf.PointCloud(x, k / 60), mf.PointCloud(y, l / 60), p)
        np.testing.assert_allclose(distance, of_copies(x, k, y, l, p), rtol=1e-10)
        # Equal weights, of different numbers of tokens and of one.
        one, two = np.ones(12, int), np.full(6, 2)
        distance = wasserstein(mf.PointCloud(x[:12]), mf.PointCloud(y[:6]), p)
        np.testing.assert_allclose(distance, of_copies(x[:12], one, y[:6], two, p), rtol=1e-10)
        distance = wasserstein(mf.PointCloud(x), mf.PointCloud(y), p)
        np.testing.assert_allclose(distance, of_copies(x, 1, y, 1, p), rtol=1e-10)


@pytest.mark.parametrize("weight, far", [(1e-8, 1e4), (1e-12, 1e6), (1e-20, 1e10)])
def test_a_tiny_mass_that_goes_far(weight, far, monkeypatch):
    """It costs as much as all others together, each of which costs nothing beside it. On a line, for quantiles."""
    rng = np.random.default_rng(0)
    x, y, a, b = *rng.normal(size=(2, 9, 1)), *rng.dirichlet(np.ones(9), 2)
    x[0], a[0] = -far, weight
    line = mf.PointCloud(x, a / a.sum()), mf.PointCloud(y, b)
    plane = [mf.PointCloud(np.hstack([cloud.points, np.zeros((9, 1))]), cloud.weights) for cloud in line]
    expected = wasserstein(*line)
    np.testing.assert_allclose(wasserstein(*plane), expected, rtol=1e-12)
    monkeypatch.setattr(plan, "REFINEMENTS", 1)
    if weight < 1e-8:  # one solution is not enough then, and never returned
        with pytest.raises(RuntimeError, match="of the optimum"):
            wasserstein(*plane)


def test_lengths_whose_squares_underflow():
    mu, nu = mf.PointCloud([[1e300, 0], [0, 0], [3, 0]]), mf.PointCloud([[1e300, 0], [0, 1], [3, 1]])
    np.testing.assert_allclose(wasserstein(mu, nu), np.sqrt(2 / 3), rtol=1e-15)
    # Beyond what scaling can do.
    low, high = 1e-160, 1e300
    mu, nu = (mf.PointCloud([[high, 0], [0, 0], [3 * low, y], [0, 2 * y]]) for y in (low, 2 * low))
    positions = np.arange(4) / 4
    for shift in range(4):  # where all costs are rounded to 0 a plan is that of their order
        shifted = mf.PointCloud(np.roll(nu.points, shift, axis=0))
        np.testing.assert_allclose(wasserstein(mu, shifted), low * np.sqrt((0 + 1 + 2**2) / 4), rtol=1e-12)
    mu, nu = (mf.PointCloud(cloud.points, positions=positions) for cloud in (mu, nu))
    np.testing.assert_allclose(mf.conditional_wasserstein(mu, nu), low * np.sqrt((0 + 1 + 2**2) / 4), rtol=1e-12)


def test_gaussians_and_densities():
    one, two = mf.Gaussian([0.0, 1.0], cov=np.eye(2)), mf.Gaussian([2.0, 0.0], factor=[[1.0], [0.5]])
    assert wasserstein(one, two) == float(bures_wasserstein(one, two))
    narrow, wide = (normal(s) for s in (0.5, 0.8))
    coarse, fine = (wasserstein(normal(0.5, cells), normal(0.8, cells)) - 0.3 for cells in (200, 400))
    assert abs(fine) < 1e-3
    np.testing.assert_allclose(coarse / fine, 4, rtol=0.02)  # second order in the side of a cell
    assert wasserstein(narrow, narrow.cloud()) == 0
    # Mass that has left the box does not count.
    np.testing.assert_allclose(wasserstein(with_masses(narrow, narrow.masses / 2), wide), wasserstein(narrow, wide))


def test_single_precision():
    mu, nu = draw(6), draw(7)
    small = [mf.PointCloud(*(np.asarray(a, np.float32) for a in (c.points, c.weights))) for c in (mu, nu)]
    np.testing.assert_allclose(wasserstein(*small), wasserstein(mu, nu), rtol=1e-6)
    np.testing.assert_allclose(wasserstein(small[0], nu), wasserstein(mu, nu), rtol=1e-6)


@pytest.mark.parametrize("fault", ["stopped early", "another problem"])
def test_a_plan_that_is_not_optimal_is_an_error(fault, monkeypatch):
    solve = ot.emd

    def faulty(a, b, cost, numItermax, log):
        return solve(a, b, cost, 3, log=log) if fault == "stopped early" else solve(a, b, cost[::-1].copy(), log=log)

    monkeypatch.setattr(ot, "emd", faulty)
    with pytest.raises(RuntimeError, match="did not reach the optimum"):
        wasserstein(draw(12), draw(9))


# Sliced


def test_sliced_on_a_line_is_exact():
    mu, nu = draw(9, 1), draw(12, 1)
    assert sliced_wasserstein(mu, nu, 1) == wasserstein(mu, nu, 1)


@pytest.mark.parametrize("p, moment", [(2, 1 / 2), (4, 3 / 8)])
def test_sliced_in_the_plane(p, moment):
    r"""Translation: the mean of $|\cos|^p$ over angles, exact with equally spaced ones."""
    mu = draw(9)
    there = sliced_wasserstein(mu, mu.push(lambda x: x + np.array([[3.0, 4.0]])), p, 7)
    np.testing.assert_allclose(there, 5 * moment ** (1 / p), rtol=1e-12)


def test_sliced_agrees_with_pot():
    mu, nu = draw(9, 3), draw(12, 3)
    key = jax.random.key(4)
    theta = module._directions(3, 50, key)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1, rtol=1e-14)
    arrays = [np.asarray(array) for array in (mu.points, nu.points, mu.weights, nu.weights)]
    expected = ot.sliced_wasserstein_distance(*arrays, projections=theta.T, p=2)
    np.testing.assert_allclose(sliced_wasserstein(mu, nu, directions=50, key=key), expected, rtol=1e-12)


def test_sliced_directions_are_uniform():
    mu, shift = draw(5, 3), np.array([[0.0, 3.0, 4.0]])
    there = [sliced_wasserstein(mu, mu.push(lambda x: x + shift), 2, 500, key=jax.random.key(k)) for k in range(4)]
    assert len(set(there)) == 4
    np.testing.assert_allclose(there, 5 / np.sqrt(3), rtol=0.1)  # five standard deviations
    nu = draw(7, 3)
    assert sliced_wasserstein(mu, nu) == sliced_wasserstein(mu, nu) < wasserstein(mu, nu)
    assert sliced_wasserstein(mu, mu) == 0


# Refusals

BATCH = mf.PointCloud(np.zeros((4, 3, 2)))
MANY = mf.PointCloud(np.zeros((6000, 2)))
NAN = draw(3).with_points(jnp.array([[0.0, 1.0], [jnp.nan, 0.0], [1.0, 1.0]]))
GAUSSIAN = mf.Gaussian([0.0, 0.0], cov=np.eye(2))
BAD_CALLS = [
    (lambda f: f(np.zeros((3, 2)), draw(3)), ("mu must be a measure", "shape (3, 2)", "mf.PointCloud(")),
    (lambda f: f(draw(3), mf.uniform_ball(2)), ("nu must be a measure", "sample")),
    (lambda f: f(draw(3), GAUSSIAN), ("nu must be made of tokens", "sample", "to_gaussian")),
    (lambda f: f(GAUSSIAN, draw(3)), ("mu must be made of tokens",)),
    (lambda f: f(draw(3), draw(3, 3)), ("one space", "d = 2 and d = 3")),
    (lambda f: f(draw(3), BATCH), ("nu must be a single measure", "(4,)", "nu[i]")),
    (lambda f: f(NAN, draw(3)), ("the points of mu must be finite", "nan at index (1, 0)")),
    (lambda f: f(draw(3), draw(3), 0.5), ("p must be", "p = 0.5")),
    (lambda f: f(draw(3), draw(3), np.inf), ("p must be finite",)),
    (lambda f: f(draw(3), draw(3), "2"), ("p must be numeric",)),
    (lambda f: jax.jit(lambda x: f(mf.PointCloud(x), draw(3)))(np.zeros((3, 2))), ("cannot be traced", "sinkhorn")),
]


@pytest.mark.parametrize("distance", [wasserstein, sliced_wasserstein])
@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words, distance):
    assert_refused(lambda: call(distance), words)


def test_refusals_of_gaussians_and_of_size(monkeypatch):
    assert_refused(lambda: wasserstein(GAUSSIAN, GAUSSIAN, 1), ("p = 2", "p = 1", "sample"))
    batch = mf.Gaussian(np.zeros((3, 2)), factor=np.zeros((3, 2, 1)))
    assert_refused(lambda: wasserstein(batch, GAUSSIAN), ("single measures", "(3, 2)", "bures_wasserstein"))
    traced = jax.grad(lambda m: wasserstein(mf.Gaussian(m, factor=np.eye(2)), GAUSSIAN))
    assert_refused(lambda: traced(np.zeros(2)), ("traced Gaussians", "bures_wasserstein"))
    empty = normal(1.0)
    assert_refused(lambda: wasserstein(with_masses(empty, 0 * empty.masses), empty), ("must have mass", "larger"))
    words = ("too large", "6000 x 6000 = 3.6e+07 pairs", "2.5e+07", "sinkhorn_divergence", "sliced", "resample")
    assert_refused(lambda: wasserstein(MANY, MANY), words)
    # Neither a line nor a single point is a problem.
    assert wasserstein(*(mf.PointCloud(np.ones((6000, 1))) for _ in range(2))) == 0
    monkeypatch.setattr(module, "MAX_PAIRS", 10)
    np.testing.assert_allclose(wasserstein(MANY, mf.PointCloud([[3.0, 4.0]])), 5, rtol=1e-13)
    monkeypatch.setattr(module, "MAX_PAIRS", 10**9)
    monkeypatch.setattr(module.checks, "available_memory", lambda: 10**9)
    assert_refused(lambda: wasserstein(MANY, MANY), ("memory", "2.02 GB", "sinkhorn_divergence"))


def test_refusals_of_slices():
    for bad in (0, 2.5, True):
        assert_refused(lambda bad=bad: sliced_wasserstein(draw(3), draw(3), 2, bad), ("directions must be",))
    assert_refused(lambda: sliced_wasserstein(draw(3, 3), draw(3, 3), key=7), ("random key", "7"))

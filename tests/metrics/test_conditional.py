"""The distance of masked measures."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

import meanformer as mf
from meanformer.measures.density import Density, with_masses
from meanformer.metrics import wasserstein as module
from meanformer.metrics.conditional import conditional_wasserstein
from meanformer.metrics.wasserstein import wasserstein
from oracles import golden
from oracles.refusals import assert_refused

PLACES = np.array([0.2, 0.5, 0.5, 0.5, 0.9, 0.9])


def draw(positions: np.ndarray, d: int = 2, seed: int = 0, theta: dict | None = None) -> mf.PointCloud:
    """Random tokens at these positions, with random weights of sum `theta[s]` at each."""
    rng = np.random.default_rng([seed, d, len(positions)])
    w = rng.uniform(0.5, 1.5, len(positions))
    theta = {0.2: 0.25, 0.5: 0.45, 0.9: 0.3} if theta is None else theta
    w = w * [theta[s] / w[positions == s].sum() for s in positions]
    return mf.PointCloud(rng.normal(size=(len(positions), d)), w, positions)


def shuffled(mu: mf.PointCloud, seed: int = 0) -> mf.PointCloud:
    order = np.random.default_rng(seed).permutation(mu.n)
    return mf.PointCloud(mu.points[order], mu.weights[order], mu.positions[order])


# The same law of positions, with other numbers of tokens.
ONE, TWO = draw(PLACES), draw(np.array([0.9, 0.9, 0.9, 0.2, 0.5]), seed=1)


def one_programme(mu, nu, p):
    """d_p as a single transport problem, in which a change of position is too dear."""
    gaps = np.linalg.norm(np.asarray(mu.points)[:, None] - np.asarray(nu.points)[None], axis=2)
    dear = 1e3 * (np.asarray(mu.positions)[:, None] != np.asarray(nu.positions)[None])
    return ot.emd2(np.asarray(mu.weights), np.asarray(nu.weights), gaps**p + dear) ** (1 / p)


def test_golden():
    case = golden.load("distances")["conditional_W2"]
    mu, nu = (mf.PointCloud(case[name], case["w"], case["s"]) for name in "XY")
    np.testing.assert_allclose(conditional_wasserstein(mu, nu, case["p"]), case["distance"], rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3.5])
@pytest.mark.parametrize("d", [1, 2])
def test_is_transport_at_fixed_positions(d, p):
    mu, nu = draw(PLACES, d), draw(np.array([0.9, 0.9, 0.9, 0.2, 0.5]), d)
    distance = conditional_wasserstein(mu, nu, p)
    np.testing.assert_allclose(distance, one_programme(mu, nu, p), rtol=1e-11)
    assert distance > wasserstein(mu, nu, p)


def test_distinct_positions_need_no_transport(monkeypatch):
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(2, 20, 3))
    w, s = rng.dirichlet(np.ones(20)), rng.permutation(20) / 20
    mu, nu = mf.PointCloud(X, w, s), mf.PointCloud(Y, w, s)
    monkeypatch.setattr(module, "optimal_plan", None)
    for p in (1, 2, 4):
        expected = (w @ np.linalg.norm(X - Y, axis=1) ** p) ** (1 / p)
        np.testing.assert_allclose(conditional_wasserstein(mu, nu, p), expected, rtol=1e-13)
        np.testing.assert_allclose(conditional_wasserstein(shuffled(mu), nu, p), expected, rtol=1e-13)
    large = (mf.PointCloud(1e200 * Z, w, s) for Z in (X, Y))
    np.testing.assert_allclose(conditional_wasserstein(*large, 4), 1e200 * expected, rtol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_at_least_the_distance_without_positions(seed):
    mu, nu = draw(PLACES, seed=2 * seed), draw(PLACES, seed=2 * seed + 1)
    for p in (1, 2):
        assert conditional_wasserstein(mu, nu, p) >= wasserstein(mu, nu, p) - 1e-13
    # Equality, if the best plan keeps the positions.
    moved = mu.push(lambda x: x + np.array([[0.3, 0.4]]))
    np.testing.assert_allclose(conditional_wasserstein(mu, moved), 0.5, rtol=1e-13)
    np.testing.assert_allclose(wasserstein(mu, moved), 0.5, rtol=1e-13)


def test_is_a_distance():
    three = draw(PLACES, seed=3)
    there = conditional_wasserstein(ONE, TWO)
    assert isinstance(there, float)
    np.testing.assert_allclose(there, conditional_wasserstein(TWO, ONE), rtol=1e-13)
    np.testing.assert_allclose(there, conditional_wasserstein(shuffled(ONE), shuffled(TWO)), rtol=1e-13)
    assert 0.1 < there <= conditional_wasserstein(ONE, three) + conditional_wasserstein(three, TWO)
    assert conditional_wasserstein(ONE, shuffled(ONE)) < 1e-7
    # A token of no weight is not there, whatever its position.
    arrays = (np.append(ONE.points, [[9.0, 9.0]], axis=0), np.append(ONE.weights, 0), np.append(ONE.positions, 0.7))
    np.testing.assert_allclose(conditional_wasserstein(mf.PointCloud(*arrays), TWO), there, rtol=1e-13)


def test_infinite_between_different_laws_of_positions():
    other = draw(PLACES, theta={0.2: 0.25 + 1e-11, 0.5: 0.45 - 1e-11, 0.9: 0.3})
    assert conditional_wasserstein(ONE, other) == np.inf
    near = draw(PLACES, theta={0.2: 0.25 + 1e-14, 0.5: 0.45 - 1e-14, 0.9: 0.3})
    assert conditional_wasserstein(ONE, near) < 1e-6
    elsewhere = draw(PLACES + 1e-9 * (PLACES == 0.9), theta={0.2: 0.25, 0.5: 0.45, 0.9 + 1e-9: 0.3})
    assert conditional_wasserstein(ONE, elsewhere) == np.inf
    # Each token on top of another, but the positions exchanged.
    mu = mf.PointCloud([[0.0], [1.0]], positions=[0.1, 0.2])
    assert conditional_wasserstein(mu, mf.PointCloud([[0.0], [1.0]], positions=[0.2, 0.1])) == 1
    assert conditional_wasserstein(mu, mf.PointCloud([[0.0], [1.0]], positions=[0.1, 0.3])) == np.inf


def test_single_precision():
    small = mf.PointCloud(*(np.asarray(a, np.float32) for a in (ONE.points, ONE.weights, ONE.positions)))
    np.testing.assert_allclose(conditional_wasserstein(small, TWO), conditional_wasserstein(ONE, TWO), rtol=1e-6)


def test_densities():
    r"""Rows moved by whole cells: $d_p^p=\sum_s\theta_s|\text{shift}_s|^p$."""
    bump = np.zeros((3, 40))
    bump[:, 10:16] = [[1.0, 2.0, 4.0, 3.0, 1.0, 1.0]] * np.array([[1.0], [2.0], [1.0]])
    moved = np.stack([np.roll(row, shift) for row, shift in zip(bump, (0, 3, 12), strict=True)])
    positions, side = np.array([0.1, 0.4, 1.0]), 0.25
    rho, sigma = (Density(v / v.sum() / side, 0.0, 10.0, positions) for v in (bump, moved))
    for p in (1, 2):
        expected = side * ((2 * 3**p + 12**p) / 4) ** (1 / p)
        np.testing.assert_allclose(conditional_wasserstein(rho, sigma, p), expected, rtol=1e-12)
        np.testing.assert_allclose(conditional_wasserstein(rho, sigma.cloud(), p), expected, rtol=1e-12)
    leaking = with_masses(rho, jnp.asarray(bump / bump.sum() * np.array([[1.0], [0.9], [1.0]])))
    assert conditional_wasserstein(rho, leaking) == np.inf


BARE = mf.PointCloud(ONE.points, ONE.weights)
BAD_CALLS = [
    (lambda: conditional_wasserstein(BARE, ONE), ("mu must have positions", "with_positions()")),
    (lambda: conditional_wasserstein(ONE, BARE), ("nu must have positions", "mf.wasserstein")),
    (lambda: conditional_wasserstein(ONE, np.zeros((3, 2))), ("nu must be a measure", "shape (3, 2)")),
    (lambda: conditional_wasserstein(mf.Gaussian([0.0], cov=1.0), ONE), ("mu must be made of tokens",)),
    (lambda: conditional_wasserstein(ONE, draw(PLACES, 3)), ("one space", "d = 2 and d = 3")),
    (lambda: conditional_wasserstein(ONE, TWO, 0.9), ("p must be", "p = 0.9")),
    (lambda: conditional_wasserstein(mf.stack_clouds([ONE, TWO]), ONE), ("single measure", "(2,)", "mu[i]")),
    (lambda: conditional_wasserstein(ONE.with_points(ONE.points * jnp.nan), ONE), ("points of mu must be finite",)),
    (
        lambda: jax.jit(lambda x: conditional_wasserstein(mf.PointCloud(x, ONE.weights, PLACES), ONE))(ONE.points),
        ("conditional_wasserstein", "cannot be traced"),
    ),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    assert_refused(call, words)


def test_refusal_of_size(monkeypatch):
    """What counts are the pairs in a group."""
    monkeypatch.setattr(module, "MAX_PAIRS", 6)
    assert_refused(lambda: conditional_wasserstein(ONE, draw(PLACES, seed=1)), ("too large", "3 x 3 = 9 pairs"))
    assert np.isfinite(conditional_wasserstein(ONE, TWO))

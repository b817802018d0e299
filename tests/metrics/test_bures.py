"""The Bures-Wasserstein distance and its geodesics."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

import meanformer as mf
from meanformer.metrics.bures import bures_geodesic, bures_wasserstein
from oracles import golden
from oracles.refusals import assert_refused

GOLDEN = {name: case for name, case in golden.load("distances").items() if name.startswith("bures")}


def draw(width: int, d: int = 3, seed: int = 0) -> mf.Gaussian:
    rng = np.random.default_rng([width, d, seed])
    return mf.Gaussian(rng.normal(size=d), factor=rng.normal(size=(d, width)))


def draws(*widths: int) -> list[mf.Gaussian]:
    return [draw(width, seed=seed) for seed, width in enumerate(widths)]


def rotation(size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(size).normal(size=(size, size)))[0]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    case = GOLDEN[name]
    distance = bures_wasserstein(mf.Gaussian(case["m1"], factor=case["L1"]), mf.Gaussian(case["m2"], factor=case["L2"]))
    np.testing.assert_allclose(distance, case["distance"], rtol=1e-12, atol=1e-14)


def test_worked_number():
    one = mf.Gaussian([0.5, -0.25], cov=[[1.0, 0.3], [0.3, 0.5]])
    two = mf.Gaussian([0.0, 0.0], cov=[[0.4, -0.1], [-0.1, 0.9]])
    np.testing.assert_allclose(bures_wasserstein(one, two), 0.7902063939, atol=1e-10)


@pytest.mark.parametrize("widths", [(3, 3), (5, 3)])
def test_agrees_with_pot(widths):
    one, two = draws(*widths)
    moments = (np.asarray(a) for a in (one.mean, two.mean, one.covariance, two.covariance))
    expected = ot.gaussian.bures_wasserstein_distance(*moments)
    np.testing.assert_allclose(bures_wasserstein(one, two), expected, rtol=1e-10)


@pytest.mark.parametrize("widths", [(3, 3, 3), (1, 2, 5), (1, 1, 1)])
def test_is_a_distance(widths):
    one, two, three = draws(*widths)
    there = float(bures_wasserstein(one, two))
    np.testing.assert_allclose(there, bures_wasserstein(two, one), rtol=1e-12)
    assert there > 0.1
    assert float(bures_wasserstein(one, three)) <= there + float(bures_wasserstein(two, three)) + 1e-12
    # Invariance: other factors of the same covariance, and rigid motions of the space.
    O, b = rotation(3), np.array([1.0, -2.0, 0.5])
    turned = mf.Gaussian(two.mean, factor=two.factor @ rotation(two.factor.shape[1]))
    np.testing.assert_allclose(bures_wasserstein(one, turned), there, rtol=1e-12)
    np.testing.assert_allclose(bures_wasserstein(one.push(O, b), two.push(O, b)), there, rtol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_zero_between_two_factors_of_one_covariance(width):
    g = draw(width)
    wider = np.concatenate([g.factor, np.zeros((3, 1))], axis=1) @ rotation(width + 1)
    assert float(bures_wasserstein(g, mf.Gaussian(g.mean, factor=wider))) < 1e-14


def test_near_zero_keeps_its_digits():
    """The subtraction of traces and a nuclear norm would leave nothing of 1e-9."""
    g = mf.Gaussian(np.zeros(2), factor=np.diag([2.0, 1.0]))
    near = mf.Gaussian(np.zeros(2), factor=np.diag([2.0 + 1e-9, 1.0]) @ rotation(2))
    np.testing.assert_allclose(bures_wasserstein(g, near), 1e-9, rtol=1e-6)


def test_commuting_covariances_translation_and_dirac():
    basis, one, two = rotation(4), np.array([2.0, 1.0, 0.5, 0.0]), np.array([0.1, 3.0, 0.0, 0.7])
    left, right = (mf.Gaussian(np.zeros(4), cov=(basis * values) @ basis.T) for values in (one, two))
    expected = np.sqrt(((np.sqrt(one) - np.sqrt(two)) ** 2).sum())
    np.testing.assert_allclose(bures_wasserstein(left, right), expected, atol=1e-7)
    # On exact factors of the same two there is no root of round-off.
    left, right = (mf.Gaussian(np.zeros(4), factor=basis * np.sqrt(values)) for values in (one, two))
    np.testing.assert_allclose(bures_wasserstein(left, right), expected, rtol=1e-12)
    g = draw(2)
    np.testing.assert_allclose(bures_wasserstein(g, g.push(np.eye(3), [3.0, 0.0, 4.0])), 5, rtol=1e-14)
    dirac = mf.Gaussian(np.zeros(3), factor=np.zeros((3, 1)))
    np.testing.assert_allclose(bures_wasserstein(g, dirac) ** 2, np.trace(g.second_moment), rtol=1e-13)


@pytest.mark.parametrize("widths", [(3, 3), (1, 2), (2, 2)])
def test_geodesics_have_constant_speed(widths):
    one, two = draws(*widths)
    times = np.array([0.0, 0.2, 0.7, 1.0])
    path, whole = bures_geodesic(one, two, times), float(bures_wasserstein(one, two))
    np.testing.assert_allclose(path[0].covariance, one.covariance, atol=1e-14)
    np.testing.assert_allclose(path[3].covariance, two.covariance, atol=1e-13)
    np.testing.assert_allclose(bures_wasserstein(path, one), whole * times, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(bures_wasserstein(path[1], path[2]), 0.5 * whole, rtol=1e-12)
    halfway = bures_geodesic(one, two, 0.7)
    np.testing.assert_allclose(halfway.mean, 0.3 * one.mean + 0.7 * two.mean, rtol=1e-13)
    np.testing.assert_allclose(halfway.covariance, path[2].covariance, rtol=1e-13)


def test_geodesic_is_the_transport_of_points():
    r"""Between regular covariances, $\Sigma(s)=M\Sigma_1M$ with $M=(1-s)I+sT$, $T$ the symmetric optimal map."""
    one, two = draws(3, 3)
    values, vectors = np.linalg.eigh(one.covariance)
    root = (vectors * np.sqrt(values)) @ vectors.T
    values, vectors = np.linalg.eigh(root @ np.asarray(two.covariance) @ root)
    T = np.linalg.solve(root, np.linalg.solve(root, (vectors * np.sqrt(values)) @ vectors.T).T)
    M = 0.6 * np.eye(3) + 0.4 * T
    np.testing.assert_allclose(T, T.T, atol=1e-10)
    np.testing.assert_allclose(bures_geodesic(one, two, 0.4).covariance, M @ one.covariance @ M, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("L1", [2 * np.eye(2), np.array([[1.0, 0.5], [0.0, 0.3]])], ids=["equal", "general"])
def test_derivative_of_the_distance(L1):
    """Against central differences; equal singular values are no trouble."""
    other = mf.Gaussian(np.array([0.3, -0.2]), factor=np.eye(2))
    direction = np.array([[0.3, -1.0], [0.7, 0.4]])

    def distance(h):
        return bures_wasserstein(mf.Gaussian(jnp.zeros(2), factor=L1 + h * direction), other)

    slope = (distance(1e-5) - distance(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(distance)(jnp.asarray(0.0)), slope, rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(distance, (0.0,), (1.0,))[1], slope, rtol=1e-8)


@pytest.mark.parametrize("L1", [np.eye(2), np.array([[1.0, 0.5], [0.0, 0.3]])], ids=["equal", "general"])
def test_derivative_of_the_geodesic(L1):
    """Against central differences, in both modes; equal singular values are no trouble."""
    direction = np.array([[0.3, -1.0], [0.7, 0.4]])

    def covariance(h):
        one = mf.Gaussian(jnp.zeros(2), factor=L1 + h * direction)
        return bures_geodesic(one, mf.Gaussian(jnp.zeros(2), factor=2 * jnp.eye(2)), 0.3).covariance

    slope = (covariance(1e-5) - covariance(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jacfwd(covariance)(0.0), slope, rtol=1e-8)
    np.testing.assert_allclose(jax.jacrev(covariance)(0.0), slope, rtol=1e-8)


def test_derivative_of_the_geodesic_between_low_ranks():
    """The rotation is not unique there, the geodesic is, and so is its derivative along factors of one rank."""
    L1, L2 = np.diag([1.0, 0.5, 0.0]), np.array([[1.0], [0.4], [0.2]])

    def covariance(h):
        one = mf.Gaussian(jnp.zeros(3), factor=L1 * (1 + h))
        return bures_geodesic(one, mf.Gaussian(jnp.zeros(3), factor=L2), 0.3).covariance

    slope = (covariance(1e-5) - covariance(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jacfwd(covariance)(0.0), slope, rtol=1e-8, atol=1e-10)


def test_derivative_at_distance_zero_is_zero():
    gradient = jax.grad(lambda m: bures_wasserstein(mf.Gaussian(m, factor=np.eye(2)), mf.Gaussian(m, factor=np.eye(2))))
    assert np.array_equal(gradient(jnp.ones(2)), np.zeros(2))


def test_batches_and_dtypes():
    rng = np.random.default_rng(1)
    batch = mf.Gaussian(rng.normal(size=(4, 3)), factor=rng.normal(size=(4, 3, 2)))
    g = draw(3)
    alone = [float(bures_wasserstein(batch[i], g)) for i in range(4)]
    np.testing.assert_allclose(bures_wasserstein(batch, g), alone, rtol=1e-13)
    np.testing.assert_allclose(bures_wasserstein(g, batch), alone, rtol=1e-12)
    np.testing.assert_allclose(bures_wasserstein(batch, batch), np.zeros(4), atol=1e-14)
    single = mf.Gaussian(np.zeros(3, np.float32), factor=np.eye(3, dtype=np.float32))
    assert bures_wasserstein(single, single).dtype == jnp.float32
    assert bures_geodesic(single, single, 0.5).factor.dtype == jnp.float32
    assert bures_wasserstein(single, g).dtype == jnp.float64


BAD_CALLS = [
    (lambda: bures_wasserstein(mf.PointCloud([[0.0]]), draw(1)), ("g1 must be", "PointCloud", "mf.Gaussian(")),
    (lambda: bures_wasserstein(draw(1), np.eye(3)), ("g2 must be", "shape (3, 3)")),
    (lambda: bures_wasserstein(draw(1), draw(1, d=2)), ("one space", "d = 3 and d = 2")),
    (lambda: bures_geodesic(draw(1), draw(1), 1.5), ("[0, 1]", "1.5", "beyond")),
    (lambda: bures_geodesic(draw(1), draw(1), [[0.5]]), ("s must be a vector",)),
    (
        lambda: bures_geodesic(mf.Gaussian(np.zeros((2, 3)), factor=np.zeros((2, 3, 1))), draw(1), 0.5),
        ("single Gaussians", "(2, 3)"),
    ),
    (
        lambda: bures_wasserstein(*(mf.Gaussian(np.zeros((n, 1)), factor=np.ones((n, 1, 1))) for n in (2, 3))),
        ("one shape", "(2,) and (3,)", "vmap"),
    ),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    assert_refused(call, words)


def test_a_distance_beyond_the_range_is_refused():
    left, right = (mf.Gaussian([sign * 1.7e308, 0.0], np.eye(2)) for sign in (1, -1))
    assert_refused(lambda: bures_wasserstein(left, right), ("the distance is beyond", "larger units"))
    batch = mf.Gaussian(np.stack([left.mean, right.mean]), factor=np.stack([left.factor] * 2))
    assert_refused(lambda: bures_wasserstein(batch, left), ("the distance is beyond", "larger units"))
    # Traced it is infinite; and rows of a run that ended early, which are no numbers, are not refused.
    assert np.isinf(jax.jit(bures_wasserstein)(left, right))
    ended = jax.tree.map(lambda a: a.at[1].set(np.nan), jax.tree.map(jnp.asarray, batch))
    found = np.asarray(bures_wasserstein(ended, left))
    assert found[0] == 0 and np.isnan(found[1])

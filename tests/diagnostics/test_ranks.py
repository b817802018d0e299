"""Effective rank, participation ratio, stable rank, IsoScore; average cosine."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import meanformer as mf
from meanformer.diagnostics.spectra import average_cosine, effective_ranks, isoscore
from meanformer.measures.density import Density
from oracles.refusals import assert_refused

MEASURES = (mf.stable_rank, mf.participation_ratio, mf.effective_rank)


def covariance(spectrum: np.ndarray, seed: int = 0) -> np.ndarray:
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum),) * 2))
    return basis * spectrum @ basis.T


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda s: max(s) > 1e-3), st.integers(0, 9))
def test_order_of_the_ranks(spectrum: list[float], seed: int) -> None:
    stable, ratio, effective = (float(f(covariance(np.array(spectrum), seed))) for f in MEASURES)
    assert 1 - 1e-12 <= stable <= ratio + 1e-12
    assert ratio <= effective + 1e-12
    assert effective <= 5 + 1e-12


def test_by_hand() -> None:
    # Shares 1/2, 1/4, 1/4.
    sigma = covariance(np.array([2.0, 1.0, 1.0]))
    np.testing.assert_allclose([float(f(sigma)) for f in MEASURES], [2, 8 / 3, 2 * np.sqrt(2)], rtol=1e-13)
    for f in MEASURES:
        np.testing.assert_allclose(float(f(7.0 * np.eye(4))), 4, rtol=1e-13)
        np.testing.assert_allclose(float(f(covariance(np.array([3.0, 0, 0])))), 1, rtol=1e-7)
        # A single point has no variance in any direction.
        assert float(f(mf.PointCloud([[1.0, 2.0]]))) == 1


def test_of_a_measure_is_of_its_covariance() -> None:
    rng = np.random.default_rng(71)
    tokens = mf.PointCloud(rng.normal(size=(10, 3)) * [3.0, 1.0, 0.1])
    gaussian = mf.Gaussian(jnp.zeros(3), tokens.covariance)
    for f in MEASURES:
        np.testing.assert_allclose(f(tokens), f(tokens.covariance), rtol=1e-13)
        np.testing.assert_allclose(f(gaussian), f(tokens.covariance), rtol=1e-12)
        np.testing.assert_allclose(jax.jit(f)(tokens), f(tokens), rtol=1e-12)


# IsoScore


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda s: max(s) > 1e-3), st.integers(0, 9))
def test_isoscore_is_the_published_recipe(spectrum: list[float], seed: int) -> None:
    r"""Row 50: the recipe scales the spectrum to length sqrt(d), takes its distance to (1, ..., 1) relative to the
    largest possible, $\delta$, the share of dimensions used $(d-\delta^2(d-\sqrt d))^2/d^2$, and scales that to [0, 1].
    """
    d = len(spectrum)
    scaled = np.sqrt(d) * np.array(spectrum) / np.linalg.norm(spectrum)
    delta = np.linalg.norm(scaled - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    used = (d - delta**2 * (d - np.sqrt(d))) ** 2 / d**2
    expected = (d * used - 1) / (d - 1)
    np.testing.assert_allclose(float(isoscore(covariance(np.array(spectrum), seed))), expected, rtol=0, atol=1e-12)


def test_isoscore_at_its_ends() -> None:
    np.testing.assert_allclose(isoscore(3 * np.eye(4)), 1, rtol=1e-14)
    np.testing.assert_allclose(isoscore(np.diag([2.0, 0, 0])), 0, atol=1e-14)
    assert float(isoscore(mf.PointCloud([[1.0, 2.0]]))) == 0
    assert float(isoscore([[0.7]])) == 1


def test_of_a_density() -> None:
    values = np.outer(np.exp(-(np.linspace(-3, 3, 12) ** 2)), np.exp(-(np.linspace(-3, 3, 10) ** 2) * 4))
    rho = Density(values / values.sum() / (0.5 * 0.6), low=[-3.0, -3.0], high=[3.0, 3.0])
    for f in (*MEASURES, isoscore):
        np.testing.assert_allclose(f(rho), f(rho.covariance), rtol=1e-12)
    cells = rho.cloud()
    np.testing.assert_allclose(average_cosine(rho), pairwise_cosine(cells.points, cells.weights), atol=1e-13)


# The average cosine


def pairwise_cosine(x, w) -> float:
    """The weighted mean over pairs of different tokens, as a double loop."""
    x, w = np.asarray(x), np.asarray(w)
    total = mass = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            lengths = np.linalg.norm(x[i]) * np.linalg.norm(x[j])
            if i != j and lengths > 0:
                total += w[i] * w[j] * (x[i] @ x[j]) / lengths
                mass += w[i] * w[j]
    return total / mass


def test_average_cosine_is_that_of_pairs() -> None:
    rng = np.random.default_rng(72)
    x = rng.normal(size=(9, 3)) + 0.5
    x[4] = 0  # no direction
    w = rng.uniform(0.1, 1, size=9)
    w[6] = 0
    w /= w.sum()
    np.testing.assert_allclose(average_cosine(mf.PointCloud(x, w)), pairwise_cosine(x, w), rtol=1e-13)
    # Lengths do not matter, however large or small.
    far = x * 10.0 ** rng.integers(-200, 200, size=(9, 1))
    np.testing.assert_allclose(average_cosine(mf.PointCloud(far, w)), pairwise_cosine(x, w), rtol=1e-12)
    slope = jax.grad(lambda x: average_cosine(mf.PointCloud(x, w)))(jnp.asarray(x))
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(np.sum(np.asarray(slope) * x, axis=1), 0, atol=1e-14)


def test_average_cosine_by_hand() -> None:
    e = np.eye(3)
    np.testing.assert_allclose(average_cosine(mf.PointCloud(e)), 0, atol=1e-15)
    np.testing.assert_allclose(average_cosine(mf.PointCloud([e[0], 5 * e[0]])), 1, rtol=1e-15)
    np.testing.assert_allclose(average_cosine(mf.PointCloud([e[0], -e[0]])), -1, rtol=1e-15)
    assert np.isnan(average_cosine(mf.PointCloud([e[0], 0 * e[0]])))
    assert_refused(lambda: average_cosine(mf.Gaussian(np.zeros(2), cov=np.eye(2))), ("average_cosine", "Gaussian"))
    batch = mf.stack_clouds([mf.PointCloud(e), mf.PointCloud(e)])
    assert_refused(lambda: average_cosine(batch), ("(2, 3, 3)", "vmap"))


def test_many_covariances_on_the_host():
    """As one by one; a single point counts as rank 1, and what is not finite has no rank."""
    factors = np.random.default_rng(0).normal(size=(6, 3, 3))
    covariances = factors @ factors.transpose(0, 2, 1)
    np.testing.assert_allclose(effective_ranks(covariances), [mf.effective_rank(C) for C in covariances], rtol=1e-12)
    odd = np.stack([np.zeros((3, 3)), np.diag([2.0, 0.0, 0.0]), np.full((3, 3), np.inf)])
    np.testing.assert_array_equal(effective_ranks(odd), [1.0, 1.0, np.nan])

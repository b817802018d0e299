"""Effective rank, participation ratio, stable rank."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import meanformer as mf

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

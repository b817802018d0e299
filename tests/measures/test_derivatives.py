"""Derivatives of measures where roots and eigenvalues have none."""

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf


def test_radius_with_a_token_at_zero():
    gradient = jax.grad(lambda x: mf.PointCloud(x).radius)(jnp.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(gradient, [[0, 0], [0.6, 0.8]], atol=1e-15)
    assert float(mf.PointCloud([[0.0, 0.0]]).radius) == 0


def test_covariance_of_an_isotropic_gaussian():
    slope = jax.grad(lambda s: jnp.trace(mf.Gaussian(jnp.zeros(3), cov=s * jnp.eye(3)).covariance))(jnp.asarray(2.0))
    np.testing.assert_allclose(slope, 3.0, rtol=1e-14)


def test_singular_covariance_keeps_its_rank():
    cov = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    g = mf.Gaussian(np.zeros(3), cov=cov)
    np.testing.assert_allclose(g.covariance, cov, atol=1e-15)
    assert np.linalg.matrix_rank(g.factor, tol=1e-12) == 1

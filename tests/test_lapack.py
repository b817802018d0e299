"""Exponentials of matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from meanformer._lapack import expm, expm_on_host

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 40.0])
def test_exponentials_are_those_of_scipy(size: float) -> None:
    X = size * RNG.normal(size=(4, 3, 3))
    want = np.stack([scipy.linalg.expm(x) for x in X])
    scale = np.abs(want).max((1, 2), keepdims=True)
    for found in (expm_on_host(X), np.stack([jax.jit(expm)(jnp.asarray(x)) for x in X])):
        assert (np.abs(found - want) / scale).max() < 1e-12 * max(1.0, size)


def test_nilpotent_and_infinite() -> None:
    np.testing.assert_allclose(expm_on_host(np.array([[0.0, 1e3], [0.0, 0.0]])), [[1, 1e3], [0, 1]], atol=1e-9)
    assert not np.isfinite(expm_on_host(np.full((1, 1), 1e6))).any()
    assert float(expm(jnp.full((1, 1), -1e4))[0, 0]) == 0


def test_both_derivatives_are_exact() -> None:
    X, E = jnp.asarray(RNG.normal(size=(3, 3))), jnp.asarray(RNG.normal(size=(3, 3)))
    _, want = scipy.linalg.expm_frechet(np.asarray(X), np.asarray(E))
    np.testing.assert_allclose(jax.jvp(expm, (X,), (E,))[1], want, rtol=1e-11)
    W = jnp.asarray(RNG.normal(size=(3, 3)))
    gradient = jax.grad(lambda X: jnp.sum(W * expm(X)))(X)
    np.testing.assert_allclose(jnp.sum(gradient * E), np.sum(np.asarray(W) * want), rtol=1e-11)

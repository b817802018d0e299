"""Layers push Gaussians forward exactly (MATH e.1, row 53)."""

import numpy as np
import pytest

import meanformer as mf

D = 3


def matrices(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def softmax_layer(Q, K, V, m, L, h):
    """One layer in NumPy: every x moves to x + h (u + G (x - m)), with u and G of MATH e.2."""
    S, A = L @ L.T, K.T @ Q
    return m + h * V @ (m + S @ A @ m), (np.eye(D) + h * V @ S @ A) @ L


def l2_layer(Q, K, V, m, L, h):
    S = L @ L.T
    H = 2 * S @ K.T @ np.linalg.inv(np.eye(len(K)) + 2 * K @ S @ K.T)
    return m + h * V @ (m + H @ (Q - K) @ m), (np.eye(D) + h * V @ H @ Q) @ L


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_push_forward(rank):
    """Any rank, and large steps, after which Sigma + h Sigma' would not even be positive."""
    Q, K, V, m, L = matrices(rank, (2, D), (2, D), (D, D), (D,), (D, rank))
    h, depth = 0.7, 4
    run = mf.layers(mf.Softmax(Q, K, V), mf.Gaussian(m, factor=L), depth, step=h)
    np.testing.assert_allclose(run.times, h * np.arange(depth + 1), rtol=1e-15)
    for number in range(depth + 1):
        state = run.states[number]
        scale = np.linalg.norm(L)
        np.testing.assert_allclose(state.mean, m, rtol=0, atol=1e-12 * max(np.linalg.norm(m), scale))
        # The factor itself, not only Sigma: (I + hG) L has the columns of L, so that the rank cannot change.
        np.testing.assert_allclose(state.factor, L, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(state.covariance, L @ L.T, rtol=0, atol=1e-12 * scale**2)
        m, L = softmax_layer(Q, K, V, m, L, h)
    assert run.outcome.kind == "REACHED"


def test_a_list_of_layers():
    """Each layer sees the Gaussian that the layers before it have made."""
    Q1, K1, V1, Q2, K2, V2, m, L = matrices(4, *[(2, D), (2, D), (D, D)] * 2, (D,), (D, D))
    steps = [(mf.Softmax(Q1, K1, V1), softmax_layer, (Q1, K1, V1)), (mf.L2(Q2, K2, V2), l2_layer, (Q2, K2, V2))]
    gaussian = mf.Gaussian(m, factor=L)
    run = mf.layers([field for field, _, _ in steps], gaussian, step=0.3)
    for _, layer, weights in steps:
        m, L = layer(*weights, m, L, 0.3)
    np.testing.assert_allclose(run.final.mean, m, rtol=1e-12)
    np.testing.assert_allclose(run.final.factor, L, rtol=0, atol=1e-12 * np.linalg.norm(L))
    last = mf.layers([field for field, _, _ in steps], gaussian, step=0.3, save="final")
    np.testing.assert_array_equal(last.times, [0, 0.6])
    np.testing.assert_array_equal(last.final.factor, run.final.factor)
    np.testing.assert_array_equal(last.states[0].factor, run.states[0].factor)
    assert last.states.mean.shape == (2, D)


def test_order_one_towards_the_flow():
    Q, K, m, L = matrices(5, (D, D), (D, D), (D,), (D, D))
    Q, L = -0.5 * K, 0.5 * L
    gaussian, field = mf.Gaussian(m, factor=L), mf.Softmax(Q, K, np.eye(D))
    exact = mf.softmax_identity_flow(K.T @ Q, gaussian, 1.0)
    errors = []
    for depth in (64, 128, 256):
        final = mf.layers(field, gaussian, depth, save="final").final
        gaps = (final.mean - exact.mean, final.covariance - exact.covariance)
        errors.append([np.linalg.norm(gap) for gap in gaps])
    orders = np.log2(np.array(errors)[:-1] / np.array(errors)[1:])
    np.testing.assert_allclose(orders, 1, atol=0.05)


def test_layers_of_a_gaussian_are_layers_of_its_samples():
    """With linear attention the moments of any tokens move as those of the Gaussian with these moments (MATH e.2)."""
    Q, K, V, X = matrices(6, (2, D), (2, D), (D, D), (7, D))
    field, cloud = mf.Linear(0.3 * Q, K, V), mf.PointCloud(X)
    tokens = mf.layers(field, cloud, 3).final
    gaussian = mf.layers(field, mf.Gaussian(cloud.mean, cov=cloud.covariance), 3).final
    scale = np.abs(tokens.covariance).max()
    np.testing.assert_allclose(gaussian.mean, tokens.mean, rtol=0, atol=1e-12 * np.sqrt(scale))
    np.testing.assert_allclose(gaussian.covariance, tokens.covariance, rtol=0, atol=1e-12 * scale)


def test_refusals():
    gaussian = mf.Gaussian(np.zeros(D), cov=np.eye(D))
    Q = np.eye(D)
    with pytest.raises(mf.InputError, match="how many layers"):
        mf.layers(mf.Softmax(Q, Q, Q), gaussian)
    with pytest.raises(mf.InputError, match="Sigmoid"):
        mf.layers(mf.Sigmoid(Q, Q, Q), gaussian, 2)
    with pytest.raises(mf.InputError):
        mf.layers(mf.Softmax(Q, Q, Q), gaussian, 2, space=mf.Sphere())

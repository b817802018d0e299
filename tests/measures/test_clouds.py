"""Weighted clouds: moments, radius, push-forward, resampling, positions, batches."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given

import meanformer as mf
from oracles import draws


@given(points=draws.arrays((7, 3), 5.0), weights=draws.weights(7))
def test_moments_and_radius(points, weights):
    mu = mf.PointCloud(points, weights)
    mean = sum(w * x for w, x in zip(weights, points, strict=True))
    covariance = sum(w * np.outer(x - mean, x - mean) for w, x in zip(weights, points, strict=True))
    np.testing.assert_allclose(mu.mean, mean, rtol=0, atol=1e-13)
    np.testing.assert_allclose(mu.covariance, covariance, rtol=0, atol=1e-12)
    assert float(mu.radius) == pytest.approx(max(np.linalg.norm(x) for x in points[weights > 0]), rel=1e-14)


def test_default_weights_are_equal():
    mu = mf.PointCloud(np.arange(8.0).reshape(4, 2))
    assert (mu.n, mu.d, mu.positions) == (4, 2, None)
    assert np.array_equal(mu.weights, np.full(4, 0.25))


@pytest.mark.parametrize("n", [8, 1000, 100_000])
def test_a_cloud_does_not_change_with_the_array_it_was_made_from(n):
    for offset in range(8):  # JAX shares memory that lies where it likes it
        table = np.zeros(2 * n + 16)[offset : offset + 2 * n].reshape(n, 2)
        cloud = mf.PointCloud(table)
        table[:] = 1
        assert not np.asarray(cloud.points).any(), offset


def test_zero_weight_is_outside_the_radius():
    mu = mf.PointCloud([[3.0, 4.0], [30.0, 40.0]], [1.0, 0.0])
    assert float(mu.radius) == 5.0
    assert np.array_equal(mu.visible, [True, False])


def test_push_moves_points_only():
    mu = mf.PointCloud([[1.0], [2.0]], [0.25, 0.75], [0.0, 1.0])
    pushed = mu.push(lambda x: x**2 + 1)
    assert np.array_equal(pushed.points, [[2.0], [5.0]])
    assert np.array_equal(pushed.weights, mu.weights) and np.array_equal(pushed.positions, mu.positions)
    wide = mu.push(lambda x: jnp.concatenate([x, x], axis=1))  # the image may live in another space
    assert wide.d == 2


def test_positions():
    mu = mf.PointCloud(np.zeros((4, 1))).with_positions()
    assert np.array_equal(mu.positions, [0.25, 0.5, 0.75, 1.0])
    other = mu.with_positions([0.0, 1.0, 0.5, 0.5])
    assert np.array_equal(other.positions, [0.0, 1.0, 0.5, 0.5])


def test_resample():
    """Draws follow the weights, points of zero weight are never drawn, positions travel with their tokens."""
    points, weights = np.array([[0.0], [1.0], [2.0]]), np.array([0.3, 0.0, 0.7])
    mu = mf.PointCloud(points, weights, positions=points[:, 0] / 2)
    drawn = mu.resample(20000, key=jr.key(0))
    assert drawn.n == 20000 and np.array_equal(drawn.weights, np.full(20000, 1 / 20000))
    assert set(np.unique(drawn.points)) == {0.0, 2.0}
    assert np.array_equal(drawn.positions, drawn.points[:, 0] / 2)
    share = float((drawn.points == 2.0).mean())
    assert abs(share - 0.7) < 5 * np.sqrt(0.3 * 0.7 / 20000)
    assert np.array_equal(mu.resample(9, key=jr.key(1)).points, mu.resample(9, key=jr.key(1)).points)
    assert not np.array_equal(mu.resample(9, key=jr.key(1)).points, mu.resample(9, key=jr.key(2)).points)


def test_stack_clouds():
    short = mf.PointCloud([[1.0], [2.0]], [0.4, 0.6], [0.0, 0.5])
    long = mf.PointCloud([[3.0], [4.0], [5.0]], [0.2, 0.3, 0.5], [0.1, 0.2, 0.3])
    batch = mf.stack_clouds([short, long])
    assert batch.points.shape == (2, 3, 1)
    assert np.array_equal(batch.weights, [[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]])
    assert np.array_equal(batch.positions[:, :2], [[0.0, 0.5], [0.1, 0.2]])
    for got, cloud in zip((batch[0], batch[1]), (short, long), strict=True):
        np.testing.assert_allclose(got.mean, cloud.mean, rtol=1e-15)
        np.testing.assert_allclose(got.covariance, cloud.covariance, rtol=1e-14)
        assert float(got.radius) == float(cloud.radius)
    # Moments of a batch are the batch of moments.
    np.testing.assert_allclose(batch.mean, [short.mean, long.mean], rtol=1e-15)
    np.testing.assert_allclose(batch.covariance, [short.covariance, long.covariance], rtol=1e-14)
    assert np.array_equal(batch.radius, [2.0, 5.0])


def test_dtypes():
    assert mf.PointCloud([[1], [2]]).points.dtype == jnp.float64
    single = mf.PointCloud(np.ones((2, 1), np.float32))
    assert single.points.dtype == single.weights.dtype == single.mean.dtype == single.covariance.dtype == jnp.float32
    mixed = mf.PointCloud(np.ones((2, 1), np.float32), np.array([0.5, 0.5]))
    assert mixed.points.dtype == mixed.weights.dtype == jnp.float64
    assert single.with_positions().positions.dtype == jnp.float32


def test_a_cloud_passes_through_transformations():
    mu = mf.PointCloud([[1.0, 2.0], [3.0, 4.0]], [0.5, 0.5])
    gradient = jax.grad(lambda points: mf.PointCloud(points, mu.weights).covariance.trace())(mu.points)
    np.testing.assert_allclose(gradient, (mu.points - mu.mean[None]), rtol=1e-14)  # 2 w_i (x_i - m)
    assert float(jax.jit(lambda mu: mu.radius)(mu)) == 5.0

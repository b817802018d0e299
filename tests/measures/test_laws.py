"""Laws: the exact mean and covariance against many draws, and the support."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf

N = 20000
ROTATION = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
TILTED = ROTATION @ np.diag([2.0, 0.3]) @ ROTATION.T
LAWS = {
    "ball": lambda: mf.uniform_ball(d=3, radius=2.0, centre=[1.0, 0.0, -1.0]),
    "ball on a line": lambda: mf.uniform_ball(d=1, radius=0.5),
    "cube": lambda: mf.uniform_cube(d=2, low=[-5.0, 1.0], high=[5.0, 2.0]),
    "sphere": lambda: mf.uniform_sphere(d=3, radius=2.0),
    "gaussian": lambda: mf.Gaussian(mean=[1.0, -2.0], cov=TILTED),
    "singular gaussian": lambda: mf.Gaussian(mean=[0.0, 1.0], factor=[[1.0], [2.0]]),
    "mixture": lambda: mf.gaussian_mixture(
        means=[[-2.0, 0.0], [2.0, 1.0], [0.0, 3.0]], covs=[0.1 * np.eye(2), TILTED, np.eye(2)], weights=[0.2, 0.5, 0.3]
    ),
    "explicit points": lambda: mf.empirical([[0.0, 1.0], [2.0, 2.0], [5.0, -1.0]], [0.5, 0.25, 0.25]),
}


def deviations(law, points):
    """Sample mean and covariance minus the exact ones, in standard errors (estimated from the sample)."""
    points, mean = np.asarray(points), np.asarray(law.mean)
    centred = points - mean
    products = centred[:, :, None] * centred[:, None, :]
    out = []
    for sample, exact in ((points, mean), (products, np.asarray(law.covariance))):
        spread = sample.std(axis=0) / np.sqrt(len(sample))
        out.append(np.abs(sample.mean(axis=0) - exact) / np.maximum(spread, 1e-12))
    return out


@pytest.mark.parametrize("name", LAWS)
def test_exact_moments(name):
    law = LAWS[name]()
    tokens = law.sample(N, key=jr.key(7))
    assert tokens.points.shape == (N, law.d)
    assert np.array_equal(tokens.weights, np.full(N, 1 / N))
    mean, covariance = deviations(law, tokens.points)
    assert mean.max() < 5 and covariance.max() < 5


@pytest.mark.parametrize("name", LAWS)
def test_moments_can_fail(name):
    """A covariance wrong by a tenth, or a mean by a tenth of a deviation, is more than 5 standard errors off."""

    class Wrong:
        mean = LAWS[name]().mean + 0.1 * jnp.sqrt(jnp.diag(LAWS[name]().covariance))
        covariance = LAWS[name]().covariance

    points = LAWS[name]().sample(N, key=jr.key(7)).points
    assert deviations(Wrong, points)[0].max() > 5
    Wrong.mean, Wrong.covariance = LAWS[name]().mean, 1.1 * LAWS[name]().covariance
    assert deviations(Wrong, points)[1].max() > 5


def test_closed_forms():
    """The covariances in the books."""
    np.testing.assert_allclose(LAWS["ball"]().covariance, 4 / 5 * np.eye(3), rtol=1e-15)
    np.testing.assert_allclose(LAWS["ball on a line"]().covariance, [[1 / 12]], rtol=1e-15)
    np.testing.assert_allclose(LAWS["cube"]().covariance, np.diag([100 / 12, 1 / 12]), rtol=1e-15)
    np.testing.assert_allclose(LAWS["sphere"]().covariance, 4 / 3 * np.eye(3), rtol=1e-15)
    np.testing.assert_allclose(LAWS["gaussian"]().covariance, TILTED, rtol=1e-14)
    np.testing.assert_allclose(LAWS["singular gaussian"]().covariance, [[1, 2], [2, 4]], rtol=1e-15)


def test_supports():
    ball = np.asarray(LAWS["ball"]().sample(N, key=jr.key(1)).points) - [1.0, 0.0, -1.0]
    radii = np.linalg.norm(ball, axis=1)
    assert radii.max() <= 2.0 and radii.max() > 1.99
    # Uniform in volume: half the mass is within radius R / 2^(1/3).
    assert abs((radii < 2 / 2 ** (1 / 3)).mean() - 0.5) < 5 * 0.5 / np.sqrt(N)
    cube = np.asarray(LAWS["cube"]().sample(N, key=jr.key(2)).points)
    assert (cube >= [-5, 1]).all() and (cube <= [5, 2]).all()
    sphere = LAWS["sphere"]().sample(N, key=jr.key(3)).points
    np.testing.assert_allclose(np.linalg.norm(sphere, axis=1), 2.0, rtol=1e-14)
    line = np.asarray(LAWS["singular gaussian"]().sample(N, key=jr.key(4)).points) - [0.0, 1.0]
    np.testing.assert_allclose(line[:, 1], 2 * line[:, 0], rtol=0, atol=1e-14)
    drawn = np.asarray(LAWS["explicit points"]().sample(N, key=jr.key(5)).points)
    assert {tuple(x) for x in drawn} == {(0.0, 1.0), (2.0, 2.0), (5.0, -1.0)}


def test_mixture_components():
    """Well separated components are drawn in their shares, each around its mean."""
    law = mf.gaussian_mixture(means=[[-20.0, 0.0], [20.0, 0.0]], covs=0.1, weights=[0.25, 0.75])
    points = np.asarray(law.sample(N, key=jr.key(6)).points)
    right = points[:, 0] > 0
    assert abs(right.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / N)
    for side, centre in ((right, [20, 0]), (~right, [-20, 0])):
        assert np.abs(points[side].mean(axis=0) - centre).max() < 5 * np.sqrt(0.1 / side.sum())
    assert np.array_equal(mf.gaussian_mixture(means=[[0.0], [1.0]], covs=1.0).weights, [0.5, 0.5])


def test_singular_covariance_keeps_its_rank():
    """A factor made from a singular covariance has exact zeros in place of round-off."""
    direction = np.array([[1.0, 2.0, -1.0]])
    made = mf.Gaussian(mean=np.zeros(3), cov=direction.T @ direction)
    assert np.linalg.matrix_rank(np.asarray(made.factor)) == 1
    np.testing.assert_allclose(made.covariance, direction.T @ direction, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", LAWS)
def test_keys_decide(name):
    law = LAWS[name]()
    one, same, other = (law.sample(N, key=jr.key(seed)).points for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_dtype_of_draws():
    single = np.float32
    laws = [
        (mf.uniform_cube(d=2, low=single(0), high=single(1)), jnp.float32),
        (mf.Gaussian(np.zeros(2, single), np.eye(2, dtype=single)), jnp.float32),
        (mf.uniform_cube(d=2), jnp.float64),
        (mf.uniform_cube(d=2, low=0, high=single(1)), jnp.float64),
    ]
    for law, dtype in laws:
        assert law.sample(N, key=jr.key(0)).points.dtype == dtype

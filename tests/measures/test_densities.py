"""Densities: moments, conversions between the three representations, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import meanformer as mf
from oracles.refusals import assert_refused

PLANE = mf.Gaussian([0.3, -0.2], cov=[[0.5, 0.2], [0.2, 0.4]])


def test_a_gaussian_keeps_its_moments_on_the_grid():
    line, plane = mf.Gaussian([0.7], cov=0.3), PLANE
    for g, cells in ((line, 80), (plane, 40)):
        rho = mf.to_density(g, cells=cells)
        # The midpoint rule is spectrally accurate on a Gaussian; what is left is the mass beyond 8 deviations.
        np.testing.assert_allclose(rho.mean, g.mean, atol=1e-12)
        np.testing.assert_allclose(rho.covariance, g.covariance, atol=1e-12)
        assert abs(float(rho.mass) - 1) < 1e-14
        back = mf.to_gaussian(rho)
        np.testing.assert_allclose(back.covariance, g.covariance, atol=1e-12)
    rho = mf.to_density(line, cells=80)
    exact = stats.norm(0.7, np.sqrt(0.3)).pdf(np.asarray(rho.centres(0)))
    np.testing.assert_allclose(rho.values, exact, rtol=1e-12, atol=1e-16)


def test_cells_are_placed_row_by_row():
    rho = mf.to_density(lambda x: jnp.exp(-x[:, 0] - 3 * x[:, 1]), cells=(2, 3), low=[0.0, 10.0], high=[2.0, 13.0])
    np.testing.assert_allclose(rho.centres(0), [0.5, 1.5])
    np.testing.assert_allclose(rho.edges(1), [10, 11, 12, 13])
    cloud = rho.cloud()
    np.testing.assert_allclose(cloud.points[:4], [[0.5, 10.5], [0.5, 11.5], [0.5, 12.5], [1.5, 10.5]])
    np.testing.assert_allclose(cloud.weights, np.asarray(rho.masses).ravel())
    np.testing.assert_allclose(rho.masses[1] / rho.masses[0], np.exp(-1))
    np.testing.assert_allclose(rho.spacing, [1, 1])
    assert "2 x 3 cells on [0, 2] x [10, 13]" in repr(rho)


def test_tokens_keep_mass_mean_and_nearly_their_spread():
    tokens = mf.PointCloud(
        np.random.default_rng(0).normal(size=(50, 2)), np.random.default_rng(1).dirichlet(np.ones(50))
    )
    rho = mf.to_density(tokens, cells=(40, 60))
    np.testing.assert_allclose(rho.mean, tokens.mean, atol=1e-13)
    # Linear shares add a variance between 0 and h^2/4 in each coordinate, none across.
    excess = np.asarray(rho.covariance - tokens.covariance)
    assert (np.diag(excess) >= -1e-14).all() and (np.diag(excess) <= np.asarray(rho.spacing) ** 2 / 4).all()
    assert abs(excess[0, 1]) < 1e-13
    one = mf.to_density(mf.PointCloud([[1.0], [1.0]]), cells=4, low=0.0, high=2.0)
    np.testing.assert_allclose(one.masses, [0, 0.5, 0.5, 0])


def test_tokens_with_positions_have_a_row_each():
    tokens = mf.PointCloud([[0.0], [1.0], [3.0]], [0.5, 0.25, 0.25], positions=[0.5, 1.0, 0.5])
    rho = mf.to_density(tokens, cells=4, low=-0.5, high=3.5)
    np.testing.assert_allclose(rho.positions, [0.5, 1.0])
    np.testing.assert_allclose(rho.masses, [[0.5, 0, 0, 0.25], [0, 0.25, 0, 0]])
    np.testing.assert_allclose(rho.marginal().masses, [0.5, 0.25, 0, 0.25])
    back = mf.to_cloud(rho)
    np.testing.assert_allclose(back.points[:, 0], [0, 3, 1])
    np.testing.assert_allclose(back.positions, [0.5, 0.5, 1.0])
    np.testing.assert_allclose(rho.mean, tokens.mean)


def test_laws_and_functions():
    cube = mf.to_density(mf.uniform_cube(2, low=[0, 1], high=[2, 4]), cells=8)
    np.testing.assert_allclose(cube.values, 1 / 6, rtol=1e-14)
    ball = mf.to_density(mf.uniform_ball(1, radius=2.0), cells=10)
    np.testing.assert_allclose(ball.values, 0.25, rtol=1e-14)
    mixture = mf.gaussian_mixture([[-2.0], [2.0]], 0.25, [0.25, 0.75])
    rho = mf.to_density(mixture, cells=80)
    np.testing.assert_allclose(rho.mean, mixture.mean, atol=1e-12)
    np.testing.assert_allclose(rho.covariance, mixture.covariance, atol=1e-12)
    repeated = mf.to_density(mixture, cells=80, positions=[0.25, 1.0])
    np.testing.assert_allclose(repeated.masses, np.stack([rho.masses, rho.masses]) / 2)


def test_more_room_moves_nothing():
    rho = mf.to_density(PLANE, cells=16)
    wide = rho.extended([-10.0, 0.0], [0.0, 12.0])
    np.testing.assert_allclose(wide.spacing, rho.spacing, rtol=1e-14)
    np.testing.assert_allclose(wide.mean, rho.mean, atol=1e-12)
    np.testing.assert_allclose(wide.covariance, rho.covariance, atol=1e-12)
    assert float(wide.low[0]) <= -10 and float(wide.high[1]) >= 12 and float(wide.low[1]) == float(rho.low[1])


def test_sampling_a_density():
    rho = mf.to_density(mf.Gaussian([0.5], cov=0.2), cells=80)
    tokens = mf.to_cloud(rho, 4000, key=jax.random.key(0))
    assert abs(float(tokens.mean[0]) - 0.5) < 4 * np.sqrt(0.2 / 4000)
    assert mf.to_cloud(tokens) is tokens
    assert mf.to_cloud(PLANE, 5, key=jax.random.key(0)).points.shape == (5, 2)


def test_a_field_sees_the_cells():
    rho = mf.to_density(mf.Gaussian([0.3], cov=0.5), cells=80)
    field = mf.Softmax(0.8, 0.7, 0.9)
    G, b = field.affine(mf.Gaussian([0.3], cov=0.5))
    x = np.array([[-1.0], [0.4], [2.0]])
    np.testing.assert_allclose(field(rho, x), x @ np.asarray(G).T + np.asarray(b), atol=1e-12)
    np.testing.assert_allclose(mf.velocity(field, rho)[:, 0], field(rho, rho.centres(0)[:, None])[:, 0], rtol=1e-13)


good = np.full(4, 0.25)
COARSE = mf.to_density(PLANE, cells=16)
REFUSALS = [
    (lambda: mf.Density(good * 1.01, 0.0, 4.0), ["integral one", "1.01", "to_density"]),
    (lambda: mf.Density([0.5, -0.1, 0.35, 0.25], 0.0, 4.0), ["not be negative", "-0.1"]),
    (lambda: mf.Density([0.5, np.nan, 0.25, 0.25], 0.0, 4.0), ["finite", "nan", "(1,)"]),
    (lambda: mf.Density(good, 4.0, 0.0), ["low < high"]),
    (lambda: mf.Density(good, [0.0, 0.0], [4.0, 1.0]), ["grid over the box", "dimension 2"]),
    (lambda: mf.Density(good, [0.0] * 3, [1.0] * 3), ["dimension 1 or 2", "tokens"]),
    (lambda: mf.Density(np.full((2, 2), 0.25), [0.0, 0.0], [2.0, 2.0], positions=[0.5, 1.0]), ["lives on a line"]),
    (lambda: mf.Density(np.full((2, 2), 0.25), 0.0, 2.0, positions=[1.0, 0.5]), ["increase"]),
    (lambda: mf.Density(np.full((2, 2), 0.25), 0.0, 2.0, positions=[0.5, 1.5]), ["[0, 1]"]),
    (lambda: mf.to_density(lambda x: x[:, 0]), ["low and high for a function"]),
    (lambda: mf.to_density(lambda x: x, low=0.0, high=1.0, cells=4), ["one value per point"]),
    (lambda: mf.to_density(lambda x: 0 * x[:, 0], low=0.0, high=1.0, cells=4), ["mass in the box"]),
    (lambda: mf.to_density(mf.Gaussian(np.zeros(3), cov=np.eye(3))), ["dimension 1 and 2", "dimension 3"]),
    (lambda: mf.to_density(mf.Gaussian(np.zeros(2), cov=np.diag([1.0, 0.0]))), ["regular covariance"]),
    (lambda: mf.to_density(mf.PointCloud([[0.0], [5.0]]), low=-1.0, high=1.0), ["inside", "1 of 2"]),
    (lambda: mf.to_density(PLANE, cells=(4, 4, 4)), ["cells must match"]),
    (lambda: mf.to_density(PLANE, cells=10**7), ["fit in memory"]),
    (lambda: mf.to_density(PLANE, low=0.0, high=1.0), ["space of the measure"]),
    (lambda: mf.to_density(PLANE, low=[0.0, 0.0]), ["two corners"]),
    (lambda: mf.to_density(mf.uniform_sphere(2)), ["no density", "sample"]),
    (lambda: mf.to_density(COARSE, cells=9), ["its grid already", "extended"]),
    (
        lambda: mf.to_density(mf.Gaussian([0.0], cov=1e-4), cells=200, low=-5.0, high=5.0),
        ["too coarse", "0.05", "0.01"],
    ),
    (lambda: mf.to_cloud(PLANE), ["without n and key"]),
    (lambda: mf.to_cloud(COARSE, 10), ["Density without key"]),
    (lambda: mf.to_density(mf.Gaussian([0.0], cov=1.0), low=-2.0, high=2.0), ["cuts the Gaussian off", "95.5 %"]),
    (lambda: mf.to_density(lambda x: x[:, 0], low=-1.0, high=1.0, cells=4), ["not be negative", "clip"]),
    (lambda: mf.to_density(good), ["mf.Density(values, low, high)"]),
    (lambda: mf.to_gaussian(good), ["takes a measure"]),
    (lambda: COARSE.extended(-1.0, 1.0), ["space of the density"]),
    (lambda: COARSE[0], ["single density"]),
    (lambda: mf.Softmax(1.0, 1.0, 1.0)(COARSE, [[0.0, 0.0]]), ["does not fit"]),
]


@pytest.mark.parametrize("call, words", REFUSALS)
def test_refusals(call, words):
    assert_refused(call, words)

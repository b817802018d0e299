"""Entropic transport and the Sinkhorn divergence."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest

import meanformer as mf
from meanformer.measures.convert import to_density
from meanformer.measures.density import with_masses
from meanformer.metrics.entropic import EntropicDistance, NotConvergedWarning, entropic_cost, sinkhorn_divergence
from meanformer.metrics.wasserstein import wasserstein
from meanformer.reduce import exact
from oracles.refusals import assert_refused

N = 8  # one shape for most tests: compiled once
EPS = 0.7


def draw(seed: int, n: int = N) -> mf.PointCloud:
    rng = np.random.default_rng(seed)
    return mf.PointCloud(rng.normal(size=(n, 2)) + 0.3 * seed, rng.dirichlet(np.ones(n)))


ONE, TWO = draw(0), draw(1)


def divergence(mu, nu, eps=EPS, **options):
    result = sinkhorn_divergence(mu, nu, eps, **options)
    assert bool(result.converged)
    return float(result.value)


def plan(mu, nu, eps):
    """Cost matrix, plan (by POT, log domain), product of the marginals."""
    a, b, x, y = (np.asarray(array) for array in (mu.weights, nu.weights, mu.points, nu.points))
    cost = ot.dist(x, y)
    return cost, ot.sinkhorn(a, b, cost, eps, "sinkhorn_log", stopThr=1e-14, numItermax=10_000), np.outer(a, b)


def by_pot(mu, nu, eps):
    cost, P, product = plan(mu, nu, eps)
    return np.sum(P * cost) + eps * np.sum(P * np.log(P / product))


@pytest.mark.parametrize("eps", [0.7, 20.0])
def test_agrees_with_pot(eps):
    result = entropic_cost(ONE, TWO, eps)
    assert isinstance(result, EntropicDistance)
    assert bool(result.converged)
    assert float(result.marginal_error) < 1e-9
    np.testing.assert_allclose(float(result.value), by_pot(ONE, TWO, eps), rtol=1e-11)
    expected = by_pot(ONE, TWO, eps) - by_pot(ONE, ONE, eps) / 2 - by_pot(TWO, TWO, eps) / 2
    np.testing.assert_allclose(divergence(ONE, TWO, eps), expected, rtol=1e-10)


def test_convention_of_pot():
    """POT returns the cost of the plan, without the entropy: ours is larger by eps KL."""
    cost, P, product = plan(ONE, TWO, EPS)
    sharp = ot.sinkhorn2(*(np.asarray(c.weights) for c in (ONE, TWO)), cost, EPS, "sinkhorn_log", stopThr=1e-14)
    kl = np.sum(P * np.log(P / product))
    assert kl > 0.1
    np.testing.assert_allclose(float(entropic_cost(ONE, TWO, EPS).value), sharp + EPS * kl, rtol=1e-11)


def test_convention_of_ott():
    """The same cost, regularisation and divergence, with no factor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ott")
        from ott.geometry import pointcloud
        from ott.tools.sinkhorn_divergence import sinkhorn_divergence as theirs

        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            expected, _ = theirs(
                pointcloud.PointCloud,
                ONE.points,
                TWO.points,
                a=ONE.weights,
                b=TWO.weights,
                epsilon=EPS,
                solve_kwargs={"threshold": 1e-13, "max_iterations": 10_000},
            )
    np.testing.assert_allclose(divergence(ONE, TWO), float(expected), rtol=1e-11)


def test_translation_and_scale():
    r"""Translation by $a$: $S_\varepsilon=|a|^2$ for all $\varepsilon$. Dilation by $c$ goes with $c^2\varepsilon$."""
    for eps in (0.05, 0.5, 50.0):
        moved = ONE.push(lambda x: x + np.array([[3.0, -4.0]]))
        np.testing.assert_allclose(divergence(ONE, moved, eps), 25, rtol=1e-12)
    large = [mf.PointCloud(1e4 * c.points, c.weights) for c in (ONE, TWO)]
    np.testing.assert_allclose(divergence(*large, 1e8 * EPS), 1e8 * divergence(ONE, TWO), rtol=1e-12)
    diracs = (mf.PointCloud(np.tile([[x, 1.0]], (N, 1))) for x in (0.0, 2.0))
    np.testing.assert_allclose(divergence(*diracs), 4, rtol=1e-14)


def test_vanishes_between_equal_measures_only():
    order = np.random.default_rng(1).permutation(N)
    same = mf.PointCloud(ONE.points[order], ONE.weights[order])
    assert abs(divergence(ONE, same)) < 1e-13
    assert float(entropic_cost(ONE, same, EPS).value) > 0.1
    assert abs(divergence(ONE, same, 0.01)) < 1e-13
    there = divergence(ONE, TWO)
    assert there > 0.1
    np.testing.assert_allclose(divergence(TWO, ONE), there, rtol=1e-12)
    # A token of no weight, and a token in two parts, are other ways to write a measure.
    X, w = np.asarray(ONE.points)[: N - 1], np.asarray(ONE.weights)[: N - 1] / np.asarray(ONE.weights)[: N - 1].sum()
    ghost = mf.PointCloud(np.append(X, [[50.0, 0.0]], axis=0), np.append(w, 0))
    split = mf.PointCloud(np.append(X, X[:1], axis=0), np.append(w * np.where(np.arange(N - 1) > 0, 1, 0.5), w[0] / 2))
    assert abs(divergence(ghost, split)) < 1e-12
    np.testing.assert_allclose(divergence(ghost, TWO), divergence(split, TWO), rtol=1e-11)


def test_limits_of_eps():
    r"""$0\le W_\varepsilon-W_2^2\le\varepsilon H$, $H$ the smaller of the entropies of the weights; and the distance of
    the means at high temperature.
    """
    entropies = [float(-np.sum(np.asarray(c.weights) * np.log(c.weights))) for c in (ONE, TWO)]
    square = wasserstein(ONE, TWO) ** 2
    for eps in (0.3, 0.03):
        above = float(entropic_cost(ONE, TWO, eps).value) - square
        assert 0 < above < eps * min(entropies)
        assert -eps * sum(entropies) / 2 < divergence(ONE, TWO, eps) - square < eps * min(entropies)
    gap = float(np.sum((np.asarray(ONE.mean) - np.asarray(TWO.mean)) ** 2))
    np.testing.assert_allclose(divergence(ONE, TWO, 1e6), gap, rtol=1e-5)


def test_hard_problems_converge():
    """Low temperatures, far clusters, tiny weights: some hundred sweeps, where plain ones would need 10^4 and more."""
    rng = np.random.default_rng(3)
    place = np.array([[0.0, 0.0], [6.0, 1.0], [-3.0, 4.0]])
    weights = np.array([1e-9, 1e-5, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2])
    clusters = [
        mf.PointCloud(place[rng.integers(3, size=N)] + 0.1 * rng.normal(size=(N, 2)), w / w.sum())
        for w in (weights, rng.permutation(weights))
    ]
    for mu, nu in ((ONE, TWO), clusters):
        square = wasserstein(mu, nu) ** 2
        for eps in (1e-2, 1e-3, 1e-4):
            result = entropic_cost(mu, nu, eps)
            assert bool(result.converged)
            assert int(result.iterations) < 1000
            assert 0 <= float(result.value) - square < 3 * eps  # the entropies are below log 8
            assert abs(divergence(mu, mu.push(lambda x: 1.0 * x), eps)) < 1e-11


def test_no_array_of_all_pairs():
    """However many tokens there are; in the gradient too."""
    n = 40_000
    points = jax.ShapeDtypeStruct((n, 2), np.float64)

    def value(x, y):
        return sinkhorn_divergence(mf.PointCloud(x), mf.PointCloud(y), 0.1).value

    program = jax.make_jaxpr(jax.grad(value, argnums=(0, 1)))(points, points)
    assert exact.QUERY_BLOCK * exact.KEY_BLOCK <= largest(program.jaxpr) < 1e-3 * n**2


def largest(jaxpr) -> int:
    """The size of the largest array in a program, inner programs included."""
    sizes = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars if hasattr(v.aval, "size")]
    inner = (getattr(j, "jaxpr", j) for eqn in jaxpr.eqns for j in jax.tree.leaves(eqn.params, is_leaf=is_program))
    return max([*sizes, *(largest(j) for j in inner if hasattr(j, "eqns"))], default=0)


def is_program(value) -> bool:
    return hasattr(value, "jaxpr") or hasattr(value, "eqns")


def test_derivatives():
    """In points, weights and eps, against central differences; and none at equal measures."""
    rng = np.random.default_rng(8)
    dx, dy = rng.normal(size=(2, N, 2))
    dw = 0.1 * rng.normal(size=N) * np.asarray(ONE.weights)
    dw = dw - np.asarray(ONE.weights) * dw.sum()  # keeps the sum of the weights
    direction = (dx, dw, dy, np.array(0.3))

    def value(x, w, y, eps):
        return sinkhorn_divergence(mf.PointCloud(x, w), mf.PointCloud(y, TWO.weights), eps, tol=1e-13).value

    start = (ONE.points, ONE.weights, TWO.points, jnp.asarray(EPS))
    gradient = jax.grad(value, argnums=(0, 1, 2, 3))(*start)
    for k in range(4):
        there, back = (
            float(value(*(a + h * v * (i == k) for i, (a, v) in enumerate(zip(start, direction, strict=True)))))
            for h in (1e-4, -1e-4)
        )
        slope = (there - back) / 2e-4
        assert abs(slope) > 1e-4
        np.testing.assert_allclose(np.sum(np.asarray(gradient[k]) * direction[k]), slope, rtol=1e-6)
    _, forward = jax.jvp(value, start, tuple(jnp.asarray(v) for v in direction))
    expected = sum(np.sum(np.asarray(g) * v) for g, v in zip(gradient, direction, strict=True))
    np.testing.assert_allclose(forward, expected, rtol=1e-11)
    equal = jax.grad(value, argnums=(0, 1, 2, 3))(TWO.points, TWO.weights, TWO.points, jnp.asarray(EPS))
    np.testing.assert_allclose(equal[0], np.zeros((N, 2)), atol=1e-12)
    np.testing.assert_allclose(equal[2], np.zeros((N, 2)), atol=1e-12)


def test_is_never_silently_unconverged():
    with pytest.warns(NotConvergedWarning, match="marginal error of .*raise max_iter"):
        result = sinkhorn_divergence(ONE, TWO, 1e-3, max_iter=3)
    assert not bool(result.converged)
    assert float(result.marginal_error) > 1e-3
    with pytest.warns(NotConvergedWarning):
        entropic_cost(ONE, TWO, 1e-3, max_iter=3)


def test_dtypes_and_densities():
    small = [mf.PointCloud(np.asarray(c.points, np.float32)) for c in (ONE, TWO)]
    assert jax.eval_shape(lambda: sinkhorn_divergence(*small, EPS)).value.dtype == jnp.float32
    assert jax.eval_shape(lambda: sinkhorn_divergence(small[0], TWO, EPS)).value.dtype == jnp.float64
    rho = to_density(lambda x: jnp.exp(-jnp.sum(x**2, axis=1)), (N // 2, 2), low=(-2.0, -1.0), high=(2.0, 1.0))
    moved = rho.cloud().push(lambda x: x + 0.5)
    np.testing.assert_allclose(divergence(rho, moved), 0.5, rtol=1e-12)
    np.testing.assert_allclose(divergence(with_masses(rho, rho.masses / 2), moved), 0.5, rtol=1e-12)


BAD_CALLS = [
    (lambda: sinkhorn_divergence(ONE, TWO, 0.0), ("eps must be positive", "|x-y|^2")),
    (lambda: sinkhorn_divergence(ONE, TWO, [1.0]), ("eps must be a single number",)),
    (lambda: sinkhorn_divergence(ONE, TWO, np.nan), ("eps must be finite",)),
    (lambda: sinkhorn_divergence(ONE, TWO, 1.0, tol=2.0), ("tol must be below 1", "tol = 2")),
    (lambda: sinkhorn_divergence(ONE, TWO, 1.0, tol=-1.0), ("tol must be positive",)),
    (lambda: sinkhorn_divergence(ONE, TWO, 1.0, max_iter=0), ("max_iter must be",)),
    (lambda: sinkhorn_divergence(ONE.points, TWO, 1.0), ("mu must be a measure", "mf.PointCloud(")),
    (lambda: entropic_cost(ONE, mf.Gaussian([0.0, 0.0], cov=np.eye(2)), 1.0), ("nu must be made of tokens", "sample")),
    (lambda: entropic_cost(ONE, mf.PointCloud([[0.0]]), 1.0), ("one space", "d = 2 and d = 1")),
    (lambda: entropic_cost(mf.stack_clouds([ONE, TWO]), ONE, 1.0), ("single measure", "(2,)")),
    (lambda: entropic_cost(ONE.with_points(ONE.points * jnp.inf), ONE, 1.0), ("points of mu must be finite",)),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    assert_refused(call, words)


def test_an_eps_below_the_rounding_of_the_distances_is_not_converged():
    """A shared token far away: logits of 1e15 have no digits left, and the plan is wrong."""
    rng = np.random.default_rng(0)
    far = [[1e7, 0.0]]
    mu, nu = (mf.PointCloud(np.vstack([rng.normal(size=(5, 2)), far])) for _ in range(2))
    with pytest.warns(NotConvergedWarning, match="marginal error"):
        result = sinkhorn_divergence(mu, nu, 0.1)
    assert not bool(result.converged) and float(result.marginal_error) > 1e-3
    assert "NOT CONVERGED" in repr(result)

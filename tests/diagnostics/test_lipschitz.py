"""Rows 23 and 24: Lipschitz constants and what follows from them, for random, adversarial and wrong fields."""

import functools
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import meanformer as mf
from meanformer._scale import grown
from meanformer.attention.view import View
from meanformer.diagnostics.bounds import hardy_factor
from oracles.refusals import assert_refused

DRAWS = 200
N, D = 4, 2


def spectral(M):
    return jnp.linalg.norm(M, 2)


# The table of MATH d.2, without biases: a, v, q, kappa have the temperature in them.
TABLE = {
    "softmax": (
        lambda a, v, q, k, R: v * a * R**2,
        lambda a, v, q, k, R: v * (1 + 2 * a * R**2) * np.exp(2 * a * R**2),
    ),
    "l2": (
        lambda a, v, q, k, R: 2 * v * a * R**2,
        lambda a, v, q, k, R: v * (1 + 4 * k * (q + k) * R**2) * np.exp((q + k) ** 2 * R**2),
    ),
    "sigmoid": (lambda a, v, q, k, R: v * a * R**2 / 4, lambda a, v, q, k, R: v * (1 + a * R**2 / 4)),
    "linear": (lambda a, v, q, k, R: v * a * R**2, lambda a, v, q, k, R: 2 * v * a * R**2),
    "usa": (
        lambda a, v, q, k, R: v * a * R**2 * np.exp(a * R**2),
        lambda a, v, q, k, R: v * (1 + a * R**2) * np.exp(a * R**2),
    ),
    "sinkhorn": (lambda a, v, q, k, R: v * a * R**2, None),
}
KINDS = {
    "softmax": mf.Softmax,
    "l2": mf.L2,
    "sigmoid": mf.Sigmoid,
    "linear": mf.Linear,
    "usa": mf.Unnormalised,
    "sinkhorn": mf.Sinkhorn,
}


@pytest.mark.parametrize("kind", TABLE)
def test_the_table_of_math(kind):
    rng = np.random.default_rng(3)
    Q, K, V = rng.normal(size=(3, 2, 2))
    tau, R = 1.7, 0.8
    norm = lambda M: np.linalg.norm(M, 2)  # noqa: E731
    sizes = norm(K.T @ Q) / tau, norm(V), norm(Q) / np.sqrt(tau), norm(K) / np.sqrt(tau), R
    constants = mf.lipschitz_constants(KINDS[kind](Q, K, V, tau), R)
    in_x, in_mu = TABLE[kind]
    np.testing.assert_allclose(float(constants.x), in_x(*sizes), rtol=1e-13)
    if in_mu is None:
        assert constants.mu is None
    else:
        np.testing.assert_allclose(float(constants.mu), in_mu(*sizes), rtol=1e-13)


@functools.cache
def measured(kind):
    """A program for DRAWS fields of a kind, each with N tokens in the plane: the largest derivative of the field in the
    point and that of its first variation, over all tokens, each divided by its constant.
    """

    def at(point, points, field, mu):
        return field.evaluate(mu.with_points(points), point[None], jnp.zeros(()), View(None))[0]

    @jax.jit
    @jax.vmap
    def ratios(X, w, Q, K, V, bq, bk, bv):
        field = KINDS[kind](Q, K, V, query_bias=bq, key_bias=bk, value_bias=bv)
        mu = mf.PointCloud(X, w)
        constants = field.lipschitz(jnp.ones(()), mu.radius)
        in_x = jax.vmap(lambda x: jax.jacfwd(at)(x, X, field, mu))(X)
        in_mu = jax.vmap(lambda x: jax.jacrev(at, argnums=1)(x, X, field, mu))(X)
        in_mu = jnp.swapaxes(in_mu, 1, 2) / mu.weights[None, :, None, None]
        largest = [jnp.linalg.norm(M, 2, axis=(-2, -1)).max() for M in (in_x, in_mu)]
        return largest[0] / constants.x, jnp.zeros(()) if constants.mu is None else largest[1] / constants.mu

    return lambda *arrays: tuple(np.asarray(r) for r in ratios(*map(jnp.asarray, arrays)))


@pytest.mark.parametrize("kind", KINDS)
def test_row_23_constants_hold(kind):
    """Random configurations with biases: half of them on the boundary of the ball, some with near-coincident tokens."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(DRAWS, N, D))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    X[::2] *= rng.random((DRAWS // 2, N, 1))
    X[::5, 1] = 0.999 * X[::5, 0] + 1e-3 * X[::5, 2]
    w = rng.dirichlet(np.full(N, 0.5), size=DRAWS)
    w = (w + 1e-6) / (w + 1e-6).sum(axis=1, keepdims=True)
    size = rng.uniform(0.05, 1.2, size=(DRAWS, 1, 1))
    Q, K, V = size * rng.normal(size=(DRAWS, D, D)), rng.normal(size=(DRAWS, D, D)), rng.normal(size=(DRAWS, D, D))
    biases = 0.5 * rng.normal(size=(3, DRAWS, D)) * (rng.random((3, DRAWS, 1)) < 0.5)
    in_x, in_mu = measured(kind)(X, w, Q, K, V, *biases)
    assert in_x.max() <= 1 + 1e-9 and in_mu.max() <= 1 + 1e-9
    assert in_x.max() > 0.1  # not vacuous


def on_a_line(kind, points, w, *numbers):
    """The same ratios for tokens on the first axis and matrices that act on it alone."""
    X, E = np.zeros((N, D)), np.diag([1.0, 0.0])
    X[:, 0] = points
    arrays = X, np.array(w), *(number * E for number in numbers), *np.zeros((3, D))
    in_x, in_mu = measured(kind)(*(np.broadcast_to(a, (DRAWS, *a.shape)) for a in arrays))
    return in_x[0], in_mu[0]


@pytest.mark.parametrize("kind", KINDS)
def test_constants_in_the_point_are_sharp(kind):
    """Two points at the ends of the ball: the covariance of the attention at 0, where tokens have next to no weight, is
    all that it can be. Without normalisation the mass is at one end, and the derivative there is the largest.
    """
    few = 1e-9
    w = [1 - 3 * few, few, few, few] if kind == "usa" else [0.5 - few, 0.5 - few, few, few]
    in_x, _ = on_a_line(kind, [1.0, -1.0, 0.0, 0.0], w, 0.6, 0.5, 0.7)
    assert in_x == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("kind", ["softmax", "linear", "usa"])
def test_constants_in_the_measure_are_sharp(kind):
    """MATH d.2: x = y_1 = R, all others at -R, w_1 -> 0; the derivative is the analytic one."""
    few = 1e-7
    _, in_mu = on_a_line(kind, [1.0, -1.0, -1.0, -1.0], [few, *[(1 - few) / 3] * 3], 0.5, 0.5, 0.7)
    assert 0.999 < in_mu <= 1 + 1e-9


CLOUD = mf.PointCloud(np.random.default_rng(5).uniform(-1, 1, size=(6, 1)))


def moved(field, mu, t1=1.0):
    return mf.flow(field, mu, t1, save=2, rtol=1e-9).final


SIZED = {
    "softmax": (mf.Softmax, 1, None),
    "l2": (mf.L2, 2, None),
    "sinkhorn": (lambda *maps: mf.Sinkhorn(*maps, eps=1.0), 1, None),
    "sigmoid": (mf.Sigmoid, 1 / 4, 1 / 4),
    "linear": (mf.Linear, 1, 2),
    "unnormalised": (mf.Unnormalised, np.inf, np.inf),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("v", [1e-300, 1e300])
def test_products_within_the_range_of_factors_beyond(name, v):
    """|A| = 1e400 and |V| = 1e-300, or 1e-400 and 1e300, at R = 1; the exact factors are those of the table."""
    I, q = np.eye(2), 1e200 if v < 1 else 1e-200
    kind, in_x, in_mu = SIZED[name]
    found = mf.lipschitz_constants(kind(q * I, q * I, v * I), 1.0)
    if v > 1:  # all exponents are 0
        in_x = 1 if name == "unnormalised" else in_x
        assert found.mu is None or float(found.mu) == pytest.approx(1e-100 * 2 if name == "linear" else v, rel=1e-13)
    elif in_mu is not None:
        assert float(found.mu) == pytest.approx(in_mu * 1e100, rel=1e-13)
    assert float(found.x) == pytest.approx(in_x * (1e100 if v < 1 else 1e-100), rel=1e-13)


@pytest.mark.parametrize("name", SIZED)
def test_what_is_beyond_the_range_times_0(name):
    """Without values nothing depends on anything, however large the logits; biases too."""
    I, field = 1e200 * np.eye(2), SIZED[name][0]
    for radius in (1.0, 1e200):
        found = mf.lipschitz_constants(field(I, I, 0 * I), radius)
        assert [float(c) for c in found if c is not None] == [0.0] * (2 - (name == "sinkhorn"))
    # With a bias the value is constant: Gamma depends on where the kind does not average.
    biased = mf.lipschitz_constants(mf.Sigmoid(1e100 * np.eye(2), 1e100 * np.eye(2), 0 * I, value_bias=[3, 4]), 1e50)
    assert [float(c) for c in biased] == pytest.approx([5 * 1e250 / 4] * 2, rel=1e-13)


def test_an_exponential_beyond_the_range():
    """v (1 + 2 a) e^{2 a} for a = 400, which alone is beyond it; derivatives too."""

    def constant(v):
        return mf.lipschitz_constants(mf.Softmax(20 * jnp.eye(1), 20 * jnp.eye(1), v * jnp.eye(1)), 1.0).mu

    exact = float(Decimal(800).exp() * 801 * Decimal("1e-300"))
    assert float(constant(1e-300)) == pytest.approx(exact, rel=1e-12)
    assert float(constant(0.0)) == 0 and float(constant(1.0)) == np.inf
    assert jax.grad(grown, (0, 1))(0.0, 2.0) == (pytest.approx(np.exp(2)), 0)
    assert jax.grad(grown, (0, 1))(0.0, np.inf)[1] == 0


def test_bounds_that_end_beyond_the_range():
    """A cloud at the origin, and a radius e^2000: constants that do not depend on the radius are bounds as before."""
    I, origin, tokens = np.eye(2), mf.PointCloud(np.zeros((3, 2))), mf.PointCloud([[1.0, 0.0], [0.0, 1.0]])
    still = mf.stability_bound(mf.Softmax(I, I, I), origin, origin, 2000.0)  # L = |V| at R = 0
    assert still == (pytest.approx(2000, rel=1e-12), np.inf, 0)
    assert mf.euler_bound(mf.Softmax(I, I, I), origin, 10, 2000.0) == 0
    for field in (
        mf.Affine(I),
        mf.Softmax(0 * I, I, I),
        mf.L2(0 * I, 0 * I, I),
        mf.Softmax(0 * I, I, I) + mf.Softmax(I, I, 0 * I),
    ):
        late = mf.stability_bound(field, tokens, tokens, 2000.0)
        assert late == (pytest.approx(2000, rel=1e-12), np.inf, np.inf)
    loud = mf.Softmax(1e200 * I, 1e200 * I, I)
    assert mf.euler_bound(loud, tokens, 10, 0.0) == 0 and mf.euler_bound(loud, tokens, 10, 1.0) == np.inf
    assert mf.euler_bound(mf.Affine(0 * I, [1e308, 0]), tokens, 10, 1000.0) == 0  # Euler is exact, however far it goes
    plan = mf.Sinkhorn(1.0, 1.0, 1.0, eps=1.0)
    assert mf.trace_bound(plan, 0.0, 1000.0) == 0 and mf.trace_bound(plan, 1.0, 1000.0) == np.inf
    assert mf.trace_bound(plan, 1e-300, 500.0) == pytest.approx(
        float(Decimal(1000).exp() * Decimal("1e-300")), rel=1e-12
    )


def test_stability_is_sharp_for_a_translation_and_catches_a_wrong_field():
    """With Q = 0 softmax is Vm: a translation by a becomes one by e^{tV} a, which is what the bound allows."""
    nearby = CLOUD.with_points(CLOUD.points + 0.01)
    for p in (1.0, 2.0, 4.0):
        bound = mf.stability_bound(mf.Softmax(0.0, 1.0, 0.8), CLOUD, nearby, 1.0, p=p)
        assert bound.exponent == pytest.approx(0.8, rel=1e-12)
        for field, holds in ((mf.Softmax(0.0, 1.0, 0.8), True), (mf.Softmax(0.0, 1.0, 2.4), False)):
            start, end = (
                float(mf.wasserstein(*pair, p))
                for pair in ((CLOUD, nearby), (moved(field, CLOUD), moved(field, nearby)))
            )
            ratio = end / start
            assert (ratio <= bound.constant * (1 + 1e-6)) == holds
            if holds:
                assert ratio > 0.95 * bound.constant  # slack under 5 %


def test_row_24_stability_of_two_measures():
    """Different weights and different numbers of tokens: random and adversarial pairs, p = 1, 2, 4."""
    rng = np.random.default_rng(1)
    for kind in (mf.Softmax, mf.L2, mf.Sigmoid):
        field = kind(*(0.6 * rng.normal(size=(3, D, D))))
        for draw in range(3):
            mu = mf.PointCloud(rng.uniform(-0.7, 0.7, size=(N, D)), rng.dirichlet(np.ones(N)))
            nu = mf.PointCloud(np.asarray(mu.points) + 0.1**draw * rng.normal(size=(N, D)), rng.dirichlet(np.ones(N)))
            ends = moved(field, mu, 0.5), moved(field, nu, 0.5)
            for p in (1.0, 2.0, 4.0):
                bound = mf.stability_bound(field, mu, nu, 0.5, p=p)
                ratio = float(mf.wasserstein(*ends, p)) / float(mf.wasserstein(mu, nu, p))
                assert np.log(ratio) <= bound.exponent


def test_masked_stability_has_the_factor_of_hardy():
    field = mf.Causal(mf.Softmax(0.0, 1.0, 0.8))
    mu = CLOUD.with_positions()
    nearby = mu.with_points(mu.points + 0.01)
    for p in (1.5, 2.0, 4.0):
        bound = mf.stability_bound(field, mu, nearby, 1.0, p=p)
        assert bound.exponent == pytest.approx(0.8 * p / (p - 1), rel=1e-12)
        ratio = float(mf.conditional_wasserstein(moved(field, mu), moved(field, nearby), p))
        assert ratio <= bound.constant * float(mf.conditional_wasserstein(mu, nearby, p))
    assert mf.stability_bound(field, mu, nearby, 1.0, p=1).exponent == np.inf
    # A masked integral is not divided by the mass seen: no factor.
    summed = mf.stability_bound(mf.Causal(mf.Sigmoid(0.0, 1.0, 0.8)), mu, nearby, 1.0, p=1)
    assert summed.exponent == pytest.approx(0.8, rel=1e-12)
    divided = mf.stability_bound(mf.Causal(mf.Sigmoid(0.0, 1.0, 0.8), prefix=True), mu, nearby, 1.0, p=2)
    assert divided.exponent == pytest.approx(1.6, rel=1e-12)


@given(
    hnp.arrays(np.float64, 8, elements=st.floats(1e-3, 1)),
    hnp.arrays(np.float64, 8, elements=st.floats(0, 1)),
    st.sampled_from([1.25, 2.0, 4.0]),
)
def test_hardys_inequality(w, a, p):
    (term,) = mf.Causal(mf.Softmax(1.0, 1.0, 1.0)).terms(jnp.zeros(()))
    factor = hardy_factor(term, p)
    averages = np.cumsum(w * a) / np.cumsum(w)
    assert w @ averages**p <= factor**p * (w @ a**p) * (1 + 1e-12)
    assert factor == p / (p - 1)


def test_heads_add_and_others_have_none():
    I = jnp.eye(2)
    heads = mf.MultiHead([mf.Softmax(I, I, I), mf.Sigmoid(I, I, 2 * I)], W=[2 * I, -I])
    both = mf.lipschitz_constants(heads, 0.5)
    first, second = (
        mf.lipschitz_constants(mf.Softmax(I, I, 2 * I), 0.5),
        mf.lipschitz_constants(mf.Sigmoid(I, I, 2 * I), 0.5),
    )
    assert float(both.x) == pytest.approx(float(first.x + second.x))
    assert float(both.mu) == pytest.approx(float(first.mu + second.mu))
    affine = mf.lipschitz_constants(0.5 * mf.Affine(3 * I), 0.5)
    assert (float(affine.x), float(affine.mu)) == (1.5, 0)
    assert mf.lipschitz_constants(mf.Hardmax(I, I, I), 0.5) is None
    assert mf.lipschitz_constants(mf.Sigmoid(I, I, I, per_token=True), 0.5) is None
    tokens = mf.PointCloud([[0.3, -0.5], [0.6, 0.1], [-0.4, 0.2]])
    for field in (mf.Sinkhorn(I, I, I), mf.Linear(I, I, I), mf.Hardmax(I, I, I), mf.Perceptron(I, I)):
        assert mf.stability_bound(field, tokens, tokens, 1.0) is None


def test_time_dependent_and_piecewise_constants():
    nearby = CLOUD.with_points(CLOUD.points + 0.01)
    scheduled = mf.Scheduled(lambda t: mf.Softmax(0.0, 1.0, 0.8 * t))
    assert mf.stability_bound(scheduled, CLOUD, nearby, 1.5, 0.5).exponent == pytest.approx(0.8, rel=1e-12)
    pieces = mf.Piecewise([mf.Softmax(0.0, 1.0, 0.8), mf.Softmax(0.0, 1.0, 0.2)], breaks=[0.25])
    assert mf.stability_bound(pieces, CLOUD, nearby, 1.0).exponent == pytest.approx(0.2 + 0.15, rel=1e-12)
    # A growing radius: the exponent is an integral of L(R_s), here of v a R0^2 e^{2vs} and v (1 + 2aR^2) e^{2aR^2}.
    field, R0 = mf.Softmax(0.5, 1.0, 0.8), float(max(CLOUD.radius, nearby.radius))
    s, w = np.polynomial.legendre.leggauss(200)
    R2 = R0**2 * np.exp(2 * 0.8 * (s + 1) / 2)
    exact = w / 2 @ (0.8 * 0.5 * R2 + 0.8 * (1 + R2) * np.exp(R2))
    assert mf.stability_bound(field, CLOUD, nearby, 1.0).exponent == pytest.approx(exact, rel=1e-10)


def test_euler_error_and_trace():
    """Q = 0, V = 1: e against (1 + h)^{1/h}; and Sinkhorn at a small temperature, which nearly keeps its plan."""
    field = mf.Softmax(0.0, 1.0, 1.0)
    shifted = CLOUD.with_points(CLOUD.points + 1.0)
    for depth in (4, 64):
        bound = mf.euler_bound(field, shifted, depth)
        exact, layered = moved(field, shifted), mf.layers(field, shifted, depth).final
        error = float(mf.wasserstein(exact, layered, 2))
        assert 0.1 * bound < error <= bound
    wrong = mf.layers(mf.Softmax(0.0, 1.0, 0.9), shifted, 64).final
    assert float(mf.wasserstein(exact, wrong, 2)) > bound
    # Under a mask, with the factor of Hardy: L = 2 for p = 2, and no bound for p = 1.
    masked = mf.Causal(field)
    sequence = shifted.with_positions()
    masked_bound = mf.euler_bound(masked, sequence, 64, p=2)
    assert masked_bound == pytest.approx(bound / np.expm1(1) * np.expm1(2))
    ends = moved(masked, sequence), mf.layers(masked, sequence, 64).final
    assert 0.01 * masked_bound < float(mf.conditional_wasserstein(*ends, 2)) <= masked_bound
    assert mf.euler_bound(masked, sequence, 64, p=1) == np.inf
    plan = mf.Sinkhorn(1.0, 1.0, 0.7, eps=0.05)
    trace = float(CLOUD.covariance[0, 0])
    limit = mf.trace_bound(plan, trace, 0.5)
    assert limit == pytest.approx(trace * np.exp(0.7))
    assert 0.95 * limit < float(moved(plan, CLOUD, 0.5).covariance[0, 0]) <= limit
    assert float(moved(mf.Sinkhorn(1.0, 1.0, 2.1, eps=0.05), CLOUD, 0.5).covariance[0, 0]) > limit
    assert mf.trace_bound(mf.Softmax(1.0, 1.0, 1.0), trace, 1.0) is None
    assert mf.trace_bound(mf.Causal(plan), trace, 1.0) is None


def test_refusals():
    field = mf.Softmax(1.0, 1.0, 1.0)
    assert_refused(lambda: mf.lipschitz_constants(field, -1.0), ["radius must be positive"])
    assert_refused(lambda: mf.stability_bound(field, CLOUD, CLOUD, 1.0, p=0.5), ["p must be a number, 1 or more"])
    assert_refused(lambda: mf.stability_bound(field, CLOUD, CLOUD, -1.0), ["forward in time"])
    assert_refused(lambda: mf.lipschitz_constants("x", 1.0), ["must be an attention field"])
    assert_refused(lambda: mf.trace_bound("x", 1.0, 1.0), ["must be an attention field"])
    assert_refused(lambda: mf.trace_bound(mf.Sinkhorn(1.0, 1.0, 1.0), 1.0, 0.0, 1.0), ["forward in time"])
    assert_refused(lambda: mf.trace_bound(mf.Sinkhorn(1.0, 1.0, 1.0), -1.0, 1.0), ["not negative"])
    assert_refused(lambda: mf.support_bound(field, mf.Gaussian([0.0], cov=1.0), 1.0), ["for tokens", "to_cloud"])
    plane = mf.PointCloud([[0.0, 1.0]])
    assert_refused(lambda: mf.stability_bound(field, CLOUD, plane, 1.0), ["does not fit"])
    assert_refused(lambda: mf.euler_bound(mf.Scheduled(lambda t: field), CLOUD, 4), ["constant weights"])

"""Fields with sums up to an accuracy, against the same fields with exact sums: values and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.attention.approximate import Approximate
from meanformer.reduce import interpolate, nodes
from meanformer.reduce.exact import Tokens, dot, minus_squared_distance
from meanformer.reduce.grid import Grid, reach_for
from meanformer.reduce.sums import Exact, Fast

N = 400
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(N, 4)) * [0.8, 0.5, 1.0, 0.6]
WEIGHTS = RNG.uniform(size=N) ** 3 * (np.arange(N) % 9 > 0)
TOKENS = mf.PointCloud(POINTS, WEIGHTS / WEIGHTS.sum(), RNG.permutation(N) / N)
ACCURACY = 1e-6
GRID = Grid(48, 8, reach_for(8, 3, ACCURACY / 2))
NODES = Grid(64, 8, nodes.sigmoid_reach(8, 2, ACCURACY / 2), False)
FAST = Fast(GRID, NODES, 0, 0, ACCURACY, 64)


def matrices(k, seed, v=4, size=0.5):
    rng = np.random.default_rng(seed)
    return tuple(size * rng.normal(size=(rows, 4)) for rows in (k, k, v))


@eqx.filter_jit
def both(field, sums, mu, t=0.3):
    t = jnp.asarray(t)
    return tuple(f(mu, mu.points, t) for f in (field, Approximate(field, sums)))


def agree(field, accuracy=ACCURACY, mu=TOKENS, sums=FAST):
    """An average is an average of values, so its error is relative to the largest value."""
    want, got = (np.asarray(v) for v in both(field, sums, mu))
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-15 < error < accuracy, error


def drift(t):
    Q, K, V = matrices(2, 7)
    return mf.Softmax(Q * jnp.cos(t), K, V)


FIELDS = {
    "heads that are stacked": lambda: mf.MultiHead([mf.Softmax(*matrices(2, s)) for s in (1, 2, 3)]),
    "heads of all kinds": lambda: mf.MultiHead(
        [
            mf.L2(*matrices(1, 4, 2), tau=2.0, key_bias=[3.0]),
            mf.Softmax(*matrices(4, 5, 3)),
            mf.Unnormalised(*matrices(2, 6, 4), tau=2.0),
            mf.Causal(mf.Softmax(*matrices(2, 6, 1))),
        ],
        W=[np.eye(4, v) for v in (2, 3, 4, 1)],
    ),
    "masked heads": lambda: mf.Causal(mf.MultiHead([mf.Softmax(*matrices(1, s)) for s in (1, 2)])),
    "normalised": lambda: mf.PreNorm(mf.L2(*matrices(3, 8)), mf.RMSNorm()),
    "scheduled": lambda: mf.Scheduled(drift),
}


@pytest.mark.parametrize("name", FIELDS)
def test_combined_fields(name):
    agree(FIELDS[name]())


def test_values_that_are_functions_of_the_keys():
    """The mean key tells the mean value, also in a head with a temperature, biases and far tokens."""
    rng = np.random.default_rng(11)
    Q, K, V = 0.3 * rng.normal(size=(3, 4)), np.eye(3, 4) + 0.1 * rng.normal(size=(3, 4)), rng.normal(size=(4, 3))
    field = mf.L2(Q, K, V @ K, tau=1.3, key_bias=[0.3, 0.0, 0.1], query_bias=[0.0, 0.2, 0.0], value_bias=np.arange(4.0))
    coarse = Grid(32, 6, reach_for(6, 3, 1e-4))
    agree(field, 4e-4, sums=Fast(coarse, None, 2, 2, 1e-9, 0, of_keys=True))


# Sigmoid


def test_error_of_sigmoid_interpolation():
    """The tabulated error is the maximum over a finer mesh, of the logistic function itself."""
    for order, step in ((4, 0.2), (8, 0.9)):
        u, z = np.linspace(-0.5, 0.5, 201), np.linspace(-15, 15, 3001)
        x = np.arange(order) - (order - 1) / 2
        phi = np.polynomial.polynomial.polyval(u, interpolate.weights(order, 0.0))
        read = np.einsum("lu,zl->zu", phi, 1 / (1 + np.exp(-(z[:, None] + step * x[None]))))
        worst = np.abs(read - 1 / (1 + np.exp(-(z[:, None] + step * u[None])))).max()
        assert worst <= 1.01 * nodes.sigmoid_error(order, step) <= 1.01 * worst * (1 + 1e-9)


def test_sigmoid_sums():
    """Per unit of mass the error is that of the grid; with a bias of any size; NaN beyond the grid."""
    Q, K, V = matrices(2, 9, size=0.35)
    mass = float(jnp.abs(TOKENS.points @ V.T).T @ TOKENS.weights @ jnp.ones(4))
    field = mf.Sigmoid(Q, K, V, 1.0, -1.7)
    assert np.abs(np.subtract(*both(field, FAST, TOKENS))).max() <= ACCURACY / 2 * mass
    wider = TOKENS.with_points(3 * TOKENS.points)
    assert np.isnan(both(field, FAST, wider)[1]).all()
    agree(mf.Sigmoid(Q, K, V, 1.0, 2.0, per_token=True), 1e-5)


# Sinkhorn


@eqx.filter_jit
def sinkhorn(field, sums, mu):
    solution = field.potentials(mu, sums=sums)
    return solution, field.mix_with(mu, solution.g, mu.points, mu.points @ field.V.T, sums)


def check_plan(field, mu):
    """In exact sums, rows and columns of the plan are probabilities: its potentials are right, and its velocity."""
    solution, velocity = sinkhorn(field, FAST, mu)
    assert solution.converged
    q, k = (np.asarray(a) for a in field.features(mu.points, mu.points))
    f, g, w = (np.asarray(a) for a in (solution.f, solution.g, mu.weights))
    plan = np.exp(f[:, None] + g[None] - ((q[:, None] - k[None]) ** 2).sum(-1))
    B = GRID.bound(2)
    assert 1e-12 < np.abs(plan @ w - 1).max() <= 2 * B
    assert 1e-12 < np.abs(w @ plan - 1)[w > 0].max() <= 2 * B
    values = np.asarray(mu.points @ field.V.T)
    assert np.abs(velocity - plan @ (w[:, None] * values)).max() <= 4 * B * np.abs(values).max()
    np.testing.assert_allclose(field.column_error(mu, solution, jnp.arange(mu.n)), np.abs(w @ plan - 1)[w > 0].max())


SINKHORN = mf.Sinkhorn(*matrices(2, 10), 1.0, "distance", tol=1e-10)


def test_sinkhorn():
    """Logits that are not symmetric, weights of all sizes."""
    assert np.abs(SINKHORN.A - SINKHORN.A.T).max() > 0.1
    weights = RNG.uniform(size=N) ** 3
    check_plan(SINKHORN, mf.PointCloud(POINTS, weights / weights.sum()))


def test_plan_of_sinkhorn_with_tokens_of_zero_weight(monkeypatch):
    """A plan of fast sums holds for tokens without weight too, also those outside the cloud."""
    monkeypatch.setattr("meanformer.reduce.plan.PAIR", 1.0)
    monkeypatch.setattr("meanformer.attention.planned.SINKHORN_TOKENS", N)
    weights, points = np.asarray(TOKENS.weights).copy(), POINTS.copy()
    weights[0], points[0] = 0, 1.2 * points.max(axis=0)
    mu = mf.PointCloud(points, weights / weights.sum())
    plan = mf.plan(SINKHORN, mu, 1e-4)
    assert not plan.exact and plan.error <= 1e-4
    want = mf.velocity(SINKHORN, mu)
    assert np.abs(mf.velocity(SINKHORN, mu, accuracy=plan) - want).max() <= 1e-3 * np.abs(want).max()


# Derivatives


def slope_error(order, reach):
    r"""$\max|\sum_l\varphi_l'(u)e^{a(x_l-u)}-a|$: the error of the derivative, relative to each exponential."""
    u, a = np.linspace(-0.5, 0.5, 65), np.linspace(-reach, reach, 16 * order + 1)
    slopes = np.polynomial.polynomial.polyder(interpolate.weights(order, reach))
    x = np.arange(order) - (order - 1) / 2
    kernels = np.exp(a[:, None, None] * (x[None, :, None] - u[None, None, :]))
    read = np.einsum("lu,alu->au", np.polynomial.polynomial.polyval(u, slopes), kernels)
    return float(np.abs(read - a[:, None]).max())


M = 120
FINE = Grid(64, 8, reach_for(8, 2, 1e-8))
LABELS = np.arange(M) % 2
# The sums, the logit, the dimension of the keys, whether masked.
WAYS = {
    "grid and far tokens": (Fast(FINE, None, 3, 3, 1e-9, 0), dot, 2, False),
    "groups": (Fast(FINE, None, 0, 0, 1e-9, 0, jnp.asarray(LABELS), 2), minus_squared_distance, 1, False),
    "prefix": (Fast(FINE, None, 0, 0, 1e-9, 64), dot, 1, True),
}


def half_widths(points, far):
    """The smallest half-width of a box, far tokens left out."""
    groups = (np.sort(points[g == LABELS], axis=0) for g in (0, 1))
    return min(np.min(group[-1 - far] - group[far]) for group in groups) / 2


@pytest.mark.parametrize("name", WAYS)
def test_derivatives(name):
    """Reverse mode is that of exact sums up to the slope of the interpolant, and forward mode is the same."""
    sums, logit, k, masked = WAYS[name]
    rng = np.random.default_rng(3)
    q, y = 0.6 * rng.normal(size=(2, M, k))
    if name == "groups":
        q, y = (x + 30 * LABELS[:, None] for x in (q, y))
    if sums.far_keys:
        q[4], y[8] = 7.0, -7.0
    logs, values = rng.normal(size=M), rng.normal(size=(M, 1))
    positions = rng.permutation(M) / M if masked else None
    arrays = tuple(map(jnp.asarray, (q, y, logs, values)))
    marks = rng.normal(size=(M, 1)), rng.normal(size=M)

    def functional(sums, arrays):
        q, y, logs, values = arrays
        s = None if positions is None else jnp.asarray(positions)
        mean, total = sums.average(logit, q, Tokens(y, logs, values, s), s)
        return jnp.sum(marks[0] * mean) + marks[1] @ total

    def derivatives(sums):
        return jax.jit(lambda arrays: jax.value_and_grad(lambda a: functional(sums, a))(arrays))(arrays)

    value, gradient = derivatives(sums)
    exact_value, exact = derivatives(Exact())
    # An exponential has a relative error B, its derivative along an axis one of slope / spacing; a mean of values
    # feels the errors of its numerator and its denominator. All are averaged with the weights of the pairs.
    C = (q @ y.T if logit is dot else -((q[:, None] - y[None]) ** 2).sum(-1)) + logs[None]
    C = np.where(positions[None] <= positions[:, None], C, -np.inf) if masked else C
    p = np.exp(C - C.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    B, slope = FINE.bound(k), slope_error(8, FINE.reach) + FINE.bound(k) * FINE.order
    spacings = [2 * half_widths(x, sums.far_keys) / FINE.cells for x in (q, y)]
    felt = 4 * np.abs(marks[0][:, 0]) * np.ptp(values) + 2 * np.abs(marks[1])
    assert abs(value - exact_value) <= B * felt.sum()
    bounds = slope / spacings[0] * felt[:, None], slope / spacings[1] * (p.T @ felt)[:, None]
    bounds += 2 * B * p.T @ felt, 2 * B * p.T @ np.abs(marks[0])
    for got, want, bound in zip(gradient, exact, bounds, strict=True):
        error = np.abs(got - want)
        assert 0 < error.max() < 1e-4 * np.abs(want).max()
        assert (error <= bound + 1e-14).all()
    if not sums.far_keys:
        return  # the parts are the same, and a program costs seconds
    directions = tuple(jnp.asarray(rng.normal(size=a.shape)) for a in arrays)
    _, forward = jax.jit(lambda a, d: jax.jvp(lambda a: functional(sums, a), (a,), (d,)))(arrays, directions)
    backward = sum(float(jnp.vdot(g, d)) for g, d in zip(gradient, directions, strict=True))
    np.testing.assert_allclose(forward, backward, rtol=1e-10)

"""The Sinkhorn solve: its report, hard problems, early stops, and implicit derivatives in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import meanformer as mf
from oracles import dense, golden
from oracles.dense import SINKHORN, error
from oracles.draws import problems

sinkhorn = pytest.mark.parametrize("kind", SINKHORN)


def problem(seed=3, size=1.5):
    rng = np.random.default_rng(seed)
    w = rng.uniform(0.2, 1, 6)
    return rng.uniform(-size, size, (6, 2)), w / w.sum(), *rng.uniform(-1, 1, (3, 2, 2))


@sinkhorn
def test_report(kind):
    X, w, Q, K, V = problem()
    for tol in (1e-4, 1e-13):
        found = golden.make(kind, Q, K, V, tol=tol).potentials(mf.PointCloud(X, w))
        assert bool(found.converged) and 0 <= float(found.error) <= tol
        assert int(found.sweeps) > 0
    # The error reported is the column defect of the potentials returned.
    k = np.exp(np.asarray(found.f)[:, None] + np.asarray(found.g) + dense.logits(kind, X @ Q.T, X @ K.T).astype(float))
    assert abs(w @ np.abs(w @ k - 1) - float(found.error)) < 1e-14


@sinkhorn
def test_early_stop_is_reported_and_rows_are_probabilities(kind):
    """One iteration is not enough, and the report says so; yet each row is a probability, V = I stays in the hull."""
    X, w, Q, K, _ = problem(size=3.0)
    field = golden.make(kind, Q, K, np.eye(2), tol=1e-12, max_iter=1)
    tokens = mf.PointCloud(X, w)
    found = field.potentials(tokens)
    assert not bool(found.converged) and float(found.error) > 1e-12
    assert int(found.sweeps) + int(found.newton_steps) <= 1
    P = np.asarray(field.matrix(tokens))
    assert (P >= 0).all() and np.abs(P.sum(axis=1) - 1).max() < 1e-14
    velocity = np.asarray(mf.velocity(field, tokens))
    assert (velocity >= X.min(0) - 1e-12).all() and (velocity <= X.max(0) + 1e-12).all()
    # It is indeed not the solution.
    assert error(velocity, dense.velocity(kind, X, X, w, Q, K, np.eye(2))) > 1e-8


def hard_problem(seed):
    """8 points, logits in about [-20, 25], weights down to 7e-6."""
    rng = np.random.default_rng(seed)
    X, Q, K = rng.normal(size=(8, 2)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    Q = Q * 45 / np.ptp((X @ Q.T) @ (X @ K.T).T)
    w = np.geomspace(7e-6, 1.0, 8)[rng.permutation(8)]
    return X, w / w.sum(), Q, K, rng.normal(size=(2, 2))


@pytest.mark.parametrize("seed", [21, 22, 51, 160, 231, 73, 91, 389])
def test_hard_problem(seed):
    X, w, Q, K, V = hard_problem(seed)
    C = (X @ Q.T) @ (X @ K.T).T
    assert -25 < C.min() < -15 and 20 < C.max() < 30 and w.min() < 7e-6
    want = dense.velocity("sinkhorn_dot", X, X, w, Q, K, V)
    # Plain sweeps do not get there: this is what makes it hard.
    g = np.zeros(8)
    for _ in range(2000):
        f = -dense.lse(C + g + np.log(w), 1)
        g = -dense.lse(C.T + f + np.log(w), 1)
    assert error(dense.normalised(C + g + np.log(w)) @ (X @ V.T), want) > 1e-7
    field = mf.Sinkhorn(Q, K, V, tol=1e-13)
    found = field.potentials(mf.PointCloud(X, w))
    assert bool(found.converged) and int(found.newton_steps) > 0
    assert error(mf.velocity(field, mf.PointCloud(X, w)), want) <= 1e-10
    f, g = dense.potentials(C, w)
    # The rounding of the logits moves the potentials by as much as the condition of the problem, 1 / (1 - s^2), says.
    plan = np.exp(f[:, None] + g + C) * np.sqrt(np.outer(w, w))
    s = np.linalg.svd(plan.astype(float))[1][1]
    limit = max(1e-10, 2.0**-52 * np.abs(C).max() / (1 - s**2))
    assert limit < 1e-7 and error(found.f, f) <= limit and error(found.g, g) <= limit


@sinkhorn
@given(p=problems())
def test_default_tolerance_is_kept(kind, p):
    """By default the column defect is below 1e-10, measured outside the library."""
    field = golden.make(kind, p.Q, p.K, p.V, p.tau, tol=None)
    found = field.potentials(p.cloud)
    C = dense.logits(kind, dense.rows(p.Q, p.X), dense.rows(p.K, p.X), p.tau)
    k = np.exp(dense.wide(found.f)[:, None] + dense.wide(found.g) + C)
    assert bool(found.converged)
    assert float(p.w @ np.abs(p.w @ k - 1)) <= 1.01e-10


@sinkhorn
def test_effective_matrix(kind):
    _, _, Q, K, V = problem()
    B = (1 if kind == "sinkhorn_dot" else 2) * K.T @ Q / 0.7
    np.testing.assert_allclose(golden.make(kind, Q, K, V, 0.7).B, B, rtol=1e-14)


@sinkhorn
def test_derivative_both_modes(kind):
    """In points, weights, matrices and temperature at once: jvp and vjp against a central difference and each other."""
    X, w, Q, K, V = problem()
    rng = np.random.default_rng(5)
    x, cotangent = jnp.asarray(rng.normal(size=(6, 2))), jnp.asarray(rng.normal(size=(6, 2)))
    primal = tuple(map(jnp.asarray, (X, w, Q, K, V, np.array(0.8))))
    tangent = tuple(jnp.asarray(rng.normal(size=a.shape)) for a in primal)
    tangent = (tangent[0], tangent[1] - tangent[1].mean(), *tangent[2:])  # weights keep their sum

    def velocity(X, w, Q, K, V, eps):
        return golden.make(kind, Q, K, V, eps, tol=1e-13)(mf.PointCloud(X, w), x)

    @jax.jit
    def both_modes(*primal):
        value, pull_back = jax.vjp(velocity, *primal)
        return value, jax.jvp(velocity, primal, tangent)[1], pull_back(cotangent)

    h = 2e-5
    ahead, behind = (both_modes(*(a + s * h * da for a, da in zip(primal, tangent, strict=True)))[0] for s in (1, -1))
    difference = (ahead - behind) / (2 * h)
    value, forward, backward = both_modes(*primal)
    assert error(value, dense.velocity(kind, x, *(np.asarray(a) for a in primal))) < 1e-11
    assert error(forward, difference) < 1e-7
    paired = sum(float(jnp.sum(a * b)) for a, b in zip(backward, tangent, strict=True))
    assert paired == pytest.approx(float(jnp.sum(cotangent * forward)), rel=1e-10)


def test_potentials_are_differentiable():
    """The derivative of OT_B = sum w (f + g) in the points is the envelope formula, -2 w_i B-transport of the plan."""
    X, w, Q, K, V = problem()
    field = mf.Sinkhorn(Q, K, V, tol=1e-13)

    def transport_cost(points):
        found = field.potentials(mf.PointCloud(points, w))
        return jnp.sum(jnp.asarray(w) * (found.f + found.g))

    k = dense.matrix("sinkhorn_dot", dense.rows(Q, X), dense.rows(K, X), w, own_queries=dense.rows(Q, X))
    plan = (w[:, None] * k).astype(float)  # pi_ij
    B = K.T @ Q
    # OT = min sum pi_ij (-(B x_i) . x_j) + KL: only the explicit dependence on the points is differentiated.
    envelope = -(plan @ X @ B + plan.T @ X @ B.T)
    assert error(jax.grad(transport_cost)(jnp.asarray(X)), envelope) < 1e-9


def test_logits_beyond_their_dtype_are_not_called_solved():
    """Far from the origin, in single precision, the rounding of the logits is larger than what they say."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    I = np.eye(2, dtype=np.float32)
    for offset, solved in ((0.0, True), (1000.0, False)):
        found = mf.Sinkhorn(I, I, I, np.float32(0.1)).potentials(mf.PointCloud((X + offset).astype(np.float32)))
        assert bool(found.converged) == solved and (float(found.error) < 1e-5) == solved


@pytest.mark.parametrize("seed", [24, 43, 59])
def test_what_needs_the_ladder(seed):
    """Hard logits and tiny weights: Newton's steps alone end far from the solution."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, 2))
    Q, K = rng.normal(size=(2, 2)).T, rng.normal(size=(2, 2)).T
    Q = Q * 10 ** rng.uniform(1, 2.5) / np.ptp((X @ Q.T) @ (X @ K.T).T)
    w = np.geomspace(10 ** -rng.uniform(0, 8), 1, 8)[rng.permutation(8)]
    mu = mf.PointCloud(X, w / w.sum())
    found = mf.Sinkhorn(Q, K, np.eye(2), tol=1e-12).potentials(mu, jnp.zeros(8))
    assert bool(found.converged) and int(found.newton_steps) > 12
    plan = np.exp(found.f[:, None] + found.g[None] + (X @ Q.T) @ (X @ K.T).T)
    np.testing.assert_allclose(np.asarray(mu.weights) @ plan, 1, atol=1e-10)

"""Gaussian runs with t1 = inf, to their fate, against closed forms and a second integrator (MATH e.3-e.5)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanformer as mf
from oracles.refusals import assert_refused

ROW = np.array([[1.0, 0.0]])
UNIT = mf.Gaussian(mean=np.zeros(2), cov=np.eye(2))
MEAN = np.array([0.3, -0.2])


@pytest.fixture(scope="module")
def converging():
    return mf.flow(mf.Softmax(Q=ROW, K=-ROW, V=np.eye(2)), mf.Gaussian(MEAN, cov=np.eye(2)), t1=jnp.inf)


@pytest.fixture(scope="module")
def exploding():
    return mf.flow(mf.Softmax(Q=ROW, K=ROW, V=np.eye(2)), mf.Gaussian(MEAN, cov=np.eye(2)), t1=jnp.inf)


def test_the_two_examples_of_the_design():
    g = mf.Gaussian(mean=jnp.zeros(2), cov=jnp.eye(2))
    q = jnp.array([[1.0, 0.0]])
    fate = mf.flow(mf.Softmax(Q=q, K=-q, V=jnp.eye(2)), g, t1=jnp.inf).fate
    assert (fate.kind, fate.rank) == ("CONVERGED", 1)
    np.testing.assert_allclose(fate.limit, np.diag([0.0, 1.0]), atol=1e-12)
    assert str(fate).startswith("CONVERGED, rank 1")
    assert fate.mean_rate is None
    fate = mf.flow(mf.Softmax(Q=q, K=q, V=jnp.eye(2)), g, t1=jnp.inf).fate
    assert fate.kind == "BLEW_UP" and fate.rank is None and fate.limit is None
    assert abs(fate.time - 0.5) <= min(fate.error, 0.5e-6)
    assert str(fate).startswith("BLEW_UP at t* = 0.5") and "p = 1" in str(fate)


@pytest.mark.parametrize("name, sign", [("converging", -1), ("exploding", 1)])
def test_states_along_the_run(name, sign, request):
    """Times, covariances and means on the way, until shortly before the blow-up."""
    run = request.getfixturevalue(name)
    A = sign * np.diag([1.0, 0.0])
    t = np.asarray(run.times)
    assert t[0] == 0 and (np.diff(t) > 0).all() and run.outcome.kind == "FATE_KNOWN" and run.outcome.ok
    near = t < (np.inf if sign < 0 else 0.49)
    assert near.sum() > 5
    exact = mf.softmax_identity_flow(A, mf.Gaussian(MEAN, cov=np.eye(2)), t[near])
    np.testing.assert_allclose(run.states.covariance[near], exact.covariance, rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(run.states.mean[near], exact.mean, rtol=1e-6)
    if sign < 0:
        # The first coordinate of m grows like e^t sqrt(x), x = 1 / (1 + 2t), the second like e^t.
        x, (a, b) = 1 / (1 + 2 * t[-1]), MEAN**2
        assert t[-1] > 100
        np.testing.assert_allclose(run.fate.mean_rate, 1 - a * x**2 / (a * x + b), rtol=1e-6)
        np.testing.assert_allclose(run.fate.slopes, [0, -1], atol=1e-2)
    else:
        assert run.final.covariance[0, 0] > 1e9 and abs(t[-1] - 0.5) <= run.fate.error


def test_means_beyond_the_floating_point_range():
    r"""At $t\sim10^4$, $|m|\sim e^t$ is infinite as a number, and never NaN; its rate is known."""
    slow = mf.Softmax(Q=0.1 * ROW, K=-0.1 * ROW, V=np.eye(2))
    run = mf.flow(slow, mf.Gaussian(MEAN, cov=np.eye(2)), t1=jnp.inf)
    t, mean = np.asarray(run.times), np.asarray(run.states.mean)
    assert (run.fate.kind, run.fate.rank) == ("CONVERGED", 1) and t[-1] > 1e4
    far = t > 720
    assert np.isinf(mean[far]).all() and (np.sign(mean) == np.sign(MEAN)).all() and np.isfinite(mean[t < 700]).all()
    exact = mf.softmax_identity_flow(slow.A, mf.Gaussian(MEAN, cov=np.eye(2)), t[t < 700])
    np.testing.assert_allclose(mean[t < 700], exact.mean, rtol=1e-6)
    np.testing.assert_allclose(run.states.covariance[:, 0, 0], 1 / (1 + 0.02 * t), rtol=1e-6)
    np.testing.assert_allclose(run.fate.mean_rate, 1, rtol=1e-6)


def test_the_start_time_only_shifts(converging, exploding):
    later = mf.flow(exploding.field, mf.Gaussian(MEAN, cov=np.eye(2)), t0=3.0, t1=jnp.inf)
    np.testing.assert_allclose(later.times, exploding.times + 3.0, rtol=1e-14)
    np.testing.assert_allclose(later.fate.time, exploding.fate.time + 3.0, rtol=1e-14)
    np.testing.assert_array_equal(later.states.factor, exploding.states.factor)
    few = mf.flow(converging.field, mf.Gaussian(MEAN, cov=np.eye(2)), t1=jnp.inf, save=5)
    every = mf.flow(converging.field, mf.Gaussian(MEAN, cov=np.eye(2)), t1=jnp.inf, save=10_000)
    assert len(few.times) == 5 and len(every.times) == every.stats["steps"] + 1
    assert set(np.asarray(few.times)) <= set(np.asarray(every.times))
    np.testing.assert_array_equal(few.final.factor, converging.final.factor)


def test_a_stationary_start():
    dead = mf.Gaussian(MEAN, factor=np.array([[0.0], [2.0]]))
    run = mf.flow(mf.Softmax(Q=ROW, K=ROW, V=np.eye(2)), dead, t1=jnp.inf)
    assert (run.fate.kind, run.fate.rank, run.fate.time) == ("CONVERGED", 1, 0.0)
    assert "stationary" in str(run.fate)
    np.testing.assert_allclose(run.fate.limit, np.diag([0.0, 4.0]), atol=1e-15)
    point = mf.flow(mf.Softmax(Q=ROW, K=ROW, V=np.eye(2)), mf.Gaussian(MEAN, cov=np.zeros((2, 2))), t1=jnp.inf)
    assert (point.fate.kind, point.fate.rank) == ("CONVERGED", 0)
    assert not point.fate.limit.any()


def test_a_rotation_has_no_limit():
    """Eigenvalues that stay do not make a limit if eigenvectors turn; a round Gaussian does not turn."""
    field = mf.Affine(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    run = mf.flow(field, mf.Gaussian(np.zeros(2), cov=np.diag([4.0, 1.0])), t1=jnp.inf, max_steps=400)
    assert run.fate.kind == "UNDECIDED" and run.outcome.kind == "STEP_LIMIT" and not run.outcome.ok
    assert run.fate.rank is None and run.fate.limit is None
    round_ = mf.flow(field, UNIT, t1=jnp.inf)
    assert (round_.fate.kind, round_.fate.rank) == ("CONVERGED", 2)
    np.testing.assert_allclose(round_.fate.limit, np.eye(2), atol=1e-6)


def test_budgets(converging):
    gaussian = mf.Gaussian(MEAN, cov=np.eye(2))
    short = mf.flow(converging.field, gaussian, t1=jnp.inf, max_steps=16)
    assert short.fate.kind == "UNDECIDED" and short.outcome.kind == "STEP_LIMIT"
    assert short.fate.steps == 16 == short.stats["steps"] + short.stats["rejected"]
    assert str(short.fate).startswith("UNDECIDED") and "16 steps" in str(short.fate)
    hurried = mf.flow(converging.field, gaussian, t1=jnp.inf, stop=mf.WallClock(1e-9))
    assert hurried.fate.kind == "UNDECIDED" and hurried.outcome.kind == "STOPPED"
    assert len(hurried.times) == 1 and hurried.times[0] == 0


def test_linear_attention_is_moved_by_its_mean():
    """The second moment obeys the softmax equation (MATH e.2), so that t* is that of P = Sigma + m m^T for V = I."""
    rng = np.random.default_rng(8)
    Q, K, L, m = *rng.standard_normal((3, 2, 2)), rng.standard_normal(2)
    A, P = K.T @ Q, L @ L.T + np.outer(m, m)
    top = np.linalg.eigvals(P @ (A + A.T)).real.max()
    assert top > 0
    run = mf.flow(mf.Linear(Q, K, np.eye(2)), mf.Gaussian(m, factor=L), t1=jnp.inf)
    assert run.fate.kind == "BLEW_UP", run.fate
    print("t* of linear attention, relative error:", run.fate.time * top - 1)
    np.testing.assert_allclose(run.fate.time, 1 / top, rtol=1e-6)
    assert abs(run.fate.time - 1 / top) <= run.fate.error

    def speed(_, y):
        mean, S = y[:2], y[2:].reshape(2, 2)
        G = (S + np.outer(mean, mean)) @ A
        return np.concatenate([G @ mean, (G @ S + S @ G.T).ravel()])

    t = np.asarray(run.times)
    near = t < 0.95 / top
    start = np.concatenate([m, (L @ L.T).ravel()])
    exact = solve_ivp(speed, (0, t[near][-1]), start, "DOP853", t[near], rtol=1e-12, atol=1e-14).y.T
    scale = np.abs(exact).max(axis=1)[:, None]
    got = np.concatenate([run.states.mean, run.states.covariance.reshape(-1, 4)], axis=1)[near]
    assert (np.abs(got - exact) <= 1e-6 * scale).all()


def test_heads_and_sums():
    r"""$A$ of two softmax heads adds up; with $-cI$ beside it, $\dot\sigma=2\sigma^2-2c\sigma$ on the line."""
    rng = np.random.default_rng(9)
    Q, K, L = rng.standard_normal((3, 2, 2, 2))
    A = K[0].T @ Q[0] - 0.5 * K[1].T @ Q[1]
    heads = mf.MultiHead(
        [mf.Softmax(q, k, np.eye(2)) for q, k in zip(Q, K, strict=True)], W=[np.eye(2), -0.5 * np.eye(2)]
    )
    gaussian = mf.Gaussian(np.zeros(2), factor=L[0])
    fate = mf.flow(heads, gaussian, t1=jnp.inf).fate
    exact = mf.softmax_blowup_time(A, gaussian)
    assert np.isfinite(exact) and fate.kind == "BLEW_UP"
    np.testing.assert_allclose(fate.time, exact, rtol=1e-6)
    one = np.ones((1, 1))
    field = mf.Softmax(one, one, one) + mf.Affine(-one)
    # sigma > 1 blows up at t* = -log(1 - 1/sigma) / 2; sigma < 1 dies.
    fate = mf.flow(field, mf.Gaussian([0.0], cov=[[2.0]]), t1=jnp.inf).fate
    assert fate.kind == "BLEW_UP"
    np.testing.assert_allclose(fate.time, np.log(2) / 2, rtol=1e-6)
    fate = mf.flow(field, mf.Gaussian([0.0], cov=[[0.5]]), t1=jnp.inf).fate
    assert (fate.kind, fate.rank) == ("CONVERGED", 0)


def test_a_finite_run_tells_of_its_blow_up(exploding):
    run = mf.flow(exploding.field, mf.Gaussian(np.zeros(2), cov=np.eye(2)), t1=1.0)
    assert run.fate.kind == "BLEW_UP" and abs(run.fate.time - 0.5) <= run.fate.error < 1e-3
    fine = mf.flow(exploding.field, mf.Gaussian(np.zeros(2), cov=np.eye(2)), t1=0.2)
    assert fine.fate.kind == "UNDECIDED" and "t1=jnp.inf" in str(fine.fate)


def test_energy_along_a_run_to_its_fate():
    """V = A: the energy -tr(A Sigma A Sigma)/4 descends (MATH f)."""
    A = np.diag([-1.0, -0.5])
    run = mf.flow(mf.Softmax(np.eye(2), A, A), mf.Gaussian(np.zeros(2), cov=np.diag([0.5, 0.2])), t1=jnp.inf, save=7)
    path = mf.energy_along(run)
    S = np.asarray(run.states.covariance)
    np.testing.assert_allclose(path.energy, -0.25 * np.einsum("tij,tji->t", A @ S, A @ S), rtol=1e-10)
    assert path.descends and "never grew" in str(path)
    assert f"{path.energy[0]:.6g}" in str(path)


def test_many_fates_in_words():
    rows = np.stack([ROW, -ROW, 0 * ROW])
    fields = jax.vmap(lambda K: mf.Softmax(ROW, K, np.eye(2)))(rows)
    fates = mf.fates(fields, UNIT)
    assert len(fates) == 3
    assert fates.kind.tolist() == ["BLEW_UP", "CONVERGED", "CONVERGED"]
    assert fates.counts() == {"UNDECIDED": 0, "CONVERGED": 2, "BLEW_UP": 1, "DIVERGED": 0}
    np.testing.assert_array_equal(fates.rank, [-1, 1, 2])
    assert "1 of rank 1, 1 of rank 2" in fates.summary() and fates.summary() in repr(fates)
    first, last = fates[0], fates[-1]
    assert first.kind == "BLEW_UP" and first.rank is None and first.limit is None and "t* = 0.5" in str(first)
    assert last.rank == 2 and first.law is None
    np.testing.assert_allclose(last.limit, np.eye(2), atol=1e-14)
    with pytest.raises(IndexError, match="index 3 for a batch of 3"):
        fates[3]
    for index in (True, 1.0, slice(2), None):
        assert_refused(lambda index=index: fates[index], ["a whole number"])
    data = fates.to_xarray()
    assert data["kind"].values.tolist() == fates.kind.tolist() and data["limit"].dims[0] == "run"
    np.testing.assert_array_equal(data["time"].values, fates.time)


def test_refusals():
    field, g = mf.Softmax(ROW, ROW, np.eye(2)), UNIT
    for options, words in (
        ({"save": [0.0, 1.0]}, "times are those of the steps"),
        ({"stop": mf.Stationary(1e-6)}, "stops at its fate"),
        ({"rtol": -1.0}, "rtol"),
        ({"max_steps": 0}, "max_steps"),
    ):
        with pytest.raises(mf.InputError, match=words):
            mf.flow(field, g, t1=jnp.inf, **options)
    with pytest.raises(mf.InputError, match="does not depend on time"):
        mf.flow(mf.Scheduled(lambda t: mf.Softmax(ROW, (1 + t) * ROW, np.eye(2))), g, t1=jnp.inf)
    with pytest.raises(mf.InputError, match="found on the host"):
        jax.jit(lambda L: mf.flow(field, mf.Gaussian(jnp.zeros(2), factor=L), t1=jnp.inf).times)(jnp.eye(2))


def test_a_mean_is_followed_to_a_blow_up_of_saturating_fields():
    """There two looks may be at the same float. The time is (1 + 2 S11) / (2 S12), MATH e.4."""
    g = mf.Gaussian(mean=[1.0, 1.0], cov=[[1.0, 0.3], [0.3, 0.5]])
    run = mf.flow(mf.L2([[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]), g, t1=jnp.inf)
    assert run.fate.kind == "BLEW_UP"
    np.testing.assert_allclose(run.fate.time, 5.0, rtol=1e-7)
    assert np.isfinite(run.final.mean).all()
    np.testing.assert_allclose(run.final.mean[0], 1.0, rtol=1e-9)  # K V = 0: this coordinate stands still


def test_a_factor_may_turn_while_the_covariance_stands_still():
    """A + A^T = 0 and V = I: Sigma' = Sigma (A + A^T) Sigma = 0, though G L is not."""
    A, I = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.eye(3)
    g = mf.Gaussian(np.zeros(3), cov=[[2.0, 0.7, 0.1], [0.7, 1.0, -0.2], [0.1, -0.2, 0.5]])
    for fate in (mf.flow(mf.Softmax(A, I, I), g, t1=jnp.inf).fate, mf.fates(mf.Softmax(A, I, I), g)[0]):
        assert fate.kind == "CONVERGED" and fate.rank == 3
        np.testing.assert_allclose(fate.limit, g.covariance, rtol=1e-14)
    moving = A + np.diag([1.0, 0.0, 0.0])
    assert mf.fates(mf.Softmax(moving, I, I), g)[0].kind == "BLEW_UP"

"""Flows with sums up to an accuracy: equal to exact ones, with plans that follow the cloud; samples and statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.reduce import plan as planner
from oracles.refusals import assert_refused

N = 300
RNG = np.random.default_rng(0)
TOKENS = mf.PointCloud(RNG.normal(size=(N, 1)), RNG.dirichlet(np.ones(N)))
# d = 1: tokens spread like e^t, and the range of their logits like its square.
EXPANDING = mf.Softmax(1.0, 1.0, 1.0)
ACCURACY = 1e-6
OBSERVERS = {"cubes": lambda mu, t: (mu.weights[:, None] * mu.points**3).sum(0) * (1 + t)}


@pytest.fixture(autouse=True)
def exact_sums_are_dear(monkeypatch):
    monkeypatch.setattr(planner, "PAIR", 1.0)


STEP, STEPS = 0.1, 7


def field_of(x):
    r"""$\Gamma$ at the tokens, and $\max_i\sum_j|\partial\Gamma_i/\partial x_j|$, dense, in NumPy."""
    p = np.exp(x @ x.T - (x @ x.T).max(axis=1, keepdims=True)) * np.asarray(TOKENS.weights)[None]
    p /= p.sum(axis=1, keepdims=True)
    mean = p @ x
    away = x.T - mean
    moved = (p * np.abs(1 + away * x)).sum(axis=1) + (p * away**2).sum(axis=1)
    return mean, moved.max()


def euler(points, steps=STEPS):
    """The states of the explicit scheme with these steps, and a bound of their errors by Gronwall's inequality.

    The sums have an error of at most the accuracy times the range of the tokens.
    """
    states, errors = [np.asarray(points)], [0.0]
    for _ in range(steps):
        x = states[-1]
        mean, slope = field_of(x)
        states.append(x + STEP * mean)
        errors.append((1 + STEP * slope) * errors[-1] + STEP * ACCURACY * np.ptp(x))
    return states, errors


STATES, ERRORS = euler(TOKENS.points)


def test_plans_follow_an_expanding_cloud(monkeypatch):
    monkeypatch.setattr("meanformer.flows.flow.advance", None)  # the program on grids is another one
    run = mf.flow(
        EXPANDING, TOKENS, STEP * STEPS, solver="euler", step=STEP, save=8, accuracy=ACCURACY, sample=20,
        observers=OBSERVERS,
    )  # fmt: skip
    assert run.outcome.ok and run.stats["plans"] >= 2 and 0 < run.stats["sum_error"] <= ACCURACY
    assert "grid" in run.stats["sums"] and run.stats["segments"] >= 2 and run.stats["steps"] == STEPS
    assert 1e-12 < np.abs(run.final.points - STATES[-1]).max() < ERRORS[-1] < 1e-3

    # A sample of the tokens, in their order, with their share of the weights; statistics of all of them.
    kept = run.states
    assert kept.points.shape == (8, 20, 1) and run.points.shape == (8, 20, 1)
    which = [int(np.flatnonzero(np.asarray(TOKENS.points)[:, 0] == x)[0]) for x in np.asarray(kept.points)[0, :, 0]]
    assert which == sorted(set(which))
    share = np.asarray(TOKENS.weights)[which]
    np.testing.assert_allclose(kept.weights[0], share / share.sum(), rtol=1e-14)
    np.testing.assert_allclose(kept.points[-1], np.asarray(run.final.points)[which], rtol=1e-14)
    assert set(run.statistics) == {"mean", "covariance", "radius", "cubes"} and run.final.n == N
    for name in ("mean", "covariance", "radius"):
        assert run.statistics[name].shape[0] == 8
        np.testing.assert_allclose(run.statistics[name][-1], getattr(run.final, name), rtol=1e-13)
        np.testing.assert_allclose(run.statistics[name][0], getattr(TOKENS, name), rtol=1e-13)
    w = np.asarray(TOKENS.weights)
    for k, (x, error) in enumerate(zip(STATES, ERRORS, strict=True)):
        np.testing.assert_allclose(run.statistics["mean"][k], w @ x, rtol=0, atol=error + 1e-14)
        slack = 3.1 * np.abs(x).max() ** 2 * error + 1e-13
        np.testing.assert_allclose(run.statistics["cubes"][k], (1 + k * STEP) * w @ x**3, rtol=0, atol=2 * slack)
    data = run.to_xarray()
    assert data["points"].shape == (8, 20, 1) and data["all_covariance"].shape == (8, 1, 1)
    assert_refused(lambda: run.at(0.3), ["needs all tokens", "20 of 300", "run.statistics"])


def test_a_rescaled_frame():
    """The plan is for the tokens out of the frame, which expand, not for those in it, which hardly move."""
    run = mf.flow(
        EXPANDING, TOKENS, STEP * STEPS, solver="euler", step=STEP, save=2, accuracy=ACCURACY, frame=mf.Rescaled()
    )
    assert run.outcome.ok and run.stats["plans"] >= 2
    z = np.asarray(TOKENS.points)
    for k in range(STEPS):  # V = 1: x = e^t z
        scale = np.exp(k * STEP)
        z = z + STEP * (field_of(scale * z)[0] / scale - z)
    assert 1e-12 < np.abs(run.final.points - z).max() < ERRORS[-1]


def test_a_plan_under_jit():
    """One plan for the whole of a traced run: gradients as of exact sums; beyond the plan, no number and no success."""
    plan = mf.plan(EXPANDING, TOKENS.with_points(1.3 * TOKENS.points), ACCURACY)
    assert not plan.exact

    @jax.jit
    @jax.value_and_grad
    def gradient(size):
        tokens = TOKENS.with_points(size * TOKENS.points)
        run = mf.flow(EXPANDING, tokens, 2 * STEP, solver="euler", step=STEP, save=2, accuracy=plan, max_steps=4)
        return jnp.where(run.outcome.ok, jnp.sum(jnp.sin(run.final.points)), jnp.nan)

    def dense(size):
        return np.sin(euler(size * np.asarray(TOKENS.points), 2)[0][-1]).sum()

    value, slope = gradient(jnp.asarray(1.0))
    assert 0 < abs(value - dense(1.0)) <= N * ERRORS[2]
    h = 1e-4
    np.testing.assert_allclose(slope, (dense(1 + h) - dense(1 - h)) / (2 * h), rtol=1e-4)
    assert np.isnan(gradient(jnp.asarray(3.0))[0])


def test_bad_samples_and_observers():
    run = lambda **options: mf.flow(EXPANDING, TOKENS, 1.0, **options)  # noqa: E731
    for bad in (0, -3, 2.5):
        assert_refused(lambda bad=bad: run(sample=bad), ["sample", str(bad)])
    gaussian = mf.Gaussian(np.zeros(1), np.eye(1))
    assert_refused(lambda: mf.flow(EXPANDING, gaussian, 1.0, sample=5), ["sample", "PointCloud"])
    for bad in (lambda mu, t: mu.mean, {"mean": lambda mu: mu.mean}, {3: lambda mu, t: t}):
        assert_refused(lambda bad=bad: run(observers=bad), ["observers", "(mu, t)"])
    assert_refused(lambda: run(observers={"both": lambda mu, t: (mu.mean, t)}), ["'both'", "one array"])


def test_a_step_that_leaves_its_plan_is_no_blow_up(monkeypatch):
    """Equal steps cannot be rejected: the segment is done again with a wider plan, and at last with exact sums."""
    monkeypatch.setattr("meanformer.reduce.plan.PAIR", 1.0)
    monkeypatch.setattr("meanformer.flows.planning.MARGIN", 1.0)
    x = np.linspace(-2, 2, 40)[:, None]
    run = mf.flow(mf.Softmax(1.0, 1.0, 2.0), mf.PointCloud(x), 0.5, solver="euler", step=0.5, save=2, accuracy=1e-4)
    assert run.outcome.kind == "REACHED"
    p = np.exp(x @ x.T)
    np.testing.assert_allclose(run.final.points, x + 0.5 * 2 * p @ x / p.sum(axis=1, keepdims=True), rtol=1e-3)

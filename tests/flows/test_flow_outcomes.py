"""How runs end: blow-up, limits, stop rules, stalled Sinkhorn; and what a run shows meanwhile."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _cases import cloud, weights

import meanformer as mf
from meanformer import _progress as progress_module
from meanformer.flows import run as run_module

Q, K, V = weights(50)
FIELD = mf.Softmax(Q, K, V)
TOKENS = cloud(50)


def test_linear_attention_blows_up_when_riccati_does() -> None:
    # d = 1, A = V = 1: x' = M x with M the second moment, so M' = 2 M^2 and M(t) = M_0 / (1 - 2 M_0 t). Every
    # token grows like x_i(t) = x_i(0) / sqrt(1 - 2 M_0 t), up to the time 1 / (2 M_0).
    tokens = cloud(51, d=1)
    moment = float(tokens.weights @ tokens.points[:, 0] ** 2)
    blow_up = 1 / (2 * moment)
    run = mf.flow(mf.Linear(1.0, 1.0, 1.0), tokens, 2 * blow_up, save=21, rtol=1e-9, atol=1e-12)
    assert run.outcome.kind in ("STEP_TOO_SMALL", "NOT_FINITE") and not run.outcome.ok
    assert abs(float(run.outcome.time) / blow_up - 1) < 1e-6
    assert "blow" in str(run.outcome) and "rescale the weights" in str(run.outcome)
    assert np.isfinite(run.final.points).all() and np.isfinite(run.points).all()
    assert float(run.final.radius) > 1e3 * float(tokens.radius)
    # Up to there the trajectory is the exact one; nothing is saved beyond.
    early = np.asarray(run.times) < 0.96 * blow_up
    exact = np.asarray(tokens.points) / np.sqrt(1 - 2 * moment * np.asarray(run.times)[early, None, None])
    np.testing.assert_allclose(run.points[early], exact, rtol=1e-6)
    assert float(run.times[-1]) == float(run.outcome.time)


def test_unnormalised_attention_blows_up() -> None:
    # One token, d = 1: x' = x e^{x^2}, so the time to infinity is (E_1(x_0^2)) / 2.
    from scipy.special import exp1

    token = mf.PointCloud([[0.8]])
    run = mf.flow(mf.Unnormalised(1.0, 1.0, 1.0), token, 5.0, save=5, rtol=1e-9, atol=1e-12)
    assert run.outcome.kind in ("STEP_TOO_SMALL", "NOT_FINITE")
    np.testing.assert_allclose(float(run.outcome.time), exp1(0.8**2) / 2, rtol=1e-6)
    assert np.isfinite(run.final.points).all() and float(run.final.radius) > 3


def test_blow_up_with_constant_steps_keeps_what_is_finite() -> None:
    tokens = cloud(51, d=1)
    run = mf.flow(mf.Unnormalised(1.0, 1.0, 1.0), tokens, 5.0, solver="euler", step=0.05, save=21)
    assert run.outcome.kind == "NOT_FINITE" and "floating-point range" in str(run.outcome)
    assert np.isfinite(run.points).all() and np.isfinite(run.final.points).all()
    np.testing.assert_array_equal(run.final.points, run.points[-1])
    assert run.points.shape[0] == run.times.shape[0] < 21
    # Also if no save time was reached: then the start is what is known.
    times = np.linspace(4, 5, 21)
    late = mf.flow(mf.Unnormalised(1.0, 1.0, 1.0), tokens, 5.0, solver="euler", step=0.05, save=times)
    assert late.outcome.kind == "NOT_FINITE" and late.points.shape[0] >= 1
    assert np.isfinite(late.final.points).all()


def test_blow_up_before_the_first_save_time() -> None:
    token = mf.PointCloud([[0.8]])
    run = mf.flow(mf.Unnormalised(1.0, 1.0, 1.0), token, 5.0, save=np.linspace(3, 5, 5), rtol=1e-9, atol=1e-12)
    assert not run.outcome.ok and np.isfinite(run.final.points).all()
    assert float(run.times[-1]) == float(run.outcome.time)


def test_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SEGMENT_STEPS", 10)
    run = mf.flow(FIELD, TOKENS, 50.0, max_steps=10, save=3)
    assert run.outcome.kind == "STEP_LIMIT" and not run.outcome.ok
    assert "max_steps" in str(run.outcome)
    assert run.stats["steps"] + run.stats["rejected"] == 10
    assert 0 < float(run.outcome.time) < 50 and np.isfinite(run.final.points).all()
    # A limit above what one segment takes is counted over segments.
    more = mf.flow(FIELD, TOKENS, 50.0, max_steps=24, save=3)
    assert more.outcome.kind == "STEP_LIMIT" and more.stats["segments"] == 3
    assert more.stats["steps"] + more.stats["rejected"] == 24
    assert float(run.outcome.time) < float(more.outcome.time) < 50


class Within(eqx.Module):
    """A user's rule with a number in it."""

    level: float | jax.Array

    def __call__(self, mu, t):
        return mu.radius < self.level


def rules(speed=1e-100, above=1e100, within=0.0) -> list:
    """Three rules, which never hold unless asked to: runs with them compile once."""
    return [mf.Stationary(speed), mf.RadiusAbove(above), Within(jnp.asarray(within))]


def test_stop_rules() -> None:
    shrink = mf.Affine(-np.eye(3))  # x(t) = e^{-t} x_0: every rule has a known time
    radius = float(TOKENS.radius)

    def run(stop, field=shrink):
        return mf.flow(field, TOKENS, 30.0, stop=stop, solver="euler", step=0.01, save=4)

    def check(result, expected):
        assert result.outcome.kind == "STOPPED" and result.outcome.ok and "stopped by a rule" in str(result.outcome)
        # The rule is asked after every step; Euler decays by 0.99 per step.
        assert abs(float(result.outcome.time) - expected * 0.01 / -np.log(0.99)) <= 0.0101
        assert float(result.times[-1]) == float(result.outcome.time)
        np.testing.assert_array_equal(result.final.points, result.points[-1])

    check(run(rules(speed=1e-3)), np.log(radius / 1e-3))
    # Of several rules the first to hold ends the run.
    check(run(rules(speed=1e-3, within=0.1)), np.log(radius / 0.1))
    # One rule alone, a function.
    check(run(lambda mu, t: mu.radius < 0.1), np.log(radius / 0.1))
    grown = run(rules(above=10.0), mf.Affine(np.eye(3)))
    assert grown.outcome.kind == "STOPPED" and 10 < float(grown.final.radius) < 10 * 1.0101


def test_stationary_and_radius_look_at_visible_tokens_only() -> None:
    far = mf.PointCloud(np.vstack([np.full((9, 3), 0.01), [[100.0, 0, 0]]]), [1 / 9] * 9 + [0.0])
    options = {"solver": "euler", "step": 0.01, "save": 4}
    assert mf.flow(mf.Affine(np.eye(3)), far, 1.0, stop=rules(above=10.0), **options).outcome.kind == "REACHED"
    still = mf.flow(mf.Affine(np.eye(3)), far, 1.0, stop=rules(speed=0.1), **options)
    assert still.outcome.kind == "STOPPED" and float(still.outcome.time) == 0


def test_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SEGMENT_STEPS", 10)
    run = mf.flow(FIELD, TOKENS, 50.0, stop=mf.WallClock(1e-9), save=3)
    assert run.outcome.kind == "STOPPED" and run.stats["segments"] == 1
    assert 0 < float(run.outcome.time) < 50


def test_sinkhorn_stalled_is_reported() -> None:
    field = mf.Sinkhorn(3 * Q, 3 * K, V, max_iter=1)
    euler = {"solver": "euler", "step": 0.25}  # compiles sooner: what is looked at does not depend on the solver
    run = mf.flow(field, TOKENS, 1.0, **euler)
    assert run.outcome.kind == "SINKHORN_STALLED" and not run.outcome.ok
    assert "max_iter" in str(run.outcome)
    assert run.stats["sinkhorn_error"] > float(field.tol)
    # Layers, and runs under tracing, say it too.
    assert mf.layers(field, TOKENS, 4).outcome.kind == "SINKHORN_STALLED"
    traced = jax.jit(lambda x: mf.flow(field, TOKENS.with_points(x), 1.0, save=2, **euler).outcome)(TOKENS.points)
    assert traced.kind == "SINKHORN_STALLED"
    # The same program with enough iterations arrives.
    fine = mf.flow(mf.Sinkhorn(3 * Q, 3 * K, V), TOKENS, 1.0, **euler)
    assert fine.outcome.kind == "REACHED" and fine.stats["sinkhorn_error"] <= 1e-10
    assert fine.times.shape == (101,)  # by default


def test_a_traced_run_that_ended_in_its_first_piece() -> None:
    """What comes later is not finite, and its steps do not count."""
    field, euler = mf.Sinkhorn(3 * Q, 3 * K, V, max_iter=1), {"solver": "euler", "step": 0.25}
    pieces = mf.Piecewise([field, mf.Affine(V)], [0.5])
    saved = jax.jit(lambda x: mf.flow(pieces, TOKENS.with_points(x), 1.0, save=[0.0, 0.5, 1.0], **euler))(TOKENS.points)
    assert saved.outcome.kind == "SINKHORN_STALLED" and int(saved.stats["steps"]) == 2
    assert np.isfinite(saved.points[:2]).all() and not np.isfinite(saved.points[2]).any()


@pytest.mark.parametrize("kind", ["REACHED", "STOPPED", "STEP_LIMIT", "STEP_TOO_SMALL", "NOT_FINITE"])
def test_outcome_in_words(kind: str) -> None:
    from meanformer.outcome import Ending

    outcome = mf.Outcome(jnp.asarray(int(Ending[kind])), jnp.asarray(0.5))
    assert outcome.kind == kind and outcome.ok == (kind in ("REACHED", "STOPPED"))
    assert re.match(rf"{kind} at t = 0.5: \w+", str(outcome))


def test_float32_stays_float32() -> None:
    def single(a):
        return jnp.asarray(a, jnp.float32)

    tokens = mf.PointCloud(single(TOKENS.points), single(TOKENS.weights))
    run = mf.flow(mf.Softmax(single(Q), single(K), single(V)), tokens, 1.0, save=3)
    leaves = [a for a in jax.tree.leaves((run, run.states, run.final)) if isinstance(a, jax.Array)]
    assert {a.dtype for a in leaves if jnp.issubdtype(a.dtype, jnp.floating)} == {jnp.dtype("float32")}
    assert run.outcome.kind == "REACHED"
    exact = mf.flow(FIELD, mf.PointCloud(TOKENS.points, TOKENS.weights), 1.0, save=3, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.final.points, exact.final.points, rtol=1e-3, atol=1e-4)
    layers = mf.layers(mf.Softmax(single(Q), single(K), single(V)), tokens, 2)
    assert layers.points.dtype == layers.times.dtype == jnp.float32


def test_progress_bar_writes_and_changes_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = mf.flow(FIELD, TOKENS, 2.0, save=3, progress=False)
    assert capfd.readouterr().err == ""
    # A short run shows nothing, even if asked.
    mf.flow(FIELD, TOKENS, 2.0, save=3, progress=True)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(progress_module, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = mf.flow(FIELD, TOKENS, 2.0, save=3, progress=True)
    captured = capfd.readouterr()
    assert "flow" in captured.err and "steps" in captured.err and captured.out == ""
    np.testing.assert_array_equal(shown.points, quiet.points)


def test_layers_that_overflow_keep_their_last_state() -> None:
    run = mf.layers(mf.Unnormalised(9 * Q, K, V), TOKENS, 20, step=1.0)
    assert run.outcome.kind == "NOT_FINITE" and float(run.outcome.time) < 20
    assert np.isfinite(run.final.points).all()
    assert not np.isfinite(run.points[int(run.outcome.time) + 1]).all()

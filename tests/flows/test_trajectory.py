"""What a run returns: times, states, interpolation, frames, datasets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _cases import cloud, integrated, weights

import meanformer as mf
from meanformer.flows import run as run_module

TIGHT = {"rtol": 1e-11, "atol": 1e-13}
Q, K, V = weights(40)
FIELD = mf.Softmax(Q, K, V)
TOKENS = cloud(40).with_positions()


def difference(a, b) -> float:
    return float(jnp.abs(a.points - b.points).max())


def test_times_states_and_final() -> None:
    run = mf.flow(FIELD, TOKENS, 1.0, t0=0.25, save=4)
    assert isinstance(run, mf.Trajectory)
    np.testing.assert_allclose(run.times, [0.25, 0.5, 0.75, 1.0], rtol=1e-15)
    assert run.states.points.shape == (4, 10, 3)
    np.testing.assert_array_equal(run.states.points[0], TOKENS.points)
    np.testing.assert_array_equal(run.states.weights, np.tile(TOKENS.weights, (4, 1)))
    np.testing.assert_array_equal(run.states.positions, np.tile(TOKENS.positions, (4, 1)))
    np.testing.assert_allclose(run.states[3].points, run.final.points, rtol=1e-13)
    assert run.outcome.kind == "REACHED" and run.outcome.ok and float(run.outcome.time) == 1.0
    assert run.stats["steps"] > 0 and run.stats["segments"] == 1 and run.stats["seconds"] > 0
    assert run.field.V.shape == (3, 3)
    assert "Softmax, 10 tokens in R^3" in run.summary() and "REACHED" in run.summary()
    assert run.original() is run
    assert run.clusters().count == mf.clusters(run.final).count


def test_save_schedules() -> None:
    def times(save, t1=2.0, t0=0.5):
        return np.asarray(mf.flow(FIELD, TOKENS, t1, t0=t0, save=save).times)

    np.testing.assert_allclose(times(mf.linear_times(4)), [0.5, 1.0, 1.5, 2.0], rtol=1e-15)
    np.testing.assert_allclose(times(4), times(mf.linear_times(4)), rtol=0)
    np.testing.assert_allclose(times([0.75, 1.0, 1.1, 1.2]), [0.75, 1.0, 1.1, 1.2], rtol=0)
    logarithmic = times(mf.log_times(4, first=0.015), t1=2.0)
    np.testing.assert_allclose(logarithmic - 0.5, [0, 0.015, 0.15, 1.5], rtol=1e-12, atol=0)
    assert logarithmic[-1] == 2.0
    # What is saved does not change the run.
    a, b = (mf.flow(FIELD, TOKENS, 2.0, save=save) for save in (4, np.array([0.1, 0.2, 0.3, 1.9])))
    assert difference(a.final, b.final) < 1e-12


def test_one_save_time() -> None:
    run = mf.flow(FIELD, TOKENS, 1.0, save=[0.5])
    assert run.points.shape == (1, 10, 3)
    np.testing.assert_array_equal(run.at(0.5).points, run.points[0])
    assert difference(run.final, run.states[0]) > 1e-3


def test_at_is_exact_at_save_times_and_as_accurate_as_the_run_between() -> None:
    fine = mf.flow(FIELD, TOKENS, 0.5, save=17, **TIGHT)
    errors = []
    for stride in (8, 4, 2):
        # The run as it would be with fewer save times: the middles of its intervals are known from the fine one.
        kept = (fine.times[::stride], fine.points[::stride])
        run = eqx.tree_at(lambda r: (r.times, r.saved[0]), fine, kept)
        for k in (0, 2, -1):
            np.testing.assert_array_equal(run.at(run.times[k]).points, run.points[k])
        middles = range(stride // 2, 17, stride)
        assert max(difference(run.at(fine.times[m]), fine.states[m]) for m in middles) < 1e-9
        np.testing.assert_array_equal(run.at(0.3).weights, TOKENS.weights)
        # Under tracing it is interpolation.
        traced = jax.jit(lambda t, run=run: run.at(t).points)
        errors.append(max(float(jnp.abs(traced(fine.times[m]) - fine.points[m]).max()) for m in middles))
    orders = -np.diff(np.log2(errors))
    print(f"order of a traced at(t) in the save spacing {np.round(orders, 2)}")
    assert ((orders > 3.7) & (orders < 4.3)).all()
    for t in (-0.1, 0.6):
        with pytest.raises(ValueError, match="t must lie in the run"):
            run.at(t)


def test_at_across_a_break() -> None:
    # Velocities jump at 0.5, which is not one of the times asked for; no interval of interpolation crosses it.
    field = mf.Piecewise([FIELD, mf.Softmax(K, Q, -3 * V)], breaks=[0.5])
    ask = np.array([0.3, 0.49, 0.5, 0.51, 0.8])
    run = mf.flow(field, TOKENS, 1.0, save=np.linspace(0, 1, 16), **TIGHT)
    assert run.times.shape == (17,) and 0.5 in np.asarray(run.times)
    # As many times, so that nothing compiles again.
    exact = mf.flow(field, TOKENS, 1.0, save=np.concatenate([ask, np.linspace(0.9, 1.0, 12)]), **TIGHT)
    worst = max(difference(run.at(t), exact.states[k]) for k, t in enumerate(ask))
    assert worst < 1e-6


@pytest.mark.parametrize("moving", [False, True], ids=["constant V", "V(t)"])
def test_at_and_original_in_the_rescaled_frame(moving: bool) -> None:
    values = jnp.asarray(V)
    field = mf.Scheduled(lambda t: mf.Softmax(Q, K, jnp.cos(t) * values)) if moving else FIELD
    ask = np.array([0.13, 0.51, 0.77])
    run = mf.flow(field, TOKENS, 1.0, save=17, frame=mf.Rescaled(), **TIGHT)
    assert run.propagators.shape == (17, 3, 3)
    np.testing.assert_allclose(run.propagators[0], np.eye(3), atol=1e-15)
    times = np.concatenate([ask, np.linspace(0.9, 1.0, 14)])  # as many as before: nothing compiles again
    exact = mf.flow(field, TOKENS, 1.0, save=times, frame=mf.Rescaled(), **TIGHT)
    assert max(difference(run.at(t), exact.states[k]) for k, t in enumerate(ask)) < 1e-6
    # Out of the frame, the run goes on as an ordinary one: its `at` interpolates x, not z.
    *plain, middle, last = integrated(field, TOKENS, [*np.asarray(run.times)[:9], 0.51, 1.0])
    np.testing.assert_allclose(run.original().points[:9], plain, rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.original().final.points, last, rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.original().at(0.51).points, middle, rtol=0, atol=1e-6)


def test_to_xarray() -> None:
    run = mf.flow(FIELD, TOKENS, 1.0, save=17, frame=mf.Rescaled())
    data = run.to_xarray()
    assert data["points"].dims == ("time", "token", "coordinate") and data["points"].shape == (17, 10, 3)
    assert data["weights"].dims == data["positions"].dims == ("token",)
    assert data["propagators"].shape == (17, 3, 3)
    np.testing.assert_array_equal(data["time"], run.times)
    np.testing.assert_array_equal(data["points"].sel(time=1.0), run.points[-1])
    assert data.attrs["outcome"] == str(run.outcome)
    assert data.attrs["field"] == "Softmax" and "Rescaled" in data.attrs["frame"]
    assert "tau" in data.attrs["convention"] and data.attrs["steps"] == run.stats["steps"]
    bare = mf.layers(FIELD, mf.PointCloud(TOKENS.points), 2).to_xarray()
    assert set(bare.data_vars) == {"points", "weights"} and bare["points"].shape == (3, 10, 3)


def test_layers_are_discrete() -> None:
    run = mf.layers(FIELD, TOKENS, 4, step=0.5)
    np.testing.assert_array_equal(run.times, [0, 0.5, 1.0, 1.5, 2.0])
    assert run.points.shape == (5, 10, 3) and run.stats["steps"] == 4
    by_hand = TOKENS
    for _ in range(4):
        by_hand = by_hand.with_points(by_hand.points + 0.5 * mf.velocity(FIELD, by_hand))
    np.testing.assert_allclose(run.final.points, by_hand.points, rtol=1e-13)
    with pytest.raises(ValueError, match="no state between layers"):
        run.at(0.5)
    ends = mf.layers(FIELD, TOKENS, 4, step=0.5, save="final")
    np.testing.assert_array_equal(ends.times, [0, 2.0])
    np.testing.assert_allclose(ends.final.points, run.final.points, rtol=1e-14)


def test_layers_use_a_schedule_at_their_own_times() -> None:
    values = jnp.asarray(V)

    def at(t):
        return mf.Softmax(Q, K, (1 + t) * values)

    scheduled = mf.layers(mf.Scheduled(at), TOKENS, 3, step=0.5)
    listed = mf.layers([at(jnp.asarray(0.5 * l)) for l in range(3)], TOKENS, step=0.5)
    assert difference(scheduled.final, listed.final) < 1e-14
    pieces = mf.layers(mf.Piecewise([at(0.0), at(1.0)], breaks=[1.0]), TOKENS, 3, step=0.5)
    steps = mf.layers([at(0.0), at(0.0), at(1.0)], TOKENS, step=0.5)
    assert difference(pieces.final, steps.final) < 1e-14


@pytest.mark.parametrize("options", [{}, {"solver": "euler", "step": 0.03}], ids=["adaptive", "constant step"])
def test_a_run_cut_in_segments_is_the_same_run(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mf.flow(FIELD, TOKENS, 2.0, save=17, **{**TIGHT, **options})
    monkeypatch.setattr(run_module, "SEGMENT_STEPS", 3)
    cut = mf.flow(FIELD, TOKENS, 2.0, save=17, **{**TIGHT, **options})
    assert cut.stats["segments"] >= cut.stats["steps"] / 3 > whole.stats["segments"]
    assert cut.outcome.kind == whole.outcome.kind == "REACHED"
    np.testing.assert_array_equal(cut.times, whole.times)
    assert difference(cut.states, whole.states) < (1e-12 if options else 1e-9)

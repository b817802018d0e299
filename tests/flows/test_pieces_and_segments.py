"""Where a run is cut: breaks of piecewise fields, segments, step limits, and the times of layers."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.flows import run as run_module

TOKENS = mf.PointCloud(np.random.default_rng(5).normal(size=(6, 2)))
GROW, SHRINK = mf.Affine(np.eye(2)), mf.Affine(-2 * np.eye(2))
STILL = mf.Affine(np.zeros((2, 2)))


def exact(t: float, split: float) -> np.ndarray:
    """Tokens that grow until `split` and shrink twice as fast from then on."""
    return np.asarray(TOKENS.points) * np.exp(min(t, split) - 2 * max(t - split, 0))


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: 1.0 * f, lambda f: f + STILL], ids=["bare", "scaled", "sum"])
def test_no_step_crosses_a_break_at_any_depth(wrap):
    run = mf.flow(wrap(mf.Piecewise([GROW, SHRINK], [0.4])), TOKENS, 1.0, rtol=1e-9, atol=1e-12, save=4)
    np.testing.assert_allclose(run.final.points, exact(1.0, 0.4), rtol=1e-8)
    assert 0.4 in np.asarray(run.times)
    assert run.stats["rejected"] <= 2  # a step across the break would be rejected again and again


def test_a_list_of_fields_is_equal_pieces():
    listed = mf.flow([GROW, SHRINK], TOKENS, 1.0, rtol=1e-9, save=2)
    np.testing.assert_allclose(listed.final.points, exact(1.0, 0.5), rtol=1e-8)


def test_piecewise_runs_under_jit_save_their_breaks():
    field = mf.Piecewise([GROW, SHRINK], [0.5])
    run = jax.jit(lambda x: mf.flow(field, mf.PointCloud(x), 1.0, rtol=1e-9, save=4))(TOKENS.points)
    assert 0.5 in np.asarray(run.times)
    # Cubic interpolation over a third of the time; across the break it would be off by a third of the value.
    np.testing.assert_allclose(run.at(0.45).points, exact(0.45, 0.5), rtol=1e-4)


@pytest.mark.parametrize("depth", [6, 49])
def test_layers_meet_breaks_at_their_own_times(depth):
    """Layer l of L sits at l/L, which l * (1/L) misses by rounding."""
    first, second = mf.Affine(np.zeros((2, 2)), [1.0, 0.0]), mf.Affine(np.zeros((2, 2)), [0.0, 1.0])
    missed = [number for number in range(1, depth) if number * (1 / depth) != number / depth]
    for number in missed[:3] or range(1, depth):
        run = mf.layers(mf.Piecewise([first, second], [number / depth]), TOKENS, depth)
        want = np.add(TOKENS.points, [number / depth, 1 - number / depth])
        np.testing.assert_allclose(run.final.points, want, atol=1e-13)


def test_a_stall_in_any_layer_is_reported():
    # A zero value matrix keeps the tokens where they are, so only the layer in the middle has anything to solve.
    hard = mf.Sinkhorn(3 * np.eye(2), [[0.0, 2.0], [1.0, 0.0]], np.eye(2), max_iter=1)
    assert mf.layers([STILL, hard, STILL], TOKENS).outcome.kind == "SINKHORN_STALLED"
    assert mf.layers(mf.Piecewise([hard, STILL], [0.5]), TOKENS, 2).outcome.kind == "SINKHORN_STALLED"
    fine = mf.Sinkhorn(3 * np.eye(2), [[0.0, 2.0], [1.0, 0.0]], np.eye(2))
    assert mf.layers([STILL, fine, STILL], TOKENS).outcome.kind == "REACHED"


def test_short_segments_let_the_step_grow_and_shrink(monkeypatch):
    """Large clouds have short segments: in them, too, the step must grow fast and recover from rejections."""

    def steps(length: int) -> int:
        monkeypatch.setattr(run_module, "SEGMENT_STEPS", length)
        bump = mf.Scheduled(lambda t: mf.Affine(-(0.2 + 50 * jnp.exp(-(((t - 10) / 0.1) ** 2))) * jnp.eye(2)))
        run = mf.flow(bump, TOKENS, 20.0, save=2)
        assert run.outcome.kind == "REACHED"
        return run.stats["steps"] + run.stats["rejected"]

    assert run_module.segment_steps(10**6) == run_module.FEWEST_STEPS == 8
    assert steps(8) <= 1.5 * steps(64)


@pytest.mark.parametrize("limit, ending", [(5, "STEP_LIMIT"), (6, "STEP_LIMIT"), (10, "REACHED")])
def test_max_steps_counts_over_all_pieces(limit, ending):
    field = mf.Piecewise([GROW, SHRINK], [0.5])
    run = mf.flow(field, TOKENS, 1.0, solver="euler", step=0.1 * (1 + 1e-12), max_steps=limit, save=2)
    assert run.outcome.kind == ending and run.stats["steps"] == limit


def test_progress_starts_at_t0(monkeypatch, capsys):
    from meanformer import _progress as progress

    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.Progress(True, 100.0, 110.0) as bar:
        bar.update(101.0, 3)
        assert bar.bar.bar.tasks[0].percentage == pytest.approx(10.0)
    capsys.readouterr()


def test_schedules_hide_no_breaks():
    with pytest.raises(mf.InputError, match="continuous"):
        mf.flow(mf.Scheduled(lambda t: mf.Piecewise([GROW, SHRINK], [0.4])), TOKENS, 1.0)


def test_forward_mode_through_a_break():
    def final(a):
        fields = [mf.Affine(a * jnp.eye(2)), SHRINK]
        run = mf.flow(mf.Piecewise(fields, [0.5]), TOKENS, 1.0, rtol=1e-9, save=2, adjoint=diffrax.ForwardMode())
        return run.final.points

    value, slope = jax.jvp(final, (jnp.asarray(1.0),), (jnp.asarray(1.0),))
    np.testing.assert_allclose(slope, 0.5 * value, rtol=1e-6)

"""Runs and fates as tables: each row once, each number that of the run."""

import numpy as np
import pytest

import meanformer as mf
from meanformer.fate import FateKind
from meanformer.flows.frames import MovingRescaled
from meanformer.flows.particles import ParticleSystem
from meanformer.spaces import Euclidean
from plots._runs import density_run, gaussian_run, growth, softmax, token_run, trajectory


def test_tokens_have_a_row_for_each_time_and_token():
    run = token_run(3, n=7, positions=True)
    table = run.to_dataframe()
    assert list(table.columns) == ["time", "token", "x1", "x2", "x3", "weight", "position"]
    assert len(table) == 5 * 7 and not table.duplicated(["time", "token"]).any()
    for k, i in ((0, 0), (2, 5), (4, 6)):
        row = table[(table.time == float(run.times[k])) & (table.token == i)].iloc[0]
        np.testing.assert_array_equal(row[["x1", "x2", "x3"]].to_numpy(float), run.points[k, i])
        assert row.weight == 1 / 7 and row.position == run.system.mu.positions[i]
    assert table.attrs["outcome"] == str(run.outcome) and table.attrs["field"] == "Softmax"


def test_a_rescaled_run_is_in_its_frame():
    """Where the dataset has another axis of coordinates, which doubled the rows."""
    plain = token_run(2)
    system = ParticleSystem(softmax(2), plain.system.mu, Euclidean(), MovingRescaled())
    run = trajectory(system, (plain.points, growth(2)[:, :, None] * np.eye(2)))
    table = run.to_dataframe()
    assert len(table) == run.points.shape[0] * run.points.shape[1]
    np.testing.assert_array_equal(table[["x1", "x2"]].to_numpy().reshape(run.points.shape), run.points)
    original = run.original().to_dataframe()
    assert not np.allclose(original.x1, table.x1) and table.attrs["frame"] == "MovingRescaled"


def test_a_gaussian_has_a_row_for_each_time():
    run = gaussian_run(3)
    table = run.to_dataframe()
    names = ["cov1_1", "cov1_2", "cov1_3", "cov2_2", "cov2_3", "cov3_3"]
    assert list(table.columns) == ["time", "mean1", "mean2", "mean3", *names]
    np.testing.assert_array_equal(table.time, run.times)
    covariance = np.asarray(run.states.covariance)
    np.testing.assert_array_equal(table[["mean1", "mean2", "mean3"]], run.states.mean)
    for i, j in ((0, 0), (0, 2), (1, 2)):
        np.testing.assert_allclose(table[f"cov{i + 1}_{j + 1}"], covariance[:, i, j], rtol=1e-14)


@pytest.mark.parametrize(
    "d, positions, axes", [(1, False, ["x1"]), (2, False, ["x1", "x2"]), (1, True, ["position", "x1"])]
)
def test_a_density_has_a_row_for_each_time_and_cell(d, positions, axes):
    run = density_run(d, positions)
    table = run.to_dataframe()
    assert list(table.columns) == ["time", *axes, "mass", "density"]
    assert not table.duplicated(["time", *axes]).any() and len(table) == np.asarray(run.saved[0]).size
    np.testing.assert_array_equal(table.mass, np.asarray(run.saved[0]).ravel())
    means = (table.x1 * table.mass).groupby(table.time).sum() / table.mass.groupby(table.time).sum()
    np.testing.assert_allclose(means, np.asarray(run.states.mean)[:, 0], atol=1e-12)


def test_fates_have_a_row_each():
    limit = np.array([np.full((2, 2), np.nan), [[1.0, 2.0], [2.0, 3.0]]])
    numbers = {name: np.array([0.5, 7.0]) for name in ("time", "error", "growth", "exponent")}
    code = np.array([FateKind.BLEW_UP, FateKind.CONVERGED])
    slopes, steps = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([3, 4])
    found = mf.Fates(code=code, rank=np.array([-1, 1]), limit=limit, slopes=slopes, steps=steps, seconds=0.1, **numbers)
    table = found.to_dataframe()
    assert table.kind.tolist() == ["BLEW_UP", "CONVERGED"] and table.slope2.tolist() == [2.0, -1.0]
    assert table.loc[1, ["limit1_1", "limit1_2", "limit2_2"]].tolist() == [1.0, 2.0, 3.0]
    assert len(table) == 2 and "limit2_1" not in table

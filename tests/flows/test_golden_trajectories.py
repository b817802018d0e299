"""Reference trajectories (golden/trajectories.npz) and the identities of MATH i that hold along them.

The identities are tested on the same runs, because they need no further compiling. Solver tolerances, and how far
a trajectory may be from its reference, are those of the golden README.
"""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from _golden import KINDS, attention, embedded, load, relative_error
from scipy.linalg import expm

import meanformer as mf

CASES = load()
TIGHT = {"rtol": 1e-9, "atol": 1e-12}
TOLERANCE = 1e-7
BOUNDED = ("softmax", "l2", "sigmoid", "sinkhorn_dot", "sinkhorn_l2")


def show(family: str, error: float) -> None:
    print(f"golden trajectories: {family:<24} worst relative error {error:.1e}")


def check_row_10_mean(run: mf.Trajectory, V: np.ndarray) -> None:
    mean = np.asarray(run.states.mean)
    exact = np.stack([expm(float(t) * V) @ mean[0] for t in run.times])
    assert relative_error(mean, exact) <= 1e-9


def check_row_22_radius(run: mf.Trajectory, rate: float) -> None:
    bound = np.exp(rate * np.asarray(run.times)) * float(run.states.radius[0])
    assert (np.asarray(run.states.radius) <= bound + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_golden_and_rows_10_22_28(kind: str) -> None:
    errors = []
    for d in (1, 2, 3):
        original = CASES[f"{kind}_d{d}"]
        n = len(original["X"])
        # One compiled run for the three dimensions: the smaller ones are embedded in R^3.
        case = embedded(original, n=10, d=3)
        tokens, t = mf.PointCloud(case["X"], case["w"]), case["t"]
        run = mf.flow(attention(case), tokens, t[-1], save=t, **TIGHT)
        assert run.outcome.kind == "REACHED"
        errors.append(relative_error(run.points[:, :n], case["Xt"][:, :n]))
        np.testing.assert_array_equal(run.points[:, :, d:], 0)

        # Row 28: V -> 2V is t -> 2t.
        faster = mf.flow(attention(case, V=2 * case["V"]), tokens, t[-1] / 2, save=t / 2, **TIGHT)
        assert relative_error(faster.points[:, :n], np.asarray(run.points[:, :n])) <= 1e-8

        if kind in BOUNDED:
            check_row_22_radius(run, np.linalg.norm(case["V"], 2))
        if kind.startswith("sinkhorn"):
            check_row_10_mean(run, case["V"])
    show(kind, max(errors))
    assert max(errors) <= TOLERANCE


def test_compiled_as_users_have_it() -> None:
    """By day the suite has programs optimised less. These are not, in a process of their own."""
    cases = [f"{__file__}::test_golden_and_rows_10_22_28[{kind}]" for kind in ("softmax", "sinkhorn_dot")]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    settings |= {"XLA_FLAGS": "", "JAX_ENABLE_COMPILATION_CACHE": "0", "MEANFORMER_CACHE": "0"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_golden_rescaled_and_row_27_hull() -> None:
    angles = np.random.default_rng(0).normal(size=(200, 3))
    directions = angles / np.linalg.norm(angles, axis=1, keepdims=True)
    errors = []
    for d in (1, 2, 3):
        original = CASES[f"rescaled_softmax_VI_d{d}"]
        n = len(original["X"])
        case = embedded(original, n=12, d=3)
        tokens, t = mf.PointCloud(case["X"], case["w"]), case["t"]
        # V = I also in the directions that the embedding adds: there all tokens are and stay 0.
        field = attention(case, V=np.eye(3))
        run = mf.flow(field, tokens, t[-1], save=t, frame=mf.Rescaled(), **TIGHT)
        assert run.outcome.kind == "REACHED"
        errors.append(relative_error(run.points[:, :n], case["Zt"][:, :n]))
        support = (np.asarray(run.points)[:, :n] @ directions.T).max(axis=1)
        assert (np.diff(support, axis=0) <= 1e-8).all()
        # What the row says fails in the original frame, where the hull grows.
        outer = (np.asarray(run.original().points)[:, :n] @ directions.T).max(axis=1)
        assert np.diff(outer, axis=0).max() > 1.0
    show("rescaled_softmax", max(errors))
    assert max(errors) <= TOLERANCE


def test_golden_causal_and_row_22() -> None:
    case = CASES["causal_softmax_d2"]
    tokens = mf.PointCloud(case["X"], case["w"], case["s"])
    run = mf.flow(mf.Causal(attention(case)), tokens, case["t"][-1], save=case["t"], **TIGHT)
    error = relative_error(run.points, case["Xt"])
    show("causal_softmax", error)
    assert error <= TOLERANCE
    check_row_22_radius(run, np.linalg.norm(case["V"], 2))


def test_golden_smooth_schedule() -> None:
    case = {name: jnp.asarray(a) for name, a in CASES["timedep_smooth"].items() if name != "kind"}

    def field(t):
        V = jnp.cos(t) * case["V0"] + jnp.sin(t) * case["V1"]
        return mf.Softmax(case["Q0"] + t * case["Q1"], case["K0"] + t * case["K1"], V)

    tokens = mf.PointCloud(case["X"], case["w"])
    run = mf.flow(mf.Scheduled(field), tokens, case["t"][-1], save=case["t"], **TIGHT)
    error = relative_error(run.points, np.asarray(case["Xt"]))
    show("timedep_smooth", error)
    assert error <= TOLERANCE


def test_golden_piecewise() -> None:
    case = CASES["timedep_piecewise"]
    pieces = [mf.L2(case[f"Q{i}"], case[f"K{i}"], case[f"V{i}"]) for i in (0, 1)]
    tokens = mf.PointCloud(case["X"], case["w"])
    run = mf.flow(mf.Piecewise(pieces, breaks=[0.7]), tokens, 1.5, save=case["t"], **TIGHT)
    error = relative_error(run.points, case["Xt"])
    show("timedep_piecewise", error)
    assert error <= TOLERANCE


@pytest.mark.parametrize("kind", ["softmax", "l2", "sigmoid", "sinkhorn_dot"])
def test_golden_layers(kind: str) -> None:
    case = CASES[f"layers_{kind}"]
    run = mf.layers(attention(case), mf.PointCloud(case["X"], case["w"]), depth=int(case["L"]))
    error = relative_error(run.final.points, case["X_out"])
    show(f"layers_{kind}", error)
    assert error <= 1e-11
    check_row_22_radius(run, np.linalg.norm(case["V"], 2))


def test_every_golden_case_is_tested() -> None:
    tested = {f"{kind}_d{d}" for kind in KINDS for d in (1, 2, 3)}
    tested |= {f"rescaled_softmax_VI_d{d}" for d in (1, 2, 3)} | {"causal_softmax_d2"}
    tested |= {"timedep_smooth", "timedep_piecewise"}
    tested |= {f"layers_{kind}" for kind in ("softmax", "l2", "sigmoid", "sinkhorn_dot")}
    assert tested == set(CASES)

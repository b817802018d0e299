"""Velocities against the golden files, at the tolerances of their README; the worst error of each is recorded."""

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from oracles import dense, golden

TOLERANCE = {kind: 1e-10 if kind in dense.SINKHORN else 1e-11 for kind in dense.KINDS}
ARGUMENTS = ("X", "w", "Q", "K", "V", "tau", "b")


@pytest.fixture
def report(record_property, capsys):
    """Record the worst error of a file and kind, and print it (seen with -n 0)."""

    def said(file, kind, errors, tolerance):
        case = max(errors, key=errors.get)
        record_property("golden", f"{file:<22} {kind:<13} {errors[case]:.1e} of {tolerance:.0e} ({case})")
        with capsys.disabled():
            print(f"\n{file:<22} {kind:<13} {errors[case]:.1e} of {tolerance:.0e} ({case})", end="")
        assert all(error <= tolerance for error in errors.values()), errors

    return said


def grown(array, *shape):
    """`array` with zeros appended up to `shape`."""
    return np.pad(array, [(0, size - have) for size, have in zip(shape, array.shape, strict=True)])


def padded(case, n, d, k):
    """The same problem with tokens of zero weight, coordinates that are zero and rows of zeros in Q and K.

    It changes no velocity, and lets one compiled program serve every case.
    """
    X, Q, K, V = (case[name] for name in "XQKV")
    out = case | {"X": grown(X, n, d), "w": grown(case["w"], n), "V": grown(V, d, d)}
    out |= {"Q": grown(Q, k, d), "K": grown(K, k, d)}
    if "s" in case:
        out["s"] = np.pad(case["s"], (0, n - len(X)), constant_values=1.0)
    return out


@pytest.mark.parametrize("kind", dense.KINDS)
def test_velocity(kind, report):
    """On and off the support, at once: the queries are the tokens and then the points `Xq`."""
    errors = {}
    for name, case in golden.load(f"velocity_{kind}").items():
        want = np.concatenate([case["G_on"], case["G_off"]])
        x = np.concatenate([case["X"], case["Xq"]])
        assert dense.error(dense.velocity(kind, x, *(case[a] for a in ARGUMENTS)), want) < 1e-14  # the oracle itself
        # Sinkhorn takes seconds to compile: only one of its shapes is tried as it is.
        if kind in dense.SINKHORN and name != "one_token":
            big = padded(case, 11, 8, 8)
            x = grown(x, 14, 8)
            got = golden.field(big)(mf.PointCloud(big["X"], big["w"]), x)
            assert not np.asarray(got)[:, want.shape[1] :].any()
            got = got[: want.shape[0], : want.shape[1]]
        else:
            got = golden.field(case)(mf.PointCloud(case["X"], case["w"]), x)
        errors[name] = dense.error(got, want)
    report(f"velocity_{kind}", kind, errors, TOLERANCE[kind])


@pytest.mark.parametrize("kind", dense.SINKHORN)
def test_potentials(kind, report):
    """f and g in the gauge sum_j w_j g_j = 0, and the marginals they make."""
    errors = {}
    for name, case in golden.load(f"velocity_{kind}").items():
        n = len(case["w"])
        big = padded(case, 11, 8, 8)
        found = golden.field(big).potentials(mf.PointCloud(big["X"], big["w"]))
        assert bool(found.converged)
        pair = np.stack([found.f[:n], found.g[:n]])
        errors[name] = dense.error(pair, np.stack([case["f"], case["g"]]), floor=1.0)
    report(f"velocity_{kind}", "potentials", errors, 1e-10)


@pytest.mark.parametrize("kind", dense.KINDS)
def test_causal(kind, report):
    errors = {}
    for name, case in golden.load("causal").items():
        if str(case["kind"]) != kind:
            continue
        n, d = case["X"].shape
        oracle = dense.velocity(kind, case["X"], *(case[a] for a in ARGUMENTS), s=case["s"], r=case["s"])
        assert dense.error(oracle, case["G"]) < 1e-14
        big = padded(case, 9, 3, 2) if kind in dense.SINKHORN else case
        tokens = mf.PointCloud(big["X"], big["w"], big["s"])
        got = mf.velocity(mf.Causal(golden.field(big)), tokens)
        errors[name] = dense.error(got[:n, :d], case["G"])
    assert len(errors) == 4
    report("causal", kind, errors, TOLERANCE[kind])


def test_multihead(report):
    errors = {}
    for name, case in golden.load("multihead").items():
        tokens = mf.PointCloud(case["X"], case["w"])
        x = np.concatenate([case["X"], case["Xq"]])
        errors[name] = dense.error(golden.heads(case)(tokens, x), np.concatenate([case["G_on"], case["G_off"]]))
    assert len(errors) == 5
    sinkhorn = {name: errors.pop(name) for name in ("sink2", "mixed")}
    report("multihead", "sinkhorn", sinkhorn, 1e-10)
    report("multihead", "others", errors, 1e-11)


@pytest.mark.parametrize("kind", ["sa", "usa"])
def test_sphere(kind, report):
    errors = {}
    for name, case in golden.load("sphere").items():
        if str(case["kind"]) != kind:
            continue
        tau = 1 / case["beta"]
        attention = golden.make("softmax" if kind == "sa" else "usa", *(case[a] for a in "QKV"), tau)
        tokens = mf.PointCloud(case["X"], case["w"])
        got = mf.Sphere().project(tokens.points, mf.velocity(attention, tokens))
        errors[name] = dense.error(got, case["G"])
        assert float(jnp.abs((got * tokens.points).sum(-1)).max()) <= 1e-14 * max(1, float(jnp.abs(got).max()))
    assert len(errors) == 6
    report("sphere", kind, errors, 1e-11)

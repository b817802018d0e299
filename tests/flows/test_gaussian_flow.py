r"""Gaussians flow by $\dot m=u$, $\dot L=GL$: golden runs, worked numbers and what is conserved (MATH e, i, l).

Golden cases are embedded in $\mathbb R^4$, with keys in $\mathbb R^4$, factors of four columns, and the same heads of
each kind, so that they share a compiled run: further rows, columns and heads are zero, which changes nothing else.
"""

from typing import Any

import numpy as np
import pytest

import meanformer as mf
from oracles import golden

KINDS = ("softmax", "l2", "sinkhorn_dot", "sinkhorn_l2", "linear")
SIZE = 4


def grown(M: Any, *shape: int) -> np.ndarray:
    """`M` with zeros after its last rows and columns."""
    M = np.asarray(M, float)
    return np.pad(M, [(0, new - old) for new, old in zip(shape, M.shape, strict=True)])


SLOTS = ("softmax",) * 3 + ("l2",) * 2 + ("sinkhorn_dot",) * 2 + ("sinkhorn_l2", "linear")


def in_slots(heads: list[tuple[Any, ...]]) -> mf.MultiHead:
    """The sum of heads (kind, Q, K, V, tau), each in the first free slot of its kind; the other slots are zero."""
    zero = np.zeros((SIZE, SIZE))
    free = list(SLOTS)
    made = [golden.make(kind, zero, zero, zero, 1.0) for kind in SLOTS]
    for kind, Q, K, V, tau in heads:
        slot = free.index(str(kind))
        free[slot] = ""
        made[slot] = golden.make(kind, *(grown(M, SIZE, SIZE) for M in (Q, K, V)), tau)
    return mf.MultiHead(made)


def started(mean: Any, L: Any) -> mf.Gaussian:
    return mf.Gaussian(grown(mean, SIZE), factor=grown(L, SIZE, SIZE))


def error(value: Any, exact: Any) -> float:
    """The largest difference relative to the largest entry."""
    value, exact = np.asarray(value), np.asarray(exact)
    assert np.isfinite(value).all()
    return float(np.abs(value - exact).max() / (np.abs(exact).max() or 1.0))


def test_golden_runs() -> None:
    worst = 0.0
    for name, case in golden.load("gaussian").items():
        d = len(case["m0"])
        names = ("kind", "Q", "K", "V", "tau", "W")
        heads = [tuple(case[f"h{h}_{entry}"] for entry in names) for h in range(int(case["H"]))]
        field = in_slots([(kind, Q, K, W @ V, tau) for kind, Q, K, V, tau, W in heads])
        run = mf.flow(field, started(case["m0"], case["L0"]), float(case["t"][-1]), save=case["t"], rtol=1e-9)
        assert run.outcome.kind == "REACHED" and run.fate.kind == "UNDECIDED"
        np.testing.assert_array_equal(run.times, case["t"])
        cov, mean = np.asarray(run.states.covariance), np.asarray(run.states.mean)
        assert not cov[:, d:].any() and not cov[:, :, d:].any() and not mean[:, d:].any()
        found = max(error(cov[:, :d, :d], case["St"]), error(mean[:, :d], case["mt"]))
        print(f"{name}: {found:.1e} in {run.stats['steps']} steps")
        worst = max(worst, found)
        # MATH i, row 34: a factor keeps its rank (within what float64 tells apart).
        ranks = [np.linalg.matrix_rank(L, tol=1e-12 * np.linalg.norm(L, 2)) for L in np.asarray(run.states.factor)]
        assert ranks == [np.linalg.matrix_rank(case["L0"])] * len(ranks), name
    print(f"worst of {len(golden.load('gaussian'))} golden runs: {worst:.1e}")
    assert worst < 1e-8


# MATH l: the one-dimensional Gaussian at t = 0.5, and the two-dimensional one at t = 1.
LINE = {
    "softmax": (0.807186777036, 0.827814569536),
    "l2": (0.583253532092, 0.737378891829),
    "sinkhorn_dot": (0.627324874196, 0.737279515570),
    "sinkhorn_l2": (0.627324874196, 0.904328624672),
}
PLANE = {
    "softmax": (1.694387912, -0.478511178, 2.038258072, 0.490972184, 0.620702251),
    "l2": (1.143789793, -0.360937414, 1.996534747, 0.534446850, 0.666229469),
    "sinkhorn_dot": (1.001846166, -0.551183036, 1.776155200, 0.445170945, 0.608720361),
    "sinkhorn_l2": (1.001846166, -0.551183036, 2.552757542, 0.540336568, 0.726494125),
    "linear": (0.905102656, -0.22692671, 2.183058690, 0.404719227, 0.663015735),
}
MEAN, COV = np.array([0.5, -0.25]), np.array([[1.0, 0.3], [0.3, 0.5]])
Q, K = np.array([[0.6, -0.2], [0.1, 0.4]]), np.array([[0.5, 0.3], [-0.4, 0.7]])
V = np.array([[0.8, 0.2], [-0.1, 0.6]])


@pytest.mark.parametrize("kind", KINDS)
def test_worked_numbers(kind: str) -> None:
    start = started(MEAN, np.linalg.cholesky(COV))
    final = mf.flow(in_slots([(kind, Q, K, V, 1.0)]), start, 1.0, save=4, rtol=1e-9).final
    got = [*final.mean[:2], *np.asarray(final.covariance)[[0, 0, 1], [0, 1, 1]]]
    np.testing.assert_allclose(got, PLANE[kind], rtol=0, atol=2e-9)
    if kind in LINE:
        field = in_slots([(kind, [[0.8]], [[1.1]], [[0.9]], 1.0)])
        final = mf.flow(field, started([0.4], [[np.sqrt(0.5)]]), 0.5, save=4, rtol=1e-9).final
        np.testing.assert_allclose([final.mean[0], final.covariance[0, 0]], LINE[kind], rtol=1e-9)


def drawn(seed: int, rank: int = SIZE) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Random Q and K with `rank` rows, V, a mean and a factor, of moderate size."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(rows, SIZE)) / SIZE for rows in (rank, rank, SIZE)]
    return weights, rng.normal(size=SIZE), rng.normal(size=(SIZE, SIZE)) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_every_run_keeps(kind: str) -> None:
    # MATH i, rows 35, 36 and 40.
    (Q, K, V), mean, L = drawn(1, rank=2)
    field = in_slots([(kind, Q, K, V, 1.0)])
    t, h = 0.8, 1e-3
    run = mf.flow(field, mf.Gaussian(mean, factor=L), 1.0, save=[0.0, t - h, t + h, 1.0], rtol=1e-11)
    cov = np.asarray(run.states.covariance)
    assert error(cov[0], cov[-1]) > 0.02  # it moves
    N = np.linalg.svd(Q)[2][2:].T  # the kernel of A
    kept = [N.T @ np.linalg.solve(S, N) for S in cov]
    assert max(error(k, kept[0]) for k in kept) < 1e-8
    # Jacobi's formula: the central difference is off by h^2.
    middle = run.at(t)
    logs = np.linalg.slogdet(cov)[1]
    G, _ = field.affine(middle)
    assert abs((logs[2] - logs[1]) / (2 * h) - 2 * np.trace(G)) < 1e-6
    if kind.startswith("sinkhorn"):
        traces = np.trace(cov, axis1=1, axis2=2)
        assert (traces <= np.exp(2 * np.linalg.norm(V, 2) * np.asarray(run.times)) * traces[0]).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["softmax", "l2", "sinkhorn_dot"])
def test_matched_weights_have_a_closed_form(kind: str, sign: int) -> None:
    # MATH i, row 33: V = I, Q = +-K; a rank below d, in both K and L.
    (_, K, _), mean, L = drawn(2, rank=2)
    L = 2 * L[:, :3]
    exact = mf.matched_flow(kind.split("_")[0], K, sign, mf.Gaussian(mean, factor=L), 1.5)
    field = in_slots([(kind, sign * K, K, np.eye(SIZE), 1.0)])
    final = mf.flow(field, started(mean, L), 1.5, save=4, rtol=1e-10).final
    assert error(final.covariance, exact.covariance) < 1e-9
    assert error(final.mean, exact.mean) < 1e-9


def test_linear_attention_moves_tokens_as_the_gaussian_of_their_moments() -> None:
    # MATH i, row 41: the second moment of any cloud obeys the Riccati equation.
    (Q, K, V), mean, _ = drawn(3)
    rng = np.random.default_rng(4)
    w = rng.uniform(0.2, 1.0, size=6)
    tokens = mf.PointCloud(mean + rng.normal(size=(6, SIZE)), w / w.sum())
    run = mf.flow(mf.Linear(Q, K, V), tokens, 1.0, save=4, rtol=1e-11, atol=1e-13)
    start = mf.Gaussian(tokens.mean, cov=tokens.covariance)
    gaussian = mf.flow(in_slots([("linear", Q, K, V, 1.0)]), start, 1.0, save=4, rtol=1e-11)
    assert error(run.states.mean, gaussian.states.mean) < 1e-9
    assert error(run.states.covariance, gaussian.states.covariance) < 1e-9
    assert error(run.states.mean[0], run.states.mean[-1]) > 0.1

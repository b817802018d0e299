"""Gaussian items of castin2025: that they find what is there, and that each verdict can be another one."""

import dataclasses

import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.reproductions.base import Budget
from meanformer.experiments.reproductions.castin2025 import PAPER, closed, cone, identity, ranks


def fates_of(code, time, rank=None, limit=None) -> mf.Fates:
    """Fates as they would be found."""
    n = len(code)
    rest = {name: np.zeros(n) for name in ("error", "growth", "exponent", "steps")}
    return mf.Fates(
        code=np.asarray(code),
        time=np.asarray(time, float),
        rank=np.full(n, -1) if rank is None else np.asarray(rank),
        limit=np.full((n, 2, 2), np.nan) if limit is None else limit,
        slopes=np.zeros((n, 2)),
        seconds=0.0,
        **rest,
    )


def test_items_come_in_the_order_of_the_paper():
    assert list(PAPER.items) == ["A1", "A2", "A3", "A4", "A5", "A5b", "A6", "A7", "A8", "A9", "A10", "A11"]
    assert all(key == item.id for key, item in PAPER.items.items())


# A1


def test_blow_up_rows_hold_for_the_formula_and_fail_for_another():
    draws = identity.draw(3, 6, seed=0)
    exact = identity.blow_up_times(draws)
    direct = [
        np.linalg.eigvalsh(M.T @ (A + A.T) @ M)[-1] for A, M in zip(draws.A, draws.M, strict=True)
    ]  # of one spectrum with Sigma^(1/2) (A + A^T) Sigma^(1/2)
    np.testing.assert_allclose(exact, [1 / top if top > 1e-9 else np.inf for top in direct], rtol=1e-12)
    assert np.isinf(exact[::3]).all() and np.isfinite(exact).any()
    finite = np.isfinite(exact)
    time, code = np.where(finite, exact, 1e3), np.where(finite, 2, 1)
    small = np.full(4, 1e-8)

    def verdicts(code, time, errors):
        return [row.verdict for row in identity.rows_of(exact, fates_of(code, time), errors)]

    assert verdicts(code, time, small) == ["holds", "holds", "holds"]
    assert verdicts(code, time * (1 + 2e-6), small) == ["holds", "holds", "fails"]
    assert verdicts(code, time, np.array([1e-8, 2e-6])) == ["fails", "holds", "holds"]
    assert verdicts(np.where(finite, 2, 2), time, small)[1] == "fails"
    assert verdicts(np.where(finite, 1, 1), time, small)[1:] == ["fails", "fails"]  # no blow-up seen: no time either


# A2, A3


def test_rank_row_counts_wrong_and_undecided_ranks():
    assert ranks.rank_row("", np.array([2, 2, 2]), 2).verdict == "holds"
    row = ranks.rank_row("", np.array([2, -1, 2]), 2)
    assert (row.verdict, row.ours) == ("undecided", "2 in 2, 1 undecided")
    assert ranks.rank_row("", np.array([2, -1, 3]), 2).verdict == "fails"


def test_published_procedure_on_diagonal_covariances():
    # Sigma stays diagonal: its first entry follows s - 2 h s^2 / sqrt(3), the others stay.
    Q = np.array([[[1.0, 0.0, 0.0]]]).repeat(4, axis=0)
    diagonals = np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.05], [40.0, 2.0, 0.5], [1.0, 2.0, 2000.0]])
    draws = ranks.Draws(Q, np.sqrt(diagonals)[:, :, None] * np.eye(3), Q)
    found = ranks.published(draws)
    # The second limit has an eigenvalue of 0.05, which does not count; the last start is "too large".
    assert found.rank.tolist() == [2, 1, 2, -1]
    first = diagonals[:, 0] - 2 * ranks.EULER_STEPS[3] * diagonals[:, 0] ** 2 / np.sqrt(3)
    assert found.left_cone.tolist() == (first < 0).tolist() == [False, False, True, False]
    exact = ranks.exact_limits(draws)
    np.testing.assert_allclose(exact, np.einsum("ni,ij->nij", diagonals * [0, 1, 1], np.eye(3)), atol=1e-12)
    row = ranks.published_row(draws, found, exact)
    assert row.verdict == "misleads" and "lower in 1 draws of 4" in row.why and "again" in row.why
    tame = ranks.Published(np.full(4, 2), np.zeros(4, bool))
    assert ranks.published_row(draws, tame, exact).verdict == "holds"


@pytest.mark.parametrize("kind", ranks.KINDS)
def test_limit_error_tells_a_wrong_limit(kind):
    draws = ranks.draw(3, 3, seed=1)
    exact, time = ranks.exact_limits(draws), 1e4
    for limit, Q, M in zip(exact, draws.Q, draws.M, strict=True):  # N (N^T Sigma^-1 N)^-1 N^T, as it is written
        N = np.linalg.svd(Q)[2][1:].T
        formula = N @ np.linalg.inv(N.T @ np.linalg.inv(M @ M.T) @ N) @ N.T
        np.testing.assert_allclose(limit, formula, rtol=1e-7, atol=1e-9)
    then = [
        np.asarray(
            mf.matched_flow(kind.lower(), Q, -1, mf.Gaussian(np.zeros(3), factor=M), time, tau=3**0.5).covariance
        )
        for Q, M in zip(draws.Q, draws.M, strict=True)
    ]
    values, vectors = np.linalg.eigh(np.stack(then))
    values[:, 0] = 0
    best = (vectors * values[:, None]) @ vectors.swapaxes(1, 2)  # of rank 2
    found = fates_of([1, 1, 1], [time] * 3, [2, 2, 2], best)
    assert ranks.limit_row("", ranks.limit_error(kind, draws, found, exact)).verdict == "holds"
    assert ranks.kernel_row("", ranks.kernel_share(draws, found)).verdict == "holds"
    wrong = dataclasses.replace(found, limit=1.01 * best + 0.05 * np.eye(3))
    assert ranks.limit_row("", ranks.limit_error(kind, draws, wrong, exact)).verdict == "fails"
    assert ranks.kernel_row("", ranks.kernel_share(draws, wrong)).verdict == "fails"


def test_ranks_side_by_side(monkeypatch):
    monkeypatch.setattr(ranks, "DIMENSIONS", (3,))
    found = ranks.compute_identity(Budget(quick=True))
    assert [row.verdict for row in found.rows] == ["holds", "holds", "misleads"]
    assert found.rows[0].ours == "2 in 20"
    (panel,) = found.pictures[0].figure.axes
    heights = [bar.get_height() for bar in panel.patches if bar.get_height() == 20]
    assert heights == [20]  # one procedure alone has all draws at one rank: ours


# A4


def test_starts_have_trace_one_and_lie_in_the_cone():
    covs = cone.starts(9)
    np.testing.assert_allclose(np.trace(covs, axis1=1, axis2=2), 1)
    assert np.linalg.eigvalsh(covs).min() > 0
    assert len(covs) == 45


def test_fate_rows_can_fail():
    def fates(*pairs):
        code, rank = zip(*pairs, strict=True)
        all_of_them = fates_of(code, np.ones(len(code)), rank)
        return [all_of_them[i] for i in range(len(code))]

    rank_0, rank_1, blown, grown, unknown = (1, 0), (1, 1), (2, -1), (3, -1), (0, -1)
    cases = [
        ("to zero", "L2", (rank_0, rank_0), "holds"),
        ("to zero", "L2", (rank_0, rank_1), "fails"),
        ("two lines", "softmax", (rank_1, unknown), "undecided"),
        ("growth", "softmax", (blown, blown), "holds"),
        ("growth", "softmax", (blown, grown), "fails"),
        ("growth", "Sinkhorn", (grown, grown), "holds"),
        ("growth", "Sinkhorn", (blown, grown), "fails"),
        ("both", "softmax", (blown, rank_1), "holds"),
        ("both", "softmax", (rank_1, rank_1), "fails"),
        ("both", "softmax", (blown, rank_1, unknown), "undecided"),
    ]
    for regime, kind, found, verdict in cases:
        assert cone.fate_row(regime, kind, fates(*found)).verdict == verdict, (regime, kind, found)


def test_regimes_are_what_they_say():
    for regime, heads in cone.regimes().items():
        for Q, K, V in heads:
            values = np.linalg.eigvalsh(K.T @ Q + Q.T @ K)
            signs = {"to zero": (-1, -1), "to a line": (-1, 0), "two lines": (-1, 1), "growth": (1, 1)}.get(regime)
            if signs is not None:
                assert tuple(np.sign(np.round(values, 12))) == signs
            if regime in ("to zero", "to a line"):
                assert (K == -Q).all() and (V == V.T).all() and np.linalg.eigvalsh(V)[0] > 0
    slants = [np.ones(2) @ K.T @ Q @ np.ones(2) for Q, K, _ in cone.regimes()["two lines"]]
    np.testing.assert_allclose(slants, 0, atol=1e-12)  # both heads leave the line x = y alone


# A5, A5b, A6


def test_growth_row():
    def found(code, exponent=0.0):
        return dataclasses.replace(fates_of(code, np.ones(2)), exponent=np.full(2, exponent))

    assert closed.growth_row(found([3, 3])).verdict == "holds"
    assert closed.growth_row(found([3, 3], -0.5)).verdict == "undecided"  # slower than exponentially
    assert closed.growth_row(found([3, 0])).verdict == "undecided"
    assert closed.growth_row(found([3, 2])).verdict == "fails"


def test_counterexample_rows():
    exact = np.array([1.0, 3.0])
    none = {0.5: fates_of([3, 3], [1.0, 1.0])}

    def verdicts(found, full_rank=none):
        return [row.verdict for row in closed.counterexample_rows(exact, found, full_rank)]

    assert verdicts(fates_of([2, 2], exact)) == ["fails", "holds", "holds"]
    assert verdicts(fates_of([2, 2], exact * (1 + 2e-6))) == ["fails", "fails", "holds"]
    assert verdicts(fates_of([2, 0], exact))[1] == "fails"
    assert verdicts(fates_of([3, 3], exact)) == ["holds", "fails", "holds"]
    assert verdicts(fates_of([2, 2], exact), {0.5: fates_of([3, 2], [1.0, 1.0])})[2] == "fails"


@pytest.mark.parametrize("a", [1.08, -0.56])
@pytest.mark.parametrize("kernel", closed.KERNELS)
def test_quadrature_tells_the_kernels_apart(kernel, a):
    times = np.linspace(0, 6.0, closed.SAVES)
    _, sizes = mf.one_dimensional("sinkhorn", a, 1.0, 0.8, 1.0, 0.0, 0.7, times, kernel)
    factor = closed.KERNELS[kernel]
    assert closed.quadrature_row(kernel, factor, "", a, 0.8, times, sizes).verdict == "holds"
    assert closed.quadrature_row(kernel, 3 - factor, "", a, 0.8, times, sizes).verdict == "fails"
    assert closed.quadrature_row(kernel, factor, "", a, 0.8, times, sizes * (1 + 1e-5 * times)).verdict == "fails"

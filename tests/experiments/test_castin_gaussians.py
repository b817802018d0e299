"""Gaussian items of castin2025: that they find what is there, and that each verdict can be another one."""

import dataclasses

import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.reproductions.base import Budget
from meanformer.experiments.reproductions.castin2025 import PAPER, closed, cone, gaussians, identity, ranks, rows
from meanformer.report.references import BIBTEX


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
    assert list(PAPER.items) == ["A1", "A2", "A3", "A4", "A5", "A5b", "A6", "A7", "A8", "A9", "A10", "A11", "A12"]
    assert all(key == item.id for key, item in PAPER.items.items())
    assert PAPER.bibtex == BIBTEX["castin2025"]


def test_nothing_decides_nothing():
    assert rows.judged([]) == "undecided"
    assert rows.judged([True, True]) == "holds" and rows.judged([True, True], missing=1) == "undecided"
    assert rows.judged([True, False], missing=1) == "fails"
    row = rows.error_row("", [], 1e-3)
    assert (row.ours, row.verdict) == ("none", "undecided")
    assert rows.error_row("", [1e-9, np.nan], 1e-3).verdict == "fails"
    row = rows.error_row("", [1e-9], 1e-3, "why", missing=2)
    assert (row.ours, row.verdict, row.why) == (1e-9, "undecided", "2 not told; why")


# A1


def test_blow_up_rows_hold_for_the_formula_and_fail_for_another():
    draws = identity.draw(3, 6, seed=0)
    exact = identity.blow_up_times(draws)
    ours = [mf.softmax_blowup_time(A, start) for A, start in zip(draws.A, draws.starts, strict=True)]
    np.testing.assert_allclose(exact, ours, rtol=1e-9)
    A, start, times = draws.A[1], draws.starts[1], np.linspace(0, 0.9, 4) * exact[1]
    flow = mf.softmax_identity_flow(A, start, times)
    np.testing.assert_allclose(identity.exact_flow(A, draws.M[1], times), flow.covariance, rtol=1e-8, atol=1e-10)
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
    assert verdicts(np.where(finite, 2, 3), time, small)[1] == "fails"  # without a blow-up they converge
    assert verdicts(np.where(finite, 2, 0), time, small)[1] == "undecided"  # which is not "no blow-up"
    # No blow-up seen: no time either.
    assert verdicts(np.where(finite, 1, 1), time, small)[1:] == ["fails", "undecided"]


# A2, A3


def test_rank_row_counts_wrong_and_undecided_ranks():
    assert ranks.rank_row("", np.array([2, 2, 2]), 2).verdict == "holds"
    row = ranks.rank_row("", np.array([2, -1, 2]), 2)
    assert (row.verdict, row.ours) == ("undecided", "2 in 2, 1 undecided")
    assert ranks.rank_row("", np.array([2, -1, 3]), 2).verdict == "fails"


def test_undecided_draws_are_described():
    draws = ranks.draw(3, 2, seed=0)._replace(M=np.stack([np.eye(3), np.diag([1e-3, 1.0, 2.0])]))
    draws = draws._replace(W=np.stack([np.eye(3), np.diag([1.0, 1.0, 10.0])]))
    found = fates_of([1, 0], [1.0, 1.0], [2, -1])
    words = "undecided draws: smallest over largest eigenvalue of Sigma0 2e-07"  # (1e-3 / 2)^2
    assert ranks.unclear(draws, found, identity=True) == words
    assert ranks.unclear(draws, found, identity=False) == f"{words}; V 1e-02"
    assert ranks.unclear(draws, fates_of([1, 1], [1.0, 1.0], [2, 2]), identity=True) == ""


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


def test_limits_are_held_against_the_formula():
    draws = ranks.draw(3, 3, seed=1)
    exact = ranks.exact_limits(draws)
    ours = [mf.frozen_covariance(Q, mf.Gaussian(np.zeros(3), factor=M)) for Q, M in zip(draws.Q, draws.M, strict=True)]
    np.testing.assert_allclose(exact, ours, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(draws.Q @ exact, 0, atol=1e-12 * np.abs(exact).max())
    # A row of zeros has no share in the rank of Q.
    padded = np.concatenate([draws.Q[0], np.zeros((1, 3))])
    np.testing.assert_allclose(gaussians.kernel_limit(padded, draws.M[0] @ draws.M[0].T), exact[0], rtol=1e-9)

    def verdicts(limit, code=(1, 1, 1)):
        found = fates_of(code, [1e4] * 3, [2, 2, 2], np.where(np.asarray(code)[:, None, None] == 1, limit, np.nan))
        same = ranks.same_row(ranks.differences([fates_of([1] * 3, [1e4] * 3, limit=exact), found]))
        limits, kernel = ranks.limit_errors(found, exact), ranks.kernel_shares(draws, found)
        return [row.verdict for row in (ranks.limit_row("", limits), same, ranks.kernel_row("", kernel))]

    assert verdicts(0.9995 * exact) == ["holds"] * 3
    assert verdicts(1.002 * exact) == ["fails", "fails", "holds"]  # of the right kernel
    assert verdicts(exact + 0.1 * np.abs(exact).max() * np.eye(3)) == ["fails"] * 3
    assert verdicts(exact, (1, 0, 1)) == ["undecided"] * 3
    assert verdicts(exact, (0, 0, 0)) == ["undecided"] * 3  # with no limit at all
    assert verdicts(1.1 * exact, (1, 0, 1))[:2] == ["fails", "fails"]
    both = ranks.together([ranks.Measured(np.array([1e-5]), 1), ranks.Measured(np.array([0.5, 0.1]), 2)])
    assert (both.errors.tolist(), both.missing) == ([1e-5, 0.5, 0.1], 3)


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


def test_line_rows_need_their_limits():
    covs = cone.starts(3)
    Q = cone.regimes()["to a line"][0][0]
    frozen = np.stack([mf.frozen_covariance(Q, gaussians.centred(cov)) for cov in covs])
    on_lines = np.full((len(covs), 2, 2), 0.5)

    def verdicts(line=frozen, lines=on_lines, code=1, rank=1):
        n, found = len(covs), {}
        for kind in cone.KINDS:
            for regime, limit in (("to a line", line), ("two lines", lines)):
                one = fates_of([code] * n, [1.0] * n, [rank] * n, limit)
                found[regime, kind] = [one[i] for i in range(n)]
        return [row.verdict for row in cone.line_rows(found, covs)]

    assert verdicts() == ["holds", "holds"]
    assert verdicts(line=1.01 * frozen) == ["fails", "holds"]
    assert verdicts(lines=on_lines + np.diag([1e-5, 0.0])) == ["holds", "fails"]
    assert verdicts(code=0, rank=-1) == ["undecided", "undecided"]
    assert verdicts(rank=0)[1] == "undecided"  # no limit of rank one


def test_regimes_are_what_they_say():
    for regime, heads in cone.regimes().items():
        for Q, K, V in heads:
            values = np.linalg.eigvalsh(K.T @ Q + Q.T @ K)
            signs = {"to zero": (-1, -1), "to a line": (-1, 0), "two lines": (-1, 1), "growth": (1, 1)}.get(regime)
            if signs is not None:
                assert tuple(np.sign(np.round(values, 12))) == signs
            if regime in ("to zero", "to a line"):
                assert (K == -Q).all() and (V == V.T).all() and np.linalg.eigvalsh(V)[0] > 0
    for regime in ("to a line", "growth"):  # one head has V = I; the second of two another V > 0, as the captions say
        (_, _, first), (_, _, second) = cone.regimes()[regime]
        assert (first == np.eye(2)).all() and (second != np.eye(2)).any() and np.linalg.eigvalsh(second)[0] > 0
        assert "the second of two heads: another" in cone.CAPTIONS[regime]
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

    assert verdicts(fates_of([2, 2], exact)) == ["misleads", "holds", "holds"]
    assert verdicts(fates_of([2, 2], exact * (1 + 2e-6))) == ["misleads", "fails", "holds"]
    assert verdicts(fates_of([2, 0], exact))[1] == "undecided"
    assert verdicts(fates_of([3, 3], exact)) == ["holds", "undecided", "holds"]
    assert verdicts(fates_of([3, 0], exact))[0] == "undecided"
    assert verdicts(fates_of([2, 2], exact), {0.5: fates_of([3, 2], [1.0, 1.0])})[2] == "fails"
    assert verdicts(fates_of([2, 2], exact), {0.5: fates_of([3, 0], [1.0, 1.0])})[2] == "undecided"
    assert verdicts(fates_of([2, 2], exact), {0.5: fates_of([3, 1], [1.0, 1.0])})[2] == "holds"


def test_blow_up_times_of_the_counterexample():
    covs = closed.random_covariances(4, 3)
    covs[:, 0, 1] = covs[:, 1, 0] = np.abs(covs[:, 0, 1])
    ours = [mf.l2_blowup_time(closed.Q_ROW, closed.K_ROW, closed.V_ONE, gaussians.centred(cov)) for cov in covs]
    np.testing.assert_allclose(closed.l2_blow_up_times(covs), ours, rtol=1e-12)


@pytest.mark.parametrize("a", [1.08, -0.56])
@pytest.mark.parametrize("kernel", closed.KERNELS)
def test_quadrature_tells_the_kernels_apart(kernel, a):
    times = np.linspace(0, 6.0, closed.SAVES)
    _, sizes = mf.one_dimensional("sinkhorn", a, 1.0, 0.8, 1.0, 0.0, 0.7, times, kernel)
    factor = closed.KERNELS[kernel]
    assert closed.quadrature_row(kernel, factor, "", a, 0.8, times, sizes).verdict == "holds"
    assert closed.quadrature_row(kernel, 3 - factor, "", a, 0.8, times, sizes).verdict == "fails"
    assert closed.quadrature_row(kernel, factor, "", a, 0.8, times, sizes * (1 + 1e-5 * times)).verdict == "fails"

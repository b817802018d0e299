"""Rank, entropy, attention received and leaders of attention matrices."""

import numpy as np
import pytest
from _told import told

import meanformer as mf
from meanformer.diagnostics import attention
from meanformer.diagnostics.attention import attention_along, attention_summary
from oracles import dense, golden
from oracles.refusals import assert_refused

RNG = np.random.default_rng(80)
X = RNG.normal(size=(8, 2))
W = np.array([0.2, 0.1, 0.0, 0.25, 0.1, 0.15, 0.12, 0.08])
Q, K, V = RNG.normal(size=(3, 2, 2))
MU = mf.PointCloud(X, W)
SEEN = W > 0


def expected(P, w, threshold=1e-3):
    """By definition, with loops."""
    n = len(w)
    singular = np.sqrt(np.maximum(0, np.linalg.eigvalsh(P @ P.T)))
    P = P / P.sum(axis=1, keepdims=True)
    entropies = [sum(-p * np.log(p) for p in row if p > 0) / np.log(n) for row in P]
    received = [sum(w[i] * P[i, j] for i in range(n)) for j in range(n)]
    leaders = {j for j in range(n) for i in range(n) if P[i, j] == P[i].max() and P[i, j] > 0.5}
    return int((singular > threshold * singular.max()).sum()), np.array(entropies), np.array(received), leaders


@pytest.mark.parametrize("kind", ["softmax", "l2", "sinkhorn_dot", "sigmoid", "usa", "hardmax"])
def test_by_definition(kind):
    field = golden.make(kind, Q, K, V, 0.7, 0.2)
    P = dense.matrix(kind, dense.rows(Q, X), dense.rows(K, X), W, 0.7, 0.2, dense.rows(Q, X))
    P = P[np.ix_(SEEN, SEEN)].astype(float)
    rank, entropies, received, leaders = expected(P, W[SEEN])
    summary = attention_summary(field, MU)
    assert summary.heads == 1 and summary.rank[0] == rank
    np.testing.assert_allclose(summary.row_entropy[0][SEEN], entropies, rtol=0, atol=1e-10)
    np.testing.assert_allclose(summary.entropy[0], W[SEEN] @ entropies, rtol=0, atol=1e-10)
    np.testing.assert_allclose(summary.received[0][SEEN], received, rtol=0, atol=1e-10)
    np.testing.assert_allclose(summary.relative[0][SEEN], received / W[SEEN], rtol=0, atol=1e-9)
    assert set(summary.leaders[0]) == {int(np.flatnonzero(SEEN)[j]) for j in leaders}
    np.testing.assert_allclose(summary.received[0].sum(), 1, rtol=1e-12)
    # Nobody listens to tokens of zero weight.
    assert summary.received[0][2] == 0 and np.isnan(summary.relative[0][2]) and np.isnan(summary.row_entropy[0][2])
    if kind.startswith("sinkhorn"):
        np.testing.assert_allclose(summary.received[0], W, rtol=0, atol=1e-10)


def test_extremes():
    """Eight tokens on a circle: far out everybody listens to himself; without logits all listen to all alike."""
    angles = np.pi / 4 * np.arange(8)
    circle, one = np.stack([np.cos(angles), np.sin(angles)], 1), np.eye(2)
    sharp = attention_summary(mf.Softmax(one, one, one), mf.PointCloud(30 * circle))
    assert sharp.rank[0] == 8 and sharp.entropy[0] < 1e-100
    np.testing.assert_array_equal(sharp.leaders[0], range(8))
    flat = attention_summary(mf.Softmax(0 * one, one, one), mf.PointCloud(circle))
    assert flat.rank[0] == 1 and len(flat.leaders[0]) == 0
    np.testing.assert_allclose(flat.entropy, 1, rtol=1e-14)
    single = attention_summary(mf.Softmax(one, one, one), mf.PointCloud(circle, np.eye(8)[1]))
    assert single.entropy[0] == 0 and single.rank[0] == 1 and list(single.leaders[0]) == [1]
    # A circulant matrix: its singular values are Bessel functions, I_1(0.09) / I_0 = 0.045 twice, I_2 / I_0 = 0.001.
    mild = mf.PointCloud(0.3 * circle)
    ranks = [attention_summary(mf.Softmax(one, one, one), mild, threshold=c).rank[0] for c in (0.1, 0.01, 5e-4)]
    assert ranks == [1, 3, 5]


def test_heads_and_the_line_they_print():
    field = mf.MultiHead([mf.Softmax(Q, K, V), mf.Softmax(0 * Q, K, V)])
    summary = attention_summary(field, MU)
    alone = attention_summary(field.heads[0], MU)
    assert summary.rank.shape == summary.entropy.shape == (2,) and summary.received.shape == (2, 8)
    np.testing.assert_allclose(summary.received[0], alone.received[0], rtol=1e-13)
    w = W[SEEN]
    np.testing.assert_allclose(summary.entropy[1], -np.sum(w * np.log(w)) / np.log(7), rtol=1e-13)  # rows are w
    text = str(summary)
    assert (
        "\n" not in text
        and "head 1: rank" in text
        and f"head 2: rank 1 of 7, entropy {summary.entropy[1]:.3g}, 0 leaders" in text
    )
    assert "head" not in str(alone)


def test_masked_rows_see_the_past():
    mu = mf.PointCloud(X, W).with_positions()
    summary = attention_summary(mf.Causal(mf.Softmax(Q, K, V)), mu)
    assert summary.row_entropy[0][0] == 0 and 0 in summary.leaders[0]


def test_along_a_run():
    """Tokens that expand: attention goes from all alike to the two ends."""
    x = 0.3 * np.array([[-1.0], [-0.4], [0.3], [1.1]])
    field = mf.Softmax([[1.0]], [[1.0]], [[1.0]])
    times = np.linspace(0, 5, 6)
    run = told(field, times, x[None] * np.exp(times)[:, None, None])
    path = attention_along(run, every=2)
    np.testing.assert_array_equal(path.times, [0, 2, 4, 5])
    for k, t in enumerate(path.times):
        own = attention_summary(field, mf.PointCloud(x * np.exp(t)))
        assert path.rank[k, 0] == own.rank[0] and path.leaders[k, 0] == len(own.leaders[0])
        np.testing.assert_allclose(path.entropy[k], own.entropy, rtol=1e-12, atol=1e-300)
    assert path.rank[-1, 0] == path.leaders[-1, 0] == 2
    assert (np.diff(path.entropy[:, 0]) < 0).all()
    assert "leaders 0 to 2" in str(path)


def test_refusals():
    field = mf.Softmax(Q, K, V)
    assert_refused(lambda: attention_summary(mf.Linear(Q, K, V), MU), ("negative entry", "P_ij >= 0"))
    assert_refused(lambda: attention_summary(mf.Unnormalised(Q, K, V), mf.PointCloud(1e3 * X)), ("floating-point",))
    assert_refused(lambda: attention_summary(field, MU, threshold=0.0), ("threshold must be positive",))
    assert_refused(lambda: attention_summary(Q, MU), ("must be an attention field", "attention_along"))
    assert_refused(lambda: attention_summary(field, mf.PointCloud(np.zeros((5000, 2)))), ("5000 tokens", "resample"))
    assert_refused(lambda: attention_along(MU), ("a run of tokens",))
    layers = told(field, [0.0, 1.0], [X, X], discrete=True)
    assert_refused(lambda: attention_along(layers), ("its first layer only", "attention_summary"))


def test_ranks_of_many_tokens_come_from_squares(monkeypatch):
    """The same numbers as singular values, down to the threshold; also of huge entries, and of none."""
    P = np.exp(RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 60)))
    P /= P.sum(axis=1, keepdims=True)
    true = np.linalg.svd(P, compute_uv=False)
    monkeypatch.setattr(attention, "MANY_TOKENS", 60)
    found = [attention.singular_shares(scale * P, 1e-3) for scale in (1.0, 1e200)]
    kept = true > 1e-5 * true[0]
    assert 10 < kept.sum() < 60
    for shares in found:
        np.testing.assert_allclose(shares[kept], (true / true[0])[kept], rtol=1e-5)
        assert (shares[~kept] < 2e-5).all()
    assert (attention.singular_shares(0 * P, 1e-3) == 0).all()
    # A threshold among the last digits of squares has singular values themselves.
    np.testing.assert_allclose(attention.singular_shares(P, 1e-9), true / true[0], rtol=1e-9, atol=1e-13)

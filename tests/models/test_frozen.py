"""Frozen layers: heads on top of each other against fields, blow-up times against closed forms."""

import re
import sys
from functools import cache, partial

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_records import tiny_record

import meanformer as mf
from meanformer.attention.view import View
from meanformer.models.frozen import _fate, lower_bound, moments, stacked, unmasked

MODULE = sys.modules["meanformer.models.frozen"]
RANDOM = np.random.default_rng(3)
D = 4
I = np.eye(D)
TOKENS = mf.PointCloud(RANDOM.normal(size=(30, D)) @ np.diag([1.0, 0.8, 0.5, 0.3]) + 0.5)
GAUSSIAN = mf.Gaussian(TOKENS.mean, cov=TOKENS.covariance)
A1, A2 = RANDOM.normal(size=(2, D, D))


def terms(field):
    return field.terms(jnp.zeros(()))


def fate_of(field, t1=20.0, tokens=TOKENS):
    return _fate(0, terms(field), tokens, t1)


def plain(record, layer):
    """The attention of a layer, without its mask."""
    field = record.attention(layer)
    heads, bias = field.fields if hasattr(field, "fields") else (field, None)
    heads = heads.field if isinstance(heads, mf.Causal) else heads
    return heads if bias is None else heads + bias


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_heads_on_top_of_each_other_are_the_heads(name):
    record = tiny_record(name)
    field, mu = plain(record, 1), record.seen(1)
    one, gaussian = unmasked(terms(record.attention(1))), moments(mu)
    true = field(mu, mu.points)
    assert np.allclose(one.evaluate(mu, mu.points, jnp.zeros(()), View(None)), true, rtol=1e-12, atol=1e-13)
    for found, wanted in zip(one.affine(gaussian), field.affine(gaussian), strict=True):
        assert np.allclose(found, wanted, rtol=1e-11, atol=1e-13)
    heads = stacked(terms(record.attention(1)))
    G = heads.affine(gaussian)[0]
    assert np.allclose(heads.stretch(gaussian), G @ gaussian.factor, rtol=1e-11, atol=1e-13)


def test_moments_are_those_of_the_tokens_that_are_seen():
    mu = tiny_record("gpt2").start
    found, kept = moments(mu), np.asarray(mu.weights) > 0
    assert np.allclose(found.mean, mu.mean) and np.allclose(found.covariance, mu.covariance)
    assert found.factor.shape == (mu.d, kept.sum() - 1)


@pytest.mark.parametrize("A", [A1, I, A1 - 3 * I + 4 * np.diag([1.0, 0, 0, 0])])
def test_blow_up_times_are_those_of_the_closed_form(A):
    found = fate_of(mf.Softmax(A, I, I, tau=2.0))
    true = mf.softmax_blowup_time(A / 2, GAUSSIAN)
    assert found.ending == "blows up" and np.isclose(found.time, true, rtol=1e-4)
    assert np.isclose(found.rank, 1, atol=1e-2)  # one direction
    assert found.words == f"blows up at t = {found.time:.3g} layers, in one direction"


def test_several_heads_with_biases():
    """With V = I the heads add up: A is their sum; biases move the mean alone."""
    heads = [mf.Softmax(A, I, I, query_bias=I[0], key_bias=I[1], value_bias=I[2]) for A in (A1, A2)]
    field = mf.MultiHead(heads, W=[0.3 * I, 0.7 * I]) + mf.Affine(0 * I, 5 * I[3])
    found = fate_of(field)
    assert np.isclose(found.time, mf.softmax_blowup_time(0.3 * A1 + 0.7 * A2, GAUSSIAN), rtol=1e-4)
    assert "mask" not in found.words


def test_no_blow_up():
    """V = I, A = -I: the covariance is (I + 2 t Sigma)^-1 Sigma."""
    found = fate_of(mf.Softmax(-I, I, I), t1=3.0)
    Sigma = np.asarray(GAUSSIAN.covariance)
    true = np.linalg.solve(I + 6 * Sigma, Sigma)
    assert found.ending == "shrinks" and found.time is None
    assert f"{np.trace(true) / np.trace(Sigma):.3g} times" in found.words
    assert np.isclose(found.rank, mf.effective_rank((true + true.T) / 2), rtol=1e-4)
    assert np.isclose(found.growth, -2 * np.trace(Sigma @ Sigma) / np.trace(Sigma))


def test_growth_that_is_no_blow_up():
    before = fate_of(mf.Softmax(I, I, I), t1=0.5 * float(mf.softmax_blowup_time(I, GAUSSIAN)))
    assert before.ending == "grows" and before.time is None and before.bound is not None
    exponential = fate_of(mf.Softmax(0 * I, I, I) + mf.Affine(I), t1=50.0)  # e^(2 t), stopped at 1e4
    assert exponential.ending == "grows" and np.isclose(exponential.growth, 2)
    t, ratio = (float(word) for word in re.findall(r"t = (\S+) layers.* to (\S+) times", exponential.words)[0])
    assert 1e4 < ratio < 2e4 and np.isclose(np.log(ratio), 2 * t, rtol=2e-3) and exponential.bound is None
    still = fate_of(mf.Softmax(0 * I, I, I), t1=50.0)
    assert still.ending == "stays" and still.growth == 0 and still.bound is None


def test_the_mean_does_not_stop_a_run():
    """The mean grows like e^(30 t); the covariance shrinks all the time."""
    found = fate_of(mf.Softmax(-1e-3 * I, I, 30 * I), t1=1.0)
    assert found.ending == "shrinks" and "by t = 1 layers" in found.words


def test_the_lower_bound():
    field = mf.Softmax(A1, A2, RANDOM.normal(size=(D, D)), tau=3.0)
    true = mf.blowup_bounds(field.A / field.tau, field.V, GAUSSIAN).lower
    assert np.isclose(lower_bound(unmasked(terms(field)), GAUSSIAN), true)
    two = mf.MultiHead([field, field], W=[I, I])
    assert np.isclose(lower_bound(unmasked(terms(two)), GAUSSIAN), true / 2)
    found = fate_of(mf.Softmax(I, I, I))
    assert found.bound <= found.time


def test_one_point_and_what_has_no_closure():
    found = fate_of(mf.Softmax(I, I, I), tokens=mf.PointCloud(np.ones((3, D))))
    assert found.ending == "stays" and "one point" in found.words
    strange = fate_of(mf.Sigmoid(I, I, I))
    assert strange.ending == "no closure" and strange.time is strange.growth is strange.rank is None


def test_a_run_that_ends_early(monkeypatch):
    monkeypatch.setattr(MODULE, "flow", partial(mf.flow, max_steps=3))
    found = fate_of(mf.Softmax(-I, I, I), t1=100.0)
    assert found.ending == "unfinished" and "not known" in found.words


@cache
def fates(name):
    shares = []
    return mf.models.frozen_fates(tiny_record(name), t1=0.2, progress=shares.append), shares


def test_layers_of_a_model():
    found, shares = fates("bert")
    record = tiny_record("bert")
    assert [fate.layer for fate in found] == [0, 1] and shares == [0.5, 1.0]
    for l, fate in enumerate(found):
        G, L = record.attention(l).affine(moments(record.seen(l)))[0], moments(record.seen(l)).factor
        assert np.isclose(fate.growth, 2 * jnp.sum(L * (G @ L)) / jnp.sum(L**2))
    assert str(found[1]).startswith("layer 1: ")
    masked, _ = fates("gpt2")
    assert all("without their mask" in fate.words for fate in masked)
    # GPT-2 normalises first: what starts at the normalised tokens is no step of the stream.
    assert all("time is not in layers" in fate.words and " layers:" not in fate.words for fate in masked)
    assert all("frame" not in fate.words and "layers" in fate.words for fate in found)
    rotary, _ = fates("llama")
    assert {fate.ending for fate in rotary} == {"no closure"} and "positions" in rotary[0].words


def test_bad_input_is_refused(refused):
    record = tiny_record("bert")
    refused(lambda: mf.models.frozen_fates(record, t1=-1.0), "t1 must be positive")
    refused(lambda: mf.models.frozen_fates(record, progress=3), "progress of frozen_fates")

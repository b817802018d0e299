"""The Gaussian closure of heads, against loops over tokens, `field.affine`, and measured orders."""

import dataclasses
import sys
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf
from meanformer.diagnostics.gap import kernel_size
from meanformer.models.closures import _errors, _heads, closure, logit_sizes, predicted
from meanformer.models.nulls import covariance_factor, drawn, randomised
from meanformer.models.record import heads_of

FOLDER = Path(__file__).parent / "oracles"
ERRORS = ("error", "mean_only", "layer_error", "layer_mean_only")
KEY = jr.key(7)


@cache
def model(name):
    return mf.models.load(FOLDER / name, dtype="float64")


@cache
def record(name, n=9):
    """Tokens of different weights, of which nobody sees two, in any of the models."""
    generator = np.random.default_rng(1)
    weights = np.where(np.arange(n) % 5 == 3, 0.0, generator.uniform(0.5, 2.0, n))
    tokens = mf.PointCloud(0.7 * generator.normal(size=(n, model(name).d)) + 0.3, weights / weights.sum())
    return model(name).record(tokens=tokens)


@cache
def found(name):
    return closure(record(name), draws=2, key=KEY)


# Loops over tokens ---------------------------------------------------------------------------------------------------


def turned(x, places, rates):
    """Pairs of coordinates as complex numbers, turned."""
    half = x.shape[1] // 2
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(places, rates))
    return np.concatenate([z.real, z.imag], axis=1)


def brute(heads, mu, causal, rates=None):
    """Errors as in `Closure`, for one layer; logit sizes and tilts; and the velocity without the bias of the output."""
    y, w = np.asarray(mu.points), np.asarray(mu.weights)
    n, total, rows = len(y), 0, []
    sizes = []
    for head in heads:
        Q, K, V, O, bq, bk, bv = (None if a is None else np.asarray(a) for a in head[:7])
        q, k, v = (y @ M.T + (0 if b is None else b) for M, b in ((Q, bq), (K, bk), (V, bv)))
        if rates is not None:
            q, k = (turned(x, np.arange(1, n + 1), rates) for x in (q, k))
        q = q / float(head.tau)
        parts = np.zeros((3, n, v.shape[1]))
        for i in range(n):
            see = [j for j in range(n) if w[j] > 0 and (j <= i or not causal)]
            mass = w[see].sum()
            mean_v = sum(w[j] * v[j] for j in see) / mass
            mean_k = sum(w[j] * k[j] for j in see) / mass
            cov = sum(w[j] * np.outer(v[j] - mean_v, k[j] - mean_k) for j in see) / mass
            odds = np.array([w[j] * np.exp(q[i] @ k[j]) for j in see])
            parts[0, i] = sum(p * v[j] for p, j in zip(odds / odds.sum(), see, strict=True))
            parts[1, i] = parts[0, i] - (mean_v + cov @ q[i])
            parts[2, i] = parts[0, i] - mean_v
        parts = parts @ O.T
        total = total + parts
        rows.append(lengths(parts, w))
        centred_q, centred_k = q - w @ q, k - w @ k
        matrix = np.sqrt(np.outer(w, w)) * (centred_q @ centred_k.T)
        sizes.append((np.linalg.svd(matrix)[1][0], np.sqrt(w @ (centred_k @ (w @ q)) ** 2)))
    return np.array(rows).T, lengths(total, w), np.array(sizes).T, total[0]


def lengths(parts, w):
    true, closed, mean = (sum(w[i] * (x[i] @ x[i]) for i in range(len(w))) for x in parts)
    return np.sqrt(closed / true), np.sqrt(mean / true)


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen2", "llama"])
def test_errors_are_those_of_loops(name):
    for layer in record(name).stream():
        l, field = layer.number, layer.block.attention
        leaf = field.terms(jnp.zeros(()))[0].leaf
        rates = np.asarray(leaf.rates) if model(name).rotary else None
        heads, whole, sizes, velocity = brute(heads_of(field), layer.seen, model(name).causal, rates)
        for wanted, key in zip((*heads, *whole), ERRORS, strict=True):
            np.testing.assert_allclose(getattr(found(name), key)[l], wanted, rtol=1e-10)
        np.testing.assert_allclose(found(name).logit_size[l], sizes[0], rtol=1e-10)
        np.testing.assert_allclose(found(name).tilt[l], sizes[1], rtol=1e-10)
        # Nothing is missing but the bias.
        bias = np.asarray(layer.velocity) - velocity
        assert np.ptp(bias, axis=0).max() < 1e-12
        assert (np.abs(bias).max() > 0.01) == (name in ("bert", "gpt2"))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_nulls_are_what_they_say(name):
    """Random heads on the same tokens, and the same heads on Gaussian tokens, in the first layer."""
    layer = next(record(name).stream())
    for draw in range(2):
        one, other = jr.split(jr.fold_in(jr.fold_in(KEY, 0), draw))
        parts = randomised(_heads(layer.block.attention), one, stacked=True)
        heads = [
            mf.models.Head(m.Q, m.K, m.V, O, m.query_bias, m.key_bias, m.value_bias, leaf.tau)
            for h in range(model(name).heads)
            for leaf, O in [jax.tree.map(lambda a, h=h: a[h], parts[:2])]
            for m in [leaf.maps]
        ]
        random = brute(heads, layer.seen, model(name).causal)
        scales = found(name).logit_size[0] / random[2][0]
        matched = brute([with_scale(*pair) for pair in zip(heads, scales, strict=True)], layer.seen, model(name).causal)
        np.testing.assert_allclose(matched[2][0], found(name).logit_size[0], rtol=1e-10)
        tokens = drawn(layer.seen, covariance_factor(layer.seen), other)
        gaussian = brute(heads_of(layer.block.attention), tokens, model(name).causal)
        for which, (of_heads, whole, *_) in (("random", random), ("matched", matched), ("resampled", gaussian)):
            names = (which, f"{which}_mean_only", f"layer_{which}", f"layer_{which}_mean_only")
            for wanted, key in zip((*of_heads, *whole), names, strict=True):
                np.testing.assert_allclose(getattr(found(name), key)[draw, 0], wanted, rtol=1e-10)


def with_scale(head, factor):
    bias = None if head.query_bias is None else factor * head.query_bias
    return head._replace(Q=factor * head.Q, query_bias=bias)


def test_moments_of_many_tokens_under_a_mask():
    """More tokens than fit in one block; sums over what is seen are cumulative sums here."""
    rec = record("gpt2", n=600)
    mu = rec.seen(0)
    leaf = jax.tree.map(lambda a: a[1], _heads(rec.attention(0)).leaf)
    mean, closed = predicted(leaf, mu, True)
    queries, keys = (np.asarray(x) for x in leaf.features(mu.points, mu.points))
    values, w = np.asarray(leaf.maps.values(mu.points)), np.asarray(mu.weights)
    mass = w.cumsum()[:, None]
    mean_v, mean_k = ((w[:, None] * x).cumsum(axis=0) / mass for x in (values, keys))
    products = w[:, None, None] * values[:, :, None] * keys[:, None, :]
    cov = products.cumsum(axis=0) / mass[:, None] - mean_v[:, :, None] * mean_k[:, None, :]
    np.testing.assert_allclose(mean, mean_v, atol=1e-12)
    np.testing.assert_allclose(closed, mean_v + np.einsum("ivk,ik->iv", cov, queries), atol=1e-11)


# Other ways to the same numbers --------------------------------------------------------------------------------------


def test_the_closure_is_the_affine_map_of_the_gaussian():
    layer = next(record("bert").stream())
    mu, field = layer.seen, layer.block.attention
    heads = _heads(field)
    gaussian = mf.Gaussian(mu.mean, factor=covariance_factor(mu).T)
    G, b = field.affine(gaussian)
    closed = sum(
        predicted(jax.tree.map(lambda a, h=h: a[h], heads.leaf), mu, False)[1] @ heads.O[h].T for h in range(4)
    )
    bias = field.affine(mf.Gaussian(mu.mean, factor=jnp.zeros((16, 1))))[1] - sum(
        head.O @ (head.V @ mu.mean + head.value_bias) for head in heads_of(field)
    )
    np.testing.assert_allclose(closed + bias[None], mu.points @ G.T + b[None], atol=1e-12)
    kernel = kernel_size(field, gaussian, 0.0)
    assert found("bert").logit_size[0].max() == pytest.approx(kernel, rel=1e-10)


def test_a_mask_that_hides_nothing():
    mu = record("gpt2").seen(0)
    ties = mu.with_positions(jnp.ones(mu.n))
    leaf = jax.tree.map(lambda a: a[0], _heads(record("gpt2").attention(0)).leaf)
    for masked, plain in zip(predicted(leaf, ties, True), predicted(leaf, mu, False), strict=True):
        np.testing.assert_allclose(masked, plain, atol=1e-13)


def test_single_precision():
    small = mf.models.load(FOLDER / "gpt2").record(tokens=mf.PointCloud(*single(record("gpt2").start)))
    assert small.state(1).points.dtype == np.float32
    np.testing.assert_allclose(closure(small, draws=0).error, found("gpt2").error, rtol=2e-5)


def single(mu):
    return (jnp.asarray(a, jnp.float32) for a in (mu.points, mu.weights))


# Orders --------------------------------------------------------------------------------------------------------------


def with_queries(name, factor):
    """The record with queries, and so all logits, times `factor`."""

    def maps(node):
        return isinstance(node, mf.Projections)

    def smaller(node):
        if not maps(node):
            return node
        bias = None if node.query_bias is None else factor * node.query_bias
        return dataclasses.replace(node, Q=factor * node.Q, query_bias=bias)

    blocks = tuple(jax.tree.map(smaller, block, is_leaf=maps) for block in model(name).blocks)
    return dataclasses.replace(record(name), model=dataclasses.replace(model(name), blocks=blocks))


@pytest.mark.parametrize("name", ["bert", "qwen2"])
def test_the_closure_is_of_first_order_in_the_logits(name):
    """It leaves the square of small logits, uniform attention the logits themselves."""
    coarse, fine = (closure(with_queries(name, factor), draws=0) for factor in (2e-3, 1e-3))
    for key in ("error", "layer_error"):
        order = np.log2(getattr(coarse, key) / getattr(fine, key))
        assert (np.abs(order - 2) < 0.03).all()
    for key in ("mean_only", "layer_mean_only", "logit_size", "tilt"):
        order = np.log2(getattr(coarse, key) / getattr(fine, key))
        assert (np.abs(order - 1) < 0.03).all()


def test_without_queries_the_closure_is_exact():
    still = closure(with_queries("bert", 0.0), draws=1)
    assert max(getattr(still, key).max() for key in ("error", "mean_only", "random", "matched", "resampled")) < 1e-12
    assert still.logit_size.max() == still.tilt.max() == 0


def test_gaussian_tokens_approach_the_closure():
    """At the rate $n^{-1/2}$, for small logits (MATH d.5): the heads of a layer on 16 draws."""
    rec = with_queries("bert", 0.25)
    heads, mu = _heads(rec.attention(0)), rec.start
    assert logit_sizes(heads, mu)[0].max() < 0.5
    gaussian = mf.Gaussian(mu.mean, factor=covariance_factor(mu).T)
    sizes, errors = (60, 500), []
    for n in sizes:
        draws = [_errors(heads, gaussian.sample(n, key=jr.key(draw))).head for draw in range(16)]
        errors.append(np.sqrt(np.mean(np.square(draws))))
    slope = np.diff(np.log(errors)) / np.diff(np.log(sizes))
    assert -0.6 < slope[0] < -0.4


def test_large_logits_are_reported_as_they_are():
    wild = closure(with_queries("bert", 100.0), draws=0)
    assert wild.error.min() > 5
    assert not wild.helps.any()


# How it is called ----------------------------------------------------------------------------------------------------


def test_draws_depend_on_the_key_alone():
    more, other = closure(record("bert"), draws=3, key=KEY), closure(record("bert"), draws=2, key=jr.key(8))
    for key in ("random", "matched", "resampled", "layer_random", "layer_matched", "layer_resampled"):
        first = getattr(found("bert"), key)
        assert np.array_equal(getattr(more, key)[:2], first)
        assert np.abs(getattr(other, key) - first).min() > 1e-6
        # Draws and layers are different ones.
        flat = getattr(more, key).reshape(6, -1)
        assert all(np.abs(flat[i] - flat[j]).max() > 1e-6 for i in range(6) for j in range(i))


def test_shapes_progress_and_words():
    shares = []
    none = closure(record("albert"), draws=0, progress=shares.append)
    np.testing.assert_allclose(shares, [1 / 3, 2 / 3, 1])
    assert none.error.shape == none.mean_only.shape == none.logit_size.shape == none.helps.shape == (3, 4)
    assert none.random.shape == none.resampled_mean_only.shape == (0, 3, 4)
    assert none.layer_random.shape == (0, 3)
    assert len(str(none).splitlines()) == 5
    assert none.matched.shape == (0, 3, 4) and none.layer_matched_mean_only.shape == (0, 3)
    line = str(found("bert")).splitlines()[-1].split()
    middle = np.median(found("bert").layer_matched[:, 1]), np.median(found("bert").layer_matched_mean_only[:, 1])
    assert [line[7], line[9]] == [f"{number:.2f}" for number in middle]
    numbers = [found("bert").layer_error[1], found("bert").layer_mean_only[1]]
    assert [line[1], line[3]] == [f"{number:.2f}" for number in numbers]
    assert line[-3:] == [str(found("bert").helps[1].sum()), "of", "4"]


def test_one_program_for_all_layers_and_nulls(monkeypatch, own_programs):
    calls = []
    module = sys.modules["meanformer.models.closures"]
    monkeypatch.setattr(module, "predicted", lambda *a: calls.append(a) or predicted(*a))
    closure(record("bert", n=11), draws=2)
    assert len(calls) == 1


def test_no_module_has_the_name_of_what_is_public():
    """Else `mf.models.closure` would be a function or a module, by what was imported first."""
    modules = {path.stem for path in Path(mf.models.__file__).parent.glob("*.py")}
    assert "closures" in modules and not modules & set(mf.models.__all__)
    assert mf.models.closure is closure
    assert mf.models.Closure is type(found("bert"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": -1}, "draws must be a whole number"),
        ({"key": 3}, "key must be a random key"),
        ({"progress": True}, "progress of a closure is a function"),
    ],
)
def test_bad_calls(options, message, as_a_user, monkeypatch):
    monkeypatch.setattr(mf.models.TransformerRecord, "stream", None)  # nothing is computed
    with pytest.raises(mf.InputError, match=message):
        closure(record("bert"), **options)


def test_other_kinds_are_refused(monkeypatch):
    monkeypatch.setattr(mf.models.TransformerRecord, "stream", None)
    I = jnp.eye(16)
    last = eqx.tree_at(lambda block: block.attention, model("bert").blocks[1], mf.Sigmoid(I, I, I))
    strange = dataclasses.replace(model("bert"), blocks=(model("bert").blocks[0], last))
    with pytest.raises(mf.InputError, match="closure of softmax heads") as refusal:
        closure(dataclasses.replace(record("bert"), model=strange))
    assert "Sigmoid" in str(refusal.value)

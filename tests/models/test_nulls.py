"""Random weights and Gaussian tokens: what they change, and what they keep."""

from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf
from meanformer.models.layers import Gated, Rotary
from meanformer.models.nulls import covariance_factor, drawn, gaussian_tokens, random_weights
from oracles.refusals import assert_refused

FOLDER = Path(__file__).parent / "oracles"
KEY = jr.key(3)


@cache
def record(name):
    model = mf.models.load(FOLDER / name, dtype="float64")
    generator = np.random.default_rng(2)
    weights = generator.uniform(0.0, 1.0, 8)
    weights[2] = 0
    return model.record(tokens=mf.PointCloud(generator.normal(size=(8, model.d)), weights / weights.sum()))


def arrays(record):
    """The arrays of attention and of the perceptron of all blocks."""
    parts = [(block.attention, block.perceptron) for block in record.model.blocks]
    return [np.asarray(a) for a in jax.tree.leaves(parts) if eqx.is_array(a)]


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "albert", "vit"])
def test_each_matrix_and_bias_keeps_its_norm(name):
    null = random_weights(record(name), key=KEY)
    old, new = arrays(record(name)), arrays(null)
    rates = [np.asarray(r.rates) for r in leaves(record(name), Rotary)]
    changed = 0
    for a, b in zip(old, new, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.linalg.norm(b), np.linalg.norm(a), rtol=1e-12)
        if a.ndim == 0 or not a.any() or any(a.shape == r.shape and (a == r).all() for r in rates):
            assert (a == b).all()  # temperatures, the matrix of a bias, rotations
        else:
            changed += 1
            # Independent of what was there.
            assert abs(np.vdot(a, b)) / np.linalg.norm(a) ** 2 < 5 / np.sqrt(a.size)
    heads = record(name).model.heads
    bare = name == "llama"  # no biases
    assert changed == record(name).depth * (4 * heads + 3 if bare else 7 * heads + 5)


def leaves(record, kind):
    found = jax.tree.leaves(record.model.blocks, is_leaf=lambda node: isinstance(node, kind))
    return [node for node in found if isinstance(node, kind)]


def test_gated_perceptrons_and_rotations_are_found():
    assert len(leaves(random_weights(record("llama"), key=KEY), Gated)) == 2
    assert len(leaves(record("llama"), Rotary)) == 8


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_norms_and_tokens_are_kept(name):
    null = random_weights(record(name), key=KEY)
    assert null.tokens is record(name).tokens
    for old, new in zip(record(name).model.blocks, null.model.blocks, strict=True):
        assert eqx.tree_equal((old.norm1, old.norm2), (new.norm1, new.norm2))
        assert old.pre == new.pre
    assert null.model.name != record(name).model.name
    assert np.isfinite(null.state(null.depth).points).all()
    assert np.abs(null.state(1).points - record(name).state(1).points).max() > 0.1


def test_entries_are_gaussian():
    """By the fourth moment, which is 3 for a Gaussian and 1.8 for a uniform law."""
    new = random_weights(record("bert"), key=KEY).model.blocks[0].perceptron.W1
    scaled = np.asarray(new).ravel() / np.std(new)
    assert np.mean(scaled**4) == pytest.approx(3, abs=0.9)
    assert abs(np.mean(scaled)) < 4 / np.sqrt(new.size)


def test_blocks_that_are_one_stay_one():
    null = random_weights(record("albert"), key=KEY)
    assert null.model.tied
    assert null.depth == 3
    groups = random_weights(record("albert-groups"), key=KEY).model.blocks
    kept = record("albert-groups").model.blocks
    same = [[a is b for a in blocks for b in blocks] for blocks in (kept, groups)]
    assert same[0] == same[1]
    assert len({id(block) for block in groups}) > 1


def test_draws_depend_on_the_key_and_the_layer():
    first, again = (random_weights(record("bert"), key=KEY) for _ in range(2))
    assert eqx.tree_equal(first.model.blocks, again.model.blocks)
    other = random_weights(record("bert"), key=jr.key(4))
    assert np.abs(first.heads(0)[0].Q - other.heads(0)[0].Q).max() > 0.1
    directions = [np.asarray(h.Q / jnp.linalg.norm(h.Q)).ravel() for l in (0, 1) for h in first.heads(l)]
    overlaps = np.array(directions) @ np.array(directions).T - np.eye(len(directions))
    assert np.abs(overlaps).max() < 0.6


# Gaussian tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 200])
def test_the_factor_gives_the_covariance(n):
    generator = np.random.default_rng(5)
    weights = generator.uniform(0.0, 1.0, n) * (np.arange(n) % 4 > 0)
    mu = mf.PointCloud(generator.normal(size=(n, 6)) @ generator.normal(size=(6, 6)) + 2, weights / weights.sum())
    factor = covariance_factor(mu)
    assert factor.shape == ({8: 8, 200: 6}[n], 6)
    np.testing.assert_allclose(factor.T @ factor, mu.covariance, atol=1e-12)


def test_draws_have_the_moments_and_the_law():
    mu = record("bert").start
    many = mf.PointCloud(jnp.tile(mu.points, (2500, 1)), jnp.tile(mu.weights, 2500) / 2500)
    points = np.asarray(drawn(many, covariance_factor(mu), KEY).points)
    scale = np.sqrt(np.trace(mu.covariance) / mu.d)
    assert np.abs(points.mean(axis=0) - mu.mean).max() < 5 * scale / np.sqrt(len(points))
    assert np.linalg.norm(np.cov(points.T) - mu.covariance) < 0.05 * np.linalg.norm(mu.covariance)
    direction = points @ np.ones(mu.d)
    scaled = (direction - direction.mean()) / direction.std()
    assert np.mean(scaled**4) == pytest.approx(3, abs=0.15)


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_gaussian_tokens(name):
    rec = record(name)
    null = gaussian_tokens(rec, key=KEY)
    assert null.model is rec.model
    assert null.labels == tuple("01234567")
    assert np.array_equal(null.start.weights, rec.start.weights)
    assert (null.start.positions is None) == (rec.start.positions is None)
    assert null.start.points.dtype == np.float64
    # They span what the tokens of positive weight span around their mean.
    assert np.linalg.matrix_rank(null.start.points - rec.start.mean[None]) == 6
    assert np.abs(null.state(1).points - rec.state(1).points).max() > 0.1
    assert np.array_equal(gaussian_tokens(rec, key=KEY).start.points, null.start.points)
    assert np.abs(gaussian_tokens(rec, key=jr.key(4)).start.points - null.start.points).max() > 0.1


def test_single_precision_stays_so():
    model = mf.models.load(FOLDER / "bert")
    rec = model.record(ids=[2, 5, 6, 7, 3])
    assert gaussian_tokens(rec, key=KEY).start.points.dtype == np.float32
    assert {a.dtype for a in arrays(random_weights(rec, key=KEY))} == {np.dtype("float32")}


@pytest.mark.parametrize("null", [random_weights, gaussian_tokens])
def test_a_key_is_needed(null):
    assert_refused(lambda: null(record("bert"), key=3), ["key must be a random key"])

"""Far beyond the depth of a model: numbers against those of single states, endings that are planted."""

import dataclasses
import sys
from functools import cache
from importlib import metadata

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_records import tiny_record

import meanformer as mf
from meanformer._types import cast
from meanformer.models.curves import nearness
from meanformer.models.deep import MEMORY, _ending
from meanformer.models.record import TransformerRecord

DEPTH = 40
MODULE = sys.modules["meanformer.models.deep"]


@cache
def deep(name):
    shares = []
    return mf.models.extrapolate(tiny_record(name), DEPTH, progress=shares.append), shares


def lengths(x):
    return np.sqrt((x**2).sum(axis=1))


@pytest.mark.parametrize("name", ["albert", "bert"])
def test_numbers_are_those_of_the_states(name):
    record, (found, shares) = tiny_record(name), deep(name)
    blocks = [eqx.filter_jit(block) for block in record.blocks]
    w = np.asarray(record.start.weights)
    states = [record.start]
    for l in range(DEPTH + 1):  # the blocks again and again
        states.append(record.start.with_points(blocks[l % len(blocks)](states[-1]).after))
    assert found.layers[0] == 0 and found.layers[-1] == DEPTH and (np.diff(found.layers) > 0).all()
    assert 20 < len(found.layers) < DEPTH and found.layers[:15].tolist() == list(range(15))
    compared = 0
    for i, l in enumerate(found.layers):
        mu, x, y = states[l], np.asarray(states[l].points), np.asarray(states[l + 1].points)
        assert np.isclose(found.average_cosine[i], mf.average_cosine(mu), atol=1e-9)
        # Random layers make all tokens one: later on their distances are rounding.
        if np.trace(mu.covariance) > 1e-18 * (x**2).sum():
            assert np.isclose(found.effective_rank[i], mf.effective_rank(mu), rtol=1e-5)
            compared += 1
        assert (found.near_pairs[i], found.groups[i]) == pytest.approx(nearness(x, w))
        assert np.isclose(found.move[i], w @ (lengths(y - x) / lengths(x)), rtol=1e-6, atol=1e-12)
    assert compared > 10
    for l, x in zip(found.state_layers, found.states, strict=True):
        assert np.allclose(x, states[l].points, rtol=1e-9, atol=1e-9)
    assert found.state_layers[[0, -1]].tolist() == [0, DEPTH] and len(found.states) == 12
    assert shares[-1] == 1 and (np.diff(shares) > 0).all()
    assert found.tied == (name == "albert") and ("again and again" in found.words) == (name == "bert")


def test_a_copy_that_begins_elsewhere():
    record, (found, _) = tiny_record("albert"), deep("albert")
    assert np.isclose(found.apart[0], 1e-6, rtol=0.3)
    far = mf.models.extrapolate(record, 3, apart=1e-3)
    near = mf.models.extrapolate(record, 3, apart=1e-5)
    assert np.allclose(far.apart / near.apart, 100, rtol=0.05)  # linear while they are near
    alone = mf.models.extrapolate(record, 3, apart=None)
    assert np.isnan(alone.apart).all() and (alone.move == far.move).all()
    assert "elsewhere" not in alone.words


def planted(x, depth=200):
    """How it ends, for states x(l)."""
    start = mf.PointCloud(np.asarray(x(0)), [0.0, 0.6, 0.4])
    return _ending([x(l) for l in range(depth - MEMORY, depth + 1)], start, depth)


def test_endings():
    # The first token has no weight: what it does does not matter.
    base, wild = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]), np.array([[1.0], [0.0], [0.0]])

    def turned(angle):
        return base @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    assert planted(lambda l: base + l * wild) == {"ending": "still", "period": None}
    assert planted(lambda l: turned(2 * np.pi * l / 7) + l * wild) == {"ending": "round", "period": 7}
    assert planted(lambda l: turned(np.pi * l)) == {"ending": "round", "period": 2}
    assert planted(lambda l: turned(2 * np.pi * l / 59.95)) == {"ending": "round", "period": 60}
    # Slowly, but by more than a thousandth in the hundred layers; and less.
    assert planted(lambda l: turned(2e-5 * l)) == {"ending": "moving", "period": None}
    assert planted(lambda l: turned(0.5e-5 * l)) == {"ending": "still", "period": None}
    assert planted(lambda l: turned(1e-3 * l)) == {"ending": "moving", "period": None}
    assert planted(lambda l: np.random.default_rng(l).normal(size=(3, 2))) == {"ending": "moving", "period": None}
    assert planted(lambda l: base * 1.01**l) == {"ending": "moving", "period": None}


def test_what_is_kept_of_the_last_states_is_small(monkeypatch):
    """Of wide models projections; what they tell of the ending is the same."""
    record, kept = tiny_record("albert"), []
    monkeypatch.setattr(MODULE, "_ending", lambda recent, *a: kept.append(recent) or _ending(recent, *a))
    endings = []
    for most in (64, 8):
        monkeypatch.setattr(MODULE, "PROJECTED", most)
        found = mf.models.extrapolate(record, DEPTH, apart=None)
        endings.append((found.ending, found.period))
    assert [recent[-1].shape[1] for recent in kept] == [record.model.d, 8]
    assert endings[0] == endings[1]
    full, few = (np.linalg.norm(np.asarray(recent[1] - recent[0])) for recent in kept)
    assert 0.5 < few / full < 2


def test_a_run_that_depends_on_its_start_is_called_one_draw():
    found, _ = deep("albert")
    assert "one draw" not in found.words
    wild = dataclasses.replace(found, apart=np.full_like(found.apart, 0.5))
    assert "one draw of many" in wild.words


def test_what_leaves_the_range_is_told():
    record = tiny_record("gpt2")
    huge = eqx.tree_at(lambda b: b.perceptron, record.blocks[0], mf.Affine(1e37 * jnp.eye(record.model.d)))
    single = dataclasses.replace(record.tokens, cloud=cast(record.start, jnp.float32))
    endless = TransformerRecord(record.model, single)
    endless.blocks = (cast(huge, jnp.float32),) * record.depth
    found = mf.models.extrapolate(endless, 50, apart=None)
    assert found.ending == "not finite" and 0 < found.layers[-1] < 50
    assert "floating-point range" in found.words and np.isfinite(found.move).all()
    assert str(found).startswith(found.words)


def test_words_and_table():
    found, _ = deep("albert")
    assert f"after {DEPTH} layers {found.groups[-1]} groups" in found.words
    assert len(str(found).splitlines()) > 10


def test_bad_input_is_refused(refused):
    record = tiny_record("bert")
    refused(lambda: mf.models.extrapolate(record, 0), "depth must be a whole number")
    refused(lambda: mf.models.extrapolate(record, 5, apart=0.0), "apart must be positive")
    refused(lambda: mf.models.extrapolate(record, 5, progress=1), "progress of extrapolate")


def test_tied_layers_form_clusters():
    """TARGETS D4, as far as rounding does not matter: some 200 layers. Needs torch, which reads the weights."""
    pytest.importorskip("torch")
    try:
        metadata.distribution("rxnmapper")
    except metadata.PackageNotFoundError:
        pytest.skip("rxnmapper is not installed")
    reaction = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
    found = mf.models.extrapolate(mf.models.load("package:rxnmapper").record(reaction), 200)
    assert found.tied and found.apart[-1] < 0.1
    assert 0.1 < found.near_pairs[-1] < 0.2 and 6 < found.effective_rank[-1] < 9 and 10 < found.groups[-1] < 20

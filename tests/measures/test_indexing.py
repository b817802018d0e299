"""Members of batches: those that are there, in all ways to ask for them, and refusals of all others."""

import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.measures.density import with_masses
from oracles.refusals import assert_refused

POINTS = np.arange(12.0).reshape(3, 2, 2)
HALF = np.full((3, 2), 0.5)
BATCHES = {  # and an array that tells the members apart
    "clouds": (mf.PointCloud(POINTS, HALF, HALF), "points"),
    "Gaussians": (mf.Gaussian(POINTS[:, 0], factor=POINTS), "factor"),
    "densities": (with_masses(mf.Density([0.5, 0.5], 0.0, 2.0), jnp.asarray(POINTS[:, 0])), "masses"),
}
INDICES = {
    "first": 0,
    "from the end": -3,
    "of NumPy": np.int8(2),
    "of JAX": jnp.asarray(1),
    "slice": slice(1, None),
    "slice beyond the end": slice(1, 9),
    "backwards": slice(None, None, -1),
    "list": [2, 0],
    "array": np.array([[0, -1], [1, 1]]),
    "array of JAX": jnp.asarray([1, 2]),
    "mask": np.array([True, False, True]),
    "one in a tuple": (1,),
}
REFUSED = {
    "beyond the end": (7, "index 7 for a batch of 3"),
    "at the end": (3, "-3 <= index < 3"),
    "before the start": (-4, "index -4"),
    "beyond all": (2**70, "no such member"),
    "one of many beyond": ([0, 1, 3], "index 3"),
    "one of many before": (np.array([[0], [-9]]), "index -9"),
    "real": (1.0, "whole numbers", "got:      1.0"),
    "reals": ([0.0, 1.0], "whole numbers"),
    "a truth value": (True, "whole numbers"),
    "a truth value of NumPy": (np.True_, "whole numbers"),
    "a truth value of JAX": (jnp.asarray(True), "whole numbers"),
    "text": ("first", "whole numbers"),
    "nothing": (None, "whole numbers"),
    "dots": (..., "whole numbers"),
    "a real slice": (slice(0.5, None), "whole numbers"),
    "a slice that stands": (slice(0, 2, 0), "whole numbers"),
    "rows of different lengths": ([[0], [0, 1]], "whole numbers"),
    "a mask that is too short": ([True, False], "a truth value for each member", "shape (3,)"),
    "arrays of members": ((0, 1), "2 indices for a batch of shape (3,)", "batch[0].mean[1]"),
}


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("name", INDICES)
def test_members(kind, name):
    (batch, part), index = BATCHES[kind], INDICES[name]
    expected = np.asarray(getattr(batch, part))[np.asarray(index) if isinstance(index, list) else index]
    np.testing.assert_array_equal(getattr(batch[index], part), expected)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("name", REFUSED)
def test_no_such_members(kind, name):
    index, *words = REFUSED[name]
    assert_refused(lambda: BATCHES[kind][0][index], words)


@pytest.mark.parametrize("kind", BATCHES)
def test_a_loop_ends_after_the_last_member(kind):
    batch, part = BATCHES[kind]
    members = list(itertools.islice(batch, 5))
    np.testing.assert_array_equal([getattr(member, part) for member in members], getattr(batch, part))


def test_what_is_out_of_range_is_an_index_error_in_other_processes_too():
    with pytest.raises(IndexError) as error:
        BATCHES["clouds"][0][3]
    again = pickle.loads(pickle.dumps(error.value))
    assert isinstance(again, mf.InputError) and isinstance(again, IndexError) and str(again) == str(error.value)


def test_batches_of_two_axes():
    points = np.arange(24.0).reshape(2, 3, 2, 2)
    batch = mf.PointCloud(points)
    np.testing.assert_array_equal(batch[1, -1].points, points[1, -1])
    np.testing.assert_array_equal(batch[:, 1].points, points[:, 1])
    assert_refused(lambda: batch[1, 3], ("index 3 for a batch of 3",))
    assert_refused(lambda: batch[1, 2, 0], ("3 indices", "(2, 3)"))


@pytest.mark.parametrize("kind", BATCHES)
def test_traced_members(kind):
    batch, part = BATCHES[kind]
    member = jax.jit(lambda batch, k: getattr(batch[k], part))
    np.testing.assert_array_equal(member(batch, 1), getattr(batch, part)[1])
    assert_refused(lambda: jax.jit(lambda batch: batch[3])(batch), ("no such member",))


def test_states_of_a_run():
    run = mf.layers(mf.Affine(np.eye(2)), mf.PointCloud(POINTS[0]), 2)
    assert len(list(itertools.islice(run.states, 9))) == 3
    assert_refused(lambda: run.states[9], ("index 9 for a batch of 3",))

"""Clusters over time, on runs that are made up."""

import jax.numpy as jnp
import numpy as np
import pytest
from _told import told

import meanformer as mf
from meanformer.diagnostics.history import clusters_along
from oracles.refusals import assert_refused

FIELD = mf.Softmax([[1.0]], [[1.0]], [[1.0]])
TIMES = np.array([0.0, 1.0, 2.0, 3.0, 4.0])


def line(*rows):
    return np.array(rows, float)[:, :, None]


MERGING = line(
    [0, 10, 20, 30, 100],
    [0, 9, 20.5, 21, 100],
    [0, 1, 20.5, 21, 100],
    [0, 0.5, 20.5, 21, 100],
    [0, 0.1, 20.5, 21, 100],
)


def test_count_labels_and_persistence():
    history = clusters_along(told(FIELD, TIMES, MERGING), tolerance=0.015)
    np.testing.assert_array_equal(history.count, [5, 4, 3, 3, 3])
    np.testing.assert_array_equal(history.labels[1], [0, 1, 2, 2, 3])
    np.testing.assert_array_equal(history.labels[-1], [0, 0, 1, 1, 2])
    # The pair at 20 came together at t = 1, the other at t = 2, and the last token was always alone.
    np.testing.assert_array_equal(history.since, [2.0, 1.0, 0.0])
    assert history.settled == 2
    assert str(history).startswith("3 clusters since t = 2") and "oldest since t = 0" in str(history)


def test_a_cluster_that_broke_up_for_a_while_is_young():
    apart = MERGING.copy()
    apart[3, 1] = 10
    history = clusters_along(told(FIELD, TIMES, apart), tolerance=0.015)
    np.testing.assert_array_equal(history.since, [4.0, 1.0, 0.0])
    # A visitor ends the solitude of the last token, too.
    visited = MERGING.copy()
    visited[2, 2] = 99.5
    np.testing.assert_array_equal(clusters_along(told(FIELD, TIMES, visited), 0.015).since, [2.0, 3.0, 3.0])


@pytest.mark.parametrize(
    "scale, shrinking, growing",
    [("so far", [3, 3, 1, 1, 1], [3] * 5), ("now", [3] * 5, [3] * 5), ("largest", [3, 3, 1, 1, 1], [1, 1, 1, 1, 3])],
)
def test_which_diameter(scale, shrinking, growing):
    r"""Three tokens at 0, 1/2 and 1, times a number: only "so far" is right for a collapse and for an expansion."""
    shape = line([0, 0.5, 1.0])
    small, large = (
        told(FIELD, TIMES, shape * np.array(s)[:, None, None]) for s in ([1, 0.5, 1e-2, 1e-4, 0], 4.0 ** np.arange(5))
    )
    if scale == "now":
        shrinking = [*shrinking[:4], 1]  # a point is one cluster
    if scale == "largest":
        growing = [1, 3, 3, 3, 3]  # at tolerance 0.005 of 256
    np.testing.assert_array_equal(clusters_along(small, 0.02, scale).count, shrinking)
    np.testing.assert_array_equal(clusters_along(large, 0.005, scale).count, growing)


def test_it_agrees_with_the_clusters_of_the_end():
    run = told(FIELD, TIMES, MERGING)
    history = clusters_along(run, 0.015, "now")
    end = run.clusters(0.015)
    assert history.tolerance[-1] == end.tolerance
    np.testing.assert_array_equal(history.labels[-1], end.labels)


def test_invisible_tokens_and_single_ones():
    weights = np.array([0.5, 0.0, 0.25, 0.25, 0.0])
    history = clusters_along(told(FIELD, TIMES, MERGING, weights), 0.05)
    assert (history.labels[:, [1, 4]] == -1).all()
    np.testing.assert_array_equal(history.count, [3, 2, 2, 2, 2])
    np.testing.assert_array_equal(history.since, [0.0, 1.0])
    alone = clusters_along(told(FIELD, TIMES, MERGING[:, :1]))
    assert (alone.count == 1).all() and alone.settled == 0
    assert str(alone).startswith("1 cluster since t = 0")


def test_states_beyond_the_range_are_left_out():
    burst = MERGING.copy()
    burst[3:] = np.inf
    run = told(FIELD, TIMES, MERGING)
    run = type(run)(run.times, (jnp.asarray(burst), None), run.last, run.outcome, run.stats, run.system, False)
    np.testing.assert_array_equal(clusters_along(run, 0.015).times, TIMES[:3])


def test_refusals():
    run = told(FIELD, TIMES, MERGING)
    assert_refused(lambda: clusters_along(run, -1.0), ("tolerance must be positive",))
    assert_refused(lambda: clusters_along(run, 0.1, "larges"), ("scale", "did you mean 'largest'?"))
    assert_refused(lambda: clusters_along(run.final), ("a run of tokens", "PointCloud"))

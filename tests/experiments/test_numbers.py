"""Numbers and claims of a run, and the colours of its pictures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.numbers import claims_of, numbers_of
from meanformer.experiments.pictures import token_options
from meanformer.plots import style

I = jnp.eye(2)
SOFTMAX = mf.Softmax(I, I, I)
# All tokens in one place: softmax gives Vx there, radii grow as e^t along the flow, and the bound is sharp.
TOGETHER = mf.PointCloud(jnp.tile(jnp.array([[0.6, 0.8]]), (3, 1)))


def flow(save: list[float]) -> mf.Trajectory:
    return mf.flow(SOFTMAX, TOGETHER, 2.0, save=save, frame=mf.Rescaled(), progress=False)


def layers(tokens=TOGETHER, **options) -> mf.Trajectory:
    return mf.layers(SOFTMAX, tokens, 4, step=0.5, progress=False, **options)


def without_its_start(run: mf.Trajectory) -> mf.Trajectory:
    later = jax.tree.map(lambda a: a[1:], run.saved)
    return dataclasses.replace(run, times=run.times[1:], stored=later)


@pytest.mark.parametrize(
    "run, radius",
    [
        (lambda: flow([0.0, 2.0]), np.exp(2.0)),
        (layers, 1.5**4),
        (lambda: layers(sample=2), 1.5**4),
    ],
    ids=["rescaled", "layers", "sample"],
)
def test_the_bound_grows_from_the_start(run, radius):
    run = run()
    found = numbers_of(run, ["radius", "bound"])
    np.testing.assert_allclose([found["radius"], found["bound"]], [radius, np.exp(2.0)], rtol=1e-5)
    (claim,) = claims_of(run, None)
    assert claim["holds"] is True
    np.testing.assert_allclose(claim["slack"], 1 - radius / np.exp(2.0), atol=1e-5)


@pytest.mark.parametrize(
    "run",
    [lambda: flow([1.9, 2.0]), lambda: without_its_start(layers()), lambda: without_its_start(layers(sample=2))],
    ids=["rescaled", "layers", "sample"],
)
def test_a_run_without_its_start_has_no_bound(run):
    """From the first save time of the flow the bound would be e^0.1, and the radius is e^2."""
    run = run()
    assert numbers_of(run, ["bound"]) == {"bound": None}
    (claim,) = claims_of(run, None)
    assert (claim["bound"], claim["slack"], claim["holds"]) == (None, None, None)
    assert claim["why"] == "the start, from which the bound grows, was not saved"
    assert claim["measured"] > 5


def test_tokens_at_zero_stay_there():
    run = layers(mf.PointCloud(jnp.zeros((3, 2))))
    (claim,) = claims_of(run, None)
    assert (claim["bound"], claim["measured"], claim["holds"]) == (0.0, 0.0, True)


def test_a_bound_beyond_the_numbers_is_none():
    layer = mf.layers(mf.Softmax(I, I, 400.0 * I), TOGETHER, 2, step=1.0)  # e^800 overflows, 401^2 does not
    assert numbers_of(layer, ["bound"]) == {"bound": None}
    (claim,) = claims_of(layer, None)
    assert (claim["bound"], claim["slack"], claim["holds"]) == (None, None, None)
    assert "beyond the floating-point range" in claim["why"]
    np.testing.assert_allclose(claim["measured"], 401.0**2, rtol=1e-12)


def test_colours_by_clusters_and_by_positions_differ():
    pairs = jnp.array([[0.0, 0.0], [9.0, 0.0], [0.001, 0.0], [9.001, 0.0]])
    masked = mf.PointCloud(pairs).with_positions(jnp.array([0.4, 0.3, 0.2, 0.1]))
    field = mf.Causal(mf.Softmax(I, I, 1e-6 * I))  # nothing moves far
    run = mf.layers(field, masked, 1)
    positions = token_options(run, {"colour": "positions"})["colour"]
    np.testing.assert_allclose(positions, [0.4, 0.3, 0.2, 0.1])
    labels = token_options(run, {"colour": "clusters"})["colour"]
    assert labels.dtype.kind == "i"
    assert (labels[0], labels[1]) == (labels[2], labels[3])
    assert labels[0] != labels[1]
    still = mf.layers(mf.Softmax(I, I, 1e-6 * I), mf.PointCloud(pairs), 1)
    np.testing.assert_allclose(token_options(still, {"colour": "positions"})["colour"], [0.25, 0.5, 0.75, 1.0])
    assert token_options(still, {"colour": "black"})["colour"] == "black"
    assert token_options(still, {})["colour"] is None


def test_many_clusters_are_coloured_from_dark_to_light():
    line = mf.PointCloud(jnp.stack([jnp.arange(9.0), jnp.zeros(9)], axis=1))
    run = mf.layers(mf.Softmax(I, I, 1e-6 * I), line, 1)
    values = token_options(run, {"colour": "clusters"})["colour"]
    assert values.dtype.kind == "f"
    assert len({tuple(row) for row in style.ordered_colours(values)}) == 9

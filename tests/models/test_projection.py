"""The map of tokens: the plane that is there is found, and nothing arbitrary is left in it."""

import numpy as np
import pytest

from meanformer._checks import InputError
from meanformer.models.projection import token_map

RNG = np.random.default_rng(7)


def rotation(d: int) -> np.ndarray:
    q, r = np.linalg.qr(RNG.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def planted(layers: int, n: int, d: int, size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of unit radius in the first two of `d` rotated directions, stretched along the first; and the states."""
    flat = RNG.normal(size=(layers, n, 2)) * [3.0, 1.0]
    flat -= flat.mean(1, keepdims=True)
    flat /= np.sqrt((flat**2).sum(2).mean(1))[:, None, None]
    # The principal axes of the sample itself, the largest coordinate of each positive.
    flat = flat @ np.linalg.svd(flat.reshape(-1, 2), full_matrices=False)[2].T
    largest = np.abs(flat.reshape(-1, 2)).argmax(0)
    flat *= np.sign(flat.reshape(-1, 2)[largest, [0, 1]])
    scale = size ** np.arange(layers)[:, None, None]
    return flat, scale * np.concatenate([flat, np.zeros((layers, n, d - 2))], 2) @ rotation(d) + RNG.normal(size=d)


@pytest.mark.parametrize("n, d", [(30, 5), (4, 40)])  # more tokens than dimensions, and fewer
@pytest.mark.parametrize("size", [1.0, 1e3])  # streams that grow a thousandfold from layer to layer
def test_a_planted_plane_is_recovered(n, d, size):
    flat, states = planted(3, n, d, size)
    found = token_map(list(states))
    np.testing.assert_allclose(found.points, flat, atol=1e-11)
    np.testing.assert_allclose(found.explained, 1.0, atol=1e-12)


def test_it_does_not_depend_on_coordinates():
    states = RNG.normal(size=(4, 12, 6)) * [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    found = token_map(list(states))
    scale, shift = np.array([1.0, 20.0, 0.3, 7.0]), RNG.normal(size=(4, 1, 6))
    moved = token_map(list(scale[:, None, None] * (states @ rotation(6)) + shift))
    np.testing.assert_allclose(moved.points, found.points, atol=1e-11)
    np.testing.assert_allclose(moved.explained, found.explained, atol=1e-12)
    # A reflection is undone by the rule of signs.
    np.testing.assert_allclose(token_map(list(-states)).explained, found.explained, atol=1e-12)
    flipped = token_map(list(states * [-1.0, 1, 1, 1, 1, 1])).points
    np.testing.assert_allclose(flipped, found.points, atol=1e-11)


def test_the_share_is_that_of_the_best_plane():
    """For one layer: the two largest eigenvalues of the covariance over its trace."""
    x = RNG.normal(size=(50, 7)) * np.arange(1.0, 8.0)
    spectrum = np.linalg.eigvalsh(np.cov(x.T))
    (share,) = token_map([x]).explained
    assert share == pytest.approx(spectrum[-2:].sum() / spectrum.sum(), rel=1e-12)
    assert share < 0.8


def test_weights_count_as_copies():
    x = RNG.normal(size=(2, 5, 4))
    copies = [1, 3, 2, 1, 0]
    found = token_map(list(x), np.array(copies) / sum(copies))
    repeated = token_map([np.repeat(layer, copies, axis=0) for layer in x])
    np.testing.assert_allclose(np.repeat(found.points, copies, axis=1), repeated.points, atol=1e-12)
    np.testing.assert_allclose(found.explained, repeated.explained, atol=1e-12)


def test_a_token_without_weight_is_shown_and_shapes_nothing():
    x = RNG.normal(size=(3, 6, 4))
    far = np.concatenate([x, np.full((3, 1, 4), 1e3)], 1)
    found = token_map(list(far), [1.0] * 6 + [0.0])
    np.testing.assert_allclose(found.points[:, :6], token_map(list(x)).points, atol=1e-11)
    assert np.abs(found.points[:, 6]).max() > 100


def test_only_the_leading_layers_choose_the_plane():
    flat, states = planted(3, 10, 5)
    beyond = RNG.normal(size=(4, 10, 5))
    found = token_map([*states, *beyond], leading=3)
    np.testing.assert_allclose(found.points[:3], flat, atol=1e-11)
    assert (found.explained[3:] < 0.9).all()
    # The others are seen on that plane, from which they are not told apart by a movement off it.
    off = np.linalg.svd(states[0] - states[0].mean(0))[2][-1]
    moved = [x + RNG.normal(size=(10, 1)) * off for x in states]
    sizes = np.sqrt([((x - x.mean(0)) ** 2).sum(1).mean() for x in moved])
    seen = token_map([*states, *moved], leading=3).points[3:]
    np.testing.assert_allclose(seen * sizes[:, None, None], flat, atol=1e-11)
    with pytest.raises(InputError, match="leading"):
        token_map(list(states), leading=0)


@pytest.mark.parametrize("n, d", [(5, 3), (5, 60), (4, 1)])
def test_tokens_at_one_place_have_no_shape(n, d):
    x = RNG.normal(size=(n, d))
    found = token_map([np.full((n, d), 0.1) + x[0], x])
    np.testing.assert_array_equal(found.points[0], 0.0)
    assert found.explained[0] == 0.0
    assert found.explained[1] > 0.3
    assert np.isfinite(found.points).all()
    if d == 1:
        np.testing.assert_array_equal(found.points[..., 1], 0.0)


@pytest.mark.parametrize(
    "states, weights, what",
    [
        ([], None, "needs states"),
        ([np.ones((3, 2)), np.ones((4, 2))], None, "same tokens"),
        ([np.ones(3)], None, "same tokens"),
        ([np.ones((0, 2))], None, "same tokens"),
        ([np.ones((3, 2)), np.full((3, 2), np.nan)], None, "not finite"),
        ([np.ones((3, 2))], [1.0, 1.0], "weights of the tokens"),
        ([np.ones((3, 2))], [1.0, -1.0, 1.0], "weights of the tokens"),
        ([np.ones((3, 2))], [0.0, 0.0, 0.0], "weights of the tokens"),
    ],
)
def test_what_is_no_map_is_refused(states, weights, what):
    with pytest.raises(InputError, match=what):
        token_map(states, weights)

"""Labels of tokens in pictures: right words at right places, none upon another, not too many."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from meanformer._checks import InputError
from meanformer.plots.labels import MOST_LABELS, draw_labels
from plots._runs import token_run


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def axes(side: float = 1.0):
    """A picture of 3 x 3 inches around a square of this half width."""
    ax = Figure(figsize=(3, 3), layout="constrained").add_subplot()
    ax.set(xlim=(-side, side), ylim=(-side, side))
    return ax


def boxes(ax) -> np.ndarray:
    """Where the labels are, in pixels: left, lower, right and upper edges."""
    ax.figure.draw_without_rendering()
    return np.array([text.get_window_extent().extents for text in ax.texts])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_labels_of_a_run_stand_beside_its_tokens(d):
    run = token_run(d, 9, discrete=True)
    names = [f"w{i}" for i in range(9)]
    ax = run.plot(labels=names)
    assert ax.texts and {text.get_text() for text in ax.texts} <= set(names)
    if d == 3:
        return
    for text in ax.texts:
        i = names.index(text.get_text())
        end = np.asarray(run.final.points)[i]
        np.testing.assert_allclose(text.xy, end if d == 2 else [run.times[-1], end[0]])
    assert not run.plot().texts


def test_no_label_covers_another_and_none_leaves_the_axes():
    rng = np.random.default_rng(0)
    ax, points = axes(), rng.uniform(-1, 1, (400, 2))
    shown = draw_labels(ax, points, ["word"] * 400, areas=np.full(400, 9.0))
    assert len(shown) == len(ax.texts) == len(set(shown)) <= MOST_LABELS
    found = boxes(ax)
    apart = (found[:, None, :2] >= found[None, :, 2:]).any(axis=2)
    apart |= apart.T
    assert apart[~np.eye(len(found), dtype=bool)].all()
    low, high = ax.get_window_extent().intervalx
    assert (found[:, 0] >= low - 1).all() and (found[:, 2] <= high + 1).all()


def test_as_many_as_asked_for_from_the_outside():
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([0.2 * circle, 0.7 * circle])
    assert set(draw_labels(axes(), points, ["a"] * 24, most=12)) == set(range(12, 24))


def test_large_marks_come_first_and_their_labels_keep_away():
    points = np.array([[0.0, 0.0], [0.0, 0.01]])
    assert draw_labels(axes(), points, ["a", "b"], areas=[4.0, 100.0]) == [1]
    assert draw_labels(axes(), points, ["a", "b"], areas=[100.0, 4.0]) == [0]
    near, far = axes(), axes()
    for ax, area in ((near, 4.0), (far, 400.0)):
        draw_labels(ax, points[:1], ["a"], areas=area)
    move = (boxes(far) - boxes(near))[0, 0] * 72 / far.figure.dpi
    assert abs(move - (np.sqrt(400 / np.pi) - np.sqrt(4 / np.pi))) < 0.5


def test_words_are_no_formulas():
    ax = axes()
    draw_labels(ax, np.zeros((1, 2)), ["$\\frac$"])
    assert len(boxes(ax)) == 1  # drawing it as a formula would fail


@pytest.mark.parametrize("labels", [["a"], "ab", []])
def test_labels_that_do_not_fit(labels):
    with pytest.raises(InputError, match="a label for each token"):
        draw_labels(axes(), np.zeros((2, 2)), labels)

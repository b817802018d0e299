"""Pictures of sweeps show the numbers of the table where they are."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from matplotlib import colors

from meanformer._checks import InputError
from meanformer.plots import style
from meanformer.plots.sweeps import is_categorical, plot_curves, plot_heatmap, plot_histogram, plot_shares, summed_up

TAU, N = np.geomspace(0.01, 10.0, 4), [10, 20, 40]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def table(values, *dims, name="radius", **coords) -> xarray.DataArray:
    known = {"tau": TAU, "n": N} | coords
    return xarray.DataArray(values, dims=dims, coords={dim: known[dim] for dim in dims if dim in known}, name=name)


def cells(ax) -> np.ma.MaskedArray:
    return ax.collections[0].get_array()


def test_a_heat_map_has_the_numbers_of_the_table():
    values = np.random.default_rng(0).normal(size=(4, 3))
    ax = plot_heatmap(table(values, "tau", "n"))
    np.testing.assert_array_equal(cells(ax), values)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("n", "tau")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    # Each value stands inside its cell, halfway in the logarithm.
    corners = ax.collections[0].get_coordinates()
    rows = corners[:, 0, 1]
    np.testing.assert_allclose(np.sqrt(rows[1:] * rows[:-1]), TAU)
    columns = corners[0, :, 0]
    assert (columns[:-1] < N).all()
    assert (columns[1:] > N).all()


def test_missing_numbers_are_grey():
    values = np.ones((4, 3))
    values[1, 2], values[0, 0] = np.nan, 0.5
    ax = plot_heatmap(table(values, "tau", "n"))
    assert np.argwhere(np.ma.getmaskarray(cells(ax))).tolist() == [[1, 2]]
    bad = ax.collections[0].get_cmap().get_bad()
    assert colors.to_hex(bad).lower() == style.FAINT.lower()


def test_large_spans_have_logarithmic_colours():
    small, large = np.linspace(1, 2, 12).reshape(4, 3), np.geomspace(1e-3, 1e3, 12).reshape(4, 3)
    assert isinstance(plot_heatmap(table(large, "tau", "n")).collections[0].norm, colors.LogNorm)
    assert not isinstance(plot_heatmap(table(small, "tau", "n")).collections[0].norm, colors.LogNorm)


def test_a_phase_diagram_has_a_colour_and_a_name_for_each_word():
    words = np.array([["REACHED", "STEP_TOO_SMALL", "REACHED"]] * 4)
    ax = plot_heatmap(table(words, "tau", "n", name="outcome"))
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["REACHED", "STEP TOO SMALL"]
    patches = [patch.get_facecolor() for patch in legend.get_patches()]
    drawn = ax.collections[0].get_cmap()(ax.collections[0].norm(cells(ax)[0]))
    np.testing.assert_allclose(drawn, [patches[0], patches[1], patches[0]])


def test_small_whole_numbers_are_categories():
    assert is_categorical(np.array([1, 2, 2, 9]))
    assert is_categorical(np.array([1.0, np.nan, 3.0]))
    assert is_categorical(np.array([True, False]))
    assert not is_categorical(np.array([1.5, 2.0]))
    assert not is_categorical(np.arange(20))
    ranks = np.array([[1, 2, 3]] * 4)
    ax = plot_heatmap(table(ranks, "tau", "n", name="rank"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "2", "3"]


def test_draws_are_summed_up():
    numbers = np.stack([np.full((4, 3), k) for k in (0.1, 7.3, 1.2)], axis=-1)
    found, words = summed_up(table(numbers, "tau", "n", "draw"), 2)
    np.testing.assert_array_equal(found, np.full((4, 3), 1.2))
    assert words == " (median of 3 draws)"
    kinds = np.array(["a", "b", "b"] * 12).reshape(4, 3, 3)
    found, words = summed_up(table(kinds, "tau", "n", "draw"), 2)
    assert (found.values == "b").all()
    assert words == " (mode of 3 draws)"
    gaps = np.where(np.arange(3) == 1, np.nan, numbers)
    np.testing.assert_allclose(summed_up(table(gaps, "tau", "n", "draw"), 2)[0], 0.65)
    nothing = np.full((4, 3, 3), np.nan)
    assert np.isnan(summed_up(table(nothing, "tau", "n", "draw"), 2)[0]).all()


def test_curves_are_medians_with_the_middle_of_the_draws():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4, 11)) + 5
    ax = plot_curves(table(values, "tau", "draw"))
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), TAU)
    np.testing.assert_allclose(line.get_ydata(), np.median(values, axis=1))
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(np.quantile(values, 0.1, axis=1).min())
    assert band[:, 1].max() == pytest.approx(np.quantile(values, 0.9, axis=1).max())
    assert ax.get_xscale() == "log"
    dots = ax.collections[1].get_offsets()
    np.testing.assert_array_equal(np.sort(dots[:, 1]), np.sort(values.ravel()))


def test_words_along_the_axis_are_not_joined():
    values = np.random.default_rng(2).normal(size=(3, 9))
    ax = plot_curves(table(values, "kind", "draw", kind=["softmax", "l2", "sinkhorn"]))
    (dots,) = ax.lines
    assert dots.get_linestyle() == "None"
    np.testing.assert_allclose(dots.get_ydata(), np.median(values, axis=1))
    bars = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(bars, np.quantile(values, [0.1, 0.9], axis=1).T)
    ranks = plot_curves(table(np.full((3, 9), 2), "kind", "draw", name="rank", kind=["softmax", "l2", "sinkhorn"]))
    assert [bar.get_height() for bar in ranks.patches] == [1, 1, 1]


def test_two_axes_make_a_curve_for_each_value_of_the_first():
    values = np.arange(12.0).reshape(4, 3) + 0.5
    ax = plot_curves(table(values, "tau", "n"))
    assert len(ax.lines) == 4
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), values[2])
    assert ax.get_legend().get_texts()[0].get_text() == "tau = 0.01"


def test_shares_of_words_sum_to_one():
    words = np.array([["a"] * 4, ["a", "a", "a", "b"], ["b"] * 4])
    ax = plot_shares(table(words, "n", "draw", name="fate"))
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, 3)
    np.testing.assert_allclose(heights, [[1, 0.75, 0], [0, 0.25, 1]])
    assert plot_curves(table(words, "n", "draw", name="fate")).get_ylabel() == "share of the draws"


def test_histograms():
    ax = plot_histogram(table(np.array([1, 1, 2, 5, 5, 5]), "draw", name="rank"))
    assert [bar.get_height() for bar in ax.patches] == [2, 1, 3]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "5"]
    ax = plot_curves(table(np.append(np.linspace(0, 1, 30), np.nan), "draw"))
    assert sum(bar.get_height() for bar in ax.patches) == 30
    assert ax.get_title() == "31 draws, 1 without a number"


@pytest.mark.parametrize("labels", [["softmax", "l2", "sinkhorn"], [True, False], [3.0]])
def test_axes_of_words_and_single_values(labels):
    ax = plot_heatmap(table(np.ones((len(labels), 3)) * 1.5, "kind", "n", kind=labels))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [
        str(label).lower() if isinstance(label, bool) else label if isinstance(label, str) else "3" for label in labels
    ]


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="2 axes besides draws"):
        plot_heatmap(table(np.ones(4), "tau"))
    with pytest.raises(InputError, match="one or two axes"):
        plot_curves(table(np.ones((2, 2, 2)), "a", "b", "c"))

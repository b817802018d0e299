"""Pictures of a model's analysis show the numbers of its results where they are, and nothing that is not there."""

import json

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.collections import PathCollection

from meanformer.plots import style
from meanformer.plots.models import PICTURES, draw_model
from meanformer.plots.tokenmap import depth_name, drawable, shown, spread_out, token_colours, view
from plots._runs import into
from report._analyses import D, K, band, results


def closure_with_nulls() -> dict:
    """The closure with the mean values of its nulls; random weights have small errors, and bad ratios."""
    part = results()["closure"]
    part |= {"random_mean_only": band([0.12, 0.4]), "random_ratio": band([1.75, 0.25])}
    part |= {"matched": band([1.5, 0.6]), "matched_mean_only": band([1.0, 0.8]), "matched_ratio": band([1.5, 0.75])}
    part |= {"resampled_mean_only": band([0.8, 0.5]), "resampled_ratio": band([0.5, 0.6])}
    return part | {"tilt": [[0.2, 0.3, 0.4]] * 2}


FOUND = results(closure=closure_with_nulls())


def drawn(name: str, **changes):
    """The axes and the caption of a picture; scales of colours are left out."""
    figure, caption = PICTURES[name](FOUND | changes)
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"], caption


def lines(ax) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in ax.lines}


@pytest.mark.parametrize("name", ["average_cosine", "effective_rank", "clusters", "norm", "isoscore"])
def test_curves_stand_between_their_nulls(name):
    (ax,), caption = drawn(f"curve-{name}")
    curve = FOUND["curves"][name]
    np.testing.assert_array_equal(lines(ax)["the model"], curve)
    for null, shade in zip(("random weights", "Gaussian tokens"), ax.collections, strict=True):
        given = FOUND["bands"][null][name]
        np.testing.assert_array_equal(lines(ax)[null], given["middle"])
        heights = shade.get_paths()[0].vertices[:, 1]
        assert (heights.min(), heights.max()) == (min(given["low"]), max(given["high"]))
    words = {text.get_text() for text in ax.get_legend().get_texts()}
    assert words == {"the model", "random weights", "Gaussian tokens"}
    for end in (curve[0], curve[-1]):
        assert f"${end:.3g}$" in caption
    assert ax.get_yscale() == ("log" if name == "norm" else "linear")  # it grows by a factor of 900


def test_a_curve_without_nulls_has_no_bands():
    (ax,), caption = drawn("curve-average_cosine", bands=None)
    assert len(ax.lines) == 1
    assert len(ax.collections) == 0
    assert "nulls" not in caption


def test_eigenvalues_are_shares_of_the_whole_trace():
    (ax,), caption = drawn("spectrum")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.6, 0.3, 0.1])
    np.testing.assert_allclose(ax.lines[2].get_ydata(), [0.75, 0.225, 0.025])
    assert "60 % before the first layer, 75 % after the last" in caption


def test_errors_of_heads_are_red_above_one_and_blue_below():
    (ax,), caption = drawn("closure-heads")
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), FOUND["closure"]["error"])
    red, _, blue, _ = image.to_rgba(2.0)
    assert red > blue
    red, _, blue, _ = image.to_rgba(0.5)
    assert blue > red
    np.testing.assert_allclose(image.to_rgba(1.0)[:3], colors.to_rgb(style.PAPER), atol=0.01)
    # A dot in the corner of each head in which the closure beats the mean value.
    (dots,) = ax.lines
    places = {(round(y), round(x)) for x, y in zip(*dots.get_data(), strict=True)}
    assert places == {(0, 0), (0, 2), (1, 1)}
    assert "in 4 of 6 heads" in caption
    assert "in 3, with a dot" in caption
    assert [text.get_text() for text in ax.texts] == [".50", "1.5", ".25", "2", ".10", ".75"]
    low, high = ax.get_ylim()
    assert low > high  # the first layer is at the top


def test_errors_of_layers_beside_mean_value_and_nulls():
    (ax,), _ = drawn("closure-layers")
    found = lines(ax)
    np.testing.assert_array_equal(found["the model"], [1.25, 0.5])
    np.testing.assert_array_equal(found["mean value alone"], [0.75, 1.0])
    np.testing.assert_array_equal(found["random weights"], [0.2, 0.1])
    np.testing.assert_array_equal(found["_random weights, mean value"], [0.12, 0.4])
    np.testing.assert_array_equal(found["Gaussian tokens"], [0.4, 0.3])
    np.testing.assert_array_equal(found["_Gaussian tokens, mean value"], [0.8, 0.5])
    assert ax.get_yscale() == "log"
    # A null and its mean value have one colour.
    shades = {line.get_label(): line.get_color() for line in ax.lines}
    assert shades["random weights"] == shades["_random weights, mean value"] != shades["the model"]


def test_ratios_tell_what_the_closure_is_worth():
    (ax,), caption = drawn("closure-ratio")
    found = lines(ax)
    np.testing.assert_allclose(found["the model"], [5 / 3, 0.5])
    np.testing.assert_array_equal(found["random weights"], [1.75, 0.25])
    np.testing.assert_array_equal(found["random weights, logits as large"], [1.5, 0.75])
    np.testing.assert_array_equal(found["Gaussian tokens"], [0.5, 0.6])
    low, high = ax.get_ylim()
    assert low < 0.25
    assert high > 1.75
    assert "below 1 in 1 of 2 layers" in caption
    # A mean value without error has no ratio.
    (ax,), caption = drawn("closure-ratio", closure=FOUND["closure"] | {"layer_mean_only": [0.0, 1.0]})
    np.testing.assert_array_equal(lines(ax)["the model"], [np.nan, 0.5])
    assert "in 1 of 1 layers" in caption


def test_eigenvalues_of_ov_in_the_plane():
    panels, caption = drawn("ov")
    assert len(panels) == 2
    dots = panels[0].collections[0].get_offsets()
    np.testing.assert_array_equal(dots, [[1, 0.5], [-0.5, 0], [2, 0], [1, 0], [-1, -0.25], [0, 0]])
    assert "50 % to the right" in panels[0].get_title()
    assert "50 % have positive real part" in caption


def test_inertia_that_follows_from_linear_algebra_is_called_so():
    (ax,), caption = drawn("symmetry")
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:3], [[0.4, 0.7], [0.5, 0.7], [0.6, 0.7]])
    np.testing.assert_allclose(np.ravel(ax.lines[0].get_data()), [0.5, 0.5**0.5])  # random matrices
    assert f"$({K},{K})$, by linear algebra" in caption
    other = [head | {"inertia": [K + 1, K - 1, D - 2 * K]} for head in FOUND["heads"]]
    assert "linear algebra" not in drawn("symmetry", heads=other)[1]


def test_attention_head_by_head():
    (ax,), caption = drawn("entropy")
    shown_cells = ax.images[0].get_array()
    assert np.argwhere(np.ma.getmaskarray(shown_cells)).tolist() == [[1, 1]]  # a number that is not there
    assert ax.images[0].get_clim() == (0, 1)
    assert "$0$ to $1$" in caption
    assert r"over $\log n$" in caption
    masked = drawn("entropy", model=FOUND["model"] | {"causal": True})[1]
    assert "how many tokens the row sees" in masked
    assert "log n" not in masked
    (ax,), caption = drawn("leaders")
    np.testing.assert_array_equal(ax.images[0].get_array(), FOUND["attention"]["leaders"])
    assert "6 tokens" in caption


def test_times_of_blow_up():
    (ax,), caption = drawn("fates")
    found = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(np.ravel(found["blow-up"].get_data()), [0, 0.25])
    assert found["no blow-up"].get_xdata().tolist() == [1]
    np.testing.assert_array_equal(found["none before"].get_ydata(), [0.01, np.nan])
    assert "1 of 2 layers" in caption
    assert "what attention gives lies in the hull of the values" in caption
    assert "lower by a factor of 25." in caption  # 0.25 over 0.01
    assert "in layers" not in caption
    assert ax.get_ylabel() == "time, in layers"
    # Where tokens are normalised first, no time is that of a layer.
    (ax,), caption = drawn("fates", model=FOUND["model"] | {"pre": True})
    assert "one layer" not in lines(ax)
    assert "not in layers" in caption
    assert "layers" not in ax.get_ylabel()
    unknown = [fate | {"time": None, "ending": "no closure"} for fate in FOUND["fates"]]
    (ax,), caption = drawn("fates", fates=unknown)
    assert "no blow-up" not in lines(ax)  # nothing is known
    assert "not seen to blow up" in caption
    assert "factor" not in caption


@pytest.mark.parametrize(
    "part, names, scale",
    [("pairs", ["average_cosine", "near_pairs"], "linear"), ("ranks", ["effective_rank", "groups"], "log")],
)
def test_depth_beyond_the_model_is_logarithmic(part, names, scale):
    (ax,), caption = drawn(f"deep-{part}")
    for name, line in zip(names, ax.lines, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), [1, 10, 100])
        np.testing.assert_array_equal(line.get_ydata(), FOUND["deep"][name])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", scale)
    assert ax.lines[-1].get_xdata()[0] == FOUND["model"]["depth"]
    assert "After 100 layers" in caption


def test_numbers_of_a_chaotic_map_are_one_draw():
    deep = FOUND["deep"]
    assert "One draw" in drawn("deep-ranks", deep=deep | {"apart": [1e-6, 0.5, 0.9]})[1]
    for apart in ([1e-6, 0.01, 0.05], [1e-6, 0.5, 1e-9], [None] * 3):
        assert "One draw" not in drawn("deep-ranks", deep=deep | {"apart": apart})[1]


def test_maps_of_all_layers_have_one_frame():
    panels, caption = drawn("map")
    points = np.array(FOUND["map"]["points"])
    assert [ax.get_title() for ax in panels] == [
        "before the first layer (10 %)",
        "after 1 layer (25 %)",
        "after the last layer (50 %)",
    ]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in panels}) == 1
    low, high = np.transpose([panels[0].get_xlim(), panels[0].get_ylim()])
    for ax, layer in zip(panels, points, strict=True):
        (dots,) = (c for c in ax.collections if isinstance(c, PathCollection))
        np.testing.assert_allclose(dots.get_offsets(), np.clip(layer, low, high))
    assert "10 to 50 % of the variance" in caption


def test_names_on_a_map_are_no_formulas():
    (ax, *_), _ = drawn("map")
    assert not any(text.get_parse_math() for text in ax.texts)
    assert "$x$" in {text.get_text() for text in ax.texts}


def test_nothing_is_drawn_of_what_is_not_there(tmp_path):
    assert draw_model(dict.fromkeys(FOUND) | {"status": "done"}, into(tmp_path)) == []
    empty = {"closure": {}, "attention": {"entropy": [[None]], "leaders": [[None]]}, "map": {}, "deep": {}, "heads": []}
    assert draw_model(empty, into(tmp_path)) == []
    assert (
        draw_model({"curves": {"norm": [None, None]}, "heads": [{"layer": 0, "head": 0, "ov": []}]}, into(tmp_path))
        == []
    )


def test_files_are_where_they_are_said_to_be(tmp_path):
    told = []
    few = {key: FOUND[key] for key in ("spectrum", "fates")}
    found = draw_model(json.loads(json.dumps(few)), into(tmp_path), told.append)
    assert [one["name"] for one in found] == ["spectrum", "fates"]
    assert all((tmp_path / one["file"]).read_text().startswith("<?xml") for one in found)
    assert told == ["drawing spectrum", "drawing fates"]


def test_missing_numbers_in_a_band_leave_a_gap():
    holes = {"low": [0.1, None, 0.1], "middle": [0.2, None, 0.2], "high": [0.3, None, 0.3]}
    (ax,), _ = drawn("curve-average_cosine", bands={"random weights": {"average_cosine": holes}})
    np.testing.assert_array_equal(lines(ax)["random weights"], [0.2, np.nan, 0.2])
    assert np.isfinite(ax.get_ylim()).all()


# What the map that moves shares


@pytest.mark.parametrize(
    "label, seen",
    [
        ("word", "word"),
        (" the", " the"),
        ("\n", "⏎"),
        ("a\nb\t", "a⏎b⇥"),
        ("  ", "␣␣"),
        ("", "∅"),
        ("\x00", "\\u0000"),
        ("\u202eevil", "\\u202eevil"),
        (7, "7"),
    ],
)
def test_names_have_nothing_invisible(label, seen):
    assert shown(label) == seen


def test_letters_that_the_font_has_not_become_boxes():
    assert drawable("aé≤") == "aé≤"
    assert drawable("日本") == "□□"
    assert drawable("a" * 40) == "a" * 13 + "…"


def test_the_view_holds_nearly_all_and_no_outlier_stretches_it():
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, size=(4, 200, 2))
    low, high = view(points)
    assert (low <= -0.95).all()
    assert (high >= 0.95).all()
    points[0, 0] = [1e4, 0.0]
    far = view(points)
    assert np.abs(far).max() < 2
    flat = view(points * [1.0, 0.0])
    assert (flat[1] > flat[0]).all()  # tokens on a line have a frame too


def test_named_tokens_are_far_from_each_other():
    corners = np.array([[0.0, 0], [10, 0], [10, 0.1], [0, 10], [-10, -10]])
    assert spread_out(corners[None], 3) == [4, 2, 3]
    assert sorted(spread_out(corners[None], 99)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dark", [False, True])
def test_tokens_and_patches_have_colours_of_their_own(dark):
    assert len(np.unique(token_colours(12, dark=dark), axis=0)) == 12
    patches = token_colours(7, [2, 3], dark=dark)
    assert len(np.unique(patches, axis=0)) == 7
    assert np.ptp(patches[0]) == 0  # the token before the patches is grey
    np.testing.assert_array_equal(token_colours(5, [2, 3]), token_colours(5))  # cannot be its grid


def test_depths_have_names():
    assert [depth_name(k, 2) for k in range(3)] == ["before the first layer", "after 1 layer", "after the last layer"]
    assert depth_name(2, 5) == "after 2 layers"

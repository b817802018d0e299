"""Pictures of Gaussian runs show what was computed, at any scale, and refuse what cannot be drawn."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import colors
from matplotlib.patches import Ellipse

from meanformer._checks import InputError
from meanformer.plots import style
from meanformer.plots.covariances import below, cone_coordinates, disc_coordinates, plot_cone, plot_disc, plot_ranks
from meanformer.plots.fates import fate_colour, number, numbers
from meanformer.plots.gaussians import plot_gaussian_run, plot_spectrum

LONG = np.concatenate([[0.0], np.logspace(-6, 12, 55)])


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


class Softmax:
    """Pictures know the field by its name only."""


def gaussian_run(times, means, factors, kind="CONVERGED", time=0.0, rank=1):
    times, means, factors = (np.asarray(a, float) for a in (times, means, factors))
    fate = SimpleNamespace(kind=kind, time=time, rank=rank)
    return SimpleNamespace(times=times, states=SimpleNamespace(mean=means, factor=factors), fate=fate, field=Softmax())


def diagonal(times, *variances, kind="CONVERGED", time=0.0, rank=1, means=None):
    roots = np.sqrt(np.stack(np.broadcast_arrays(*variances, times)[:-1], axis=1))
    means = np.zeros_like(roots) if means is None else means
    return gaussian_run(times, means, roots[:, :, None] * np.eye(roots.shape[1]), kind, time, rank)


def blow_up(first=0.5) -> SimpleNamespace:
    """V = I, A = diag(1/2, 0): the first variance is s / (1 - s t), s = 1 / t* (MATH e.3)."""
    times = first * (1 - np.logspace(0, -10, 41))
    return diagonal(times, 1 / (first - times), np.full(41, 0.25), kind="BLEW_UP", time=first, rank=-1)


def to_a_line() -> SimpleNamespace:
    return diagonal(LONG, 1 / (1 + LONG), 0.3, rank=1)


def drawn(ax) -> None:
    ax.figure.canvas.draw()  # warnings are errors


def test_ellipses_have_the_eigenvalues_and_eigenvectors_of_the_covariance() -> None:
    rng = np.random.default_rng(5)
    times, means = np.linspace(0, 1, 5), rng.normal(size=(5, 2))
    factors = np.eye(2) + 0.3 * rng.normal(size=(5, 2, 2))
    ax = plot_gaussian_run(gaussian_run(times, means, factors, "UNDECIDED"), ellipses=40, deviations=1.5)
    shown = [patch for patch in ax.patches if isinstance(patch, Ellipse)]
    assert len(shown) == 5
    for ellipse, mean, L in zip(shown, means, factors, strict=True):
        turn = np.radians(ellipse.angle)
        axis = np.array([np.cos(turn), np.sin(turn)])
        across = np.array([-axis[1], axis[0]])
        a, b = ellipse.width / 3.0, ellipse.height / 3.0  # width = 2 x 1.5 deviations
        sigma = a**2 * np.outer(axis, axis) + b**2 * np.outer(across, across)
        np.testing.assert_allclose(sigma, L @ L.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ellipse.center, mean, rtol=1e-14)
        corners = np.asarray(mean)[:, None] + 1.5 * np.sqrt(np.diag(L @ L.T))[:, None] * [-1, 1]
        for (low, high), limits in zip(corners, (ax.get_xlim(), ax.get_ylim()), strict=True):
            assert limits[0] < low < high < limits[1]
    np.testing.assert_allclose(np.transpose(ax.lines[0].get_data()), means)
    drawn(ax)


def test_ellipses_from_dark_to_light_at_even_distances() -> None:
    times = np.linspace(0, 1, 101)
    ax = plot_gaussian_run(diagonal(times, (1 + times) ** 2, (1 + times) ** 2, kind="UNDECIDED"), ellipses=5)
    widths = np.array([patch.width for patch in ax.patches])
    np.testing.assert_allclose(widths, 4 * (1 + np.linspace(0, 1, 5)), rtol=1e-12)
    shades = np.array([colors.to_rgb(patch.get_edgecolor()) for patch in ax.patches]) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(shades) > 0).all()
    thickness = [patch.get_linewidth() for patch in ax.patches]
    assert thickness[0] == thickness[-1] > max(thickness[1:-1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["$0$  (start)", "$0.25$", "$0.5$", "$0.75$", "$1$  (end)"]


def test_degenerate_ellipses_are_segments_and_dots() -> None:
    ax = plot_gaussian_run(to_a_line())
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), [[0, -2 * 0.3**0.5], [0, 2 * 0.3**0.5]], atol=1e-5)
    drawn(ax)
    ax = plot_gaussian_run(diagonal(LONG, 1 / (1 + LONG), 1 / (1 + 2 * LONG), rank=0))
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[0, 0]])
    drawn(ax)
    # Rank one from the start: a factor with a single column.
    ax = plot_gaussian_run(gaussian_run([0.0, 1.0], np.zeros((2, 2)), [[[3.0], [4.0]], [[0.3], [0.4]]]))
    assert not ax.patches
    assert np.linalg.norm(np.diff(ax.lines[0].get_xydata(), axis=0)) == pytest.approx(2 * 2 * 5)
    drawn(ax)


def test_a_blow_up_is_drawn_until_it_leaves_the_picture() -> None:
    ax = plot_gaussian_run(blow_up())
    start, last = ax.patches[0].width, ax.patches[-1].width
    assert 2 * start < last <= 6 * start
    assert "t^{*}=0.5" in ax.get_title()
    assert "leaves the picture" in ax.get_title()
    assert not any("(end)" in text.get_text() for text in ax.get_legend().get_texts())
    drawn(ax)


def test_a_mean_that_overflows_is_the_origin() -> None:
    with np.errstate(over="ignore"):
        means = np.exp(LONG)[:, None] * [0.5, 1.0]
    assert np.isinf(means).any()
    run = diagonal(LONG, 1 / (1 + LONG), 0.3, means=means)
    ax = plot_gaussian_run(run)
    assert "m_1(t)" in ax.get_xlabel()
    assert all(patch.center == (0.0, 0.0) for patch in ax.patches)
    drawn(ax)
    ax = plot_gaussian_run(run, mean=True)  # if asked for it moves, within the picture
    assert ax.get_xlabel() == "$x_1$"
    assert ax.patches[0].center == pytest.approx((0.5, 1.0))
    assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()
    drawn(ax)


@pytest.mark.parametrize("overflow", [False, True])
def test_band_of_dimension_one(overflow) -> None:
    with np.errstate(over="ignore"):
        means = np.exp(LONG)[:, None] if overflow else np.ones((len(LONG), 1))
    ax = plot_gaussian_run(diagonal(LONG, 1 / (1 + LONG), means=means), deviations=3.0)
    below_, above, middle = (line.get_ydata() for line in ax.lines)
    places = ax.lines[0].get_xdata()
    centre = 0.0 if overflow else 1.0
    np.testing.assert_allclose(middle, centre)
    np.testing.assert_allclose(above[1:], centre + 3 / np.sqrt(1 + places[1:]), rtol=1e-12)
    np.testing.assert_allclose(below_ + above, 2 * centre, atol=1e-12)
    assert (above[0], ax.get_xscale()) == (centre + 3, "log")  # time 0 is at the left edge
    drawn(ax)


def test_band_of_a_blow_up() -> None:
    times = 0.5 * (1 - np.logspace(0, -10, 41))
    ax = plot_gaussian_run(diagonal(times, 1 / (1 - 2 * times), kind="BLEW_UP", time=0.5))
    assert ax.get_xscale() == "linear"
    np.testing.assert_array_equal(ax.lines[-1].get_xdata(), [0.5, 0.5])
    assert ax.get_ylim()[1] < 15
    drawn(ax)


def test_spectrum_is_that_of_the_covariance() -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))
    values = np.stack([np.full_like(LONG, 2.0), 1 / (1 + LONG), 0.5 * np.exp(-LONG / 20)], axis=1)
    with np.errstate(under="ignore"):
        run = gaussian_run(LONG, np.zeros((len(LONG), 3)), basis * np.sqrt(values)[:, None])
    ax = plot_gaussian_run(run)  # from dimension 3 on
    curves = {line.get_label(): line for line in ax.lines if "lambda" in line.get_label()}
    assert list(curves) == ["$\\lambda_{1}$", "$\\lambda_{2}$", "$\\lambda_{3}$"]
    places = curves["$\\lambda_{1}$"].get_xdata()
    assert (np.diff(places) > 0).all()
    exact = -np.sort(-np.stack([0 * places + 2, 1 / (1 + places), 0.5 * np.exp(-places / 20)], axis=1), axis=1)
    for i, curve in enumerate(curves.values()):
        # Singular values are exact up to round-off of the largest; none is drawn at 0.
        shown = np.nan_to_num(curve.get_ydata())
        np.testing.assert_allclose(np.sqrt(shown[1:]), np.sqrt(exact[1:, i]), rtol=1e-12, atol=2e-15)
        np.testing.assert_allclose(shown[0], [2, 1, 0.5][i], rtol=1e-12)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "slope $-1$" in labels
    assert "round-off" in labels
    slope = next(line for line in ax.lines if line.get_label() == "slope $-1$")
    assert np.prod(slope.get_xydata(), axis=1) == pytest.approx([np.prod(slope.get_xydata()[0])] * 2)
    assert ax.get_ylim()[0] > 1e-36
    drawn(ax)


def test_spectrum_of_a_blow_up_marks_its_time() -> None:
    ax = plot_spectrum(blow_up())
    (line,) = (line for line in ax.lines if line.get_label() == "$t^{*}=0.5$")
    np.testing.assert_array_equal(line.get_xdata(), [0.5, 0.5])
    assert ax.get_xlim()[1] > 0.5
    drawn(ax)
    # The slope of the theory is that of long times.
    for kind, there in (("UNDECIDED", True), ("BLEW_UP", False)):
        ax = plot_spectrum(diagonal(LONG, 2.0, 1 / (1 + LONG), kind=kind, time=2e12))
        assert any(line.get_label() == "slope $-1$" for line in ax.lines) == there


@pytest.mark.parametrize(
    "kind, times, variances",
    [
        ("DIVERGED", LONG, (10.0 ** np.linspace(0, 20, len(LONG)), 10.0 ** np.linspace(0, -30, len(LONG)))),
        ("CONVERGED", LONG, (10.0 ** np.linspace(0, 20, len(LONG)), 10.0 ** np.linspace(0, -30, len(LONG)))),
        ("CONVERGED", LONG, (0.0, 0.0)),  # a single point
        ("CONVERGED", LONG, (1e-300, 0.0)),
        ("CONVERGED", LONG, (1.0, 1.0)),  # nothing moves
        ("UNDECIDED", [0.0], (2.0, 1.0)),  # nothing but the start
        ("UNDECIDED", [0.0, 1e-6], (2.0, 1.0)),
        ("DIVERGED", [1.0, 1.1, 1.3], ([1.0, 1.5, 2.5], 1.0)),
    ],
)
def test_any_scale_is_drawn(kind, times, variances) -> None:
    run = diagonal(np.asarray(times), *variances, kind=kind)
    for picture in (plot_gaussian_run, plot_spectrum, plot_cone, plot_disc):
        drawn(picture(run))


def test_what_is_not_finite_is_left_out() -> None:
    run = blow_up()
    run.states.factor[-3:] = np.inf
    for picture in (plot_gaussian_run, plot_spectrum, plot_cone, plot_disc):
        drawn(picture(run))
    lambda_1 = plot_spectrum(run).lines[0]
    assert lambda_1.get_xdata()[-1] == run.times[-4]


def test_coordinates_of_cone_and_disc() -> None:
    L = np.random.default_rng(1).normal(size=(20, 2, 3))
    a, b, c = ((L @ L.swapaxes(1, 2))[:, i, j] for i, j in ((0, 0), (1, 1), (0, 1)))
    np.testing.assert_allclose(cone_coordinates(L), np.stack([a - b, 2 * c, a + b], axis=1), rtol=1e-12, atol=1e-13)
    expected = np.stack([(a - b) / (a + b), 2 * c / (a + b)], axis=1)
    np.testing.assert_allclose(disc_coordinates(L), expected, rtol=1e-12, atol=1e-13)
    # Sizes do not matter, not even those whose squares leave the floating-point range.
    np.testing.assert_allclose(disc_coordinates(1e200 * L), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(disc_coordinates(1e-200 * L), expected, rtol=1e-12, atol=1e-13)
    # Rank one is the circle, at twice the angle of its line; a single point has no place.
    angle = 0.7
    line = np.array([[[np.cos(angle)], [np.sin(angle)]], [[0.0], [0.0]]])
    np.testing.assert_allclose(disc_coordinates(line), [[np.cos(2 * angle), np.sin(2 * angle)]], rtol=1e-14)


def test_paths_are_cut_at_a_height() -> None:
    path = np.array([[0, 0, 1.0], [0, 2, 3.0], [0, 0, 1.0], [4, 0, 1e20]])
    shown = below(path, 2.0)
    expected = [[0, 0, 1], [0, 1, 2], [np.nan] * 3, [0, 1, 2], [0, 0, 1], [0, 0, 2]]
    np.testing.assert_allclose(shown, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(below(path, 1e30), path)


def test_cone_holds_the_paths_in_the_colours_of_their_fates() -> None:
    runs = [to_a_line(), blow_up(), diagonal(LONG, 1.0, 1 / (1 + LONG), kind="UNDECIDED")]
    ax = plot_cone(runs, height=5.0)
    paths = [line for line in ax.lines if line.get_zorder() == 4]
    assert [line.get_color() for line in paths] == [fate_colour(run) for run in runs]
    np.testing.assert_allclose(
        np.stack(paths[0].get_data_3d()), [1 / (1 + LONG) - 0.3, 0 * LONG, 1 / (1 + LONG) + 0.3], rtol=1e-12, atol=1e-12
    )
    ends = np.stack(paths[1].get_data_3d())[:, -1]
    assert ends[2] == pytest.approx(5.0)  # the blow-up ends at the height of the cone
    assert ax.get_zlim() == (0, 5.0)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["blow-up (1)", "converged, rank 1 (1)", "undecided (1)", "start", "end", "leaves the picture"]
    drawn(ax)
    assert plot_cone(runs).get_zlim()[1] == pytest.approx(2 * (2 + 0.25))  # twice the largest trace of a start


def test_disc_holds_the_paths_in_the_colours_of_their_fates() -> None:
    runs = [to_a_line(), blow_up(), diagonal(LONG, 1 / (1 + LONG), 1.5 / (1 + LONG), rank=0)]
    ax = plot_disc(runs)
    paths = [line for line in ax.lines if line.get_zorder() == 3]
    assert [line.get_color() for line in paths] == [fate_colour(run) for run in runs]
    assert len({fate_colour(run) for run in runs}) == 3
    np.testing.assert_allclose([p.get_xydata()[-1] for p in paths], [[-1, 0], [1, 0], [-0.2, 0]], atol=1e-9)
    drawn(ax)


def test_every_fate_has_a_colour_of_its_own() -> None:
    fates = [("CONVERGED", 0), ("CONVERGED", 1), ("CONVERGED", 2), ("BLEW_UP", -1), ("DIVERGED", -1), ("UNDECIDED", -1)]
    runs = [diagonal(LONG[:2], 1.0, 1.0, kind=kind, rank=rank) for kind, rank in fates]
    finite = diagonal(LONG[:2], 1.0, 1.0)
    finite.fate = None  # a finite horizon has no verdict
    assert len({fate_colour(run) for run in [*runs, finite]}) == 7
    assert plot_gaussian_run(finite).get_title() == "Softmax, Gaussian in $\\mathbb{R}^{2}$"
    drawn(plot_disc([*runs, finite]))


def bars(ax) -> list[tuple[float, float]]:
    return [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for c in ax.containers for bar in c]


def test_ranks_are_counted_and_none_is_dropped() -> None:
    ax = plot_ranks([2] * 7 + [1, 3] + [-1] * 2, d=3, expected=2, undecided=4)
    np.testing.assert_allclose(bars(ax), [(0, 0), (1, 1), (2, 7), (3, 1), (4.25, 6)])
    assert "15 runs" in ax.get_title()
    shade = next(p for p in ax.patches if colors.to_hex(p.get_facecolor()).upper() == style.FAINT)
    assert shade.get_x() < 2 < shade.get_x() + shade.get_width()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["expected rank: 2"]
    drawn(ax)


def test_ranks_of_groups() -> None:
    groups = {"softmax": np.array([2, 2, 1]), "L2": np.array([2, -1], np.int32)}
    ax = plot_ranks(groups, expected={"softmax": 2, "L2": 1}, undecided={"softmax": 1})
    heights = [h for _, h in bars(ax)]
    assert heights == [0, 1, 2, 1, 0, 0, 1, 1]
    assert sum(heights) == 6
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["softmax (4 runs)", "L2 (2 runs)", "expected rank"]
    drawn(ax)


@pytest.mark.parametrize(
    "ranks, options",
    [
        ([0.5], {}),
        ([[1]], {}),
        ([-2], {}),
        ({}, {}),
        ([4], {"d": 3}),
        ([1], {"d": 3, "expected": 4}),
        ([1], {"undecided": -1}),
        ({"a": [1], "b": [1]}, {"undecided": 2}),
        ({"a": [1]}, {"expected": {"b": 1}}),
    ],
)
def test_ranks_that_are_none(ranks, options) -> None:
    with pytest.raises(InputError):
        plot_ranks(ranks, **options)


def test_refusals() -> None:
    tokens = SimpleNamespace(times=np.zeros(1), states=SimpleNamespace(points=np.zeros((1, 3, 2))))
    for picture in (plot_gaussian_run, plot_spectrum, plot_cone, plot_disc):
        with pytest.raises(InputError, match="of a Gaussian run"):
            picture(tokens)
    for picture in (plot_cone, plot_disc):
        with pytest.raises(InputError, match="run 1 of dimension 3"):
            picture([to_a_line(), diagonal(LONG, 1.0, 1.0, 1.0)])
        with pytest.raises(InputError, match="nothing to draw"):
            picture([])
    for name, value in (("ellipses", 1), ("deviations", 0.0)):
        with pytest.raises(InputError, match=f"{name} must be"):
            plot_gaussian_run(to_a_line(), **{name: value})
    with pytest.raises(InputError, match="height must be positive"):
        plot_cone(to_a_line(), height=-1.0)


def test_axes_of_the_user_are_used_and_must_fit() -> None:
    figure = plt.figure()
    flat, deep = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2, projection="3d")
    before = dict(plt.rcParams)
    assert plot_spectrum(to_a_line(), flat, title="mine") is flat
    assert flat.get_title() == "mine"
    assert plot_cone(to_a_line(), deep, legend=False) is deep
    assert deep.get_legend() is None
    assert dict(plt.rcParams) == before
    with pytest.raises(InputError, match="two-dimensional axes"):
        plot_cone(to_a_line(), flat)
    for picture in (plot_gaussian_run, plot_spectrum, plot_disc):
        with pytest.raises(InputError, match="three-dimensional axes"):
            picture(to_a_line(), deep)


def test_numbers_are_told_apart() -> None:
    assert [number(x) for x in (0.0, 0.1374, 1e8, 2.5e-7)] == ["0", "0.137", "10^{8}", "2.5\\times10^{-7}"]
    assert numbers(np.array([0.0, 1.2441, 1.2443])) == ["0", "1.2441", "1.2443"]

"""Pictures of densities, rates, bounds and clusters show what was computed, and refuse what cannot be drawn."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import colors

from meanformer.diagnostics.history import ClusterHistory
from meanformer.flows.trajectory import Trajectory
from meanformer.measures.density import Density, with_masses
from meanformer.plots import style
from meanformer.plots.bounds import plot_checked, plot_claims, plot_slack
from meanformer.plots.clusters import plot_clusters
from meanformer.plots.densities import enclosing_level, plot_density, plot_density_run
from meanformer.plots.rates import plot_rate
from meanformer.theory.check import Checked, Claim
from meanformer.theory.meanfield import MeanFieldRate
from oracles.refusals import assert_refused

TIMES = np.array([0.0, 0.1, 0.4, 1.0])
SOFTMAX = type("Softmax", (), {})()  # pictures know the field by its name only


@pytest.fixture(autouse=True)
def drawn_figures():
    """Every figure of a test can be drawn: warnings are errors."""
    yield
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def labels_of(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def density_run(masses, low, high, positions=None, times=TIMES):
    """A run from masses with a leading axis of times."""
    masses = np.asarray(masses, float)
    low, high = np.atleast_1d(low), np.atleast_1d(high)
    side = (high - low) / np.asarray(masses.shape[-len(low) :])
    first = Density(masses[0] / masses[0].sum() / np.prod(side), low, high, positions)
    return SimpleNamespace(times=times, states=with_masses(first, jnp.asarray(masses)), field=SOFTMAX)


def normal_masses(spreads, cells=60, d=1):
    """Centred Gaussians on [-6, 6]^d, normalised on the grid."""
    x = -6 + 12 * (np.arange(cells) + 0.5) / cells
    rows = np.exp(-(x**2) / (2 * np.asarray(spreads, float)[:, None] ** 2))
    rows /= rows.sum(axis=1, keepdims=True)
    return x, rows if d == 1 else rows[:, :, None] * rows[:, None, :]


def normal_run(d):
    return density_run(normal_masses([1.0, 0.8, 0.6, 0.4], d=d)[1], [-6.0] * d, [6.0] * d)


def masked_run():
    """Three positions of unequal mass, their laws moved by one, two and three cells from time to time."""
    law = normal_masses([0.5])[1][0]
    rows = np.stack([[np.roll(law, k * (i + 1)) for i in range(3)] for k in range(4)])
    return density_run(rows * np.array([0.5, 0.3, 0.2])[:, None], -6.0, 6.0, [0.1, 0.5, 1.0])


def test_map_over_time_is_the_density_at_the_save_times() -> None:
    run = normal_run(1)
    ax = plot_density_run(run, moments=True)
    mesh = ax.collections[0]
    np.testing.assert_array_equal(mesh.get_array().reshape(60, 4), np.asarray(run.states.values).T)
    corners = mesh.get_coordinates()
    # A density stands for the times that are nearer to its own than to another.
    np.testing.assert_allclose(corners[0, :, 0], [0, 0.05, 0.25, 0.7, 1.0], rtol=1e-14)
    np.testing.assert_allclose(corners[:, 0, 1], np.linspace(-6, 6, 61), rtol=1e-14, atol=1e-14)
    mean, below, above = (line.get_ydata() for line in ax.lines)
    spread = np.sqrt(np.asarray(run.states.covariance)[:, 0, 0])
    np.testing.assert_allclose(mean, np.asarray(run.states.mean)[:, 0], atol=1e-13)
    np.testing.assert_allclose(above, mean + 2 * spread, rtol=1e-12)
    np.testing.assert_allclose(below, mean - 2 * spread, rtol=1e-12)
    assert ax.get_title() == "Softmax, density in $\\mathbb{R}^{1}$, $60$ cells"
    run.system = SimpleNamespace(mu=run.states[0])
    assert Trajectory.plot(run).get_title() == ax.get_title()
    assert ax.get_xlim() == (0, 1)
    # What is seen fills the picture: exp(-x^2/2) = 1/196 at 3.25, less than the box.
    assert 3.2 < ax.get_ylim()[1] < 4.0
    assert not plot_density_run(run).lines
    lost = density_run(np.asarray(run.states.masses) * np.array([[1], [1], [1], [0.98]]), -6.0, 6.0)
    assert plot_density_run(lost).get_title().endswith("$2\\%$ of the mass lost")


@pytest.mark.parametrize("scale, shade", [("linear", 0.25), ("root", 0.5), ("log", 1 - np.log(4) / np.log(1e6))])
def test_scales_of_colours(scale, shade) -> None:
    run = normal_run(1)
    ax = plot_density_run(run, scale=scale)
    mesh, highest = ax.collections[0], float(np.asarray(run.states.values).max())
    assert mesh.norm(highest) == pytest.approx(1)
    assert mesh.norm(highest / 4) == pytest.approx(shade)
    bar = ax.figure.axes[-1]
    assert bar.get_ylabel() == r"$\rho_t(x)$"
    np.testing.assert_allclose(bar.get_ylim(), [1e-6 * highest if scale == "log" else 0, highest], rtol=1e-12)
    assert len(plot_density_run(run, colour_bar=False).figure.axes) == 1
    shades = mesh.cmap(np.linspace(0, 1, 50))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(shades) < 0).all()  # more mass is more ink


def test_graphs_at_the_save_times_next_to_those_asked_for() -> None:
    run = normal_run(1)
    values = np.asarray(run.states.values)
    ax = plot_density_run(run, at=[0.12, 0.9])
    for line, k in zip(ax.lines, (1, 3), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values[k])
        np.testing.assert_allclose(line.get_xdata(), normal_masses([1.0])[0], rtol=1e-14)
    assert labels_of(ax) == ["$t=0.1$", "$t=1$"]
    ax = plot_density_run(run, times=3, scale="log")
    assert labels_of(ax) == ["$t=0$", "$t=0.4$", "$t=1$"]
    assert ax.get_yscale() == "log"
    ax = plot_density_run(run, at=0.4)
    assert ax.get_title().endswith("cells, $t=0.4$")
    assert ax.get_legend() is None
    # A run of one time, and one density: a graph.
    short = SimpleNamespace(times=TIMES[:1], states=run.states[:1], field=SOFTMAX)
    for picture in (plot_density_run(short), plot_density(run.states[0])):
        np.testing.assert_array_equal(picture.lines[0].get_ydata(), values[0])


def test_level_around_a_share_of_the_mass() -> None:
    masses = np.array([[2.0, 5.0], [0.0, 3.0]])
    assert [enclosing_level(masses, share) for share in (0.1, 0.5, 0.51, 0.8, 0.81, 1.0)] == [5, 5, 3, 3, 2, 2]
    # A Gaussian of the plane is above rho_max (1 - p) on the ellipse that holds the share p: up to N^(-2/3), since a
    # disc over N cells has N + O(N^(1/3)) of their centres; the smaller one here has 4800.
    masses = normal_masses([1.0], cells=400, d=2)[1][0]
    for share in (0.5, 0.95):
        assert enclosing_level(masses, share) == pytest.approx((1 - share) * masses.max(), rel=4800 ** (-2 / 3))


def test_contours_of_the_plane() -> None:
    run = normal_run(2)
    ax = plot_density_run(run)
    filled, start = ax.collections[:2]
    highest = float(np.asarray(run.states.values)[-1].max())
    np.testing.assert_allclose(filled.levels, highest * (np.arange(1, 15) / 14) ** 2, rtol=1e-12)
    # The rightmost point of a contour is between the two middle rows of cells, where it crosses both of them.
    x, (first, *_, last) = normal_masses([1.0])[0], np.asarray(run.states.values)
    around = sorted(enclosing_level(first, share) for share in (0.5, 0.95))
    for collection, values, levels in ((filled, last, filled.levels[:1]), (start, first, around)):
        for path, level in zip(collection.get_paths(), levels, strict=False):
            expected = np.interp(-level, -values[30:, 30], x[30:])
            np.testing.assert_allclose(np.abs(path.get_extents().extents), expected, rtol=1e-9)
    assert labels_of(ax) == ["start: 50 and 95 % of the mass"]
    assert (ax.get_aspect(), ax.get_xlabel(), ax.get_ylabel()) == (1.0, "$x_1$", "$x_2$")
    assert ax.get_title() == "Softmax, density in $\\mathbb{R}^{2}$, $60\\times60$ cells, $t=1$"
    assert len(plot_density_run(run, start=False).collections) == 1
    assert len(plot_density_run(run, at=0.0).collections) == 1  # the start itself
    plot_density(run.states[0], scale="log")


def test_the_axes_of_the_plane_are_not_swapped() -> None:
    masses = np.zeros((1, 20, 10))
    masses[0, 14:17, 2:4] = 1 / 6  # x_1 in [4, 7], x_2 in [20, 40]
    run = density_run(masses, [-10.0, 0.0], [10.0, 100.0], times=TIMES[:1])
    box = plot_density(run.states[0]).collections[0].get_paths()[0].get_extents()
    assert 3 < box.x0 < 4.6 < 6.4 < box.x1 < 8
    assert 10 < box.y0 < 26 < 34 < box.y1 < 50


def test_panels_share_levels_and_limits() -> None:
    run = normal_run(2)
    axes = plot_density_run(run, times=4)
    assert [ax.get_title() for ax in axes] == ["$t=0$", "$t=0.4$", "$t=1$"]  # two are next to the same save time
    assert len({tuple(ax.collections[0].levels) for ax in axes}) == 1
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1
    assert [len(ax.collections) for ax in axes] == [1, 2, 2]
    assert axes[0].figure.get_suptitle().startswith("Softmax, density")
    mine = plt.subplots(1, 2)[1]
    assert list(plot_density_run(run, list(mine), at=[0.0, 1.0])) == list(mine)
    assert mine[0].figure.get_suptitle() == ""
    assert_refused(lambda: plot_density_run(run, mine, times=3), ["2 axes for 3 panels"])


def test_laws_over_positions() -> None:
    run = masked_run()
    ax = plot_density_run(run)
    mesh, law = ax.collections[0], normal_masses([0.5])[1][0] / 0.2
    shown = mesh.get_array().reshape(60, 3).T
    np.testing.assert_allclose(shown, [np.roll(law, 3 * (i + 1)) for i in range(3)], rtol=1e-12)
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], [-0.1, 0.3, 0.75, 1.25], rtol=1e-12)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 0.2 * 3 * np.array([1, 2, 3]), rtol=1e-12)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.1, 0.5, 1.0])
    assert ax.get_xlabel() == "position $s$"
    assert not plot_density_run(run, moments=False).lines
    axes = plot_density_run(run, at=[0.0, 1.0])
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), 0, atol=1e-12)
    assert axes[0].get_ylim() == axes[1].get_ylim()
    empty = density_run(np.asarray(run.states.masses)[:1] * [[[1.0], [0.0], [1.0]]], -6.0, 6.0, [0.1, 0.5, 1.0])
    ax = plot_density(empty.states[0])
    assert not ax.collections[0].get_array().reshape(60, 3)[:, 1].any()
    np.testing.assert_array_equal(np.isnan(ax.lines[0].get_ydata()), [False, True, False])


def test_refusals_of_densities() -> None:
    run, tokens = normal_run(1), SimpleNamespace(times=TIMES, states=np.zeros((4, 3, 1)))
    assert_refused(lambda: plot_density_run(tokens), ["run of a density", "mf.to_density"])
    assert_refused(lambda: plot_density_run(run.states[0]), ["run of a density", "plot_density"])
    assert_refused(lambda: plot_density(np.ones(3)), ["of a density", "array of shape (3,)"])
    assert_refused(lambda: plot_density(run.states), ["one density", "(4,)", "run.states[-1]"])
    assert_refused(lambda: plot_density_run(run, scale="loga"), ["'log'"])
    assert_refused(lambda: plot_density_run(run, at=1.5), ["at = 1.5", "[0, 1]"])
    assert_refused(lambda: plot_density_run(run, at=[]), ["one or more"])
    assert_refused(lambda: plot_density_run(run, at=0.5, times=2), ["at= and times="])
    assert_refused(lambda: plot_density_run(run, times=0), ["times must be"])
    assert_refused(lambda: plot_density_run(run, moments=1), ["moments must be True or False"])


def made_rate(slope=-0.5, shrink=1.0, kernel=0.3, statistic="covariance") -> MeanFieldRate:
    n = np.array([100, 200, 400, 800])
    errors = tuple(3.0 * size**slope * np.array([0.5, 1.0, 1.5, 0.0]) for size in n)
    rms = shrink * np.array([np.sqrt(np.mean(row**2)) for row in errors])
    around = (slope - 0.1, slope + 0.1)
    return MeanFieldRate(n, errors, rms, slope, around, statistic, "the exact Gaussian", kernel, 0.5)


@pytest.mark.parametrize("shrink", [1.0, 0.9])
def test_rate_shows_errors_fit_and_theory(shrink) -> None:
    rate = made_rate(slope=-0.4, shrink=shrink)
    ax = rate.plot()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    dots = ax.collections[0].get_offsets()
    assert len(dots) == 12  # no error is no place on a logarithmic axis
    np.testing.assert_allclose(dots[:3, 1], shrink * rate.errors[0][:3], rtol=1e-12)
    curves = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_allclose(curves["root mean square"], np.stack([rate.n, rate.rms], axis=1), rtol=1e-14)
    # The errors are a power of n, so that the fit goes through them.
    fit = curves["fit: slope $-0.400$  (95 %: $-0.500$ to $-0.300$)"]
    np.testing.assert_allclose(fit[:, 1], rate.rms[0] * (fit[:, 0] / 100) ** -0.4, rtol=1e-12)
    band = ax.collections[1].get_paths()[0].get_extents()
    n, middle = 800 * 1.15, np.sqrt(200 * 400)
    assert (band.x1, band.y0) == pytest.approx((n, rate.rms[0] * (middle / 100) ** -0.4 * (n / middle) ** -0.5))
    theory = curves["theory: $n^{-1/2}$"]
    np.testing.assert_allclose(theory[:, 1] * np.sqrt(theory[:, 0]), theory[0, 1] * np.sqrt(theory[0, 0]), rtol=1e-12)
    assert (np.interp(rate.n, *theory.T) < rate.rms).all()
    assert [text.get_text() for text in ax.get_xticklabels()] == ["100", "200", "400", "800"]
    assert ax.get_title() == "Covariance at $t=0.5$, against the exact Gaussian"


def test_rate_says_where_the_theory_has_none() -> None:
    assert "1.20\\geq" in plot_rate(made_rate(kernel=1.2)).get_title()
    assert "geq" not in plot_rate(made_rate(kernel=np.nan, statistic="mean")).get_title()
    assert_refused(lambda: plot_rate([0.1, 0.2]), ["mean-field rate", "type list"])
    nothing = dataclasses.replace(made_rate(), rms=np.zeros(4))
    assert_refused(lambda: plot_rate(nothing), ["logarithmic", "errors above 0"])


RADIUS = (TIMES, 2 * np.exp(TIMES), 2 * np.exp(0.9 * TIMES))
CLAIMS = (
    Claim("support radius R, at t = 1", 4.0, 3.0),
    Claim("Lipschitz in the measure, L_mu", 1e9, 10.0),
    Claim("stability: log of W_2(t) / W_2(0)", np.inf, 2.0),
    Claim("weak residual of the PDE", None, 2e-6, "no bound"),
)


def made_checked(claims=CLAIMS, **paths) -> Checked:
    return Checked(tuple(claims), "Softmax, 40 tokens in R^2: 15 steps; REACHED", paths)


def test_bounds_are_dashed_and_measurements_solid() -> None:
    ax = made_checked(**{"support radius R(t)": RADIUS}).plot()
    bound, measured, above = ax.lines
    for line, values, dashed in ((bound, RADIUS[1], True), (measured, RADIUS[2], False)):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([TIMES, values], axis=1))
        assert line.is_dashed() == dashed
    assert not len(above.get_xdata())
    assert ax.get_title() == "Softmax, 40 tokens in $\\mathbb{R}^{2}$: all 2 bounds hold"
    assert ax.get_ylabel() == "support radius $R(t)$"
    slack = 100 * (1 - np.exp(-0.1))
    assert labels_of(ax) == ["support radius $R(t)$", f"slack ${slack:.3g}\\%$ at the end", "bound", "measured"]
    assert ax.get_yscale() == "linear"


def test_bounds_far_from_the_measurement_and_violations() -> None:
    far = np.array([1.0, 1e3, 1e6, np.inf])
    broken = (TIMES, np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0 + 1e-9, 2.5, 2.0, 5.0]))
    claims = [*CLAIMS, Claim("trace", 4.0, 5.0)]
    ax = plot_checked(made_checked(claims, radius=(TIMES, far, np.ones(4)), trace=broken))
    assert ax.get_yscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1.0, 1e3, 1e6, np.nan])
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[0.1, 2.5], [1.0, 5.0]])  # up to rounding 1 holds
    assert labels_of(ax)[-1] == "violated"
    assert ax.get_title().endswith("1 of 3 bounds violated")
    assert plot_checked(made_checked(radius=RADIUS), scale="log").get_yscale() == "log"


def test_slack_of_each_claim_where_no_path_is() -> None:
    ax = made_checked([*CLAIMS, Claim("trace", 4.0, 5.0), Claim("rank", 1.0, 1e9)]).plot()
    bars = [(bar.get_y() + bar.get_height() / 2, bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(bars, [(0, 0.25), (1, 1 - 1e-8), (4, -0.25), (5, -0.25)], rtol=1e-12)
    red = [colors.same_color(bar.get_facecolor()[:3], style.PALETTE[1]) for bar in ax.patches]
    assert red == [False, False, True, True]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[:2] == ["support radius $R$, at $t=1$", "Lipschitz in the measure, $L_{\\mu}$"]
    assert names[2] == "stability: log of $W_{2}(t)$ / $W_{2}(0)$"
    words = [text.get_text() for text in ax.texts]
    assert words[:2] == [r"$3\leq4$", r"$10\leq10^{9}$"]
    assert words[2:4] == ["the bound is beyond the floating-point range: $2$", r"no bound: $2\times10^{-6}$"]
    assert words[4] == "$5>4$"
    plot_claims(made_checked([Claim("stability of W_2", None, np.nan, "no constant known")]))
    assert_refused(lambda: plot_claims(made_checked([])), ["nothing to draw"])
    for picture in (plot_checked, plot_claims):
        assert_refused(lambda picture=picture: picture(CLAIMS), ["checked run", "type tuple", "mf.check(run).plot()"])


def test_slack_of_many_runs() -> None:
    rates = np.linspace(0.1, 1.0, 7)
    ratios = np.exp(-rates[:, None] * TIMES)
    ax = plot_slack(TIMES, ratios)
    curves = [line.get_ydata() for line in ax.lines]
    np.testing.assert_array_equal(curves[:7], ratios)
    np.testing.assert_array_equal(curves[7], np.exp(-rates[3] * TIMES))
    np.testing.assert_array_equal(curves[8], [1, 1])
    assert labels_of(ax) == ["median", "bound"]
    assert ax.get_title() == "7 runs, all below the bound; at the end $0.368$ to $0.905$ of it"
    assert (ax.get_yscale(), ax.get_ylim()[0]) == ("linear", 0)
    # Times of their own, a wide span, and one that breaks the bound.
    ax = plot_slack([TIMES, TIMES[:2]], [np.exp(-9 * TIMES), np.array([1.0, 1.1])])
    assert ax.get_yscale() == "log"
    assert [line.get_color() for line in ax.lines[:2]] == [style.PALETTE[0], style.PALETTE[1]]
    assert ax.get_title() == "2 runs, 1 above the bound"
    for wrong in (np.ones(4), np.ones((2, 3)), [], None, -np.ones((2, 4)), np.full((1, 4), np.nan)):
        assert_refused(lambda wrong=wrong: plot_slack(TIMES, wrong), ["its times and its ratios", "(runs, T)"])


def made_history() -> tuple[ClusterHistory, SimpleNamespace]:
    """Four tokens on a line; the first two are together from 0.1, the others from 0.4; the last has no weight."""
    labels = np.array([[0, 1, 2, 3, -1], [0, 0, 1, 2, -1], [0, 0, 1, 1, -1], [0, 0, 1, 1, -1]])
    history = ClusterHistory(TIMES, np.array([4, 3, 2, 2]), labels, np.full(4, 0.1), np.array([0.1, 0.4]))
    points = np.linspace(0, 1, 4)[:, None, None] * np.array([-1.0, -1.1, 1.0, 1.2, 0.0])[:, None]
    return history, SimpleNamespace(times=TIMES, points=points, propagators=None)


def test_clusters_are_counted_in_steps() -> None:
    history, _ = made_history()
    ax = plot_clusters(history)
    steps, _, settled = ax.lines
    np.testing.assert_array_equal(steps.get_xydata(), np.stack([TIMES, history.count], axis=1))
    assert steps.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(settled.get_xdata(), [0.4, 0.4])
    assert labels_of(ax) == ["settled at $t=0.4$"]
    assert ax.get_title() == "5 tokens, 2 clusters at $t=1$"
    assert (ax.get_yscale(), ax.get_ylim()) == ("linear", (0, 4.5))
    many = dataclasses.replace(history, count=np.array([40, 9, 1, 1]), since=np.zeros(1))
    ax = plot_clusters(many)
    assert ax.get_yscale() == "log"
    assert ax.get_legend() is None  # settled from the start
    assert ax.get_title() == "5 tokens, 1 cluster at $t=1$"


def test_tokens_in_the_colours_of_their_last_clusters() -> None:
    history, run = made_history()
    above, below = plot_clusters(history, run=run)
    paths, rings = above.lines[:5], above.lines[5:]
    for i, path in enumerate(paths):
        np.testing.assert_array_equal(path.get_xydata(), np.stack([TIMES, run.points[:, i, 0]], axis=1))
    shades = [colors.to_hex(path.get_color()).upper() for path in paths]
    assert shades == [style.PALETTE[0]] * 2 + [style.PALETTE[1]] * 2 + [style.FAINT]
    # A ring where a cluster is complete, amid its tokens.
    middle = [[0.1, run.points[1, :2, 0].mean()], [0.4, run.points[2, 2:4, 0].mean()]]
    np.testing.assert_allclose([ring.get_xydata()[0] for ring in rings], middle, rtol=1e-14)
    assert (above.get_ylabel(), below.get_xlabel()) == ("token $x$", "time $t$")
    # More clusters than colours are told apart by their place.
    n = 9
    alone = ClusterHistory(TIMES, np.full(4, n), np.tile(np.arange(n), (4, 1)), np.full(4, 0.1), np.zeros(n))
    spread = SimpleNamespace(times=TIMES, points=np.tile(np.arange(n, 0.0, -1)[:, None], (4, 1, 1)), propagators=None)
    above, _ = plot_clusters(alone, run=spread)
    assert len({colors.to_hex(line.get_color()) for line in above.lines}) == n


def test_clusters_that_cannot_be_drawn() -> None:
    history, run = made_history()
    assert_refused(lambda: plot_clusters(run), ["clusters over time", "mf.clusters_along(run)"])
    plane = SimpleNamespace(times=TIMES, points=np.zeros((4, 5, 2)), propagators=None)
    assert_refused(lambda: plot_clusters(history, run=plane), ["(4, 5, 2)", "colour=along.labels[-1]"])
    fewer = SimpleNamespace(times=TIMES, points=run.points[:, :3], propagators=None)
    assert_refused(lambda: plot_clusters(history, run=fewer), ["(4, 5)", "(4, 3)"])
    assert_refused(lambda: plot_clusters(history, plt.subplots()[1], run=run), ["a pair of axes"])


def test_axes_of_the_user_are_used_and_must_fit() -> None:
    before, deep = dict(plt.rcParams), plt.figure().add_subplot(projection="3d")
    history, tokens = made_history()
    pictures = {plot_density_run: normal_run(1), plot_rate: made_rate(), plot_claims: made_checked()}
    for picture, what in {**pictures, plot_checked: made_checked(radius=RADIUS), plot_clusters: history}.items():
        ax = plt.figure().add_subplot()
        assert picture(what, ax, title="mine") is ax
        assert ax.get_title() == "mine"
        assert_refused(lambda picture=picture, what=what: picture(what, deep), ["three-dimensional axes"])
    mine = plt.subplots(2, 1)[1]
    assert list(plot_clusters(history, mine, run=tokens)) == list(mine)
    assert dict(plt.rcParams) == before

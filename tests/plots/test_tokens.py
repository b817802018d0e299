"""Pictures and films are made, show something, and refuse what cannot be drawn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import meanformer as mf
from meanformer._checks import InputError
from meanformer.plots import style
from meanformer.plots.panels import Panel, panel_figure
from meanformer.plots.tokens import animate_run, plot_run, square_limits
from plots._runs import token_run


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def runs() -> dict[int, mf.Trajectory]:
    return {d: token_run(d, 9, discrete=True) for d in (1, 2, 3, 5)}


@pytest.fixture(scope="module")
def rescaled_flow() -> mf.Trajectory:
    tokens = mf.uniform_ball(2).sample(9, key=jax.random.key(0)).with_positions()
    I = jnp.eye(2)
    return mf.flow(mf.Causal(mf.Softmax(I, I, I)), tokens, t1=1.0, frame=mf.Rescaled(), save=6)


def pixels(path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), float)


def with_weights(run: mf.Trajectory, weights) -> mf.Trajectory:
    mu = mf.PointCloud(run.system.mu.points, weights)
    return eqx.tree_at(lambda r: r.system.mu.weights, run, mu.weights)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_picture_is_not_blank(runs, d, tmp_path):
    ax = runs[d].plot()
    ax.figure.savefig(tmp_path / "run.png")
    image = pixels(tmp_path / "run.png")
    assert min(image.shape[:2]) > 300
    assert image.std() > 5  # a blank page has 0


def test_picture_shows_the_final_tokens_where_they_are(runs):
    ax = plot_run(runs[2], paths=False, start=False)
    (final,) = ax.collections
    np.testing.assert_allclose(final.get_offsets(), runs[2].final.points)
    assert ax.get_aspect() == 1
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    assert x1 - x0 == pytest.approx(y1 - y0)


def test_curves_of_dimension_one(runs):
    ax = plot_run(runs[1])
    assert len(ax.lines) == 9
    np.testing.assert_allclose(ax.lines[3].get_ydata(), runs[1].points[:, 3, 0])
    np.testing.assert_allclose(ax.lines[3].get_xdata(), runs[1].times)


def test_paths_are_whole_and_grow_stronger(runs):
    ax = plot_run(runs[2], start=False)
    paths, _ = ax.collections
    n = runs[2].system.mu.n
    pieces = paths.get_segments()[5::n]  # of token 5
    strengths = paths.get_colors()[5::n, 3]
    assert len(pieces) == len(strengths) == 4
    assert (np.diff(strengths) > 0).all()
    assert np.ptp(paths.get_colors()[5::n, :3], axis=0).max() == 0
    whole = np.concatenate([pieces[0][:1], *(piece[1:] for piece in pieces)])
    np.testing.assert_allclose(whole, runs[2].points[:, 5])


@pytest.mark.parametrize("d", [2, 3])
def test_paths_of_many_times_have_pieces_of_unequal_length(d, tmp_path):
    ax = plot_run(token_run(d, 9, times=np.linspace(0, 1, 21)))
    ax.figure.savefig(tmp_path / "run.png")
    assert len({len(piece) for piece in ax.collections[0].get_segments()}) == 2


def test_axes_of_the_user_are_used_and_must_fit(runs):
    _, ax = plt.subplots()
    assert runs[2].plot(ax, title="mine") is ax
    assert ax.get_title() == "mine"
    with pytest.raises(InputError, match="two-dimensional axes for d = 3"):
        runs[3].plot(ax)


def test_settings_of_the_user_are_left_alone(runs):
    before = dict(plt.rcParams)
    plot_run(runs[2])
    assert dict(plt.rcParams) == before


def test_what_a_backend_sets_inside_the_style_stays():
    """That of notebooks turns `interactive` on when the first figure is made, and shows no figure without it."""
    before = dict(plt.rcParams)
    try:
        with style.style():
            plt.ion()
            assert plt.rcParams["axes.facecolor"] == style.PAPER
        assert dict(plt.rcParams) == before | {"interactive": True}
    finally:
        plt.ioff()


@pytest.mark.parametrize("coordinates, d", [((0, 4), 2), ((1, 2, 3), 3), ((2,), 1)])
def test_coordinates_of_high_dimension(runs, coordinates, d):
    ax = plot_run(runs[5], coordinates=coordinates)
    assert (ax.name == "3d") == (d == 3)
    with pytest.raises(InputError, match="coordinates"):
        plot_run(runs[5])


@pytest.mark.parametrize("coordinates", [(), (0, 1, 2, 3), (0, 0), (0, 5), (-1,)])
def test_coordinates_that_cannot_be_drawn(runs, coordinates):
    with pytest.raises(InputError, match="one to three different numbers from 0 to 4"):
        plot_run(runs[5], coordinates=coordinates)


def final_colours(ax) -> np.ndarray:
    return ax.collections[-1].get_facecolors()[:, :3]


def test_colours(runs, rescaled_flow):
    labels = np.arange(9) % 3
    by_label = final_colours(plot_run(runs[2], colour=labels))
    assert len(np.unique(by_label, axis=0)) == 3
    np.testing.assert_array_equal(by_label, style.category_colours(labels))
    assert len(np.unique(final_colours(plot_run(runs[2], colour="black")), axis=0)) == 1
    by_value = final_colours(plot_run(runs[2], colour=np.linspace(0, 1, 9)))
    # Masked tokens are coloured by their position, dark to light.
    np.testing.assert_allclose(final_colours(plot_run(rescaled_flow)), by_value)
    assert (np.diff(by_value @ [0.2126, 0.7152, 0.0722]) > 0).all()
    for bad in (np.zeros(3), ["red"] * 9, "no colour"):
        with pytest.raises(InputError, match="colour must be"):
            plot_run(runs[2], colour=bad)


def test_default_colours_are_the_clusters():
    points = np.array([[0.0, 0.0], [0.0, 1e-4], [5.0, 0.0], [5.0, 1e-4]])
    I = jnp.eye(2)
    run = mf.layers(mf.L2(I, I, 0.01 * I), mf.PointCloud(points), depth=4)
    colours = final_colours(plot_run(run))
    np.testing.assert_array_equal(colours[0], colours[1])
    np.testing.assert_array_equal(colours[2], colours[3])
    assert (colours[0] != colours[2]).any()


def test_weights_are_areas_and_zero_weight_is_dust(runs):
    weights = np.array([0.0, 0.2] + [0.8 / 7] * 7)
    sizes = plot_run(with_weights(runs[2], weights)).collections[-1].get_sizes()
    assert 0 < sizes[0] < sizes[2] < sizes[1]
    assert sizes[1] / sizes[2] == pytest.approx(0.2 / (0.8 / 7))


def test_a_run_that_left_the_range_is_drawn_up_to_there():
    I = jnp.eye(2)
    tokens = mf.PointCloud([[3.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    run = mf.layers(mf.Unnormalised(3 * I, 3 * I, I), tokens, depth=4)
    assert run.outcome.kind == "NOT_FINITE"
    ax = plot_run(run)
    assert np.isfinite(ax.collections[-1].get_offsets()).all()
    assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()


def test_square_limits_hold_all_points():
    centre, half = square_limits(np.array([[0.0, 1.0], [4.0, 2.0]]), margin=0.1)
    np.testing.assert_allclose(centre, [2.0, 1.5])
    assert half == pytest.approx(2.2)
    assert square_limits(np.ones((3, 2)))[1] > 0  # a single point still has a picture


def film(path) -> list[np.ndarray]:
    with Image.open(path) as image:
        frames = []
        for k in range(image.n_frames):
            image.seek(k)
            frames.append(np.asarray(image.convert("RGB"), float))
    return frames


@pytest.mark.parametrize("d", [1, 3])
def test_film_of_layers(runs, d, tmp_path):
    path = runs[d].animate(tmp_path / "deep" / "run.gif", fps=3, frames=3)
    assert path == tmp_path / "deep" / "run.gif"
    frames = film(path)
    assert len(frames) >= 3
    assert all(frame.std() > 5 for frame in frames)
    assert np.abs(frames[0] - frames[-1]).max() > 50


def test_film_of_a_flow_moves(rescaled_flow, tmp_path):
    frames = film(animate_run(rescaled_flow, tmp_path / "run.gif", fps=2, frames=4))
    assert len(frames) >= 4
    assert np.abs(frames[0] - frames[1]).max() > 50


@pytest.mark.parametrize("name, options", [("run.avi", {}), ("run.gif", {"frames": 1}), ("run.gif", {"fps": 0})])
def test_film_refuses(runs, tmp_path, name, options):
    with pytest.raises(InputError):
        runs[2].animate(tmp_path / name, **options)
    assert not (tmp_path / name).exists()


def test_panels(runs, tmp_path):
    circle = runs[2]
    panels = [
        Panel(runs[2], "first", "$x$", "one\ntwo", still=True),
        Panel(runs[2], "second", "$y$", "", view=1.0),
        Panel(circle, "third", "$z$", "", circle=True),
    ]
    figure = panel_figure(panels, "heading", "footer", columns=2)
    figure.savefig(tmp_path / "panels.png")
    assert pixels(tmp_path / "panels.png").std() > 5
    assert [ax.texts[0].get_text() for ax in figure.axes] == ["first", "second", "third"]
    assert all(ax.get_aspect() == 1 for ax in figure.axes)
    boxes = [ax.get_position() for ax in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_palette_is_told_apart_on_paper():
    """Any two colours, and each of them and the paper, differ clearly in CIE Lab."""

    def lab(colour: str) -> np.ndarray:
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        f = np.cbrt(matrix @ linear / np.array([0.9505, 1.0, 1.089]))
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    colours = [lab(c) for c in (*style.PALETTE, style.PAPER)]
    assert min(np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]) > 20

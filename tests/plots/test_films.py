"""Films of every kind of run: they move, they are whole or absent, and formats are told apart."""

import shutil

import numpy as np
import pytest
from matplotlib.axis import XAxis
from PIL import Image

from meanformer._checks import InputError
from meanformer.plots import film, tokens
from meanformer.plots.film import animation_suffix
from meanformer.plots.tokens import _clock, _film_points
from plots._runs import LONG, run, token_run

FILMS = [
    "tokens in dimension 1",
    "tokens in dimension 3",
    "layers",
    "one token",
    "one time",
    "sample",
    "lost",
    "Gaussian in dimension 1",
    "Gaussian in dimension 2",
    "Gaussian in dimension 10",
    "density in dimension 1",
    "density in dimension 2",
    "density with positions",
]


def pictures(path) -> list[np.ndarray]:
    with Image.open(path) as image:
        found = []
        for k in range(image.n_frames):
            image.seek(k)
            found.append(np.asarray(image.convert("RGB"), float))
    return found


@pytest.mark.parametrize("kind", FILMS)
def test_it_moves(kind, tmp_path):
    path = run(kind).animate(tmp_path / "new" / "film.gif", frames=3, fps=2)
    assert [file.name for file in path.parent.iterdir()] == ["film.gif"]  # nothing half done is left
    found = pictures(path)
    assert all(picture.std() > 5 for picture in found)
    if kind != "one time":
        assert np.abs(found[0] - found[-1]).max() > 50
    with Image.open(path) as image:
        image.seek(image.n_frames - 1)
        assert image.info["duration"] >= 1000 * film.REST  # the end rests


@pytest.mark.parametrize("kind", ["tokens in dimension 1", "layers", "lost", "Gaussian in dimension 10"])
def test_what_stays_is_drawn_once_and_pictures_are_the_same(kind, tmp_path, monkeypatch):
    images, shares, drawn = film._images, [], []
    draw = XAxis.draw
    monkeypatch.setattr(XAxis, "draw", lambda self, *args: drawn.append(self) or draw(self, *args))

    def compared(figure, pictures):
        for image in images(figure, pictures):
            last = np.asarray(image)
            yield image
        figure.canvas.draw()
        whole = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        shares.append(np.mean(np.abs(whole.astype(float) - last).max(axis=-1) > 40))

    monkeypatch.setattr(film, "_images", compared)
    run(kind).animate(tmp_path / "film.gif", frames=7)
    assert len(drawn) <= 4  # to measure, for the layout, for what stays; and above
    # What moves lies above the lines of the axes: a few points where it touches them.
    assert shares[0] < 2e-4


@pytest.mark.parametrize(
    "title, lines", [("short", 1), ("a title that is far too long for the clock to stand beside it", 2)]
)
def test_a_long_title_stands_above_the_clock(title, lines, tmp_path, monkeypatch):
    seen = []

    def look(path, figure, draw, *others):
        figure.canvas.draw()
        (ax,) = figure.axes
        seen.append((ax.get_title("left"), ax.get_title("right")))
        return path

    monkeypatch.setattr(tokens, "write_film", look)
    run("layers").animate(tmp_path / "film.gif", title=title)
    assert seen == [(title + "\n" * (lines - 1), "t = 1.00")]


def test_a_film_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(film, "_write_gif", lambda path, *others: path.write_text("half") and 1 / 0)
    (tmp_path / "film.gif").write_text("old")
    with pytest.raises(ZeroDivisionError):
        run("layers").animate(tmp_path / "film.gif", frames=2)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("film.gif", "old")]


@pytest.fixture
def no_ffmpeg(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    animation_suffix.cache_clear()
    yield
    animation_suffix.cache_clear()


def test_without_ffmpeg_a_gif_is_named(no_ffmpeg, tmp_path):
    assert animation_suffix() == ".gif"
    for kind in ("layers", "Gaussian in dimension 2", "density in dimension 1"):
        with pytest.raises(InputError, match=r"run\.gif, or install ffmpeg"):
            run(kind).animate(tmp_path / "run.mp4")
    assert not list(tmp_path.iterdir())


def test_mp4(tmp_path):
    if animation_suffix() != ".mp4":
        pytest.skip("no ffmpeg with H.264 found")
    path = run("layers").animate(tmp_path / "run.mp4", frames=4, fps=4)
    data = path.read_bytes()
    assert data[4:8] == b"ftyp"
    assert data.index(b"moov") < data.index(b"mdat")  # the index first: a page can play it at once


def test_tokens_of_a_film_are_where_they_are():
    flow, times = token_run(2, times=LONG), np.array([0.0, LONG[7], 12.0])
    exact = np.asarray(flow.system.mu.points)[None] * np.exp(times[:, None, None] * np.array([1.0, -1.0]))
    np.testing.assert_allclose(_film_points(flow, times, None), exact, rtol=1e-12)
    halfway = _film_points(token_run(2), np.array([0.125]), None)[0]
    points = np.asarray(token_run(2).points)
    np.testing.assert_allclose(halfway, (points[0] + points[1]) / 2, rtol=1e-12)
    jumping = _film_points(token_run(2, discrete=True), np.array([0.2, 0.25, 0.3]), None)
    np.testing.assert_array_equal(jumping, points[[0, 1, 1]])


@pytest.mark.parametrize(
    "t, end, text",
    [
        (0.5, 1.0, "t = 0.50"),
        (3.14159, 15.0, "t = 3.1"),
        (2.5e6, 1e9, r"$t=2.5\times10^{6}$"),
        (12, 1e9, "$t=12.00$"),
        (0, 0, "t = 0.00"),
    ],
)
def test_clock(t, end, text):
    assert _clock(float(t), float(end)) == text

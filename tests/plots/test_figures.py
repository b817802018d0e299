"""The figures of an experiment: each name on each kind of run, captions with the numbers, files that need no fonts."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure

import meanformer as mf
from meanformer._checks import InputError
from meanformer.experiments.figures import draw, draw_film, draw_panels, draw_sweep, fitting
from meanformer.experiments.names import FIGURES
from meanformer.experiments.pictures import PICTURES, sectors, token_options
from meanformer.plots.along import moments, plot_ranks_along, radius_along
from meanformer.plots.export import MOST_BYTES, figure_file
from meanformer.plots.matrices import attention_matrices
from meanformer.plots.tokens import plot_run
from plots._runs import KINDS, gaussian_run, growth, into, run, token_run


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


TOKENS = {"paths", "spectrum", "ranks", "clusters", "radius", "attention"}


# The matrices of these are looked at, and compiled; "sample" and "no attention" are asked for theirs and have none.
ATTENTION = ("tokens in dimension 2", "one token", "causal", "heads", "lost")
WITHOUT = ("sample", "no attention")


def expected(kind: str) -> set[str]:
    """The figures that a kind of run has, of those that compute nothing long."""
    if kind == "density with positions":
        return {"paths"}
    if "density" in kind:
        return {"paths", "spectrum", "ranks"}
    if "Gaussian" in kind:
        return {"paths", "spectrum", "ranks"} | ({"cone", "disc"} if run(kind).system.mu.d == 2 else set())
    return TOKENS if kind in ATTENTION else TOKENS - {"attention"}


# One of each sort; those that differ in a number are drawn at night.
FIRST = ("tokens in dimension 2", "one token", "causal", "sample", "lost", "Gaussian in dimension 2")
FIRST += ("density in dimension 1", "density with positions")


@pytest.mark.parametrize(
    "kind", [*FIRST, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS if kind not in FIRST)]
)
def test_every_figure_that_fits_is_drawn(kind, tmp_path):
    said = []
    skipped = {"claims"} if kind in ATTENTION + WITHOUT or "tokens" not in str(run(kind)) else {"claims", "attention"}
    found = draw(run(kind), [name for name in FIGURES if name not in skipped], into(tmp_path), {}, said.append)
    assert {one["name"] for one in found} == expected(kind)
    for one in found:
        file = tmp_path / one["file"]
        assert file.suffix == ".svg"
        text = file.read_text()
        assert "<text" not in text  # letters are outlines
        assert "http" not in re.sub(
            r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>|<metadata>.*?</metadata>', "", text, flags=re.S
        )
        assert one["caption"].endswith(".")
        assert one["caption"].count("$") % 2 == 0
    for name in PICTURES.keys() - expected(kind) - skipped:
        assert any(words.startswith(f"no figure {name!r}") for words in said)


def test_default_figures():
    assert fitting(run("tokens in dimension 2")) == ["paths", "clusters", "radius", "spectrum", "attention"]
    assert "claims" in fitting(run("layers"), {"checked": object()})
    assert "paths" not in fitting(run("tokens in dimension 10"))
    assert fitting(run("Gaussian in dimension 2")) == ["paths", "spectrum", "disc", "cone"]
    assert fitting(run("density in dimension 1")) == ["paths"]
    assert "attention" not in fitting(token_run(2, n=401))


def test_an_unknown_figure_is_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean 'paths'"):
        draw(run("layers"), ["path"], into(tmp_path))


def test_claims(tmp_path):
    claim = mf.check(run("density in dimension 1"))
    (one,) = draw(run("density in dimension 1"), ["claims"], into(tmp_path), {"checked": claim})
    assert "none is violated" in one["caption"]


def test_captions_have_the_numbers(tmp_path):
    found = {one["name"]: one["caption"] for one in draw(run("Gaussian in dimension 2"), None, into(tmp_path))}
    # Eigenvalues e^2 and e^-2 at the end.
    assert found["spectrum"].endswith("from $0.135$ to $7.39$.")
    assert "converged, rank 1" in found["paths"]
    (radius,) = draw(run("tokens in dimension 1"), ["radius"], into(tmp_path))
    first = np.abs(np.asarray(run("tokens in dimension 1").points[0])).max()
    assert f"${first:.3g}$ at the start, ${first * np.e:.3g}$ at the end" in radius["caption"]


# What the curves are of


def test_moments_of_tokens_are_exact():
    found = moments(run("tokens in dimension 3"))
    states = run("tokens in dimension 3").states
    np.testing.assert_allclose(found.states.mean, states.mean, atol=1e-15)
    np.testing.assert_allclose(found.states.factor @ found.states.factor.swapaxes(1, 2), states.covariance, atol=1e-14)
    # Twelve decades apart: the small eigenvalue is that of the shrunken tokens, not rounding.
    long = token_run(2, times=np.array([0.0, 14.0]))
    start, end = (np.linalg.svd(factor)[1] for factor in moments(long).states.factor)
    assert np.prod(end) == pytest.approx(np.prod(start), rel=1e-9)


def test_moments_of_a_sample_are_those_of_all_tokens():
    whole = token_run(2, n=9)
    factors = moments(run("sample")).states.factor
    np.testing.assert_allclose(factors @ factors.swapaxes(1, 2), whole.states.covariance, atol=1e-14)


def test_ranks_along_a_gaussian():
    ax = plot_ranks_along(gaussian_run(2))
    shares = growth(2) ** 2 / (growth(2) ** 2).sum(axis=1, keepdims=True)
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(lines["effective rank"], np.exp(-(shares * np.log(shares)).sum(axis=1)))
    np.testing.assert_allclose(lines["participation ratio"], 1 / (shares**2).sum(axis=1))
    np.testing.assert_allclose(lines["stable rank"], 1 / shares.max(axis=1))


def test_radius_and_bound():
    times, radii, bounds = radius_along(run("tokens in dimension 1"))
    np.testing.assert_allclose(bounds, radii[0] * np.exp(times))  # |V| = 1
    np.testing.assert_allclose(radii, radii[0] * np.exp(times))
    assert radius_along(run("layers"))[2] is None
    np.testing.assert_array_equal(radius_along(run("sphere"))[2], np.ones(5))
    assert len(radius_along(run("lost"))[0]) == 3  # up to the last finite state
    np.testing.assert_allclose(radius_along(run("sample"))[1], token_run(2, n=9).states.radius)


def test_attention_matrices_are_those_of_the_field():
    flow = run("heads")
    (t0, first), (t1, last) = attention_matrices(flow)
    assert (t0, t1) == (0.0, 1.0)
    assert first.shape == (2, 7, 7)
    np.testing.assert_allclose(last.sum(axis=2), 1)
    whole = np.asarray(flow.field.matrix(flow.states[-1]))
    np.testing.assert_allclose(np.sort(last.ravel()), np.sort(whole.ravel()))
    causal = attention_matrices(run("causal"))[0][1][0]
    np.testing.assert_allclose(np.triu(causal, 1), 0)  # ordered by position: nobody sees the future
    assert attention_matrices(token_run(2, n=900))[0][1].shape == (1, 300, 300)


# Options


def test_sectors_and_colours():
    angles = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert sectors(points, 5).tolist() == [0, 1, 2, 3, 4]
    given = token_options(run("tokens in dimension 2"), {"colour": {"sectors": 5}, "coordinates": [1], "view": 2.0})
    assert given["colour"].shape == (7,)
    assert given["coordinates"] == [1]
    positions = token_options(run("causal"), {"colour": "positions"})["colour"]
    np.testing.assert_allclose(positions, np.arange(1, 8) / 7)
    assert token_options(run("tokens in dimension 10"), {})["coordinates"] == (0, 1)


def test_a_lost_token_does_not_hide_the_others(tmp_path):
    radius = radius_along(run("lost"))[1][0]
    assert token_options(run("lost"), {})["view"] == pytest.approx(6 * radius)
    (one,) = draw(run("lost"), ["paths"], into(tmp_path))
    assert "leave the picture" in one["caption"]
    assert token_options(run("tokens in dimension 2"), {})["view"] is None


def test_view_is_half_the_width():
    ax = plot_run(run("tokens in dimension 2"), view=2.5)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-2.5, 2.5), (-2.5, 2.5))
    with pytest.raises(InputError, match="view"):
        plot_run(run("tokens in dimension 2"), view=-1.0)


def test_labels_name_the_coordinates():
    ax = plot_run(run("tokens in dimension 10"), coordinates=(2, 9))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$x_{3}$", "$x_{10}$")


def test_film(tmp_path, monkeypatch):
    monkeypatch.setattr("meanformer.experiments.figures.animation_suffix", lambda: ".gif")

    def animate(self, path, **options):
        path.write_text(str(sorted(options)))
        return path

    monkeypatch.setattr(mf.Trajectory, "animate", animate)
    found = draw_film(run("tokens in dimension 2"), into(tmp_path))
    assert found["file"] == "figures/animation.gif"
    assert "colour" in (tmp_path / found["file"]).read_text()
    assert draw_film(run("Gaussian in dimension 2"), into(tmp_path))["name"] == "animation"


# Panels and sweeps


def test_panels_of_all_kinds(tmp_path):
    kinds = [
        "tokens in dimension 2",
        "sphere",
        "tokens in dimension 3",
        "tokens in dimension 10",
        "tokens in dimension 1",
    ]
    kinds += ["Gaussian in dimension 2", "density in dimension 1", "lost"]
    cases = [{"run": run(kind), "title": kind, "formula": "$x$", "caption": "two\nlines"} for kind in kinds]
    found = draw_panels(cases, into(tmp_path), "heading", "footer")
    assert found["name"] == "panels"
    assert (tmp_path / found["file"]).stat().st_size > 10_000
    assert found["caption"].startswith("8 cases")


def sweep() -> xarray.Dataset:
    tau, n = np.geomspace(0.1, 10, 5), [10, 20]
    data = {
        "radius": (("tau", "n", "draw"), np.random.default_rng(0).normal(size=(5, 2, 3)) + 9),
        "outcome": (("tau", "n", "draw"), np.full((5, 2, 3), "REACHED")),
        "clusters": (("tau", "n", "draw"), np.arange(30).reshape(5, 2, 3) % 4),
        "seconds": (("tau", "n", "draw"), np.arange(30.0).reshape(5, 2, 3)),
    }
    return xarray.Dataset(data, coords={"tau": tau, "n": n})


def test_a_sweep_draws_what_varies_and_tells(tmp_path):
    found = draw_sweep(sweep(), None, into(tmp_path))
    assert [one["name"] for one in found] == ["heatmap-clusters", "heatmap-radius"]
    assert (
        found[0]["caption"] == "Clusters over `tau` and `n`, 3 draws each: 0 in 8, 1 in 8, 2 in 7, 3 in 7 of 30 runs."
    )
    assert all((tmp_path / one["file"]).is_file() for one in found)


@pytest.mark.parametrize(
    "chosen, names",
    [({"n": [0]}, ["curves-radius"]), ({"n": [0], "tau": [0]}, ["curves-radius"]), ({}, ["heatmap-radius"])],
)
def test_axes_decide_the_picture(chosen, names, tmp_path):
    found = draw_sweep(sweep().isel(chosen), None, into(tmp_path), ["radius"])
    assert [one["name"] for one in found] == names


def test_curves_if_wanted_and_more_than_two_axes(tmp_path):
    assert draw_sweep(sweep(), ["curves"], into(tmp_path), ["radius"])[0]["name"] == "curves-radius"
    three = sweep().expand_dims({"t1": [1.0, 2.0, 3.0]})
    assert draw_sweep(three, None, into(tmp_path), ["radius"])[0]["caption"].endswith(", at t1 = 2.")


# Files


def test_the_same_figure_gives_the_same_bytes():
    def figure() -> Figure:
        new = Figure()
        new.add_subplot().plot([0, 1], [1, 0])
        return new

    assert figure_file(figure(), "a") == figure_file(figure(), "a")


def test_large_figures_become_pixels():
    def scattered(n: int) -> Figure:
        new = Figure(figsize=(4, 3))
        rng = np.random.default_rng(0)
        new.add_subplot().scatter(*rng.normal(size=(2, n)), s=4, c=rng.uniform(size=n))
        return new

    name, data = figure_file(scattered(9000), "mixed")
    assert name == "mixed.svg"
    assert b"data:image/png" in data
    assert len(data) <= MOST_BYTES


def test_what_stays_large_is_a_png():
    new = Figure(figsize=(4, 4))
    new.add_subplot().imshow(np.random.default_rng(0).uniform(size=(500, 500, 3)))
    name, data = figure_file(new, "big")
    assert name == "big.png"
    assert data.startswith(b"\x89PNG")


def test_nothing_is_left_open(tmp_path):
    before = plt.get_fignums()
    draw(run("layers"), None, into(tmp_path))
    draw(run("density in dimension 2"), None, into(tmp_path))
    draw(run("Gaussian in dimension 2"), None, into(tmp_path))
    assert plt.get_fignums() == before

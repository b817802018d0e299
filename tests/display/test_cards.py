"""Displays of notebooks: they say what the object holds, are well formed and safe, and never raise into a cell."""

import base64
import io
import re
import subprocess
import sys
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import meanformer as mf
from meanformer.display import card as cards
from meanformer.display.drawing import box_of, dots, heat, placed
from meanformer.display.mathml import formula_of, mathml
from meanformer.flows import trajectory
from plots._runs import KINDS, run

I = jnp.eye(2)
SOFTMAX = mf.Softmax(2 * I, I, -I, tau=0.5)
HOSTILE = '<img src=x onerror="alert(1)">'


class Checked(HTMLParser):
    """Elements that are opened are closed, in order; no scripts, no addresses; the text."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in {"src", "href"} or value.startswith("data:image/png;base64,")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data + " "


def words(thing) -> str:
    """The text of a display, with single blanks."""
    return " ".join(Checked(thing._repr_html_()).words.split())


# Runs


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_card_with_a_picture(kind):
    shown = Checked(run(kind)._repr_html_())
    assert str(run(kind).outcome).split(":")[0] in shown.words
    assert shown.tags.count("svg") == 1 and not re.search(r"\bnan\b|\binf\b", shown.words)
    assert len(run(kind)._repr_html_()) < 40_000


def test_a_run_tells_how_it_ended_and_what_it_took():
    text = words(run("lost"))
    assert "Softmax: 7 tokens in ℝ 2" in text and "NOT_FINITE at t = 1: the state, or its velocity, left" in text
    assert "5 times from 0 to 1" in text and "steps 4" in text
    assert "4 layers: 7 tokens" in words(run("layers")) and "statistics mean, covariance, radius" in words(
        run("sample")
    )
    assert "CONVERGED, rank 1" in words(run("Gaussian in dimension 2"))


def test_states_on_disk_are_not_read_for_a_card():
    read = []
    stored = trajectory.Lazy(lambda: read.append(1) or run("one token").saved)
    lazy = mf.Trajectory(**{**vars(run("one token")), "stored": stored})
    assert "svg" not in Checked(lazy._repr_html_()).tags and not read
    stored()
    assert "svg" in Checked(lazy._repr_html_()).tags


# Measures, against NumPy


def test_tokens():
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], weights=[0.2, 0.5, 0.3])
    text = words(mu)
    assert "3 tokens in ℝ 2" in text and "weights 0.2 to 0.5" in text and "mean (0.5, 0.8)" in text
    assert "covariance (0.25, -0.1; -0.1, 0.16)" in text and "radius 1.414" in text
    assert "positions 0.3333 to 1" in words(mu.with_positions())
    high = mf.PointCloud(np.random.default_rng(0).normal(size=(500, 30)))
    trace = np.trace(np.cov(np.asarray(high.points).T, bias=True))
    assert f"spread {trace:.4g}" in words(high)
    assert "batch 2" in words(mf.stack_clouds([mu, mu]))


def test_gaussians():
    g = mf.Gaussian([1.0, 0.0], cov=[[2.0, 0.0], [0.0, 0.5]])
    assert "mean (1, 0) covariance (2, 0; 0, 0.5) eigenvalues 2, 0.5 rank 2 of 2" in words(g)
    assert "rank 1 of 2" in words(mf.Gaussian([1.0, 0.0], factor=[[1.0], [1.0]]))
    assert "covariance of trace 7" in words(mf.Gaussian(jnp.zeros(7), cov=jnp.eye(7)))
    assert "batch 4" in words(mf.Gaussian(jnp.zeros((4, 2)), factor=jnp.ones((4, 2, 2))))


def test_densities():
    rho = mf.Density([0.0, 0.5, 0.5, 0.0], low=-2.0, high=2.0)
    assert "cells 4 on [-2, 2] mass 1 mean (0) covariance (0.25)" in words(rho)
    assert "positions 2" in words(run("density with positions").system.mu)


@pytest.mark.parametrize(
    "law", [mf.uniform_ball(d=2), mf.uniform_cube(d=2, low=-5), mf.uniform_sphere(d=3), mf.empirical([[1.0]])]
)
def test_laws(law):
    assert type(law).__name__ in words(law)


# Fields


def test_a_field_shows_its_formula_and_its_matrices():
    text = words(SOFTMAX)
    assert text.startswith("Softmax Γ μ") and text.endswith("Q 2 I K I V − I τ 0.5")
    assert "Q 30 × 40" in words(mf.Softmax(np.ones((30, 40)), np.ones((30, 40)), np.ones((40, 40))))
    assert "V (0, 1; 1, 0)" in words(mf.Softmax(I, I, I[::-1]))


def test_a_combination_shows_its_parts():
    many = words(mf.MultiHead([SOFTMAX] * 6, W=[I] * 6))
    assert "heads 6 parts" in many and many.count("Softmax") == 4 and "and 2 more" in many
    assert "field Softmax" in words(mf.Causal(SOFTMAX)) and "factor 0.5" in words(0.5 * SOFTMAX)
    assert "breaks (0.7)" in words(mf.Piecewise([SOFTMAX, -SOFTMAX], breaks=[0.7]))
    assert "function <lambda>" in words(mf.Scheduled(lambda t: SOFTMAX))


FIELDS = [
    kind
    for name in mf.__all__
    if isinstance(kind := getattr(mf, name), type) and issubclass(kind, mf.AbstractField) and "Abstract" not in name
]
# They have no formula of their own.
WITHOUT = {mf.Scheduled, mf.Piecewise}


@pytest.mark.parametrize("kind", FIELDS)
def test_every_kind_has_a_formula(kind):
    assert (formula_of(kind) is None) == (kind in WITHOUT)
    if kind not in WITHOUT:
        Checked(formula_of(kind))


def test_formulas_are_set_as_they_are_meant():
    assert "<mfrac><mn>1</mn><mi>n</mi></mfrac>" in mathml(r"\frac1n")
    assert "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>" in mathml("x_i^2")
    assert "<munderover><mo>∑</mo>" in mathml(r"\sum_{i=1}^n") and "<mi>λ</mi>" in mathml(r"\lambda")
    assert "&lt;" in mathml("x<y")
    assert [mathml(tex) for tex in (r"\unknown", "{x", "x}", "x^")] == [None] * 4


# Results


def test_outcomes_fates_and_clusters():
    assert cards.GOOD in run("layers").outcome._repr_html_() and cards.BAD in run("lost").outcome._repr_html_()
    batch = mf.Outcome(code=jnp.asarray([0, 4, 1]), time=jnp.zeros(3))
    assert words(batch) == "● 2 of 3 runs did what was asked"
    blown = mf.Fate("BLEW_UP", 0.5, 1e-8, None, None, 1.0, 1.0, np.ones(2), 9, evidence=HOSTILE)
    assert "Fate: BLEW_UP blow-up time 0.5 error 1e-08 exponent 1" in words(blown) and HOSTILE in words(blown)
    found = mf.clusters(mf.PointCloud([[0.0, 0.0], [0.001, 0.0], [1.0, 1.0]]))
    assert "2 clusters label tokens weight centre 0 2 0.6667 (0.0005, 0) 1 1 0.3333 (1, 1)" in words(found)


def test_fates_verdicts_checks_and_plans():
    ones = np.ones(3)
    found = mf.Fates(
        np.array([2, 1, 1]),
        ones,
        ones,
        np.array([-1, 1, 2]),
        np.ones((3, 2, 2)),
        *[ones] * 2,
        np.ones((3, 2)),
        ones,
        1.0,
    )
    assert words(found) == "converged 2 blew up 1 rank 1 1 rank 2 1 Fates of 3 runs"
    assert "Undecided: " + HOSTILE in words(mf.Verdict(None, HOSTILE, "none", {"size": 0.25}))
    table = mf.Checked((mf.Claim("radius", 2.0, 1.5), mf.Claim("trace", 1.0, 3.0)), "a run", {})
    assert "radius 2 1.5 25 % ● holds" in words(table) and "● VIOLATED" in words(table)
    assert "sums exact" in words(mf.plan(SOFTMAX, mf.PointCloud(np.ones((3, 2)))))


def test_words_of_the_user_are_escaped():
    named = mf.Labelled(mf.PointCloud([[1.0, 0.0], [0.0, 1.0]]), (HOSTILE, "be"))
    assert HOSTILE in words(named) and "<img" not in named._repr_html_()


# Failures


def test_a_display_that_fails_says_so_and_leaves_the_text(monkeypatch):
    monkeypatch.setattr(trajectory, "run_card", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match=r"a Trajectory is shown as text.*ZeroDivisionError"):
        assert run("layers")._repr_html_() is None


def test_what_is_traced_has_no_display():
    seen = []
    jax.jit(lambda mu: seen.append(mu._repr_html_()) or mu.mean)(mf.PointCloud([[1.0, 0.0]]))
    assert seen == [None]


def test_displays_compile_nothing_and_load_no_plotting_library():
    code = """
import sys, jax, meanformer as mf
import jax.numpy as jnp
I = jnp.eye(2)
tokens = mf.uniform_cube(d=2).sample(9, key=jax.random.key(0))
things = [tokens, mf.Gaussian(jnp.zeros(2), cov=I), mf.Softmax(I, I, I), mf.Causal(mf.L2(I, I, I)), mf.clusters(tokens)]
things += [mf.layers(mf.Linear(I, I, I), tokens, 2)]
things += [things[-1].outcome]
compiled = []
seen = lambda name, *_, **__: compiled.append(name) if "compile" in name else None
jax.monitoring.register_event_duration_secs_listener(seen)
assert all(thing._repr_html_() for thing in things)
print(compiled, "matplotlib" in sys.modules, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False False"


# Pictures


def test_up_is_up_and_the_box_holds_all():
    points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [np.nan, np.inf]])
    places = placed(points, box_of(points))
    assert places[1, 0] > places[0, 0] and places[2, 1] < places[0, 1]
    assert places[1, 0] - places[0, 0] == pytest.approx(
        2 * (places[0, 1] - places[2, 1])
    )  # one unit is as long as the other
    assert (places[:3] >= 0).all() and (places[:3] <= 170).all() and np.isfinite(places).all()
    assert (places[3] < 0).any() or (places[3] > 170).any()


def test_dots_are_grouped_by_colour():
    drawn = dots(np.array([[1.0, 2.0], [3.26, 4.0], [5.0, 6.0]]), ["red", "blue", "red"])
    assert 'd="M1 2h0M5 6h0" stroke="red"' in drawn and 'd="M3.3 4h0" stroke="blue"' in drawn


def test_a_heat_map_is_an_image_of_the_values():
    values = np.array([[0.0, 1.0, 2.0], [4.0, 0.0, 0.0]])  # two columns, three rows from below
    data = re.search(r"base64,([^\"]+)", heat(values))[1]
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    assert image.shape == (3, 2, 4)
    np.testing.assert_array_equal(image[::-1, :, 3].T, (255 * values / 4).astype(int))

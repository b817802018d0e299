"""Formulas are outlines that stand on their baseline; sentences are escaped."""

import re
import xml.etree.ElementTree as ET

import pytest

from meanformer.experiments.config import read_experiment
from meanformer.experiments.registry import library
from meanformer.experiments.reproductions import PAPERS, paper
from meanformer.report.formula import formula, inline, plain


def parts(tex: str) -> tuple[ET.Element, dict[str, float]]:
    svg = ET.fromstring(formula(tex))
    sizes = dict(re.findall(r"([\w-]+):(-?[\d.]+)em", svg.get("style")))
    return svg, {name: float(value) for name, value in sizes.items()}


@pytest.mark.parametrize("tex", [r"\Gamma_\mu(x)", r"\dfrac{\int\,Vy\,d\mu(y)}{2}", r"\mathbb{R}^{3}", "x^*"])
def test_no_letters_are_needed(tex):
    svg, _ = parts(tex)
    assert {element.tag for element in svg} == {"title", "path"}  # no <text>, no fonts
    assert svg.find("path").get("fill") == "currentColor"
    assert svg.find("title").text == svg.get("aria-label") == plain(tex)


def test_the_box_holds_the_outline():
    svg, _ = parts(r"\int\,y_j\,d\mu")
    left, top, width, height = map(float, svg.get("viewBox").split())
    numbers = [float(n) for n in re.findall(r"-?\d+", svg.find("path").get("d"))]
    xs, ys = numbers[::2], numbers[1::2]
    assert left <= min(xs) <= max(xs) <= left + width
    assert top <= min(ys) <= max(ys) <= top + height


def test_baseline():
    """A letter without a tail stands on the line; one with a tail goes below it."""
    assert -0.06 < parts("x")[1]["vertical-align"] < 0
    assert parts("y")[1]["vertical-align"] < -0.2
    assert parts(r"\frac{a}{b}")[1]["vertical-align"] < -0.2
    assert parts("xx")[1]["width"] == pytest.approx(2 * parts("x")[1]["width"], rel=0.1)


def test_a_star_stands_close():
    assert parts("t^*")[1]["width"] == parts("t^{*}")[1]["width"]


def test_what_cannot_be_set_is_shown_as_code():
    assert formula(r"\nosuchcommand{x}") is None
    assert inline(r"see $\nosuchcommand{<b>}$") == r'see <code class="tex">\nosuchcommand{&lt;b&gt;}</code>'


@pytest.mark.parametrize(
    "text, html",
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("one $ alone", "one $ alone"),
        (r"costs \$5, or \$6", "costs $5, or $6"),
        ("`a<b>`", "<code>a&lt;b&gt;</code>"),
        (
            "at https://arxiv.org/abs/2501.18322.",
            'at <a href="https://arxiv.org/abs/2501.18322" rel="noopener">https://arxiv.org/abs/2501.18322</a>.',
        ),
        ("at https://example.org/x", "at https://example.org/x"),
        ('https://arxiv.org/"onclick="x', "https://arxiv.org/&quot;onclick=&quot;x"),
    ],
)
def test_sentences(text, html):
    assert inline(text) == html


def test_formulas_inside_a_sentence():
    html = inline("from $x<y$ to $z$")
    assert html.count("<svg") == 2
    assert html.startswith("from <svg")
    assert 'aria-label="x&lt;y"' in html


def test_words_of_a_formula():
    assert plain(r"\Gamma_\mu(x)=\frac{a}{b}\,\leq\infty") == "Γ_μ(x)=(a)/(b) ≤∞"
    assert plain(r"\lambda\varepsilon") == "λε"


@pytest.mark.parametrize(
    "tex", [r"a\le b\ge c", r"\mathbb R^2", r"\mathcal N(0,\Sigma_0)", r"\frac{t_1}L\,x", r"\lambda_{\max}\big(x\big)"]
)
def test_common_tex_is_set(tex):
    assert formula(tex) is not None


def test_every_formula_of_the_library_and_of_the_papers_is_set():
    texts = [item.setting for key in PAPERS for item in paper(key).items.values()]
    texts += [item.title for key in PAPERS for item in paper(key).items.values()]
    for name in library():
        experiment = read_experiment(name)
        texts += [experiment.title, experiment.about, experiment.formula, experiment.caption]
        texts += [text for _, case in experiment.expanded() for text in (case.formula, case.caption, case.about)]
    found = [tex for text in texts for tex in re.findall(r"\$([^$]+)\$", text)]
    assert len(found) > 50
    assert [tex for tex in found if formula(tex) is None] == []


@pytest.mark.parametrize("tex", ["x" * 501, "x+" * 50_000, r"\frac{" * 10_000])
def test_a_formula_without_end_is_not_set(monkeypatch, tex):
    """Setting it would take minutes: it is shown as it is written."""
    monkeypatch.setattr("meanformer.report.formula.TextPath", lambda *_, **__: pytest.fail("it was set"))
    assert formula(tex) is None
    assert inline(f"a ${tex}$") == f'a <code class="tex">{tex}</code>'

"""Reports say what is in the folder: numbers, verdicts, formulas, settings, what to cite."""

import json
import re

import pytest

from meanformer.report.page import Block
from meanformer.report.references import BIBTEX, bibtex, cite
from meanformer.report.reproduction import write_reproduction
from meanformer.report.run import write_report
from meanformer.report.words import NAMES, attention_formula, describe_attention, flow_words, measure_words
from meanformer.store.errors import FolderError
from report._folders import EXPERIMENT, SVG, folder, record, results


def words_of(html: str) -> str:
    """What a reader sees: formulas by their labels, no pictures, no markup."""
    html = re.sub(r"<style>.*?</style>|<script>.*?</script>|<title>.*?</title>", "", html, flags=re.DOTALL)
    html = re.sub(r'<svg[^>]*aria-label="([^"]*)".*?</svg>', r" \1 ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def report(tmp_path, run=None, found=None) -> str:
    path = write_report(folder(tmp_path / "run", run, found))
    assert path == tmp_path / "run" / "report.html"
    return path.read_text()


def test_a_run(tmp_path):
    html = report(tmp_path, found=results())
    words = words_of(html)
    for told in (
        "Tokens gather",
        "With Q=K=I tokens gather.",
        "2.447 × 10 7",
        "clusters 8",
        "claims that hold 1 of 2",
        "REACHED at t = 15",
        "40 tokens in R ^ 2",
        "meanformer run clusters --set n=40",
        "jax 0.10.1",
        "c285cd8",
        "A = K^T Q acts on the query",
    ):
        assert told in words, told
    assert "data:image/svg+xml" in html
    for key in ("meanformer", "castin2025", "geshkovski2023", "jax", "diffrax"):
        assert f"{{{key}," in words
    assert "{equinox," not in words  # not among the versions of this run


def test_claims_have_their_verdicts(tmp_path):
    html = report(tmp_path, found=results())
    rows = [words_of(row) for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)]
    assert "support radius R 2 8 75 % ✓ holds" in rows
    assert "stability of W_2 3 1 -200 % ✗ fails" in rows
    assert "weak residual 0.0001 — – no claim none" in rows
    assert "1 of 2 bounds of the theory are violated" in words_of(html)


def test_a_claim_without_a_finite_bound_does_not_count(tmp_path):
    infinite = {"claim": "radius", "bound": None, "measured": 2.0, "slack": None, "holds": True, "why": "beyond"}
    checks = [infinite, {"claim": "trace", "bound": 4.0, "measured": 2.0, "slack": 0.5, "holds": True, "why": ""}]
    html = report(tmp_path, found=results(checks=checks))
    assert "claims that hold 1 of 1" in words_of(html)
    rows = [words_of(row) for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)]
    assert "radius 2 — – no claim beyond" in rows


@pytest.mark.parametrize("fate, kind", [("UNDECIDED at t = 9", "warn"), ("CONVERGED, rank 1", "good")])
def test_an_undecided_fate_is_no_success(tmp_path, fate, kind):
    html = report(tmp_path, found=results(fate=fate))
    assert f'<div class="note-box {kind}"><p>Fate: {fate}</p></div>' in html


def test_an_unfinished_run_says_how_to_go_on(tmp_path):
    path = folder(tmp_path / "run")
    (path / "manifest.json").write_text(json.dumps({"segments": [{"name": f"{k:06d}", "crc32": 0} for k in range(2)]}))
    words = words_of(write_report(path).read_text())
    assert "not finished (2 segments are complete)" in words
    assert f"meanformer resume {path}" in words
    assert "Outcome" not in words


@pytest.mark.parametrize("content", [None, "{"])
def test_what_is_no_run_folder_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(FolderError, match="run"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_titles_are_escaped(tmp_path):
    bad = "<script>alert(1)</script>"
    run = record(title=bad, name=bad, about=bad, command=bad, cites=[bad])
    figures = [{"name": bad, "file": "figures/paths.svg", "caption": bad}]
    html = report(tmp_path, run, results(summary=bad, figures=figures))
    assert html.count("<script>") == 1


def test_cases(tmp_path):
    first = {"outcome": "REACHED", "time": 15.0, "radius": 1.5, "trace": 3.25, "steps": 38, "seconds": 0.5}
    rows = [
        {"name": "a", "title": "First case", "numbers": first},
        {"name": "b", "title": "Second", "numbers": {"radius": 2.5, "outcome": "STEP_TOO_SMALL"}},
    ]
    path = folder(tmp_path / "run", record(kind="cases", cases=["a", "b"]), results(rows=rows, checks=[], numbers={}))
    sink = {"attention": {"kind": "sinkhorn", "Q": 2.0, "K": {"of": "Q", "scale": -1.0}, "V": 1.0, "eps": 1.0}}
    folder(path / "cases" / "a", record(title="First case", experiment=sink), results())
    folder(path / "cases" / "b", record(title="Second"))
    html = write_report(path).read_text()
    words = words_of(html)
    assert "case radius steps seconds outcome First case 1.5 38 0.5 reached" in words
    assert "Second 2.5 — — step too small" in words
    assert "All numbers of all cases case outcome time reached radius trace" in words
    assert "First case reached 15 1.5 3.25 38 0.5" in words
    assert "Γ_μ(x)=∫ Vy e^ f(x)+g(y)+Qx· Ky dμ(y)" in words
    assert "K=-Q" in words
    assert "Not finished." in words  # the second case has no results
    assert html.count("data:image/svg+xml") == 2  # of all cases, and of the first


def test_films_of_cases_are_among_the_pictures_of_all(tmp_path):
    rows = [{"name": name, "title": name, "numbers": {}} for name in "ab"]
    panels = [{"name": "panels", "file": "figures/paths.svg", "caption": "Both."}]
    path = folder(
        tmp_path / "run", record(kind="cases", cases=["a", "b"]), results(rows=rows, checks=[], figures=panels)
    )
    film = {"name": "animation", "file": "figures/animation.gif", "caption": "The run from $t=0$ to $t=2$."}
    folder(path / "cases" / "a", record(title="Still"), results())
    figures = [*results()["figures"], film]
    moving = folder(path / "cases" / "b", record(title="Moving"), results(figures=figures))
    (moving / "figures" / "animation.gif").write_bytes(b"GIF89a")
    html = write_report(path).read_text()
    assert html.count("data:image/gif") == 1
    pictures = words_of(html[html.index('<section id="pictures">') : html.index('<section id="what-was-run">')])
    assert pictures == "Pictures Both. Moving: The run from t=0 to t=2 ."
    assert words_of(html).count("The run from") == 1  # not again in the section of the case


def test_a_sweep_tells_its_extent(tmp_path):
    grid = {"attention.tau": {"log": [0.1, 10.0, 5]}, "measure.n": [10, 20], "seed": {"range": [0, 2]}}
    sweep = record(kind="sweep", axes={}, experiment=EXPERIMENT | {"sweep": {"grid": grid, "draws": 4}})
    words = words_of(report(tmp_path, sweep, results(checks=[], numbers={})))
    assert "A sweep of 120 runs over" in words
    assert "attention.tau 5 0.1 to 10, log spacing" in words
    assert "measure.n 2 10, 20" in words
    assert "seed 3 0 to 2" in words
    assert "runs 120" in words
    assert "Outcome" not in words  # each run has its own


# Words and formulas


@pytest.mark.parametrize(
    "settings, tex",
    [
        ({"kind": "softmax", "tau": 0.5}, r"e^{Qx\cdot Ky/0.5}"),
        ({"kind": "softmax", "tau": 1.0}, r"e^{Qx\cdot Ky}"),
        ({"kind": "l2"}, r"e^{-|Qx-Ky|^2}"),
        ({"kind": "sinkhorn", "kernel": "distance", "eps": 2.0}, r"e^{f(x)+g(y)-|Qx-Ky|^2/2}"),
        ({"kind": "sigmoid", "bias": -1.5}, r"\sigma(Qx\cdot Ky-1.5)"),
        ({"kind": "scaled", "factor": 0.5}, r"0.5\,\Gamma'_\mu(x)"),
    ],
)
def test_formulas_of_the_kinds(settings, tex):
    assert tex in attention_formula(settings)


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_has_a_formula_that_can_be_set(kind):
    block = Block()
    describe_attention(block, {"kind": kind})
    assert "<svg" in block.html()
    assert "<code" not in block.html()
    assert r"\ldots" not in attention_formula({"kind": kind})


@pytest.mark.parametrize(
    "matrices, told",
    [
        ({"Q": "identity", "K": "identity", "V": 1.0}, "Q=K=I"),
        ({"Q": 2.0, "K": {"rotation": 0.9, "scale": 2.0}}, "Q=2 I"),
        ({"V": [[1.0, -0.25], [0.0, 3.0]]}, "V= 1 −0.25 0 3"),
        ({"V": [[1.0] * 10] * 10}, "10 × 10 matrix, \\|V\\|_F=10"),
        (
            {"Q": {"random": "normal", "shape": [1, 4], "seed": 3, "scale": 0.5}},
            "0.5 · random (normal), 1 × 4, seed 3",
        ),
        ({"Q": {"random": "normal"}, "K": {"random": "normal"}}, "Q= random (normal) K= random (normal)"),
        ({"V": {"gram": {"random": "normal"}}}, "V= W^ᵀ W , W= random (normal)"),
        ({"V": {"gram": {"identity": 2.0, "scale": 3.0}, "scale": 0.1}}, "V= 0.1 W^ᵀ W , W= 6 I"),
        ({"V": {"gram": [[1.0, 2.0]], "scale": -1.0}}, "V= -W^ᵀ W , W= 1 2"),
        ({"V": {"file": "<V>.npy"}}, "V= the matrix in &lt;V&gt;.npy"),
        ({"V": {"file": "V.npy", "scale": -1.0}}, "V= − the matrix in V.npy"),
        ({"V": {"diagonal": [1.0, 2.0]}}, "V=diag (1, 2)"),
        ({"V": {"diagonal": [1.0] * 9, "scale": 3.0}}, "V= 3 ·diagonal [1.0,"),
        ({"V": {"diagonal": [1.0, 2.0], "scale": 3.0}}, "V=3diag (1, 2)"),
        ({"V": {"rotation": 0.9, "scale": -2.0}}, "V=-2 R(0.9)"),
        ({"V": {"identity": 2.0, "scale": 3.0}}, "V=6 I"),
        ({"V": {"identity": -0.5, "scale": 2.0}}, "V=-I"),
        ({"V": {"of": "Q", "scale": 0.5}}, "V=0.5 Q"),
    ],
)
def test_matrices(matrices, told):
    block = Block()
    describe_attention(block, {"kind": "softmax", **matrices})
    assert told in words_of(block.html()).replace(" diag", "diag")


def test_nested_attention_is_told_to_the_bottom():
    heads = [{"kind": "softmax", "Q": "identity"}, {"kind": "l2", "Q": "zero"}]
    block = Block()
    describe_attention(block, {"kind": "causal", "of": {"kind": "multi-head", "heads": heads}})
    words = words_of(block.html())
    assert "Inside: Several heads" in words
    assert "Head 1: Softmax attention" in words
    assert "Head 2: L2 attention" in words


def test_measures_and_horizons():
    assert measure_words(EXPERIMENT["measure"]) == (
        r"$40$ tokens in $\mathbb{R}^{2}$, uniform in the cube $[-5,5]^{2}$."
    )
    assert "mixture of 5 Gaussians, with mean $0$" in measure_words(
        {"kind": "mixture", "means": [0] * 5, "centre": True}
    )
    assert r"$200\times100$ cells" in measure_words({"kind": "density", "cells": [200, 100]})
    assert flow_words(EXPERIMENT)[:2] == ["From $t=0$ to $t=15$.", "Pictured in the rescaled frame $z=e^{-tV}x$."]
    assert r"$t_1=\infty$" in flow_words({"flow": {"t1": float("inf")}})[0]
    assert r"$t_1=\infty$" in flow_words({"flow": {"t1": "inf"}})[0]
    assert "48 layers of step $0.02$" in flow_words({"layers": {"depth": 48, "step": 0.02}})[0]


# What to cite


def test_entries_are_whole():
    for key, entry in BIBTEX.items():
        assert re.match(rf"@\w+\{{{key},\n", entry)
        assert entry.count("{") == entry.count("}")
        assert "title" in entry
        assert "author" in entry
    assert "version = {9.9}" in bibtex("meanformer", "9.9")


def test_an_unknown_key_is_a_comment():
    keys = cite({"cites": ["smith2024"]})
    assert "% no BibTeX known for smith2024" in [bibtex(key) for key in keys]
    assert "\n" not in bibtex("one\n@book{two")  # nothing of it is read as BibTeX


@pytest.mark.parametrize(
    "experiment, key",
    [
        ({"attention": {"kind": "causal", "of": {"kind": "sinkhorn"}}}, "sinkformers"),
        ({"attention": {"kind": "l2"}}, "kim2021"),
        ({"flow": {"space": "sphere"}}, "geshkovski2024"),
        ({"flow": {"space": {"sphere": 2.0}}}, "geshkovski2024"),
        ({"cases": [{"attention": {"kind": "sigmoid"}}]}, "ramapuram2024"),
    ],
)
def test_what_a_run_used(experiment, key):
    assert key in cite({"experiment": experiment})
    assert key not in cite({"experiment": {"attention": {"kind": "softmax"}}})


# Reproductions


def test_a_reproduction(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.svg").write_text(SVG)
    rows = [
        {
            "claim": "time $t^*$",
            "reference": 0.5,
            "ours": 0.5000004,
            "tolerance": "1e-06",
            "verdict": "holds",
            "why": "",
        },
        {"claim": "<rank>", "reference": 2.0, "ours": "3", "tolerance": 0.0, "verdict": "misleads", "why": "slow"},
    ]
    item = {
        "id": "A1",
        "title": "Blow-up",
        "setting": "With $V=I$.",
        "rows": rows,
        "remarks": ["Odd."],
        "seconds": 150.0,
    }
    item["figures"] = [{"name": "a", "file": "figures/a.svg", "caption": "A picture."}]
    paper = {"key": "castin2025", "title": "A paper", "authors": "C, A", "url": "https://arxiv.org/abs/2501.18322"}
    path = write_reproduction(paper | {"bibtex": BIBTEX["castin2025"]}, [item], tmp_path)
    assert path == tmp_path / "report.html"
    html = path.read_text()
    words = words_of(html)
    assert "A1 time t^* 0.5 0.5 1e-06 ✓ holds" in words
    assert "A1 &lt;rank&gt; 2 3 0 ! misleads" in words
    assert "&lt;rank&gt; 2 3 0 ! misleads slow" in words  # the reason stands with the item
    assert "claims 2 in 1 items holds 1" in words
    assert "2.5 min" in words
    assert "A1. Blow-up" in words
    assert "Odd." in words
    assert "data:image/svg+xml" in html
    assert '<a href="https://arxiv.org/abs/2501.18322"' in html
    assert "quick" not in words
    assert "Do it again meanformer reproduce castin2025 copy" in words
    quick = write_reproduction(paper | {"quick": True, "seed": 3}, [item], tmp_path).read_text()
    told = words_of(quick)
    assert 'note-box warn"><p>The quick form: fewer draws, tokens and times.' in quick
    assert told.index("The quick form") < told.index("Every claim of")
    assert "meanformer reproduce castin2025 --quick --seed 3 copy" in told
    assert "seed 3 " in told

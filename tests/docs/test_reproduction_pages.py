"""The pages of reproductions: all items of the registry, counts that agree, pictures that exist; and their writer."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from docs.pages import DOCS, ROOT
from meanformer.experiments.reproductions import PAPERS, paper

sys.path.insert(0, str(ROOT))

from benchmarks import reproductions

FOLDER = DOCS / "reproductions"
INDEX = FOLDER / "index.md"
WORDS = {"hold": "holds", "mislead": "misleads", "undecided": "undecided", "fail": "fails"}


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of a page, each a list of rows by the names of the columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        head, rule, *rows = block.splitlines()
        assert re.fullmatch(r"(\| ---+ )+\|", rule), rule
        found.append([dict(zip(cells(head), cells(row), strict=True)) for row in rows])
    return found


def sections(key: str) -> dict[str, tuple[str, str]]:
    """The items of a page: id to title and text."""
    text = (FOLDER / f"{key}.md").read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:-1]  # the last is how to do it again
    pairs = [(part.split("\n", 1)[0].split(". ", 1), part.split("\n", 1)[1]) for part in parts]
    return {name: (title, rest) for (name, title), rest in pairs}


def verdicts(text: str) -> Counter[str]:
    (rows,) = tables(text)
    return Counter(row["verdict"] for row in rows)


def test_there_is_a_page_for_each_paper():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*PAPERS, "index"}


@pytest.mark.parametrize("key", PAPERS)
def test_items_are_those_of_the_registry(key):
    titles = {name: reproductions.markdown(item.title) for name, item in paper(key).items.items()}
    found = {name: title for name, (title, _) in sections(key).items()}
    assert list(found.items()) == list(titles.items())


@pytest.mark.parametrize("key", PAPERS)
def test_counts_are_those_of_the_tables(key):
    by_item = {name: verdicts(text) for name, (_, text) in sections(key).items()}
    whole = sum(by_item.values(), Counter())
    summary = [row for row in tables(INDEX.read_text())[1] if row["paper"] == f"[{key}]({key}.md)"]
    told = {row["item"]: Counter({word: int(row[word]) for word in reproductions.VERDICTS}) for row in summary}
    assert +told.pop("all") == whole
    assert {name: +counter for name, counter in told.items()} == by_item
    first = " ".join((FOLDER / f"{key}.md").read_text().split("## ")[0].split())
    claims, items, words = re.search(
        r"computed again: (\d+) claims in (\d+) items, of which (.*?)\. The", first
    ).groups()
    assert (int(claims), int(items)) == (whole.total(), len(by_item))
    assert {WORDS[word]: int(number) for number, word in re.findall(r"(\d+) (?:are )?(\w+)", words)} == whole


def test_the_first_page_explains_every_claim_that_does_not_hold():
    explained = Counter()
    for row in tables(INDEX.read_text())[2]:
        assert row["why"].endswith(".") and row["why"].count(". ") == 0  # one sentence
        explained[row["item"], row["verdict"]] += int(row["claims"])
    found = Counter()
    for key in PAPERS:
        for name, (_, text) in sections(key).items():
            found += Counter({(name, word): n for word, n in verdicts(text).items() if word != "holds"})
    assert explained == found
    assert {row["verdict"] for row in tables(INDEX.read_text())[0]} == set(reproductions.VERDICTS)


@pytest.mark.parametrize("key", PAPERS)
def test_pictures_exist_are_small_and_used(key):
    shown = {name: re.findall(r"^!\[.+\]\((.+)\)$", text, re.MULTILINE) for name, (_, text) in sections(key).items()}
    expected = {name: f"../img/{reproductions.picture_name(key, name)}" for name in reproductions.SHOWN[key]}
    assert {name: links for name, links in shown.items() if links} == {name: [link] for name, link in expected.items()}
    files = {(FOLDER / link).resolve() for link in expected.values()}
    assert files == set((DOCS / "img").glob(f"repro_{key}_*.png"))
    for file in files:
        assert 10_000 < file.stat().st_size <= reproductions.LARGEST
        with Image.open(file) as picture:
            assert max(picture.size) <= 1000
            pixels = np.asarray(picture.convert("RGB"))
        assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1]] >= 254).all(), f"{file.name}: the corners are not white"


# The writer


def tiny(folder: Path, verdict: str = "misleads") -> Path:
    """A folder of one item with one figure."""
    folder.mkdir()
    Image.new("RGB", (300, 200), reproductions.PAPER).save(folder / "figure.png")
    row = {
        "claim": "|T*| < Sigma0^-1 of $|x|\\cdot\\|V\\|y$",
        "reference": 2.0,
        "ours": 1.23456e-9,
        "tolerance": "none",
    }
    rows = [row | {"verdict": "holds", "why": ""}, row | {"verdict": verdict, "why": "a_b", "ours": "all"}]
    item = {"id": "A1", "title": "A title", "setting": "Words with $a b$. " * 12, "rows": rows, "remarks": ["More."]}
    item |= {"figures": [{"name": "blow_up", "file": "figure.png", "caption": "Nothing."}], "seconds": 1.0}
    item |= {"made_by": {"commit": "abc", "versions": {}}}
    about = {"key": "castin2025", "title": "T", "authors": "N. N.", "url": "https://arxiv.org", "bibtex": "@misc{x}"}
    run = {"quick": True, "seed": 7, "machine": "a machine", "created": "2026-01-02T03:04:05", "command": ""}
    (folder / "run.json").write_text(json.dumps(run | {"versions": {"jax": "1.2"}}))
    (folder / "results.json").write_text(json.dumps({"paper": about, "items": [item], "seconds": 1.0}))
    return folder


@pytest.fixture
def docs(tmp_path):
    for name in ("reproductions", "img"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    index = f"# Title\n\n{reproductions.BEGIN}\nstale\n{reproductions.END}\n\nWords after.\n"
    (tmp_path / "docs/reproductions/index.md").write_text(index)
    return tmp_path / "docs"


def test_what_the_writer_writes(docs, tmp_path):
    written = reproductions.write([tiny(tmp_path / "run")], docs)
    page, picture, index = (docs / part for part in ("reproductions/castin2025.md", "img", "reproductions/index.md"))
    assert written == [page, picture / "repro_castin2025_A1.png", index]
    text = page.read_text()
    assert "2 claims in 1 items, of which 1 hold, 1 mislead." in " ".join(text.split())
    assert (
        "The quick form" in text and "meanformer reproduce castin2025\n" in text and "2026-01-02, with seed 7" in text
    )
    assert "jax 1.2" in text and "abc (A1)" in text and "1 seconds summed" in text
    (rows,) = tables(text)
    assert rows[0]["claim"] == r"&#124;T\*&#124; &lt; Σ₀⁻¹ of $\vert x\vert\cdot\Vert V\Vert y$"
    assert [row["verdict"] for row in rows] == ["holds", "misleads"]
    assert [rows[0][name] for name in ("reference", "ours", "tolerance", "reason")] == ["2", "1.2 × 10⁻⁹", "none", ""]
    assert (rows[1]["ours"], rows[1]["reason"]) == ("all", r"a\_b")
    long = [line for line in text.splitlines() if len(line) > 120]
    assert all(line.startswith("|") for line in long) and text.count("$a b$") == 12
    assert "![A1: A title](../img/repro_castin2025_A1.png)\n\nNothing." in text
    (summary,) = tables(index.read_text())
    assert [row["holds"] for row in summary] == ["1", "1"] and [row["undecided"] for row in summary] == ["0", "0"]
    assert index.read_text().startswith("# Title\n") and index.read_text().endswith("-->\n\nWords after.\n")
    assert "stale" not in index.read_text()
    # Once more, with another verdict: nothing of the first is left.
    reproductions.write([tiny(tmp_path / "again", "undecided")], docs)
    (summary,) = tables(index.read_text())
    assert [row["misleads"] for row in summary] == ["0", "0"] and summary[1]["undecided"] == "1"
    assert "1 hold, 1 are undecided" in " ".join(page.read_text().split())


def test_pictures_are_white_and_as_small_as_they_must_be(docs, tmp_path, monkeypatch):
    reproductions.write([tiny(tmp_path / "run")], docs)
    with Image.open(docs / "img/repro_castin2025_A1.png") as picture:
        assert picture.size == (1000, 667)
        assert set(np.asarray(picture.convert("RGB")).ravel()) == {255}
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    monkeypatch.setattr(reproductions, "SIZE", (80, 60))
    for largest, colours in ((120_000, 256), (4_300, 64)):
        monkeypatch.setattr(reproductions, "LARGEST", largest)
        reproductions.draw(tmp_path / "noise.png", tmp_path / "out.png")
        with Image.open(tmp_path / "out.png") as picture:
            assert len(picture.convert("RGB").getcolors(300)) == colours
        assert (tmp_path / "out.png").stat().st_size <= largest
    # A vector needs a browser.
    (tmp_path / "x.svg").write_text("<svg/>")
    monkeypatch.setattr(reproductions.shutil, "which", lambda name: None)
    assert not reproductions.draw(tmp_path / "x.svg", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()

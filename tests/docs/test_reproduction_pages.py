"""The pages of reproductions: all items of the registry, counts that agree, pictures that exist; and their writer."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browsers import chromium
from docs.pages import DOCS
from docs.scripts import reproductions, small
from meanformer.experiments.reproductions import PAPERS, paper

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
    text = (FOLDER / f"{key}.md").read_text(encoding="utf-8")
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
    summary = [row for row in tables(INDEX.read_text(encoding="utf-8"))[1] if row["paper"] == f"[{key}]({key}.md)"]
    told = {row["item"]: Counter({word: int(row[word]) for word in reproductions.VERDICTS}) for row in summary}
    assert +told.pop("all") == whole
    assert {name: +counter for name, counter in told.items()} == by_item
    first = " ".join((FOLDER / f"{key}.md").read_text(encoding="utf-8").split("## ")[0].split())
    claims, items, words = re.search(
        r"computed again: (\d+) claims in (\d+) items, of which (.*?)\. The", first
    ).groups()
    assert (int(claims), int(items)) == (whole.total(), len(by_item))
    assert {WORDS[word]: int(number) for number, word in re.findall(r"(\d+) (?:are )?(\w+)", words)} == whole


def test_the_first_page_explains_every_claim_that_does_not_hold():
    explained = Counter()
    for row in tables(INDEX.read_text(encoding="utf-8"))[2]:
        assert row["why"].endswith(".") and row["why"].count(". ") == 0  # one sentence
        explained[row["item"], row["verdict"]] += int(row["claims"])
    found = Counter()
    for key in PAPERS:
        for name, (_, text) in sections(key).items():
            found += Counter({(name, word): n for word, n in verdicts(text).items() if word != "holds"})
    assert explained == found
    assert {row["verdict"] for row in tables(INDEX.read_text(encoding="utf-8"))[0]} == set(reproductions.VERDICTS)


@pytest.mark.parametrize("key", PAPERS)
def test_pictures_exist_are_small_and_used(key):
    shown = {name: re.findall(r"^!\[.+\]\((.+)\)$", text, re.MULTILINE) for name, (_, text) in sections(key).items()}
    expected = {name: f"../img/{reproductions.picture_name(key, name)}" for name in reproductions.SHOWN[key]}
    assert {name: links for name, links in shown.items() if links} == {name: [link] for name, link in expected.items()}
    files = {(FOLDER / link).resolve() for link in expected.values()}
    assert files == set((DOCS / "img").glob(f"repro_{key}_*.png"))
    for file in files:
        assert 10_000 < file.stat().st_size <= small.MOST_BYTES
        with Image.open(file) as picture:
            assert all(side <= most for side, most in zip(picture.size, reproductions.SIZE, strict=True))
            whole = any(abs(side - most) <= 1 for side, most in zip(picture.size, reproductions.SIZE, strict=True))
            assert whole or file.stat().st_size > 0.8 * small.MOST_BYTES  # photographs are smaller, to be small files
            pixels = np.asarray(picture.convert("RGB"))
        assert (pixels[[0, 0, -1, -1], [0, -1, 0, -1]] >= 254).all(), f"{file.name}: the corners are not white"


# The writer


def tiny(folder: Path, verdict: str = "misleads") -> Path:
    """A folder of one item with one figure."""
    folder.mkdir()
    Image.new("RGB", (300, 200), small.style.PAPER).save(folder / "figure.png")
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
    (folder / "run.json").write_text(json.dumps(run | {"versions": {"jax": "1.2"}}), encoding="utf-8")
    results = {"paper": about, "items": [item], "seconds": 1.0}
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


@pytest.fixture
def docs(tmp_path):
    for name in ("reproductions", "img"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    index = f"# Title\n\n{reproductions.BEGIN}\nstale\n{reproductions.END}\n\nWords after.\n"
    (tmp_path / "docs/reproductions/index.md").write_text(index, encoding="utf-8")
    return tmp_path / "docs"


def test_what_the_writer_writes(docs, tmp_path):
    written = reproductions.write([tiny(tmp_path / "run")], docs)
    page, picture, index = (docs / part for part in ("reproductions/castin2025.md", "img", "reproductions/index.md"))
    assert written == [page, picture / "repro_castin2025_A1.png", index]
    text = page.read_text(encoding="utf-8")
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
    (summary,) = tables(index.read_text(encoding="utf-8"))
    assert [row["holds"] for row in summary] == ["1", "1"] and [row["undecided"] for row in summary] == ["0", "0"]
    assert index.read_text(encoding="utf-8").startswith("# Title\n") and index.read_text(encoding="utf-8").endswith(
        "-->\n\nWords after.\n"
    )
    assert "stale" not in index.read_text(encoding="utf-8")
    # Once more, with another verdict: nothing of the first is left.
    reproductions.write([tiny(tmp_path / "again", "undecided")], docs)
    (summary,) = tables(index.read_text(encoding="utf-8"))
    assert [row["misleads"] for row in summary] == ["0", "0"] and summary[1]["undecided"] == "1"
    assert "1 hold, 1 are undecided" in " ".join(page.read_text(encoding="utf-8").split())


def test_a_figure_that_cannot_be_drawn_is_told_and_its_picture_stays(docs, tmp_path, monkeypatch, capsys):
    """A vector needs a browser; the page is written all the same."""
    folder = tiny(tmp_path / "run")
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    results["items"][0]["figures"][0]["file"] = "figure.svg"
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (folder / "figure.svg").write_text('<svg width="72pt" height="36pt"/>', encoding="utf-8")
    picture = docs / "img/repro_castin2025_A1.png"
    picture.write_bytes(b"old")
    monkeypatch.setattr(small.shutil, "which", lambda name: None)
    written = reproductions.write([folder], docs)
    assert written == [docs / "reproductions/castin2025.md", docs / "reproductions/index.md"]
    assert picture.read_bytes() == b"old" and "repro_castin2025_A1.png is left as it is" in capsys.readouterr().err


# Small pictures


def drawn(source: Path, picture: Path, **limits) -> np.ndarray:
    small.convert(source, picture, **limits)
    with Image.open(picture) as image:
        assert image.mode == "P"
        return np.asarray(image.convert("RGB"))


def test_paper_becomes_white_and_no_picture_grows(docs, tmp_path):
    reproductions.write([tiny(tmp_path / "run")], docs)
    with Image.open(docs / "img/repro_castin2025_A1.png") as picture:
        assert picture.size == (300, 200) and set(np.asarray(picture.convert("RGB")).ravel()) == {255}
    Image.new("RGB", (4000, 1000), small.style.PAPER).save(tmp_path / "wide.png")
    reproductions.draw(tmp_path / "wide.png", tmp_path / "wide_small.png")
    with Image.open(tmp_path / "wide_small.png") as picture:
        assert picture.size == (1000, 250)


def test_pictures_are_as_large_as_they_may_be(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    whole = drawn(tmp_path / "noise.png", tmp_path / "out.png")
    assert whole.shape == (60, 80, 3)
    bytes_of_whole = (tmp_path / "out.png").stat().st_size
    less = drawn(tmp_path / "noise.png", tmp_path / "out.png", most=bytes_of_whole - 1)
    assert less.shape[:2] == (round(60 * small.SHRINK[1]), round(80 * small.SHRINK[1]))
    assert (tmp_path / "out.png").stat().st_size < bytes_of_whole
    (tmp_path / "out.png").unlink()
    with pytest.raises(ValueError, match="at most 500"):
        small.convert(tmp_path / "noise.png", tmp_path / "out.png", most=500)
    assert not (tmp_path / "out.png").exists(), "none is better than a large one"


def test_colours_of_small_dots_are_kept(tmp_path):
    """Of four pixels each, among very many colours: a palette by how often they occur would lose them."""
    y, x = np.mgrid[:300, :400]
    wanted = np.stack([255 - 0.4 * x, 255 - 0.5 * y, 255 - 0.2 * x - 0.3 * y], axis=-1)
    dots = [(230, 60, 40), (40, 120, 170), (30, 130, 50), (200, 190, 70), (100, 200, 230), (170, 50, 120)]
    for k, colour in enumerate(dots):
        wanted[20 + 30 * k, 20 + 40 * k] = wanted[21 + 30 * k, 20 + 40 * k] = colour
        wanted[20 + 30 * k, 21 + 40 * k] = wanted[21 + 30 * k, 21 + 40 * k] = colour
    paper = np.array(small.to_rgb(small.style.PAPER))
    Image.fromarray((wanted * paper).round().astype(np.uint8)).save(tmp_path / "dots.png")
    assert np.abs(drawn(tmp_path / "dots.png", tmp_path / "out.png") - wanted).max() <= 12


def test_a_figure_on_white_keeps_its_colours(tmp_path):
    for back, grey in (("white", (128, 128, 128)), ("#FCFBF8", (130, 130, 132))):  # 128 / (252, 251, 248) * 255
        figure = small.plt.figure(figsize=(2, 1), facecolor=back)
        figure.patches.append(small.plt.Rectangle((0.5, 0), 0.5, 1, color="#808080", transform=figure.transFigure))
        small.save(figure, tmp_path / "new" / "out.png", dpi=50)
        with Image.open(tmp_path / "new" / "out.png") as image:
            pixels = np.asarray(image.convert("RGB"))
        assert pixels.shape == (50, 100, 3) and (pixels[:, :49] == 255).all()
        assert (pixels[1:-1, 51:-1] == grey).all()
    assert small.plt.get_fignums() == []


def test_a_browser_draws_a_vector(tmp_path):
    """An SVG of 600 by 300 CSS pixels, on our paper, whose right half is dark."""
    assert Path(chromium()).name in small.BROWSERS
    svg = tmp_path / "a figure é.svg"
    half = f'<rect width="450" height="225" fill="{small.style.PAPER}"/><rect x="225" width="225" height="225"/>'
    svg.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="450pt" height="225pt" viewBox="0 0 450 225">{half}</svg>',
        encoding="utf-8",
    )
    for limits, size in (({}, (480, 960)), ({"size": (400, 760)}, (200, 400))):
        pixels = drawn(svg, tmp_path / "out.png", **limits)
        assert pixels.shape[:2] == size
        middle = size[1] // 2
        assert (pixels[:, : middle - 2] == 255).all() and (pixels[:, middle + 2 :] == 0).all()

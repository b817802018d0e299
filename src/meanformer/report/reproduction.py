"""The report of a reproduced paper: every claim next to our number, with a verdict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .page import VERDICTS, Markup, Page, Section, cell, verdict
from .pictures import Pictures
from .run import write

_MEANINGS = {
    "holds": "our number agrees within the tolerance",
    "fails": "it does not",
    "undecided": "the computation does not tell",
    "misleads": "a published procedure that does not give what it says; the right answer is beside it",
}


def write_reproduction(paper: Mapping[str, Any], items: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Write the report of a paper: the verdicts, the table of all claims, and a section per item.

    **Arguments:**

    - `paper`: "key", "title", "authors", "url", "bibtex"; optional "quick", "seed", "command", "versions", "machine",
      "created", "commit".
    - `items`: each "id", "title", "setting", "rows" ("claim", "reference", "ours", "tolerance", "verdict", "why"),
      "figures" ("name", "file", "caption"), "remarks", "seconds". Files are relative to the folder of `out`.
    - `out`: the file, or a folder for `report.html`.

    **Returns:** the path of the report.
    """
    out = Path(out)
    out = out if out.suffix == ".html" else out / "report.html"
    return write(out, lambda _: reproduction_page(paper, items, out.parent))


def reproduction_page(paper: Mapping[str, Any], items: Sequence[Mapping[str, Any]], folder: Path) -> Page:
    """The page of a paper."""
    authors = str(paper.get("authors") or "")
    page = Page(str(paper.get("title") or paper.get("key")), authors, f"meanformer · reproduction · {paper.get('key')}")
    rows = [row for item in items for row in item.get("rows") or ()]
    counts = Counter(str(row.get("verdict")) for row in rows)
    summary = page.section("Verdicts")
    if paper.get("quick"):
        summary.note("The quick form: fewer draws, tokens and times. The full one takes longer and tells more.", "warn")
    if paper.get("url"):
        summary.text(f"Every claim of [{paper['key']}] that can be computed, computed anew. The paper: {paper['url']}")
    tiles: list[tuple[str, Any, str]] = [("claims", len(rows), f"in {len(items)} items")]
    tiles += [(word, counts[word], _MEANINGS.get(word, "")) for word in VERDICTS if counts.get(word)]
    seconds = sum(float(item.get("seconds") or 0) for item in items)
    tiles.append(("time", _duration(seconds), ""))
    summary.tiles(tiles)
    _add_table(page.section("All claims"), items)
    parts, pictures = page.section("Items"), Pictures(folder)
    for item in items:
        _add_item(parts.section(f"{item['id']}. {item.get('title', '')}"), item, pictures)
    _add_reproduce(page.section("Do it again"), paper)
    cite = page.section("Cite")
    cite.code(str(paper.get("bibtex") or ""))
    return page


def _add_table(section: Section, items: Sequence[Mapping[str, Any]]) -> None:
    # The reasons stand with each item: here they would make the table too wide.
    rows = [(item["id"], *_cells(row)[:-1]) for item in items for row in item.get("rows") or ()]
    section.table(("item", "claim", "reference", "our number", "tolerance", "verdict"), rows)


def _cells(row: Mapping[str, Any]) -> tuple[Any, ...]:
    shown = (_aligned(row.get(key)) for key in ("reference", "ours"))
    return (
        str(row.get("claim", "")),
        *shown,
        row.get("tolerance"),
        verdict(str(row.get("verdict"))),
        row.get("why") or "",
    )


def _aligned(value: Any) -> Any:
    """Numbers with six digits, so that small differences show."""
    return Markup(cell(value, 6)) if isinstance(value, float) else value


def _add_item(section: Section, item: Mapping[str, Any], pictures: Pictures) -> None:
    section.text(str(item.get("setting") or ""))
    rows = [_cells(row) for row in item.get("rows") or ()]
    if rows:
        section.table(("claim", "reference", "our number", "tolerance", "verdict", "why"), rows)
    figures = item.get("figures") or ()
    if figures:
        one = len(figures) == 1
        section.figures(pictures.figure(f["file"], f.get("caption") or "", one) for f in figures)
    section.text(*(str(remark) for remark in item.get("remarks") or ()))
    if item.get("seconds") is not None:
        section.text(f"Computed in {_duration(float(item['seconds']))}.")


def _add_reproduce(section: Section, paper: Mapping[str, Any]) -> None:
    section.code(str(paper.get("command") or _command(paper)))
    versions = dict(paper.get("versions") or {})
    rows = [(key, str(paper[key])) for key in ("seed", "created", "machine", "commit") if paper.get(key) is not None]
    rows += [(name, str(version)) for name, version in versions.items()]
    if rows:
        section.table(("", ""), rows)


def _command(paper: Mapping[str, Any]) -> str:
    """The command that computes this, where it was not kept."""
    seed = f" --seed {paper['seed']}" if paper.get("seed") else ""
    return f"meanformer reproduce {paper.get('key')}" + " --quick" * bool(paper.get("quick")) + seed


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"

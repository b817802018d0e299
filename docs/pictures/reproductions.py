"""Write docs/reproductions, and its pictures, from folders of `meanformer reproduce`.

python docs/pictures/reproductions.py runs/castin2025 runs/geshkovski2023

Each folder gives a page with all claims, and its lines of the table on the front page. Pictures (docs/img/repro_*) are
drawn from the figures of the folder; those that are vectors need a Chromium, and without one are left as they are.
"""

import argparse
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import small

from meanformer.report.page import number_text

DOCS = Path(__file__).parents[1]
VERDICTS = ("holds", "misleads", "undecided", "fails")
BEGIN, END = "<!-- written by docs/pictures/reproductions.py -->", "<!-- end -->"
# The figure that is shown of an item, by its name in the folder; other items have none on the page.
SHOWN = {
    "castin2025": {
        "A1": "blow_up",
        "A2": "ranks_identity",
        "A4": "two_lines",
        "A5b": "l2_blow_up",
        "A7": "mean_field_rate",
        "A9": "stability",
        "A11": "three_representations",
        "A12": "image",
    },
    "geshkovski2023": {"B1": "polytope_2d", "B3": "boolean_attention", "B4": "integrator"},
}
SIZE = (1000, 760)  # pixels at most

_FORMULA = re.compile(r"(\$[^$]+\$)")
# Words of claims that were written for a terminal.
_SIGNS = {
    r"\bSigma0\b": "Σ₀",
    r"\bSigma_inf\b": "Σ∞",
    r"\bSigma_11\b": "Σ₁₁",
    r"\bSigma_12\b": "Σ₁₂",
    r"\bSigma\b": "Σ",
    r"\blmax\b": "λmax",
    r"\^-1\b": "⁻¹",
    r"\^T\b": "ᵀ",
    r"\^\(1/2\)": "^½",
}


def markdown(text: str) -> str:
    """Words of a report as Markdown, also for a table: formulas stay, signs that mean something to it are escaped."""
    parts = _FORMULA.split(text)
    return "".join(_formula(part) if part.startswith("$") else _words(part) for part in parts)


def _formula(tex: str) -> str:
    """A bar would end a cell, and a star could begin emphasis."""

    def named(bar: re.Match[str]) -> str:
        return (r"\Vert" if bar[1] == r"\|" else r"\vert") + " " * bar[2].isalpha()

    return re.sub(r"(\\\||\|)(?=(.))", named, tex).replace("*", r"\ast")


def _words(text: str) -> str:
    for pattern, sign in _SIGNS.items():
        text = re.sub(pattern, sign, text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")
    return re.sub(r"([\\`*_\[\]])", r"\\\1", text)


def paragraph(text: str) -> str:
    """A paragraph in lines of the length of the others; no line ends inside a formula or a link."""
    whole = re.sub(r"\$[^$]+\$|`[^`]+`|\[[^]]*\]\([^)]*\)", lambda part: part[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(whole, 120, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def value(cell: Any) -> str:
    """A number or words."""
    if isinstance(cell, float):
        return number_text(cell, 5 if 0.001 <= abs(cell) < 1e5 else 2)
    return markdown(str(cell))


def counts(items: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """How many claims have which verdict."""
    return Counter(str(row["verdict"]) for item in items for row in item["rows"])


def sentence(found: Counter[str]) -> str:
    """The verdicts in words: "91 hold, 4 mislead, 5 are undecided"."""
    words = {"holds": "hold", "misleads": "mislead", "undecided": "are undecided", "fails": "fail"}
    return ", ".join(f"{found[word]} {words[word]}" for word in VERDICTS if found[word])


def item_lines(key: str, item: Mapping[str, Any]) -> list[str]:
    """The section of one item."""
    head = ["claim", "reference", "ours", "tolerance", "verdict", "reason"]
    rows = [
        [
            markdown(row["claim"]),
            value(row["reference"]),
            value(row["ours"]),
            value(row["tolerance"]),
            str(row["verdict"]) if row["verdict"] == "holds" else f"**{row['verdict']}**",
            markdown(row["why"]),
        ]
        for row in item["rows"]
    ]
    lines = [f"## {item['id']}. {_words(item['title'])}", "", paragraph(markdown(item["setting"])), ""]
    lines += [*table(head, rows), ""]
    for remark in item["remarks"]:
        lines += [paragraph(markdown(remark)), ""]
    figure = shown(key, item)
    if figure is not None:
        name = _words(f"{item['id']}: {item['title']}")
        lines += [f"![{name}](../img/{picture_name(key, item['id'])})", "", paragraph(markdown(figure["caption"])), ""]
    return lines


def shown(key: str, item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The figure of an item that has a picture on the page, if there is one."""
    wanted = SHOWN.get(key, {}).get(item["id"])
    return next((figure for figure in item["figures"] if figure["name"] == wanted), None)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown, whose cells have no bars left."""
    assert not any("|" in cell for row in rows for cell in row), "a bar would cut a cell"
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def picture_name(key: str, item: str) -> str:
    """The file of the picture of an item."""
    return f"repro_{key}_{item}.png"


def page(run: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """The page of a paper."""
    paper, items = results["paper"], results["items"]
    key = paper["key"]
    found = counts(items)
    made: dict[str, list[str]] = {}
    for item in items:
        made.setdefault(item["made_by"]["commit"], []).append(item["id"])
    commits = "; ".join(f"{commit} ({', '.join(names)})" for commit, names in made.items())
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    first = (
        f"The results of {paper['authors']} ([paper]({paper['url']})), computed again: {sum(found.values())} claims in"
        f" {len(items)} items, of which {sentence(found)}. The [first page](index.md) says what the verdicts mean."
    )
    seconds = results["seconds"]
    took = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    last = (
        f"Computed on {run['created'][:10]}, with seed {run['seed']}, on {run['machine']}, in"
        f" {took} summed over the items. Versions: {versions}."
        f" Commits, with the items that each computed (+: with changes): {commits}. This page is written by"
        " `docs/pictures/reproductions.py`."
    )
    lines = [f"# {paper['title']}", "", paragraph(first), ""]
    if run["quick"]:
        lines += ["The quick form: fewer draws, tokens and times.", ""]
    for item in items:
        lines += item_lines(key, item)
    lines += [
        "## Do it again",
        "",
        "```console",
        run["command"] or f"meanformer reproduce {key}",
        "```",
        "",
        paragraph(last),
        "",
        "```bibtex",
        paper["bibtex"],
        "```",
    ]
    return "\n".join(lines) + "\n"


def summary_lines(all_results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of the front page: verdicts by paper and item."""
    rows = []
    for results in all_results:
        link = f"[{results['paper']['key']}]({results['paper']['key']}.md)"
        for item in results["items"]:
            found = counts([item])
            rows.append([link, item["id"], _words(item["title"]), *(str(found[word]) for word in VERDICTS)])
        found = counts(results["items"])
        rows.append([link, "all", f"{sum(found.values())} claims", *(f"**{found[word]}**" for word in VERDICTS)])
    return table(["paper", "item", "what", *VERDICTS], rows)


def draw(figure: Path, picture: Path) -> None:
    """Write the picture of a figure as the page has it; the gallery has the same one."""
    small.convert(figure, picture, SIZE)


def write(folders: Sequence[Path], docs: Path = DOCS) -> list[Path]:
    """Write the pages of the folders, the tables of the front page and the pictures; returns what was written."""
    written, all_results = [], []
    for folder in folders:
        run, results = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("run.json", "results.json")
        )
        key = results["paper"]["key"]
        out = docs / "reproductions" / f"{key}.md"
        out.write_text(page(run, results), encoding="utf-8", newline="\n")
        written.append(out)
        all_results.append(results)
        for item in results["items"]:
            figure, picture = shown(key, item), docs / "img" / picture_name(key, item["id"])
            if figure is not None:
                try:
                    draw(folder / figure["file"], picture)
                    written.append(picture)
                except small.NoBrowserError as error:
                    print(f"{picture} is left as it is: {error}", file=sys.stderr)
    index = docs / "reproductions" / "index.md"
    before, _, rest = index.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [before + BEGIN, "", *summary_lines(all_results), "", END]
    index.write_text("\n".join(lines) + after, encoding="utf-8", newline="\n")
    return [*written, index]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of `meanformer reproduce`, all of them at once")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    for path in write(options.folders, options.docs):
        if path.suffix == ".md":  # small.py tells of the pictures
            print(path)


if __name__ == "__main__":
    main()

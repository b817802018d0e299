"""A page: one HTML file with everything in it, and no network. Runs, sweeps and reproductions build theirs from it."""

import base64
import functools
import hashlib
import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from .formula import formula, inline

# A sign and a word for each verdict: colours only repeat what these say.
VERDICTS = {"holds": "✓", "fails": "✗", "undecided": "?", "misleads": "!", "no claim": "–"}
# The browser itself refuses whatever is not in the file, and every script that is not one of ours.
_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src {scripts}; "
    "base-uri 'none'; form-action 'none'"
)
_SCRIPTS = ("page.js", "sorting.js", "tokenmap.js")
# A table with more rows than this may be cut between two pages of paper.
LONG_TABLE = 18
# One with more columns than this is set small on paper.
WIDE_TABLE = 12

RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_RAISED = str.maketrans("-0123456789", RAISED)
_LOWERED = str.maketrans(RAISED, "−0123456789")


class Markup(str):
    """HTML that is written as it is; every other text is escaped."""


def verdict(word: str) -> Markup:
    """A badge."""
    known = word if word in VERDICTS else "no claim"
    sign = f'<span aria-hidden="true">{VERDICTS[known]}</span>'
    return Markup(f'<span class="badge {known.replace(" ", "-")}">{sign}{html.escape(word)}</span>')


def number_text(value: Any, digits: int = 4) -> str:
    """A number as people write it: 0.1234, 1.2 × 10⁶, 20,000; None is a dash, words stay words."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}"
    if "e" in text:
        leading, power = text.split("e")
        text = f"{leading} × 10{str(int(power)).translate(_RAISED)}"
    return text.replace("-", "−")


def plain_text(text: Any) -> str:
    r"""A text of others for a sentence of ours: its dollars and backticks are no formulas and no code."""
    return str(text).replace("\\$", "$").replace("$", "\\$").replace("`", "'")


def cell(value: Any, digits: int = 4) -> str:
    """The HTML of a value: markup as it is, numbers as people write them, words with their formulas."""
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, str):
        return inline(value)
    text = html.escape(number_text(value, digits))
    # As markup: the raised digits of fonts are of different sizes.
    return re.sub(f"10([{RAISED}]+)", lambda found: f"10<sup>{found[1].translate(_LOWERED)}</sup>", text)


class Block:
    """A part of a page, filled from top to bottom. Texts may hold `$...$` and `` `...` ``."""

    def __init__(self) -> None:
        self.parts: list[object] = []

    def add(self, markup: str) -> None:
        """HTML as it is."""
        self.parts.append(markup)

    def text(self, *paragraphs: str) -> None:
        """Paragraphs."""
        self.parts += [f"<p>{inline(words)}</p>" for words in paragraphs if words.strip()]

    def display(self, tex: str) -> None:
        """A formula on a line of its own."""
        self.add(f'<div class="display">{formula(tex) or f"<code>{html.escape(tex)}</code>"}</div>')

    def note(self, words: str, kind: str = "") -> None:
        """A paragraph that stands out; `kind` is "good", "warn", "bad" or nothing."""
        self.add(f'<div class="note-box {html.escape(kind)}"><p>{inline(words)}</p></div>')

    def tiles(self, tiles: Iterable[tuple[str, Any, str]]) -> None:
        """Key numbers: label, value, and a few words below."""
        found = []
        for label, value, words in tiles:
            shown = cell(value)
            long = " long" if not isinstance(value, Markup) and len(number_text(value)) > 11 else ""
            small = f'<div class="note">{inline(words)}</div>' if words else ""
            found.append(
                f'<div class="tile"><div class="label">{inline(label)}</div>'
                f'<div class="value{long}">{shown}</div>{small}</div>'
            )
        self.add(f'<div class="tiles">{"".join(found)}</div>')

    def badges(self, badges: Iterable[str]) -> None:
        """Badges in a row."""
        self.add(f'<div class="badges">{"".join(badges)}</div>')

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> None:
        """A table; a column whose values are numbers (or missing) is aligned to the right."""
        kinds = ["number" if _numeric([row[k] for row in rows]) else "" for k in range(len(headings))]
        head = "".join(
            f'<th scope="col" class="{kind}">{inline(word)}</th>' for word, kind in zip(headings, kinds, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(f'<td class="{kind or _width(v)}">{cell(v)}</td>' for v, kind in zip(row, kinds, strict=True))
            + "</tr>"
            for row in rows
        )
        words = f"<caption>{inline(caption)}</caption>" if caption else ""
        size = (" long" if len(rows) > LONG_TABLE else "") + (" many" if len(headings) > WIDE_TABLE else "")
        self.add(
            f'<div class="scroll" tabindex="0"><table class="data{size}">{words}<thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figures(self, figures: Iterable[Markup]) -> None:
        """Pictures side by side where there is room."""
        self.add(f'<div class="figures">{"".join(figures)}</div>')

    def beside(self, text: "Block", figures: Iterable[Markup]) -> None:
        """A block with pictures to its right, where there is room."""
        self.add(f'<div class="beside"><div>{text.html()}</div><div>{"".join(figures)}</div></div>')

    def code(self, text: str) -> None:
        """Text to copy."""
        self.add(f'<div class="code"><pre>{html.escape(text.strip())}</pre><button type="button">copy</button></div>')

    def details(self, summary: str, open_: bool = False) -> "Block":
        """A part that is shown when asked for (and always on paper)."""
        inner = Block()
        self.parts.append(_Later(summary, inner, open_))
        return inner

    def html(self) -> str:
        """The block."""
        return "\n".join(str(part) for part in self.parts)


@dataclass
class _Later:
    """Details are filled after they are placed."""

    summary: str
    inner: Block
    open: bool

    def __str__(self) -> str:
        shown = " open" if self.open else ""
        return f"<details{shown}><summary>{inline(self.summary)}</summary>\n{self.inner.html()}\n</details>"


class Section(Block):
    """A part with a title that the contents list; `section(title)` gives a smaller one inside."""

    def __init__(self, title: str, anchor: str, level: int, used: set[str]):
        super().__init__()
        self.title, self.anchor, self.level, self._used = title, anchor, level, used
        self.inner: list[Section] = []

    def section(self, title: str) -> "Section":
        """A section inside this one, below what it has so far."""
        section = Section(title, _anchor(title, self._used), self.level + 1, self._used)
        self.inner.append(section)
        self.parts.append(section)
        return section

    def __str__(self) -> str:
        tag = f"h{self.level}"
        return f'<section id="{self.anchor}"><{tag}>{inline(self.title)}</{tag}>\n{self.html()}\n</section>'


@dataclass
class Page:
    """A page with a title, a line below it, and sections.

    ```python
    page = Page("Clusters", "40 tokens in the cube")
    page.section("Numbers").tiles([("radius", 4.2, "at the end")])
    Path("report.html").write_text(page.html())
    ```
    """

    title: str
    subtitle: str = ""
    kicker: str = "meanformer"
    footer: str = ""
    sections: list[Section] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    def section(self, title: str) -> Section:
        """A new section at the end."""
        self.sections.append(Section(title, _anchor(title, self._used), 2, self._used))
        return self.sections[-1]

    def html(self) -> str:
        """The whole file."""
        subtitle = f'<p class="subtitle">{inline(self.subtitle)}</p>' if self.subtitle else ""
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="meanformer">
<title>{html.escape(bare(self.title))}</title>
<meta name="referrer" content="no-referrer">
<style>
{own_file("page.css")}</style>
{own_script("page.js")}
</head>
<body>
<div class="page">
<header>
<p class="kicker">{inline(self.kicker)}</p>
<h1>{inline(self.title)}</h1>
{subtitle}
<button class="theme" type="button" aria-label="light or dark">light / dark</button>
</header>
<nav aria-label="Contents"><ul>{"".join(_entry(section) for section in self.sections)}</ul></nav>
<main>
{"".join(str(section) for section in self.sections)}
</main>
<footer>{inline(self.footer)}</footer>
</div>
</body>
</html>
"""


def own_file(name: str) -> str:
    """The text of a file of this package."""
    return (resources.files("meanformer.report") / name).read_text(encoding="utf-8")


def own_script(name: str) -> Markup:
    """One of our scripts; the policy of the page allows these alone."""
    assert name in _SCRIPTS
    return Markup(f"<script>{_script(name)}</script>")


def _script(name: str) -> str:
    return f"\n{own_file(name)}"


@functools.cache
def policy() -> str:
    """What a browser may do with a page: nothing but show what is in it, and run our scripts, known by their hashes."""
    digests = [hashlib.sha256(_script(name).encode()).digest() for name in _SCRIPTS]
    return _POLICY.format(scripts=" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))


def _entry(section: Section) -> str:
    own = f'<li><a href="#{section.anchor}">{inline(section.title)}</a></li>'
    return own + "".join(f'<li class="sub"><a href="#{s.anchor}">{inline(s.title)}</a></li>' for s in section.inner)


def _anchor(title: str, used: set[str]) -> str:
    """A name for links: letters, digits and hyphens, different from the others."""
    plain = unicodedata.normalize("NFKD", bare(title)).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "section"
    name = next(n for n in (stem, *(f"{stem}-{k}" for k in range(2, 10_000))) if n not in used)
    used.add(name)
    return name


def bare(text: str) -> str:
    """A text without the marks of formulas and code."""
    return text.replace("$", "").replace("`", "")


def _numeric(values: Sequence[Any]) -> bool:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return bool(numbers) and all(v is None or v == "" or v in numbers for v in values)


def _width(value: Any) -> str:
    """Long words need room, so that a table on a phone scrolls in place of growing tall."""
    length = 0 if isinstance(value, Markup) else len(number_text(value))
    return "wide" if length > 60 else "middle" if length > 18 else ""

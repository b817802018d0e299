"""What the pages of the documentation hold: their fences, links and pictures."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]

# A fence may stand inside a list or a note, indented.
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S)


@dataclass(frozen=True)
class Fence:
    """A block of code: its language, its text, the line of the page on which it begins, and whether it follows another
    one at once, with nothing but blank lines between.
    """

    language: str
    body: str
    line: int
    follows: bool = False


def fences(page: Path) -> list[Fence]:
    """All blocks of a page, in order."""
    text, blocks, end = page.read_text(encoding="utf-8"), [], 0
    for found in _FENCE.finditer(text):
        line, follows = text[: found.start()].count("\n") + 1, bool(blocks) and not text[end : found.start()].strip()
        blocks.append(Fence(found["language"], textwrap.dedent(found["body"]), line, follows))
        end = found.end()
    return blocks


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    """The path of a page from the root, as it is told by the tests."""
    return page.relative_to(ROOT).as_posix()

"""What a reproduction is made of: items, each with rows of a table and figures."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Row:
    """One claim next to our number.

    `verdict` is "holds", "fails", "undecided", or "misleads" (a published procedure that does not give what it says);
    `why` says more, in a sentence. `reference` and `ours` are numbers, or words where no number tells it.
    """

    claim: str
    reference: float | str
    ours: float | str
    tolerance: float | str
    verdict: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure with its caption; `name` becomes the file's name."""

    name: str
    figure: Figure
    caption: str


@dataclasses.dataclass(frozen=True)
class Found:
    """What an item found: rows, pictures, and remarks (paragraphs) for the report."""

    rows: list[Row]
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much to do: `quick` is a part of the draws, tokens and times that shows the same facts in seconds; `say`
    tells the progress (a share between 0 and 1, and words).
    """

    quick: bool
    seed: int = 0
    say: Callable[[float, str], None] = lambda share, words: None

    def choose(self, quick: Any, full: Any) -> Any:
        """One of two sizes."""
        return quick if self.quick else full


@dataclasses.dataclass(frozen=True)
class Item:
    """One entry of a paper's list: `setting` in words with formulas ($...$), and the function that computes it."""

    id: str
    title: str
    setting: str
    compute: Callable[[Budget], Found]
    minutes: tuple[float, float] = (0.1, 1.0)  # measured on two cores: quick, full


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper: its key, reference and items in order."""

    key: str
    title: str
    authors: str
    url: str
    bibtex: str
    items: Mapping[str, Item]


def within(claim: str, reference: float, ours: float, tolerance: float, why: str = "", relative: bool = True) -> Row:
    """A row that holds if our number is within `tolerance` of the reference (relative to it, by default)."""
    error = abs(ours - reference) / (abs(reference) if relative else 1.0)
    words = f"{tolerance:.0e} relative" if relative else f"{tolerance:g}"
    return Row(claim, reference, ours, words, "holds" if error <= tolerance else "fails", why)

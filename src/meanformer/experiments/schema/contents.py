"""The shape of `run.json` and `results.json`, as far as reports, tables and comparisons rely on it, beyond what the
store asks of every folder (`store/shapes.py`).

Other keys are free: a folder may hold more than this version knows.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from ...store import shapes
from ...store.shapes import Part

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""A name that becomes a folder."""
Whole = Annotated[int, Field(ge=0)]
FromList = Strict(False)  # JSON has no tuples
Value = float | str | None
"""What a table of numbers holds: numbers, words, or nothing."""


class Options(Part):
    """The options of a call, as the store writes a table."""

    table: dict[str, Any] = Field(alias="dict")


class Verb(Part):
    """What was called: a verb, a field and a measure."""

    verb: str
    field: Any
    measure: Any
    options: Options


class Call(Part):
    """A call from Python, as the store writes a table."""

    table: Verb = Field(alias="dict")


class Record(shapes.Record):
    """`run.json`: what was asked."""

    kind: Literal["flow", "layers", "cases", "sweep", "reproduction", "model"]
    about: str | None = None
    formula: str | None = None
    caption: str | None = None
    source: str | None = None
    commit: str | None = None
    machine: str | None = None
    convention: str | None = None
    seed: int | None = None
    quick: bool | None = None
    cites: list[str] | None = None
    call: Call | None = None


class CasesRecord(Record):
    """Of several cases."""

    cases: list[Name] = Field()


class SweepRecord(Record):
    """Of a sweep."""

    axes: dict[str, list[Any]] = Field()


class StagesRecord(Record):
    """Of what is done item by item: a paper, or the analysis of a model."""

    items: list[Name] = Field()


class Drawn(shapes.Drawn):
    """A picture, and the file that holds it."""

    name: str | None = None
    caption: str | None = None


class Check(Part):
    """A claim of the theory."""

    claim: str
    holds: bool | None
    bound: float | None
    measured: float | None
    slack: float | None = None
    why: str | None = None


class Failed(Part):
    """A run of a sweep that failed."""

    task: Whole
    error: str


class Results(shapes.Results):
    """`results.json`: what was found."""

    summary: str | None = None
    outcome: str | None = None
    fate: str | None = None
    seconds: float | None = None
    numbers: dict[str, Value] | None = None
    checks: list[Check] | None = None
    figures: list[Drawn] | None = None
    notes: list[str] | None = None
    failed: list[Failed] | None = None


class Row(Part):
    """One case in the table of all."""

    name: Name
    title: str | None = None
    outcome: str | None = None
    fate: str | None = None
    summary: str | None = None
    numbers: dict[str, Value] | None = None


class CasesResults(Results):
    """Of several cases."""

    rows: list[Row] | None = None
    cases: list[Name] | None = None


class Claim(Part):
    """A claim of a paper beside our number."""

    claim: str
    reference: Value
    ours: Value
    tolerance: Value
    verdict: str
    why: str | None = None


class Item(Part):
    """An item of a paper."""

    id: Name
    title: str
    setting: str | None = None
    rows: list[Claim]
    figures: list[Drawn] | None = None
    remarks: list[str] | None = None
    seconds: float


class Paper(Part):
    """A paper."""

    key: str
    title: str | None = None
    authors: str | None = None
    url: str | None = None
    bibtex: str | None = None


class PaperResults(Results):
    """Of a paper."""

    paper: Paper
    items: list[Item]

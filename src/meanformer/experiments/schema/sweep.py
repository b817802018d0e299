"""[sweep]: many runs, over grids of parameters and random draws."""

import math
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from ..names import NUMBERS
from .base import OneOfForms, Table, Word

MOST_RUNS = 10**6
DRAW = "draw"
"""The axis of random draws."""


def _refuse(expected: str) -> None:
    raise PydanticCustomError("wrong_form", "form", {"expected": expected, "options": []})


def _spaced(values: list[float]) -> list[float]:
    """First, last, and how many."""
    if len(values) != 3 or values[2] != int(values[2]) or not 1 <= values[2] <= MOST_RUNS:
        _refuse(f"[first, last, count], with a whole count up to {MOST_RUNS:,}")
    return values


def _spaced_log(values: list[float]) -> list[float]:
    if not (values[0] > 0 and values[1] > 0):
        _refuse("[first, last, count], with positive ends: a logarithm is taken")
    return values


def _ends(values: list[int]) -> list[int]:
    if len(values) != 2 or not 0 <= values[1] - values[0] < MOST_RUNS:
        _refuse(f"[first, last], increasing, with at most {MOST_RUNS:,} numbers")
    return values


def _different(values: list[Any]) -> list[Any]:
    if any(value in values[:place] for place, value in enumerate(values)):
        _refuse("different values: each labels a run")
    return values


class Linear(Table):
    """Numbers that are equally spaced: first, last, count."""

    linear: Annotated[list[float], AfterValidator(_spaced)]

    def values(self) -> list[Any]:
        """The numbers."""
        return np.linspace(self.linear[0], self.linear[1], int(self.linear[2])).tolist()


class Log(Table):
    """Numbers that are equally spaced in the logarithm: first, last, count."""

    log: Annotated[list[float], AfterValidator(_spaced), AfterValidator(_spaced_log)]

    def values(self) -> list[Any]:
        """The numbers."""
        return np.geomspace(self.log[0], self.log[1], int(self.log[2])).tolist()


class Range(Table):
    """The whole numbers from the first to the last, both included."""

    range: Annotated[list[int], AfterValidator(_ends)]

    def values(self) -> list[Any]:
        """The numbers."""
        return list(np.arange(self.range[0], self.range[1] + 1).tolist())


FORMS: dict[str, type[Linear | Log | Range]] = {"linear": Linear, "log": Log, "range": Range}
Scalar = float | str | bool | int


def _form(value: Any) -> str | None:
    if isinstance(value, dict):
        return next((name for name in FORMS if name in value), None)
    if isinstance(value, Table):
        return next(name for name, form in FORMS.items() if isinstance(value, form))
    scalars = isinstance(value, list) and value and all(isinstance(v, (int, float, str)) for v in value)
    return "list" if scalars else None


Axis = Annotated[
    Any,
    OneOfForms(
        _form,
        {"list": Annotated[list[Any], AfterValidator(_different)], **FORMS},
        "values: [0.5, 1.0], {linear = [0.1, 2.0, 20]}, {log = [0.01, 1.0, 5]} or {range = [0, 9]}",
        list(FORMS),
    ),
]


class Sweep(Table):
    """[sweep]: one run for each point of the grid, each repeated for `draws` seeds.

    `numbers` are those of the table that is made (by default all that apply), `workers` how many runs at once (by
    default one for each core); with `keep` the states of each run are kept too.
    """

    grid: dict[str, Axis] = Field(default={})
    draws: Annotated[int, Field(ge=1, le=MOST_RUNS)] | None = None
    numbers: list[Annotated[str, Word("number", NUMBERS)]] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    keep: bool = False

    def axes(self) -> dict[str, list[Any]]:
        """The values along each axis, in the order of the file; the draws come last."""
        axes = {key: axis if isinstance(axis, list) else axis.values() for key, axis in self.grid.items()}
        return axes if self.draws is None else axes | {DRAW: list(range(self.draws))}

    def count(self) -> int:
        """The number of runs."""
        return math.prod(len(values) for values in self.axes().values())

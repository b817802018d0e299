"""[flow], [layers], [save], [diagnostics], [figures]: what is done with the tokens, and what is kept."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

import meanformer as mf

from ... import _checks as checks
from ...flows.solvers import NAMES
from ..names import FIGURES, NUMBERS
from .base import Count, OneOfForms, Positive, Site, Table, Word, is_number
from .space import Space, made_space


def _end(t1: float) -> float:
    if not t1 > -math.inf:
        raise PydanticCustomError("wrong_form", "form", {"expected": "a time, or inf for a Gaussian", "options": []})
    return t1


End = Annotated[float, Field(allow_inf_nan=True, description="the time at which the flow ends"), AfterValidator(_end)]
Steps = Annotated[int, Field(ge=1, le=10**8)]


class Stationary(Table):
    """Stop when no token moves faster than this."""

    stationary: Positive

    def rule(self) -> Any:
        """The rule of the library."""
        return mf.Stationary(self.stationary)


class RadiusAbove(Table):
    """Stop when a token is farther from 0 than this."""

    radius_above: Positive

    def rule(self) -> Any:
        """The rule of the library."""
        return mf.RadiusAbove(self.radius_above)


class WallClock(Table):
    """Stop after so many seconds."""

    wall_clock: Positive

    def rule(self) -> Any:
        """The rule of the library."""
        return mf.WallClock(self.wall_clock)


RULES: dict[str, type[Table]] = {"stationary": Stationary, "radius_above": RadiusAbove, "wall_clock": WallClock}


def _rule(value: Any) -> str | None:
    if isinstance(value, dict):
        return next((name for name in RULES if name in value), None)
    return next((name for name, rule in RULES.items() if isinstance(value, rule)), None)


Rule = Annotated[
    Any, OneOfForms(_rule, dict(RULES), "a rule: " + ", ".join(f"{{{name} = ...}}" for name in RULES), list(RULES))
]


class Flow(Table):
    """[flow]: continuous time."""

    t0: float = 0.0
    t1: End
    solver: Annotated[str, Word("solver", NAMES)] | None = None
    rtol: Positive | None = None
    atol: Positive | None = None
    step: Positive | None = None
    accuracy: Positive | None = None
    frame: Literal["rescaled"] | None = None
    space: Space | None = None
    stop: list[Rule] | None = None
    max_steps: Steps | None = None

    def options(self, save: "Save") -> dict[str, Any]:
        """The arguments of `mf.flow`."""
        plain = {name: getattr(self, name) for name in ("t0", "t1", "solver", "rtol", "atol", "step", "accuracy")}
        plain |= {"max_steps": self.max_steps, "sample": save.sample, "save": save.schedule()}
        plain |= {"frame": mf.Rescaled() if self.frame else None, "space": made_space(self.space)}
        plain |= {"stop": [rule.rule() for rule in self.stop] if self.stop else None}
        return {name: value for name, value in plain.items() if value is not None}


class Layers(Table):
    """[layers]: a residual transformer. With `redraw`, each layer draws its own random matrices."""

    depth: Annotated[int, Field(ge=1, description="the number of layers")]
    step: Positive | None = None
    accuracy: Positive | None = None
    space: Space | None = None
    redraw: bool = False

    def options(self, save: "Save") -> dict[str, Any]:
        """The arguments of `mf.layers`."""
        plain = {"depth": None if self.redraw else self.depth, "step": self.step, "accuracy": self.accuracy}
        plain |= {"space": made_space(self.space), "sample": save.sample, "save": save.times}
        return {name: value for name, value in plain.items() if value is not None}


class LogTimes(Table):
    """Times equally spaced in the logarithm: t0, then from t0 + log_from to t1."""

    count: Annotated[int, Field(ge=3)]
    log_from: Positive


def _times(value: Any) -> str | None:
    if isinstance(value, (dict, Table)):
        return "log"
    return (
        "list" if isinstance(value, list) else "word" if isinstance(value, str) else "count" * is_number(value) or None
    )


Times = Annotated[
    Any,
    OneOfForms(
        _times,
        {
            "count": Annotated[int, Field(ge=2)],
            "list": Annotated[list[float], Field(min_length=1)],
            "log": LogTimes,
            "word": Annotated[str, Word("times", ["all", "final"])],
        },
        'a number of times, a list of times, {count = 101, log_from = 0.01}; for layers "all" or "final"',
        ["count", "log_from"],
    ),
]


class Save(Table):
    """[save]: when states are kept, of how many tokens, and how many seconds lie between two writes to the disk."""

    times: Times | None = None
    sample: Count | None = None
    every: Positive = 2.0

    def schedule(self) -> Any:
        """What `mf.flow` calls `save`."""
        if isinstance(self.times, LogTimes):
            return mf.log_times(self.times.count, self.times.log_from)
        return self.times


class Diagnostics(Table):
    """[diagnostics]: the numbers that are reported (by default all that apply), and whether all claims of the theory
    are checked, or that of the radius alone, which costs nothing.
    """

    numbers: list[Annotated[str, Word("number", NUMBERS)]] | None = None
    check: bool = True


class Sectors(Table):
    """Colour by the sector of the plane in which a token starts, the first around the second axis."""

    sectors: Annotated[int, Field(ge=2, le=12)]


Colour = Annotated[
    Any,
    OneOfForms(
        lambda value: "word" if isinstance(value, str) else "sectors" if isinstance(value, (dict, Table)) else None,
        {"word": str, "sectors": Sectors},
        '"clusters", "positions", a colour such as "black", or {sectors = 5}',
        ["sectors"],
    ),
]


class Figures(Table):
    """[figures]: which are drawn (by default all that fit), and how.

    `view` is half the width of the picture, `coordinates` one to three of those of the tokens.
    """

    draw: list[Annotated[str, Word("figure", FIGURES)]] | None = None
    animation: bool = False
    colour: Colour | None = None
    coordinates: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=3)] | None = None
    view: Positive | None = None

    def check(self, site: Site, d: int) -> None:
        """Refuse coordinates that tokens of dimension `d` do not have, and colours that are none."""
        from matplotlib.colors import is_color_like

        chosen = self.coordinates or []
        with site.refusing("coordinates"):
            if len(set(chosen)) < len(chosen) or any(c >= d for c in chosen):
                checks.refuse(
                    "these coordinates cannot be drawn",
                    got=f"coordinates = {chosen} for tokens of dimension {d}",
                    expected=f"different numbers from 0 to {d - 1}",
                    remedy="leave coordinates out, or choose others",
                )
        words = ("clusters", "positions")
        with site.refusing("colour"):
            if isinstance(self.colour, str) and self.colour not in words and not is_color_like(self.colour):
                checks.one_of(self.colour, "this colour", [*words, "a colour such as black"])

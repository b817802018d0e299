"""The shape of the settings in `run.json`, as far as reports tell them in words.

Experiment files are held to far more than this (`schema/attention.py` and others); here may stand what an older version
wrote, or a part that cases complete.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from ...store.shapes import Part
from .contents import FromList, Whole

Numbers = list[float]


Rows = list[Annotated[Numbers, Field(min_length=1)]]


class MatrixTable(Part):
    """A matrix that is told by where it comes from."""

    scale: float | None = None
    identity: float | None = None
    diagonal: Numbers | None = None
    rotation: float | None = None
    of: str | None = None
    gram: "One | None" = None
    random: str | None = None
    shape: Annotated[tuple[Whole, Whole], FromList] | None = None
    seed: int | None = None
    file: str | None = None


One = str | float | Rows | MatrixTable
Matrix = One | list[One] | None
"""A matrix, or those of several heads."""


class Field_(Part):
    """A kind of attention, or another field."""

    kind: str | None = None
    tau: float | None = None
    eps: float | None = None
    bias: float | None = None
    factor: float | None = None
    kernel: str | None = None
    Q: Matrix = None
    K: Matrix = None
    V: Matrix = None
    W: Matrix = None
    M: Matrix = None
    W1: Matrix = None
    W2: Matrix = None
    O: Matrix = None
    of: "Field_ | None" = None
    field: "Field_ | None" = None
    heads: "list[Field_] | None" = None
    terms: "list[Field_] | None" = None
    fields: "list[Field_] | None" = None


class Measure(Part):
    """The tokens, or what they are drawn from."""

    kind: str | None = None
    n: Whole | None = None
    d: Whole | None = None
    means: list[Any] | None = None
    cells: Whole | list[Whole] | None = None


class Sphere(Part):
    """The sphere, with its radius."""

    sphere: float | None = None


class Flow(Part):
    """Horizon, frame, space and solver."""

    t0: float | None = None
    t1: float | Literal["inf"] | None = None
    frame: str | None = None
    space: str | Sphere | None = None
    solver: str | None = None


class Layers(Part):
    """Depth and step."""

    depth: Whole | None = None
    step: float | None = None


class Axis(Part):
    """The values of an axis by a law."""

    linear: Annotated[tuple[float, float, Whole], FromList] | None = None
    log: Annotated[tuple[float, float, Whole], FromList] | None = None
    range: Annotated[tuple[int, int], FromList] | None = None


class Sweep(Part):
    """The axes of a sweep."""

    grid: dict[str, list[Any] | Axis] | None = None
    draws: Whole | None = None


class Settings(Part):
    """The settings of an experiment."""

    attention: Field_ | None = None
    measure: Measure | None = None
    flow: Flow | None = None
    layers: Layers | None = None
    sweep: Sweep | None = None


class Given(Part):
    """What a model was given."""

    kind: str | None = None


class Asked(Part):
    """The settings of a model's analysis."""

    model: str | None = None
    input: Given | None = None
    dtype: str | None = None
    cut: bool | None = None

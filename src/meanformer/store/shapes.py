"""What the JSON files of a run folder hold, as far as the store itself and those who go on with a run rely on it. More
entries are welcome; what reports and tables need on top of it is in `experiments/schema`.
"""

from typing import Annotated, Any, NamedTuple

from annotated_types import Len
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from .ledger import is_inside


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError("this leads out of the folder")
    return name


def _one_part(name: str) -> str:
    if "/" in name:
        raise ValueError("this is no name of a file")
    return _inside(name)


# The name of a file or folder in the run folder, and a path below it.
Name = Annotated[str, AfterValidator(_one_part)]
Place = Annotated[str, AfterValidator(_inside)]


class Part(BaseModel):
    """A dictionary with these entries and any others; nothing is read as what it is not."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, protected_namespaces=())


class Record(Part):
    """`run.json`."""

    format: int
    kind: str
    name: str | None = None
    title: str | None = None
    base: str = ""
    command: str | None = None
    created: str = ""
    versions: dict[str, str] = {}
    hash: str | None = None
    experiment: dict[str, Any] | None = None
    experiment_hash: str | None = None
    cases: list[Name] = []
    axes: dict[str, list[float | int | bool | str | None]] = {}
    items: list[Name] = []
    input: Name = "run.json"


class Drawn(Part):
    """A figure."""

    file: Place


class Results(Part):
    """`results.json`."""

    status: str
    figures: list[Drawn] | None = None
    cases: list[Name] = []


class Segment(Part):
    """A line of the manifest."""

    name: Name
    crc32: int


class Manifest(Part):
    """`manifest.json`."""

    segments: list[Segment]


class About(Part):
    """`segment.json`: what a segment notes, and the size and the sum of each of its files."""

    note: dict[str, Any]
    files: dict[Place, Annotated[list[int], Len(2, 2)]]


_SHAPES = {"run.json": Record, "results.json": Results, "manifest.json": Manifest, "segment.json": About}


class Fault(NamedTuple):
    """Where a content is not of its shape: the place, what should be there, what is."""

    place: tuple[Any, ...]
    expected: str
    got: str


def fault_in(content: Any, shape: type[BaseModel]) -> Fault | None:
    """The first place where this content is not of this shape; None if it is."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        got = "nothing" if first["type"] == "missing" else _short(first["input"])
        return Fault(first["loc"], first["msg"][:1].lower() + first["msg"][1:], got)
    return None


def check_shape(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of this name, if it is made up as it should be; `ValueError` in words if not."""
    fault = fault_in(content, _SHAPES[name]) if name in _SHAPES else None
    if fault:
        raise ValueError(f"{'.'.join(map(str, fault.place))}: {fault.expected}, got {fault.got}")
    return content


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

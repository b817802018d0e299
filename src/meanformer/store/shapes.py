"""What the JSON files of a run folder hold, as far as the store itself and those who go on with a run rely on it. More
entries are welcome; what reports and tables need is in `experiments/schema`.
"""

from typing import Annotated, Any

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

    model_config = ConfigDict(extra="allow", strict=True)


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


def check_shape(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of this name, if it is made up as it should be; `ValueError` in words if not."""
    if name in _SHAPES:
        try:
            _SHAPES[name].model_validate(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{place} = {_short(first['input'])}: {first['msg'].lower()}") from None
    return content


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

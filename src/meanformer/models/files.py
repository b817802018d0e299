"""What all readers of files share: packages that may not be installed, tables in JSON, files that are not there yet."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import _checks as checks

POINTER = b"version https://git-lfs"
# Settings and vocabularies have a few million bytes, tokenizers some tens of them.
LARGEST = 2**28


def need(module: str, what: str) -> Any:
    """A module of the extra `models`; refused in words if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        checks.refuse(
            f"{what} needs the package {module.split('.')[0]}",
            got="it is not installed",
            expected="the extra `models`",
            remedy='pip install -e ".[models]", in the clone of meanformer',
        )


def reason(error: BaseException) -> str:
    """The first line of an error, without the place of the file on this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def file_in(folder: Path, name: str, most: int | None = None) -> Path | None:
    """The file of this name in the folder of a model; None if there is none. One that lies elsewhere is refused.

    The cache of a hub keeps its files beside the folders of its snapshots, which is not elsewhere.
    """
    path = folder / name
    try:
        if not path.is_file():  # nor a pipe or a device
            return None
        place, size = path.resolve(), path.stat().st_size
    except (OSError, ValueError, RuntimeError):
        return None
    if not place.is_relative_to(_root(folder)):
        checks.refuse(
            f"{name} is a link that leads out of the folder of the model",
            got="a file elsewhere on this machine",
            expected="files in one folder, or in one cache of a hub",
            remedy="copy the file into the folder, or name the folder where it lies",
        )
    if most is not None and size > most:
        checks.refuse(
            f"{name} is too large",
            got=f"{size:,} bytes",
            expected=f"at most {most:,}",
            remedy="take the file that came with the weights",
        )
    return path


def _root(folder: Path) -> Path:
    """The folder that holds all files of a model: that of the model, or of all its snapshots in the cache of a hub."""
    place = folder.resolve()
    cached = place.parents[1] if len(place.parents) > 1 else place
    in_cache = place.parent.name == "snapshots" and cached.name.startswith("models--")
    return cached if in_cache else place


def read_table(folder: Path, name: str, *, optional: bool = False) -> dict[str, Any]:
    """A table in a JSON file of the folder of a model; an `optional` one that is not there is empty."""
    path = file_in(folder, name, LARGEST)
    if path is None and optional:
        return {}
    try:
        if path is None:
            raise OSError("there is no such file")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        checks.refuse(
            f"{name} cannot be read",
            got="a pointer to a large file" if path and is_pointer(path) else reason(error),
            expected="a table in JSON",
            remedy="take the file that came with the weights",
        )
    if not isinstance(found, dict):
        checks.refuse(
            f"{name} holds no table",
            got=checks.described(found),
            expected='names and values, {"name": value, ...}',
            remedy="replace it by the file that came with the weights",
        )
    return found


def is_pointer(path: Path) -> bool:
    """Whether the file only says where git keeps the large file."""
    try:
        with path.open("rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False

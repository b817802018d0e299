"""What all readers of files share: packages that may not be installed, tables in JSON, files that are not there yet."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import _checks as checks

POINTER = b"version https://git-lfs"


def need(module: str, what: str) -> Any:
    """A module of the extra `models`; refused in words if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        checks.refuse(
            f"{what} needs the package {module.split('.')[0]}",
            got="it is not installed",
            expected="the extra `models`",
            remedy='pip install "meanformer[models]"',
        )


def reason(error: Exception) -> str:
    """The first line of an error, without the place of the file on this machine."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_table(path: Path) -> dict[str, Any]:
    """A table in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        checks.refuse(
            f"{path.name} cannot be read",
            got="a pointer to a large file" if is_pointer(path) else reason(error),
            expected="a table in JSON",
            remedy="take the file that came with the weights",
        )
    if not isinstance(found, dict):
        checks.refuse(
            f"{path.name} holds no table",
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

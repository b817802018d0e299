"""What a run folder says, checked before anything relies on it: `run.json` and `results.json`.

A folder may come from elsewhere, or have been edited by hand: what is not of the shape that we write is refused in
words that name the place, here and nowhere else. Nothing here imports JAX.
"""

import math
from pathlib import Path
from typing import Any, NoReturn

from ..store.errors import FolderError
from ..store.folder import RunFolder
from ..store.shapes import fault_in

# Our own files are far from these.
DEEPEST = 100
LARGEST = 2**63


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What was asked, and what was found; the latter None if the run is not finished."""
    from .schema import analysis, contents, settings

    folder = RunFolder(path)
    record, results = folder.record, folder.results
    _check(folder.path / "run.json", record, contents.Record)
    shapes = {
        "cases": (contents.CasesRecord, contents.CasesResults),
        "sweep": (contents.SweepRecord, contents.Results),
        "reproduction": (contents.StagesRecord, contents.PaperResults),
        "model": (contents.StagesRecord, analysis.Analysis),
    }
    asked, found = shapes.get(record["kind"], (contents.Record, contents.Results))
    _check(folder.path / "run.json", record, asked)
    if record.get("experiment") is not None:
        described = settings.Asked if record["kind"] == "model" else settings.Settings
        _check(folder.path / "run.json", record["experiment"], described, "experiment")
    if results is not None:
        _check(folder.path / "results.json", results, found)
    return record, results


def _check(file: Path, content: Any, shape: Any, *place: str) -> None:
    _check_values(file, content, place, DEEPEST)
    fault = fault_in(content, shape)
    if fault:
        _refuse(file, (*place, *fault.place), fault.expected, fault.got)


def _check_values(file: Path, value: Any, place: tuple[Any, ...], deeper: int) -> None:
    """Refuse what no table of ours has: NaN, enormous numbers, halves of characters, tables in tables without end."""
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            _refuse(file, place, "text should be whole characters", ascii(value))
    elif isinstance(value, float):
        if not math.isfinite(value):
            _refuse(file, place, "numbers should be finite", repr(value))
    elif isinstance(value, int):
        if abs(value) >= LARGEST:
            _refuse(file, place, "whole numbers should have at most 18 digits", "a longer one")
    elif isinstance(value, dict | list):
        if not deeper:
            _refuse(file, place[:4], f"tables should be at most {DEEPEST} deep", "deeper ones")
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str):
                _check_values(file, key, place, deeper)
            _check_values(file, part, (*place, key), deeper - 1)


def _refuse(file: Path, place: tuple[Any, ...], expected: str, got: str) -> NoReturn:
    where = ".".join(str(key) for key in place)[:100].encode("ascii", "backslashreplace").decode()
    got = " ".join(got.split())
    raise FolderError(
        f"{file} is not as meanformer writes it: {where or 'the file'}: {expected}, got {got[:80]}",
        safe="nothing was changed",
        remedy="restore the file from a copy, or run it again into another folder",
    )

"""Run folders in short, alone and side by side. Nothing here imports JAX."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..store.folder import RunFolder


def summary(path: str | Path) -> dict[str, Any]:
    """What a run folder holds, ready for JSON."""
    folder = RunFolder(path)
    record, results = folder.record, folder.results or {}
    short = {"folder": str(path), "name": record.get("name") or folder.path.name, "kind": record["kind"]}
    short |= {"title": record.get("title") or short["name"], "status": folder.status}
    short |= {name: record.get(name) for name in ("created", "seed", "hash", "commit", "versions")}
    short |= {name: value for name, value in results.items() if name != "status"}
    report = folder.path / "report.html"
    return short | {"report": str(report) if report.exists() else None}


def compare(paths: Sequence[str | Path]) -> dict[str, Any]:
    """The settings in which runs differ, and their numbers side by side; one column for each run."""
    folders = [RunFolder(path) for path in paths]
    names = [str(path) for path in paths]
    settings = [flat(folder.record.get("experiment") or {}) for folder in folders]
    numbers = [_numbers(folder) for folder in folders]
    differ = {key: values for key, values in _rows(settings).items() if any(value != values[0] for value in values)}
    return {"runs": names, "settings": differ, "numbers": _rows(numbers)}


def _numbers(folder: RunFolder) -> dict[str, Any]:
    results = folder.results or {}
    found = dict(results.get("numbers") or {})
    for row in results.get("rows") or ():
        found |= {f"{row['name']}.{name}": value for name, value in (row.get("numbers") or {}).items()}
    return {"status": folder.status, **found}


def _rows(columns: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: [column.get(key) for column in columns] for key in keys}


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys."""
    if isinstance(settings, Mapping) and settings:
        return {key: value for name, part in settings.items() for key, value in flat(part, f"{prefix}{name}.").items()}
    return {prefix.removesuffix("."): settings}

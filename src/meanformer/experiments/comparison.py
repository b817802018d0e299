"""Run folders in short, alone and side by side. Nothing here imports JAX."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..store.folder import RunFolder
from ..store.table import results_of
from .contents import read


def summary(path: str | Path) -> dict[str, Any]:
    """What a run folder holds, ready for JSON."""
    folder = RunFolder(path)
    record, found = read(path)
    results = found or {}
    short = {"folder": str(path), "name": record.get("name") or folder.path.name, "kind": record["kind"]}
    short |= {"title": record.get("title") or short["name"], "status": folder.status}
    short |= {name: record.get(name) for name in ("created", "seed", "hash", "commit", "versions")}
    short |= {name: value for name, value in results.items() if name not in short}
    if short["kind"] == "model":  # what is drawn is in results.json
        short.pop("map", None)
        short["heads"] = [{k: v for k, v in head.items() if k != "ov"} for head in results.get("heads") or ()]
    if short["status"] != "done":
        short["progress"] = _progress(folder, record)
    report = folder.path / "report.html"
    return short | {"report": str(report) if report.exists() else None}


def _progress(folder: RunFolder, record: Mapping[str, Any]) -> str:
    """How far a run has come, in words."""
    if record["kind"] == "cases":
        return f"{sum(case.status == 'done' for case in folder.cases)} of {len(record['cases'])} cases are done"
    if record["kind"] in ("reproduction", "model"):
        what = "items" if record["kind"] == "reproduction" else "stages"
        return f"{len(list((folder.path / 'items').glob('*.json')))} of {len(record['items'])} {what} are done"
    if record["kind"] == "sweep":
        count = math.prod(len(values) for values in record["axes"].values())
        return f"{len(results_of(folder))} of {count} runs are done"
    if folder.is_final():
        return "the run is complete, its numbers and figures are not"
    listed = folder.manifest
    times = [folder.read_segment(k, listed)[0].get("times", ()) for k in range(2, len(listed))]
    saved = [time for part in times for time in part]
    return f"saved up to t = {saved[-1]:.6g}" if saved else "no state is saved yet"


def compare(paths: Sequence[str | Path]) -> dict[str, Any]:
    """The settings in which runs differ, and their numbers side by side; one column for each run."""
    names = [str(path) for path in paths]
    contents = [read(path) for path in paths]
    settings = [flat(_settings(record)) for record, _ in contents]
    numbers = [_numbers(RunFolder(path), results or {}) for path, (_, results) in zip(paths, contents, strict=True)]
    differ = {key: values for key, values in _rows(settings).items() if any(value != values[0] for value in values)}
    return {"runs": names, "settings": differ, "numbers": _rows(numbers)}


def _settings(record: Mapping[str, Any]) -> Any:
    """The settings of an experiment; of a run from Python, its call."""
    if record.get("experiment") is not None or record.get("call") is None:
        return record.get("experiment") or {}
    call = record["call"]["dict"]
    return {"verb": call["verb"], "field": call["field"], "measure": call["measure"], **call["options"]["dict"]}


def _numbers(folder: RunFolder, results: Mapping[str, Any]) -> dict[str, Any]:
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

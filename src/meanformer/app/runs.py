"""The run folders that the page can replay. Nothing here imports JAX."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..store.errors import FolderError
from ..store.folder import RunFolder

MOST_LISTED = 500
REPLAYED = ("flow", "layers")


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The runs below a folder, newest first; the cases of an experiment one by one."""
    newest = sorted(_folders(root), key=lambda folder: (folder / "run.json").stat().st_mtime, reverse=True)
    found = [_described(root, folder) for folder in newest[:MOST_LISTED]]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry["created"], reverse=True)


def find_run(root: Path, name: str) -> Path | None:
    """The folder of a run that `list_runs` names; None for any other name, wherever it may lead."""
    return next((folder for folder in _folders(root) if _name(root, folder) == name), None)


def _folders(root: Path) -> Iterator[Path]:
    for pattern in ("run.json", "*/run.json", "*/cases/*/run.json"):
        for file in sorted(root.glob(pattern)):
            yield file.parent


def _name(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix() if folder != root else root.resolve().name


def _described(root: Path, folder: Path) -> dict[str, Any] | None:
    try:
        record = RunFolder(folder).record
    except FolderError:
        return None
    measure = ((record.get("experiment") or {}).get("measure") or {}).get("kind")
    if record.get("kind") not in REPLAYED or measure == "gaussian":
        return None
    title = str(record.get("title") or record.get("name") or folder.name)
    return {
        "name": _name(root, folder),
        "title": title,
        "kind": record["kind"],
        "created": str(record.get("created", "")),
    }

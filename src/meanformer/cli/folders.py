"""What the commands do with run folders: remove them, write their reports, print what they hold."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._words import one_line
from . import tables
from .streams import complain

# So many files are named at a time.
MOST_NAMED = 10


def write_report(path: Path) -> Path:
    """The report of a run folder of any kind; what it cannot show is told."""
    from meanformer.store.folder import RunFolder
    from meanformer.store.mending import changed_figures

    written, folder = _write_report(path), RunFolder(path)
    lost = [
        (one.path.relative_to(path) / figure).as_posix()
        for one in (folder, *folder.cases)
        for figures in changed_figures(one).values()
        for figure in figures
    ]
    if lost:
        complain(
            one_line(f"Not in the report, since gone or changed: {_named(lost)}. It is drawn again by: ")
            + one_line(f"meanformer resume {path} --discard-damaged")
        )
    return written


def _named(names: list[str]) -> str:
    """Names, as many as anybody reads."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _write_report(path: Path) -> Path:
    from meanformer.experiments.contents import read
    from meanformer.store.folder import RunFolder

    folder = RunFolder(path)
    record, results = read(path)
    if results is None and folder.status == "done":  # a run from Python
        from meanformer.experiments.runner import complete

        complete(folder)
        record, results = read(path)
    if record["kind"] == "reproduction" and results is not None:
        from meanformer.report.reproduction import write_reproduction

        made = {
            name: record.get(name) for name in ("versions", "machine", "created", "command", "commit", "quick", "seed")
        }
        return write_reproduction(results["paper"] | made, results["items"], path)
    if record["kind"] == "model":
        from meanformer.report.model import write_model_report

        return write_model_report(path)
    from meanformer.report.run import write_report as write_run_report

    return write_run_report(path)


@contextlib.contextmanager
def still_there(folder: Path) -> Iterator[None]:
    """A folder that is gone after a run was not refused at its beginning."""
    from meanformer.store.errors import FolderError, NotARun

    try:
        yield
    except NotARun as error:
        raise FolderError(
            f"{folder} was renamed or removed after the run",
            safe="the run, wherever the folder is now",
            remedy="write its report there: meanformer report FOLDER",
        ) from error


def is_done(folder: Path) -> bool:
    """Whether there is a run in a folder that is done."""
    from meanformer.store.folder import RunFolder

    found = RunFolder(folder)
    return not found.holds_a_stranger() and found.status == "done"


def remove(folder: Path) -> None:
    """Remove the run that a folder holds, if there is one, and name what is kept because no run wrote it."""
    from meanformer.store.folder import RunFolder

    found = RunFolder(folder)
    if (found.exists() or found.has_lost_record()) and not found.holds_a_stranger():
        kept = found.clear()
        if kept:
            complain(one_line(f"Kept in {folder}, since no run wrote it: {_named(kept)}"))


def print_run(path: Path, as_json: bool, items: list[str] | None = None, already: bool = False) -> None:
    """Print what a run folder holds: tables, or JSON."""
    from meanformer.experiments.comparison import summary

    found: dict[str, Any] = summary(path)
    if items is not None:
        found["items"] = [item for item in found.get("items") or () if item["id"] in items]
    if as_json:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        tables.print_run(found, already)

"""Running a reproduction: item after item, each kept as soon as it is done, then the table of all."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import _checks as checks
from ...plots.export import save_figure
from ...store import disk
from ...store.folder import RunFolder
from ...store.provenance import provenance
from ..runner import QUIET, Watch, begin, check_free, interruptible
from . import paper as paper_of
from .base import Budget, Found, Item, Paper


def reproduce(
    key: str,
    path: str | Path,
    *,
    items: Sequence[str] | None = None,
    quick: bool = False,
    seed: int = 0,
    command: str = "",
    watch: Watch = QUIET,
) -> RunFolder:
    """Compute the items of a paper (all of them by default) into the folder `path`, or go on with it there."""
    paper = paper_of(key)
    chosen = chosen_items(paper, items)
    folder = RunFolder(path)
    settings = {"paper": key, "quick": quick, "seed": seed}
    mark = json.dumps(settings, sort_keys=True)  # items may be added to a folder later
    check_free(folder, mark)
    with interruptible(folder.path), contextlib.closing(folder.lock()):
        about: dict[str, Any] = {
            "kind": "reproduction",
            "name": key,
            "title": paper.title,
            "about": "",
            "command": command,
        }
        about |= {"quick": quick, "seed": seed, "cites": [key], "experiment": None, "source": None}
        about |= {"experiment_hash": mark, "items": [item.id for item in chosen]}
        begin(folder, about)
        asked = dict.fromkeys([*folder.record["items"], *about["items"]])
        disk.write_json(folder.path / "run.json", folder.record | {"items": list(asked)})
        total = sum(item.minutes[0 if quick else 1] for item in chosen)
        spent = 0.0
        for item in chosen:
            share = item.minutes[0 if quick else 1] / total
            if not _is_done(folder, item):
                _compute(item, folder, quick, seed, _part(watch, item, spent, share))
            spent += share
        _write(paper, folder)
    return folder


def _is_done(folder: RunFolder, item: Item) -> bool:
    """Whether an item was computed, by these versions."""
    file = _file(folder, item)
    return file.exists() and json.loads(file.read_text()).get("made_by") == _made_by()


def _made_by() -> dict[str, Any]:
    made = provenance()
    return {"versions": made["versions"], "commit": made["commit"]}


def chosen_items(paper: Paper, items: Sequence[str] | None) -> list[Item]:
    """The items that are asked for, all by default."""
    for name in items or ():
        checks.one_of(name, f"this item of {paper.key}", paper.items)
    return [item for name, item in paper.items.items() if not items or name in items]


def _part(watch: Watch, item: Item, spent: float, share: float) -> Watch:
    """The progress of one item, as a part of the whole."""

    def stage(words: str, inside: float | None) -> None:
        watch.stage(f"{item.id}  {words}", spent + share * (inside or 0.0))

    stage(item.title, 0.0)
    return dataclasses.replace(watch, stage=stage)


def _file(folder: RunFolder, item: Item) -> Path:
    return folder.path / "items" / f"{item.id}.json"


def _compute(item: Item, folder: RunFolder, quick: bool, seed: int, watch: Watch) -> None:
    began = time.monotonic()
    budget = Budget(quick, seed, lambda share, words: watch.stage(words or item.title, share))
    found: Found = item.compute(budget)
    figures = []
    for picture in found.pictures:
        file = save_figure(picture.figure, folder.path / "figures" / f"{item.id}-{picture.name}")
        figures.append({"name": picture.name, "file": f"figures/{file.name}", "caption": picture.caption})
    rows = [{name: _plain(value) for name, value in dataclasses.asdict(row).items()} for row in found.rows]
    content = {"id": item.id, "title": item.title, "setting": item.setting, "rows": rows, "figures": figures}
    content |= {"remarks": found.remarks, "seconds": time.monotonic() - began, "made_by": _made_by()}
    with disk.explained(folder.path, "the items that are done"):
        disk.make_folder(folder.path / "items")
        disk.write_json(_file(folder, item), content)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _done(paper: Paper, folder: RunFolder) -> list[dict[str, Any]]:
    files = [_file(folder, item) for item in paper.items.values()]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _write(paper: Paper, folder: RunFolder) -> None:
    """The table of all items that are done; its seconds are those of computing them."""
    items = _done(paper, folder)
    seconds = sum(item["seconds"] for item in items)
    rows = [row for item in items for row in item["rows"]]
    verdicts = {
        word: sum(row["verdict"] == word for row in rows) for word in ("holds", "fails", "undecided", "misleads")
    }
    words = ", ".join(f"{count} {word}" for word, count in verdicts.items() if count)
    summary = f"{paper.key}: {len(rows)} claims in {len(items)} items: {words}"
    numbers = {"claims": len(rows), **verdicts}
    figures = [figure for item in items for figure in item["figures"]]
    about = {field: getattr(paper, field) for field in ("key", "title", "authors", "url", "bibtex")}
    found = {
        "paper": about,
        "summary": summary,
        "numbers": numbers,
        "items": items,
        "figures": figures,
        "seconds": seconds,
    }
    with disk.explained(folder.path, "the items that are done"):
        disk.write_json(folder.path / "results.json", {"status": "done", **found})

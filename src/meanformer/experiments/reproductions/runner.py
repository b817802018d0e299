"""Running a reproduction: item after item, each kept as soon as it is done, then the table of all."""

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import _checks as checks
from ...plots.export import figure_file
from ...store import disk
from ...store.folder import RunFolder
from ...store.provenance import provenance
from ..pool import cores, in_pool
from ..runner import QUIET, Watch, begin, check_free, holding, interruptible, read_item, write_results
from . import paper as paper_of
from .base import Budget, Found, Item, Paper

# Less than this is not worth other processes, which start for some seconds.
FEW_MINUTES = 0.5


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
    # Items may be added to a folder later.
    mark = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    check_free(folder, mark)
    with interruptible(folder.path), holding(folder):
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
        with disk.explained(folder.path):
            folder.put("run.json", folder.record | {"items": list(asked)})
        left = [item for item in chosen if not _is_done(folder, item)]
        total = sum(item.minutes[0 if quick else 1] for item in left)
        if total < FEW_MINUTES:
            spent = 0.0
            for item in left:
                share = item.minutes[0 if quick else 1] / total
                _keep(folder, *_compute(item, quick, seed, _part(watch, item, spent, share)))
                spent += share
        else:
            _compute_in_pool(left, folder, quick, seed, watch)
        _write(paper, folder)
    return folder


def _compute_in_pool(items: list[Item], folder: RunFolder, quick: bool, seed: int, watch: Watch) -> None:
    """The longest first, as many at once as there are cores: most of a quick item is compiling, on one core."""
    minutes = {item.id: item.minutes[0 if quick else 1] for item in items}
    longest = sorted(minutes, key=lambda name: -minutes[name])
    watch.stage(f"{len(items)} items", 0.0)
    spent, done = 0.0, 0
    tasks = ((folder.record["name"], name, quick, seed) for name in longest)
    for content, files in in_pool(_work, tasks, min(cores(), len(items)), _start):
        _keep(folder, content, files)
        name = content["id"]
        spent, done = spent + minutes[name], done + 1
        watch.stage(f"{name} done, {len(items) - done} to go", spent / sum(minutes.values()))


def _start() -> None:
    pass


def _work(key: str, name: str, quick: bool, seed: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    return _compute(paper_of(key).items[name], quick, seed, QUIET)


def _is_done(folder: RunFolder, item: Item) -> bool:
    """Whether an item was computed, by these versions."""
    found = read_item(folder, item.id)
    return found is not None and found.get("made_by") == _made_by()


def _made_by() -> dict[str, Any]:
    made = provenance()
    return {"versions": made["versions"], "commit": made["commit"]}


def chosen_items(paper: Paper, items: Sequence[str] | None) -> list[Item]:
    """The items that are asked for, all by default."""
    known = {name.lower(): name for name in paper.items}
    wanted = [known.get(name.lower(), name) for name in items or ()]
    for name in wanted:
        checks.one_of(name, f"item of {paper.key}", paper.items)
    return [item for name, item in paper.items.items() if not wanted or name in wanted]


def _part(watch: Watch, item: Item, spent: float, share: float) -> Watch:
    """The progress of one item, as a part of the whole."""

    def stage(words: str, inside: float | None) -> None:
        watch.stage(f"{item.id}  {words}", spent + share * (inside or 0.0))

    stage(item.title, 0.0)
    return dataclasses.replace(watch, stage=stage)


def _compute(item: Item, quick: bool, seed: int, watch: Watch) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What an item has found, and the files of its figures."""
    began = time.monotonic()
    budget = Budget(quick, seed, lambda share, words: watch.stage(words or item.title, share))
    found: Found = item.compute(budget)
    figures, files = [], {}
    for picture in found.pictures:
        file, data = figure_file(picture.figure, f"figures/{item.id}-{picture.name}")
        files[file] = data
        figures.append({"name": picture.name, "file": file, "caption": picture.caption})
    rows = [{name: _plain(value) for name, value in dataclasses.asdict(row).items()} for row in found.rows]
    content = {"id": item.id, "title": item.title, "setting": item.setting, "rows": rows, "figures": figures}
    content |= {"remarks": found.remarks, "seconds": time.monotonic() - began, "made_by": _made_by()}
    return content, files


def _keep(folder: RunFolder, content: dict[str, Any], files: dict[str, bytes]) -> None:
    """Write an item: from then on it is done."""
    with disk.explained(folder.path, "the items that are done"):
        for file, data in files.items():
            folder.put(file, data)
        folder.put(f"items/{content['id']}.json", content)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _done(paper: Paper, folder: RunFolder) -> list[dict[str, Any]]:
    found = [read_item(folder, name) for name in paper.items]
    return [item for item in found if item is not None]


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
    write_results(folder, found)

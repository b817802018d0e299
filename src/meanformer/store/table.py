"""The numbers of a sweep: kept in segments as tasks are done, read as one labelled dataset."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import FolderError, NotARun, understood
from .folder import RunFolder
from .places import check_part

# A table with more entries must hold a hundredth of them.
MOST_EMPTY = 10**7

if TYPE_CHECKING:
    import xarray


def add_rows(folder: RunFolder, rows: Sequence[dict[str, Any]]) -> None:
    """Keep the results of some tasks: dictionaries with the number of the `task` and its `numbers` (or an `error`)."""
    folder.add_segment({}, {"rows": list(rows)})


def results_of(folder: RunFolder) -> dict[int, dict[str, Any]]:
    """The results so far, by the number of the task."""
    rows: dict[int, dict[str, Any]] = {}
    listed = folder.manifest
    with understood(folder.path):
        for number in range(1, len(listed)):
            rows |= {row["task"]: row for row in folder.read_segment(number, listed)[1]["rows"]}
    return rows


def task_name(task: int) -> str:
    """The name of the folder of a task."""
    return f"{task:06d}"


def kept_tasks(folder: RunFolder) -> list[RunFolder]:
    """The runs of a sweep that keeps their states, of all tasks whose numbers are there; of any other folder none."""
    with understood(folder.path):
        experiment = folder.record.get("experiment") or {}
        if not (experiment.get("sweep") or {}).get("keep"):
            return []
        done = sorted(task for task, row in results_of(folder).items() if "error" not in row)
        return [RunFolder(check_part(folder.path, "tasks", task_name(task))) for task in done]


def load_table(path: str | Path) -> "xarray.Dataset":
    """The numbers of a sweep, from its folder: an `xarray.Dataset` over the axes of the sweep.

    **Arguments:** `path`, a folder that `meanformer run` has written for a file with `[sweep]`.

    **Returns:** a dataset with one variable per number, whose shape is that of the grid: one axis per key of
    `[sweep.grid]`, and `draw` if there are several draws. Where a task is not done there is NaN (for words "").

    **Raises:** `FolderError` if the folder holds no sweep.

    ```python
    from pathlib import Path
    from meanformer.experiments.config import experiment_of
    from meanformer.experiments.runner import run_experiment

    text = '''
    attention = {kind = "linear", Q = "identity", K = "identity", V = "identity"}
    measure = {kind = "cube", n = 3, d = 2}
    layers = {depth = 2}
    sweep = {numbers = ["radius"], workers = 1, grid = {"attention.tau" = [1.0, 2.0]}}
    '''
    run_experiment(experiment_of(text, "taus", Path()), "runs/taus")  # as `meanformer run taus.toml` does
    table = mf.load_table("runs/taus")
    assert table["radius"].sel({"attention.tau": 2.0}) < table["radius"].sel({"attention.tau": 1.0})
    ```
    """
    folder = RunFolder(path)
    if folder.record.get("kind") != "sweep":
        raise NotARun(
            f"{folder.path} holds a {folder.record.get('kind')}, not a sweep",
            safe="the folder is as it was",
            remedy="mf.load(path) reads a run",
        )
    return read_table(folder)


def read_table(folder: RunFolder) -> "xarray.Dataset":
    """The numbers of a sweep over its axes; where a task is not done, or has no such number, NaN (for words "")."""
    import xarray

    record, rows = folder.record, results_of(folder)
    with understood(folder.path):
        axes: dict[str, list[Any]] = record["axes"]
        shape = tuple(len(values) for values in axes.values())
        names = list(dict.fromkeys(name for row in rows.values() for name in row.get("numbers", {})))
        tasks = math.prod(shape)
        _check_share(folder, tasks * len(names), sum(len(row.get("numbers", {})) for row in rows.values()))
        data = {name: (tuple(axes), _column(name, rows, tasks).reshape(shape)) for name in names}
        attributes = {"title": record.get("title") or "", "tasks": tasks, "done": len(rows)}
        return xarray.Dataset(data, coords=axes, attrs=attributes)


def _column(name: str, rows: dict[int, dict[str, Any]], tasks: int) -> np.ndarray:
    """The values of a number, one for each task."""
    known = {task: row["numbers"][name] for task, row in rows.items() if name in row.get("numbers", {})}
    known = {task: value for task, value in known.items() if value is not None and 0 <= task < tasks}
    if any(isinstance(value, str) for value in known.values()):
        found = np.full(tasks, "", object)  # words of any length
    else:
        whole = len(known) == tasks
        found = np.empty(tasks, np.array(list(known.values())).dtype) if whole else np.full(tasks, math.nan)
    for task, value in known.items():
        found[task] = value
    return found


def _check_share(folder: RunFolder, cells: int, known: int) -> None:
    """Refuse a table that is nearly empty, and large."""
    if cells > MOST_EMPTY and cells > 100 * known:
        raise FolderError(
            f"the sweep in {folder.path} has {known:,} of the {cells:,} numbers of its table",
            safe="the folder is as it was",
            remedy=f"let it go on first: meanformer resume {folder.path}",
        )

"""The numbers of a sweep: kept in segments as tasks are done, read as one labelled dataset."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import NotARun, understood
from .folder import RunFolder

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
        data = {}
        for name in names:
            values = [rows.get(task, {}).get("numbers", {}).get(name) for task in range(math.prod(shape))]
            words = any(isinstance(value, str) for value in values)
            column = (
                ["" if v is None else v for v in values] if words else [math.nan if v is None else v for v in values]
            )
            data[name] = (tuple(axes), np.array(column).reshape(shape))
        attributes = {"title": record.get("title") or "", "tasks": math.prod(shape), "done": len(rows)}
        return xarray.Dataset(data, coords=axes, attrs=attributes)

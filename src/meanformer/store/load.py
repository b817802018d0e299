"""`mf.load`: a run, read from its folder."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..flows.trajectory import Lazy, Trajectory
from ..outcome import Ending, Outcome
from .codec import decode
from .errors import FolderError, understood
from .folder import RunFolder


def load(path: str | Path) -> Trajectory:
    """The run in a folder, as a `Trajectory`. Its states are read when they are first asked for.

    A run that is not finished gives what has been written of it, with the outcome UNFINISHED.

    **Arguments:** `path`, a folder that `run.save(path)`, `mf.Journal(path)` or `meanformer run` has written.

    **Raises:** `FolderError` if there is no run there, if it has not begun, or if the folder holds a sweep or several
    cases.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    run = mf.layers(mf.Affine(-jnp.eye(2)), tokens, depth=2)
    run.save("runs/shrinking")
    assert (mf.load("runs/shrinking").points == run.points).all()
    ```
    """
    folder = RunFolder(path)
    record, count = folder.record, len(folder.manifest)
    if record.get("kind") not in ("flow", "layers"):
        raise FolderError(
            f"{folder.path} holds a {record.get('kind')}, not one run",
            safe="the folder is as it was",
            remedy={
                "cases": "load one of its cases: mf.load(path / 'cases' / name)",
                "sweep": "mf.load_table(path) reads a sweep",
            }.get(str(record.get("kind")), "its numbers are in results.json, its pictures in report.html"),
        )
    if count < 2:
        raise FolderError(
            f"the run in {folder.path} has not begun to compute",
            safe="its settings are in run.json",
            remedy=f"wait for it, or start it: meanformer resume {folder.path}",
        )
    with understood(folder.path):
        arrays, note = folder.read_segment(count - 1)
        if "final" not in note:
            return _unfinished(folder, count)
        run, first = _decoded(note["final"], arrays), 2 if note["streamed"] else count - 1
        return dataclasses.replace(run, stored=Lazy(lambda: _rows(folder, (run.last, run.statistics), first, count)[1]))


def _decoded(node: Any, arrays: dict[str, np.ndarray]) -> Trajectory:
    run = decode(node, arrays.__getitem__)
    if not isinstance(run, Trajectory):
        raise TypeError(f"a {type(run).__name__} in the place of a run")
    return run


def _unfinished(folder: RunFolder, count: int) -> Trajectory:
    """What there is of a run that goes on, or was interrupted."""
    arrays, note = folder.read_segment(1)
    shell = _decoded(note["shell"], arrays)
    if count == 2 or not note["streamed"]:
        return shell
    times, saved, statistics = _rows(folder, (shell.saved, shell.statistics), 2, count)
    if not len(times):
        return shell
    times = jnp.asarray(times, shell.times.dtype)
    return dataclasses.replace(
        shell,
        times=times,
        stored=saved,
        statistics=statistics,
        outcome=Outcome(jnp.asarray(int(Ending.UNFINISHED)), times[-1]),
        last=jax.tree.map(lambda a: a[-1], saved) if shell.whole is None else shell.last,
        stats=shell.stats | folder.read_segment(count - 1)[1]["note"]["stats"],
    )


def _rows(folder: RunFolder, example: Any, first: int, count: int) -> tuple[np.ndarray, Any, Any]:
    """Times, saved states and statistics of the segments from `first` on; `example` shows how they are made up."""
    listed = folder.manifest
    with understood(folder.path):
        parts = [folder.read_segment(number, listed)[0] for number in range(first, count)]
        parts = [arrays for arrays in parts if arrays["times"].size]
        if not parts:  # no save time has been reached
            return np.zeros(0), None, None
        treedef = jax.tree.structure(example)
        leaves = [np.concatenate([arrays[f"rows/{k}"] for arrays in parts]) for k in range(treedef.num_leaves)]
        saved, statistics = jax.tree.map(jnp.asarray, jax.tree.unflatten(treedef, leaves))
        return np.concatenate([arrays["times"] for arrays in parts]), saved, statistics


def rows_of(arrays: dict[str, np.ndarray], treedef: Any) -> list[tuple[float, Any]]:
    """The rows of a segment, one by one."""
    columns = [arrays[f"rows/{k}"] for k in range(treedef.num_leaves)] if arrays["times"].size else []
    return [
        (float(time), jax.tree.unflatten(treedef, [column[k] for column in columns]))
        for k, time in enumerate(arrays["times"])
    ]

"""Sweeps: many runs of one experiment, over grids of parameters and random draws, in a pool of processes.

A task is one run. Its numbers are kept as soon as it is done; a long task keeps a journal of its own, so that it goes
on where it stopped.
"""

import contextlib
import math
import time
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import meanformer as mf

from .. import _checks as checks
from ..store import disk
from ..store.errors import FolderError
from ..store.folder import RunFolder
from ..store.interruption import recognised, undisturbed
from ..store.journal import EVERY, journal_in
from ..store.table import add_rows, kept_tasks, results_of, task_name
from ..store.writer import Parent
from .build import build
from .config import Experiment, from_settings
from .numbers import numbers_of
from .pool import cores, in_pool
from .runner import Watch, begin, flushed

# Fewer tasks than this are not worth another process, which starts and compiles for some seconds.
FEW = 8


def run_sweep(experiment: Experiment, folder: RunFolder, record: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Run the tasks that are not done, and draw the table of all."""
    from .figures import draw_sweep

    assert experiment.sweep is not None
    axes = experiment.axes()
    begin(folder, record | {"axes": axes})
    count = math.prod(len(values) for values in axes.values())
    rows = {task: row for task, row in results_of(folder).items() if "error" not in row}
    kept = kept_tasks(folder)
    for number, task in enumerate(kept):
        watch.stage(f"checking the states of {len(kept)} tasks", number / len(kept))
        if not task.is_done():
            del rows[int(task.path.name)]
    left = [task for task in range(count) if task not in rows]
    workers = experiment.sweep.workers or (1 if len(left) < FEW else cores())
    fresh: list[dict[str, Any]] = []
    written = time.monotonic()
    results = _results(experiment, axes, left, folder, workers)
    try:
        with contextlib.closing(results), recognised():  # which ends the workers
            for done, row in enumerate(results, start=len(rows) + 1):
                fresh.append(row)
                watch.stage(f"{done} of {count} runs", done / count)
                if time.monotonic() - written > EVERY:
                    written = time.monotonic()
                    fresh = _keep(folder, fresh, experiment.sweep.keep)
    finally:
        _keep(folder, fresh, experiment.sweep.keep)
    rows = results_of(folder)
    assert set(rows) == set(range(count))
    failed = [row for row in rows.values() if "error" in row]
    table = folder.table()
    watch.stage("figures", None)
    drawn = draw_sweep(
        table, experiment.figures.draw, folder.put, experiment.sweep.numbers, lambda words: watch.stage(words, None)
    )
    computing = sum(row["seconds"] for row in rows.values())
    summary = f"{count} runs over {', '.join(f'{key} ({len(v)})' for key, v in axes.items())}"
    return {
        "summary": summary + (f"; {len(failed)} failed" if failed else ""),
        "numbers": {"runs": count, "failed": len(failed), "computing_seconds": computing, "workers": workers},
        "failed": [{"task": row["task"], "error": row["error"]} for row in failed[:20]],
        "figures": drawn,
    }


def _keep(folder: RunFolder, rows: list[dict[str, Any]], states: bool) -> list[dict[str, Any]]:
    """Write results; without their states, the journals of their tasks are not needed any more. Nothing is left."""
    with undisturbed():
        if rows:
            with disk.explained(folder.path, "the runs whose numbers were written before"):
                add_rows(folder, rows)
            if not states:
                for row in rows:
                    task = folder.part("tasks", task_name(row["task"]))
                    with contextlib.suppress(OSError, FolderError):
                        if task.path.exists():
                            task.remove()
    return []


def _values(axes: dict[str, list[Any]], task: int) -> dict[str, Any]:
    """The values of a task, which are numbered with the last axis fastest."""
    values = {}
    for key, along in reversed(axes.items()):
        task, place = divmod(task, len(along))
        values[key] = along[place]
    return values


def _results(
    experiment: Experiment, axes: dict[str, list[Any]], tasks: list[int], folder: RunFolder, workers: int
) -> Generator[dict[str, Any]]:
    """The results of the tasks, as they are done."""
    if workers == 1:
        for task in tasks:
            yield _run_task(experiment, task, _values(axes, task), folder.part("tasks", task_name(task)))
        return
    numbered = ((task, _values(axes, task)) for task in tasks)
    yield from in_pool(
        _work,
        numbered,
        workers,
        _start,
        experiment.settings(),
        str(experiment.folder),
        str(folder.path),
        folder.as_parent,
    )


_here: tuple[Experiment, Path, Parent]


def _start(settings: dict[str, Any], base: str, path: str, parent: Parent) -> None:
    """Give a process its experiment, and the folder of the sweep."""
    global _here
    _here = from_settings(settings, "the sweep", Path(base)), Path(path), parent


def _work(task: int, values: dict[str, Any]) -> dict[str, Any]:
    experiment, path, parent = _here
    return _run_task(experiment, task, values, RunFolder(path / "tasks" / task_name(task), inside=parent))


def _run_task(experiment: Experiment, task: int, values: dict[str, Any], folder: RunFolder) -> dict[str, Any]:
    """One run, and its numbers; what fails is told, and does not end the sweep."""
    started = time.monotonic()
    try:
        with recognised():
            numbers, seconds = _numbers(experiment, values, folder)
        return {"task": task, "numbers": numbers, "seconds": seconds, "around": time.monotonic() - started - seconds}
    except (FolderError, MemoryError):
        raise  # not the task's fault: another time it may go well
    except checks.InputError as error:
        return {"task": task, "error": str(error), "seconds": time.monotonic() - started}
    except Exception:
        return {"task": task, "error": traceback.format_exc(limit=-3), "seconds": time.monotonic() - started}


def _numbers(experiment: Experiment, values: dict[str, Any], folder: RunFolder) -> tuple[dict[str, Any], float]:
    """The numbers of a run with these values, and the seconds that the run itself took."""
    assert experiment.sweep is not None
    one = experiment.task(values)
    problem = build(one, one.folder)
    journal = journal_in(folder, every=one.save.every, record={"values": values}, late=not experiment.sweep.keep)
    verb = {"flow": mf.flow, "layers": mf.layers}[problem.verb]
    began = time.monotonic()
    with flushed(journal):
        run = verb(problem.field, problem.measure, **problem.options, journal=journal, progress=False)
    seconds = time.monotonic() - began
    return numbers_of(run, experiment.sweep.numbers or experiment.diagnostics.numbers), seconds

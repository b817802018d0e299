"""Running experiments: one run, cases side by side, or a sweep, into a folder that can be gone on with."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import meanformer as mf

from .. import _checks as checks
from ..outcome import Ending
from ..store import disk
from ..store.errors import FolderError
from ..store.folder import RunFolder
from ..store.interruption import asked_once, recognised
from ..store.journal import EVERY, Journal, journal_in
from ..store.mending import check_whole
from ..store.places import holds_other_things
from ..store.provenance import provenance
from .build import build
from .config import Experiment, from_settings
from .numbers import checked, claims_of, numbers_of


@dataclasses.dataclass(frozen=True)
class Watch:
    """What is told while an experiment runs: `say` a line, `stage` what is being done and how much of it is done (a
    share between 0 and 1, or None); `bars`: whether runs show bars of their own.
    """

    say: Callable[[str], None] = lambda line: None
    stage: Callable[[str, float | None], None] = lambda words, share: None
    bars: bool | None = False


QUIET = Watch()


class Interrupted(KeyboardInterrupt):
    """A run that was interrupted, and is safe in its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        super().__init__(str(folder))


def run_experiment(
    experiment: Experiment, path: str | Path | RunFolder, *, name: str = "", command: str = "", watch: Watch = QUIET
) -> RunFolder:
    """Run an experiment into the folder `path`, or go on with it there; with numbers, checks and figures.

    A folder that holds another experiment is refused; one that is done is left as it is.
    """
    from .sweeps import run_sweep

    folder = path if isinstance(path, RunFolder) else RunFolder(path)
    record = _record(experiment, name or folder.path.name, command)
    check_free(folder, record["experiment_hash"])
    if folder.exists() and folder.status == "done":
        return folder
    began = time.monotonic()
    with interruptible(folder.path), holding(folder):
        run = {"flow": _run_one, "cases": _run_cases, "sweep": run_sweep}[experiment.kind]
        found = run(experiment, folder, record, watch)
        write_results(folder, found | {"seconds": time.monotonic() - began})
    return folder


@contextlib.contextmanager
def holding(folder: RunFolder) -> Iterator[None]:
    """The right to write into a folder, which is made."""
    before = folder.path.exists()
    with disk.explained(folder.path, "all that was written before" if folder.exists() else ""):
        try:
            folder.hold()
        except FileNotFoundError as error:  # as in /proc
            if before or folder.path.exists():
                raise
            raise checks.InputError(
                f"no folder can be made at {folder.path}",
                error.strerror,
                "a place on a disk",
                "choose another folder with --out",
            ) from error
    try:
        yield
    finally:
        folder.release()


def resume(path: str | Path, watch: Watch = QUIET) -> RunFolder:
    """Go on with the run in a folder, where it stopped; of one that is done, check that it is whole."""
    folder = RunFolder(path)
    record = folder.record
    if folder.status == "done":
        check_whole(folder)
    if record["kind"] == "reproduction":
        from .reproductions.runner import reproduce

        options = {name: record[name] for name in ("items", "quick", "seed", "command")}
        return reproduce(record["name"], path, **options, watch=watch)
    if record["kind"] == "model":
        from .model import resume_model

        return resume_model(path, watch)
    if record.get("experiment") is not None:
        experiment = from_settings(record["experiment"], record["name"], Path(record["base"]))
        return run_experiment(experiment, path, name=record["name"], command=record["command"], watch=watch)
    if folder.results is None:
        complete(folder, watch)
    return folder


def complete(folder: RunFolder, watch: Watch = QUIET) -> None:
    """Go on with a run that was started from Python, whose folder has the call; then numbers, checks and figures."""
    from ..store.codec import decode

    journal = journal_in(folder, EVERY, {})
    with interruptible(folder.path, journal), holding(folder):
        arrays, _ = folder.read_segment(0)
        call = decode(folder.record["call"], arrays.__getitem__)
        if folder.is_final() or call["verb"] == "saved":
            run = mf.load(folder.path)
        else:
            options = {name: value for name, value in call["options"].items() if value is not None}
            verb = {"flow": mf.flow, "layers": mf.layers}[call["verb"]]
            run = verb(call["field"], call["measure"], **options, journal=journal, progress=watch.bars)
        if run.outcome.kind == Ending.UNFINISHED.name:
            raise FolderError(
                f"the run that was being saved to {folder.path} was cut short",
                safe="the first state alone",
                remedy="save it again from Python, to another folder",
            )
        found = _found(run, folder, {}, watch, check=True)
        write_results(folder, found | {"seconds": run.stats.get("seconds")})


def _record(experiment: Experiment, name: str, command: str) -> dict[str, Any]:
    """What `run.json` says of an experiment."""
    return {
        "kind": experiment.kind,
        "name": name,
        "title": experiment.title or name,
        "about": experiment.about,
        "formula": experiment.formula,
        "caption": experiment.caption,
        "experiment": experiment.settings(),
        "experiment_hash": experiment.hash(),
        "source": experiment.source.text,
        "base": str(experiment.folder),
        "command": command,
        "seed": experiment.seed,
        "cites": experiment.cites,
    }


def check_free(folder: RunFolder, experiment_hash: str) -> None:
    """Refuse a folder that is not for this experiment."""
    if (folder.exists() or folder.has_lost_record()) and not folder.holds_a_stranger():
        found = folder.record
        if found.get("experiment_hash") != experiment_hash:
            checks.refuse(
                f"{folder.path} holds another run",
                got=f"{found.get('title') or found.get('name') or 'a run'}, of {found.get('created')}",
                expected="the folder of this very experiment, or a new one",
                remedy="choose another folder with --out, or remove its run with --overwrite (what is yours stays)",
            )
        return
    found = _in_the_way(folder.path)
    if found is not None:
        checks.refuse(
            f"{found[0]} is in the way",
            got=found[1],
            expected="a new folder, or an empty one",
            remedy="choose another folder with --out",
        )


def _in_the_way(path: Path) -> tuple[Path, str] | None:
    """What stands where a new run folder is to be, or where one above it is to be; and what it is, in words."""
    with disk.explained(path):  # one that may not be looked into
        if path.is_dir():
            return (path, "a folder with other things in it") if holds_other_things(path) else None
        there = next((place for place in (path, *path.parents) if place.is_symlink() or place.exists()), None)
        if there is None or there.is_dir():
            return None
        return there, "a file" if there.exists() else "a link that leads nowhere"


def holds(folder: RunFolder, experiment_hash: str) -> bool:
    """Whether a folder holds the run of this experiment."""
    return not folder.holds_a_stranger() and folder.record.get("experiment_hash") == experiment_hash


def free_folder(name: str, experiment: Experiment) -> Path:
    """`runs/NAME`, or with a number behind it, if that holds another experiment."""
    for number in itertools.count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        folder = RunFolder(path)
        if not folder.exists() or holds(folder, experiment.hash()):
            return path
    raise AssertionError("numbers do not end")


def _run_one(experiment: Experiment, folder: RunFolder, record: dict[str, Any], watch: Watch) -> dict[str, Any]:
    problem = build(experiment, experiment.folder)
    journal = journal_in(folder, every=experiment.save.every, record=record)
    verb = {"flow": mf.flow, "layers": mf.layers}[problem.verb]
    with flushed(journal):
        run = verb(problem.field, problem.measure, **problem.options, journal=journal, progress=watch.bars)
    figures, diagnostics = experiment.figures, experiment.diagnostics
    options = figures.model_dump() | {"numbers": diagnostics.numbers}
    return _found(run, folder, options, watch, diagnostics.check)


def _found(run: mf.Trajectory, folder: RunFolder, options: dict[str, Any], watch: Watch, check: bool) -> dict[str, Any]:
    """What a finished run shows: numbers, checks, figures."""
    from .figures import draw

    watch.stage("numbers and checks", None)
    numbers = numbers_of(run, options.pop("numbers", None))
    theory = checked(run) if check else None
    names = options.pop("draw", None)
    drawn = draw(run, names, folder.put, options | {"checked": theory}, lambda words: watch.stage(words, None))
    return {
        "outcome": str(run.outcome),
        "fate": None if run.fate is None else str(run.fate),
        "summary": run.summary(),
        "numbers": numbers,
        "checks": claims_of(run, theory),
        "figures": drawn,
    }


def _run_cases(experiment: Experiment, folder: RunFolder, record: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """All cases one after the other, each into a folder of its own, then the pictures of all."""
    from .figures import draw_panels

    parts = experiment.expanded()
    names = [name for name, _ in parts]
    begin(folder, record | {"cases": names})
    rows, pictures = [], []
    for number, (name, case) in enumerate(parts):
        watch.stage(name, number / len(parts))
        inner = dataclasses.replace(watch, stage=lambda words, share: None)
        done = run_experiment(case, folder.part("cases", name), name=name, watch=inner)
        results = done.results or {}
        kept = {key: results.get(key) for key in ("outcome", "fate", "summary", "numbers", "checks", "seconds")}
        words = {"title": case.title or name, "formula": case.formula, "caption": case.caption}
        rows.append({"name": name, **words, **kept})
        pictures.append({"run": done.trajectory(), "options": case.figures.model_dump(), **words})
    watch.stage("drawing", None)
    drawn = [draw_panels(pictures, folder.put, heading=experiment.title, footer=experiment.caption)]
    return {
        "summary": f"{len(rows)} cases side by side",
        "rows": rows,
        "cases": [name for name, _ in parts],
        "figures": drawn,
    }


def begin(folder: RunFolder, record: dict[str, Any], inputs: Mapping[str, bytes] | None = None) -> None:
    """Make a folder for several runs, if it is not there, with the files that they read. The caller holds it."""
    with disk.explained(folder.path):
        if not folder.exists():
            folder.create(provenance() | record | {"hash": record.get("experiment_hash")}, {}, inputs)
        elif not folder.manifest:  # its first segment was damaged
            folder.add_segment({}, {})
        for name, data in (inputs or {}).items():
            if not (folder.path / name).exists():  # it was removed since
                folder.put(name, data)


def read_item(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """What an item of a paper, or a stage of a model, has found; None if it is not done, or its file is damaged."""
    try:
        item = folder.read_json(f"items/{name}.json")
    except FolderError:
        return None
    return item if item is not None and {"made_by", "seconds"} <= item.keys() else None


def write_results(folder: RunFolder, found: dict[str, Any]) -> None:
    """Write what was found: a run is done when it has its results."""
    with disk.explained(folder.path, "the run itself: all its states are written"):
        folder.put("results.json", {"status": "done", **found})


@contextlib.contextmanager
def flushed(journal: Journal) -> Iterator[Journal]:
    """Write what a run has come to when it is interrupted."""
    try:
        with recognised():
            yield journal
    except KeyboardInterrupt:
        journal.flush()
        raise
    finally:
        journal.close()


@contextlib.contextmanager
def interruptible(path: Path, journal: Journal | None = None) -> Iterator[None]:
    """Whatever asks the process to end, as `Interrupted`."""
    try:
        with asked_once(), flushed(journal) if journal is not None else recognised():
            yield
    except Interrupted as inner:  # of a case: the whole is what goes on
        raise Interrupted(path) from inner
    except KeyboardInterrupt as error:
        raise Interrupted(path) from error

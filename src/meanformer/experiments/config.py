"""Experiment files: what `meanformer run` runs, read from TOML and checked before anything is computed."""

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError

from .. import _checks as checks
from ..flows.save import DEFAULT_COUNT
from . import changes as changing
from .refusals import refuse_invalid
from .schema.attention import Attention
from .schema.base import Seed, Table
from .schema.measure import AnyMeasure
from .schema.run import Diagnostics, Figures, Flow, Layers, LogTimes, Save
from .schema.sweep import DRAW, Sweep
from .toml import Source, parse

LARGEST_FILE = 10**7
# Figures of all cases, or of a whole sweep; the others are drawn for each run.
OF_THE_WHOLE = ("panels", "heatmap", "curves")
PARTS = ("attention", "measure", "flow", "layers", "save", "diagnostics", "figures")
"""The tables that a case may change."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class Case(Table):
    """[[cases]]: the words of one case; its other tables change those of the experiment."""

    name: Annotated[Name, Field(description="a short name: letters, digits, dashes")]
    title: str = ""
    formula: str = ""
    caption: str = ""
    about: str = ""
    attention: Any = None
    measure: Any = None
    flow: Any = None
    layers: Any = None
    save: Any = None
    diagnostics: Any = None
    figures: Any = None


class Experiment(Table):
    """An experiment: a field, a measure, and what is done with them; or several, as cases or as a sweep.

    An experiment with cases has no field or measure of its own: see `expanded()`. One with a sweep is its first run;
    `task(values)` is any of them.
    """

    title: str = ""
    about: str = ""
    formula: str = ""
    caption: str = ""
    seed: Seed = 0
    cites: list[str] = Field(default=[])
    attention: Attention | None = None
    measure: AnyMeasure | None = None
    flow: Flow | None = None
    layers: Layers | None = None
    save: Save = Save()
    diagnostics: Diagnostics = Diagnostics()
    figures: Figures = Figures()
    cases: list[Case] = Field(default=[])
    sweep: Sweep | None = None

    _source: Source = PrivateAttr()
    _folder: Path = PrivateAttr()

    @property
    def source(self) -> Source:
        """The file that it was read from, with the changes made to it."""
        return self._source

    @property
    def folder(self) -> Path:
        """Where the file is, and the files that it names."""
        return self._folder

    @property
    def kind(self) -> str:
        """What running it makes: "flow" (also for layers), "cases" or "sweep"."""
        return "cases" if self.cases else "sweep" if self.sweep is not None else "flow"

    def expanded(self) -> "list[tuple[str, Experiment]]":
        """The cases, each an experiment of its own."""
        return [(case.name, _case(self, number)) for number, case in enumerate(self.cases)]

    def axes(self) -> dict[str, list[Any]]:
        """The values along each axis of the sweep."""
        return {} if self.sweep is None else self.sweep.axes()

    def task(self, values: dict[str, Any]) -> "Experiment":
        """One run of the sweep: `values` has a value for each axis, "draw" counting seeds from the experiment's own."""
        source = self.source
        data = changing.copied({key: part for key, part in source.data.items() if key != "sweep"})
        places = dict(source.places)
        for key, value in values.items():
            if key == DRAW:
                continue
            path = changing.resolved(key, data, f"{source.where(('sweep', 'grid', key))}: the sweep's key {key!r}")
            changing.put(data, path, value)
            place = source.places.get(("sweep", "grid", key))
            places[path] = f"{place}, the value {value!r} of the sweep" if place else f"the sweep's {key} = {value!r}"
        seed = data.get("seed", 0)
        data["seed"] = seed + values.get(DRAW, 0) if isinstance(seed, int) else seed
        _draw_each(data)
        return _checked(dataclasses.replace(source, data=data, places=places), self.folder)

    def states(self) -> int:
        """How many states a single run keeps."""
        times = self.save.times
        if self.layers is not None:
            return 2 if times == "final" else self.layers.depth + 1
        if isinstance(times, LogTimes):
            return times.count
        return len(times) if isinstance(times, list) else times or DEFAULT_COUNT

    def settings(self) -> dict[str, Any]:
        """All settings, defaults included, ready for JSON; `from_settings` reads them back.

        Tables that cases and sweeps change are kept as they are written: defaults depend on what they are changed to.
        """
        settings = self.model_dump()
        if self.kind != "flow":
            settings |= {name: self.source.data.get(name) for name in PARTS[:4]}
        return _json(settings)

    def hash(self) -> str:
        """A fingerprint of the settings and of the files that they name."""
        digest = hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode())
        for name in sorted(_files(self.settings())):
            file = self.folder / name
            digest.update(name.encode() + b"\0" + (file.read_bytes() if file.is_file() else b""))
        return digest.hexdigest()[:16]


def read_experiment(source: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """The experiment in a file, or that of a name in the library, with changes `key=value`.

    Keys and values are checked here; `build.build` makes the objects, and so checks shapes and files too.
    """
    from .registry import library

    name = str(source)
    built_in = library()
    file = built_in[name] if isinstance(source, str) and name in built_in else Path(source)
    if not _is_file(file):
        checks.refuse(
            f"there is no experiment {name!r}",
            got="a folder"
            if _is_file(file, folder=True)
            else "a device, a pipe or a socket"
            if os.path.exists(file)  # noqa: PTH110  (no name is too odd to ask)
            else f"no such file in {Path.cwd()}, and no such name in the library",
            expected="a TOML file, or one of " + ", ".join(built_in),
            remedy=changing.suggestion(name, built_in, "`meanformer init NAME` writes a file to start from"),
        )
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise ValueError(f"{file.stat().st_size:,} bytes")
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        checks.refuse(
            f"{file.name} cannot be read",
            got=str(error),
            expected="a text file (UTF-8) of at most 10 MB",
            remedy="numbers in bulk belong into .npy files: {file = 'Q.npy'}",
        )
    return experiment_of(text, file.name, file.resolve().parent, changes)


def _is_file(path: Path, folder: bool = False) -> bool:
    """Whether there is such a file, or such a folder; a name that no file can have is none."""
    try:
        return path.is_dir() if folder else path.is_file()
    except OSError:
        return False


def experiment_of(text: str, name: str, folder: Path, changes: Sequence[str] = ()) -> Experiment:
    """The experiment in a text; `folder` is where the files are that it names."""
    source = parse(text.removeprefix("\ufeff"), name)
    if not source.data:
        checks.refuse(
            f"{name} is empty",
            got="no tables",
            expected="at least [attention], [measure] and [flow] or [layers]",
            remedy="`meanformer init NAME` writes a file to start from",
        )
    return _checked(changing.changed(source, changes), folder)


def from_settings(settings: dict[str, Any], name: str, folder: Path) -> Experiment:
    """An experiment from its `settings()`."""
    return _checked(Source(name, "", _plain(settings), {}), folder)


def _checked(source: Source, folder: Path) -> Experiment:
    """The experiment that the data means, if they are complete."""
    data = source.data
    # Tables that cases complete are checked with each case.
    shell = {key: part for key, part in data.items() if not (data.get("cases") and key in PARTS[:4])}
    try:
        experiment = Experiment.model_validate(shell)
    except ValidationError as error:
        refuse_invalid(error, source)
    experiment._source, experiment._folder = source, folder
    _check_whole(experiment)
    return experiment


def _check_whole(experiment: Experiment) -> None:
    """Refuse what no single table can tell."""
    source = experiment.source

    def refuse(path: Any, what: str, got: str, expected: str, remedy: str) -> None:
        checks.refuse(f"{source.where(path)}: {what}", got=got, expected=expected, remedy=remedy)

    if experiment.cases:
        for name in PARTS[:4]:
            if not isinstance(source.data.get(name, {}), dict):
                got, path = repr(source.data[name]), (name,)
                refuse(path, f"{name} has a wrong value", got, "a table", f"write [{name}] above its keys")
        names = [case.name.lower() for case in experiment.cases]
        for number, name in enumerate(names):
            if name in names[:number]:
                where = f"cases {names.index(name) + 1} and {number + 1}"
                path = ("cases", number, "name")
                refuse(path, f"two cases are called {name!r}", where, "different names", "rename one of them")
        if experiment.sweep is not None:
            refuse(("sweep",), "an experiment has cases or a sweep", "both", "one of them", "make two files")
        experiment.expanded()
        return
    given = [name for name in ("flow", "layers") if getattr(experiment, name) is not None]
    for name in ("attention", "measure"):
        if getattr(experiment, name) is None:
            got = ", ".join(f"[{key}]" for key in source.data) or "nothing"
            refuse((), f"the table [{name}] is missing", got, f"a table [{name}]", f"add [{name}] with a `kind`")
    if len(given) != 1:
        path = ("layers",) if given else ()
        what = "an experiment has [flow] or [layers]" if given else "the table [flow] (or [layers]) is missing"
        remedy = "take one of them away" if given else "add [flow] with t1 = 4.0, or [layers] with depth = 12"
        refuse(path, what, " and ".join(f"[{name}]" for name in given) or "neither", "exactly one of them", remedy)
    for name in ("heatmap", "curves") if experiment.sweep is None else ():
        if name in (experiment.figures.draw or []):
            refuse(
                ("figures", "draw"), f"{name!r} is a figure of a sweep", "no [sweep]", "other figures", "leave it out"
            )
    if experiment.sweep is not None:
        _check_sweep(experiment, experiment.sweep, refuse)


def _check_sweep(experiment: Experiment, sweep: Sweep, refuse: Any) -> None:
    """Refuse a sweep of nothing, of too much, or with a run that is not valid."""
    axes = sweep.axes()
    if not axes:
        remedy = 'add [sweep.grid] with "attention.tau" = [0.5, 1.0], or draws = 10'
        refuse(("sweep",), "the sweep sweeps nothing", "neither grid nor draws", "one of them", remedy)
    if sweep.count() > 10**6:
        refuse(("sweep",), "too many runs", f"{sweep.count():,} runs", "at most a million", "make the grid coarser")
    if DRAW in sweep.grid or (sweep.draws and "seed" in sweep.grid):
        refuse(("sweep", "draws"), "two axes draw seeds", "draws and the key of a seed", "one of them", "leave one out")
    for values in points_to_check(axes):
        experiment.task(values)


def points_to_check(axes: dict[str, list[Any]], all_below: int = 2000) -> list[dict[str, Any]]:
    """The points of a grid whose runs are checked in advance: all of a small one, else all corners and
    all values of each axis with the others at their first; of the draws the first and the last.
    """
    axes = {key: [values[0], values[-1]] if key == DRAW else values for key, values in axes.items()}
    if math.prod(len(values) for values in axes.values()) < all_below:
        return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    ends = [dict.fromkeys([values[0], values[-1]]) for values in axes.values()]
    corners = [dict(zip(axes, point, strict=True)) for point in itertools.product(*ends)]
    first = {key: values[0] for key, values in axes.items()}
    return corners + [first | {key: value} for key, values in axes.items() for value in values]


def _case(experiment: Experiment, number: int) -> Experiment:
    """The experiment with the tables of a case put on top of its own."""
    source = experiment.source
    whole = source.data
    case = whole["cases"][number]
    data = changing.copied({key: part for key, part in whole.items() if key not in ("cases", "sweep")})
    for name, other in (("flow", "layers"), ("layers", "flow")):
        if name in case and other not in case:
            data.pop(other, None)
    for name in PARTS:
        if name in case:
            data[name] = changing.merged(data.get(name), case[name])
    words = {key: case.get(key, "") for key in ("title", "about", "formula", "caption")}
    _draw_each(data)
    return _checked(dataclasses.replace(source, data=data | words, inside=("cases", number)), experiment.folder)


def _draw_each(data: dict[str, Any]) -> None:
    """Leave to a single run the figures that are its own."""
    figures = data.get("figures")
    if isinstance(figures, dict) and isinstance(figures.get("draw"), list):
        figures["draw"] = [name for name in figures["draw"] if name not in OF_THE_WHOLE]


def _files(settings: Any) -> set[str]:
    """The files that settings name."""
    if isinstance(settings, dict):
        own = {settings["file"]} if isinstance(settings.get("file"), str) else set()
        return own.union(*(_files(part) for part in settings.values()))
    return set().union(*(_files(part) for part in settings)) if isinstance(settings, list) else set()


def _json(value: Any) -> Any:
    """Without what is not given, and with infinity as a word."""
    if isinstance(value, dict):
        return {key: _json(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_json(part) for part in value]
    return "inf" if value == math.inf else value


def _plain(value: Any, key: str = "") -> Any:
    """The inverse: only times are infinite."""
    if isinstance(value, dict):
        return {name: _plain(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, key) for part in value]
    return math.inf if value == "inf" and key.endswith("t1") else value

"""Changes to an experiment: `--set key=value`, the keys of a sweep, and the tables of a case."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from .. import _checks as checks
from .schema.attention import KINDS
from .schema.base import Table, near
from .schema.measure import LAWS, MEASURES
from .schema.run import Diagnostics, Figures, Flow, Layers, Save
from .schema.sweep import Sweep
from .toml import Path, Source, dotted, parse_value

ALONE = ("title", "about", "seed", "cites", "formula", "caption", "cases")
TABLES: dict[str, type[Table]] = {"flow": Flow, "layers": Layers, "save": Save, "diagnostics": Diagnostics}
TABLES |= {"figures": Figures, "sweep": Sweep}
# By their kind:
KINDS_OF = {"attention": KINDS, "measure": (*MEASURES, *LAWS)}
ALWAYS = ("save", "diagnostics", "figures")
"""Tables that every file may be given."""


def changed(source: Source, changes: Sequence[str]) -> Source:
    """The data with each `key=value` put in; values are written as in TOML, and else taken for text."""
    data, places = copied(source.data), dict(source.places)
    for change in changes:
        key, equals, value = (part.strip() for part in change.partition("="))
        if not equals or not key or not value:
            checks.refuse(
                "a change is a key and a value",
                got=repr(change),
                expected="key=value",
                remedy="e.g. --set n=200 or --set attention.tau=0.5",
            )
        path = resolved(key, data, f"the key {key!r} of --set")
        swept = data.get("sweep", {}).get("grid", {}) if isinstance(data.get("sweep"), dict) else {}
        if dotted(path) in swept:
            checks.refuse(
                f"{dotted(path)} is an axis of the sweep",
                got=f"--set {change}",
                expected="a setting that the sweep does not change",
                remedy=f'give its values in [sweep.grid]: "{dotted(path)}" = [{value}]',
            )
        put(data, path, parse_value(value))
        places = {place: words for place, words in places.items() if place[: len(path)] != path}
        places[path] = f"--set {change}"
    return dataclasses.replace(source, data=data, places=places)


def resolved(key: str, data: dict[str, Any], what: str) -> Path:
    """The place that a key means: a dotted path, or a short key that fits at one place only."""
    head, *rest = key.split(".")
    known = [*ALONE, *TABLES, *KINDS_OF]
    if head in known:
        return _walked((head,), rest, data, what)
    candidates = [] if rest else list(_homes(data, head))
    depth = min(map(len, candidates), default=0)
    candidates = [path for path in candidates if len(path) == depth]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        checks.refuse(
            f"{what} fits at several places",
            got=repr(key),
            expected="one of " + ", ".join(dotted(path) for path in candidates),
            remedy=f"write {dotted(candidates[0])}=...",
        )
    _refuse_key(key, data, what, known)


def put(data: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at a path, making tables on the way."""
    node: Any = data
    for key in path[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    node[path[-1]] = value


def merged(base: Any, change: Any) -> Any:
    """Two tables as one, the second on top; a table of another kind replaces the first."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copied(change)
    if "kind" in change and change["kind"] != base.get("kind"):
        return copied(change)
    return copied(base) | {key: merged(base.get(key), part) for key, part in change.items()}


def copied(value: Any) -> Any:
    """A copy of tables and lists, at all depths."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list) else value


def suggestion(word: str, options: Iterable[str], otherwise: str) -> str:
    """The nearest right word, or other advice."""
    found = near(word, options)
    return f"did you mean {found!r}?" if found else otherwise


def homes() -> dict[str, list[str]]:
    """The tables that each key may stand in."""
    found: dict[str, list[str]] = {}
    for table, models in {**{name: (model,) for name, model in TABLES.items()}, **KINDS_OF}.items():
        for key in {key for model in models for key in model.model_fields}:
            found.setdefault(key, []).append(table)
    return found


def _walked(path: Path, rest: list[str], data: dict[str, Any], what: str) -> Path:
    """A dotted path through the data: numbers in lists, names of cases."""
    node: Any = data.get(str(path[0]))
    for number, key in enumerate(rest):
        if isinstance(node, list):
            names = [part.get("name") if isinstance(part, dict) else None for part in node]
            place = names.index(key) if key in names else int(key) if key.isdecimal() else -1
            if not 0 <= place < len(node):
                options = [str(name) for name in names if name is not None] or [f"0 to {len(node) - 1}"]
                checks.refuse(
                    f"{what} names no part of the list {dotted(path)}",
                    got=repr(key),
                    expected=" or ".join(options),
                    remedy=suggestion(key, options, "numbers count from 0"),
                )
            path, node = (*path, place), node[place]
        elif node is None or isinstance(node, dict):
            path, node = (*path, key), None if node is None else node.get(key)
        else:
            checks.refuse(
                f"{what} goes into {dotted(path)}, which is no table",
                got=f"{dotted(path)} = {node!r}",
                expected="a table",
                remedy=f"set {dotted(path)} as a whole",
            )
        assert number < len(rest)
    return path


def _homes(data: dict[str, Any], key: str) -> Iterator[Path]:
    """The places of a file where a key may stand."""
    for name, model in TABLES.items():
        if (name in data or name in ALWAYS) and key in model.model_fields:
            yield name, key
    for name in KINDS_OF:
        yield from _homes_below(data.get(name), (name,), key)


def _homes_below(node: Any, path: Path, key: str) -> Iterator[Path]:
    if isinstance(node, list):
        for number, part in enumerate(node):
            yield from _homes_below(part, (*path, number), key)
    if isinstance(node, dict):
        models = [m for m in KINDS_OF[str(path[0])] if m.model_fields["kind"].default == node.get("kind")]
        if any(key in model.model_fields for model in models):
            yield *path, key
        for name, part in node.items():
            yield from _homes_below(part, (*path, name), key)


def _refuse_key(key: str, data: dict[str, Any], what: str, known: list[str]) -> NoReturn:
    home = homes()
    in_cases = [
        f"cases.{case.get('name')}.{dotted(path)}"
        for case in data.get("cases", [])
        if isinstance(case, dict)
        for path in _homes(case, key)
        if path[0] in case
    ]
    if in_cases:
        remedy = f"in this file it stands in the cases: {in_cases[0]}=..."
    elif key in home:
        remedy = f"{key} belongs in [{home[key][0]}], which this file does not have, or not of that kind"
    else:
        remedy = suggestion(key.split(".")[0], [*known, *home], "`--dry-run` shows the keys of an experiment")
    checks.refuse(
        f"{what} is not known",
        got=repr(key),
        expected="a key of the file, e.g. n, t1, seed or attention.tau",
        remedy=remedy,
    )

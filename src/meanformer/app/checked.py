"""What the page asks for, held against its limits; each refusal names the limit and the place in the experiment.

Two looks: `check_request` at the bare data, before anything is made of them; `check_experiment` at the experiment.
"""

import math
from collections.abc import Iterator
from typing import Any, NoReturn

from ..experiments.config import Experiment
from ..experiments.schema.base import Located
from ..experiments.toml import Path
from .limits import LIMITS, Limits

# Tables of an experiment file that the page has no use for: files of this machine, and runs in bulk.
CLOSED = {
    "file": "the page reads no files",
    "cases": "the page runs one experiment at a time",
    "sweep": "the page runs one experiment at a time",
}

# What may be rows of numbers. Few of them can mean much: n numbers on a diagonal, or in one row of W, are n^2 in W^T W.
MATRICES = ("Q", "K", "V", "W", "M", "W1", "W2", "cov", "factor", "diagonal", "gram")


def check_request(data: Any, limits: Limits = LIMITS) -> None:
    """Refuse data that are too deep, name files, or ask for arrays that are too large; whatever else they are."""
    if not isinstance(data, dict):
        _refuse((), "an experiment is a table", type(data).__name__, "a table", "send an experiment")
    for path, value in _walk(data, (), limits.nesting):
        key = path[-1] if path else ""
        if key in CLOSED:
            _refuse(
                path, CLOSED[str(key)], f"the key {key!r}", "an experiment without it", "use `meanformer run` for it"
            )
        if key in ("shape", "hidden"):
            for size in value if isinstance(value, list) else [value]:
                _at_most(path, "the rows of a matrix", size, limits.rows)
        if isinstance(value, list) and key in MATRICES:
            _at_most(path, "the rows of a matrix", len(value), limits.rows)
            columns = max((len(row) for row in value if isinstance(row, list)), default=0)
            _at_most(path, "the columns of a matrix", columns, limits.rows)
        if key == "max_iter":
            _at_most(path, "the iterations of Sinkhorn", value, 20_000)
        if key == "max_steps":
            _at_most(path, "the steps of a run", value, limits.steps)
        if key == "d":
            _at_most(path, "the dimension d", value, limits.d)


def check_experiment(experiment: Experiment, limits: Limits = LIMITS) -> None:
    """Refuse an experiment that is larger than the page allows."""
    measure, flow, layers = experiment.measure, experiment.flow, experiment.layers
    assert measure is not None and experiment.attention is not None
    d = measure.dimension()
    _at_most(("measure", "d"), "the dimension d", d, limits.d)
    if flow is not None and not (measure.kind == "gaussian" and flow.t1 == math.inf):
        _at_most(("flow", "t1"), "the length of the time span", abs(flow.t1 - flow.t0), limits.t1)
    if layers is not None:
        _at_most(("layers", "depth"), "the depth", layers.depth, limits.depth)
    leaves = list(_leaves(experiment.attention))
    _at_most(("attention",), "the number of heads and terms", len(leaves), limits.heads)
    frames = experiment.states()
    _at_most(("save", "times"), "the number of frames", frames, limits.frames)
    if measure.kind == "density":
        _check_cells(measure, d, limits)
        return
    if measure.kind == "gaussian":
        return
    n = len(measure.points) if measure.kind == "points" else measure.n
    _at_most(("measure", "n"), "the number of tokens n", n, limits.n)
    verb = "layers" if flow is None else "flow"
    if n > limits.n_exact and (flow or layers).accuracy is None:  # pyright: ignore[reportOptionalMemberAccess]
        _refuse(
            (verb, "accuracy"),
            "exact sums over so many tokens take too long for a page",
            f"n = {n}",
            f"at most {limits.n_exact:,} tokens with exact sums",
            f"take fast sums: accuracy = 1e-5 in [{verb}]",
        )
    if any(leaf.kind == "sinkhorn" for leaf in leaves):
        _at_most(("measure", "n"), "the number of tokens of Sinkhorn attention", n, limits.n_sinkhorn)
    if n * d * frames > limits.numbers:
        most = max(2, limits.numbers // (n * d))
        remedy = f"at most {most} frames for these tokens, or fewer tokens"
        _refuse(
            ("save", "times"),
            "too many numbers for a page",
            f"{n} tokens x {d} coordinates x {frames} frames",
            f"at most {limits.numbers:,}",
            remedy,
        )


def check_seen(experiment: Experiment) -> None:
    """Refuse a run that has no frames for the page to show."""
    assert experiment.measure is not None
    if experiment.measure.kind == "gaussian":
        remedy = 'choose starts in the Gaussian view, or tokens from the same law: kind = "normal"'
        _refuse(("measure", "kind"), "the page runs tokens and densities", "a Gaussian", "one of these", remedy)
    if experiment.save.sample is not None:
        got = f"a sample of {experiment.save.sample}"
        _refuse(("save", "sample"), "the page shows all tokens", got, "no sample", "leave it out, or take fewer tokens")


def _check_cells(measure: Any, d: int, limits: Limits) -> None:
    if d != 1:
        _refuse(("measure", "of"), "the page shows densities on a line", f"d = {d}", "d = 1", "use `meanformer run`")
    cells = measure.cells
    for count in cells if isinstance(cells, list) else [cells or 0]:
        _at_most(("measure", "cells"), "the number of cells", count, limits.cells)


def _leaves(attention: Any) -> Iterator[Any]:
    inner = [getattr(attention, key) for key in ("of",) if hasattr(attention, key)]
    for key in ("heads", "terms", "fields"):
        inner += getattr(attention, key, [])
    if not inner:
        yield attention
    for part in inner:
        yield from _leaves(part)


def _walk(value: Any, path: Path, deeper: int) -> Iterator[tuple[Path, Any]]:
    """Every part of the data, with its place."""
    if deeper == 0:
        _refuse(path[:1], "the experiment is nested too deeply", "more levels", "fewer tables in tables", "flatten it")
    yield path, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _walk(part, (*path, key), deeper - 1)
    elif isinstance(value, list):
        # Rows of numbers end here: only tables have keys.
        for number, part in enumerate(value):
            if isinstance(part, dict) or (isinstance(part, list) and any(isinstance(p, (dict, list)) for p in part)):
                yield from _walk(part, (*path, number), deeper - 1)


def _at_most(path: Path, what: str, value: Any, most: int | float) -> None:
    """Refuse a number above its limit; what is no number is refused elsewhere, by the schema."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > most:
        got = f"{value:,}" if isinstance(value, int) else f"{value:g}"
        _refuse(
            path, f"{what} is bounded on this page", got, f"at most {most:,}", "use `meanformer run` for larger ones"
        )


def _refuse(path: Path, what: str, got: str, expected: str, remedy: str) -> NoReturn:
    raise Located(what, got, expected, remedy, path)

"""What a page may ask for: each bound refused with its number and its place, and kept to the last unit."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app._pages import SMALL, changed
from meanformer.app.checked import check_experiment, check_request
from meanformer.app.limits import LIMITS, Limits
from meanformer.app.work import _experiment, read_text
from meanformer.experiments.config import from_settings
from meanformer.experiments.schema.base import Located

TINY = Limits(
    n=60, n_exact=40, n_sinkhorn=20, d=3, t1=10.0, depth=7, frames=9, numbers=60 * 2 * 5, heads=2, rows=4, cells=30
)
"""Bounds that are reached without much ado."""
HEAD = SMALL["attention"]
LINE: dict[str, Any] = {
    "attention": {"kind": "softmax", "Q": [[1.0]], "K": [[1.0]], "V": [[1.0]]},
    "measure": {"kind": "density", "of": {"kind": "cube", "d": 1}, "cells": 30},
    "flow": {"t1": 0.5},
}


def check(experiment: dict[str, Any], limits: Limits) -> None:
    """As the worker does."""
    check_request(experiment, limits)
    check_experiment(from_settings(copy.deepcopy(experiment), "page", Path("/nonexistent")), limits)


def layered(depth: int, times: Any = "all") -> dict[str, Any]:
    return changed(SMALL, flow=None, layers={"depth": depth}, save={"times": times}, measure={"n": 5})


def with_attention(**keys: Any) -> dict[str, Any]:
    return changed(SMALL, attention=keys)


def rows(count: int, columns: int = 2) -> list[list[float]]:
    return [[1.0] * columns] * count


def heads(count: int, wrapped: bool = False) -> dict[str, Any]:
    several = {"kind": "multi-head", "heads": [HEAD] * count}
    return {**SMALL, "attention": {"kind": "causal", "of": several} if wrapped else several}


def tokens(n: int, **flow: Any) -> dict[str, Any]:
    return changed(SMALL, measure={"n": n}, flow=flow, save={"times": 2})


def given(n: int, d: int) -> dict[str, Any]:
    points = {"kind": "points", "points": [[0.5] * d] * n}
    return {**changed(SMALL, flow={"accuracy": 1e-5}, save={"times": 2}), "measure": points}


# For each bound: an experiment at it and one just above, the number that the refusal names, and its place.
BOUNDS: dict[str, tuple[Any, Any, str, list[str | int]]] = {
    "n": (tokens(60, accuracy=1e-5), tokens(61, accuracy=1e-5), "60", ["measure", "n"]),
    "points": (given(60, 2), given(61, 2), "60", ["measure", "n"]),
    "n, exact": (tokens(40), tokens(41), "40", ["flow", "accuracy"]),
    "n, exact layers": (
        changed(layered(2, "final"), measure={"n": 40}),
        changed(layered(2, "final"), measure={"n": 41}),
        "40",
        ["layers", "accuracy"],
    ),
    "n, Sinkhorn": (
        changed(tokens(20), attention={"kind": "sinkhorn"}),
        changed(tokens(21), attention={"kind": "sinkhorn"}),
        "20",
        ["measure", "n"],
    ),
    "d": (changed(SMALL, measure={"n": 5, "d": 3}), changed(SMALL, measure={"n": 5, "d": 4}), "3", ["measure", "d"]),
    "d of points": (given(3, 3), given(3, 4), "3", ["measure", "d"]),
    "d of a mean": (
        {**SMALL, "measure": {"kind": "normal", "n": 3, "mean": [0.0] * 3}},
        {**SMALL, "measure": {"kind": "normal", "n": 3, "mean": [0.0] * 4}},
        "3",
        ["measure", "d"],
    ),
    "d of a box": (
        {**SMALL, "measure": {"kind": "cube", "n": 3, "low": [0.0] * 3}},
        {**SMALL, "measure": {"kind": "cube", "n": 3, "low": [0.0] * 4}},
        "3",
        ["measure", "d"],
    ),
    "t1": (changed(SMALL, flow={"t1": 10.0}), changed(SMALL, flow={"t1": 10.000001}), "10.0", ["flow", "t1"]),
    "t1 - t0": (
        changed(SMALL, flow={"t0": -5.0, "t1": 5.0}),
        changed(SMALL, flow={"t0": -5.0, "t1": 6.0}),
        "10.0",
        ["flow", "t1"],
    ),
    "t1 = inf": (SMALL, changed(SMALL, flow={"t1": "inf"}), "10.0", ["flow", "t1"]),
    "depth": (layered(7), layered(8), "7", ["layers", "depth"]),
    "frames": (
        changed(SMALL, measure={"n": 5}, save={"times": 9}),
        changed(SMALL, measure={"n": 5}, save={"times": 10}),
        "9",
        ["save", "times"],
    ),
    "frames by their times": (
        changed(SMALL, measure={"n": 5}, save={"times": [0.05 * k for k in range(9)]}),
        changed(SMALL, measure={"n": 5}, save={"times": [0.05 * k for k in range(10)]}),
        "9",
        ["save", "times"],
    ),
    "frames in the logarithm": (
        changed(SMALL, measure={"n": 5}, save={"times": {"count": 9, "log_from": 0.01}}),
        changed(SMALL, measure={"n": 5}, save={"times": {"count": 10, "log_from": 0.01}}),
        "9",
        ["save", "times"],
    ),
    "frames by default": (
        changed(SMALL, measure={"n": 2}, save={"times": 9}),
        changed(SMALL, measure={"n": 2}, save=None),
        "9",
        ["save", "times"],
    ),
    "numbers": (
        changed(SMALL, measure={"n": 60}, flow={"accuracy": 1e-5}, save={"times": 5}),
        changed(SMALL, measure={"n": 60}, flow={"accuracy": 1e-5}, save={"times": 6}),
        "600",
        ["save", "times"],
    ),
    "heads": (heads(2), heads(3), "2", ["attention"]),
    "heads inside": (heads(2, wrapped=True), heads(3, wrapped=True), "2", ["attention"]),
    "terms": (
        {**SMALL, "attention": {"kind": "sum", "terms": [HEAD, HEAD]}},
        {**SMALL, "attention": {"kind": "sum", "terms": [HEAD, {"kind": "multi-head", "heads": [HEAD, HEAD]}]}},
        "2",
        ["attention"],
    ),
    "rows": (with_attention(Q=rows(4), K=rows(4)), with_attention(Q=rows(5), K=rows(5)), "4", ["attention", "Q"]),
    "columns": (with_attention(Q=rows(1, 4)), with_attention(Q=rows(1, 5)), "4", ["attention", "Q"]),
    "rows of a head": (
        {**SMALL, "attention": {"kind": "multi-head", "heads": [HEAD, {**HEAD, "K": rows(4)}]}},
        {**SMALL, "attention": {"kind": "multi-head", "heads": [HEAD, {**HEAD, "K": rows(5)}]}},
        "4",
        ["attention", "heads", 1, "K"],
    ),
    "a random matrix": (
        with_attention(Q={"random": "normal", "shape": [4, 2]}),
        with_attention(Q={"random": "normal", "shape": [5, 2]}),
        "4",
        ["attention", "Q", "shape"],
    ),
    "a diagonal": (
        with_attention(Q={"diagonal": [1.0] * 4}),
        with_attention(Q={"diagonal": [1.0] * 5}),
        "4",
        ["attention", "Q", "diagonal"],
    ),
    "a Gram matrix": (
        with_attention(Q={"gram": rows(1, 4)}),
        with_attention(Q={"gram": rows(1, 5)}),
        "4",
        ["attention", "Q", "gram"],
    ),
    "hidden": (
        {**SMALL, "attention": {"kind": "perceptron", "W1": "zero", "W2": "zero", "hidden": 4}},
        {**SMALL, "attention": {"kind": "perceptron", "W1": "zero", "W2": "zero", "hidden": 5}},
        "4",
        ["attention", "hidden"],
    ),
    "iterations": (
        changed(tokens(20), attention={"kind": "sinkhorn", "max_iter": 20_000}),
        changed(tokens(20), attention={"kind": "sinkhorn", "max_iter": 20_001}),
        "20,000",
        ["attention", "max_iter"],
    ),
    "steps": (
        changed(SMALL, flow={"max_steps": 100_000}),
        changed(SMALL, flow={"max_steps": 100_001}),
        "100,000",
        ["flow", "max_steps"],
    ),
    "cells": (
        changed(LINE, save={"times": 5}),
        changed(LINE, save={"times": 5}, measure={"cells": 31}),
        "30",
        ["measure", "cells"],
    ),
    "cells in a list": (
        changed(LINE, save={"times": 5}, measure={"cells": [30]}),
        changed(LINE, save={"times": 5}, measure={"cells": [31]}),
        "30",
        ["measure", "cells"],
    ),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_holds_to_the_last_unit(name):
    at, above, number, place = BOUNDS[name]
    check(at, TINY)
    with pytest.raises(Located) as refused:
        check(above, TINY)
    assert list(refused.value.path) == place
    assert number in refused.value.expected.split()
    assert refused.value.remedy


def test_the_bounds_of_the_page_itself():
    """Those above are small; these are what a page meets, and both of one kind."""
    check(changed(SMALL, measure={"n": 100_000}, flow={"accuracy": 1e-5}, save={"times": 60}), LIMITS)
    with pytest.raises(Located, match=r"at most 12,000,000"):
        check(changed(SMALL, measure={"n": 100_000}, flow={"accuracy": 1e-5}, save={"times": 61}), LIMITS)
    check(changed(SMALL, measure={"n": 10_000}), LIMITS)
    with pytest.raises(Located, match=r"at most 10,000 tokens with exact sums"):
        check(changed(SMALL, measure={"n": 10_001}), LIMITS)
    with pytest.raises(Located, match="100,001"):
        check(changed(SMALL, measure={"n": 100_001}, flow={"accuracy": 1e-5}), LIMITS)


FILE = {"file": "Q.npy"}
FILES: dict[str, Any] = {
    "a matrix": with_attention(Q=FILE),
    "a scaled matrix": with_attention(V={"scale": 2.0, **FILE}),
    "inside a Gram matrix": with_attention(K={"gram": FILE}),
    "a bias": with_attention(query_bias=FILE),
    "a head": {**SMALL, "attention": {"kind": "multi-head", "heads": [HEAD, {**HEAD, "Q": FILE}]}},
    "the output of a head": {**SMALL, "attention": {"kind": "multi-head", "heads": [HEAD, HEAD], "W": [1.0, FILE]}},
    "below a mask": {**SMALL, "attention": {"kind": "causal", "of": {**HEAD, "V": FILE}}},
    "a norm": {**SMALL, "attention": {"kind": "pre-norm", "of": HEAD, "norm": {"kind": "rms", "scale": FILE}}},
    "the tokens": {**SMALL, "measure": {"kind": "points", "points": FILE}},
    "the weights": {**SMALL, "measure": {"kind": "points", "points": [[0.0, 1.0]], "weights": FILE}},
    "a covariance": {**SMALL, "measure": {"kind": "normal", "n": 3, "cov": FILE}},
    "one of several covariances": {
        **SMALL,
        "measure": {"kind": "mixture", "n": 3, "means": [[0.0, 0.0], [1.0, 1.0]], "covs": [[[1.0, 0.0]], FILE]},
    },
    "the second of several covariances": {
        **SMALL,
        "measure": {"kind": "mixture", "n": 3, "means": [[0.0, 0.0], [1.0, 1.0]], "covs": [1.0, FILE]},
    },
    "a density": changed(LINE, measure={"of": {"kind": "gaussian", "mean": FILE}}),
}


@pytest.mark.parametrize("experiment", FILES.values(), ids=FILES)
def test_no_file_is_read_wherever_it_hides(experiment, monkeypatch):
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(np, "load", never)
    with pytest.raises(Located, match="the page reads no files") as refused:
        _experiment(experiment)
    assert refused.value.path[-1] == "file"


@pytest.mark.parametrize("key", ["cases", "sweep"])
def test_runs_in_bulk_are_refused(key):
    part = [{"name": "a"}] if key == "cases" else {"draws": 3}
    with pytest.raises(Located, match="one experiment at a time") as refused:
        _experiment({**SMALL, key: part})
    assert refused.value.path == (key,)


def test_a_sweep_is_refused_before_its_runs_are_looked_at(monkeypatch):
    from meanformer.app import work

    def never(*_: Any) -> None:
        raise AssertionError("the sweep was checked")

    monkeypatch.setattr(work, "experiment_of", never)
    with pytest.raises(Located, match="one experiment at a time"):
        read_text('[sweep.grid]\n"attention.tau" = {linear = [1.0, 2.0, 1000000]}\n')


def test_nesting_has_an_end():
    def nested(levels: int) -> dict[str, Any]:
        attention = HEAD
        for _ in range(levels):
            attention = {"kind": "scaled", "factor": 1.0, "of": attention}
        return {**SMALL, "attention": attention}

    check(nested(LIMITS.nesting - 3), LIMITS)
    with pytest.raises(Located, match="nested too deeply") as refused:
        check_request(nested(LIMITS.nesting))
    assert refused.value.path == ("attention",)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Located, match="nested too deeply"):
        check_request({"measure": deep})


@pytest.mark.parametrize("data", [None, 3, "text", [], [SMALL], True])
def test_what_is_no_table_is_refused(data):
    with pytest.raises(Located, match="an experiment is a table"):
        _experiment(data)


def test_a_plane_of_density_is_refused():
    plane = changed(LINE, measure={"of": {"kind": "cube", "d": 2}, "cells": 20})
    with pytest.raises(Located, match="densities on a line") as refused:
        check(plane, LIMITS)
    assert refused.value.path == ("measure", "of")

"""Options of `flow` and `layers` in combination: every two values of any two options meet in some call.

Each call runs to finite numbers or is refused in words. The calls are a covering array, found greedily: with some
fifteen options of a few values each, a few dozen calls instead of millions.
"""

import collections
import itertools
import random

import jax
import numpy as np
import pytest

import meanformer as mf
from fuzz.calls import Call, outcome, text_of
from fuzz.values import TOKENS
from meanformer.reduce.grid import Grid, reach_for
from meanformer.reduce.sums import Fast
from oracles.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("as_a_user")

NEVER = "(left out)"
FLOW = {
    "field": ["SOFTMAX", "SINKHORN", "CAUSAL", "HARDMAX", "NORMED", "PIECES", "[SOFTMAX, L2]", "AFFINE", "LINEAR"],
    "measure": ["TOKENS", "PLACED", "GAUSS", "SHARES", "PLACED_SHARES", "SINGLE"],
    "t1": ["0.5", "1"],
    "t0": [NEVER, "0.25"],
    "solver": [NEVER, "'tsit5'", "'euler'", "'kvaerno5'"],
    "rtol": [NEVER, "1e-4"],
    "atol": [NEVER, "1e-5"],
    "step": [NEVER, "0.125"],
    "accuracy": [NEVER, "1e-3"],
    "save": [NEVER, "3", "[0.3, 0.4]"],
    "sample": [NEVER, "2"],
    "observers": [NEVER, "{'mean': lambda mu, t: mu.mean}"],
    "space": [NEVER, "mf.Euclidean()", "mf.Sphere()"],
    "frame": [NEVER, "mf.Rescaled()"],
    "stop": [NEVER, "mf.Stationary(1e-3)", "[mf.RadiusAbove(5.0), lambda mu, t: t > 0.4]"],
    "max_steps": [NEVER, "500"],
}
LAYERS = {
    "field": FLOW["field"],
    "measure": FLOW["measure"],
    "depth": ["2", "None"],
    "step": [NEVER, "0.25"],
    "space": FLOW["space"],
    "save": [NEVER, "'final'"],
    "accuracy": [NEVER, "1e-3"],
    "sample": [NEVER, "2"],
    "observers": FLOW["observers"],
}


def pairs_of(row):
    return set(itertools.combinations(row.items(), 2))


def covering(options, rng):
    """Rows, each a value for every option, in which every two values of two options meet."""
    names = list(options)
    order = {name: k for k, name in enumerate(names)}
    left = set().union(*(pairs_of(dict(zip(pair, values, strict=True)))
                         for pair in itertools.combinations(names, 2)
                         for values in itertools.product(*(options[name] for name in pair))))  # fmt: skip

    def gain(row, name, value):
        """How many pairs that have not met does a value bring to the row?"""
        found = 0
        for other, text in row.items():
            pair = ((other, text), (name, value))
            found += (pair if order[other] < order[name] else pair[::-1]) in left
        return found

    def random_row():
        row = dict(rng.choice(sorted(left)))
        for name in rng.sample(names, len(names)):
            if name not in row:
                row[name] = max(options[name], key=lambda value, name=name: gain(row, name, value))
        return {name: row[name] for name in names}

    rows = []
    while left:
        rows.append(max((random_row() for _ in range(10)), key=lambda row: len(pairs_of(row) & left)))
        left -= pairs_of(rows[-1])
    return rows


def calls(verb, options):
    rows = covering(options, random.Random(0))
    return [Call(verb, {name: text for name, text in row.items() if text != NEVER}) for row in rows]


def test_covering_array():
    """All pairs are there, in few rows; the least that there can be is the product of the two longest."""
    for options, most in ((FLOW, 90), (LAYERS, 80)):
        rows = covering(options, random.Random(0))
        met = set().union(*(pairs_of(row) for row in rows))
        longest = sorted(map(len, options.values()))[-2:]
        assert len(met) == sum(len(a) * len(b) for a, b in itertools.combinations(options.values(), 2))
        assert longest[0] * longest[1] <= len(rows) <= most


@pytest.mark.parametrize(
    ("verb", "options", "share"),
    [
        pytest.param("layers", LAYERS, 20, id="layers, some"),
        pytest.param("layers", LAYERS, 1, id="layers", marks=pytest.mark.nightly),
        pytest.param("flow", FLOW, 20, id="flow, some"),
        pytest.param("flow", FLOW, 1, id="flow", marks=pytest.mark.nightly),
    ],
)
def test_options_in_combination(verb, options, share):
    counts, failures = collections.Counter(), []
    for call in calls(verb, options)[::share]:
        try:
            kind, _, run = outcome(call)
            if kind == "result":
                states = jax.tree.leaves(run.saved)
                assert all(np.isfinite(np.asarray(leaf)).all() for leaf in states), (
                    f"states that are not finite: {run.outcome}"
                )
            counts[kind] += 1
        except Exception as error:
            failures.append(f"{text_of(call)}\n    {type(error).__name__}: {str(error)[:400]}")
    print(f"{verb}: {dict(counts)}")
    assert not failures, f"{len(failures)} calls, {dict(counts)}:\n" + "\n".join(failures)
    assert share > 1 or counts["result"] >= 5


def test_derivatives_through_fast_sums():
    """A plan that was made outside differentiates as exact sums do; an accuracy alone is refused under `grad`."""
    rng = np.random.default_rng(0)
    field, mu, pull = (
        mf.Softmax([[0.8]], [[1.0]], [[1.0]]),
        mf.PointCloud(rng.normal(size=(60, 1))),
        rng.normal(size=(60, 1)),
    )
    grid = Grid(48, 8, reach_for(8, 1, 1e-8))
    plan = mf.Plan(Fast(grid, None, 0, 0, 1e-7, 0), accuracy=1e-7, error=0.0, bytes=0.0, words="a grid")
    assert not plan.exact

    def slope(accuracy):
        return jax.grad(lambda x: (pull * mf.velocity(field, mu.with_points(x), accuracy=accuracy)).sum())(mu.points)

    exact, fast = slope(None), slope(plan)
    assert 0 < float(np.abs(fast - exact).max()) < 1e-5 * float(np.abs(exact).max())
    assert_refused(lambda: slope(1e-6), ("a plan needs known numbers", "accuracy=plan"))


def test_fast_runs_are_not_differentiated():
    def end(x, verb):
        return verb(mf.PointCloud(x)).final.points.sum()

    field = mf.Softmax(1.0, 1.0, 1.0)
    verbs = [lambda mu: mf.flow(field, mu, 0.5, accuracy=1e-3), lambda mu: mf.layers(field, mu, 2, accuracy=1e-3)]
    for verb in verbs:
        assert_refused(
            lambda verb=verb: jax.grad(end)(TOKENS.points[:, :1], verb),
            ("jit, vmap or grad", "accuracy=plan" if verb is verbs[0] else "outside"),
        )

"""Experiment files: cases, sweeps, changes, settings, plans and costs."""

import json

import jax
import numpy as np
import pytest

import meanformer as mf
from experiments._texts import SOFTMAX, TOKENS, I, experiment, read, same
from meanformer.experiments.build import build, check
from meanformer.experiments.config import from_settings, read_experiment
from meanformer.experiments.cost import estimate, plan_text
from meanformer.experiments.registry import library

# Cases

CASES = f"""
title = "Both"
[attention]
{SOFTMAX}
tau = 3.0
[measure]
{TOKENS}
[flow]
t1 = 2.0
rtol = 1e-4
[figures]
draw = ["panels", "paths"]
[[cases]]
name = "warm"
title = "Warm"
formula = "$x$"
attention = {{tau = 9.0}}
flow = {{t1 = 5.0}}
[[cases]]
name = "deep"
layers = {{depth = 4}}
attention = {{kind = "l2", Q = 1.0, K = 1.0, V = 1.0}}
figures = {{draw = ["panels", "ranks"], view = 2.0}}
"""


def test_cases_change_tables():
    both = read(CASES)
    assert both.kind == "cases" and both.figures.draw == ["panels", "paths"]
    (name, warm), (other, deep) = both.expanded()
    assert (name, other) == ("warm", "deep")
    assert (warm.title, warm.formula, warm.kind) == ("Warm", "$x$", "flow")
    same(build(warm).field, mf.Softmax(I, I, I, tau=9.0))
    assert build(warm).options == {"t0": 0.0, "t1": 5.0, "rtol": 1e-4}
    assert warm.figures.draw == ["paths"]
    same(build(deep).field, mf.L2(I, I, I))  # another kind: the tau of the first is gone
    assert build(deep).verb == "layers" and build(deep).options == {"depth": 4}
    assert deep.figures.draw == ["ranks"] and deep.figures.view == 2.0
    with pytest.raises(mf.InputError, match="case by case"):
        build(both)


# Sweeps

SWEEP = """
[sweep]
draws = 3
numbers = ["radius"]
[sweep.grid]
"attention.tau" = {log = [0.1, 10.0, 3]}
t1 = {linear = [1, 2, 2]}
"attention.kind" = ["softmax", "l2"]
"""


def test_sweeps_have_axes_and_tasks():
    text = f'seed = 5\n[attention]\n{SOFTMAX}\n[measure]\nkind = "normal"\nn = 3\n[flow]\nt1 = 9.0\n{SWEEP}'
    swept = read(text)
    axes = swept.axes()
    assert list(axes) == ["attention.tau", "t1", "attention.kind", "draw"]
    np.testing.assert_allclose(axes["attention.tau"], [0.1, 1.0, 10.0])
    assert axes["t1"] == [1.0, 2.0] and axes["draw"] == [0, 1, 2]
    assert swept.kind == "sweep" and swept.sweep is not None and swept.sweep.count() == 36
    task = swept.task({"attention.tau": 10.0, "t1": 1.0, "attention.kind": "l2", "draw": 2})
    assert task.kind == "flow" and task.seed == 7
    problem = build(task)
    same(problem.field, mf.L2(I, I, I, tau=10.0))
    same(problem.measure, mf.Gaussian([0.0, 0.0], I).sample(3, key=jax.random.key(7)))
    assert problem.options["t1"] == 1.0
    check(swept)


def test_whole_numbers_of_a_sweep_stay_whole():
    swept = experiment(rest="[sweep.grid]\nseed = {range = [3, 5]}")
    assert swept.axes() == {"seed": [3, 4, 5]}
    assert [swept.task({"seed": seed}).seed for seed in (3, 5)] == [3, 5]


# Changes


@pytest.mark.parametrize(
    "changes, found",
    [
        (["n=7"], lambda e: e.measure.n == 7),
        (["t1=3"], lambda e: e.flow.t1 == 3.0),
        (["tau=0.5", "seed=4"], lambda e: e.attention.of.tau == 0.5 and e.seed == 4),
        (["attention.of.tau = 0.25"], lambda e: e.attention.of.tau == 0.25),
        (["Q=[[1.0, 0.0]]", "K={of = 'Q'}"], lambda e: e.attention.of.Q == [[1.0, 0.0]]),
        (["title=A plain text, not TOML"], lambda e: e.title == "A plain text, not TOML"),
        (["title='quoted'"], lambda e: e.title == "quoted"),
        (["animation=true", "view=2"], lambda e: e.figures.animation and e.figures.view == 2.0),
        (["frame=rescaled"], lambda e: e.flow.frame == "rescaled"),
        (["check=false"], lambda e: e.diagnostics.check is False),
        (["sample=2", "every=5"], lambda e: e.save.sample == 2 and e.save.every == 5.0),
        (["n=7", "n=8"], lambda e: e.measure.n == 8),
    ],
)
def test_changes(changes, found):
    inner = SOFTMAX.replace("\n", ", ")
    text = f'[attention]\nkind = "causal"\nof = {{{inner}}}\n[measure]\nkind = "normal"\nn = 3\n[flow]\nt1 = 1.0'
    assert found(read(text, changes))


def test_changes_of_cases_go_by_name():
    changed = read(CASES, ["cases.warm.attention.tau=4.5", "cases.1.layers.depth=2", "rtol=1e-3"])
    (_, warm), (_, deep) = changed.expanded()
    assert warm.attention.tau == 4.5 and warm.flow.rtol == 1e-3 and deep.layers.depth == 2


# Settings, plans and costs


@pytest.mark.parametrize("name", library())
def test_settings_go_through_json_and_back(name):
    there = read_experiment(name)
    settings = json.loads(json.dumps(there.settings(), allow_nan=False))
    back = from_settings(settings, "run.json", there.folder)
    assert back.settings() == there.settings() and back.hash() == there.hash()
    assert back.axes() == there.axes()
    assert [name for name, _ in back.expanded()] == [name for name, _ in there.expanded()]


def test_hashes_tell_settings_and_files_apart(tmp_path):
    text = f'[attention]\n{SOFTMAX}\n[measure]\nkind = "points"\npoints = {{file = "x.npy"}}\n[flow]\nt1 = 1.0'
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    first = read(text, folder=tmp_path).hash()
    assert read(text.replace("1.0", "1"), folder=tmp_path).hash() == first
    assert read(text, ["tau=2.0"], folder=tmp_path).hash() != first
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert read(text, folder=tmp_path).hash() != first


def test_the_same_experiment_gives_the_same_bits():
    one, other = (build(read_experiment("clusters", ["n=9", "seed=2"])) for _ in range(2))
    same((one.field, one.measure), (other.field, other.measure))
    assert one.options == other.options


def test_costs_grow_with_the_work():
    def seconds(*changes: str) -> float:
        return estimate(read_experiment("clusters", list(changes))).seconds

    assert seconds() < seconds("n=4000") < seconds("n=40000")
    assert seconds("n=40000", "accuracy=1e-6") < seconds("n=40000")
    assert seconds("n=4000") < seconds("n=4000", "t1=100.0")
    few, many = (estimate(read_experiment("clusters", [f"times={count}", "n=9000"])).bytes for count in (2, 2000))
    assert many > 20 * few


def test_the_plan_tells_what_will_be_run():
    plan = plan_text(read_experiment("clusters", ["n=77", "seed=5", "stop=[{wall_clock=9.0}]"]))
    for words in ("softmax", "77 tokens of dimension 3, from seed 5", "t = 15", "tsit5, rtol 1e-06", "101 states"):
        assert words in plan
    assert "wall_clock" in plan and "rough" in plan
    assert "until its fate is known" in plan_text(read_experiment("gaussian-blowup"))
    assert "144 runs" in plan_text(read_experiment("phase-diagram"))
    assert plan_text(read_experiment("tour")).count("tokens of dimension 2, from seed 0") == 11


def test_an_axis_of_a_sweep_cannot_be_set():
    with pytest.raises(mf.InputError, match="is an axis of the sweep"):
        read_experiment("phase-diagram", ["attention.tau=0.1"])

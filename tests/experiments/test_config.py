"""Experiment files: lines, matrices, kinds, measures, options, cases, sweeps, changes."""

import json
import math
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.build import build, check
from meanformer.experiments.config import Experiment, experiment_of, from_settings, read_experiment
from meanformer.experiments.cost import estimate, plan_text
from meanformer.experiments.registry import library
from meanformer.experiments.toml import parse

I = jnp.eye(2)
TOKENS = 'kind = "points"\npoints = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]'
SOFTMAX = 'kind = "softmax"\nQ = "identity"\nK = "identity"\nV = "identity"'
FLOW = "t1 = 2.0"


def read(text: str, changes=(), folder=Path()) -> Experiment:
    return experiment_of(text, "test.toml", folder, changes)


def experiment(attention=SOFTMAX, measure=TOKENS, flow=FLOW, rest="", **options) -> Experiment:
    return read(f"[attention]\n{attention}\n[measure]\n{measure}\n[flow]\n{flow}\n{rest}", **options)


def same(a, b) -> None:
    assert bool(eqx.tree_equal(a, b)), f"{a}\n{b}"


# Lines

LINES = '''
top = 2 # a comment with = and [brackets]
"quoted key" = 3
dotted.key.inside = 4

[table] # comment
x = 7
text = """
not = 1
[neither]
"""
after = 12
'single' = 13
[table.below]
list = [
  16,
  17, # with a comment ]
  [
    19,
  ],
]
inline = {a = 22, b = {c = 22}, "d.e" = [22]}
[[many]]
n = 24
[many.sub]
n = 26
[[many.again]]
n = 28
[[many.again]]
n = 30
[[many]]
n = 32
tables = [{x = 33}, {x = 33},
  {x = 34}]
string = "# no ] comment \\" = "
end = 36
'''


def leaves(node, path=()):
    if isinstance(node, dict):
        for key, part in node.items():
            yield from leaves(part, (*path, key))
    elif isinstance(node, list):
        for number, part in enumerate(node):
            yield from leaves(part, (*path, number))
    else:
        yield path, node


def test_each_key_is_found_on_its_line():
    """Each number of the text is its own line."""
    source = parse(LINES, "lines.toml")
    numbers = [(path, value) for path, value in leaves(source.data) if isinstance(value, int)]
    assert len(numbers) == 21
    for path, value in numbers:
        assert source.places[path] == f"line {value}", path
    assert source.places["table",] == "line 6"
    assert source.places["many", 1] == "line 31"
    assert source.where(("table", "nothing", "here")) == "lines.toml, line 6"
    assert source.where(("nowhere",)) == "lines.toml"


# Matrices


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[[1, 2.5], [3.0, 4.0]]", [[1.0, 2.5], [3.0, 4.0]]),
        ('"identity"', np.eye(2)),
        ('"zero"', np.zeros((2, 2))),
        ("3", 3 * np.eye(2)),
        ("-0.5", -0.5 * np.eye(2)),
        ("{identity = 2.0, scale = 0.5}", np.eye(2)),
        ("{diagonal = [1.0, -2.0]}", np.diag([1.0, -2.0])),
        ("{rotation = 0.9, scale = 2.0}", 2 * np.array([[np.cos(0.9), -np.sin(0.9)], [np.sin(0.9), np.cos(0.9)]])),
        ("{gram = [[1.0, 2.0]]}", [[1.0, 2.0], [2.0, 4.0]]),
        ('{of = "V", scale = -2.0}', [[-2.0, -4.0], [-6.0, -10.0]]),
        ('{gram = {of = "V"}, scale = 0.5}', [[5.0, 8.5], [8.5, 14.5]]),
        ('{file = "M.npy", scale = 2.0}', [[0.0, 2.0], [4.0, 6.0]]),
    ],
)
def test_matrices(text, expected, tmp_path):
    np.save(tmp_path / "M.npy", np.arange(4).reshape(2, 2))
    attention = f'kind = "softmax"\nQ = {text}\nK = {{of = "Q"}}\nV = [[1.0, 2.0], [3.0, 5.0]]'
    field = build(experiment(attention, folder=tmp_path)).field
    np.testing.assert_allclose(field.Q, expected, rtol=1e-15)
    same(field.Q, field.K)


def random_field(seed=0, law="normal", shape="", own="") -> mf.Softmax:
    drawn = f'{{random = "{law}"{shape}{own}}}'
    attention = f'kind = "softmax"\nQ = {drawn}\nK = {drawn}\nV = {{random = "normal"}}'
    return build(experiment(attention, changes=[f"seed={seed}"])).field


def test_random_matrices_differ_by_place_and_seed_and_are_the_same_again():
    one, again, other = random_field(0), random_field(0), random_field(1)
    same(one, again)
    matrices = [one.Q, one.K, one.V, other.Q, other.K, other.V]
    assert len({np.asarray(M).tobytes() for M in matrices}) == 6
    own, own_again = random_field(0, own=", seed = 7"), random_field(1, own=", seed = 7")
    same(own.Q, own_again.Q)
    same(own.Q, own.K)
    same(own.Q, jr.normal(jr.key(7), (2, 2)))


def test_laws_of_random_matrices():
    Q = np.asarray(random_field(law="orthogonal", shape=", shape = [1, 2]").Q)
    assert Q.shape == (1, 2)
    np.testing.assert_allclose(Q @ Q.T, [[1.0]], atol=1e-14)
    uniform = np.asarray(random_field(law="uniform", shape=", shape = [300, 2]", own=", scale = 2.0").Q)
    assert uniform.min() < -1.9 and 1.9 < uniform.max() <= 2
    np.testing.assert_allclose(uniform.mean(), 0, atol=0.2)


# Kinds

A, B = "[[1.0, 2.0], [0.0, 1.0]]", "[[0.5, 0.0], [0.0, 2.0]]"
MA, MB = jnp.array([[1.0, 2.0], [0.0, 1.0]]), jnp.array([[0.5, 0.0], [0.0, 2.0]])
QKV = f'Q = {A}\nK = {B}\nV = "identity"'
ONE = f'{{kind = "l2", Q = {A}, K = {B}, V = "identity", tau = 2.0}}'
L2 = mf.L2(MA, MB, I, tau=2.0)
FIELDS = {
    f'kind = "softmax"\n{QKV}\ntau = 0.5': mf.Softmax(MA, MB, I, tau=0.5),
    f'kind = "softmax"\n{QKV}\nquery_bias = [1.0, 2.0]\nkey_bias = 3.0\nvalue_bias = [0.0, 1.0]': mf.Softmax(
        MA, MB, I, query_bias=[1.0, 2.0], key_bias=[3.0, 3.0], value_bias=[0.0, 1.0]
    ),
    f'kind = "l2"\n{QKV}\ntau = 2': L2,
    f'kind = "sinkhorn"\n{QKV}\neps = 0.5\nkernel = "distance"\ntol = 1e-6\nmax_iter = 50': mf.Sinkhorn(
        MA, MB, I, eps=0.5, kernel="distance", tol=1e-6, max_iter=50
    ),
    f'kind = "sigmoid"\n{QKV}\nbias = -1\nper_token = true': mf.Sigmoid(MA, MB, I, bias=-1.0, per_token=True),
    f'kind = "linear"\n{QKV}\ntau = 3.0': mf.Linear(MA, MB, I, tau=3.0),
    f'kind = "unnormalised"\n{QKV}': mf.Unnormalised(MA, MB, I),
    f'kind = "multi-head"\nheads = [{ONE}, {ONE}]\nW = [2.0, {A}]': mf.MultiHead([L2, L2], W=[2 * I, MA]),
    f'kind = "causal"\nof = {ONE}\nprefix = true': mf.Causal(L2, prefix=True),
    f'kind = "sum"\nterms = [{ONE}, {{kind = "affine", M = {A}, b = [1.0, 2.0]}}]': L2 + mf.Affine(MA, [1.0, 2.0]),
    f'kind = "scaled"\nfactor = -2\nof = {ONE}': -2.0 * L2,
    f'kind = "pre-norm"\nof = {ONE}': mf.PreNorm(L2),
    f'kind = "post-norm"\nof = {ONE}\nnorm = {{kind = "rms", eps = 0.1, scale = [1.0, 2.0]}}': mf.PostNorm(
        L2, mf.RMSNorm(scale=[1.0, 2.0], eps=0.1)
    ),
    f'kind = "piecewise"\nfields = [{ONE}, {{kind = "causal", of = {ONE}}}]\nbreaks = [1]': mf.Piecewise(
        [L2, mf.Causal(L2)], breaks=[1.0]
    ),
}


@pytest.mark.parametrize("text", FIELDS, ids=lambda text: text.split('"')[1])
def test_kinds(text):
    problem = build(experiment(text, f"{TOKENS}\npositions = true"))
    same(problem.field, FIELDS[text])


def test_hardmax_and_perceptron():
    problem = build(experiment(f'kind = "hardmax"\n{QKV}', flow='t1 = 1.0\nsolver = "euler"\nstep = 0.1'))
    same(problem.field, mf.Hardmax(MA, MB, I))
    text = f'kind = "perceptron"\nW1 = {A}\nW2 = {{of = "W1", scale = 2.0}}\nb1 = [1.0, 2.0]\nactivation = "tanh"'
    same(build(experiment(text)).field, mf.Perceptron(MA, 2 * MA, b1=[1.0, 2.0], activation=jnp.tanh))
    drawn = 'kind = "perceptron"\nW1 = {random = "normal"}\nW2 = {random = "normal"}\nhidden = 5'
    assert build(experiment(drawn)).field.W1.shape == (5, 2)


# Measures


def measure(text: str, **options):
    return build(experiment(measure=text, **options)).measure


def test_measures():
    key = jr.key(3)
    changes = ["seed=3"]
    cube = measure('kind = "cube"\nn = 5\nlow = [-1.0, 0.0]\nhigh = 2.0', changes=changes)
    same(cube, mf.uniform_cube(2, [-1.0, 0.0], 2.0).sample(5, key=key))
    sphere = measure('kind = "sphere"\nn = 5\nradius = 2\npositions = true', changes=changes)
    same(sphere, mf.uniform_sphere(2, 2.0).sample(5, key=key).with_positions())
    normal = measure('kind = "normal"\nn = 5\nmean = [1.0, 0.0]\ncov = {diagonal = [1.0, 4.0]}\nseed = 4')
    same(normal, mf.Gaussian([1.0, 0.0], jnp.diag(jnp.array([1.0, 4.0]))).sample(5, key=jr.key(4)))
    points = measure(f"{TOKENS}\nweights = [0.5, 0.25, 0.25]")
    same(points, mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], weights=[0.5, 0.25, 0.25]))


def test_mixtures_take_one_covariance_or_several():
    means = [[0.0, 0.0], [3.0, 0.0]]
    several = measure(f'kind = "mixture"\nn = 6\nmeans = {means}\ncovs = [0.5, {A.replace("2.0", "0.0")}]')
    law = mf.gaussian_mixture(means, jnp.stack([0.5 * I, I]))
    same(several, law.sample(6, key=jr.key(0)))
    one = measure(f'kind = "mixture"\nn = 6\nmeans = {means}\ncovs = [[0.5, 0.0], [0.0, 0.5]]\nweights = [0.9, 0.1]')
    same(one, mf.gaussian_mixture(means, 0.5 * I, [0.9, 0.1]).sample(6, key=jr.key(0)))


def test_gaussians_and_densities():
    same(measure('kind = "gaussian"\nmean = [1.0, 2.0]\ncov = 3.0'), mf.Gaussian([1.0, 2.0], 3 * I))
    same(measure('kind = "gaussian"\nfactor = [[1.0], [2.0]]'), mf.Gaussian([0.0, 0.0], factor=[[1.0], [2.0]]))
    assert build(experiment(measure='kind = "gaussian"', flow="t1 = inf")).options["t1"] == math.inf
    law = '{kind = "gaussian", mean = [0.5], cov = 2.0}'
    density = measure(f'kind = "density"\ncells = 40\nlow = -15.0\nhigh = 15.0\nof = {law}')
    same(density, mf.to_density(mf.Gaussian([0.5], [[2.0]]), 40, low=-15.0, high=15.0))


def test_options_of_tokens_come_in_order():
    text = f'{TOKENS}\ncentre = true\nproject = {{sphere = 3.0}}\npositions = true\ndtype = "float32"'
    problem = build(experiment(measure=text))
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    tokens = tokens.push(lambda x: x - tokens.mean[None]).push(mf.Sphere(3.0).retract)
    np.testing.assert_allclose(problem.measure.points, tokens.points, rtol=1e-6)
    assert problem.measure.points.dtype == problem.measure.positions.dtype == problem.field.Q.dtype == jnp.float32


def test_files_of_points(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "w.npy", np.array([0.2, 0.3, 0.5]))
    text = 'kind = "points"\npoints = {file = "x.npy"}\nweights = {file = "w.npy"}'
    same(measure(text, folder=tmp_path), mf.PointCloud(np.arange(6.0).reshape(3, 2), np.array([0.2, 0.3, 0.5])))


# What is done with them


def test_options_of_a_flow():
    flow = """
t0 = 1
t1 = 5
solver = "dopri8"
rtol = 1e-5
atol = 1e-7
accuracy = 1e-6
stop = [{stationary = 1e-3}, {radius_above = 10.0}, {wall_clock = 60.0}]
max_steps = 77"""
    rest = "[save]\ntimes = {count = 7, log_from = 0.5}\nsample = 2"
    options = build(experiment(flow=flow, rest=rest)).options
    stop = options.pop("stop")
    assert [type(rule) for rule in stop] == [mf.Stationary, mf.RadiusAbove, mf.WallClock]
    assert (float(stop[0].speed), float(stop[1].radius), stop[2].seconds) == (1e-3, 10.0, 60.0)
    same(options.pop("save"), mf.log_times(7, 0.5))
    expected = {"t0": 1.0, "t1": 5.0, "solver": "dopri8", "rtol": 1e-5, "atol": 1e-7, "accuracy": 1e-6, "sample": 2}
    assert options == {**expected, "max_steps": 77}


def test_frames_and_spheres():
    options = build(experiment(flow='t1 = 1.0\nframe = "rescaled"')).options
    assert options == {"t0": 0.0, "t1": 1.0, "frame": mf.Rescaled()}
    on_sphere = f"{TOKENS}\nproject = {{sphere = 2.0}}"
    options = build(experiment(measure=on_sphere, flow="t1 = 1.0\nspace = {sphere = 2.0}")).options
    same(options["space"], mf.Sphere(2.0))


def test_layers_and_their_own_draws():
    drawn = 'kind = "softmax"\nQ = {random = "normal"}\nK = "identity"\nV = "identity"'
    text = f'[attention]\n{drawn}\n[measure]\n{TOKENS}\n[layers]\ndepth = 3\nstep = 0.5\n[save]\ntimes = "final"'
    problem = build(read(text))
    assert problem.verb == "layers" and problem.options == {"depth": 3, "step": 0.5, "save": "final"}
    redrawn = build(read(text, ["redraw=true"]))
    assert redrawn.options == {"step": 0.5, "save": "final"}
    assert len({np.asarray(field.Q).tobytes() for field in redrawn.field}) == 3
    assert len({np.asarray(field.K).tobytes() for field in redrawn.field}) == 1


def test_a_problem_runs():
    text = f"[attention]\n{SOFTMAX}\n[measure]\n{TOKENS}\n[layers]\ndepth = 3\nstep = 0.5"
    run = build(read(text)).run(progress=False)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    np.testing.assert_array_equal(run.points, mf.layers(mf.Softmax(I, I, I), tokens, 3, step=0.5).points)


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
    same(problem.measure, mf.Gaussian([0.0, 0.0], I).sample(3, key=jr.key(7)))
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

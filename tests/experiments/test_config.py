"""Experiment files: lines, matrices, kinds, measures, options."""

import itertools
import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from experiments._texts import SOFTMAX, TOKENS, I, experiment, read, same
from meanformer.experiments.build import build
from meanformer.experiments.config import read_experiment
from meanformer.experiments.schema.matrices import key_for
from meanformer.experiments.toml import parse

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


def test_a_matrix_with_the_seed_of_the_tokens_is_not_the_tokens():
    attention = 'kind = "softmax"\nQ = {random = "normal", seed = 3}\nK = "identity"\nV = "identity"'
    problem = build(experiment(attention, 'kind = "normal"\nn = 2', changes=["seed=3"]))
    together = np.corrcoef(np.asarray(problem.field.Q).ravel(), np.asarray(problem.measure.points).ravel())[0, 1]
    assert problem.field.Q.shape == problem.measure.points.shape == (2, 2)
    assert abs(together) < 0.99
    same(problem.measure, build(experiment(measure='kind = "normal"\nn = 2\nseed = 3')).measure)


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
    key = jax.random.key(3)
    changes = ["seed=3"]
    cube = measure('kind = "cube"\nn = 5\nlow = [-1.0, 0.0]\nhigh = 2.0', changes=changes)
    same(cube, mf.uniform_cube(2, [-1.0, 0.0], 2.0).sample(5, key=key))
    sphere = measure('kind = "sphere"\nn = 5\nradius = 2\npositions = true', changes=changes)
    same(sphere, mf.uniform_sphere(2, 2.0).sample(5, key=key).with_positions())
    normal = measure('kind = "normal"\nn = 5\nmean = [1.0, 0.0]\ncov = {diagonal = [1.0, 4.0]}\nseed = 4')
    same(normal, mf.Gaussian([1.0, 0.0], jnp.diag(jnp.array([1.0, 4.0]))).sample(5, key=jax.random.key(4)))
    points = measure(f"{TOKENS}\nweights = [0.5, 0.25, 0.25]")
    same(points, mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], weights=[0.5, 0.25, 0.25]))


def test_seeds_are_the_keys_that_the_page_says():
    """Tokens have the key of the seed itself; what else is drawn depends on none of them."""
    drawn = 'kind = "softmax"\nQ = {random = "normal"}\nK = {random = "normal", seed = 3}\nV = "identity"'
    problem = build(experiment(drawn, measure='kind = "normal"\nn = 2', changes=["seed=3"]))
    same(problem.measure, mf.Gaussian([0.0, 0.0], I).sample(2, key=jax.random.key(3)))
    found = [problem.field.Q, problem.field.K, problem.measure.points]
    for matrix, use in zip(found, (b"attention.Q", b"its own seed"), strict=False):
        key = jax.random.fold_in(jax.random.key(3), zlib.crc32(use))
        np.testing.assert_allclose(matrix, jax.random.normal(key, (2, 2)), rtol=1e-9, atol=1e-9)
    assert all(np.abs(one - other).max() > 0.1 for one, other in itertools.combinations(map(np.asarray, found), 2))


def test_the_examples_of_the_readme_have_the_same_tokens():
    clusters = build(read_experiment("clusters", ["d=2", "t1=8.0"]))
    same(clusters.measure, mf.uniform_cube(d=2, low=-5, high=5).sample(40, key=jax.random.key(0)))


def test_weights_of_tokens_that_are_drawn():
    """The tokens themselves do not depend on their weights."""
    equal, zipf, random = (
        measure(f'kind = "normal"\nn = 5\nweighting = "{name}"', changes=["seed=3"])
        for name in ("equal", "zipf", "random")
    )
    same(equal, measure('kind = "normal"\nn = 5', changes=["seed=3"]))
    np.testing.assert_allclose(zipf.weights, 60 / 137 / np.arange(1, 6), rtol=1e-15)  # 1 + 1/2 + ... + 1/5 = 137/60
    drawn = jax.random.exponential(key_for("weights", 3), 5)
    np.testing.assert_allclose(random.weights, drawn / drawn.sum(), rtol=1e-15)
    for cloud in (zipf, random):
        assert (cloud.points == equal.points).all()
    shares = measure('kind = "cube"\nn = 20000\nweighting = "random"').weights
    # Uniform on the simplex: the squares of n weights add up to 2 / (n + 1) on average.
    np.testing.assert_allclose(float((shares**2).sum()), 2 / 20001, rtol=0.05)


def test_mixtures_take_one_covariance_or_several():
    means = [[0.0, 0.0], [3.0, 0.0]]
    several = measure(f'kind = "mixture"\nn = 6\nmeans = {means}\ncovs = [0.5, {A.replace("2.0", "0.0")}]')
    law = mf.gaussian_mixture(means, jnp.stack([0.5 * I, I]))
    same(several, law.sample(6, key=jax.random.key(0)))
    one = measure(f'kind = "mixture"\nn = 6\nmeans = {means}\ncovs = [[0.5, 0.0], [0.0, 0.5]]\nweights = [0.9, 0.1]')
    same(one, mf.gaussian_mixture(means, 0.5 * I, [0.9, 0.1]).sample(6, key=jax.random.key(0)))


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

"""What calls are made of: expressions of Python, so that a call that failed can be read and made again.

`GOOD` has, for each parameter of a public callable, values that it is meant for; `STRANGE` are values for any of them.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf

nan, inf = float("nan"), float("inf")
I, I3 = np.eye(2), np.eye(3)
X = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])
KEY = jax.random.key(0)
TOKENS = mf.PointCloud(X)
WEIGHTED = mf.PointCloud(X[::-1], [0.25, 0.75, 0.0])
PLACED = TOKENS.with_positions()
SINGLE = mf.PointCloud(X.astype("float32"))
LARGE, SMALL = mf.PointCloud(1e200 * X), mf.PointCloud(1e-200 * X)
ORIGIN = mf.PointCloud(0 * X)
BATCH = mf.stack_clouds([TOKENS, TOKENS])
LINE = mf.PointCloud(X[:, :1])
GAUSS = mf.Gaussian([0.5, 0.0], cov=[[1.0, 0.5], [0.5, 2.0]])
FLAT = mf.Gaussian([0.0, 0.0], factor=[[1.0], [2.0]])
WIDE, THIN = mf.Gaussian([0.0, 0.0], factor=1e200 * I), mf.Gaussian([0.0, 0.0], factor=1e-200 * I)
GAUSSIANS = mf.Gaussian(np.zeros((2, 2)), factor=np.stack([I, 2 * I]))
DENSITY = mf.Density([0.0, 0.5, 0.5, 0.0], low=-2.0, high=2.0)
PLANE = mf.Density(np.full((3, 4), 1 / 12), low=[0.0, 0.0], high=[3.0, 4.0])
SHARES = mf.to_density(mf.Gaussian([0.5], cov=1.0), cells=24)
PLACED_SHARES = mf.to_density(mf.Gaussian([0.5], cov=1.0), cells=24, positions=[0.5, 1.0])
BALL, CUBE = mf.uniform_ball(2), mf.uniform_cube(2)
SOFTMAX = mf.Softmax(0.5 * I, I, -I)
LOUD, QUIET = mf.Softmax(1e200 * I, I, I), mf.Softmax(1e-200 * I, I, I)
VAST = mf.Softmax(I, I, 1e200 * I)
STILL, FAINT = mf.Softmax(1e200 * I, 1e200 * I, 0 * I), mf.Softmax(1e200 * I, 1e200 * I, 1e-300 * I)
L2, SINKHORN, SIGMOID = mf.L2(I, I, I), mf.Sinkhorn(0.1 * I, I, I), mf.Sigmoid(I, I, I)
LINEAR, UNNORMALISED, HARDMAX = mf.Linear(I, I, I), mf.Unnormalised(I, I, I), mf.Hardmax(I, I, I)
HEADS = mf.MultiHead([SOFTMAX, L2])
CAUSAL, AFFINE = mf.Causal(SOFTMAX), mf.Affine(-I, [1.0, 0.0])
PERCEPTRON, NORMED = mf.Perceptron(I, I), mf.PreNorm(SOFTMAX)
SCHEDULED = mf.Scheduled(lambda t: mf.Softmax(I, I, (1 - t) * I))
PIECES = mf.Piecewise([SOFTMAX, L2], [0.5])
CUBIC = mf.Softmax(I3, I3, I3)
RUN = mf.flow(SOFTMAX, TOKENS, 1.0, save=5)
GAUSS_RUN = mf.flow(SOFTMAX, GAUSS, 1.0, save=5)
NETWORK = mf.layers(SOFTMAX, TOKENS, 2)


class Silent:
    """An object that says it is an array, and is not."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")


NUMBERS = ["1.0", "0.5", "2", "np.float32(0.25)", "np.asarray(1.5)", "jnp.asarray(0.75)"]
SIZES = ["1.0", "0.1", "3", "1e-9", "1e9", "np.float32(0.5)"]
TIMES = ["1.0", "0.5", "np.float64(0.25)", "jnp.asarray(0.5)", "1"]
LONG = [*TIMES, "0.0", "2000.0"]
MATRICES = [
    "I",
    "-I",
    "0.5 * I",
    "np.array([[1.0, 2.0], [0.0, -1.0]])",
    "I.astype('float32')",
    "I.astype('>f8')",
    "jnp.eye(2)",
]
VECTORS = ["[1.0, -2.0]", "np.zeros(2)", "np.ones(2, 'float32')", "(0, 1)"]
COUNTS = ["2", "5", "np.int64(3)"]
FLAGS = ["True", "False", "np.True_"]
KEYS = ["KEY", "jax.random.key(7)", "jax.random.PRNGKey(1)"]
CLOUDS = ["TOKENS", "WEIGHTED", "PLACED", "SINGLE", "LARGE", "SMALL", "ORIGIN"]
GAUSSES = ["GAUSS", "FLAT", "WIDE", "THIN", "mf.Gaussian([0.0, 0.0], cov=I)"]
MEASURES = [*CLOUDS, *GAUSSES, "PLANE", "DENSITY"]
LAWS = ["BALL", "CUBE", "GAUSS", "mf.uniform_sphere(2)", "mf.gaussian_mixture(X, 0.5)", "mf.empirical(X)"]
FIELDS = [
    *("SOFTMAX", "L2", "SINKHORN", "SIGMOID", "LINEAR", "UNNORMALISED", "HARDMAX", "HEADS", "CAUSAL", "AFFINE"),
    *(
        "PERCEPTRON",
        "NORMED",
        "SCHEDULED",
        "PIECES",
        "SOFTMAX + AFFINE",
        "-0.5 * L2",
        "LOUD",
        "QUIET",
        "VAST",
        "STILL",
        "FAINT",
    ),
]
SMALL_SHARES = ["0.01", "0.1", "1e-6", "np.float64(0.5)"]

# Of each parameter; where its meaning depends on the callable, under both names.
GOOD = {
    "points": ["X", "X.tolist()", "X.astype('float32')", "1e200 * X", "1e-200 * X", "X.astype(int)", "np.ma.array(X)"],
    "weights": ["None", "[0.2, 0.3, 0.5]", "[0.0, 1.0, 0.0]", "np.full(3, 1 / 3, 'float32')"],
    "positions": ["None", "[0.0, 0.5, 1.0]", "np.linspace(0, 1, 3)"],
    "to_density.positions": ["None", "[0.0, 1.0]"],
    "clouds": ["[TOKENS, WEIGHTED]", "(SINGLE, LARGE)", "[PLACED]"],
    "mean": VECTORS,
    "cov": ["I", "None", "1e300 * I", "1e-300 * I", "np.ones((2, 2))", "I.astype('float32')"],
    "factor": ["None", "I", "np.ones((2, 1))", "1e200 * I"],
    "values": ["[0.5, 0.5]", "np.full(4, 0.25)", "[0, 1]"],
    "Density.low": ["0.0", "0"],
    "Density.high": ["2.0", "4.0"],
    "low": ["None", "-8.0", "[-9.0, -9.0]"],
    "high": ["None", "8.0", "[9.0, 9.0]"],
    "uniform_cube.low": ["-1.0", "[0.0, -2.0]", "0"],
    "uniform_cube.high": ["2.0", "[1.0, 3.0]", "5"],
    "mu": MEASURES,
    "nu": MEASURES,
    "to_cloud.mu": [*MEASURES, *LAWS],
    "to_gaussian.mu": [*MEASURES, *LAWS],
    "to_density.mu": ["TOKENS", "LINE", "GAUSS", "BALL", "CUBE", "WIDE", "lambda x: jnp.ones(len(x))"],
    "measure": MEASURES,
    "n": ["None", "4", "np.int32(2)"],
    "mean_field_rate.n": ["[2, 3]", "(3, 5)"],
    "key": KEYS,
    "cells": ["None", "8", "(6, 7)", "np.int64(5)"],
    "d": ["2", "1", "np.int64(3)"],
    "radius": SIZES,
    "centre": ["None", "[0.0, 1.0]", "1e200 * np.ones(2)"],
    "means": ["X", "X[:1]", "1e-200 * X"],
    "covs": ["0.5", "I", "np.stack([I, I, I])", "0"],
    "cloud": ["TOKENS", "PLACED"],
    "labels": ["('a', 'b', 'c')", "['x', 'y', 'z']"],
    "grid": ["None", "(1, 3)"],
    "patch": ["None", "(1, 2)"],
    "image": ["np.ones((6, 8))", "np.zeros((4, 4, 3), 'uint8')", "np.full((3, 3), 255)"],
    "size": ["1", "2", "3"],
    "tokens": ["X", "TOKENS"],
    "Q": MATRICES,
    "K": MATRICES,
    "V": [*MATRICES, "0 * I"],
    "l2_blowup_time.Q": ["[[0.0, 1.0]]", "np.array([[0.0, 2.0]])"],
    "l2_blowup_time.K": ["[[1.0, 0.0]]", "np.array([[-1.0, 0.0]])"],
    "l2_blowup_time.V": ["np.diag([0.0, 1.0])"],
    "A": MATRICES,
    "B": MATRICES,
    "M": MATRICES,
    "b": ["None", *VECTORS],
    "W1": MATRICES,
    "W2": MATRICES,
    "b1": ["None", *VECTORS],
    "b2": ["None", *VECTORS],
    "tau": SIZES,
    "eps": SIZES,
    "bias": ["0.0", "-1.0", "2"],
    "LayerNorm.bias": ["None", *VECTORS],
    "RMSNorm.bias": ["None", *VECTORS],
    "scale": ["None", *VECTORS],
    "clusters_along.scale": ["'so far'", "'now'", "'largest'"],
    "query_bias": ["None", *VECTORS],
    "key_bias": ["None", *VECTORS],
    "value_bias": ["None", *VECTORS],
    "kernel": ["'dot'", "'distance'"],
    "tol": ["1e-9", "1e-3"],
    "max_iter": ["500", "1000"],
    "allow_large_causal": FLAGS,
    "per_token": FLAGS,
    "prefix": FLAGS,
    "heads": ["[SOFTMAX, L2]", "(SOFTMAX,)"],
    "W": ["None", "[I, I]"],
    "field": FIELDS,
    "fields": ["[SOFTMAX, L2]", "(L2, AFFINE)"],
    "fates.fields": ["mf.Softmax(I, I, np.diag([1.0, -1.0]))", "[mf.L2(I, I, -I)]", "SINKHORN"],
    "gaussians": ["GAUSSIANS", "[GAUSS]", "GAUSS"],
    "breaks": ["[0.5]", "(0.25,)"],
    "norm": ["None", "mf.LayerNorm()", "mf.RMSNorm()"],
    "activation": ["jnp.tanh", "jax.nn.relu"],
    "function": ["lambda t: SOFTMAX", "lambda t: mf.Affine((1 - t) * jnp.eye(2))"],
    "accuracy": ["None", "1e-3"],
    "t": ["0.0", *TIMES],
    "t0": ["0.0", "0.25", "-1"],
    "t1": TIMES,
    **dict.fromkeys(("support_bound.t1", "stability_bound.t1", "euler_bound.t1", "trace_bound.t1"), LONG),
    "count": COUNTS,
    "first": ["0.01", "0.1"],
    "speed": SIZES,
    "seconds": SIZES,
    "tolerance": SMALL_SHARES,
    "of": [*MEASURES, *MATRICES[:1], "np.array([[2.0, 1.0], [1.0, 3.0]])", "1e300 * I"],
    "gaussian": GAUSSES,
    "g1": [*GAUSSES, "GAUSSIANS"],
    "g2": [*GAUSSES, "GAUSSIANS"],
    "s": ["0.5", "[0.0, 0.25, 1.0]", "0"],
    "Sigma": ["I", "GAUSS", "1e300 * I"],
    "v": NUMBERS,
    "kind": ["'softmax'", "'l2'", "'sinkhorn'"],
    "sign": ["1", "-1"],
    "q": NUMBERS,
    "k": NUMBERS,
    "one_dimensional.v": ["-0.5", "[0.1, -1.0]"],
    "one_dimensional.mean": NUMBERS,
    "variance": [*NUMBERS, "0.0"],
    "trace": [*NUMBERS, "0.0", "1e-300"],
    "depth": ["2", "3"],
    "p": ["2", "1", "3.5"],
    "directions": ["3", "10"],
    "threshold": SMALL_SHARES,
    "beta": SIZES,
    "slack": SMALL_SHARES,
    "frequencies": ["None", "X"],
    "weak_residual.field": ["None", "L2"],
    "seed": ["0", "3"],
    "every": ["1", "2"],
    "run": ["RUN", "GAUSS_RUN", "NETWORK"],
    "run_tokens": ["RUN"],
    "run_gaussian": ["GAUSS_RUN"],
    "law": LAWS,
    "repeats": ["2", "[2, 3]"],
    "statistic": ["'mean'", "'covariance'"],
    "reference": ["None", "6"],
    "rtol": ["None", "1e-4"],
    "atol": ["None", "1e-6"],
    "fates.rtol": ["1e-7", "1e-5"],
    "mean_field_rate.rtol": ["1e-4"],
    "solver": ["None", "'tsit5'", "'euler'"],
    "step": ["None", "0.25"],
    "save": ["None", "3", "[0.1, 0.2]", "mf.linear_times(3)", "mf.log_times(3, 0.01)"],
    "layers.save": ["'all'", "'final'"],
    "sample": ["None", "2"],
    "observers": ["None", "{'mass': lambda mu, t: mu.mean}"],
    "space": ["None", "mf.Euclidean()", "mf.Sphere()"],
    "frame": ["None", "mf.Rescaled()"],
    "stop": ["None", "mf.RadiusAbove(10.0)", "lambda mu, t: t > 0.4"],
    "max_steps": ["200"],
    "progress": ["None", "False"],
    "adjoint": ["None"],
    "journal": ["None"],
    **dict.fromkeys(("small", "boolean", "defect", "straggler", "growth", "gap", "width", "exponent"), SMALL_SHARES),
    "collapse_limit.mean": SMALL_SHARES,
    "horizon": ["8.0", "1.0"],
    "x": ["X", "X[:1]", "TOKENS.points", "X.astype('float32')", "1e200 * X", "np.asfortranarray(X)"],
    "field.matrix.x": ["None", "X", "TOKENS.points"],
    "field.__call__.mu": [*CLOUDS, "PLANE"],
    "field.matrix.mu": [*CLOUDS, "PLANE"],
    "field.__call__.s": ["None", "[0.0, 0.5, 1.0]"],
    "field.matrix.s": ["None", "[0.0, 0.5, 1.0]"],
    "gaussian.sample.n": ["4", "np.int32(2)", "1"],
    "law.sample.n": ["4", "np.int64(3)"],
    "cloud.resample.n": ["4", "1"],
    "cloud.push.function": ["lambda x: 2 * x", "jnp.tanh", "lambda x: x[:, :1]"],
    "axis": ["0"],
    "density.extended.low": ["[-9.0, -9.0]", "-9.0"],
    "density.extended.high": ["[9.0, 9.0]", "9.0"],
    "exact_run.at.t": ["0.0", "0.5", "1"],
    "run.at.t": ["0.0", "0.5", "1", "np.float64(0.25)"],
}

STRANGE = [
    *("None", "''", "'text'", "b'bytes'", "True", "nan", "inf", "-inf", "0", "-1", "1", "2", "3.5", "-0.0"),
    *("1e308", "-1e308", "1e-308", "5e-324", "1e200", "1e-200", "10**400", "2**63", "10**12", "-(10**18)", "1j", "..."),
    *(
        "[]",
        "[[]]",
        "()",
        "{}",
        "{1.0}",
        "{'a': 1.0}",
        "object()",
        "Silent()",
        "slice(None)",
        "range(3)",
        "iter([1.0])",
    ),
    *("len", "lambda: 1", "lambda *a: None", "float", "mf.Softmax", "Path('nothing.npy')", "np", "NotImplemented"),
    *("np.ma.masked", "np.ma.array(I, mask=I > 0)", "np.zeros((0, 2))", "np.zeros(())", "np.float32(1)", "np.int64(3)"),
    *(
        "I.astype('>f8')",
        "I.astype(np.longdouble)",
        "np.zeros(2, [('a', float)])",
        "np.array(['a'])",
        "I + 1j",
        "I > 0",
    ),
    *(
        "np.array([[1, None]], object)",
        "np.array(['2026'], 'M8[Y]')",
        "[[1.0], [2.0, 3.0]]",
        "[1.0, 'a']",
        "[nan, 0.0]",
    ),
    *("I", "I3", "np.ones(2)", "np.ones(3)", "np.ones((2, 3))", "np.ones((3, 2))", "np.ones((2, 3, 2))", "[1.0, 2.0]"),
    *("np.full((3, 2), nan)", "np.full((3, 2), 1e200)", "1e308 * I", "1e-308 * I", "1e200 * X", "1e-200 * X", "0 * I"),
    *("I.astype('float32')", "np.eye(2, dtype=int)", "I.astype('float16')", "jnp.ones(2, jnp.bfloat16)", "jnp.eye(2)"),
    *("KEY", "jax.random.split(KEY, 2)", "TOKENS", "PLACED", "SINGLE", "LARGE", "SMALL", "BATCH", "LINE", "GAUSS"),
    *("FLAT", "WIDE", "THIN", "GAUSSIANS", "DENSITY", "PLANE", "BALL", "SOFTMAX", "LOUD", "CUBIC", "CAUSAL", "HARDMAX"),
    *("RUN", "GAUSS_RUN", "NETWORK", "[SOFTMAX]", "[SOFTMAX, None]", "[TOKENS]", "mf.Sphere()", "mf.LayerNorm()"),
]

SPACE = {**globals(), "Path": Path, "jnp": jnp}


def value(text):
    """The value of an expression, made anew."""
    return eval(text, SPACE)

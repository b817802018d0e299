"""Bad calls: each is refused before any computing, with what was asked, what was got, what was expected, and a remedy.

`pytest -n 0 -s tests/test_bad_calls.py -k table` prints the calls with their messages.
"""

import ast
import time
from pathlib import Path

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer._checks import InputError
from oracles.refusals import as_users

KEY = jax.random.key(0)
I, I3 = jnp.eye(2), jnp.eye(3)
I32 = I.astype("float32")
NAN, INF = float("nan"), float("inf")
POINTS = jnp.asarray([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])
TOKENS = mf.PointCloud(POINTS)
PLACED = TOKENS.with_positions()
BATCH = mf.stack_clouds([TOKENS, TOKENS])
MASKED = np.ma.masked_greater(np.asarray(POINTS), 0.7)
GAUSS = mf.Gaussian([0.0, 0.0], cov=jnp.eye(2))
TOKENS32 = mf.PointCloud(POINTS.astype("float32"))
SOFTMAX, HARDMAX = mf.Softmax(I, I, I), mf.Hardmax(I, I, I)
WIDE = mf.Softmax(I, I, jnp.ones((3, 2)))  # values in R^3
CUBIC = mf.Softmax(I3, I3, I3)  # for tokens in R^3
LONG, LONGER = (mf.PointCloud(np.zeros((n, 2))).with_positions() for n in (513, 514))
HUGE = mf.PointCloud(np.zeros((1_000_000, 1)))
NETWORK = (jnp.eye(4), jnp.eye(4), jnp.eye(4), jnp.eye(4))


@pytest.fixture(scope="module")
def finished():
    """A short run, and a short network."""
    return mf.flow(SOFTMAX, TOKENS, 1.0, save=3), mf.layers(SOFTMAX, TOKENS, depth=2)


# The call, and a part of what, got, expected and remedy in its message.
CALLS = [
    # Tokens
    (lambda: mf.PointCloud([1.0, 2.0]), "points must be a table", "shape (2,)", "(n, d)", "points[:, None]"),
    (
        lambda: mf.PointCloud(np.zeros((0, 2))),
        "points must be a table",
        "shape (0, 2)",
        "n, d >= 1",
        "at least one token",
    ),
    (
        lambda: mf.PointCloud([[1.0], [2.0, 3.0]]),
        "points cannot be read",
        "different lengths",
        "real numbers",
        "points",
    ),
    (lambda: mf.PointCloud([["a", "b"]]), "points cannot be read", "a list of text", "real numbers", "pass points"),
    (
        lambda: mf.PointCloud(MASKED),
        "points must not be masked",
        "masked entries",
        "real numbers",
        "points.filled(0.0)",
    ),
    (
        lambda: mf.PointCloud(list(MASKED)),
        "points must not be masked",
        "a list with masked",
        "real numbers",
        "filled(0.0)",
    ),
    (lambda: mf.PointCloud("tokens.npy"), "points must be numeric", "'tokens.npy'", "real numbers", "pass points"),
    (lambda: mf.PointCloud([[1.0 + 2.0j]]), "points must be real", "complex", "real numbers", "real part of points"),
    (lambda: mf.PointCloud(POINTS > 0), "points must be numbers", "dtype bool", "real numbers", ".astype(float)"),
    (lambda: mf.PointCloud([[0.0], [NAN]]), "points must be finite", "nan at index (1, 0)", "no NaN", "drop"),
    (lambda: mf.PointCloud(TOKENS), "points cannot be read", "a PointCloud", "an array", "pass points as"),
    (lambda: mf.PointCloud(POINTS, [0.5, 0.5]), "weights must match", "(2,) for 3 points", "(3,)", "one weight per"),
    (lambda: mf.PointCloud(POINTS, [0.6, 0.6, -0.2]), "weights must not be negative", "-0.2", ">= 0", "clip"),
    (lambda: mf.PointCloud(POINTS, [0.5, 0.5, 0.5]), "weights must sum to one", "a sum of 1.5", "1", "weights.sum()"),
    (
        lambda: mf.PointCloud(POINTS, [1.0, INF, 0.0]),
        "weights must be finite",
        "inf at index (1,)",
        "no NaN",
        "weights",
    ),
    (lambda: mf.PointCloud(POINTS, positions=[0, 1]), "positions must match", "(2,)", "(3,)", "with_positions()"),
    (lambda: mf.PointCloud(POINTS, positions=[1, 2, 3]), "positions must lie", "from 1 to 3", "0 <= s <= 1", "divide"),
    (lambda: TOKENS.push(lambda x: x[:2]), "push must keep", "shape (2, 2)", "(3, d)", "row by row"),
    (lambda: TOKENS.push(I), "push takes a function", "shape (2, 2)", "(n, d)", "lambda x"),
    (lambda: TOKENS[0], "a single cloud cannot be indexed", "(3, 2)", "a batch", "mu.points[i]"),
    (lambda: mf.stack_clouds([]), "stack_clouds takes a list", "empty", "PointCloud", "mf.stack_clouds([short, long])"),
    (lambda: mf.stack_clouds([TOKENS, 3]), "stack_clouds takes", "entry 1", "(n, d)", "mf.stack_clouds"),
    (lambda: mf.stack_clouds([TOKENS, HUGE]), "share their dimension", "d in [1, 2]", "one d", "by dimension"),
    (lambda: mf.stack_clouds([TOKENS, PLACED]), "positions, or none", "1 of 2", "all or none", "with_positions()"),
    # Laws
    (lambda: mf.uniform_ball(0), "d must be a whole number", "d = 0", ">= 1", "d=10"),
    (lambda: mf.uniform_ball(2, radius=-1.0), "radius must be positive", "radius = -1", "radius > 0", "ball"),
    (lambda: mf.uniform_sphere(2, radius=0), "radius must be positive", "radius = 0", "radius > 0", "sphere"),
    (lambda: mf.uniform_ball(2, centre=[0, 0, 0]), "centre must have length 2", "length 3", "2 = d", "shape (2,)"),
    (lambda: mf.uniform_cube(2, low=1.0, high=0.0), "a box needs low < high", "low = 1.0", "each coordinate", "swap"),
    (lambda: mf.uniform_ball(2).sample(True, key=KEY), "n must be a whole number", "n = True", "integer", "n=10"),
    (lambda: mf.uniform_ball(2).sample(2.5, key=KEY), "n must be a whole number", "n = 2.5", "integer", "n=10"),
    (lambda: mf.uniform_ball(2).sample(9, key=0), "key must be a random key", "0", "one key", "jax.random.key(0)"),
    (lambda: mf.uniform_ball(2).sample(10**13, key=KEY), "n = 10000000000000 tokens cannot fit", "GB", "90 %", "fewer"),
    (lambda: mf.Gaussian([0.0, 0.0]), "either cov or factor", "neither", "exactly one", "cov=Sigma"),
    (lambda: mf.Gaussian([0.0, 0.0], cov=I3), "cov must match the mean", "(3, 3)", "(2, 2)", "one dimension"),
    (lambda: mf.Gaussian([0.0, 0.0], cov=[[1, 2], [0, 1]]), "cov must be symmetric", "of 2", "cov.T", "/ 2"),
    (lambda: mf.Gaussian([0.0, 0.0], cov=[[1, 2], [2, 1]]), "semi-definite", "of -1", "eigenvalues >= 0", "factor=L"),
    (lambda: mf.gaussian_mixture(I, 1.0, [0.5, 0.6]), "weights must sum to one", "1.1", "a sum of 1", "divide"),
    (lambda: mf.gaussian_mixture(I, 1.0, [1.0]), "weights must have length 2", "length 1", "one per mean", "(2,)"),
    (lambda: mf.gaussian_mixture(I, [1.0, 2.0]), "covs must match the means", "(2,)", "(2, 2, 2)", "per mean"),
    # Attention
    (lambda: mf.Softmax(I, I3, I), "Q and K must have one shape", "K of shape (3, 3)", "both (k, d)", "columns d"),
    (lambda: mf.Softmax(I, I, I3), "V must act on the same tokens", "V of shape (3, 3)", "(v, 2)", "columns d"),
    (lambda: mf.Softmax(I[0], I, I), "Q must be a non-empty matrix", "shape (2,)", "(rows, columns)", "(1, d)"),
    (lambda: mf.Softmax(NAN * I, I, I), "Q must be finite", "nan at index (0, 0)", "no NaN", "in Q"),
    (lambda: mf.Softmax(I, I, "identity"), "V must be numeric", "'identity'", "a matrix", "pass V"),
    (lambda: mf.Softmax(I, I, I, tau=0.0), "tau must be positive", "tau = 0", "tau > 0", "sqrt(k)"),
    (lambda: mf.L2(I, I, I, tau=NAN), "tau must be finite", "tau = nan", "a finite number", "as tau"),
    (lambda: mf.L2(I, I, I, tau=[1.0, 2.0]), "tau must be a single number", "shape (2,)", "a scalar", "one number"),
    (lambda: mf.Softmax(I, I, I, query_bias=[1, 2, 3]), "query_bias must have length 2", "3", "2 = rows of Q", "(2,)"),
    (lambda: mf.Softmax(I, I, I, value_bias=I), "value_bias must be a vector", "(2, 2)", "rows of V", "one axis"),
    (lambda: mf.Sinkhorn(I, I, I, eps=-0.1), "eps must be positive", "eps = -0.1", "eps > 0", "eps divides"),
    (lambda: mf.Sinkhorn(I, I, I, kernel="dist"), "kernel is not known", "'dist'", "'dot' or", "mean 'distance'?"),
    (lambda: mf.Sinkhorn(I, I, I, tol=0), "tol must be positive", "tol = 0", "tol > 0", "1e-10"),
    (
        lambda: mf.Sinkhorn(I, I, I, tol=1e-20),
        "tol must be below 1",
        "tol = 1e-20 in float64",
        "<= tol < 1",
        "leave tol",
    ),
    (lambda: mf.Sinkhorn(I, I, I, max_iter=-1), "max_iter must be a whole", "max_iter = -1", ">= 1", "max_iter=10"),
    (lambda: mf.Sigmoid(I, I, I, bias=[1.0]), "bias must be a single number", "shape (1,)", "a scalar", "one number"),
    (
        lambda: mf.Sigmoid(I, I, I, per_token="yes"),
        "per_token must be True",
        "'yes'",
        "a truth value",
        "per_token=True",
    ),
    (lambda: mf.Perceptron(I, jnp.ones((2, 3))), "W2 must take what W1", "W2 of shape (2, 3)", "(d, h)", "transpose"),
    (lambda: mf.Perceptron(I, I, activation="relu"), "activation must be", "'relu'", "a function", "jax.nn.relu"),
    (lambda: mf.Affine(I, [1.0]), "b must have length 2", "length 1", "2 = rows of M", "shape (2,)"),
    (lambda: mf.PreNorm(I), "PreNorm takes a field", "shape (2, 2)", "mf.Softmax", "mf.PreNorm(mf.Softmax(Q, K, V))"),
    (
        lambda: mf.PostNorm(SOFTMAX, mf.RMSNorm),
        "norm of PostNorm",
        "the class RMSNorm",
        "mf.LayerNorm()",
        "mf.RMSNorm()",
    ),
    (lambda: mf.LayerNorm(eps=-1.0), "eps must not be negative", "eps = -1", "eps >= 0", "1e-5"),
    (lambda: 1j * SOFTMAX, "the factor of a field must be real", "complex", "a number", "real part"),
    (lambda: SOFTMAX / 0, "divided by zero", "field / 0", "a number", "another divisor"),
    # Combined fields
    (lambda: mf.MultiHead([]), "MultiHead needs a list of heads", "[]", "at least one", "mf.Softmax(Q1, K1, V1)"),
    (lambda: mf.MultiHead([SOFTMAX, I]), "MultiHead needs a list", "Softmax, ArrayImpl", "fields only", "MultiHead(["),
    (lambda: mf.MultiHead([SOFTMAX], W=[I3]), "W[0] must take", "(3, 3)", "(d, 2)", "transpose W"),
    (lambda: mf.MultiHead([SOFTMAX] * 2, W=[I]), "one output matrix per head", "1 matrices", "2 matrices", "W=[W1"),
    (lambda: mf.MultiHead([SOFTMAX] * 2, W=I), "W must be a list", "shape (2, 2)", "2 matrices", "jnp.split"),
    (
        lambda: mf.MultiHead.from_network(*NETWORK, heads=3),
        "Q cannot be cut into 3",
        "4 rows",
        "multiple of 3",
        "number",
    ),
    (
        lambda: mf.MultiHead.from_network(*NETWORK[:3], I3, heads=1),
        "do not fit each other",
        "O (3, 3)",
        "(d, H v)",
        "tra",
    ),
    (
        lambda: mf.MultiHead.from_network(*NETWORK, heads=2, key_bias=[1.0, 2.0]),
        "key_bias must have length 4",
        "length 2",
        "length 4 = rows of K",
        "shape (4,)",
    ),
    (lambda: mf.MultiHead.from_network(*NETWORK, heads=2, kind="l2"), "kind must be", "'l2'", "mf.Softmax", "class"),
    (lambda: mf.Causal(mf.Softmax), "Causal masks a field", "the class Softmax", "mf.Causal(", "to be masked"),
    (lambda: mf.Scheduled(SOFTMAX), "Scheduled takes a function", "Softmax", "t -> field", "lambda t"),
    (lambda: mf.Scheduled(lambda: SOFTMAX), "Scheduled takes a function", "<lambda>()", "t -> field", "lambda t"),
    (
        lambda: mf.velocity(mf.Scheduled(lambda t: I), TOKENS),
        "must return a field",
        "shape (2, 2)",
        "mf.Softmax",
        "wrap",
    ),
    (lambda: mf.Piecewise([SOFTMAX], [0.5]), "one more field than breaks", "1 fields, 1 breaks", "2 fields", "inner"),
    (lambda: mf.Piecewise([SOFTMAX] * 3, [0.5, 0.2]), "breaks must increase", "(0.5, 0.2)", "increasing", "sort"),
    (lambda: mf.Piecewise([SOFTMAX, I], [0.5]), "Piecewise takes a list of fields", "'ArrayImpl'", "per piece", "mf."),
    # Evaluation
    (lambda: SOFTMAX(TOKENS, jnp.zeros(2)), "query points must live", "x of shape (2,)", "(m, 2)", "x[None]"),
    (lambda: SOFTMAX(TOKENS, jnp.zeros((1, 3))), "query points must live", "x of shape (1, 3)", "(m, 2)", "(1, d)"),
    (lambda: SOFTMAX(TOKENS, [[NAN, 0.0]]), "x must be finite", "nan at index (0, 0)", "no NaN", "in x"),
    (
        lambda: SOFTMAX([[1.0, 0.0]], POINTS),
        "the measure must be a PointCloud",
        "type list",
        "mf.PointCloud(points)",
        "wrap",
    ),
    (
        lambda: mf.velocity(SOFTMAX, mf.uniform_ball(2)),
        "measure must be a PointCloud",
        "UniformBall",
        "Poi",
        ".sample(n",
    ),
    (
        lambda: mf.velocity(mf.Softmax, TOKENS),
        "the field must be an attention field",
        "the class Softmax",
        "mf.Softmax(Q, K, V)",
        "wrap",
    ),
    (
        lambda: mf.velocity(CUBIC, TOKENS),
        "Softmax does not fit the tokens",
        "dimension 3",
        "one dimension d",
        "2 columns",
    ),
    (lambda: mf.velocity(WIDE, TOKENS), "Softmax gives no velocity", "output of dimension 3", "2", "make V square"),
    (
        lambda: mf.velocity(SOFTMAX + WIDE, TOKENS),
        "parts of a field give vectors of different dimension",
        "Softmax: 2, Softmax: 3",
        "one",
        "MultiHead",
    ),
    (
        lambda: mf.velocity(mf.PreNorm(mf.L2(I3, I3, I3)), TOKENS),
        "L2 does not fit",
        "for dimension 3",
        "one dimension",
        "2 col",
    ),
    (
        lambda: mf.velocity(mf.PreNorm(SOFTMAX, mf.LayerNorm(scale=[1.0, 1.0, 1.0])), TOKENS),
        "the scale of LayerNorm does not fit",
        "length 3",
        "length 2",
        "one scale per coordinate",
    ),
    (lambda: mf.velocity(SOFTMAX, GAUSS), "a Gaussian has no tokens", "type Gaussian", "a Density", "field.affine"),
    (lambda: mf.velocity(SOFTMAX, BATCH), "one cloud at a time", "(2, 3, 2)", "(n, d)", "vmap"),
    (
        lambda: mf.velocity(mf.Causal(SOFTMAX), TOKENS),
        "masked attention needs positions",
        "tokens have",
        "[0, 1]",
        "with_",
    ),
    (
        lambda: mf.Causal(SOFTMAX)(PLACED, [[0.0, 0.0]]),
        "needs positions",
        "query points have none",
        "[0, 1]",
        "pass s=",
    ),
    (lambda: mf.Causal(SOFTMAX)(PLACED, [[0.0, 0.0]], s=[3]), "s must lie in [0, 1]", "from 3 to 3", "<= 1", "divide"),
    (lambda: mf.Causal(SOFTMAX)(PLACED, [[0.0, 0.0]], s=[0, 1]), "s must have length 1", "2", "per query", "(1,)"),
    (lambda: mf.velocity(mf.Causal(mf.Sinkhorn(I, I, I)), LONG), "O(n^3)", "513 tokens", "512", "allow_large_causal"),
    (lambda: mf.Sinkhorn(I, I, I).potentials(TOKENS, [0.0, 1.0]), "guess must have length 3", "2", "per token", "(3,)"),
    (lambda: mf.Softmax(1, 1, 1).matrix(HUGE), "1000000 x 1000000 cannot fit in memory", "GB needed", "90 %", "rows"),
    (lambda: mf.Affine(I).matrix(TOKENS), "no attention matrix", "Affine", "attention kind", "combined with"),
    (lambda: mf.support_bound(SOFTMAX, TOKENS, -1.0), "forward in time", "t1 = -1", "t1 >= t0", "swap"),
    (lambda: mf.clusters(POINTS), "one known PointCloud", "shape (3, 2)", "(n, d)", "mf.PointCloud"),
    (lambda: mf.effective_rank(jnp.ones((2, 3))), "a covariance is a square matrix", "(2, 3)", "(d, d)", "one measure"),
    # Flow
    (
        lambda: mf.flow(I, TOKENS, 1.0),
        "field must be an attention field",
        "array of shape (2, 2)",
        "mf.Softmax",
        "attention kind",
    ),
    (
        lambda: mf.flow(SOFTMAX, POINTS, 1.0),
        "the measure must be a PointCloud",
        "array of shape (3, 2)",
        "PointCloud(p",
        "wrap",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 0.0), "a flow runs forward in time", "t1 = 0", "t1 > t0", "-1.0 * field"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, t0=2.0), "forward in time", "t0 = 2, t1 = 1", "t1 > t0", "swap"),
    (lambda: mf.flow(SOFTMAX, TOKENS, INF), "t1 must be finite", "t1 = inf", "a finite time", "mf.Stationary"),
    (lambda: mf.flow(SOFTMAX, TOKENS, NAN), "t1 must be finite", "t1 = nan", "a finite number", "as t1"),
    (lambda: mf.flow(SOFTMAX, TOKENS, "1"), "t1 must be numeric", "'1'", "a number", "pass t1"),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, solver="tsit"),
        "solver is not known",
        "'tsit'",
        "'dopri8'",
        "mean 'tsit5'?",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, solver=diffrax.Tsit5), "solver is not", "Tsit5", "'tsit5'", "solver"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, solver="euler"), "no error estimate", "Euler without", "step=", "step=0.01"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, rtol=0), "rtol must be positive", "rtol = 0", "rtol > 0", "1e-6"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, rtol=1.0), "rtol must be below 1", "rtol = 1", "relative", "1e-6"),
    (
        lambda: mf.flow(mf.Softmax(I32, I32, I32), TOKENS32, 1.0, rtol=1e-10),
        "rtol is too strict for the dtype",
        "rtol = 1e-10 in float32",
        "rtol >= 6e-06",
        "pass float64 tokens",
    ),
    (
        lambda: mf.flow(SOFTMAX, TOKENS32, 1.0, rtol=1e-9),
        "rtol is too strict",
        "1e-09 in float32",
        ">= 6e-06",
        "loosen",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, step=-0.1), "step must be positive", "step = -0.1", "step > 0", "step=0.01"),
    (lambda: mf.flow(HARDMAX, TOKENS, 1.0), "hardmax is discontinuous", "Hardmax", "a constant step", "'euler'"),
    (
        lambda: mf.flow(mf.PreNorm(HARDMAX), TOKENS, 1.0, rtol=1e-4),
        "hardmax",
        "without a step",
        "constant",
        "mf.layers",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=0), "save must be a whole number", "save = 0", ">= 2", "save=10"),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=True),
        "save must be a number of times",
        "True",
        "an integer",
        "save=50",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=[]), "no time to save", "an empty list", "[t0, t1]", "leave save out"),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=[0.5, 0.2]),
        "save times must increase",
        "0.5 before 0.2",
        "inc",
        "sort",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=[0.5, 2.0]), "lie in the run", "from 0.5 to 2", "[0, 1]", "drop"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=10**12), "saving 1000000000000 states", "GB needed", "90 %", "save=2"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, save=mf.log_times(9, 2.0)), "log_times", "first = 2", "t0 = 1", "smaller"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, space="sphere"), "space is not known", "'sphere'", "mf.Sphere()", "space="),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, space=mf.Sphere()), "start on the sphere", "0.293", "|x_i|", ".retract"),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, frame=mf.Rescaled),
        "frame is not known",
        "class",
        "mf.Rescaled()",
        "frame=",
    ),
    (
        lambda: mf.flow(mf.Perceptron(I, I), TOKENS, 1.0, frame=mf.Rescaled()),
        "value matrix V",
        "Perc",
        "kinds",
        "leave",
    ),
    (
        lambda: mf.flow(SOFTMAX, mf.PointCloud(I), 1.0, frame=mf.Rescaled(), space=mf.Sphere()),
        "the rescaled frame is Euclidean",
        "space=Sphere()",
        "one of the two",
        "leave out frame=",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, stop=5), "stop must be a rule", "5", "mf.Stationary(1e-6)", "lambda mu, t"),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, stop=mf.Stationary),
        "stop must be",
        "the class Stationary",
        "(mu, t)",
        "stop=",
    ),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, stop=lambda mu: True),
        "stop must be",
        "<lambda>",
        "(mu, t)",
        "lambda mu, t",
    ),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, stop=lambda t, mu: mu.radius < 1),
        "the stop rule the function <lambda>(t, mu) fails",
        "AttributeError: ",
        "(mu, t), the measure first: here with a value of type PointCloud",
        "order of its arguments",
    ),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, stop=lambda mu, t: mu.radius < 1 and t > 2),
        "the stop rule the function <lambda>(mu, t) needs numbers",
        "TracerBoolConversionError: ",
        "written with jax.numpy",
        "in place of `if`",
    ),
    (
        lambda: mf.flow(SOFTMAX, TOKENS, 1.0, observers={"a": lambda t, mu: mu.points[0, 0]}),
        "the observer 'a' fails",
        "AttributeError: ",
        "(mu, t), the measure first: here with a value of type PointCloud",
        "order of its arguments",
    ),
    (
        lambda: mf.layers(SOFTMAX, TOKENS, depth=2, observers={"a": lambda mu, t: np.asarray(mu.points)[0]}),
        "the observer 'a' needs numbers",
        "TracerArrayConversionError: ",
        "written with jax.numpy",
        "use jax.numpy instead of NumPy",
    ),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, max_steps=0), "max_steps must be", "max_steps = 0", ">= 1", "max_steps=10"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, progress="yes"), "progress must be True", "'yes'", "truth", "progress=True"),
    (lambda: mf.flow(SOFTMAX, TOKENS, 1.0, adjoint="direct"), "adjoint must be", "'direct'", "ForwardMode()", "leave"),
    (
        lambda: mf.flow(mf.Unnormalised(I, I, jnp.ones((3, 2))), TOKENS, 1.0),
        "Unnormalised gives no velocity of the tokens",
        "dimension 3",
        "dimension 2",
        "V square",
    ),
    (
        lambda: mf.flow(mf.Scheduled(lambda t: mf.Linear(I3, I3, I3)), TOKENS, 1.0),
        "Linear does not fit",
        "dimension 3",
        "one dim",
        "columns",
    ),
    (
        lambda: mf.flow(mf.Piecewise([SOFTMAX, mf.Affine(I3)], [0.5]), TOKENS, 1.0),
        "Affine does not fit",
        "dimension 3",
        "one",
        "columns",
    ),
    (lambda: mf.flow([SOFTMAX, I], TOKENS, 1.0), "an attention field", "type list", "mf.Softmax", "attention kind"),
    (lambda: mf.flow(mf.Causal(mf.Sinkhorn(I, I, I)), LONGER, 1.0), "O(n^3) per sweep", "514", "at most 512", "fewer"),
    (lambda: mf.log_times(5, 0.0), "first must be positive", "first = 0", "first > 0", "the first time after t0"),
    (lambda: mf.Gaussian([], np.zeros((0, 0))), "at least one dimension", "an empty mean", "d >= 1", "[0.0]"),
    (lambda: mf.Stationary(-1.0), "speed must be positive", "speed = -1", "speed > 0", "stop completely"),
    (lambda: mf.WallClock(0), "seconds must be positive", "seconds = 0", "seconds > 0", "mf.WallClock(60)"),
    # Layers
    (lambda: mf.layers(SOFTMAX, TOKENS), "how many layers", "no depth", "a depth", "depth=48"),
    (lambda: mf.layers(SOFTMAX, TOKENS, 0), "depth must be a whole number", "depth = 0", ">= 1", "depth=10"),
    (lambda: mf.layers(SOFTMAX, TOKENS, 3, step=0), "step must be positive", "step = 0", "step > 0", "1 / depth"),
    (lambda: mf.layers([SOFTMAX] * 2, TOKENS, 3), "its own depth", "2 layers and depth = 3", "depth = 2", "leave out"),
    (lambda: mf.layers([SOFTMAX, CUBIC], TOKENS), "(layer 1) does not fit", "dimension 3", "one dimension d", "2 col"),
    (lambda: mf.layers([SOFTMAX, WIDE], TOKENS), "(layer 1) gives no velocity", "3", "dimension 2", "make V square"),
    (lambda: mf.layers([SOFTMAX, I], TOKENS), "layers need fields", "ArrayImpl", "list of fields", "* 48"),
    (
        lambda: mf.layers(SOFTMAX, mf.gaussian_mixture([[0.0, 0.0]], 1.0), 3),
        "measure must be a PointCloud",
        "Mixture",
        "PointCloud(points)",
        "wrap an",
    ),
    (lambda: mf.layers(SOFTMAX, TOKENS, 3, space=mf.Sphere), "space is not known", "class", "mf.Sphere()", "space="),
    (lambda: mf.layers(SOFTMAX, TOKENS, 3, save="last"), "save is not known", "'last'", "'all' or 'final'", "save"),
    (lambda: mf.layers(SOFTMAX, TOKENS, 10**11), "100000000001 states cannot fit", "GB", "90 %", "'final'"),
    (lambda: mf.layers(SOFTMAX, TOKENS, 10**13, save="final"), "a depth of 1", "GB needed", "90 %", "fewer layers"),
]

# The same, asked of a run (of `mf.flow`, of `mf.layers`).
RUN_CALLS = [
    (lambda run, _: run.at(2.0), "t must lie in the run", "t = 2", "[0, 1]", "run longer"),
    (lambda run, _: run.at([0.1, 0.2]), "t must be a single number", "shape (2,)", "a scalar", "one number as t"),
    (lambda _, network: network.at(0.5), "no state between layers", "t = 0.5", "run.times", "run.states[k]"),
    (lambda run, _: run.clusters(0), "tolerance must be positive", "tolerance = 0", "tolerance > 0", "diameter"),
]


def _written(name):
    """The calls of a table, as they are written in this file."""
    module = ast.parse(Path(__file__).read_text())
    (table,) = [n.value for n in module.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == name]
    return [ast.unparse(row.elts[0].body) for row in table.elts]


ROWS = [
    *((False, *row, text) for row, text in zip(CALLS, _written("CALLS"), strict=True)),
    *((True, *row, text) for row, text in zip(RUN_CALLS, _written("RUN_CALLS"), strict=True)),
]


@pytest.fixture(autouse=True)
def as_a_user(monkeypatch):
    """The checks are to refuse by themselves: users have no annotation checker. Nothing may be solved meanwhile."""

    def too_late(*_, **__):
        pytest.fail("computing began before the refusal")

    with as_users():
        yield lambda: [
            monkeypatch.setattr(f"meanformer.flows.{place}", too_late) for place in ("flow.advance", "layers._run")
        ]


def refusal(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return caught.value


@pytest.mark.parametrize("row", ROWS, ids=[row[-1] for row in ROWS])
def test_refused_with_what_got_expected_and_remedy(row, request, as_a_user):
    asks_a_run, call, what, got, expected, remedy, _ = row
    arguments = request.getfixturevalue("finished") if asks_a_run else ()
    as_a_user()
    start = time.process_time()
    error = refusal(call, *arguments)
    assert time.process_time() - start < 1.0, "something heavy was done before the refusal"
    assert what in error.what
    assert got in error.got
    assert expected in error.expected
    assert remedy in error.remedy
    for part in ("\n  got:      ", "\n  expected: ", "\n  remedy:   "):
        assert str(error).count(part) == 1


def test_table_is_complete_and_every_message_differs(finished, as_a_user):
    as_a_user()
    messages = [str(refusal(row[1], *(finished if row[0] else ()))) for row in ROWS]
    for (*_, text), message in zip(ROWS, messages, strict=True):
        print(f"\n>>> {text}\n{message}")
    print(f"\n{len(ROWS)} bad calls")
    assert len(ROWS) >= 40
    assert [m for m in messages if messages.count(m) > 1] == []


def test_the_error_of_a_users_function_comes_with_the_refusal():
    error = LookupError("mine")

    def broken(mu, t):
        raise error

    for asked in ({"observers": {"a": broken}}, {"stop": broken}):
        with pytest.raises(InputError, match="LookupError: mine") as refused:
            mf.flow(SOFTMAX, TOKENS, 1.0, **asked)
        assert refused.value.__cause__ is error


def test_known_numbers_are_checked_under_jit_too():
    """Arrays that a traced function closes over are known, and neither stop the trace nor escape the checks."""

    @jax.jit
    def speed(scale, tau=1.0):
        return mf.velocity(mf.Softmax(I, scale * I, I, tau=tau), mf.PointCloud(POINTS, [0.2, 0.3, 0.5]))

    np.testing.assert_allclose(
        speed(2.0), mf.velocity(mf.Softmax(I, 2 * I, I), mf.PointCloud(POINTS, [0.2, 0.3, 0.5])), rtol=1e-14
    )
    for call in (
        lambda scale: mf.Softmax(NAN * np.eye(2), scale * I, I),
        lambda scale: mf.Softmax(I, scale * I, I, tau=-1.0),
        lambda scale: mf.PointCloud(scale * POINTS, [0.5, 0.5, 0.5]),
        lambda scale: mf.flow(scale * SOFTMAX, TOKENS, t1=-1.0),
    ):
        refusal(jax.jit(call), 2.0)

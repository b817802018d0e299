"""Blocked sums over tokens: equal to dense ones across block boundaries, in value and gradient, and never n x n."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.reduce import exact
from meanformer.reduce.reducers import SMALL_DISTANCE_DIMENSION, SMALL_KEY_DIMENSION
from oracles import dense, golden

QUERY_BLOCK, KEY_BLOCK = 4, 6
# Below, at, just above and several times the blocks, for queries and tokens.
SIZES = [(3, 5), (4, 6), (5, 7), (4, 19), (13, 25)]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(exact, "QUERY_BLOCK", QUERY_BLOCK)
    monkeypatch.setattr(exact, "KEY_BLOCK", KEY_BLOCK)


def problem(m, n, k=2, v=3, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, n) * (np.arange(n) % 4 != 2)
    positions = rng.permutation(n) // 2 * 2 / n  # ties, and not in the order of the tokens
    asked = rng.uniform(-0.1, 1, m)  # some queries see nothing
    return rng.normal(size=(m, k)), rng.normal(size=(n, k)), weights, rng.normal(size=(n, v)), positions, asked


def masked_rows(m, n, positions, asked):
    return np.ones((m, n), bool) if asked is None else positions[None] <= asked[:, None]


def dense_result(name, C, weights, values, seen):
    """The sum over tokens of positive weight that are seen, query by query."""
    means, sums = np.zeros((len(C), values.shape[1])), np.full(len(C), -np.inf)
    for i, row in enumerate(C):
        j = seen[i] & (weights > 0)
        if not j.any():
            continue
        if name == "average":
            p = weights[j] * np.exp(row[j])
            means[i], sums[i] = p @ values[j] / p.sum(), np.log(p.sum())
        elif name == "sum":
            means[i] = (weights[j] * np.tanh(row[j])) @ values[j]
        else:
            p = weights[j] * (row[j] == row[j].max())
            means[i] = p @ values[j] / p.sum()
    return means, sums


def folding(name, logit):
    """`fold_tokens` with the reducer of that name, compiled: the means (sums), and the log-sum of an average.

    A new function each time, because the block sizes are read when it is traced.
    """
    reducer = {"average": exact.Average(), "sum": exact.Sum(jnp.tanh), "argmax": exact.ArgmaxAverage()}[name]
    fold = jax.jit(lambda q, tokens, asked: exact.fold_tokens(reducer, logit, q, tokens, asked))

    def folded(q, k, weights, values, positions=None, asked=None):
        if name == "average":
            with np.errstate(divide="ignore"):
                weights = np.log(weights)
        q, k, weights, values = map(jnp.asarray, (q, k, weights, values))
        positions, asked = (None if a is None else jnp.asarray(a) for a in (positions, asked))
        out = fold(q, exact.Tokens(k, weights, values, positions), asked)
        return out if name == "average" else (out, None)

    return folded


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["average", "sum", "argmax"])
@pytest.mark.parametrize(("m", "n"), SIZES)
def test_blocks_equal_dense(small_blocks, name, m, n, masked):
    q, k, weights, values, positions, asked = problem(m, n)
    if not masked:
        positions = asked = None
    for logit, C in ((exact.dot, q @ k.T), (exact.minus_squared_distance, -((q[:, None] - k[None]) ** 2).sum(-1))):
        got, log_sum = folding(name, logit)(q, k, weights, values, positions, asked)
        want, want_log_sum = dense_result(name, C, weights, values, masked_rows(m, n, positions, asked))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
        if log_sum is not None:
            np.testing.assert_allclose(log_sum, want_log_sum, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "width", [s + more for s in (SMALL_KEY_DIMENSION, SMALL_DISTANCE_DIMENSION) for more in (0, 1)]
)
def test_logits_of_any_key_dimension(width):
    assert width - SMALL_KEY_DIMENSION in (0, 1) or width - SMALL_DISTANCE_DIMENSION in (0, 1)
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=(5, width)), rng.normal(size=(7, width))
    np.testing.assert_allclose(exact.dot(jnp.asarray(q), jnp.asarray(k)), q @ k.T, rtol=0, atol=1e-13)
    squares = ((q[:, None] - k[None]) ** 2).sum(-1)
    got = exact.minus_squared_distance(jnp.asarray(q), jnp.asarray(k))
    np.testing.assert_allclose(got, -squares, rtol=0, atol=1e-13)


def test_distances_do_not_cancel():
    """Far from the origin and close to each other: the expanded square would have no digit left."""
    q, k = jnp.asarray([[1e8, 1.0]]), jnp.asarray([[1e8 + 1e-3, 1.0]])
    assert abs(float(exact.minus_squared_distance(q, k)[0, 0]) / -((1e8 + 1e-3 - 1e8) ** 2) - 1) < 1e-12


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["average", "sum"])
def test_gradient_of_blocks(monkeypatch, name, masked):
    """Reverse and forward mode through the blocked path equal those of the one-block path."""
    m, n = 9, 19
    q, k, weights, values, positions, asked = problem(m, n)
    asked = np.maximum(asked, positions.min())  # each query sees a token
    weights[positions.argmin()] = 0.5
    where = (positions, asked) if masked else ()
    cotangent = jnp.asarray(np.random.default_rng(2).normal(size=(m, 3)))

    def loss(arrays):
        return jnp.sum(cotangent * folding(name, exact.dot)(arrays[0], arrays[1], weights, arrays[2], *where)[0])

    def program():
        """Value, gradient, slope along the arrays; a new one each time: block sizes are read when it is traced."""
        return jax.jit(lambda a: (loss(a), jax.grad(loss)(a), jax.jvp(loss, (a,), (a,))[1]))

    arrays = tuple(map(jnp.asarray, (q, k, values)))
    one_block = program()
    _, gradient, slope = one_block(arrays)
    # The one-block gradient is right: a central difference along the arrays themselves.
    h = 1e-5
    ahead, behind = (one_block(tuple((1 + s * h) * a for a in arrays))[0] for s in (1, -1))
    np.testing.assert_allclose((ahead - behind) / (2 * h), slope, rtol=1e-7)
    monkeypatch.setattr(exact, "QUERY_BLOCK", QUERY_BLOCK)
    monkeypatch.setattr(exact, "KEY_BLOCK", KEY_BLOCK)
    _, blocked, blocked_slope = program()(arrays)
    for got, want in zip(blocked, gradient, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)
    np.testing.assert_allclose(blocked_slope, slope, rtol=1e-13)


def test_unseen_tokens_change_nothing_to_the_bit(small_blocks):
    """A later token is in no maximum and in no sum of an earlier one, however large it is."""
    q, k, weights, values, positions, asked = problem(13, 25)
    late = positions > 0.5
    before = asked <= 0.5
    assert late.any() and before.any()
    changed_k, changed_v = np.where(late[:, None], 1e3, k), np.where(late[:, None], -7e5, values)
    for name in ("average", "sum", "argmax"):
        folded = folding(name, exact.dot)
        one = folded(q, k, weights, values, positions, asked)[0]
        other = folded(q, changed_k, weights, changed_v, positions, asked)[0]
        assert np.array_equal(np.asarray(one)[before], np.asarray(other)[before])
        assert not np.array_equal(np.asarray(one), np.asarray(other))


def intermediates(jaxpr):
    """All arrays that a program makes, inside its loops and branches too."""
    for equation in jaxpr.eqns:
        yield from (v.aval for v in equation.outvars)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda a: hasattr(a, "eqns") or hasattr(a, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from intermediates(inner)


def largest(function, *arguments):
    closed = jax.make_jaxpr(function)(*arguments)
    return max((int(np.prod(a.shape)) for a in intermediates(closed.jaxpr) if hasattr(a, "shape")), default=0)


# Masked Sinkhorn is refused at this size.
VARIANTS = [
    (kind, masked) for kind in dense.KINDS for masked in (False, True) if not (masked and kind in dense.SINKHORN)
]


@pytest.mark.parametrize(("kind", "masked"), VARIANTS)
def test_no_square_array(kind, masked):
    """At n = 5000 no array of a velocity is larger than a block (n n would be 25 million)."""
    n = 5000
    rng = np.random.default_rng(0)
    Q, K, V = rng.normal(size=(3, 2, 2))
    field = golden.make(kind, Q, K, V)
    field = mf.Causal(field) if masked else field
    tokens = mf.PointCloud(rng.normal(size=(n, 2))).with_positions()
    assert largest(lambda mu: mf.velocity(field, mu), tokens) <= max(exact.QUERY_BLOCK * exact.KEY_BLOCK, 64 * n)


def test_no_square_array_in_a_gradient():
    n = 5000
    rng = np.random.default_rng(0)
    Q, K, V = rng.normal(size=(3, 2, 2))
    tokens = mf.PointCloud(rng.normal(size=(n, 2)))

    def loss(mu):
        return jnp.sum(mf.velocity(mf.Softmax(Q, K, V), mu) ** 2)

    assert largest(lambda mu: eqx.filter_grad(loss)(mu).points, tokens) <= exact.QUERY_BLOCK * exact.KEY_BLOCK


def test_the_walk_sees_a_square_array():
    """The check above can fail: the attention matrix is found, also inside a compiled function."""
    field, tokens = mf.Softmax(np.eye(2), np.eye(2), np.eye(2)), mf.PointCloud(np.zeros((700, 2)))
    assert largest(jax.jit(lambda mu: field.matrix(mu)), tokens) >= 700 * 700

"""How the exact sums are made fast: the bound in place of the maximum, blocks that are skipped, quick exponentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meanformer.reduce import exact, exponential
from meanformer.reduce.bounds import widest_spread

M, N = 9, 19
LOGITS = {"dot": exact.dot, "distance": exact.minus_squared_distance}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(exact, "QUERY_BLOCK", 4)
    monkeypatch.setattr(exact, "KEY_BLOCK", 6)


def problem(dtype=np.float64):
    """Queries, keys, log-weights from 1e-12 to 1 with some minus infinity, values."""
    rng = np.random.default_rng(3)
    weights = 10.0 ** rng.uniform(-12, 0, N) * (np.arange(N) % 5 != 3)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    arrays = rng.normal(size=(M, 2)), 5 + rng.normal(size=(N, 2)), logs, rng.normal(size=(N, 3))
    return tuple(a.astype(dtype) for a in arrays)


def dense(name, q, k, logs, values, keep=None):
    """Means and log-sums in extended precision."""
    q, k, logs, values = (np.asarray(a, np.longdouble) for a in (q, k, logs, values))
    C = logs[None] + (q @ k.T if name == "dot" else -((q[:, None] - k[None]) ** 2).sum(-1))
    if keep is not None:
        C = np.where(np.kron(keep, np.ones((4, 6)))[:M, :N] > 0, C, -np.inf)
    top = C.max(axis=1, keepdims=True)
    p = np.exp(C - top)
    return p @ values / p.sum(1, keepdims=True), np.log(p.sum(1)) + top[:, 0]


def fold(name, q, k, logs, values, keep=None):
    tokens = exact.Tokens(*(jnp.asarray(a) for a in (k, logs, values)))
    return exact.fold_tokens(exact.Average(), LOGITS[name], jnp.asarray(q), tokens, None, keep)


def scaled_to(name, spread, q, k, logs):
    """Queries (and keys) scaled such that the spread of the bound is the one given."""
    seen = k[np.isfinite(logs)]
    middle = (seen.min(0) + seen.max(0)) / 2
    radius = np.linalg.norm(seen - middle, axis=1).max()
    if name == "dot":
        return q * q.dtype.type(spread / (2 * np.linalg.norm(q, axis=1).max() * radius)), k
    q = q + middle
    root = q.dtype.type(np.sqrt(spread) / (np.linalg.norm(q - middle, axis=1).max() + radius))
    return root * q, root * k


def with_limit(monkeypatch, function):
    """The function, compiled once, with the limit of the bound as its first argument: up to infinity it is used."""

    def limited(limit, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(exact, "widest_spread", lambda n, dtype: limit)
            return function(*arguments)

    return jax.jit(limited)


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_both_branches_on_both_sides_of_the_limit(monkeypatch, name, dtype):
    """Below the limit bound and running maximum agree with the dense sum; above it the fold does not use the bound."""
    q, k, logs, values = problem(dtype)
    limit = widest_spread(N, dtype)
    run = jax.jit(lambda q, k: fold(name, q, k, logs, values))
    forced = with_limit(monkeypatch, lambda q, k: fold(name, q, k, logs, values))
    for times in (0.99, 1.01, 8.0):
        x, y = scaled_to(name, times * limit, q, k, logs)
        want = dense(name, x, y, logs, values)
        # A logit is rounded, and so is its shift.
        rounding = 4 * np.finfo(dtype).eps * times * limit
        bounded, running = forced(np.inf, x, y), forced(-np.inf, x, y)
        for got in (run(x, y), running):
            np.testing.assert_allclose(got[0], want[0], rtol=0, atol=rounding)
            np.testing.assert_allclose(got[1], want[1], rtol=rounding, atol=rounding)
        # The branch is seen in the last bits.
        assert np.array_equal(run(x, y)[1], (bounded if times < 1 else running)[1])
        assert not np.array_equal(bounded[1], running[1])
    # What the limit is for: far above it, the bound loses all terms of a query.
    assert np.abs(bounded[1] - running[1]).max() > 1


@pytest.mark.parametrize("name", LOGITS)
def test_derivatives_of_both_branches(monkeypatch, name):
    """A shift carries no derivative: both branches have that of the dense formula, in both modes."""
    q, k, logs, values = map(jnp.asarray, problem())
    cotangents = [jnp.asarray(a) for a in (np.random.default_rng(4).normal(size=(M, 3)), np.linspace(-1, 2, M))]
    some = jnp.isfinite(logs)

    def loss(average, arrays):
        q, k, more, values = arrays
        mean, total = average(q, k, jnp.where(some, logs + more, -jnp.inf), values)
        return jnp.sum(cotangents[0] * mean) + jnp.sum(cotangents[1] * total)

    def whole(q, k, logs, values):
        C = logs[None] + LOGITS[name](q, k)
        return jax.nn.softmax(C, axis=1) @ values, jax.nn.logsumexp(C, axis=1)

    arrays = (q, k, jnp.zeros_like(logs), values)
    want = jax.jit(jax.grad(lambda a: loss(whole, a)))(arrays)
    direction = tuple(jnp.cos(a) for a in arrays)
    slope = sum(jnp.vdot(a, b) for a, b in zip(want, direction, strict=True))

    def blocked(a):
        return loss(lambda *b: fold(name, *b), a)

    both = with_limit(monkeypatch, lambda a: (jax.grad(blocked)(a), jax.jvp(blocked, (a,), (direction,))[1]))
    for limit in (np.inf, -np.inf):
        pulled, pushed = both(limit, arrays)
        for got, one in zip(pulled, want, strict=True):
            np.testing.assert_allclose(got, one, rtol=0, atol=1e-11)
        np.testing.assert_allclose(pushed, slope, rtol=1e-11)


def test_a_batch_takes_one_branch():
    """Under vmap the branch remains one, not both of them; one wide cloud sends all to the running maximum."""
    q, k, logs, values = problem()
    batch = jnp.stack([jnp.asarray(q), 200.0 * jnp.asarray(q)])
    mapped = jax.vmap(lambda q: fold("dot", q, k, logs, values))
    assert "cond[" in str(jax.make_jaxpr(mapped)(batch))
    for got, one in zip(jax.jit(mapped)(batch)[0], batch, strict=True):
        np.testing.assert_allclose(got, dense("dot", one, k, logs, values)[0], rtol=0, atol=1e-11)


KEEP = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]], bool)


def test_blocks_that_are_not_kept():
    """The average of what is kept, in value and gradient; nothing of the rest is touched, be it not a number."""
    q, k, logs, values = problem()
    want = dense("dot", q, k, logs, values, KEEP)
    kept = jax.jit(lambda q, k, values: fold("dot", q, k, logs, values, jnp.asarray(KEEP)))
    for got, one in zip(kept(q, k, values), want, strict=True):
        np.testing.assert_allclose(got, one, rtol=0, atol=1e-12)
    spoilt = values.copy()
    spoilt[6:18] = np.nan  # the second and third blocks, which only the second block of queries keeps
    assert np.array_equal(np.isfinite(kept(q, k, spoilt)[0]).all(axis=1), np.arange(M) // 4 != 1)

    mask = jnp.asarray(np.kron(KEEP, np.ones((4, 6)))[:M, :N] > 0)

    def whole(q, k, values):
        return jax.nn.softmax(jnp.where(mask, logs[None] + q @ k.T, -jnp.inf), axis=1) @ values

    arrays = tuple(map(jnp.asarray, (q, k, values)))
    grads = [jax.jit(jax.grad(lambda a, f=f: jnp.sum(jnp.sin(f(*a)))))(arrays) for f in (lambda *a: kept(*a)[0], whole)]
    for got, one in zip(*grads, strict=True):
        np.testing.assert_allclose(got, one, rtol=0, atol=1e-12)


def test_keep_of_another_shape_is_refused():
    assert exact.block_counts(M, N) == KEEP.shape
    with pytest.raises(ValueError, match=r"(?s)shape \(4, 3\) for 9 queries and 19 tokens.*\(3, 4\)"):
        fold("dot", *problem(), jnp.asarray(KEEP.T))


def test_blocks_of_the_future_are_skipped():
    """Tokens in any order: values that are not numbers reach no block of queries that comes before them."""
    rng = np.random.default_rng(5)
    n = 36
    points, values, order = rng.normal(size=(n, 2)), rng.normal(size=(n, 3)), rng.permutation(n)
    at = order / n

    @jax.jit
    def causal(points, values):
        places = jnp.asarray(at)
        tokens = exact.Tokens(points, jnp.zeros(n), values, places)
        return exact.fold_tokens(exact.Average(), exact.dot, points, tokens, places)[0]

    clean = causal(points, values)
    late = order >= 18  # from the fourth block of tokens on
    spoilt = causal(points, np.where(late[:, None], np.nan, values))
    before = order < 16  # the first four blocks of queries
    assert np.array_equal(spoilt[before], clean[before])
    assert np.isnan(spoilt[late]).all()
    # The derivative does not go there either: it is the one of the masked formula.
    mask = jnp.asarray(at[None, :] <= at[:, None])

    def whole(points, values):
        return jax.nn.softmax(jnp.where(mask, points @ points.T, -jnp.inf), axis=1) @ values

    arrays = (jnp.asarray(points), jnp.asarray(values))
    np.testing.assert_allclose(clean, whole(*arrays), rtol=0, atol=1e-14)
    grads = [jax.jit(jax.grad(lambda a, f=f: jnp.sum(jnp.sin(f(*a)))))(arrays) for f in (causal, whole)]
    for got, one in zip(*grads, strict=True):
        np.testing.assert_allclose(got, one, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponentials(dtype):
    """Within a rounding or two of the true value over the whole range of normal numbers; and their own derivatives."""
    numbers = np.finfo(dtype)
    t = np.linspace(numbers.minexp + 1, 1, 20_001).astype(dtype)
    np.testing.assert_allclose(
        exponential.power_of_two(jnp.asarray(t)), np.exp2(t.astype(np.longdouble)), rtol=1.5 * numbers.eps
    )
    x = np.linspace(-30, 0, 20_001).astype(dtype)
    want = np.exp(x.astype(np.longdouble))
    got, slope = jax.jvp(exponential.exp_of_negative, (jnp.asarray(x),), (jnp.ones_like(x),))
    assert np.all(np.abs(np.asarray(got) / want - 1) <= (1.5 - x) * numbers.eps)
    assert np.array_equal(slope, got)
    _, slope = jax.jvp(exponential.power_of_two, (jnp.asarray(x),), (jnp.ones_like(x),))
    np.testing.assert_allclose(slope, np.log(2) * np.exp2(x.astype(np.longdouble)), rtol=2.5 * numbers.eps)
    edge = exponential.exp_of_negative(jnp.asarray([-np.inf, -1e30, np.log(numbers.tiny) - 1, np.nan, 0.0], dtype))
    assert np.array_equal(edge, np.asarray([0, 0, 0, np.nan, 1], dtype), equal_nan=True)

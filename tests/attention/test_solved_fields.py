"""Fields evaluated together with their Sinkhorn problems: one solve, one sum, guesses, tokens without weight."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.attention.approximate import Approximate
from meanformer.attention.solved import evaluate_at, evaluate_solved, first_guesses, mix_solved
from meanformer.attention.view import View
from meanformer.reduce.exact import Tokens, dot
from meanformer.reduce.grid import Grid, reach_for
from meanformer.reduce.sums import Exact, Fast
from oracles import dense
from oracles.dense import error

RNG = np.random.default_rng(0)
I = np.eye(2)
Q, K, V = (RNG.normal(size=(2, 2)) for _ in range(3))
WEIGHTS = RNG.uniform(0.2, 1, 12)
TOKENS = mf.PointCloud(RNG.normal(size=(12, 2)), WEIGHTS / WEIGHTS.sum()).with_positions()
SINKHORN = mf.Sinkhorn(Q, K, V, tol=1e-13)
NOW = jnp.zeros(())


@eqx.filter_jit
def solved(field, mu, guesses=None):
    return evaluate_solved(field, mu, mu.points, NOW, View(mu.positions), guesses)


def heads(*temperatures):
    return mf.MultiHead([mf.Sinkhorn(Q, K, V, eps, tol=1e-13) for eps in temperatures])


# The field, and how many Sinkhorn problems are in it.
FIELDS = {
    "alone": (lambda: SINKHORN, 1),
    "heads": (lambda: heads(1.0, 2.0, 0.5), 3),
    "beside others": (lambda: mf.Softmax(Q, K, V) + 0.5 * SINKHORN + mf.Affine(V) + mf.Sinkhorn(K, Q, V), 2),
    "inside norms": (lambda: mf.PostNorm(mf.PreNorm(heads(1.0, 3.0), mf.RMSNorm()), mf.RMSNorm()), 2),
    "masked": (lambda: mf.Causal(mf.Sinkhorn(Q, K, V, tol=1e-13)) + SINKHORN, 2),
    "scheduled": (lambda: mf.Scheduled(lambda t: mf.Sinkhorn(Q * (2 + t), K, V, kernel="distance")), 1),
    "without": (lambda: mf.Softmax(Q, K, V), 0),
}


@eqx.filter_jit
def at_known_potentials(field, mu, potentials):
    return evaluate_at(field, mu, mu.points[:5], NOW, View(mu.positions[:5]), potentials)


@pytest.mark.parametrize("name", FIELDS)
def test_velocity_and_report_are_those_of_the_field(name):
    make, count = FIELDS[name]
    found = solved(make(), TOKENS)
    assert error(found.velocity, mf.velocity(make(), TOKENS)) <= 1e-12
    assert bool(found.solved) and 0 <= float(found.error) <= (1e-10 if count else 0)
    assert len(found.problems) == len(found.guesses) == count
    if count:
        exact = at_known_potentials(make(), TOKENS, found.problems)
        assert error(exact, found.velocity[:5]) <= 1e-11


def test_report_is_that_of_the_worst_problem():
    easy, hard = mf.Sinkhorn(Q, K, V), mf.Sinkhorn(5 * Q, K, V, tol=1e-12, max_iter=1)
    found = solved(easy + hard, TOKENS)
    assert not bool(found.solved)
    assert float(found.error) == pytest.approx(float(hard.potentials(TOKENS).error)) and float(found.error) > 1e-6
    assert bool(solved(easy, TOKENS).solved)


def test_mixing_with_other_values():
    """What a frame asks for: values of its own, at the tokens; and other kinds, without a problem."""
    values = jnp.asarray(RNG.normal(size=(12, 2)))
    for leaf, count in ((SINKHORN, 1), (mf.Softmax(Q, K, V), 0)):
        found = mix_solved(leaf, TOKENS, TOKENS.points, values, View(None), first_guesses(leaf, TOKENS, NOW))
        assert error(found.velocity, leaf.matrix(TOKENS) @ values) <= 1e-12
        assert len(found.guesses) == count and bool(found.solved)


# Guesses


@pytest.mark.parametrize(("n", "kind"), [(40, "dot"), (40, "distance"), (600, "dot")])
def test_a_guess_saves_sweeps_and_changes_nothing(n, kind):
    """Along a path: the potentials of the tokens a moment before. n = 600 is more than a block."""
    rng = np.random.default_rng(n)
    X, step = rng.normal(size=(n, 2)), 1e-6 * rng.normal(size=(n, 2))
    field = mf.Sinkhorn(0.5 * I, I, -I, kernel=kind)
    here, there = mf.PointCloud(X), mf.PointCloud(X + step)
    before = solved(field, here)
    cold, warm = solved(field, there), solved(field, there, before.guesses)
    assert bool(warm.solved) and error(warm.velocity, cold.velocity) <= 1e-9
    assert int(warm.problems[0].sweeps) < 0.7 * int(cold.problems[0].sweeps)
    assert int(warm.problems[0].newton_steps) == int(cold.problems[0].newton_steps) == 0
    assert [g.shape for g in first_guesses(field, here, NOW)] == [g.shape for g in before.guesses]


@pytest.mark.parametrize("guess", [np.nan, np.inf, 1e30])
def test_a_guess_that_is_none_does_no_harm(guess):
    """As after a stage that overflowed."""
    guesses = (jnp.full(12, guess).at[0].set(0.0),)
    found = solved(SINKHORN, TOKENS, guesses)
    assert bool(found.solved) and error(found.velocity, solved(SINKHORN, TOKENS).velocity) <= 1e-9


def test_tokens_that_are_no_numbers_end_at_once():
    found = solved(SINKHORN, TOKENS.with_points(TOKENS.points.at[3].set(jnp.nan)))
    assert not bool(found.solved) and np.isnan(found.velocity).all()
    assert int(found.problems[0].sweeps) == 1 and int(found.problems[0].newton_steps) == 0


def test_vmap_is_a_loop():
    """Problems of a batch end at different turns, and some need Newton steps."""
    scales = jnp.asarray([0.3, 1.0, 4.0])

    def one(scale):
        return evaluate_solved(mf.Sinkhorn(scale * Q, K, V), TOKENS, TOKENS.points, NOW, View(None))

    together, alone = jax.jit(jax.vmap(one))(scales), [jax.jit(one)(scale) for scale in scales]
    steps = [int(found.problems[0].newton_steps) for found in alone]
    assert min(steps) == 0 < max(steps)
    np.testing.assert_array_equal(together.problems[0].newton_steps, steps)
    for i, found in enumerate(alone):
        assert error(together.velocity[i], found.velocity) <= 1e-9


# Tokens without weight


def padded(mu, where, count):
    """`count` more tokens of weight zero: copies of the first, or far out."""
    extra = jnp.broadcast_to(mu.points[:1] + where, (count, mu.d))
    return mf.PointCloud(jnp.concatenate([mu.points, extra]), jnp.concatenate([mu.weights, jnp.zeros(count)]))


@pytest.mark.parametrize("where", [0.0, 30.0])
@pytest.mark.parametrize(("n", "scale"), [(40, 1.0), (40, 4.0), (300, 3.0)])
def test_tokens_without_weight_are_harmless(n, scale, where):
    """Sweeps; Newton steps, solved directly; and where only the padding makes it more than a block."""
    rng = np.random.default_rng(n)
    w = rng.uniform(0.1, 1, n)
    mu = mf.PointCloud(rng.uniform(-1, 1, (n, 2)), w / w.sum())
    field = mf.Sinkhorn(scale * np.asarray([[1.0, 0.5], [-0.3, 1.0]]), scale * I, V)
    alone, more = solved(field, mu), solved(field, padded(mu, where, n))
    assert bool(alone.solved) and bool(more.solved)
    assert (int(alone.problems[0].newton_steps) > 0) == (scale > 1)
    assert np.isfinite(more.velocity).all()
    assert error(more.velocity[:n], alone.velocity) <= 1e-11
    for name in ("f", "g"):
        assert error(getattr(more.problems[0], name)[:n], getattr(alone.problems[0], name)) <= 1e-9
    if where == 0:  # the added tokens see the cloud as the one does whose copies they are
        assert error(more.velocity[n:], jnp.broadcast_to(alone.velocity[:1], (n, 2))) <= 1e-9


def test_padding_of_a_hard_problem():
    """Logits in [-20, 25] and weights down to 7e-6: the ladder, and steps solved directly."""
    rng = np.random.default_rng(231)
    X, Q, K = rng.normal(size=(8, 2)), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    Q = Q * 45 / np.ptp((X @ Q.T) @ (X @ K.T).T)
    w = np.geomspace(7e-6, 1.0, 8)[rng.permutation(8)]
    mu = mf.PointCloud(X, w / w.sum())
    found = solved(mf.Sinkhorn(Q, K, V, tol=1e-13), padded(mu, 5.0, 8))
    assert bool(found.solved)
    assert error(found.velocity[:8], dense.velocity("sinkhorn_dot", X, X, w / w.sum(), Q, K, V)) <= 1e-10


GRID = Grid(32, 6, reach_for(6, 2, 1e-8))
FAST = Fast(GRID, None, 0, 0, 1e-9, 0)


@pytest.mark.parametrize("where", [0.0, 0.7])
def test_fast_sums_with_tokens_without_weight(where):
    """They ask but are not asked; yet rows and columns are those of one matrix."""
    mu = mf.PointCloud(RNG.uniform(-1, 1, (600, 2)))
    field = Approximate(mf.Sinkhorn(0.9 * np.asarray([[1.0, 0.2], [-0.1, 1.0]]), I, V), FAST)
    alone, more = solved(field, mu), solved(field, padded(mu, where, 500))
    assert bool(alone.solved) and bool(more.solved)
    assert error(more.velocity[:600], alone.velocity) <= (1e-12 if where == 0 else 1e-7)
    assert error(more.velocity, mf.velocity(field.field, padded(mu, where, 500))) <= 1e-7


def test_what_a_grid_does_not_resolve_is_no_number():
    field = Approximate(mf.Sinkhorn(30 * I, I, V), FAST)
    found = solved(field, mf.PointCloud(RNG.uniform(-1, 1, (600, 2))))
    assert np.isnan(found.velocity).all() and not bool(found.solved)
    assert int(found.problems[0].newton_steps) == 0


# One copy of the sum


def operations(jaxpr, name):
    """The equations of a name in a program, at any depth."""
    found = [equation for equation in jaxpr.eqns if equation.primitive.name == name]
    for inner in inner_programs(jaxpr):
        found += operations(inner, name)
    return found


def inner_programs(jaxpr):
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
            if hasattr(value, "jaxpr"):
                yield value.jaxpr
            elif hasattr(value, "eqns"):
                yield value


def program(field, n):
    mu = mf.PointCloud(RNG.uniform(-1, 1, (n, 2)))
    return jax.make_jaxpr(lambda x: evaluate_solved(field, mu.with_points(x), *at(x)))(mu.points).jaxpr


def at(x):
    return x, NOW, View(None)


def test_a_program_holds_the_sum_once():
    """Keys are spread onto a grid in one place; and of exact sums there is one, with values and without."""
    field = mf.Sinkhorn(I, I, V)
    fast = program(Approximate(field, FAST), 600)
    onto_grid = [e for e in operations(fast, "scatter-add") if e.outvars[0].aval.shape[-2:] == (GRID.nodes,) * 2]
    assert len(onto_grid) == 1
    # Of all pairs: the sum, and the matrix of the linear system that few tokens have.
    pairs = [e for e in operations(program(field, 40), "exp") if e.outvars[0].aval.shape == (40, 40)]
    assert len(pairs) == 2
    # The count sees copies: a sweep written twice has two.
    twice = program(Approximate(field, FAST) + Approximate(mf.Sinkhorn(I, I, V, kernel="distance"), FAST), 600)
    assert len(operations(twice, "scatter-add")) == 2 * len(operations(fast, "scatter-add"))


def test_exact_and_fast_sums_give_what_is_needed():
    """With fewer columns needed, these and the log-sums are the same; what is not needed may be anything."""
    for n in (300, 1500):
        q, y, values = (jnp.asarray(RNG.uniform(-1, 1, (n, k))) for k in (2, 2, 3))
        tokens = Tokens(y, jnp.asarray(RNG.normal(size=n)), values)
        for sums in (Exact(), FAST):
            ask = jax.jit(lambda needed, sums=sums, q=q, tokens=tokens: sums.average(dot, q, tokens, needed=needed))
            mean, total = sums.average(dot, q, tokens)
            for needed in (0, 1, 3):
                some, same = ask(jnp.asarray(needed))
                np.testing.assert_allclose(same, total, rtol=1e-13)
                np.testing.assert_allclose(some[:, :needed], mean[:, :needed], rtol=1e-10, atol=1e-13)

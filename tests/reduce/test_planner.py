"""Plans: the accuracy asked for is kept at every token, whatever the cloud; few tokens are summed exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.attention.planned import OUTERMOST, RANDOM
from meanformer.reduce import plan as planner
from meanformer.reduce.exact import dot
from meanformer.reduce.plan import Asked, choose, clusters_apart
from meanformer.reduce.sums import Exact, Fast
from oracles.refusals import assert_refused

N = 1000
SOFTMAX = mf.Softmax(1.0, 1.0, 1.0)


@pytest.fixture
def exact_sums_are_dear(monkeypatch):
    """So that few tokens are worth a grid."""
    monkeypatch.setattr(planner, "PAIR", 1.0)


def asked(q, y, weights=None, logit=dot, columns=3, masked=False, averages=True, of_keys=False):
    logs = np.zeros(len(y)) if weights is None else weights
    return Asked(logit, q, y, logs, columns, masked, averages, of_keys)


def normal(n, k, size=1.0, seed=0):
    return size * np.random.default_rng(seed).normal(size=(n, k))


# What is chosen


def test_few_tokens_are_summed_exactly():
    assert isinstance(choose([asked(normal(40, 2), normal(40, 2))], 1e-6, 1.0).sums, Exact)
    assert isinstance(choose([asked(normal(20_000, 4), normal(20_000, 4))], 1e-6, 1.0).sums, Exact)
    plan = mf.plan(mf.Softmax(*[np.eye(2)] * 3), mf.PointCloud(normal(40, 2)))
    assert plan.exact and plan.error == 0 and "exact sums" in str(plan)


@pytest.mark.parametrize("accuracy", [1e-3, 1e-6, 1e-10])
def test_a_grid_covers_its_range_with_its_margin(accuracy):
    """Its bound is below the accuracy, its range above that of the tokens, and both not by much."""
    for k, margin in ((1, 1.0), (2, 2.0), (3, 1.4)):
        q, y = (np.random.default_rng(seed).uniform(-3, 3, (100_000, k)) for seed in (0, 1))
        sums = choose([asked(q, y)], accuracy, margin).sums
        assert isinstance(sums, Fast) and sums.grid is not None and not sums.far_keys
        ranges = margin * np.ptp(q, axis=0) * np.ptp(y, axis=0) / 4
        assert sums.grid.bound(k) <= accuracy / 2
        assert ranges.max() <= sums.grid.largest_range <= 3 * ranges.max()


def test_tokens_decide():
    """Far tokens, clusters, ranges beyond all grids: each gets what it needs."""
    y = normal(20_000, 2)
    far = np.where(np.arange(20_000)[:, None] < 5, 200.0, y)
    assert choose([asked(far, far)], 1e-6, 1.0).sums.far_keys == 64
    beyond = choose([asked(1e6 * y, 1e6 * y)], 1e-6, 1.0).sums
    assert isinstance(beyond, Exact) or beyond.grid is None or beyond.far_queries > 10_000
    assert isinstance(choose([asked(y, y, averages=False)], 1e-6, 1.0, exact_only=True).sums, Exact)
    both = choose([asked(y, y), asked(y, y, averages=False)], 1e-4, 1.0).sums
    assert both.grid is not None and both.nodes is not None and not both.nodes.fitted


def test_masked_tokens_get_blocks_of_positions():
    y = normal(50_000, 1)
    sums = choose([asked(y, y, masked=True)], 1e-6, 1.0).sums
    assert sums.prefix == planner.PREFIX_BLOCK and sums.far_keys == 0
    # Log-weights of a wide range do not leave room for that of the logits.
    wide = np.where(np.arange(50_000) == 3, -600.0, 0.0)
    assert not isinstance(choose([asked(y, y, wide, masked=True)], 1e-6, 1.0).sums, Exact)
    assert isinstance(choose([asked(8 * y, 8 * y, wide, masked=True)], 1e-6, 1.0).sums, Exact)


def test_clusters_apart():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 500)
    centres = np.asarray([[0.0, 0.0], [100.0, 0.0], [100.0, 50.0], [-9.0, 80.0]])
    found = clusters_apart(centres[labels] + rng.uniform(-1, 1, (500, 2)))
    assert found is not None and len(set(zip(labels, found, strict=True))) == len(set(found)) == 4
    assert clusters_apart(rng.uniform(-1, 1, (500, 2))) is None
    assert clusters_apart(np.ones((50, 2))) is None
    # Nine clusters are too many for pairs of grids.
    many = 4.0 ** (3 + np.arange(450) % 9)[:, None] + rng.uniform(-1, 1, (450, 1))
    assert clusters_apart(many) is None and len(set(clusters_apart(many, most=9))) == 9


# Whether it is kept


def largest_error(field, mu, plan):
    """At all tokens, relative to the field's scale."""
    exact, got = np.asarray(mf.velocity(field, mu)), np.asarray(mf.velocity(field, mu, accuracy=plan))
    return np.abs(got - exact).max() / np.sqrt((exact**2).sum(axis=1).mean())


def hidden(n=N):
    """A token that no sample sees: not drawn, not among the outermost."""
    points = normal(n, 1)
    drawn = np.random.default_rng(n).choice(n, RANDOM, replace=False)
    far = np.argsort(-np.abs(points[:, 0] - points.mean()))[:OUTERMOST]
    return points, next(i for i in range(n) if i not in drawn and i not in far)


def test_the_accuracy_is_kept_at_all_tokens(exact_sums_are_dear):
    """Also where a sample cannot see what matters: a heavy token, an outlier of tiny weight, an outlying query."""
    points, token = hidden()
    equal = np.full(N, 1 / N)
    heavy = np.where(np.arange(N) == token, 1e3, 1.0)
    light = np.where(np.arange(N) == token, 1e-250, 1.0)
    outlier = np.where(np.arange(N)[:, None] == token, 9.0, points)
    clouds = [(points, equal), (points, heavy), (outlier, light), (outlier, heavy), (points + 300.0, equal)]
    for cloud, weights in clouds:
        mu = mf.PointCloud(cloud, weights / weights.sum())
        plan = mf.plan(SOFTMAX, mu, 1e-5)
        assert not plan.exact and plan.error <= 1e-5
        assert largest_error(SOFTMAX, mu, plan) <= 1e-5


def test_an_accuracy_that_cannot_be_kept_is_not_promised(exact_sums_are_dear, monkeypatch):
    """A grid that is worse than its bound says is found out on the sample, and sums are exact."""
    mu = mf.PointCloud(normal(N, 1))
    honest = planner.reach_for
    monkeypatch.setattr(planner, "reach_for", lambda order, k, tolerance: honest(order, k, 1e-2))
    assert mf.plan(SOFTMAX, mu, 1e-9).exact


# Refusals


def test_refusals():
    mu = mf.PointCloud(normal(20, 1))
    for bad in (0.0, -1e-6, 0.1, 1e-13):
        assert_refused(lambda bad=bad: mf.plan(SOFTMAX, mu, bad), ["accuracy", f"{bad:g}", "1e-6"])
    assert_refused(lambda: mf.plan(SOFTMAX, mu, "fine"), ["accuracy"])
    traced = ["known numbers", "traced", "accuracy=plan"]
    assert_refused(lambda: jax.jit(lambda m: mf.velocity(SOFTMAX, m, accuracy=1e-6))(mu), traced)
    assert_refused(lambda: jax.jit(lambda a: mf.plan(SOFTMAX, mu, a).error)(jnp.asarray(1e-6)), ["accuracy", "traced"])
    run = lambda **options: mf.flow(SOFTMAX, mu, 1.0, **options)  # noqa: E731
    assert_refused(lambda: run(accuracy=1e-6, rtol=1e-6), ["rtol", "accuracy = 1e-06", "1e-05"])
    assert_refused(lambda: run(accuracy=-1.0), ["accuracy"])
    gaussian = mf.Gaussian(np.zeros(1), np.eye(1))
    assert_refused(lambda: mf.flow(SOFTMAX, gaussian, 1.0, accuracy=1e-6), ["accuracy", "PointCloud"])
    density = mf.to_density(gaussian, cells=80)
    assert_refused(lambda: mf.flow(SOFTMAX, density, 1.0, accuracy=1e-6), ["accuracy"])
    assert_refused(
        lambda: jax.jit(lambda m: mf.flow(SOFTMAX, m, 1.0, accuracy=1e-6).final.points)(mu), ["known numbers", "plan"]
    )


def test_plans_that_cannot_be_made_or_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("meanformer.reduce.plan.PAIR", 1.0)
    I = np.eye(2)
    field, tokens = mf.Softmax(I, I, I), mf.PointCloud(normal(300, 2))
    with pytest.raises(mf.InputError, match="sums over tokens"):
        mf.plan(field, mf.Gaussian(np.zeros(2), I))
    narrow = mf.Softmax(*[I.astype(np.float32)] * 3), mf.PointCloud(normal(300, 2).astype(np.float32))
    with pytest.raises(mf.InputError, match="too strict for the dtype"):
        mf.plan(*narrow, accuracy=1e-8)
    plan = mf.plan(field, tokens, 1e-4)
    with pytest.raises(mf.InputError, match="another cloud"):
        mf.velocity(field, mf.PointCloud(20 * tokens.points), accuracy=plan)
    for observers, words in (
        ({"mean": lambda mu, t: 0.0}, "kept anyway"),
        ({"one": lambda mu: 0.0}, "two arguments"),
        ({"numpy": lambda mu, t: float(np.median(np.asarray(mu.points)))}, "not known when it is compiled"),
        ({"word": lambda mu, t: "x"}, "one array"),
    ):
        with pytest.raises(mf.InputError, match=words):
            mf.flow(field, tokens, 1.0, sample=10, observers=observers)


def test_exact_plans_say_why():
    I = np.eye(4)
    assert "keys of dimension 4" in str(mf.plan(mf.Softmax(I, I, I), mf.PointCloud(normal(50, 4))))
    tied = mf.PointCloud(normal(50, 2), positions=np.zeros(50))
    assert "share positions" in str(mf.plan(mf.Causal(mf.Softmax(*[np.eye(2)] * 3)), tied))


def test_values_of_keys_hold_for_their_field_only(monkeypatch):
    """V = M K for one field; for another one the plan does not fit, and its sums are NaN."""
    monkeypatch.setattr("meanformer.reduce.plan.PAIR", 1.0)
    K, tokens = 0.3 * normal(3, 4), mf.PointCloud(normal(200, 4))
    plan = mf.plan(mf.Softmax(K, K, np.ones((4, 3)) @ K), tokens, 1e-4)
    assert plan.sums.mixes_keys and plan.error < 1e-4
    other = mf.Softmax(K, K, np.eye(4))
    with pytest.raises(mf.InputError, match="another field"):
        mf.velocity(other, tokens, accuracy=plan)
    assert np.isnan(jax.jit(lambda mu: mf.velocity(other, mu, accuracy=plan))(tokens)).all()


def test_float32_tokens_are_checked_in_float64(monkeypatch):
    """In float32 the exact sums of the check would have errors of 1e-6 themselves."""
    monkeypatch.setattr("meanformer.reduce.plan.PAIR", 1.0)
    narrow = mf.Softmax(*[np.eye(2, dtype=np.float32)] * 3), mf.PointCloud(normal(4000, 2).astype(np.float32))
    plan = mf.plan(*narrow, accuracy=1e-6)
    assert not plan.exact and plan.error < 1e-6

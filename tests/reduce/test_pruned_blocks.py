"""Exact sums over the blocks of tokens that count: what is left out is below the tolerance, for every query."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meanformer.reduce import exact, prune
from meanformer.reduce.exact import Tokens, dot, minus_squared_distance

N, BLOCK = 1536, 64


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (exact, prune):
        monkeypatch.setattr(module, "QUERY_BLOCK", BLOCK)
        monkeypatch.setattr(module, "KEY_BLOCK", BLOCK)


def clouds():
    """Queries, keys and weights for which one block or many count."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(N, 2))
    weights = 10.0 ** rng.uniform(-12, 0, N) * (np.arange(N) % 3 > 0)
    heavy = np.full(N, 1e-9)
    heavy[11] = 1.0
    outlier = np.where(np.arange(N)[:, None] == 5, 1e3, normal)
    clusters = 50 * rng.integers(0, 3, (N, 2)) + 0.1 * normal
    # As many tokens in each of 24 clusters as in a block, far apart on a diagonal.
    diagonal = rng.permutation(100 * (np.arange(N) // BLOCK - 11.5)[:, None] + rng.uniform(-1, 1, (N, 2)))
    return {
        "wide": (30 * normal, 30 * rng.normal(size=(N, 2)), np.ones(N)),
        "narrow": (0.3 * normal, normal, np.ones(N)),
        "weights of all sizes": (20 * normal, 20 * normal, weights),
        "one heavy token": (20 * normal, 20 * normal, heavy),
        "an outlier": (5 * normal, outlier, np.where(np.arange(N) == 5, 1e-30, 1.0)),
        "clusters": (clusters, clusters, np.ones(N)),
        "diagonal": (diagonal, diagonal, weights + 1e-12),
        "no tokens but one": (normal, normal, 1.0 * (np.arange(N) == 700)),
        "all equal": (np.ones((N, 2)), np.ones((N, 2)), np.ones(N)),
        "on a line": (normal * [50, 0], normal * [50, 0], np.ones(N)),
    }


@pytest.mark.parametrize("logit", [dot, minus_squared_distance])
def test_what_is_left_out_is_below_the_tolerance(small_blocks, logit):
    pruned = jax.jit(lambda q, tokens, tolerance: prune.pruned_average(logit, q, tokens, tolerance), static_argnums=2)
    values = np.random.default_rng(1).normal(size=(N, 2))
    shares = {}
    for name, (q, y, weights) in clouds().items():
        tolerance = 1e-4
        with np.errstate(divide="ignore"):
            logs = np.log(weights / weights.sum())
        tokens = Tokens(*map(jnp.asarray, (y, logs, values)))
        mean, total, share = pruned(jnp.asarray(q), tokens, tolerance)
        shares[name] = float(share)
        squares = (q**2).sum(1)[:, None] + (y**2).sum(1)[None]
        C = (q @ y.T if logit is dot else 2 * q @ y.T - squares) + logs[None]
        top = C.max(axis=1, keepdims=True)
        p = np.exp(C - top)
        want_total = top[:, 0] + np.log(p.sum(axis=1))
        want = p @ values / p.sum(axis=1, keepdims=True)
        # The dense logits are rounded: so are the sums here.
        rounding = 2.0**-50 * (1 + squares.max())
        away = np.maximum(np.abs(values.max(0) - want), np.abs(values.min(0) - want))
        assert (np.abs(mean - want) <= tolerance / (1 - tolerance) * away + rounding).all(), name
        lost = want_total - np.asarray(total)
        assert lost.min() >= -rounding and lost.max() <= -np.log1p(-tolerance) + rounding, name
    assert shares["narrow"] == shares["all equal"] == 1
    assert shares["diagonal"] == shares["no tokens but one"] == BLOCK / N
    assert shares["clusters"] < 0.7 and shares["wide"] < 0.9


def test_order_is_a_permutation_that_keeps_neighbours_together(small_blocks):
    """A lattice of 32 x 32, shuffled: the boxes of its blocks hardly overlap, whatever the units."""
    rng = np.random.default_rng(0)
    lattice = np.stack(np.meshgrid(np.arange(32.0), np.arange(32.0), indexing="ij"), -1).reshape(-1, 2)
    points = rng.permutation(lattice)
    for stretched in (points, np.exp(points / 4) * [1, 1e-6]):
        order = np.asarray(prune.order_of(jnp.asarray(stretched), BLOCK))
        assert sorted(order) == list(range(1024))
        blocks = points[order].reshape(16, BLOCK, 2)
        assert np.prod(np.ptp(blocks, axis=1) + 1, axis=1).sum() <= 1.5 * 32**2
    line = rng.normal(size=(100, 1))
    np.testing.assert_array_equal(prune.order_of(jnp.asarray(line), BLOCK), np.argsort(line[:, 0]))
    cube = jnp.asarray(rng.normal(size=(100, 3)))
    assert sorted(np.asarray(prune.order_of(cube, BLOCK))) == list(range(100))

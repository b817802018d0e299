"""The values of `support_bound`; that they bound anything is row 22 of MATH i, in tests/flows."""

from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.diagnostics.bounds import grown_radii

RNG = np.random.default_rng(72)
Q, K, V, W = (RNG.normal(size=(3, 3)) for _ in range(4))
TOKENS = mf.PointCloud(RNG.normal(size=(6, 3))).with_positions()
R0 = np.linalg.norm(np.asarray(TOKENS.points), axis=1).max()


def norm(M: np.ndarray) -> float:
    return float(np.linalg.norm(M, 2))


def bound(field: mf.AbstractField, t1: float = 0.5, t0: float = 0.0) -> float:
    return float(mf.support_bound(field, TOKENS, t1, t0))


@pytest.mark.parametrize("kind", [mf.Softmax, mf.L2, mf.Sinkhorn, mf.Sigmoid, mf.Hardmax])
def test_one_head(kind) -> None:
    field = kind(Q, K, V)
    np.testing.assert_allclose(bound(field), R0 * np.exp(0.5 * norm(V)), rtol=1e-13)
    np.testing.assert_allclose(bound(mf.Causal(field)), bound(field), rtol=1e-15)
    np.testing.assert_allclose(bound(field, t1=1.5, t0=1.0), bound(field), rtol=1e-13)
    np.testing.assert_allclose(bound(-2.0 * field), R0 * np.exp(norm(V)), rtol=1e-13)


def test_several_heads_add_up() -> None:
    U = RNG.normal(size=(3, 2))
    heads = [mf.Softmax(Q, K, V), mf.L2(Q, K, RNG.normal(size=(2, 3)))]
    rate = norm(W @ V) + norm(U @ np.asarray(heads[1].V))
    np.testing.assert_allclose(bound(mf.MultiHead(heads, W=[W, U])), R0 * np.exp(0.5 * rate), rtol=1e-13)
    total = mf.Softmax(Q, K, V) + mf.Affine(W)
    np.testing.assert_allclose(bound(total), R0 * np.exp(0.5 * (norm(V) + norm(W))), rtol=1e-13)


def test_biases() -> None:
    b = np.array([1.0, -2.0, 2.0])
    grown = np.exp(0.5 * norm(V))
    np.testing.assert_allclose(bound(mf.Softmax(Q, K, V, value_bias=b)), grown * (R0 + 0.5 * 3), rtol=1e-13)
    # Biases of queries and keys only move the attention, not the values.
    np.testing.assert_allclose(bound(mf.Softmax(Q, K, V, query_bias=b, key_bias=b)), grown * R0, rtol=1e-13)
    heads = mf.MultiHead([mf.Softmax(Q, K, V, value_bias=b)], W=[W])
    exact = np.exp(0.5 * norm(W @ V)) * (R0 + 0.5 * np.linalg.norm(W @ b))
    np.testing.assert_allclose(bound(heads), exact, rtol=1e-13)


def test_schedules_are_integrated() -> None:
    values = jnp.asarray(V)
    field = mf.Scheduled(lambda t: mf.Softmax(Q, K, jnp.exp(-t) * values))
    np.testing.assert_allclose(bound(field, 2.0, 0.5), R0 * np.exp(norm(V) * (np.exp(-0.5) - np.exp(-2))), rtol=1e-12)


def test_pieces_are_exact_and_only_those_that_are_met() -> None:
    field = mf.Piecewise([mf.Softmax(Q, K, V), mf.L2(Q, K, W), mf.Sigmoid(Q, K, V)], breaks=[0.3, 1.0])
    np.testing.assert_allclose(bound(field, 0.2), R0 * np.exp(0.2 * norm(V)), rtol=1e-13)
    np.testing.assert_allclose(bound(field, 0.8), R0 * np.exp(0.3 * norm(V) + 0.5 * norm(W)), rtol=1e-13)
    np.testing.assert_allclose(bound(field, 0.9, 0.4), R0 * np.exp(0.5 * norm(W)), rtol=1e-13)
    biased = mf.Piecewise([mf.Affine(0 * V, [0, 3, 4]), mf.Affine(V)], breaks=[0.25])
    np.testing.assert_allclose(bound(biased, 0.5), (R0 + 0.25 * 5) * np.exp(0.25 * norm(V)), rtol=1e-13)


def test_none_where_there_is_no_bound() -> None:
    fields = [
        mf.Linear(Q, K, V),
        mf.Unnormalised(Q, K, V),
        mf.Sigmoid(Q, K, V, per_token=True),
        mf.Perceptron(W, V),
        mf.PreNorm(mf.Softmax(Q, K, V)),
        mf.Softmax(Q, K, V) + mf.Linear(Q, K, V),
        mf.Piecewise([mf.Softmax(Q, K, V), mf.Linear(Q, K, V)], breaks=[0.1]),
    ]
    for field in fields:
        assert mf.support_bound(field, TOKENS, 1.0) is None


def test_invisible_tokens_do_not_count_and_it_differentiates() -> None:
    far = mf.PointCloud(jnp.concatenate([TOKENS.points, 100 * jnp.ones((1, 3))]), [1 / 6] * 6 + [0.0])
    assert float(mf.support_bound(mf.Softmax(Q, K, V), far, 0.5)) == pytest.approx(bound(mf.Softmax(Q, K, V)))
    slope = jax.grad(lambda t: mf.support_bound(mf.Softmax(Q, K, V), TOKENS, t))(0.5)
    np.testing.assert_allclose(float(slope), norm(V) * bound(mf.Softmax(Q, K, V)), rtol=1e-12)


def test_bounds_at_many_times():
    """Piece by piece as at one time."""
    late = mf.Scheduled(lambda t: mf.Softmax(Q, K, (0.1 + t**2) * V))
    field = mf.Piecewise([mf.Softmax(Q, K, V), late, mf.Softmax(Q, K, 0.3 * V)], breaks=[0.5, 0.8])
    times = jnp.asarray([0.1, 0.2, 0.5, 0.6, 0.8, 0.9, 1.3])
    found = grown_radii(field, TOKENS.radius, times[0], times)
    assert found is not None
    np.testing.assert_allclose(found, [bound(field, t, 0.1) for t in times], rtol=1e-12)
    np.testing.assert_array_less(found[:-1], found[1:])
    # A piece without a bound counts once it is met.
    wild = mf.Piecewise([mf.Softmax(Q, K, V), mf.Linear(Q, K, V)], breaks=[0.5])
    assert grown_radii(wild, TOKENS.radius, times[0], times[:3]) is not None
    assert grown_radii(wild, TOKENS.radius, times[0], times) is None


def test_a_cloud_at_the_origin_stays_there():
    """However long; and what grows beyond the range is infinite, or as small as it is."""
    origin, line = mf.PointCloud(np.zeros((3, 3))), mf.PointCloud([[1e-300, 0.0, 0.0]])
    field = mf.Softmax(Q, K, np.eye(3))
    for moved in (field, mf.Piecewise([field, mf.L2(Q, K, V)], breaks=[1000.0])):
        assert float(mf.support_bound(moved, origin, 2000.0)) == 0
    assert float(mf.support_bound(field, line, 2000.0)) == np.inf
    np.testing.assert_allclose(mf.support_bound(field, line, 1000.0), float(Decimal(1000).exp() / 10**300), rtol=1e-12)
    slope = jax.grad(lambda t, r: mf.support_bound(mf.Affine(np.eye(3)), mf.PointCloud([[r, 0.0, 0.0]]), t), (0, 1))
    for t in (1.0, 2000.0):
        np.testing.assert_array_equal(slope(t, 0.0), (0, 0))  # as that of |x| at 0

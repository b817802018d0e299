"""Identities of MATH i along flows and layers that the golden runs do not cover: rows 21, 22, 25 and 26.

Rows 10, 22, 27 and 28 along the golden trajectories are in test_golden_trajectories.py, row 52 in
test_sphere_flow.py.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from _cases import cloud, integrated, weights
from _golden import relative_error

import meanformer as mf
from meanformer.reduce import exact

TIGHT = {"rtol": 1e-9, "atol": 1e-12}


def every_masked_kind(seed: int = 0) -> mf.AbstractField:
    """One head of each kind that masks by a sum over visible tokens: a leak in any of them shows in the sum."""
    Q, K, V = weights(seed)
    kinds = (mf.Softmax, mf.L2, mf.Sigmoid, mf.Linear, mf.Unnormalised, mf.Hardmax)
    return mf.Causal(mf.MultiHead([kind(Q, K, V / 6) for kind in kinds]))


def later_changes_earlier(field: mf.AbstractField, tokens: mf.PointCloud, j: int, run) -> None:
    """Perturb token j; states of tokens with smaller positions keep their bits, the others move."""
    moved = tokens.with_points(tokens.points.at[j].add(jnp.asarray([0.3, -1.0, 2.0])))
    before, after = (np.asarray(run(field, mu).points) for mu in (tokens, moved))
    earlier = np.asarray(tokens.positions < tokens.positions[j])
    assert earlier.any() and not earlier.all()
    np.testing.assert_array_equal(before[:, earlier], after[:, earlier])
    assert (np.abs(before - after)[-1, ~earlier].max(axis=-1) > 1e-6).all()


def euler(field: mf.AbstractField, mu: mf.PointCloud) -> mf.Trajectory:
    return mf.flow(field, mu, 0.3, solver="euler", step=0.1, save=4)


def three_layers(field: mf.AbstractField, mu: mf.PointCloud) -> mf.Trajectory:
    return mf.layers(field, mu, 3, step=0.1)


@pytest.mark.parametrize("blocks", [(512, 1024), (4, 3)], ids=["one block", "many blocks"])
def test_row_21_causal_to_the_bit(blocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch, own_programs) -> None:
    monkeypatch.setattr(exact, "QUERY_BLOCK", blocks[0])
    monkeypatch.setattr(exact, "KEY_BLOCK", blocks[1])
    n = 11
    tokens = cloud(21, n).with_positions(np.repeat(np.arange(1, n + 1, 2), 2)[:n] / n)  # pairs of ties
    for j in (2, 6, n - 1):
        later_changes_earlier(every_masked_kind(), tokens, j, euler)


def test_row_21_causal_sinkhorn_to_the_bit() -> None:
    Q, K, V = weights(22)
    tokens = cloud(22, 6).with_positions([0.25, 0.25, 0.25, 0.5, 0.75, 1.0])
    for j in (3, 5):
        later_changes_earlier(mf.Causal(mf.Sinkhorn(Q, K, V)), tokens, j, three_layers)


def scheduled(t) -> mf.AbstractField:
    Q, K, V = (jnp.asarray(M) for M in weights(23))
    return mf.Softmax(Q, K, jnp.cos(3 * t) * V)


def bounded_fields(seed: int) -> dict[str, mf.AbstractField]:
    Q, K, V, W = weights(seed, count=4)
    heads = [mf.Softmax(Q, K, V), mf.L2(K, Q, W), mf.Sigmoid(Q, K, V, bias=-0.5, value_bias=[0.1, 0.0, -0.2])]
    return {
        "causal heads": mf.Causal(mf.MultiHead(heads, W=[W, V, -V])),
        "scheduled": mf.Scheduled(scheduled),
        "piecewise": mf.Piecewise([mf.L2(Q, K, V), mf.L2(Q, K, -V)], breaks=[0.4]),
        "hardmax": mf.Hardmax(Q, K, V),
    }


def check_radius(run: mf.Trajectory, field: mf.AbstractField, tokens: mf.PointCloud) -> None:
    for t, radius in zip(run.times[1:], run.states.radius[1:], strict=True):
        bound = mf.support_bound(field, tokens, t)
        assert bound is not None and float(radius) <= float(bound) + 1e-9


# Softmax itself is in test_golden_trajectories.py.
@pytest.mark.parametrize("name", bounded_fields(0))
def test_row_22_radius_along_flow(name: str) -> None:
    control = {"solver": "euler", "step": 0.02} if name == "hardmax" else TIGHT
    for seed in range(3):
        field, tokens = bounded_fields(seed)[name], cloud(seed).with_positions()
        check_radius(mf.flow(field, tokens, 2.0, save=6, **control), field, tokens)


@pytest.mark.parametrize("name", ["causal heads", "scheduled", "hardmax"])
def test_row_22_radius_along_layers(name: str) -> None:
    for seed in range(3):
        field, tokens = bounded_fields(seed)[name], cloud(seed).with_positions()
        check_radius(mf.layers(field, tokens, 8, step=0.25), field, tokens)


def test_row_22_is_sharp_and_can_fail() -> None:
    one = mf.PointCloud(np.tile([[3.0, 0.0, -4.0]], (10, 1)))
    I = np.eye(3)
    # A single point under V = I attains the bound.
    field = mf.Softmax(I, I, I)
    run = mf.layers(field, one, 64, step=1 / 64, save="final")
    bound = float(mf.support_bound(field, one, 1.0))
    np.testing.assert_allclose(bound, 5 * np.e, rtol=1e-14)
    np.testing.assert_allclose(float(run.final.radius), 5 * (1 + 1 / 64) ** 64, rtol=1e-13)
    # The kinds for which it is not claimed violate it, so the inequality is no empty test.
    for other in (mf.Linear(I, I, I), mf.Unnormalised(I, I, I, tau=100.0), mf.Sigmoid(I, I, I, per_token=True)):
        assert mf.support_bound(other, one, 1.0) is None
        assert float(mf.layers(other, one, 4, step=1 / 4).final.radius) > bound


@pytest.mark.parametrize("kind", [mf.Softmax, mf.L2, mf.Sigmoid, mf.Sinkhorn])
def test_row_25_layers_are_first_order(kind) -> None:
    field, tokens = kind(*weights(25)), cloud(25)
    limit = integrated(field, tokens, [1.0])[0]

    def layered(depth: int) -> mf.PointCloud:
        """32 layers after 32 layers: they compile once for all depths."""
        state = tokens
        for _ in range(depth // 32):
            state = mf.layers(field, state, 32, step=1 / depth, save="final").final
        return state

    errors = [float(jnp.abs(layered(depth).points - limit).max()) for depth in (32, 64, 128, 256)]
    orders = -np.diff(np.log2(errors))
    print(f"order of layers in 1/L, {kind.__name__:<8} {np.round(orders, 4)}")
    assert ((orders >= 0.9) & (orders <= 1.1)).all()


def rescaled_cases() -> dict[str, mf.AbstractField]:
    Q, K, V, W = weights(26, count=4)
    b = np.array([0.3, -0.2, 0.5])
    return {
        # one head is mixed inside the frame, several are not
        "one head with bias": 0.7 * mf.Sigmoid(Q, K, 2 * V, value_bias=b),
        "two heads": mf.MultiHead([mf.Softmax(Q, K, V), mf.L2(K, Q, W, value_bias=b)], W=[W, 2 * V]),
        "scheduled": mf.Scheduled(scheduled),
        "piecewise": mf.Piecewise([mf.Softmax(Q, K, V), mf.Softmax(Q, K, W)], breaks=[0.3]),
    }


@pytest.mark.parametrize("name", rescaled_cases())
def test_row_26_rescaled_frame(name: str) -> None:
    field, tokens = rescaled_cases()[name], cloud(26)
    # The last state is not among the saved ones: `original` knows it all the same.
    times = [0.1, 0.5, 0.9]
    rescaled = mf.flow(field, tokens, 1.0, save=times, rtol=1e-10, atol=1e-12, frame=mf.Rescaled())
    back = rescaled.original()
    exact = integrated(field, tokens, [*np.asarray(back.times), 1.0])
    assert relative_error(rescaled.points, exact[:-1]) > 1e-2
    assert relative_error(back.points, exact[:-1]) <= 1e-8
    assert relative_error(back.final.points, exact[-1]) <= 1e-8
    assert back.original() is back

"""Random numbers on the host are those of `jax.random`, and compile nothing."""

import jax
import jax.monitoring
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf
from meanformer import _draws as draws

KEYS = {
    "a seed": lambda: jr.key(0),
    "a large seed": lambda: jr.key(2**40 + 3),
    "folded in": lambda: jr.fold_in(jr.key(1), 2**32 - 1),
    "raw": lambda: jr.PRNGKey(5),
}
# Beyond one block of the hash; the last block is not full.
SHAPE = (draws.BLOCK, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KEYS)
def test_numbers_are_those_of_jax(name, dtype):
    key = KEYS[name]()
    for low in (0.0, -1.0):
        found = draws.uniform(key, SHAPE, dtype, low)
        assert found.dtype == dtype
        assert np.array_equal(found, jr.uniform(key, SHAPE, dtype, low, 1.0))
    # JAX inverts the error function to 1e-10 at 64 bits, SciPy to rounding.
    np.testing.assert_allclose(draws.normal(key, SHAPE, dtype), jr.normal(key, SHAPE, dtype), rtol=1e-9, atol=1e-9)
    assert draws.normal(key, SHAPE, dtype).dtype == dtype
    found = draws.exponential(key, SHAPE, dtype)
    np.testing.assert_allclose(found, jr.exponential(key, SHAPE, dtype), rtol=1e-5 if dtype == np.float32 else 1e-13)
    weights = np.array([0.25, 0.0, 0.5, 0.25], dtype)
    assert np.array_equal(draws.choice(key, weights, 1000), jr.choice(key, 4, (1000,), p=jnp.asarray(weights)))


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_those_of_jax(name):
    key = KEYS[name]()
    data = [np.asarray(jr.key_data(made)) for made in (*draws.split(key, 3), draws.fold_in(key, 2**32 - 5))]
    expected = [*jr.split(key, 3), jr.fold_in(key, 2**32 - 5)]
    assert np.array_equal(data, [np.asarray(jr.key_data(made)) for made in expected])


@pytest.mark.parametrize("bits", [0, 2**64 - 1])
def test_normal_numbers_are_finite_at_the_ends(bits, monkeypatch):
    monkeypatch.setattr(draws, "_bits", lambda words, count, size: np.full(count, bits, np.uint64))
    found = draws.normal(jr.key(0), (3,), np.float64)
    assert np.isfinite(found).all() and (np.abs(found) > 8).all()


def test_what_numpy_cannot_draw_is_left_to_jax():
    """Other generators, other settings of this one, small floats, and keys that are traced."""
    other = jr.key(0, impl="rbg")
    assert np.array_equal(draws.uniform(other, (5,), np.float64), jr.uniform(other, (5,)))
    assert np.array_equal(draws.normal(other, (5,), np.float64), jr.normal(other, (5,)))
    assert np.array_equal(jr.key_data(draws.split(other, 2)[1]), jr.key_data(jr.split(other, 2)[1]))
    assert np.array_equal(jr.key_data(draws.fold_in(other, 7)), jr.key_data(jr.fold_in(other, 7)))
    half = draws.uniform(jr.key(0), (5,), jnp.float16)
    assert half.dtype == jnp.float16 and np.array_equal(half, jr.uniform(jr.key(0), (5,), jnp.float16))
    with jax.threefry_partitionable(False):
        assert np.array_equal(draws.uniform(jr.key(0), (5,), np.float64), jr.uniform(jr.key(0), (5,)))


LAWS = {
    "ball": lambda: mf.uniform_ball(d=2, radius=2.0, centre=[1.0, 0.0]),
    "cube": lambda: mf.uniform_cube(d=2, low=-5, high=5),
    "sphere": lambda: mf.uniform_sphere(d=2),
    "gaussian": lambda: mf.Gaussian([1.0, 0.0], cov=[[2.0, 0.5], [0.5, 1.0]]),
    "mixture": lambda: mf.gaussian_mixture([[-2.0, 0.0], [2.0, 0.0]], covs=0.1),
    "explicit points": lambda: mf.empirical([[0.0, 1.0], [2.0, 2.0], [5.0, -1.0]], [0.5, 0.25, 0.25]),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_traced_key_draws_the_same_tokens(name):
    law = LAWS[name]()
    traced = jax.jit(lambda key: law.sample(6, key=key).points)(jr.key(3))
    np.testing.assert_allclose(traced, law.sample(6, key=jr.key(3)).points, rtol=1e-9, atol=1e-9)


def test_a_law_may_be_traced():
    """The derivative of a token in the place of its box: all tokens move with it."""
    slope = jax.jacobian(lambda shift: mf.uniform_cube(2, shift, shift + 1.0).sample(3, key=jr.key(0)).points)(0.5)
    np.testing.assert_allclose(slope, 1.0, rtol=1e-14)
    points = jnp.asarray([[0.0, 1.0], [2.0, 2.0]])
    grown = jax.jit(lambda scale: mf.PointCloud(scale * points).resample(4, key=jr.key(0)).points)(3.0)
    np.testing.assert_allclose(grown, 3 * mf.PointCloud(points).resample(4, key=jr.key(0)).points)


def test_drawing_compiles_nothing():
    """JAX itself compiles for each shape: the counter does count."""
    compiled = []

    def listener(event: str, seconds: float, **_) -> None:
        compiled.append(event)

    key, weights = jr.key(0), np.array([0.5, 0.5])
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        for n in range(101, 105):
            for draw in (draws.uniform, draws.normal, draws.exponential, draws.directions, draws.ball):
                assert draw(key, (n, 2), np.float64).shape == (n, 2)
            assert draws.choice(key, weights, n).shape == (n,)
            draws.split(key, n)
            draws.fold_in(key, n)
        assert compiled == []
        jr.uniform(key, (105, 2))
        assert compiled != []
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)

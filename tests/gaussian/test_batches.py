r"""Batches of combined fields, shared programmes, and growth whose law changes late."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.gaussian import fates as fates_module

I = np.eye(2)


def draws(n, seed=0):
    rng = np.random.default_rng(seed)
    Q, K, V = (jnp.asarray(rng.standard_normal((n, 2, 2))) for _ in range(3))
    return Q, K, V, mf.Gaussian(np.zeros((n, 2)), factor=rng.standard_normal((n, 2, 2)))


def same(a, b):
    np.testing.assert_array_equal(a.code, b.code)
    np.testing.assert_array_equal(a.rank, b.rank)
    blown = a.code == 2
    assert blown.any()
    np.testing.assert_allclose(a.time[blown], b.time[blown], rtol=1e-6)


def test_a_number_and_a_shared_part_are_for_all():
    Q, K, V, gaussians = draws(6)
    batch = jax.vmap(mf.Softmax)(Q, K, V)
    half = mf.fates(0.5 * batch, gaussians)
    whole = mf.fates(batch, gaussians)
    np.testing.assert_array_equal(half.code, whole.code)
    blown = half.code == 2
    # V -> V / 2 is t -> 2 t.
    np.testing.assert_allclose(half.time[blown], 2 * whole.time[blown], rtol=1e-6)
    outside = mf.fates(batch + mf.Affine(-I), gaussians)
    inside = mf.fates(jax.vmap(lambda Q, K, V: mf.Softmax(Q, K, V) + mf.Affine(jnp.asarray(-I)))(Q, K, V), gaussians)
    same(outside, inside)


def test_scaled_heads_with_outputs():
    Q, K, V, gaussians = draws(6)
    heads = mf.MultiHead([mf.Softmax(Q[0], K[0], V[0]), mf.Softmax(Q[1], K[1], V[1])], W=[I, 2 * I])
    plain = mf.MultiHead([mf.Softmax(Q[0], K[0], 2 * V[0]), mf.Softmax(Q[1], K[1], 4 * V[1])])
    same(mf.fates(2.0 * heads, gaussians), mf.fates(plain, gaussians))


def test_parts_of_another_length_are_refused():
    Q, K, V, gaussians = draws(6)
    batch = jax.vmap(lambda Q, K, V: mf.MultiHead([mf.Softmax(Q, K, V)], W=[jnp.eye(2)]))(Q, K, V)
    wrong = eqx.tree_at(lambda b: b.W, batch, (jnp.eye(2),))
    with pytest.raises(mf.InputError, match="as many"):
        mf.fates(wrong, gaussians)


def test_padding_changes_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    Q, K, V, L = (rng.standard_normal((8, 3, 3)) for _ in range(4))
    fields = jax.vmap(mf.Softmax)(*(jnp.asarray(a) for a in (Q, K, V)))
    gaussians = mf.Gaussian(np.zeros((8, 3)), factor=L)
    padded = mf.fates(fields, gaussians)
    monkeypatch.setattr(fates_module, "SMALL_BATCH", 0)
    same(padded, mf.fates(fields, gaussians))
    assert padded.limit.shape == (8, 3, 3)
    assert padded.slopes.shape == (8, 3)


def test_an_affine_part_hides_a_small_softmax_part():
    r"""From $\dot\sigma=2\sigma+2c\sigma^2$: $t^*=\frac12\log(1+1/(c\sigma_0))$."""
    one = np.ones((1, 1))
    for c, start in ((1e-10, 1.0), (1.0, 1e-12)):
        field = mf.Affine(one) + mf.Softmax(c * one, one, one)
        fate = mf.flow(field, mf.Gaussian([0.0], cov=[[start]]), t1=np.inf).fate
        assert fate.kind == "BLEW_UP"
        assert abs(fate.time - 0.5 * np.log1p(1 / (c * start))) <= fate.error < 1e-5


def test_l2_far_below_saturation_does_not_blow_up():
    r"""The kernel of K is not that of V, so that no bound of the speed is known; $\dot\sigma/\sigma\to2$ (MATH e.4)."""
    q = np.array([[1.0, 0.0]])
    fate = mf.flow(mf.L2(q, q, I), mf.Gaussian([0.0, 0.0], cov=1e-20 * I), t1=np.inf).fate
    assert fate.kind == "DIVERGED"
    assert abs(fate.growth - 2) < 1e-6


def test_a_run_that_fails_early_did_not_blow_up():
    """The weights stop being numbers at t = 0.1, long before the blow-up at t = 0.5."""
    q = jnp.array([[1.0, 0.0]])
    field = mf.Scheduled(lambda t: mf.Softmax(jnp.where(t < 0.1, 1.0, jnp.nan) * q, q, jnp.eye(2)))
    run = mf.flow(field, mf.Gaussian([0.0, 0.0], cov=I), 1.0)
    assert not run.outcome.ok
    assert run.fate.kind == "UNDECIDED"


def test_fates_are_not_traced():
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    with pytest.raises(mf.InputError, match="fates are found on the host"):
        jax.grad(lambda a: mf.fates(mf.Softmax(a * jnp.eye(2), jnp.eye(2), jnp.eye(2)), g).time[0])(1.0)

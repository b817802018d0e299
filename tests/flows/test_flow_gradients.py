"""Derivatives of functionals of the final state, and runs under jit and vmap."""

import functools
import operator

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from _cases import cloud, weights

import meanformer as mf

N, D = 5, 2
FIELDS = {
    "softmax": lambda Q, K, V: mf.Softmax(Q, K, V),
    "l2": lambda Q, K, V: mf.L2(Q, K, V),
    # Finite differences see the error of the potentials, so it is as small as can be.
    "sinkhorn": lambda Q, K, V: mf.Sinkhorn(Q, K, V, tol=1e-13),
    "sigmoid": lambda Q, K, V: mf.Sigmoid(Q, K, V, bias=0.3),
    "causal heads": lambda Q, K, V: mf.Causal(mf.MultiHead([mf.Softmax(Q, K, V), mf.L2(K, Q, V)], W=[V, K])),
}
TOKENS = cloud(4, N, D).with_positions()
POINT = {("tokens", "X"): TOKENS.points} | {
    (kind, name): jnp.asarray(M)
    for seed, kind in enumerate(FIELDS, 4)
    for name, M in zip("QKV", weights(seed, D), strict=True)
}
MARK = jnp.asarray(np.random.default_rng(4).normal(size=(N, D)))


def functional(*kinds: str, **options):
    """A smooth function of the final state, as a function of the weights of each kind and the initial points."""

    def value(p):
        heads = [FIELDS[kind](*(p[kind, name] for name in "QKV")) for kind in kinds]
        field = functools.reduce(operator.add, heads)
        final = mf.flow(field, TOKENS.with_points(p["tokens", "X"]), 0.5, save=2, **options).final
        return jnp.sum(jnp.sin(final.points) * MARK) + jnp.trace(final.covariance)

    return value


def directions(*kinds: str):
    """In each argument alone, one random direction."""
    rng = np.random.default_rng(5)
    for key in (("tokens", "X"), *((kind, name) for kind in kinds for name in "VQ")):
        yield key, {k: jnp.asarray(rng.normal(size=p.shape)) * float(k == key) for k, p in POINT.items()}


def along(gradient, direction) -> float:
    return float(sum(jnp.vdot(gradient[k], direction[k]) for k in direction))


@pytest.mark.parametrize("kinds", [("softmax",), pytest.param(tuple(FIELDS), marks=pytest.mark.nightly)])
def test_gradient_equals_finite_differences(kinds) -> None:
    # With a constant step the computed final state is itself a smooth function, so differences are sharp. All kinds
    # act at once, each with weights of its own: a wrong derivative of one shows in its own arguments.
    value_and_grad = jax.jit(jax.value_and_grad(functional(*kinds, step=0.1, max_steps=8)))
    _, gradient = value_and_grad(POINT)
    h = 1e-4
    for key, direction in directions(*kinds):
        shifted = {s: jax.tree.map(lambda p, v, s=s: p + s * h * v, POINT, direction) for s in (-2, -1, 1, 2)}
        f = {s: float(value_and_grad(p)[0]) for s, p in shifted.items()}
        difference = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)
        error = abs(along(gradient, direction) - difference) / max(1e-2, abs(difference))
        print(f"gradient in {' '.join(key):<14}: {difference:+.2e}, relative difference {error:.1e}")
        assert abs(difference) > 1e-3
        assert error <= 1e-8


def test_gradient_of_adaptive_run_and_forward_mode() -> None:
    # Reverse mode, forward mode and differences along the same direction, with error control.
    tight = {"rtol": 1e-10, "atol": 1e-12, "max_steps": 256}
    gradient = jax.jit(jax.grad(functional("softmax", **tight)))(POINT)
    forward = jax.jit(lambda v: jax.jvp(functional("softmax", adjoint=diffrax.ForwardMode(), **tight), (POINT,), (v,)))
    plain = functional("softmax", **tight)  # not traced: a run in segments
    h = 1e-3
    for _, direction in directions("softmax"):
        value, derivative = forward(direction)
        np.testing.assert_allclose(float(derivative), along(gradient, direction), rtol=1e-8)
        np.testing.assert_allclose(float(value), float(plain(POINT)), rtol=1e-9)
        up, down = (plain(jax.tree.map(lambda p, v, s=s: p + s * h * v, POINT, direction)) for s in (1, -1))
        np.testing.assert_allclose(float(derivative), float(up - down) / (2 * h), rtol=1e-4)


def test_vmap_over_clouds_of_different_lengths() -> None:
    Q, K, V = weights(6, D)
    clouds = [cloud(6, n, D) for n in (N, 3, 1)]
    field = mf.Softmax(Q, K, V)
    batch = mf.stack_clouds(clouds)
    runs = jax.jit(jax.vmap(lambda mu: mf.flow(field, mu, 1.0, save=3, rtol=1e-9, atol=1e-12)))(batch)
    assert runs.states.points.shape == (3, 3, N, D)
    np.testing.assert_array_equal(runs.outcome.code, 0)
    for b, single in enumerate(clouds):
        alone = mf.flow(field, mf.stack_clouds([single, clouds[0]])[0], 1.0, save=3, rtol=1e-9, atol=1e-12)
        for batched, expected in ((runs.states.points[b], alone.points), (runs.final.points[b], alone.final.points)):
            np.testing.assert_allclose(batched[..., : single.n, :], expected[..., : single.n, :], rtol=1e-8)
        np.testing.assert_array_equal(runs.states.weights[b, 1], batch.weights[b])
    # A single token moves along dx/dt = Vx, padded or not.
    exact = scipy.linalg.expm(V) @ np.asarray(clouds[2].points[0])
    np.testing.assert_allclose(runs.final.points[2, 0], exact, rtol=1e-8)


def test_vmap_over_temperatures_and_jit() -> None:
    Q, K, V = (2 * M for M in weights(7, D))

    def final(tau):
        return mf.flow(mf.Softmax(Q, K, V, tau), TOKENS, 1.0, save=2, rtol=1e-9, atol=1e-12).final.points

    taus = jnp.asarray([0.5, 1.0, 4.0])
    batched, jitted = jax.vmap(final)(taus), jax.jit(final)
    for tau, points in zip(taus, batched, strict=True):
        # Traced in one piece, or on the host in segments: the same run.
        np.testing.assert_allclose(points, final(float(tau)), rtol=1e-8)
        np.testing.assert_allclose(jitted(tau), final(float(tau)), rtol=1e-8)
    assert float(jnp.abs(batched[0] - batched[2]).max()) > 1e-2


def test_gradient_through_layers() -> None:
    def value(V):
        field = mf.Softmax(*(POINT["softmax", name] for name in "QK"), V)
        return jnp.sum(mf.layers(field, TOKENS, 4).final.points * MARK)

    gradient = jax.grad(value)(POINT["softmax", "V"])
    rng = np.random.default_rng(8)
    v, h = jnp.asarray(rng.normal(size=(D, D))), 1e-5
    difference = (value(POINT["softmax", "V"] + h * v) - value(POINT["softmax", "V"] - h * v)) / (2 * h)
    np.testing.assert_allclose(float(jnp.vdot(gradient, v)), float(difference), rtol=1e-8)

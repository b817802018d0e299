"""Tokens on a sphere: row 52 of MATH i, a closed form for two tokens, layers that normalise."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _cases import weights
from scipy.integrate import solve_ivp

import meanformer as mf

SPHERE = mf.Sphere()


def test_row_52_flow_stays_on_the_sphere_and_is_tangent() -> None:
    for seed in range(3):
        Q, K, V = (2 * M for M in weights(60 + seed))
        field = mf.Softmax(Q, K, V)
        tokens = mf.uniform_sphere(d=3).sample(10, key=jr.key(seed))
        run = mf.flow(field, tokens, 5.0, space=SPHERE, save=11)
        assert run.outcome.kind == "REACHED"
        norms = jnp.linalg.norm(run.points, axis=-1)
        assert float(jnp.abs(norms - 1).max()) <= 1e-10
        assert float(jnp.abs(jnp.linalg.norm(run.at(1.23).points, axis=-1) - 1).max()) <= 1e-10
        velocity = SPHERE.project(tokens.points, mf.velocity(field, tokens))
        assert float(jnp.abs((tokens.points * velocity).sum(-1)).max()) <= 1e-14
        # The unprojected velocity is not tangent, so the check can fail.
        assert float(jnp.abs((tokens.points * mf.velocity(field, tokens)).sum(-1)).max()) > 1e-2


def test_sphere_of_another_radius() -> None:
    sphere = mf.Sphere(2.5)
    tokens = mf.PointCloud(sphere.sample(10, 3, key=jr.key(5)))
    run = mf.flow(mf.Softmax(*weights(63)), tokens, 1.0, space=sphere, save=11)
    assert float(jnp.abs(jnp.linalg.norm(run.points, axis=-1) - 2.5).max()) <= 2.5e-10


def test_two_tokens_follow_the_ode_of_their_angle() -> None:
    # Q = K = V = I, weights 1/2 each, inverse temperature beta, c = x.y: token x moves towards y with speed
    # p sqrt(1 - c^2), p = e^{beta c} / (e^{beta} + e^{beta c}), and so does y: c' = 2 p (1 - c^2).
    beta, angle = 2.0, 2.0
    I = np.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    times = np.linspace(0, 4, 5)
    field = mf.Softmax(I, I, I, tau=1 / beta)
    run = mf.flow(field, tokens, 4.0, space=SPHERE, save=times, rtol=1e-9, atol=1e-12)

    def rate(_, c):
        return 2 * (1 - c**2) / (1 + np.exp(beta * (1 - c)))

    exact = solve_ivp(rate, (0, 4), [np.cos(angle)], t_eval=times, rtol=1e-11, atol=1e-13, method="DOP853").y[0]
    cosines = (run.points[:, 0] * run.points[:, 1]).sum(-1)
    np.testing.assert_allclose(cosines, exact, atol=1e-8)
    assert exact[-1] - exact[0] > 0.5
    # Both turn by the same angle: the bisector stays.
    middle = run.points.sum(axis=1)
    np.testing.assert_allclose(jnp.arctan2(middle[:, 1], middle[:, 0]), angle / 2, atol=1e-8)


def test_layers_on_the_sphere_normalise() -> None:
    Q, K, V = weights(64)
    field = mf.Softmax(Q, K, V)
    tokens = mf.uniform_sphere(d=3).sample(10, key=jr.key(7))
    run = mf.layers(field, tokens, 3, step=0.5, space=SPHERE)
    assert float(jnp.abs(jnp.linalg.norm(run.points, axis=-1) - 1).max()) <= 1e-14
    x = np.asarray(tokens.points)
    for state in np.asarray(run.points)[1:]:
        velocity = np.asarray(mf.velocity(field, mf.PointCloud(x)))
        x = x + 0.5 * (velocity - x * (x * velocity).sum(1, keepdims=True))
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        np.testing.assert_allclose(state, x, rtol=0, atol=1e-13)

"""The linearly implicit step: its orders, its stability, and flows of tokens with it."""

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf
from meanformer.rosenbrock import H, rodas5p_step


def circle(t, y):
    r"""Nonlinear and non-autonomous, with the solution $(\cos\frac{t^2}2,\sin\frac{t^2}2)$."""
    pull = 1 - y @ y
    return jnp.stack([-t * y[1] + pull * y[0], t * y[0] + pull * y[1] ** 2])


def on_circle(t):
    return np.stack([np.cos(t**2 / 2), np.sin(t**2 / 2)])


STEP = jax.jit(lambda t, y, h: rodas5p_step(circle, t, y, h, autonomous=False))


def slopes(steps, errors):
    return np.diff(np.log(errors)) / np.diff(np.log(steps))


def test_order_five():
    steps, errors = [1 / 8, 1 / 16, 1 / 32, 1 / 64], []
    for h in steps:
        y = jnp.asarray(on_circle(0.5))
        for i in range(round(1.5 / h)):
            y, _, _ = STEP(0.5 + i * h, y, h)
        errors.append(float(np.abs(y - on_circle(2.0)).max()))
    measured = slopes(steps, errors)
    print(f"order 5: measured {measured}, errors {errors}")
    assert errors[-1] < 1e-9 and (np.abs(measured[1:] - 5) < 0.25).all()


def test_error_estimate_and_dense_output():
    """One step from an exact point: the estimate and the state in between are off by O(h^5), the end by O(h^6)."""
    steps, t = [1 / 8, 1 / 16, 1 / 32, 1 / 64], 1.0
    u = np.linspace(0, 1, 21)[:, None]
    rows = []
    for h in steps:
        y0 = on_circle(t)
        y1, estimate, stages = (np.asarray(a) for a in STEP(t, jnp.asarray(y0), h))
        c = H @ stages
        between = (1 - u) * y0 + u * (y1 + (1 - u) * (c[0] + u * (c[1] + u * c[2])))
        np.testing.assert_allclose(between[[0, -1]], [y0, y1], rtol=1e-15)
        exact = on_circle(t + u[:, 0] * h).T
        rows.append([np.abs(a).max() for a in (y1 - exact[-1], estimate, between - exact)])
    end, estimate, dense = (slopes(steps, errors) for errors in zip(*rows, strict=True))
    print(f"one step: end {end}, estimate {estimate}, dense {dense}, errors {rows}")
    assert (np.abs(end[:2] - 6) < 0.5).all()
    assert (np.abs(estimate - 5) < 0.5).all()
    assert (np.abs(dense[1:] - 5) < 0.3).all()
    assert all(row[0] < row[1] for row in rows), "the estimate is that of the lower order: it is on the safe side"


def test_stiff_problems():
    """L-stable: y' = -1e6 (y - cos t) from a point far away is on its slow curve after a few long steps."""
    step = jax.jit(lambda t, y, h: rodas5p_step(lambda t, y: -1e6 * (y - jnp.cos(t)), t, y, h, autonomous=False))
    y, h = jnp.full(1, 7.0), 0.1
    for i in range(30):
        y, _, _ = step(i * h, y, h)
        t = (i + 1) * h
        if i >= 3:
            # The slow curve is cos t + 1e-6 sin t + O(1e-12).
            assert abs(float(y[0]) - np.cos(t) - 1e-6 * np.sin(t)) < 1e-7
    # The stability function vanishes at minus infinity, also on the way there, and is below 1 in modulus on the axis.
    rates = np.array([1e2, 1e4, 1e8, 1e12])
    decay = jax.jit(lambda h: rodas5p_step(lambda t, y: -jnp.asarray(rates) * y, jnp.zeros(()), jnp.ones(4), h)[0])
    factors = np.abs(decay(jnp.ones(())))
    assert (factors[1:] < 1e-2 * 1e4 / rates[1:]).all() and factors[0] < 0.1
    assert (np.diff(factors) < 0).all()
    turning = jax.jit(
        lambda w: rodas5p_step(lambda t, y: w * jnp.stack([-y[1], y[0]]), jnp.zeros(()), jnp.array([1.0, 0.0]), w / w)[
            0
        ]
    )
    for w in (0.3, 1.0, 3.0, 10.0, 100.0, 1e4):
        assert float(jnp.linalg.norm(turning(jnp.asarray(w)))) <= 1 + 1e-12


def test_linear_problem_is_the_stability_function():
    """On y' = M y the step is a rational function of hM, off the exponential by O(h^6); `autonomous` or not."""
    M = np.array([[-1.0, 2.0, 0.0], [-2.0, -1.0, 0.5], [0.0, 0.3, -4.0]])
    y = np.array([1.0, -0.5, 2.0])
    one, two = (
        jax.jit(lambda h, flag=flag: rodas5p_step(lambda t, y: M @ y, jnp.zeros(()), jnp.asarray(y), h, flag)[0])
        for flag in (True, False)
    )
    values, vectors = np.linalg.eig(M)
    errors = []
    for h in (1 / 8, 1 / 16, 1 / 32):
        exact = (vectors * np.exp(values * h)) @ np.linalg.solve(vectors, y)
        np.testing.assert_allclose(one(h), two(h), rtol=1e-14)
        errors.append(np.abs(one(h) - exact.real).max())
    assert errors[0] < 1e-6 and (slopes((1 / 8, 1 / 16, 1 / 32), errors) > 5.9).all(), errors


def test_batches_and_single_precision():
    starts = np.random.default_rng(3).normal(size=(3, 2))
    lengths = np.array([0.1, 0.2, 0.05])
    many = jax.jit(jax.vmap(lambda y, h: rodas5p_step(circle, jnp.ones(()), y, h, autonomous=False)))(starts, lengths)
    for i in range(3):
        for got, want in zip(many, STEP(1.0, jnp.asarray(starts[i]), lengths[i]), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-12, atol=1e-14)
    single = [jnp.asarray(a, jnp.float32) for a in (1.0, starts[0], 0.1)]
    got = STEP(*single)
    assert {a.dtype for a in got} == {jnp.dtype("float32")}
    np.testing.assert_allclose(got[0], many[0][0], rtol=1e-4)


def test_tokens():
    """Through `mf.flow`: the same tokens as an explicit solver, at steps, and between them."""
    rng = np.random.default_rng(4)
    Q, K, V = rng.normal(size=(3, 2, 2)) * 0.7
    tokens = mf.PointCloud(rng.normal(size=(4, 2)), [0.1, 0.2, 0.3, 0.4])
    field = mf.Softmax(Q, K, V)
    implicit, explicit = (
        mf.flow(field, tokens, 2.0, save=201, rtol=1e-9, atol=1e-12, solver=solver) for solver in ("rodas5p", "tsit5")
    )
    assert implicit.outcome.kind == explicit.outcome.kind == "REACHED"
    assert implicit.stats["steps"] < 100, "most save times lie inside steps, so that the dense output is seen"
    error = float(jnp.abs(implicit.points - explicit.points).max())
    print(f"rodas5p against tsit5: {error:.1e}, {implicit.stats['steps']} and {explicit.stats['steps']} steps")
    assert error < 1e-7

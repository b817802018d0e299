"""The linearly implicit step: its order, its error estimate, its values between steps, and stiff equations."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import meanformer as mf
from meanformer.flows.diffrax_solvers import Rodas5P
from meanformer.rosenbrock import rodas5p_step


def velocity(t, y):
    r"""Nonlinear, coupled, and moving in time; solved by $y=(1/(2-\sin t),\,e^{\cos t})$."""
    z = jnp.log(y[1]) - jnp.cos(t)
    w = y[0] - 1 / (2 - jnp.sin(t))
    return jnp.stack([y[0] ** 2 * jnp.cos(t) + 3 * z * y[1], -jnp.sin(t) * y[1] + w * y[1] - 2 * z * y[0]])


def exact(t):
    t = np.asarray(t)
    return np.stack([1 / (2 - np.sin(t)), np.exp(np.cos(t))], axis=-1)


STEP = jax.jit(lambda t, y, h: rodas5p_step(velocity, t, y, h, autonomous=False))
HALVED = 2.0 ** -np.arange(1, 5)


def slopes(errors):
    return np.log2(errors[:-1] / errors[1:])


def test_order_of_the_step_and_of_its_error_estimate():
    ends = []
    for h in HALVED:
        y = jnp.asarray(exact(0.3))
        for k in range(round(2 / h)):
            y, _, _ = STEP(0.3 + k * h, y, h)
        ends.append(np.abs(y - exact(2.3)).max())
    estimates = [float(jnp.abs(STEP(0.3, jnp.asarray(exact(0.3)), h)[1]).max()) for h in HALVED]
    print(f"order 5: {slopes(np.array(ends)).round(2)}; estimate: {slopes(np.array(estimates)).round(2)}")
    assert 4.8 < slopes(np.array(ends))[-1] < 5.3
    # The estimate is the difference to a solution of order 4, locally h^5.
    assert 4.7 < slopes(np.array(estimates))[-1] < 5.3


def test_order_between_steps():
    # Order 4: one step is off by h^5 in its inside.
    inside = np.linspace(0.05, 0.95, 10)

    @jax.jit
    def one(h):
        times = 0.3 + h * inside
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: velocity(t, y)),
            Rodas5P(),
            t0=jnp.asarray(0.3),
            t1=0.3 + h,
            dt0=h,
            y0=jnp.asarray(exact(0.3)),
            saveat=diffrax.SaveAt(ts=times, t1=True),
        )
        return solution.ys

    errors, ends = [], []
    for h in HALVED:
        found = np.asarray(one(h))
        errors.append(np.abs(found[:-1] - exact(0.3 + h * inside)).max())
        ends.append(np.abs(found[-1] - STEP(0.3, jnp.asarray(exact(0.3)), h)[0]).max())
    print(f"order 4 between steps: {slopes(np.array(errors)).round(2)}, {errors[-1]:.1e}")
    assert 4.7 < slopes(np.array(errors))[-1] < 5.4
    assert max(ends) < 1e-14


def test_the_stability_function():
    # y' = z y as a rotation in the plane: the first column of the step is R(z).
    def grows(z):
        M = jnp.stack([jnp.stack([z[0], -z[1]]), jnp.stack([z[1], z[0]])])
        return rodas5p_step(lambda t, y: M @ y, jnp.zeros(()), jnp.asarray([1.0, 0.0]), jnp.ones(()))[0]

    imaginary = np.concatenate([np.linspace(0.1, 40, 200), 10.0 ** np.arange(2, 9)])
    points = np.concatenate([1j * imaginary, -np.array([1e4, 1e6, 1e8]), -np.array([1e6, 1e8]) * np.exp(0.4j * np.pi)])
    small = 0.1 * np.exp(1j * np.linspace(0, np.pi, 7))
    points = np.concatenate([points, small])
    R = np.asarray(jax.jit(jax.vmap(grows))(np.stack([points.real, points.imag], axis=1))) @ np.array([1, 1j])
    assert (np.abs(R[:200]) <= 1 + 1e-13).all()  # A-stable
    assert (np.abs(R[200:-7]) * np.abs(points[200:-7]) < 20).all()  # and R(z) = O(1/z) at infinity
    # R(z) = e^z up to C z^6, with a small C: about 1e-6.
    assert (np.abs(R[-7:] - np.exp(small)) < 1e-5 * 0.1**6).all()


def test_a_stiff_equation_with_a_long_step():
    # y' = -1e6 (y - cos t): explicit steps of this length explode. Also from a start far off the slow solution.
    def stiff(t, y):
        return -1e6 * (y - jnp.cos(t)[None])

    step = jax.jit(lambda t, y, h: rodas5p_step(stiff, t, y, h, autonomous=False)[0])
    worst = []
    for start in (1.0, 3.0):
        y = jnp.full(1, start)
        errors = []
        for k in range(30):
            y = step(0.1 * k, y, 0.1)
            errors.append(abs(float(y[0]) - np.cos(0.1 * (k + 1))))
        worst.append((max(errors), errors[-1]))
    print(f"stiff: {worst}")
    assert worst[0][0] < 2e-6 and worst[1][0] < 1e-3 and worst[1][1] < 2e-6


def test_autonomous_steps_and_single_precision():
    def pendulum(t, y):
        return jnp.stack([y[1], -jnp.sin(y[0])])

    def step(autonomous):
        return jax.jit(lambda t, y, h: rodas5p_step(pendulum, t, y, h, autonomous))

    start = (jnp.asarray(2.0), jnp.asarray([0.7, -0.2]), jnp.asarray(0.3))
    with_term, without = step(False)(*start), step(True)(*start)
    for a, b in zip(with_term, without, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-16)
    single = step(False)(*(a.astype("float32") for a in start))
    for a, b in zip(single, with_term, strict=True):
        assert a.dtype == "float32"
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_tokens_flow_with_it():
    rng = np.random.default_rng(3)
    Q, K, V = (rng.normal(size=(2, 2)) / 2 for _ in range(3))
    start = rng.normal(size=(4, 2))
    times = np.linspace(0, 2, 7)

    def softmax(t, y):
        x = y.reshape(4, 2)
        P = np.exp((x @ Q.T) @ (x @ K.T).T * (1 + t))
        return ((P / P.sum(1, keepdims=True)) @ x @ V.T).ravel()

    reference = solve_ivp(softmax, (0, 2), start.ravel(), "DOP853", times, rtol=1e-12, atol=1e-13).y.T
    field = mf.Scheduled(lambda t: mf.Softmax(Q, (1 + t) * K, V))
    run = mf.flow(field, mf.PointCloud(start), 2.0, solver="rodas5p", rtol=1e-10, atol=1e-12, save=times)
    assert run.outcome.kind == "REACHED" and run.fate is None
    np.testing.assert_allclose(run.points, reference.reshape(7, 4, 2), rtol=0, atol=1e-9)

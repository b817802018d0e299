"""Finite runs of Gaussians: what they return, weights that move, stop rules, derivatives, blow-up, and bad calls."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanformer as mf

# MATH l.
MEAN, COV = np.array([0.5, -0.25]), np.array([[1.0, 0.3], [0.3, 0.5]])
Q, K = np.array([[0.6, -0.2], [0.1, 0.4]]), np.array([[0.5, 0.3], [-0.4, 0.7]])
V = np.array([[0.8, 0.2], [-0.1, 0.6]])
A, I = K.T @ Q, np.eye(2)
BLOW_UP = 1.7565682132  # with V = I
START = mf.Gaussian([0.0, 0.0], cov=COV)


def identity_flow(cov: np.ndarray, A: np.ndarray, t: float) -> np.ndarray:
    r"""$\Sigma(t)^{-1}=\Sigma_0^{-1}-t(A+A^\top)$ for softmax with $V=I$ (MATH e.3.1)."""
    return np.linalg.inv(np.linalg.inv(cov) - t * (A + A.T))


def solved(velocity: Any, mean: np.ndarray, cov: np.ndarray, times: Any) -> tuple[np.ndarray, np.ndarray]:
    r"""$\dot m=u$, $\dot\Sigma=G\Sigma+\Sigma G^\top$ by SciPy; `velocity(t, m, S)` gives $(u,G)$."""
    d = len(mean)

    def flat(t: float, y: np.ndarray) -> np.ndarray:
        m, S = y[:d], y[d:].reshape(d, d)
        u, G = velocity(t, m, S)
        return np.concatenate([u, (G @ S + S @ G.T).ravel()])

    start = np.concatenate([mean, cov.ravel()])
    y = solve_ivp(flat, (times[0], times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-14).y.T
    return y[:, :d], y[:, d:].reshape(-1, d, d)


def test_moving_weights_with_biases() -> None:
    # In R^3, from a factor of rank 2, and from t0 = 0.5; the covariance is integrated by SciPy (MATH i, row 34).
    rng = np.random.default_rng(5)
    Q, K, V, M = (rng.normal(size=shape) / 2 for shape in ((2, 3), (2, 3), (3, 3), (3, 3)))
    q, k, v, b = (rng.normal(size=n) / 2 for n in (2, 2, 3, 3))
    tau = 1.3

    def field_at(t: Any) -> Any:
        attention = mf.Softmax((1 + t) * Q, K, jnp.cos(t) * V, tau, query_bias=q, key_bias=k, value_bias=v)
        return attention + mf.L2(Q, K, V, tau, query_bias=q, key_bias=k, value_bias=v) + mf.Affine(M, b)

    def velocity(t: float, m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Qt, Vt = (1 + t) * Q, np.cos(t) * V
        gain = S @ K.T / tau
        H = 2 * S @ K.T @ np.linalg.inv(np.eye(2) + 2 * K @ S @ K.T / tau) / tau
        u = Vt @ (m + gain @ (Qt @ m + q)) + v + V @ (m + H @ (Q @ m + q - K @ m - k)) + v + M @ m + b
        return u, Vt @ gain @ Qt + V @ H @ Q + M

    mean, L = rng.normal(size=3), rng.normal(size=(3, 2)) / 2
    times = np.array([0.5, 0.7, 1.2, 1.21, 1.5])
    means, covs = solved(velocity, mean, L @ L.T, times)
    start = mf.Gaussian(mean, factor=L)
    run = mf.flow(mf.Scheduled(field_at), start, 1.5, t0=0.5, save=times, rtol=1e-10)
    assert run.outcome.kind == "REACHED" and float(run.outcome.time) == 1.5
    np.testing.assert_array_equal(run.times, times)
    scale = np.abs(covs).max()
    print(
        f"worst: {np.abs(run.states.covariance - covs).max() / scale:.1e}, {np.abs(run.states.mean - means).max():.1e}"
    )
    np.testing.assert_allclose(run.states.mean, means, rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.states.covariance, covs, rtol=0, atol=1e-8 * scale)
    # What a run returns.
    np.testing.assert_array_equal(run.final.mean, run.states.mean[-1])
    np.testing.assert_array_equal(run.final.factor, run.states[-1].factor)
    np.testing.assert_array_equal(run.at(1.2).covariance, run.states[2].covariance)
    between = solved(velocity, mean, L @ L.T, np.array([0.5, 1.205]))
    np.testing.assert_allclose(run.at(1.205).mean, between[0][1], rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.at(1.205).covariance, between[1][1], rtol=0, atol=1e-8 * scale)
    data = run.to_xarray()
    assert dict(data.sizes) == {"time": 5, "coordinate": 3, "coordinate_": 3, "column": 2}
    np.testing.assert_allclose(data.covariance.sel(time=1.2), covs[2], rtol=0, atol=1e-8 * scale)
    assert data.attrs["outcome"] == str(run.outcome) and data.attrs["fate"] == str(run.fate)
    steps = run.stats["steps"]
    assert run.summary().startswith(f"Scheduled, a Gaussian in R^3: {steps} steps; REACHED at t = 1.5")
    assert repr(run) == f"<Trajectory: {run.summary()}>" and "UNDECIDED" in repr(run)
    assert run.fate.kind == "UNDECIDED" and run.fate.rank is None and "t1=jnp.inf" in run.fate.evidence


def test_pieces_and_blow_up() -> None:
    # All of one shape, hence one compiled run: ten saved times and the break.
    attract, repel = mf.Softmax(Q, -K, I), mf.Softmax(Q, K, I)
    run = mf.flow(mf.Piecewise([attract, repel], [0.45]), START, 1.0, save=10, rtol=1e-10)
    assert run.times.shape == (11,) and 0.45 in np.asarray(run.times)
    middle = identity_flow(COV, -A, 0.45)
    for t, cov in zip(np.asarray(run.times), np.asarray(run.states.covariance), strict=True):
        exact = identity_flow(COV, -A, t) if t <= 0.45 else identity_flow(middle, A, t - 0.45)
        np.testing.assert_allclose(cov, exact, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.at(0.45).covariance, middle, rtol=0, atol=1e-9)
    # A list of fields: equal pieces of the time span.
    listed = mf.flow([attract, repel], START, 0.9, save=10, rtol=1e-10)
    np.testing.assert_allclose(listed.final.covariance, identity_flow(middle, A, 0.45), rtol=0, atol=1e-9)

    for t0, rtol in ((0.0, 1e-8), (5.0, 1e-10)):
        run = mf.flow(repel, START, t0 + 3.0, t0=t0, save=11, rtol=rtol)
        assert run.outcome.kind in ("STEP_TOO_SMALL", "NOT_FINITE") and not run.outcome.ok
        assert run.fate.kind == "BLEW_UP" and abs(run.fate.exponent - 1) < 1e-3
        assert abs(run.fate.time - t0 - BLOW_UP) <= run.fate.error < 1e-5
        assert "BLEW_UP at t* = " in run.summary()
        # What is saved is finite and, before the blow-up, exact.
        assert np.isfinite(run.states.factor).all() and np.isfinite(run.final.covariance).all()
        early = np.asarray(run.times) - t0 < 0.9 * BLOW_UP
        assert early.sum() == 6
        for t, cov in zip(np.asarray(run.times)[early] - t0, np.asarray(run.states.covariance)[early], strict=True):
            np.testing.assert_allclose(cov, identity_flow(COV, A, t), rtol=1e-6)
    # A run that ends before says nothing of what comes.
    assert mf.flow(repel, START, 1.0, save=11).fate.kind == "UNDECIDED"
    limited = mf.flow(repel, START, 1.0, save=11, max_steps=3)
    assert limited.outcome.kind == "STEP_LIMIT" and limited.fate.kind == "UNDECIDED"


class Below(eqx.Module):
    """A user's rule with a number in it."""

    level: Any

    def __call__(self, mu: Any, t: Any) -> Any:
        return mu.covariance[0, 0] < self.level


def test_stop_rules() -> None:
    # Commuting weights: variances s / (1 - 2 a s t), a = 1 or -1 (MATH e.3.3). With a constant step the run ends at the
    # first step after the rule holds.
    s, h = np.array([2.0, 0.5]), 1 / 128
    start = mf.Gaussian([0.0, 0.0], cov=np.diag(s))
    never = (mf.Stationary(1e-100), mf.RadiusAbove(1e100), Below(-1.0))

    def ends(a: float, which: int, rule: Any) -> float:
        rules = [rule if i == which else other for i, other in enumerate(never)]
        run = mf.flow(mf.Softmax(a * I, I, I), start, 8.0, solver="tsit5", step=h, save=5, stop=rules)
        assert run.outcome.kind == "STOPPED" and run.outcome.ok and run.fate.kind == "UNDECIDED"
        assert float(run.times[-1]) == float(run.outcome.time)
        return float(run.outcome.time)

    def first(condition: Any, a: float) -> float:
        times = h * np.arange(1, 1025)
        return next(t for t in times if condition(s / (1 - 2 * a * s * t)))

    speed = first(lambda v: np.sqrt(((2 * v**2) ** 2).sum()) < 0.02, -1.0)
    assert abs(ends(-1.0, 0, mf.Stationary(0.02)) - speed) < 1e-12 and speed > 1
    radius = first(lambda v: np.sqrt(v.sum()) > 3.0, 1.0)
    assert abs(ends(1.0, 1, mf.RadiusAbove(3.0)) - radius) < 1e-12 and radius > 0.1
    level = first(lambda v: v[0] < 0.3, -1.0)
    assert abs(ends(-1.0, 2, Below(0.3)) - level) < 1e-12 and level > 1


def test_derivatives_of_many_runs_at_once() -> None:
    factors = np.linalg.cholesky(COV) * np.array([0.5, 1.1])[:, None, None]

    def trace(V: Any, L: Any) -> Any:
        run = mf.flow(mf.Softmax(Q, K, V), mf.Gaussian(MEAN, factor=L), 1.0, save=2, rtol=1e-10, atol=1e-12)
        return jnp.trace(run.final.covariance) + run.final.mean[0], run.outcome.code

    def reference(V: np.ndarray, L: np.ndarray) -> float:
        def velocity(t: float, m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return V @ (m + S @ A @ m), V @ S @ A

        means, covs = solved(velocity, MEAN, L @ L.T, np.array([0.0, 1.0]))
        return np.trace(covs[-1]) + means[-1, 0]

    both = jax.vmap(jax.value_and_grad(trace, has_aux=True), in_axes=(None, 0))
    (values, codes), slopes = jax.jit(both)(V, factors)
    assert (codes == mf.Ending.REACHED).all()
    h, E = 1e-3, np.array([[1.0, -0.3], [0.4, 0.7]])
    for L, value, slope in zip(factors, values, slopes, strict=True):
        np.testing.assert_allclose(value, reference(V, L), rtol=1e-9)
        near, far = (reference(V + n * h * E, L) - reference(V - n * h * E, L) for n in (1, 2))
        np.testing.assert_allclose((slope * E).sum(), (8 * near - far) / (12 * h), rtol=1e-7)


def test_single_precision() -> None:
    field = mf.Softmax(*(M.astype("float32") for M in (Q, K, I)))
    run = mf.flow(field, mf.Gaussian(np.zeros(2, "float32"), cov=COV.astype("float32")), 1.0, save=3)
    assert run.outcome.kind == "REACHED"
    for array in (run.times, run.states.mean, run.states.factor, run.final.covariance, run.outcome.time):
        assert array.dtype == "float32"
    np.testing.assert_allclose(run.final.covariance, identity_flow(COV, A, 1.0), rtol=1e-3)


SOFTMAX = mf.Softmax(Q, K, V)
INF = jnp.inf


def _under_jit() -> Any:
    return jax.jit(lambda L: mf.flow(SOFTMAX, mf.Gaussian(MEAN, factor=L), INF).final.mean)(I)


BAD_CALLS = {
    "frame": (lambda: mf.flow(SOFTMAX, START, 1.0, frame=mf.Rescaled()), "in the original frame", "push the states"),
    "sphere": (lambda: mf.flow(SOFTMAX, START, 1.0, space=mf.Sphere()), "on a sphere", "flow tokens"),
    "dimension": (lambda: mf.flow(SOFTMAX, mf.Gaussian(np.zeros(3), cov=np.eye(3)), 1.0), "does not fit", "3 columns"),
    "batch": (
        lambda: mf.flow(SOFTMAX, mf.Gaussian(np.zeros((2, 2)), factor=np.ones((2, 2, 2))), 1.0),
        "one Gaussian at a time",
        "jax.vmap",
    ),
    "sigmoid": (lambda: mf.flow(mf.Sigmoid(I, I, I), START, 1.0), "Sigmoid does not preserve", "flow tokens"),
    "late sigmoid": (
        lambda: mf.flow(mf.Piecewise([SOFTMAX, mf.Sigmoid(I, I, I)], [0.5]), START, 1.0),
        "Sigmoid does not preserve",
        "flow tokens",
    ),
    "backwards": (lambda: mf.flow(SOFTMAX, START, -1.0), "forward in time", "-1.0 * field"),
    "tokens to inf": (lambda: mf.flow(SOFTMAX, mf.PointCloud(I), INF), "t1 must be finite", "mf.Stationary"),
    "solver to inf": (lambda: mf.flow(SOFTMAX, START, INF, solver="tsit5"), "no solver", "leave out solver"),
    "step to inf": (lambda: mf.flow(SOFTMAX, START, INF, step=0.1), "no step", "leave out step"),
    "atol to inf": (lambda: mf.flow(SOFTMAX, START, INF, atol=1e-9), "no atol", "leave out atol"),
    "adjoint to inf": (
        lambda: mf.flow(SOFTMAX, START, INF, adjoint=diffrax.ForwardMode()),
        "no adjoint",
        "leave out adjoint",
    ),
    "rule to inf": (
        lambda: mf.flow(SOFTMAX, START, INF, stop=lambda mu, t: t > 1),
        "stops at its fate",
        "finite t1 for other rules",
    ),
    "times to inf": (lambda: mf.flow(SOFTMAX, START, INF, save=[0.0, 1.0]), "those of the steps", "save=101"),
    "schedule to inf": (
        lambda: mf.flow(mf.Scheduled(lambda t: SOFTMAX), START, INF),
        "does not depend on time",
        "finite t1",
    ),
    "traced to inf": (_under_jit, "found on the host", "mf.fates"),
    "rtol": (lambda: mf.flow(SOFTMAX, START, 1.0, rtol=1e-17), "too strict for the dtype", "loosen rtol"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name: str) -> None:
    call, what, remedy = BAD_CALLS[name]
    with pytest.raises(mf.InputError) as caught:
        call()
    assert what in caught.value.what and remedy in caught.value.remedy
    assert isinstance(caught.value, mf.NotGaussianPreserving) == ("sigmoid" in name)

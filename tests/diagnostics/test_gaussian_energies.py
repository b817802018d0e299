"""Energies of Gaussians, and attention as their gradient flow."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.diagnostics.energy import e0_energy, gaussian_energy, l2_energy, ot_energy, softmax_energy
from oracles import golden
from oracles.refusals import assert_refused

GOLDEN = {name: case for name, case in golden.load("energies").items() if name.startswith("gauss")}
TAU = 1.6


def draw(seed=0, d=3, width=None):
    rng = np.random.default_rng(seed)
    return mf.Gaussian(np.zeros(d), factor=0.7 * rng.normal(size=(d, width or d)))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    case = GOLDEN[name]
    g = mf.Gaussian(case["m"], factor=case["L"])
    np.testing.assert_allclose(ot_energy(case["B"], g), case["OT"], rtol=1e-12)
    np.testing.assert_allclose(softmax_energy(case["B"], g), case["F_softmax"], rtol=1e-12)
    np.testing.assert_allclose(l2_energy(case["K"], g), case["F_l2"], rtol=1e-12)


def test_worked_number():
    g = mf.Gaussian([0.5, -0.25], cov=[[1.0, 0.3], [0.3, 0.5]])
    np.testing.assert_allclose(ot_energy([[0.26, -0.26], [0.25, 0.22]], g), -0.1473180058, atol=1e-10)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 2e-15), ("float32", 1e-6)])
@pytest.mark.parametrize("size", [1e-9, 1e-8, 1e-6, 1e-3, 0.1, 0.499, 0.501, 2.0, 1e3])
def test_l2_energy_of_any_size(size, dtype, rtol):
    """-(s^2 - log(1 + 2 s^2) / 2) / 2 in decimals, and its derivative -2 s^3 / (1 + 2 s^2)."""
    s = Decimal(float(jnp.asarray(size, dtype)))
    with localcontext() as context:
        context.prec = 60
        energy, slope = -(s**2 - (1 + 2 * s**2).ln() / 2) / 2, -2 * s**3 / (1 + 2 * s**2)

    def of(deviation):
        factor = deviation * jnp.asarray([[1.0, 0.0], [0.0, 0.0]], dtype)  # and a direction of variance 0
        return l2_energy(jnp.eye(2, dtype=dtype), mf.Gaussian(jnp.zeros(2, dtype), factor=factor))

    found, derivative = jax.value_and_grad(of)(jnp.asarray(size, dtype))
    assert float(found) == pytest.approx(float(energy), rel=rtol, abs=0)
    assert float(derivative) == pytest.approx(float(slope), rel=10 * rtol, abs=0)


def test_l2_energy_of_a_product_beyond_the_range_and_of_parts_beyond_it():
    wide = mf.Gaussian(np.zeros(2), factor=np.diag([1e200, 1e-200]))
    assert l2_energy(np.full((3, 2), 1e200), wide) == -np.inf
    exact = -(2 - np.log(3)) / 2  # s = 1, as in the docstring
    for K in ([[0.0, 1e200]], [[1e-200, 0.0]], [[0.0, 1e200], [0.0, 0.0]]):
        np.testing.assert_allclose(l2_energy(K, wide), exact / 2, rtol=1e-14)


# The fields whose Gaussians descend an energy, and G of MATH e.2 for each

RNG = np.random.default_rng(45)
Q2, TURN = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 3))
SYMMETRIC, TURN = 0.5 * (TURN + TURN.T), 2 * (TURN - TURN.T)


def softmax_speed(field, L):
    return np.asarray(field.V @ L @ L.T @ field.A / TAU)


def l2_speed(field, L):
    S = L @ L.T
    Q, K = (np.asarray(M) / np.sqrt(TAU) for M in (field.Q, field.K))
    return np.asarray(field.V) @ (2 * S @ K.T) @ np.linalg.solve(np.eye(len(K)) + 2 * K @ S @ K.T, Q)


def sinkhorn_speed(field, L):
    B = np.asarray(field.B)
    U, s, _ = np.linalg.svd(L.T @ B @ L)
    return np.asarray(field.V) @ L @ (U * (2 / (1 + np.sqrt(1 + 4 * s**2)))) @ U.T @ L.T @ B


I3 = np.eye(3)
FLOWS = {
    "softmax symmetric": (mf.Softmax(SYMMETRIC, I3, 0.8 * SYMMETRIC, TAU), softmax_speed),
    "softmax antisymmetric": (mf.Softmax(TURN, I3, 0.8 * TURN.T, TAU), softmax_speed),
    "l2 same": (mf.L2(Q2, Q2, 0.8 * Q2.T @ Q2, TAU), l2_speed),
    "l2 opposite": (mf.L2(-Q2, Q2, -0.8 * Q2.T @ Q2, TAU), l2_speed),
    "sinkhorn dot": (mf.Sinkhorn(SYMMETRIC, I3, 0.8 * SYMMETRIC, TAU), sinkhorn_speed),
    "sinkhorn distance": (mf.Sinkhorn(Q2, -Q2, 0.8 * -Q2.T @ Q2, TAU, "distance"), sinkhorn_speed),
}


def gradient(energy, S, h=2e-4):
    r"""$\nabla F$ by central differences of order four, $dF=\operatorname{tr}(\nabla F\,dS)$."""
    slopes = np.zeros_like(S)
    for i, j in zip(*np.triu_indices(len(S)), strict=True):
        E = np.zeros_like(S)
        E[i, j] = E[j, i] = h
        near, far = (energy(S + n * E) - energy(S - n * E) for n in (1, 2))
        slopes[i, j] = slopes[j, i] = (8 * near - far) / (12 * h) / (1 if i == j else 2)
    return slopes


@pytest.mark.parametrize("name", FLOWS)
def test_speed_is_minus_twice_the_gradient(name):
    """Row 45."""
    field, speed = FLOWS[name]
    g = draw()
    S, G = np.asarray(g.covariance), speed(field, np.asarray(g.factor))
    energy = gradient(lambda S: float(gaussian_energy(field, mf.Gaussian(np.zeros(3), cov=S))), S)
    np.testing.assert_allclose(-2 * energy, G, rtol=0, atol=1e-7 * np.linalg.norm(G))


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("width", [2, 5])
def test_descent(name, width):
    r"""$\dot F=-\operatorname{tr}(G\Sigma G^\top)$ along $L\to(I\pm hG)L$, and by JAX: the gradient in $L$ is $-GL$."""
    field, speed = FLOWS[name]
    g, h = draw(1, width=width), 1e-5
    G = speed(field, np.asarray(g.factor))
    after, before = (gaussian_energy(field, g.push(np.eye(3) + s * h * G)) for s in (1, -1))
    loss = -np.trace(G @ g.covariance @ G.T)
    assert loss < -1e-3
    np.testing.assert_allclose((after - before) / (2 * h), loss, rtol=1e-6)
    by_jax = jax.grad(lambda L: gaussian_energy(field, mf.Gaussian(np.zeros(3), factor=L)))(g.factor)
    np.testing.assert_allclose(by_jax, -G @ g.factor, rtol=0, atol=1e-9 * np.linalg.norm(G))


def test_energies_of_fields_by_their_formulas():
    g = mf.Gaussian([0.3, -1.0, 0.5], factor=draw(2).factor)
    S = np.asarray(g.covariance)
    A = SYMMETRIC / TAU  # V = 0.8 tau A
    np.testing.assert_allclose(
        gaussian_energy(FLOWS["softmax symmetric"][0], g), -0.8 * TAU / 4 * np.trace(A @ S @ A @ S), rtol=1e-12
    )
    expected = 0.8 * TAU / 2 * ot_energy(A, g)  # the mean counts
    np.testing.assert_allclose(gaussian_energy(FLOWS["sinkhorn dot"][0], g), expected, rtol=1e-12)
    assert abs(float(expected) - 0.8 * TAU / 2 * float(ot_energy(A, draw(2)))) > 1e-3
    N = Q2 @ S @ Q2.T / TAU
    l2 = -0.8 * TAU / 2 * (np.trace(N) - np.linalg.slogdet(np.eye(2) + 2 * N)[1] / 2)
    for name in ("l2 same", "l2 opposite"):
        np.testing.assert_allclose(gaussian_energy(FLOWS[name][0], g), l2, rtol=1e-12)


def test_mean_descends_the_transport_energy():
    r"""Sinkhorn with $V=cB$: $\dot m=Vm$ is minus the gradient of $\frac c2\mathrm{OT}_B$ in the mean."""
    field, m = FLOWS["sinkhorn dot"][0], jnp.array([0.3, -1.0, 0.5])
    slope = jax.grad(lambda m: gaussian_energy(field, mf.Gaussian(m, factor=I3)))(m)
    np.testing.assert_allclose(-slope, field.V @ m, rtol=1e-12)


def test_nothing_moves():
    zero = np.zeros((3, 3))
    for field in (mf.Softmax(zero, I3, I3), mf.L2(zero, zero, I3), mf.Sinkhorn(zero, I3, I3)):
        assert float(gaussian_energy(field, draw())) == 0
    dirac = mf.Gaussian(np.zeros(3), factor=np.zeros((3, 1)))
    assert all(float(gaussian_energy(field, dirac)) == 0 for field, _ in FLOWS.values())


def test_derivative_at_equal_and_at_zero_singular_values():
    for L in (jnp.eye(3), jnp.zeros((3, 3)), jnp.diag(jnp.array([1.0, 1.0, 0.0]))):
        S = np.asarray(L)
        slope = jax.grad(lambda L: ot_energy(I3, mf.Gaussian(np.zeros(3), factor=L)))(L)
        # dOT/dsigma = -(r - 1) / (2 sigma) in each direction, and sigma = l^2: -(r - 1) / l.
        np.testing.assert_allclose(slope, -(np.sqrt(5) - 1) * S, atol=1e-14)


def test_small_covariances_keep_their_digits():
    r"""$\mathrm{OT}_B\approx-\frac12\|M\|_F^2$."""
    g = mf.Gaussian(np.zeros(2), factor=1e-5 * np.eye(2))
    np.testing.assert_allclose(ot_energy(np.diag([1.0, 2.0]), g), -0.5 * 5e-20, rtol=1e-12)


# E_0


@pytest.mark.parametrize("m", [0.0, 0.6])
def test_e0_on_the_line(m):
    """Against Gauss-Hermite quadrature in both variables."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights, x, a = weights / weights.sum(), m + 0.5 * nodes, 1.3
    expected = 0.5 * np.einsum("i,j,ij->", weights, weights, np.exp(a * np.outer(x, x)))
    np.testing.assert_allclose(e0_energy([[a]], mf.Gaussian([m], factor=[[0.5]])), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1e16, 1e100, 1e300])
def test_what_is_not_seen_may_be_of_any_size(size):
    g = mf.Gaussian(np.zeros(2), factor=np.diag([size, 1.0]))
    assert mf.softmax_energy(np.diag([0.0, 1.0]), g) == -0.25


def test_e0_in_the_plane():
    """A general A, a mean, and a wide factor, against quadrature in one variable: the other integral is Gaussian."""
    A, m, L = np.array([[0.3, -0.5], [0.2, 0.4]]), np.array([0.4, -0.3]), np.array([[0.5, 0.2, 0.1], [0.0, 0.6, -0.3]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    half = np.linalg.cholesky(L @ L.T)
    x = m + np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2) @ half.T
    inner = np.exp(x @ A.T @ m + 0.5 * ((x @ A.T @ half) ** 2).sum(1))
    expected = 0.5 * np.outer(weights, weights).ravel() @ inner
    np.testing.assert_allclose(e0_energy(A, mf.Gaussian(m, factor=L)), expected, rtol=1e-12)


def test_e0_is_infinite_beyond_its_radius():
    for size, finite in ((0.999, True), (1.0, False), (1.5, False)):
        value = e0_energy(size * np.diag([1.0, -0.5]), mf.Gaussian(np.zeros(2), factor=np.eye(2)))
        assert np.isfinite(value) == finite
    slope = jax.grad(lambda a: e0_energy(a * jnp.eye(2), mf.Gaussian(np.zeros(2), factor=np.eye(2))))(jnp.asarray(2.0))
    assert np.isfinite(slope)


# Refusals and tracing


def test_under_transformations():
    field = FLOWS["softmax symmetric"][0]
    batch = mf.Gaussian(np.zeros((2, 3)), factor=np.stack([draw(1).factor, draw(2).factor]))
    inside = jax.jit(lambda f, gs: jax.vmap(lambda g: gaussian_energy(f, g))(gs))(field, batch)
    np.testing.assert_allclose(inside, [gaussian_energy(field, batch[i]) for i in range(2)], rtol=1e-12)
    single = mf.Gaussian(np.zeros(1, np.float32), factor=np.ones((1, 1), np.float32))
    for energy in (ot_energy, softmax_energy, l2_energy, e0_energy):
        assert energy(np.full((1, 1), 0.5, np.float32), single).dtype == jnp.float32


GENERAL = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.5], [0.3, 0.0, 2.0]])
BAD_CALLS = [
    (lambda g: gaussian_energy(mf.Softmax(GENERAL, I3, I3), g), ("Softmax", "neither symmetric nor", "V = c A^T")),
    (lambda g: gaussian_energy(mf.Softmax(SYMMETRIC, I3, I3), g), ("not a multiple of A^T", "off by", "V = c A^T")),
    (lambda g: gaussian_energy(mf.Softmax(TURN, I3, GENERAL), g), ("not a multiple of A^T",)),
    (lambda g: gaussian_energy(mf.L2(I3, 2 * I3, I3), g), ("L2", "neither K nor -K", "Q = K (or Q = -K)")),
    (lambda g: gaussian_energy(mf.L2(Q2, Q2, I3), g), ("L2", "not a multiple of A^T")),
    (lambda g: gaussian_energy(mf.Sinkhorn(GENERAL, I3, GENERAL), g), ("Sinkhorn", "B that is not symmetric")),
    (lambda g: gaussian_energy(mf.Sinkhorn(SYMMETRIC, I3, I3), g), ("Sinkhorn", "not a multiple of B", "V = c B")),
    (lambda g: gaussian_energy(mf.Softmax(I3, I3, I3, query_bias=np.ones(3)), g), ("a bias", "no biases")),
    (lambda g: gaussian_energy(mf.Sigmoid(I3, I3, I3), g), ("softmax, l2 or Sinkhorn", "Sigmoid")),
    (lambda g: gaussian_energy(mf.Softmax(I3, I3, np.ones((1, 3))), g), ("V must act", "(1, 3)")),
    (lambda g: ot_energy(np.eye(2), g), ("B must act", "(2, 2)", "(3, 3)")),
    (lambda g: l2_energy(np.eye(2), g), ("K must act", "(2, 2)", "(k, 3)")),
    (lambda g: e0_energy(I3, mf.Gaussian(np.zeros((2, 3)), factor=np.zeros((2, 3, 1)))), ("single", "vmap")),
    (lambda g: softmax_energy(I3, mf.PointCloud([[0.0, 0, 0]])), ("single Gaussian", "PointCloud")),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    assert_refused(lambda: call(draw()), words)

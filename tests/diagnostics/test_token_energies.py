"""Energies of tokens, and their dissipation along attention (rows 42, 43, 44, 46)."""

import numpy as np
import pytest
from _told import told

import meanformer as mf
from meanformer.diagnostics.energy import (
    _gaussian_descent,
    e0_energy,
    energy_along,
    gaussian_energy,
    ot_energy,
    sphere_energy,
)
from meanformer.diagnostics.token_energy import token_law
from meanformer.spaces import Euclidean
from oracles import dense, golden
from oracles.refusals import assert_refused

GOLDEN = golden.load("energies")
RNG = np.random.default_rng(42)
X = RNG.normal(size=(8, 2))  # the shape of the golden cases: one compiled programme
W = RNG.uniform(0.2, 1, size=8)
W /= W.sum()
I2 = np.eye(2)
S = np.array([[0.7, 0.3], [0.3, 0.4]])  # symmetric, positive
A = np.array([[0.6, -0.5], [0.8, 0.2]])
V = np.array([[0.5, -0.4], [0.9, 0.7]])
TAU = 1.3
ON_SPHERE = X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["OT_sym_d2", "OT_gen_d2", "E0_d1", "E0_d2", "E0_d3"])
def test_golden(name):
    case = GOLDEN[name]
    mu = mf.PointCloud(case["X"], case["w"])
    value = ot_energy(case["B"], mu) if name.startswith("OT") else e0_energy(case["A"], mu)
    np.testing.assert_allclose(value, case["value"], rtol=1e-9)


def test_worked_number():
    """On the line in the plane, among tokens of zero weight."""
    points, weights = np.ones((8, 2)), np.zeros(8)
    points[:3], weights[:3] = [[1.0, 0], [-0.5, 0], [2.0, 0]], [0.2, 0.5, 0.3]
    value = ot_energy(np.diag([0.88, 0]), mf.PointCloud(points, weights))
    np.testing.assert_allclose(value, -0.7375231240, rtol=0, atol=1e-10)


def test_gaussian_closed_form_on_a_grid():
    """Row 46: with a mean, and B of either sign."""
    x = np.linspace(-8, 8, 161)
    weights = np.exp(-(x**2) / 2) / np.exp(-(x**2) / 2).sum()
    for B in (0.9, -0.6):
        grid, gaussian = mf.PointCloud(0.3 + 0.8 * x[:, None], weights), mf.Gaussian([0.3], cov=0.64)
        np.testing.assert_allclose(ot_energy(B, grid), ot_energy(B, gaussian), rtol=0, atol=1e-7)


# Oracles: the energies by definition, in extended precision


def ot(B, x, w):
    f, g = dense.potentials(dense.rows(B, x) @ dense.wide(x).T, w)
    return (dense.wide(w) * (f + g)).sum()


def e0(M, x, w):
    return dense.wide(w) @ np.exp(dense.rows(M, x) @ dense.wide(x).T) @ dense.wide(w) / 2


def on_sphere(x, v):
    return v - x * (x * v).sum(axis=1, keepdims=True)


# kind in the golden files, field, energy, on the sphere, sign that the theory gives
LAWS = {
    "sinkhorn, V = S": (("sinkhorn_dot", S, I2, TAU * S), lambda x: ot(S / TAU, x, W) / 2, False, "descends"),
    "sinkhorn distance": (("sinkhorn_l2", S, I2, -I2), lambda x: ot(2 * S / TAU, x, W) / 2, False, "ascends"),
    "sinkhorn, any B": (("sinkhorn_dot", A, I2, V), lambda x: ot(A / TAU, x, W) / 2, False, None),
    "softmax": (("softmax", S, I2, I2), lambda x: e0(S / TAU, x, W), False, "ascends"),
    "softmax, any V": (("softmax", S, I2, V @ np.diag([1, -1])), lambda x: e0(S / TAU, x, W), False, None),
    "usa": (("usa", S, I2, -S), lambda x: e0(S / TAU, x, W), False, "descends"),
    "softmax on the sphere": (("softmax", I2, I2, I2), lambda x: TAU * e0(I2 / TAU, x, W), True, "ascends"),
    "usa on the sphere": (("usa", I2, I2, -2 * I2), lambda x: TAU * e0(I2 / TAU, x, W), True, "descends"),
    "any S on the sphere": (("softmax", S, I2, S), lambda x: e0(S / TAU, x, W), True, "ascends"),
}


@pytest.mark.parametrize("name", LAWS)
def test_dissipation(name):
    """Row 42: the derivative along the velocity of the definition, by central differences."""
    (kind, Q, K, values), energy, sphere, sign = LAWS[name]
    x = ON_SPHERE if sphere else X
    velocity = dense.velocity(kind, x, x, W, Q, K, values, TAU)
    velocity = on_sphere(dense.wide(x), velocity) if sphere else velocity
    law = token_law(golden.make(kind, Q, K, values, TAU), mf.Sphere() if sphere else Euclidean(), mf.PointCloud(x, W))
    value, slope = (float(v) for v in law(mf.PointCloud(x, W)))
    h = 1e-4
    steps = [energy(x + s * h * velocity) for s in (-2, -1, 1, 2)]
    difference = float((steps[0] - 8 * steps[1] + 8 * steps[2] - steps[3]) / (12 * h))
    np.testing.assert_allclose(value, float(energy(x)), rtol=1e-9)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
    assert law.expected == sign and law.name == (
        "E_beta" if " on the sphere" in name and "any" not in name else law.name
    )
    if sign is not None:
        assert (slope < 0) == (sign == "descends")


def test_the_gradient_of_the_transport_is_the_field():
    r"""Row 43: $V=B$: $-\nabla_{x_i}\frac12\mathrm{OT}_B/w_i=\Gamma_i$, by finite differences."""
    field = golden.make("sinkhorn_dot", S, I2, S)
    gamma = np.asarray(field(mf.PointCloud(X, W), X))
    slopes, h = np.zeros_like(X), 1e-4
    for i, k in np.ndindex(*X.shape):
        e = np.zeros_like(X)
        e[i, k] = h
        after, before = (float(ot_energy(S, mf.PointCloud(X + n * e, W))) for n in (1, -1))
        slopes[i, k] = (after - before) / (2 * h) / 2
    np.testing.assert_allclose(-slopes / W[:, None], gamma, rtol=0, atol=1e-6 * np.abs(gamma).max())


def travelled(field, x, sphere, steps=10, h=0.01):
    """The run of a field by classical Runge-Kutta steps."""

    def speed(x):
        v = np.asarray(field(mf.PointCloud(x, W), x))
        return on_sphere(x, v) if sphere else v

    points = [x]
    for _ in range(steps):
        a = speed(x)
        b = speed(x + h / 2 * a)
        c = speed(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + speed(x + h * c))
        x = x / np.linalg.norm(x, axis=1, keepdims=True) if sphere else x
        points.append(x)
    return told(field, h * np.arange(steps + 1), np.stack(points), W, mf.Sphere() if sphere else None)


@pytest.mark.parametrize("name", ["sinkhorn, V = S", "softmax", "usa", "softmax on the sphere", "usa on the sphere"])
def test_monotone_along_trajectories(name):
    """Row 44; and the energy is the integral of the dissipation."""
    (kind, Q, K, values), _, sphere, sign = LAWS[name]
    h = 0.0025 if name == "usa" else 0.01  # Simpson's rule is of order four: off by 3e-5 at worst
    run = travelled(golden.make(kind, Q, K, values, TAU), ON_SPHERE if sphere else X, sphere, h=h)
    path = energy_along(run)
    assert path.expected == sign and path.held and path.descends == (sign == "descends")
    steps = np.diff(path.energy)
    assert (np.sign(steps) == np.sign(path.slope[0])).all()  # strictly
    simpson = h / 3 * (path.slope[0:-2:2] + 4 * path.slope[1:-1:2] + path.slope[2::2]).sum()
    np.testing.assert_allclose(path.energy[-1] - path.energy[0], simpson, rtol=1e-4)
    assert ("never grew, as it should" if sign == "descends" else "never fell, as it should") in str(path)


def test_a_run_that_goes_the_wrong_way_is_caught():
    (kind, Q, K, values), *_ = LAWS["softmax"]
    right = travelled(golden.make(kind, Q, K, values, TAU), X, False)
    back = told(right.field, right.times, np.asarray(right.points)[::-1], W)
    path = energy_along(back)
    assert path.held is False and path.descends and not path.ascends
    assert "but it ascends, in theory" in str(path)
    dented = np.array(right.points)
    dented[5] = dented[4] - 1e-6 * (dented[5] - dented[4])
    path = energy_along(told(right.field, right.times, dented, W))
    assert path.held is False and not path.descends and "grew and fell" in str(path)
    # No sign, nothing to hold.
    (kind, Q, K, values), *_ = LAWS["softmax, any V"]
    path = energy_along(told(golden.make(kind, Q, K, values, TAU), right.times, right.points, W))
    assert path.held is None and "no sign is known" in str(path)


def test_gaussian_dissipation():
    r"""$\dot F=-\operatorname{tr}(G\Sigma G^\top)$, less $|Vm|^2$ for Sinkhorn, by differences along the field."""
    g, h = mf.Gaussian([0.3, -0.2], cov=[[0.3, 0.1], [0.1, 0.2]]), 1e-5
    for field in (mf.Softmax(S, I2, S), mf.L2(S, S, S @ S), mf.Sinkhorn(S, I2, S)):
        G, b = field.affine(g)
        after, before = (gaussian_energy(field, g.push(np.eye(2) + s * h * G, s * h * b)) for s in (1, -1))
        value, slope = _gaussian_descent(field, g)
        np.testing.assert_allclose(slope, (after - before) / (2 * h), rtol=1e-6)
        assert float(value) == float(gaussian_energy(field, g))


def test_tokens_of_zero_weight_and_large_logits():
    w = np.append(W[:-1] / W[:-1].sum(), 0)
    for energy, M in ((ot_energy, A), (e0_energy, A)):
        moved = X.copy()
        moved[-1] = 7.0  # invisible
        np.testing.assert_allclose(energy(M, mf.PointCloud(moved, w)), energy(M, mf.PointCloud(X, w)), rtol=1e-12)
    assert float(e0_energy(I2, mf.PointCloud(100 * X, W))) == np.inf
    np.testing.assert_allclose(sphere_energy(3.0, mf.PointCloud(X, W)), float(e0(3 * I2, X, W)) / 3, rtol=1e-12)


NO_LAW = [
    (mf.L2(I2, I2, I2), ("no energy", "L2")),
    (mf.Softmax(A, I2, I2), ("not symmetric", "A = A^T")),
    (mf.Softmax(S, I2, I2) + mf.Softmax(S, I2, I2), ("Softmax + Softmax",)),
    (mf.Causal(mf.Softmax(S, I2, I2)), ("Softmax, masked",)),
    (mf.Softmax(S, I2, I2, query_bias=[1.0, 0.0]), ("a bias",)),
    (mf.Scheduled(lambda t: mf.Softmax(S, I2, I2)), ("depend on time",)),
]


@pytest.mark.parametrize("field, words", NO_LAW)
def test_fields_without_a_law(field, words):
    assert_refused(lambda: energy_along(told(field, [0.0, 1.0], [X, X], W)), words)


def test_refusals():
    mu = mf.PointCloud(X, W)
    assert_refused(lambda: ot_energy(np.eye(3), mu), ("B must act on the space of the tokens", "(3, 3)", "(2, 2)"))
    batch = mf.stack_clouds([mu, mu])
    assert_refused(lambda: e0_energy(I2, batch), ("single cloud", "(2, 8, 2)", "vmap"))
    assert_refused(lambda: sphere_energy(-1.0, mu), ("beta must be positive",))
    assert_refused(lambda: sphere_energy(1.0, mf.Gaussian([0.0], cov=1.0)), ("tokens", "Gaussian"))
    assert_refused(lambda: energy_along(mu), ("a run of a Gaussian or of tokens",))
    layers = told(mf.Softmax(S, I2, I2), [0.0, 1.0], [X, X], W, discrete=True)
    assert_refused(lambda: energy_along(layers), ("layers of finite step",))

"""Closed forms of Gaussian flows, against golden files, the moment equations, and formulas with inverses."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanformer as mf
from meanformer.gaussian import bounds, closed
from oracles import golden
from oracles.refusals import assert_refused

BLOWUP = golden.load("blowup")
KINDS = ("softmax", "l2", "sinkhorn")


@pytest.fixture
def rng():
    return np.random.default_rng(33)


def rates(kind, Q, K, V, tau, kernel, m, S):
    """u and G of MATH e.2, by a formula with inverses and roots of regular matrices where there is one."""
    Q, K = Q / np.sqrt(tau), K / np.sqrt(tau)
    if kind == "softmax":
        return V @ (m + S @ K.T @ Q @ m), V @ S @ K.T @ Q
    if kind == "l2":
        H = 2 * np.linalg.solve(np.eye(len(m)) + 2 * S @ K.T @ K, S @ K.T)
        return V @ (m + H @ (Q - K) @ m), V @ H @ Q
    B = (1 if kernel == "dot" else 2) * K.T @ Q
    values, vectors = np.linalg.eigh(S)
    half = vectors * np.sqrt(np.maximum(values, 0))
    U, s, _ = np.linalg.svd(half.T @ B @ half)
    return V @ m, V @ half @ U @ np.diag(2 / (1 + np.sqrt(1 + 4 * s**2))) @ U.T @ half.T @ B


def integrated(kind, Q, K, V, m, S, t, tau=1.0, kernel="dot"):
    """Mean and covariance at time t, by an integrator."""
    d = len(m)

    def speed(_, y):
        S = y[d:].reshape(d, d)
        u, G = rates(kind, Q, K, V, tau, kernel, y[:d], S)
        return np.concatenate([u, (G @ S + S @ G.T).ravel()])

    y = solve_ivp(speed, (0, t), np.concatenate([m, S.ravel()]), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    return y[:d], y[d:].reshape(d, d)


def close(got, expected, rtol):
    """Relative to the size of the whole array."""
    size = np.abs(expected).max() or 1.0
    assert np.linalg.norm((got - expected) / size) <= rtol * np.linalg.norm(expected / size), (got, expected)


def centred(L):
    return mf.Gaussian(np.zeros(len(L)), factor=L)


def test_golden_on_the_line():
    case = golden.load("closed_1d")["all"]
    seen = set()
    for (index, q, k, v, tau, *rest), (mean, variance) in zip(case["params"], case["result"], strict=True):
        kind, _, kernel = str(case["kinds"][int(index)]).partition("_")
        result = closed.one_dimensional(kind, q, k, v, tau, *rest, kernel={"l2": "distance"}.get(kernel, "dot"))
        np.testing.assert_allclose(result, (mean, variance), rtol=1e-12)
        seen.add((kind, kernel))
    assert len(seen) == 4


def test_worked_numbers():
    """MATH l; the second number is the variance."""
    for kind, kernel, *expected in (
        ("softmax", "dot", 0.807186777036, 0.827814569536),
        ("l2", "dot", 0.583253532092, 0.737378891829),
        ("sinkhorn", "dot", 0.627324874196, 0.737279515570),
        ("sinkhorn", "distance", 0.627324874196, 0.904328624672),
    ):
        result = closed.one_dimensional(kind, 0.8, 1.1, 0.9, 1.0, 0.4, 0.5, 0.5, kernel)
        np.testing.assert_allclose(result, expected, atol=1e-12)
    g = mf.Gaussian([0.5, -0.25], cov=[[1.0, 0.3], [0.3, 0.5]])
    time = closed.softmax_blowup_time([[0.26, -0.26], [0.25, 0.22]], g)
    np.testing.assert_allclose(time, 1.7565682132, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q, k, variance", [(0, 1.3, 0.7), (1.3, 0, 0.7), (0, 0, 0.7), (1.2, 1.3, 0)])
def test_line_where_the_variance_rests(kind, q, k, variance):
    mean, same = closed.one_dimensional(kind, q, k, 0.8, 2.0, 0.4, variance, 1.5)
    rate = 0.8 / (1 + 2 * k**2 / 2 * variance) if kind == "l2" else 0.8
    np.testing.assert_allclose((mean, same), (0.4 * np.exp(rate * 1.5), variance), rtol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [1e-9, -1e-9])
def test_line_with_a_weak_query(kind, q):
    """To first order in q; a formula with a difference of variances over q has no digits left."""
    variance, k, v, t = 0.7, 1.3, 0.8, 1.5
    p = 2 * k**2 * variance if kind == "l2" else 0
    mean, after = closed.one_dimensional(kind, q, k, v, 1.0, 0.4, variance, t)
    growth = (4 if kind == "l2" else 2) * v * q * k * variance * t / (1 + p)
    np.testing.assert_allclose(after / variance - 1, growth, rtol=1e-6)
    np.testing.assert_allclose(mean, 0.4 * np.exp(v * t / (1 + p)), rtol=1e-8)


def test_line_far_out():
    """Long times and large variances overflow nowhere before the result does."""
    # l2: growth rate 2va/k^2; Sinkhorn: 2v sgn b (MATH e.4).
    for kind, rate, t in (("l2", 1.0, 300.0), ("sinkhorn", 2.0, 150.0)):
        late = [float(closed.one_dimensional(kind, 1.0, 2.0, 1.0, 1.0, 0.0, 1.0, s)[1]) for s in (t, t + 1)]
        np.testing.assert_allclose(np.log(late[1] / late[0]), rate, rtol=1e-9)
    # Decay: sigma ~ 1/(4|va|t), 1/(2|vb|t).
    for kind, factor in (("softmax", 2), ("l2", 4), ("sinkhorn", 2)):
        after = float(closed.one_dimensional(kind, 1.0, -2.0, 1.0, 1.0, 0.0, 1e9, 1e9)[1])
        np.testing.assert_allclose(after, 1 / (factor * 2 * 1e9), rtol=1e-6)


@pytest.mark.parametrize("k", [1e-12, 1e-80, 1e-200])
def test_line_with_a_tiny_key(k):
    """l2 with k -> 0 at fixed a is softmax with 2a; variances that floats hardly hold are no trouble either."""
    tiny = closed.one_dimensional("l2", 0.3 / k, k, 1.0, 1.0, 0.4, 0.7, 0.9)
    np.testing.assert_allclose(tiny, closed.one_dimensional("softmax", 0.6, 1.0, 1.0, 1.0, 0.4, 0.7, 0.9), rtol=1e-9)
    for kind in KINDS:
        still = closed.one_dimensional(kind, 1.0, 1.0, 1.0, 1.0, 0.4, 1e-300, 0.9)
        np.testing.assert_allclose(still, (0.4 * np.exp(0.9), 1e-300), rtol=1e-14)


def test_line_takes_arrays():
    variances = np.array([0.1, 0.2, 0.0])
    for kind in KINDS:
        together = closed.one_dimensional(kind, 0.5, 1.0, 1.0, 1.0, 0.3, variances, np.ones(3))
        alone = [closed.one_dimensional(kind, 0.5, 1.0, 1.0, 1.0, 0.3, s, 1.0) for s in variances]
        np.testing.assert_allclose(together, np.array(alone).T, rtol=1e-14)


@pytest.mark.parametrize("name", [name for name in BLOWUP if name.startswith("VI")])
def test_golden_softmax_with_identity(name):
    case, g = BLOWUP[name], centred(BLOWUP[name]["L0"])
    np.testing.assert_allclose(closed.softmax_blowup_time(case["A"], g), case["t_star"], rtol=1e-12)
    np.testing.assert_allclose(closed.softmax_blowup_time(case["A"], g, V=case["V"]), case["t_star"], rtol=1e-12)
    np.testing.assert_allclose(closed.softmax_blowup_time(-case["A"], g, V=-3), case["t_star"] / 3, rtol=1e-12)
    close(closed.softmax_identity_flow(case["A"], g, case["t_mid"]).covariance, case["S_mid"], 1e-12)


@pytest.mark.parametrize("name", [name for name in BLOWUP if name.startswith("commuting")])
def test_golden_blowup_of_commuting_matrices(name):
    case = BLOWUP[name]
    time = closed.softmax_blowup_time(case["A"], centred(case["L0"]), case["V"])
    np.testing.assert_allclose(time, case["t_star"], rtol=1e-12)


def test_blowup_of_a_small_direction(rng):
    """However large, or however fast shrinking, the others are; in any columns."""
    late = np.diag([0.0, 1.0])
    for size in (1e8, 1e16, 1e100):
        assert mf.softmax_blowup_time(late, centred(np.diag([size, 1.0]))) == 0.5
    assert mf.softmax_blowup_time(np.diag([-1.0, 1e-16]), centred(np.eye(2))) == 5e15
    assert mf.softmax_blowup_time(np.diag([-1.0, 1e-16]), centred(np.eye(2)), V=np.diag([2.0, 1.0])) == 5e15
    # A = (-1e20 on e_1) + small: the Schur complement is the small block, up to 1e-20.
    A = np.array([[-1e20, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1e-3]])
    exact = 1 / np.linalg.eigvalsh(2 * A[1:, 1:])[-1]
    assert np.isclose(mf.softmax_blowup_time(A, centred(np.eye(3))), exact, rtol=1e-14)
    for _ in range(20):  # what is zero but for rounding stays zero
        B = rng.normal(size=(3, 3))
        turned = B - B.T + 1e-16 * rng.normal(size=(3, 3))
        assert mf.softmax_blowup_time(turned, centred(rng.normal(size=(3, 3)) * [1e6, 1, 1e-6])) == np.inf


def test_a_blowup_lost_in_rounding_is_refused():
    A, L = np.array([[-1.0, 0.0], [0.0, 1.0]]), np.diag([1e200, 1e-150])
    with pytest.raises(mf.InputError, match="lost in rounding"):
        mf.softmax_blowup_time(A, centred(L))


@pytest.mark.parametrize("kind", ["l2", "sinkhorn"])
def test_line_at_the_end_of_the_range(kind):
    """Right or refused, and not NaN."""
    _, variance = mf.one_dimensional(kind, 1.0, 1.0, 0.3, 1.0, 1.0, 1e307, 0.1)
    assert np.isclose(variance / 1e307, np.exp(0.06), rtol=1e-12)
    with pytest.raises(mf.InputError, match="range"):
        mf.one_dimensional(kind, 1.0, 1.0, 0.3, 1.0, 1.0, 1e308, 0.1)


def test_no_blowup(rng):
    g = mf.Gaussian(np.zeros(2), factor=rng.normal(size=(2, 2)))
    for q in rng.normal(size=(8, 1, 2)):  # the largest eigenvalue is 0, but for round-off of either sign
        assert closed.softmax_blowup_time(-q.T @ q, g) == np.inf
    assert closed.softmax_blowup_time(-np.eye(2), g) == np.inf
    assert closed.softmax_blowup_time(np.eye(2), g, V=-1.0) == np.inf
    assert closed.softmax_blowup_time(np.eye(2), g, V=0.0) == np.inf
    blind = mf.Gaussian(np.zeros(2), factor=[[0.0], [1.0]])
    assert closed.softmax_blowup_time(np.diag([1.0, 0.0]), blind) == np.inf


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("v", [1.0, -0.7])
def test_softmax_with_identity_against_the_integrator(rng, width, v):
    g = mf.Gaussian(rng.normal(size=3), factor=rng.normal(size=(3, width)))
    A = rng.normal(size=(3, 3))
    A = A + A.T
    t = 0.8 * min(closed.softmax_blowup_time(A, g, v), 1.0)
    got = closed.softmax_identity_flow(A, g, t, v)
    m, S = integrated("softmax", A, np.eye(3), v * np.eye(3), g.mean, np.asarray(g.covariance), t)
    close(got.mean, m, 1e-9)
    close(got.covariance, S, 1e-9)
    assert np.linalg.matrix_rank(got.covariance, tol=1e-9) == min(width, 3)


def test_softmax_with_identity_and_any_matrix(rng):
    A, L = rng.normal(size=(3, 3)) + np.eye(3), rng.normal(size=(3, 2))
    times = np.array([0.0, 0.5, 0.9]) * closed.softmax_blowup_time(A, centred(L))
    path = closed.softmax_identity_flow(A, centred(L), times)
    assert path.mean.shape == (3, 3) and not np.asarray(path.mean).any()
    for t, state in zip(times, path.covariance, strict=True):
        close(state, np.linalg.solve(np.eye(3) - t * L @ L.T @ (A + A.T), L @ L.T), 1e-12)
    close(path[2].covariance, integrated("softmax", A, np.eye(3), np.eye(3), np.zeros(3), L @ L.T, times[2])[1], 1e-9)


@pytest.mark.parametrize("k, width", [(2, 4), (2, 2), (5, 3), (1, 1)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind, kernel", [*((kind, "dot") for kind in KINDS), ("sinkhorn", "distance")])
def test_matched_against_the_integrator(kind, kernel, sign, k, width):
    rng = np.random.default_rng([k, width])
    K, L, m, tau = 0.6 * rng.normal(size=(k, 4)), rng.normal(size=(4, width)), rng.normal(size=4), 1.7
    t = 0.8 * closed.softmax_blowup_time(K.T @ K / tau, centred(L)) if (kind, sign) == ("softmax", 1) else 0.5
    got = closed.matched_flow(kind, K, sign, mf.Gaussian(m, factor=L), t, tau, kernel)
    mean, S = integrated(kind, sign * K, K, np.eye(4), m, L @ L.T, t, tau, kernel)
    close(got.mean, mean, 1e-9)
    close(got.covariance, S, 1e-9)


def test_matched_times_and_nothing_seen():
    g = mf.Gaussian(np.ones(2), factor=[[0.0], [1.0]])
    for kind in KINDS:
        path = closed.matched_flow(kind, [[1.0, 0.0]], 1, g, [0.0, 2.0])  # K sees no variance
        np.testing.assert_allclose(path.covariance, [g.covariance, g.covariance], rtol=1e-15)
        np.testing.assert_allclose(path.mean, np.exp([[0, 0], [2, 2]]), rtol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_mean_in_a_direction_of_tiny_variance(kind):
    """The mean needs digits of a growth that is 1e-13: softmax gives e^t (1 - 2 nu t)^(1/2) and so on."""
    g = mf.Gaussian([0.0, 1.0], factor=[[1.0, 1e-12], [0.0, 1e-6]])
    K = np.array([[1.0, 2.0], [0.5, 1.5]])
    got = closed.matched_flow(kind, K, -1, g, 0.7).mean
    expected, _ = integrated(kind, -K, K, np.eye(2), np.asarray(g.mean), np.asarray(g.covariance), 0.7)
    close(got, expected, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_limit_for_opposite_keys(kind):
    """K = -Q, V = I: the three kinds share the limit, of rank d - rank Q (row 39)."""
    rng = np.random.default_rng(9)
    Q, L = rng.normal(size=(2, 5)), rng.normal(size=(5, 5))
    late = closed.matched_flow(kind, Q, -1, centred(L), 1e6)
    frozen = bounds.frozen_covariance(-Q.T @ Q, centred(L))
    close(late.covariance, frozen, 1e-4)
    assert np.linalg.matrix_rank(frozen) == 3
    assert bounds.stationarity(-Q.T @ Q, np.eye(5), frozen) < 1e-14
    assert bounds.rank_bound(-Q.T @ Q, np.eye(5)).rank == 3


@pytest.mark.parametrize("kind", KINDS)
def test_conserved_along_the_flow(kind):
    rng = np.random.default_rng(35)
    Q, K, V, L = rng.normal(size=(2, 4)), rng.normal(size=(2, 4)), rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    _, later = integrated(kind, Q, K, V, np.zeros(4), L @ L.T, 0.01 if kind == "softmax" else 0.3)
    assert np.linalg.norm(later - L @ L.T) > 0.1
    A, g = K.T @ Q, mf.Gaussian(np.zeros(4), cov=(later + later.T) / 2)
    before, after = bounds.conserved(A, centred(L)), bounds.conserved(mf.Softmax(Q, K, V, tau=2.0), g)
    assert before.shape == (2, 2)
    close(after, before, 1e-8)
    # And what it implies: Sigma(t) >= Sigma_low, which is a function of the conserved quantity alone.
    low = bounds.frozen_covariance(A, centred(L))
    close(bounds.frozen_covariance(A, g), low, 1e-8)
    assert np.linalg.eigvalsh(later - low)[0] >= -1e-10


def test_frozen_covariance_is_the_formula_with_inverses(rng):
    A, L = rng.normal(size=(4, 2)) @ rng.normal(size=(2, 4)), rng.normal(size=(4, 6))
    N = np.linalg.svd(A)[2][2:].T
    expected = N @ np.linalg.inv(N.T @ np.linalg.inv(L @ L.T) @ N) @ N.T
    close(bounds.frozen_covariance(A, centred(L)), expected, 1e-11)
    close(np.linalg.inv(bounds.conserved(A, centred(L))), N.T @ expected @ N, 1e-11)
    np.testing.assert_allclose(bounds.frozen_covariance(np.eye(4), centred(L)), 0, atol=1e-28)
    close(bounds.frozen_covariance(np.zeros((4, 4)), centred(L)), L @ L.T, 1e-13)
    assert bounds.conserved(np.eye(4), centred(L)).shape == (0, 0)
    # Two heads: what neither sees.
    stacked = np.concatenate([np.diag([1.0, 0, 0, 0]), np.diag([0, 1.0, 0, 0])])
    close(bounds.frozen_covariance(stacked, centred(np.eye(4))), np.diag([0.0, 0, 1, 1]), 1e-15)
    # A singular covariance: the limit of regular ones, here with nothing left.
    line = bounds.frozen_covariance(np.diag([1.0, 0.0]), mf.Gaussian([0.0, 0.0], factor=[[1.0], [1.0]]))
    np.testing.assert_allclose(line, 0, atol=1e-30)


def test_stationarity(rng):
    # Isotropic: the range of Sigma is spanned by e_1, and (A e_1) . e_1 = 0. Stationary for every V.
    A, V, S = np.array([[0.0, 1.0], [2.0, 3.0]]), rng.normal(size=(2, 2)), np.diag([5.0, 0.0])
    assert bounds.stationarity(A, V, S) == 0
    assert bounds.stationarity(A, V, mf.Gaussian(np.zeros(2), factor=np.diag([5.0, 0.0]))) == 0
    np.testing.assert_allclose(bounds.stationarity(np.eye(1), np.eye(1), 3 * np.eye(1)), 1, rtol=1e-15)
    # d Sigma / dt = 2 diag(1, 0) of norm 2, and 2 |V| |A| |Sigma|^2 = 4 sqrt 2.
    value = bounds.stationarity(np.eye(2), np.diag([1.0, 0.0]), np.eye(2))
    np.testing.assert_allclose(value, 2 / (4 * np.sqrt(2)), rtol=1e-14)
    assert bounds.stationarity(np.eye(2), np.eye(2), np.zeros((2, 2))) == 0


def test_rank_bounds(rng):
    bound = bounds.rank_bound
    assert bound(rng.normal(size=(5, 5))) == (2, "Sigma A Sigma = 0, which makes Sigma stationary for every V")
    assert bound(np.diag([1.0, 1, 0, 0, 0])).rank == 4  # (5 + 3) / 2
    assert bound(np.diag([1.0, -1, -1, 0, 0]), np.eye(5)).rank == 3  # 2 + min(1, 2)
    assert bound(np.array([[0.0, -1], [1, 0]]), -2 * np.eye(2)) == (2, "V is a multiple of I")
    A, V = -np.diag([1.0, 2, 3, 0]), np.diag([1.0, 2, 3, 4])
    assert bound(A, V).rank == 1 and "semi-definite" in bound(A, V).hypothesis
    assert bound(-A, V).rank == bound(A, -V).rank == bound(A + np.eye(4, k=1), V).rank == 2
    assert bound(A, V + np.eye(4, k=1)).rank == 2


def test_blowup_bounds():
    for name in (name for name in BLOWUP if name.startswith(("Vpd", "VI"))):
        case = BLOWUP[name]
        lower, upper = bounds.blowup_bounds(case["A"], case["V"], centred(case["L0"]))
        assert lower <= case["t_star"] * (1 + 1e-12) and case["t_star"] <= upper
        assert np.isfinite(upper) or not name.startswith("Vpd")
    # Both are sharp for multiples of the identity.
    lower, upper = bounds.blowup_bounds(3 * np.eye(3), 2 * np.eye(3), centred(np.eye(3)))
    np.testing.assert_allclose((lower, upper), 1 / 12, rtol=1e-14)
    assert bounds.blowup_bounds(-np.eye(2), np.eye(2), centred(np.eye(2))) == (0.5, np.inf)
    assert bounds.blowup_bounds(np.zeros((2, 2)), np.eye(2), centred(np.eye(2))) == (np.inf, np.inf)


def test_bounds_on_random_definite_matrices(rng):
    """Row 38, on commuting matrices, where the time is exact."""
    for _ in range(40):
        basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        V, A, S = ((basis * rng.uniform(0.1, 2, size=4)) @ basis.T for _ in range(3))
        g = mf.Gaussian(np.zeros(4), cov=(S + S.T) / 2)
        lower, upper = bounds.blowup_bounds(A, V, g)
        assert lower <= closed.softmax_blowup_time(A, g, V) <= upper < np.inf


def test_l2_blowup(rng):
    case = BLOWUP["l2_counterexample"]
    g = mf.Gaussian(np.zeros(2), cov=case["S0"])
    np.testing.assert_allclose(closed.l2_blowup_time(case["Q"], case["K"], case["V"], g), case["t_star"], rtol=1e-14)
    (alpha, beta), (_, gamma) = case["S0"]
    _, S = integrated("l2", case["Q"], case["K"], case["V"], np.zeros(2), case["S0"], 0.9 * case["t_star"])
    close(S, np.array([[alpha, beta / 0.1], [beta / 0.1, gamma / 0.01]]), 1e-9)
    # Negative correlation, or a negative value: never.
    opposed = mf.Gaussian(np.zeros(2), cov=[[1.0, -0.5], [-0.5, 1.0]])
    assert closed.l2_blowup_time(case["Q"], case["K"], case["V"], opposed) == np.inf
    assert closed.l2_blowup_time(case["Q"], case["K"], -case["V"], g) == np.inf
    # A temperature and a basis of one's own: (q, k) / sqrt(tau), M-equivariance (MATH b.10).
    M = rng.normal(size=(2, 2))
    inverse = np.linalg.inv(M)
    Q, K = (3 * case[name] @ inverse for name in "QK")
    moved = closed.l2_blowup_time(Q, K, M @ case["V"] @ inverse, g.push(M), tau=9)
    np.testing.assert_allclose(moved, case["t_star"], rtol=1e-10)


def test_l2_blowup_of_any_size():
    """(1 + 2 alpha) / (2 v beta) in fractions, with each argument in units of its own."""
    Q, K, V, L = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), np.diag([0.0, 1.0]), np.array([[1.0, 0.0], [0.5, 0.8]])
    time = closed.l2_blowup_time(Q, K, V, centred(L))
    alpha, beta = Fraction(L[0, 0]) ** 2, Fraction(L[1, 0]) * Fraction(L[0, 0])
    assert time == pytest.approx(float((1 + 2 * alpha) / (2 * beta)), rel=1e-15)
    for q, k, v, c in ((0, 0, 1000, -600), (600, 0, -200, -400), (900, 500, 0, 500), (1000, -1000, -1000, 1000)):
        units = [Fraction(2) ** power for power in (q, k, v, c)]
        a, b = alpha * units[1] ** 2 * units[3] ** 2, beta * units[0] * units[1] * units[3] ** 2
        exact = (1 + 2 * a) / (2 * units[2] * b)
        found = closed.l2_blowup_time(Q * 2.0**q, K * 2.0**k, V * 2.0**v, centred(L * 2.0**c))
        assert found == pytest.approx(float(exact), rel=1e-14)
    assert closed.l2_blowup_time(Q, K, V, centred(L), tau=2.0**1000) == pytest.approx(2.0**999 / float(beta), rel=1e-14)
    # What Q and K do not see may be of any size.
    long = np.block([[L, np.zeros((2, 1))], [np.zeros((1, 2)), 1e200 * np.eye(1)]])
    three = [np.pad(M, ((0, 0), (0, 1))) for M in (Q, K)]
    assert closed.l2_blowup_time(*three, np.diag([0.0, 1.0, 0.0]), centred(long)) == time


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e3, 1e-3)])
def test_l2_blows_up_never_where_nothing_but_rounding_says_so(scales):
    """beta = 0 in bases turned by any angle; and where beta is not, it does."""
    Q, K, V = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), np.diag([0.0, 1.0])
    correlated = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]])
    for angle in np.linspace(0.1, 6.2, 40):
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        sigma = R @ np.diag(np.square(scales)) @ R.T
        for g in (centred(R @ np.diag(scales)), mf.Gaussian(np.zeros(2), cov=(sigma + sigma.T) / 2)):
            assert closed.l2_blowup_time(Q @ R.T, K @ R.T, R @ V @ R.T, g) == np.inf
        found = closed.l2_blowup_time(Q @ R.T, K @ R.T, R @ V @ R.T, centred(R @ np.diag(scales) @ correlated))
        exact = (1 + 2 * scales[0] ** 2) / (2 * 0.5 * scales[0] * scales[1])
        assert found == pytest.approx(exact, rel=1e-8)
        assert closed.l2_blowup_time(Q @ R.T, K @ R.T, 0 * V, centred(R @ correlated)) == np.inf


fractions = np.vectorize(Fraction, otypes=[object])


def solved(A, B):
    """A^-1 B, exactly."""
    rows = np.hstack([A, B])
    for i in range(len(A)):
        pivot = next(r for r in range(i, len(A)) if rows[r, i] != 0)
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = rows[i] / rows[i, i]
        for r in range(len(A)):
            rows[r] = rows[r] - rows[i] * (rows[r, i] if r != i else 0)
    return rows[:, len(A) :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", [1e-30, 1.0, 1e30, 1e34, 1e60, 1e200])
def test_matched_keys_shrink_what_is_large(kind, variance):
    """As on the line, mean included: what is left is as exact as what was there."""
    deviation = np.sqrt(variance)
    path = closed.matched_flow(kind, [[1.0]], -1, mf.Gaussian([0.7 * deviation], factor=[[deviation]]), [0.0, 1.0])
    mean, after = closed.one_dimensional(kind, -1, 1, 1, 1, 0.7 * deviation, deviation**2, np.array([0.0, 1.0]))
    np.testing.assert_allclose(path.covariance[:, 0, 0], after, rtol=1e-14)
    np.testing.assert_allclose(path.mean[:, 0], mean, rtol=1e-14)
    # In the plane, in columns along the diagonals: an isotropic covariance.
    columns, far = deviation * np.array([[1.0, 1.0], [1.0, -1.0]]), deviation * np.array([0.7, 0.3])
    later = closed.matched_flow(kind, np.eye(2), -1, mf.Gaussian(far, factor=columns), 1.0)
    mean, after = closed.one_dimensional(kind, -1, 1, 1, 1, far, 2 * deviation**2, 1.0)
    close(later.covariance, np.diag(after), 1e-14)
    np.testing.assert_allclose(later.mean, mean, rtol=1e-13)


@pytest.mark.parametrize("variance", [1e-30, 1.0, 1e20, 1e34, 1e60])
def test_softmax_with_minus_identity_shrinks_what_is_large(variance):
    deviation = np.sqrt(variance)
    columns, far = deviation * np.array([[1.0, 1.0], [1.0, -1.0]]), deviation * np.array([0.7, 0.3])
    later = closed.softmax_identity_flow(-np.eye(2), mf.Gaussian(far, factor=columns), [0.0, 1.0])
    mean, after = closed.one_dimensional("softmax", -1, 1, 1, 1, far, 2 * deviation**2, np.array([[0.0], [1.0]]))
    np.testing.assert_allclose(later.mean, mean, rtol=1e-13)
    for covariance, variances in zip(later.covariance, after, strict=True):
        close(covariance, np.diag(variances), 1e-13)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8, 1e17])
def test_matched_keys_beside_what_they_do_not_see(k, size):
    """Sigma(t) = L (I + 2t L^T K^T K L)^-1 L^T in fractions, where some directions shrink and some rest."""
    rng = np.random.default_rng(k)
    L, K = rng.normal(size=(3, 3)) * [size, 1, 1 / size], rng.normal(size=(k, 3))
    later = closed.matched_flow("softmax", K, -1, centred(L), 1.0)
    F = fractions(L)
    M = fractions(K) @ F
    close(later.covariance, (F @ solved(fractions(np.eye(3)) + 2 * M.T @ M, F.T)).astype(float), 1e-13)


@pytest.mark.parametrize("name", [name for name in golden.load("gaussian") if "_KmQ_VI" in name])
def test_golden_long_times_with_opposite_keys(name):
    case = golden.load("gaussian")[name]
    kind, _, kernel = str(case["h0_kind"]).partition("_")
    kernel = {"l2": "distance"}.get(kernel, "dot")
    assert np.array_equal(case["h0_K"], -case["h0_Q"])
    path = closed.matched_flow(kind, case["h0_K"], -1, centred(case["L0"]), case["t"], case["h0_tau"], kernel)
    for got, expected in zip(path.covariance, case["St"], strict=True):
        close(got, expected, 1e-9)


def test_single_precision_finds_the_kernel():
    """The rank of a product is read with the round-off of its dtype."""
    Q = np.random.default_rng(5).normal(size=(2, 5)).astype(np.float32)
    g = mf.Gaussian(np.zeros(5, np.float32), factor=np.eye(5, dtype=np.float32))
    assert np.linalg.matrix_rank(bounds.frozen_covariance(-Q.T @ Q, g), tol=1e-5) == 3
    assert bounds.rank_bound(-Q.T @ Q, np.eye(5, dtype=np.float32)).rank == 3
    assert closed.matched_flow("l2", Q, -1, g, 1.0).factor.dtype == np.float32


# Refusals

G2 = mf.Gaussian([0.0, 1.0], cov=np.eye(2))
PAIR = mf.Gaussian(np.zeros((3, 2)), factor=np.zeros((3, 2, 1)))
SKEW = np.array([[1.0, 1.0], [0.0, 1.0]])
BAD_CALLS = [
    (lambda: closed.one_dimensional("sigmoid", 1, 1, 1, 1, 0, 1, 1), ("kind is not known", "'l2'")),
    (lambda: closed.one_dimensional("l2", 1, 1, 1, 0, 0, 1, 1), ("tau must be positive", "tau = 0")),
    (lambda: closed.one_dimensional("l2", 1, 1, 1, 1, 0, -1, 1), ("variance must not be negative", "-1")),
    (lambda: closed.one_dimensional("l2", 1, 1, 1, 1, 0, 1, -1), ("t must not be negative", "-v")),
    (lambda: closed.one_dimensional("l2", [1, 2], 1, 1, 1, 0, [1, 2, 3], 1), ("fit together", "q (2,), variance (3,)")),
    (
        lambda: closed.one_dimensional("softmax", 1, 1, 1, 1, 0, 1, [0.1, 0.5]),
        ("before the blow-up", "t = 0.5"),
    ),
    (lambda: closed.one_dimensional("sinkhorn", 1, 1, 1, 1, 0, 1, 1, "l2"), ("kernel is not known", "'distance'")),
    (lambda: closed.softmax_identity_flow(np.eye(2), G2, 0.5), ("before the blow-up", "t < 0.5")),
    (lambda: closed.softmax_identity_flow(SKEW, G2, 0.1), ("symmetric A only", "centre")),
    (lambda: closed.softmax_identity_flow(np.eye(3), G2, 0.1), ("A must match", "(3, 3)", "(2, 2)")),
    (lambda: closed.softmax_identity_flow(np.eye(2), G2, -0.1), ("t must not be negative", "-V")),
    (
        lambda: closed.softmax_blowup_time(np.eye(2), G2, SKEW),
        ("no closed form", "V is not symmetric", "bounds"),
    ),
    (lambda: closed.softmax_blowup_time(np.ones((2, 2)), G2, np.diag([1.0, 2.0])), ("V A is not A V",)),
    (lambda: closed.softmax_blowup_time(np.eye(2), PAIR), ("single Gaussian", "(3,)", "index")),
    (lambda: closed.softmax_blowup_time(np.eye(2), mf.PointCloud([[0.0, 1.0]])), ("single Gaussian", "PointCloud")),
    (lambda: jax.jit(lambda A: closed.softmax_blowup_time(A, G2))(np.eye(2)), ("A must be known", "traced", "host")),
    (lambda: closed.matched_flow("softmax", np.eye(2), 1, G2, 0.6), ("before the blow-up", "t < 0.5")),
    (lambda: closed.matched_flow("sinkhorn", np.eye(2), 1, G2, 800.0), ("mean at this time", "earlier", "mean 0")),
    (lambda: closed.matched_flow("sinkhorn", np.eye(2), 1, centred(np.eye(2)), 800.0), ("covariance at this time",)),
    (lambda: closed.matched_flow("linear", np.eye(2), 1, G2, 0.1), ("kind is not known",)),
    (lambda: closed.matched_flow("l2", np.eye(2), 2, G2, 0.1), ("sign must be", "2", "Q = -K")),
    (lambda: closed.matched_flow("l2", np.eye(3), 1, G2, 0.1), ("K must match", "(k, 2)")),
    (lambda: closed.l2_blowup_time([[0.0, 1]], [[1.0, 0]], np.eye(2), G2), ("no closed form", "K V is not 0")),
    (lambda: closed.l2_blowup_time([[1.0, 1]], [[1.0, 0]], np.diag([0.0, 1]), G2), ("Q V is not a multiple",)),
    (lambda: closed.l2_blowup_time(np.eye(2), np.eye(2), np.eye(2), G2), ("Q must match", "(1, 2)")),
    (lambda: bounds.conserved(np.diag([1.0, 0]), mf.Gaussian([0.0, 0], factor=[[1.0], [0]])), ("full rank", "frozen")),
    (lambda: bounds.stationarity(np.eye(3), np.eye(2), np.eye(3)), ("V must match", "(3, 3)")),
    (lambda: bounds.rank_bound(np.ones((2, 3))), ("A must match", "(3, 3)")),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    assert_refused(call, words)

r"""Fields on Gaussians are affine: against worked numbers, quadrature, and what leaves them unchanged (MATH e.2)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.attention import closure
from oracles import dense, golden
from oracles.refusals import assert_refused

KINDS = ("softmax", "l2", "sinkhorn_dot", "sinkhorn_l2", "linear")
RNG = np.random.default_rng(7)

# MATH l: u and G of the two-dimensional Gaussian.
MEAN, COV = np.array([0.5, -0.25]), np.array([[1.0, 0.3], [0.3, 0.5]])
Q, K = np.array([[0.6, -0.2], [0.1, 0.4]]), np.array([[0.5, 0.3], [-0.4, 0.7]])
V = np.array([[0.8, 0.2], [-0.1, 0.6]])
WORKED = {
    "softmax": ((0.5415, -0.1655), ((0.3086, -0.1488), (0.0883, 0.0386))),
    "l2": ((0.4146739639, -0.104077849), ((0.3462396155, -0.1686034787), (0.1076854485, 0.0586040772))),
    "sinkhorn_dot": ((0.35, -0.2), ((0.279568647, -0.1402953807), (0.0787133003, 0.0397155248))),
    "sinkhorn_l2": ((0.35, -0.2), ((0.4612177049, -0.2492240586), (0.1257164654, 0.0808765963))),
    "linear": ((0.2195, 0.0185), ((0.332225, -0.21355), (0.0748, 0.0756))),
}


def velocity(field, gaussian, x, t=0.0):
    """$Gx+b$ at the rows of `x`."""
    G, b = (np.asarray(a) for a in field.affine(gaussian, t))
    return x @ G.T + b


@pytest.mark.parametrize("kind", KINDS)
def test_worked_numbers(kind):
    u, G = WORKED[kind]
    got, b = golden.make(kind, Q, K, V).affine(mf.Gaussian(MEAN, cov=COV))
    np.testing.assert_allclose(got, G, atol=1e-10, rtol=0)
    np.testing.assert_allclose(b + got @ MEAN, u, atol=1e-10, rtol=0)


def quadrature(kind, x, mean, L, Q, K, V, tau, biases, nodes):
    r"""$\Gamma_\mu(x)$ from the definition, $\mu$ a product of Gauss-Hermite nodes moved by $m+L\xi$.

    Sinkhorn by plain sweeps, which contract like the squared singular values $s^2$ of MATH e.2.
    """
    xi, w = np.polynomial.hermite_e.hermegauss(nodes)
    r = L.shape[1]
    grid = np.stack(np.meshgrid(*[xi] * r, indexing="ij"), -1).reshape(-1, r)
    w = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * r, indexing="ij"), -1).reshape(-1, r), axis=1)
    y = mean + grid @ L.T
    bq, bk, bv = biases
    q, own, keys, values = x @ Q.T + bq, y @ Q.T + bq, y @ K.T + bk, y @ V.T + bv
    if kind not in dense.SINKHORN:
        return dense.matrix(kind, q, keys, w, tau) @ values
    C, log_w = dense.logits(kind, own, keys, tau).astype(float), np.log(w)
    g, change = np.zeros(len(w)), np.inf
    for _ in range(200):
        f = -dense.lse(C + g[None] + log_w[None], 1)
        g, old = -dense.lse(C.T + f[None] + log_w[None], 1), g
        change = np.abs(w @ np.abs(np.expm1(g - old)))
        if change < 1e-14:
            break
    assert change < 1e-14, "the reference itself did not converge"
    return dense.normalised(dense.logits(kind, q, keys, tau) + g[None] + log_w[None]) @ values


def drawn(d, k, v, r, rank_q=None, rank_k=None, biased=True):
    """A head with its biases and a Gaussian, of moderate size; `rank_q`, `rank_k` cut the ranks of Q and K."""
    Q, K = (RNG.normal(size=(k, d)) * 0.5 for _ in range(2))
    for M, rank in ((Q, rank_q), (K, rank_k)):
        if rank is not None:
            M[:] = RNG.normal(size=(k, rank)) @ RNG.normal(size=(rank, d)) * 0.4
    biases = [0.4 * RNG.normal(size=n) if biased else np.zeros(n) for n in (k, k, v)]
    return {
        "Q": Q,
        "K": K,
        "V": RNG.normal(size=(v, d)),
        "biases": biases,
        "mean": 0.5 * RNG.normal(size=d),
        "L": 0.6 * RNG.normal(size=(d, r)),
    }


CASES = {
    "d=1, biases": (drawn(1, 1, 1, 1), 0.7),
    "d=2, biases": (drawn(2, 2, 2, 2), 1.7),
    "Q and K of rank 1": (drawn(2, 3, 2, 2, rank_q=1, rank_k=1), 1.0),
    "k=1": (drawn(2, 1, 2, 2), 1.4),
    "singular covariance": (drawn(2, 2, 2, 1), 0.8),
    "wide values": (drawn(2, 2, 3, 2), 1.3),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_affine_is_the_field(kind, name):
    # MATH i, row 29: also off the support of a singular Gaussian.
    case, tau = CASES[name]
    mean, L, biases = case["mean"], case["L"], case["biases"]
    x = np.random.default_rng(1).normal(size=(5, len(mean)))
    sinkhorn = kind in dense.SINKHORN
    nodes = 60 if L.shape[1] == 1 else 26 if sinkhorn else 50
    exact = quadrature(kind, x, mean, L, case["Q"], case["K"], case["V"], tau, biases, nodes)
    names = dict(zip(("query_bias", "key_bias", "value_bias"), biases, strict=True))
    field = golden.make(kind, case["Q"], case["K"], case["V"], tau, **names)
    gaussian = mf.Gaussian(mean, factor=L)
    error = dense.error(velocity(field, gaussian, x), exact)
    print(f"{kind}, {name}: {error:.1e}")
    assert error < 1e-12  # quadrature is exact here; MATH asks for 1e-10, Sinkhorn 1e-8
    if name == "wide values":  # values in R^3, brought back by W
        W = np.array([[1.0, -0.5, 0.2], [0.3, 0.1, 2.0]])
        whole = mf.MultiHead([field, mf.Affine([[0.0, 1.0], [-1.0, 0.0]], [0.1, 0.2])], W=[W, np.eye(2)])
        rotated = np.stack([x[:, 1] + 0.1, 0.2 - x[:, 0]], axis=1)
        assert dense.error(velocity(whole, gaussian, x), exact @ W.T + rotated) < 1e-12


def test_combinations_and_schedules():
    gaussian = mf.Gaussian(MEAN, cov=COV)
    x = np.array([[0.3, -1.2], [2.0, 0.5]])
    M, b = np.array([[0.0, 1.0], [-0.5, 0.2]]), np.array([0.3, -0.7])
    parts = {kind: velocity(golden.make(kind, Q, K, V), gaussian, x) for kind in ("softmax", "l2", "sinkhorn_dot")}
    softmax, l2, sinkhorn = (golden.make(kind, Q, K, V) for kind in parts)
    affine = mf.Affine(M, b)
    np.testing.assert_allclose(velocity(affine, gaussian, x), x @ M.T + b, rtol=1e-15)
    got = velocity(0.5 * softmax - l2 / 4 + 2.0 * (sinkhorn + affine), gaussian, x)
    whole = 0.5 * parts["softmax"] - parts["l2"] / 4 + 2 * (parts["sinkhorn_dot"] + x @ M.T + b)
    np.testing.assert_allclose(got, whole, rtol=1e-13)
    W = [M, V]
    heads = mf.MultiHead([softmax, mf.MultiHead([l2, sinkhorn])], W=W)
    want = parts["softmax"] @ M.T + (parts["l2"] + parts["sinkhorn_dot"]) @ V.T
    np.testing.assert_allclose(velocity(heads, gaussian, x), want, rtol=1e-13)
    # At time t: weights of a schedule, the piece after a break.
    moving = mf.Scheduled(lambda t: mf.Softmax((1 + t) * Q, K, V))
    at_two = velocity(mf.Softmax(3.0 * Q, K, V), gaussian, x)
    np.testing.assert_allclose(velocity(moving, gaussian, x, 2.0), at_two, rtol=1e-13)
    pieces = mf.Piecewise([l2, moving], [1.0])
    np.testing.assert_array_equal(velocity(pieces, gaussian, x, 0.5), parts["l2"])
    np.testing.assert_allclose(velocity(pieces, gaussian, x, 2.0), at_two, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_the_factor_may_be_rotated(kind):
    # MATH i, row 54: L O, square or with more columns, is another factor of the same covariance.
    case, tau = CASES["d=2, biases"]
    x = np.array([[0.3, -1.2], [2.0, 0.5], [0.0, 0.0]])
    field = golden.make(kind, case["Q"], case["K"], case["V"], tau)
    want = velocity(field, mf.Gaussian(case["mean"], factor=case["L"]), x)
    for r in (2, 4):
        O = np.linalg.qr(np.random.default_rng(r).normal(size=(r, r)))[0][:2]
        assert dense.error(velocity(field, mf.Gaussian(case["mean"], factor=case["L"] @ O), x), want) < 1e-13


def test_sinkhorn_depends_on_b_only():
    # MATH i, row 54: B = A / eps for the dot kernel, 2 A / eps for the distance.
    case, _ = CASES["d=2, biases"]
    gaussian = mf.Gaussian(case["mean"], factor=case["L"])
    S = np.array([[1.5, 0.3], [-0.2, 0.8]])
    Q, K, V = case["Q"], case["K"], case["V"]
    one = mf.Sinkhorn(Q, K, V, 0.6)
    G, b = one.affine(gaussian)
    same = [
        mf.Sinkhorn(S @ Q, np.linalg.inv(S).T @ K, V, 0.6),
        mf.Sinkhorn(3 * Q, K / 2, V, 0.9),
        mf.Sinkhorn(Q, K, V, 1.2, kernel="distance"),
        mf.Sinkhorn(np.eye(2), np.asarray(one.B).T, V),
        mf.Sinkhorn(Q, K, V, 0.6, query_bias=[1.0, -2.0], key_bias=[0.3, 5.0]),
    ]
    for other in same:
        for got, want in zip(other.affine(gaussian), (G, b), strict=True):
            assert dense.error(got, want) < 1e-12
    assert dense.error(mf.Sinkhorn(K, Q, V, 0.6).affine(gaussian)[0], G) > 0.1  # B^T is another field


I = np.eye(2)
REFUSED = {
    "Sigmoid": (mf.Sigmoid(I, I, I), "Stein"),
    "Unnormalised": (mf.Unnormalised(I, I, I), "exponential of a quadratic"),
    "Hardmax": (mf.Hardmax(I, I, I), "farthest point"),
    "Causal(Softmax)": (mf.Causal(mf.Softmax(I, I, I)), "needs positions"),
    "Perceptron": (mf.Perceptron(np.ones((3, 2)), np.ones((2, 3))), "not affine"),
    "PreNorm": (mf.PreNorm(mf.Softmax(I, I, I), mf.RMSNorm()), "not affine"),
    "PostNorm": (mf.PostNorm(mf.Softmax(I, I, I), mf.RMSNorm()), "not affine"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_preserve_gaussians_is_refused(name):
    field, reason = REFUSED[name]
    gaussian = mf.Gaussian(MEAN, cov=COV)
    # Also as a part of a sum, a head, or a schedule.
    whole = (
        field,
        mf.L2(I, I, I) + 0.1 * field,
        mf.MultiHead([mf.Linear(I, I, I), field]),
        mf.Scheduled(lambda t: field),
    )
    for part in whole:
        with pytest.raises(mf.NotGaussianPreserving) as caught:
            part.affine(gaussian)
        assert f"{name} does not preserve Gaussians" in caught.value.what and reason in caught.value.what
        assert f"{name} on a Gaussian" == caught.value.got
        assert "softmax, L2, Sinkhorn" in caught.value.expected and "gaussian.sample" in caught.value.remedy
        assert isinstance(caught.value, mf.InputError)


def test_other_measures_are_refused():
    field = mf.Softmax(I, I, I)
    with pytest.raises(mf.InputError, match="one Gaussian at a time"):
        field.affine(mf.Gaussian(np.zeros((3, 2)), factor=np.ones((3, 2, 2))))
    with pytest.raises(mf.InputError, match="dimension 2, tokens of dimension 3"):
        field.affine(mf.Gaussian(np.zeros(3), cov=np.eye(3)))
    assert_refused(lambda: field.affine(mf.PointCloud(I)), ["needs a Gaussian"])


# Factors at which the derivative of a singular value decomposition does not exist, or is large.
U = np.linalg.qr(np.random.default_rng(11).normal(size=(3, 3)))[0]
FACTORS = {
    "identity": np.eye(3),
    "zero": np.zeros((3, 3)),
    "rank 1": np.outer([1.0, -0.5, 0.3], [0.2, 0.4, 1.0]),
    "equal singular values": U @ np.diag([1.5, 0.4, 0.4]) @ U.T,
    "generic": np.random.default_rng(12).normal(size=(3, 3)),
}


@pytest.fixture(scope="module")
def derivatives():
    """For each kind, (G, b) as one array, its derivative in a direction and its second derivative there."""
    made = {}
    for kind in KINDS:
        # With these weights M = L^T L for Sinkhorn: M = I at the identity.
        field = golden.make(kind, np.eye(3), np.eye(3), np.eye(3), 2.0 if kind == "sinkhorn_l2" else 1.0)

        def value(L, field=field):
            G, b = field.affine(mf.Gaussian(np.array([0.5, -0.3, 0.2]), factor=L))
            return jnp.concatenate([G, b[:, None]], axis=1)

        def first(L, E, value=value):
            return jax.jvp(value, (L,), (E,))[1]

        def second(L, E, first=first):
            return jax.jvp(lambda L: first(L, E), (L,), (E,))[1]

        def adjoint(L, C, value=value):
            return jax.vjp(value, L)[1](C)[0]

        made[kind] = tuple(jax.jit(f) for f in (value, first, second, adjoint))
    return made


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind, name, derivatives):
    # MATH e.2: finite, and right, also where singular values are equal or zero.
    value, first, second, adjoint = derivatives[kind]
    L, rng, h = FACTORS[name], np.random.default_rng(13), 2e-3
    E = rng.normal(size=L.shape) / 3

    def slope(f):
        """A central difference of sixth order."""
        weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
        return sum(w * (np.asarray(f(L + j * h * E)) - np.asarray(f(L - j * h * E))) for j, w in weights.items()) / h

    tangent = np.asarray(first(L, E))
    np.testing.assert_allclose(tangent, slope(value), rtol=0, atol=1e-10 * (1 + np.abs(tangent).max()))
    curve = np.asarray(second(L, E))
    np.testing.assert_allclose(curve, slope(lambda L: first(L, E)), rtol=0, atol=1e-9 * (1 + np.abs(curve).max()))
    assert np.abs(curve).max() > 1e-3
    # Reverse mode is the transpose of forward mode.
    C = rng.normal(size=tangent.shape)
    np.testing.assert_allclose((np.asarray(adjoint(L, C)) * E).sum(), (C * tangent).sum(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["sinkhorn_dot", "l2"])
def test_singular_values_of_all_sizes_together(kind):
    # Diagonal weights: each singular value on its own, from 1e-9 to 1e9, to the last digits, in G and in GL.
    S = 10.0 ** np.arange(-9, 10, 3)
    L = np.diag(np.sqrt(S))
    field = golden.make(kind, np.eye(7), np.eye(7), np.eye(7))
    gaussian = mf.Gaussian(np.zeros(7), factor=L)
    want = 2 * S / (1 + np.sqrt(1 + 4 * S**2)) if kind == "sinkhorn_dot" else 2 * S / (1 + 2 * S)
    G, _ = field.affine(gaussian)
    np.testing.assert_allclose(np.diag(G), want, rtol=4e-15)
    np.testing.assert_array_equal(G - np.diag(np.diag(G)), 0)
    np.testing.assert_allclose(
        np.diag(closure.stretch_of(field.terms(jnp.zeros(())), gaussian)), want * np.sqrt(S), rtol=4e-15
    )


def test_the_gain_of_sinkhorn():
    # T has the singular vectors of M and the singular values s with s / (1 - s^2) = S; here in rotated bases.
    rng = np.random.default_rng(14)
    for S in ([1.0, 1.0, 1.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1e-9, 1e-4, 1.0], [1e3, 1e6, 1e9]):
        S = np.array(S)
        U, W = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
        T, gain = (np.asarray(a) for a in closure.sinkhorn_gain(jnp.asarray((U * S) @ W.T)))
        s = 2 * S / (1 + np.sqrt(1 + 4 * S**2))
        # Rounding M moves T by as much as M, but never by more than its own size.
        room = 1e-15 * max(1.0, S.max() / max(S.min(), 1.0)) * 10
        np.testing.assert_allclose(T, (U * s) @ W.T, rtol=0, atol=room)
        np.testing.assert_allclose(gain, (U * (2 / (1 + np.sqrt(1 + 4 * S**2)))) @ U.T, rtol=0, atol=room)
        assert np.linalg.norm(T, 2) <= 1 + 1e-14


@pytest.mark.parametrize("size", [1e50, 1e80, 1e140, 1e153])
def test_saturated_kinds_on_a_wide_gaussian(size):
    # Far beyond saturation G is the orthogonal factor: here V, of the dot kernel, and V K^{-1} Q, of L2 attention.
    g = mf.Gaussian([0.0, 0.0], factor=[[size, 0.5 * size], [0.0, size]])
    I = np.eye(2)
    for field in (mf.Sinkhorn(I, I, V), mf.L2(I, I, V)):
        np.testing.assert_allclose(field.affine(g)[0], V, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(mf.layers(field, g, depth=1).final.factor, (I + V) @ g.factor, rtol=1e-12)


@pytest.mark.parametrize("size", [400, 600, 1000])
def test_the_gains_of_large_matrices_have_the_derivative_of_smaller_ones(size):
    # Where 1 is nothing beside M M^T, T is of degree 0 in M and the gain, as that of L2 attention, of degree -1.
    M, dM = jnp.asarray(np.random.default_rng(15).normal(size=(2, 3, 3)))

    def both(unit):
        values, slopes = jax.jvp(lambda M: (*closure.sinkhorn_gain(M), closure.ridge(M)), (M * unit,), (dM * unit,))
        return [np.asarray(part) * unit**degree for part, degree in zip((*values, *slopes), (0, 1, 1) * 2, strict=True)]

    for found, expected in zip(both(2.0**size), both(2.0**100), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)

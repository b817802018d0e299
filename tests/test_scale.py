"""Scale-free numbers: what is read off a measure follows the units of the tokens, however small or large they are.

Tokens in other units are tokens times a power of two, which is exact. So a number of degree k changes by the k-th power
of it, and otherwise not in its last digit, or but for rounding where a library scales in its own way.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer._scale import norm
from meanformer.diagnostics.spectra import effective_ranks
from oracles.refusals import assert_refused

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(2, 6, 3)) * [3.0, 1.0, 0.4] + [0.5, 0.0, 0.0]
W = np.array([0.3, 0.2, 0.1, 0.25, 0.15, 0.0])  # a token without weight, and of another scale
X[5] *= 64.0
M, N = RNG.normal(size=(2, 3, 3)) + 2 * np.eye(3)
SYMMETRIC = M @ M.T
FACTOR = RNG.normal(size=(3, 3)) + np.eye(3)
LINE = 1 / (1 + np.linspace(-2, 2, 6) ** 2)
PLANE = np.outer(LINE, LINE[::-1] ** 2)
KEY = jax.random.key(0)

# Exponents of the units: of numbers of degree 1 or less, and where squares must be held.
FULL = {"float32": 100, "float64": 900}
SQUARES = {"float32": 55, "float64": 480}


class Units:
    """Everything in units of `c`: points times c, matrices of keys and queries over c."""

    def __init__(self, exponent: int, dtype: str):
        self.c, self.dtype = 2.0**exponent, dtype

    def array(self, values, degree=1):
        return jnp.asarray(np.asarray(values) * self.c**degree, self.dtype)

    def cloud(self, points=X, weights=W):
        return mf.PointCloud(self.array(points), self.array(weights, 0), self.array(np.linspace(0, 1, 6), 0))

    def gaussian(self, mean=(0.5, -1.0, 2.0), factor=FACTOR):
        return mf.Gaussian(self.array(mean), factor=self.array(factor))

    def density(self):
        return mf.Density(self.array(PLANE / PLANE.sum() * 36 / 16, -2), *self.array([[-2.0, -2.0], [2.0, 2.0]]))

    def softmax(self):
        return mf.Softmax(self.array(0.1 * M, -1), self.array(N, -1), self.array(-0.5 * np.eye(3), 0))

    def l2(self):
        return mf.L2(self.array(0.1 * M, -1), self.array(N, -1), self.array(N, 0))

    def biased(self):
        bias = self.array([0.1, 0.2, 0.3], 0)
        return mf.Softmax(self.array(0.1 * M, -1), self.array(N, -1), self.array(N, 0), query_bias=bias, key_bias=bias)

    def sinkhorn(self):
        return mf.Sinkhorn(self.array(0.1 * M, -1), self.array(N, -1), self.array(N, 0), eps=1.0)


RANKS = (mf.effective_rank, mf.participation_ratio, mf.stable_rank, mf.isoscore)


def ranks(of):
    return [(0, f(of)) for f in RANKS]


def cluster_numbers(u):
    found = mf.clusters(u.cloud(), 0.5)
    return [(0, found.count), (0, found.labels), (0, found.weights), (1, found.centres), (1, found.tolerance)]


def gaussian_numbers(u):
    g = u.gaussian()
    bits = float(np.log(u.c))
    return [(1, g.mean), (2, g.covariance), (2, g.second_moment), (0, g.condition), (0, float(g.entropy) - 3 * bits)]


def matched(u, kind, sign):
    g = mf.matched_flow(kind, u.array(N, -1), sign, u.gaussian(), t=0.01)
    return [(1, g.mean), (2, g.covariance)]


def attention(u):
    found = mf.attention_summary(u.softmax(), u.cloud())
    return [(0, found.rank), (0, found.entropy), (0, found.received)]


def energy_of(kind, u):
    """Attention that is a gradient flow: V = 2 A^T."""
    K = u.array(np.eye(3), -1)
    return [(0, mf.gaussian_energy(kind(K, K, u.array(2 * np.eye(3), -2)), u.gaussian()))]


# Name: the numbers with their degrees, and the largest exponents.
CASES = {
    "ranks of tokens": (lambda u: ranks(u.cloud()), FULL),
    "ranks of a Gaussian": (lambda u: ranks(u.gaussian()), FULL),
    "ranks of a covariance": (lambda u: ranks(u.array(SYMMETRIC)), FULL),
    "ranks of many covariances": (lambda u: [(0, effective_ranks(np.asarray(u.array([SYMMETRIC]))))], FULL),
    "ranks of a Gaussian by its covariance": (
        lambda u: ranks(mf.Gaussian(np.zeros(3, u.dtype), cov=u.array(SYMMETRIC))),
        FULL,
    ),
    "ranks of a density": (lambda u: ranks(u.density()), SQUARES),
    "ranks of a mixture": (
        lambda u: ranks(mf.to_gaussian(mf.gaussian_mixture(u.array(X[:4]), u.array(SYMMETRIC, 2)))),
        SQUARES,
    ),
    "average_cosine": (lambda u: [(0, mf.average_cosine(u.cloud()))], FULL),
    "moments of tokens": (
        lambda u: [(1, u.cloud().mean), (1, u.cloud().radius), (2, u.cloud().covariance)],
        SQUARES,
    ),
    "mean and radius of tokens": (lambda u: [(1, u.cloud().mean), (1, u.cloud().radius)], FULL),
    "moments of a Gaussian": (gaussian_numbers, SQUARES),
    "condition of a Gaussian": (lambda u: [(0, u.gaussian().condition)], FULL),
    "entropy of a Gaussian": (
        lambda u: [
            (0, float(mf.Gaussian(np.zeros(d, u.dtype), factor=u.array(FACTOR[:d])).entropy) - d * float(np.log(u.c)))
            for d in (1, 2, 3)
        ],
        FULL,
    ),
    "the factor of a covariance": (
        lambda u: [(1, mf.Gaussian(np.zeros(3, u.dtype), cov=u.array(SYMMETRIC, 2)).factor)],
        SQUARES,
    ),
    "to_gaussian of tokens": (lambda u: [(1, mf.to_gaussian(u.cloud()).factor)], FULL),
    "to_gaussian of laws": (
        lambda u: [
            (1, abs(mf.to_gaussian(law).factor))
            for law in (
                mf.uniform_ball(3, u.array(2.0)),
                mf.uniform_cube(3, u.array(-1.0), u.array(2.0)),
                mf.uniform_sphere(3, u.array(2.0)),
            )
        ],
        FULL,
    ),
    "to_density of a Gaussian": (
        lambda u: [
            (1, (rho := mf.to_density(mf.Gaussian(u.array([1.0]), factor=u.array([[2.0]])), 20)).low),
            (0, rho.masses),
        ],
        SQUARES,
    ),
    "clusters": (cluster_numbers, FULL),
    "wasserstein": (
        lambda u: [(1, mf.wasserstein(u.cloud(), u.cloud(Y), p)) for p in (1, 2, 7.5)],
        FULL,
    ),
    "wasserstein of Gaussians": (
        lambda u: [(1, mf.wasserstein(u.gaussian(), u.gaussian(Y[0], M)))],
        FULL,
    ),
    "sliced_wasserstein": (lambda u: [(1, mf.sliced_wasserstein(u.cloud(), u.cloud(Y), directions=5))], FULL),
    "conditional_wasserstein": (lambda u: [(1, mf.conditional_wasserstein(u.cloud(), u.cloud(Y)))], FULL),
    "bures_geodesic": (
        lambda u: [
            (1, (g := mf.bures_geodesic(u.gaussian(), u.gaussian(Y[0], M), 0.25)).mean),
            (1, g.factor),
        ],
        FULL,
    ),
    "sinkhorn_divergence": (
        lambda u: [(2, mf.sinkhorn_divergence(u.cloud(), u.cloud(Y), u.array(1.0, 2)).value)],
        SQUARES,
    ),
    "entropic_cost": (
        lambda u: [(2, mf.entropic_cost(u.cloud(), u.cloud(Y), u.array(1.0, 2)).value)],
        SQUARES,
    ),
    "support_bound": (lambda u: [(1, mf.support_bound(u.softmax(), u.cloud(), 0.5))], FULL),
    "lipschitz_constants": (
        lambda u: [
            (0, [c for c in mf.lipschitz_constants(field, u.array(0.5)) if c is not None])
            for field in (u.softmax(), u.sinkhorn(), u.l2(), u.biased())
        ],
        FULL,
    ),
    "stability_bound": (
        lambda u: [
            (0, (bound := mf.stability_bound(u.softmax(), u.cloud(0.1 * Y), u.cloud(0.2 * Y), 0.1)).exponent),
            (1, bound.radius),
        ],
        FULL,
    ),
    "euler_bound": (lambda u: [(1, mf.euler_bound(u.softmax(), u.cloud(0.1 * Y), 4, 0.1))], FULL),
    "hardmax": (
        lambda u: [
            (1, mf.velocity(field := mf.Hardmax(*(u.array(np.eye(3), 0),) * 3), u.cloud())),
            (0, field.matrix(u.cloud())),
        ],
        FULL,
    ),
    "trace_bound": (lambda u: [(2, mf.trace_bound(u.sinkhorn(), u.array(2.0, 2), 0.5))], SQUARES),
    "attention_summary": (attention, SQUARES),
    "ot_energy": (
        lambda u: [(0, mf.ot_energy(u.array(0.01 * M, -2), mu)) for mu in (u.cloud(Y), u.gaussian())],
        SQUARES,
    ),
    "e0_energy": (
        lambda u: [(0, mf.e0_energy(u.array(0.001 * M, -2), mu)) for mu in (u.cloud(Y), u.gaussian())],
        SQUARES,
    ),
    "softmax_energy": (lambda u: [(0, mf.softmax_energy(u.array(0.1 * M, -2), u.gaussian()))], SQUARES),
    "l2_energy": (lambda u: [(0, mf.l2_energy(u.array(0.1 * M, -1), u.gaussian()))], FULL),
    "sphere_energy": (
        lambda u: [(2, mf.sphere_energy(u.array(0.01, -2), u.cloud(Y)))],
        SQUARES,
    ),
    "energy of softmax": (lambda u: energy_of(mf.Softmax, u), SQUARES),
    "energy of L2": (lambda u: energy_of(mf.L2, u), SQUARES),
    "energy of Sinkhorn": (lambda u: energy_of(lambda *maps: mf.Sinkhorn(*maps, eps=1.0), u), SQUARES),
    "softmax_blowup_time": (
        lambda u: [
            (0, mf.softmax_blowup_time(u.array(SYMMETRIC, -2), u.gaussian())),
            (-2, mf.softmax_blowup_time(np.eye(3, dtype=u.dtype), u.gaussian(), 0.5)),
        ],
        SQUARES,
    ),
    "softmax_identity_flow": (
        lambda u: [(1, mf.softmax_identity_flow(u.array(-SYMMETRIC, -2), u.gaussian(), 0.5).factor)],
        SQUARES,
    ),
    "matched_flow of softmax": (lambda u: matched(u, "softmax", -1), SQUARES),
    "matched_flow of L2": (lambda u: matched(u, "l2", 1), SQUARES),
    "matched_flow of Sinkhorn": (lambda u: matched(u, "sinkhorn", 1), SQUARES),
    "one_dimensional": (
        lambda u: [
            number
            for kind in ("softmax", "l2", "sinkhorn")
            for number in zip(
                (1, 2),
                mf.one_dimensional(
                    kind, u.array(0.5, -1), u.array(2.0, -1), 0.3, 1.0, u.array(1.5), u.array(2.0, 2), 0.1
                ),
                strict=True,
            )
        ],
        SQUARES,
    ),
    "l2_blowup_time": (
        lambda u: [
            (
                0,
                mf.l2_blowup_time(
                    u.array([[0.0, 1.0]], -1),
                    u.array([[1.0, 0.0]], -1),
                    np.diag([0.0, 1.0]).astype(u.dtype),
                    mf.Gaussian(np.zeros(2, u.dtype), factor=u.array([[1.0, 0.0], [0.5, 0.8]])),
                ),
            )
        ],
        SQUARES,
    ),
    "blowup_bounds": (
        lambda u: [(-2, mf.blowup_bounds(np.eye(3, dtype=u.dtype), SYMMETRIC.astype(u.dtype), u.gaussian()))],
        SQUARES,
    ),
    "blowup_bounds in A": (
        lambda u: [(-1, mf.blowup_bounds(u.array(SYMMETRIC), np.eye(3), mf.Gaussian(np.zeros(3), factor=FACTOR)))],
        FULL,
    ),
    "frozen_covariance": (
        lambda u: [(2, mf.frozen_covariance(u.array(np.diag([1.0, 2.0, 0.0]), -1), u.gaussian()))],
        SQUARES,
    ),
    "conserved": (
        lambda u: [(-2, mf.conserved(u.array(np.diag([1.0, 2.0, 0.0]), -1), u.gaussian()))],
        SQUARES,
    ),
    "stationarity": (
        lambda u: [
            (0, mf.stationarity(u.array(M, power), u.array(N, -power), u.array(SYMMETRIC, power))) for power in (1, -1)
        ],
        FULL,
    ),
    "stationarity of a Gaussian": (lambda u: [(0, mf.stationarity(M, N, u.gaussian()))], FULL),
    "rank_bound": (
        lambda u: [
            (0, mf.rank_bound(u.array(A, power), u.array(V, power)).rank)
            for power in (1, -1)
            for A, V in (
                (np.diag([1.0, -1.0, 0.0]), np.eye(3)),
                (-np.diag([1.0, 2.0, 0.0]), SYMMETRIC),
                (M, N),
            )
        ],
        FULL,
    ),
}


def in_units_of_one(case, exponent, dtype):
    """The numbers of a case in units of 2^exponent, as arrays of float64, and brought back to units of one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = case(Units(exponent, dtype))
    return [np.ldexp(np.asarray(value, np.float64), -degree * exponent) for degree, value in found]


# Single precision compiles all anew: by day for what is asked for most.
SINGLE = ("ranks of tokens", "moments of tokens", "average_cosine", "hardmax", "wasserstein of Gaussians")


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, marks=[] if dtype == "float64" or case in SINGLE else pytest.mark.nightly)
        for case in CASES
        for dtype in FULL
    ],
)
def test_numbers_follow_the_units(case, dtype):
    case, exponents = CASES[case]
    most = exponents[dtype]
    exact = in_units_of_one(case, 0, dtype)
    assert all(np.isfinite(value).all() for value in exact)
    for exponent in (-most, -most // 3, most // 3, most):
        for found, expected in zip(in_units_of_one(case, exponent, dtype), exact, strict=True):
            np.testing.assert_allclose(
                found,
                expected,
                rtol=1e-12 if dtype == "float64" else 1e-5,
                atol=1e-13 if dtype == "float64" else 1e-6,
                err_msg=f"units of 2^{exponent}",
            )


# Runs: the same picture in other units


FLAT = X[:, :2]


def tokens_of(u):
    return mf.PointCloud(u.array(FLAT))


def attention_of(u, V):
    I = np.eye(2)
    return mf.Softmax(u.array(0.1 * I, -1), u.array(I, -1), u.array(V * I, 0))


def gap_numbers(u):
    field, g = attention_of(u, 1.0), mf.Gaussian(u.array([0.1, 0.2]), factor=u.array(0.5 * np.eye(2)))
    gap = mf.gaussian_gap(mf.flow(field, tokens_of(u), 1.0), mf.flow(field, g, 1.0))
    return [(1, gap.mean[-1]), (2, gap.covariance[-1]), (0, gap.relative[-1]), (1, gap.bures[-1]), (0, gap.kernel[-1])]


def history_numbers(u):
    history = mf.clusters_along(mf.flow(attention_of(u, -1.0), tokens_of(u), 20.0), tolerance=0.1)
    return [(0, history.count), (0, history.labels)]


SMALL = ("defect", "mean", "hull_growth")  # what is left of errors of the solver


def verdict_numbers(verdict, lengths=()):
    assert verdict.holds
    return [(int(key in lengths), value) for key, value in verdict.evidence.items() if key not in SMALL]


def energy_numbers(run):
    path = mf.energy_along(run)
    assert path.held
    return [(0, path.energy)]


def checked_numbers(u):
    checked = mf.check(mf.flow(attention_of(u, 0.5), tokens_of(u), 1.0))
    assert checked.ok
    return [(1, checked["support radius"].bound), (0, checked["Lipschitz in the point"].measured)]


def stopped(u, rule):
    run = mf.flow(attention_of(u, -1.0), tokens_of(u), 20.0, stop=rule, step=0.5)
    assert run.outcome.kind == "STOPPED"
    return [(0, run.times[-1])]


def fate_numbers(u):
    g = mf.Gaussian(u.array(np.zeros((1, 2))), factor=u.array([np.eye(2)]))
    found = mf.fates(mf.Softmax(u.array(np.eye(2), -1), u.array(np.eye(2), -1), np.diag([1.0, -1.0])), g)
    return [(0, found.time)]


RUNS = {
    "tokens": lambda u: [(1, mf.flow(attention_of(u, 1.0), tokens_of(u), 1.0).final.points)],
    "tokens that shrink": lambda u: [(1, mf.flow(attention_of(u, -1.0), tokens_of(u), 20.0).final.points)],
    "gaussian_gap": gap_numbers,
    "clusters_along": history_numbers,
    "collapse_limit": lambda u: verdict_numbers(
        mf.collapse_limit(mf.flow(attention_of(u, -1.0), tokens_of(u), 80.0), exponent=0.3, mean=0.1)
    ),
    "polytope_limit": lambda u: verdict_numbers(
        mf.polytope_limit(mf.flow(attention_of(u, 1.0), tokens_of(u), 8.0), growth=1e-3), ("limits",)
    ),
    "weak_residual": lambda u: [
        (-1, (weak := mf.weak_residual(mf.flow(attention_of(u, 1.0), tokens_of(u), 1.0))).frequencies),
        (0, weak.scale),
    ],
    "energy_along": lambda u: energy_numbers(mf.flow(attention_of(u, 1.0), tokens_of(u), 1.0)),
    "check": checked_numbers,
    "Stationary": lambda u: stopped(u, mf.Stationary(u.array(0.1))),
    "fates": fate_numbers,
    "the sphere": lambda u: [
        (
            1,
            mf.flow(
                attention_of(u, 1.0), tokens_of(u).push((s := mf.Sphere(u.array(1.0))).retract), 1.0, space=s
            ).final.points,
        )
    ],
}
QUICK = ("tokens", "clusters_along", "Stationary", "weak_residual")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in QUICK else pytest.mark.nightly) for c in RUNS])
def test_runs_follow_the_units(case):
    """The solver controls errors relative to the tokens, so runs agree within its tolerances."""
    exact = in_units_of_one(RUNS[case], 0, "float64")
    for exponent in (-480, -60, 60, 480):
        for found, expected in zip(in_units_of_one(RUNS[case], exponent, "float64"), exact, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=3e-5, err_msg=f"units of 2^{exponent}")


# Derivatives, and programs


TRACED = {
    "effective_rank": (0, lambda x: mf.effective_rank(mf.PointCloud(x))),
    "isoscore": (0, lambda x: mf.isoscore(mf.PointCloud(x))),
    "average_cosine": (0, lambda x: mf.average_cosine(mf.PointCloud(x))),
    "radius": (1, lambda x: mf.PointCloud(x).radius),
    "bures_wasserstein": (
        1,
        lambda x: mf.bures_wasserstein(mf.Gaussian(x[0], factor=x[1:4]), mf.Gaussian(x[4], factor=x[2:5])),
    ),
    "entropy": (None, lambda x: mf.Gaussian(x[0], factor=x[1:4]).entropy),
}


@pytest.mark.parametrize("name", TRACED)
def test_derivatives_follow_the_units(name):
    """A number of degree k has derivatives of degree k - 1."""
    degree, function = TRACED[name]
    both = jax.jit(jax.value_and_grad(function))
    value, slope = both(jnp.asarray(X))
    for exponent in (-900, 900):
        found, other = both(jnp.asarray(X * 2.0**exponent))
        if degree is not None:
            np.testing.assert_allclose(float(found) / 2.0 ** (degree * exponent), float(value), rtol=1e-12)
        # Twice the half, since the square of the unit is beyond the range.
        back = 2.0 ** ((1 - (degree or 0)) * exponent)
        np.testing.assert_allclose(np.asarray(other) * back, slope, rtol=1e-9, atol=1e-13)


# The ends of the range


def test_results_beyond_the_range_are_refused():
    far = mf.PointCloud(1.7e308 * np.ones((2, 3)))
    other = mf.PointCloud(-1.7e308 * np.ones((2, 3)))
    for distance in (mf.wasserstein, mf.sliced_wasserstein):
        assert_refused(lambda distance=distance: distance(far, other), ("the distance is beyond", "larger units"))
    left, right = (mf.Gaussian(np.full(3, sign * 1.7e308), factor=np.eye(3)) for sign in (-1, 1))
    assert_refused(lambda: mf.wasserstein(left, right), ("the distance is beyond", "1.8e+308"))


@pytest.mark.parametrize("kind", ["Softmax", "L2", "Sinkhorn", "Sigmoid", "Linear", "Unnormalised", "Hardmax"])
@pytest.mark.parametrize("size", [1e153, 1e155, 1e300])
def test_fields_at_the_end_of_the_range(kind, size):
    """Logits beyond it are refused, or their limit is told: the share of tokens ahead, or the first of them."""
    I, X = np.eye(2), np.random.default_rng(0).standard_normal((12, 2))
    field, mu = getattr(mf, kind)(I, I, I), mf.PointCloud(size * X)
    products = X @ X.T
    leading = products == products.max(axis=1, keepdims=True)
    limit = {"Sigmoid": (products > 0) / 12, "Hardmax": leading, "Softmax": leading}.get(kind)
    for asked, expected in (
        (lambda: mf.velocity(field, mu) / size, lambda: limit @ X),
        (lambda: field(mu, mu.points[:3]) / size, lambda: limit[:3] @ X),
        (lambda: field.matrix(mu), lambda: limit),
    ):
        try:
            found = asked()
        except mf.InputError as error:
            assert "is beyond the range of floating-point numbers" in error.what
        else:
            assert np.isfinite(found).all()
            if limit is not None:
                np.testing.assert_allclose(found, expected(), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", [mf.LayerNorm(), mf.RMSNorm(), mf.LayerNorm(eps=0.0)])
def test_norms_of_tokens_at_the_end_of_the_range(norm, dtype):
    X, info = np.random.default_rng(0).standard_normal((5, 3)).astype(dtype), np.finfo(dtype)
    for power in (info.maxexp // 2 - 14, info.maxexp // 2 - 10, info.maxexp // 2 + 3, info.maxexp - 4):
        x = np.ldexp(X, power)
        expected = type(norm)(eps=0.0)(X)
        np.testing.assert_allclose(norm(x), expected, rtol=30 * info.eps)
    np.testing.assert_allclose(norm(np.array([[1, 3]])), norm(np.array([[1.0, 3.0]])))  # whole numbers too
    large = jnp.asarray(np.ldexp(X, info.maxexp // 2 + 3))
    derivative = jax.grad(lambda s: norm(s * large)[0, 0])(jnp.ones((), dtype))
    assert abs(derivative) < 30 * info.eps  # the units have no say


def test_energies_of_products_beyond_the_range_are_refused():
    loud = mf.Softmax(1e200 * np.eye(2), 1e200 * np.eye(2), np.eye(2))
    assert_refused(lambda: mf.gaussian_energy(loud, mf.Gaussian(np.zeros(2), np.eye(2))), ("a product of Q, K or V",))


def test_a_covariance_at_the_end_of_the_range():
    for size in (1e308, 1.7e308, 1e-300):
        gaussian = mf.Gaussian(np.zeros(2), cov=size * np.array([[1.0, 0.5], [0.5, 1.0]]))
        np.testing.assert_allclose(np.asarray(gaussian.covariance) / size, [[1, 0.5], [0.5, 1]], rtol=1e-14)
        np.testing.assert_allclose(mf.stable_rank(gaussian), 4 / 3, rtol=1e-14)
    # Where the covariance is infinite it is not a number nowhere, and what has no units is still known.
    wide = mf.PointCloud(1e200 * FLAT)
    assert not np.isnan(wide.covariance).any()
    np.testing.assert_allclose(mf.stable_rank(wide), mf.stable_rank(mf.PointCloud(FLAT)), rtol=1e-12)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_has_no_length(xp, value):
    assert not np.isfinite(norm(xp.asarray([value, 1.0])))
    assert not np.isfinite(norm(xp.asarray([[value, 1.0], [3.0, 4.0]]), 1)[0])
    assert norm(xp.asarray([[value, 1.0], [3.0, 4.0]]), 1)[1] == 5


def test_a_velocity_that_is_no_number_is_not_at_rest():
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0]])
    assert not mf.Stationary(1e-6)(tokens, jnp.asarray(0.0), lambda: jnp.full((2, 2), jnp.nan))
    assert mf.Stationary(1e-6)(tokens, jnp.asarray(0.0), lambda: jnp.zeros((2, 2)))


def test_the_covariance_has_a_derivative_by_a_weight_of_zero():
    points = jnp.asarray([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]])

    def trace(weights):
        return jnp.trace(mf.PointCloud(points, weights).covariance)

    found = jax.grad(trace)(jnp.asarray([0.5, 0.5, 0.0]))
    near = jax.grad(trace)(jnp.asarray([0.5, 0.5 - 1e-9, 1e-9]))
    np.testing.assert_allclose(found - found[0], near - near[0], rtol=1e-6, atol=1e-6)
    assert float(found[2] - found[0]) == pytest.approx(45.25 - 0.25)


@pytest.mark.parametrize("dtype, far", [("float32", 1e20), ("float32", 3e38), ("float64", 1e300), ("float64", 1.7e308)])
@pytest.mark.parametrize("size", [1.0, 1e-10, 1e10])
def test_a_token_without_weight_has_no_say_in_the_units(dtype, far, size):
    points = np.array([[1, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]) * size
    points[0, 0] = far
    tokens = mf.PointCloud(points.astype(dtype), np.array([0, 0.25, 0.25, 0.25, 0.25], dtype))
    np.testing.assert_allclose(np.asarray(tokens.covariance, float) / size**2, 0.5 * np.eye(2), rtol=1e-6, atol=0)
    assert float(mf.effective_rank(tokens)) == pytest.approx(2)
    slope = jax.grad(lambda weights: jnp.trace(mf.PointCloud.unchecked(tokens.points, weights, None).covariance))(
        tokens.weights
    )
    np.testing.assert_allclose(np.asarray(slope, float)[1:] / size**2, 1, rtol=1e-6)


def test_coordinates_of_different_sizes():
    """Each has its own units: the square of one is in the range also where that of another is not."""
    exact = np.array([[2.0, -1.0], [-1.0, 2.0]]) / 9
    for large, small in ((1e300, 1.0), (1e150, 1e-150), (1.0, 1e-150), (1e-300, 0.0)):
        found = np.asarray(mf.PointCloud([[large, 0.0], [0.0, small], [0.0, 0.0]]).covariance)
        np.testing.assert_allclose(found[1], [exact[0, 1] * large * small, exact[1, 1] * small**2], rtol=1e-14)
        law = mf.Gaussian(np.zeros(2), factor=[[large, 0.0], [0.5 * small, small]]).covariance
        np.testing.assert_allclose([law[0, 1], law[1, 1]], [0.5 * large * small, 1.25 * small**2], rtol=1e-14)
    mixed = mf.gaussian_mixture([[1e300, 0.0], [1e300, 2.0]], np.diag([1e300, 1.0]))
    np.testing.assert_allclose(mixed.covariance, [[1e300, 0], [0, 2]], rtol=1e-14)
    box = mf.uniform_cube(2, [0.0, 0.0], [1e300, 1.0])
    np.testing.assert_allclose(np.asarray(box.covariance)[1], [0, 1 / 12], rtol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e300])
def test_a_coordinate_that_is_constant_has_no_units(size):
    points = np.array([[1.0, 0, 5.0], [-1, 0, 5], [0, 1, 5], [0, -1, 5]]) * [size, size, 1.0]
    for mu in (mf.PointCloud(points), mf.Gaussian(np.zeros(3), factor=np.diag([size, size, 0.0]))):
        assert float(mf.effective_rank(mu)) == pytest.approx(2)
        np.testing.assert_allclose(np.diag(mf.to_gaussian(mu).factor)[2], 0)

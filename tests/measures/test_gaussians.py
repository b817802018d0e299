"""Gaussians: moments, entropy, condition number, push-forward, batches, printing."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import meanformer as mf

MEAN = np.random.default_rng(311).normal(size=3)
FACTORS = {width: np.random.default_rng(width).normal(size=(3, width)) for width in (1, 2, 3, 5)}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(312)


def gaussian(width: int) -> mf.Gaussian:
    return mf.Gaussian(MEAN, factor=FACTORS[width])


@pytest.mark.parametrize("width", FACTORS)
def test_moments_from_the_factor(width):
    g, L = gaussian(width), FACTORS[width]
    assert g.d == 3
    np.testing.assert_allclose(g.covariance, L @ L.T, rtol=1e-14)
    np.testing.assert_allclose(g.second_moment, L @ L.T + np.outer(MEAN, MEAN), rtol=1e-13)


@pytest.mark.parametrize("width", [3, 5])
def test_entropy_and_condition_of_a_regular_one(width):
    g = gaussian(width)
    sigma = FACTORS[width] @ FACTORS[width].T
    # What goes through Sigma, not L, has an error of eps times its condition.
    rounding = 4 * np.finfo(float).eps * np.linalg.cond(sigma)
    np.testing.assert_allclose(g.entropy, stats.multivariate_normal(MEAN, sigma).entropy(), rtol=0, atol=rounding)
    np.testing.assert_allclose(g.condition, np.linalg.cond(sigma), rtol=rounding)


def test_entropy_by_hand():
    # log sqrt(2 pi e) per direction, and the logarithms of the standard deviations.
    g = mf.Gaussian([0.0, 0.0], cov=np.diag([4.0, 1e-6]))
    np.testing.assert_allclose(g.entropy, np.log(2 * np.pi * np.e) + np.log(2) - 3 * np.log(10), rtol=1e-14)
    np.testing.assert_allclose(g.condition, 4e6, rtol=1e-12)


SINGULAR = {
    "narrow": mf.Gaussian(MEAN, factor=FACTORS[2]),
    "square": mf.Gaussian(MEAN, factor=np.outer(MEAN, [0.3, -1.7, 0.9])),  # its determinant rounds to 1e-17, not to 0
    "wide": mf.Gaussian(MEAN, factor=FACTORS[2] @ FACTORS[5][:2]),
    "covariance": mf.Gaussian(MEAN, cov=np.outer(MEAN, MEAN)),
    "point": mf.Gaussian(MEAN, factor=np.zeros((3, 3))),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_ones(name):
    assert SINGULAR[name].entropy == -np.inf
    assert SINGULAR[name].condition == np.inf


def test_nearly_singular_is_not_singular():
    """The factor resolves conditions up to 1e31, far beyond what the covariance does."""
    g = mf.Gaussian([0.0, 0.0], factor=np.diag([1.0, 1e-14]))
    np.testing.assert_allclose(g.condition, 1e28, rtol=1e-12)
    np.testing.assert_allclose(g.entropy, np.log(2 * np.pi * np.e) - 14 * np.log(10), rtol=1e-14)


@pytest.mark.parametrize("L", [np.eye(3), FACTORS[5], np.diag([2.0, 2.0, 1e-9])], ids=["equal", "wide", "flat"])
def test_derivative_of_the_entropy(L):
    """d log det(L L^T) / 2 is the pseudo-inverse of L, transposed; equal singular values are no trouble."""
    gradient = jax.grad(lambda L: mf.Gaussian(jnp.zeros(3), factor=L).entropy)(jnp.asarray(L))
    np.testing.assert_allclose(gradient, np.linalg.pinv(L).T, rtol=1e-12, atol=1e-13)


def test_entropy_of_a_singular_one_has_no_nan_derivative():
    gradient = jax.grad(lambda L: mf.Gaussian(jnp.zeros(2), factor=L).entropy)(jnp.zeros((2, 2)))
    assert np.isfinite(gradient).all()


def test_push_forward(rng):
    g, M, b = gaussian(2), rng.normal(size=(4, 3)), rng.normal(size=4)
    pushed = g.push(M, b)
    np.testing.assert_allclose(pushed.mean, M @ MEAN + b, rtol=1e-13)
    np.testing.assert_allclose(pushed.factor, M @ FACTORS[2], rtol=1e-13)
    assert np.array_equal(g.push(np.eye(3)).factor, g.factor)
    np.testing.assert_allclose(g.push(M).mean, M @ MEAN, rtol=1e-13)
    # Entropy grows by log|det M|.
    M = rng.normal(size=(3, 3))
    grown = gaussian(3).push(M).entropy - gaussian(3).entropy
    np.testing.assert_allclose(grown, np.log(abs(np.linalg.det(M))), rtol=1e-12)


def test_push_forward_of_draws(rng):
    """The same noise through the pushed Gaussian and through the map."""
    g, M, b = gaussian(2), rng.normal(size=(4, 3)), rng.normal(size=4)
    drawn = g.sample(7, key=jr.key(0)).points
    np.testing.assert_allclose(g.push(M, b).sample(7, key=jr.key(0)).points, drawn @ M.T + b[None], rtol=1e-12)


def test_batches(rng):
    means, factors = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2, 3, 3))
    batch = mf.Gaussian(means, factor=factors)
    by_cov = mf.Gaussian(means, cov=np.einsum("...ir,...jr->...ij", factors, factors))
    pushed = batch.push(FACTORS[5][:, :3], MEAN)
    assert batch.d == 3 and batch[1].mean.shape == (2, 3)
    for index in np.ndindex(4, 2):
        alone = mf.Gaussian(means[index], factor=factors[index])
        for name in ("covariance", "second_moment", "entropy", "condition"):
            np.testing.assert_allclose(getattr(batch, name)[index], getattr(alone, name), rtol=1e-12)
        np.testing.assert_allclose(by_cov.covariance[index], alone.covariance, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(pushed[index].mean, alone.push(FACTORS[5][:, :3], MEAN).mean, rtol=1e-12)
        np.testing.assert_allclose(pushed[index].factor, alone.push(FACTORS[5][:, :3]).factor, rtol=1e-12)


def test_a_singular_member_of_a_batch():
    batch = mf.Gaussian(np.zeros((2, 2)), cov=np.array([np.eye(2), np.ones((2, 2))]))
    np.testing.assert_allclose(batch.covariance, [np.eye(2), np.ones((2, 2))], atol=1e-15)
    assert np.array_equal(batch.condition, [1, np.inf])
    np.testing.assert_allclose(batch.entropy, [np.log(2 * np.pi * np.e), -np.inf])


def test_inside_jit_and_vmap(rng):
    batch = mf.Gaussian(np.zeros((3, 2)), factor=rng.normal(size=(3, 2, 2)))
    inside = jax.jit(jax.vmap(lambda g: (g.entropy, g.push(np.eye(2)).covariance)))(batch)
    np.testing.assert_allclose(inside[0], batch.entropy, rtol=1e-13)
    np.testing.assert_allclose(inside[1], batch.covariance, rtol=1e-13)


def test_dtypes():
    single = mf.Gaussian(np.zeros(2, np.float32), factor=np.eye(2, dtype=np.float32))
    pushed = single.push(np.eye(2, dtype=np.float32))
    for value in (single.entropy, single.condition, single.second_moment, pushed.mean):
        assert value.dtype == jnp.float32
    assert single.push(np.eye(2)).factor.dtype == jnp.float64
    assert mf.Gaussian([1, 2], cov=[[2, 0], [0, 1]]).mean.dtype == jnp.float64


def test_printing():
    tilted = mf.Gaussian([0.5, -0.25], cov=[[1.0, 0.3], [0.3, 0.5]])
    assert repr(tilted) == "Gaussian(d=2, mean=[ 0.5 , -0.25], cov=[[1. , 0.3], [0.3, 0.5]])"
    large = mf.Gaussian(np.full(9, 2.0), factor=np.eye(9)[:, :4])
    assert repr(large) == "Gaussian(d=9, |mean|=6, tr(cov)=4, factor of width 4)"
    assert repr(mf.Gaussian(np.zeros((5, 2)), factor=np.zeros((5, 2, 1)))) == "Gaussian(d=2, a batch of shape (5,))"
    seen = []
    jax.jit(lambda g: seen.append(repr(g)))(tilted)
    assert seen == ["Gaussian(d=2, traced)"]
    assert "\n" not in repr(jax.tree.map(lambda _: None, tilted))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("small", [1e-7, 1e-16, 1e-30])
def test_small_variances_beside_large_ones_are_kept(dtype, small):
    correlation = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.0]])
    for correlated in (np.eye(3), correlation):
        deviations = np.sqrt([1.0, small, 3.0])
        cov = (correlated * np.outer(deviations, deviations)).astype(dtype)
        for make in (lambda c: mf.Gaussian(np.zeros(3, dtype), cov=c).covariance, mf.effective_rank):
            np.testing.assert_allclose(jax.jit(make)(cov), make(cov), rtol=1e-5)
        found = mf.Gaussian(np.zeros(3, dtype), cov=cov).covariance
        np.testing.assert_allclose(found, cov, rtol=1e-6 if dtype == "float32" else 1e-14, atol=0)
    # A direction without variance is still found, also between coordinates of different sizes.
    line = np.array([[1.0], [small], [2.0]], dtype)
    made = mf.Gaussian(np.zeros(3, dtype), cov=line @ line.T)
    assert (np.abs(np.asarray(made.factor)).max(axis=0) > 0).sum() == 1


def test_rounding_is_not_taken_for_a_variance():
    """Where the small entries are no covariance they are rounding: the large ones do not change."""
    for noise in ([[1.0, 1e-16], [1e-16, 1e-34]], [[1.0, 3.8e-9], [3.8e-9, 1e-17]], [[1.0, 0.0], [0.0, -1e-17]]):
        np.testing.assert_allclose(mf.Gaussian(np.zeros(2), cov=noise).covariance, noise, rtol=1e-14, atol=1e-16)
    far = np.array([[1e308, 1e299, 0], [1e299, 1e-300, 1e299], [0, 1e299, 1e-300]])
    assert float(mf.Gaussian(np.zeros(3), cov=far).covariance[0, 0]) == pytest.approx(1e308)


SEMI_DEFINITE = [np.diag([1.0, 0.0]), np.ones((2, 2)), np.zeros((2, 2)), np.diag([0.0, 1e-300])]


@pytest.mark.parametrize("cov", SEMI_DEFINITE, ids=["axis", "line", "point", "tiny"])
def test_a_singular_covariance_that_is_traced(cov):
    def covariance(cov):
        return mf.Gaussian(jnp.zeros(2), cov=cov).covariance

    np.testing.assert_allclose(jax.jit(covariance)(cov), cov, rtol=1e-14)
    batch = jax.jit(jax.vmap(covariance))(np.stack([cov, np.eye(2), -np.eye(2)]))
    np.testing.assert_allclose(batch, np.stack([cov, np.eye(2), np.full((2, 2), np.nan)]), rtol=1e-14)
    # There it has no derivative, which is not a number; elsewhere it has.
    slopes = jax.vmap(jax.grad(lambda c: jnp.trace(covariance(c))))(np.stack([cov, np.eye(2)]))
    assert np.isnan(slopes[0]).any()
    np.testing.assert_allclose(slopes[1], np.eye(2), atol=1e-15)


def given(values, off, dtype="float64"):
    """A covariance with two entries out of place, in large units: what is refused is a matter of proportion."""
    cov = np.diag(values)
    cov[0, 1] = cov[1, 0] = off
    return (1e30 * cov).astype(dtype)


@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 1e-8), ("float32", 100 * np.finfo("float32").eps)])
@pytest.mark.parametrize("times", [1e-3, 0.99])
def test_negative_eigenvalues_that_may_be_rounding_become_0(dtype, rounding, times):
    """Of a negative variance, and of a correlation beyond 1, up to the documented share of the largest entry."""
    part = times * rounding
    for cov, nearest in (
        (given([-part, 1.0, 0.5], 0.0, dtype), given([0.0, 1.0, 0.5], 0.0)),
        (given([0.0, 0.0, 1.0], part, dtype), given([part / 2, part / 2, 1.0], part / 2)),
        (given([part, part, 1.0], 2 * part, dtype), given([1.5 * part, 1.5 * part, 1.0], 1.5 * part)),
    ):
        found = mf.Gaussian(np.zeros(3, dtype), cov=cov).covariance
        # The smallest eigenvalues are cut at their round-off, so that rank is kept.
        np.testing.assert_allclose(found, nearest, rtol=1e-5, atol=1e30 * 6 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 1e-8), ("float32", 100 * np.finfo("float32").eps)])
def test_negative_eigenvalues_beyond_rounding_are_refused(dtype, rounding):
    part = 1.01 * rounding
    for cov in (given([-part, 1.0, 0.5], 0.0, dtype), given([0.0, 0.0, 1.0], part, dtype)):
        with pytest.raises(mf.InputError, match="semi-definite"):
            mf.Gaussian(np.zeros(3, dtype), cov=cov)
    for cov in (given([part, part, 1.0], 2 * part, dtype), given([-part, -part, 1.0], 0.0, dtype)):
        with pytest.raises(mf.InputError, match="semi-definite"):
            mf.Gaussian(np.zeros(3, dtype), cov=cov)


def test_covariances_that_were_computed_are_accepted(rng):
    """Of what is nearly constant rounding leaves variances and correlations of any sign."""
    beyond = 0
    for _ in range(20):
        x = np.column_stack([np.full(50, 1e3) + 1e-6 * rng.normal(size=50), np.full(50, -700.0), rng.normal(size=50)])
        mean = x.mean(axis=0)
        P = np.eye(3) - np.ones((3, 3)) / 3  # kills the sum
        S = rng.normal(size=(3, 3))
        A = np.vstack([P @ S, rng.normal(size=3)]) @ np.linalg.inv(S)
        for cov in (x.T @ x / 50 - np.outer(mean, mean), P @ (S @ S.T) @ P.T, A @ (S @ S.T) @ A.T):
            beyond += np.linalg.eigvalsh(cov)[0] < 0
            found = mf.Gaussian(np.zeros(len(cov)), cov=(cov + cov.T) / 2).covariance
            np.testing.assert_allclose(found, cov, atol=1e-8 * np.abs(cov).max())
    assert beyond > 10


BAD_CALLS = [
    (lambda: mf.Gaussian(1.0, cov=1.0), ("mean must be a vector", "()")),
    (lambda: mf.Gaussian(np.zeros((4, 2)), cov=np.eye(2)), ("cov must match", "(4, 2)", "(4, 2, 2)", "leading axes")),
    (lambda: mf.Gaussian(np.zeros(2), factor=np.zeros((4, 2, 2))), ("factor must match", "length 2", "(2, r)")),
    (lambda: mf.Gaussian(np.zeros((0, 2)), factor=np.zeros((0, 2, 2))), ("mean must be a vector", "(0, 2)")),
    (lambda: mf.Gaussian(np.zeros((2, 2)), cov=[np.eye(2), -np.eye(2)]), ("semi-definite", "of -1")),
    (lambda: mf.Gaussian(np.full((2, 2), np.nan), factor=np.zeros((2, 2, 2))), ("mean must be finite", "(0, 0)")),
    (lambda: gaussian(3).push(np.eye(2)), ("M must act", "(2, 2)", "(e, 3)")),
    (lambda: gaussian(3).push(np.eye(3), b=[1.0]), ("b must have length 3", "length 1")),
    (lambda: gaussian(3)[0], ("cannot be indexed", "(3,)", "leading axis")),
    (lambda: mf.Gaussian(np.zeros((2, 2)), factor=np.zeros((2, 2, 1))).sample(3, key=jr.key(0)), ("single", "(2,)")),
]


@pytest.mark.parametrize("call, words", BAD_CALLS)
def test_refusals(call, words):
    with pytest.raises(mf.InputError) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_small_direction_is_not_a_singular_covariance():
    """Scaled by rows and columns these factors are regular."""
    g = mf.Gaussian(np.zeros(2, np.float32), factor=np.diag([1e-10, 1.0]).astype(np.float32))
    np.testing.assert_allclose(g.entropy, 1 + np.log(2 * np.pi) - 10 * np.log(10), rtol=1e-6)
    np.testing.assert_allclose(g.condition, 1e20, rtol=1e-5)
    wide = mf.Gaussian(np.zeros(2), factor=np.diag([1e300, 1e-300]))
    np.testing.assert_allclose(wide.entropy, 1 + np.log(2 * np.pi), rtol=1e-12)
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    turned = mf.Gaussian(np.zeros(3), factor=axes * [1, 1e-20, 1e-25])
    np.testing.assert_allclose(turned.entropy, 1.5 * (1 + np.log(2 * np.pi)) - 45 * np.log(10), rtol=1e-12)
    np.testing.assert_allclose(turned.condition, 1e50, rtol=1e-12)
    more = mf.Gaussian(np.zeros(2), factor=[[1e10, 0, 1e10], [0, 1e-10, 1e-10]])  # det Sigma = 3, tr = 2e20
    np.testing.assert_allclose(more.entropy, 1 + np.log(2 * np.pi) + np.log(3) / 2, rtol=1e-12)
    np.testing.assert_allclose(more.condition, 4e40 / 3, rtol=1e-12)
    same = mf.Gaussian(np.zeros(2), factor=np.ones((2, 3)))
    assert same.entropy == -np.inf and same.condition == np.inf

r"""Gaussians and weights of extreme size: fates in units of their own, refusals where no unit helps.

The oracles are closed forms, and homogeneity: $L\to cL$, $Q\to Q/c$, $K\to K/c$, $V\to sV$ is the same run in the time
$t/s$.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.gaussian.classify import unit_speed_of
from meanformer.gaussian.units import own_units
from oracles.refusals import assert_refused

I = np.eye(2)
A = np.array([[1.0, 0.5], [0.5, 2.0]])
L = np.array([[1.0, 0.0], [0.5, 0.8]])
WIDE = (1e40, 1e60, 1e100, 1e120, 1e140)
NARROW = (1e-40, 1e-100, 1e-120, 1e-150)


def gaussian(size, factor=L, mean=(0.0, 0.0)):
    return mf.Gaussian(np.multiply(mean, size), factor=factor * size)


@pytest.fixture(scope="module")
def blown():
    """Softmax, a batch of all sizes, and the closed forms."""
    sizes = np.array([1.0, *WIDE, *NARROW])
    many = mf.Gaussian(np.zeros((len(sizes), 2)), factor=L * sizes[:, None, None])
    return mf.fates(mf.Softmax(A, I, I), many), [mf.softmax_blowup_time(A, many[i]) for i in range(len(sizes))]


def test_blow_up_times_of_all_sizes(blown):
    found, exact = blown
    assert set(found.kind) == {"BLEW_UP"}
    np.testing.assert_allclose(found.time / exact, 1, rtol=2e-6)
    assert (np.abs(found.time - exact) <= found.error).all() and (found.error < 1e-4 * found.time).all()
    np.testing.assert_allclose(found.exponent, found.exponent[0], rtol=1e-6)
    np.testing.assert_allclose(found.slopes, found.slopes[:1].repeat(len(found), 0), rtol=1e-4)


@pytest.mark.parametrize("size", [1e60, 1e120, 1e-100, 1e-150])
def test_an_endless_run_of_any_size(size):
    exact = mf.softmax_blowup_time(A, gaussian(size))
    run = mf.flow(mf.Softmax(A, I, I), gaussian(size), t1=np.inf)
    assert run.fate.kind == "BLEW_UP" and abs(run.fate.time / exact - 1) < 1e-6
    # The states on the way, against the closed form.
    for k in (5, 10):
        law = mf.softmax_identity_flow(A, gaussian(size), run.times[k])
        covariance = np.asarray(run.states.factor[k]) / size
        expected = np.asarray(law.factor) / size
        np.testing.assert_allclose(covariance @ covariance.T, expected @ expected.T, rtol=1e-5)


@pytest.mark.parametrize("kind", [mf.Sinkhorn, mf.L2])
def test_saturated_kinds_diverge(kind):
    many = mf.Gaussian(np.zeros((4, 2)), factor=I * np.array([1e70, 1e80, 1e140, 1e148])[:, None, None])
    found = mf.fates(kind(I, I, I), many)
    assert set(found.kind) == {"DIVERGED"} and all(found[i].law == "exponential" for i in range(4))
    np.testing.assert_allclose(found.growth, 2, rtol=1e-6)


@pytest.mark.parametrize("size", [1e80, 1e140])
def test_sinkhorn_grows_as_its_value_matrix(size):
    run = mf.flow(mf.Sinkhorn(I, I, I), gaussian(size), t1=1.0)
    assert run.outcome.ok
    np.testing.assert_allclose(run.final.factor / size, np.e * L, rtol=1e-7, atol=1e-15)
    # On the line, where the closed form takes squares of deviations.
    variance = mf.one_dimensional("sinkhorn", 1.0, 1.0, 1.0, 1.0, 0.0, size**1.5, 0.5)[1]
    line = mf.flow(mf.Sinkhorn(1.0, 1.0, 1.0), mf.Gaussian([0.0], factor=[[size**0.75]]), t1=0.5)
    assert float(line.final.factor[0, 0] ** 2 / variance) == pytest.approx(1, rel=1e-7)


def test_a_slow_field_of_saturated_keys():
    # G = V K^{-1} Q, and no blow-up is possible, however V is measured.
    found = mf.fates([mf.L2(I * 1e-100, I * 1e100, v * I) for v in (1.0, 1e200, 1e-100)], gaussian(1.0, I))
    assert set(found.kind) == {"DIVERGED"}
    np.testing.assert_allclose(found.growth, [2e-200, 2.0, 2e-300], rtol=1e-6)


def in_units(kind, c, s, bias=True):
    """A field of one kind in units of length `c` and of time 1 / `s`, with biases, beside an affine part."""
    M, N = np.array([[0.5, 0.2], [-0.3, 0.4]]), np.array([[0.6, -0.1], [0.2, 0.5]])
    biases = {"query_bias": [0.3, -0.1], "value_bias": np.array([0.2, 0.1]) * c * s} if bias else {}
    V = np.array([[-1.0, 0.1], [0.0, -0.7]])
    return 0.5 * kind(M / c, N / c, V * s, **biases) + mf.Affine(-0.1 * I * s, [0.1 * c * s, 0.0])


@pytest.mark.parametrize("kind", [mf.Softmax, mf.L2, mf.Sinkhorn, mf.Linear])
@pytest.mark.parametrize("c, s", [(2.0**300, 2.0**-500), (2.0**-400, 2.0**900)])
def test_endless_runs_are_homogeneous(kind, c, s):
    """Means, states, times and limits of a run in other units."""

    def run(c, s):
        return mf.flow(in_units(kind, c, s), gaussian(c, mean=(1.0, -0.5)), t1=np.inf)

    one, other = run(1.0, 1.0), run(c, s)
    assert one.fate.kind == other.fate.kind == "CONVERGED" and one.fate.rank == other.fate.rank
    for found, expected in (
        (other.times * s, one.times),
        (other.states.mean / c, one.states.mean),
        (other.states.factor / c, one.states.factor),
        (other.fate.limit / c / c, one.fate.limit),
        (other.fate.growth / s, one.fate.growth),
        (other.fate.slopes, one.fate.slopes),
    ):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6, atol=1e-9)
    assert (one.fate.mean_rate is None) == (other.fate.mean_rate is None)


def test_the_rate_of_a_mean_in_other_units():
    s = 2.0**700
    run = mf.flow(mf.Softmax(I / s, -I / s, s * I), gaussian(s, mean=(1.0, 0.5)), t1=np.inf)
    one = mf.flow(mf.Softmax(I, -I, I), gaussian(1.0, mean=(1.0, 0.5)), t1=np.inf)
    assert one.fate.mean_rate is not None and run.fate.mean_rate is not None
    assert run.fate.mean_rate / s == pytest.approx(one.fate.mean_rate, rel=1e-6)


def test_a_finite_run_into_a_blow_up_tells_its_time():
    exact = mf.softmax_blowup_time(A, gaussian(1e60))
    run = mf.flow(mf.Softmax(A, I, I), gaussian(1e60), t1=2 * exact)
    assert run.fate.kind == "BLEW_UP" and abs(run.fate.time / exact - 1) < 1e-6


@pytest.mark.parametrize("size", [1e100, 1e-100])
def test_a_finite_run_of_a_large_or_small_gaussian(size):
    t = 0.5 * mf.softmax_blowup_time(A, gaussian(size))
    run = mf.flow(mf.Softmax(A, I, I), gaussian(size), t1=t)
    exact = np.asarray(mf.softmax_identity_flow(A, gaussian(size), t).factor) / size
    found = np.asarray(run.final.factor) / size
    np.testing.assert_allclose(found @ found.T, exact @ exact.T, rtol=1e-6)


def test_where_nothing_happens_nothing_happens():
    run = mf.flow(mf.Softmax(I, I, I), gaussian(1e-300), t1=1.0)
    assert run.outcome.ok
    np.testing.assert_array_equal(run.final.factor, gaussian(1e-300).factor)
    moved = mf.flow(mf.Affine(I), gaussian(1e-300), t1=1.0)
    np.testing.assert_allclose(moved.final.factor / 1e-300, np.e * L, rtol=1e-6)
    assert_refused(lambda: mf.flow(mf.Affine(I), gaussian(1e-304), t1=1.0), ("too small", "1e-304", "smaller units"))


def test_logits_beyond_the_range_are_refused():
    I = np.eye(2)
    for field in (mf.Softmax(I, I, I), 2.0 * mf.Sinkhorn(I, I, I), mf.MultiHead([mf.L2(I, I, I)])):
        for call in (field.affine, lambda g, f=field: mf.flow(f, g, 1.0), lambda g, f=field: mf.layers(f, g, 1)):
            wide = mf.Gaussian([0.0, 0.0], factor=I * 1e160)
            assert_refused(lambda call=call, wide=wide: call(wide), ("the logits of", "about 1e+320", "scale Q and K"))
    # What Q or K send to zero has no logits.
    flat, wide = np.diag([1.0, 0.0]), mf.Gaussian([0.0, 0.0], factor=np.diag([1.0, 1e160]))
    np.testing.assert_allclose(mf.Softmax(flat, flat, I).affine(wide)[0], flat, rtol=1e-14)


def test_speeds_beyond_the_range_are_refused():
    field = mf.Softmax(I, I, I)
    for size, t, words in ((1e104, 1e-209, ("at most", "larger")), (1e-120, 1e239, ("at least", "smaller"))):
        words = ("the speed of the Gaussian under Softmax", f"about 1e{3 * round(np.log10(size)):+d}", *words)
        g = mf.Gaussian([0.0, 0.0], factor=I * size)
        assert_refused(lambda g=g, t=t: mf.flow(field, g, t), words)
        assert_refused(lambda g=g, t=t: mf.flow(mf.Scheduled(lambda t: field), g, t), words)
        assert_refused(lambda g=g, t=t: mf.layers(field, g, 1, step=t), words)
    # A slow one that has no time to move stays, and what does not move is not fast.
    assert mf.flow(field, gaussian(1e-120), 1e30).outcome.ok
    still = mf.Gaussian([0.0, 0.0], factor=np.diag([1.0, 1e110]))
    assert mf.flow(mf.Softmax(np.diag([1.0, 0.0]), I, I), still, 0.1).outcome.ok


def test_fates_beyond_the_range_are_refused():
    for fields, g, words in (
        (mf.Softmax(I, I, I), gaussian(1e160, I), ("the logits of Softmax", "about 1e+320")),
        (mf.Softmax(I * 1e160, I * 1e160, I), gaussian(1.0, I), ("the logits of Softmax", "about 1e+320")),
        (mf.Softmax(I, I, I), gaussian(1e-160, I), ("each logit", "about 1e-320", "between 1e-306")),
        (mf.Softmax(I * 1e100, I * 1e100, I * 1e150), gaussian(1.0, I), ("the speed", "about 1e+350")),
    ):
        assert_refused(lambda f=fields, g=g: mf.fates(f, g), words)
        assert_refused(lambda f=fields, g=g: mf.flow(f, g, t1=np.inf), words)
    factors = I * np.array([1.0, 1e-160])[:, None, None]
    assert_refused(
        lambda: mf.fates(mf.Softmax(I, I, I), mf.Gaussian(np.zeros((2, 2)), factor=factors)), ("number 1 of the batch",)
    )


def test_a_point_is_stationary_in_all_units():
    found = mf.fates(mf.Softmax(I * 1e100, I, I), gaussian(0.0))[0]
    assert found.kind == "CONVERGED" and found.rank == 0
    # No velocity by its weights, not by underflow.
    found = mf.fates(mf.Softmax(I, I, 0 * I), gaussian(1e120, I))[0]
    assert found.kind == "CONVERGED" and found.rank == 2


def test_a_speed_that_is_no_number_is_not_at_rest():
    """Of kinds whose units are not known."""
    Y = np.ones((3, 2, 2))
    F = Y * np.array([np.inf, np.nan, 1.0])[:, None, None]
    np.testing.assert_array_equal(unit_speed_of(Y, F, Y), [np.nan, np.nan, 1.0])


def test_ordinary_sizes_have_no_units():
    field, g = mf.Softmax(A * 1e-10, I, I), gaussian(1e10)
    same, other, units = own_units(field, g, False)
    assert same is field and other is g and units == (0, 0)
    assert units.time(g.mean) is g.mean


def test_traced_gaussians_of_extreme_size_are_not_checked():
    def growth(factor):
        return mf.Sinkhorn(I, I, I).affine(mf.Gaussian(jnp.zeros(2), factor=factor))[0][0, 0]

    assert jax.jit(growth)(I * 1e100) == pytest.approx(1)
    # G is of degree 0 there: its derivative along L vanishes, and is a number.
    _, slope = jax.jvp(growth, (jnp.asarray(I * 1e100),), (jnp.asarray(I * 1e100),))
    assert abs(float(slope)) < 1e-12


def test_a_point_moves_in_silence():
    """It has no size, and no speed by which it could be refused."""
    point = mf.Gaussian([1.0, 2.0], cov=np.zeros((2, 2)))
    found = mf.flow(mf.Softmax(I, I, I), point, t1=1.0).final
    np.testing.assert_allclose(found.mean, np.e * np.array([1.0, 2.0]), rtol=1e-6)
    assert not found.covariance.any()
    assert not mf.layers(mf.Softmax(I, I, I), point, 2).final.covariance.any()

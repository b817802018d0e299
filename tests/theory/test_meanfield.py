"""The mean-field limit: rates as they should be, from Gaussians, from large runs, and from made-up errors."""

import warnings

import jax
import numpy as np
import pytest

import meanformer as mf
from meanformer.theory import meanfield
from meanformer.theory.meanfield import _fit, _limit
from oracles.refusals import assert_refused

I = np.eye(2)
LAW = mf.Gaussian(np.zeros(2), cov=np.diag([0.4, 0.1]))
# ||M|| = q sigma with sigma = 0.4 / (1 - 0.8 q t): 0.25 at t = 0.5 for q = 0.5.
MILD = mf.Softmax(0.5 * I, I, I)
KEY = jax.random.key(0)
SOME, MANY = 100, 400


@pytest.fixture(scope="module")
def rate():
    return mf.mean_field_rate(MILD, LAW, 0.5, n=[SOME, MANY], repeats=24, key=KEY, rtol=1e-4)


def test_row_51(rate):
    ratio = rate.rms[0] / rate.rms[1]
    print(rate, ratio)
    assert 1.5 <= ratio <= 2.7
    assert rate.kernel == pytest.approx(0.25, rel=1e-6)
    assert rate.reference == "the exact Gaussian" and rate.statistic == "covariance" and rate.t1 == 0.5
    assert [len(row) for row in rate.errors] == [24, 24] and list(rate.n) == [SOME, MANY]
    np.testing.assert_allclose(rate.rms, [np.sqrt(np.mean(row**2)) for row in rate.errors])
    assert rate.slope == pytest.approx(-np.log(ratio) / np.log(4))


def test_the_size_of_the_errors(rate):
    r"""To first order the sample covariance at the start is off by $S_{ij}$ with variance
    $(\Sigma_{ii}\Sigma_{jj}+\Sigma_{ij}^2)/n$, and $\Sigma(t)=(I-t\Sigma_0(A+A^\top))^{-1}\Sigma_0$ makes that
    $S_{ij}/((1-2at\sigma_i)(1-2at\sigma_j))$.
    """
    sigma = np.array([0.4, 0.1])
    gain = 1 / (1 - 2 * 0.5 * 0.5 * sigma)
    variance = np.outer(sigma, sigma) * (1 + np.eye(2)) * np.outer(gain, gain) ** 2
    expected = np.sqrt(variance.sum() / rate.n)
    assert (0.6 * expected < rate.rms).all() and (rate.rms < 1.6 * expected).all()


def test_the_interval_and_the_words(rate):
    low, high = rate.interval
    assert low < -0.5 < high and low < rate.slope < high
    fewer = _fit(rate.n, [row[:6] for row in rate.errors], np.ones(2))[1]
    assert high - low < 0.8 * (fewer[1] - fewer[0])
    assert str(rate) == (
        f"covariance error at t = 0.5 against the exact Gaussian: {rate.rms[0]:.3g} at n = {SOME}, "
        f"{rate.rms[1]:.3g} at n = {MANY}; slope {rate.slope:.3f} (95 %: {low:.3f} to {high:.3f})"
    )


def made_up(exponent, n, repeats, seed):
    rng = np.random.default_rng(seed)
    return [size**exponent * abs(rng.normal(size=repeats)) for size in n]


def test_planted_rates_are_recovered():
    n = np.array([100, 200, 400, 800, 1600])
    for exponent in (-0.3, -0.5, -1.0):
        slope, (low, high) = _fit(n, made_up(exponent, n, 64, 0), np.ones(5))
        assert low < exponent < high and abs(slope - exponent) < 0.1
        assert 0 < high - low < 0.3
    # Not the rate -1/2, and the interval knows it.
    assert _fit(n, made_up(-0.3, n, 64, 0), np.ones(5))[1][0] > -0.5
    # Without scatter the fit is exact.
    slope, (low, high) = _fit(n, [np.full(3, size**-0.3) for size in n], np.ones(5))
    np.testing.assert_allclose([slope, low, high], -0.3, rtol=1e-12)


def test_intervals_cover_at_their_level():
    n = np.array([100, 400, 1600])
    covered = [
        low < -0.5 < high for _, (low, high) in (_fit(n, made_up(-0.5, n, 32, s), np.ones(3)) for s in range(40))
    ]
    assert sum(covered) >= 34, sum(covered)


class Remembering:
    """A law that remembers what was drawn from it."""

    d = 2

    def __init__(self):
        self.drawn = []

    def sample(self, n, *, key):
        self.drawn.append(mf.uniform_cube(2).sample(n, key=key))
        return self.drawn[-1]


@pytest.mark.parametrize("statistic", ["mean", "covariance"])
def test_reference_by_a_large_run(statistic):
    r"""With Q = 0 the tokens move by $\dot x=Vm$: the mean becomes $e^{t}m$, and the covariance is kept."""
    law, field = Remembering(), mf.Softmax(0 * I, I, I)
    options = {"n": [SOME, MANY], "repeats": [3, 2], "key": KEY, "reference": MANY}
    rate = mf.mean_field_rate(field, law, 0.5, statistic=statistic, **options)
    assert [mu.n for mu in law.drawn] == [2, MANY, *[SOME] * 3, *[MANY] * 2]
    of = {"mean": lambda mu: np.exp(0.5) * mu.mean, "covariance": lambda mu: mu.covariance}[statistic]
    reference, *rest = (np.asarray(of(mu)) for mu in law.drawn[1:])
    errors = [np.linalg.norm(value - reference) for value in rest]
    np.testing.assert_allclose(np.concatenate(rate.errors), errors, rtol=1e-4)
    # The reference is random too: variances 1/n + 1/n_ref.
    for n, rms, row in zip((SOME, MANY), rate.rms, rate.errors, strict=True):
        assert rms == pytest.approx((1 + n / MANY) ** -0.5 * np.sqrt(np.mean(row**2)))
    assert rate.slope == pytest.approx(np.log(rate.rms[1] / rate.rms[0]) / np.log(4))
    assert rate.reference == "a run of 400 tokens" and np.isnan(rate.kernel)


def test_the_reference_is_four_times_as_large(monkeypatch):
    monkeypatch.setattr(meanfield, "_moment", lambda field, law, n, *rest: np.asarray(law.sample(n, key=rest[1]).mean))
    law = Remembering()
    rate = mf.mean_field_rate(MILD, law, 0.5, n=range(10, 40, 10), repeats=2, key=KEY, statistic="mean")
    assert [mu.n for mu in law.drawn] == [2, 120, 10, 10, 20, 20, 30, 30]
    assert len({tuple(mu.points[0].tolist()) for mu in law.drawn[1:]}) == 7  # each draw has a key of its own
    assert rate.reference == "a run of 120 tokens"
    # A Gaussian law has an exact limit, unless a number is given; equal keys give equal rates.
    again = [mf.mean_field_rate(MILD, LAW, 0.5, n=[10, 20], repeats=2, key=KEY, reference=30) for _ in range(2)]
    assert again[0].slope == again[1].slope and again[0].reference == "a run of 30 tokens"


def test_the_correction_is_that_of_two_samples():
    """Means of samples against the mean of a sample of n_ref: the corrected slope is -1/2, the plain one is not."""
    rng = np.random.default_rng(0)
    n, ref, repeats = np.array([100, 200, 400]), 400, 4000
    errors = [abs(rng.normal(size=repeats) / np.sqrt(size) - rng.normal(size=repeats) / np.sqrt(ref)) for size in n]
    assert _fit(n, errors, (1 + n / ref) ** -0.5)[0] == pytest.approx(-0.5, abs=0.02)
    assert _fit(n, errors, np.ones(3))[0] > -0.4


def test_the_warning():
    r"""For $A=\frac12I$ the kernel is $\sigma/2$, and $\sigma=0.4/(1-0.4t)$ reaches $\sqrt2$ at $5/2-1/\sqrt2$."""
    field, threshold = mf.Softmax(I, 0.5 * I, I), 2.5 - 1 / np.sqrt(2)
    for factor, warned in ((0.98, 0), (1.02, 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, words, kernel = _limit(field, LAW, factor * threshold, "covariance")
        assert [w.category for w in caught] == [mf.SlowMeanFieldWarning] * warned
        assert (kernel >= 1 / np.sqrt(2)) == bool(warned) and words == "the exact Gaussian"
    with pytest.warns(mf.SlowMeanFieldWarning, match=r"reaches 0\.8.* >= 0\.707 until t = 1\.9.*n\^-1/2"):
        mf.mean_field_rate(field, LAW, 1.9, n=[SOME, MANY], repeats=2, key=KEY, rtol=1e-3)


def test_fields_and_laws_without_a_gaussian_limit():
    causal, sigmoid = mf.Causal(mf.Softmax(I, I, I)), mf.Sigmoid(I, I, I)
    # The kernel of a masked softmax is known at the start: that of the law.
    for field, law, kernel in ((sigmoid, LAW, np.nan), (causal, LAW, 0.4), (MILD, mf.uniform_cube(2), np.nan)):
        exact, _, found = _limit(field, law, 0.5, "mean")
        assert exact is None
        np.testing.assert_allclose(found, kernel)
    with pytest.warns(mf.SlowMeanFieldWarning, match=r"reaches 0\.8 .* until t = 0"):
        _limit(2.0 * mf.Causal(mf.Softmax(2 * I, I, I)), LAW, 0.5, "mean")


def test_refusals():
    def call(field=MILD, law=LAW, t1=0.5, **options):
        return lambda: mf.mean_field_rate(field, law, t1, **{"n": [SOME, MANY], "key": KEY, "repeats": 2, **options})

    tokens = LAW.sample(3, key=KEY)
    assert_refused(call(law=tokens), ["draws tokens from a law", "mf.empirical(points)"])
    assert_refused(call(statistic="median"), ["statistic", "'mean' or 'covariance'"])
    for n in ([100], 100, [100, 100], [200, 100]):
        assert_refused(call(n=n), ["several numbers of tokens", "increasing"])
    assert_refused(call(n=[1, 100]), ["n must be a whole number, 2 or more"])
    assert_refused(call(repeats=[4, 4, 4]), ["repeats must match n", "3 repeats for 2"])
    assert_refused(call(repeats=1), ["repeats must be a whole number, 2 or more"])
    assert_refused(call(reference=0.5), ["reference must be a whole number"])
    assert_refused(call(key=3), ["key must be a random key"])
    assert_refused(call(field=mf.Softmax(1.0, 1.0, 1.0)), ["does not fit"])
    # sigma = 0.4 / (1 - 0.4 t) blows up at t = 2.5.
    assert_refused(call(t1=3.0), ["Gaussian limit does not reach t1", "shorten the run"])
    fast = mf.Softmax(I, I, 1e3 * I)  # e^{3000}
    assert_refused(call(field=fast, law=mf.uniform_cube(2), t1=3.0, reference=MANY), ["did not reach t1", "n = 400"])

r"""What the classifier says of runs whose eigenvalues are given functions of time."""

import numpy as np
import pytest

from meanformer.fate import FateKind as Kind
from meanformer.gaussian.classify import Record, classify, limit_of, look, stationary, unit_speed_of

DECADES = np.concatenate([[0.0], 10 ** np.arange(-1, 10, 0.5)])


def power(a, scale=1.0, size=1.0):
    r"""$\lambda=s\,(1+t/t')^a$ with its first two derivatives."""

    def values(t):
        x = 1 + t / scale
        return size * np.array([x**a, a / scale * x ** (a - 1), a * (a - 1) / scale**2 * x ** (a - 2)])

    return values


def constant(size):
    return power(0.0, size=size)


def settling(t):
    r"""$\lambda=1+1/(1+t)$: alive, with a slope that fades like $1/t$."""
    return np.array([1, 0, 0]) + power(-1.0)(t)


def growing(t):
    return np.exp(2 * t) * np.array([1.0, 2.0, 4.0])


def exploding(a, t_star=1.0):
    r"""$\lambda=(1-t/t^*)^{-a}$."""
    return power(-a, scale=-t_star)


def seen(times, *eigenvalues, turn=0.0):
    r"""Looks at a diagonal $L$ with $LL^\top=\mathrm{diag}(\lambda_i(t))$; `turn`: a rotation added to $G$."""
    record = Record.empty(1, len(times), len(eigenvalues))
    for number, t in enumerate(times):
        size, rate, bend = np.array([function(t) for function in eigenvalues]).T
        root = np.sqrt(size)
        first = rate / (2 * root)
        L, F, dF = (np.diag(a)[None] for a in (root, first, bend / (2 * root) - first**2 / root))
        G = np.diag(first / root)
        G[0, -1], G[-1, 0] = G[0, -1] - turn, G[-1, 0] + turn
        now = look(np.array([t]), L, F, dF, G[None], L)
        for name, values in now.items():
            getattr(record, name)[:, number] = values
        if number == 0:
            speed = unit_speed_of(L, F, G[None])
    return record, speed


def fate(times, *eigenvalues, patient=False, bounded=False, turn=0.0):
    answer = classify(*seen(times, *eigenvalues, turn=turn), patient, np.array([bounded]))
    return Kind(answer["kind"][0]), answer["rank"][0], answer


def test_a_look_sees_the_slopes_and_the_exponent():
    record, speed = seen(DECADES, constant(2.0), power(-1.0), power(-2.0))
    t = DECADES
    decay = t / (1 + t)
    np.testing.assert_allclose(record.slopes[0], np.stack([0 * t, -decay, -2 * decay], axis=1), atol=1e-14)
    trace = 2 + 1 / (1 + t) + 1 / (1 + t) ** 2
    np.testing.assert_allclose(record.log_size[0], np.log(trace), rtol=1e-13)
    np.testing.assert_allclose(record.growth[0], -((1 + t) ** -2 + 2 * (1 + t) ** -3) / trace, rtol=1e-13)
    np.testing.assert_allclose(record.singular[0, :, 0], np.sqrt(2))
    # |F|^2 = (1/2)^2 + 1 and |L|^2 = 4 at t = 0.
    np.testing.assert_allclose(speed, np.sqrt(1.25 / 4), rtol=1e-14)
    for p, values in ((1.0, exploding(1.0)), (0.5, exploding(2.0)), (0.0, growing), (-0.5, power(2.0))):
        got = seen(np.array([0.0, 0.3, 0.9]), values)[0].exponent
        np.testing.assert_allclose(got, p, atol=1e-13)


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e9, 1e200])
def test_a_look_does_not_depend_on_the_unit(size):
    record, _ = seen(DECADES, power(-1.0, size=size), constant(size / 2))
    plain, _ = seen(DECADES, power(-1.0), constant(0.5))
    for name in ("slopes", "growth", "exponent", "turning"):
        np.testing.assert_allclose(getattr(record, name), getattr(plain, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(record.log_size - plain.log_size, np.log(size), rtol=1e-12)


def test_settled_runs_have_their_rank():
    assert fate(DECADES, settling, constant(1.0), power(-1.0))[:2] == (Kind.CONVERGED, 2)
    assert fate(DECADES, power(-1.0), power(-2.0))[:2] == (Kind.CONVERGED, 0)  # a Dirac
    # Exponential convergence: slopes to minus infinity.
    fast = DECADES[DECADES < 400]
    assert fate(fast, constant(1.0), lambda t: np.exp(-t) * np.array([1, -1, 1]))[:2] == (Kind.CONVERGED, 1)
    # The size of an eigenvalue says nothing: this one is frozen.
    assert fate(DECADES, constant(1.0), constant(1e-20), power(-1.0))[:2] == (Kind.CONVERGED, 2)


def test_an_eigenvalue_at_round_off_is_not_counted():
    """Whatever its slope is: it is noise."""
    assert fate(DECADES, constant(1.0), power(0.1, size=1e-30), power(-1.0, size=0.5))[:2] == (Kind.CONVERGED, 1)
    assert fate(DECADES, constant(1.0), power(0.1, size=1e-26), power(-1.0, size=0.5))[0] == Kind.UNDECIDED


def test_not_before_a_hundred_units_of_time():
    early = DECADES[DECADES < 90]
    assert fate(early, constant(2.0), power(-2.0, scale=1e-3))[:2] == (Kind.CONVERGED, 1)
    assert fate(early, constant(2.0), power(-2.0))[0] == Kind.UNDECIDED


@pytest.mark.parametrize("onset", [1e5, 1e7])
def test_a_late_onset_is_not_called_alive(onset):
    r"""$\lambda=1/(1+t/t')$ has the small slope $-t/t'$ until $t'$, and dies."""
    values = (power(-1.0), power(-1.0, scale=onset))
    for end in range(3, len(DECADES)):
        kind, rank, _ = fate(DECADES[:end], *values)
        assert kind == Kind.UNDECIDED or rank == 0, DECADES[end - 1]
    assert fate(DECADES, *values)[:2] == (Kind.CONVERGED, 0)


def test_a_slope_that_fades_and_comes_back_is_not_called_alive():
    r"""$\lambda=(1+\frac1{1+t})/(1+t/t')$: the slope $-1/t-t/t'$ fades until $\sqrt{t'}$."""

    def product(t):
        (f, f1, f2), (g, g1, g2) = settling(t), power(-1.0, scale=1e7)(t)
        return np.array([f * g, f1 * g + f * g1, f2 * g + 2 * f1 * g1 + f * g2])

    for end in range(3, len(DECADES)):
        kind, rank, _ = fate(DECADES[:end], product, power(-1.0))
        assert kind == Kind.UNDECIDED or rank == 0, DECADES[end - 1]


def test_a_logarithmic_decay_is_not_called_alive():
    r"""$\lambda=1/(30+\log(1+t))$: the slope is small and falls, but too slowly for a limit."""

    def values(t):
        u, v = 30 + np.log1p(t), 1 / (1 + t)
        return np.array([1 / u, -v / u**2, v**2 / u**2 + 2 * v**2 / u**3])

    for end in range(3, len(DECADES) + 1):
        assert fate(DECADES[:end], values, power(-1.0, size=0.01))[0] == Kind.UNDECIDED


@pytest.mark.parametrize("a", [-0.4, -0.6, -1e-3, 1e-3])
def test_slow_slopes_are_neither_dead_nor_alive(a):
    for end in range(3, len(DECADES)):
        assert fate(DECADES[:end], power(-1.0), power(a))[0] == Kind.UNDECIDED


def test_a_slope_that_changes_its_class_is_undecided():
    """Dead for long, then alive: nothing is said until a whole decade agrees."""

    def stays(t):
        return np.array([1e-4, 0, 0]) + power(-1.0)(t)

    kinds = [fate(DECADES[:end], constant(1.0), stays)[:2] for end in range(3, len(DECADES) + 1)]
    assert set(kinds[-2:]) == {(Kind.CONVERGED, 2)}
    t = DECADES[2:]
    between = (t > 1e4) & (t < 1e6)
    assert all(kind == Kind.UNDECIDED for (kind, _), b in zip(kinds, between, strict=True) if b)


def test_a_rotation_is_not_a_limit():
    values = (constant(2.0), constant(1.0), power(-1.0, size=0.1))
    assert fate(DECADES, *values)[:2] == (Kind.CONVERGED, 2)
    assert fate(DECADES, *values, turn=1.0)[0] == Kind.UNDECIDED


def test_blow_up():
    times = 1 - 10 ** -np.arange(0, 12, 0.5)
    for a in (1.0, 2.0):
        kind, rank, answer = fate(times, exploding(a), constant(1.0))
        assert (kind, rank) == (Kind.BLEW_UP, -1)
        assert abs(answer["time"][0] - 1) <= max(1e-9, answer["error"][0]) and answer["error"][0] < 1e-7
        # A factor of 1e9 in the trace is asked for; by then the exponent tells how far it still is.
        grown = -a * np.log10(1 - times)
        answer = fate(times[grown < 10.1], exploding(a), constant(1.0))[2]
        assert answer["kind"][0] == Kind.BLEW_UP and abs(answer["time"][0] - 1) <= 1e-11
        assert fate(times[grown < 8.9], exploding(a), constant(1.0))[0] == Kind.UNDECIDED
        # 1e30, if the law may change late; and a bounded speed excludes it.
        assert fate(times[grown < 29], exploding(a), constant(1.0), patient=True)[0] == Kind.UNDECIDED
        assert fate(times, exploding(a), constant(1.0), patient=True, bounded=True)[0] != Kind.BLEW_UP
    assert fate(times, exploding(3.0), patient=True)[0] == Kind.BLEW_UP


def test_the_error_of_a_blow_up_time_covers_it():
    r"""$\lambda=(1-t)^{-1}+3(1-t)^{-0.9}$: the exponent drifts, and the estimates of the time with it."""
    times = 1 - 10 ** -np.arange(0, 10.1, 0.5)
    _, _, answer = fate(times, lambda t: exploding(1.0)(t) + 3 * exploding(0.9)(t), constant(1.0))
    assert answer["kind"][0] == Kind.BLEW_UP
    assert 1e-13 < abs(answer["time"][0] - 1) <= answer["error"][0] < 1e-9


def test_divergence():
    times = np.linspace(0, 40, 90)
    for patient in (False, True):
        kind, _, answer = fate(times, growing, constant(1.0), patient=patient)
        assert kind == Kind.DIVERGED and not answer["gave_up"][0]
        assert answer["time"][0] == 40 and answer["error"][0] == 0
    # Like a power of time, at the exponent -1/2.
    kind, _, _ = fate(DECADES, power(2.0))
    assert kind == Kind.DIVERGED
    # Faster than any power, slower than a blow-up: log tr = t^2 and gamma = t.
    assert fate(np.linspace(0, 6, 40), lambda t: np.exp(t**2) * np.array([1, 2 * t, 2 + 4 * t**2]))[0] == Kind.DIVERGED


def test_growth_without_end_is_hopeless():
    assert fate(np.linspace(0, 120, 300), growing, patient=True)[2]["gave_up"][0]
    far = 10 ** np.arange(-1, 12.5, 0.5)
    assert fate(np.append(0, far), power(-1.0), power(-0.4))[2]["gave_up"][0]
    assert not fate(DECADES, power(-1.0), power(-0.4))[2]["gave_up"][0]


def test_a_stationary_start():
    L = np.array([[[1.0, 0.0], [0.0, 2.0]]])
    G = np.array([[[0.0, 0.0], [0.0, 3.0]]])
    flat = L * np.array([1.0, 0.0])
    assert unit_speed_of(flat, G @ flat, G) == 0 and unit_speed_of(L, G @ L, G) > 1
    assert unit_speed_of(flat, 1e-15 * flat, G) == 0  # rounding does not move it
    assert stationary(np.array([[1.0, 1e-13, 1e-15]])).tolist() == [[True, True, False]]
    assert stationary(np.zeros((1, 2))).tolist() == [[False, False]]


def test_the_limit_keeps_what_is_alive():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    factor = (basis * np.array([3.0, 2.0, 1e-4]))[None]
    limit = limit_of(factor, np.array([[True, True, False]]))[0]
    np.testing.assert_allclose(limit, basis[:, :2] @ np.diag([9.0, 4.0]) @ basis[:, :2].T, atol=1e-14)
    assert not limit_of(factor, np.zeros((1, 3), bool)).any()

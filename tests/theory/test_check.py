"""check(run): each claim holds for a right run, and is VIOLATED by a wrong one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from diagnostics._told import told
from meanformer.theory.check import Checked, Claim, _strict
from oracles.refusals import assert_refused
from oracles.wrong import altered, claiming, loud

# One shape of tokens for all: what differs is the weights, so that each kind of field compiles once.
SOFTMAX = mf.Softmax(0.5, 0.6, 0.8)
TOKENS = mf.PointCloud([[0.9], [-0.7], [0.2], [0.5]])
TWO = mf.PointCloud([[1.0], [-1.0], [5.0], [0.0]], [0.5, 0.5, 0.0, 0.0])
ONE = mf.PointCloud([[1.0], [-1.0], [0.0], [0.0]], [1.0, 0.0, 0.0, 0.0])
SAVES = 5


def run_of(field, tokens=TOKENS, **options):
    return mf.flow(field, tokens, 1.0, save=SAVES, rtol=1e-9, **options)


@pytest.fixture(scope="module")
def run():
    return run_of(SOFTMAX)


@pytest.fixture(scope="module")
def checked(run):
    return mf.check(run)


def test_a_right_run(run, checked):
    assert checked.ok and checked.violations == () and checked.title == run.summary()
    names = ["support radius R, at t = 1", "Lipschitz in the point, L_x", "Lipschitz in the measure, L_mu"]
    names += ["stability: log of W_2(t) / W_2(0)", "weak residual of the PDE"]
    assert [claim.claim for claim in checked.claims] == names
    support, in_x, in_mu, stability, weak = checked.claims
    radii = abs(np.asarray(run.points))[:, :, 0].max(axis=1)
    assert support.bound == pytest.approx(0.9 * np.exp(0.8)) and support.measured == pytest.approx(radii[-1])
    assert support.slack == pytest.approx(1 - radii[-1] / (0.9 * np.exp(0.8)))
    times, bounds, measured = checked.paths["support radius R(t)"]
    np.testing.assert_allclose(bounds, 0.9 * np.exp(0.8 * times), rtol=1e-12)
    np.testing.assert_allclose(measured, radii, rtol=1e-12)
    # The claim in the point, by MATH d.2: V Cov_p(y) A at the tokens, at the start or the end, against v a R^2.
    spread = [(variances(x).max() * 0.8 * 0.3, 0.8 * 0.3 * abs(x).max() ** 2) for x in np.asarray(run.points)[[0, -1]]]
    tightest = max(spread, key=lambda pair: pair[0] / pair[1])
    assert (in_x.measured, in_x.bound) == pytest.approx(tightest, rel=1e-10)
    variation = [first_variations(x).max() for x in np.asarray(run.points)[[0, -1]]]
    assert min(abs(in_mu.measured - v) for v in variation) < 1e-12
    assert in_mu.bound in [
        pytest.approx(float(mf.lipschitz_constants(SOFTMAX, abs(x).max()).mu)) for x in np.asarray(run.points)[[0, -1]]
    ]
    assert 0 < stability.measured < stability.bound and stability.holds
    assert weak.bound is None and weak.holds is None and np.isnan(weak.slack)
    assert weak.measured == mf.weak_residual(run).worst


def attention(x, a=0.3):
    """Softmax weights of the tokens x (n, 1) over n * w, and the values that they average."""
    kernel = np.exp(a * x @ x.T)
    return kernel / kernel.mean(axis=1, keepdims=True)


def variances(x):
    P = attention(x) / len(x)
    return P @ x[:, 0] ** 2 - (P @ x[:, 0]) ** 2


def first_variations(x):
    """MATH d.2: |V (1 + (y - ybar) a x) e^{axy} / Z| at all pairs of tokens x, y."""
    P = attention(x)
    centred = x[:, 0][None, :] - (P @ x[:, 0] / len(x))[:, None]
    return 0.8 * abs(1 + centred * 0.3 * x) * P


def test_the_table(checked):
    title, header, *rows = str(checked).splitlines()
    assert title == checked.title and header.split() == ["claim", "bound", "measured", "slack"]
    assert len(rows) == 5 and all(row.endswith("holds") for row in rows[:4]) and "no bound" in rows[4]
    starts = [header.index(word) for word in ("bound", "measured", "slack")]
    for row, claim in zip(rows, checked.claims, strict=True):
        assert row.startswith(claim.claim) and row[starts[1] :].startswith(f"{claim.measured:.4g}")
        assert row[starts[0] :].startswith("no bound" if claim.bound is None else f"{claim.bound:.4g}")
    assert f"{100 * checked['support'].slack:.3g} %" in rows[0]
    wrong = Checked((Claim("half", 1.0, 2.0), Claim("none", None, 3.0, "no bound for it")), "title", {})
    assert str(wrong).splitlines()[2:] == [
        "half   1                2         -100 %  VIOLATED",
        "none   no bound for it  3",
    ]
    assert repr(wrong) == str(wrong)


def test_claims_by_name(checked):
    assert checked["support"] is checked.claims[0] and checked["L_mu"] is checked.claims[2]
    assert_refused(lambda: checked["Lipschitz"], ["name one claim", "in 2 claims", "support radius R"])
    assert_refused(lambda: checked["nonsense"], ["in 0 claims"])


def test_one_claim():
    assert Claim("", 2.0, 1.0).slack == 0.5 and Claim("", 2.0, 1.0).holds is True
    assert Claim("", 2.0, 2.1).holds is False and Claim("", 2.0, 2.0).holds is True
    # Up to the errors of a solver, and no further.
    assert Claim("", 1.0, 1 + 5e-5).holds is True and Claim("", 1.0, 1 + 2e-4).holds is False
    assert Claim("", 1.0, 1 + 5e-4, error=1e-3).holds is True and Claim("", 1.0, 1 + 5e-7, error=0.0).holds is False
    assert Claim("", 1.0, -3.0).slack == 1.0
    assert Claim("", 0.0, 0.0).holds is True and Claim("", 0.0, 1e-9).holds is False
    assert (Claim("", 0.0, 0.0).slack, Claim("", 0.0, 1.0).slack) == (1.0, 0.0)
    assert Claim("", 1.0, np.nan).holds is False


def test_sharp_bounds_hold_and_wrong_fields_are_caught():
    """With Q = 0 one token moves by e^{tV}: support, L_mu and stability without any slack."""
    sharp = mf.check(run_of(mf.Softmax(0.0, 1.0, 0.8), ONE))
    assert sharp.ok
    for words in ("support", "L_mu", "stability"):
        assert abs(sharp[words].slack) < 1e-6
    wrong = mf.check(run_of(loud(0.0, 1.0, 0.8), ONE))
    assert [claim.claim.split(",")[0].split(":")[0] for claim in wrong.violations] == [
        "support radius R",
        "Lipschitz in the measure",
        "stability",
    ]
    assert wrong["stability"].measured == pytest.approx(3 * 0.8, rel=1e-5) and wrong[
        "stability"
    ].bound == pytest.approx(0.8)
    assert not wrong.ok and str(wrong).count("VIOLATED") == 3
    # The support is told where it fails most.
    early = altered(run_of(SOFTMAX), lambda saved: (saved[0].at[2].multiply(2.0), None))
    assert mf.check(early)["support"].claim == "support radius R, at t = 0.5" and not mf.check(early).ok


def test_the_constant_in_the_point_is_caught():
    """Two points at the ends of the ball have all the covariance there can be."""
    right, wrong = (mf.check(run_of(field, TWO)) for field in (mf.Softmax(0.1, 1.0, 0.1), loud(0.1, 1.0, 0.1)))
    assert right.ok and right["L_x"].slack < 0.05
    assert wrong["L_x"].holds is False and wrong["L_x"].measured > 2.8 * wrong["L_x"].bound


def test_the_rescaled_frame_gives_the_same_numbers(run, checked):
    # The same run as it is told in the frame, z = e^{-tV} x; flows in the frame have tests of their own.
    forward = jnp.exp(0.8 * run.times)[:, None, None]
    frame = mf.Rescaled().bind(SOFTMAX, run.times[0])
    system = eqx.tree_at(lambda s: s.frame, run.system, frame, is_leaf=lambda node: node is run.system.frame)
    states = [(a / Phi, Phi) for a, Phi in ((run.points, forward), (run.final.points, forward[-1]))]
    rescaled = mf.Trajectory(run.times, *states, run.outcome, run.stats, system, False)
    assert abs(np.asarray(rescaled.points - run.points)).max() > 0.1
    for mine, other in zip(mf.check(rescaled).claims, checked.claims, strict=True):
        assert mine.claim == other.claim
        numbers = [[np.nan if c.bound is None else c.bound, c.measured] for c in (mine, other)]
        np.testing.assert_allclose(*numbers, rtol=1e-6, atol=2e-9)  # the weak residual is a difference


def test_layers(run):
    right = mf.check(layers := mf.layers(SOFTMAX, TOKENS, 8))
    euler = right["Euler error of 8 layers, in W_2"]
    assert right.ok and euler.bound == mf.euler_bound(SOFTMAX, TOKENS, 8)
    gaps = np.asarray(run.final.points - layers.final.points)
    assert euler.measured == pytest.approx(np.sqrt((gaps**2).mean()), rel=1e-5)
    assert mf.check(layers, p=4)["Euler"].measured == pytest.approx((gaps**4).mean() ** 0.25, rel=1e-5)
    # Layers that claim to be those of a weaker field: here e^{0.8} would be right, up to 0.14.
    wrong = mf.check(claiming(mf.layers(mf.Softmax(0.0, 1.0, 1.0), ONE, 8), mf.Softmax(0.0, 1.0, 0.8)))["Euler"]
    assert wrong.bound == pytest.approx(np.expm1(0.8) * 0.8 * np.exp(0.8) / 16) and wrong.holds is False
    assert wrong.measured == pytest.approx(1.125**8 - np.exp(0.8), rel=1e-6)
    # An overflow is cut off, and is no Euler scheme of anything.
    burst = mf.check(mf.layers(mf.Linear(3.0, 3.0, 30.0), TOKENS, 8, step=1.0))
    assert burst.ok and "NOT_FINITE" in burst.title and burst["support"].why == "no bound for Linear"
    assert not any("Euler" in claim.claim for claim in burst.claims)


TIMES = np.linspace(0, 1, 3)


def grown(rate):
    """Tokens that grow like e^{rate t}."""
    return np.exp(rate * TIMES)[:, None, None] * np.asarray(TOKENS.points)


def test_fields_without_bounds():
    linear = mf.check(told(mf.Linear(0.5, 0.6, 0.8), TIMES, grown(0.1)))
    assert linear.ok and linear["support"].bound is None and linear["support"].why == "no bound for Linear"
    assert linear["stability"].why == "no constant known for this field"
    assert "support radius R(t)             no bound for Linear" in str(linear)
    mixed = mf.Piecewise([mf.Affine([[0.1]]), mf.Hardmax(1.0, 1.0, 0.1) + mf.Linear(0.5, 0.6, 0.8)], [0.5])
    late = mf.check(told(mixed, TIMES, grown(0.1)))
    assert late["support"].why == "no bound for Linear"
    assert late["Lipschitz constants"].why == "no constants for this field"
    # The constant in the measure is not that of a masked field, in whatever piece.
    masked = told(
        mf.Piecewise([mf.Linear(0.5, 0.6, 0.8), mf.Causal(mf.Linear(0.5, 0.6, 0.8))], [0.5]), TIMES, grown(0.1)
    )
    masked = eqx.tree_at(lambda r: r.system.mu, masked, masked.system.mu.with_positions())
    assert [c.claim[:9] for c in mf.check(masked).claims] == ["support r", "Lipschitz", "stability", "weak resi"]


def test_masked_tokens():
    run = run_of(mf.Causal(SOFTMAX), TOKENS.with_positions())
    checked = mf.check(run)
    assert checked.ok and checked["stability"].claim == "stability: log of d_2(t) / d_2(0)"
    assert not any("L_mu" in claim.claim for claim in checked.claims)
    assert mf.check(run, p=1)["stability"].why == "no bound for p = 1 under a mask"


def test_unusual_runs(run):
    """All tokens at 0; one save time; the second run in single precision."""
    zero = mf.check(run_of(SOFTMAX, TOKENS.with_points(jnp.zeros((4, 1)))))
    assert zero.ok and zero["support"].bound == 0 and zero["stability"].measured > 0
    once = mf.check(eqx.tree_at(lambda r: (r.times, r.saved), run, (run.times[-1:], (run.points[-1:], None))))
    assert once.ok and once["stability"].why == "one save time only" and len(once.claims) == 4
    # A flow in single precision refuses rtol below 50 units.
    assert _strict(TOKENS) == 1e-8 and 1e-5 < _strict(mf.PointCloud(np.ones((2, 1), np.float32))) < 1e-4


def test_the_trace():
    """It grows like e^{2Vt} at the most: affine maps do that, and Sinkhorn nearly does at a small temperature."""
    right, wrong = (mf.check(told(mf.Affine([[0.7]]), TIMES, grown(rate)))["trace"] for rate in (0.699, 0.701))
    assert right.holds and 0 < right.slack < 0.01 and wrong.holds is False
    assert right.bound == pytest.approx(float(TOKENS.covariance[0, 0]) * np.exp(1.4))
    # Of a Gaussian, with weights in pieces.
    plan = mf.Sinkhorn(1.0, 1.0, 0.7, eps=0.05)
    run = mf.layers(plan, mf.Gaussian([0.3], cov=0.5), 4)
    checked = mf.check(run)
    assert checked.ok and checked["trace"].bound == pytest.approx(0.5 * np.exp(1.4))
    assert set(checked.paths) == {"trace of the covariance"}
    slower = mf.check(claiming(run, mf.Piecewise([plan, mf.Sinkhorn(1.0, 1.0, 0.1)], [0.5])))["trace"]
    assert slower.bound == pytest.approx(0.5 * np.exp(0.8)) and slower.holds is False
    doubled = mf.check(altered(run, lambda saved: (saved[0], saved[1].at[1:].multiply(2))))["trace"]
    assert doubled.holds is False and doubled.claim.endswith("at t = 0.25")


def test_the_rank_of_a_gaussian():
    field = mf.Softmax(0.3 * np.eye(2), np.eye(2), np.eye(2))
    run = mf.layers(field, mf.Gaussian([0.0, 0.0], factor=[[1.0, 0.5], [0.0, 0.0]]), 4)
    checked = mf.check(run)
    assert checked.ok and checked["the rank 1 does not grow"].measured == 0
    full = mf.check(altered(run, lambda saved: (saved[0], saved[1].at[2, 1, 1].set(1e-9))))
    assert full["the rank 1 does not grow"].holds is False


def test_the_sphere():
    angles = np.array([0.1, 0.2, 1.5, 2.5])
    points = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=-1) * np.ones((3, 1, 1))
    run = told(mf.Affine(0 * np.eye(2)), TIMES, points, space=mf.Sphere(2.0))
    checked = mf.check(run)
    assert checked.ok and checked.claims[0].claim == "the sphere is invariant: ||x| - r| (chosen)"
    assert mf.check(altered(run, lambda saved: (saved[0].at[1, 2].multiply(1 + 1e-8), None)))["sphere"].holds is False


def test_densities():
    run = mf.flow(mf.Affine([[0.1]]), mf.to_density(mf.Gaussian([0.0], cov=1.0), cells=80), 0.2, save=3)
    checked = mf.check(run)
    assert checked.ok and checked["lost over"].measured < 1e-6
    changes = {
        "sum to one": lambda masses, lost: (masses * 1.001, lost),
        "not negative": lambda masses, lost: (masses.at[1, :2].add(jnp.array([1e-9, -1e-9])), lost),
        "lost over the edge": lambda masses, lost: (0.99 * masses, lost + 0.01),
    }
    for words, change in changes.items():
        wrong = mf.check(altered(run, lambda saved, change=change: change(*saved)))
        assert [words in claim.claim for claim in wrong.violations] == [True], words


def test_refusals(run):
    assert_refused(lambda: mf.check(TOKENS), ["check takes a run", "PointCloud", "mf.flow"])
    assert_refused(lambda: mf.check(run, p=0.5), ["p must be a number, 1 or more"])
    batch = jax.tree.map(lambda a: jnp.stack([a, a]), eqx.filter(run, eqx.is_array))
    assert_refused(lambda: mf.check(eqx.combine(batch, run)), ["one finished run", "a batch"])


@pytest.mark.parametrize("bound", [np.inf, np.nan])
def test_a_bound_that_is_not_finite_is_no_claim(bound):
    claim = mf.Claim("anything", bound, 1.0)
    assert claim.bound is None
    assert claim.holds is None
    assert np.isnan(claim.slack)
    assert claim.why == "the bound is beyond the floating-point range"
    table = Checked((claim, mf.Claim("more", 2.0, 1.0)), "a run", {})
    assert table.ok
    assert str(table).count("holds") == 1


def test_an_infinite_bound_of_a_run_is_told():
    """Layers grow by 401 each, and the bound of two of them is e^800."""
    together = mf.PointCloud(np.ones((3, 2)))
    found = mf.check(mf.layers(mf.Softmax(np.eye(2), np.eye(2), 400.0 * np.eye(2)), together, 2, step=1.0))
    radius = found["support radius"]
    assert radius.holds is None
    assert "beyond the floating-point range" in radius.why
    np.testing.assert_allclose(radius.measured, 401.0**2 * np.sqrt(2), rtol=1e-12)

"""The weak form of the PDE: satisfied by every kind of run, of fourth order in the save times, and by no other run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from _told import told

import meanformer as mf
from meanformer.diagnostics.weak import _moment
from oracles.refusals import assert_refused
from oracles.wrong import altered, claiming

RNG = np.random.default_rng(0)
Q, K, V = (np.array(M) for M in ([[0.6, -0.2], [0.1, 0.4]], [[0.5, 0.3], [-0.4, 0.7]], [[0.8, 0.2], [-0.1, 0.6]]))
SOFTMAX = mf.Softmax(Q, K, V)
TOKENS = mf.PointCloud(RNG.uniform(-1, 1, size=(5, 2)), RNG.dirichlet(np.ones(5)))
SAVES = 33


def run_of(field, tokens=TOKENS):
    return mf.flow(field, tokens, 1.0, save=SAVES, rtol=1e-11, atol=1e-12)


@pytest.fixture(scope="module")
def run():
    return run_of(SOFTMAX)


def thinned(run, every):
    """The same run with fewer save times."""
    fewer = run.times[::every], jax.tree.map(lambda a: a[::every], run.saved)
    return eqx.tree_at(lambda r: (r.times, r.saved), run, fewer)


def assert_fourth_order(run, bound=1e-6):
    """The ends of the spline are better than that, and may be seen first."""
    coarse, fine = mf.weak_residual(thinned(run, 2)), mf.weak_residual(run)
    assert 13 < coarse.worst / fine.worst < 36
    assert fine.relative < bound, fine


def waves(run, omega):
    """The test integrals of tokens, by hand."""
    phases = np.exp(1j * np.einsum("tnd,md->tnm", np.asarray(run.points), omega))
    return np.einsum("n,tnm->tm", np.asarray(run.system.mu.weights), phases)


def test_tokens(run):
    assert_fourth_order(run)
    weak = mf.weak_residual(run)
    values = waves(run, weak.frequencies)
    np.testing.assert_allclose(weak.scale, abs(values - values[0]).max(axis=0), rtol=1e-12)
    assert weak.residual.shape == (SAVES, 8) and weak.worst == weak.residual.max() and (weak.residual[0] == 0).all()
    assert weak.relative == weak.worst / weak.scale.max()
    assert str(weak) == (
        f"weak residual {weak.worst:.3g} over 8 test functions until t = 1 ({weak.relative:.3g} of the largest change)"
    )


def test_another_field_leaves_its_share(run):
    r"""Against $cF$ the integral is $c$ times the change, so that the residual is $|1-c|$ times it."""
    own = mf.weak_residual(run)
    values = waves(run, own.frequencies)
    for factor in (0.0, 0.999, 2.0):
        other = mf.weak_residual(run, field=factor * SOFTMAX)
        np.testing.assert_allclose(other.residual, abs(1 - factor) * abs(values - values[0]), atol=2 * own.worst)
        assert mf.weak_residual(claiming(run, factor * SOFTMAX)).worst == other.worst
    # Tokens that jump: the change is not that of the field.
    jumped = altered(run, lambda saved: (saved[0].at[20:].add(0.01), None))
    assert mf.weak_residual(jumped).relative > 1e3 * own.relative


def test_how_much_is_quadrature(run):
    """All of the residual of a right run, and next to nothing of that of a wrong one."""
    own, other = mf.weak_residual(run), mf.weak_residual(run, field=0.5 * SOFTMAX)
    assert 0.5 < own.quadrature / own.worst < 2.5
    assert other.quadrature < 1e-5 * other.worst
    assert np.isnan(mf.weak_residual(thinned(run, 16)).quadrature)


def test_frequencies(run):
    # The largest distance to the mean of the start, in root mean square.
    squares = ((np.asarray(run.points) - np.asarray(TOKENS.mean)) ** 2).sum(axis=2) @ np.asarray(TOKENS.weights)
    spread = np.sqrt(squares.max() / 2)
    for count, seed in ((3, 0), (5, 7)):
        weak = mf.weak_residual(run, count=count, seed=seed)
        np.testing.assert_allclose(weak.frequencies, np.random.default_rng(seed).normal(size=(count, 2)) / spread)
    mine = mf.weak_residual(run, [[0.0, 0.0], [1.0, -2.0]])
    assert mine.residual.shape == (SAVES, 2) and mine.residual[:, 0].max() < 1e-15 and mine.scale[0] < 1e-15
    # One place for all tokens has no spread.
    point = mf.weak_residual(told(mf.Affine(np.eye(2)), [0.0, 0.5, 1.0], np.zeros((3, 5, 2))))
    assert point.worst == 0 and point.relative == 0
    np.testing.assert_array_equal(point.frequencies, np.random.default_rng(0).normal(size=(8, 2)))


def test_weights_in_pieces():
    """Each piece has its own field on both sides of the break, which costs no order."""
    field = mf.Piecewise([SOFTMAX, mf.Softmax(K, Q, -3 * V)], breaks=[0.25])
    run = run_of(field)
    assert_fourth_order(run, 1e-5)  # a fast second piece
    # The pieces exchanged, and the right fields with the break elsewhere.
    assert mf.weak_residual(run, field=mf.Piecewise(field.fields[::-1], [0.25])).relative > 0.5
    assert mf.weak_residual(run, field=mf.Piecewise(field.fields, [0.5])).relative > 0.1
    off = mf.Piecewise(field.fields, [0.26])
    assert_refused(lambda: mf.weak_residual(run, field=off), ["breaks", "a break at 0.26", "save time"])


def test_masked_tokens_and_their_positions():
    tokens = TOKENS.with_positions()
    run = run_of(mf.Causal(SOFTMAX), tokens)
    assert_fourth_order(run)
    assert mf.weak_residual(run, field=SOFTMAX).relative > 0.05
    # Without a mask tokens may change their names, but not the positions they carry: every third function is blind.
    free = run_of(SOFTMAX, tokens)
    renamed = altered(free, lambda saved: (saved[0].at[1:].set(saved[0][1:, ::-1]), None))
    even = mf.PointCloud(tokens.points, positions=tokens.positions)
    free, renamed = (eqx.tree_at(lambda r: r.system.mu, r, even) for r in (free, renamed))
    plain, mixed = (mf.weak_residual(r, field=mf.Affine(V), count=6).residual for r in (free, renamed))
    np.testing.assert_allclose(plain[:, ::3], mixed[:, ::3], atol=1e-14)
    assert abs(plain - mixed)[1:, [1, 2, 4, 5]].max(axis=0).min() > 0.05


def test_the_sphere():
    r"""$\dot x=P_xMx$ moves $x$ along $e^{tM}x/|e^{tM}x|$."""
    times, rates = np.linspace(0, 1, SAVES), np.array([0.9, -0.4])
    points = np.exp(times[:, None, None] * rates) * np.random.default_rng(1).normal(size=(5, 2))
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    field = mf.Affine(np.diag(rates))
    assert_fourth_order(told(field, times, points, space=mf.Sphere()))
    assert mf.weak_residual(told(field, times, points)).relative > 0.1


def test_layers_are_of_first_order():
    worst = [mf.weak_residual(mf.layers(SOFTMAX, TOKENS, depth)).worst for depth in (32, 64)]
    assert 1.9 < worst[0] / worst[1] < 2.1, worst
    # Rows after an overflow are left out.
    burst = mf.layers(mf.Linear(3.0, 3.0, 30.0), mf.PointCloud([[1.0], [-0.5]]), 32, step=1.0)
    assert burst.outcome.kind == "NOT_FINITE"
    assert 3 <= len(mf.weak_residual(burst).times) < 32


LAW = mf.Gaussian([0.5, -0.25], cov=[[1.0, 0.3], [0.3, 0.5]])


@pytest.fixture(scope="module")
def gaussian_run():
    return mf.flow(SOFTMAX, LAW, 1.0, save=SAVES, rtol=1e-11, solver="tsit5")


def test_gaussians(gaussian_run):
    assert_fourth_order(gaussian_run)
    assert mf.weak_residual(gaussian_run, field=mf.L2(Q, K, V)).relative > 0.1
    half = mf.weak_residual(gaussian_run, field=0.5 * SOFTMAX)
    assert half.worst == pytest.approx(0.5 * half.scale.max(), rel=1e-5)


def test_the_formula_of_stein(gaussian_run):
    r"""$E[\omega\cdot(u+G(x-m))\,ie^{i\omega\cdot x}]$ by Gauss-Hermite quadrature, with $u$ and $G$ of MATH e.2."""
    m, L, A = np.asarray(LAW.mean), np.asarray(LAW.factor), K.T @ Q
    S = L @ L.T
    omega = RNG.normal(size=(4, 2))
    found = _moment(gaussian_run.system, jnp.zeros(()), (LAW.mean, LAW.factor), omega, np.zeros(4))
    z, w = np.polynomial.hermite_e.hermegauss(60)
    x = m + np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2) @ L.T
    w = np.outer(w, w).ravel() / (2 * np.pi)
    velocity = V @ (m + S @ A @ m) + (x - m) @ (V @ S @ A).T
    wave = w[:, None] * np.exp(1j * x @ omega.T)
    np.testing.assert_allclose(found[0], wave.sum(axis=0), rtol=0, atol=1e-13)
    np.testing.assert_allclose(found[1], (1j * (velocity @ omega.T) * wave).sum(axis=0), rtol=0, atol=1e-12)


def test_refusals(run):
    assert_refused(lambda: mf.weak_residual(TOKENS), ["takes a run", "PointCloud", "mf.flow"])
    assert_refused(lambda: mf.weak_residual(thinned(run, 32)), ["needs save times", "2 of them", "save=101"])
    final = mf.layers(SOFTMAX, TOKENS, 32, save="final")
    assert_refused(lambda: mf.weak_residual(final), ["2 of them", 'save="all"'])
    assert_refused(lambda: mf.weak_residual(run, [[1.0, 0.0, 0.0]]), ["frequencies", "shape (1, 3)", "(m, 2)"])
    assert_refused(lambda: mf.weak_residual(run, [1.0, 0.0]), ["frequencies", "matrix"])
    assert_refused(lambda: mf.weak_residual(run, count=0), ["count"])
    assert_refused(lambda: mf.weak_residual(run, field=mf.Affine([[1.0]])), ["does not fit"])
    batch = jax.tree.map(lambda a: jnp.stack([a, a]), eqx.filter(run, eqx.is_array))
    assert_refused(lambda: mf.weak_residual(eqx.combine(batch, run)), ["one finished run", "a batch"])

"""The PDE on a grid, against Gaussians and tokens."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import meanformer as mf
from oracles.refusals import assert_refused

LINE = mf.Gaussian([0.3], cov=0.5)
Q, K, V = 0.8, 0.7, 0.9
A2 = {
    "Q": jnp.array([[0.6, -0.2], [0.1, 0.4]]),
    "K": jnp.array([[0.5, 0.3], [-0.4, 0.7]]),
    "V": jnp.array([[0.8, 0.2], [-0.1, 0.6]]),
}


def gaussian_at(field, g, t):
    r"""Mean and covariance of the Gaussian at time `t`, by SciPy (MATH e.2): $\dot m=Vm+Gm$, for Sinkhorn $Vm$, and
    $\dot\Sigma=G\Sigma+\Sigma G^\top$.
    """
    A, V = (np.asarray(M) for M in (field.A, field.V))

    def speed(_, y):
        m, S = np.split(y, [g.d])
        S = S.reshape(g.d, g.d)
        G = V @ S @ A
        if isinstance(field, mf.Sinkhorn):  # on a line
            G = G * 2 / (1 + np.sqrt(1 + 4 * (A * S) ** 2))
        mean = V @ m if isinstance(field, mf.Sinkhorn) else V @ m + G @ m
        return np.concatenate([mean, (G @ S + S @ G.T).ravel()])

    start = np.concatenate([g.mean, g.covariance.ravel()])
    m, S = np.split(solve_ivp(speed, (0, t), start, "DOP853", rtol=1e-12, atol=1e-14).y[:, -1], [g.d])
    return m, S.reshape(g.d, g.d)


def errors(run, exact):
    mean, covariance = exact
    return np.array([abs(run.final.mean - mean).max(), abs(run.final.covariance - covariance).max()])


def test_steps_are_as_short_as_positivity_asks():
    """With straight lines in the cells and Heun's method no cell becomes negative while dt |v| / dx <= 1/2."""
    start = mf.to_density(LINE, cells=80)
    run = mf.flow(mf.Affine(jnp.zeros((1, 1)), jnp.array([3.0])), start, t1=1.0, save=2)
    assert run.stats["steps"] >= 2 * 3.0 / start.spacing[0] and run.stats["rejected"] == 0
    np.testing.assert_allclose(run.final.mean, LINE.mean + 3.0, atol=start.spacing[0] ** 2)


@pytest.mark.parametrize("kind", [mf.Softmax, mf.Sinkhorn])
def test_second_order_towards_the_gaussian(kind):
    field = kind(Q, K, V)
    exact = gaussian_at(field, LINE, 0.75)
    found = []
    for cells in (80, 160):
        run = mf.flow(field, mf.to_density(LINE, cells=cells), t1=0.75, save=4)
        assert run.outcome.ok and run.final.cells[0] > cells  # the grid was extended to hold the density
        masses, lost = (np.asarray(a) for a in run.saved)
        assert masses.min() >= 0
        np.testing.assert_allclose(masses.sum(axis=1) + lost, 1, rtol=0, atol=1e-14)
        assert lost[-1] < 1e-14
        found.append(errors(run, exact))
    order = np.log2(found[0][1] / found[1][1])
    assert 1.6 < order < 2.4, found
    assert found[1].max() < 2e-3, found


def test_the_plane_unsymmetric():
    g = mf.Gaussian([0.2, -0.1], cov=[[0.5, 0.1], [0.1, 0.3]])
    field = mf.Softmax(**A2)
    exact = gaussian_at(field, g, 0.5)
    coarse, fine = (errors(mf.flow(field, mf.to_density(g, cells=c), t1=0.5, save=2), exact) for c in (16, 24))
    assert (np.log(coarse / fine) / np.log(1.5) > 1.7).all() and fine.max() < 6e-3, (coarse, fine)


def test_two_humps_and_two_heads_like_tokens():
    field = mf.MultiHead([mf.Softmax(Q, K, V), mf.Sigmoid(0.5, -0.4, 0.6)])
    rho = mf.to_density(mf.gaussian_mixture([[-1.0], [1.2]], 0.1, [0.3, 0.7]), cells=160)
    run = mf.flow(field, rho, t1=0.5, save=11)
    tokens = mf.flow(field, mf.to_cloud(rho), t1=0.5, save=2, rtol=1e-8).final
    np.testing.assert_allclose(run.final.mean, tokens.mean, atol=1e-3)
    np.testing.assert_allclose(run.final.covariance, tokens.covariance, atol=2e-3)
    # On one grid: as atoms, cells are up to half a side away from the tokens.
    shared = mf.to_density(tokens, run.final.cells[0], low=run.final.low, high=run.final.high)
    assert float(mf.wasserstein(run.final, shared, p=1)) < 3e-3
    assert mf.weak_residual(run).relative < 2e-3
    # The same run tested against another field shows.
    assert mf.weak_residual(run, field=mf.Softmax(Q, K, V)).relative > 0.05
    middle = run.at(0.475)
    assert float(middle.masses.min()) >= 0 and float(middle.mass) == pytest.approx(1, abs=1e-14)
    data = run.to_xarray()
    np.testing.assert_allclose(data["density"].integrate("x1"), 1, atol=1e-12)


@pytest.mark.parametrize("kind", [mf.Softmax, mf.Sigmoid])
def test_masked_like_tokens(kind):
    field = mf.Causal(kind(Q, K, V))
    rho = mf.to_density(LINE, cells=80, positions=[0.25, 0.5, 1.0])
    run = mf.flow(field, rho, t1=0.5, save=2)
    tokens = mf.flow(field, mf.to_cloud(rho), t1=0.5, save=2).final
    for row, s in enumerate([0.25, 0.5, 1.0]):
        mine = np.asarray(run.final.masses[row])
        assert mine.sum() == pytest.approx(1 / 3, abs=1e-14)  # positions never move
        there = np.asarray(tokens.positions) == s
        x, w = np.asarray(tokens.points)[there, 0], np.asarray(tokens.weights)[there]
        centres = np.asarray(run.final.centres(0))
        assert mine @ centres == pytest.approx(w @ x, abs=1e-3)
        assert mine @ centres**2 == pytest.approx(w @ x**2, abs=5e-3)


def test_weights_in_pieces_and_rules():
    rho = mf.to_density(LINE, cells=80)
    field = mf.Piecewise([mf.Affine([[1.0]]), mf.Affine([[-1.0]])], breaks=[0.3])
    run = mf.flow(field, rho, t1=0.6, save=[0.0, 0.5, 0.6])
    assert 0.3 in np.asarray(run.times)
    # e^{0.3} and back again: the same law, up to the scheme.
    np.testing.assert_allclose(run.final.covariance, LINE.covariance, atol=3e-2)
    assert run.states[1].covariance[0, 0] == pytest.approx(0.5 * np.exp(0.6), rel=3e-2)
    still = mf.flow(mf.Affine([[-1.0]]), rho, t1=9.0, stop=mf.Stationary(0.5), save=2)
    assert still.outcome.kind == "STOPPED" and 0.3 < float(still.outcome.time) < 1
    few = mf.flow(mf.Affine([[-1.0]]), rho, t1=9.0, max_steps=5, save=2)
    assert few.outcome.kind == "STEP_LIMIT" and few.stats["steps"] == 5


def test_compact_data_stay_inside():
    """Mass that ends in a jump is spread by the scheme, and what is spread is stretched by the flow."""
    box = mf.to_density(mf.uniform_cube(1), cells=50)
    for t1, field in ((3.0, mf.Affine([[1.0]])), (20.0, mf.Affine([[0.0]], [1.0]))):
        run = mf.flow(field, box, t1=t1, save=2)
        assert float(run.stats["mass_lost"]) < 1e-12
        assert run.final.mean[0] == pytest.approx(0.0 if t1 == 3.0 else 20.0, abs=1e-6)
    # One row of positions is legal.
    one = mf.to_density(mf.uniform_cube(1), cells=50, positions=[1.0])
    assert mf.flow(mf.Affine([[-1.0]]), one, t1=0.5, save=2).final.mass == pytest.approx(1.0)


def test_lost_mass_is_told_and_a_rejected_step_is_retried(monkeypatch, own_programs):
    from meanformer.flows import densities, flow

    monkeypatch.setattr(flow, "covering", lambda field, rho, t0, t1: rho)  # no more room
    box = mf.to_density(mf.uniform_cube(1), cells=50)
    with pytest.warns(mf.MassLostWarning, match="of the mass has left the grid"):
        run = mf.flow(mf.Affine([[1.0]]), box, t1=1.0, save=2)
    # The flow doubles the width and more: e^{-1} of the mass is left.
    assert float(run.final.mass) == pytest.approx(np.exp(-1), abs=0.02)
    assert float(run.final.mass) + run.stats["mass_lost"] == pytest.approx(1, abs=1e-14)
    checked = mf.check(run)
    assert not checked.ok and checked["mass lost"].holds is False
    # Steps that are too long are rejected, one by one where a segment is one step, and the run goes on.
    monkeypatch.setattr(densities, "COURANT", 1.7)
    monkeypatch.setattr(densities, "SEGMENT_PAIRS", 1)
    spiky = mf.Density(np.where(np.arange(40) % 2 == 0, 0.05, 0.0), 0.0, 40.0)
    with pytest.warns(mf.MassLostWarning):
        run = mf.flow(mf.Affine([[0.3]]), spiky, t1=1.0, save=2, max_steps=400)
    assert run.outcome.kind == "REACHED" and run.stats["rejected"] > 0
    assert float(run.final.masses.min()) >= 0


def test_refusals():
    rho = mf.to_density(LINE, cells=80)
    field = mf.Softmax(Q, K, V)
    assert_refused(lambda: mf.flow(field, rho, t1=1.0, rtol=1e-6), ["finite volumes", "rtol="])
    assert_refused(lambda: mf.flow(field, rho, t1=1.0, frame=mf.Rescaled()), ["frame="])
    assert_refused(lambda: mf.flow(mf.Causal(field), rho, t1=1.0), ["positions", "to_density"])
    assert_refused(lambda: mf.flow(field, rho, t1=jnp.inf), ["finite"])
    assert_refused(lambda: mf.flow(mf.Softmax(**A2), rho, t1=1.0), ["does not fit", "dimension 1"])
    assert_refused(lambda: mf.flow(mf.Affine([[3.0]]), rho, t1=9.0), ["too many cells", "larger cells"])
    assert_refused(lambda: mf.layers(field, rho, depth=3), ["layers", "flow"])
    assert_refused(lambda: mf.flow(mf.Hardmax(Q, K, V), rho, t1=1.0), ["hardmax", "Softmax"])

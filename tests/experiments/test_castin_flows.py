"""A7 to A11: verdicts that can fail, and the measurements behind them on small cases."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.diagnostics.bounds import grown_radius
from meanformer.experiments.reproductions.base import Item
from meanformer.experiments.reproductions.castin2025 import bounds, density, depth, meanfield
from meanformer.experiments.reproductions.castin2025.bounds import KINDS, D, N, Pairs

SOFTMAX, MASKED = KINDS[0], KINDS[-1]


def drawn(figure):
    """The figure can be drawn."""
    figure.savefig(io.BytesIO(), format="png", dpi=30)


def test_items_have_the_ids_of_the_list():
    items = [meanfield.ITEM, *bounds.ITEMS, depth.ITEM, density.ITEM]
    assert [item.id for item in items] == ["A7", "A8", "A9", "A10", "A11"]
    assert all(isinstance(item, Item) and item.setting and item.minutes[0] < 1 for item in items)


def test_tokens_of_no_weight_change_nothing():
    tokens = mf.Gaussian([0.3, -0.2], cov=[[0.4, 0.1], [0.1, 0.2]]).sample(30, key=jax.random.key(0))
    filled = meanfield.filled(tokens)
    assert filled.n == meanfield.FEWEST
    np.testing.assert_allclose(filled.covariance, tokens.covariance, rtol=1e-12)
    field = mf.Softmax(jnp.eye(2) / 2, jnp.eye(2), jnp.eye(2))
    np.testing.assert_allclose(mf.velocity(field, filled)[:30], mf.velocity(field, tokens), rtol=1e-12)


@pytest.mark.parametrize(("power", "verdict"), [(-0.5, "holds"), (-0.25, "fails"), (-1.0, "fails")])
def test_only_the_right_slope_holds(power, verdict):
    n = [250, 1000, 4000]
    scatter = np.random.default_rng(0).uniform(0.9, 1.1, (3, 40))
    rate = meanfield.fitted_rate(n, [size**power * row for size, row in zip(n, scatter, strict=True)], 1.0)
    assert abs(rate.slope - power) < 0.01
    assert meanfield.within("slope", -0.5, rate.slope, 0.15, relative=False).verdict == verdict
    drawn(meanfield.rate_figure(rate))


@pytest.mark.parametrize(("reference", "verdict"), [(0.05, "holds"), (0.2, "fails"), (0.001, "fails")])
def test_a_reference_draw_must_be_one_of_ours(reference, verdict):
    assert meanfield.draw_row(250, reference, np.linspace(0.02, 0.1, 50)).verdict == verdict


def test_a_radius_above_its_bound_fails():
    ratios = np.linspace(1, 0.3, 13)[None].repeat(4, axis=0)
    assert bounds.radius_row("softmax", ratios).verdict == "holds"
    ratios[2, 5] = 1.01
    row = bounds.radius_row("softmax", ratios)
    assert row.verdict == "fails" and row.ours == 1.01 and "1 of 4" in row.why
    drawn(bounds.radius_figure({kind.name: ratios for kind in KINDS}))
    assert bounds.radius_row("softmax", np.full((4, 13), np.nan)).verdict == "fails"
    assert bounds.radius_row("softmax", np.empty((0, 13))).verdict == "undecided"


def test_radius_bounds_are_those_of_piecewise_weights():
    r"""$e^{\int\|V\|}R_0$, by hand on the line of times, and by the integrals of the library for other kinds."""
    first, second = bounds.BREAKS
    t = bounds.TIMES
    exponent = np.minimum(t, first) + 2 * np.clip(t - first, 0, second - first) + 3 * np.clip(t - second, 0, None)
    np.testing.assert_allclose(bounds.radius_bounds([1.0, 2.0, 3.0], 0.5), 0.5 * np.exp(exponent), rtol=1e-12)
    rng = np.random.default_rng(5)
    for kind in (MASKED, next(kind for kind in KINDS if kind.name == "two heads")):
        pieces = [bounds.random_field(kind, rng, kind.size) for _ in range(3)]
        ends = grown_radius(
            mf.Piecewise(pieces, breaks=[first, second]), jnp.ones(()), jnp.zeros(()), jnp.asarray(t[-1])
        )
        found = bounds.radius_bounds([bounds.value_norm(piece) for piece in pieces], 1.0)
        np.testing.assert_allclose(found[-1], ends, rtol=1e-10)


def test_random_systems_stay_below_the_bound():
    ratios = bounds.radius_ratios(SOFTMAX, 2, 0)
    assert ratios.shape == (2, 13) and (ratios <= 1 + bounds.SLACK).all()
    np.testing.assert_allclose(ratios[:, 0], 1.0, rtol=1e-12)


def test_the_worst_direction_of_averaging_is_a_translation():
    r"""With $Q=0$ the flow is $\dot x=Vm$, whose derivative is $I+(e^{vt}-1)1w^\top$: translations grow most."""
    field = mf.Softmax(jnp.zeros((D, D)), jnp.eye(D), 0.8 * jnp.eye(D))
    direction = bounds.steepest(field, bounds.random_tokens(np.random.default_rng(3)))
    np.testing.assert_allclose(direction, np.tile(direction[:1], (N, 1)), atol=1e-4 * np.abs(direction).max())
    assert abs(bounds.sharp_ratio() - 1) < 1e-6


def test_pairs_obey_the_bound_and_wrong_ones_are_found():
    pairs = bounds.stability_pairs(SOFTMAX, 1, 0)
    assert set(pairs.ratios) == {
        (name, p) for name in ("unrelated", "noise", "worst direction", "one token") for p in (1, 2)
    }
    assert bounds.stability_row(SOFTMAX, pairs).verdict == "holds"
    # The worst direction stretches W_2 more than any other small move.
    assert pairs.ratios["worst direction", 2][0] >= pairs.ratios["one token", 2][0] * (1 - 1e-3)
    key = ("noise", 2)
    wrong = Pairs(pairs.ratios | {key: np.exp(1.01 * pairs.exponents[key])}, pairs.exponents)
    row = bounds.stability_row(SOFTMAX, wrong)
    assert row.verdict == "fails" and "not below the bound in 1 of 8" in row.why
    lost = Pairs({key: np.full(1, np.nan) for key in pairs.ratios}, pairs.exponents)
    assert bounds.stability_row(SOFTMAX, lost).verdict == "fails"
    assert bounds.stability_row(SOFTMAX, Pairs({}, {})).verdict == "undecided"
    drawn(bounds.stability_figure({SOFTMAX: pairs, MASKED: wrong}, 1.0))


@pytest.mark.parametrize(("power", "verdict"), [(1, "holds"), (2, "fails"), (0.5, "fails")])
def test_only_first_order_holds_for_layers(power, verdict):
    depths = (8, 16, 32)
    row = depth.order_row("softmax", depths, 0.3 / np.array(depths) ** power)
    assert row.verdict == verdict and abs(row.ours - power) < 1e-9
    drawn(depth.depth_figure(depths, {"softmax": 0.3 / np.array(depths) ** power}))


def test_layers_approach_the_flow():
    errors = depth.euler_errors(SOFTMAX, (32, 64), 0)
    assert depth.order_row("softmax", (32, 64), errors).verdict == "holds"


def compared(d):
    """A made-up comparison that is as it should be."""
    where = density.setting(d)
    tokens = where.start.sample(2000, key=jax.random.key(0))
    cells, n = np.array([50, 100]), np.array([500, 2000])
    rho = mf.to_density(where.start, cells=40)
    return density.Compared(where, where.start, rho, tokens, cells, cells**d, 30.0 / cells**2, n, n**-0.5)


def test_verdicts_on_three_representations():
    line, plane = compared(1), compared(2)

    def words(**wrong):
        return [row.verdict for row in density.rows_of(plane._replace(**wrong))]

    assert words() == ["holds"] * 3
    assert words(grid_errors=1.0 / plane.cells) == ["fails", "holds", "holds"]
    assert words(token_errors=plane.n**-0.25) == ["holds", "fails", "holds"]
    assert words(tokens=plane.tokens.with_points(1.3 * plane.tokens.points)) == ["holds", "holds", "fails"]
    drawn(density.density_figure([line, plane]))


def test_the_error_of_a_grid_is_its_distance_to_the_exact_law():
    exact = mf.Gaussian([0.3], cov=0.5)
    rho = mf.to_density(exact, cells=80)
    assert density.grid_error(rho, exact) < 1e-12
    moved = dataclasses.replace(exact, mean=exact.mean + 0.1)
    assert abs(density.grid_error(rho, moved) - 0.1) < 1e-3

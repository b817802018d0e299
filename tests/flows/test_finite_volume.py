"""The finite-volume scheme on its own: conservation, positivity, order."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from meanformer.flows.finite_volume import courant_rate, divergence, fluxes, limited_slopes

masses_1d = hnp.arrays(np.float64, 12, elements=st.one_of(st.just(0.0), st.floats(0, 1), st.floats(0, 1e-300)))
speeds_1d = hnp.arrays(np.float64, 13, elements=st.floats(-3, 3, allow_subnormal=False))


@given(masses_1d)
def test_faces_stay_between_the_neighbours(m):
    half = np.asarray(limited_slopes(jnp.asarray(m), 0)) / 2
    padded = np.pad(m, 1)
    rounding = 1e-15 * m
    for side, neighbour in ((half, padded[2:]), (-half, padded[:-2])):
        face = m + side
        assert (face <= np.maximum(m, neighbour) + rounding).all() and (
            face >= np.minimum(m, neighbour) - rounding
        ).all()


@given(masses_1d, speeds_1d)
def test_no_mass_is_made_and_none_becomes_negative(m, u):
    m, u, h = jnp.asarray(m), (jnp.asarray(u),), jnp.asarray([0.5])
    rate, lost = divergence(m, u, h)
    scale = float(jnp.abs(u[0]).max() * m.max()) + 1e-300
    assert abs(float(rate.sum() + lost)) <= 1e-13 * scale
    fastest = float(courant_rate(u, h))
    if fastest > 0:
        assert float((m + 0.5 / fastest * rate).min()) >= 0


def test_two_dimensions_are_positive_at_the_sum_of_the_rates():
    rng = np.random.default_rng(0)
    for _ in range(50):
        m = jnp.asarray(rng.exponential(size=(5, 6)) * (rng.random((5, 6)) < 0.6))
        u = (jnp.asarray(rng.normal(size=(6, 6))), jnp.asarray(rng.normal(size=(5, 7))))
        h = jnp.asarray([0.3, 0.7])
        rate, lost = divergence(m, u, h)
        assert abs(float(rate.sum() + lost)) < 1e-13
        step = 0.5 / float(courant_rate(u, h))
        assert float((m + step * rate).min()) >= 0
    # The condition is needed: a step three times as long empties some cell below zero.
    assert float((m + 3 * step * rate).min()) < 0


def test_linear_data_are_transported_exactly_inside():
    x = np.arange(10) + 0.5
    through = np.asarray(fluxes(jnp.asarray(x), jnp.ones(11), jnp.asarray(1.0), 0))
    np.testing.assert_allclose(through[2:-2], np.arange(11)[2:-2], rtol=1e-14)


def _stretched(cells, t1=0.5):
    """u = x on [-6, 6]: a Gaussian of variance 1/4 becomes one of variance e^{2t}/4; L1 error of the masses."""
    h = 12 / cells
    edges = np.linspace(-6, 6, cells + 1)
    centres = (edges[1:] + edges[:-1]) / 2

    def exact(s):
        return np.exp(-(centres**2) / (2 * s**2)) / np.sqrt(2 * np.pi) / s * h

    m, u, spacing = jnp.asarray(exact(0.5)), (jnp.asarray(edges),), jnp.asarray([h])
    steps = int(np.ceil(t1 * float(courant_rate(u, spacing)) / 0.45))
    for _ in range(steps):
        first = m + t1 / steps * divergence(m, u, spacing)[0]
        m = (m + first + t1 / steps * divergence(first, u, spacing)[0]) / 2
    return np.abs(np.asarray(m) - exact(0.5 * np.exp(t1))).sum()


def test_second_order():
    errors = [_stretched(cells) for cells in (100, 200, 400)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.75).all() and (orders < 2.4).all(), (errors, orders)

"""Lists of layers: every layer counts, not the first alone."""

import jax
import numpy as np
import pytest

import meanformer as mf

I = np.eye(2)
TOKENS = mf.uniform_ball(2).sample(8, key=jax.random.key(0))


def test_a_list_of_layers_is_judged_by_all_of_them():
    small, big = mf.Softmax(I, I, 0.1 * I), mf.Softmax(I, I, 2 * I)
    run = mf.layers([small, big, big], TOKENS, step=0.5)
    checked = mf.check(run)
    assert checked.ok
    # The bound has the norms of all layers in its exponent.
    assert checked["support radius"].bound == pytest.approx(
        float(TOKENS.radius) * np.exp(0.5 * (0.1 + 2 + 2)), rel=1e-9
    )
    assert not any("Euler" in claim.claim for claim in checked.claims)
    gaussian = mf.Gaussian([0.0, 0.0], cov=I)
    trace = mf.check(mf.layers([mf.Sinkhorn(I, I, 0.1 * I), mf.Sinkhorn(I, I, 2 * I)], gaussian, step=1.0))["trace"]
    assert trace.holds and trace.bound == pytest.approx(2 * np.exp(2 * 2.1), rel=1e-9)
    # One field in every layer stays one field.
    assert isinstance(mf.layers([small] * 3, TOKENS).field, mf.Softmax)

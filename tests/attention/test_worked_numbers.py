"""The worked numbers of the specification, checked by hand there: three tokens on a line."""

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from oracles import dense, golden
from oracles.worked import TABLE

X, W, POSITIONS = np.array([[1.0], [-0.5], [2.0]]), np.array([0.2, 0.5, 0.3]), np.array([1, 2, 3]) / 3
PRINTED = 0.51e-10  # half a unit of the last digit printed


def field(kind):
    return golden.make(kind, [[0.8]], [[1.1]], [[0.9]], 1.0, 0.3)


@pytest.mark.parametrize("kind", dense.KINDS)
def test_table(kind):
    tokens = mf.PointCloud(X, W, POSITIONS)
    got = field(kind)(tokens, np.vstack([X, [[0.25]]]))[:, 0]
    np.testing.assert_allclose(got, TABLE[kind][:4], rtol=0, atol=PRINTED)
    masked = mf.velocity(mf.Causal(field(kind)), tokens)
    np.testing.assert_allclose(masked[1, 0], TABLE[kind][4], rtol=0, atol=PRINTED)


def test_sinkhorn_potentials():
    found = field("sinkhorn_dot").potentials(mf.PointCloud(X, W))
    np.testing.assert_allclose(found.g, (0.16750842, 0.51817041, -0.97528964), rtol=0, atol=0.51e-8)
    np.testing.assert_allclose(found.f - found.g, np.full(3, -0.7375231240), rtol=0, atol=PRINTED)
    assert abs(float(jnp.sum(jnp.asarray(W) * (found.f + found.g))) + 0.7375231240) < PRINTED  # OT_B


def test_sinkhorn_mean():
    velocity = mf.velocity(field("sinkhorn_dot"), mf.PointCloud(X, W))[:, 0]
    assert abs(W @ np.asarray(velocity) - 0.495) < 1e-12

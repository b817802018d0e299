"""The worked numbers of the specification, checked by hand there: three tokens on a line."""

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from oracles import dense, golden

X, W, POSITIONS = np.array([[1.0], [-0.5], [2.0]]), np.array([0.2, 0.5, 0.3]), np.array([1, 2, 3]) / 3
# kind: Gamma(1), Gamma(-0.5), Gamma(2), Gamma(0.25) off the support, and the masked value at token 2
TABLE = {
    "softmax": (1.3453159203, 0.0679486331, 1.6685056736, 0.7405280048, -0.2187160472),
    "l2": (0.6676589231, -0.3927002055, 1.3912156754, -0.1007920411, -0.3941955373),
    "sigmoid": (0.5120080191, 0.1364256230, 0.6073049806, 0.3553088962, -0.0573979775),
    "linear": (1.2078, -0.6039, 2.4156, 0.30195, -0.1287),
    "usa": (3.4277699454, 0.0595420637, 19.1965039463, 0.8611930291, -0.1644407086),
    "sinkhorn_dot": (0.8218999838, -0.2001147495, 1.4355912600, 0.1987581040, -0.2276242264),
    "sinkhorn_l2": (0.9856579581, -0.3614313710, 1.5952803130, 0.0750304859, -0.3479307569),
    "hardmax": (1.8, -0.45, 1.8, 1.8, -0.45),
}
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

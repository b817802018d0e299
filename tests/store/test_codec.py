"""What a run folder keeps of fields, measures and options."""

import json

import diffrax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import meanformer as mf
from meanformer.store.codec import decode, encode, fingerprint

Q = jnp.arange(6.0).reshape(2, 3) / 7
FIELDS = {
    "softmax": mf.Softmax(Q, Q, jnp.eye(3), tau=0.3),
    "sinkhorn": mf.Sinkhorn(Q, Q, jnp.eye(3), kernel="distance"),
    "heads": mf.MultiHead([mf.Softmax(Q, Q, jnp.eye(3)), mf.L2(Q, -Q, jnp.eye(3))]),
    "causal": mf.Causal(mf.Softmax(Q, Q, jnp.eye(3))),
    "pieces": mf.Piecewise([mf.Softmax(Q, Q, jnp.eye(3)), mf.Sigmoid(Q, Q, jnp.eye(3))], [0.5]),
    "sum": mf.Softmax(Q, Q, jnp.eye(3)) + 0.5 * mf.Affine(jnp.eye(3)),
}


def through_json(node):
    arrays: list[np.ndarray] = []

    def sink(values):
        arrays.append(values)
        return len(arrays) - 1

    return decode(json.loads(json.dumps(encode(node, sink), allow_nan=False)), arrays.__getitem__)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_come_back_and_act_the_same(name):
    field = FIELDS[name]
    tokens = mf.PointCloud(jr.normal(jr.key(0), (5, 3))).with_positions()
    back = through_json(field)
    assert jax.tree.structure(back) == jax.tree.structure(field)
    assert np.array_equal(mf.velocity(back, tokens), mf.velocity(field, tokens))


@pytest.mark.parametrize(
    "value",
    [
        {"a": (1, 2.5, None, True, "x"), "b": [float("inf"), -0.0]},
        mf.log_times(11, 0.1),
        [mf.Stationary(1e-6), mf.RadiusAbove(3.0)],
        diffrax.Tsit5(),
        jnp.asarray([1, 2], jnp.float32),
        np.array([np.nan, 1.0]),
        jnp.zeros((3, 100)),
        mf.Ending.STOPPED,
    ],
)
def test_options_come_back(value):
    back = through_json(value)
    assert jax.tree.structure(back) == jax.tree.structure(value)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(value), strict=True):
        assert type(a) is type(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_only_data_of_known_packages_is_made():
    for name in ("os:system", "subprocess:Popen", "meanformer.cli:main", "meanformer.attention.softmax:Nothing"):
        with pytest.raises(mf.InputError, match="a class that is not known"):
            decode({"class": name, "fields": {}}, lambda name: np.zeros(1))


def test_fingerprints_tell_inputs_apart():
    field = FIELDS["softmax"]
    assert fingerprint(field, 1.0) == fingerprint(through_json(field), 1.0)
    others = [
        fingerprint(field, 2.0),
        fingerprint(mf.Softmax(Q, Q, jnp.eye(3), tau=0.31), 1.0),
        fingerprint(mf.L2(Q, Q, jnp.eye(3), tau=0.3), 1.0),
        fingerprint(field, np.zeros(200)),
        fingerprint(field, np.zeros(201)),
        fingerprint(field, lambda t: t),
        fingerprint(field, lambda t: t + 1),
    ]
    assert len({fingerprint(field, 1.0), *others}) == len(others) + 1

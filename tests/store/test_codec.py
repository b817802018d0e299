"""What a run folder keeps of fields, measures and options."""

import functools
import json
import os
import subprocess
import sys

import diffrax
import equinox as eqx
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


def test_only_data_is_made_and_nobody_elses_code_is_imported():
    for name in ("meanformer.cli:main", "meanformer.attention.softmax:Nothing"):
        with pytest.raises(mf.InputError, match="a class that is not known"):
            decode({"class": name, "fields": {}}, lambda name: np.zeros(1))
    assert "antigravity" not in sys.modules
    for name in ("os:system", "subprocess:Popen", "antigravity:geohash", "not.there:Field"):
        found = decode({"class": name, "fields": {}}, lambda name: np.zeros(1))
        with pytest.raises(mf.InputError, match="keeps no functions"):
            found()
    assert "antigravity" not in sys.modules


class Mine(eqx.Module):
    """Something of a user, with numbers of its own."""

    V: jax.Array


def raised_to(power):
    return lambda mu, t: mu.mean**power


def test_fingerprints_tell_inputs_apart_and_are_those_of_every_process():
    field = FIELDS["softmax"]
    assert fingerprint(field, 1.0) == fingerprint(through_json(field), 1.0)
    others = [
        (field, 2.0),
        (mf.Softmax(Q, Q, jnp.eye(3), tau=0.31), 1.0),
        (mf.L2(Q, Q, jnp.eye(3), tau=0.3), 1.0),
        (field, np.zeros(200)),
        (field, np.zeros(201)),
        (Mine(jnp.eye(3)), 1.0),
        (Mine(2 * jnp.eye(3)), 1.0),
        (mf.MultiHead([mf.Softmax(Q, Q, jnp.eye(3))]), 1.0),
    ]
    functions = [
        lambda mu, t: mu.radius,
        lambda mu, t: mu.mean,
        lambda mu, t: mu.mean + 1,
        lambda mu, t=0.0: mu.mean,
        raised_to(1.0),
        raised_to(2.0),
        raised_to(np.arange(100.0)),
        functools.partial(raised_to, 1.0),
        functools.partial(raised_to, 2.0),
        lambda mu, t: max(mu.mean, key=lambda x: x),
        lambda mu, t: max(mu.mean, key=lambda x: -x),
        jnp.sin,
        jnp.cos,
        jax.jit(lambda mu, t: mu.mean),
    ]
    prints = [fingerprint(field, 1.0), *(fingerprint(*other) for other in others), *map(fingerprint, functions)]
    assert len(set(prints[:-1])) == len(prints) - 1
    assert prints[-1] == fingerprint(functions[1])  # compiled or not, it does the same
    assert fingerprint(lambda mu, t: t in {"a", "b", "c"}) == fingerprint(lambda mu, t: t in {"a", "b", "c"})
    script = (
        "import meanformer.store.codec as c; print(c.fingerprint(lambda t: (max(t, key=lambda x: -x), t in {'a','b'})))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1 and told != {""}

    class Odd:
        def __call__(self, mu, t):
            return 0.0

    with pytest.raises(mf.InputError, match="must know what a function does"):
        fingerprint(Odd())

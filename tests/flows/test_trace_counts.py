"""What compiles again, and what does not: only shapes and structure may."""

from collections import Counter

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from _cases import cloud, weights

import meanformer as mf

TRACES: Counter[str] = Counter()


class Counted(mf.AbstractField):
    """A field that counts how often it is traced: Python runs `evaluate` then, and only then."""

    field: mf.AbstractField
    name: str

    def evaluate(self, mu, x, t, view):
        TRACES[self.name] += 1
        return self.field.evaluate(mu, x, t, view)

    def terms(self, t):
        return self.field.terms(t)


N, D = 7, 2


def test_values_do_not_recompile_a_flow() -> None:
    Q, K, V = weights(30, D)
    tokens = cloud(30, N, D)

    def run(field, mu=tokens, t1=1.0, **options):
        mf.flow(Counted(field, "flow"), mu, t1, save=5, **options)
        return TRACES["flow"]

    first = run(mf.Softmax(Q, K, V))
    assert first > 0
    law = mf.uniform_ball(d=D)
    assert run(mf.Softmax(Q, K, V, tau=0.5)) == first, "another temperature"
    assert run(mf.Softmax(Q, K, V, tau=jnp.asarray(3))) == first, "a temperature as an integer array"
    assert run(mf.Softmax(K, V, Q)) == first, "other matrices"
    assert run(mf.Softmax(Q.tolist(), K, jnp.asarray(V))) == first, "matrices from lists"
    assert run(mf.Softmax(Q, K, V), t1=3) == first, "another time horizon"
    assert run(mf.Softmax(Q, K, V), t0=0.25) == first, "another start"
    assert run(mf.Softmax(Q, K, V), rtol=1e-4, atol=np.float32(1e-7)) == first, "other tolerances"
    assert run(mf.Softmax(Q, K, V), mu=mf.PointCloud(tokens.points)) == first, "other token weights"
    for seed in (1, 2):
        assert run(mf.Softmax(Q, K, V), mu=law.sample(N, key=jr.key(seed))) == first, "another sample"
    # The counter does count: another number of tokens is another program.
    assert run(mf.Softmax(Q, K, V), mu=cloud(31, N + 1, D)) > first


def test_step_and_stop_values_do_not_recompile() -> None:
    Q, K, V = weights(31, D)
    tokens = cloud(31, N, D)

    def run(step, radius, speed):
        stop = [mf.RadiusAbove(radius), mf.Stationary(speed)]
        mf.flow(Counted(mf.Softmax(Q, K, V), "step"), tokens, 1.0, solver="euler", step=step, stop=stop, save=3)
        return TRACES["step"]

    first = run(0.1, 10.0, 1e-6)
    assert run(0.2, 10.0, 1e-6) == first, "another step"
    assert run(0.2, 20, 1e-3) == first, "other stop rules of the same kind"


@pytest.mark.parametrize("form", ["one field", "a list"])
def test_layers_trace_a_layer_once(form: str) -> None:
    tokens = cloud(32, N, D)

    def layer(seed, tau=1.0):
        return Counted(mf.Softmax(*weights(seed, D), tau), form)

    def run(seed, depth, **options):
        if form == "a list":
            mf.layers([layer(seed + i, 1.0 + i) for i in range(depth)], tokens, **options)
        else:
            mf.layers(layer(seed), tokens, depth, **options)
        return TRACES[form]

    assert run(0, 4) == 1, "four layers are traced as one"
    assert run(10, 4) == 1, "other weights"
    assert run(0, 4, step=0.3) == 1, "another step"
    assert run(0, 8) == 2, "another depth is traced once more, not eight times"


def test_layers_of_a_repeating_pattern_trace_its_period() -> None:
    tokens = cloud(33, N, D)
    pattern = [(mf.Softmax, "softmax layer"), (mf.L2, "l2 layer")]
    blocks = [Counted(kind(*weights(i, D)), name) for i in range(4) for kind, name in pattern]
    mf.layers(blocks, tokens)
    assert TRACES["softmax layer"] == TRACES["l2 layer"] == 1

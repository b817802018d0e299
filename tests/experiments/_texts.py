"""Experiment files in short, for tests."""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp

from meanformer.experiments.config import Experiment, experiment_of

I = jnp.eye(2)
TOKENS = 'kind = "points"\npoints = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]'
SOFTMAX = 'kind = "softmax"\nQ = "identity"\nK = "identity"\nV = "identity"'
FLOW = "t1 = 2.0"


def read(text: str, changes=(), folder=Path()) -> Experiment:
    return experiment_of(text, "test.toml", folder, changes)


def experiment(attention=SOFTMAX, measure=TOKENS, flow=FLOW, rest="", **options) -> Experiment:
    return read(f"[attention]\n{attention}\n[measure]\n{measure}\n[flow]\n{flow}\n{rest}", **options)


def same(a, b) -> None:
    assert bool(eqx.tree_equal(a, b)), f"{a}\n{b}"

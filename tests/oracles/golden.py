"""The golden files, by case; and the library's fields, by the name of their kind there."""

from functools import cache
from pathlib import Path

import numpy as np

import meanformer as mf

FOLDER = Path(__file__).parents[1] / "golden"
CLASSES = {
    "softmax": mf.Softmax,
    "l2": mf.L2,
    "sigmoid": mf.Sigmoid,
    "linear": mf.Linear,
    "usa": mf.Unnormalised,
    "hardmax": mf.Hardmax,
    "sinkhorn_dot": mf.Sinkhorn,
    "sinkhorn_l2": mf.Sinkhorn,
}


@cache
def load(name):
    """`{case: {name: array}}` of the file `name`.npz; keys are split at the first double underscore."""
    cases = {}
    with np.load(FOLDER / f"{name}.npz") as arrays:
        for key in arrays.files:
            case, entry = key.split("__", 1)
            cases.setdefault(case, {})[entry] = arrays[key]
    return cases


def make(kind, Q, K, V, tau=1.0, b=0.0, *, tol=1e-13, **options):
    """The field of a kind: `tau` is the eps of Sinkhorn, `b` the bias of sigmoid; hardmax has neither."""
    kind = str(kind)
    if kind == "hardmax":
        return mf.Hardmax(Q, K, V, **options)
    if kind == "sigmoid":
        return mf.Sigmoid(Q, K, V, tau, b, **options)
    if kind.startswith("sinkhorn"):
        kernel = "dot" if kind == "sinkhorn_dot" else "distance"
        return mf.Sinkhorn(Q, K, V, tau, kernel, tol, **options)
    return CLASSES[kind](Q, K, V, tau, **options)


def field(case, **options):
    """The field of a golden case."""
    return make(*(case[name] for name in ("kind", "Q", "K", "V", "tau", "b")), **options)


def heads(case):
    """The multi-head field of a golden case."""
    names = ("kind", "Q", "K", "V", "tau", "b")
    made = [make(*(case[f"h{h}_{name}"] for name in names)) for h in range(int(case["H"]))]
    return mf.MultiHead(made, W=[case[f"h{h}_W"] for h in range(int(case["H"]))])

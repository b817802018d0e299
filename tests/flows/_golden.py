"""The cases of golden/trajectories.npz: as stored, and embedded in one shape so that cases share a compiled run."""

from pathlib import Path
from typing import Any

import numpy as np

import meanformer as mf

FILE = Path(__file__).parents[1] / "golden" / "trajectories.npz"

# Sinkhorn is solved as far as float64 allows: golden potentials are exact to 1e-11.
KINDS: dict[str, Any] = {
    "softmax": lambda Q, K, V, tau, b: mf.Softmax(Q, K, V, tau),
    "l2": lambda Q, K, V, tau, b: mf.L2(Q, K, V, tau),
    "sigmoid": lambda Q, K, V, tau, b: mf.Sigmoid(Q, K, V, tau, b),
    "linear": lambda Q, K, V, tau, b: mf.Linear(Q, K, V, tau),
    "usa": lambda Q, K, V, tau, b: mf.Unnormalised(Q, K, V, tau),
    "sinkhorn_dot": lambda Q, K, V, tau, b: mf.Sinkhorn(Q, K, V, tau, tol=1e-12),
    "sinkhorn_l2": lambda Q, K, V, tau, b: mf.Sinkhorn(Q, K, V, tau, kernel="distance", tol=1e-12),
}


def load() -> dict[str, dict[str, Any]]:
    """`{case: {name: array}}`."""
    cases: dict[str, dict[str, Any]] = {}
    with np.load(FILE) as file:
        for key in file:
            case, name = key.split("__", 1)
            cases.setdefault(case, {})[name] = file[key]
    return cases


def attention(case: dict[str, Any], V: Any = None) -> Any:
    """The attention of a case with constant weights (`V` for its own)."""
    V = case["V"] if V is None else V
    return KINDS[str(case["kind"])](case["Q"], case["K"], V, case["tau"], case.get("b", 0.0))


def embedded(case: dict[str, Any], n: int, d: int) -> dict[str, Any]:
    """The case in R^d with n tokens: further coordinates and weights are zero, which changes nothing else."""

    def grown(array: np.ndarray, *shape: int) -> np.ndarray:
        return np.pad(array, [(0, new - old) for new, old in zip(shape, array.shape, strict=True)])

    times = len(case["t"])
    states = "Zt" if "Zt" in case else "Xt"
    return case | {
        "X": grown(case["X"], n, d),
        "w": grown(case["w"], n),
        states: grown(case[states], times, n, d),
        **{name: grown(case[name], d, d) for name in ("Q", "K", "V")},
    }


def relative_error(value: Any, exact: Any) -> float:
    """The largest difference relative to the largest entry."""
    return float(np.abs(np.asarray(value) - exact).max() / np.abs(exact).max())

"""Run folders as `meanformer run` leaves them, made by hand."""

import json
from pathlib import Path

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect width="40" height="20" fill="#4477AA"/></svg>'

EXPERIMENT = {
    "attention": {"kind": "softmax", "Q": "identity", "K": "identity", "V": [[1.0, 0.25], [0.0, -3.0]], "tau": 0.5},
    "measure": {"kind": "cube", "n": 40, "d": 2, "low": -5.0, "high": 5.0},
    "flow": {"t0": 0.0, "t1": 15.0, "frame": "rescaled", "solver": "tsit5", "rtol": 1e-6},
}


def record(**changes) -> dict:
    return {
        "format": 1,
        "kind": "flow",
        "name": "clusters",
        "title": "Tokens gather",
        "about": "With $Q=K=I$ tokens gather.",
        "created": "2026-01-02T03:04:05+00:00",
        "experiment": EXPERIMENT,
        "source": '[attention]\nkind = "softmax"\n',
        "command": "meanformer run clusters --set n=40",
        "seed": 7,
        "hash": "abc123",
        "convention": "A = K^T Q acts on the query",
        "versions": {"meanformer": "0.1.0", "jax": "0.10.1", "diffrax": "0.7.1"},
        "commit": "c285cd8",
        "machine": "Linux, 2 cores",
        "cites": ["geshkovski2023"],
    } | changes


def results(**changes) -> dict:
    return {
        "status": "done",
        "outcome": "REACHED at t = 15: reached t1",
        "fate": None,
        "summary": "Softmax, 40 tokens in R^2: 38 steps; REACHED at t = 15: reached t1",
        "seconds": 3.5,
        "numbers": {"outcome": "REACHED", "radius": 2.447e7, "clusters": 8, "steps": 38},
        "checks": [
            {"claim": "support radius R", "bound": 8.0, "measured": 2.0, "slack": 0.75, "holds": True, "why": ""},
            {"claim": "stability of W_2", "bound": 1.0, "measured": 3.0, "slack": -2.0, "holds": False, "why": ""},
            {"claim": "weak residual", "bound": None, "measured": 1e-4, "slack": None, "holds": None, "why": "none"},
        ],
        "figures": [{"name": "paths", "file": "figures/paths.svg", "caption": "Paths of $x_1$."}],
    } | changes


def write(path: Path, content: dict) -> None:
    """A JSON file of format 1, which has no checksums."""
    path.write_text(json.dumps(content))


def folder(path: Path, run: dict | None = None, found: dict | None = None) -> Path:
    (path / "figures").mkdir(parents=True)
    (path / "figures" / "paths.svg").write_text(SVG)
    write(path / "run.json", record() if run is None else run)
    if found is not None:
        write(path / "results.json", found)
    return path

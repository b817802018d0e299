"""The analysis of a model, as `meanformer model` leaves it, made by hand: 2 layers of 3 heads, 6 tokens."""

from pathlib import Path

import numpy as np

from report._folders import write

EVIL = "</script><script>document.title = 'broken'</script><!--"
LABELS = ["[CLS]", EVIL, "$x$", "`y` & <b>", "\n", "token"]
LAYERS, HEADS, K, D = 2, 3, 2, 8


def results(**changes) -> dict:
    rng = np.random.default_rng(3)
    n = len(LABELS)
    curves = {
        "average_cosine": [0.05, 0.2, 0.35],
        "effective_rank": [4.0, 3.0, 2.5],
        "participation_ratio": [3.5, 2.5, 2.0],
        "isoscore": [0.5, 0.4, 0.3],
        "clusters": [6, 6, 4],
        "norm": [1.0, 30.0, 900.0],
        "spread": [1.0, 2.0, 4.0],
    }

    def null(factor: float) -> dict:
        return {name: band([factor * x for x in curve]) for name, curve in curves.items()}

    error = [[0.5, 1.5, 0.25], [2.0, 0.1, 0.75]]
    mean_only = [[0.75, 0.9, 0.5], [0.9, 0.8, 0.5]]
    ov = [[[1.0, 0.5], [-0.5, 0.0]], [[2.0, 0.0], [1.0, 0.0]], [[-1.0, -0.25], [0.0, 0.0]]]
    heads = [
        {"layer": layer, "head": head, "inertia": [K, K, D - 2 * K], "positive_share": 0.4 + 0.1 * head}
        | {"symmetry": 0.7 + 0.05 * layer, "logit_scale": 12.5 * (head + 1), "ov": ov[head]}
        | {"ov_radius": 2.0, "ov_abscissa": 1.0, "ov_trace": 0.5}
        for layer in range(LAYERS)
        for head in range(HEADS)
    ]
    fates = [
        {"layer": 0, "ending": "blows up", "time": 0.25, "bound": 0.01, "growth": 3.0, "rank": 1.0}
        | {"words": "blows up at t = 0.25 layers"},
        {"layer": 1, "ending": "grows", "time": None, "bound": None, "growth": 0.5, "rank": 2.0, "words": "grows"},
    ]
    deep = {"layers": [1, 10, 100], "average_cosine": [0.1, 0.4, 0.5], "effective_rank": [4.0, 3.0, 2.0]}
    deep |= {"near_pairs": [0.0, 0.1, 0.25], "groups": [6, 5, 3], "move": [0.5, 0.1, 0.01], "words": "it stands still"}
    return {
        "status": "done",
        "summary": "6 tokens through 2 layers",
        "model": {"name": "tiny", "kind": "bert", "depth": LAYERS, "heads": HEADS, "d": D, "k": K, "parameters": 12345}
        | {"causal": False, "tied": False, "pre": False},
        "input": {"kind": "text", "n": n, "labels": LABELS, "weights": None, "grid": None}
        | {"source": "page.txt", "cut_from": None},
        "curves": curves,
        "spectrum": [[0.6, 0.3, 0.1], [1.0, 0.6, 0.4], [3.0, 0.9, 0.1]],
        "bands": {"random weights": null(0.5), "Gaussian tokens": null(1.0)},
        "attention": {
            "entropy": [[0.0, 0.5, 1.0], [0.25, None, 0.75]],
            "leaders": [[0, 1, 6], [2, 2, 2]],
            "attention_rank": [[1, 2, 3], [3, 2, 1]],
            "energy": [[None] * 3] * 2,
        },
        "most_seen": [{"layer": layer, "tokens": [[LABELS[1], 0.5], ["token", 0.125]]} for layer in range(LAYERS)],
        "closure": {
            "error": error,
            "mean_only": mean_only,
            "layer_error": [1.25, 0.5],
            "layer_mean_only": [0.75, 1.0],
            "random": band([0.2, 0.1]),
            "resampled": band([0.4, 0.3]),
            "random_heads": {"middle": [[0.2] * 3] * 2},
            "resampled_heads": {"middle": [[0.4] * 3] * 2},
            "logit_size": [[0.5, 3.0, 0.7]] * 2,
        },
        "heads": heads,
        "fates": fates,
        "deep": deep,
        "map": {"points": rng.normal(size=(3, n, 2)).round(3).tolist(), "explained": [0.1, 0.25, 0.5], "deep": None},
        "notes": [],
        "numbers": {"average_cosine_first": 0.05, "average_cosine_last": 0.35, "closure_error": 0.625}
        | {"closure_beats_mean": 0.5, "heads": 6},
        "seconds": 4.25,
        "peak_bytes": 100 * 2**20,
    } | changes


def band(middle: list) -> dict:
    return {"low": [0.9 * x for x in middle], "middle": middle, "high": [1.1 * x for x in middle]}


def record(**changes) -> dict:
    return {
        "format": 1,
        "kind": "model",
        "name": "tiny-page",
        "title": "tiny on page.txt",
        "about": "",
        "created": "2026-01-02T03:04:05+00:00",
        "command": "meanformer model tiny --text page.txt",
        "seed": 7,
        "cites": ["vaswani2017"],
        "experiment": {"model": "tiny", "input": {"kind": "text", "source": "page.txt"}, "draws": 8},
        "experiment_hash": "abc123",
        "input": "input.txt",
        "items": ["curves", "map", "figures"],
        "versions": {"meanformer": "0.1.0", "jax": "0.10.1"},
        "machine": "Linux, 2 cores",
        "commit": "c285cd8",
    } | changes


def folder(path: Path, run: dict, found: dict | None) -> Path:
    path.mkdir(parents=True)
    write(path / "run.json", run)
    if found is not None:
        write(path / "results.json", found)
    return path

"""Records of the tiny models in `oracles`, in float64: tokens of different weights, two of which nobody sees."""

from functools import cache
from pathlib import Path

import numpy as np

import meanformer as mf

FOLDER = Path(__file__).parent / "oracles"
KINDS = ("bert", "gpt2", "llama")  # all tokens see each other; a mask; a mask and rotary positions


@cache
def tiny_record(name, n=9):
    model = mf.models.load(FOLDER / name, dtype="float64")
    random = np.random.default_rng(1)
    weights = np.where(np.arange(n) % 5 == 3, 0.0, random.uniform(0.5, 2.0, n))
    points = random.normal(size=(n, model.d)) + 0.3
    return model.record(tokens=mf.PointCloud(points, weights / weights.sum()))

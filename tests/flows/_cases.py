"""Fields and clouds that the tests of flows share: few shapes, so that compiled runs are shared too."""

from typing import Any

import numpy as np

import meanformer as mf


def weights(seed: int, d: int = 3, count: int = 3) -> list[np.ndarray]:
    """`count` random matrices (d, d) of norm about 1."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(d, d)) / np.sqrt(2 * d) for _ in range(count)]


def cloud(seed: int, n: int = 10, d: int = 3, **options: Any) -> mf.PointCloud:
    """Random tokens with random weights."""
    rng = np.random.default_rng(1000 + seed)
    w = rng.uniform(0.2, 1.0, size=n)
    return mf.PointCloud(rng.normal(size=(n, d)), w / w.sum(), **options)

"""Fields and clouds that the tests of flows share: few shapes, so that compiled runs are shared too."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import meanformer as mf
from meanformer.attention.schedule import breaks_of, frozen
from meanformer.attention.view import View


def weights(seed: int, d: int = 3, count: int = 3) -> list[np.ndarray]:
    """`count` random matrices (d, d) of norm about 1."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(d, d)) / np.sqrt(2 * d) for _ in range(count)]


def cloud(seed: int, n: int = 10, d: int = 3, **options: Any) -> mf.PointCloud:
    """Random tokens with random weights."""
    rng = np.random.default_rng(1000 + seed)
    w = rng.uniform(0.2, 1.0, size=n)
    return mf.PointCloud(rng.normal(size=(n, d)), w / w.sum(), **options)


def integrated(field: Any, tokens: mf.PointCloud, times: Any) -> np.ndarray:
    """The points at `times`, from t = 0, by scipy: nothing of the library but the field is used."""
    ends = [0.0, *(b for b in breaks_of(field) if b < times[-1]), float(times[-1])]
    x, found = np.asarray(tokens.points), {}
    for start, end in itertools.pairwise(ends):
        piece = frozen(field, (start + end) / 2)
        move = jax.jit(lambda x, t, f=piece: f.evaluate(tokens.with_points(x), x, t, View(tokens.positions)))

        def rate(t: float, flat: np.ndarray, move: Any = move, shape: Any = x.shape) -> np.ndarray:
            return np.asarray(move(jnp.asarray(flat.reshape(shape)), jnp.asarray(t))).ravel()

        inside = [t for t in times if start <= t < end] + [end]
        rows = solve_ivp(rate, (start, end), x.ravel(), "DOP853", inside, rtol=1e-12, atol=1e-13).y.T
        found |= {t: row.reshape(x.shape) for t, row in zip(inside, rows, strict=True)}
        x = found[end]
    return np.stack([found[float(t)] for t in times])

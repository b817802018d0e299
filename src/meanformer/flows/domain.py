"""The box in which a density stays during a run: found by a few tokens that run ahead."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm
from .._types import Scalar
from ..attention.base import AbstractField
from ..attention.view import View
from ..diagnostics.bounds import grown_radius
from ..measures.cloud import PointCloud
from ..measures.density import Density

# Cells below this mass are not followed: together they hold less than the rounding of one.
NEGLIGIBLE = 1e-15
# Tokens that stand for the density, along each axis.
COARSE = {1: 48, 2: 12}
# The box holds what the scouts saw, and some cells more: so many in any case, and SPREAD times the cube root of the
# cells crossed where more than a TRACE of mass ends in a jump.
MARGIN = 2
SPREAD = 1.0
AHEAD = 3.0
TRACE = 1e-8
MOST_CELLS = 2**14
STEPS = 100
# A grid that grows to so many cells, and so many times, is worth a word.
NOTABLE_CELLS = 2000
NOTABLE_GROWTH = 6


class LargeGridWarning(UserWarning):
    """The grid of a density grows very much to hold it: to more than 2000 cells, and more than 6 times as many.

    It comes before the run, which may take long. Here it is made an error, and nothing is computed:

    ```python
    import warnings

    rho = mf.to_density(mf.Gaussian([0.0], cov=1.0), cells=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error", mf.LargeGridWarning)
        try:
            mf.flow(mf.Affine([[4.0]]), rho, t1=1.0)  # lengths grow by exp(4)
        except mf.LargeGridWarning as warning:
            print(warning)
    ```
    """


def scouts(density: Density) -> PointCloud:
    """The density by few weighted tokens, and markers of weight zero around it, which move but act on nobody."""
    cloud = density.cloud()
    points, weights = np.asarray(cloud.points, np.float64), np.asarray(cloud.weights, np.float64)
    rows = np.zeros(len(points), int)
    positions = np.zeros(1) if density.positions is None else np.asarray(density.positions)
    if density.positions is not None:
        rows = np.repeat(np.arange(len(positions)), len(points) // len(positions))
    seen = weights > NEGLIGIBLE
    low, high = points[seen].min(axis=0), points[seen].max(axis=0)
    count = COARSE[density.d]
    # Blocks of cells, each replaced by its mass at its centre of mass.
    block = np.floor((points - low) / np.where(high > low, high - low, 1) * count * (1 - 1e-12)).astype(int)
    index = rows * count**density.d + np.ravel_multi_index(tuple(np.clip(block, 0, count - 1).T), (count,) * density.d)
    size = len(positions) * count**density.d
    masses = np.bincount(index[seen], weights[seen], minlength=size)
    centres = np.stack([np.bincount(index[seen], weights[seen] * x, minlength=size) for x in points[seen].T], axis=1)
    full = masses > 0
    tokens, shares = centres[full] / masses[full, None], masses[full] / masses[full].sum()
    owner = np.repeat(np.arange(len(positions)), count**density.d)[full]
    # What a jump spreads at the start grows with the flow: there the markers stand some cells away from the mass.
    side = np.asarray(density.spacing) * np.where(_ends_in_a_jump(density), AHEAD, 0.5)
    frame = np.array(list(itertools.product(*zip(low - side, (low + high) / 2, high + side, strict=True))))
    markers = np.tile(frame, (len(positions), 1))
    s = None
    if density.positions is not None:
        s = positions[np.concatenate([owner, np.repeat(np.arange(len(positions)), len(frame))])]
    # Always the same number of tokens: runs of one kind compile once.
    missing = size - len(tokens)
    tokens = np.concatenate([tokens, np.repeat(tokens[:1], missing, axis=0), markers])
    shares = np.concatenate([shares, np.zeros(missing + len(markers))])
    if s is not None:
        s = np.insert(s, int(full.sum()), np.repeat(s[:1], missing))
    return PointCloud(jnp.asarray(tokens, density.low.dtype), jnp.asarray(shares, density.low.dtype), s)


@program
def _reach(field: AbstractField, cloud: PointCloud, t0: Scalar, t1: Scalar, steps: Array) -> tuple[Array, Array]:
    """The corners of the box of all paths, by Heun's method; a turn of the loop is a stage, so that the field is
    compiled once.
    """
    h = (t1 - t0) / steps.astype(t0.dtype)

    def stage(k: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, ahead, low, high = carry
        second = k % 2 == 1
        start = jnp.where(second, ahead, x)
        # Just before its end, a step is still in its piece of piecewise weights.
        t = t0 + h * ((k // 2).astype(t0.dtype) + jnp.where(second, 1 - 1e-6, 0))
        moved = start + h * field.evaluate(cloud.with_points(start), start, t, View(cloud.positions))
        x = jnp.where(second, (x + moved) / 2, x)
        there = jnp.where(jnp.isfinite(moved), moved, 0)
        return x, moved, jnp.minimum(low, there.min(axis=0)), jnp.maximum(high, there.max(axis=0))

    x = cloud.points
    return jax.lax.fori_loop(0, 2 * steps, stage, (x, x, x.min(axis=0), x.max(axis=0)))[2:]


def _margin(density: Density, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How far beyond the paths the box goes: where mass ends in a jump, a limited scheme spreads it by about the cube
    root of the number of cells that it crosses.
    """
    side, mine = np.asarray(density.spacing), (np.asarray(density.low), np.asarray(density.high))
    crossed = np.maximum(mine[0] - low, 0) + np.maximum(high - mine[1], 0)
    spread = SPREAD * np.cbrt(crossed / side)
    return (MARGIN + np.where(_ends_in_a_jump(density), np.ceil(spread), 0)) * side


def _ends_in_a_jump(density: Density) -> np.ndarray:
    """Along each axis, whether the outermost cells that hold mass hold more than a trace of it."""
    masses = np.asarray(density.marginal().masses, np.float64)
    found = []
    for axis in range(density.d):
        along = masses.sum(axis=tuple(a for a in range(density.d) if a != axis))
        full = np.flatnonzero(along > NEGLIGIBLE)
        found.append(max(along[full[:2]].max(), along[full[-2:]].max()) > TRACE)
    return np.array(found)


def covering(field: AbstractField, density: Density, t0: Scalar, t1: Scalar) -> Density:
    """The density on a box that holds the paths of its scouts, and no more than the ball of the radius bound."""
    cloud = scouts(density)
    radius = norm(cloud.points, axis=1).max()  # of the markers too: those are the corners of the mass
    bound = grown_radius(field, radius, t0, t1)
    # Enough steps for the fastest that the radius can grow, or shrink.
    rate = 0.0 if bound is None else np.log(max(float(bound) / max(float(radius), 1e-300), 1.0))
    low, high = (np.asarray(a) for a in _reach(field, cloud, t0, t1, jnp.asarray(int(STEPS * min(1 + rate, 50.0)))))
    if bound is not None and np.isfinite(float(bound)):
        low, high = np.maximum(low, -float(bound)), np.minimum(high, float(bound))
    margin = _margin(density, low, high)
    low, high = low - margin, high + margin
    cells = np.ceil(np.maximum(high, density.high) / density.spacing) - np.floor(
        np.minimum(low, density.low) / density.spacing
    )
    rows = 1 if density.positions is None else density.positions.shape[0]
    if np.prod(cells) * rows > MOST_CELLS:
        box = " x ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(low, high, strict=True))
        checks.refuse(
            "the density spreads over too many cells",
            got=f"{' x '.join(f'{c:.0f}' for c in cells)} cells to cover {box}" + f" at {rows} positions" * (rows > 1),
            expected=f"at most {MOST_CELLS} cells",
            remedy="shorten the run, take larger cells, or flow tokens or a Gaussian",
        )
    before, after = density.masses.size, int(np.prod(cells)) * rows
    if after > NOTABLE_CELLS and after > NOTABLE_GROWTH * before:
        box = " x ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(low, high, strict=True))
        warnings.warn(
            f"the grid grows from {before} to about {after} cells, to hold the density on {box} until "
            f"t = {float(t1):.4g}: this may take long; shorten the run, or take larger cells",
            LargeGridWarning,
            stacklevel=4,
        )
    return density.extended(low, high)

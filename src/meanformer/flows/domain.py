"""The box in which a density stays during a run: found by a few tokens that run ahead."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._types import Scalar
from ..attention.base import AbstractField
from ..attention.view import View
from ..diagnostics.bounds import support_bound
from ..measures.cloud import PointCloud
from ..measures.density import Density

# Cells below this mass are not followed: together they hold less than the rounding of one.
NEGLIGIBLE = 1e-15
# Tokens that stand for the density, along each axis.
COARSE = {1: 48, 2: 12}
# The box holds what the scouts saw, and so many cells more: a limited scheme spreads mass by a cell or two.
MARGIN = 4
MOST_CELLS = 2**14
STEPS = 200


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
    side = np.asarray(density.spacing) / 2
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


@eqx.filter_jit
def _reach(field: AbstractField, cloud: PointCloud, t0: Scalar, t1: Scalar, steps: Array) -> tuple[Array, Array]:
    """The corners of the box of all paths, by Euler's method: a rough answer is enough, and compiles quickly."""
    h = (t1 - t0) / steps.astype(t0.dtype)

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, low, high = carry
        x = x + h * field.evaluate(cloud.with_points(x), x, t0 + h * k.astype(t0.dtype), View(cloud.positions))
        there = jnp.where(jnp.isfinite(x), x, 0)
        return x, jnp.minimum(low, there.min(axis=0)), jnp.maximum(high, there.max(axis=0))

    x = cloud.points
    return jax.lax.fori_loop(0, steps, step, (x, x.min(axis=0), x.max(axis=0)))[1:]


def covering(field: AbstractField, density: Density, t0: Scalar, t1: Scalar) -> Density:
    """The density on a box that holds the paths of its scouts, and no more than the ball of the radius bound."""
    cloud = scouts(density)
    bound = support_bound(field, cloud, t1, t0)
    # Enough steps for the fastest that the radius can grow, or shrink.
    rate = 0.0 if bound is None else np.log(max(float(bound) / max(float(cloud.radius), 1e-300), 1.0))
    low, high = (np.asarray(a) for a in _reach(field, cloud, t0, t1, jnp.asarray(int(STEPS * min(1 + rate, 50.0)))))
    margin = MARGIN * np.asarray(density.spacing)
    low, high = low - margin, high + margin
    if bound is not None and np.isfinite(float(bound)):
        reach = float(bound) + margin
        low, high = np.maximum(low, -reach), np.minimum(high, reach)
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
    return density.extended(low, high)

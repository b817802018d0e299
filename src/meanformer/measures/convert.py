"""From one representation of a measure to another: tokens, Gaussians, densities."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import multivariate_normal

from .. import _checks as checks
from .._scale import norm, root
from .._types import Key
from .cloud import PointCloud, scaled_covariance
from .density import MAX_DIMENSION, Density, cell_shares, checked_box, grid_points
from .gaussian import Gaussian, Mixture, scaled_gram
from .laws import Empirical, UniformBall, UniformCube

# A Gaussian beyond so many standard deviations has a mass below the rounding of one.
DEVIATIONS = 8.0


def spread(mu: Any) -> tuple[Array, Array]:
    """The covariance of a measure over the square of a power of two, and that power: right also where the covariance
    itself is too large or too small for floating-point numbers.
    """
    if isinstance(mu, Empirical):
        return spread(mu.cloud)
    if isinstance(mu, PointCloud):
        return scaled_covariance(mu)
    if isinstance(mu, (Density, Mixture)):
        return mu.scaled_covariance()
    if hasattr(mu, "factor"):
        return scaled_gram(mu.factor)
    u = root(mu.covariance)
    return mu.covariance / u / u, u


def to_gaussian(mu: Any) -> Gaussian:
    r"""The Gaussian $\mathcal N(m,\Sigma)$ with the mean and the covariance of a measure.

    **Arguments:** `mu`, a `PointCloud`, a `Density` or a law, with a mean `(d,)` and a covariance `(d, d)`.

    **Returns:** a `Gaussian`; one that is given is returned as it is.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    g = mf.to_gaussian(tokens)
    assert jnp.allclose(g.mean, tokens.mean) and jnp.allclose(g.covariance, tokens.covariance)
    ```
    """
    if isinstance(mu, Gaussian):
        return mu
    if not hasattr(mu, "mean") or not hasattr(mu, "covariance"):
        checks.refuse(
            "to_gaussian takes a measure",
            got=checks.described(mu),
            expected="a PointCloud, a Density or a law",
            remedy="wrap an array of tokens in mf.PointCloud",
        )
    covariance, u = spread(mu)
    return Gaussian(mu.mean, factor=Gaussian(mu.mean, cov=covariance).factor * u)


def to_cloud(mu: Any, n: int | None = None, *, key: Key | None = None) -> PointCloud:
    r"""A measure as weighted tokens: a density by its cells, whatever can be sampled by `n` draws with `key`.

    **Arguments:**

    - `mu`: a `Density` gives one token at the centre of each cell that holds mass, with the mass as weight,
      $\sum_cm_c\delta_{x_c}$; a `PointCloud` is returned as it is.
    - `n`, `key`: a number of independent draws of equal weight, for a `Gaussian` or a law, and also for a density or
      tokens.

    **Returns:** a `PointCloud`, with points of shape `(n, d)`.

    ```python
    rho = mf.Density([0.0, 0.5, 0.5, 0.0], low=-2.0, high=2.0)
    mf.to_cloud(rho).points  # [[-0.5], [0.5]]
    drawn = mf.to_cloud(mf.Gaussian([0.0, 0.0], cov=jnp.eye(2)), 40, key=jax.random.key(0))
    assert drawn.points.shape == (40, 2)
    ```
    """
    if isinstance(mu, Density) and n is None:
        cloud = mu.cloud()
        weights = np.asarray(cloud.weights)
        kept = np.flatnonzero(weights > 0)
        positions = None if cloud.positions is None else cloud.positions[kept]
        return PointCloud(cloud.points[kept], weights[kept] / weights[kept].sum(), positions)
    if isinstance(mu, PointCloud) and n is None:
        return mu
    source = to_cloud(mu) if isinstance(mu, Density) else mu
    draw = getattr(source, "resample" if isinstance(source, PointCloud) else "sample", None)
    if draw is None or n is None or key is None:
        missing = " and ".join(name for name, value in (("n", n), ("key", key)) if value is None)
        checks.refuse(
            "to_cloud takes a density, or a law with a number of tokens and a key",
            got=checks.described(mu) + (f" without {missing}" if draw is not None else ""),
            expected="to_cloud(density), or to_cloud(law, n, key=key)",
            remedy="to_cloud(gaussian, 1000, key=jax.random.key(0))",
        )
    return draw(n, key=key)


def to_density(mu: Any, cells: Any = None, *, low: Any = None, high: Any = None, positions: Any = None) -> Density:
    r"""A measure, or a function, as a density on a grid, in dimension 1 or 2; normalised to integral one.

    **Arguments:**

    - `mu`: a `Gaussian`, a mixture, a uniform law, a `PointCloud` (each token shared linearly between the cells around
      it, which keeps the mean), or a function that takes points of shape `(n, d)` to $n$ values, up to a factor.
    - `cells`: how many along each axis, a number or one per axis; 200 on a line, 64 in the plane by default.
    - `low`, `high`: the box. By default the mean and 8 standard deviations of a Gaussian to each side, and the bounding
      box of tokens and uniform laws; a function needs one.
    - `positions`: repeat the law at these positions, for masked attention in d = 1, with equal shares.

    **Returns:** a `Density` with values of shape `(cells,)` or `(cells_1, cells_2)`; with positions `(s, cells)`.

    **Raises:** `InputError` if cells are too coarse for a Gaussian, the box cuts it off, or d > 2.

    ```python
    rho = mf.to_density(lambda x: jnp.exp(-(x[:, 0] ** 4)), cells=50, low=-3.0, high=3.0)
    assert jnp.allclose(rho.mass, 1.0) and abs(rho.mean[0]) < 1e-12
    rho = mf.to_density(mf.Gaussian([0.0], cov=1.0), cells=50)  # on [-8, 8]
    assert jnp.allclose(rho.covariance, 1.0)
    ```
    """
    if isinstance(mu, Density):
        if not all(option is None for option in (cells, low, high, positions)):
            checks.refuse(
                "a density has its grid already",
                got="a Density and another grid",
                expected="to_density(density) without a grid",
                remedy="density.extended(low, high) adds room; for other cells start from the law or the function",
            )
        return mu
    around = isinstance(mu, PointCloud) and low is None and high is None
    low, high = _box(mu, low, high)
    cells = _checked_cells(cells, low.shape[0])
    if around:  # the outermost tokens lie at the centres of the outermost cells
        margin = (high - low) / (2 * (jnp.asarray(cells, low.dtype) - 1))
        margin = jnp.where(margin > 0, margin, 0.5)
        low, high = low - margin, high + margin
    side: np.ndarray = np.asarray(high, np.float64) / cells - np.asarray(low, np.float64) / cells
    _check_volume(side, low.dtype)
    if isinstance(mu, PointCloud):
        masses = _binned(mu, np.asarray(low), side, cells, positions)
        positions = None if mu.positions is None else np.unique(np.asarray(mu.positions))
    else:
        axes = tuple(low[i] + float(side[i]) * (jnp.arange(cells[i], dtype=low.dtype) + 0.5) for i in range(len(cells)))
        function = _function(mu)
        _check_resolved(mu, side)
        masses, total = _sampled(function, grid_points(axes), cells)
        _check_inside(mu, total * float(np.prod(side)))
        if positions is not None:
            positions = np.asarray(checks.vector(positions, "positions"))
            masses = np.broadcast_to(masses, (len(positions), *cells)) / len(positions)
    return Density((masses / np.prod(side)).astype(low.dtype), low, high, positions)


def _check_volume(side: np.ndarray, dtype: Any) -> None:
    """Refuse cells whose volume, or one over it, which a density is of the size of, is beyond the range."""
    largest = np.sqrt(float(jnp.finfo(dtype).max))
    if not abs(np.log(np.abs(side)).sum()) < np.log(largest):
        checks.refuse(
            "the cells are too large or too small for floating-point numbers",
            got=f"sides of {', '.join(f'{length:.3g}' for length in side)}",
            expected=f"a volume between {1 / largest:.3g} and {largest:.3g}",
            remedy="measure in other units: the density has those of one over a volume",
        )


def _checked_cells(cells: Any, d: int) -> tuple[int, ...]:
    cells = (200 if d == 1 else 64) if cells is None else cells
    counts = list(cells) if isinstance(cells, (list, tuple)) else [cells] * d
    if len(counts) != d:
        checks.refuse(
            "cells must match the box",
            got=f"cells = {cells} in dimension {d}",
            expected="one number" if d == 1 else f"one number, or {d} of them",
            remedy="give one number of cells per coordinate",
        )
    counts = tuple(checks.whole(count, "cells", 2) for count in counts)
    checks.fits_in_memory(f"a grid of {' x '.join(map(str, counts))} cells", 64 * math.prod(counts), "take fewer cells")
    return counts


def _box(mu: Any, low: Any, high: Any) -> tuple[Array, Array]:
    """The box that was asked for, or the natural one of a measure."""
    if (low is None) != (high is None):
        checks.refuse(
            "a box has two corners",
            got="only one of low and high",
            expected="both, or none",
            remedy="give low and high",
        )
    d = getattr(mu, "d", None)
    if low is not None:
        low, high = checked_box(low, high)
        if d is not None and low.shape[0] != d:
            checks.refuse(
                "the box must live in the space of the measure",
                got=f"a box in dimension {low.shape[0]} for a measure in dimension {d}",
                expected=f"low and high of length {d}",
                remedy="give one number per coordinate",
            )
        return low, high
    if d is None:
        checks.refuse(
            "to_density takes a measure, or a function with a box",
            got=checks.described(mu),
            expected="low and high for a function",
            remedy="to_density(function, low=-3.0, high=3.0, cells=400); of values: mf.Density(values, low, high)",
        )
    if d > MAX_DIMENSION:
        checks.refuse(
            "a grid is for dimension 1 and 2",
            got=f"a measure in dimension {d}",
            expected="d <= 2",
            remedy="use tokens or a Gaussian; or push the measure to two coordinates first",
        )
    return _natural_box(mu)


def _natural_box(mu: Any) -> tuple[Array, Array]:
    if isinstance(mu, PointCloud):
        points = mu.points[np.flatnonzero(np.asarray(mu.weights) > 0)]
        return points.min(axis=0), points.max(axis=0)
    if isinstance(mu, Mixture):
        boxes = [_natural_box(g) for g in mu.components]
        return jnp.stack([b[0] for b in boxes]).min(axis=0), jnp.stack([b[1] for b in boxes]).max(axis=0)
    if isinstance(mu, UniformCube):
        return mu.low, mu.high
    if isinstance(mu, UniformBall):
        return mu.centre - mu.radius, mu.centre + mu.radius
    if isinstance(mu, Gaussian):
        _check_definite(mu)
        deviation = norm(mu.factor, axis=-1)
        return mu.mean - DEVIATIONS * deviation, mu.mean + DEVIATIONS * deviation
    checks.refuse(
        "this measure has no density",
        got=checks.described(mu),
        expected="a Gaussian, a mixture, a uniform law, tokens, or a function",
        remedy="draw tokens from it first: mf.to_density(law.sample(10_000, key=key), cells=100)",
    )


def _check_definite(g: Gaussian) -> None:
    if g.mean.ndim != 1 or not np.isfinite(float(g.condition)):
        checks.refuse(
            "a Gaussian needs a regular covariance to have a density",
            got=f"{g}",
            expected="one Gaussian with det Sigma > 0",
            remedy="push it to the subspace that it fills, or draw tokens",
        )


def _check_resolved(mu: Any, side: np.ndarray) -> None:
    """Refuse cells between which a Gaussian would fall."""
    for g in mu.components if isinstance(mu, Mixture) else [mu] if isinstance(mu, Gaussian) else []:
        thinnest = float(np.linalg.svd(np.asarray(g.factor), compute_uv=False)[-1])
        if thinnest < 0.6 * float(side.max()):
            checks.refuse(
                "the cells are too coarse for the Gaussian",
                got=f"cells of side {float(side.max()):.3g}, a standard deviation of {thinnest:.3g}",
                expected="deviations of at least 0.6 cells in every direction",
                remedy="take more cells, or a smaller box",
            )


def _function(mu: Any) -> Callable[[Array], Any]:
    """The density of a law, up to a factor, at points of shape (n, d)."""
    if isinstance(mu, Gaussian):
        _check_definite(mu)
        return lambda x: _normal(mu, x)
    if isinstance(mu, Mixture):
        for g in mu.components:
            _check_definite(g)
        return lambda x: sum(float(w) * _normal(g, x) for w, g in zip(mu.weights, mu.components, strict=True))
    if isinstance(mu, UniformCube):
        return lambda x: jnp.all((x >= mu.low[None]) & (x <= mu.high[None]), axis=1).astype(x.dtype)
    if isinstance(mu, UniformBall):
        return lambda x: (norm(x - mu.centre[None], axis=1) <= mu.radius).astype(x.dtype)
    return mu


def _normal(g: Gaussian, x: Array) -> np.ndarray:
    covariance, u = (np.asarray(part, np.float64) for part in spread(g))
    scaled = (np.asarray(x, np.float64) - np.asarray(g.mean, np.float64)) / u.item()
    values = np.atleast_1d(multivariate_normal.pdf(scaled, cov=covariance))  # pyright: ignore[reportArgumentType]
    return values / u.item() ** g.d


def _sampled(function: Callable[[Array], Any], points: Array, cells: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Masses proportional to a function at the centres of the cells, and the sum of its values."""
    if not checks.takes(function, 1):
        checks.refuse(
            "to_density takes a measure or a function",
            got=checks.described(function),
            expected="a Gaussian, a law, tokens, or a function of points",
            remedy="lambda x: jnp.exp(-x[:, 0] ** 2)",
        )
    values = checks.finite(checks.to_array(function(points), "the density"), "the density")
    if values.shape != (points.shape[0],):
        checks.refuse(
            "a density gives one value per point",
            got=f"shape {values.shape} for points of shape {points.shape}",
            expected=f"shape ({points.shape[0]},)",
            remedy="points come as rows: lambda x: jnp.exp(-(x ** 2).sum(axis=1))",
        )
    masses = np.asarray(values, np.float64).reshape(cells)
    if (masses < 0).any():
        checks.refuse(
            "a density must not be negative",
            got=f"a smallest value of {masses.min():.6g}",
            expected="values >= 0",
            remedy="clip the function at 0: lambda x: jnp.maximum(f(x), 0)",
        )
    if not masses.sum() > 0:
        checks.refuse(
            "a density must have mass in the box",
            got=f"a sum of {masses.sum():.3g} over the cells",
            expected="positive mass",
            remedy="move the box to where the measure is, or take smaller cells",
        )
    return masses / masses.sum(), float(masses.sum())


def _check_inside(mu: Any, mass: float) -> None:
    """Refuse a box that cuts a Gaussian off."""
    if isinstance(mu, (Gaussian, Mixture)) and mass < 0.999:
        checks.refuse(
            "the box cuts the Gaussian off",
            got=f"{100 * mass:.3g} % of its mass in the box",
            expected="99.9 % or more",
            remedy="leave low and high out; a Gaussian that is cut off on purpose is a function of points",
        )


def _binned(mu: PointCloud, low: np.ndarray, side: np.ndarray, cells: tuple[int, ...], positions: Any) -> np.ndarray:
    """The masses of tokens in cells, by position if they have some."""
    if positions is not None:
        checks.refuse(
            "tokens bring their own positions",
            got="tokens and positions",
            expected="positions of the tokens",
            remedy="tokens.with_positions(...) before to_density",
        )
    points, weights = np.asarray(mu.points, np.float64), np.asarray(mu.weights, np.float64)
    outside = ((points < low) | (points > low + side * np.asarray(cells))).any(axis=1) & (weights > 0)
    if outside.any():
        checks.refuse(
            "tokens must lie in the box",
            got=f"{int(outside.sum())} of {mu.n} tokens outside",
            expected="all tokens inside",
            remedy="leave low and high out for a box around the tokens",
        )
    row = np.zeros(mu.n, int)
    leading: tuple[int, ...] = ()
    if mu.positions is not None:
        distinct, row = np.unique(np.asarray(mu.positions), return_inverse=True)
        leading = (len(distinct),)
    masses = np.zeros((*leading, *cells))
    for index, share in cell_shares(points, low, side, cells):
        np.add.at(masses, (row, *index) if leading else index, weights * share)
    return masses / masses.sum()

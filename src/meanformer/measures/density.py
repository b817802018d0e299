"""Densities on a grid: the third representation of a measure, for the Transformer PDE itself."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._indexing import checked_index
from .._types import cast, common_dtype
from .._warm import Module
from ..display.card import shown
from .cards import density_card
from .cloud import PointCloud, check_range, scaled_covariance

MAX_DIMENSION = 2


class Density(Module):
    r"""A probability density on a grid of equal cells over the box $[a,b]\subset\mathbb R^d$, $d=1,2$.

    What is kept are the masses $m_c=\rho(x_c)|c|$ of the cells, so that for sums the density is the cloud of its cell
    centres,

    $$\mu=\sum_cm_c\,\delta_{x_c},$$

    which is second order in the side of a cell, and far better where $\rho$ is smooth and vanishes at the edge.

    **Arguments:**

    - `values`: $\rho$ at the centres of the cells, shape `(cells,)` or `(cells_1, cells_2)`, not negative, of integral
      one (`to_density` makes one from a function or another measure, and normalises it).
    - `low`, `high`: the corners of the box, numbers or vectors of length d.
    - `positions`: for masked attention in d = 1; `values` then has one row per position, shape `(s, cells)`, and the
      sum over rows and cells is one.

    **Raises:** `InputError` for negative values, an integral that is not one, a box in another dimension.

    ```python
    rho = mf.Density([0.0, 0.5, 0.5, 0.0], low=-2.0, high=2.0)
    rho.covariance  # [[0.25]]
    assert rho.mean[0] == 0.0 and rho.radius == 0.5
    ```
    """

    masses: Float[Array, "..."]
    r"""The masses $m_c$ of the cells, shape `(cells,)` or `(cells_1, cells_2)`, of a density with positions
    `(s, cells)`.
    """
    low: Float[Array, " d"]
    """The lower corner of the box, shape `(d,)`."""
    high: Float[Array, " d"]
    """The upper corner of the box, shape `(d,)`."""
    positions: Float[Array, " s"] | None
    """The positions of the rows, shape `(s,)`; None if there are none."""

    def __init__(self, values: Any, low: Any, high: Any, positions: Any = None):
        values = checks.finite(checks.to_array(values, "values"), "values")
        low, high = checked_box(low, high)
        d = low.shape[0]
        if positions is not None:
            positions = _checked_rows(positions, values, d)
        axes = d + (positions is not None)
        if values.ndim != axes or 0 in values.shape or min(values.shape[-d:], default=0) < 2:
            checks.refuse(
                "values must be a grid over the box",
                got=f"values of shape {values.shape} for a box in dimension {d}" + " with positions" * (axes > d),
                expected=f"{axes} axes, with at least 2 cells along each axis of the box",
                remedy="one value per cell; on a line low and high are numbers, in the plane vectors of length 2",
            )
        values, low, high, positions = cast((values, low, high, positions), common_dtype(values, low, high, positions))
        self.low, self.high, self.positions = low, high, positions
        volume = jnp.prod((high - low) / jnp.asarray(values.shape[-d:], low.dtype))
        self.masses = values * volume
        _check_masses(self.masses)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.low.shape[0]

    @property
    def cells(self) -> tuple[int, ...]:
        """How many cells there are along each axis, a tuple of d numbers."""
        return self.masses.shape[-self.d :]

    @property
    def spacing(self) -> Float[Array, " d"]:
        """The sides of a cell, shape `(d,)`."""
        return (self.high - self.low) / jnp.asarray(self.cells, self.low.dtype)

    @property
    def values(self) -> Float[Array, "..."]:
        r"""The density $\rho(x_c)=m_c/|c|$ at the centres of the cells, in the shape of `masses`."""
        return self.masses / jnp.prod(self.spacing)

    def edges(self, axis: int) -> Float[Array, " cells_1"]:
        """The coordinates of the faces between cells along an axis, both ends included, shape `(cells + 1,)`."""
        axis = _checked_axis(axis, self.d)
        count = self.cells[axis]
        unit = jnp.arange(count + 1, dtype=self.low.dtype) / count
        return self.low[axis] + (self.high[axis] - self.low[axis]) * unit

    def centres(self, axis: int) -> Float[Array, " cells"]:
        """The coordinates of the centres of the cells along an axis, shape `(cells,)`."""
        edges = self.edges(axis)
        return (edges[1:] + edges[:-1]) / 2

    def cloud(self) -> PointCloud:
        """The cells as weighted tokens at their centres, row by row; unchecked, for use inside flows."""
        axes = tuple(self.centres(axis) for axis in range(self.d))
        points = grid_points(axes)
        positions = None
        weights = self.masses.reshape(*self._batch, -1)
        if self.positions is not None:
            positions = jnp.repeat(self.positions, points.shape[0])
            points = jnp.tile(points, (self.positions.shape[0], 1))
        if self._batch:
            points = jnp.broadcast_to(points, (*self._batch, *points.shape))
            positions = None if positions is None else jnp.broadcast_to(positions, weights.shape)
        # Set afterwards, unchecked: the weights sum to less than one where mass has left the box.
        return eqx.tree_at(lambda mu: mu.weights, PointCloud(points, None, positions), weights)

    @property
    def mass(self) -> Float[Array, "*batch"]:
        r"""The mass inside the box, $\sum_cm_c$: one, less what a flow has carried over the edge."""
        return self.masses.reshape(*self._batch, -1).sum(axis=-1)

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        r"""The mean $m=\int x\rho$, over the mass inside the box, shape `(d,)`."""
        return self._normalised().mean

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        r"""The covariance $\Sigma=\int(x-m)(x-m)^\top\rho$, over the mass inside the box, shape `(d, d)`."""
        return self._normalised().covariance

    def scaled_covariance(self) -> tuple[Array, Array]:
        """The covariance over the square of a power of two, and that power."""
        return scaled_covariance(self._normalised())

    @property
    def radius(self) -> Float[Array, "*batch"]:
        r"""The largest $|x_c|$ over cells that hold mass."""
        return self.cloud().radius

    def marginal(self) -> "Density":
        """The density of the tokens without their positions."""
        if self.positions is None:
            return self
        return with_masses(Density._bare(self), self.masses.sum(axis=-1 - self.d))

    def extended(self, low: Any, high: Any) -> "Density":
        """The same density on a box that contains `[low, high]` too: empty cells of the same sides are added."""
        low, high = checked_box(low, high)
        if low.shape[0] != self.d:
            checks.refuse(
                "the box must live in the space of the density",
                got=f"a box in dimension {low.shape[0]} for a density in dimension {self.d}",
                expected=f"low and high of length {self.d}",
                remedy="give one number per coordinate",
            )
        side, mine = np.asarray(self.spacing), (np.asarray(self.low), np.asarray(self.high))
        with np.errstate(over="ignore"):  # of a box that is too large
            before = np.maximum(0, np.ceil((mine[0] - np.asarray(low)) / side - 1e-9))
            after = np.maximum(0, np.ceil((np.asarray(high) - mine[1]) / side - 1e-9))
            cells = self.masses.size / math.prod(self.cells) * float(np.prod(self.cells + before + after))
        checks.fits_in_memory(
            "a density on this box", 4 * cells * self.masses.dtype.itemsize, "extend it less: its cells keep their size"
        )
        leading = [(0, 0)] * (self.masses.ndim - self.d)
        added = ((int(b), int(a)) for b, a in zip(before, after, strict=True))
        masses = jnp.pad(self.masses, [*leading, *added])
        corners = (jnp.asarray(a, self.low.dtype) for a in (mine[0] - before * side, mine[1] + after * side))
        return eqx.tree_at(lambda rho: (rho.masses, rho.low, rho.high), self, (masses, *corners))

    @property
    def _batch(self) -> tuple[int, ...]:
        return self.masses.shape[: self.masses.ndim - self.d - (self.positions is not None)]

    def _normalised(self) -> PointCloud:
        cloud = self.cloud()
        return eqx.tree_at(lambda mu: mu.weights, cloud, cloud.weights / self.mass[..., None])

    @staticmethod
    def _bare(density: "Density") -> "Density":
        return eqx.tree_at(lambda rho: rho.positions, density, None, is_leaf=lambda leaf: leaf is None)

    def __getitem__(self, index: Any) -> "Density":
        """The density at one time, or several, of a run."""
        if not self._batch:
            checks.refuse(
                "a single density cannot be indexed",
                got=f"masses of shape {self.masses.shape}",
                expected="densities with a leading axis, as in run.states",
                remedy="index its values: rho.values[i]",
            )
        return with_masses(self, self.masses[checked_index(index, self._batch)])

    def __repr__(self) -> str:
        if not all(isinstance(a, (jax.Array, np.ndarray)) for a in (self.masses, self.low, self.high)):
            return f"Density(masses={self.masses}, low={self.low}, high={self.high})"  # a tree of something else
        size = " x ".join(map(str, self.cells)) + " cells"
        if not checks.known(self.masses, self.low, self.high):
            return f"Density(d={self.d}, {size}, traced)"
        box = " x ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(self.low.tolist(), self.high.tolist(), strict=True))
        rows = "" if self.positions is None else f", {self.positions.shape[0]} positions"
        batch = f", a batch of shape {self._batch}" if self._batch else ""
        return f"Density(d={self.d}, {size} on {box}{rows}{batch})"

    _repr_html_ = shown(density_card)


def _checked_axis(axis: Any, d: int) -> int:
    """The number of an axis of a box in dimension `d`."""
    whole = isinstance(axis, (int, np.integer)) and not isinstance(axis, bool)
    if not whole or not -d <= axis < d:
        checks.refuse(
            "the density has no such axis",
            got=f"axis = {axis!r} in dimension {d}",
            expected=" or ".join(map(str, range(d))),
            remedy="axes are counted from 0",
        )
    return int(axis)


def with_masses(density: Density, masses: Array) -> Density:
    """The same grid with other masses, unchecked (for use inside flows)."""
    return eqx.tree_at(lambda rho: rho.masses, density, masses)


def grid_points(axes: tuple[Array, ...]) -> Float[Array, "n d"]:
    """The points of a tensor grid, row by row."""
    return jnp.stack([a.reshape(-1) for a in jnp.meshgrid(*axes, indexing="ij")], axis=1)


def checked_box(low: Any, high: Any) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The corners of a box as vectors, low < high."""
    corners = []
    for name, value in (("low", low), ("high", high)):
        array = checks.to_array(value, name)
        corners.append(checks.scalar(value, name)[None] if array.ndim == 0 else checks.vector(value, name))
    lower, upper = cast(tuple(corners), common_dtype(corners))
    if lower.shape != upper.shape or not 1 <= lower.shape[0] <= MAX_DIMENSION:
        checks.refuse(
            "a density lives on a box in dimension 1 or 2",
            got=f"low of length {lower.shape[0]}, high of length {upper.shape[0]}",
            expected="two numbers, or two vectors of length 2",
            remedy="in higher dimension a grid is too large: use tokens, or a Gaussian",
        )
    if checks.known(lower, upper) and not (np.asarray(lower) < np.asarray(upper)).all():
        checks.refuse(
            "a box needs low < high",
            got=f"low = {np.asarray(lower)}, high = {np.asarray(upper)}",
            expected="low < high in each coordinate",
            remedy="swap them",
        )
    return lower, upper


def _checked_rows(positions: Any, values: Array, d: int) -> Array:
    if d != 1:
        checks.refuse(
            "a density with positions lives on a line",
            got=f"positions and a box in dimension {d}",
            expected="d = 1",
            remedy="use tokens with positions, or drop the positions",
        )
    rows = values.shape[0] if values.ndim else 0
    positions = check_range(checks.vector(positions, "positions", rows, ", one per row of values"), "positions")
    if checks.known(positions) and (np.asarray(positions)[1:] <= np.asarray(positions)[:-1]).any():
        checks.refuse(
            "positions of a density must increase",
            got=f"{np.asarray(positions)}",
            expected="increasing positions",
            remedy="sort the rows of values by position, one row each",
        )
    return positions


def _check_masses(masses: Array) -> None:
    if not checks.known(masses):
        return
    values = np.asarray(masses, np.float64)
    if (values < 0).any():
        checks.refuse(
            "a density must not be negative",
            got=f"a smallest mass of {values.min():.6g} in a cell",
            expected="values >= 0",
            remedy="clip the values at 0, then divide by their integral",
        )
    total = values.sum()
    if abs(total - 1) > 100 * values.size**0.5 * float(jnp.finfo(masses.dtype).eps):
        checks.refuse(
            "a density must have integral one",
            got=f"an integral of {total:.12g}",
            expected="the sum of values times the volume of a cell = 1",
            remedy="divide by the integral; mf.to_density(function, low=..., high=..., cells=...) does",
        )


def cell_shares(points: np.ndarray, low: np.ndarray, side: np.ndarray, cells: tuple[int, ...]) -> Any:
    r"""Each point shared between the cells around it, linearly in each coordinate: indices and shares.

    Linear shares keep the mean; the half cell at each end of the box takes what lies there whole.
    """
    place = (points - low) / side - 0.5
    first = np.clip(np.floor(place), 0, np.asarray(cells) - 2).astype(int)
    part = np.clip(place - first, 0, 1)
    for corner in itertools.product((0, 1), repeat=points.shape[1]):
        share = np.prod(np.where(np.asarray(corner) == 1, part, 1 - part), axis=1)
        yield tuple((first + np.asarray(corner)).T), share

"""Weighted tokens: the discrete measure mu = sum_i w_i delta_{x_i}."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import _checks as checks
from .. import _draws as draws
from .._indexing import checked_index
from .._programs.call import program
from .._scale import common, norm, product, unit
from .._types import Key, Points, Weights, cast, common_dtype
from .._warm import Module, assembled
from ..display.card import shown
from .cards import cloud_card


def _checked_weights(weights: Any, shape: tuple[int, ...]) -> Array:
    array = checks.to_array(weights, "weights")
    if array.shape != shape:
        checks.refuse(
            "weights must match the points",
            got=f"weights of shape {array.shape} for {shape[-1]} points",
            expected=f"shape {shape}",
            remedy="give one weight per point, or leave weights out for equal weights",
        )
    checks.finite(array, "weights")
    if not checks.known(array):
        return array
    values = np.asarray(array)
    if (values < 0).any():
        checks.refuse(
            "weights must not be negative",
            got=f"smallest weight {float(values.min()):.6g}",
            expected="weights >= 0",
            remedy="remove the points with negative weight, or clip the weights at 0",
        )
    sums = values.astype(np.float64).sum(-1)
    worst = sums.ravel()[np.abs(sums - 1).argmax()]
    if abs(worst - 1) > 100 * shape[-1] ** 0.5 * float(jnp.finfo(array.dtype).eps):
        checks.refuse(
            "weights must sum to one",
            got=f"a sum of {worst:.12g}",
            expected="a sum of 1",
            remedy="divide by the sum: weights / weights.sum()",
        )
    return array


def _checked_positions(positions: Any, shape: tuple[int, ...]) -> Array:
    array = checks.to_array(positions, "positions")
    if array.shape != shape:
        checks.refuse(
            "positions must match the points",
            got=f"positions of shape {array.shape} for {shape[-1]} points",
            expected=f"shape {shape}",
            remedy="give one position per point, or call with_positions() for i/n",
        )
    checks.finite(array, "positions")
    return check_range(array, "positions")


def check_range(array: Array, name: str) -> Array:
    """Refuse positions outside [0, 1]."""
    if checks.known(array):
        values = np.asarray(array)
        if not ((values >= 0) & (values <= 1)).all():
            checks.refuse(
                f"{name} must lie in [0, 1]",
                got=f"values from {float(values.min()):.6g} to {float(values.max()):.6g}",
                expected="0 <= s <= 1",
                remedy="divide integer positions by the length, or call with_positions() for i/n",
            )
    return array


class PointCloud(Module):
    r"""Weighted tokens, as the discrete measure that they are (MATH a):

    $$\mu=\sum_{i=1}^nw_i\,\delta_{x_i},\qquad w_i\ge0,\quad\sum_iw_i=1.$$

    **Arguments:**

    - `points`: the tokens, shape `(n, d)`; leading axes make a batch of clouds (see `stack_clouds`).
    - `weights`: shape `(n,)`, non-negative, summing to one; equal weights by default. Zero weights are
      legal: such points are moved by a field but act on nobody; derivatives in a weight are meant for positive ones.
    - `positions`: optional positions `s` in `[0, 1]`, shape `(n,)`, read by masked attention: token `i` sees
      the tokens `j` with `s_j <= s_i`.

    **Raises:** `InputError` for shapes that do not match, weights that do not sum to one, numbers that are not finite.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], weights=[0.2, 0.5, 0.3])
    mu.mean  # [0.5, 0.8]
    mu.covariance  # [[0.25, -0.1], [-0.1, 0.16]]
    assert jnp.allclose(mu.mean, jnp.asarray([0.5, 0.8]))
    ```
    """

    points: Points
    """The tokens $x_i$, shape `(n, d)`."""
    weights: Weights
    """The weights $w_i$, shape `(n,)`."""
    positions: Weights | None
    """The positions $s_i$, shape `(n,)`; None if there are none."""

    def __init__(self, points: Any, weights: Any = None, positions: Any = None):
        points = checks.to_array(points, "points")
        if points.ndim < 2 or 0 in points.shape:
            checks.refuse(
                "points must be a table of tokens",
                got=f"shape {points.shape}",
                expected="shape (n, d) with n, d >= 1",
                remedy="n numbers on a line have shape (n, 1): points[:, None]"
                if points.ndim < 2
                else "a cloud has at least one token, of at least one coordinate: look why there is none",
            )
        checks.finite(points, "points")
        shape = points.shape[:-1]
        if weights is None:
            weights = np.full(shape, 1 / shape[-1], points.dtype)
        weights = _checked_weights(weights, shape)
        if positions is not None:
            positions = _checked_positions(positions, shape)
        dtype = common_dtype(points, weights, positions)
        self.points, self.weights, self.positions = cast((points, weights, positions), dtype)

    @property
    def n(self) -> int:
        """The number of tokens."""
        return self.points.shape[-2]

    @property
    def d(self) -> int:
        """The dimension of the tokens."""
        return self.points.shape[-1]

    @property
    def visible(self) -> Bool[Array, "*batch n"]:
        """Which tokens others see, shape `(n,)`: those of positive weight."""
        return self.weights > 0

    @property
    def mean(self) -> Float[Array, "*batch d"]:
        r"""The mean $m=\sum_iw_ix_i$, shape `(d,)`."""
        return _mean(self)

    @property
    def covariance(self) -> Float[Array, "*batch d d"]:
        r"""The covariance $\Sigma=\sum_iw_i(x_i-m)(x_i-m)^\top$, shape `(d, d)`: with $1/n$, not $1/(n-1)$."""
        return _covariance(self)

    @property
    def radius(self) -> Float[Array, "*batch"]:
        r"""The radius of the support around 0, $\max_{w_i>0}|x_i|$, a number (MATH d.1)."""
        return _radius(self)

    def with_points(self, points: Points) -> "PointCloud":
        """The same weights and positions on other points of shape `(n, d)`, unchecked (for use inside flows)."""
        return self.unchecked(points, self.weights, self.positions)

    @staticmethod
    def unchecked(points: Points, weights: Weights, positions: Weights | None) -> "PointCloud":
        """A cloud of arrays that are known to fit, of one dtype (for use inside flows)."""
        return assembled(PointCloud, points=points, weights=weights, positions=positions)

    def with_positions(self, positions: Any = None) -> "PointCloud":
        """The same tokens with `positions`, shape `(n,)`; by default $s_i=i/n$, so that token i sees tokens 1..i."""
        if positions is None:
            xp = draws.numpy_of(self)
            numbers = xp.arange(1, self.n + 1, dtype=self.points.dtype)
            positions = xp.broadcast_to(numbers / self.points.dtype.type(self.n), self.weights.shape)
        return PointCloud(self.points, self.weights, positions)

    def push(self, function: Callable[[Points], Points]) -> "PointCloud":
        r"""The push-forward $T_\#\mu=\sum_iw_i\delta_{T(x_i)}$: `function` maps the points, shape `(n, d)`, all at once
        to points of shape `(n, e)`.
        """
        if not callable(function) or not checks.takes(function, 1):
            checks.refuse(
                "push takes a function of the points",
                got=checks.described(function),
                expected="an array (n, d) -> an array (n, d')",
                remedy="tokens.push(lambda x: x @ R.T)",
            )
        points = checks.to_array(function(self.points), "what the function gives")
        if points.shape[:-1] != self.points.shape[:-1]:
            checks.refuse(
                "push must keep the number of tokens",
                got=f"shape {points.shape} from points of shape {self.points.shape}",
                expected=f"shape {(*self.points.shape[:-1], 'd')}".replace("'", ""),
                remedy="map all points at once, row by row; to drop tokens make a new PointCloud",
            )
        return PointCloud(points, self.weights, self.positions)

    def resample(self, n: int, *, key: Key) -> "PointCloud":
        """`n` independent draws from this measure, with equal weights; positions travel with their tokens."""
        n = checks.draws(n, self.d, key)
        if self.points.ndim != 2:
            checks.refuse(
                "resample draws from a single cloud",
                got=f"a batch of shape {self.points.shape[:-2]}",
                expected="points of shape (n, d)",
                remedy="index the batch: clouds[i].resample(...), or jax.vmap over it with one key each",
            )
        index = draws.choice(key, self.weights, n)
        xp = draws.numpy_of(self, index)
        positions = None if self.positions is None else xp.asarray(self.positions)[index]
        return PointCloud(xp.asarray(self.points)[index], positions=positions)

    def __getitem__(self, index: Any) -> "PointCloud":
        """One cloud, or several, of a batch."""
        if self.points.ndim == 2:
            checks.refuse(
                "a single cloud cannot be indexed",
                got=f"points of shape {self.points.shape}",
                expected="a batch of clouds with a leading axis",
                remedy="index its points: mu.points[i]",
            )
        index = checked_index(index, self.points.shape[:-2])
        return jax.tree.map(lambda a: a[index], self)

    _repr_html_ = shown(cloud_card)


@program(inline=True)
def _mean(mu: PointCloud) -> Array:
    return jnp.einsum("...n,...nd->...d", mu.weights, mu.points)


def _over_units(values: Array, some: Array, counts: Any) -> tuple[Array, Array, Array]:
    """Each coordinate over its power of two, which values, those that count, and the powers, of shape `(*batch, 1, d)`.

    A token without weight may be anywhere, also nowhere, and has no say in the units; but its weight may be asked for a
    derivative. It counts as long as its square is a number.
    """
    units = unit(jnp.where(some, values, 0), -2)
    far = 2.0 ** (jnp.finfo(values.dtype).maxexp // 2 - 2)
    counts &= some | (jnp.abs(values) / far < units)
    return jnp.where(counts, values, 0) / units, counts, units


def _by_coordinates(mu: PointCloud) -> tuple[Array, Array]:
    """(C, u) with `product(C, u)` the covariance, u of shape `(*batch, d, 1)`."""
    some = (mu.weights != 0)[..., None]
    points, counts, large = _over_units(mu.points, some, True)
    mean = jnp.einsum("...n,...nd->...d", mu.weights, points)
    centred, _, small = _over_units(points - mean[..., None, :], some, counts)
    covariance = jnp.einsum("...n,...ni,...nj->...ij", mu.weights, centred, centred)
    return covariance, (large * small).swapaxes(-1, -2)


@program(inline=True)
def scaled_covariance(mu: PointCloud) -> tuple[Array, Array]:
    """The covariance over the square of a power of two, and that power: any covariance, whatever its size."""
    return common(*_by_coordinates(mu))


@program(inline=True)
def _covariance(mu: PointCloud) -> Array:
    return product(*_by_coordinates(mu))


@program(inline=True)
def _radius(mu: PointCloud) -> Array:
    return jnp.max(jnp.where(mu.visible, norm(mu.points, axis=-1), 0), axis=-1)


def stack_clouds(clouds: Sequence[PointCloud]) -> PointCloud:
    """One batch from clouds of different lengths, padded with tokens of zero weight; use it with `jax.vmap`.

    Padding repeats the last token of a cloud (so that every value stays finite and in its hull) with weight
    0: it influences nobody.

    **Arguments:** `clouds`, a list of B single clouds of one dimension d, all with positions or all without.

    **Returns:** a `PointCloud` with points of shape `(B, n, d)`, n the largest number of tokens.

    ```python
    short = mf.PointCloud([[1.0, 0.0]])
    long = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    batch = mf.stack_clouds([short, long])
    batch.weights[0]  # [1, 0, 0]
    assert batch.points.shape == (2, 3, 2)
    assert jax.vmap(lambda mu: mu.radius)(batch)[0] == short.radius
    ```
    """
    clouds = list(clouds) if isinstance(clouds, (list, tuple)) else []
    single = [isinstance(c, PointCloud) and c.points.ndim == 2 for c in clouds]
    if not clouds or not all(single):
        checks.refuse(
            "stack_clouds takes a list of single clouds",
            got=f"entry {single.index(False)} is not one" if clouds else "an empty list, or no list",
            expected="at least one PointCloud with points of shape (n, d)",
            remedy="mf.stack_clouds([short, long])",
        )
    dimensions = sorted({c.d for c in clouds})
    if len(dimensions) > 1:
        checks.refuse(
            "clouds of a batch must share their dimension",
            got=f"d in {dimensions}",
            expected="one d",
            remedy="batch them by dimension",
        )
    if len({c.positions is None for c in clouds}) > 1:
        checks.refuse(
            "clouds of a batch must all have positions, or none",
            got=f"positions in {sum(c.positions is not None for c in clouds)} of {len(clouds)}",
            expected="all or none",
            remedy="call with_positions() on the others",
        )
    n = max(c.n for c in clouds)

    def padded(cloud: PointCloud) -> PointCloud:
        index = jnp.minimum(jnp.arange(n), cloud.n - 1)
        weights = jnp.where(jnp.arange(n) < cloud.n, cloud.weights[index], 0)
        positions = None if cloud.positions is None else cloud.positions[index]
        return PointCloud(cloud.points[index], weights, positions)

    dtype = common_dtype(clouds)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(cast(padded(c), dtype) for c in clouds))

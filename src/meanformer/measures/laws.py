"""Laws to draw tokens from. Each knows its exact mean and covariance."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .. import _draws as draws
from .._scale import gram_by_rows, product
from .._types import Key, Scalar, cast, common_dtype
from .._warm import Module
from ..display.card import shown
from ..display.modules import module_card
from ..spaces import Sphere
from .cloud import PointCloud


class UniformBall(Module):
    """The uniform law on a ball; made by `uniform_ball`."""

    centre: Float[Array, " d"]
    radius: Scalar
    _repr_html_ = shown(module_card)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.centre.shape[0]

    @property
    def mean(self) -> Float[Array, " d"]:
        """The centre."""
        return self.centre

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\frac{R^2}{d+2}I$."""
        return product(*gram_by_rows(self.factor))

    @property
    def factor(self) -> Float[Array, "d d"]:
        r"""$\frac R{\sqrt{d+2}}I$, a factor of the covariance."""
        return self.radius / (self.d + 2) ** 0.5 * jnp.eye(self.d, dtype=self.centre.dtype)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        unit = draws.ball(key, (n, self.d), self.centre.dtype)
        return PointCloud(draws.host(self.centre)[None] + draws.host(self.radius) * unit)


class UniformCube(Module):
    """The uniform law on a box; made by `uniform_cube`."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]
    _repr_html_ = shown(module_card)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.low.shape[0]

    @property
    def mean(self) -> Float[Array, " d"]:
        """The centre of the box."""
        return self.low / 2 + self.high / 2

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\mathrm{diag}\big((b_i-a_i)^2/12\big)$."""
        return product(*gram_by_rows(self.factor))

    @property
    def factor(self) -> Float[Array, "d d"]:
        r"""$\mathrm{diag}\big((b_i-a_i)/\sqrt{12}\big)$, a factor of the covariance."""
        return jnp.diag((self.high / 2 - self.low / 2) / 3**0.5)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        low, high = draws.host(self.low), draws.host(self.high)
        return PointCloud(low[None] + (high - low)[None] * draws.uniform(key, (n, self.d), self.low.dtype))


class UniformSphere(Module):
    """The uniform law on a sphere around 0; made by `uniform_sphere`."""

    dimension: int = eqx.field(static=True)
    radius: Scalar
    _repr_html_ = shown(module_card)

    @property
    def d(self) -> int:
        """Dimension of the space (the sphere has dimension d - 1)."""
        return self.dimension

    @property
    def mean(self) -> Float[Array, " d"]:
        """Zero."""
        return jnp.zeros(self.d, self.radius.dtype)

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\frac{R^2}{d}I$."""
        return product(*gram_by_rows(self.factor))

    @property
    def factor(self) -> Float[Array, "d d"]:
        r"""$\frac R{\sqrt d}I$, a factor of the covariance."""
        return self.radius / self.d**0.5 * jnp.eye(self.d, dtype=self.radius.dtype)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        return PointCloud(Sphere(self.radius).sample(n, self.d, key=key))


class Empirical(Module):
    """The law of explicit points; made by `empirical`."""

    cloud: PointCloud
    _repr_html_ = shown(module_card)

    @property
    def d(self) -> int:
        """Dimension."""
        return self.cloud.d

    @property
    def mean(self) -> Float[Array, " d"]:
        """Weighted mean of the points."""
        return self.cloud.mean

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Weighted covariance of the points."""
        return self.cloud.covariance

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        return self.cloud.resample(n, key=key)


def uniform_ball(d: int, radius: Any = 1.0, centre: Any = None) -> UniformBall:
    r"""The uniform law on the ball $\{|x-c|\le R\}$ in dimension `d`; its covariance is $\frac{R^2}{d+2}I$.

    **Arguments:** `d`, the dimension; `radius`, $R>0$; `centre`, $c$ of shape `(d,)`, 0 by default.

    **Returns:** a law with `mean` `(d,)`, `covariance` `(d, d)`, and `sample(n, key=key)`, a `PointCloud` of n draws.

    ```python
    law = mf.uniform_ball(d=2, radius=2.0, centre=[1.0, 0.0])
    assert jnp.allclose(law.covariance, jnp.eye(2))
    ```
    """
    d = checks.dimension(d)
    radius = checks.positive(radius, "radius", "a ball of radius 0 is a single point: use empirical")
    centre = np.zeros(d, radius.dtype) if centre is None else checks.vector(centre, "centre", d, " = d")
    return UniformBall(*cast((centre, radius), common_dtype(centre, radius)))


def uniform_cube(d: int, low: Any = -1.0, high: Any = 1.0) -> UniformCube:
    r"""The uniform law on the box $\prod_i[a_i,b_i]$ in dimension `d`; its covariance is
    $\mathrm{diag}\big((b_i-a_i)^2/12\big)$.

    **Arguments:** `d`, the dimension; `low` and `high`, numbers, or vectors of shape `(d,)`, with low < high.

    **Returns:** a law with `mean` `(d,)`, `covariance` `(d, d)`, and `sample(n, key=key)`, a `PointCloud` of n draws.

    ```python
    law = mf.uniform_cube(d=2, low=[0.0, -3.0], high=[1.0, 3.0])
    law.mean  # [0.5, 0]
    tokens = law.sample(40, key=jax.random.key(0))
    assert (tokens.points[:, 0] >= 0).all()
    ```
    """
    d = checks.dimension(d)
    ends = [_end(value, name, d) for name, value in (("low", low), ("high", high))]
    lower, upper = cast(tuple(ends), common_dtype(ends))
    if checks.known(lower, upper) and not (np.asarray(lower) < np.asarray(upper)).all():
        checks.refuse(
            "a box needs low < high",
            got=f"low = {low}, high = {high}",
            expected="low < high in each coordinate",
            remedy="swap them",
        )
    return UniformCube(lower, upper)


def _end(value: Any, name: str, d: int) -> Any:
    """One corner of a box: a vector, or a number for all coordinates."""
    array = checks.to_array(value, name)
    if array.ndim > 0:
        return checks.vector(array, name, d, " = d")
    number = checks.scalar(array, name)
    return draws.numpy_of(number).full(d, number)


def uniform_sphere(d: int, radius: Any = 1.0) -> UniformSphere:
    r"""The uniform law on the sphere $\{|x|=R\}$ in dimension `d`; its covariance is $\frac{R^2}dI$.

    **Arguments:** `d`, the dimension of the space (the sphere has dimension d - 1); `radius`, $R>0$.

    **Returns:** a law with `mean` `(d,)`, `covariance` `(d, d)`, and `sample(n, key=key)`, a `PointCloud` of n draws.

    ```python
    tokens = mf.uniform_sphere(d=2).sample(40, key=jax.random.key(0))
    assert jnp.allclose(jnp.linalg.norm(tokens.points, axis=1), 1.0)
    ```
    """
    return UniformSphere(
        checks.dimension(d), checks.positive(radius, "radius", "a sphere of radius 0 is a single point: use empirical")
    )


def empirical(points: Any, weights: Any = None) -> Empirical:
    r"""The law $\sum_iw_i\delta_{x_i}$ of explicit points, to draw tokens from, with repetition.

    **Arguments:** `points` of shape `(n, d)`; `weights` of shape `(n,)`, equal by default.

    **Returns:** a law with `mean` `(d,)`, `covariance` `(d, d)`, and `sample(n, key=key)`, a `PointCloud` of n draws.

    ```python
    law = mf.empirical([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], weights=[0.2, 0.8, 0.0])
    law.mean  # [0.2, 0.8]
    assert (law.sample(40, key=jax.random.key(0)).points.sum(axis=1) == 1).all()  # never the third
    ```
    """
    return Empirical(PointCloud(points, weights))

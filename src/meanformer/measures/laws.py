"""Laws to draw tokens from. Each knows its exact mean and covariance."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Key, Scalar, cast, common_dtype
from ..spaces import Sphere
from .cloud import PointCloud


class UniformBall(eqx.Module):
    """The uniform law on a ball; made by `uniform_ball`."""

    centre: Float[Array, " d"]
    radius: Scalar

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
        return self.radius**2 / (self.d + 2) * jnp.eye(self.d, dtype=self.centre.dtype)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        return PointCloud(self.centre[None] + self.radius * jr.ball(key, self.d, shape=(n,), dtype=self.centre.dtype))


class UniformCube(eqx.Module):
    """The uniform law on a box; made by `uniform_cube`."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]

    @property
    def d(self) -> int:
        """Dimension."""
        return self.low.shape[0]

    @property
    def mean(self) -> Float[Array, " d"]:
        """The centre of the box."""
        return (self.low + self.high) / 2

    @property
    def covariance(self) -> Float[Array, "d d"]:
        r"""$\mathrm{diag}\big((b_i-a_i)^2/12\big)$."""
        return jnp.diag((self.high - self.low) ** 2 / 12)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        n = checks.draws(n, self.d, key)
        unit = jr.uniform(key, (n, self.d), self.low.dtype)
        return PointCloud(self.low[None] + (self.high - self.low)[None] * unit)


class UniformSphere(eqx.Module):
    """The uniform law on a sphere around 0; made by `uniform_sphere`."""

    dimension: int = eqx.field(static=True)
    radius: Scalar

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
        return self.radius**2 / self.d * jnp.eye(self.d, dtype=self.radius.dtype)

    def sample(self, n: int, *, key: Key) -> PointCloud:
        """`n` independent draws, with equal weights."""
        return PointCloud(Sphere(self.radius).sample(n, self.d, key=key))


class Empirical(eqx.Module):
    """The law of explicit points; made by `empirical`."""

    cloud: PointCloud

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
    """The uniform law on the ball of `radius` around `centre` (default 0) in dimension `d`."""
    d = checks.whole(d, "d")
    radius = checks.positive(radius, "radius", "a ball of radius 0 is a single point: use empirical")
    centre = jnp.zeros(d) if centre is None else checks.vector(centre, "centre", d, " = d")
    return UniformBall(*cast((centre, radius), common_dtype(centre, radius)))


def uniform_cube(d: int, low: Any = -1.0, high: Any = 1.0) -> UniformCube:
    """The uniform law on the box `[low, high]^d`; `low` and `high` are numbers or vectors of length `d`."""
    d = checks.whole(d, "d")
    ends = []
    for name, value in (("low", low), ("high", high)):
        array = checks.to_array(value, name)
        ends.append(
            jnp.full(d, checks.scalar(value, name)) if array.ndim == 0 else checks.vector(value, name, d, " = d")
        )
    lower, upper = cast(tuple(ends), common_dtype(ends))
    if checks.known(lower, upper) and not (np.asarray(lower) < np.asarray(upper)).all():
        checks.refuse(
            "a box needs low < high",
            got=f"low = {low}, high = {high}",
            expected="low < high in each coordinate",
            remedy="swap them",
        )
    return UniformCube(lower, upper)


def uniform_sphere(d: int, radius: Any = 1.0) -> UniformSphere:
    """The uniform law on the sphere of `radius` around 0 in dimension `d`."""
    return UniformSphere(
        checks.whole(d, "d"), checks.positive(radius, "radius", "a sphere of radius 0 is a single point: use empirical")
    )


def empirical(points: Any, weights: Any = None) -> Empirical:
    """The law that draws from explicit `points` with probabilities `weights` (equal by default)."""
    return Empirical(PointCloud(points, weights))

"""Where tokens live: Euclidean space, or a sphere (layer normalisation)."""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import _checks as checks
from . import _draws as draws
from ._scale import norm, unit
from ._types import Key, Points, Scalar, is_traced
from ._warm import Module, light


class AbstractSpace(Module):
    r"""A space that tokens live in: it knows its tangent vectors and the way back to itself; flows know nothing else of
    geometry.

    Velocities are projected, $\dot x=P_x\Gamma_\mu(x)$, and every step is followed by `retract`. A new space is a
    subclass with three methods; arrays have shape `(n, d)`.

    ```python
    class Plane(mf.AbstractSpace):  # the points whose last coordinate is 0
        def project(self, x, v):
            return v.at[..., -1].set(0.0)

        def retract(self, x):
            return x.at[..., -1].set(0.0)

        def check(self, points):
            assert (points[..., -1] == 0).all()


    tokens = mf.PointCloud([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    run = mf.layers(mf.Affine(jnp.eye(2), b=[0.0, 1.0]), tokens, depth=2, space=Plane())
    assert (run.final.points[:, 1] == 0).all()
    ```
    """

    @abc.abstractmethod
    def project(self, x: Points, v: Points) -> Points:
        """The tangential part of the vectors `v` at the points `x`, shape `(n, d)`."""

    @abc.abstractmethod
    def retract(self, x: Points) -> Points:
        """The nearest points of the space, shape `(n, d)`."""

    @abc.abstractmethod
    @light
    def check(self, points: Points) -> None:
        """Refuse tokens that are not in the space; called once, before a run."""


def resolve_space(space: Any, points: Points) -> AbstractSpace:
    """The user's `space` (None: Euclidean), if the tokens lie in it."""
    space = EUCLIDEAN if space is None else space
    if not isinstance(space, AbstractSpace):
        checks.refuse(
            "space is not known", got=repr(space), expected="mf.Euclidean() or mf.Sphere()", remedy="space=mf.Sphere()"
        )
    space.check(points)
    return space


class Euclidean(AbstractSpace):
    r"""The whole space $\mathbb R^d$, the default: nothing is projected, $P_x=I$.

    ```python
    v = jnp.ones((3, 2))
    assert mf.Euclidean().project(jnp.zeros((3, 2)), v) is v
    ```
    """

    def project(self, x: Points, v: Points) -> Points:
        return v

    def retract(self, x: Points) -> Points:
        return x

    @light
    def check(self, points: Points) -> None:
        pass


EUCLIDEAN = Euclidean()


class Sphere(AbstractSpace):
    r"""The sphere of `radius` $R$ around 0, on which layer normalisation puts tokens (MATH b.9): velocities are
    projected,

    $$\dot x=P_x\,\Gamma_\mu(x),\qquad P_x=I-\frac{xx^\top}{|x|^2},$$

    and every step is followed by $x\mapsto Rx/|x|$. Tokens must start on the sphere.

    The projection is made after the sum over tokens, so a tangential velocity is known to about 1e-16 in absolute
    terms: of velocities as small as $e^{-\beta}$, at inverse temperature $\beta=1/\tau$, that leaves $16-0.43\beta$
    digits.

    **Arguments:** `radius`, a positive number, 1 by default.

    ```python
    sphere = mf.Sphere(radius=2.0)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).push(sphere.retract)
    run = mf.layers(mf.Affine(jnp.eye(2), b=[0.0, 1.0]), tokens, depth=2, space=sphere)  # flow takes it as well
    assert jnp.allclose(jnp.linalg.norm(run.final.points, axis=1), 2.0)
    ```
    """

    radius: Scalar
    """The radius $R$, a number."""

    def __init__(self, radius: Any = 1.0):
        self.radius = checks.positive(radius, "radius", "a sphere has a positive radius")

    def project(self, x: Points, v: Points) -> Points:
        x = x / unit(x, -1)  # a direction alone
        return v - x * ((x * v).sum(-1, keepdims=True) / (x * x).sum(-1, keepdims=True))

    def retract(self, x: Points) -> Points:
        x = x / unit(x, -1)
        return self.radius.astype(x.dtype) * (x / jnp.linalg.norm(x, axis=-1, keepdims=True))

    def sample(self, n: int, d: int, *, key: Key) -> Points:
        """`n` independent uniform points of the sphere in dimension `d`, shape `(n, d)`."""
        d = checks.dimension(d)
        n = checks.draws(n, d, key)
        return jnp.asarray(draws.host(self.radius) * draws.directions(key, (n, d), self.radius.dtype))

    @light
    def check(self, points: Points) -> None:
        if is_traced(points, self.radius):
            return
        off = float(np.abs(norm(np.asarray(points), axis=-1) - float(self.radius)).max())
        if off > 1e3 * float(jnp.finfo(points.dtype).eps) * float(self.radius):
            checks.refuse(
                "tokens must start on the sphere",
                got=f"a distance of {off:.3g} to the sphere of radius {float(self.radius):g}",
                expected="|x_i| = radius",
                remedy="push them there: tokens.push(mf.Sphere(radius).retract)",
            )

"""Where tokens live: Euclidean space, or a sphere (layer normalisation)."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from . import _checks as checks
from ._types import Key, Points, Scalar, is_traced


class AbstractSpace(eqx.Module):
    """A space knows its tangent vectors and the way back to itself; flows know nothing else of geometry."""

    @abc.abstractmethod
    def project(self, x: Points, v: Points) -> Points:
        """The tangential part of `v` at `x`."""

    @abc.abstractmethod
    def retract(self, x: Points) -> Points:
        """The nearest point of the space."""

    @abc.abstractmethod
    def check(self, points: Points) -> None:
        """Refuse tokens that are not in the space."""


def resolve_space(space: Any, points: Points) -> AbstractSpace:
    """The user's `space` (None: Euclidean), if the tokens lie in it."""
    space = Euclidean() if space is None else space
    if not isinstance(space, AbstractSpace):
        checks.refuse(
            "space is not known", got=repr(space), expected="mf.Euclidean() or mf.Sphere()", remedy="space=mf.Sphere()"
        )
    space.check(points)
    return space


class Euclidean(AbstractSpace):
    """The whole space: the default."""

    def project(self, x: Points, v: Points) -> Points:
        return v

    def retract(self, x: Points) -> Points:
        return x

    def check(self, points: Points) -> None:
        pass


class Sphere(AbstractSpace):
    r"""The sphere of `radius` around 0: velocities are projected, $\dot x=P_x\Gamma_\mu(x)$, $P_x=I-xx^\top/|x|^2$,
    and every step is followed by $x\mapsto Rx/|x|$ (MATH b.9).

    The projection is made after the sum over tokens, so a tangential velocity is known to about 1e-16 in absolute
    terms: of velocities as small as $e^{-\beta}$, at inverse temperature $\beta=1/\tau$, that leaves $16-0.43\beta$
    digits.

    ```python
    tokens = mf.uniform_sphere(d=3).sample(32, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(I, I, I, tau=1 / beta), tokens, t1=10.0, space=mf.Sphere())
    ```
    """

    radius: Scalar

    def __init__(self, radius: Any = 1.0):
        self.radius = checks.positive(radius, "radius", "a sphere has a positive radius")

    def project(self, x: Points, v: Points) -> Points:
        return v - x * ((x * v).sum(-1, keepdims=True) / (x * x).sum(-1, keepdims=True))

    def retract(self, x: Points) -> Points:
        return self.radius.astype(x.dtype) * x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def sample(self, n: int, d: int, *, key: Key) -> Points:
        """`n` independent uniform points of the sphere in dimension `d`, shape `(n, d)`."""
        d = checks.whole(d, "d")
        n = checks.draws(n, d, key)
        return self.retract(jr.normal(key, (n, d), self.radius.dtype))

    def check(self, points: Points) -> None:
        if is_traced(points, self.radius):
            return
        off = float(np.abs(np.linalg.norm(np.asarray(points), axis=-1) - float(self.radius)).max())
        if off > 1e3 * float(jnp.finfo(points.dtype).eps) * float(self.radius):
            checks.refuse(
                "tokens must start on the sphere",
                got=f"a distance of {off:.3g} to the sphere of radius {float(self.radius):g}",
                expected="|x_i| = radius",
                remedy="push them there: tokens.push(mf.Sphere(radius).retract)",
            )

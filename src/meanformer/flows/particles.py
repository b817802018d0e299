"""Tokens as an interacting-particle system: the right-hand side that a solver integrates."""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from .._types import Matrix, Points, Scalar
from ..attention.base import AbstractField
from ..measures.cloud import PointCloud
from ..spaces import AbstractSpace
from .frames import AbstractFrame


class ParticleSystem(eqx.Module):
    r"""$\dot x_i=\Gamma_\mu(x_i)$ for the tokens of `mu`, in a space and a frame; weights and positions never move."""

    field: AbstractField
    mu: PointCloud
    space: AbstractSpace
    frame: AbstractFrame

    def start(self) -> Any:
        """The state at the start."""
        return self.frame.start(self.mu.points)

    def velocity(self, t: Scalar, y: Any, args: Any = None) -> Any:
        """The right-hand side."""
        velocity = self.frame.velocity(self.field, self.mu, t, y)
        # Spaces other than the Euclidean one know the original frame only, where the state is the points.
        return self.space.project(y, velocity) if isinstance(y, Array) else velocity

    def retract(self, y: Any) -> Any:
        """The state brought back to the space, after a step."""
        return self.space.retract(y) if isinstance(y, Array) else y

    def measure(self, y: Any) -> PointCloud:
        """The measure, in the frame."""
        return self.mu.with_points(self.frame.points(y))

    def saved(self, t: Scalar, y: Any) -> tuple[Points, Matrix | None]:
        """What is kept of a state: the points in the frame, and the propagator out of it."""
        y = self.retract(y)
        return self.frame.points(y), self.frame.propagator(t, y)

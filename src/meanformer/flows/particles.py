"""Tokens as an interacting-particle system: the right-hand side that a solver integrates."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .._types import AnyArray, Matrix, Points, Scalar
from .._warm import light
from ..attention.approximate import Approximate
from ..attention.base import AbstractField
from ..attention.facts import facts_of
from ..attention.planned import usage
from ..attention.solved import Guesses, Solved, Watch, first_guesses, sinkhorn_excess
from ..measures.cloud import PointCloud
from ..spaces import AbstractSpace
from .frames import AbstractFrame
from .system import AbstractSystem

# A segment ends when its plan is used up to this share.
PLAN_END = 0.95


class ParticleSystem(AbstractSystem):
    r"""$\dot x_i=\Gamma_\mu(x_i)$ for the tokens of `mu`, in a space and a frame; weights and positions never move."""

    field: AbstractField
    mu: PointCloud
    space: AbstractSpace
    frame: AbstractFrame
    count: Int[AnyArray, ""] | None = None
    """How many of the tokens are real, the first ones, if the cloud is padded; see `meanformer.flows.padding`."""

    @light
    def start(self) -> Any:
        return self.frame.start(self.mu.points)

    def velocity(self, t: Scalar, y: Any, args: Any = None) -> Any:
        return self.solved(t, y).velocity

    def solved(self, t: Scalar, y: Any, guesses: Guesses | None = None) -> Solved:
        found = self.frame.velocity(self.field, self.mu, t, y, guesses)
        # Spaces other than the Euclidean one know the original frame only, where the state is the points.
        return found._replace(velocity=self.space.project(y, found.velocity)) if isinstance(y, Array) else found

    def watch(self, t: Scalar, y: Any) -> Watch | None:
        guesses = first_guesses(self.field, self.mu.with_points(self.tokens(t, y)), t)
        return Watch(guesses, jnp.zeros((), self.dtype), jnp.ones((), bool)) if guesses else None

    def retract(self, y: Any) -> Any:
        return self.space.retract(y) if isinstance(y, Array) else y

    def measure(self, y: Any) -> PointCloud:
        return self.mu.with_points(self.frame.points(y))

    def tokens(self, t: Scalar, y: Any) -> Points:
        """The tokens out of the frame, which is what attention sees."""
        return self.frame.original(t, y)

    def outgrown(self, t: Scalar, y: Any) -> Bool[Array, ""]:
        """Whether the ranges of the logits come close to what the plan of the sums covers."""
        assert isinstance(self.field, Approximate)
        return usage(self.field, self.mu.with_points(self.tokens(t, y)), t) > PLAN_END

    def moments_of_speed(self, t: Scalar, y: Any, velocity: Any = None) -> Points:
        return self.frame.points(self.velocity(t, y) if velocity is None else velocity)

    def snapshot(self, t: Scalar, y: Any) -> tuple[Points, Matrix | None]:
        """The points in the frame, and the propagator out of it."""
        y = self.retract(y)
        return self.frame.points(y), self.frame.propagator(t, y)

    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> Any:
        return self.frame.snapshots(times, ys)

    @light
    def cut(self, y: Any, rows: Any) -> Any:
        return (y[0][..., rows, :], *y[1:]) if isinstance(y, tuple) else y[..., rows, :]

    def size_of(self, errors: Any) -> Scalar:
        """Padding does not count."""
        if self.count is None:
            return super().size_of(errors)
        first, *others = jax.tree.leaves(errors)
        real = jnp.arange(self.mu.n) < self.count
        squares = jnp.sum(jnp.where(real[:, None], first**2, 0)) + sum(jnp.sum(leaf**2) for leaf in others)
        number = self.count * self.mu.d + sum(leaf.size for leaf in others)
        return jnp.sqrt(squares / number.astype(squares.dtype))

    @light
    def whole(self, snapshots: Any) -> np.ndarray:
        """The propagator may overflow while the points in the frame stay finite."""
        return super().whole(snapshots[0])

    def restored(self, snapshot: Any) -> Any:
        return self.frame.state(*snapshot)

    def states(self, snapshots: Any) -> PointCloud:
        """The weights and positions are repeated along the time axis."""
        points, mu = snapshots[0], self.mu
        others = jax.tree.map(
            lambda a: jnp.broadcast_to(a[..., None, :], points.shape[:-1]), (mu.weights, mu.positions)
        )
        return eqx.tree_at(
            lambda m: (m.points, m.weights, m.positions), mu, (points, *others), is_leaf=lambda leaf: leaf is None
        )

    @property
    def size(self) -> int:
        return self.mu.n

    @property
    def state_bytes(self) -> int:
        points = self.mu.points
        return math.prod(points.shape[-2:]) * points.dtype.itemsize

    @property
    def dtype(self) -> Any:
        return self.mu.points.dtype

    @light
    def summary(self) -> str:
        return f"{self.mu.n} tokens in R^{self.mu.d}"

    @light
    def sinkhorn_excess(self, t: Scalar, y: Any) -> tuple[Array, Array] | None:
        if not facts_of(self.field, t).solves:
            return None
        # Out of the frame, where the field acts.
        return sinkhorn_excess(self.field, self.mu.with_points(self.tokens(t, y)), t)

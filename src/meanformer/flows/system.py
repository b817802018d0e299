"""What a solver integrates: the one interface of tokens, Gaussians and densities."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .._programs.call import program
from .._types import Scalar
from .._warm import Module, light
from ..attention.base import AbstractField
from ..attention.schedule import breaks_of, frozen
from ..attention.solved import Guesses, Solved, Watch
from ..outcome import Ending

Fitted = Callable[["AbstractSystem", Scalar, Any], "AbstractSystem"]


class AbstractSystem(Module):
    """A measure moved by a field. The state `y` is what is integrated, a snapshot what is kept of it."""

    field: eqx.AbstractVar[AbstractField]
    mu: eqx.AbstractVar[Any]

    @abc.abstractmethod
    @light
    def start(self) -> Any:
        """The state at the start."""

    @abc.abstractmethod
    def velocity(self, t: Scalar, y: Any, args: Any = None) -> Any:
        """The right-hand side."""

    def solved(self, t: Scalar, y: Any, guesses: Guesses | None = None) -> Solved:
        """The right-hand side, and the Sinkhorn problems that were solved for it, from `guesses` of potentials."""
        return Solved(self.velocity(t, y), ())

    def watch(self, t: Scalar, y: Any) -> Watch | None:
        """The Sinkhorn problems of a run that begins at a state; None if there are none."""
        return None

    @abc.abstractmethod
    def measure(self, y: Any) -> Any:
        """The measure of a state, in the frame."""

    @abc.abstractmethod
    def moments_of_speed(self, t: Scalar, y: Any, velocity: Any = None) -> Any:
        """What `Stationary` looks at: velocities of the tokens, or of the moments; `velocity` is that of the state, if
        it is known.
        """

    @abc.abstractmethod
    def snapshot(self, t: Scalar, y: Any) -> Any:
        """What is kept of a state."""

    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> Any:
        """The snapshots of states of the run, stacked along a leading axis, on the host."""
        return ys

    @light
    def cut(self, y: Any, rows: Any) -> Any:
        """The state of some of the tokens."""
        return y

    def size_of(self, errors: Any) -> Scalar:
        """The root mean square of numbers like those of a state."""
        leaves = jax.tree.leaves(errors)
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in leaves) / sum(leaf.size for leaf in leaves))

    @abc.abstractmethod
    def restored(self, snapshot: Any) -> Any:
        """The state from what was kept of it."""

    @abc.abstractmethod
    def states(self, snapshots: Any) -> Any:
        """The measures of snapshots stacked along a leading axis."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of interacting points, which sets the cost of a step."""

    @property
    @abc.abstractmethod
    def state_bytes(self) -> int:
        """The memory that a kept state takes."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The floating dtype of the run."""

    @abc.abstractmethod
    @light
    def summary(self) -> str:
        """What moves, in a few words."""

    def retract(self, y: Any) -> Any:
        """The state brought back to its space, after a step."""
        return y

    @light
    def whole(self, snapshots: Any) -> np.ndarray:
        """Whether the measures of snapshots, stacked along a leading axis, are finite: one answer each."""
        finite = [np.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in jax.tree.leaves(snapshots)]
        return np.logical_and.reduce(finite)

    def in_piece(self, times: Array, k: Any) -> "AbstractSystem":
        """The system between save times `k` and `k + 1`. Breaks are save times, so its weights are continuous there."""
        if not breaks_of(self.field):
            return self
        middle = float(np.asarray(times)[k : k + 2].mean())
        return eqx.tree_at(lambda s: s.field, self, frozen(self.field, middle))

    def between(self, times: Array, saved: Any, k: Any, t: Scalar, fitted: Fitted = lambda system, t, y: system) -> Any:
        """The state at `t`, from the states and velocities at save times `k` and `k + 1`; `fitted` gives the system
        with which a velocity is computed.
        """
        system = self.in_piece(times, k)

        def end(i: Array | int) -> tuple[Any, Any]:
            y = system.restored(jax.tree.map(lambda a: a[i], saved))
            return y, _velocity(fitted(system, times[i], y), times[i], y)

        (y0, v0), (y1, v1) = end(k), end(k + 1)
        h = times[k + 1] - times[k]
        u = (t - times[k]) / h

        def between(p0: Array, v0: Array, p1: Array, v1: Array) -> Array:
            value = (2 * u**3 - 3 * u**2 + 1) * p0 + (3 * u**2 - 2 * u**3) * p1
            return value + h * ((u**3 - 2 * u**2 + u) * v0 + (u**3 - u**2) * v1)

        return system.retract(jax.tree.map(between, y0, v0, y1, v1))

    @light
    def sinkhorn_excess(self, t: Scalar, y: Any) -> tuple[Array, Array] | None:
        """The largest marginal error of the Sinkhorn problems solved at a state, and whether one is unsolved."""
        return None


def look_at_sinkhorn(piece: AbstractSystem, t: Scalar, y: Any, stats: dict[str, Any]) -> Ending:
    """Whether the Sinkhorn problems at a state are solved; the largest marginal error goes into `stats`."""
    excess = piece.sinkhorn_excess(t, y)
    return note_watch(None if excess is None else Watch((), excess[0], ~excess[1]), stats)


def note_watch(watch: Watch | None, stats: dict[str, Any]) -> Ending:
    """The same, of problems that were watched."""
    if watch is None:
        return Ending.REACHED
    stats["sinkhorn_error"] = max(stats.get("sinkhorn_error", 0.0), float(watch.error))
    return Ending.REACHED if bool(watch.solved) else Ending.SINKHORN_STALLED


def is_finite(tree: Any) -> Bool[Array, ""]:
    """Whether all numbers of a tree are finite."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


@program
def _velocity(system: AbstractSystem, t: Scalar, y: Any) -> Any:
    return system.velocity(t, y)

"""What a run returns."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Points, Scalar, cast, is_traced
from ..attention.schedule import breaks_of, frozen
from ..diagnostics.clusters import Clusters, clusters
from ..measures.cloud import PointCloud
from ..outcome import Outcome
from .frames import Original
from .particles import ParticleSystem

if TYPE_CHECKING:
    import xarray


def _frozen(mu: PointCloud, points: Points) -> PointCloud:
    """`mu` with other points, its weights and positions repeated along the time axis of `points`."""
    others = jax.tree.map(lambda a: jnp.broadcast_to(a[..., None, :], points.shape[:-1]), (mu.weights, mu.positions))
    return eqx.tree_at(
        lambda m: (m.points, m.weights, m.positions), mu, (points, *others), is_leaf=lambda leaf: leaf is None
    )


class Trajectory(eqx.Module):
    """A run: the measure at its save times, how it ended, and what it took.

    - `times`, shape `(T,)`, and `states`, one `PointCloud` with a leading time axis, in the run's frame;
    - `final`, the last resolved state, and `outcome`, how the computing ended, in words;
    - `at(t)`, the state between save times; `original()`, out of a rescaled frame;
    - `stats`: steps, rejected steps, seconds, ...;
    - `clusters()`, `plot()`, `animate(path)`, `to_xarray()`.
    """

    times: Float[Array, " times"]
    points: Float[Array, "times n d"]
    propagators: Float[Array, "times d d"] | None
    final_points: Float[Array, "n d"]
    final_propagator: Float[Array, "d d"] | None
    outcome: Outcome
    stats: dict[str, Any]
    system: ParticleSystem
    discrete: bool = eqx.field(static=True)

    @property
    def field(self) -> Any:
        """The field that moved the measure."""
        return self.system.field

    @property
    def states(self) -> PointCloud:
        """The measures at `times`, stacked along a leading axis."""
        return _frozen(self.system.mu, self.points)

    @property
    def final(self) -> PointCloud:
        """The last resolved state, in the run's frame."""
        return self.system.mu.with_points(self.final_points)

    def original(self) -> "Trajectory":
        r"""The same run out of its rescaled frame, $x=\Phi z$."""
        if self.propagators is None:
            return self
        points = jnp.einsum("...ij,...nj->...ni", self.propagators, self.points)
        final = jnp.einsum("...ij,...nj->...ni", self.final_propagator, self.final_points)
        system = ParticleSystem(self.system.field, self.system.mu, self.system.space, Original())
        return Trajectory(self.times, points, None, final, None, self.outcome, self.stats, system, self.discrete)

    def at(self, t: Any) -> PointCloud:
        """The state at time `t`, by cubic Hermite interpolation between save times (fourth order in their spacing)."""
        if self.discrete:
            checks.refuse(
                "layers have no state between layers",
                got=f"t = {t}",
                expected="one of run.times",
                remedy="index the states: run.states[k]; or use mf.flow for continuous time",
            )
        t = cast(checks.scalar(t, "t"), self.times.dtype)
        if checks.known(t, self.times):
            low, high = (float(end) for end in np.asarray(self.times)[[0, -1]])
            if not low <= float(t) <= high:
                checks.refuse(
                    "t must lie in the run",
                    got=f"t = {float(t):g}",
                    expected=f"[{low:g}, {high:g}]",
                    remedy="run longer, or save earlier times",
                )
        if self.times.shape[0] == 1:
            return self.final.with_points(self.points[0])
        k: Any = jnp.clip(jnp.searchsorted(self.times, t, side="right") - 1, 0, self.times.shape[0] - 2)
        if breaks_of(self.system.field):
            if not checks.known(t, self.times):
                checks.refuse(
                    "a piecewise run needs known times",
                    got="traced times",
                    expected="numbers",
                    remedy="call at(t) outside of jit, vmap and grad",
                )
            k = int(
                np.clip(np.searchsorted(np.asarray(self.times), float(t), side="right") - 1, 0, len(self.times) - 2)
            )
        return self.final.with_points(_hermite(self.system, self.times, self.points, self.propagators, k, t))

    def clusters(self, tolerance: float = 0.01) -> Clusters:
        """The clusters of the final state: see `mf.clusters`."""
        return clusters(self.final, tolerance)

    def to_xarray(self) -> "xarray.Dataset":
        """The run as a labelled dataset: points over (time, token, coordinate), weights, positions, outcome."""
        import xarray

        mu = self.system.mu
        data: dict[str, Any] = {"points": (("time", "token", "coordinate"), jax.device_get(self.points))}
        data["weights"] = (("token",), jax.device_get(mu.weights))
        if mu.positions is not None:
            data["positions"] = (("token",), jax.device_get(mu.positions))
        if self.propagators is not None:
            data["propagators"] = (("time", "coordinate", "coordinate_"), jax.device_get(self.propagators))
        attributes = {
            "outcome": str(self.outcome),
            "field": type(self.field).__name__,
            "frame": type(self.system.frame).__name__,
            "convention": "logits Qx.Ky/tau, A = K^T Q acts on the query; tau divides the whole exponent",
            **{key: float(value) for key, value in self.stats.items()},
        }
        return xarray.Dataset(data, coords={"time": jax.device_get(self.times)}, attrs=attributes)

    def summary(self) -> str:
        """The run in one line."""
        mu = self.system.mu
        count = f"{int(self.stats['steps'])} {'layers' if self.discrete else 'steps'}"
        name = "" if self.discrete else f"{type(self.field).__name__}, "
        return f"{name}{mu.n} tokens in R^{mu.d}: {count}; {self.outcome}"

    def __repr__(self) -> str:
        return f"<Trajectory: {'traced' if is_traced(self.points) or self.points.ndim != 3 else self.summary()}>"

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """A picture of the tokens and their paths (d = 1, 2, 3), as matplotlib axes.

        `run.plot().figure.savefig("run.png")` writes it to a file. Options: see `meanformer.plots.tokens.plot_run`.
        """
        from ..plots.tokens import plot_run

        return plot_run(self, ax=ax, **options)

    def animate(self, path: Any, **options: Any) -> Any:
        """An animation of the tokens, written to `path` (.gif). Options: see `meanformer.plots.tokens.animate_run`."""
        from ..plots.tokens import animate_run

        return animate_run(self, path, **options)


def _hermite(
    system: ParticleSystem, times: Array, points: Array, propagators: Any, k: Array | int, t: Scalar
) -> Points:
    if breaks_of(system.field):  # breaks are save times, so the weights are continuous between two of those
        middle = float(np.asarray(times)[k : k + 2].mean())
        system = eqx.tree_at(lambda s: s.field, system, frozen(system.field, middle))

    def end(i: Array | int) -> tuple[Array, Array]:
        y = system.frame.state(points[i], None if propagators is None else propagators[i])
        return system.frame.points(y), system.frame.points(_velocity(system, times[i], y))

    (p0, v0), (p1, v1) = end(k), end(k + 1)
    h = times[k + 1] - times[k]
    u = (t - times[k]) / h
    value = (2 * u**3 - 3 * u**2 + 1) * p0 + (3 * u**2 - 2 * u**3) * p1
    slope = (u**3 - 2 * u**2 + u) * v0 + (u**3 - u**2) * v1
    return system.space.retract(value + h * slope)


@eqx.filter_jit
def _velocity(system: ParticleSystem, t: Scalar, y: Any) -> Any:
    return system.velocity(t, y)

"""Densities: the Transformer PDE itself, on a grid."""

import time as clock
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .. import _checks as checks
from .._programs.call import program
from .._progress import Progress
from .._scale import norm
from .._types import Scalar
from .._warm import Module
from ..attention.base import AbstractField
from ..attention.solved import sinkhorn_excess
from ..attention.view import View
from ..measures.cloud import PointCloud
from ..measures.density import Density, grid_points, with_masses
from ..outcome import Ending, Outcome
from .finite_volume import courant_rate, divergence
from .journal import AbstractJournal, shell_of
from .observe import Observer
from .stop import AbstractStop
from .system import AbstractSystem, is_finite, look_at_sinkhorn
from .trajectory import Trajectory

# Up to 1/2 keeps masses positive while the velocity does not grow within a step.
COURANT = 0.45
# Steps between two looks of the host at the clock.
SEGMENT_PAIRS = 1e9
SEGMENT_STEPS = 64
NOTABLE_LOSS = 1e-6


class MassLostWarning(UserWarning):
    """A density has lost more than $10^{-6}$ of its mass over the edge of its grid.

    A flow extends the grid beforehand, so that this is rare; `run.stats["mass_lost"]` has the number in any case. Here
    the warning is made an error:

    ```python
    import warnings

    rho = mf.to_density(mf.Gaussian([0.0], cov=1.0), cells=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error", mf.MassLostWarning)
        run = mf.flow(mf.Affine([[0.5]]), rho, t1=1.0)
    assert run.stats["mass_lost"] < 1e-12
    ```
    """


class DensitySystem(AbstractSystem):
    r"""$\partial_t\rho+\operatorname{div}(\rho\,\Gamma_\rho)=0$ by finite volumes; positions never move.

    The field acts on the cells as weighted tokens at their centres, and is asked at the faces. The state is the
    masses and the mass lost over the edge.
    """

    field: AbstractField
    mu: Density

    def start(self) -> tuple[Array, Array]:
        return self.mu.masses, jnp.zeros((), self.dtype)

    def face_velocities(self, t: Scalar, y: Any) -> tuple[Array, ...]:
        """The normal velocities at the faces along each axis; the field is asked once, for all faces."""
        rho = self.measure(y)
        cells, d = rho.cells, rho.d
        rows: tuple[int, ...] = () if rho.positions is None else (rho.positions.shape[0],)
        points, shapes = [], []
        for a in range(d):
            axes = tuple(rho.edges(b) if a == b else rho.centres(b) for b in range(d))
            points.append(grid_points(axes))
            shapes.append((*rows, *(cells[b] + (a == b) for b in range(d))))
        x, s = jnp.concatenate(points), None
        if rho.positions is not None:
            s = jnp.repeat(rho.positions, x.shape[0])
            x = jnp.tile(x, (rho.positions.shape[0], 1))
        velocity = self.field.evaluate(rho.cloud(), x, t, View(s))
        ends = np.cumsum([0, *(np.prod(shape) for shape in shapes)])
        return tuple(velocity[ends[a] : ends[a + 1], a].reshape(shapes[a]) for a in range(d))

    def velocity(self, t: Scalar, y: Any, args: Any = None) -> tuple[Array, Array]:
        return divergence(y[0], self.face_velocities(t, y), self.mu.spacing)

    def measure(self, y: Any) -> Density:
        return with_masses(self.mu, y[0])

    def moments_of_speed(self, t: Scalar, y: Any, velocity: Any = None) -> Array:
        r"""The root of $\int|\Gamma_\rho|^2d\rho$."""
        cloud = self.measure(y).cloud()
        velocity = self.field.evaluate(cloud, cloud.points, t, View(cloud.positions))
        return norm(jnp.sqrt(cloud.weights)[:, None] * velocity)

    def snapshot(self, t: Scalar, y: Any) -> Any:
        return y

    def restored(self, snapshot: Any) -> Any:
        return snapshot

    def states(self, snapshots: Any) -> Density:
        return self.measure(snapshots)

    def between(self, times: Array, saved: Any, k: Any, t: Scalar, fitted: Any = None) -> Any:
        """Linear in time: a mixture of two densities is a density."""
        u = (t - times[k]) / (times[k + 1] - times[k])
        return jax.tree.map(lambda a: (1 - u) * a[k] + u * a[k + 1], saved)

    @property
    def size(self) -> int:
        return self.mu.masses.size

    @property
    def state_bytes(self) -> int:
        return self.mu.masses.size * self.dtype.itemsize

    @property
    def dtype(self) -> Any:
        return self.mu.masses.dtype

    def summary(self) -> str:
        return f"a density on {' x '.join(map(str, self.mu.cells))} cells in R^{self.mu.d}"

    def sinkhorn_excess(self, t: Scalar, y: Any) -> tuple[Array, Array] | None:
        return sinkhorn_excess(self.field, _cells(self, y), t)


@program
def _cells(system: DensitySystem, y: Any) -> PointCloud:
    return system.measure(y).cloud()


class _Advance(Module):
    """Where a piece of a run has come to: `ahead` and `dt` are those of a step whose first stage is done."""

    y: Any
    ahead: Any
    dt: Scalar
    halfway: Bool[Array, ""]
    t: Scalar
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    shrink: Scalar
    stopped: Bool[Array, ""]
    failed: Bool[Array, ""]


@program
def _advance(
    system: DensitySystem, rules: tuple[AbstractStop, ...], y: Any, t: Scalar, t1: Scalar, limit: Array
) -> _Advance:
    r"""Steps of Heun's method (strong stability preserving) towards `t1`, as long as the velocities allow:
    $y^*=y+\Delta t\,F(y)$, then $\frac12(y+y^*+\Delta t\,F(y^*))$. A turn of the loop is one stage, so that the
    field is compiled once.
    """
    smallest = 16 * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(t1))

    def go_on(now: _Advance) -> Array:
        # Rejected steps do not count: each is half as long, and the shortest fails.
        return (now.t < t1) & (now.steps < limit) & ~now.stopped & ~now.failed

    def choose(mask: Array, new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(mask, a, b), new, old)

    def stage(now: _Advance) -> _Advance:
        start = choose(now.halfway, now.ahead, now.y)
        u = system.face_velocities(jnp.where(now.halfway, now.t + now.dt, now.t), start)
        rate = courant_rate(u, system.mu.spacing)
        left = t1 - now.t
        # Steps of equal length to the end, rather than a sliver at last.
        count = jnp.maximum(jnp.ceil(left * rate / (COURANT * now.shrink)), 1)
        dt = jnp.where(now.halfway, now.dt, left / count)
        moved = jax.tree.map(lambda a, k: a + dt * k, start, divergence(start[0], u, system.mu.spacing))
        new = choose(now.halfway, jax.tree.map(lambda a, b: (a + b) / 2, now.y, moved), moved)
        # A velocity that grows within the step may take more than there is: the step was too long.
        kept = is_finite(new) & (new[0].min() >= 0)
        done = now.halfway & kept
        y = choose(done, new, now.y)
        reached = jnp.where(done, jnp.where(dt >= left, t1, now.t + dt), now.t)
        stopped = jnp.asarray(False)
        for rule in rules:
            asked = rule(system.measure(y), reached, lambda: system.moments_of_speed(reached, y))
            stopped = stopped | (done & asked)
        return _Advance(
            y=y,
            ahead=new,
            dt=dt,
            halfway=~now.halfway & kept,
            t=reached,
            steps=now.steps + done.astype(int),
            rejected=now.rejected + (~kept).astype(int),
            shrink=jnp.where(kept, jnp.where(done, 1.0, now.shrink), now.shrink / 2).astype(t.dtype),
            stopped=stopped,
            failed=~jnp.isfinite(rate) | (~kept & (dt < smallest)),
        )

    none, no = jnp.zeros((), int), jnp.asarray(False)
    one = jnp.ones((), t.dtype)
    return jax.lax.while_loop(go_on, stage, _Advance(y, y, one, no, t, none, none, one, no, no))


def density_run(
    system: DensitySystem,
    pieces: list[tuple[AbstractSystem, Scalar]],
    rules: tuple[AbstractStop, ...],
    limit: int,
    times: Array,
    t0: Scalar,
    bar: Progress,
    began: float,
    seconds: float,
    journal: AbstractJournal,
) -> Trajectory:
    """From save time to save time, and from break to break; between them the host looks at clock and Sinkhorn, and a
    journal is kept.
    """
    y, t, ending = system.start(), t0, Ending.REACHED
    known = np.asarray(times)
    kept: list[tuple[float, Any]] = [(float(t0), y)] if known[0] == float(t0) else []
    stats: dict[str, Any] = {"steps": 0, "rejected": 0}
    earlier = journal.resume(lambda: shell_of(system, Observer(None, {}), t0, discrete=False), (t, y))
    if earlier is not None:
        rows, (t, y), note = earlier
        kept, ending = [(time, saved) for time, (saved, _) in rows], Ending(note["ending"])
        stats |= note["stats"]
        began -= stats.pop("seconds", 0.0)
    seen = 0 if earlier is None else len(kept)
    faces = system.mu.d * system.size
    usual = int(np.clip(SEGMENT_PAIRS / (2 * faces * system.size), 1, SEGMENT_STEPS))
    for piece, end in pieces:
        assert isinstance(piece, DensitySystem)
        if float(end) <= float(t) or ending != Ending.REACHED:
            continue  # done before an interruption
        inside = [time for time in known if float(t) < time <= float(end)]
        stops = inside if inside and inside[-1] == float(end) else [*inside, float(end)]
        for stop in stops:
            while float(t) < stop and ending == Ending.REACHED:
                ending = look_at_sinkhorn(piece, t, y, stats)
                budget = min(usual, limit - stats["steps"])
                if ending == Ending.REACHED and budget <= 0:
                    ending = Ending.STEP_LIMIT
                if ending != Ending.REACHED:
                    break
                now = _advance(piece, rules, y, t, jnp.asarray(stop, t.dtype), jnp.asarray(budget))
                y, t = now.y, now.t
                stats["steps"] += int(now.steps)
                stats["rejected"] += int(now.rejected)
                bar.update(float(t), stats["steps"])
                if bool(now.failed):
                    ending = Ending.NOT_FINITE
                elif bool(now.stopped) or (float(t) < stop and clock.monotonic() - began > seconds):
                    ending = Ending.STOPPED
                elif float(t) >= stop and stop in known:
                    kept.append((stop, y))
                stats["seconds"] = clock.monotonic() - began
                rows = [(time, (saved, {})) for time, saved in kept[seen:]]
                journal.keep(rows, (t, y), {"stats": dict(stats), "ending": int(ending)})
                seen = len(kept)
            if ending != Ending.REACHED:
                break
            if clock.monotonic() - began > seconds and stop < float(pieces[-1][1]):
                ending = Ending.STOPPED
                break
        if ending != Ending.REACHED:
            break
    if ending == Ending.REACHED:
        ending = look_at_sinkhorn(pieces[-1][0], t, y, stats)
    if not kept or (float(t) > kept[-1][0] and ending != Ending.REACHED):
        kept.append((float(t), y))
    saved = jax.tree.map(lambda *a: jnp.stack(a), *(row for _, row in kept))
    stats |= {"mass_lost": float(y[1]), "smallest": float(saved[0].min()), "seconds": clock.monotonic() - began}
    if stats["mass_lost"] > NOTABLE_LOSS:
        warnings.warn(
            f"{stats['mass_lost']:.2g} of the mass has left the grid until t = {float(t):.4g}: give the density more "
            "room, with density.extended(low, high)",
            MassLostWarning,
            stacklevel=4,
        )
    outcome = Outcome(jnp.asarray(int(ending)), t)
    return Trajectory(jnp.asarray([time for time, _ in kept], t.dtype), saved, y, outcome, stats, system, False)


def refuse_for_densities(**unused: Any) -> None:
    """A density flows by its own scheme, in Euclidean space and in the original frame, outside of tracing."""
    given = [name for name, value in unused.items() if value is not None]
    if given:
        checks.refuse(
            "a density flows by finite volumes, in the original frame of Euclidean space",
            got=", ".join(f"{name}=" for name in given),
            expected="no solver, tolerances, step, space, frame or adjoint",
            remedy="refine the grid for accuracy; flow tokens for other spaces and frames",
        )

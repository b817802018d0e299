"""What a run returns."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import cast, is_traced
from .._warm import Module, assembled
from ..attention import CONVENTION
from ..attention.schedule import breaks_of
from ..diagnostics.clusters import Clusters, clusters
from ..display.card import Html, shown
from ..fate import Fate
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..outcome import Outcome
from .cards import run_card
from .frames import Original
from .observe import Observer
from .particles import ParticleSystem
from .planning import Planner
from .system import AbstractSystem
from .table import run_table

if TYPE_CHECKING:
    import pandas
    import xarray


class Lazy:
    """Saved states that are read when they are first asked for."""

    def __init__(self, read: Callable[[], Any]):
        self._read, self._value = read, None

    def __call__(self) -> Any:
        if self._value is None:
            self._value = self._read()
        return self._value

    @property
    def known(self) -> bool:
        """Whether they have been read."""
        return self._value is not None


class Trajectory(Module):
    """A run, as `mf.flow`, `mf.layers` and `mf.load` give it: the measure at its save times, how it ended, and what it
    took.

    - `times`, shape `(T,)`, and `states`, one `PointCloud`, `Gaussian` or `Density` with a leading time axis, in the
      run's frame;
    - `final`, the last resolved state, and `outcome`, how the computing ended, in words;
    - `fate`, what becomes of a Gaussian: blow-up, divergence, convergence with its rank, or undecided;
    - `statistics`, what the observers saw at `times`; with `sample=`, `states` are a sample of the tokens, and the
      mean, the covariance and the radius of all of them are here (`final` is whole);
    - `at(t)`, the state between save times; `original()`, out of a rescaled frame;
    - `stats`: steps, rejected steps, seconds, ...;
    - `clusters()`, `plot()`, `animate(path)`, `to_xarray()`, `to_dataframe()`, `save(path)`.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens, t1=1.0)
    run.summary()  # "Softmax, 40 tokens in R^2: 7 steps; REACHED at t = 1: reached t1"
    assert (run.states[0].points == tokens.points).all()
    assert jnp.allclose(run.at(1.0).points, run.final.points)
    ```
    """

    times: Float[Array, " times"]
    """The save times, shape `(T,)`."""
    stored: Any
    """What was kept at `times`, or how to read it: see `saved`."""
    last: Any
    """What was kept of the last resolved state: see `final`."""
    outcome: Outcome
    """How the computing ended."""
    stats: dict[str, Any]
    """What it took: `steps`, `rejected`, `seconds`, and more by the kind of run."""
    system: AbstractSystem
    """The equation that was solved, for the tokens that were kept."""
    discrete: bool = eqx.field(static=True)
    """Whether these are layers, without states in between."""
    fate: Fate | None = eqx.field(static=True, default=None)
    """What becomes of a Gaussian in a flow; None for tokens, densities and layers, and under tracing."""
    statistics: dict[str, Array] = eqx.field(default_factory=dict)
    """What the observers saw, by name, each with a leading axis of times."""
    whole: AbstractSystem | None = None
    """The equation for all tokens, if only a sample of them was kept."""

    @property
    def field(self) -> Any:
        """The field that moved the measure."""
        return self.system.field

    @property
    def moved_by(self) -> str:
        """What moved the measure, in a word or two: the kind of the field, or so many layers."""
        return f"{int(self.stats['steps'])} layers" if self.discrete else type(self.field).__name__

    @property
    def saved(self) -> Any:
        """What was kept of the states at `times`; read from disk now, if the run was loaded."""
        return self.stored() if isinstance(self.stored, Lazy) else self.stored

    @property
    def states(self) -> Any:
        """The measures at `times`, stacked along a leading axis: tokens have shape `(T, n, d)`; `states[k]` is one."""
        return self.system.states(self.saved)

    @property
    def final(self) -> Any:
        """The last resolved state, in the run's frame."""
        system = self.system if self.whole is None else self.whole
        return system.measure(system.restored(self.last))

    @property
    def points(self) -> Float[Array, "times n d"]:
        """The tokens at `times`, in the run's frame, shape `(T, n, d)`."""
        return self.states.points

    @property
    def propagators(self) -> Float[Array, "times d d"] | None:
        r"""$\Phi$ at `times`, $x=\Phi z$, shape `(T, d, d)`; None in the original frame."""
        return self.saved[1] if isinstance(self.system, ParticleSystem) else None

    def original(self) -> "Trajectory":
        r"""The same run out of its rescaled frame, $x=\Phi z$."""
        if self.propagators is None or not isinstance(self.system, ParticleSystem):
            return self
        saved, last = ((jnp.einsum("...ij,...nj->...ni", Phi, z), None) for z, Phi in (self.saved, self.last))
        return eqx.tree_at(
            lambda run: (run.stored, run.last, run.system.frame, *([] if run.whole is None else [run.whole.frame])),
            self,
            (saved, last, *[Original()] * (1 if self.whole is None else 2)),
        )

    def at(self, t: Any) -> Any:
        """The state at time `t`. A run with error control goes on from the save time before, as accurately as it was
        made; under tracing, and with a constant step, it is cubic Hermite interpolation between save times (fourth
        order in their spacing); of densities the mixture of those at the two save times, which is a density.
        """
        if self.discrete:
            checks.refuse(
                "layers have no state between layers",
                got=f"t = {t}",
                expected="one of run.times",
                remedy="index the states: run.states[k]; or use mf.flow for continuous time",
            )
        self.need_all_tokens("at(t)")
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
            return self.system.measure(self.system.restored(jax.tree.map(lambda a: a[0], self.saved)))
        # The sums of a velocity are as accurate as they were in the run.
        planner = Planner(self.stats.get("accuracy"), {})
        if checks.known(t, self.times, self.saved):
            times, t = np.asarray(self.times), np.asarray(t)
            k = int(np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2))
            return self.system.measure(self._state_at(times, k, t, planner))
        if breaks_of(self.system.field):
            checks.refuse(
                "a piecewise run needs known times",
                got="traced times",
                expected="numbers",
                remedy="call at(t) outside of jit, vmap and grad",
            )
        k = jnp.clip(jnp.searchsorted(self.times, t, side="right") - 1, 0, self.times.shape[0] - 2)
        return self.system.measure(self.system.between(self.times, self.saved, k, t, planner.fitted))

    def _state_at(self, times: np.ndarray, k: int, t: Any, planner: Planner) -> Any:
        """The state at a known time between save times `k` and `k + 1`."""
        from .between import went_on

        for place in (k, k + 1):
            if times[place] == t:
                return self.system.restored(jax.tree.map(lambda a, i=place: a[i], self.saved))
        y = self.system.restored(jax.tree.map(lambda a: np.asarray(a)[k], self.saved))
        piece = planner.fitted(self.system.in_piece(self.times, k), times[k], y)
        moved = went_on(piece, self.stats, times[k], y, t)
        return self.system.between(self.times, self.saved, k, t, planner.fitted) if moved is None else moved

    def need_all_tokens(self, asker: str) -> None:
        """Refuse what a sample of the tokens does not tell."""
        if self.whole is not None:
            checks.refuse(
                f"{asker} needs all tokens",
                got=f"a run that kept a sample of {self.system.size} of {self.whole.size} tokens",
                expected="a run with all of them",
                remedy="run again without sample=, with fewer save times; or use run.final and run.statistics",
            )

    def clusters(self, tolerance: float = 0.01) -> Clusters:
        """The clusters of the final state: see `mf.clusters`."""
        return clusters(self.final, tolerance)

    def to_xarray(self) -> "xarray.Dataset":
        """The run as a labelled dataset: points over (time, token, coordinate), weights, positions, outcome."""
        import xarray

        data = _arrays(self.system, jax.device_get(self.saved))
        attributes = {
            "outcome": str(self.outcome),
            "field": type(self.field).__name__,
            "frame": type(getattr(self.system, "frame", Original())).__name__,
            "convention": CONVENTION,
            **({} if self.fate is None else {"fate": str(self.fate)}),
            **{key: value if isinstance(value, str) else float(value) for key, value in self.stats.items()},
        }
        for name, values in self.statistics.items():
            axes = tuple(f"{name}_{a}" for a in range(values.ndim - 1))
            data[f"all_{name}"] = (("time", *axes), jax.device_get(values))
        return xarray.Dataset(data, coords={"time": jax.device_get(self.times)}, attrs=attributes)

    def summary(self) -> str:
        """The run in one line."""
        count = f"{int(self.stats['steps'])} {'layers' if self.discrete else 'steps'}"
        name = "" if self.discrete else f"{type(self.field).__name__}, "
        system = self.system if self.whole is None else self.whole
        return f"{name}{system.summary()}: {count}; {self.outcome}" + ("" if self.fate is None else f"; {self.fate}")

    def __repr__(self) -> str:
        return f"<Trajectory: {'traced' if is_traced(self.stored) or self.times.ndim != 1 else self.summary()}>"

    def save(self, path: Any) -> Any:
        """Write the run to a folder, from which `mf.load(path)` reads it. Returns the path."""
        from ..store.journal import save

        return save(self, path)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """A picture of the tokens and their paths (d = 1, 2, 3), of the covariance, or of the density, as axes of
        matplotlib.

        `run.plot().figure.savefig("run.png")` writes it to a file. Options: see `meanformer.plots.tokens.plot_run`,
        `meanformer.plots.gaussians.plot_gaussian_run` and `meanformer.plots.densities.plot_density_run`.
        """
        from ..plots.densities import plot_density_run
        from ..plots.gaussians import plot_gaussian_run
        from ..plots.tokens import plot_run

        pictures = {PointCloud: plot_run, Gaussian: plot_gaussian_run, Density: plot_density_run}
        return pictures[type(self.system.mu)](self, ax=ax, **options)

    def animate(self, path: Any, **options: Any) -> Any:
        """An animation of the tokens, the Gaussian or the density, written to `path`: .gif, or .mp4 with ffmpeg.

        Options: `frames=90` pictures, `fps=20` a second, `title`, `progress`; for tokens also `colour` ("clusters",
        "positions", or colours), `coordinates` (one to three of them), `size`, and `view`, half the width. Returns the
        path.
        """
        from ..plots.moving import animate_density_run, animate_gaussian_run
        from ..plots.tokens import animate_run

        films = {PointCloud: animate_run, Gaussian: animate_gaussian_run, Density: animate_density_run}
        return films[type(self.system.mu)](self, path, **options)

    def to_dataframe(self) -> "pandas.DataFrame":
        """The run as a table, in the run's frame (`run.original()` leaves a rescaled one). No row is there twice:

        - tokens: a row for each time and token, with the columns `time`, `token`, `x1` to `xd`, `weight`, and
          `position` if tokens have positions;
        - a Gaussian: a row for each time, with `time`, `mean1` to `meand`, and `cov1_1`, `cov1_2`, ..., each entry of
          the covariance once;
        - a density: a row for each time and cell, with `time`, `position` if there are positions, `x1` and `x2`, `mass`
          and `density`.

        `frame.attrs` has the outcome, the field and the rest of what `to_xarray` tells.
        """
        return run_table(self.to_xarray())

    @shown
    def _repr_html_(self) -> Html:
        known = not isinstance(self.stored, Lazy) or self.stored.known
        return run_card(self, _arrays(self.system, jax.device_get(self.saved)) if known else None)


def observed(
    observer: Observer,
    system: AbstractSystem,
    times: Array,
    records: Any,
    last: Any,
    outcome: Outcome,
    stats: dict[str, Any],
    discrete: bool,
) -> Trajectory:
    """The trajectory of what an observer recorded."""
    saved, statistics = records
    return assembled(
        Trajectory,
        times=times,
        stored=saved,
        last=last,
        outcome=outcome,
        stats=stats,
        system=observer.seen(system),
        discrete=discrete,
        fate=None,
        statistics=statistics,
        whole=None if observer.tokens is None else system,
    )


def _arrays(system: AbstractSystem, saved: Any) -> dict[str, Any]:
    """The variables of a dataset: names, axes, values."""
    if isinstance(system.mu, Density):
        return _density_arrays(system.mu, *saved)
    if not isinstance(system, ParticleSystem):
        mean, factor = saved
        cov = np.einsum("tir,tjr->tij", factor, factor)
        return {
            "mean": (("time", "coordinate"), mean),
            "covariance": (("time", "coordinate", "coordinate_"), cov),
            "factor": (("time", "coordinate", "column"), factor),
        }
    mu = system.mu
    data: dict[str, Any] = {"points": (("time", "token", "coordinate"), saved[0])}
    data["weights"] = (("token",), jax.device_get(mu.weights))
    if mu.positions is not None:
        data["positions"] = (("token",), jax.device_get(mu.positions))
    if saved[1] is not None:
        data["propagators"] = (("time", "coordinate", "coordinate_"), saved[1])
    return data


def _density_arrays(rho: Density, masses: Any, lost: Any) -> dict[str, Any]:
    rows = () if rho.positions is None else ("position",)
    axes = tuple(f"x{a + 1}" for a in range(rho.d))
    data: dict[str, Any] = {
        "masses": (("time", *rows, *axes), masses),
        "density": (("time", *rows, *axes), masses / np.prod(np.asarray(rho.spacing))),
        "mass_lost": (("time",), lost),
    }
    for a, name in enumerate(axes):
        data[name] = ((name,), np.asarray(rho.centres(a)))
    if rho.positions is not None:
        data["position"] = (("position",), np.asarray(rho.positions))
    return data

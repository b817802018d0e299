r"""The weak form of the Transformer PDE, which every representation of a measure must satisfy."""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm
from ..attention.base import AbstractField
from ..attention.schedule import breaks_of, check_velocity, frozen
from ..attention.view import View
from ..measures.cloud import PointCloud
from ..measures.convert import spread
from ..measures.density import Density


@dataclass(frozen=True, eq=False)
class WeakResidual:
    r"""How well a run solves the Transformer PDE in the weak sense, at its save times.

    - `times`, shape `(T,)`; `frequencies`, shape `(m, d)`: the test functions are $\varphi(x)=e^{i\omega\cdot x}$;
    - `residual`, shape `(T, m)`:
      $\big|\int\varphi\,d\mu_t-\int\varphi\,d\mu_0-\int_0^t\!\int\nabla\varphi\cdot\Gamma_\mu\,d\mu\,ds\big|$;
    - `scale`, shape `(m,)`: the largest change $|\int\varphi\,d\mu_t-\int\varphi\,d\mu_0|$ along the run;
    - `quadrature`: an estimate of the part that is quadrature in time, from half of the save times (nan: too few);
    - `worst`: the largest residual over times and frequencies; `relative`: over the largest scale.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    weak = mf.weak_residual(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0))
    assert weak.frequencies.shape == (8, 2) and weak.residual.shape == (len(weak.times), 8)
    assert weak.worst == weak.residual.max()
    ```

    MATH c.
    """

    times: np.ndarray
    frequencies: np.ndarray
    residual: np.ndarray
    scale: np.ndarray
    quadrature: float

    @property
    def worst(self) -> float:
        """The largest residual over times and frequencies, a float."""
        return float(self.residual.max())

    @property
    def relative(self) -> float:
        """The largest residual over the largest change of a test integral, a float."""
        return self.worst / max(float(self.scale.max()), 1e-300)

    def __str__(self) -> str:
        return (
            f"weak residual {self.worst:.3g} over {len(self.frequencies)} test functions until "
            f"t = {self.times[-1]:.4g} ({self.relative:.3g} of the largest change)"
        )

    __repr__ = __str__


def weak_residual(
    run: Any, frequencies: Any = None, *, field: AbstractField | None = None, count: int = 8, seed: int = 0
) -> WeakResidual:
    r"""The residual of the weak form of the Transformer PDE, integrated in time,

    $$\frac d{dt}\int\varphi\,d\mu=\int\nabla\varphi\cdot\Gamma_\mu\,d\mu .$$

    For runs of tokens, Gaussians (all integrals in closed form) and densities. Test functions are
    $\varphi(x)=e^{i\omega\cdot x}$, and $e^{i(\omega\cdot x+\kappa s)}$ where tokens have positions; between save
    times the integral is that of a cubic spline, so that the residual of an exact run is of fourth order in
    their distance: save often.

    **Arguments:** a run with three save times or more; `frequencies`, shape `(m, d)`, by default `count` random ones
    (by `seed`) of the size of one over the largest distance that the measure spreads or moves; `field`, the field to
    test against, by default that of the run: a run of another field shows.

    **Returns:** a `WeakResidual`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    run = mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0)
    assert mf.weak_residual(run).relative < 1e-5
    assert mf.weak_residual(run, field=mf.Softmax(I, I, -I)).relative > 0.1
    ```

    MATH c.
    """
    run = _checked_run(run)
    seed = checks.whole(seed, "seed", 0)
    tested: AbstractField = run.field if field is None else field
    mu = run.system.mu
    check_velocity(tested, mu, run.times[0])
    omega = _frequencies(run, frequencies, count, seed)
    kappa = np.zeros(len(omega))
    if getattr(mu, "positions", None) is not None:
        kappa = np.pi * (np.arange(len(omega)) % 3)
    times = np.asarray(run.times, float)
    values = np.zeros((len(times), len(omega)), complex)
    integral, quadrature = np.zeros_like(values), 0.0
    # Between two breaks the weights are continuous, and so are the rates.
    for first, last in itertools.pairwise(_ends(tested, times)):
        piece = frozen(tested, float(times[first : last + 1].mean()))
        system = eqx.tree_at(lambda s: s.field, run.system, piece)
        rates = []
        for k in range(first, last + 1):
            values[k], rate = _moment(system, run.times[k], _row(run, k), omega, kappa)
            rates.append(rate)
        gained = _integral(times[first : last + 1], np.array(rates))
        integral[first : last + 1] = integral[first] + gained
        if last - first >= 4:
            # Of fourth order: half of the times have an error sixteen times as large.
            half = _integral(times[first : last + 1 : 2], np.array(rates)[::2])
            quadrature = np.maximum(quadrature, np.abs(gained[::2] - half).max() / 15)
        else:
            quadrature = np.nan
    residual = np.abs(values - values[0] - integral)
    return WeakResidual(times, omega, residual, np.abs(values - values[0]).max(axis=0), float(quadrature))


def _integral(times: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Integrals from the first time on, of a cubic spline."""
    spline = CubicSpline(times, rates, axis=0).antiderivative()
    return spline(times) - spline(times[0])


def finished_run(run: Any, asker: str) -> Any:
    """`run`, if it is one finished run, in the original frame and up to where it is finite."""
    if not hasattr(run, "system") or not hasattr(run, "saved"):
        checks.refuse(
            f"{asker} takes a run",
            got=checks.described(run),
            expected="a Trajectory of mf.flow or mf.layers",
            remedy=f"mf.{asker}(mf.flow(field, tokens, t1=1.0))",
        )
    if jnp.ndim(run.outcome.code) or not checks.known(run.times, run.outcome.code):
        checks.refuse(
            f"{asker} takes one finished run",
            got="a traced run, or a batch",
            expected="a run outside of jit, vmap and grad",
            remedy="call mf.flow outside of jit, one run at a time",
        )
    run.need_all_tokens(asker)
    return _resolved(run.original())


def _checked_run(run: Any) -> Any:
    run = finished_run(run, "weak_residual")
    if len(run.times) < 3:
        checks.refuse(
            "a weak residual needs save times",
            got=f"{len(run.times)} of them",
            expected="3 or more",
            remedy='layers(..., save="all")' if run.discrete else "flow(..., save=101), the default for small measures",
        )
    return run


def _resolved(run: Any) -> Any:
    """A run up to where it and its velocity are finite: layers keep the rows after an overflow, flows do not."""
    rows = [leaf.reshape(len(run.times), -1) for leaf in map(np.asarray, jax.tree.leaves(run.saved))]
    finite = np.all([np.isfinite(leaf).all(axis=1) for leaf in rows], axis=0)
    if finite.all():
        return run
    count = max(int(np.argmin(finite)) - 1, 1)  # the velocity at the last finite row is what overflowed
    cut = run.times[:count], jax.tree.map(lambda a: a[:count], run.saved)
    return dataclasses.replace(run, times=cut[0], stored=cut[1])


def _ends(field: AbstractField, times: np.ndarray) -> list[int]:
    """The first and the last save time and those at breaks of the field, by number."""
    ends = {0, len(times) - 1}
    for b in breaks_of(field):
        if times[0] < b < times[-1]:
            k = int(np.argmin(np.abs(times - b)))
            if abs(times[k] - b) > 1e-6 * (times[-1] - times[0]):
                checks.refuse(
                    "the breaks of the field must be save times",
                    got=f"a break at {b:g}, and no save time nearer than {times[k]:g}",
                    expected="a save time at every break, as in a run of this field",
                    remedy="flow(..., save=...) with the breaks among the times",
                )
            ends.add(k)
    return sorted(ends)


def _frequencies(run: Any, frequencies: Any, count: int, seed: int) -> np.ndarray:
    d = run.system.mu.d
    if frequencies is None:
        spread = _reach(run) / np.sqrt(d) or 1.0
        count = checks.whole(count, "count")
        checks.fits_in_memory(f"{count} test functions", 64 * count * len(run.times), "take fewer of them")
        return np.random.default_rng(seed).normal(size=(count, d)) / spread
    omega = np.asarray(checks.matrix(frequencies, "frequencies"), float)
    if omega.shape[1] != d:
        checks.refuse(
            "frequencies must live in the space of the measure",
            got=f"shape {omega.shape} for d = {d}",
            expected=f"shape (m, {d})",
            remedy="one row per test function",
        )
    return omega


def _reach(run: Any) -> float:
    """The largest root mean square distance to the mean of the start, along the run."""
    states = run.states
    means, (covariances, units) = np.asarray(states.mean), map(np.asarray, spread(states))
    with np.errstate(over="ignore", invalid="ignore"):  # a blow-up: what is beyond the range does not count
        deviations = np.sqrt(np.trace(covariances, axis1=-2, axis2=-1)) * units.reshape(-1)
        lengths = norm(np.stack([deviations, norm(means - means[0], axis=1)], axis=1), axis=1)
    return float(lengths[np.isfinite(lengths)].max(initial=0.0))


def _row(run: Any, k: int) -> Any:
    return run.system.restored(jax.tree.map(lambda a: a[k], run.saved))


def _moment(system: Any, t: Any, y: Any, omega: np.ndarray, kappa: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""$\int\varphi\,d\mu$ and $\int\nabla\varphi\cdot\Gamma_\mu\,d\mu$ for each test function."""
    if isinstance(system.mu, (PointCloud, Density)):
        x, w, s, velocity = (np.asarray(a) for a in _tokens(system, t, y))
        wave = w[:, None] * np.exp(1j * (x @ omega.T + s[:, None] * kappa))
        return wave.sum(axis=0), (1j * (velocity @ omega.T) * wave).sum(axis=0)
    (m, L), (u, GL) = ([np.asarray(a) for a in pair] for pair in (y, _velocity(system, t, y)))
    value = np.exp(1j * (omega @ m) - 0.5 * np.sum((omega @ L) ** 2, axis=1))
    # E[(w.G(x - m)) e^{iw.x}] = i (w.G Sigma w) E[e^{iw.x}] (Stein).
    return value, (1j * (omega @ u) - np.sum((omega @ GL) * (omega @ L), axis=1)) * value


@program
def _velocity(system: Any, t: Any, y: Any) -> Any:
    return system.velocity(t, y)


@program
def _tokens(system: Any, t: Any, y: Any) -> Any:
    """Points, weights, positions and velocities of tokens, or of the cells of a density."""
    measure = system.measure(y)
    cloud = measure.cloud() if isinstance(measure, Density) else measure
    if isinstance(measure, Density):
        velocity = system.field.evaluate(cloud, cloud.points, t, View(cloud.positions))
    else:
        velocity = system.velocity(t, y)
    s = jnp.zeros_like(cloud.weights) if cloud.positions is None else cloud.positions
    return cloud.points, cloud.weights, s, velocity

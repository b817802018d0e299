r"""Numbers of any run over time: the eigenvalues of its covariance, its ranks, the radius of its tokens."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from ..diagnostics.bounds import grown_radii
from ..diagnostics.spectra import effective_rank, participation_ratio, stable_rank
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from ..spaces import Sphere
from . import style
from .fates import axes_for, beside
from .gaussians import _log_places, _log_ticks, plot_spectrum

RANKS = {"effective rank": effective_rank, "participation ratio": participation_ratio, "stable rank": stable_rank}
# Values that span more than this factor are drawn on a logarithmic axis.
LARGE = 20.0
# Numbers that take time are found at so many save times at the most.
MOST_TIMES = 41


def moments(run: Any) -> Any:
    r"""A run seen through its means and factors $L$, $\Sigma=LL^\top$, as the pictures of Gaussians see it.

    Factors of tokens come from the tokens, not from their covariance, so that small eigenvalues are exact. Of a sample
    of the tokens the covariance of all of them is known.
    """
    mu = run.system.mu
    if isinstance(mu, Gaussian):
        return run
    times, fate = np.asarray(run.times, np.float64), SimpleNamespace(kind="", time=np.nan, rank=-1)
    if isinstance(mu, PointCloud) and run.whole is None:
        weights, points = np.asarray(mu.weights, np.float64), np.asarray(run.points, np.float64)
        finite = np.asarray(np.isfinite(points).all(axis=(1, 2)))
        points = np.where(finite[:, None, None], points, 0.0)
        means = np.einsum("n,tnd->td", weights, points)
        spread = np.sqrt(weights)[None, :, None] * (points - means[:, None])
        factors = np.full((len(times), mu.d, mu.d), np.nan)
        rows = np.swapaxes(np.asarray(np.linalg.qr(spread[finite], mode="r")), 1, 2)
        factors[finite] = np.pad(rows, ((0, 0), (0, 0), (0, mu.d - rows.shape[2])))
    else:
        of = run.statistics if isinstance(mu, PointCloud) else {"mean": run.states.mean}
        means, covariances = np.asarray(of["mean"], np.float64), _covariances(run)
        values, vectors = np.linalg.eigh(covariances)
        factors = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return SimpleNamespace(times=times, states=SimpleNamespace(mean=means, factor=factors), fate=fate, field=run.field)


def _covariances(run: Any) -> np.ndarray:
    known = run.statistics["covariance"] if run.whole is not None else run.states.covariance
    return np.asarray(known, np.float64)


def plot_run_spectrum(run: Any, ax: Any = None, *, title: str | None = None) -> Any:
    r"""The eigenvalues of the covariance of any run over time: see `meanformer.plots.gaussians.plot_spectrum`."""
    if title is None and not isinstance(run.system.mu, Gaussian):
        title = f"{run.moved_by}: covariance of the {_kind(run)}"
    return plot_spectrum(moments(run), ax, title=title)


def plot_ranks_along(run: Any, ax: Any = None, *, legend: bool = True, title: str | None = None) -> Any:
    r"""Effective rank, participation ratio and stable rank of the covariance over the time of a run (MATH g)."""
    times, covariances = np.asarray(run.times, np.float64), _covariances(run)
    finite = _some(np.flatnonzero(np.isfinite(covariances).all(axis=(1, 2))))
    curves = {name: np.array([float(rank(_symmetric(covariances[k]))) for k in finite]) for name, rank in RANKS.items()}
    with style.style():
        ax = axes_for(ax, (7.0, 4.0))
        _draw_over_time(ax, times[finite], curves, ["-", (0, (5, 2)), (0, (1, 1.5))])
        d = covariances.shape[1]
        ax.axhline(d, color=style.FAINT, linewidth=1.0, zorder=1)
        ax.set(ylabel="ranks of $\\Sigma(t)$", ylim=(0.9, max(1.1, d + 0.1 * max(1, d - 1))))
        if legend:
            beside(ax)
        words = f"{run.moved_by}: how many directions carry the variance, of {d}"
        ax.set_title(words if title is None else title)
    return ax


def plot_radius(run: Any, ax: Any = None, *, legend: bool = True, title: str | None = None) -> Any:
    r"""The radius $R(t)=\max|x|$ of the tokens over time, with the bound $e^{\int\|V\|}R_0$ where there is one."""
    times, radii, bounds = radius_along(run)
    with style.style():
        ax = axes_for(ax, (7.0, 4.0))
        curves = {"radius": radii} | ({} if bounds is None else {"bound": bounds})
        _draw_over_time(ax, times, curves, ["-", (0, (4, 2))])
        values = np.concatenate(list(curves.values()))
        positive = values[values > 0]
        if len(positive) and positive.max() > LARGE * positive.min():
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, 1.08 * values.max() or 1.0)
        ax.set_ylabel("radius $R(t)$ of the tokens")
        if legend and bounds is not None:
            beside(ax)
        note = "" if bounds is not None else " (no bound for this kind)"
        ax.set_title(f"{run.moved_by}: radius{note}" if title is None else title)
    return ax


def radius_along(run: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Times, the radius of the tokens themselves (out of any frame), and its bound, None if there is none."""
    run = run.original()
    radii = np.asarray(run.states.radius if run.whole is None else run.statistics["radius"], np.float64)
    finite = np.isfinite(radii) & np.isfinite(np.asarray(run.points)).all(axis=(1, 2))
    finite = _some(np.flatnonzero(finite))
    times, radii = np.asarray(run.times, np.float64)[finite], radii[finite]
    if isinstance(run.system.space, Sphere):
        return times, radii, np.full_like(radii, float(run.system.space.radius))
    if run.discrete:  # a run of layers keeps its first layer only, and the bound is of flows
        return times, radii, None
    # From the first saved radius, which need not be that of the start.
    radius, t0, later = (number.astype(run.system.dtype) for number in (radii[0], times[0], times))
    bounds = grown_radii(run.field, radius, t0, later)
    known = None if bounds is None else np.asarray(bounds, np.float64)
    return times, radii, known if known is None or np.isfinite(known).all() else None


def _draw_over_time(ax: Any, times: np.ndarray, curves: dict[str, np.ndarray], dashes: list[Any]) -> None:
    """Curves over time; the time is logarithmic if most save times are early."""
    positive = times[times > times[0]]
    keep, places = np.arange(len(times)), times
    if times[0] >= 0 and len(positive) > 1 and positive[-1] > LARGE * np.median(positive):
        keep, places = _log_places(times, np.stack(list(curves.values()), axis=1))
        _log_ticks(ax, times, places)
    for k, (name, values) in enumerate(curves.items()):
        look: dict[str, Any] = {"color": style.PALETTE[k], "linestyle": dashes[k % len(dashes)]}
        ax.plot(places, values[keep], linewidth=1.8, label=name, zorder=3, **look)
        if len(keep) == 1:
            ax.plot(places, values[keep], "o", color=style.PALETTE[k], markersize=4)
    ax.set_xlabel("time $t$")


def _some(rows: np.ndarray) -> np.ndarray:
    """At most `MOST_TIMES` of these, the first and the last among them."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, MOST_TIMES).round().astype(int))]


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _kind(run: Any) -> str:
    return "tokens" if isinstance(run.system.mu, PointCloud) else "density"

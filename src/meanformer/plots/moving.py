r"""Films of Gaussians and of densities: `run.animate(path)`."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import _checks as checks
from . import style
from .densities import SCALES, _draw_laws, _draw_planes, _heading, _history, _reach
from .fates import heading, history
from .film import Moving, film_path, write_film
from .gaussians import THIN, _centres, _draw_ellipse, _in_view, plot_gaussian_run
from .tokens import _clock, square_limits

# So many earlier ellipses stay in the picture, faint.
TRAIL = 6


def animate_gaussian_run(
    run: Any,
    path: Any,
    *,
    fps: int = 20,
    frames: int = 90,
    deviations: float = 2.0,
    mean: bool | None = None,
    title: str | None = None,
    progress: bool | None = None,
) -> Path:
    r"""An animation of a Gaussian run, written to `path` (.gif, or .mp4 where ffmpeg is found).

    In dimension 2 its ellipse, of `deviations` standard deviations, with the earlier ones faint; in dimension 1 the
    band $m\pm\delta\sigma$, in higher dimension the eigenvalues of $\Sigma$, drawn as time goes on. There are at most
    `frames` pictures, at save times; a run that grows leaves the picture. `mean` is that of `plot_gaussian_run`,
    `progress` that of `mf.flow`.

    **Returns:** the path.
    """
    path = film_path(path)
    fps, frames = checks.whole(fps, "fps"), checks.whole(frames, "frames", 2)
    times, means, factors = history(run)
    d = means.shape[1]
    shown = _pictures(len(times), frames)
    with style.style():
        figure = Figure(figsize=style.SINGLE if d == 2 else (7.0, 4.4), layout="constrained")
        ax: Any = figure.add_subplot()
        words = heading(run, d) if title is None else title
        if d != 2:
            plot_gaussian_run(run, ax, deviations=deviations, mean=mean, legend=False, title=words)
            return _write_unveiling(path, figure, ax, times[shown], fps, progress)
        checks.positive(deviations, "deviations", "two standard deviations: deviations=2.0")
        axes, spreads, _ = np.linalg.svd(factors, full_matrices=True)
        lengths = deviations * np.pad(spreads, ((0, 0), (0, max(0, d - spreads.shape[1]))))[:, :d]
        centres, moves = _centres(run, means, lengths[:, 0], mean)
        with np.errstate(invalid="ignore"):
            reach = np.linalg.norm(centres - centres[0], axis=1) + lengths[:, 0]
        seen, _ = _in_view(run, np.where(np.isnan(reach), np.inf, reach))
        boxes = np.linalg.norm(axes * lengths[:, None, :], axis=2)[seen]
        middle, half = square_limits(np.stack([centres[seen] - boxes, centres[seen] + boxes]))
        shown = shown[seen[shown]]  # what has left the picture takes no time in the film
        colours = style.ordered_colours(np.arange(len(shown), dtype=float))
        ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
        tail = "" if moves else "-m_{}(t)"
        ax.set(xlabel=f"$x_1{tail.format(1)}$", ylabel=f"$x_2{tail.format(2)}$", aspect="equal")

        def draw(k: int) -> None:
            for artist in [*ax.patches, *ax.lines]:  # not ax.clear(): axes are slow to make
                artist.remove()
            earlier = np.unique(np.linspace(0, k, TRAIL + 1).astype(int))[:-1] if k else []
            for j in [*earlier, k]:
                now, row = j == k, shown[j]
                look = (colours[j], 2.2, (*colours[j], 0.25)) if now else ((*colours[j], 0.4), 0.9, "none")
                _draw_ellipse(ax, centres[row], axes[row, :, 0], lengths[row], THIN * half, *look)
            ax.set_title(f"{words}\n{_clock(float(times[shown[k]]), float(times[shown[-1]]))}")

        return write_film(path, figure, draw, len(shown), fps, progress)


def animate_density_run(
    run: Any,
    path: Any,
    *,
    fps: int = 20,
    frames: int = 90,
    scale: str = "root",
    title: str | None = None,
    progress: bool | None = None,
) -> Path:
    r"""An animation of the run of a density, written to `path` (.gif, or .mp4 where ffmpeg is found).

    In dimension 1 its graph, with the first one faint; in dimension 2 filled contours; with positions the laws
    $\rho_t(x\mid s)$ over $(s,x)$. There are at most `frames` pictures, at save times. `scale` is that of
    `plot_density_run`, `progress` that of `mf.flow`.

    **Returns:** the path.
    """
    path = film_path(path)
    fps, frames = checks.whole(fps, "fps"), checks.whole(frames, "frames", 2)
    checks.one_of(scale, "scale", SCALES)
    times, states = _history(run)
    shown = _pictures(len(times), frames)
    words = _heading(f"{type(run.field).__name__}, density", states) if title is None else title
    values = np.asarray(states.values)
    line = states.d == 1 and states.positions is None
    limits = [] if line else _limits(states, values[shown], scale)
    with style.style():
        figure = Figure(figsize=(5.6, 5.4) if states.d == 2 else (7.0, 4.2), layout="constrained")
        ax: Any = figure.add_subplot()

        def draw(k: int) -> None:
            ax.clear()
            row = np.array([shown[k]])
            if line:
                _draw_graph(ax, states, values[shown], k, scale)
            elif states.positions is not None:
                _draw_laws(np.array([ax]), states, row, scale, False, moments=True)
                ax.set_ylim(*limits[0])
            else:
                _draw_planes(np.array([ax]), states, row, scale, False, start=True)
                ax.set(xlim=limits[0], ylim=limits[1])
            ax.set_title(f"{words}     {_clock(float(times[shown[k]]), float(times[-1]))}")

        return write_film(path, figure, draw, len(shown), fps, progress)


def _pictures(count: int, frames: int) -> np.ndarray:
    """The rows of at most `frames` of `count` saved states, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(frames, count)).round().astype(int))


def _write_unveiling(path: Path, figure: Figure, ax: Any, times: np.ndarray, fps: int, progress: bool | None) -> Path:
    """A picture over time whose future is veiled, and appears as the time goes on."""
    low, high = ax.get_xlim()
    veil = ax.axvspan(low, high, color=style.PAPER, alpha=0.88, linewidth=0, zorder=6)
    now = ax.axvline(low, color=style.INK, linewidth=1.0, zorder=7)

    def draw(k: int) -> Moving:
        at = float(np.clip(times[k], low, high)) if times[k] > 0 or ax.get_xscale() == "linear" else low
        veil.set_bounds(at, 0, high - at, 1)
        now.set_xdata([at, at])
        ax.set_xlim(low, high)
        return veil, now

    return write_film(path, figure, draw, len(times), fps, progress)


def _draw_graph(ax: Any, states: Any, values: np.ndarray, k: int, scale: str) -> None:
    x = np.asarray(states.centres(0))
    low, high = _reach(values, np.asarray(states.edges(0)), scale)
    ax.plot(x, values[0], color=style.FAINT, linewidth=1.3, zorder=2)
    ax.plot(x, values[k], color=style.PALETTE[0], linewidth=2.0, zorder=3)
    top = 1.06 * values[: k + 1].max()
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(1e-6 * top, 2 * values.max())
    else:
        ax.fill_between(x, 0, values[k], color=style.PALETTE[0], alpha=0.18, linewidth=0)
        ax.set_ylim(0, top)
    margin = 0.05 * (high - low)
    ax.set(xlim=(low - margin, high + margin), xlabel="$x$", ylabel=r"$\rho_t(x)$")


def _limits(states: Any, values: np.ndarray, scale: str) -> list[tuple[float, float]]:
    """The same limits for all pictures: around what there is to see at one of the times."""
    if states.positions is not None:
        totals = values.sum(axis=-1, keepdims=True)
        low, high = _reach(values / np.where(totals > 0, totals, 1), np.asarray(states.edges(0)), scale)
        return [(low, high)]
    reach = [_reach(values.max(axis=2 - axis), np.asarray(states.edges(axis)), scale) for axis in range(2)]
    middle, half = square_limits(np.transpose(reach))
    return [(float(m - half), float(m + half)) for m in middle]

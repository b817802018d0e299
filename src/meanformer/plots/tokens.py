"""Tokens and their paths: `run.plot()` and `run.animate(path)`."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from .. import _checks as checks
from ..diagnostics.clusters import clusters
from ..flows.trajectory import Trajectory
from . import style
from .film import Moving, film_path, write_film
from .labels import draw_labels

# A path is drawn in this many pieces, each stronger than the one before.
FADE_PIECES = 14
# More paths than this are a blot: of larger clouds only every so many-th token leaves a path.
MAX_PATHS = 500
# More clusters than the palette has colours are told apart by shades, up to this many.
MANY_CLUSTERS = 20


def plot_run(
    run: Trajectory,
    ax: Any = None,
    *,
    colour: Any = None,
    coordinates: Sequence[int] | None = None,
    paths: bool = True,
    start: bool = True,
    size: float = 18.0,
    view: float | None = None,
    title: str | None = None,
    labels: Sequence[str] | None = None,
) -> Any:
    """A picture of a run: tokens at its end, their paths (fading towards the past) and where they started.

    In dimension 1 the tokens are curves over time; in 2 and 3 they are drawn in space.

    **Arguments:**

    - `ax`: axes to draw into (for d = 3 with `projection="3d"`); a new figure by default.
    - `colour`: one colour (a name, or a tuple of red, green, blue); or, per token, a label (integers: categories) or
      a value (floats: dark to light). By default the positions of masked tokens, else the final clusters if there are
      at most twenty.
    - `coordinates`: which coordinates to draw, e.g. `(0, 3)`; all of them if there are at most three.
    - `paths`, `start`: whether to draw the paths and the first tokens; `size`: area of a token of mean weight.
    - `view`: half the width of the picture around 0; by default it holds all paths.
    - `labels`: names of the tokens, such as `tokens.labels` of an `mf.Labelled`: written beside their ends, forty at
      most, and none upon another.

    **Returns:** the axes; `ax.figure.savefig("run.png")` saves the picture.
    """
    times, points = _resolved(run, coordinates)
    colours = _colours(run, colour)
    d = points.shape[2]
    with style.style():
        if ax is None:
            import matplotlib.pyplot as plt  # only here: a picture on the screen needs its figure manager

            figure = plt.figure(figsize=style.WIDE if d == 1 else style.SINGLE, layout="constrained")
            ax = figure.add_subplot(projection="3d" if d == 3 else None)
        if (getattr(ax, "name", "") == "3d") != (d == 3):
            checks.refuse(
                "the axes do not fit the dimension",
                got=f"{'three' if d != 3 else 'two'}-dimensional axes for d = {d}",
                expected='axes with projection="3d" if and only if d = 3',
                remedy="leave ax out, or choose coordinates=(0, 1)",
            )
        sizes = _sizes(run, size)
        if d == 1:
            _draw_curves(ax, times, points[:, :, 0], colours)
        else:
            if paths:
                draw_paths(ax, points, colours)
            if start:
                _scatter(ax, points[0], s=0.35 * sizes, color=style.FAINT, zorder=1.5)
            _scatter(ax, points[-1], s=sizes, color=colours, edgecolor=style.PAPER, linewidth=0.4, zorder=3)
        _frame(ax, points, _names(run, coordinates), view)
        if labels is not None:
            draw_labels(ax, _ends(ax, times, points), labels, areas=sizes)
        ax.set_title(_heading(run) if title is None else title)
    return ax


def animate_run(
    run: Trajectory,
    path: Any,
    *,
    fps: int = 20,
    frames: int = 90,
    colour: Any = None,
    coordinates: Sequence[int] | None = None,
    size: float = 20.0,
    view: float | None = None,
    title: str | None = None,
    progress: bool | None = None,
) -> Path:
    """An animation of a run, written to `path` (.gif, or .mp4 where ffmpeg is found), with `frames` pictures.

    They follow the save times: equally spaced ones are equally spaced in the film. Layers have no state between layers
    and jump. `colour`, `coordinates`, `size`, `view`, `title` are those of `plot_run`; `progress` is that of `mf.flow`.

    **Returns:** the path.
    """
    path = film_path(path)
    fps, frames = checks.whole(fps, "fps"), checks.whole(frames, "frames", 2)
    saved, _ = _resolved(run, coordinates)
    times = np.interp(np.linspace(0, len(saved) - 1, frames), np.arange(len(saved)), saved)
    points = _film_points(run, times, coordinates)
    colours, sizes, d = _colours(run, colour), _sizes(run, size), points.shape[2]
    with style.style():
        figure = Figure(figsize=style.WIDE if d == 1 else style.SINGLE, layout=None if d == 3 else "constrained")
        ax: Any = figure.add_subplot(projection="3d" if d == 3 else None)
        if d == 3:  # the labels of a cube that turns need room on all sides
            figure.subplots_adjust(left=0.0, right=0.93, bottom=0.03, top=0.93)
        heading = ax.set_title(_heading(run) if title is None else title, loc="left")
        clock = ax.set_title(_clock(float(times[-1]), float(times[-1])), loc="right")
        _frame(ax, points, _names(run, coordinates), view)
        if d == 1:
            ax.set_xlim(times[0], times[-1] if times[-1] > times[0] else times[0] + 1)
            if view is None:
                centre, half = square_limits(points)
                ax.set_ylim(centre[0] - half, centre[0] + half)

        figure.draw_without_rendering()
        if heading.get_window_extent().x1 > clock.get_window_extent().x0:
            heading.set_text(f"{heading.get_text()}\n")  # above the clock

        def draw(k: int) -> Moving:
            for artist in [*ax.collections, *ax.lines]:  # not ax.clear(): axes are slow to make
                artist.remove()
            if d == 1:
                _draw_curves(ax, times[: k + 1], points[: k + 1, :, 0], colours)
            else:
                draw_paths(ax, points[max(0, k - frames // 5) : k + 1], colours)
                _scatter(ax, points[k], s=sizes, color=colours, edgecolor=style.PAPER, linewidth=0.4, zorder=3)
            clock.set_text(_clock(float(times[k]), float(times[-1])))
            if d == 3:
                ax.view_init(elev=22, azim=-60 + 40 * k / frames)
                return None
            return [*ax.lines, *ax.collections, clock]

        return write_film(path, figure, draw, frames, fps, progress)


def _clock(t: float, end: float) -> str:
    """The time of a picture, with so many digits that it changes from one to the next. It is a formula, which is slow
    to draw, only in films over decades.
    """
    if abs(end) >= 1e4:  # decades
        power = int(np.floor(np.log10(t))) if t > 0 else 0
        return f"$t={t:.2f}$" if power < 2 else f"$t={t / 10.0**power:.1f}\\times10^{{{power}}}$"
    digits = int(np.clip(2 - np.floor(np.log10(abs(end))), 0, 6)) if end else 2
    return f"t = {t:.{digits}f}"


def draw_paths(ax: Any, points: np.ndarray, colours: np.ndarray, width: float = 0.7) -> None:
    """The paths of the tokens, shape `(times, n, 2 or 3)`, faint in the past and strong at the end."""
    last, (n, d) = len(points) - 1, points.shape[1:]
    if last < 1:
        return
    keep = np.arange(0, n, -(-n // MAX_PATHS))
    edges = np.unique(np.linspace(0, last, min(FADE_PIECES, last) + 1).round().astype(int))
    lines = [line for begin, end in pairwise(edges) for line in points[begin : end + 1, keep].transpose(1, 0, 2)]
    strengths = np.repeat(0.15 + 0.45 * edges[1:] / last, len(keep))
    faded = np.column_stack([np.tile(colours[keep][:, :3], (len(edges) - 1, 1)), strengths])
    if d == 2:
        ax.add_collection(LineCollection(lines, colors=faded, linewidths=width, zorder=2))
    else:
        from mpl_toolkits.mplot3d.art3d import Line3DCollection

        # Not `add_collection3d`, which up to matplotlib 3.10 wants lines of one length.
        ax.add_collection(Line3DCollection(lines, colors=faded, linewidths=width, zorder=2))


def square_limits(points: np.ndarray, margin: float = 0.06) -> tuple[np.ndarray, float]:
    """Centre and half width of the square (or cube) around all `points`, shape `(..., d)`."""
    flat = points.reshape(-1, points.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    half = (1 + margin) * float((high - low).max()) / 2
    return (low + high) / 2, half if half > 0 else 1.0


def _chosen(run: Trajectory, coordinates: Sequence[int] | None) -> list[int]:
    d = run.points.shape[-1]
    if coordinates is None:
        if d > 3:
            checks.refuse(
                "a picture has at most three dimensions",
                got=f"tokens of dimension {d}",
                expected="d <= 3, or a choice of coordinates",
                remedy="choose some: coordinates=(0, 1)",
            )
        return list(range(d))
    chosen = [int(c) for c in coordinates]
    if not 1 <= len(chosen) <= 3 or len(set(chosen)) < len(chosen) or not all(0 <= c < d for c in chosen):
        checks.refuse(
            "these coordinates cannot be drawn",
            got=tuple(coordinates),
            expected=f"one to three different numbers from 0 to {d - 1}",
            remedy="e.g. coordinates=(0, 1)" if d > 1 else "coordinates=(0,)",
        )
    return chosen


def _resolved(run: Trajectory, coordinates: Sequence[int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Times and points up to the last finite state (layers may leave the floating-point range)."""
    chosen = _chosen(run, coordinates)
    times, points = np.asarray(run.times, float), np.asarray(run.points, float)[:, :, chosen]
    finite = np.isfinite(points).all(axis=(1, 2))
    end = len(times) if finite.all() else max(1, int(np.argmin(finite)))
    return times[:end], points[:end]


def _film_points(run: Trajectory, times: np.ndarray, coordinates: Sequence[int] | None) -> np.ndarray:
    """The tokens at any times of a run: by `run.at` where save times are few, else on the lines between them."""
    saved, points = _resolved(run, coordinates)
    if run.discrete:
        return points[np.searchsorted(saved, times + 1e-9 * (1 + np.abs(times)), side="right") - 1]
    if 2 * len(saved) < len(times) and run.whole is None:
        return np.stack([np.asarray(run.at(t).points, float) for t in times])[:, :, _chosen(run, coordinates)]
    before = np.clip(np.searchsorted(saved, times, side="right") - 1, 0, max(len(saved) - 2, 0))
    after = np.minimum(before + 1, len(saved) - 1)
    gaps = saved[after] - saved[before]
    share = np.divide(times - saved[before], gaps, out=np.zeros_like(times), where=gaps > 0)[:, None, None]
    return (1 - share) * points[before] + share * points[after]


def _colours(run: Trajectory, colour: Any) -> np.ndarray:
    """An RGB row per token."""
    mu = run.system.mu
    if colour is None:
        if mu.positions is not None:
            return style.ordered_colours(np.asarray(mu.positions, float))
        last = run.final if run.whole is None else run.states[-1]  # of a sample only its tokens have colours
        found = clusters(last) if np.isfinite(np.asarray(last.points)).all() else None
        if found is not None and len(style.PALETTE) < found.count <= MANY_CLUSTERS:
            return style.ordered_colours(np.asarray(found.labels, float))
        labels = found.labels if found is not None and found.count <= len(style.PALETTE) else np.zeros(mu.n, int)
        return style.category_colours(labels)
    if isinstance(colour, str | tuple) and colors.is_color_like(colour):
        return np.tile(colors.to_rgb(colour), (mu.n, 1))
    values = np.asarray(colour)
    if values.shape != (mu.n,) or values.dtype.kind not in "iuf":
        checks.refuse(
            "colour must be a colour, or a number per token",
            got=repr(colour) if values.ndim == 0 else f"{values.dtype} of shape {values.shape}",
            expected=f"e.g. 'black', or {mu.n} integers (categories) or floats (dark to light)",
            remedy="leave colour out: tokens are then coloured by position or by cluster",
        )
    return style.ordered_colours(values) if values.dtype.kind == "f" else style.category_colours(values)


def _sizes(run: Trajectory, size: float) -> np.ndarray:
    """Areas proportional to the weights, within bounds; tokens of zero weight stay visible as dust."""
    weights = np.asarray(run.system.mu.weights, float)
    return size * np.clip(weights / weights[weights > 0].mean(), 0.15, 12.0)


def _scatter(ax: Any, points: np.ndarray, **options: Any) -> None:
    if points.shape[1] == 3:
        ax.computed_zorder = False  # else the axes sort whole collections by depth, and starts cover final tokens
        options["depthshade"] = False
    ax.scatter(*points.T, **options)


def _draw_curves(ax: Any, times: np.ndarray, values: np.ndarray, colours: np.ndarray) -> None:
    n = values.shape[1]
    alpha = float(np.clip(12 / n, 0.25, 0.9))
    for i in range(0, n, -(-n // MAX_PATHS)):
        ax.plot(times, values[:, i], color=colours[i], alpha=alpha, linewidth=1.1, solid_capstyle="round")
    ax.scatter(np.full(n, times[-1]), values[-1], s=12, color=colours, zorder=3, clip_on=False)


def _ends(ax: Any, times: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Where the paths end in the picture; curves over time get room for labels behind them."""
    if points.shape[2] > 1:
        return points[-1]
    ax.set_xlim(right=times[-1] + 0.15 * max(times[-1] - times[0], 1e-9))
    return np.stack([np.full(points.shape[1], times[-1]), points[-1, :, 0]], axis=1)


def _frame(ax: Any, points: np.ndarray, names: list[str], view: float | None = None) -> None:
    """Limits, aspect, labels."""
    d = points.shape[2]
    if view is not None:
        view = float(checks.positive(view, "view", "half the width of the picture, e.g. view=2.0"))
    if d == 1:
        ax.set(xlabel="time $t$", ylabel=f"token ${names[0]}$", **({} if view is None else {"ylim": (-view, view)}))
        return
    centre, half = square_limits(points) if view is None else (np.zeros(d), view)
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    ax.set(xlabel=f"${names[0]}$", ylabel=f"${names[1]}$")
    for axis in (ax.xaxis, ax.yaxis, *([ax.zaxis] if d == 3 else [])):
        axis.set_major_locator(ticker.MaxNLocator(4))
    if d == 2:
        ax.set_aspect("equal")
        return
    ax.set(zlim=(centre[2] - half, centre[2] + half), zlabel=f"${names[2]}$")
    ax.set_box_aspect((1, 1, 1))
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color(colors.to_rgba(style.FAINT, 0.12))
        axis._axinfo["grid"].update(color=colors.to_rgba(style.FAINT, 0.5), linewidth=0.5)
    ax.view_init(elev=22, azim=-60)


def _names(run: Trajectory, coordinates: Sequence[int] | None) -> list[str]:
    """The names of the coordinates: z in a rescaled frame, without a number on a line."""
    symbol = "x" if run.propagators is None else "z"
    return [symbol if run.points.shape[-1] == 1 else f"{symbol}_{{{c + 1}}}" for c in _chosen(run, coordinates)]


def _heading(run: Trajectory) -> str:
    frame = "" if run.propagators is None else ", $z=e^{-tV}x$"
    return f"{run.moved_by}, {run.system.mu.n} tokens{frame}"

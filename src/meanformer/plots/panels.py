"""Several runs side by side, one panel each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ..flows.trajectory import Trajectory
from ..measures.cloud import PointCloud
from ..measures.density import Density
from . import style
from .tokens import _colours, _resolved, draw_paths, square_limits


@dataclass(frozen=True)
class Panel:
    """One panel: a run with its words. A run on the circle is drawn with time as radius, other runs as `run.plot()`."""

    run: Trajectory
    title: str
    formula: str
    caption: str
    colour: Any = None
    circle: bool = False
    still: bool = False  # only the first state
    view: float | None = None  # half width of the panel around 0; by default it holds all paths


def panel_figure(panels: Sequence[Panel], heading: str, footer: str, columns: int = 4) -> Figure:
    """A figure with one square panel per run."""
    rows = -(-len(panels) // columns)
    width, height = 3.3 * columns, 4.0 * rows + 1.05
    with style.style():
        figure = Figure(figsize=(width, height), dpi=style.DPI)
        figure.text(0.5, 1 - 0.42 / height, heading, ha="center", va="center", fontsize=19)
        figure.text(0.5, 0.24 / height, footer, ha="center", va="center", fontsize=9.5, color=style.SOFT)
        for k, panel in enumerate(panels):
            row, column = divmod(k, columns)
            # In inches, from the lower left corner: a cell of 3.3 x 4.0 with a square of 2.7.
            left, bottom = 3.3 * column + 0.3, height - 0.75 - 4.0 * (row + 1) + 0.58
            place, mu = (left / width, bottom / height, 2.7 / width, 2.7 / height), panel.run.system.mu
            tokens = isinstance(mu, PointCloud)
            ax: Any = figure.add_axes(place, projection="3d" if tokens and mu.d == 3 else None)
            if tokens and mu.d == 2:
                ax.set_axis_off()
                (_draw_circle if panel.circle else _draw_plane)(ax, panel)
            else:
                _draw_other(ax, panel)
            words = {"transform": ax.transAxes, "ha": "center"}
            write = ax.text2D if ax.name == "3d" else ax.text
            write(0.5, 1.175, panel.title, fontsize=12.5, fontweight="bold", va="center", **words)
            write(0.5, 1.07, panel.formula, fontsize=10.5, va="center", **words)
            below = -0.035 if not ax.axison else -0.1
            write(0.5, below, panel.caption, fontsize=8.8, color=style.SOFT, va="top", linespacing=1.35, **words)
        return figure


def _draw_plane(ax: Any, panel: Panel) -> None:
    _, points = _resolved(panel.run, None)
    points = points[:1] if panel.still else points
    colours = _colours(panel.run, panel.colour)
    draw_paths(ax, points, colours)
    if not panel.still:
        ax.scatter(*points[0].T, s=2.5, color=style.FAINT, zorder=1)
    whole = panel.view is None
    ax.scatter(*points[-1].T, s=15, color=colours, edgecolor=style.PAPER, linewidth=0.3, zorder=3, clip_on=not whole)
    centre, half = square_limits(points, margin=0.04) if whole else (np.zeros(2), panel.view)
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")


def _draw_other(ax: Any, panel: Panel) -> None:
    """Tokens off the plane, Gaussians and densities: their usual picture, without legend and title."""
    mu = panel.run.system.mu
    options: dict[str, Any] = {"title": ""}
    if isinstance(mu, PointCloud):
        options |= {"colour": panel.colour, "coordinates": (0, 1) if mu.d > 3 else None, "size": 9.0}
    else:
        options |= {"colour_bar" if isinstance(mu, Density) else "legend": False}
    panel.run.plot(ax, **options)
    ax.set(xlabel="", ylabel="")
    ax.tick_params(labelsize=7)


def _draw_circle(ax: Any, panel: Panel) -> None:
    """Tokens of the circle move outwards with the save times, so that merging paths stay visible."""
    _, points = _resolved(panel.run, None)
    colours = _colours(panel.run, panel.colour)
    inner = 0.3
    radii = inner + (1 - inner) * np.linspace(0, 1, len(points))
    spread = radii[:, None, None] * points
    for radius in (inner, 1.0):
        ax.add_patch(Circle((0, 0), radius, fill=False, color=style.FAINT, linewidth=0.8, zorder=1))
    draw_paths(ax, spread, colours)
    ax.scatter(*spread[0].T, s=2.5, color=style.FAINT, zorder=1)
    ax.scatter(*spread[-1].T, s=15, color=colours, edgecolor=style.PAPER, linewidth=0.3, zorder=3, clip_on=False)
    ax.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04), aspect="equal")

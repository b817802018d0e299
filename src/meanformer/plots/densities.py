r"""Densities: one (`plot_density`), and the run of one (`run.plot()`), over time or at some times.

Ink is mass: colours go from the paper to dark blue. A density that concentrates spans decades, so that colours follow
$\sqrt\rho$ unless told otherwise.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import cm, colors, ticker
from matplotlib.lines import Line2D

from .. import _checks as checks
from ..measures.density import Density, with_masses
from . import style
from .fates import axes_for, beside, number, numbers
from .tokens import square_limits

SCALES = ("linear", "root", "log")
# A logarithmic scale goes down to this share of the highest density.
LOWEST = 1e-6
# Filled contours between so many levels.
LEVELS = 14
# The picture holds the cells above this share of the highest density of their time: above the first of the contours.
VISIBLE = LEVELS**-2.0
# Lines around the densest cells that hold these shares of the mass.
SHARES = (0.5, 0.95)
# Less mass than this lost over the edge of the grid is not worth words.
LOST = 1e-6

INK_MAP = colors.LinearSegmentedColormap.from_list(
    "ink", [style.PAPER, "#C6D9E8", "#84B0D0", style.PALETTE[0], "#2C4A80", "#161D3F"]
).with_extremes(bad=style.PAPER, under=style.PAPER)


def plot_density(
    rho: Any, ax: Any = None, *, scale: str = "root", colour_bar: bool = True, title: str | None = None
) -> Any:
    r"""A picture of one density $\rho$: in dimension 1 its graph, in dimension 2 filled contours.

    With positions $s$, a map of the laws $\rho(x\mid s)=\rho(s,x)/\int\rho(s,y)\,dy$ over $(s,x)$, with $m(s)$ and
    $m(s)\pm2\sigma(s)$.

    **Arguments:** `rho`, a `Density`; `ax`, axes to draw into, a new figure by default; `scale`, what colours are
    proportional to: "linear", "root" of the density, or "log", down to $10^{-6}$ of the highest (a graph is logarithmic
    with "log"); `colour_bar`, whether to draw the scale of colours.

    **Returns:** the matplotlib axes.

    ```python
    rho = mf.to_density(mf.Gaussian([0.0], cov=1.0), cells=20)
    ax = mf.plot_density(rho)
    assert ax.get_ylabel() == r"$\rho(x)$"
    ```
    """
    rho = _one_density(rho)
    checks.one_of(scale, "scale", SCALES)
    states, first = with_masses(rho, rho.masses[None]), np.zeros(1, int)
    with style.style():
        ax = axes_for(ax, _figure_size(rho))
        if rho.positions is not None:
            _draw_laws(np.array([ax]), states, first, scale, colour_bar, moments=True)
        elif rho.d == 2:
            _draw_planes(np.array([ax]), states, first, scale, colour_bar, start=False)
        else:
            _draw_graphs(ax, rho, np.asarray(states.values), scale)
        ax.set_title(_heading("Density", states) if title is None else title)
    return ax


def plot_density_run(
    run: Any,
    ax: Any = None,
    *,
    at: Any = None,
    times: int | None = None,
    scale: str = "root",
    moments: bool | None = None,
    start: bool = True,
    colour_bar: bool = True,
    title: str | None = None,
) -> Any:
    r"""A picture of the run of a density $\rho_t$.

    In dimension 1 a map of $\rho_t(x)$ over $(t,x)$; in dimension 2 filled contours of the last density, and lines
    around the densest half and 95 % of the mass of the first; with positions, the last laws $\rho_t(x\mid s)$ over
    $(s,x)$. With `at` or `times`, the densities at the save times next to these: in dimension 1 their graphs, dark
    (start) to light (end), otherwise a panel for each.

    **Arguments:**

    - `ax`: axes to draw into, as many as panels; a new figure by default.
    - `at`: a time, or several; `times`: how many, evenly spaced from the first to the last.
    - `scale`, `colour_bar`: as for `plot_density`.
    - `moments`: whether to draw $m$ and $m\pm2\sigma$ in maps over time (by default no) or over positions (yes).
    - `start`: whether to draw the lines of the start in dimension 2.

    **Returns:** the axes, an array of them for several panels.
    """
    known, states = _history(run)
    checks.one_of(scale, "scale", SCALES)
    rows = _rows(known, at, times)
    positions, start, bar = (
        states.positions is not None,
        checks.flag(start, "start"),
        checks.flag(colour_bar, "colour_bar"),
    )
    moments = positions if moments is None else checks.flag(moments, "moments")
    words = _heading(f"{type(run.field).__name__}, density", states) if title is None else title
    over_time = rows is None and len(known) > 1
    rows = np.array([len(known) - 1]) if rows is None else rows
    labels = [f"$t={text}$" for text in numbers(known[rows])]
    alone = f"{words}, {labels[0]}" if title is None else words
    with style.style():
        if states.d == 1 and not positions:
            ax = axes_for(ax, _figure_size(states))
            if over_time:
                _draw_over_time(ax, known, states, scale, bar, moments)
            else:
                _draw_graphs(ax, states, np.asarray(states.values)[rows], scale, labels)
            ax.set_title(words if over_time or len(rows) > 1 else alone)
            return ax
        axes = _panels(ax, len(rows), states)
        if positions:
            _draw_laws(axes, states, rows, scale, bar, moments)
        else:
            _draw_planes(axes, states, rows, scale, bar, start)
        if len(axes) == 1 and not isinstance(ax, Sequence | np.ndarray):
            axes[0].set_title(alone)
            return axes[0]
        for panel, label in zip(axes, labels, strict=True):
            panel.set_title(label)
        if ax is None:  # the title of a figure of the user is theirs
            axes[0].figure.suptitle(words, fontsize=11)
    return axes


def enclosing_level(values: np.ndarray, share: float) -> float:
    """The level of the least dense of the densest cells that together hold this share of the mass."""
    dense = np.sort(values, axis=None)[::-1]
    inside = np.cumsum(dense)
    return float(dense[min(np.searchsorted(inside, share * inside[-1]), len(dense) - 1)])


def _one_density(rho: Any) -> Density:
    if not isinstance(rho, Density):
        checks.refuse(
            "this picture is of a density",
            got=checks.described(rho),
            expected="a mf.Density",
            remedy="mf.to_density(gaussian, cells=200) makes one; tokens and Gaussians have run.plot()",
        )
    if rho.mass.ndim:
        checks.refuse(
            "this picture is of one density",
            got=f"densities with leading axes {rho.mass.shape}",
            expected="a density at one time",
            remedy="index them: run.states[-1]; run.plot() draws a run",
        )
    return rho


def _history(run: Any) -> tuple[np.ndarray, Density]:
    states = getattr(run, "states", None)
    if not isinstance(states, Density) or states.mass.ndim != 1:
        checks.refuse(
            "this picture is of the run of a density",
            got=checks.described(run),
            expected="a run of mf.flow from a mf.Density",
            remedy="start from mf.to_density(gaussian, cells=200); plot_density draws a single density",
        )
    return np.asarray(run.times, np.float64), states


def _rows(known: np.ndarray, at: Any, times: Any) -> np.ndarray | None:
    """The indices of the save times next to those that were asked for; None if none were."""
    if at is None and times is None:
        return None
    if at is not None and times is not None:
        checks.refuse(
            "choose times in one way",
            got="at= and times=",
            expected="at=, the times, or times=, how many",
            remedy="leave one of them out",
        )
    if at is None:
        wanted = np.linspace(known[0], known[-1], checks.whole(times, "times"))
        wanted = known[-1:] if len(wanted) == 1 else wanted
    else:
        wanted = np.asarray(checks.vector(np.atleast_1d(at) if np.ndim(at) == 0 else at, "at"), np.float64)
        if not len(wanted) or wanted.min() < known[0] or wanted.max() > known[-1]:
            checks.refuse(
                "at must be times of the run",
                got=f"at = {at}",
                expected=f"one or more in [{known[0]:g}, {known[-1]:g}]",
                remedy="at=0.5, or times=4 for four of them",
            )
    return np.unique(np.abs(known[None] - wanted[:, None]).argmin(axis=1))


def _figure_size(rho: Density) -> tuple[float, float]:
    return (6.2, 5.2) if rho.d == 2 else (7.0, 4.2)


def _panels(ax: Any, count: int, states: Density) -> np.ndarray:
    """As many axes as panels: the user's, or those of a new figure."""
    if count == 1 and (ax is None or not isinstance(ax, Sequence | np.ndarray)):
        return np.array([axes_for(ax, _figure_size(states))])
    if ax is None:
        import matplotlib.pyplot as plt  # only here: a picture on the screen needs its figure manager

        columns = min(count, 4) if count != 5 and count != 6 else 3
        lines, (wide, high) = -(-count // columns), (2.9, 3.2) if states.d == 2 else (3.1, 3.0)
        options: dict[str, Any] = {"sharex": True, "sharey": True, "squeeze": False}
        options["layout"] = "compressed" if states.d == 2 else "constrained"
        figure: Any
        figure, grid = plt.subplots(lines, columns, figsize=(wide * columns + 0.9, high * lines + 0.2), **options)
        for spare in grid.flat[count:]:
            spare.set_axis_off()
        figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06)
        return grid.ravel()[:count]
    given = np.asarray(ax, dtype=object).ravel()
    if len(given) != count:
        checks.refuse(
            "each panel needs axes",
            got=f"{len(given)} axes for {count} panels",
            expected=f"{count} axes",
            remedy="leave ax out, or make them: plt.subplots(1, times)[1]",
        )
    return np.array([axes_for(one, _figure_size(states)) for one in given])


def _heading(name: str, states: Density) -> str:
    cells, lost = "\\times".join(map(str, states.cells)), 1 - float(np.asarray(states.mass)[-1])
    words = f"{name} in $\\mathbb{{R}}^{{{states.d}}}$, ${cells}$ cells"
    return words + (f", ${number(100 * lost, 2)}\\%$ of the mass lost" if lost > LOST else "")


def _norm(scale: str, highest: float) -> Any:
    if scale == "log":
        return colors.LogNorm(LOWEST * highest, highest)
    return colors.PowerNorm(0.5 if scale == "root" else 1.0, 0.0, highest)


def _draw_colour_bar(axes: np.ndarray, norm: Any, label: str) -> None:
    mappable = cm.ScalarMappable(norm, INK_MAP)
    bar = axes[0].figure.colorbar(mappable, ax=list(axes), pad=0.02, fraction=0.05, aspect=26)
    bar.set_label(label)
    bar.outline.set_visible(False)
    bar.minorticks_off()
    bar.ax.tick_params(length=2)


def _reach(values: np.ndarray, faces: np.ndarray, scale: str) -> tuple[float, float]:
    """Where there is something to see in one of the rows of `values`, and a cell more to each side."""
    share = LOWEST if scale == "log" else VISIBLE
    rows = values.reshape(-1, values.shape[-1])
    inside = np.flatnonzero((rows > share * rows.max(axis=1, keepdims=True)).any(axis=0))
    return float(faces[max(inside[0] - 1, 0)]), float(faces[min(inside[-1] + 2, len(faces) - 1)])


def _edges(centres: np.ndarray) -> np.ndarray:
    """Edges halfway between increasing centres, the outer ones as far as the next."""
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


def _draw_over_time(ax: Any, times: np.ndarray, states: Density, scale: str, bar: bool, moments: bool) -> None:
    values = np.asarray(states.values)
    norm = _norm(scale, float(values.max()))
    edges = np.clip(_edges(times), times[0], times[-1])
    _draw_map(ax, states, edges, values, norm)
    if bar:
        _draw_colour_bar(np.array([ax]), norm, r"$\rho_t(x)$")
    low, high = _reach(values, np.asarray(states.edges(0)), scale)
    if moments:
        below, above = _draw_moments(ax, states, times, values, "t")
        low, high = min(low, below), max(high, above)
    margin = 0.04 * (high - low)
    ax.set(xlabel="time $t$", ylim=(low - margin, high + margin))


def _draw_laws(axes: np.ndarray, states: Density, rows: np.ndarray, scale: str, bar: bool, moments: bool) -> None:
    r"""The laws $\rho(x\mid s)$ over $(s,x)$, a panel for each row; a position without mass has none."""
    masses, positions = np.asarray(states.masses, np.float64)[rows], np.asarray(states.positions)
    totals = masses.sum(axis=-1, keepdims=True)
    laws = masses / np.where(totals > 0, totals, 1) / float(np.asarray(states.spacing)[0])
    norm = _norm(scale, float(laws.max()))
    low, high = _reach(laws, np.asarray(states.edges(0)), scale)
    for ax, law in zip(axes, laws, strict=True):
        _draw_map(ax, states, _edges(positions), law, norm)
        if moments:
            below, above = _draw_moments(ax, states, positions, law, "s")
            low, high = min(low, below), max(high, above)
        ax.set_xlabel("position $s$")
    margin = 0.04 * (high - low)
    for ax in axes:
        ax.set_ylim(low - margin, high + margin)
    _outer_labels(axes)
    if bar:
        _draw_colour_bar(axes, norm, r"$\rho(x\mid s)$")


def _draw_map(ax: Any, rho: Density, edges: np.ndarray, values: np.ndarray, norm: Any) -> None:
    """One column of colours per row of `values`."""
    ax.pcolormesh(edges, np.asarray(rho.edges(0)), values.T, cmap=INK_MAP, norm=norm, rasterized=True, zorder=1)
    ax.set(xlim=(edges[0], edges[-1]), ylabel="$x$")


def _draw_moments(ax: Any, rho: Density, places: np.ndarray, values: np.ndarray, symbol: str) -> tuple[float, float]:
    r"""$m$ and $m\pm2\sigma$ of each row that has mass; returns the reach of these lines."""
    x, totals = np.asarray(rho.centres(0)), values.sum(axis=1)
    shares = values / np.where(totals > 0, totals, np.nan)[:, None]
    mean = shares @ x
    spread = np.sqrt(np.sum(shares * (x - mean[:, None]) ** 2, axis=1))
    look: dict[str, Any] = {"color": style.PALETTE[1], "zorder": 3}
    ax.plot(places, mean, linewidth=1.6, **look)
    for side in (mean - 2 * spread, mean + 2 * spread):
        ax.plot(places, side, linewidth=1.1, linestyle=(0, (4, 2)), **look)
    ax.set_ylabel(f"$x$   (lines: $m({symbol})$,  $m({symbol})\\pm2\\,\\sigma({symbol})$)")
    return float(np.nanmin(mean - 2 * spread)), float(np.nanmax(mean + 2 * spread))


def _draw_graphs(ax: Any, rho: Density, values: np.ndarray, scale: str, labels: Sequence[str] = ()) -> None:
    """Graphs of densities on a line, from dark (start) to light (end)."""
    x, many = np.asarray(rho.centres(0)), len(values) > 1
    shades = style.ordered_colours(np.arange(len(values), dtype=float)) if many else [style.PALETTE[0]]
    for k, (row, shade) in enumerate(zip(values, shades, strict=True)):
        drawn = np.maximum(row, 1e-3 * LOWEST * row.max()) if scale == "log" else row  # no logarithm of zero
        ax.plot(x, drawn, color=shade, linewidth=2.0 if k in (0, len(values) - 1) else 1.3, zorder=3)
        if not many and scale != "log":
            ax.fill_between(x, 0, row, color=shade, alpha=0.18, linewidth=0)
    low, high = _reach(values, np.asarray(rho.edges(0)), scale)
    margin = 0.05 * (high - low)
    ax.set(xlim=(low - margin, high + margin), xlabel="$x$", ylabel=r"$\rho_t(x)$" if labels else r"$\rho(x)$")
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(LOWEST * values.max(axis=1).min(), 2 * values.max())
    else:
        ax.set_ylim(0, 1.06 * values.max())
    if many:
        handles = [Line2D([], [], color=c, linewidth=1.8, label=t) for c, t in zip(shades, labels, strict=True)]
        beside(ax, handles)


def _draw_planes(axes: np.ndarray, states: Density, rows: np.ndarray, scale: str, bar: bool, start: bool) -> None:
    """Filled contours, a panel for each row, between the same levels; and lines of the start in the later ones."""
    every = np.asarray(states.values)
    values, first = every[rows], every[0]
    highest = float(values.max())
    unit = np.linspace(0, 1, LEVELS + 1)
    levels = {"linear": unit, "root": unit**2, "log": LOWEST ** (1 - unit)}[scale] * highest
    norm = _norm(scale, highest)
    lines = start and bool(rows[-1] > 0)
    shown = np.concatenate([values, first[None]]) if lines else values
    for k, ax in enumerate(axes):
        x, y, z = _closed(states, values[k])
        z = np.maximum(z, 1e-3 * LOWEST * highest) if scale == "log" else z  # no logarithm of zero
        filled = ax.contourf(x, y, z, levels=levels[levels > 0], cmap=INK_MAP, norm=norm, zorder=1)
        filled.set_edgecolor("face")  # no seams between the fillings
        if start and rows[k] > 0:
            around = sorted({enclosing_level(first, share) for share in SHARES})
            ax.contour(*_closed(states, first), levels=around, colors=style.PALETTE[1], linewidths=0.9, zorder=3)
        ax.set(xlabel="$x_1$", ylabel="$x_2$")
        _square(ax, states, shown, scale)
    if lines:
        shares = " and ".join(f"{100 * share:g}" for share in SHARES)
        handle = Line2D([], [], color=style.PALETTE[1], linewidth=0.9, label=f"start: {shares} % of the mass")
        # In the upper corner that has less in it: a density that leans to the right fills the right one.
        lean = np.sign(np.asarray(states.covariance)[[0, rows[-1]], 0, 1].sum())
        corner = "upper left" if lean > 0 else "upper right"
        axes[-1].legend(handles=[handle], loc=corner, frameon=False, fontsize=8, borderaxespad=0.2)
    _outer_labels(axes)
    if bar:
        _draw_colour_bar(axes, norm, r"$\rho_t(x)$" if len(every) > 1 else r"$\rho(x)$")


def _closed(rho: Density, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres and values with a ring of empty cells around, so that contours close at the edge of the box."""
    x, y = (_edges(np.asarray(rho.edges(axis))) for axis in range(2))
    return x, y, np.pad(values, 1).T


def _square(ax: Any, rho: Density, values: np.ndarray, scale: str) -> None:
    """A square around what there is to see at one of the times."""
    reach = [_reach(values.max(axis=2 - axis), np.asarray(rho.edges(axis)), scale) for axis in range(2)]
    middle, half = square_limits(np.transpose(reach))
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))


def _outer_labels(axes: np.ndarray) -> None:
    """Of panels that share their axes, only the outer ones are labelled."""
    for ax in axes:
        if len(ax.get_shared_y_axes().get_siblings(ax)) > 1:
            ax.label_outer()

r"""Sweeps: a number over one or two axes of a grid, as curves, heat maps and phase diagrams.

A number is a labelled array (`xarray.DataArray`). Over the axis "draw" it is summed up: by its median, and by its most
frequent value if it is a word or a small whole number.
"""

from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .. import _checks as checks
from . import style
from .fates import axes_for, beside, number

DRAW = "draw"
# Whole numbers with no more different values than this have a colour each.
FEW = 10
# Values that span more than this factor are drawn on a logarithmic scale.
LARGE = 100.0


def plot_heatmap(values: Any, ax: Any = None, *, title: str | None = None, legend: bool = True) -> Any:
    """A number of a sweep over two of its axes, a colour per run: the first axis upwards, the second to the right.

    Words (outcomes, fates) and small whole numbers (ranks, clusters) have a colour each, and a legend: a phase diagram.
    Other numbers have a scale of colours. Axes with values equally spaced in the logarithm are logarithmic. Cells
    without a number are grey.

    **Returns:** the axes.
    """
    cells, over = summed_up(values, 2)
    rows, columns = cells.dims
    data = cells.values
    with style.style():
        ax = axes_for(ax, (6.6, 4.8))
        places = [_places(cells[axis].values) for axis in (rows, columns)]
        (row_edges, row_log), (column_edges, column_log) = places
        crisp: dict[str, Any] = {"rasterized": True}  # as pixels, cells have no seams between them
        if is_categorical(data):
            known = _categories(data)
            shades = _shades(known)
            index = np.array([[known.index(x) if x in known else -1 for x in row] for row in data.tolist()], float)
            colour_map: Any = colors.ListedColormap(list(shades)).with_extremes(bad=style.FAINT)
            shown: Any = np.ma.masked_less(index, 0)
            ax.pcolormesh(column_edges, row_edges, shown, cmap=colour_map, vmin=-0.5, vmax=len(known) - 0.5, **crisp)
            if legend:
                beside(ax, [Patch(color=c, label=_word(x)) for c, x in zip(shades, known, strict=True)], _name(cells))
        else:
            shown = np.ma.masked_invalid(np.asarray(data, np.float64))
            norm = _norm(shown.compressed())
            mesh = ax.pcolormesh(column_edges, row_edges, shown, cmap=_colour_map(), norm=norm, **crisp)
            if legend:
                bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, fraction=0.06, aspect=24)
                bar.outline.set_visible(False)
                bar.set_label(_name(cells))
        ax.set_facecolor(style.FAINT)
        for axis, set_scale, log, dim in (
            (ax.xaxis, ax.set_xscale, column_log, columns),
            (ax.yaxis, ax.set_yscale, row_log, rows),
        ):
            _label_axis(axis, set_scale, log, cells[dim].values)
        ax.set(xlabel=str(columns), ylabel=str(rows))
        ax.set_title(f"{_name(cells)}{over}" if title is None else title)
    return ax


def plot_curves(values: Any, ax: Any = None, *, title: str | None = None, legend: bool = True) -> Any:
    """A number of a sweep over one axis, with its spread over draws; over two axes, one curve per value of the first.

    Lines are medians, bands hold the middle 80 % of the draws, dots are the draws themselves. Words and the shares of
    small whole numbers over draws are stacked: see `plot_shares`. A sweep over draws only has a histogram.

    **Returns:** the axes.
    """
    axes = [dim for dim in values.dims if dim != DRAW]
    if not axes:
        return plot_histogram(values, ax, title=title)
    if len(axes) > 2:
        _refuse(values, "one or two axes besides draws")
    named = values[axes[-1]].dtype.kind not in "iuf"  # words along the axis have no order: nothing is joined
    if is_words(values.values) or (named and len(axes) == 1 and DRAW in values.dims and is_categorical(values.values)):
        return plot_shares(values, ax, title=title, legend=legend)
    along = axes[-1]
    ordered = values.transpose(*axes, *([DRAW] if DRAW in values.dims else []))
    table = np.asarray(ordered.values, np.float64).reshape(-1, ordered.sizes[along], ordered.sizes.get(DRAW, 1))
    labels = [""] if len(axes) == 1 else [f"{axes[0]} = {_word(x)}" for x in ordered[axes[0]].values.tolist()]
    x, log = _abscissae(ordered[along].values)
    few = len(table) <= len(style.PALETTE)
    shades = (style.category_colours if few else lambda k: style.ordered_colours(k.astype(float)))(
        np.arange(len(table))
    )
    with style.style():
        ax = axes_for(ax, (6.8, 4.2))
        for curve, label, shade in zip(table, labels, shades, strict=True):
            middle, low, high = _quantiles(curve)
            if curve.shape[1] > 1:
                if named:
                    ax.vlines(x, low, high, color=shade, alpha=0.3, linewidth=7)
                else:
                    ax.fill_between(x, low, high, color=shade, alpha=0.18, linewidth=0)
                if len(table) == 1 and curve.size <= 4000:
                    ax.scatter(np.repeat(x, curve.shape[1]), curve.ravel(), s=7, color=shade, alpha=0.25, linewidth=0)
            look = "o" if named else "o-"
            ax.plot(x, middle, look, color=shade, markersize=4, linewidth=1.6, label=label or None, zorder=3)
        finite = table[np.isfinite(table)]
        if finite.size and finite.min() > 0 and finite.max() > LARGE * finite.min():
            ax.set_yscale("log")
        elif finite.size and (finite == np.round(finite)).all():
            ax.yaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))
        _label_axis(ax.xaxis, ax.set_xscale, log, ordered[along].values)
        if named:
            ax.set_xlim(-0.5, len(x) - 0.5)
        ax.set(xlabel=str(along), ylabel=_name(values))
        if legend and len(table) > 1:
            beside(ax)
        draws = ordered.sizes.get(DRAW, 1)
        ax.set_title(_name(values) + (f", {draws} draws" if draws > 1 else "") if title is None else title)
    return ax


def plot_shares(values: Any, ax: Any = None, *, title: str | None = None, legend: bool = True) -> Any:
    """How often each word or small whole number comes, over one axis: stacked shares of the draws."""
    axes = [dim for dim in values.dims if dim != DRAW]
    if len(axes) != 1:
        _refuse(values, "one axis besides draws")
    rows = values.transpose(axes[0], ...).values.reshape(values.sizes[axes[0]], -1)
    known = _categories(rows)
    x, log = _abscissae(values[axes[0]].values)
    with style.style():
        ax = axes_for(ax, (6.8, 4.0))
        edges, _ = _places(values[axes[0]].values)
        below = np.zeros(len(x))
        shades = _shades(known)
        for word, shade in zip(known, shades, strict=True):
            share = np.array([sum(v == word for v in row.tolist()) / len(row) for row in rows])
            ax.bar(edges[:-1], share, np.diff(edges), below, align="edge", color=shade, edgecolor=style.PAPER)
            below += share
        _label_axis(ax.xaxis, ax.set_xscale, log, values[axes[0]].values)
        ax.set(xlabel=str(axes[0]), ylabel="share of the draws", ylim=(0, 1), xlim=(edges[0], edges[-1]))
        if legend:
            beside(ax, [Patch(color=c, label=_word(w)) for c, w in zip(shades, known, strict=True)], _name(values))
        ax.set_title(_name(values) if title is None else title)
    return ax


def plot_histogram(values: Any, ax: Any = None, *, title: str | None = None) -> Any:
    """How a number is spread over the draws: a bar per word or small whole number, else bins."""
    flat = values.values.ravel()
    with style.style():
        ax = axes_for(ax, (6.0, 3.8))
        if is_categorical(flat):
            known = _categories(flat)
            counts = [sum(v == word for v in flat.tolist()) for word in known]
            bars = ax.bar(range(len(known)), counts, color=_shades(known), width=0.7)
            ax.bar_label(bars, fontsize=8.5, color=style.SOFT)
            ax.set_xticks(range(len(known)), [_word(word) for word in known])
            ax.set_xlabel(_name(values))
            missing = len(flat) - sum(counts)
        else:
            numbers = np.asarray(flat, np.float64)
            finite = numbers[np.isfinite(numbers)]
            ax.hist(finite, bins="auto" if len(finite) < 5000 else 80, color=style.PALETTE[0], alpha=0.85)
            if len(finite):
                middle = float(np.median(finite))
                ax.axvline(middle, color=style.INK, linewidth=1.2)
                handle = Line2D([], [], color=style.INK, linewidth=1.2, label=f"median ${number(middle)}$")
                ax.legend(handles=[handle], frameon=False, fontsize=8.5)
            ax.set_xlabel(_name(values))
            missing = len(flat) - len(finite)
        ax.set_ylabel("draws")
        words = f"{len(flat)} draws" + (f", {missing} without a number" if missing else "")
        ax.set_title(words if title is None else title)
    return ax


def summed_up(values: Any, axes: int) -> tuple[Any, str]:
    """`values` without its draws (median, or the most frequent word), and words about that for a title."""
    left = [dim for dim in values.dims if dim != DRAW]
    if len(left) != axes:
        _refuse(values, f"{axes} axes besides draws")
    if DRAW not in values.dims or values.sizes[DRAW] == 1:
        return values.isel({DRAW: 0}, drop=True) if DRAW in values.dims else values, ""
    draws = values.sizes[DRAW]
    moved = values.transpose(*left, DRAW)
    if is_categorical(moved.values):
        flat = [_most_frequent(row) for row in moved.values.reshape(-1, draws).tolist()]
        found = np.array(flat, dtype=moved.dtype if moved.dtype.kind != "f" else np.float64)
        return moved.isel({DRAW: 0}, drop=True).copy(data=found.reshape(moved.shape[:-1])), f" (mode of {draws} draws)"
    middle = _quantiles(np.asarray(moved.values, np.float64))[0]
    return moved.isel({DRAW: 0}, drop=True).astype(np.float64).copy(data=middle), f" (median of {draws} draws)"


def is_words(values: np.ndarray) -> bool:
    """Whether these are words or truth values."""
    return bool(np.asarray(values).dtype.kind in "OUSTb")


def is_categorical(values: np.ndarray) -> bool:
    """Whether these are words, or few different whole numbers (missing ones left out)."""
    if is_words(values):
        return True
    numbers = np.asarray(values, np.float64)
    finite = np.unique(numbers[np.isfinite(numbers)])
    return 0 < len(finite) <= FEW and bool((finite == np.round(finite)).all())


def _categories(values: np.ndarray) -> list[Any]:
    """The different values in order, missing ones left out."""
    found = {v for v in np.asarray(values).ravel().tolist() if v is not None and v == v and v != ""}
    return sorted(found)


def _shades(known: list[Any]) -> np.ndarray:
    """Words take the palette, numbers go from dark to light."""
    if known and isinstance(known[0], str | bool):
        return style.category_colours(np.arange(len(known)))
    return style.ordered_colours(np.arange(len(known), dtype=float))


def _most_frequent(row: list[Any]) -> Any:
    known = _categories(np.array(row, dtype=object))
    return max(known, key=row.count) if known else (np.nan if not isinstance(row[0], str) else "")


def _quantiles(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Median and the middle 80 % along the last axis, of the numbers that are there."""
    masked = np.where(np.isfinite(table), table, np.nan)
    empty = np.asarray(np.isnan(masked).all(axis=-1))
    filled = np.where(empty[..., None], 0.0, masked)  # a slice without numbers would warn
    quantiles = np.nanquantile(filled, [0.5, 0.1, 0.9], axis=-1)
    middle, low, high = np.where(empty[None], np.nan, quantiles)
    return middle, low, high


def _norm(finite: np.ndarray) -> Any:
    if finite.size and finite.min() > 0 and finite.max() > LARGE * finite.min():
        return colors.LogNorm(finite.min(), finite.max())
    return None


def _colour_map() -> Any:
    return style.ordered_map().with_extremes(bad=style.FAINT)


def _abscissae(labels: np.ndarray) -> tuple[np.ndarray, bool]:
    """Where the values of an axis stand, and whether the axis is logarithmic; words stand at 0, 1, 2, ..."""
    if np.asarray(labels).dtype.kind not in "iuf":
        return np.arange(len(labels), dtype=float), False
    x = np.asarray(labels, np.float64)
    steps = np.diff(x)
    if len(x) > 2 and (x > 0).all() and (steps > 0).all():
        ratios = np.diff(np.log(x))
        return x, bool(np.ptp(ratios) < 0.5 * ratios.mean() and x[-1] > 4 * x[0] and np.ptp(steps) > 0.2 * steps.mean())
    return x, False


def _places(labels: np.ndarray) -> tuple[np.ndarray, bool]:
    """The edges of the cells around the values of an axis, and whether the axis is logarithmic."""
    x, log = _abscissae(labels)
    if len(x) == 1:
        return np.array([x[0] - 0.5, x[0] + 0.5]), False
    y = np.log(x) if log else x
    middle = (y[1:] + y[:-1]) / 2
    edges = np.concatenate([[2 * y[0] - middle[0]], middle, [2 * y[-1] - middle[-1]]])
    return np.exp(edges) if log else edges, log


def _label_axis(axis: Any, set_scale: Any, log: bool, labels: np.ndarray) -> None:
    x, _ = _abscissae(labels)
    if log:
        set_scale("log")
    if len(x) <= 9:
        axis.set_major_locator(ticker.FixedLocator(x.tolist()))
        axis.set_major_formatter(ticker.FixedFormatter([_word(label) for label in np.asarray(labels).tolist()]))
        axis.set_minor_locator(ticker.NullLocator())


def _word(value: Any) -> str:
    if isinstance(value, bool | str):
        return str(value).lower().replace("_", " ") if isinstance(value, bool) else value.replace("_", " ")
    return f"{value:.4g}"


def _name(values: Any) -> str:
    return str(values.name or "number").replace("_", " ")


def _refuse(values: Any, expected: str) -> None:
    checks.refuse(
        "this picture does not fit the sweep",
        got=f"the axes {', '.join(map(str, values.dims))}",
        expected=expected,
        remedy="choose values of the others: values.sel(axis=value)",
    )

"""How tokens gather into clusters over time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colors, ticker

from .. import _checks as checks
from ..diagnostics.history import ClusterHistory
from . import style
from .fates import axes_for, number
from .tokens import _draw_curves

# From so many clusters on their number is drawn on a logarithmic scale.
MANY = 12


def plot_clusters(along: Any, ax: Any = None, *, run: Any = None, legend: bool = True, title: str | None = None) -> Any:
    """The number of clusters over the time of a run, and the time since when they have not changed.

    With `run`, for tokens on a line, a second panel above holds the paths of the tokens in the colours of their last
    clusters, with a ring where each cluster was complete.

    **Arguments:**

    - `along`: what `mf.clusters_along(run)` returns.
    - `ax`: axes to draw into, a pair of them with `run`; a new figure by default.
    - `run`: the run of tokens in dimension 1 that `along` is of.
    - `legend`, `title`: whether there is a legend, and another title.

    **Returns:** the matplotlib axes; an array of the two with `run`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    along = mf.clusters_along(mf.flow(mf.Softmax(I, I, -I), tokens, t1=20.0), tolerance=0.2)
    ax = mf.plot_clusters(along)
    assert ax.get_ylabel() == "number of clusters"
    ```
    """
    times, count = _history(along)
    with style.style():
        if run is None:
            below = axes_for(ax, style.WIDE)
        else:
            symbol, points = _tokens(run, along)
            above, below = _pair(ax)
            _draw_tokens(above, along, points)
            above.set(ylabel=f"token ${symbol}$", xlabel="")
        _draw_count(below, along, times, count, legend)
        words = _heading(along, count) if title is None else title
        (below if run is None else above).set_title(words)
    return below if run is None else np.array([above, below])


def _history(along: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(along, ClusterHistory):
        checks.refuse(
            "this picture is of clusters over time",
            got=checks.described(along),
            expected="what mf.clusters_along(run) returns",
            remedy="plot_clusters(mf.clusters_along(run))",
        )
    return np.asarray(along.times, np.float64), np.asarray(along.count)


def _tokens(run: Any, along: Any) -> tuple[str, np.ndarray]:
    """The symbol of tokens in the frame of the run, and their coordinate at the times of the history."""
    points, labels = np.asarray(getattr(run, "points", np.zeros(0)), np.float64), np.asarray(along.labels)
    if points.ndim != 3 or points.shape[2] != 1:
        checks.refuse(
            "paths over time are of tokens on a line",
            got=f"points of shape {points.shape}" if points.ndim == 3 else checks.described(run),
            expected="a run of tokens in dimension 1",
            remedy="leave run out; in the plane run.plot(colour=along.labels[-1]) shows the clusters",
        )
    rows = np.flatnonzero(np.isin(np.asarray(run.times), along.times))
    if (len(rows), points.shape[1]) != labels.shape:
        checks.refuse(
            "the clusters must be those of the run",
            got=f"labels of shape {labels.shape} for {points.shape[1]} tokens at {len(rows)} of the times",
            expected=f"labels of shape {(len(rows), points.shape[1])}",
            remedy="plot_clusters(mf.clusters_along(run), run=run)",
        )
    return "x" if run.propagators is None else "z", points[rows, :, 0]


def _pair(ax: Any) -> tuple[Any, Any]:
    if ax is None:
        import matplotlib.pyplot as plt  # only here: a picture on the screen needs its figure manager

        _, (above, below) = plt.subplots(
            2, 1, figsize=(6.4, 5.6), layout="constrained", sharex=True, height_ratios=[1.7, 1]
        )
        return above, below
    if not isinstance(ax, Sequence | np.ndarray) or len(ax) != 2:
        checks.refuse(
            "tokens and clusters need a pair of axes",
            got=checks.described(ax),
            expected="two axes, one above the other",
            remedy="leave ax out, or leave run out for the number of clusters only",
        )
    above, below = (axes_for(one, style.WIDE) for one in ax)
    return above, below


def _draw_count(ax: Any, along: Any, times: np.ndarray, count: np.ndarray, legend: bool) -> None:
    ax.step(times, count, where="post", color=style.PALETTE[0], linewidth=1.8, zorder=3)
    ax.plot(times[-1], count[-1], "o", color=style.PALETTE[0], markersize=5, zorder=4, clip_on=False)
    settled = float(along.settled)
    if settled > times[0]:
        label = f"settled at $t={number(settled)}$"
        ax.axvline(settled, color=style.SOFT, linewidth=1.1, linestyle=(0, (4, 2)), label=label, zorder=2)
        if legend:
            ax.legend(frameon=False, fontsize=8.5, loc="upper right")
    most = int(count.max())
    if most > MANY:
        ax.set_yscale("log")
        ticks = np.outer(10 ** np.arange(int(np.log10(most)) + 1), [1, 2, 5]).ravel()
        ax.set_yticks(ticks, [f"{tick}" for tick in ticks])
        ax.yaxis.set_minor_locator(ticker.NullLocator())
        ax.set_ylim(0.85, 1.25 * most)
    else:
        ax.yaxis.set_major_locator(ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
        ax.set_ylim(0, most + 0.5)
    ax.set(xlabel="time $t$", ylabel="number of clusters")


def _draw_tokens(ax: Any, along: Any, points: np.ndarray) -> None:
    labels, times = np.asarray(along.labels), np.asarray(along.times, np.float64)
    number_of = int(labels[-1].max()) + 1
    places = np.array([points[-1, labels[-1] == k].mean() for k in range(number_of)])
    if number_of <= len(style.PALETTE):
        shades = style.category_colours(np.arange(number_of))
    else:  # more than the palette has: by their place, dark to light
        shades = style.ordered_colours(np.argsort(np.argsort(places)).astype(float))
    shades = np.concatenate([shades, [colors.to_rgb(style.FAINT)]])  # label -1: tokens of zero weight
    _draw_curves(ax, times, points, shades[labels[-1]])
    for k, since in enumerate(np.asarray(along.since)):
        row = int(np.searchsorted(times, since))
        if row > 0:
            middle = points[row, labels[-1] == k].mean()
            look: dict[str, Any] = {"markerfacecolor": style.PAPER, "markeredgewidth": 1.4, "markersize": 6}
            ax.plot(times[row], middle, "o", color=shades[k], zorder=4, **look)


def _heading(along: Any, count: np.ndarray) -> str:
    n = np.asarray(along.labels).shape[1]
    last = int(count[-1])
    return f"{n} tokens, {last} cluster{'s' * (last != 1)} at $t={number(float(along.times[-1]))}$"

r"""Many Gaussian runs at once: covariances of the plane in their cone and in the disc, and the ranks of limits.

A matrix $\Sigma=\begin{pmatrix}a&c\\c&b\end{pmatrix}$ is positive semi-definite iff $(a-b)^2+(2c)^2\le(a+b)^2$ and
$a+b\ge0$: in the coordinates $(a-b,2c,a+b)$ a round cone, its surface the matrices of rank one, its tip zero.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from .. import _checks as checks
from . import style
from .fates import axes_for, beside, fate_colour, fate_words, history


def plot_cone(
    runs: Any, ax: Any = None, *, height: float | None = None, legend: bool = True, title: str | None = None
) -> Any:
    r"""The paths of 2 x 2 covariances in the cone of semi-definite matrices:

    $$\Sigma=\begin{pmatrix}a&c\\c&b\end{pmatrix}\ \mapsto\ (a-b,\,2c,\,a+b),$$

    a round cone, its surface the matrices of rank one, its tip zero. One colour per fate; small dots are starts, large
    ones ends. What is higher than `height` is cut off, and a triangle marks where a path leaves.

    **Arguments:** `runs`, one Gaussian run of dimension 2 or a list of them; `ax`, axes with `projection="3d"`, a new
    figure by default; `height`, a trace, by default twice the largest trace of a start, or more if a limit is higher.

    **Returns:** the matplotlib axes, three-dimensional.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    runs = [mf.flow(mf.Softmax(sign * I, I, I), g, t1=jnp.inf) for sign in (1.0, -1.0)]
    ax = mf.plot_cone(runs)
    assert ax.name == "3d" and np.allclose(ax.get_zlim(), (0, 4))  # twice the trace of the start
    ```
    """
    runs = _planar(runs)
    with np.errstate(over="ignore"):
        paths = [cone_coordinates(history(run)[2]) for run in runs]
    height = _height(runs, paths) if height is None else float(checks.positive(height, "height", "e.g. height=2.0"))
    with style.style():
        ax = axes_for(ax, (7.6, 5.4), three=True)
        ax.computed_zorder = False  # else the cone is drawn over the paths in it
        _draw_cone(ax, height)
        for run, path in zip(runs, paths, strict=True):
            colour, shown = fate_colour(run), below(path, height)
            ax.plot(*shown.T, color=colour, linewidth=1.1, alpha=0.85, zorder=4)
            dots: dict[str, Any] = {"depthshade": False, "zorder": 5, "color": colour}
            if path[0, 2] <= height:
                ax.scatter(*path[0], s=9, alpha=0.7, linewidth=0, **dots)
            if path[-1, 2] <= height:
                ax.scatter(*path[-1], s=26, edgecolor=style.PAPER, linewidth=0.5, **dots)
            elif np.isfinite(shown[-1]).all():
                ax.scatter(*shown[-1], s=26, marker="^", edgecolor=style.PAPER, linewidth=0.5, **dots)
        ax.set(xlabel="$a-b$", ylabel="$2c$", zlabel=r"$a+b=\mathrm{tr}\,\Sigma$")
        ax.set(xlim=(-height, height), ylim=(-height, height), zlim=(0, height))
        ax.set_box_aspect((1, 1, 0.8))
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.set_major_locator(ticker.MaxNLocator(5, prune=None if axis is ax.zaxis else "both"))
            axis.set_pane_color((0, 0, 0, 0))
            axis._axinfo["grid"].update(color=colors.to_rgba(style.FAINT, 0.35), linewidth=0.5)
        ax.view_init(elev=16, azim=-58)
        if legend:
            leaves = any(path[-1, 2] > height for path in paths)
            beside(ax, _fates(runs, leaves), at=1.0)
        ax.set_title(_title(runs) if title is None else title)
    return ax


def plot_disc(runs: Any, ax: Any = None, *, legend: bool = True, title: str | None = None) -> Any:
    r"""The paths of 2 x 2 covariances without their size, in the unit disc:

    $$\Sigma=\begin{pmatrix}a&c\\c&b\end{pmatrix}\ \mapsto\ \Big(\frac{a-b}{a+b},\ \frac{2c}{a+b}\Big).$$

    The centre is isotropic; the circle is rank one, and strokes around it show the direction of the line there. One
    colour per fate; small dots are starts, large ones ends.

    **Arguments:** `runs`, one Gaussian run of dimension 2 or a list of them; `ax`, axes to draw into, a new figure by
    default.

    **Returns:** the matplotlib axes.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    ax = mf.plot_disc(mf.flow(mf.Softmax(I, I, I), g, t1=jnp.inf))
    assert ax.get_xlim() == (-1.2, 1.2)
    ```
    """
    runs = _planar(runs)
    with style.style():
        ax = axes_for(ax, (7.2, 5.2))
        ax.add_patch(Circle((0, 0), 1, facecolor=colors.to_rgba(style.FAINT, 0.18), edgecolor=style.SOFT, zorder=1))
        ax.plot(0, 0, "+", color=style.SOFT, markersize=7, markeredgewidth=0.8, zorder=2)
        for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
            # A line at angle theta has the covariance (cos 2 theta, sin 2 theta).
            stroke = 0.055 * np.array([np.cos(angle / 2), np.sin(angle / 2)])
            place = 1.1 * np.array([np.cos(angle), np.sin(angle)])
            ax.plot(*np.stack([place - stroke, place + stroke]).T, color=style.SOFT, linewidth=1.3, zorder=2)
        for run in runs:
            colour, path = fate_colour(run), disc_coordinates(history(run)[2])
            if not len(path):  # a single point for ever: no shape
                continue
            ax.plot(*path.T, color=colour, linewidth=1.1, alpha=0.85, zorder=3)
            ax.scatter(*path[0], s=9, color=colour, alpha=0.7, linewidth=0, zorder=4)
            ax.scatter(*path[-1], s=26, color=colour, edgecolor=style.PAPER, linewidth=0.5, zorder=5)
        ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", xlabel="$(a-b)/(a+b)$", ylabel="$2c/(a+b)$")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(ticker.FixedLocator([-1, -0.5, 0, 0.5, 1]))
        ax.spines[["left", "bottom"]].set_visible(False)
        if legend:
            beside(ax, _fates(runs))
        ax.set_title(_title(runs) if title is None else title)
    return ax


def plot_ranks(
    ranks: Any,
    d: int | None = None,
    ax: Any = None,
    expected: Any = None,
    undecided: Any = 0,
    *,
    legend: bool = True,
    title: str | None = None,
) -> Any:
    r"""A histogram of the ranks of limits; nothing is dropped: runs without a limit have a bar of their own.

    **Arguments:**

    - `ranks`: whole numbers, -1 for a run without a limit; or a dictionary of such, one group of bars per label.
    - `d`: the dimension, the highest rank; by default the highest that occurs.
    - `ax`: axes to draw into; a new figure by default.
    - `expected`: the rank of the theory, shaded; one for all, or a dictionary with one per label.
    - `undecided`: how many more runs have no limit; a dictionary if there are several groups.

    **Returns:** the matplotlib axes.

    ```python
    ax = mf.plot_ranks([1, 1, 0, -1], d=2, expected=1)  # or mf.fates(fields, gaussians).plot()
    assert ax.get_title() == "Ranks of the limits of 4 runs"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2", "no limit\nfound"]
    ```
    """
    groups = ranks if isinstance(ranks, Mapping) else {"": ranks}
    if not groups:
        _refuse_ranks("no group", "at least one")
    counts = {label: _whole_numbers(values) for label, values in groups.items()}
    wanted = _per_label(expected, groups, "expected", everywhere=True)
    more = _per_label(undecided, groups, "undecided", everywhere=False)
    highest = max(1, *(int(values.max(initial=0)) for values in counts.values()), *wanted.values())
    d = highest if d is None else checks.whole(d, "d")
    if highest > max(d, 1):
        _refuse_ranks(f"rank {highest} with d = {d}", f"ranks from 0 to {d}")
    without = {label: int((values < 0).sum()) + more.get(label, 0) for label, values in counts.items()}
    width = 0.8 / len(groups)
    with style.style():
        ax = axes_for(ax, (2.6 + max(4.2, 0.36 * (d + 2) * len(groups)), 3.9))
        handles: list[Any] = []
        for g, (label, values) in enumerate(counts.items()):
            shift, colour = (g - (len(groups) - 1) / 2) * width, style.PALETTE[g % len(style.PALETTE)]
            if label in wanted:
                place = wanted[label] + shift
                ax.axvspan(place - width / 2, place + width / 2, color=style.FAINT, alpha=0.5, linewidth=0, zorder=0)
            heights = np.bincount(values[values >= 0], minlength=d + 1)
            bars = ax.bar(np.arange(d + 1) + shift, heights, 0.86 * width, color=colour, zorder=2)
            ax.bar_label(bars, [str(h) if h else "" for h in heights], padding=2, fontsize=8, color=style.SOFT)
            if without[label]:
                look: dict[str, Any] = {"facecolor": style.PAPER, "edgecolor": colour, "hatch": "////", "zorder": 2}
                bars = ax.bar([d + 1.25 + shift], [without[label]], 0.86 * width, **look)
                ax.bar_label(bars, [str(without[label])], padding=2, fontsize=8, color=style.SOFT)
            if label:
                handles.append(Patch(color=colour, label=f"{label} ({len(values) + more.get(label, 0)} runs)"))
        if wanted:
            same = set(wanted.values())
            words = f"expected rank: {same.pop()}" if len(same) == 1 else "expected rank"
            handles.append(Patch(color=style.FAINT, alpha=0.5, label=words))
        places, names = [*range(d + 1)], [*map(str, range(d + 1))]
        if any(without.values()):
            places, names = [*places, d + 1.25], [*names, "no limit\nfound"]
        ax.set_xticks(places, names)
        ax.tick_params(axis="x", length=0)
        ax.set_xlim(-0.6, places[-1] + 0.6)
        ax.set_ylim(0, 1.12 * max(1, ax.dataLim.y1))
        ax.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        ax.set(xlabel="rank of the limit", ylabel="number of runs")
        if legend and handles:
            beside(ax, handles)
        total = sum(len(values) + more.get(label, 0) for label, values in counts.items())
        ax.set_title(f"Ranks of the limits of {total} run{'s' * (total != 1)}" if title is None else title)
    return ax


def cone_coordinates(factors: np.ndarray) -> np.ndarray:
    r"""$(a-b,2c,a+b)$ of $\Sigma=LL^\top$, from factors of shape `(times, 2, r)`."""
    first, second = factors[:, 0], factors[:, 1]
    # (p-q).(p+q) instead of |p|^2-|q|^2: no cancellation for nearly isotropic covariances.
    difference = ((first - second) * (first + second)).sum(axis=1)
    return np.stack([difference, 2 * (first * second).sum(axis=1), (first**2 + second**2).sum(axis=1)], axis=1)


def disc_coordinates(factors: np.ndarray) -> np.ndarray:
    """The first two cone coordinates by the third; states that are single points have none and are left out."""
    sizes = np.abs(factors).max(axis=(1, 2), keepdims=True)
    some = sizes[:, 0, 0] > 0
    cone = cone_coordinates(factors[some] / sizes[some])
    return cone[:, :2] / cone[:, 2:]


def below(path: np.ndarray, height: float) -> np.ndarray:
    """The path with NaN for points above `height`, and with the points where it crosses that height."""
    heights = path[:, 2]
    pieces = []
    for k in range(len(path)):
        pieces.append(path[k] if heights[k] <= height else np.full(3, np.nan))
        if k + 1 < len(path) and (heights[k] <= height) != (heights[k + 1] <= height):
            low, high = (path[k], path[k + 1]) if heights[k] <= height else (path[k + 1], path[k])
            crossing = low + (height - low[2]) / (high[2] - low[2]) * (high - low) if np.isfinite(high).all() else low
            pieces.append(crossing)
    ends = np.array(pieces)
    while len(ends) > 1 and np.isnan(ends[-1]).any():  # the last point is the end, or where the path leaves
        ends = ends[:-1]
    return ends


def _planar(runs: Any) -> list[Any]:
    runs = list(runs) if isinstance(runs, (list, tuple)) else [runs]
    if not runs:
        checks.refuse("there is nothing to draw", got="no run", expected="one or more", remedy="pass a list of runs")
    for k, run in enumerate(runs):
        d = history(run)[1].shape[1]
        if d != 2:
            checks.refuse(
                "the cone and the disc are those of 2 x 2 covariances",
                got=f"run {k} of dimension {d}",
                expected="runs of dimension 2",
                remedy="use plot_spectrum for other dimensions",
            )
    return runs


def _height(runs: list[Any], paths: list[np.ndarray]) -> float:
    start = max(path[0, 2] for path in paths)
    limits = [p[-1, 2] for run, p in zip(runs, paths, strict=True) if fate_words(run).startswith("converged")]
    highest = max(path[:, 2].max() for path in paths)
    return float(min(max(2 * start, *limits, 0.0), highest)) or 1.0


def _draw_cone(ax: Any, height: float) -> None:
    angles = np.linspace(0, 2 * np.pi, 73)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    levels = np.array([0.0, height])
    sheet = [np.outer(levels, circle[0]), np.outer(levels, circle[1]), np.outer(levels, np.ones(73))]
    ax.plot_surface(*sheet, color=style.FAINT, alpha=0.16, linewidth=0, shade=False, zorder=1)
    for level in height * np.array([0.25, 0.5, 0.75, 1.0]):
        ax.plot(*(level * circle), level, color=style.FAINT, linewidth=1.1 if level == height else 0.6, zorder=2)
    for k in range(0, 72, 6):
        ax.plot(*(circle[:, k, None] * levels), levels, color=style.FAINT, linewidth=0.5, zorder=2)


def _fates(runs: list[Any], leaves: bool = False) -> list[Any]:
    """A legend entry per fate, with its count, and what the markers mean."""
    words = [fate_words(run) for run in runs]
    looks = dict(zip(words, map(fate_colour, runs), strict=True))
    lines: list[Any] = [
        Line2D([], [], color=looks[word], linewidth=2, label=f"{word} ({words.count(word)})") for word in sorted(looks)
    ]
    markers: list[Any] = [("start", "o", 3), ("end", "o", 5), *([("leaves the picture", "^", 5)] if leaves else [])]
    dots: dict[str, Any] = {"color": style.SOFT, "linestyle": "none"}
    return [*lines, *(Line2D([], [], marker=m, markersize=size, label=word, **dots) for word, m, size in markers)]


def _title(runs: list[Any]) -> str:
    names = sorted({type(run.field).__name__ for run in runs})
    return f"{', '.join(names)}: " + (f"{len(runs)} covariances" if len(runs) > 1 else "path of the covariance")


def _refuse_ranks(got: str, expected: str) -> None:
    remedy = "pass run.fate.rank of each run, -1 for a run that has not converged"
    checks.refuse("these are no ranks", got=got, expected=expected, remedy=remedy)


def _whole_numbers(values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        _refuse_ranks(f"{array.dtype} of shape {array.shape}", "a list of whole numbers")
    if array.size and array.min() < -1:
        _refuse_ranks(str(array.min()), "numbers from -1 (no limit) to d")
    return array.astype(int)


def _per_label(value: Any, groups: Mapping[Any, Any], name: str, everywhere: bool) -> dict[Any, int]:
    """One whole number per label of `groups`; a single one holds for all groups, or for the only one."""
    if value is None or (isinstance(value, int) and value == 0 and not everywhere):
        return {}
    if isinstance(value, Mapping):
        unknown = [label for label in value if label not in groups]
        if unknown:
            checks.refuse(
                f"{name} has an unknown label",
                got=repr(unknown[0]),
                expected=" or ".join(repr(label) for label in groups),
                remedy=f"name the groups of {name} as in ranks",
            )
        return {label: checks.whole(number, name, 0) for label, number in value.items()}
    if len(groups) > 1 and not everywhere:
        checks.refuse(
            f"{name} is counted per group",
            got=f"{name} = {value!r} for {len(groups)} groups",
            expected="a dictionary with a number per label",
            remedy=f"e.g. {name}={{{next(iter(groups))!r}: 1}}",
        )
    return dict.fromkeys(groups, checks.whole(value, name, 0))

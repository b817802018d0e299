r"""One Gaussian run: its ellipses or band (`run.plot()`), and the eigenvalues of its covariance over time.

A run has `times`, `states` (`mean`, `factor` with $\Sigma=LL^\top$, a leading time axis), `field` and `fate`. Over an
infinite horizon times may span twenty decades and eigenvalues fifty, and means may overflow: all of it is drawn.
"""

import math
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse

from .. import _checks as checks
from . import style
from .fates import axes_for, beside, blow_up_time, fate_colour, fate_kind, heading, history, number, numbers
from .tokens import square_limits

# A run that grows is drawn until it is so many times as large as its start.
GROWTH = 6.0
# An axis of an ellipse below this share of the picture has no width any more.
THIN = 1e-2
# Singular values of L below 1e-14 of the largest are round-off (MATH e.5): so are eigenvalues below this share.
ROUND_OFF = 1e-28


def plot_gaussian_run(
    run: Any,
    ax: Any = None,
    *,
    ellipses: int = 8,
    deviations: float = 2.0,
    mean: bool | None = None,
    legend: bool = True,
    title: str | None = None,
) -> Any:
    r"""A picture of a Gaussian run $\mathcal N(m_t,\Sigma_t)$.

    In dimension 2 the ellipses $\{x:(x-m)^\top\Sigma^{-1}(x-m)=\delta^2\}$ from dark (start) to light (end); an
    ellipse without width is a segment, one without length a dot. In dimension 1 the band $m\pm\delta\sigma$ over time.
    In higher dimension the eigenvalues of $\Sigma$: see `plot_spectrum`.

    **Arguments:**

    - `ax`: axes to draw into; a new figure by default.
    - `ellipses`: how many, at times between which the measure moves equally far; a run that grows beyond the picture
      is drawn up to there.
    - `deviations`: $\delta$, in standard deviations.
    - `mean`: whether the mean moves; if not, it is the origin of the picture. By default it moves unless that would
      dwarf the ellipses.
    - `legend`: whether to list the times beside the picture.

    **Returns:** the axes; `ax.figure.savefig("run.png")` saves the picture.
    """
    times, means, factors = history(run)
    d = means.shape[1]
    if d > 2:
        return plot_spectrum(run, ax, legend=legend, title=title)
    ellipses = checks.whole(ellipses, "ellipses", 2)
    checks.positive(deviations, "deviations", "two standard deviations: deviations=2.0")
    axes, spreads, _ = np.linalg.svd(factors, full_matrices=True)
    lengths = deviations * np.pad(spreads, ((0, 0), (0, max(0, d - spreads.shape[1]))))[:, :d]
    centres, moves = _centres(run, means, lengths[:, 0], mean)
    with style.style():
        ax = axes_for(ax, figsize=style.WIDE if d == 1 else (6.4, 5.2))
        if d == 1:
            _draw_band(ax, run, times, centres[:, 0], lengths[:, 0])
            note = ""
        else:
            note = _draw_ellipses(ax, run, times, centres, axes, lengths, ellipses, legend, deviations)
        symbols = [f"x_{i + 1}" + ("" if moves else f"-m_{i + 1}(t)") for i in range(d)] if d == 2 else []
        if d == 2:
            ax.set(xlabel=f"${symbols[0]}$", ylabel=f"${symbols[1]}$")
        else:
            centre = "m(t)" if moves else "0"
            ax.set_ylabel(f"${'x' if moves else 'x-m(t)'}$:  ${centre}\\pm{deviations:g}\\,\\sigma(t)$")
        ax.set_title(f"{heading(run, d)}{note}" if title is None else title)
    return ax


def plot_spectrum(run: Any, ax: Any = None, *, legend: bool = True, title: str | None = None) -> Any:
    r"""The eigenvalues $\lambda_1\ge\dots\ge\lambda_d$ of $\Sigma_t$ over time, both axes logarithmic.

    They are the squared singular values of the factor, so that dying ones stay exact down to $10^{-28}\lambda_1$; what
    is below is marked as round-off. Where the last of them die algebraically, a dotted line shows the slope $-1$ of the
    theory; a dashed line stands at the blow-up time $t^*$. The time 0 is at the left edge, and times before anything
    moves by 1 % are left out.

    **Arguments:** `run`, a Gaussian run of any dimension; `ax`, axes to draw into, a new figure by default.

    **Returns:** the matplotlib axes.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    ax = mf.plot_spectrum(mf.flow(mf.Softmax(I, I, I), g, t1=jnp.inf))
    assert "blow-up" in ax.get_title() and ax.get_yscale() == "log"
    ```

    MATH e.5.
    """
    times, means, factors = history(run)
    d = means.shape[1]
    spreads = np.linalg.svd(factors, compute_uv=False)
    with np.errstate(under="ignore", over="ignore"):
        values = np.pad(spreads, ((0, 0), (0, max(0, d - spreads.shape[1]))))[:, :d] ** 2
    # Rank is conserved (MATH e.1): what is zero from the start is zero for ever, up to rounding.
    rank = int((values[0] > ROUND_OFF * values[0, 0]).sum())
    drawn = np.where((values > 0) & np.isfinite(values), values, np.nan)[:, :rank]
    with style.style():
        ax = axes_for(ax, figsize=(7.0, 4.4))
        ax.set_yscale("log")
        keep, places = _log_places(times, values)
        few = rank <= len(style.PALETTE)
        colours = (
            style.category_colours(np.arange(rank)) if few else style.ordered_colours(np.arange(rank, dtype=float))
        )
        for i in range(rank):
            named = few or i in (0, rank - 1)
            label = f"$\\lambda_{{{i + 1}}}$" if named else None
            ax.plot(places, drawn[keep, i], color=colours[i], linewidth=1.6, label=label, zorder=3)
            ax.plot(places[:1], drawn[0, i], "o", color=colours[i], markersize=3.5, zorder=3)
        _log_ticks(ax, times, places)
        _value_limits(ax, drawn[keep])
        if rank:
            _draw_round_off(ax, places, values[keep])
            if fate_kind(run) != "BLEW_UP":
                _draw_slope(ax, places, drawn[keep])
        _draw_blow_up(ax, run)
        if 0 < rank < d:
            ax.plot([], [], " ", label=f"{d - rank} more: 0")
        if legend and ax.get_legend_handles_labels()[0]:
            beside(ax)
        ax.set(xlabel="time $t$", ylabel=r"eigenvalues of $\Sigma(t)$")
        ax.set_title(heading(run, d) if title is None else title)
    return ax


def _in_view(run: Any, reach: np.ndarray) -> tuple[np.ndarray, float]:
    """Which states are drawn, and the largest reach of these: a run that grows stays below `GROWTH` times its start."""
    start = reach[0] if reach[0] > 0 else reach[np.isfinite(reach)].max()
    settled = fate_kind(run) == "CONVERGED" and np.isfinite(reach[-1])
    most = max(GROWTH * start, reach[-1]) if settled else GROWTH * start
    return reach <= most, float(reach[reach <= most].max())


def _centres(run: Any, means: np.ndarray, longest: np.ndarray, moves: bool | None) -> tuple[np.ndarray, bool]:
    """Where the ellipses lie: at the means, or at the origin; and which of the two."""
    with np.errstate(invalid="ignore", over="ignore"):
        travel = np.linalg.norm(means - means[0], axis=1)
    if moves is None:
        drawn, most = _in_view(run, longest)
        moves = bool((travel[drawn] <= GROWTH * most).all() or most == 0)
    if not checks.flag(moves, "mean"):
        return np.zeros_like(means), False
    return np.where(np.isfinite(travel)[:, None], means, np.inf), True


def _draw_ellipses(
    ax: Any,
    run: Any,
    times: np.ndarray,
    centres: np.ndarray,
    axes: np.ndarray,
    lengths: np.ndarray,
    count: int,
    legend: bool,
    deviations: float,
) -> str:
    """Ellipses with the given centres, axes (columns) and semi-axes; returns what the title has to add."""
    with np.errstate(invalid="ignore"):
        reach = np.linalg.norm(centres - centres[0], axis=1) + lengths[:, 0]
    drawn, _ = _in_view(run, np.where(np.isnan(reach), np.inf, reach))
    # The symmetric root of the covariance depends on it continuously, unlike its axes.
    shapes = np.einsum("tij,tj,tkj->tik", axes[drawn], lengths[drawn], axes[drawn])
    chosen = np.flatnonzero(drawn)[_evenly(shapes, centres[drawn], count)]
    boxes = np.linalg.norm(axes * lengths[:, None, :], axis=2)  # half width and height of the ellipses
    corners = np.stack([centres[drawn] - boxes[drawn], centres[drawn] + boxes[drawn]])
    middle, half = square_limits(corners)
    if len(centres[drawn]) > 1 and (centres[drawn] != centres[0]).any():
        ax.plot(*centres[drawn].T, color=style.SOFT, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
    colours = style.ordered_colours(np.arange(len(chosen), dtype=float))
    handles, labels = [], numbers(times[chosen])
    for i, (k, colour) in enumerate(zip(chosen, colours, strict=True)):
        first, last = i == 0, i == len(chosen) - 1
        width = 2.2 if first or last else 1.1
        fill = (*colour, 0.12 if first else 0.22) if first or last else "none"
        _draw_ellipse(ax, centres[k], axes[k, :, 0], lengths[k], THIN * half, colour, width, fill)
        label = f"${labels[i]}$" + ("  (start)" if first else "  (end)" if last and drawn[-1] else "")
        handles.append(Line2D([], [], color=colour, linewidth=width, label=label))
    ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
    if legend:
        beside(ax, handles, f"${deviations:g}\\sigma$ ellipse\nat time $t=$")
    return "" if drawn[-1] else f"\ndrawn up to $t={labels[-1]}$, where it leaves the picture"


def _draw_ellipse(
    ax: Any,
    centre: np.ndarray,
    axis: np.ndarray,
    lengths: np.ndarray,
    thin: float,
    colour: Any,
    width: float,
    fill: Any,
) -> None:
    if lengths[0] <= thin:
        ax.plot(*centre, "o", color=colour, markersize=3 + 2 * width, markeredgewidth=0, zorder=4)
    elif lengths[1] <= thin:
        ends = np.stack([centre - lengths[0] * axis, centre + lengths[0] * axis])
        ax.plot(*ends.T, color=colour, linewidth=width + 0.6, solid_capstyle="round", zorder=4)
    else:
        angle = float(np.degrees(np.arctan2(axis[1], axis[0])))
        look: dict[str, Any] = {"edgecolor": colour, "facecolor": fill, "linewidth": width, "zorder": 3}
        ax.add_patch(Ellipse(tuple(centre), 2 * lengths[0], 2 * lengths[1], angle=angle, **look))


def _evenly(shapes: np.ndarray, centres: np.ndarray, count: int) -> np.ndarray:
    """Indices of at most `count` states, first and last among them, between which the measure moves equally far."""
    steps = np.linalg.norm(np.diff(shapes, axis=0), axis=(1, 2)) + np.linalg.norm(np.diff(centres, axis=0), axis=1)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    if travelled[-1] == 0:
        return np.unique([0, len(shapes) - 1])
    inner = np.abs(travelled[None] - np.linspace(0, travelled[-1], count)[1:-1, None]).argmin(axis=1)
    return np.unique([0, *inner, len(shapes) - 1])


def _draw_band(ax: Any, run: Any, times: np.ndarray, centres: np.ndarray, lengths: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        reach = np.abs(centres - centres[0]) + lengths
    drawn, _ = _in_view(run, np.where(np.isnan(reach), np.inf, reach))
    low, high = (centres - lengths)[drawn].min(), (centres + lengths)[drawn].max()
    margin = 0.06 * (high - low) or 1.0
    # Far outside nothing is seen, but polygons of any size are slow or wrong to fill.
    view = (low - 5 * (high - low), high + 5 * (high - low))
    with np.errstate(invalid="ignore"):
        curves = [
            np.clip(np.where(np.isnan(c), np.inf, c), *view) for c in (centres - lengths, centres, centres + lengths)
        ]
    positive = times[times > times[0]]
    keep, places = np.arange(len(times)), times
    if len(positive) > 1 and positive[-1] > 20 * np.median(positive):
        keep, places = _log_places(times, np.stack([centres, lengths], axis=1))
        _log_ticks(ax, times, places)
    below, middle, above = (curve[keep] for curve in curves)
    ax.fill_between(places, below, above, color=style.PALETTE[0], alpha=0.18, linewidth=0)
    for curve in (below, above):
        ax.plot(places, curve, color=style.PALETTE[0], linewidth=0.9)
    ax.plot(places, middle, color=style.INK, linewidth=1.4)
    _draw_blow_up(ax, run)
    ax.set(xlabel="time $t$", ylim=(low - margin, high + margin))


def _log_places(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which times are drawn on a logarithmic axis, and where: the first one at the left edge, a third of the next.

    Times at which no value has moved by 1 % are left out.
    """
    with np.errstate(invalid="ignore"):
        moved = ~(np.abs(values - values[0]) <= 0.01 * np.abs(values[0])).all(axis=1)
    first = int(np.argmax(moved)) if moved.any() else 1
    after = np.flatnonzero(times > 0)
    after = after[after >= max(1, first - 1)]
    if not len(after):
        return np.array([0]), np.array([times[0] if times[0] > 0 else 1.0])
    edge = times[0] if times[0] > 0 else times[after[0]] / 3
    return np.concatenate([[0], after]), np.concatenate([[edge], times[after]])


def _log_ticks(ax: Any, times: np.ndarray, places: np.ndarray) -> None:
    """A logarithmic time axis with at most eight decades named, and the first time at its left edge."""
    ax.set_xscale("log")
    low, high = math.floor(math.log10(places[0])) + 1, math.floor(math.log10(places[-1]))
    powers = np.arange(low, high + 1, max(1, -(-(high - low) // 7)))
    decades = 10.0**powers
    if len(decades) < 2:  # a short span: 1, 2, 5 of each decade
        decades = np.outer(10.0 ** np.arange(low - 1, high + 1), [1, 2, 5]).ravel()
        decades = decades[(decades > 1.2 * places[0]) & (decades <= places[-1])]
    decades = decades[decades > (places[-1] / places[0]) ** 0.05 * places[0]]
    long = high - low > 4
    names = [f"10^{{{round(math.log10(t))}}}" if long else number(t) for t in decades]
    ax.set_xticks([places[0], *decades], [f"$\\mathdefault{{{name}}}$" for name in (number(times[0]), *names)])
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    end = places[-1] if len(places) > 1 else 10 * places[0]
    pad = (end / places[0]) ** 0.02
    ax.set_xlim(places[0] / pad, end * pad)


def _value_limits(ax: Any, drawn: np.ndarray) -> None:
    finite = drawn[np.isfinite(drawn)]
    if not finite.size:  # a single point
        ax.set_ylim(0.1, 10.0)
        ax.text(0.5, 0.5, r"$\Sigma=0$: a single point", ha="center", transform=ax.transAxes, color=style.SOFT)
        return
    # Of what is round-off three decades are enough.
    floor = max(finite.min(), 1e-3 * ROUND_OFF * np.nanmin(drawn[:, 0]))
    low, high = math.log10(floor), math.log10(finite.max())
    margin = max(0.06 * (high - low), 0.3)
    ax.set_ylim(10.0 ** max(low - margin, -307.0), 10.0 ** min(high + margin, 307.0))


def _draw_round_off(ax: Any, places: np.ndarray, values: np.ndarray) -> None:
    """Shades what is below the accuracy of the eigenvalues, if any of them gets there."""
    floor = ROUND_OFF * values[:, 0]
    if (values[:, -1] < floor).any() and len(places) > 1:
        bottom, top = ax.get_ylim()
        shade = np.clip(floor, bottom, top)
        ax.fill_between(places, bottom, shade, color=style.FAINT, alpha=0.45, linewidth=0, label="round-off", zorder=1)


def _draw_slope(ax: Any, places: np.ndarray, drawn: np.ndarray) -> None:
    """The slope -1 beside the largest eigenvalue that dies like 1/t over the last decade."""
    tail = np.flatnonzero(places >= places[-1] / 10)
    if len(tail) < 2 or places[-1] < 1e3 * places[0]:
        return
    first, last = drawn[tail[0]], drawn[-1]
    with np.errstate(invalid="ignore"):
        slopes = np.log(last / first) / math.log(places[-1] / places[tail[0]])
        dying = np.flatnonzero(np.abs(slopes + 1) < 0.1)
    if len(dying):
        bottom, top = ax.get_ylim()
        line = np.array([places[-1] / 100, places[-1]])
        above = max(2.0, (top / bottom) ** 0.05)
        heights = above * last[dying[0]] * places[-1] / line
        ax.plot(line, heights, ":", color=style.INK, linewidth=1.2, label="slope $-1$", zorder=2)


def _draw_blow_up(ax: Any, run: Any) -> None:
    at = blow_up_time(run)
    if at is not None:
        low, high = ax.get_xlim()
        ax.axvline(at, color=fate_colour(run), linewidth=1.1, linestyle="--", label=f"$t^{{*}}={number(at)}$", zorder=2)
        ax.set_xlim(low, max(high, at * 1.05))

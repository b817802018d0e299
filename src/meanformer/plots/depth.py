"""What a model does to its tokens, over its layers: from the tables of `results.json` alone.

Each picture takes these tables and gives a figure and its caption; None where the numbers are not there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from . import style
from .fates import number

Results = Mapping[str, Any]
Drawing = tuple[Figure, str]

# Small enough to be read on a phone.
PANEL = (4.7, 3.3)
DASHED = (0, (4, 2))
# The curves that are drawn: the word at the axis, and what it is.
CURVES = {
    "average_cosine": ("average cosine", "The average cosine of two tokens: 1 if all point in one direction"),
    "effective_rank": ("effective rank", "The effective rank of the covariance: how many directions tokens fill"),
    "clusters": ("groups of directions", "Groups of directions, joined where the cosine of two tokens is above 0.99"),
    "norm": ("mean length of a token", "The mean length of a token"),
    "isoscore": ("IsoScore", "The IsoScore of the covariance: 1 if tokens fill all directions alike, 0 on a line"),
}
NULLS = {"random weights": style.PALETTE[1], "Gaussian tokens": style.PALETTE[2]}
# What is beyond the depth of the model: which numbers stand in one panel, and whether its scale is logarithmic.
DEEP: dict[str, tuple[dict[str, str], bool]] = {
    "pairs": ({"average_cosine": "average cosine", "near_pairs": "pairs with cosine above 0.99"}, False),
    "ranks": ({"effective_rank": "effective rank", "groups": "groups of near tokens"}, True),
    "moves": ({"move": "movement of a token in a layer", "apart": "distance of a copy that began near it"}, True),
}
# Eigenvalues below this share of the variance are not drawn.
FLOOR = 1e-7
# Copies further apart than this share of their length have nothing to do with each other.
FAR = 0.1


def plot_curve(results: Results, name: str) -> Drawing | None:
    """A number over depth, with the bands of the nulls: lines are medians, shades hold 5 to 95 % of the draws."""
    curve = array((results.get("curves") or {}).get(name))
    if curve is None or not np.isfinite(curve).any():
        return None
    label, what = CURVES[name]
    shown = [curve]
    with style.style():
        figure, ax = new_axes()
        for null, shade in NULLS.items():
            shown += add_band(ax, ((results.get("bands") or {}).get(null) or {}).get(name), shade, null)
        ax.plot(curve, "o-", color=style.PALETTE[0], linewidth=2.0, markersize=4, label="the model", zorder=4)
        count_layers(ax, len(curve), "layers passed")
        ax.set_ylabel(label)
        _set_limits(ax, np.concatenate(shown))
        if len(shown) > 1:
            ax.legend(frameon=False, fontsize=8)
    first, last = (f"${number(float(x))}$" for x in curve[[0, -1]])
    bands = " Shades hold 5 to 95 % of the draws of the nulls." if len(shown) > 1 else ""
    return figure, f"{what}; {first} before the first layer, {last} after the last.{bands}"


def plot_spectrum(results: Results) -> Drawing | None:
    """The eigenvalues of the covariance, as shares of its trace, a line for each depth."""
    spectrum = array(results.get("spectrum"))
    if spectrum is None:
        return None
    spread = array((results.get("curves") or {}).get("spread"))
    trace = spectrum.sum(1) if spread is None else spread
    shares = spectrum / np.where(trace > 0, trace, 1.0)[:, None]
    with style.style():
        figure, ax = new_axes()
        for share, shade in zip(shares, style.ordered_colours(np.arange(len(shares), dtype=float)), strict=True):
            there = np.flatnonzero(share > FLOOR)
            ax.plot(there + 1, share[there], color=shade, linewidth=1.5)
        add_depth_bar(figure, ax, len(shares), "layers passed")
        ax.set(xlabel="eigenvalue, the largest first", ylabel="share of the variance", yscale="log")
        ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    first, last = (f"{100 * x:.2g} %" for x in shares[[0, -1], 0])
    cut = f"The {shares.shape[1]} largest eigenvalues" if shares.shape[1] >= 64 else "The eigenvalues"
    words = f"the first holds {first} before the first layer, {last} after the last"
    return figure, f"{cut} of the covariance at each depth, as shares of the variance: {words}."


def plot_fates(results: Results) -> Drawing | None:
    """When the Gaussian flow of each layer, with frozen weights, blows up."""
    fates = results.get("fates") or []
    if not fates:
        return None
    layers, times = (np.array([fate.get(key) for fate in fates], float) for key in ("layer", "time"))
    found = np.isfinite(times) & (times > 0)
    pre = bool((results.get("model") or {}).get("pre"))
    without = np.array([fate.get("ending") in ("grows", "shrinks") for fate in fates]) & ~found
    with style.style():
        figure, ax = new_axes()
        bounds = np.array([fate.get("bound") for fate in fates], float)
        bounds[~(bounds > 0)] = np.nan
        drawn = np.concatenate([times[found], bounds[np.isfinite(bounds)], [1.0]])
        low, high = float(drawn.min() / 1.8), float(drawn.max() * 1.8)
        if not pre:
            ax.axhline(1.0, color=style.SOFT, linewidth=1.0, linestyle=DASHED, label="one layer")
        ax.vlines(layers[found], low, times[found], color=style.PALETTE[1], alpha=0.45, linewidth=2)
        ax.plot(layers[found], times[found], "o", color=style.PALETTE[1], markersize=6, label="blow-up")
        if np.isfinite(bounds).any():
            ax.plot(layers, bounds, "_", color=style.INK, markersize=11, label="none before")
        if without.any():
            ends = np.full(without.sum(), high)
            ax.plot(layers[without], ends, "^", color=style.PALETTE[2], label="no blow-up", clip_on=False)
        ax.set(yscale="log", ylim=(low, high), ylabel="time, of normalised tokens" if pre else "time, in layers")
        plain_log(ax.yaxis)
        count_layers(ax, len(fates), "layer")
        ax.set_xlim(layers.min() - 0.5, layers.max() + 0.5)
        ax.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.2)
    some = (
        f"blows up in {found.sum()} of {len(fates)} layers" if found.any() else "was not seen to blow up in any layer"
    )
    both = found & (bounds > 0)
    far = times[both] / bounds[both]
    least, most = (f"{factor:.2g}" for factor in (far.min(initial=np.inf), far.max(initial=0.0)))
    factors = least if least == most else f"{least} to {most}"
    return figure, (
        f"With frozen weights the Gaussian flow {some}. Finitely many tokens cannot: what attention gives lies in the "
        "hull of the values. Normalisations and perceptrons are not in this flow"
        + (", which starts from normalised tokens: its time is not in layers." if pre else ".")
        + (f" The bound before which there is no blow-up is lower by a factor of {factors}." if both.any() else "")
    )


def plot_deep(results: Results, part: str) -> Drawing | None:
    """Numbers over the logarithm of depth, far beyond that of the model."""
    deep = results.get("deep") or {}
    names, log = DEEP[part]
    layers = array(deep.get("layers"))
    found = {name: values for name in names if (values := array(deep.get(name))) is not None}
    if layers is None or not found:
        return None
    depth = (results.get("model") or {}).get("depth")
    with style.style():
        figure, ax = new_axes()
        for (name, values), shade in zip(found.items(), style.PALETTE, strict=False):
            there = (layers > 0) & ((values > 0) if log else np.isfinite(values))
            ax.plot(layers[there], values[there], color=shade, linewidth=1.8, label=names[name])
        if depth:
            ax.axvline(depth, color=style.SOFT, linewidth=1.0, linestyle=DASHED, label="depth of the model")
        ax.set(xscale="log", xlabel="layers passed", yscale="log" if log else "linear")
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}"))
        values = np.concatenate(list(found.values()))
        if not log:
            ax.set_ylim(min(0.0, 1.1 * float(np.nanmin(values))), 1.04)
        elif np.nanmin(values) >= 1:
            ax.set_ylim(0.9, 1.5 * float(np.nanmax(values)))
            plain_log(ax.yaxis)
        ax.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ends = "; ".join(f"{names[name]}: ${number(float(values[-1]))}$" for name, values in found.items())
    chaos = " One draw of a chaotic map: a copy that began near it is elsewhere." if chaotic(deep) else ""
    return figure, f"After {int(layers[-1]):,} layers, {ends}.{chaos}"


def chaotic(deep: Mapping[str, Any]) -> bool:
    """Whether a copy of the tokens that began near them ends far away, so that numbers are those of one draw."""
    apart = (deep.get("apart") or [None])[-1]
    return apart is not None and apart > FAR


def array(values: Any) -> np.ndarray | None:
    """A list of numbers, null where there is none, as an array; None for no list."""
    return None if not values else np.array(values, np.float64)


def new_axes(size: tuple[float, float] = PANEL) -> tuple[Figure, Any]:
    """A new figure with one panel."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def count_layers(ax: Any, count: int, label: str) -> None:
    """The axis of layers: whole numbers."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1, nbins=min(count, 9)))


def add_band(ax: Any, band: Mapping[str, Any] | None, shade: Any, label: str) -> list[np.ndarray]:
    """A null: its median as a line, and a shade between its low and high values. Gives what was drawn."""
    if not band or not band.get("middle"):
        return []
    low, middle, high = (np.array(band[key], np.float64) for key in ("low", "middle", "high"))
    x = np.arange(len(middle))
    ax.fill_between(x, low, high, color=shade, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=shade, linewidth=1.3, label=label)
    return [low, middle, high]


def add_depth_bar(figure: Figure, ax: Any, count: int, label: str) -> None:
    """The scale of colours of layers."""
    scale = ScalarMappable(colors.Normalize(0, max(count - 1, 1)), style.ordered_map())
    bar = figure.colorbar(scale, ax=ax, pad=0.02, fraction=0.05, aspect=24)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.set_label(label)
    bar.locator = ticker.MaxNLocator(integer=True, nbins=6)
    bar.update_ticks()


def _set_limits(ax: Any, shown: np.ndarray) -> None:
    """From 0 on, or logarithmic where the values span more than a factor of 20."""
    finite = shown[np.isfinite(shown)]
    low, high = float(finite.min()), float(finite.max())
    if low > 0.01 and high > 20 * low:
        ax.set_yscale("log")
        plain_log(ax.yaxis)
    else:
        ax.set_ylim(min(0.0, 1.1 * low), 1.12 * high if high > 0 else 1.0)


def plain_log(axis: Any) -> None:
    """Ticks of a logarithmic axis as people write them: 0.2, 0.5, 1, 2."""
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())

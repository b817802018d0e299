"""The heads of a model, layer by layer: closure, matrices, attention. From the tables of `results.json` alone."""

from typing import Any

import numpy as np
from matplotlib import colors, ticker
from matplotlib.figure import Figure

from . import style
from .densities import INK_MAP
from .depth import DASHED, Drawing, Results, add_band, add_depth_bar, array, count_layers, new_axes, plain_log
from .fates import number

# Better than nothing is blue, worse is red, with paper between.
ERROR_MAP = colors.LinearSegmentedColormap.from_list(
    "errors", ["#2B5C8A", "#8FB3D3", style.PAPER, "#EE9AA4", "#B5263C"]
)
# Cells have their numbers in them up to this many.
WRITTEN = 150
MOST_PANELS = 8
TABLE = (5.0, 3.6)
# The nulls of the closure: names and colours.
CLOSURES = {
    "random": ("random weights", style.PALETTE[1]),
    "matched": ("random weights, logits as large", style.PALETTE[3]),
    "resampled": ("Gaussian tokens", style.PALETTE[2]),
}


def plot_closure_heads(results: Results) -> Drawing | None:
    """The error of the Gaussian closure, head by head, around 1."""
    closure = results.get("closure") or {}
    error = array(closure.get("error"))
    if error is None:
        return None
    mean_only = array(closure.get("mean_only"))
    better = error < mean_only if mean_only is not None else np.zeros(error.shape, bool)
    finite = error[np.isfinite(error) & (error > 0)]
    span = max(2.0, float(finite.max(initial=1.0)), 1 / float(finite.min(initial=1.0)))
    with style.style():
        figure, ax = new_axes(TABLE)
        mesh = _cells(ax, error, ERROR_MAP, colors.LogNorm(1 / span, span))
        _write(ax, error, mesh)
        rows, columns = np.nonzero(better)
        ax.plot(columns + 0.36, rows - 0.34, ".", color=style.INK, markersize=3.5, linestyle="none")
        bar = _bar(figure, ax, mesh, "relative error of the closure")
        bar.ax.axhline(1.0, color=style.INK, linewidth=1.2)
        plain_log(bar.ax.yaxis)
    known = np.isfinite(error).sum()
    words = f"It is below 1, better than predicting no output, in {int((error < 1).sum())} of {known} heads"
    dots = f"; in {int(better.sum())}, with a dot, it also beats their mean value" if mean_only is not None else ""
    return figure, f"The error of the Gaussian closure in each head; white is 1. {words}{dots}."


def plot_closure_layers(results: Results) -> Drawing | None:
    """The errors of the closure of whole layers, each beside that of the mean value, for the model and the nulls."""
    closure = results.get("closure") or {}
    error, mean_only = (array(closure.get(key)) for key in ("layer_error", "layer_mean_only"))
    if error is None:
        return None
    with style.style():
        figure, ax = new_axes(TABLE)
        ax.axhline(1.0, color=style.SOFT, linewidth=1.0)
        for null, (name, shade) in CLOSURES.items():
            # Medians only: the ratios have their bands.
            errors, means = (array((closure.get(key) or {}).get("middle")) for key in (null, f"{null}_mean_only"))
            if errors is not None:
                ax.plot(errors, color=shade, linewidth=1.3, label=name)
            if means is not None:
                ax.plot(means, color=shade, linestyle=DASHED, linewidth=1.2, label=f"_{name}, mean value")
        if mean_only is not None:
            ax.plot(mean_only, color=style.PALETTE[0], linestyle=DASHED, linewidth=1.6, label="mean value alone")
        ax.plot(error, "o-", color=style.PALETTE[0], linewidth=2.0, markersize=4, label="the model", zorder=4)
        count_layers(ax, len(error), "layer")
        ax.set(yscale="log", ylabel="relative error, all heads together")
        plain_log(ax.yaxis)
        low, high = ax.get_ylim()
        ax.set_ylim(low, max(high, 1.2))
        ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure, (
        "The error of the closure for whole layers, and, dashed in the same colour, that of the mean value alone; of "
        "nulls, medians. How low a line is tells how little the output varies; what the closure is worth is its "
        "distance from the dashes."
    )


def plot_closure_ratio(results: Results) -> Drawing | None:
    """The error of the closure over that of the mean value, layer by layer, for the model and the nulls."""
    closure = results.get("closure") or {}
    error, mean_only = (array(closure.get(key)) for key in ("layer_error", "layer_mean_only"))
    if error is None or mean_only is None:
        return None
    ratio = np.divide(error, mean_only, out=np.full(error.shape, np.nan), where=mean_only > 0)
    with style.style():
        figure, ax = new_axes(TABLE)
        ax.axhline(1.0, color=style.SOFT, linewidth=1.0)
        for null, (name, shade) in CLOSURES.items():
            add_band(ax, closure.get(f"{null}_ratio"), shade, name)
        ax.plot(ratio, "o-", color=style.PALETTE[0], linewidth=2.0, markersize=4, label="the model", zorder=4)
        count_layers(ax, len(error), "layer")
        ax.set(yscale="log", ylabel="error of the closure / of the mean value")
        plain_log(ax.yaxis)
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, 0.8), max(high, 1.2))
        ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    better, known = int((ratio < 1).sum()), int(np.isfinite(ratio).sum())
    return figure, (
        "The error of the closure over that of the mean value: 1 is no better. It is below 1 in "
        f"{better} of {known} layers. The closure is exact for infinitely many Gaussian tokens: what is left on "
        "Gaussian ones is due to their number."
    )


def plot_ov(results: Results) -> Drawing | None:
    """The eigenvalues of $OV$ of all heads in the complex plane, a panel for each layer."""
    heads = [head for head in results.get("heads") or [] if head.get("ov")]
    if not heads:
        return None
    layers = sorted({int(head["layer"]) for head in heads})
    chosen = [layers[k] for k in np.unique(np.linspace(0, len(layers) - 1, MOST_PANELS).round().astype(int))]
    values = {layer: np.concatenate([_complex(head) for head in heads if head["layer"] == layer]) for layer in chosen}
    width, height = (1.06 * max(float(np.abs(part(v)).max()) for v in values.values()) for part in (np.real, np.imag))
    width = max(width, height) or 1.0
    height = max(height, 0.4 * width)
    shades = dict(zip(layers, style.ordered_colours(np.arange(len(layers), dtype=float)), strict=True))
    with style.style():
        figure, panels = grid_of(len(chosen), 2.9, 2.5 * height / width + 0.5)
        for ax, (layer, found) in zip(panels, values.items(), strict=True):
            for line in (ax.axhline, ax.axvline):
                line(0.0, color=style.FAINT, linewidth=0.8, zorder=1)
            ax.scatter(np.real(found), np.imag(found), s=5, color=shades[layer], linewidth=0, alpha=0.7, zorder=2)
            ax.set(xlim=(-width, width), ylim=(-height, height), aspect="equal")
            ax.set_title(f"layer {layer}: {100 * (np.real(found) > 0).mean():.0f} % to the right", fontsize=9)
            ax.tick_params(labelsize=7)
    right = np.real(np.concatenate([_complex(head) for head in heads])) > 0
    words = "Their signs tell whether a head, looking at itself, adds to what is there or takes from it"
    return figure, f"Eigenvalues of $OV$ of all heads; {100 * right.mean():.0f} % have positive real part. {words}."


def plot_symmetry(results: Results) -> Drawing | None:
    r"""The positive share and the symmetry of $K^\top Q$, a dot for each head."""
    heads = [h for h in results.get("heads") or [] if None not in (h.get("positive_share"), h.get("symmetry"))]
    if not heads:
        return None
    share, symmetry, layers = (
        np.array([h[key] for h in heads], float) for key in ("positive_share", "symmetry", "layer")
    )
    with style.style():
        figure, ax = new_axes(TABLE)
        tints = style.ordered_map()(layers / max(1.0, layers.max()))
        ax.scatter(share, symmetry, s=26, color=tints, edgecolor=style.PAPER, linewidth=0.5, zorder=3)
        ax.plot(
            0.5,
            0.5**0.5,
            "+",
            color=style.PALETTE[1],
            markersize=13,
            markeredgewidth=2,
            zorder=4,
            label="random weights",
        )
        add_depth_bar(figure, ax, int(layers.max()) + 1, "layer")
        ax.set(xlabel="positive share of $\\mathrm{sym}(K^\\top Q)$", ylabel="symmetry of $K^\\top Q$")
        ax.legend(frameon=False, fontsize=8)
    k = (results.get("model") or {}).get("k")
    law = ""
    if k and all(list(h.get("inertia") or ())[:2] == [k, k] for h in heads):
        law = f" How many there are tells nothing: all heads have $({k},{k})$, by linear algebra."
    words = (
        r"how much of $\mathrm{sym}(K^\top Q)$ is in its positive eigenvalues, and how much of $K^\top Q$ is symmetric"
    )
    return figure, f"For each head, {words}.{law}"


def plot_entropy(results: Results) -> Drawing | None:
    """The entropy of attention, head by head."""
    entropy = array((results.get("attention") or {}).get("entropy"))
    if entropy is None or not np.isfinite(entropy).any():
        return None
    with style.style():
        figure, ax = new_axes(TABLE)
        mesh = _cells(ax, entropy, INK_MAP.reversed(), colors.Normalize(0, 1))
        _write(ax, entropy, mesh)
        _bar(figure, ax, mesh, "entropy of attention")
    low, high = np.nanmin(entropy), np.nanmax(entropy)
    # Under a mask, a token that sees few has a small entropy by construction.
    causal = (results.get("model") or {}).get("causal")
    most = "the logarithm of how many tokens the row sees" if causal else r"$\log n$"
    return figure, (
        f"The mean entropy of the rows of attention over {most}: 1 if all are seen alike, 0 if each token sees one. "
        f"From ${number(float(low))}$ to ${number(float(high))}$."
    )


def plot_leaders(results: Results) -> Drawing | None:
    """The number of leaders, head by head."""
    leaders = array((results.get("attention") or {}).get("leaders"))
    if leaders is None or not np.isfinite(leaders).any():
        return None
    with style.style():
        figure, ax = new_axes(TABLE)
        mesh = _cells(ax, leaders, INK_MAP, colors.PowerNorm(0.5, 0, max(1.0, float(np.nanmax(leaders)))))
        _write(ax, leaders, mesh)
        bar = _bar(figure, ax, mesh, "leaders")
        bar.ax.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    n = (results.get("input") or {}).get("n")
    return (
        figure,
        f"Leaders: tokens that get more than half of the attention of some token. There are {n or 'as many'} tokens.",
    )


def grid_of(count: int, width: float, height: float) -> tuple[Figure, list[Any]]:
    """A figure with so many panels of that size in inches, in rows of three or four."""
    columns = min(count, 3 if count in (5, 6, 9) else 4)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, k + 1) for k in range(count)]


def _complex(head: Any) -> np.ndarray:
    pairs = np.array(head["ov"], np.float64)
    return pairs[:, 0] + 1j * pairs[:, 1]


def _cells(ax: Any, values: np.ndarray, colour_map: Any, norm: Any) -> Any:
    """A cell for each layer, downwards, and head, to the right; grey where there is no number."""
    shown = np.ma.masked_invalid(values)
    grey = colour_map.with_extremes(bad=style.FAINT, under=colour_map(0.0), over=colour_map(1.0))
    mesh = ax.imshow(shown, cmap=grey, norm=norm, aspect="auto", interpolation="nearest")
    ax.set(xlabel="head", ylabel="layer")
    for axis, count in zip((ax.yaxis, ax.xaxis), values.shape, strict=True):
        axis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=min(count, 12), min_n_ticks=1))
    ax.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5))
    return mesh


def _write(ax: Any, values: np.ndarray, mesh: Any) -> None:
    """The numbers of the cells, where there is room."""
    if values.size > WRITTEN or values.shape[1] > 16:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            bright = colors.rgb_to_hsv(np.asarray(mesh.to_rgba(value))[:3])
            ink = style.PAPER if bright[2] < 0.75 else style.INK
            ax.text(column, row, _short(value), ha="center", va="center", fontsize=6.5, color=ink)


def _short(value: float) -> str:
    """Two digits: .14, 2.1, 37."""
    if value == round(value) or abs(value) >= 10:
        return f"{value:.0f}" if abs(value) < 1000 else f"{value:.0e}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}".replace("0.", ".", 1)


def _bar(figure: Figure, ax: Any, mesh: Any, label: str) -> Any:
    bar: Any = figure.colorbar(mesh, ax=ax, pad=0.02, fraction=0.05, aspect=24)
    bar.outline.set_visible(False)
    bar.set_label(label)
    return bar

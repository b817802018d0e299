"""Figures of A12: images put together again, words in a plane, and what was measured."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ....diagnostics.clusters import clusters
from ....measures.cloud import PointCloud
from ....plots import style
from ....plots.labels import draw_labels
from ....plots.tokens import square_limits
from ..base import Picture

COLOURS = dict(zip(("softmax", "L2", "Sinkhorn", "masked softmax"), style.PALETTE, strict=False))
# Save times that are shown, of 13.
SHOWN = (0, 2, 4, 6, 8, 12)


def sign_text(sign: int) -> str:
    """V = I or V = -I, as a formula."""
    return "$V=I$" if sign > 0 else "$V=-I$"


def pictures_of(found: list[Any], rates: dict[int, Any], misses: list[Any]) -> list[Picture]:
    """A figure for each cloud, and one of what was measured."""
    captions = {
        "image": (
            r"A portrait as a cloud of patches. Rows: $z=e^{-t}x$ for $V=I$ under each kind, and $x$ for $V=-I$, put "
            "together again at some times; right: the patches in the plane of their first two principal axes at the "
            "end, each in its mean colour. For $V=I$ patches become those that lead; for $V=-I$ large contrasts fade "
            "first."
        ),
        "text": (
            r"A text as a cloud of words, in the plane of its first two principal axes: at the start, and at the end "
            r"as $z=e^{-t}x$ for $V=I$ under each kind, and as $x$ for $V=-I$. Grey: where tokens began."
        ),
    }
    pictures = [Picture(f.cloud.name, FIGURES[f.cloud.name](f), captions[f.cloud.name]) for f in found]
    if found:
        caption = (
            r"Left: the effective rank over time, for $V=I$ (falling) and $V=-I$ (rising). Middle: the error of $n$ "
            "patches, drawn at random, against all patches. Right: the share of the velocity that the Gaussian "
            "closure misses (bars), and the same for Gaussian tokens of the same number and moments (marks)."
        )
        pictures.append(Picture("measured", measured_figure(found, rates, misses), caption))
    return pictures


def image_figure(flows: Any) -> Figure:
    """A row for each kind: the image at some times, and the patches in a plane at the end."""
    rows = [*((kind, 1) for kind in flows.kinds), ("softmax", -1)]
    times = np.asarray(next(iter(flows.runs.values())).times)
    pixels = np.asarray(flows.cloud.tokens.cloud.points).reshape(flows.cloud.start.n, -1, 3)
    colours = np.clip(pixels.mean(axis=1), 0, 1)
    with style.style():
        figure = Figure(figsize=(10.4, 1.72 * len(rows)), dpi=style.DPI, layout="constrained")
        axes = figure.subplots(len(rows), len(SHOWN) + 1, width_ratios=[1] * len(SHOWN) + [1.3], squeeze=False)
        for line, (kind, sign) in zip(axes, rows, strict=True):
            points = flows.points(kind, sign)
            for ax, k in zip(line, SHOWN, strict=False):
                ax.imshow(np.clip(flows.cloud.tokens.image(flows.cloud.back(points[k])), 0, 1))
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
                if ax in axes[0]:
                    ax.set_title(f"$t={times[k]:g}$")
            line[0].set_ylabel(f"{kind}\n{sign_text(sign)}", fontsize=9)
            _plane(line[-1], points, colours)
        axes[0, -1].set_title(f"patches, $t={times[-1]:g}$")
    return figure


def _plane(ax: Any, points: np.ndarray, colours: np.ndarray) -> None:
    """Tokens at the end, above those at the start, in the plane of the first two axes."""
    ax.scatter(*points[0, :, :2].T, s=3, color=style.FAINT, linewidth=0, zorder=1)
    ax.scatter(*points[-1, :, :2].T, s=12, color=colours, edgecolor=style.INK, linewidth=0.25, zorder=2)
    centre, half = square_limits(points[[0, -1], :, :2])
    ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), xticks=[], yticks=[])
    ax.set_aspect("equal")


def text_figure(flows: Any) -> Figure:
    """Words in a plane: at the start, and at the end for each kind."""
    panels = [("start", 1), *((kind, 1) for kind in flows.kinds), ("softmax", -1)]
    columns = 2 if len(panels) <= 4 else 3
    height = -(-len(panels) // columns)
    times = np.asarray(next(iter(flows.runs.values())).times)
    with style.style():
        figure = Figure(figsize=(4.4 * columns, 4.2 * height), dpi=style.DPI, layout="constrained")
        axes = list(figure.subplots(height, columns, squeeze=False).flat)
        drawn = []
        for ax, (kind, sign) in zip(axes, panels, strict=True):
            first = kind == "start"
            points = flows.points("softmax" if first else kind, sign)
            centres, words, sizes = gathered(points[0 if first else -1], flows.cloud.tokens.labels)
            if not first:
                ax.scatter(*points[0, :, :2].T, s=5, color=style.FAINT, linewidth=0, zorder=1)
            look = {"color": COLOURS.get(kind, style.INK), "edgecolor": style.PAPER, "linewidth": 0.4, "alpha": 0.8}
            ax.scatter(*centres[:, :2].T, s=14 * sizes, zorder=2, **look)
            centre, half = square_limits(points[[0, -1], :, :2], 0.1)
            ax.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
            ax.set(xticks=[], yticks=[], aspect="equal")
            ax.set_title("start" if first else f"{kind}, {sign_text(sign)}, $t={times[-1]:g}$: {len(centres)} clusters")
            drawn.append((centres[:, :2], words, 14 * sizes))
        for ax, (centres, words, areas) in zip(axes, drawn, strict=True):
            draw_labels(ax, centres, words, areas=areas, size=7.0)
    return figure


def gathered(points: np.ndarray, labels: Sequence[str]) -> tuple[np.ndarray, list[str], np.ndarray]:
    """The clusters of tokens: their centres, their words ("the ×9": nine tokens, most of them "the"), and how many
    tokens they have.
    """
    found = clusters(PointCloud(points))
    members = [np.flatnonzero(found.labels == number) for number in range(found.count)]
    words = []
    for several in members:
        word = Counter(labels[int(i)] for i in several).most_common(1)[0][0]
        word = word if any(letter.isalnum() for letter in word) else f"“{word}”"
        words.append(word if len(several) == 1 else f"{word} ×{len(several)}")
    return found.centres, words, np.array([len(several) for several in members])


FIGURES = {"image": image_figure, "text": text_figure}


def measured_figure(found: list[Any], rates: dict[int, Any], misses: list[Any]) -> Figure:
    """Effective ranks over time, the mean-field rate, and the closure."""
    with style.style():
        figure = Figure(figsize=(11.4, 3.9), dpi=style.DPI, layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _draw_ranks(left, found)
        _draw_rates(middle, rates)
        _draw_misses(right, misses)
    return figure


def _draw_ranks(ax: Any, found: list[Any]) -> None:
    dashes = dict(zip((flows.cloud.name for flows in found), ("-", (0, (4, 2))), strict=False))
    for flows in found:
        times = np.asarray(next(iter(flows.runs.values())).times)
        for kind, sign in flows.runs:
            look = {"color": COLOURS[kind], "linestyle": dashes[flows.cloud.name], "linewidth": 1.4}
            ax.plot(times, flows.ranks[kind, sign], **look)
    kinds = dict.fromkeys(kind for flows in found for kind in flows.kinds)
    handles = [Line2D([], [], color=COLOURS[kind], label=kind) for kind in kinds]
    handles += [Line2D([], [], color=style.SOFT, linestyle=dash, label=name) for name, dash in dashes.items()]
    ax.set(xlabel="time $t$", ylabel="effective rank", yscale="log", title="Ranks fall and rise")
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.minorticks_off()
    # Between the image, whose ranks are low, and the text.
    ax.legend(handles=handles, frameon=False, fontsize=8, ncols=2, loc="center right", bbox_to_anchor=(1.0, 0.68))


def _draw_rates(ax: Any, rates: dict[int, Any]) -> None:
    for (sign, rate), colour in zip(rates.items(), style.PALETTE, strict=False):
        sizes = np.repeat(rate.n, [len(row) for row in rate.errors])
        ax.scatter(sizes, np.concatenate(rate.errors), s=10, color=colour, alpha=0.25, linewidth=0)
        look: dict[str, Any] = {"markerfacecolor": style.PAPER, "markeredgewidth": 1.5, "markersize": 5.5}
        ax.plot(rate.n, rate.rms, "o-", color=colour, label=f"{sign_text(sign)}: slope ${rate.slope:.2f}$", **look)
    if rates:
        n = next(iter(rates.values())).n
        lowest = min(float((rate.rms * np.sqrt(rate.n)).min()) for rate in rates.values())
        ax.plot(n, 0.6 * lowest / np.sqrt(n), ":", color=style.SOFT, linewidth=1.4, label="theory: $n^{-1/2}$")
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(n, [f"{size:,}" for size in n])
        ax.minorticks_off()
        ax.legend(frameon=False, fontsize=8)
    ax.set(xlabel="patches drawn $n$", ylabel="error, as a share of the way", title="Some patches for all, softmax")


def _draw_misses(ax: Any, misses: list[Any]) -> None:
    for k, miss in enumerate(misses):
        ax.barh(k, miss.real, height=0.62, color=COLOURS[miss.kind], alpha=0.85)
        ax.plot(miss.twins, np.full(len(miss.twins), k), "|", color=style.INK, markersize=9, markeredgewidth=1.2)
    ax.set_yticks(range(len(misses)), [f"{miss.cloud}, {miss.kind}" for miss in misses])
    ax.tick_params(axis="y", length=0, labelcolor=style.INK)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="share of the velocity that it misses", title="The Gaussian closure")
    mark = Line2D([], [], color=style.INK, marker="|", linestyle="", markersize=9, label="Gaussian tokens")
    ax.legend(handles=[mark], frameon=False, fontsize=8)

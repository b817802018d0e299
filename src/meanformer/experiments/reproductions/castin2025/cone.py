r"""A4: covariances of the plane under attention: five regimes, four kinds, the same starts of trace one.

With $A=K^\top Q$ (MATH e.3, e.4):

- to zero: $K=-Q$ invertible, $V\succ0$;
- to a line: $K=-Q$ of rank one, $V\succ0$ ($V=I$ with one head); the line is $\ker Q$;
- two lines: $A+A^\top$ indefinite; a limit $\sigma uu^\top$ has $u^\top Au=0$, which holds on two lines;
- growth: $A+A^\top\succ0$, $V=I$ (with two heads the second $V\succ0$ is another one): softmax blows up, L2 with
  invertible $K$ and Sinkhorn grow exponentially;
- both: the start decides between a limit and growth.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from scipy.spatial import KDTree

import meanformer as mf

from ....plots import style
from ....plots.fates import fate_colour, fate_words
from ..base import Budget, Found, Item, Picture, Row
from .gaussians import SAVES, centred, kernel_limit, relative_errors
from .rows import error_row

I = np.eye(2)
SADDLE, TURN = np.diag([1.0, -1.0]), np.array([[0.0, 0.4], [-0.4, 0.0]])
POSITIVE, OTHER = np.array([[1.0, 0.3], [0.3, 0.6]]), np.array([[0.5, -0.2], [-0.2, 0.8]])

Heads = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def regimes() -> dict[str, Heads]:
    r"""(Q, K, V) of two heads in each regime; kinds with one head have the first.

    The second head has other matrices in the same regime, with $V\ne I$ where the first has $V=I$: otherwise the two
    would be one head with $A=A_1+A_2$. In "to a line" both heads must have the same kernel.
    """
    Q1, Q2 = np.array([[1.0, 0.3], [0.0, 0.7]]), np.array([[0.5, 0.0], [0.2, 0.6]])
    row = np.array([[1.0, 0.5], [0.0, 0.0]])
    V1, V2 = np.array([[-1.0, 0.3], [0.1, 0.8]]), np.array([[-0.6, -0.4], [0.5, 0.7]])
    # A draw, looked for, of which all four kinds have both fates.
    drawn = np.array(
        [
            [[[2.0, -2.6], [0.4, -0.6]], [[-0.5, -0.2], [-2.0, -0.2]], [[-0.9, 3.3], [0.2, -0.4]]],
            [[[-0.15, -0.35], [-0.55, -0.2]], [[0.5, -0.2], [1.0, -0.2]], [[0.0, 1.5], [0.5, -0.5]]],
        ]
    )
    return {
        "to zero": [(Q1, -Q1, POSITIVE), (Q2, -Q2, OTHER)],
        "to a line": [(row, -row, I), (0.6 * row, -0.6 * row, OTHER)],
        # The antisymmetric part of A does not change u^T A u: both heads leave the same two lines alone.
        "two lines": [(I, SADDLE, V1), (I, 0.5 * SADDLE + TURN, V2)],
        "growth": [(I, np.array([[1.0, 0.3], [0.1, 0.6]]), I), (I, np.array([[0.5, -0.2], [0.1, 0.8]]), OTHER)],
        "both": [(Q, K, V) for Q, K, V in drawn],
    }


KINDS: dict[str, Callable[[Heads], mf.AbstractField]] = {
    "softmax": lambda heads: mf.Softmax(*heads[0]),
    "two heads": lambda heads: mf.MultiHead([mf.Softmax(*head) for head in heads], W=[I, I]),
    "L2": lambda heads: mf.L2(*heads[0]),
    "Sinkhorn": lambda heads: mf.Sinkhorn(*heads[0]),
}


def starts(side: int) -> np.ndarray:
    """Covariances of trace one, those of a square grid of `side` x `side` points that lie in the disc: (n, 2, 2)."""
    grid = np.linspace(-1, 1, side)
    x, y = (a.ravel() for a in np.meshgrid(grid, grid))
    x, y = x[x**2 + y**2 < 0.98], y[x**2 + y**2 < 0.98]
    return np.stack([np.stack([1 + x, y], axis=1), np.stack([y, 1 - x], axis=1)], axis=1) / 2


def fates(field: mf.AbstractField, covs: np.ndarray) -> list[mf.Fate]:
    """What becomes of each start."""
    found = mf.fates(field, centred(covs), progress=False)
    return [found[i] for i in range(len(found))]


def path(field: mf.AbstractField, cov: np.ndarray, fate: mf.Fate) -> mf.Trajectory:
    """The run from one start towards its fate: to a thousandth of the time before a blow-up; while an exponential
    growth that was seen over nine decades still has five to go, which does not show in the disc.
    """
    if fate.kind == "BLEW_UP":
        times = fate.time * (1 - np.geomspace(1, 1e-3, SAVES))
    elif fate.kind == "DIVERGED":
        times = np.linspace(0, fate.time - np.log(1e5) / fate.growth, SAVES)
    else:
        times = np.append(0.0, np.geomspace(1e-5 * fate.time, fate.time, SAVES - 1))
    run = mf.flow(field, centred(cov), times[-1], save=times, rtol=1e-6, progress=False)
    return dataclasses.replace(run, fate=fate)


class _Seen:
    """A fate, for the words and colours of pictures, which are those of a run."""

    def __init__(self, fate: mf.Fate):
        self.fate = fate


def counted(found: list[mf.Fate]) -> str:
    """How many runs had each fate, most frequent first."""
    counts = Counter(fate_words(_Seen(fate)) for fate in found).most_common()
    return ", ".join(f"{count} {words}" for words, count in counts)


def expected(regime: str, kind: str) -> str:
    """The fate that theory gives, in the words of the pictures."""
    if regime == "growth":
        return "blow-up" if kind in ("softmax", "two heads") else "diverges"
    return {"to zero": "converged, rank 0", "to a line": "converged, rank 1", "two lines": "converged, rank 1"}[regime]


def fate_row(regime: str, kind: str, found: list[mf.Fate]) -> Row:
    """The fates in one panel next to what theory says."""
    words = [fate_words(_Seen(fate)) for fate in found]
    if regime == "both":
        limits = sum(word.startswith("converged") for word in words)
        grown = sum(word in ("blow-up", "diverges") for word in words)
        reference, right = "limits and growth", limits > 0 and grown > 0 and limits + grown == len(words)
    else:
        reference = f"{len(words)} {expected(regime, kind)}"
        right = words == [expected(regime, kind)] * len(words)
    verdict = "holds" if right else "undecided" if "undecided" in words else "fails"
    return Row(f"{regime}, {kind}: fates of {len(words)} starts", reference, counted(found), "exact", verdict)


def line_rows(found: dict[tuple[str, str], list[mf.Fate]], covs: np.ndarray) -> list[Row]:
    """Where the limits of rank one lie."""
    Q = regimes()["to a line"][0][0]
    exact = np.stack([kernel_limit(Q, cov) for cov in covs])
    misses, slants = [], []
    for kind in KINDS:
        if kind != "two heads":  # whose second V is not I
            kept, limits = _limits(found["to a line", kind])
            misses.append(relative_errors(limits, exact[kept]))
        _, limits = _limits(found["two lines", kind])
        slants.append(np.abs(np.einsum("nij,ij->n", limits, SADDLE)) / np.trace(limits, axis1=1, axis2=2))
    errors, shares = np.concatenate(misses), np.concatenate(slants)
    return [
        error_row(
            "to a line: limit N (N^T Sigma0^-1 N)^-1 N^T, the same for softmax, L2, Sinkhorn: largest relative error",
            errors,
            1e-3,
            "read at a finite time, with an error like 1/t",
            missing=len(misses) * len(covs) - len(errors),
        ),
        error_row(
            "two lines: u^T A u = 0 for every limit s u u^T, four kinds: largest |tr(A Sigma)| / tr Sigma",
            shares,
            1e-6,
            "the lines are x = y and x = -y; the approach is exponential",
            missing=len(slants) * len(covs) - len(shares),
        ),
    ]


def _limits(found: list[mf.Fate]) -> tuple[np.ndarray, np.ndarray]:
    """Which runs have a limit of rank one, and these limits, shape (kept, 2, 2)."""
    kept = np.array([fate.rank == 1 for fate in found], bool)
    return kept, np.array([fate.limit for fate in found if fate.rank == 1], float).reshape(-1, 2, 2)


def regime_picture(regime: str, runs: dict[str, list[mf.Trajectory]]) -> Figure:
    """Four kinds side by side: in the cone if there are limits, in the disc if not."""
    in_disc = regime in ("growth", "both")
    highest = max(_top(run) for panel in runs.values() for run in panel)
    with style.style():
        figure = Figure(figsize=(12.8, 4.2))
        for k, (kind, panel) in enumerate(runs.items()):
            ax = panel_axes(figure, k, kind, counted([run.fate for run in panel if run.fate]), three=not in_disc)
            if in_disc:
                mf.plot_disc(panel, ax, legend=False, title="")
            else:
                mf.plot_cone(panel, ax, legend=False, title="", height=highest)
                ax.set_box_aspect((1, 1, 0.85), zoom=1.35)
            ax.set_axis_off()
        looks = {fate_words(run): fate_colour(run) for panel in runs.values() for run in panel}
        lines: list[Any] = [Line2D([], [], color=looks[word], linewidth=2, label=word) for word in sorted(looks)]
        dots: dict[str, Any] = {"color": style.SOFT, "linestyle": "none", "marker": "o"}
        lines += [Line2D([], [], markersize=size, label=word, **dots) for word, size in (("start", 3), ("end", 5))]
        figure.legend(handles=lines, loc="lower center", ncols=len(lines), frameon=False, fontsize=9)
    return figure


def panel_axes(figure: Figure, k: int, kind: str, words: str, three: bool = False) -> Any:
    """Axes for panel `k` of four, below its kind and the counts of its fates."""
    figure.text(0.125 + 0.25 * k, 0.945, kind, ha="center", va="center", fontsize=12.5, fontweight="bold")
    figure.text(0.125 + 0.25 * k, 0.885, words, ha="center", va="center", fontsize=9, color=style.SOFT)
    return figure.add_axes((0.25 * k + 0.005, 0.1, 0.24, 0.74), projection="3d" if three else None)


def _top(run: mf.Trajectory) -> float:
    """The largest trace of a run that converges."""
    traces = np.trace(np.asarray(run.states.covariance), axis1=1, axis2=2)
    return float(traces.max()) if run.fate is not None and run.fate.kind == "CONVERGED" else float(traces[0])


def basin_picture(found: dict[str, list[mf.Fate]], covs: np.ndarray) -> Figure:
    """The fate of every start in the disc, four kinds side by side; a place has the fate of the nearest start."""
    places = np.stack([covs[:, 0, 0] - covs[:, 1, 1], 2 * covs[:, 0, 1]], axis=1)
    grid = np.linspace(-1, 1, 301)
    pixels = np.stack(np.meshgrid(grid, grid), axis=-1)
    _, nearest = KDTree(places).query(pixels)
    inside = ((pixels**2).sum(axis=-1) <= 1)[..., None]
    with style.style():
        figure = Figure(figsize=(12.8, 4.2))
        for k, (kind, panel) in enumerate(found.items()):
            ax = panel_axes(figure, k, kind, counted(panel))
            colours = np.array([to_rgb(fate_colour(_Seen(fate))) for fate in panel])
            image = np.concatenate([colours[nearest], 0.85 * inside], axis=-1)
            ax.imshow(image, origin="lower", extent=(-1, 1, -1, 1), interpolation="nearest")
            ax.scatter(*places.T, s=1.5, color=style.INK, alpha=0.35, linewidth=0)
            ax.add_patch(Circle((0, 0), 1, fill=False, edgecolor=style.SOFT))
            ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
            ax.set_axis_off()
        looks = {fate_words(_Seen(fate)): fate_colour(_Seen(fate)) for panel in found.values() for fate in panel}
        marks: dict[str, Any] = {"linestyle": "none", "marker": "s", "markersize": 8}
        handles = [Line2D([], [], color=looks[word], label=word, **marks) for word in sorted(looks)]
        figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


CAPTIONS = {
    "to zero": r"$K=-Q$ invertible, $V\succ0$: every covariance shrinks to the tip of the cone, $\Sigma=0$.",
    "to a line": r"$K=-Q$ of rank one, $V=I$ (the second of two heads: another $V\succ0$): limits of rank one lie on "
    r"one ray of the cone's surface, $\ker Q$. The limits of softmax, L2 and Sinkhorn are the same.",
    "two lines": r"$A+A^\top$ indefinite, generic $V$: limits of rank one on the two rays with $u^\top Au=0$; the "
    "start decides which.",
    "growth": r"$A+A^\top\succ0$, $V=I$ (the second of two heads: another $V\succ0$): softmax blows up in finite "
    "time, L2 and Sinkhorn grow exponentially. The covariances, divided by their trace, in the disc: the circle is "
    "rank one, strokes show the direction of its line.",
    "both": "A draw under which the start decides between a limit and growth; covariances divided by their trace.",
}


def compute(budget: Budget) -> Found:
    """Fates from a fine grid of starts, paths from a coarse one."""
    covs, few = starts(budget.choose(11, 31)), starts(budget.choose(5, 9))
    found: dict[tuple[str, str], list[mf.Fate]] = {}
    runs: dict[str, dict[str, list[mf.Trajectory]]] = {regime: {} for regime in regimes()}

    def panels(kind: str) -> None:
        for regime, heads in regimes().items():
            field = KINDS[kind](heads)
            every = fates(field, np.concatenate([covs, few]))  # in one go: other sizes would compile again
            found[regime, kind] = every[: len(covs)]
            runs[regime][kind] = [path(field, *pair) for pair in zip(few, every[len(covs) :], strict=True)]

    with ThreadPoolExecutor(2) as pool:  # most of it is compiling, of which one thread fills one core
        for k, _ in enumerate(pool.map(panels, KINDS)):
            budget.say((k + 1) / (len(KINDS) + 1), list(KINDS)[k])
    runs = {regime: {kind: panel[kind] for kind in KINDS} for regime, panel in runs.items()}
    rows = [fate_row(regime, kind, found[regime, kind]) for regime in regimes() for kind in KINDS]
    pictures = [
        Picture(regime.replace(" ", "_"), regime_picture(regime, runs[regime]), CAPTIONS[regime]) for regime in runs
    ]
    basins = basin_picture({kind: found["both", kind] for kind in KINDS}, covs)
    caption = "The same draw: the fate of each start of trace one (dots), by its place in the disc."
    return Found(
        [*rows, *line_rows(found, covs)],
        [*pictures, Picture("both_fates", basins, caption)],
        [
            "The two heads are two attentions with different matrices, and different $V$: with $V=I$ in both, two "
            "heads are one with $A=A_1+A_2$. (Cut into heads, a $Q$ of one row leaves one head empty, and one head is "
            "not two.)"
        ],
    )


ITEM = Item(
    "A4",
    "Covariances of the plane: five regimes, four kinds of attention",
    r"$\Sigma_{11}=a$, $\Sigma_{22}=b$, $\Sigma_{12}=c$ in the cone of positive matrices, coordinates $(a-b,2c,a+b)$, "
    r"or divided by its trace in the disc, from starts of trace one. The regimes: to zero ($K=-Q$, $V\succ0$), "
    r"to a line ($K=-Q$ of one row, $V=I$), two lines ($A+A^\top$ indefinite), growth ($A+A^\top\succ0$, $V=I$), and "
    r"both fates. Softmax, softmax with two heads (where the second has another $V\succ0$ instead of $I$), L2, "
    "Sinkhorn.",
    compute,
    minutes=(0.5, 2.0),
)

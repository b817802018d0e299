"""B3: in dimension 1 the attention matrix tends to a Boolean matrix of low rank, and leaders appear."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import meanformer as mf

from ....plots import style
from ....plots.densities import INK_MAP
from ..base import Budget, Found, Item, Picture, Row
from .polytope import identity_run

N, T1 = 20, 8.0
SHOWN = (0.0, 0.5, 1.0, 2.0, 8.0)
# Entries closer than this to 0 or 1 are Boolean; columns of others than leaders are below the second number.
BOOLEAN, SMALL = 1e-3, 3e-5


def sorted_matrix(run: Any, row: int) -> np.ndarray:
    """The attention matrix at a save time, with tokens in the order in which they lie on the line."""
    mu = run.original().states[row]
    order = np.argsort(np.asarray(mu.points)[:, 0])
    return np.asarray(run.field.matrix(mu))[np.ix_(order, order)]


def distinct_rows(P: np.ndarray) -> int:
    """How many different rows there are, up to `BOOLEAN`."""
    return len(np.unique(np.round(P / (10 * BOOLEAN)), axis=0))


def boolean_rows(verdicts: list[mf.Verdict], last: list[np.ndarray]) -> list[Row]:
    """Rank, distance to a Boolean matrix, distinct rows, leaders."""
    ranks = np.array([verdict.evidence["rank"] for verdict in verdicts])
    off = np.array([verdict.evidence["off_boolean"] for verdict in verdicts])
    leaders = np.array([len(verdict.evidence["leaders"]) for verdict in verdicts])
    rows = np.array([distinct_rows(P) for P in last])
    missed = [verdict for verdict in verdicts if verdict.holds is False]
    word = "fails" if missed else "holds" if all(verdict.holds for verdict in verdicts) else "undecided"
    draws = f"{len(verdicts)} draws"

    def held(kept: Any) -> str:
        return "holds" if kept else "fails"

    return [
        Row(
            "largest rank of the attention matrix, without its exceptional row",
            "at most 2",
            f"{ranks.max()}",
            "none",
            word,
            draws,
        ),
        Row("distinct rows of the matrix", "at most 3", f"{rows.max()}", "none", held(rows.max() <= 3), draws),
        Row(
            "farthest entry from 0 and 1",
            0.0,
            float(off.max()),
            f"{BOOLEAN:g}",
            held(off.max() <= BOOLEAN),
            "without the one row that the theorem leaves out",
        ),
        Row(
            "leaders, the tokens that others listen to",
            "at most 3",
            f"{leaders.max()}",
            "none",
            held(leaders.max() <= 3),
            f"{leaders.min()} to {leaders.max()}: the two ends of the cloud",
        ),
    ]


def compute(budget: Budget) -> Found:
    """Several draws on the line."""
    draws = budget.choose(8, 40)
    runs = []
    for k in range(draws):
        budget.say(k / draws, f"draw {k + 1} of {draws}")
        runs.append(identity_run(1, N, T1, budget.seed + k, save=81))
    verdicts = [mf.boolean_attention(run) for run in runs]
    last = [sorted_matrix(run, -1) for run in runs]
    caption = (
        f"Above: the attention matrix of {N} tokens on the line, sorted, at some times; dark is 1. In the end each row "
        "is a unit vector, and only the columns of the two outermost tokens are left: these are the leaders. Below: "
        "the tokens $z=e^{-t}x$ over time."
    )
    return Found(boolean_rows(verdicts, last), [Picture("boolean_attention", boolean_figure(runs[0]), caption)])


def boolean_figure(run: Any) -> Figure:
    """Matrices at some times, and the tokens."""
    times = np.asarray(run.times)
    with style.style():
        figure = Figure(figsize=(9.6, 5.2), dpi=style.DPI, layout="constrained")
        grid = figure.add_gridspec(2, len(SHOWN), height_ratios=(1, 1.15))
        for k, t in enumerate(SHOWN):
            row = int(np.abs(times - t).argmin())
            P = sorted_matrix(run, row)
            ax = figure.add_subplot(grid[0, k])
            ax.imshow(P, cmap=INK_MAP, vmin=0, vmax=1, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set_visible(True)
            singular = np.linalg.svd(P, compute_uv=False)
            ax.set_title(f"$t={times[row]:g}$, rank {int((singular > 1e-3 * singular[0]).sum())}")
            ax.set_xlabel("listens to", fontsize=8.5)
        figure.axes[0].set_ylabel("token", fontsize=8.5)
        below = figure.add_subplot(grid[1, :])
        z = np.asarray(run.points)[:, :, 0]
        for path, colour in zip(z.T, style.category_colours((z[-1] > 0).astype(int)), strict=True):
            below.plot(times, path, color=colour, linewidth=1.1, alpha=0.85)
        below.set(xlabel="time $t$", ylabel="token $z=e^{-t}x$", xlim=(0, times[-1]))
        for t in SHOWN:
            below.axvline(t, color=style.FAINT, linestyle=":", linewidth=1.0, zorder=1)
    return figure


ITEM = Item(
    id="B3",
    title="Boolean attention of low rank",
    setting=rf"$d=1$, $Q=K=V=1$; $n={N}$ tokens uniform in $[-5,5]$, until $T={T1:g}$. The attention matrix $P(t)$ "
    "tends to a matrix of zeros and ones of rank at most 2, up to one row: each token listens to one of the two ends.",
    compute=compute,
    minutes=(0.1, 0.2),
)

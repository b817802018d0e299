r"""Attention matrices of a run: who listens to whom, at the start and at the end."""

from typing import Any

import numpy as np
from matplotlib import colors
from matplotlib.figure import Figure

from ..diagnostics.clusters import clusters
from . import style
from .densities import INK_MAP
from .fates import number

# More tokens than this are thinned out: a pixel per row is enough.
MOST_ROWS = 400
MOST_HEADS = 4


def plot_attention(run: Any, pairs: Any = None, *, title: str | None = None) -> Figure:
    r"""The matrices $P$, $\Gamma(x_i)=\sum_jP_{ij}Vx_j$, of each head at the start and at the end of a run of tokens.

    Rows are queries, columns keys. Tokens are ordered by position if they have one, else by their last clusters, the
    largest first: blocks are groups that listen to each other, columns are leaders. Colours follow $\sqrt{|P|}$.
    `pairs` is what `attention_matrices(run)` returned, if that is known.

    **Returns:** the figure.
    """
    pairs = attention_matrices(run) if pairs is None else pairs
    heads = min(len(pairs[0][1]), MOST_HEADS)
    with style.style():
        figure = Figure(figsize=(3.3 * len(pairs) + 0.9, 3.3 * heads + 0.5), layout="compressed")
        axes = figure.subplots(heads, len(pairs), squeeze=False)
        for column, (t, matrices) in enumerate(pairs):
            for h in range(heads):
                ax = axes[h, column]
                P = np.abs(matrices[h])
                finite = P[np.isfinite(P)]
                norm = colors.PowerNorm(0.5, 0.0, float(finite.max()) if finite.size and finite.max() > 0 else 1.0)
                mesh = ax.imshow(P, cmap=INK_MAP, norm=norm, interpolation="nearest", aspect="equal")
                ax.set_xticks([])
                ax.set_yticks([])
                for side in ax.spines.values():
                    side.set_visible(True)
                bar = figure.colorbar(mesh, ax=ax, fraction=0.046, pad=0.03)
                bar.outline.set_visible(False)  # type: ignore[operator]
                bar.ax.tick_params(length=2, labelsize=7)
                head = f"head {h + 1}, " if len(matrices) > 1 else ""
                ax.set_title(f"{head}$t={number(t)}$", fontsize=10)
                if h == heads - 1:
                    ax.set_xlabel("key $j$")
                if column == 0:
                    ax.set_ylabel("query $i$")
        figure.suptitle(f"{run.moved_by}: attention $P_{{ij}}$" if title is None else title, fontsize=11)
    return figure


def attention_matrices(run: Any) -> list[tuple[float, np.ndarray]]:
    """The time and the matrices `(heads, rows, columns)` at the start and at the end, in the order of the picture."""
    run = run.original()
    run.need_all_tokens("the attention matrix")
    points = np.asarray(run.points)
    rows = np.flatnonzero(np.isfinite(points).all(axis=(1, 2)))
    order = _order(run, int(rows[-1]))
    order = order[:: -(-len(order) // MOST_ROWS)]
    found = []
    for k in sorted({int(rows[0]), int(rows[-1])}):
        state, t = run.states[k], float(run.times[k])
        s = None if state.positions is None else state.positions[order]
        matrices = np.asarray(run.field.matrix(state, state.points[order], t, s=s), np.float64)
        found.append((t, (matrices if matrices.ndim == 3 else matrices[None])[:, :, order]))
    return found


def _order(run: Any, last: int) -> np.ndarray:
    """Tokens by position, or by their last cluster, the largest first."""
    mu = run.system.mu
    if mu.positions is not None:
        return np.argsort(np.asarray(mu.positions), kind="stable")
    labels = np.asarray(clusters(run.states[last]).labels)
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    return np.lexsort((labels, -np.where(labels >= 0, sizes[labels], -1)))

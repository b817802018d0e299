r"""B2: for a simple positive top eigenvalue of $V$ the tokens $z=e^{-tV}x$ approach at most three hyperplanes."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import meanformer as mf

from ....plots import style
from ..base import Budget, Found, Item, Picture, Row
from .polytope import SAVE, cube

N, D, T1 = 20, 3, 8.0
# No part of the tokens along the eigenvector is wider than this share of their range.
WIDTH = 0.1
# Matrices whose second eigenvalue is more than this share of the first, in modulus, are drawn again.
SECOND = 0.5


def positive_matrix(rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """A matrix of positive entries, whose top eigenvalue is positive and simple (Perron), scaled to 1.

    Draws with a second eigenvalue above `SECOND` in modulus are left out, since they need longer times to show the
    same; how many were is returned too.
    """
    rejected = 0
    while True:
        V = rng.random((D, D))
        values = np.sort(np.abs(np.linalg.eigvals(V)))[::-1]
        if values[1] <= SECOND * values[0]:
            return V / values[0], rejected
        rejected += 1


def hyperplane_run(seed: int) -> tuple[Any, int]:
    """Q = K = I, V random and positive; and how many draws of V were left out before."""
    V, rejected = positive_matrix(np.random.default_rng(seed))
    field = mf.Softmax(jnp.eye(D), jnp.eye(D), jnp.asarray(V))
    return mf.flow(field, cube(N, D, seed), T1, frame=mf.Rescaled(), save=SAVE, progress=False), rejected


def hyperplane_rows(verdicts: list[mf.Verdict], rejected: int) -> list[Row]:
    """How many hyperplanes there are, and how close the tokens came to them."""
    planes = np.array([verdict.evidence["hyperplanes"] for verdict in verdicts])
    widths = np.array([verdict.evidence["width"] for verdict in verdicts])
    missed = [verdict for verdict in verdicts if verdict.holds is False]
    word = "fails" if missed else "holds" if all(verdict.holds for verdict in verdicts) else "undecided"
    counts = ", ".join(f"{int((planes == k).sum())} with {k}" for k in np.unique(planes))
    why = (
        f"{len(verdicts)} draws: {counts}; {rejected} draws of V left out, with $|\\lambda_2|>{SECOND:g}\\,\\lambda_1$"
    )
    claim = r"most hyperplanes, over all draws, at the end of the run"
    return [
        Row(claim, "at most 3", f"{planes.max()}", "none", word, why),
        Row(
            "widest part of the coordinate along the eigenvector, over its range",
            0.0,
            float(widths.max()),
            f"{WIDTH:g}",
            "holds" if widths.max() <= WIDTH else "fails",
            f"{np.median(widths):.1e} in the median",
        ),
    ]


def top_coordinate(run: Any) -> np.ndarray:
    r"""$\phi_1^*\cdot z_i(t)$ with $\phi_1^*$ the left eigenvector of the top eigenvalue of $V$, shape (times, n)."""
    values, vectors = np.linalg.eig(np.asarray(run.field.V).T)
    left = np.real(vectors[:, np.argmax(np.abs(values))])
    return np.asarray(run.points) @ (left / np.linalg.norm(left))


def compute(budget: Budget) -> Found:
    """Random positive V on several draws."""
    draws = budget.choose(8, 40)
    runs, rejected = [], 0
    for k in range(draws):
        budget.say(k / draws, f"draw {k + 1} of {draws}")
        run, before = hyperplane_run(budget.seed + k)
        runs.append(run)
        rejected += before
    verdicts = [mf.hyperplane_limit(run) for run in runs]
    caption = (
        rf"The coordinate of {N} tokens $z=e^{{-tV}}x$ along the top eigenvector of $V$ over time, for three draws of "
        r"a positive $3\times3$ matrix: it takes at most three values in the end, one negative, 0 and one positive, "
        "each of which is a hyperplane. In the other directions the tokens stay spread out."
    )
    return Found(hyperplane_rows(verdicts, rejected), [Picture("hyperplanes", hyperplane_figure(runs[:3]), caption)])


def hyperplane_figure(runs: list[Any]) -> Figure:
    """The top coordinate of all tokens over time, a panel for each run."""
    with style.style():
        figure = Figure(figsize=(9.6, 3.6), dpi=style.DPI, layout="constrained")
        axes = figure.subplots(1, len(runs), sharey=True)
        for ax, run in zip(axes, runs, strict=True):
            times, values = np.asarray(run.times), top_coordinate(run)
            verdict = mf.hyperplane_limit(run)
            side = np.where(np.abs(values[-1]) < 0.05 * np.abs(values[-1]).max(), 6, (values[-1] > 0).astype(int))
            for path, colour in zip(values.T, style.category_colours(side), strict=True):
                ax.plot(times, path, color=colour, linewidth=1.0, alpha=0.8)
            ax.axhline(0, color=style.FAINT, linewidth=0.8, zorder=1)
            ax.set_title(f"{verdict.evidence['hyperplanes']} hyperplanes")
            ax.set_xlabel("time $t$")
        axes[0].set_ylabel(r"$\varphi_1^*\cdot z$, along the eigenvector")
    return figure


ITEM = Item(
    id="B2",
    title="At most three hyperplanes",
    setting=rf"$Q=K=I$ and $V$ a random matrix of positive entries, scaled to a top eigenvalue of 1; $d={D}$, $n={N}$, "
    rf"tokens uniform in $[-5,5]^{D}$, $z=e^{{-tV}}x$ until $T={T1:g}$. Matrices with "
    rf"$|\lambda_2|>{SECOND:g}\,\lambda_1$, about 6 in 100, are drawn again, since they need longer times; the "
    "table says how many. The coordinate of $z$ along the top eigenvector takes at most three limit values.",
    compute=compute,
    minutes=(0.1, 0.2),
)

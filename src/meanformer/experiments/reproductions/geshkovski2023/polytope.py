r"""B1: with $Q=K=V=I$ the tokens $z=e^{-t}x$ end on the boundary of a convex polytope, mostly at its vertices."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull

import meanformer as mf

from ....plots import style
from ....plots.tokens import draw_paths, plot_run
from ..base import Budget, Found, Item, Picture, Row

SAVE = 51
# Before this time `mf.polytope_limit` does not say that the limit is another one, only that it is not seen yet.
HORIZON = 8.0
# A theorem about the limit, seen in a run up to this much (see mf.polytope_limit).
STRAGGLER = 0.03


def cube(n: int, d: int, seed: int) -> mf.PointCloud:
    """Tokens uniform in [-5, 5]^d, as published."""
    return mf.uniform_cube(d, -5.0, 5.0).sample(n, key=jax.random.key(seed))


def identity_field(d: int) -> Any:
    """Q = K = V = I."""
    return mf.Softmax(*(jnp.eye(d),) * 3)


def identity_run(d: int, n: int, t1: float, seed: int, save: int = SAVE) -> Any:
    """The run of the published figures."""
    return mf.flow(identity_field(d), cube(n, d, seed), t1, frame=mf.Rescaled(), save=save, progress=False)


class Case(NamedTuple):
    """One of the published settings."""

    d: int
    n: int
    t1: float


CASES = (Case(2, 20, 5.0), Case(3, 40, 8.0))


def polytope_rows(case: Case, verdicts: list[mf.Verdict]) -> list[Row]:
    """How often the conclusion is seen, how well, and with how many clusters."""
    name = rf"$d={case.d}$, $n={case.n}$, $T={case.t1:g}$"
    seen = sum(verdict.holds is True for verdict in verdicts)
    missed = sum(verdict.holds is False for verdict in verdicts)
    word = "fails" if missed else "holds" if seen == len(verdicts) else "undecided"
    worst = {
        key: float(np.max([verdict.evidence[key] for verdict in verdicts])) for key in ("straggler", "hull_growth")
    }
    counts = np.array([verdict.evidence["clusters"] for verdict in verdicts])
    vertices = [at_vertices(verdict.evidence["limits"]) for verdict in verdicts]
    inside = f"{sum(vertices)} of {counts.sum()} clusters"
    too_short = (
        f"T = {case.t1:g} is below the horizon {HORIZON:g} of the criterion: a draw that does not show it counts as "
        "undecided, so that this row cannot fail"
    )
    draws = f"{seen} of {len(verdicts)}"
    return [
        Row(
            f"{name}: draws that end on the boundary of a polytope",
            "all",
            draws,
            "none",
            word,
            too_short if case.t1 < HORIZON else "",
        ),
        Row(
            f"{name}: farthest token from a point that satisfies the limit, over the diameter",
            0.0,
            worst["straggler"],
            f"{STRAGGLER:g}",
            "holds" if worst["straggler"] <= STRAGGLER else "fails",
            f"tokens approach their limits like $e^{{-t}}={np.exp(-case.t1):.1g}$",
        ),
        Row(
            f"{name}: growth of the convex hull of $z(t)$ between save times, over the largest token",
            0.0,
            worst["hull_growth"],
            "1e-05",
            "holds" if worst["hull_growth"] <= 1e-5 else "fails",
            "the hull must not grow; the rest is the solver's error",
        ),
        Row(
            f"{name}: limits are generically vertices of their polytope",
            "all",
            inside,
            "9 of 10",
            "holds" if sum(vertices) >= 0.9 * counts.sum() else "fails",
            f"{counts.min()} to {counts.max()} clusters, {np.median(counts):g} in the median",
        ),
    ]


def at_vertices(limits: np.ndarray) -> int:
    """How many of the limits are vertices of their convex hull."""
    return len(limits) if len(limits) <= limits.shape[1] else len(ConvexHull(limits).vertices)


def compute(budget: Budget) -> Found:
    """Both settings on several draws."""
    draws = budget.choose(6, 40)
    rows, pictures = [], []
    for k, case in enumerate(CASES):
        budget.say(k / len(CASES), f"dimension {case.d}")
        runs = [identity_run(*case, budget.seed + seed) for seed in range(draws)]
        verdicts = [mf.polytope_limit(run, horizon=HORIZON) for run in runs]
        rows += polytope_rows(case, verdicts)
        count = int(verdicts[0].evidence["clusters"])
        caption = (
            f"{case.n} tokens with $Q=K=V=I$ in $d={case.d}$, $z=e^{{-t}}x$ until $T={case.t1:g}$: paths from the "
            f"start (grey) to {count} clusters. Lines: the convex hull of the limits, on whose boundary they all lie."
        )
        pictures.append(Picture(f"polytope_{case.d}d", polytope_figure(runs[0], verdicts[0]), caption))
    return Found(rows, pictures)


def polytope_figure(run: Any, verdict: mf.Verdict) -> Figure:
    """Paths and limits, with the hull of the limits."""
    limits, d = verdict.evidence["limits"], run.points.shape[2]
    labels = run.clusters().labels
    with style.style():
        figure = Figure(figsize=(5.8, 5.6) if d == 2 else (6.6, 6.2), dpi=style.DPI, layout="constrained")
        ax: Any = figure.add_subplot(projection="3d" if d == 3 else None)
        plot_run(run, ax, colour=labels, size=34, paths=False)
        draw_paths(ax, np.asarray(run.points), style.category_colours(labels), width=1.5)
        draw_hull(ax, limits)
        ax.set_title(f"{run.system.mu.n} tokens, {len(limits)} clusters: the vertices of a polytope")
    return figure


def draw_hull(ax: Any, limits: np.ndarray) -> None:
    """The edges of the convex hull of the limits; in space its faces too."""
    d = limits.shape[1]
    if len(limits) <= d:
        return
    hull = ConvexHull(limits)
    if d == 2:
        corners = limits[np.append(hull.vertices, hull.vertices[0])]
        ax.fill(*corners.T, color=style.PALETTE[0], alpha=0.06, zorder=0)
        ax.plot(*corners.T, color=style.SOFT, linewidth=1.1, zorder=2.5)
        return
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    faces = Poly3DCollection(
        limits[hull.simplices], facecolor=(*style.category_colours(np.zeros(1, int))[0], 0.07), edgecolor=style.FAINT
    )
    faces.set_linewidth(0.8)
    ax.add_collection3d(faces)


ITEM = Item(
    id="B1",
    title="Clusters at the vertices of a polytope",
    setting=r"$Q=K=V=I$; tokens uniform in $[-5,5]^d$: $d=2$, $n=20$, $T=5$ (the published script) and $d=3$, $n=40$, "
    r"$T=8$. In the frame $z=e^{-tV}x$ each token tends to 0 or to a point of the boundary of a convex polytope, where "
    r"$|z|^2=\max_l z\cdot z_l$.",
    compute=compute,
    minutes=(0.2, 0.3),
)

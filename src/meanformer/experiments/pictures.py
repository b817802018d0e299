"""The pictures of a run, each with a caption that says what is seen."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import meanformer as mf

from ..plots import style
from ..plots.along import plot_radius, plot_ranks_along, plot_run_spectrum, radius_along
from ..plots.bounds import plot_claims
from ..plots.clusters import plot_clusters
from ..plots.covariances import plot_cone, plot_disc
from ..plots.fates import fate_words, number
from ..plots.matrices import attention_matrices, plot_attention

Options = Mapping[str, Any]

# A run that is lost to infinity is drawn up to so many times its first radius.
GROWTH = 6.0


def new_axes(size: tuple[float, float], three: bool = False) -> Any:
    """Axes of a figure of its own, that no screen knows of."""
    figure: Any = Figure(figsize=size, layout="compressed")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    return figure.add_subplot(projection="3d" if three else None)


def token_options(run: mf.Trajectory, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `plot_run`: colours, coordinates, and how much of the plane is seen."""
    mu = run.system.mu
    if not isinstance(mu, mf.PointCloud):
        return {}
    coordinates = options.get("coordinates") or ((0, 1) if mu.d > 3 else None)
    view = options.get("view")
    if view is None and not run.outcome.ok and mu.d <= 2:  # one token that runs away would hide the others
        radii = radius_along(run)[1]
        view = GROWTH * float(radii[0]) if radii.max() > GROWTH * radii[0] > 0 else None
    return {"colour": _colour(run, options.get("colour")), "coordinates": coordinates, "view": view}


def _colour(run: mf.Trajectory, colour: Any) -> Any:
    """What `plot_run` takes for the colour of an experiment file."""
    mu = run.system.mu
    if isinstance(colour, Mapping):
        return sectors(np.asarray(mu.points, np.float64), int(colour["sectors"]))
    if isinstance(colour, str) and colour == "positions":
        return np.asarray((mu if mu.positions is not None else mu.with_positions()).positions, np.float64)
    if isinstance(colour, str) and colour == "clusters":
        return _last_clusters(run)
    return colour


def _last_clusters(run: mf.Trajectory) -> np.ndarray:
    """The cluster of each token at the end; as values, dark to light, where the palette has too few colours."""
    last = run.final if run.whole is None else run.states[-1]  # of a sample only its tokens have colours
    if not np.isfinite(np.asarray(last.points)).all():
        return np.zeros(last.n, int)
    found = mf.clusters(last)
    return np.asarray(found.labels, int if found.count <= len(style.PALETTE) else float)


def sectors(points: np.ndarray, count: int) -> np.ndarray:
    """The sector of the plane in which each token lies, the first around the second axis."""
    x, y = points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
    return np.round((np.arctan2(y, x) - np.pi / 2) / (2 * np.pi / count)).astype(int) % count


def _span(run: mf.Trajectory) -> str:
    unit = f"{len(run.times) - 1} layers" if run.discrete else f"$t={number(float(run.times[-1]))}$"
    return f"from $t={number(float(run.times[0]))}$ to {unit}" if not run.discrete else f"over {unit}"


def _paths(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    mu = run.system.mu
    if isinstance(mu, mf.Gaussian):
        ax = run.plot(new_axes({1: style.WIDE, 2: (6.4, 5.2)}.get(mu.d, (7.0, 4.4))))
        what = {
            1: "The mean and two standard deviations around it",
            2: "Ellipses of two standard deviations, from dark (start) to light (end)",
        }.get(mu.d, "The eigenvalues of the covariance")
        fate = f"; {fate_words(run)}" if run.fate is not None else ""
        return ax.figure, f"{what}, {_span(run)}{fate}."
    if isinstance(mu, mf.Density):
        ax = run.plot(new_axes((6.2, 5.2) if mu.d == 2 else (7.0, 4.2)))
        lost = 1 - float(np.asarray(run.states.mass)[-1])
        words = f"The density {_span(run)}: ink is mass, colours follow its square root"
        return ax.figure, words + (f"; a share of ${number(lost)}$ left the grid." if lost > 1e-6 else ".")
    given = token_options(run, options)
    shown = len(given["coordinates"]) if given["coordinates"] is not None else mu.d
    ax = run.plot(new_axes(style.WIDE if shown == 1 else style.SINGLE, shown == 3), **given)
    frame = "" if run.propagators is None else " in the frame $z=e^{-tV}x$"
    words = f"{mu.n} token{'s' * (mu.n > 1)}{frame}, {_span(run)}"
    if run.whole is not None:
        words = f"A sample of {mu.n} of {run.whole.size} tokens{frame}, {_span(run)}"
    words += (
        ": each curve is a token" if shown == 1 else ": lines are paths, dots the final places, grey dots the start"
    )
    if given["coordinates"] is not None and mu.d > shown:
        words += f"; coordinates {', '.join(str(c + 1) for c in given['coordinates'])} of {mu.d}"
    if given["view"] is not None and options.get("view") is None:
        words += "; the tokens that run away leave the picture"
    return ax.figure, words + "."


def _spectrum(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    ax = plot_run_spectrum(run, new_axes((7.0, 4.4)))
    ends = [float(line.get_ydata()[-1]) for line in ax.lines if len(line.get_ydata()) > 1][: run.system.mu.d]
    values = [v for v in ends if np.isfinite(v)]
    last = f": at the end from ${number(min(values))}$ to ${number(max(values))}$" if values else ""
    return ax.figure, f"Eigenvalues of the covariance over time, both axes logarithmic{last}."


def _ranks(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    ax = plot_ranks_along(run, new_axes((7.0, 4.0)))
    start, end = (float(ax.lines[0].get_ydata()[k]) for k in (0, -1))
    words = "How many directions carry the variance, counted in three ways: the effective rank goes"
    return ax.figure, f"{words} from ${start:.2f}$ to ${end:.2f}$."


def _clusters(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    along = mf.clusters_along(run)
    if run.system.mu.d == 1:
        with style.style():
            figure = Figure(figsize=(6.4, 5.6), layout="constrained")
            pair = figure.subplots(2, 1, sharex=True, height_ratios=[1.7, 1])
        plot_clusters(along, pair, run=run)
    else:
        figure = plot_clusters(along, new_axes(style.WIDE)).figure
    return figure, f"Clusters over time, single linkage at 1 % of the diameter: {along}."


def _radius(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    ax = plot_radius(run, new_axes((7.0, 4.0)))
    _, radii, bounds = radius_along(run)
    words = (
        f"The largest distance of a token from 0: ${number(radii[0])}$ at the start, ${number(radii[-1])}$ at the end"
    )
    if bounds is None:
        return ax.figure, words + "."
    return ax.figure, f"{words}; the theory bounds it by ${number(bounds[-1])}$ there (dashed)."


def _claims(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    checked = options.get("checked")
    checked = mf.check(run) if checked is None else checked
    ax = plot_claims(checked, new_axes((8.6, 1.5 + 0.5 * len(checked.claims))))
    broken = len(checked.violations)
    verdict = f"{broken} of them violated" if broken else "none is violated"
    return ax.figure, f"What the theory claims of this run, with the slack of each bound: {verdict}."


def _attention(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    pairs = attention_matrices(run)
    figure = plot_attention(run, pairs)
    order = "by position" if run.system.mu.positions is not None else "by their last clusters, the largest first"
    tops = [float(np.nanmax(np.abs(P[0]))) for _, P in (pairs[0], pairs[-1])]
    layer = " (of the first layer)" if run.discrete else ""
    return figure, (
        f"Attention matrices{layer} at the start and at the end, rows are queries and columns keys, tokens ordered "
        f"{order}; the largest entry is ${number(tops[0])}$ at the start and ${number(tops[1])}$ at the end."
    )


def _cone(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    ax = plot_cone(run, new_axes((7.6, 5.4), three=True))
    words = "The covariance in the cone of positive matrices: its surface is rank one, its tip zero"
    return ax.figure, f"{words}; {fate_words(run)}."


def _disc(run: mf.Trajectory, options: Options) -> tuple[Figure, str]:
    ax = plot_disc(run, new_axes((7.2, 5.2)))
    words = "The covariance divided by its trace: the centre is isotropic, the circle is rank one"
    return ax.figure, f"{words}; {fate_words(run)}."


PICTURES: dict[str, Callable[[mf.Trajectory, Options], tuple[Figure, str]]] = {
    "paths": _paths,
    "spectrum": _spectrum,
    "ranks": _ranks,
    "clusters": _clusters,
    "radius": _radius,
    "claims": _claims,
    "attention": _attention,
    "cone": _cone,
    "disc": _disc,
}

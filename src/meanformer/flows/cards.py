"""A run as notebooks show it: how it ended, what it took, and a picture of the way."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.clusters import box_diameter, clusters_at
from ..display.card import Html, card, number
from ..display.drawing import COLOURS, FAINT, box_of, dots, lines, picture, placed
from ..measures.cards import density_picture, eigenvalues, in_plane
from ..measures.density import Density
from .frames import Original

if TYPE_CHECKING:
    from .trajectory import Trajectory

# So many tokens have a path, drawn through so many times; so many are drawn at all.
MOST_PATHS, MOST_TIMES, MOST_DOTS = 60, 16, 300
# Eigenvalues that are this much smaller than the largest lie at the lower edge.
DECADES = 12


def run_card(run: "Trajectory", arrays: dict[str, Any] | None) -> Html:
    """A run, with the arrays of its dataset, which make the picture; None if they have not been read from disk."""
    stats, times = run.stats, np.asarray(run.times, float)
    rejected = f", {int(stats['rejected'])} rejected" if stats.get("rejected") else ""
    rescaled = not isinstance(getattr(run.system, "frame", Original()), Original)
    rows = [
        ("outcome", Html(run.outcome._repr_html_())),
        ("fate", None if run.fate is None else str(run.fate)),
        ("frame", Html("z = e<sup>&minus;tV</sup> x") if rescaled else None),
        ("saved", f"{len(times)} times from {number(times[0])} to {number(times[-1])}"),
        ("layers" if run.discrete else "steps", f"{int(stats['steps'])}{rejected}"),
        ("statistics", ", ".join(run.statistics) or None),
    ]
    system = run.system if run.whole is None else run.whole
    return card(f"{run.moved_by}: {system.summary()}", rows, None if arrays is None else _picture(run, times, arrays))


def _picture(run: "Trajectory", times: np.ndarray, arrays: dict[str, Any]) -> Html:
    values = {name: np.asarray(value, float) for name, (_, value) in arrays.items()}
    if isinstance(run.system.mu, Density):
        chosen = _some(len(times), 4)
        masses = values["masses"][chosen]
        return density_picture(run.system.mu, masses if run.system.mu.positions is None else masses.sum(axis=1))
    if "factor" in values:
        return _spectrum(times, values["factor"])
    return _paths(times, values["points"], values["weights"])


def _paths(times: np.ndarray, points: np.ndarray, weights: np.ndarray) -> Html:
    """Tokens at the end, coloured by cluster, their paths, and where they began."""
    finite = np.isfinite(points).all(axis=(1, 2))
    last = len(points) - 1 if finite.all() else max(0, int(np.argmin(finite)) - 1)
    chosen = _some(last + 1, MOST_TIMES)
    points, times = points[chosen], times[chosen]
    keep = np.arange(0, points.shape[1], -(-points.shape[1] // MOST_DOTS))
    points, weights = points[:, keep], weights[keep]
    colours = _colours(points[-1], weights)
    if points.shape[2] == 1:
        plane = np.stack([np.broadcast_to(times[:, None], points.shape[:2]), points[:, :, 0]], axis=-1)
        caption, box = "tokens over time", box_of(plane, square=False)
    else:
        plane, words = in_plane(points)
        caption, box = Html(f"{words}; grey: start"), box_of(plane)
    places = placed(plane, box)
    some = np.arange(0, places.shape[1], -(-places.shape[1] // MOST_PATHS))
    inside = lines(places[:, some].swapaxes(0, 1), [colours[k] for k in some])
    if points.shape[2] > 1:
        inside += dots(places[0], [FAINT] * len(colours), 2.5, 0.6)
    return picture(inside + dots(places[-1], colours, 4.5), f"paths of {len(colours)} tokens", caption)


def _colours(points: np.ndarray, weights: np.ndarray) -> list[str]:
    """A colour for each cluster, if there are few."""
    found = clusters_at(points, weights, box_diameter(points, 0.01))
    return [COLOURS[label] if found.count <= len(COLOURS) and label >= 0 else COLOURS[0] for label in found.labels]


def _spectrum(times: np.ndarray, factors: np.ndarray) -> Html:
    """The eigenvalues of the covariance over time, their axis logarithmic; that of time too, if it is very long."""
    values = eigenvalues(np.nan_to_num(factors, posinf=1e150, neginf=-1e150))
    with np.errstate(divide="ignore"):
        logs = np.log10(values)
    top = float(logs[np.isfinite(logs)].max(initial=0.0))
    logs = np.maximum(logs, top - DECADES)
    positive = times[times > 0]
    long = len(positive) > 1 and positive[-1] > 1e3 * positive[0]
    axis = np.log10(np.maximum(times, positive[0])) if long else times
    chosen = _some(len(times), 60)
    curves = np.stack([np.broadcast_to(axis[:, None], logs.shape), logs], axis=-1)[chosen].swapaxes(0, 1)
    inside = lines(placed(curves, box_of(curves, square=False)), [COLOURS[k % 7] for k in range(len(curves))], 1.6, 0.9)
    caption = Html("eigenvalues of &Sigma;, logarithmic, over " + ("log t" if long else "t"))
    return picture(inside, "eigenvalues of the covariance over time", caption)


def _some(count: int, most: int) -> np.ndarray:
    """Indices of at most so many rows, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))

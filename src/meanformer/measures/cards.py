"""Measures as notebooks show them: their moments in a table, and a picture. Everything is computed by NumPy."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..display.card import ROUNDING, Html, array, card, number
from ..display.drawing import COLOURS, area, box_of, dots, heat, lines, picture, placed

if TYPE_CHECKING:
    from .cloud import PointCloud
    from .density import Density
    from .gaussian import Gaussian
    from .labelled import Labelled

# Of more tokens every so many-th is drawn; a density has no more cells than this along an axis.
MOST_DOTS = 400
MOST_CELLS = 64
MOST_LABELS = 12


def cloud_card(mu: "PointCloud") -> Html:
    """Tokens: how many, their moments, and where they are."""
    points, weights = (np.asarray(a, float) for a in (mu.points, mu.weights))
    positions = None if mu.positions is None else np.asarray(mu.positions, float)
    if points.ndim > 2:
        size = " x ".join(map(str, points.shape[:-2]))
        return card("PointCloud", [("batch", size), ("tokens", f"{mu.n} in R^{mu.d}, each cloud")])
    mean = weights @ points
    centred = points - mean
    small = mu.d <= 3
    rows = [
        ("weights", _range(weights, f"1/{mu.n} each")),
        ("positions", None if positions is None else _range(positions, number(positions[0]))),
        ("mean", array(mean, float(np.abs(points).max())) if small else f"of length {number(np.linalg.norm(mean))}"),
        ("covariance", array((weights[:, None] * centred).T @ centred) if small else None),
        ("spread", None if small else f"{number(weights @ (centred**2).sum(axis=1))}, the trace of the covariance"),
        ("radius", number(np.sqrt((points[weights > 0] ** 2).sum(axis=1).max(initial=0.0)))),
    ]
    return card(f"PointCloud: {_tokens(mu.n)} in R^{mu.d}", rows, tokens_picture(points, weights))


def gaussian_card(g: "Gaussian") -> Html:
    """A Gaussian: its moments, and its ellipse, its bell or its eigenvalues."""
    mean, factor = np.asarray(g.mean, float), np.asarray(g.factor, float)
    if mean.ndim > 1:
        size = " x ".join(map(str, mean.shape[:-1]))
        return card("Gaussian", [("batch", size), ("space", f"R^{g.d}, each"), ("factors", array(factor))])
    values = eigenvalues(factor)
    rank = int((values > ROUNDING * values.max(initial=0.0)).sum())
    rows = [
        ("mean", array(mean) if g.d <= 3 else f"of length {number(np.linalg.norm(mean))}"),
        ("covariance", array(factor @ factor.T) if g.d <= 3 else f"of trace {number(values.sum())}"),
        ("eigenvalues", ", ".join(map(number, values[:4])) + ", ..." * (g.d > 4)),
        ("rank", f"{rank} of {g.d}"),
    ]
    return card(f"Gaussian in R^{g.d}", rows, _gaussian_picture(mean, factor))


def density_card(rho: "Density") -> Html:
    """A density: its grid, its moments, and its picture."""
    masses = np.asarray(rho.masses, float)
    box = " x ".join(
        f"[{number(a)}, {number(b)}]" for a, b in zip(np.asarray(rho.low), np.asarray(rho.high), strict=True)
    )
    cells = " x ".join(map(str, rho.cells))
    rows: list[tuple[Any, Any]] = [("cells", f"{cells} on {box}")]
    if masses.ndim > rho.d + (rho.positions is not None):
        return card(f"Density in R^{rho.d}", [("batch", str(masses.shape[0])), *rows])
    if rho.positions is not None:
        rows.append(("positions", str(len(rho.positions))))
        masses = masses.sum(axis=0)
    centres = np.stack(np.meshgrid(*_centres(rho), indexing="ij"), axis=-1).reshape(-1, rho.d)
    weights = masses.ravel() / max(masses.sum(), 1e-300)
    mean = weights @ centres
    rows += [
        ("mass", number(masses.sum())),
        ("mean", array(mean, float(np.abs(centres).max()))),
        ("covariance", array((weights[:, None] * (centres - mean)).T @ (centres - mean), float(np.abs(centres).max()))),
    ]
    return card(f"Density in R^{rho.d}", rows, density_picture(rho, masses[None]))


def labelled_card(words: "Labelled") -> Html:
    """Tokens with names: the first of these, and the tokens."""
    first = ", ".join(words.labels[:MOST_LABELS]) + ", ..." * (len(words.labels) > MOST_LABELS)
    grid = None if words.grid is None else f"{words.grid[0]} x {words.grid[1]} patches"
    patch = None if words.patch is None else " x ".join(map(str, words.patch)) + " numbers each"
    return Html(card("Labelled", [("labels", first), ("grid", grid), ("patch", patch)]) + cloud_card(words.cloud))


def tokens_picture(points: np.ndarray, weights: np.ndarray) -> Html:
    """Tokens in the plane; on a line their histogram, in space their two principal coordinates."""
    keep = np.isfinite(points).all(axis=1)
    points, weights = points[keep], weights[keep]
    if points.shape[1] == 1 and len(points):
        heights, edges = np.histogram(points[:, 0], bins=min(40, max(5, len(points) // 8)), weights=weights)
        steps = np.stack([np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])], axis=-1)
        inside = area(placed(steps, _above_zero(steps)))
        return picture(inside, "a histogram of the tokens", f"{number(edges[0])} to {number(edges[-1])}")
    points = points[:: max(1, -(-len(points) // MOST_DOTS))]
    plane, caption = in_plane(points[None])
    inside = dots(placed(plane[0], box_of(plane)), [COLOURS[0]] * len(points), 4.0, 0.8)
    return picture(inside, f"{len(points)} tokens", caption)


def in_plane(points: np.ndarray) -> tuple[np.ndarray, str]:
    """Tokens at some times, shape `(T, n, d)`, with two coordinates, and the words for these: the principal ones of the
    last time in higher dimension.
    """
    if points.shape[2] == 2:
        low, high = box_of(points)
        sides = " &times; ".join(f"[{a:.3g}, {b:.3g}]" for a, b in zip(low, high, strict=True))
        return points, Html(sides)
    last = points[-1] - points[-1].mean(axis=0)
    axes = np.linalg.svd(last, full_matrices=False)[2][:2]
    plane = (points - points[-1].mean(axis=0)) @ axes.T
    return np.pad(plane, ((0, 0), (0, 0), (0, 2 - plane.shape[2]))), "the two principal coordinates"


def density_picture(rho: "Density", masses: np.ndarray) -> Html:
    """Densities of one grid at some times, shape `(times, *cells)`: on a line all, in the plane the last."""
    if rho.d == 2:
        steps = [max(1, -(-cells // MOST_CELLS)) for cells in rho.cells]
        return picture(heat(masses[-1][:: steps[0], :: steps[1]]), "a density in the plane", "the density")
    (centres,) = _centres(rho)
    curves = np.stack([np.broadcast_to(centres, masses.shape), masses], axis=-1)[:, :: max(1, -(-len(centres) // 200))]
    box = _above_zero(curves)
    *before, last = placed(curves, box)
    inside = lines(before, ["#888888"] * len(before), 1.0, 0.6) + area(last)
    caption = f"{number(centres[0])} to {number(centres[-1])}" + ("; grey: before" if before else "")
    return picture(inside, "a density on a line", caption)


def eigenvalues(factors: np.ndarray) -> np.ndarray:
    """The eigenvalues of the covariances of factors, shape `(..., d, r)`, largest first, shape `(..., d)`."""
    d, r = factors.shape[-2:]
    values = np.linalg.svd(factors, compute_uv=False)[..., :d] ** 2
    return np.concatenate([values, np.zeros((*values.shape[:-1], max(0, d - r)))], axis=-1)


def _gaussian_picture(mean: np.ndarray, factor: np.ndarray) -> Html:
    d = len(mean)
    if d == 1:
        spread = max(float(np.sqrt((factor**2).sum())), 1e-12)
        x = np.linspace(-4, 4, 81)
        curve = np.stack([mean[0] + spread * x, np.exp(-(x**2) / 2)], axis=-1)
        caption = f"{number(curve[0, 0])} to {number(curve[-1, 0])}"
        return picture(area(placed(curve, _above_zero(curve))), "the density of a Gaussian", caption)
    if d > 2:
        values = eigenvalues(factor)
        logs = np.log10(np.maximum(values[values > ROUNDING * values[0]], 1e-300))
        curve = np.stack([np.arange(len(logs), dtype=float), logs], axis=-1)[:: max(1, -(-len(logs) // 100))]
        places = placed(curve, box_of(curve, square=False))
        inside = lines([places], [COLOURS[0]], 1.6, 0.9) if len(logs) else ""
        return picture(inside, "the eigenvalues of the covariance", "eigenvalues, logarithmic, by number")
    axes, spreads, _ = np.linalg.svd(factor)
    sizes = np.pad(spreads, (0, max(0, 2 - len(spreads))))[:2]
    angle = np.linspace(0, 2 * np.pi, 61)
    circle = np.stack([np.cos(angle), np.sin(angle)]) * sizes[:, None]
    ellipses = np.stack([mean + k * (axes @ circle).T for k in (1, 2)])
    box = box_of(ellipses)
    inside = lines(placed(ellipses, box), [COLOURS[0]] * 2, 1.6, 0.9) + dots(placed(mean[None], box), [COLOURS[0]])
    return picture(inside, "ellipses of a Gaussian", "one and two standard deviations")


def _centres(rho: "Density") -> list[np.ndarray]:
    low, high = np.asarray(rho.low, float), np.asarray(rho.high, float)
    return [a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip(low, high, rho.cells, strict=True)]


def _above_zero(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The box of curves that stand on zero."""
    low, high = box_of(curves, square=False)
    return np.array([low[0], 0.0]), np.array([high[0], max(high[1], 1e-300)])


def _range(values: np.ndarray, alike: str) -> str:
    low, high = values.min(), values.max()
    return alike if high - low <= 1e-9 * max(abs(high), 1e-300) else f"{number(low)} to {number(high)}"


def _tokens(n: int) -> str:
    return "one token" if n == 1 else f"{n} tokens"

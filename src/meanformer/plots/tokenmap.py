"""The map of a model's tokens over depth; and what a map that moves, in a page, shares with it."""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.font_manager import findfont, get_font
from matplotlib.patheffects import withStroke

from . import style
from .depth import Drawing, Results, array
from .heads import grid_of

# So many tokens have their names beside them, and a name has so many letters.
NAMED, LETTERS = 12, 14
MOST_PANELS = 8
# A map holds this share of the tokens of all depths; those beyond stand at its edge.
HELD = 0.985
# The shares of viridis that can be seen on paper, and on a dark screen.
LIGHT, DARK = (0.0, 0.9), (0.28, 1.0)
_SIGNS = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "␣", "\xa0": "⍽"}


def plot_map(results: Results) -> Drawing | None:
    """The tokens at some depths on one plane, with the names of some."""
    table, given = results.get("map") or {}, results.get("input") or {}
    points = array(table.get("points"))
    if points is None:
        return None
    n, last = points.shape[1], len(points) - 1
    labels = [drawable(shown(label)) for label in given.get("labels") or map(str, range(n))]
    explained = array(table.get("explained"))
    chosen = np.unique(np.linspace(0, last, MOST_PANELS).round().astype(int))
    box, named, tints = view(points), spread_out(points, NAMED), token_colours(n, given.get("grid"))
    width, height = box[1] - box[0]
    halo = [withStroke(linewidth=1.6, foreground=style.PAPER)]
    with style.style():
        figure, panels = grid_of(len(chosen), 2.5, 2.5 * height / width + 0.25)
        for ax, layer in zip(panels, chosen, strict=True):
            inside = np.clip(points[layer], *box)
            ax.scatter(*inside.T, s=16 if n < 150 else 7, color=tints, linewidth=0, zorder=2, clip_on=False)
            for i, side in _apart(inside, labels, named, box):
                place: dict[str, Any] = {"xytext": (3.5 * side, 0), "textcoords": "offset points", "va": "center"}
                place |= {"ha": "left" if side > 0 else "right", "parse_math": False}
                ax.annotate(labels[i], inside[i], fontsize=6.5, zorder=3, path_effects=halo, **place)
            ax.set(xlim=box[:, 0], ylim=box[:, 1], aspect="equal", xticks=[], yticks=[])
            share = "" if explained is None else f" ({100 * explained[layer]:.0f} %)"
            ax.set_title(depth_name(int(layer), last) + share, fontsize=8.5)
            for edge in ax.spines.values():
                edge.set_visible(True)
    words = "All depths on one plane, each cloud in units of its own radius; colours follow the order of the tokens."
    if explained is not None:
        low, high = 100 * explained.min(), 100 * explained.max()
        words += (
            f" The plane shows {low:.0f} to {high:.0f} % of the variance: what is close here may be far in the model."
        )
    return figure, words


def depth_name(layer: int, last: int) -> str:
    """Where in the model: before the first layer, after 3 layers, after the last layer."""
    if layer == 0:
        return "before the first layer"
    return "after the last layer" if layer == last else f"after {layer} layer{'s' * (layer > 1)}"


def shown(label: Any) -> str:
    """A token's name with nothing invisible in it: signs for line breaks and lone spaces, codes for other controls."""
    text = str(label)
    if not text.strip():
        return "".join(_SIGNS.get(c, c) for c in text) or "∅"
    return "".join(_visible(c) for c in text)


def _visible(c: str) -> str:
    if c != " " and c in _SIGNS:
        return _SIGNS[c]
    return f"\\u{ord(c):04x}" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c


def drawable(text: str) -> str:
    """A short text of letters that the font of figures has; others become a box."""
    known = "".join(c if _in_font(c) else "□" for c in text)
    return known if len(known) <= LETTERS else f"{known[: LETTERS - 1]}…"


@functools.lru_cache(maxsize=4096)
def _in_font(c: str) -> bool:
    return get_font(findfont("DejaVu Sans")).get_char_index(ord(c)) != 0


def view(points: np.ndarray) -> np.ndarray:
    """The lower left and upper right corner of the map, the same for all depths."""
    flat = points.reshape(-1, 2)
    low, high = np.quantile(flat, [1 - HELD, HELD], axis=0)
    low, high = np.maximum(low - 0.12 * (high - low), flat.min(0)), np.minimum(high + 0.12 * (high - low), flat.max(0))
    size = np.maximum(high - low, 1e-9)
    size = 1.06 * np.maximum(size, [0.9 * size.max(), 0.5 * size.max()])  # neither too flat nor too tall
    return np.stack([(low + high - size) / 2, (low + high + size) / 2])


def spread_out(points: np.ndarray, count: int) -> list[int]:
    """Tokens far from each other over all depths, the first the farthest from the centre: whom to name first."""
    flat = points.transpose(1, 0, 2).reshape(points.shape[1], -1)
    distance = (flat**2).sum(1)
    found: list[int] = []
    for _ in range(min(count, len(flat))):
        found.append(int(distance.argmax()))
        distance = np.minimum(distance, ((flat - flat[found[-1]]) ** 2).sum(1))
        distance[found] = -1.0
    return found


def token_colours(n: int, grid: Sequence[int] | None = None, dark: bool = False) -> np.ndarray:
    """An RGB row per token: by its order; for patches of an image, by the row, and paler to the right."""
    low, high = DARK if dark else LIGHT
    if not grid or grid[0] * grid[1] > n:
        return mpl.colormaps["viridis"](np.linspace(low, high, n))[:, :3]
    rows, columns = (np.linspace(0.0, 1.0, k) for k in grid)
    base = mpl.colormaps["viridis"](low + (high - low) * rows)[:, None, :3]
    paper = np.array([0.1, 0.12, 0.14]) if dark else np.ones(3)
    patches = (base + 0.45 * columns[None, :, None] * (paper - base)).reshape(-1, 3)
    first = n - len(patches)  # tokens before the patches have no place in the image
    return np.concatenate([np.full((first, 3), 0.75 if dark else 0.25), patches])


def _apart(inside: np.ndarray, labels: Sequence[str], named: Sequence[int], box: np.ndarray) -> list[tuple[int, int]]:
    """Those of the named tokens whose names do not cover each other; and the side, 1 or -1, where the name stands."""
    found: list[tuple[int, int]] = []
    taken: list[tuple[float, float, float]] = []
    letter, line = (share * (box[1, 0] - box[0, 0]) for share in (0.023, 0.045))
    for i in named:
        x, y = inside[i]
        length = letter * (len(labels[i]) + 1)
        side = -1 if x + length > box[1, 0] else 1
        left, right = sorted((x, x + side * length))
        if all(abs(y - other) > line or left > end or right < start for start, end, other in taken):
            taken.append((left, right, y))
            found.append((i, side))
    return found

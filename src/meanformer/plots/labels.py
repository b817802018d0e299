"""Words beside tokens, as many as can be read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects

from .. import _checks as checks
from . import style

MOST_LABELS = 40
# In points: from a mark to its label; and the width and height of a letter, as shares of the size of the letters.
GAP, WIDTH, HEIGHT = 1.5, 0.62, 1.25


def draw_labels(
    ax: Any,
    points: np.ndarray,
    labels: Sequence[str],
    *,
    areas: Any = 0.0,
    size: float = 8.0,
    most: int = MOST_LABELS,
) -> list[int]:
    """Write labels beside `points`, shape `(n, 2)` or `(n, 3)`, of axes whose limits are set.

    Those of the largest marks come first, and of equal ones those farthest from the centre; each stands on the side
    that points outwards, if there is room, and none where another one stands; there are `most` of them at most.

    **Arguments:** `areas` of the marks that stand at the points, as `scatter` takes them; `size` of the letters.

    **Returns:** the numbers of the points that have a label.
    """
    if isinstance(labels, str) or len(labels) != len(points):
        checks.refuse(
            "a picture needs a label for each token",
            got="one text" if isinstance(labels, str) else f"{len(labels)} labels for {len(points)} tokens",
            expected=f"{len(points)} names",
            remedy="run.plot(labels=tokens.labels)",
        )
    ax.figure.draw_without_rendering()  # only then are axes where they will be
    flat = _flat(ax, points)
    unit = 72 / ax.figure.dpi  # in points, as sizes of letters are
    places, (low, high) = ax.transData.transform(flat) * unit, ax.bbox.intervalx * unit
    away = places - places.mean(axis=0)
    gaps = np.broadcast_to(GAP + np.sqrt(np.asarray(areas) / np.pi), len(places))
    halo = [patheffects.withStroke(linewidth=2.0, foreground=style.PAPER)]
    taken: list[np.ndarray] = []
    shown: list[int] = []
    for i in np.lexsort((-np.linalg.norm(away, axis=1), -gaps)):
        if len(shown) == most:
            break
        word = str(labels[i])
        width, height = WIDTH * size * len(word), HEIGHT * size
        side = 1 if away[i, 0] >= 0 else -1
        if not low <= places[i, 0] + side * (gaps[i] + width) <= high:
            side = -side
        left = places[i, 0] + (gaps[i] if side > 0 else -gaps[i] - width)
        box = np.array([left, places[i, 1] - height / 2, left + width, places[i, 1] + height / 2])
        if any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        shown.append(int(i))
        text = ax.annotate(
            _plain(word),
            flat[i],
            xytext=(side * gaps[i], 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=size,
            color=style.INK,
            path_effects=halo,
            zorder=4,
        )
        text.set_in_layout(False)  # it stands in the axes, which keep their size
    return shown


def _flat(ax: Any, points: np.ndarray) -> np.ndarray:
    """Where points are in the plane of the picture, in its own coordinates."""
    points = np.asarray(points, float)
    if points.shape[1] == 2:
        return points
    from mpl_toolkits.mplot3d import proj3d

    x, y, _ = proj3d.proj_transform(points[:, 0], points[:, 1], points[:, 2], ax.get_proj())
    return np.stack([x, y], axis=1)


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a[:2] < b[2:]).all() and (b[:2] < a[2:]).all())


def _plain(word: str) -> str:
    """A word that matplotlib does not take for a formula."""
    return word.replace("$", r"\$")

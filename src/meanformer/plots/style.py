"""One look for all figures: colours, sizes, and the settings of matplotlib that go with them.

The palette is that of Paul Tol ("bright"), which people with any colour vision tell apart; ordered values take
viridis without its palest end, which would vanish on paper.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colors

PAPER = "#FCFBF8"
INK = "#22262B"
SOFT = "#6F7680"
FAINT = "#C9CCD1"
PALETTE = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#AA3377", "#66CCEE", "#444B54")

PALEST = 0.92  # of viridis: what is beyond vanishes on paper

SINGLE = (5.2, 5.2)  # inches: one panel
WIDE = (6.4, 4.0)  # a curve over time
DPI = 120

_SETTINGS: dict[Any, Any] = {
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.color": INK,
    "font.family": "DejaVu Sans",  # it comes with matplotlib: the same picture everywhere
    "mathtext.fontset": "cm",
    "savefig.dpi": DPI,
}


@contextmanager
def style() -> Iterator[None]:
    """A context with the settings of all figures, which takes back these and no others.

    Not `rc_context`, which takes back all: the first figure of a notebook loads the backend, which turns `interactive`
    on, and without it no later figure would be shown.
    """
    before: dict[Any, Any] = {name: mpl.rcParams[name] for name in _SETTINGS}
    mpl.rcParams.update(_SETTINGS)
    try:
        yield
    finally:
        mpl.rcParams.update(before)


def category_colours(labels: np.ndarray) -> np.ndarray:
    """An RGB row per token, one colour of the palette per label; the palette repeats after seven."""
    return colors.to_rgba_array(PALETTE)[labels % len(PALETTE), :3]


def ordered_colours(values: np.ndarray) -> np.ndarray:
    """An RGB row per token, from dark (smallest value) to light (largest)."""
    low, high = values.min(), values.max()
    unit = (values - low) / (high - low) if high > low else np.zeros(len(values))
    return mpl.colormaps["viridis"](PALEST * unit)[:, :3]


def ordered_map() -> colors.ListedColormap:
    """The same colours, as a scale."""
    return colors.ListedColormap(mpl.colormaps["viridis"](np.linspace(0, PALEST, 256)))

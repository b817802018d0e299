"""One look for all figures: colours, sizes, and the settings of matplotlib that go with them.

The palette is that of Paul Tol ("bright"), which people with any colour vision tell apart; ordered values take
viridis without its palest end, which would vanish on paper.
"""

from contextlib import AbstractContextManager
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


def style() -> AbstractContextManager[None]:
    """A context with the settings of all figures."""
    return mpl.rc_context(_SETTINGS)


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

"""Figures as files for pages: SVG that looks the same everywhere, or crisp PNG where SVG would be large."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from . import style

# An SVG above this is written again with pixels for its data (letters and axes stay outlines), then as a PNG.
MOST_BYTES = 400_000
# So many points of lines make more than that.
MOST_POINTS = 30_000
# Twice the pixels of a screen.
CRISP = 2 * 96


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure to `path` with the suffix `.svg`, or `.png` where the SVG would be large.

    Letters are outlines: no fonts are needed, and the same figure gives the same bytes.

    **Returns:** the path with its suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    svg, png = (path.with_name(f"{path.name}{suffix}") for suffix in (".svg", ".png"))
    for old in (svg, png):
        old.unlink(missing_ok=True)
    settings: dict[Any, Any] = {"svg.fonttype": "path", "svg.hashsalt": "meanformer"}
    with style.style(), mpl.rc_context(settings):
        if _points(figure) <= MOST_POINTS and _write_svg(figure, svg) <= MOST_BYTES:
            return svg
        for ax in (ax for ax in figure.axes if ax.name != "3d"):  # where matplotlib cannot
            for artist in (*ax.collections, *ax.lines):
                artist.set_rasterized(True)
        if _write_svg(figure, svg) <= MOST_BYTES:
            return svg
        svg.unlink()
        figure.savefig(png, dpi=CRISP)
    with Image.open(png) as image:  # 256 colours are enough for our figures, and a third of the bytes
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(png, optimize=True)
    return png


def _points(figure: Figure) -> int:
    """How many points the lines of a figure have."""
    paths = (path for ax in figure.axes for lines in ax.collections for path in lines.get_paths())
    return sum(np.shape(path.vertices)[0] for path in paths)


def _write_svg(figure: Figure, path: Path) -> int:
    """Write it, and tell its size in bytes."""
    figure.savefig(path, dpi=CRISP, metadata={"Date": None, "Creator": "meanformer"})
    return path.stat().st_size

"""Figures as files for pages: SVG that looks the same everywhere, or crisp PNG where SVG would be large."""

import io
from collections.abc import Callable
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


# Takes the name of a file, relative to a folder, and its bytes.
Keep = Callable[[str, bytes], Any]


def figure_file(figure: Figure, name: str) -> tuple[str, bytes]:
    """A figure as a file: `name` with the suffix `.svg`, or `.png` where the SVG would be large, and its bytes.

    Letters are outlines: no fonts are needed, and the same figure gives the same bytes.
    """
    settings: dict[Any, Any] = {"svg.fonttype": "path", "svg.hashsalt": "meanformer"}
    with style.style(), mpl.rc_context(settings):
        if _points(figure) <= MOST_POINTS and len(svg := _svg(figure)) <= MOST_BYTES:
            return f"{name}.svg", svg
        for ax in (ax for ax in figure.axes if ax.name != "3d"):  # where matplotlib cannot
            for artist in (*ax.collections, *ax.lines):
                artist.set_rasterized(True)
        if len(svg := _svg(figure)) <= MOST_BYTES:
            return f"{name}.svg", svg
        png = io.BytesIO()
        figure.savefig(png, dpi=CRISP, format="png")
    few = io.BytesIO()
    with Image.open(png) as image:  # 256 colours are enough for our figures, and a third of the bytes
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(few, "PNG", optimize=True)
    return f"{name}.png", few.getvalue()


def keep_figure(figure: Figure, keep: Keep, name: str, caption: str) -> dict[str, str]:
    """Give a figure to `keep`, as a file in `figures`; its "name", "file" and "caption"."""
    file, data = figure_file(figure, f"figures/{name}")
    keep(file, data)
    return {"name": name, "file": file, "caption": caption}


def _points(figure: Figure) -> int:
    """How many points the lines of a figure have."""
    paths = (path for ax in figure.axes for lines in ax.collections for path in lines.get_paths())
    return sum(np.shape(path.vertices)[0] for path in paths)


def _svg(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=CRISP, format="svg", metadata={"Date": None, "Creator": "meanformer"})
    return file.getvalue()

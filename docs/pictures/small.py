"""Small pictures for the documentation: PNG files on white, with 256 colours, at most so many pixels and bytes.

`save` takes a figure of Matplotlib, `convert` a file (PNG, or SVG through a Chromium). No other code of the
documentation writes pictures.
"""

import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from meanformer.plots import style

SIZE = (1300, 1300)  # pixels at most
MOST_BYTES = 120_000
DENSITY = 1.6  # pixels of a picture for a CSS pixel of an SVG; the column of a page has some 850 of these
SHRINK = (1.0, 0.875, 0.75, 0.625, 0.53, 0.44)  # the first with which the picture is small enough
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

Size = tuple[int, int]


class NoBrowserError(RuntimeError):
    """There is no browser that could draw an SVG."""


def save(figure: Any, picture: Path, dpi: float = 100) -> None:
    """Write the picture of a figure of Matplotlib, whose paper becomes white; and close the figure."""
    paper, page = figure.get_facecolor(), io.BytesIO()
    figure.savefig(page, dpi=dpi, facecolor=paper)
    plt.close(figure)
    with Image.open(page) as image:
        whole = image.convert("RGB")
    _write(picture, whole.size, lambda size: _resized(whole, size), paper, SIZE, MOST_BYTES)


def convert(source: Path, picture: Path, size: Size = SIZE, most: int = MOST_BYTES) -> None:
    """Write the picture of a PNG or SVG file of ours; never with more pixels than a PNG has."""
    if source.suffix == ".svg":
        css = _css_size(source)
        whole = tuple(DENSITY * side for side in css)
        _write(picture, whole, lambda size: _photographed(source, css, size), style.PAPER, size, most)
        return
    with Image.open(source) as image:
        opened = image.convert("RGB")
    _write(picture, opened.size, lambda size: _resized(opened, size), style.PAPER, size, most)


def _write(
    picture: Path, whole: tuple[float, ...], draw: Callable[[Size], Image.Image], paper: Any, size: Size, most: int
) -> None:
    """Write what `draw` draws, in the largest size in which it is small enough; `whole` is the size that it has."""
    fit = min(1.0, *(limit / side for limit, side in zip(size, whole, strict=True)))
    for shrink in SHRINK:
        width, height = (round(shrink * fit * side) for side in whole)
        content = _png(_white(draw((width, height)), paper))
        if len(content) <= most:
            picture.parent.mkdir(parents=True, exist_ok=True)
            picture.write_bytes(content)
            print(f"{picture}: {width} x {height}, {len(content) / 1000:.0f} kB", flush=True)
            return
    raise ValueError(f"{picture}: {len(content):,} bytes at {width} x {height} pixels; at most {most:,}")


def _white(image: Image.Image, paper: Any) -> Image.Image:
    """The paper of our figures is not quite white: divided by its colour, it is."""
    pixels = np.asarray(image, np.float64) / np.array(to_rgb(paper))
    return Image.fromarray(np.clip(pixels, 0, 255).round().astype(np.uint8))


def _png(image: Image.Image) -> bytes:
    """The bytes with 256 colours: enough for our figures, if those of few pixels (small dots) are among them."""
    few = image.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    written = io.BytesIO()
    few.save(written, "PNG", optimize=True)
    return written.getvalue()


def _resized(image: Image.Image, size: Size) -> Image.Image:
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def _css_size(source: Path) -> tuple[int, int]:
    """The size of an SVG of Matplotlib in CSS pixels."""
    points = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"[^>]*\bheight="([\d.]+)pt"', source.read_text(encoding="utf-8"))
    if points is None:
        raise ValueError(f"{source} does not say how large it is")
    width, height = (round(float(side) * 96 / 72) for side in points.groups())
    return width, height


def _photographed(source: Path, css: tuple[int, int], size: Size) -> Image.Image:
    """An SVG as pixels, drawn by a browser in that size."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise NoBrowserError(f"{source} is an SVG, and there is no {' or '.join(BROWSERS)} to draw it")
    width, height = css
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        image = f'<img src="{source.resolve().as_uri()}" width="{width}" height="{height}" style="display:block">'
        page.write_text(f'<body style="margin:0">{image}', encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={shot}"]
        options += [f"--window-size={width},{height}", f"--force-device-scale-factor={size[0] / width:.5f}"]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
        with Image.open(shot) as taken:
            return _resized(taken.convert("RGB"), size)  # it may have a pixel more

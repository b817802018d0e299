"""Small pictures as SVG: tokens, curves, densities, bars. Letters have the colour of the text around them."""

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .card import Html, escaped

SIZE = 170
MARGIN = 6
# The palette of Paul Tol ("bright"): to be told apart by all, on white and on black.
COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#AA3377", "#66CCEE", "#888888")
FAINT = "#888888"


def picture(inside: str, words: str, caption: Any = "", size: tuple[int, int] = (SIZE, SIZE)) -> Html:
    """A picture in a frame: `words` say what it shows to those who cannot see it, the caption stands below."""
    width, height = size
    frame = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="4" fill="none" stroke="{FAINT}" '
    below = (
        f'<div style="font-size:0.8em;opacity:0.7;text-align:center;max-width:{width}px">{escaped(caption)}</div>'
        if caption
        else ""
    )
    return Html(
        f'<div style="flex:none"><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escaped(words)}" style="display:block">{frame}stroke-opacity="0.4"/>{inside}</svg>{below}</div>'
    )


def box_of(points: np.ndarray, square: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the box around `points`, shape `(..., 2)`; a square with the same centre, if asked for."""
    flat = points.reshape(-1, 2)
    flat = flat[np.isfinite(flat).all(axis=1)]
    if len(flat) == 0:
        return -np.ones(2), np.ones(2)
    centre, half = (flat.min(axis=0) + flat.max(axis=0)) / 2, np.ptp(flat, axis=0) / 2
    half = np.full(2, half.max()) if square else half
    half = np.where(half > 0, half, np.maximum(1e-6 * np.abs(centre), 1e-9))
    return centre - half, centre + half


def placed(points: np.ndarray, box: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Points of a box as places in the picture, up being up; those that are not finite lie far outside."""
    low, high = box
    unit = np.nan_to_num((points - low) / (high - low), nan=-9.0, posinf=9.0, neginf=-9.0)
    places = MARGIN + (SIZE - 2 * MARGIN) * unit.clip(-9, 9)
    return np.stack([places[..., 0], SIZE - places[..., 1]], axis=-1)


def dots(places: np.ndarray, colours: Sequence[str], width: float = 5.0, opacity: float = 1.0) -> str:
    """Dots, a colour for each: lines of no length with round ends, which take the fewest letters."""
    look = f'stroke-width="{width:g}" stroke-linecap="round" fill="none" stroke-opacity="{opacity:g}"'
    groups: dict[str, list[str]] = {}
    for colour, (x, y) in zip(colours, places, strict=True):
        groups.setdefault(colour, []).append(f"M{_short(x)} {_short(y)}h0")
    return "".join(f'<path d="{"".join(d)}" stroke="{colour}" {look}/>' for colour, d in groups.items())


def lines(paths: Iterable[np.ndarray], colours: Sequence[str], width: float = 1.0, opacity: float = 0.4) -> str:
    """Lines through places, each of shape `(points, 2)`, a colour for each."""
    look = f'stroke-width="{width:g}" fill="none" stroke-opacity="{opacity:g}" stroke-linejoin="round"'
    groups: dict[str, list[str]] = {}
    for colour, places in zip(colours, paths, strict=True):
        groups.setdefault(colour, []).append(_through(places))
    return "".join(f'<path d="{"".join(d)}" stroke="{colour}" {look}/>' for colour, d in groups.items())


def area(places: np.ndarray, colour: str = COLOURS[0], opacity: float = 0.35) -> str:
    """What lies below a curve, with its edge."""
    d, base = _through(places), SIZE - MARGIN
    closed = f"{d}L{_short(places[-1, 0])} {base}L{_short(places[0, 0])} {base}Z"
    return f'<path d="{closed}" fill="{colour}" fill-opacity="{opacity:g}"/>' + lines([places], [colour], 1.2, 1.0)


def heat(values: np.ndarray, colour: str = COLOURS[0]) -> str:
    """Values of cells, shape `(columns, rows)`, as a colour that is the stronger the larger they are."""
    top = float(values.max()) or 1.0
    strength = np.clip(255 * values.T[::-1] / top, 0, 255).astype(np.uint8)
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    pixels = np.empty((*strength.shape, 4), np.uint8)
    pixels[...] = (red, green, blue, 0)
    pixels[..., 3] = strength
    inner = SIZE - 2 * MARGIN
    place = f'x="{MARGIN}" y="{MARGIN}" width="{inner}" height="{inner}" preserveAspectRatio="none"'
    return f'<image {place} href="data:image/png;base64,{base64.b64encode(_png(pixels)).decode()}"/>'


def bars(
    names: Sequence[Any], values: Sequence[float | int], texts: Sequence[Any], words: str, caption: Any = ""
) -> Html:
    """A picture of horizontal bars, each with its name and the text of its value."""
    step, left, width = 20, 92, 240
    most = max(max(values, default=0.0), 1e-300)
    parts = []
    for k, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        y, long = 8 + step * k, (width - left - 48) * max(value, 0.0) / most
        letters = f'y="{y + 10}" font-size="11" fill="currentColor"'
        parts.append(f'<text x="{left - 6}" text-anchor="end" {letters}>{escaped(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="13" rx="2" fill="{COLOURS[0]}"/>')
        parts.append(f'<text x="{left + long + 5:.1f}" {letters}>{escaped(text)}</text>')
    return picture("".join(parts), words, caption, (width, 14 + step * len(names)))


def _through(places: np.ndarray) -> str:
    return "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in places)


def _short(value: float) -> str:
    """A coordinate to a tenth of a pixel, without needless letters."""
    return f"{value:.1f}".removesuffix(".0")


def _png(pixels: np.ndarray) -> bytes:
    """An image of red, green, blue and opacity, shape `(rows, columns, 4)`, as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

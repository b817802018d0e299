"""Films: pictures one after the other, as a GIF or, where ffmpeg is found, as an MP4."""

import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FFMpegWriter
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .. import _checks as checks
from .._progress import Progress

# What changes from one picture to the next, from the back to the front; None: perhaps everything.
Moving = Sequence[Artist] | None

SUFFIXES = (".gif", ".mp4")
# The last picture stays for so many seconds before the film starts again.
REST = 1.0
# A GIF has one palette for all pictures: our figures need few colours, and fewer make smaller files.
COLOURS = 64
DPI = 96


@functools.lru_cache(maxsize=1)
def animation_suffix() -> str:
    """The better format that can be written here: ".mp4" if there is an ffmpeg with H.264, else ".gif"."""
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return ".gif"
    try:
        encoders = subprocess.run([ffmpeg, "-hide_banner", "-encoders"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ".gif"
    return ".mp4" if "libx264" in encoders.stdout else ".gif"


def film_path(path: Any) -> Path:
    """The path of a film, if its format can be written."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        checks.refuse(
            "an animation is a GIF or an MP4",
            got=repr(str(path)),
            expected="a file name that ends in .gif or .mp4",
            remedy=f"write to {path.with_suffix('.gif').name}",
        )
    if path.suffix.lower() == ".mp4" and animation_suffix() != ".mp4":
        checks.refuse(
            "an MP4 needs ffmpeg",
            got="no ffmpeg with H.264 (libx264) on this machine",
            expected="the program ffmpeg in the PATH",
            remedy=f"write to {path.with_suffix('.gif').name}, or install ffmpeg",
        )
    return path


def write_film(
    path: Path, figure: Figure, draw: Callable[[int], Moving], frames: int, fps: int, progress: bool | None = None
) -> Path:
    """Write a film: `draw(k)` changes `figure` to the k-th of `frames` pictures, and returns what it changed, if all
    else stays as it was: axes with their numbers take several times as long to draw as what moves in them. Half a film
    is never left behind.

    **Returns:** the path.
    """
    FigureCanvasAgg(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.stem}.partial{path.suffix}")
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_gif
    try:
        with Progress(progress, 0, frames, "film", "frame") as bar:

            def drawn() -> Iterator[Moving]:
                for k in range(frames):
                    moving = draw(k)
                    if k == 0:  # the layout is found once: axes must not tremble with their labels
                        figure.canvas.draw()
                        figure.set_layout_engine("none")
                    yield moving
                    bar.update(k + 1, k + 1)

            write(scratch, figure, drawn(), fps)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def _write_mp4(path: Path, figure: Figure, pictures: Iterator[Moving], fps: int) -> None:
    # The colours of yuv420p, which every player knows (it needs even sizes), and the index at the start, for pages.
    filters = f"crop=trunc(iw/2)*2:trunc(ih/2)*2,tpad=stop_mode=clone:stop_duration={REST}"
    options = ["-vf", filters, "-pix_fmt", "yuv420p", "-crf", "22", "-movflags", "+faststart"]
    writer = FFMpegWriter(fps=fps, codec="libx264", extra_args=options)
    with writer.saving(figure, str(path), dpi=DPI):
        for _ in pictures:
            writer.grab_frame()


def _write_gif(path: Path, figure: Figure, pictures: Iterator[Moving], fps: int) -> None:
    figure.set_dpi(DPI)
    images = list(_images(figure, pictures))
    # The palette is found from some of the pictures, side by side.
    some = [images[k] for k in sorted({0, len(images) // 3, 2 * len(images) // 3, len(images) - 1})]
    sheet = np.concatenate([np.asarray(image) for image in some])
    palette = Image.fromarray(sheet).quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    indexed = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    durations = [round(1000 / fps)] * (len(indexed) - 1) + [round(1000 * (1 / fps + REST))]
    indexed[0].save(path, save_all=True, append_images=indexed[1:], duration=durations, loop=0, optimize=True)


def _images(figure: Figure, pictures: Iterator[Moving]) -> Iterator[Image.Image]:
    """The figure at each of the pictures; what does not move is drawn once."""
    canvas: Any = figure.canvas
    still = None
    for moving in pictures:
        if moving is None:
            canvas.draw()
        else:
            if still is None:
                still = _drawn_without(canvas, moving)
            canvas.restore_region(still)
            for artist in sorted(moving, key=lambda artist: artist.get_zorder()):
                figure.draw_artist(artist)
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())


def _drawn_without(canvas: Any, moving: Sequence[Artist]) -> Any:
    """The figure without what moves."""
    for artist in moving:
        artist.set_animated(True)
    canvas.draw()
    for artist in moving:
        artist.set_animated(False)
    return canvas.copy_from_bbox(canvas.figure.bbox)

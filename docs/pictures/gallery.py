"""Make the pictures of the documentation again, by the commands of docs/gallery.md.

    python docs/pictures/gallery.py --list              # the table: picture <- command
    python docs/pictures/gallery.py masked clusters     # pictures whose names have these words in them
    python docs/pictures/gallery.py                     # all of them (an hour)

Below each command of the gallery a comment names the file which it writes: `meanformer run sigmoid`, and below it `#
runs/sigmoid/figures/paths.svg`. Commands run in the folder `--work`, by default the repository; one whose file is there
already is not run again, unless `--again`. The file becomes the picture: a PNG with 256 colours and at most 120 kB (an
SVG through a Chromium), a GIF as it is.
"""

import argparse
import io
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import colors
from PIL import Image

from meanformer.plots import style

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "gallery.md"
IMAGE = re.compile(r"!\[([^\]]*)\]\((img/[^)]+)\)")
FENCE = re.compile(r"^ *```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

MOST_BYTES = 120_000
# The picture of the first page is larger.
MORE_BYTES = {"tour.png": 600_000}
# Pixels for a CSS pixel, the first with which the picture is small enough; the column of a page has some 850 of these.
SCALES = (1.6, 1.4, 1.2, 1.0, 0.85, 0.7)
WIDEST = 1300


class Entry(NamedTuple):
    """A picture of the gallery: its alt text, its file (relative to docs), the command, and the file it writes."""

    alt: str
    picture: str
    command: str
    source: str


def entries(text: str) -> Iterator[Entry]:
    """The pictures of the page, each with the command that follows it before the next picture."""
    found = list(IMAGE.finditer(text))
    for image, after in zip(found, [*found[1:], None], strict=True):
        part = text[image.end() : after.start() if after else len(text)]
        fence = FENCE.search(part)
        lines = [line.strip() for line in fence[1].splitlines()] if fence else []
        command, source = (" ".join(line for line in lines if line.startswith("#") == named) for named in (False, True))
        source = source.removeprefix("# ")
        yield Entry(image[1], image[2], command, source)


def run(command: str, work: Path) -> None:
    """Run a command of the gallery in the folder `work`."""
    words = shlex.split(command)
    program = {"python": [sys.executable], "meanformer": [sys.executable, "-m", "meanformer"]}[words[0]]
    paths = [str(ROOT / word) if word.startswith(("examples/", "docs/")) else word for word in words[1:]]
    subprocess.run([*program, *paths], cwd=work, check=True)


def place(source: Path, picture: Path) -> None:
    """Make the picture of the file that the command wrote."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".gif":
        shutil.copyfile(source, picture)
        return
    for scale in SCALES:
        content = as_png(rendered(source, scale) if source.suffix == ".svg" else resized(source, scale))
        if len(content) <= MORE_BYTES.get(picture.name, MOST_BYTES):
            break
    picture.write_bytes(content)


def as_png(image: Image.Image) -> bytes:
    """The bytes of a PNG on white, with 256 colours, which are enough for our figures."""
    written = io.BytesIO()
    # The paper of our figures is not quite white: divided by its colour, it is.
    white = np.asarray(image, np.float64) * (1 / np.array(colors.to_rgb(style.PAPER)))
    few = Image.fromarray(np.clip(white, 0, 255).round().astype(np.uint8)).quantize(256, dither=Image.Dither.NONE)
    few.save(written, "PNG", optimize=True)
    return written.getvalue()


def resized(source: Path, scale: float) -> Image.Image:
    """A picture of at most so many pixels; never a larger one."""
    with Image.open(source) as image:
        image = image.convert("RGB")
    width = min(image.width, int(WIDEST * scale / SCALES[0]))
    return image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)


def rendered(source: Path, scale: float) -> Image.Image:
    """An SVG as pixels."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit(f"{source} is an SVG, and there is no Chromium to draw it")
    sizes = re.search(r'<svg[^>]*\bwidth="([\d.]+)pt"[^>]*\bheight="([\d.]+)pt"', source.read_text())
    if sizes is None:
        sys.exit(f"{source} does not say how large it is")
    width, height = (round(float(size) * 96 / 72) for size in sizes.groups())
    scale = min(scale, WIDEST / width)
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        page.write_text(
            f'<body style="margin:0"><img src="{source.resolve().as_uri()}" width="{width}" height="{height}">'
        )
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={shot}"]
        options += [f"--window-size={width},{height}", f"--force-device-scale-factor={scale:.3f}"]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
        with Image.open(shot) as image:
            return image.convert("RGB")


def main() -> None:
    """List, or run the commands and put the pictures in place."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation again.")
    parser.add_argument("words", nargs="*", help="only pictures whose names have one of these words in them")
    parser.add_argument("--list", action="store_true", help="print the table picture <- command, and run nothing")
    parser.add_argument("--work", type=Path, default=ROOT, help="folder in which the commands run")
    parser.add_argument("--again", action="store_true", help="also commands whose file is there already")
    options = parser.parse_args()
    chosen = [
        entry
        for entry in entries(PAGE.read_text())
        if not options.words or any(word in Path(entry.picture).name for word in options.words)
    ]
    if not chosen:
        sys.exit(f"no picture of the gallery has {' or '.join(options.words)} in its name")
    if options.list:
        width = max(len(Path(entry.picture).name) for entry in chosen)
        for entry in chosen:
            print(f"{Path(entry.picture).name:<{width}} <- {entry.command}  # {entry.source}")
        return
    done: set[str] = set()
    for entry in chosen:
        direct = entry.source.startswith("docs/")  # the command puts the picture there itself
        source = (ROOT if direct else options.work) / entry.source
        if entry.command not in done and (options.again or direct or not source.exists()):
            print(f"==> {entry.command}", flush=True)
            run(entry.command, ROOT if direct else options.work)
            done.add(entry.command)
        if not direct:
            place(source, DOCS / entry.picture)
        size = (DOCS / entry.picture).stat().st_size
        print(f"{entry.picture}: {size / 1000:.0f} kB, from {entry.source}", flush=True)


if __name__ == "__main__":
    main()

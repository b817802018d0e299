"""Make the pictures of the documentation again, by the commands of docs/gallery.md.

    python docs/pictures/gallery.py --list              # the table: picture <- command
    python docs/pictures/gallery.py masked clusters     # pictures whose names have these words in them
    python docs/pictures/gallery.py                     # all of them (an hour)

Below each command of the gallery a comment names the file which it writes: `meanformer run sigmoid`, and below it `#
runs/sigmoid/figures/paths.svg`. Commands run in the folder `--work`, by default the repository; one whose file is there
already is not run again, unless `--again`. The file becomes the picture: a small PNG (small.py), a GIF as it is; those
of the pages of reproductions (repro_*) as reproductions.py makes them.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import reproductions
import small

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "gallery.md"
IMAGE = re.compile(r"!\[([^\]]*)\]\((img/[^)]+)\)")
FENCE = re.compile(r"^ *```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

# The picture of the first page is larger.
MORE_BYTES = {"tour.png": 600_000}


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
    if source.suffix == ".gif":
        shutil.copyfile(source, picture)
    elif picture.name.startswith("repro_"):
        reproductions.draw(source, picture)
    else:
        small.convert(source, picture, most=MORE_BYTES.get(picture.name, small.MOST_BYTES))


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
        for entry in entries(PAGE.read_text(encoding="utf-8"))
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
            try:
                place(source, DOCS / entry.picture)
            except small.NoBrowserError as error:
                sys.exit(str(error))


if __name__ == "__main__":
    main()

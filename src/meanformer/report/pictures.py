"""The pictures and films of a run folder, put into a page.

`results.json` names their files, and may come from elsewhere: only files inside of the folder are read, through no
links, of the kinds that we write, with the bytes that were written, and no more than a page can hold. What is not such
a file is named as missing.
"""

import base64
import zlib
from pathlib import Path

from ..store import disk
from ..store.folder import RunFolder
from ..store.ledger import Ledger, is_inside
from .formula import escape, inline
from .page import Markup, bare

MEDIA = {
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".mp4": "video/mp4",
}
# Of one file, and of all files of a page, in bytes; our own films have a few million.
LARGEST_FILE, LARGEST_PAGE = 64 * 2**20, 256 * 2**20


class Pictures:
    """The pictures in a `folder`, as parts of one page."""

    def __init__(self, folder: Path):
        self._folder, self._left = folder, LARGEST_PAGE
        self._lists: dict[Path, Ledger | None] = {}

    def figure(self, name: str, caption: str, whole: bool = False) -> Markup:
        """The HTML of a picture or a film, its data inside; `whole` takes the full width."""
        words = f"<figcaption>{inline(caption)}</figcaption>" if caption else ""
        kind, data = MEDIA.get(Path(name).suffix.lower()), self._read(name)
        if kind is None or data is None:
            return Markup(
                f"<figure><p>There is no picture {escape(name)} in the folder, or none that the run wrote and that a "
                f"page can hold.</p>{words}</figure>"
            )
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        alt = escape(bare(caption) or Path(name).stem)
        # A picture inside <img> is a picture: scripts in it do not run, and it loads nothing.
        media = f'<img src="{source}" alt="{alt}">'
        if kind.startswith("video"):
            media = f'<video controls loop muted autoplay playsinline src="{source}" aria-label="{alt}"></video>'
        return Markup(f'<figure class="{"whole" if whole else ""}"><div class="paper">{media}</div>{words}</figure>')

    def _read(self, name: str) -> bytes | None:
        """The content of a file inside of the folder, with the bytes that the run wrote; None if there is none."""
        if not is_inside(name):
            return None
        try:
            data = disk.read(name, self._folder, most=min(LARGEST_FILE, self._left))
        except (OSError, ValueError):  # no such file; no name of a file
            return None
        whole, inside = (self._folder, name) if not name.startswith("cases/") else self._case(name)
        if whole not in self._lists:
            self._lists[whole] = RunFolder(whole).files
        listed = self._lists[whole]
        if listed is not None and not listed.fits(inside, zlib.crc32(data)):
            return None
        self._left -= len(data)
        return data

    def _case(self, name: str) -> tuple[Path, str]:
        """The run folder of a case, and the name of a file in it."""
        _, case, *rest = name.split("/")
        return self._folder / "cases" / case, "/".join(rest)

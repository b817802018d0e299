"""The list of files that a run has written, `files.jsonl`: a name is listed, with the sum of its bytes, before its
file is made.

So after any end of the process, whatever a run has left is listed, and what is not listed is somebody else's. Each line
carries its checksum; a line that is damaged or cut off lists nothing. A file that is written anew has several lines.
"""

import json
import zlib
from collections.abc import Iterator
from typing import Any

NAME = "files.jsonl"
CLEARING = {"clearing": True}
# Bytes of the name of a file, with what `disk.temporary` adds to it.
LONGEST = 255 - len(".") - len(".meanformer.tmp")
# Bytes of a line: of the longest path, each of its letters written as six.
LONGEST_LINE = 2**15
# The end of a line that was cut off by the end of a process, put there by somebody who wrote beside it.
CUT = b"#cut\n"


def line(content: Any) -> bytes:
    """A line of the file."""
    text = json.dumps(content).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Ledger:
    """What `files.jsonl` says: the mark of the run, that of the run which it is a part of, the place that it has there,
    and the names.
    """

    def __init__(self, data: bytes):
        texts = [text for text in data.splitlines(keepends=True) if not text.endswith(CUT)]
        if texts and not texts[-1].endswith(b"\n"):  # cut off by the end of a process, before its file was made
            texts.pop()
        lines = [_content(text) for text in texts]
        tables = [entry for entry in lines if isinstance(entry, dict)]
        about: dict[str, Any] = next(iter(tables), {})
        self.mark, self.inside, self.place = about.get("run"), about.get("inside"), about.get("place")
        # All that is listed is being removed, or was when the process ended.
        self.clearing = CLEARING in tables
        # Names were lost, and are not all found again.
        self.incomplete = bool(about.get("incomplete"))
        self.names: dict[str, set[int]] = {}
        for entry in lines:
            if isinstance(entry, list):
                self.add(*entry)
        # Lines cannot be read, which may be told by reading all else again.
        self.torn = None in lines or self.mark is None
        self.damaged = self.incomplete or self.torn

    def add(self, name: str, crc32: int) -> None:
        """List a name, with the sum of its bytes."""
        if is_inside(name) and _can_be_made(name):
            self.names.setdefault(name, set()).add(crc32)

    def fits(self, name: str, crc32: int) -> bool:
        """Whether a file with this sum may be one that was listed; a damaged list may have lost its line."""
        return self.damaged or self.has(name, crc32)

    def has(self, name: str, crc32: int) -> bool:
        """Whether a file with this sum is listed."""
        return crc32 in self.names.get(name, ())

    def lines(self) -> Iterator[bytes]:
        """The file, line by line."""
        about = {"run": self.mark, "inside": self.inside, "place": self.place}
        yield line(about | ({"incomplete": True} if self.incomplete else {}))
        yield from (line([name, crc32]) for name, sums in self.names.items() for crc32 in sorted(sums))


def is_inside(name: str) -> bool:
    """Whether a name, with slashes between its parts, stays in the folder."""
    parts = name.split("/")
    return "\0" not in name and not {"", ".", ".."} & set(parts)  # a name that begins with / has an empty part


def _can_be_made(name: str) -> bool:
    """Whether a file can have this name."""
    try:
        return all(len(part.encode()) <= LONGEST for part in name.split("/"))
    except UnicodeEncodeError:
        return False


def _content(text: bytes) -> Any:
    if not 10 <= len(text) <= LONGEST_LINE:
        return None
    try:
        content = json.loads(text[9:]) if int(text[:8], 16) == zlib.crc32(text[9:-1]) else None
    except (ValueError, RecursionError):
        return None
    is_file = isinstance(content, list) and [type(part) for part in content] == [str, int]
    return content if is_file or isinstance(content, dict) else None

"""The list of files that a run has written, `files.jsonl`: a name is listed before its file is made.

So after any end of the process, whatever a run has left is listed, and what is not listed is somebody else's. Each line
carries its checksum; a line that is damaged or cut off lists nothing.
"""

import json
import zlib
from pathlib import PurePosixPath
from typing import Any

NAME = "files.jsonl"


def line(content: Any) -> bytes:
    """A line of the file."""
    text = json.dumps(content).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Ledger:
    """What `files.jsonl` says: the mark of the run, that of the run which it is a part of, and the names."""

    def __init__(self, data: bytes):
        lines = [_content(text) for text in data.splitlines(keepends=True)]
        about: dict[str, Any] = next((entry for entry in lines if isinstance(entry, dict)), {})
        self.mark, self.inside = about.get("run"), about.get("inside")
        self.names = dict.fromkeys(entry for entry in lines if isinstance(entry, str) and is_inside(entry))
        # The last line may have been cut off by the end of a process, before its file was made.
        self.damaged = None in lines[:-1] or (bool(lines) and self.mark is None)


def is_inside(name: str) -> bool:
    """Whether a name, with slashes between its parts, stays in the folder."""
    parts = name.split("/")
    return not PurePosixPath(name).is_absolute() and "\0" not in name and not {"", ".", ".."} & set(parts)


def _content(text: bytes) -> Any:
    if len(text) < 10 or not text.endswith(b"\n"):
        return None
    try:
        return json.loads(text[9:]) if int(text[:8], 16) == zlib.crc32(text[9:-1]) else None
    except (ValueError, RecursionError):
        return None

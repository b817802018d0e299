"""Names in the arguments that no file can have, or no page can show: refused before any work."""

from collections.abc import Sequence
from pathlib import Path

from .streams import printable

# File systems take 255 bytes; while we write, a name has a few more letters.
LONGEST_NAME = 240
LONGEST_PATH = 4000


def refuse_unreadable(arguments: Sequence[str]) -> None:
    """Refuse arguments that are no text: reports, JSON and messages could not have them."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            from meanformer import _checks as checks

            checks.refuse(
                "an argument is not text",
                got=printable(argument),
                expected="UTF-8, in names of files too",
                remedy="rename the file, or choose another name",
            )


def place(path: Path | None) -> Path | None:
    """A path that a file can have; refused in words otherwise."""
    if path is not None:
        name = max(path.parts, key=lambda part: len(part.encode()), default="")
        whole = str(path)
        long = name if len(name.encode()) > LONGEST_NAME else whole if len(whole.encode()) > LONGEST_PATH else None
        if long is not None:
            from meanformer import _checks as checks

            checks.refuse(
                f"this {'name' if long is name else 'path'} is too long",
                got=f"{len(long.encode())} bytes: {long[:60]}...",
                expected=f"at most {LONGEST_NAME} bytes for a name, {LONGEST_PATH} for a path",
                remedy="choose a shorter one",
            )
    return path


def places(paths: list[Path]) -> list[Path]:
    """The same for several."""
    for path in paths:
        place(path)
    return paths

"""Names in the arguments that no file can have, or no page can show: refused before any work."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

# File systems take 255 bytes; while we write, a name has a few more letters.
LONGEST_NAME = 240
LONGEST_PATH = 4000
_WITHOUT_VALUE = re.compile("--[a-z-]+=")


def refuse_unreadable(arguments: Sequence[str]) -> None:
    """Refuse arguments that are no text: reports, JSON and messages could not have them; and empty ones: as the name of
    a folder they would be that in which we are, as a host every address.
    """
    for number, argument in enumerate(arguments):
        if not argument or _WITHOUT_VALUE.fullmatch(argument):
            from meanformer import _checks as checks

            before = [*arguments[max(number - 1, 0) : number], argument]
            checks.refuse(
                "an argument is empty",
                got=shlex.join(before),
                expected="a name or a value; `.` for the folder in which you are",
                remedy="leave the option out, or look whether a variable of the shell is not set",
            )
        try:
            argument.encode()
        except UnicodeEncodeError:
            from meanformer import _checks as checks

            checks.refuse(
                "an argument is not text",
                got=argument,
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

"""What the program prints, and to whom: streams that may be closed, full or no longer read."""

import contextlib
import errno
import os
import sys
from typing import Any, NoReturn

from .._words import printable

NOBODY_READS = 141
"""The exit code where the reader of a pipe has gone, as of a program that the signal SIGPIPE (13) ends."""


def open_streams() -> Any:
    """Make sure that there is an output and an error stream, which take every character; the output."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    with contextlib.suppress(AttributeError, ValueError):  # a stream of another kind takes care of itself
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return sys.stdout


def complain(words: str) -> None:
    """Words on standard error; where nobody can read them, the exit code has to do."""
    with contextlib.suppress(OSError):
        print(printable(words), file=sys.stderr, flush=True)


def nobody_reads(output: Any) -> NoReturn:
    """End quietly: the reader, such as `head`, has seen enough."""
    _forget(output)
    sys.exit(NOBODY_READS)


def not_written(output: Any, error: OSError) -> NoReturn:
    """End with words: the output could not be written."""
    _forget(output)
    reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
    complain(
        f"Failed: the output cannot be written: {reason}\n"
        "  safe:     what was computed is in its folder\n"
        "  remedy:   send the output elsewhere; `meanformer show FOLDER` prints it again"
    )
    sys.exit(1)


def leave(code: int) -> NoReturn:
    """End at once: a compilation that was cut short makes the interpreter crash while it tidies up (jaxlib 0.10.1)."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _forget(output: Any) -> None:
    """What is still in the buffer goes nowhere: the interpreter would try to write it again while it ends."""
    for stream in (output, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

"""The command line. Thin: it reads options, calls an experiment, and prints what it found.

Exit codes: 0 done, 1 failed, 2 refused input, 130 interrupted (resumable), 141 nobody reads the output any more. JAX is
imported by the commands, not by the help.
"""

import os
import sys

from ..store.interruption import asked_once, recognised
from .arguments import refuse_unreadable
from .streams import complain, leave, nobody_reads, not_written, open_streams


def main() -> None:
    """The entry point: runs the command and turns errors into words and exit codes."""
    try:
        with asked_once():  # to the very end: who presses Ctrl-C five times sees words, not where we happened to be
            try:
                _main()
            except KeyboardInterrupt:  # while an error is told
                _interrupted()
    except KeyboardInterrupt:  # at the very end, where nothing could be raised
        _interrupted()


def _main() -> None:
    output = open_streams()
    try:
        try:
            with recognised():
                from .commands import app  # here: an interruption while it is imported has words too

                refuse_unreadable(sys.argv[1:])
                app()
        finally:
            output.flush()  # here, not when the interpreter ends: it may fail
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as stop:  # typer ends every command with one, and has its own for Ctrl-C and broken pipes
        if stop.code == 130:
            _interrupted()
        if isinstance(stop.__context__, BrokenPipeError):
            nobody_reads(output)
        raise
    except BrokenPipeError:
        nobody_reads(output)
    except OSError as error:
        if error.filename is None:  # no file: the output itself
            not_written(output, error)
        _failed(error)
    except Exception as error:
        _failed(error)


def _failed(error: Exception) -> None:
    from ..store.errors import FolderError, NotARun

    checks = sys.modules.get("meanformer._checks")  # whoever refuses input has imported it, with JAX
    refused = isinstance(error, NotARun) or (checks is not None and isinstance(error, checks.InputError))
    name = "Refused" if refused else "Failed" if isinstance(error, FolderError | OSError) else type(error).__name__
    complain(f"{name}: {error}")
    if name == type(error).__name__:  # a fault of ours
        if os.environ.get("MEANFORMER_TRACEBACK"):
            raise error
        complain("MEANFORMER_TRACEBACK=1 in the environment shows where it happened.")
    sys.exit(2 if refused else 1)


def _interrupted() -> None:
    complain("Interrupted.")
    leave(130)

"""The command line. Thin: it reads options, calls an experiment, and prints what it found.

Exit codes: 0 done, 1 failed, 2 refused input, 130 interrupted (resumable). JAX is imported by the commands, not by the
help.
"""

import os
import sys

from .commands import app


def main() -> None:
    """The entry point: runs the command and turns errors into words and exit codes."""
    try:
        app()
    except KeyboardInterrupt:
        _interrupted()
    except SystemExit as stop:  # typer ends every command with one, and has its own for Ctrl-C
        if stop.code == 130:
            _interrupted()
        raise
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os._exit(0)
    except Exception as error:
        from meanformer._checks import InputError
        from meanformer.store.errors import FolderError, NotARun

        refused = isinstance(error, InputError | NotARun)
        name = "Refused" if refused else "Failed" if isinstance(error, FolderError) else type(error).__name__
        print(f"{name}: {error}", file=sys.stderr)
        if name == type(error).__name__:  # a fault of ours
            if os.environ.get("MEANFORMER_TRACEBACK"):
                raise
            print("MEANFORMER_TRACEBACK=1 in the environment shows where it happened.", file=sys.stderr)
        sys.exit(2 if refused else 1)


def _interrupted() -> None:
    print("Interrupted.", file=sys.stderr)
    leave(130)


def leave(code: int) -> None:
    """End at once: a compilation that was cut short makes the interpreter crash while it tidies up (jaxlib 0.10.1)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""What goes wrong with run folders. Nothing here imports JAX."""

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .._words import one_line, spell_out


class FolderError(RuntimeError):
    """A run folder that cannot be read or written; the message says what is wrong, what is safe and what to do.

    The three parts are its attributes `what`, `safe` and `remedy`, all text.

    ```python
    try:
        mf.load("runs/nothing-here")
    except mf.FolderError as error:
        print(error)
    ```
    """

    def __init__(self, what: str, *, safe: str, remedy: str):
        what, safe, remedy = map(one_line, (what, safe, remedy))  # it may quote a folder of somebody else
        spell_out(sys.exception())  # so may what it is raised from
        self.what, self.safe, self.remedy = what, safe, remedy
        super().__init__(f"{what}\n  safe:     {safe}\n  remedy:   {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:  # it may cross processes
        return partial(type(self), safe=self.safe, remedy=self.remedy), (self.what,)


class NotARun(FolderError):
    """A folder that holds no run."""


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn what is wrong with data that were read into words. What was written is checked by its sums; a file that is
    whole and still makes no sense was made by somebody else, or by another version.
    """
    from .._checks import InputError

    try:
        yield
    except (FolderError, InputError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FolderError(
            f"{path} holds something that cannot be understood: {type(error).__name__}: {error}",
            safe="the folder is as it was",
            remedy="read it with the version of meanformer that wrote it (see run.json), or run it again",
        ) from error

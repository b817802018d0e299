"""What goes wrong with run folders. Nothing here imports JAX."""

from functools import partial
from typing import Any


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
        self.what, self.safe, self.remedy = what, safe, remedy
        super().__init__(f"{what}\n  safe:     {safe}\n  remedy:   {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:  # it may cross processes
        return partial(type(self), safe=self.safe, remedy=self.remedy), (self.what,)


class NotARun(FolderError):
    """A folder that holds no run."""

"""A progress bar for long runs, driven between segments."""

import sys
import time
from typing import Any

# A run shorter than this shows nothing.
QUIET_SECONDS = 1.0


class Progress:
    """A bar from t0 to t1 that appears when a run is long: on a terminal by default, always or never if told.

    What is counted is a time (`t = ...`) unless `what` names it otherwise.
    """

    def __init__(self, wanted: bool | None, t0: float | int, t1: float | int, what: str = "flow", unit: str = "t ="):
        self.shown = sys.stderr.isatty() if wanted is None else wanted
        self.t0, self.t1, self.what, self.unit = t0, t1, what, unit
        self.start = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "Progress":
        return self

    def update(self, t: float | int, steps: int) -> None:
        """Show that time `t` is reached after `steps` steps."""
        if not self.shown or (self.bar is None and time.monotonic() - self.start < QUIET_SECONDS):
            return
        if self.bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn(self.what),
                BarColumn(),
                TextColumn(
                    f"{self.unit} "
                    + "{task.fields[t]:.4g} of {task.fields[t1]:.4g}"
                    + ", {task.fields[steps]} steps" * (self.unit == "t =")
                ),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("flow", total=self.t1 - self.t0, steps=0, t=self.t0, t1=self.t1)
            self.bar.start()
        self.bar.update(self.task, completed=t - self.t0, steps=steps, t=t)

    def say(self, line: str) -> None:
        """A line about what is being done, if progress is shown."""
        if self.shown and line:
            print(line, file=sys.stderr)

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

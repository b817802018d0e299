"""A progress bar for long runs, driven between segments: on a terminal, or in the output of a notebook's cell."""

import html
import sys
import time
from typing import Any

from . import _checks as checks

# A run shorter than this shows nothing.
QUIET_SECONDS = 1.0
# A notebook is sent no more than one picture of the bar in so many seconds.
PAUSE = 0.2


class Progress:
    """A bar from t0 to t1 that appears when a run is long: on terminals and in notebooks by default, always or never if
    told. It is gone when the run is done.

    What is counted is a time (`t = ...`) unless `what` names it otherwise.
    """

    def __init__(self, wanted: bool | None, t0: float | int, t1: float | int, what: str = "flow", unit: str = "t ="):
        wanted = None if wanted is None else checks.flag(wanted, "progress")
        self.notebook = in_notebook()
        self.shown = (self.notebook or sys.stderr.isatty()) if wanted is None else wanted
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
            self.bar = _NotebookBar(self.what, self.start) if self.notebook else _TerminalBar(self.what)
        counted = f"{self.unit} {t:.4g} of {self.t1:.4g}" + f", {steps} steps" * (self.unit == "t =")
        span = self.t1 - self.t0
        self.bar.show((t - self.t0) / span if span else 1.0, counted)

    def say(self, line: str) -> None:
        """A line about what is being done, if progress is shown."""
        if self.shown and line:
            print(line, file=sys.stderr)

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook. IPython is not imported: where it has not been, there is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class _TerminalBar:
    """A line of the terminal, by rich."""

    def __init__(self, what: str):
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[counted]}"))
        console = Console(stderr=True, force_jupyter=False)
        self.bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)
        self.task = self.bar.add_task(what, total=1.0, counted="")
        self.bar.start()

    def show(self, share: float, counted: str) -> None:
        self.bar.update(self.task, completed=share, counted=counted)

    def stop(self) -> None:
        self.bar.stop()


class _NotebookBar:
    """An output of the cell that is written again and again; not the bar of rich, which needs widgets in the page."""

    def __init__(self, what: str, start: float):
        from IPython.display import DisplayHandle

        self.what, self.start, self.sent = what, start, -PAUSE
        self.handle = DisplayHandle()
        self.handle.display(self._bundle(""), raw=True)

    def show(self, share: float, counted: str) -> None:
        now = time.monotonic()
        if now - self.sent < PAUSE and share < 1:
            return
        self.sent, past = now, now - self.start
        left = f", about {_clock(past * (1 - share) / share)} left" if 0 < share < 1 else ""
        words = html.escape(f"{self.what}: {counted}; {_clock(past)}{left}")
        self._update(f'<progress value="{share:.4f}" max="1"></progress> {words}')

    def stop(self) -> None:
        self._update("")

    def _update(self, bar: str) -> None:
        self.handle.update(self._bundle(bar), raw=True)

    @staticmethod
    def _bundle(bar: str) -> dict[str, str]:
        return {"text/html": bar, "text/plain": ""}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

"""Progress on a terminal, and quiet elsewhere."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._words import one_line
from .streams import complain, leave

if TYPE_CHECKING:
    from meanformer.experiments.runner import Watch


@contextlib.contextmanager
def watching(quiet: bool, bars: bool) -> "Iterator[Watch]":
    """A `Watch` that shows a line with a bar on standard error; `bars`: whether runs show bars of their own, too."""
    from meanformer.experiments.runner import Interrupted, Watch

    shown = sys.stderr.isatty() and not quiet
    line = _Line() if shown else None
    watch = Watch() if line is None else Watch(say=line.say, stage=line.stage, bars=bars)
    try:
        yield watch
    except Interrupted as stop:
        if line is not None:
            line.close()
        complain(f"Interrupted. What is done is safe. To go on:\n  meanformer resume {shlex.quote(str(stop.folder))}")
        leave(130)
    finally:
        if line is not None:
            line.close()


class _Line:
    """One line with a bar; it appears with the first stage."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.task: Any = None

    def _start(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns: tuple[Any, ...] = (
            SpinnerColumn(),
            TextColumn("{task.description:<40}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task("", total=None)
        self.bar.start()
        return self.bar

    def stage(self, words: str, share: float | None) -> None:
        bar: Any = self.bar or self._start()
        total = None if share is None else 1.0
        bar.update(self.task, description=one_line(words[:40]), total=total, completed=share or 0.0)

    def say(self, line: str) -> None:
        if self.bar is None:
            complain(one_line(line))
        else:
            self.bar.console.print(one_line(line), markup=False, highlight=False)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

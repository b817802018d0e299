"""What a run hands to a journal, so that it can go on after any end of the process.

A run is a sequence of segments, each a function of the state at its start alone. A journal keeps the rows (what is
saved of the states) and the last state as the run goes on; a run that finds them goes on from there, to the same bits.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import _checks as checks
from .._types import Scalar
from ..outcome import Ending, Outcome
from .observe import Observer, recorded
from .system import AbstractSystem
from .trajectory import Trajectory, observed


class Kept(NamedTuple):
    """What a journal has of a run: rows with their times, the state that the next segment starts from, and a note (of
    numbers and words) about it.
    """

    rows: list[tuple[float, Any]]
    state: Any
    note: dict[str, Any]


class AbstractJournal(abc.ABC):
    """Where a run is kept while it goes on. `mf.Journal` writes it to a folder."""

    @abc.abstractmethod
    def begin(self, verb: str, field: Any, measure: Any, options: dict[str, Any]) -> Trajectory | None:
        """Begin the run `verb(field, measure, **options)`, or find it again; the run itself if it is finished."""

    @abc.abstractmethod
    def resume(self, shell: Callable[[], Trajectory], state: Any, row: Any = None) -> Kept | None:
        """What was kept of an earlier process; None for a new run.

        `shell()` is the run at its start, and `state` shows how states are made up. Rows are those of the trajectory,
        `(saved, statistics)`; or, if an example `row` is given, they matter to the run alone.
        """

    @abc.abstractmethod
    def keep(self, rows: list[tuple[float, Any]], state: Any, note: dict[str, Any]) -> None:
        """Keep the rows that are new, and the state after them."""

    @abc.abstractmethod
    def finish(self, run: Trajectory) -> None:
        """Keep how the run ended, and the rows that `keep` has not seen."""


class NoJournal(AbstractJournal):
    """Keeps nothing."""

    def begin(self, verb: str, field: Any, measure: Any, options: dict[str, Any]) -> Trajectory | None:
        return None

    def resume(self, shell: Callable[[], Trajectory], state: Any, row: Any = None) -> Kept | None:
        return None

    def keep(self, rows: list[tuple[float, Any]], state: Any, note: dict[str, Any]) -> None:
        pass

    def finish(self, run: Trajectory) -> None:
        pass


def checked_journal(journal: Any) -> AbstractJournal:
    """The journal that was asked for, or one that keeps nothing."""
    if journal is not None and not isinstance(journal, AbstractJournal):
        checks.refuse(
            "journal is not known",
            got=checks.described(journal),
            expected='mf.Journal("runs/mine"), or None',
            remedy="mf.Journal(path) makes one from the path of a folder",
        )
    return NoJournal() if journal is None else journal


def shell_of(system: AbstractSystem, observer: Observer, t0: Scalar, discrete: bool) -> Trajectory:
    """A run that has only begun."""
    row, t0 = recorded(observer, system, t0, system.start()), jnp.asarray(t0)
    outcome = Outcome(jnp.asarray(int(Ending.UNFINISHED)), t0)
    last = jax.tree.map(jnp.asarray, system.snapshot(t0, system.start()))
    return observed(observer, system, t0[None], jax.tree.map(jnp.asarray, row), last, outcome, {"steps": 0}, discrete)

"""`mf.Journal`: a run that is written to a folder while it goes on."""

import contextlib
import dataclasses
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._types import is_traced
from ..flows.journal import AbstractJournal, Kept
from ..flows.trajectory import Trajectory
from ..outcome import Ending, Outcome
from . import disk
from .arrays import is_plain
from .codec import encode, fingerprint, refuse_to_keep
from .errors import understood
from .folder import RunFolder
from .interruption import interrupt_if_asked, undisturbed
from .load import load, rows_of
from .mending import restore_first
from .provenance import provenance
from .shapes import Record

# Seconds between two writes.
EVERY = 2.0
# Entries of `run.json` that say what the run is, and how it is gone on with; titles and the like may be given.
RESERVED = Record.model_fields.keys() - {"name", "title"} | {"call", "checksum"}


class Journal(AbstractJournal):
    """Write a run to the folder `path` while it goes on: `mf.flow(..., journal=mf.Journal("runs/mine"))`.

    After an interruption the same call goes on from what was written, to the same bits; when the run is done, it reads
    the result. A folder belongs to one run: another call is refused. `mf.load(path)` reads it, also while it goes on.

    **Arguments:**

    - `path`: the folder, which is made.
    - `every`: seconds between two writes, 2 by default (0: after each segment).
    - `record`: more entries of `run.json`.
    - `late`: make the folder with the first write only, so that a run shorter than `every` leaves none.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    field = mf.Affine(-jnp.eye(2))
    first = mf.layers(field, tokens, depth=2, journal=mf.Journal("runs/mine"))
    again = mf.layers(field, tokens, depth=2, journal=mf.Journal("runs/mine"))  # read, not computed
    assert (again.final.points == first.final.points).all()
    ```
    """

    _holds = False  # also where a call that Python refuses makes half of one

    def __init__(
        self, path: str | Path, every: float | int = EVERY, record: dict[str, Any] | None = None, late: bool = False
    ):
        self.folder, self.every, self.extra = RunFolder(path), _seconds(every), _entries(record)
        self.late = late and not self.folder.exists()
        self._postponed: list[Callable[[], Any]] = []
        # Rows that are not written, with the state and the note after them: one value, which changes at one stroke.
        self._pending: tuple[list[tuple[float, Any]], Any, dict[str, Any]] | None = None
        self._streamed, self._written, self._clock = True, 0, time.monotonic()

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    def begin(self, verb: str, field: Any, measure: Any, options: dict[str, Any]) -> Trajectory | None:
        if self.late:
            self._postponed = [lambda: self.begin(verb, field, measure, options)]
            return None
        call = {"verb": verb, "field": field, "measure": measure, "options": options}
        name = fingerprint(call)
        if self._is_done(name) and self.folder.is_whole(0):
            return load(self.path)
        with self._explained("all that was written before" if self.folder.exists() else ""):
            self.folder.hold()
            self._holds = True
            arrays: dict[str, np.ndarray] = {}
            encoded = encode(call, _into(arrays, "call"))
            if not self.folder.exists():
                self.folder.create(
                    {"kind": "flow", **provenance(), **self.extra, "hash": name, "call": encoded}, arrays
                )
            elif not self.folder.manifest:  # its first segment was damaged
                self.folder.add_segment(arrays, {})
            else:
                restore_first(self.folder, arrays)
            if self._is_done(name):  # by another process, in between
                self.close()
                return load(self.path)
        return None

    def _is_done(self, name: str) -> bool:
        """Whether the folder holds the finished run of a call; a folder of another call is refused."""
        if not self.folder.exists():
            return False
        found = self.folder.record
        if found.get("hash") != name:
            checks.refuse(
                f"{self.path} holds another run",
                got=f"a {found.get('kind', 'run')} of {found.get('created', 'an earlier time')} with other inputs",
                expected="the folder of this very call, or an empty one",
                remedy="choose another folder, or remove this one",
            )
        if self.folder.is_final():
            return True
        differ = [n for n, v in provenance()["versions"].items() if v != found.get("versions", {}).get(n)]
        if differ:
            warnings.warn(
                f"{self.path} was begun with other versions of {', '.join(differ)}: the bits may differ from those of "
                "an uninterrupted run",
                stacklevel=4,
            )
        return False

    def resume(self, shell: Callable[[], Trajectory], state: Any, row: Any = None) -> Kept | None:
        self._streamed, self._clock = row is None, time.monotonic()
        if self.late:
            self._postponed.append(lambda: self.resume(shell, state, row))
            return None
        count = len(self.folder.manifest)
        if count < 2:
            # The run at its start: from now on a reader knows how rows and states are made up.
            arrays: dict[str, np.ndarray] = {}
            note = {"shell": encode(shell(), _into(arrays, "shell")), "streamed": self._streamed}
            with self._explained():
                self.folder.add_segment(arrays, note)
            return None
        if count == 2:
            return None
        rows: list[tuple[float, Any]] = []
        start = shell() if row is None else None
        example = row if start is None else (jax.tree.map(lambda a: a[0], start.saved), start.statistics)
        treedef, note, arrays = jax.tree.structure(example), {}, {}
        listed = self.folder.manifest
        with understood(self.path):
            for number in range(2, count):
                arrays, note = self.folder.read_segment(number, listed)
                rows += rows_of(arrays, treedef)
            self._written = len(rows)
            leaves, structure = jax.tree.flatten(state)
            kept = [
                arrays[f"state/{k}"] if isinstance(leaf, np.ndarray) else jnp.asarray(arrays[f"state/{k}"])
                for k, leaf in enumerate(leaves)
            ]
            return Kept(rows, jax.tree.unflatten(structure, kept), note["note"])

    def keep(self, rows: list[tuple[float, Any]], state: Any, note: dict[str, Any]) -> None:
        earlier = [] if self._pending is None else self._pending[0]
        self._pending = [*earlier, *rows], state, note
        if time.monotonic() - self._clock >= self.every:
            self.flush()
        interrupt_if_asked()

    def flush(self) -> None:
        """Write what has not been written."""
        with undisturbed():
            if self._pending is None:
                return
            if self.late:
                self.late = False
                for step in self._postponed:
                    step()
            (rows, state, note), self._pending = self._pending, None
            arrays = _stacked(rows)
            arrays |= {f"state/{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
            with self._explained(f"all that was written before: {self._written} saved states"):
                self.folder.add_segment(arrays, {"note": note})
            self._written, self._clock = self._written + len(rows), time.monotonic()

    def finish(self, run: Trajectory) -> None:
        if self.late:
            return
        with undisturbed():
            # What is pending is a part of the run.
            self._pending = None
            arrays = _stacked(_rows_from(run, self._written if self._streamed else 0))
            ended = encode(dataclasses.replace(run, stored=None), _into(arrays, "final"))
            with self._explained(f"all that was written before: {self._written} saved states"):
                self.folder.add_segment(arrays, {"final": ended, "streamed": self._streamed})
            self.close()

    def close(self) -> None:
        """Give the folder free."""
        if self._holds:
            self._holds = False
            self.folder.release()

    def __del__(self) -> None:
        self.close()  # of a run that failed

    def _explained(self, safe: str = "") -> contextlib.AbstractContextManager[None]:
        return disk.explained(self.path, safe)


def _seconds(every: Any) -> float:
    seconds = checks.number(every, "every")
    if not 0 <= seconds < np.inf:
        checks.refuse(
            "every must be a time",
            got=every,
            expected="seconds, zero or more",
            remedy="every=0 writes after each segment",
        )
    return float(seconds)


def _entries(record: Any) -> dict[str, Any]:
    """Entries of one's own in `run.json`, if it can hold them and has no such ones."""
    record = {} if record is None else record
    if not isinstance(record, dict) or not all(isinstance(key, str) for key in record):
        checks.refuse(
            "record must be a dictionary",
            got=checks.described(record),
            expected="names and values",
            remedy='for example {"note": "first trial"}',
        )
    reserved = sorted(record.keys() & RESERVED)
    try:
        json.dumps(record, allow_nan=False, ensure_ascii=False).encode()
        wrong = ""
    except (TypeError, ValueError, RecursionError) as error:
        wrong = f"{type(error).__name__}: {error}"[:200]
    if reserved or wrong:
        checks.refuse(
            "record has entries that run.json cannot take",
            got=", ".join(reserved) or wrong,
            expected="other names than those of the run itself, and text, finite numbers, lists and dictionaries",
            remedy='for example {"note": "first trial"}',
        )
    return dict(record)


def journal_in(folder: RunFolder, every: float, record: dict[str, Any], late: bool = False) -> Journal:
    """A journal of a folder that the caller holds, or that is a part of another."""
    journal = Journal(folder.path, every=every, late=late)
    journal.folder, journal.extra = folder, record
    return journal


def _into(arrays: dict[str, np.ndarray], name: str) -> Callable[[np.ndarray], str]:
    def sink(values: np.ndarray) -> str:
        key = f"{name}/{len(arrays)}"
        if not is_plain(str(values.dtype), values.shape):
            refuse_to_keep(f"an array of {values.dtype}, of shape {values.shape}")
        arrays[key] = values
        return key

    return sink


def _stacked(rows: list[tuple[float, Any]]) -> dict[str, np.ndarray]:
    """Rows as arrays with a leading axis of times."""
    arrays = {"times": np.array([time for time, _ in rows])}
    if rows:
        leaves = zip(*(jax.tree.leaves(row) for _, row in rows), strict=True)
        arrays |= {f"rows/{k}": np.stack([np.asarray(leaf) for leaf in column]) for k, column in enumerate(leaves)}
    return arrays


def _rows_from(run: Trajectory, first: int) -> list[tuple[float, Any]]:
    times = np.asarray(run.times)
    saved, statistics = jax.tree.map(np.asarray, (run.saved, run.statistics))
    return [(float(times[k]), jax.tree.map(lambda a, k=k: a[k], (saved, statistics))) for k in range(first, len(times))]


def save(run: Trajectory, path: str | Path) -> Path:
    """Write a finished run to a folder: `run.save(path)`."""
    journal = Journal(path)
    if is_traced(run) or run.times.ndim != 1:
        checks.refuse(
            "only a finished run can be saved",
            got="a run under jit, vmap or grad, or a batch",
            expected="a run with known numbers",
            remedy="save outside of jit, vmap and grad, one run at a time",
        )
    content = {"times": run.times, "last": run.last, "digest": fingerprint(run.saved, run.statistics)}
    if journal.begin("saved", run.field, run.system, content) is None:
        journal.resume(lambda: _start_of(run), ())
        journal.finish(run)
    return journal.path


def _start_of(run: Trajectory) -> Trajectory:
    saved, statistics = jax.tree.map(lambda a: a[:1], (run.saved, run.statistics))
    outcome = Outcome(jnp.asarray(int(Ending.UNFINISHED)), run.times[0])
    return dataclasses.replace(run, times=run.times[:1], stored=saved, statistics=statistics, outcome=outcome)

"""The right to write into a run folder: one writer at a time, into that very folder, under names that are listed first.

The folder is held by its descriptor. If it is renamed or removed meanwhile, nothing is written under its old name, and
the next write says what became of it.
"""

import contextlib
import errno
import os
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import disk, ledger, lock
from .errors import FolderError
from .ledger import Ledger
from .places import check_part, check_there, head

MARKS = (ledger.NAME, disk.temporary(ledger.NAME), lock.NAME)
# Folders in which runs lie that are parts of a run.
PARTS = ("cases", "tasks")
# What opening a file raises if it, or a folder above it, is not there.
ABSENT = (FileNotFoundError, NotADirectoryError)
# A worker of a sweep that was killed ends within so many seconds.
PATIENCE = 30.0
# Files that nobody wrote are named, up to this many.
MOST_NAMED = 1000


class Parent(NamedTuple):
    """The run that another one is a part of: its mark, and the identity of its folder, which no copy has."""

    mark: str
    identity: tuple[int, int]


class Writer:
    """Writes into a run folder, until it is closed or the process ends.

    **Arguments:** `path`, the folder, which is made; `inside`, the run whose part this one is, two levels above: if
    that is not there any more, nothing is made; `beside`, the folder itself, open: it is not made, and others may write
    meanwhile.
    """

    def __init__(self, path: Path, inside: Parent | None = None, beside: disk.At | None = None):
        self.path, self.ledger = path, Ledger(b"")
        self._list: int | None = None  # the open list of files
        with contextlib.ExitStack() as stack:
            if beside is not None:
                self.at = beside
                self.check_there()
            else:
                if inside is None:
                    disk.make_path(path)
                else:
                    self._make_part(inside)
                self.at = stack.enter_context(disk.held(path))
                stack.enter_context(lock.locked(path, self.at, 0.0 if inside is None else PATIENCE))
            self._beside = beside is not None
            self.ledger = self._read_ledger(None if inside is None else inside.mark)
            self._list = disk.open_to_append(ledger.NAME, self.at)
            self._open = stack.pop_all()

    def close(self) -> None:
        """Let others write."""
        self._close_list()
        self._open.close()

    def _close_list(self) -> None:
        if self._list is not None:
            os.close(self._list)
            self._list = None

    @property
    def as_parent(self) -> Parent:
        """This run, as its parts know it."""
        found = os.fstat(self.at) if isinstance(self.at, int) else self.path.stat()
        return Parent(str(self.ledger.mark), (found.st_dev, found.st_ino))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, or replace it, at one stroke; its name has slashes between its parts."""
        self._claim({name: data})
        with _placed(name, self.at, make=True) as (last, at):
            disk.write_file(last, data, at)

    def write_folder(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write a folder with its files at one stroke; what an earlier process left there goes."""
        self._claim({f"{name}/{file}": data for file, data in files.items()})
        with _placed(name, self.at, make=True) as (last, at):
            before = disk.temporary(last)
            for left in (before, last):
                if disk.exists(left, at):
                    self._remove_below(name, left, at)
            disk.write_tree(before, disk.tree_of(files), at)
            disk.rename(before, last, at)
            disk.flush(at)

    def remove(self, name: str) -> None:
        """Remove a file that was written."""
        self.check_there()
        if name in self.ledger.names:
            with contextlib.suppress(FileNotFoundError), _placed(name, self.at) as (last, at):
                disk.remove_file(last, at)
                disk.flush(at)

    def clear(self) -> list[str]:
        """Remove all that is listed, and the parts of the run; the names of what is left, which no run wrote."""
        self.check_there()
        if self.ledger.names:
            assert self._list is not None
            disk.append(self._list, ledger.line(ledger.CLEARING))
        # First what makes it a run: no half of one stays behind.
        names = sorted(self.ledger.names, key=lambda name: name != "run.json")
        for name in names:
            with contextlib.suppress(*ABSENT), _placed(name, self.at) as (last, at):
                for file in (last, disk.temporary(last)):
                    if disk.is_file(file, at):
                        disk.remove_file(file, at)
            if name == "run.json":
                disk.flush(self.at)
        for part in self.parts():
            with contextlib.closing(Writer(part)) as writer:
                writer.clear()
                writer.leave()
        folders = {"/".join(name.split("/")[:k]) for name in names for k in range(1, name.count("/") + 1)}
        for folder in sorted(folders | set(PARTS), key=len, reverse=True):
            self._remove_folder(folder)
        disk.flush(self.at)
        self.ledger = self._new_ledger(self.ledger.inside)
        return self._others()

    def edited(self) -> list[str]:
        """The names of listed files that somebody has changed since: figures, films, reports, settings. What the run
        reads itself, JSON and segments, is damaged if it has changed.
        """
        found = []
        for name in self.ledger.names:
            if not name.startswith("segments/") and not name.endswith(".json"):
                with contextlib.suppress(*ABSENT), _placed(name, self.at) as (last, at):
                    if disk.is_file(last, at) and not self._is_as_written(name, last, at):
                        found.append(name)
        for part in self.parts():
            with contextlib.closing(Writer(part)) as writer:
                found += [f"{part.parent.name}/{part.name}/{name}" for name in writer.edited()]
        return found

    def in_segments(self) -> list[str]:
        """The names of what no run wrote inside of its segments, which are written as whole folders."""
        found, ours = [], {f"{top}/" for name in self.ledger.names for top in Path(name).parents} | {*self.ledger.names}
        for top, folders, files in os.walk(self.path / "segments"):
            links = [name for name in folders if (Path(top) / name).is_symlink()]
            places = [(Path(top) / name).relative_to(self.path).as_posix() for name in (*files, *links)]
            if not folders and not files:
                places = [f"{Path(top).relative_to(self.path).as_posix()}/"]
            found += [place for place in places if disk.permanent(place) not in ours]
        for part in self.parts():
            with contextlib.closing(Writer(part)) as writer:
                found += [f"{part.parent.name}/{part.name}/{name}" for name in writer.in_segments()]
        return sorted(found)

    def _is_as_written(self, name: str, last: str, at: disk.At) -> bool:
        try:
            return self.ledger.has(name, disk.crc32(last, at))
        except OSError as error:
            if error.errno == errno.EFBIG:  # larger than all that a run writes
                return False
            raise

    def leave(self) -> None:
        """Remove our own marks, and the folder itself if nothing else is in it."""
        self._close_list()
        for name in MARKS:
            disk.remove_file(name, self.at)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def list_again(self, names: Sequence[str], complete: bool) -> bool:
        """Put names into the list that it has lost, with the sums of what is there now; `complete`: these are all.
        Whether there were such names. Of what the run reads itself, which tells whether it is whole, a damaged list
        takes the sum also where it has the name.
        """
        lost = {name for name in names if self.ledger.damaged and name.endswith(".json")}
        missing = [name for name in names if name not in self.ledger.names or name in lost]
        for name in missing:
            with contextlib.suppress(*ABSENT), _placed(name, self.at) as (last, at):
                self.ledger.add(name, disk.crc32(last, at))
        found = bool(self.ledger.names.keys() & set(missing))
        if self.ledger.damaged or found:
            self.ledger.damaged &= not complete
            self.ledger = self._new_ledger(self.ledger.inside, self.ledger)
        return found

    def check_there(self) -> None:
        """Refuse to go on if the folder has another name, or is gone."""
        check_there(self.path, self.at)

    def _make_part(self, inside: Parent) -> None:
        """The folder of a part, inside the run that it belongs to, and nowhere else: not in a copy of it either."""
        whole = self.path.parent.parent
        try:
            mark, found = head(whole).mark, whole.stat()
        except OSError:
            mark, found = None, None
        if mark != inside.mark or found is None or (found.st_dev, found.st_ino) != inside.identity:
            raise FolderError(
                f"{whole} was renamed or removed while its runs were written to it",
                safe="all that was written before, wherever the folder is now",
                remedy="go on there: meanformer resume FOLDER",
            )
        for folder in (self.path.parent, self.path):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            if folder.is_symlink():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        check_part(whole, self.path.parent.name, self.path.name)

    def _read_ledger(self, inside: str | None) -> Ledger:
        """The list, as it is; or a new one. Only who does not write beside somebody else mends it."""
        is_run = self._is_run()
        try:
            data, is_there = disk.read(ledger.NAME, self.at), True
        except FileNotFoundError:
            data, is_there = b"", False
        found = Ledger(data)
        if inside is not None and found.mark is None and not is_run and self._has_remains(is_there):
            raise FolderError(
                f"{self.path} is in the way: it has lost its run.json, and the list of its files ({ledger.NAME})",
                safe="it is as it was",
                remedy=f"move it away, then go on: meanformer resume {self.path.parent.parent}",
            )
        if is_there and found.mark is None and not is_run:
            raise FolderError(
                f"{self.path / ledger.NAME} is in the way: no run wrote it",
                safe="it is as it was, and nothing was written",
                remedy="move it away, or choose another folder with --out",
            )
        if found.mark is None:
            found.damaged = is_run  # of an earlier version, or lost
            return self._new_ledger(inside, found)
        # The end of a process may have cut off the last line, or a removal. A copy by links has this list, too.
        ended, resumed = data.rpartition(b"\n")[0] + b"\n", found.clearing and is_run
        if not self._beside and (ended != data or resumed or disk.links(ledger.NAME, self.at) > 1):
            found.clearing, found.incomplete = found.clearing and not is_run, found.damaged
            disk.write_file(ledger.NAME, b"".join(found.lines()) if resumed else ended, self.at)
        elif ended != data:
            with disk.appending(ledger.NAME, self.at) as descriptor:
                disk.append(descriptor, ledger.CUT)
        return found

    def _is_run(self) -> bool:
        return disk.exists("run.json", self.at)

    def _has_remains(self, is_there: bool) -> bool:
        """Whether something is here that looks as if a run had written it."""
        return is_there or any(disk.exists(name, self.at) for name in ("manifest.json", "segments"))

    def _new_ledger(self, inside: str | None, before: Ledger | None = None) -> Ledger:
        """A list with a new mark, and the names of one that has lost its own, or some of them."""
        found = Ledger(b"")
        found.mark, found.inside, found.damaged = secrets.token_hex(16), inside, False
        known = self.ledger if self.ledger.mark is not None else before
        if known is not None and known.mark is not None:
            found.place = known.place  # also in a copy: it does not become a part by being mended
        elif inside is not None:
            found.place = f"{self.path.parent.name}/{self.path.name}"
        if before is not None:
            found.mark = before.mark or self._mark_of_parts() or found.mark
            found.names, found.damaged, found.incomplete = before.names, before.damaged, before.damaged
        held = self._list is not None
        self._close_list()
        try:
            disk.write_file(ledger.NAME, b"".join(found.lines()), self.at)
        finally:
            if held:
                self._list = disk.open_to_append(ledger.NAME, self.at)
        return found

    def _mark_of_parts(self) -> str | None:
        """The mark that the parts of this run know it by."""
        marks = (found.inside for _, found in self._entries_as_parts())
        return next((mark for mark in marks if isinstance(mark, str)), None)

    def _claim(self, files: Mapping[str, bytes]) -> None:
        """List files before they are made; one that is there and was not listed is somebody else's."""
        self.check_there()
        for name in files:
            if not ledger.is_inside(name):
                raise ValueError(f"{name!r} leads out of the folder")
            if name not in self.ledger.names and (other := self._in_the_way(name)):
                again = f"go on: meanformer resume {self.path}"
                raise FolderError(
                    f"{other} is in the way: it is not in the list of files that the run wrote",
                    safe="it is as it was",
                    remedy=f"move it away, then {again if self._is_run() else 'give the same command again'}"
                    if not name.startswith("segments/")
                    else f"meanformer resume {self.path} --discard-damaged lists it again, if it belongs to the run",
                )
        sums = {name: zlib.crc32(data) for name, data in files.items()}
        new = [(name, crc32) for name, crc32 in sums.items() if crc32 not in self.ledger.names.get(name, ())]
        if new:
            assert self._list is not None
            disk.append(self._list, b"".join(ledger.line(list(entry)) for entry in new))
            for entry in new:
                self.ledger.add(*entry)
            if self._beside and not disk.same(ledger.NAME, self.at, self._list):
                self._read_again()  # its holder has made another list meanwhile
                self._claim(files)

    def _read_again(self) -> None:
        self._close_list()
        self.ledger = self._read_ledger(None)
        self._list = disk.open_to_append(ledger.NAME, self.at)

    def _in_the_way(self, name: str) -> Path | None:
        """What has a name, or that which a file has before it is whole."""
        with contextlib.suppress(FileNotFoundError), _placed(name, self.at) as (last, at):
            for there in (last, disk.temporary(last)):
                if disk.exists(there, at):
                    return (self.path / name).with_name(there)
        return None

    def _remove_below(self, name: str, folder: str, at: disk.At) -> None:
        """Remove the listed files of the folder `name`, which stands under the name `folder` in an open one."""
        listed = [file.removeprefix(f"{name}/") for file in self.ledger.names if file.startswith(f"{name}/")]
        below = {"/".join(file.split("/")[:k]) for file in listed for k in range(1, file.count("/") + 1)}
        for file in listed:
            with contextlib.suppress(FileNotFoundError), _placed(f"{folder}/{file}", at) as (last, inner):
                disk.remove_file(last, inner)
        for inside in sorted(below, key=len, reverse=True):
            with contextlib.suppress(FileNotFoundError), _placed(f"{folder}/{inside}", at) as (last, inner):
                disk.remove_empty(last, inner)
        disk.remove_empty(folder, at)

    def _remove_folder(self, name: str) -> None:
        """Remove a folder with nothing in it, and what a kill left of it before it was whole."""
        with contextlib.suppress(OSError), _placed(name, self.at) as (last, at):
            if disk.exists(disk.temporary(last), at):
                self._remove_below(name, disk.temporary(last), at)
            disk.remove_empty(last, at)

    def parts(self) -> Iterator[Path]:
        """The runs that are parts of this one."""
        return (part for part, found in self._entries_as_parts() if found.inside == self.ledger.mark)

    def _entries_as_parts(self) -> Iterator[tuple[Path, Ledger]]:
        """The runs that stand where their lists say; a copy under another name is somebody else's."""
        for folder in PARTS:
            for part in _entries(self.path / folder):
                with contextlib.suppress(OSError):
                    found = head(part)
                    if found.place == f"{folder}/{part.name}" and not part.is_symlink():
                        yield part, found

    def _others(self) -> list[str]:
        """The names of what is in the folder, but for our own marks."""
        found = []
        for top, folders, files in os.walk(self.path):
            inside = Path(top).relative_to(self.path)
            links = [name for name in folders if (Path(top) / name).is_symlink()]
            empty = [] if folders or files or not inside.parts else [inside.as_posix()]
            found += [(inside / name).as_posix() for name in (*files, *links)] + empty
            if len(found) > MOST_NAMED:
                break
        return sorted(name for name in found if name not in MARKS)


def write_unlisted(folder: disk.At, name: str, data: bytes) -> None:
    """Write a file into an open folder that has no list of its files."""
    with _placed(name, folder, make=True) as (last, at):
        disk.write_file(last, data, at)


@contextlib.contextmanager
def _placed(name: str, at: disk.At, make: bool = False) -> Iterator[tuple[str, disk.At]]:
    """The last part of a name with slashes between its parts, and the folder that has it, below an open one."""
    *folders, last = name.split("/")
    with disk.opened_parts(tuple(folders), at, make) as inner:
        yield last, inner


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir()) if not path.is_symlink() else []
    except OSError:
        return []

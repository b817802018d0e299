"""A run folder, as it is on disk: `run.json` (what was asked), segments, a manifest that lists those which are whole,
`results.json` (what was found), and `files.jsonl` (all that was written). Nothing here imports JAX.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from . import disk, ledger
from .arrays import from_files, to_segment
from .errors import FolderError, NotARun
from .ledger import Ledger
from .places import check_part, check_there, folder_path
from .sealed import is_sealed, parse, seal, unseal
from .shapes import check_shape
from .writer import Parent, Writer, write_unlisted

FORMAT = 2
READ = (1, FORMAT)
# A run has those whose sums it has listed, as its segments. (The manifest changes often, and names each with its sum.)
TIED = ("run.json", "results.json", "items/")
# What is written before run.json; whoever has more has lost it.
BEGINNING = ("run.json", "manifest.json", "segments/000000/", "input.")


class RunFolder:
    """A run folder. Readers trust the manifest alone; whoever writes holds it.

    **Arguments:** `path`; `inside`, for a part of another run, that run.
    """

    def __init__(self, path: str | os.PathLike[str], inside: Parent | None = None):
        self.path, self.inside = folder_path(path), inside
        self._writer: Writer | None = None
        self._holds = 0
        self._listed: list[dict[str, Any]] | None = None
        self._files: Ledger | None = None  # as it was when last read
        self._seen: disk.At | None = None

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return disk.names_file(self.path / "run.json")

    def holds_a_stranger(self) -> bool:
        """Whether the `run.json` here is somebody else's: no run has listed it, and it cannot be read as one."""
        if self.lists_files() or not disk.names_file(self.path / "run.json"):
            return False
        with contextlib.suppress(FolderError):
            return not self.record
        return True

    @property
    def record(self) -> dict[str, Any]:
        """`run.json`: settings, seed, versions, commit, convention, hash."""
        record = self.read_json("run.json")
        if record is None:
            if self.has_lost_record():
                self._refuse_lost_record()
            raise NotARun(
                f"{self.path} holds no run" + ("" if self.path.is_dir() else ": there is no such folder"),
                safe="nothing was read or changed",
                remedy="name a folder that `meanformer run` wrote (it has a run.json)",
            )
        if record.get("format") not in READ:
            raise FolderError(
                f"{self.path} has format {record.get('format')}, this version reads format {FORMAT}",
                safe="the folder is as it was",
                remedy=f"use meanformer {record.get('versions', {}).get('meanformer', 'of that time')} to read it",
            )
        return record

    @property
    def results(self) -> dict[str, Any] | None:
        """`results.json`: numbers, checks and figures; None as long as there are none."""
        return self.read_json("results.json")

    @property
    def status(self) -> str:
        """Either "done" or "unfinished"."""
        results = self.results
        if results is not None:
            return "done" if results.get("status") == "done" else "unfinished"
        if not self.exists():
            return "unfinished"
        record = self.record
        started_in_python = record.get("experiment") is None and record.get("kind") == "flow"
        return "done" if started_in_python and self.is_final() else "unfinished"

    def is_final(self) -> bool:
        """Whether the last segment of a run is its end."""
        listed = self.manifest
        return bool(listed) and "final" in self.read_segment(len(listed) - 1, listed)[1]

    def is_done(self) -> bool:
        """Whether a run is here, up to its end."""
        return self.exists() and self.is_final()

    @property
    def manifest(self) -> list[dict[str, Any]]:
        """The segments that are whole, in order."""
        content = self.read_json("manifest.json")
        if content is None and self.exists():
            raise FolderError(
                f"{self.path} has lost its manifest.json",
                safe="the segments that are whole by themselves",
                remedy=f"go on from there: meanformer resume {self.path} --discard-damaged",
            )
        return [] if content is None else content["segments"]

    @property
    def cases(self) -> list["RunFolder"]:
        """The runs of an experiment with cases, in its order."""
        names = (self.results or {}).get("cases") or self.record.get("cases") or []
        return [RunFolder(check_part(self.path, "cases", name)) for name in names]

    @property
    def as_parent(self) -> Parent:
        """This run, which is held, as its parts know it."""
        assert self._writer is not None
        return self._writer.as_parent

    def part(self, kind: str, name: str) -> "RunFolder":
        """The folder of a run that is a part of this one, of `kind` "cases" or "tasks". This one is held."""
        return RunFolder(self.path / kind / name, inside=self.as_parent)

    def has_lost_record(self) -> bool:
        """Whether there is a run here whose run.json is gone."""
        files = None if self.exists() else self.files
        if files is None or files.mark is None or "run.json" not in files.names or files.clearing:
            return False
        some = any(not name.startswith(BEGINNING) and disk.names_file(self.path / name) for name in files.names)
        return some and not self.exists()  # a run may have begun in between

    def _refuse_lost_record(self) -> NoReturn:
        raise FolderError(
            f"{self.path} holds a run that has lost its run.json",
            safe="all else that it wrote",
            remedy=f"restore it: meanformer resume {self.path} --discard-damaged",
        )

    def trajectory(self) -> Any:
        """The run itself: see `mf.load`."""
        from .load import load

        return load(self.path)

    def table(self) -> Any:
        """The numbers of a sweep, an `xarray.Dataset`."""
        from .table import read_table

        return read_table(self)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, if it is whole and made up as it should be; None if it is not there."""
        path = self.path / name
        try:
            data = disk.read(name, self.path)
            whole = unseal(data) if is_sealed(data) or not self._is_old() else parse(data)
            if name.startswith(TIED):
                self._check_listed(name, data)
            return check_shape(name, whole)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, OSError) as error:
            mends = name != "run.json" or disk.names_file(self.path / "segments" / "000000" / "segment.json")
            raise FolderError(
                f"{path} cannot be used: {getattr(error, 'strerror', None) or error}",
                safe="the segments of the run are not touched",
                remedy=f"restore the file from a copy, or go on without it: meanformer resume {self.path} "
                "--discard-damaged"
                if mends
                else "restore the file from a copy, or run again",
            ) from error

    @property
    def files(self) -> Ledger | None:
        """The list of what was written; None if there is none."""
        try:
            return Ledger(disk.read(ledger.NAME, self.path))
        except FileNotFoundError:
            return None
        except OSError:
            return Ledger(b"")

    def lists_files(self) -> bool:
        """Whether there is a list of what was written, by us and not by somebody else under the same name."""
        files = self.files
        return files is not None and files.mark is not None

    def _check_listed(self, name: str, data: bytes) -> None:
        """Refuse a file that is whole by itself, but of another run. A list that is read later has all names."""
        crc32 = zlib.crc32(data)
        if self._files is None or not self._files.fits(name, crc32):
            self._files = self.files
            if self._files is not None and not self._files.fits(name, crc32):
                raise ValueError(f"it is whole, but another run wrote it, or {ledger.NAME} has changed")

    def _is_old(self) -> bool:
        """Whether the folder is of format 1, whose JSON files have no checksums."""
        try:
            data = disk.read("run.json", self.path)
            return not is_sealed(data) and parse(data).get("format") == 1
        except (OSError, ValueError):
            return False

    def read_segment(
        self, number: int, listed: list[dict[str, Any]] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The arrays and the note of a segment that is `listed` (in the manifest), checked against their sums."""
        listed = self.manifest if listed is None else listed
        if number >= len(listed):
            raise FolderError(
                f"{self.path} was moved or changed while it was read",
                safe="what was written, wherever the folder is now",
                remedy="read it again",
            )
        entry = listed[number]
        try:
            content, crc = self.about(entry["name"])
            if crc != entry["crc32"]:
                raise ValueError("segment.json has changed since it was written")
            files = {name: self._chunk(entry["name"], name, *sums) for name, sums in content["files"].items()}
            return from_files(files), content["note"]
        except (OSError, ValueError) as error:
            raise FolderError(
                f"segment {entry['name']} of {self.path} is damaged: {getattr(error, 'strerror', None) or error}",
                safe=f"the segments before it are listed and separate: {number} of {len(listed)}",
                remedy=f"go on from there: meanformer resume {self.path} --discard-damaged",
            ) from error

    def is_whole(self, number: int, listed: list[dict[str, Any]] | None = None) -> bool:
        """Whether a segment can be read."""
        try:
            self.read_segment(number, listed)
        except FolderError:
            return False
        return True

    def about(self, name: str, listed: bool = True) -> tuple[dict[str, Any], int]:
        """`segment.json` of a segment, and its sum; `listed`: only if it is in the list of files."""
        data = disk.read(f"segments/{name}/segment.json", self.path)
        content = unseal(data) if is_sealed(data) or not self._is_old() else parse(data)
        if listed:
            self._check_listed(f"segments/{name}/segment.json", data)
        return check_shape("segment.json", content), zlib.crc32(data)

    def _chunk(self, segment: str, name: str, size: int, crc: int) -> bytes:
        try:
            data = disk.read(f"segments/{segment}/{name}", self.path, most=size)
        except FileNotFoundError:
            raise ValueError(f"{name} is gone") from None
        if len(data) != size or zlib.crc32(data) != crc:
            raise ValueError(f"{name} has changed since it was written")
        return data

    # Writing.

    @contextlib.contextmanager
    def held(self) -> Iterator[Writer]:
        """The right to write, inside a `with`; whoever has it already keeps it."""
        self.hold()
        try:
            assert self._writer is not None
            yield self._writer
        finally:
            self.release()

    def hold(self) -> None:
        """Take the right to write, until it is released as often as it was taken, or the process ends."""
        if self._writer is None:
            if self.has_lost_record():
                self._refuse_lost_record()
            if self.exists() and self.record["format"] != FORMAT:
                raise FolderError(
                    f"{self.path} was written by an earlier version, in format {self.record['format']}",
                    safe="it can be read as it is",
                    remedy="run it again in another folder",
                )
            self._writer = Writer(self.path, self.inside)
        self._holds += 1

    def release(self) -> None:
        """Let others write."""
        self._holds -= 1
        if self._holds == 0 and self._writer is not None:
            self._writer.close()
            self._writer = self._listed = None

    def create(
        self, record: dict[str, Any], arrays: dict[str, np.ndarray], inputs: Mapping[str, bytes] | None = None
    ) -> None:
        """Begin a run: a first segment, the files that the run reads, whose names begin with `input.`, then `run.json`,
        which makes it a run folder.
        """
        record = {"format": FORMAT, **record}
        try:
            sealed = seal(check_shape("run.json", record))
        except (ValueError, TypeError) as error:
            raise FolderError(
                f"the record of the run in {self.path} could not be read again: {error}",
                safe="nothing has been computed yet",
                remedy="give other names to entries of your own, and values that JSON knows",
            ) from None
        with self.held() as writer:
            self._clear(writer)  # what a run left that was killed at its very beginning
            writer.write("manifest.json", seal({"segments": []}))
            self.add_segment(arrays, {"record": record})  # a copy, should run.json be damaged
            for name, data in (inputs or {}).items():
                writer.write(name, data)
            writer.write("run.json", sealed)

    def put(self, name: str, content: bytes | dict[str, Any]) -> None:
        """Write a file, or replace it, at one stroke: bytes, or JSON with its checksum."""
        with disk.explained(self.path, "all that was written before"), self.held() as writer:
            writer.write(name, content if isinstance(content, bytes) else seal(content))

    @contextlib.contextmanager
    def watched(self) -> Iterator["RunFolder"]:
        """A folder that is read, to write something beside the run: it goes into that very folder, or nowhere."""
        if not self.path.is_dir():
            _ = self.record  # says what is wrong
        with disk.held(self.path) as self._seen:
            try:
                yield self
            finally:
                self._seen = None

    def put_beside(self, name: str, content: bytes) -> None:
        """Write a file that is not a part of the run, such as its report, also while somebody else holds the folder.
        The folder is `watched`.
        """
        assert self._seen is not None
        with disk.explained(self.path, "the run itself", again=f"write it again: meanformer report {self.path}"):
            if self.exists() and not self.lists_files():  # of an earlier version, or lost: it stays so
                check_there(self.path, self._seen)
                write_unlisted(self._seen, name, content)
                return
            with contextlib.closing(Writer(self.path, beside=self._seen)) as writer:
                writer.write(name, content)

    def add_segment(self, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
        """Write a segment, then list it: it counts from then on."""
        with self.held() as writer:
            writer.check_there()
            listed = self.manifest if self._listed is None else self._listed
            name = f"{len(listed):06d}"
            files, crc32 = to_segment(arrays, note, listed[-1]["crc32"] if listed else None)
            writer.write_folder(f"segments/{name}", files)
            listed = [*listed, {"name": name, "crc32": crc32}]
            writer.write("manifest.json", seal({"segments": listed}))
            self._listed = listed  # as long as nobody else writes

    def forget_manifest(self) -> None:
        """Read it anew: it was written by somebody else than `add_segment`."""
        self._listed = None

    def discard_damaged(self) -> list[str]:
        """Forget what cannot be read, so that it is computed again; what that was, in words."""
        from .mending import mend

        with disk.explained(self.path, "the segments that are whole", again="give the command again"):
            return mend(self)

    def clear(self) -> list[str]:
        """Remove the run; the names of what stays in the folder, because no run wrote it."""
        files = self.files
        if files is None or files.torn or (self.exists() and "run.json" not in files.names):
            raise FolderError(
                f"{self.path} has no whole list of the files that belong to its run ({ledger.NAME})",
                safe="nothing was removed",
                remedy=f"meanformer resume {self.path} --discard-damaged makes it again; or remove the folder yourself",
            )
        with (
            disk.explained(self.path, "all that no run wrote", again="give the command again"),
            contextlib.closing(Writer(self.path, self.inside)) as writer,
        ):
            return self._clear(writer)

    def _clear(self, writer: Writer) -> list[str]:
        """Remove the run, unless what stays would be lost, or be in the way of the next one."""
        for found, what in ((writer.edited(), "changed since the run wrote it"), (writer.in_segments(), "in the way")):
            if found:
                raise FolderError(
                    f"{what}, in {self.path}: {', '.join(found[:5])}",
                    safe="nothing was removed",
                    remedy="move it away if it is yours, or remove it, and give the command again",
                )
        return writer.clear()

    def remove(self) -> None:
        """Remove the run, and the folder if nothing else is in it."""
        with self.held() as writer:
            writer.clear()
            writer.leave()

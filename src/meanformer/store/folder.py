"""A run folder, as it is on disk: `run.json` (what was asked), segments, a manifest that lists those which are whole,
`results.json` (what was found), and `files.jsonl` (all that was written). Nothing here imports JAX.
"""

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import disk, ledger
from .arrays import from_files, to_files
from .errors import FolderError, NotARun
from .ledger import Ledger
from .sealed import is_sealed, parse, seal, unseal
from .shapes import check_shape
from .writer import LOCK, Writer, write_unlisted

FORMAT = 2
READ = (1, FORMAT)


class RunFolder:
    """A run folder. Readers trust the manifest alone; whoever writes holds it.

    **Arguments:** `path`; `inside`, for a part of another run, the mark of that run.
    """

    def __init__(self, path: str | Path, inside: str | None = None):
        self.path, self.inside = Path(path), inside
        self._writer: Writer | None = None
        self._holds = 0
        self._listed: list[dict[str, Any]] | None = None

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return disk.names_file(self.path / "run.json")

    @property
    def record(self) -> dict[str, Any]:
        """`run.json`: settings, seed, versions, commit, convention, hash."""
        record = self.read_json("run.json")
        if record is None:
            raise NotARun(
                f"{self.path} holds no run",
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
        return [RunFolder(self.path / "cases" / name) for name in names]

    @property
    def mark(self) -> str:
        """What tells this run, which is held, from all others."""
        assert self._writer is not None
        return self._writer.mark

    def part(self, kind: str, name: str) -> "RunFolder":
        """The folder of a run that is a part of this one, of `kind` "cases" or "tasks". This one is held."""
        return RunFolder(self.path / kind / name, inside=self.mark)

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
            data = disk.read(path)
            whole = unseal(data) if is_sealed(data) or not self._is_old() else parse(data)
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
            return Ledger(disk.read(self.path / ledger.NAME))
        except FileNotFoundError:
            return None
        except OSError:
            return Ledger(b"")

    def _is_old(self) -> bool:
        """Whether the folder is of format 1, whose JSON files have no checksums."""
        try:
            data = disk.read(self.path / "run.json")
            return not is_sealed(data) and parse(data).get("format") == 1
        except (OSError, ValueError):
            return False

    def read_segment(
        self, number: int, listed: list[dict[str, Any]] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The arrays and the note of a segment that is `listed` (in the manifest), checked against their sums."""
        listed = self.manifest if listed is None else listed
        entry = listed[number]
        try:
            content, crc = self._about(entry["name"])
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

    def _about(self, name: str) -> tuple[dict[str, Any], int]:
        """`segment.json` of a segment, and its sum."""
        data = disk.read(self.path / "segments" / name / "segment.json")
        content = unseal(data) if is_sealed(data) else parse(data)
        return check_shape("segment.json", content), zlib.crc32(data)

    def _chunk(self, segment: str, name: str, size: int, crc: int) -> bytes:
        data = disk.read(self.path / "segments" / segment / name, most=size)
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

    def create(self, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Begin a run: a first segment, then `run.json`, which makes it a run folder."""
        with self.held() as writer:
            record = {"format": FORMAT, **record}
            try:
                check_shape("run.json", record)
            except ValueError as error:
                raise FolderError(
                    f"the record of the run in {self.path} could not be read again: {error}",
                    safe="nothing has been computed yet",
                    remedy="give other names to entries of your own",
                ) from None
            writer.clear()  # what a run left that was killed at its very beginning
            writer.write("manifest.json", seal({"segments": []}))
            self.add_segment(arrays, {"record": record})  # a copy, should run.json be damaged
            writer.write("run.json", seal(record))

    def put(self, name: str, content: bytes | dict[str, Any]) -> None:
        """Write a file, or replace it, at one stroke: bytes, or JSON with its checksum."""
        with self.held() as writer:
            writer.write(name, content if isinstance(content, bytes) else seal(content))

    def put_beside(self, name: str, content: bytes) -> None:
        """Write a file that is not a part of the run, such as its report, also while somebody else holds the folder."""
        with disk.explained(self.path, "the run itself", again=f"write it again: meanformer report {self.path}"):
            if self.exists() and self.files is None:  # of an earlier version, or lost: it stays so
                write_unlisted(self.path, name, content)
                return
            with contextlib.closing(Writer(self.path, lock=False)) as writer:
                writer.write(name, content)

    def add_segment(self, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
        """Write a segment, then list it: it counts from then on."""
        with self.held() as writer:
            writer.check_there()
            listed = self.manifest if self._listed is None else self._listed
            name = f"{len(listed):06d}"
            files = to_files(arrays)
            sums = {file: [len(data), zlib.crc32(data)] for file, data in files.items()}
            about = seal({"note": note, "files": sums, "after": listed[-1]["crc32"] if listed else None})
            writer.write_folder(f"segments/{name}", {**files, "segment.json": about})
            listed = [*listed, {"name": name, "crc32": zlib.crc32(about)}]
            writer.write("manifest.json", seal({"segments": listed}))
            self._listed = listed  # as long as nobody else writes

    def discard_damaged(self) -> list[str]:
        """Forget what cannot be read, so that it is computed again; what that was, in words.

        A manifest is made again from the segments, each of which names the one before it, `run.json` from the copy in
        the first of them, and the list of files from both.
        """
        words = self._restore_record()
        with self.held() as writer:
            for part in map(RunFolder, writer.parts()):
                if part.exists():  # else it had not begun, and begins anew
                    words += [f"{part.path.name}: {word}" for word in part.discard_damaged()]
            there = self._found_segments()
            try:
                listed, known = self.manifest, True
            except FolderError:
                listed, known = there, False
                words.append(f"manifest.json, made again from {len(listed)} segments")
            number = next((number for number in range(len(listed)) if not self._is_whole(number, listed)), len(listed))
            if number < len(listed):
                words.append(f"segment {number} and those after it")
            writer.list_again(self._names_of_segments(there), complete=False)  # a copy may be newer than its list
            if writer.ledger.damaged:
                writer.list_again([*self._names(), *self._names_of_segments(listed)], complete=True)
                words.append(f"{ledger.NAME}, made again")
            if not self._has_whole_results():
                words.append("results.json")
            if words:
                writer.remove("results.json")  # first: what is not whole is not done
            if number < len(listed) or not known:
                writer.write("manifest.json", seal({"segments": listed[:number]}))
                self._listed = None
        return words

    def _has_whole_results(self) -> bool:
        try:
            _ = self.results
        except FolderError:
            return False
        return True

    def _is_whole(self, number: int, listed: list[dict[str, Any]]) -> bool:
        try:
            self.read_segment(number, listed)
        except FolderError:
            return False
        return True

    def _names(self) -> list[str]:
        """The names of the files that a run is known to write, but for its segments."""
        names = ["run.json", "manifest.json", "results.json", "report.html"]
        with contextlib.suppress(FolderError):
            names += [one["file"] for one in (self.results or {}).get("figures") or [] if "file" in one]
        record = self.record
        return names + [f"items/{name}.json" for name in record.get("items", ())] + [record.get("input", "run.json")]

    def _names_of_segments(self, listed: list[dict[str, Any]]) -> list[str]:
        names: list[str] = []
        for entry in listed:
            with contextlib.suppress(OSError, ValueError):
                files = self._about(entry["name"])[0]["files"]
                names += [f"segments/{entry['name']}/{file}" for file in (*files, "segment.json")]
        return names

    def _found_segments(self) -> list[dict[str, Any]]:
        """The segments that follow one another, without a manifest."""
        listed: list[dict[str, Any]] = []
        with contextlib.suppress(OSError, ValueError):
            while True:
                name = f"{len(listed):06d}"
                content, crc = self._about(name)
                if content.get("after") != (listed[-1]["crc32"] if listed else None):
                    break
                listed.append({"name": name, "crc32": crc})
        return listed

    def _restore_record(self) -> list[str]:
        """Write `run.json` again from its copy, if it cannot be read."""
        try:
            _ = self.record
            return []
        except FolderError as error:
            if isinstance(error, NotARun) and (self.files is None or "run.json" not in self.files.names):
                raise
            try:
                record = self._about("000000")[0]["note"]["record"]
                check_shape("run.json", record)
            except (OSError, ValueError, KeyError):
                record = None
            if not isinstance(record, dict) or record.get("format") != FORMAT:
                raise
        with contextlib.closing(Writer(self.path, self.inside)) as writer:
            writer.list_again(["run.json"], complete=False)
            writer.write("run.json", seal(record))
        return ["run.json, restored from its copy"]

    def clear(self) -> list[str]:
        """Remove the run; the names of what stays in the folder, because no run wrote it."""
        files = self.files
        if files is None or (self.exists() and "run.json" not in files.names):
            raise FolderError(
                f"{self.path} has no whole list of the files that belong to its run ({ledger.NAME})",
                safe="nothing was removed",
                remedy=f"meanformer resume {self.path} --discard-damaged makes it again; or remove the folder yourself",
            )
        with (
            disk.explained(self.path, "the run that it holds", again="give the command again"),
            contextlib.closing(Writer(self.path, self.inside)) as writer,
        ):
            return writer.clear()

    def remove(self) -> None:
        """Remove the run, and the folder if nothing else is in it."""
        with self.held() as writer:
            writer.clear()
            writer.leave()


def holds_other_things(path: Path) -> bool:
    """Whether a folder has files that no run wrote, nor one that was removed."""
    if disk.names_file(path / ledger.NAME):
        return False
    return any(entry.name not in (LOCK, disk.temporary(ledger.NAME)) for entry in path.iterdir())

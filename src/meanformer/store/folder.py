"""A run folder, as it is on disk: `run.json` (what was asked), segments, a manifest that lists those which are whole,
and `results.json` (what was found). Nothing here imports JAX.
"""

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from . import disk
from .arrays import from_files, to_files
from .errors import FolderError, NotARun

FORMAT = 1


class RunFolder:
    """A run folder. Readers trust the manifest alone; a writer holds the lock."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "run.json").is_file()

    @property
    def record(self) -> dict[str, Any]:
        """`run.json`: settings, seed, versions, commit, convention, hash."""
        record = self._json("run.json")
        if record is None:
            raise NotARun(
                f"{self.path} holds no run",
                safe="nothing was read or changed",
                remedy="name a folder that `meanformer run` wrote (it has a run.json)",
            )
        if record.get("format") != FORMAT:
            raise FolderError(
                f"{self.path} has format {record.get('format')}, this version reads format {FORMAT}",
                safe="the folder is as it was",
                remedy=f"use meanformer {record.get('versions', {}).get('meanformer', 'of that time')} to read it",
            )
        return record

    @property
    def results(self) -> dict[str, Any] | None:
        """`results.json`: numbers, checks and figures; None as long as there are none."""
        return self._json("results.json")

    @property
    def status(self) -> str:
        """Either "done" or "unfinished"."""
        results = self.results
        if results is not None:
            return "done" if results.get("status") == "done" else "unfinished"
        started_in_python = self.exists() and self.record.get("experiment") is None and self.record["kind"] == "flow"
        return "done" if started_in_python and self.is_final() else "unfinished"

    def is_final(self) -> bool:
        """Whether the last segment of a run is its end."""
        listed = self.manifest
        return bool(listed) and "final" in self.read_segment(len(listed) - 1, listed)[1]

    @property
    def manifest(self) -> list[dict[str, Any]]:
        """The segments that are whole, in order."""
        content = self._json("manifest.json")
        if content is None and self.exists():
            raise FolderError(
                f"{self.path} has lost its manifest.json",
                safe="nothing that can be told apart from what was cut short",
                remedy=f"restore the file from a copy, or begin anew: meanformer resume {self.path} --discard-damaged",
            )
        return [] if content is None else content["segments"]

    @property
    def cases(self) -> list["RunFolder"]:
        """The runs of an experiment with cases, in its order."""
        names = (self.results or {}).get("cases") or self.record.get("cases") or []
        return [RunFolder(self.path / "cases" / name) for name in names]

    def trajectory(self) -> Any:
        """The run itself: see `mf.load`."""
        from .load import load

        return load(self.path)

    def table(self) -> Any:
        """The numbers of a sweep, an `xarray.Dataset`."""
        from .table import read_table

        return read_table(self)

    def _json(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        except (ValueError, OSError) as error:
            raise FolderError(
                f"{path} cannot be read: {error}",
                safe="the segments of the run are not touched",
                remedy="restore the file from a copy; without run.json and manifest.json run it again",
            ) from error

    # Writing.

    def create(self, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Begin a run: a first segment, then `run.json`, which makes it a run folder."""
        disk.make_folder(self.path)
        disk.write_json(self.path / "manifest.json", {"segments": []})
        self.add_segment(arrays, {})
        disk.write_json(self.path / "run.json", {"format": FORMAT, **record})

    def add_segment(self, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
        """Write a segment, then list it: it counts from then on."""
        listed = self.manifest
        name = f"{len(listed):06d}"
        files = to_files(arrays)
        sums = {file: [len(data), zlib.crc32(data)] for file, data in files.items()}
        about = json.dumps({"note": note, "files": sums}, allow_nan=False).encode()
        disk.make_folder(self.path / "segments")
        disk.write_folder(self.path / "segments" / name, {**files, "segment.json": about})
        listed.append({"name": name, "crc32": zlib.crc32(about)})
        disk.write_json(self.path / "manifest.json", {"segments": listed})

    def read_segment(
        self, number: int, listed: list[dict[str, Any]] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The arrays and the note of a segment that is `listed` (in the manifest), checked against their sums."""
        listed = self.manifest if listed is None else listed
        entry = listed[number]
        folder = self.path / "segments" / entry["name"]
        try:
            about = (folder / "segment.json").read_bytes()
            if zlib.crc32(about) != entry["crc32"]:
                raise OSError("segment.json has changed since it was written")
            content = json.loads(about)
            files = {}
            for name, (size, crc) in content["files"].items():
                data = files[name] = (folder / name).read_bytes()
                if len(data) != size or zlib.crc32(data) != crc:
                    raise OSError(f"{name} has changed since it was written")
        except OSError as error:
            raise FolderError(
                f"segment {entry['name']} of {self.path} is damaged: {error}",
                safe=f"the segments before it are listed and separate: {number} of {len(listed)}",
                remedy=f"go on from there: meanformer resume {self.path} --discard-damaged",
            ) from error
        return from_files(files), content["note"]

    def discard_damaged(self) -> int | None:
        """Forget the first segment that cannot be read, and those after it; its number, None if all are whole."""
        lock = self.lock()
        try:
            listed = [] if self._json("manifest.json") is None else self.manifest
            for number in range(len(listed)):
                try:
                    self.read_segment(number, listed)
                except FolderError:
                    break
            else:
                if listed:
                    return None
                number = 0
            (self.path / "results.json").unlink(missing_ok=True)  # first: what is not whole is not done
            disk.write_json(self.path / "manifest.json", {"segments": listed[:number]})
            return number
        finally:
            lock.close()

    def remove(self) -> None:
        """Remove the run, and with it the folder; a folder with other things in it is refused, and left as it is."""
        known = {"run.json", "manifest.json", "results.json", "report.html", "segments", "figures", "cases", "tasks"}
        known |= {self.record.get("input")}  # a copy of what a model was given
        others = [p.name for p in self.path.iterdir() if p.name not in known | {"items"} and not p.name.startswith(".")]
        if others or "format" not in self.record:
            raise FolderError(
                f"{self.path} holds other things than a run: {', '.join(sorted(others)[:5]) or 'a strange run.json'}",
                safe="nothing was removed",
                remedy="move them away, or choose another folder with --out",
            )
        lock = self.lock()
        hidden = self.path.with_name(f".{self.path.name}.removed")  # at one stroke: no half of a run stays behind
        disk.remove(hidden)
        self.path.replace(hidden)
        lock.close()
        disk.remove(hidden)

    def lock(self) -> "Lock":
        """The right to write, until it is released or the process ends."""
        return Lock(self.path)


class Lock:
    """One writer at a time. The operating system frees the lock of a process that has died."""

    def __init__(self, folder: Path):
        disk.make_folder(folder)
        self._file = (folder / ".lock").open("a")
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows: no lock
            pass
        except OSError as error:
            self._file.close()
            raise FolderError(
                f"another process is writing to {folder}",
                safe="its run goes on undisturbed",
                remedy="wait for it, or choose another folder with --out",
            ) from error

    def close(self) -> None:
        """Let others write."""
        self._file.close()


def is_writable(path: Path) -> bool:
    """Whether a folder could be made or written here."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)

"""A writer that is killed at the steps it takes, without JAX: run by test_kill.py as a script of its own.

    python killed.py 1         at every step
    python killed.py 5         at every fifth, and at the first and the last of each kind

The "run" is x -> cos(x) on an array, a segment for each application, resumed from the last segment listed. A second
process reads the folder all the time. Each writer is a fork of a process that has not used zarr yet, whose threads do
not survive a fork.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import numpy as np
import zarr.storage  # noqa: F401  (once, for all children)

from meanformer.store import disk, ledger
from meanformer.store.folder import RunFolder

SEGMENTS = 1
RECORD = {"kind": "flow", "hash": "x"}


def state(number: int) -> np.ndarray:
    x = np.linspace(0.1, 3.0, 7)
    for _ in range(number):
        x = np.cos(x)
    return x


def write(path: pathlib.Path) -> None:
    """Begin, or go on from the last segment that is listed."""
    folder = RunFolder(path)
    if not folder.exists():
        folder.create(RECORD, {"state/0": state(0)})
    while len(folder.manifest) <= SEGMENTS:
        arrays, note = folder.read_segment(len(folder.manifest) - 1)
        new = np.cos(arrays["state/0"])
        folder.add_segment({"state/0": new, "rows/0": -0.0 * new[None]}, {"number": note.get("number", 0) + 1})


def read(path: pathlib.Path) -> int:
    """Read all that is listed; how many segments there are. Whatever is listed must be right."""
    folder = RunFolder(path)
    if not folder.exists():
        return 0
    count = len(folder.manifest)
    for number in range(count):
        arrays, _ = folder.read_segment(number)
        assert np.array_equal(arrays["state/0"], state(number)), f"segment {number} is wrong"
    return count


def read_and_write(path: pathlib.Path) -> None:
    read(path)
    write(path)


class Counter:
    """Counts steps, before and after each; ends the process at step `last`."""

    def __init__(self, last: int | None):
        self.last, self.steps, self.names = last, 0, []

    def step(self, name: str) -> None:
        if self.steps == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        self.steps += 1
        self.names.append(name)

    def around(self, owner: object, name: str) -> None:
        function = getattr(owner, name)

        def counted(*args: object, **options: object) -> object:
            self.step(f"before {name}")
            result = function(*args, **options)
            self.step(f"after {name}")
            return result

        setattr(owner, name, counted)

    def install(self) -> None:
        """Every write (also when it is half done), fsync, rename, new folder and removal."""
        for owner, name in (
            (os, "fsync"),
            (disk, "rename"),
            (disk, "make_folder"),
            (disk, "remove_file"),
            (disk, "remove_empty"),
        ):
            self.around(owner, name)

        def appended(descriptor: int, data: bytes) -> None:
            self.step("before write")
            half = len(data) // 2
            os.write(descriptor, data[:half])
            self.step("half of a write")
            os.write(descriptor, data[half:])
            self.step("after write")
            os.fsync(descriptor)

        disk.append = appended


def in_child(function: object, *args: object) -> int:
    """The wait status of a child that calls a function."""
    child = os.fork()
    if child == 0:
        try:
            function(*args)  # type: ignore[operator]
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed_writer(path: pathlib.Path, last: int | None, told: pathlib.Path | None = None) -> None:
    counter = Counter(last)
    counter.install()
    write(path)
    if told is not None:
        told.write_text(json.dumps(counter.names))


def watch(base: pathlib.Path, stop: pathlib.Path) -> None:
    """Read the newest folder again and again, until told to stop."""
    looks = 0
    while not stop.exists():
        folders = sorted(base.glob("run*"))
        if folders:
            read(folders[-1])
        looks += 1
        time.sleep(0.01)
    stop.with_suffix(".looks").write_text(str(looks))


def content(path: pathlib.Path) -> dict[str, bytes]:
    """The files of a run; all of them are in its list."""
    files = {f.relative_to(path).as_posix(): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    listed = ledger.Ledger(files.pop(ledger.NAME)).names
    found = {name: data for name, data in files.items() if name != ".lock" and ".tmp" not in name}
    assert found.keys() <= listed.keys(), f"not listed: {sorted(found.keys() - listed.keys())}"
    return found


def removed(path: pathlib.Path) -> None:
    """Whatever a process left, the folder can be cleared: not a byte of a run stays."""
    assert RunFolder(path).clear() == [], "something stays that is not listed"


def chosen(names: list[str], every: int) -> list[int]:
    """The steps at which the writer is killed."""
    last = {name: step for step, name in enumerate(names)}
    return sorted({names.index(name) for name in last} | set(last.values()) | set(range(0, len(names), every)))


def main(every: int) -> None:
    base = pathlib.Path(tempfile.mkdtemp())
    whole, told = base / "whole", base / "told.json"
    assert in_child(killed_writer, whole, None, told) == 0
    names = json.loads(told.read_text())
    reference = content(whole)
    stop = base / "stop"
    reader = os.fork()
    if reader == 0:
        try:
            watch(base, stop)
            os._exit(0)
        except BaseException as error:
            print(f"the reader: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    steps = chosen(names, every)
    for last in steps:
        target = base / f"run{last:04d}"
        assert in_child(killed_writer, target, last) == signal.SIGKILL, f"not killed at step {last}, {names[last]}"
        shutil.copytree(target, base / "copy")
        if (base / "copy" / ledger.NAME).exists():
            assert in_child(removed, base / "copy") == 0, f"cannot be removed: step {last}, {names[last]}"
        shutil.rmtree(base / "copy")
        assert in_child(read_and_write, target) == 0, f"cannot go on after a kill at step {last}, {names[last]}"
        assert content(target) == reference, f"other bits after a kill at step {last}, {names[last]}"
    stop.touch()
    assert os.waitpid(reader, 0)[1] == 0, "the reader saw a half"
    looks = int(stop.with_suffix(".looks").read_text())
    shutil.rmtree(base)
    killed = sorted({names[step] for step in steps})
    print(json.dumps({"steps": len(names), "kills": len(steps), "looks": looks, "killed": killed}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Power failures, replayed without JAX: run by test_power.py as a script of its own.

    python power.py 1         after every operation
    python power.py 7         after every seventh

A writer's operations are recorded. After any of them the power may fail: what was flushed (`fsync` of a file for its
bytes, of a folder for its names) is on the disk, and of what was not, any part may be, in any order. Each such state is
built, read, and gone on with, to the same bits. What a writer was told to be written must be there.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import zarr.storage  # noqa: F401

from meanformer.store import disk, ledger
from meanformer.store.folder import RunFolder
from store import killed

SUBSETS = 3


@dataclass(eq=False)
class Node:
    """A file or a folder on the simulated disk."""

    data: bytes = b""
    entries: "dict[str, Node] | None" = None


@dataclass(eq=False)
class Operation:
    """One of: "make" a node under a name, "rename", "remove" a name in `folder`; "write" bytes of `node` from `start`
    on, or "cut" it there; or "flush", after which some of the others are on the disk.
    """

    kind: str
    folder: Node | None = None
    names: tuple[str, ...] = ()
    node: Node | None = None
    data: bytes = b""
    start: int = 0
    flushed: int | None = None  # the moment from which on it is on the disk


@dataclass
class Recorder:
    """Records what `meanformer.store.disk` does below `root`, and does it."""

    root: pathlib.Path
    top: Node = field(default_factory=lambda: Node(entries={}))
    log: list[Operation] = field(default_factory=list)
    promised: list[tuple[int, int]] = field(default_factory=list)  # from this moment on, so many segments
    begun: int = 0  # from this moment on it is a run

    def at(self, place: int) -> Node:
        path = pathlib.Path(f"/proc/self/fd/{place}").readlink()
        node = self.top
        for part in path.relative_to(self.root).parts:
            node = node.entries[part]
        return node

    def note(self, operation: Operation) -> None:
        self.log.append(operation)
        apply(operation, {id(self.top): self.top}, live=True)

    def flush(self, fits: object) -> None:
        self.log.append(Operation("flush"))
        for operation in self.log:
            if operation.flushed is None and (operation.kind == "flush" or fits(operation)):  # type: ignore[operator]
                operation.flushed = len(self.log)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Look on, as long as this lasts."""
        owners = {"write": os, "ftruncate": os, "fsync": os} | dict.fromkeys(
            ("rename", "make_folder", "remove_file"), disk
        )
        owners |= {"remove_empty": disk, "open_to_append": disk, "made": disk}
        disk.made = disk.write  # the other of this name
        real = {name: getattr(owner, name) for name, owner in owners.items()}

        def write(descriptor, data):
            node = self.at(descriptor)
            self.note(Operation("write", None, (), node, bytes(data), len(node.data)))
            return real["write"](descriptor, data)

        def ftruncate(descriptor, length):
            self.note(Operation("cut", None, (), self.at(descriptor), start=length))
            real["ftruncate"](descriptor, length)

        def fsync(descriptor):
            real["fsync"](descriptor)
            node = self.at(descriptor)
            self.flush(
                lambda operation: node in (operation.folder, operation.node if operation.folder is None else None)
            )

        def rename(old, new, at):
            real["rename"](old, new, at)
            self.note(Operation("rename", self.at(at), (old, new)))

        def make_folder(name, at):
            real["make_folder"](name, at)
            self.note(Operation("make", self.at(at), (name,), Node(entries={})))

        def remove_file(name, at):
            there = disk.exists(name, at)
            real["remove_file"](name, at)
            if there:
                self.note(Operation("remove", self.at(at), (name,)))

        def remove_empty(name, at):
            gone = real["remove_empty"](name, at)
            if gone:
                self.note(Operation("remove", self.at(at), (name,)))
            return gone

        def made(name, data, at):
            self.note(Operation("make", self.at(at), (name,), Node()))
            real["made"](name, data, at)

        def open_to_append(name, at):
            if not disk.exists(name, at):
                self.note(Operation("make", self.at(at), (name,), Node()))
            return real["open_to_append"](name, at)

        for function in (write, ftruncate, fsync, rename, make_folder, remove_file, remove_empty, open_to_append):
            setattr(owners[function.__name__], function.__name__, function)
        disk.write = made
        try:
            yield
        finally:
            for name, owner in owners.items():
                setattr(owner, name, real[name])
            disk.write = disk.made


def apply(operation: Operation, copies: dict[int, Node], live: bool = False) -> None:
    """Do an operation on a copy of the disk, as far as it makes sense there."""

    def copy(node: Node) -> Node:
        if live:
            return node
        return copies.setdefault(id(node), Node(entries=None if node.entries is None else {}))

    if operation.kind == "flush":
        return
    if operation.kind == "write":  # what is lost before it are zeros; what was not cut stays behind it
        node, end = copy(operation.node), operation.start + len(operation.data)
        node.data = node.data[: operation.start].ljust(operation.start, b"\0") + operation.data + node.data[end:]
        return
    if operation.kind == "cut":
        node = copy(operation.node)
        node.data = node.data[: operation.start]
        return
    entries = copy(operation.folder).entries
    if operation.kind == "make":
        entries[operation.names[0]] = copy(operation.node)
    elif operation.names[0] in entries:
        moved = entries.pop(operation.names[0])
        if operation.kind == "rename":
            entries[operation.names[1]] = moved


def states(recorder: Recorder, moment: int, draw: random.Random) -> Iterator[list[Operation]]:
    """What may be on the disk when the power fails after so many operations: lists of operations."""
    before = recorder.log[:moment]
    loose = [k for k, operation in enumerate(before) if operation.flushed is None or operation.flushed > moment]

    def kept(some: set[int]) -> list[Operation]:
        return [operation for k, operation in enumerate(before) if k not in loose or k in some]

    chosen = [set(loose), set()]
    chosen += [set(loose) - {k} for k in loose] + [{k} for k in loose]
    chosen += [{k for k in loose if draw.random() < 0.5} for _ in range(SUBSETS)]
    unique = {frozenset(some): some for some in chosen}
    for some in unique.values():
        yield kept(some)
        torn = [k for k in some if before[k].kind == "write" and before[k].data]
        for k in torn:  # bytes that were on their way: half of them, or other ones
            for data in (before[k].data[: len(before[k].data) // 2], bytes(len(before[k].data))):
                yield [
                    replace(operation, data=data) if operation is before[k] else operation for operation in kept(some)
                ]


def built(recorder: Recorder, operations: list[Operation], path: pathlib.Path) -> None:
    """Put a state of the simulated disk into a folder."""
    top = Node(entries={})
    copies = {id(recorder.top): top}
    for operation in operations:
        apply(operation, copies)

    def put(node: Node, place: pathlib.Path) -> None:
        if node.entries is None:
            place.write_bytes(node.data)
            return
        place.mkdir()
        for name, inner in node.entries.items():
            put(inner, place / name)

    put(top, path)


def recorded(root: pathlib.Path) -> Recorder:
    """A run, and what it did."""
    root.mkdir()
    recorder = Recorder(root)
    add, create = RunFolder.add_segment, RunFolder.create

    def add_segment(self, arrays, note):
        add(self, arrays, note)
        recorder.promised.append((len(recorder.log), len(self.manifest)))

    def created(self, record, arrays):
        create(self, record, arrays)
        recorder.begun = len(recorder.log)

    RunFolder.add_segment, RunFolder.create = add_segment, created
    try:
        with recorder.installed():
            killed.write(root)
    finally:
        RunFolder.add_segment, RunFolder.create = add, create
    return recorder


def main(every: int) -> None:
    base, draw = pathlib.Path(tempfile.mkdtemp()), random.Random(0)
    recorder = recorded(base / "run")
    # The simulated disk is the true one, when nothing fails.
    built(recorder, recorder.log, base / "same")
    assert killed.content(base / "same") == (reference := killed.content(base / "run")), "the simulation is wrong"
    os.fsync = lambda descriptor: None  # this power does not fail
    count = 0
    for moment in range(0, len(recorder.log) + 1, every):
        for operations in states(recorder, moment, draw):
            path = base / f"state{count}"
            built(recorder, operations, path)
            where = f"after operation {moment} of {len(recorder.log)}, state {count}"
            try:
                there = killed.read(path)
                least = max((number for since, number in recorder.promised if since <= moment), default=0)
                # A run folder begins with run.json; before that, nothing was promised to anybody.
                assert there >= least or (moment < recorder.begun and there == 0), f"{there} of {least} segments"
                killed.write(path)
                assert killed.content(path) == reference, "other bits"
                assert RunFolder(path).clear() == [], "something stays"
            except BaseException as error:
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
            count += 1
    shutil.rmtree(base)
    print(json.dumps({"operations": len(recorder.log), "states": count, "ledger": ledger.NAME}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

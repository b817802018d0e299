"""Writing so that a reader, or the next process, never sees a half of anything.

A file appears whole: it is written under another name, flushed to the disk and renamed. A folder likewise. All writing
of the store goes through these functions.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import FolderError


def _flush(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk itself."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call for folders
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def explained(path: Path, safe: str = "") -> Iterator[None]:
    """Turn an error of the file system into words that say what is `safe`; by default, that nothing was begun."""
    try:
        yield
    except OSError as error:
        reasons = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota of the disk is used up"}
        reasons |= {errno.EACCES: "no permission", errno.EPERM: "no permission", errno.EROFS: "the disk is read-only"}
        remedies = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space"}
        number = error.errno or 0
        raise FolderError(
            f"cannot write to {path}: {reasons.get(number, error.strerror or str(error))}",
            safe=safe or "nothing has been computed yet",
            remedy=f"{remedies.get(number, 'make the folder writable')}, then "
            + (f"go on: meanformer resume {path}" if safe else "run again; or choose another folder with --out"),
        ) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file, or replace it, at one stroke."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def write_json(path: Path, content: Any) -> None:
    """Write JSON at one stroke."""
    write_file(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder with its files at one stroke. What was there under its name is not listed anywhere, and goes."""
    temporary = path.with_name(f".{path.name}.tmp")
    remove(temporary)
    try:
        parts = [(temporary / name).parent for name in files]
        folders = {temporary, *(folder for part in parts for folder in (part, *part.parents))}
        folders = {folder for folder in folders if folder.is_relative_to(temporary)}
        for folder in sorted(folders):
            folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write(temporary / name, data)
        for folder in sorted(folders, reverse=True):
            _flush(folder)
        remove(path)
        temporary.replace(path)
    except Exception:
        remove(temporary)
        raise
    _flush(path.parent)


def remove(path: Path) -> None:
    """Remove a folder, if it is there."""
    if path.exists():
        shutil.rmtree(path)


def make_folder(path: Path) -> None:
    """Make a folder, with its name on the disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _flush(path.parent)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C, and the system's wish to end the process, wait until something is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in handlers:
        signal.signal(number, lambda *event: came.append(event))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in came[:1]:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        elif handler == signal.SIG_DFL:
            os.kill(os.getpid(), number)

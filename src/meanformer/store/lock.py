"""The lock of a run folder: one process writes at a time, and the system frees the lock of one that has died."""

import contextlib
import errno
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from . import disk
from .errors import FolderError

NAME = ".lock"
MOST = 20  # bytes
_SAYS = b"meanformer "  # before the number of the process: other programs write locks too
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)


def is_ours(path: Path) -> bool:
    """Whether a file, if it is there, is a lock."""
    try:
        return _names_process(disk.read(path.name, path.parent, most=MOST))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _names_process(data: bytes) -> bool:
    """Whether a lock of ours may say this: a process, of which a power failure may have left zeros in any place."""
    begins = all(found in (ours, 0) for found, ours in zip(data, _SAYS, strict=False))
    return len(data) <= MOST and begins and not data[len(_SAYS) :].strip(b"\x000123456789")


@contextlib.contextmanager
def locked(path: Path, at: disk.At, patience: float) -> Iterator[None]:
    """The lock of the folder `path`, which is open, within so many seconds."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with disk.appending(NAME, at) as descriptor:
        owner = _owner(path, descriptor)
        try:
            _take(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), patience)
        except OSError as error:
            if error.errno in _BUSY:
                raise _busy(path, owner) from error
            warnings.warn(
                f"the file system of {path} knows no locks ({error.strerror}): nothing keeps another process "
                "from writing there too",
                stacklevel=6,
            )
        if not disk.same(NAME, at, descriptor):  # its last owner has just removed the run
            raise _busy(path, owner)
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_nlink == 1:  # else it has a name elsewhere too, in a copy by links
                os.ftruncate(descriptor, 0)
                os.write(descriptor, _ours())
        yield


def _owner(path: Path, descriptor: int) -> bytes:
    """What an open lock says: a process, or nothing. Any other file is somebody else's."""
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    data = os.pread(descriptor, MOST + 1, 0) if is_file else b"no file"
    if not _names_process(data):
        raise FolderError(
            f"{path / NAME} is in the way: it is not the lock of a run",
            safe="it is as it was, and nothing was written",
            remedy="move it away, or choose another folder with --out",
        )
    return data


def _ours() -> bytes:
    return _SAYS + str(os.getpid()).encode()


def _take(lock: Callable[[], None], patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return lock()
        except OSError as error:
            if error.errno not in _BUSY or time.monotonic() > until:
                raise
        time.sleep(0.05)


def _busy(path: Path, owner: bytes) -> FolderError:
    if owner == _ours():
        return FolderError(
            f"this very process is writing to {path}, in a run that goes on or has failed",
            safe="what was written",
            remedy="close its journal, journal.close(), or start Python again; then the same call goes on",
        )
    return FolderError(
        f"another process is writing to {path}",
        safe="its run goes on undisturbed",
        remedy="wait for it, or choose another folder with --out",
    )

"""Steps on the disk, so that a reader, or the next process, never sees a half of anything.

A file appears whole: it is written under another name, flushed to the disk and renamed. A folder likewise. All steps
name a file inside an open folder, by its descriptor: they happen in that very folder, whatever becomes of its name, and
follow no links. Where the system knows no such descriptors (Windows), a folder is its path.
"""

# ruff: noqa: PTH102, PTH105, PTH113, PTH116, PTH118  (paths know no descriptors)

import contextlib
import errno
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .errors import FolderError

# Files of JSON are smaller than this; whatever is larger was not written by a run.
MOST_BYTES = 2**28
# Figures, films and reports too.
LARGEST = 2**30
DESCRIPTORS = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")

# An open folder: its descriptor, or its path where there are no descriptors.
At = int | str
# A folder to be: what is in it by name, bytes or folders.
Tree = Mapping[str, Any]


def _place(name: str, at: At) -> tuple[str, dict[str, Any]]:
    return (name, {"dir_fd": at}) if isinstance(at, int) else (os.path.join(at, name), {})


@contextlib.contextmanager
def opened(name: str, at: At, make: bool = False) -> Iterator[At]:
    """A folder inside an open one; with `make`, it is made if it is not there."""
    if make and not exists(name, at):
        make_folder(name, at)
        flush(at)
    where, inside = _place(name, at)
    if not inside:
        yield where
        return
    descriptor = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, **inside)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_parts(parts: tuple[str, ...], at: At, make: bool = False) -> Iterator[At]:
    """A folder some levels below an open one."""
    with contextlib.ExitStack() as stack:
        for part in parts:
            at = stack.enter_context(opened(part, at, make))
        yield at


def exists(name: str, at: At) -> bool:
    """Whether something has this name, be it a link that leads nowhere."""
    where, inside = _place(name, at)
    try:
        os.stat(where, follow_symlinks=False, **inside)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_file(name: str, at: At) -> bool:
    """Whether it is a file, and no link to one."""
    where, inside = _place(name, at)
    try:
        return stat.S_ISREG(os.stat(where, follow_symlinks=False, **inside).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def same(name: str, at: At, descriptor: int) -> bool:
    """Whether a name is still that of an open file."""
    where, inside = _place(name, at)
    try:
        return os.path.samestat(os.stat(where, follow_symlinks=False, **inside), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def links(name: str, at: At) -> int:
    """How many names a file has, here and elsewhere."""
    where, inside = _place(name, at)
    return os.stat(where, follow_symlinks=False, **inside).st_nlink


def names_file(path: Path) -> bool:
    """Whether a path leads to a file; no name is too long or too odd to ask."""
    return os.path.isfile(path)


def write(name: str, data: bytes, at: At) -> None:
    """A new file, on the disk itself when this returns."""
    where, inside = _place(name, at)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(where, flags, 0o666, **inside)
    try:
        append(descriptor, data)
    finally:
        os.close(descriptor)


def open_to_append(name: str, at: At) -> int:
    """A file, made if it is not there, for more bytes at its end."""
    where, inside = _place(name, at)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.open(where, flags, 0o666, **inside)


def append(descriptor: int, data: bytes) -> None:
    """More bytes at the end of an open file, on the disk itself when this returns; or none of them, if that fails and
    nobody else has put more behind them.
    """
    rest, before = memoryview(data), os.fstat(descriptor).st_size
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_size == before + len(data) - len(rest):
                os.ftruncate(descriptor, before)
        raise


def rename(old: str, new: str, at: At) -> None:
    """Another name; a file that had it goes."""
    (before, _), (after, _) = _place(old, at), _place(new, at)
    inside: dict[str, Any] = {"src_dir_fd": at, "dst_dir_fd": at} if isinstance(at, int) else {}
    os.replace(before, after, **inside)


def make_folder(name: str, at: At) -> None:
    """A new folder."""
    where, inside = _place(name, at)
    os.mkdir(where, **inside)


def remove_file(name: str, at: At) -> None:
    """Remove a file, if it is there."""
    where, inside = _place(name, at)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(where, **inside)


def remove_empty(name: str, at: At) -> bool:
    """Remove a folder with nothing in it; whether it was one."""
    where, inside = _place(name, at)
    try:
        os.rmdir(where, **inside)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def flush(at: At) -> None:
    """Bring the names in a folder to the disk itself, where the file system knows how."""
    if isinstance(at, int):  # Windows has no such call
        try:
            os.fsync(at)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def temporary(name: str) -> str:
    """The name of a file or folder before it is whole."""
    return f".{name}.meanformer.tmp"


def permanent(name: str) -> str:
    """The name, with slashes between its parts, that a file has when it and its folders are whole."""
    return re.sub(r"(?<![^/])\.([^/]*)\.meanformer\.tmp(?![^/])", r"\1", name)


def write_file(name: str, data: bytes, at: At) -> None:
    """Write a file, or replace it, at one stroke."""
    before = temporary(name)
    remove_file(before, at)
    try:
        write(before, data, at)
        rename(before, name, at)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_file(before, at)
        raise
    flush(at)


def write_tree(name: str, tree: Tree, at: At) -> None:
    """Write a new folder with all that is in it."""
    make_folder(name, at)
    with opened(name, at) as inside:
        for entry, content in tree.items():
            if isinstance(content, bytes):
                write(entry, content, inside)
            else:
                write_tree(entry, content, inside)
        flush(inside)


@contextlib.contextmanager
def _opened_to_read(name: str, at: At | Path) -> Iterator[BinaryIO]:
    """A file below a folder; its name has slashes between its parts. No link is followed, and nothing is waited for."""
    *folders, last = name.split("/")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(held(at)) if isinstance(at, Path) else at
        try:
            where, inside = _place(last, stack.enter_context(opened_parts(tuple(folders), at)))
            descriptor = os.open(where, flags | getattr(os, "O_NOFOLLOW", 0), **inside)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and _has_link(name, at):
                raise OSError(errno.ELOOP, "it is a link, which may lead out of the folder") from error
            raise
        try:
            file = os.fdopen(descriptor, "rb")
        except BaseException:  # of a folder
            os.close(descriptor)
            raise
        yield stack.enter_context(file)


def _has_link(name: str, at: At) -> bool:
    """Whether a file, or a folder on the way to it, is a link."""
    parts = name.split("/")
    for k in range(1, len(parts) + 1):
        where, inside = _place("/".join(parts[:k]), at)
        if stat.S_ISLNK(os.stat(where, follow_symlinks=False, **inside).st_mode):
            return True
    return False


def _check_file(file: BinaryIO, most: int) -> int:
    """The size of an open file. A pipe or a device is refused."""
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a file")
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and files of runs at most {most:,}")
    return found.st_size


def read(name: str, at: At | Path, most: int = MOST_BYTES) -> bytes:
    """A file below a folder, of at most `most` bytes."""
    with _opened_to_read(name, at) as file:
        return file.read(_check_file(file, most))


def first_line(name: str, at: At | Path) -> bytes:
    """The first line of a file below a folder, if it is not long."""
    with _opened_to_read(name, at) as file:
        return file.readline(4096)


def crc32(name: str, at: At | Path) -> int:
    """The checksum of a file below a folder, however large it is."""
    with _opened_to_read(name, at) as file:
        _check_file(file, LARGEST)
        found = 0
        while data := file.read(2**20):
            found = zlib.crc32(data, found)
        return found


def make_path(path: Path) -> None:
    """Make a folder and those above it, with their names on the disk."""
    if path.is_dir():
        return
    make_path(path.parent)
    path.mkdir(exist_ok=True)
    if DESCRIPTORS:
        above = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def tree_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Files with slashes in their names as folders in folders."""
    tree: dict[str, Any] = {}
    for name, data in files.items():
        *folders, last = name.split("/")
        inner = tree
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = data
    return tree


@contextlib.contextmanager
def held(path: Path) -> Iterator[At]:
    """A folder, open as long as this lasts."""
    if not DESCRIPTORS:
        yield str(path)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def appending(name: str, at: At) -> Iterator[int]:
    """A file of the folder, open for more bytes at its end."""
    descriptor = open_to_append(name, at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def name_now(descriptor: int) -> Path | None:
    """Where a folder is that was renamed; None if that cannot be told."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:  # not on Linux
        return None


REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk reports an error",
    errno.EFBIG: "a file would be larger than this process may write",
    errno.ENAMETOOLONG: "its name is too long",
    errno.EISDIR: "a folder is in the place of a file",
    errno.ENOTDIR: "a file or a link is in the place of a folder",
    errno.ELOOP: "a link is in the place of a file or a folder",
    errno.EEXIST: "something that no run wrote is in the way",
    errno.ENOTEMPTY: "something that no run wrote is in the way",
}
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EIO: "check the disk",
    errno.EFBIG: "raise the limit (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
} | dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY), "move it away")


@contextlib.contextmanager
def explained(path: Path, safe: str = "", again: str = "") -> Iterator[None]:
    """Turn an error of the file system into words that say what is `safe`; by default, that nothing was begun. `again`
    is the command to give then, by default that which goes on.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        next_step = again or f"go on: meanformer resume {path}"
        raise FolderError(
            f"cannot write to {path}: {REASONS.get(number, error.strerror or str(error))}",
            safe=safe or "nothing has been computed yet",
            remedy=f"{REMEDIES.get(number, 'make the folder writable')}, then "
            + (next_step if safe else "run again; or choose another folder with --out"),
        ) from error

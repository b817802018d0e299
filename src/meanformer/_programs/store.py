"""A private folder of files on disk, bounded in size: bytes by key. Nothing here imports JAX.

What is kept is unpickled later, which runs whatever a pickle says. So a folder or a file that someone else owns or may
write is not read at all, and each file begins with a digest of the rest.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MOST_BYTES = 500_000_000
SUFFIX = ".program"
HEAD = b"meanformer program 1\n"
_OFF = ("0", "false", "off", "no", "n", "f")
_HOUR = 3600.0


def folder(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path | None:
    """Where programs are kept: `MEANFORMER_CACHE_DIR`, else the user's cache folder as the platform has it.

    None with `MEANFORMER_CACHE=0`, and where there is no home.
    """
    if environment.get("MEANFORMER_CACHE", "1").lower() in _OFF:
        return None
    if chosen := environment.get("MEANFORMER_CACHE_DIR"):
        return Path(chosen)
    try:
        if system == "win32":
            base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif system == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(environment.get("XDG_CACHE_HOME", ""))
            if (
                not base.is_absolute()
            ):  # such a value means nothing, says XDG, and would be another place in each folder
                base = Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return base / "meanformer" / "programs"


def read(key: str) -> bytes | None:
    """What is kept under `key`; None if nothing is, or nothing that can be trusted."""
    place = folder()
    if place is None:
        return None
    try:
        with _opened(place) as directory:
            path, where = _within(place, key + SUFFIX, directory)
            # Not through a link, and not waiting for a pipe.
            handle = os.open(path, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_BINARY"), **where)
            with os.fdopen(handle, "rb") as file:
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode) or not _ours(status):
                    return None
                data = file.read()
                if time.time() - status.st_mtime > _HOUR:  # the time of last use, which eviction goes by
                    with contextlib.suppress(OSError):
                        os.utime(handle if os.utime in os.supports_fd else place / path)
    except OSError:
        return None
    body = data[len(HEAD) + 32 :]
    whole = data.startswith(HEAD) and hashlib.sha256(body).digest() == data[len(HEAD) : len(HEAD) + 32]
    return body if whole else None


def write(key: str, body: bytes) -> None:
    """Keep `body` under `key`, as a whole or not at all; in silence where that is not possible."""
    place = folder()
    if place is None or len(body) > MOST_BYTES:
        return
    temporary = None
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(place):
            handle, name = tempfile.mkstemp(suffix=".part", dir=place)  # mode 0600
            temporary = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(HEAD + hashlib.sha256(body).digest() + body)
            temporary.replace(place / (key + SUFFIX))
        _evict(place)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def entries() -> list[os.stat_result]:
    """The files that are kept, as the system describes them."""
    place = folder()
    return [] if place is None else [status for _, status in _files(place)]


def clear() -> int:
    """Remove all that is kept, and say how many programs that were."""
    place = folder()
    found = [] if place is None else _files(place)
    for path, _ in found:
        with contextlib.suppress(OSError):
            path.unlink()
    return sum(path.suffix == SUFFIX for path, _ in found)


def _evict(place: Path) -> None:
    """Remove the files that were used longest ago, until the others take at most nine tenths of the space."""
    found = _files(place)
    total = sum(status.st_size for _, status in found)
    if total <= MOST_BYTES:
        return
    for path, status in sorted(found, key=lambda item: item[1].st_mtime):
        if total <= 0.9 * MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= status.st_size


def _files(place: Path) -> list[tuple[Path, os.stat_result]]:
    """Programs, and what writers that were killed left behind."""
    found = []
    with contextlib.suppress(OSError), os.scandir(place) as listed:
        for item in listed:
            if item.name.endswith((SUFFIX, ".part")):
                with contextlib.suppress(OSError):
                    found.append((Path(item.path), item.stat(follow_symlinks=False)))
    return found


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[int | None]:
    """The folder, held open so that it cannot be exchanged after it was checked. OSError if it is not private."""
    if not hasattr(os, "getuid"):  # on Windows the user's own folders are private
        yield None
        return
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _ours(os.fstat(handle)):
            raise PermissionError(f"{place} can be written by others")
        yield handle
    finally:
        os.close(handle)


def _within(place: Path, name: str, directory: int | None) -> tuple[str, dict[str, int]]:
    return (str(place / name), {}) if directory is None else (name, {"dir_fd": directory})


def _ours(status: os.stat_result) -> bool:
    """Whether this user owns it, and nobody else may write it."""
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _flag(name: str) -> int:
    return getattr(os, name, 0)

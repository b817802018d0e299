"""Which folder is meant: what can be the name of one, the parts of a run, a folder that has another name now."""

import contextlib
import os
from pathlib import Path
from typing import Any

from . import disk, ledger, lock
from .errors import FolderError
from .ledger import Ledger


def folder_path(path: Any) -> Path:
    """The path of a folder, if it can be one."""
    try:
        found = os.fsencode(path) if isinstance(path, (str, os.PathLike)) else b""
    except (UnicodeEncodeError, TypeError):
        found = b""
    if not found or b"\0" in found:
        from .._checks import refuse

        refuse(
            "a run folder is named by its path",
            got=ascii(path)[:80],
            expected="a path as text, or a Path",
            remedy='for example "runs/mine"',
        )
    return Path(path)


def head(folder: disk.At | Path) -> Ledger:
    """What the list of a folder says of its run, without the names."""
    return Ledger(disk.first_line(ledger.NAME, folder))


def holds_other_things(path: Path) -> bool:
    """Whether a folder has files that no run wrote, nor one that was removed."""
    with contextlib.suppress(OSError):
        if head(path).mark is not None:
            return False
    ours = {disk.temporary(ledger.NAME)} | ({lock.NAME} if lock.is_ours(path / lock.NAME) else set())
    return any(entry.name not in ours for entry in path.iterdir())


def check_part(whole: Path, kind: str, name: str) -> Path:
    """The folder of a part of the run in `whole`; refused if it is a link, or the part of another run."""
    part = whole / kind / name
    wrong = "is a link, which may lead out of the folder" if part.parent.is_symlink() or part.is_symlink() else ""
    with contextlib.suppress(OSError):
        mark, inside = head(whole).mark, head(part).inside
        if mark is not None and inside is not None and mark != inside:
            wrong = wrong or "is a part of another run"
    if wrong:
        raise FolderError(
            f"{part} {wrong}",
            safe="it is as it was, and so is all else in the folder",
            remedy="move it away, and put the folder that the run wrote in its place, or go on without it: "
            f"meanformer resume {whole}",
        )
    return part


def check_there(path: Path, at: disk.At) -> None:
    """Refuse to go on if an open folder has another name than `path`, or is gone."""
    if not isinstance(at, int):
        return  # Windows does not let anybody move it
    mine = os.fstat(at)
    with contextlib.suppress(OSError):
        if os.path.samestat(path.stat(), mine):
            return
    if mine.st_nlink == 0:
        raise FolderError(
            f"{path} was removed while it was written to",
            safe="nothing: what had been written is gone with the folder",
            remedy="run again",
        )
    place = disk.name_now(at)
    if place is not None and _is_part(at):  # the whole was moved, and is what goes on
        place = place.parents[1]
    raise FolderError(
        f"{path} was renamed while it was written to",
        safe=f"all that was written before, in {place or 'its new place'}",
        remedy=f"go on there: meanformer resume {place or 'FOLDER'}",
    )


def _is_part(at: disk.At) -> bool:
    try:
        return head(at).inside is not None
    except OSError:
        return False

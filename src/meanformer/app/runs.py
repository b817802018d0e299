"""The run folders that the page can replay. Nothing here imports JAX.

Each folder is judged by itself, whatever it holds: one that cannot be read is listed with the reason, and hides no
other. Nothing is read but regular files of a moderate size, so that nothing waits.
"""

import heapq
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..store.errors import FolderError
from ..store.folder import RunFolder

MOST_LISTED = 500
MOST_BYTES = {"run.json": 2**20, "files.jsonl": 2**24}
"""A longer file is not looked into for the list; the `run.json` of a cloud given by its points may be longer."""
LONGEST = 200
REPLAYED = ("flow", "layers")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+Z-]{5,30}")


def list_runs(root: Path) -> list[dict[str, Any]]:
    """The runs below a folder, newest first; the cases of an experiment one by one.

    Those with words under "damaged" cannot be replayed.
    """
    newest = heapq.nlargest(MOST_LISTED, _folders(root), key=_changed)
    found = [_described(root, folder) for folder in newest]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry["created"], reverse=True)


def find_run(root: Path, name: str) -> Path | None:
    """The folder of a run that `list_runs` names; None for any other name, wherever it may lead."""
    return next((folder for folder in _folders(root) if _name(root, folder) == name and not _odd(folder)), None)


def fault_of(folder: Path) -> str:
    """Why the run in a folder cannot be read, in words; nothing if it can."""
    entry = _described(folder.parent, folder)
    return "" if entry is None else entry["damaged"]


def _folders(root: Path) -> Iterator[Path]:
    """The folder itself, those in it, and the cases in these, if there is something called run.json."""
    inside = _subfolders(root)
    for folder in (root, *inside, *(case for one in inside for case in _subfolders(one / "cases"))):
        if os.path.lexists(folder / "run.json"):
            yield folder


def _subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, and links to folders; hidden ones are on their way in or out."""
    try:
        if folder.name == "cases" and (folder.is_symlink() or folder.parent.is_symlink()):
            return []
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry)]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _changed(folder: Path) -> int:
    try:
        return os.lstat(folder / "run.json").st_mtime_ns
    except OSError:  # removed meanwhile
        return 0


def _size(file: Path) -> int:
    try:
        return os.lstat(file).st_size
    except FileNotFoundError:
        return 0


def _name(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix() if folder != root else root.resolve().name


def _odd(folder: Path) -> str:
    """Why a folder is no place to read from, in words; nothing if it is one."""
    if _utf8(str(folder)) is None:
        return "its name is not UTF-8; rename it"
    if folder.is_symlink():
        return f"it is a link; meanformer explore {_plain(os.path.realpath(folder))} opens what it leads to"
    if not stat.S_ISREG(os.lstat(folder / "run.json").st_mode):
        return "its run.json is not a file"
    return ""


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:  # names of files may hold any bytes
        return None


def _described(root: Path, folder: Path) -> dict[str, Any] | None:
    """What the page shows of a run; None for a run of a kind that it does not show."""
    name = _name(root, folder)
    entry = {"name": name, "shown": _plain(name), "title": "", "kind": "", "created": "", "damaged": ""}
    try:
        if why := _odd(folder):
            return _damaged(entry, why)
        for file, most in MOST_BYTES.items():
            if (size := _size(folder / file)) > most:
                return entry | {"kind": f"not looked into, as its {file} has {size / 2**20:,.1f} MB"}
        return _read(RunFolder(folder).record, entry)
    except FolderError as error:
        return _damaged(entry, error.what)
    except Exception as error:  # a record of any shape: the others are listed all the same
        return _damaged(entry, f"its run.json is not as meanformer writes it ({type(error).__name__})")


def _damaged(entry: dict[str, Any], words: str) -> dict[str, Any]:
    return entry | {"name": "", "damaged": f"Cannot be replayed: {_plain(words)}."}


def _read(record: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any] | None:
    measure = ((record.get("experiment") or {}).get("measure") or {}).get("kind")
    if record.get("kind") not in REPLAYED or measure == "gaussian":
        return None
    created = str(record.get("created", ""))
    title = _plain(str(record.get("title") or record.get("name") or entry["name"]))
    return entry | {"title": title, "kind": record["kind"], "created": created if TIME.fullmatch(created) else ""}


def _plain(text: str) -> str:
    """A text that shows all that it holds: no letters that turn it around, or that cannot be sent."""
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)

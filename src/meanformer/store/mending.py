"""Going on with a run folder that is damaged: what cannot be read is forgotten, and what is known twice made again.

A manifest is made again from the segments, each of which names the one before it, `run.json` from the copy in the first
of them, and the list of files from both.
"""

import contextlib
import itertools
import os
from typing import Any

import numpy as np

from . import disk, ledger
from .arrays import to_segment
from .errors import FolderError, NotARun
from .folder import FORMAT, RunFolder
from .ledger import Ledger, is_inside
from .sealed import seal
from .shapes import check_shape
from .table import kept_tasks
from .writer import Writer


def mend(folder: RunFolder, whole_goes_on: bool = False) -> list[str]:
    """Forget what cannot be read; what that was, in words. `whole_goes_on`: the run which this one is a part of is
    mended, and then computes it again.
    """
    words = _restore_record(folder)
    with folder.held() as writer:
        for part in map(RunFolder, writer.parts()):
            if part.exists() or part.has_lost_record():  # else it had not begun, and begins anew
                if _is_beyond(part):
                    part.clear()
                    part.remove()
                    words.append(f"{part.path.name}, which has lost its run.json and the copy of it")
                else:
                    words += [f"{part.path.name}: {word}" for word in mend(part, whole_goes_on=True)]
        there = _found_segments(folder)
        damaged = writer.ledger.damaged
        newer = writer.list_again(_names_of_segments(folder, there), complete=False)
        if newer and not damaged:  # a copy that was made while the run went on
            writer.list_again(["results.json"], complete=False)
            writer.list_again(_names(folder), complete=False)
            words.append(f"{ledger.NAME}, which was older than the segments")
        listed, whole = _segments(folder, there, words)
        if not whole_goes_on:
            _refuse_the_only_ones(folder, there if listed is None else listed, whole)
        if writer.ledger.damaged:
            writer.list_again([*_names(folder), *_names_of_segments(folder, listed)], complete=True)
            words.append(f"{ledger.NAME}, made again")
        if not _has_whole_results(folder):
            _refuse_unlisted_results(folder, writer)
            words.append("results.json")
        for name, figures in changed_figures(folder).items():
            words += figures
            writer.remove(name)  # who goes on draws them again
        if words:
            writer.remove("results.json")  # first: what is not whole is not done
        if whole != listed:
            writer.write("manifest.json", seal({"segments": whole}))
            folder.forget_manifest()
        lost = sum(not task.is_done() for task in kept_tasks(folder))
        if lost:
            writer.remove("results.json")
            words.append(f"the states of {lost} task{'s' if lost > 1 else ''}")
    return words


def restore_first(folder: RunFolder, arrays: dict[str, np.ndarray]) -> None:
    """Write the first segment again, with the call of the run, if it is damaged and the same bytes can be made."""
    listed = folder.manifest
    if not folder.is_whole(0, listed):
        files, crc32 = to_segment(arrays, {"record": folder.record}, None)
        if crc32 == listed[0]["crc32"]:
            with folder.held() as writer:
                writer.write_folder(f"segments/{listed[0]['name']}", files)


def check_whole(folder: RunFolder) -> None:
    """Read a run, its cases and the tasks that it keeps, with all segments and figures: what is damaged is refused in
    words.
    """
    tasks = kept_tasks(folder)
    for one in (folder, *folder.cases, *tasks):
        if not one.exists() and not one.has_lost_record():
            continue
        for figure in itertools.chain(*changed_figures(one).values()):
            raise FolderError(
                f"{one.path / figure} has changed since the run wrote it, or is gone",
                safe="the run, with all its numbers",
                remedy=f"let it be drawn again: meanformer resume {folder.path} --discard-damaged "
                "(move it away, if it is yours)",
            )
        listed = one.manifest
        for number in range(len(listed)):
            one.read_segment(number, listed)
    for task in tasks:
        if not task.is_done():
            raise FolderError(
                f"the states of task {int(task.path.name)} of the sweep are missing from {task.path}",
                safe="the numbers of the sweep, and the states of the other tasks",
                remedy=f"compute them again: meanformer resume {folder.path} --discard-damaged",
            )


def changed_figures(folder: RunFolder) -> dict[str, list[str]]:
    """The figures of a run that are gone, or have changed since it drew them, by the JSON files that name them."""
    files, found = folder.files, {}
    for name in ("results.json", *(f"items/{item}.json" for item in folder.record.get("items", ()))):
        with contextlib.suppress(FolderError):  # damaged itself
            content = folder.read_json(name) or {}
            drawn = [*_listed(content, "figures"), *_listed(_entries(content, "found"), "figures")]
            names = [one["file"] for one in drawn if isinstance(one, dict) and isinstance(one.get("file"), str)]
            changed = [file for file in names if not _is_as_drawn(file, folder, files)]
            if changed:
                found[name] = changed
    return found


def _is_as_drawn(name: str, folder: RunFolder, files: Ledger | None) -> bool:
    if not is_inside(name):
        return False
    try:
        crc32 = disk.crc32(name, folder.path)
    except (OSError, ValueError):  # no name of a file
        return False
    return files is None or files.fits(name, crc32)


def _refuse_the_only_ones(folder: RunFolder, known: list[Any], whole: list[Any]) -> None:
    """Keep the states of a run from Python that this cannot compute again: one that was saved, or whose call, which is
    in the first segment, is damaged.
    """
    record = folder.record
    saved = "saved" in _entries(_entries(record, "call"), "dict").values()
    if record.get("experiment") is not None or record.get("call") is None or (whole and not saved):
        return
    if any(folder.is_whole(number, known) for number in range(len(whole) + 1, len(known))):
        again = "give the same call in Python, with mf.Journal of this folder, which writes it anew"
        if _is_part(folder):
            again = f"let the whole compute it again: meanformer resume {folder.path.parent.parent} --discard-damaged"
        elif saved:
            again = "save the run again, if you have it, to another folder"
        raise FolderError(
            f"segment {len(whole):06d} of {folder.path} is damaged, and "
            + ("a run that was saved cannot be computed again" if saved else "it holds the call that computes the run"),
            safe="the other segments, which stay: mf.load reads what it can",
            remedy=again,
        )


def _entries(content: dict[str, Any], name: str) -> dict[str, Any]:
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def _listed(content: dict[str, Any], name: str) -> list[Any]:
    found = content.get(name)
    return found if isinstance(found, list) else []


def _is_part(folder: RunFolder) -> bool:
    files = folder.files
    return files is not None and files.place is not None


def _segments(folder: RunFolder, there: list[Any], words: list[str]) -> tuple[list[Any] | None, list[Any]]:
    """What the manifest lists, None if it cannot be read, and the segments that are whole, from the first one on."""
    try:
        listed = folder.manifest
    except FolderError:
        words.append(f"manifest.json, made again from {len(there)} segments")
        listed = None
    known = there if listed is None or there[: len(listed)] == listed else listed
    whole = known[: next((k for k in range(len(known)) if not folder.is_whole(k, known)), len(known))]
    if listed is not None and len(whole) > len(listed):
        words.append(f"manifest.json, which was older than {len(whole) - len(listed)} of the segments")
    if listed is not None and len(whole) < len(listed):
        words.append(f"segment {len(whole)} and those after it")
    return listed, whole


def _has_whole_results(folder: RunFolder) -> bool:
    try:
        _ = folder.results
    except FolderError:
        return False
    return True


def _refuse_unlisted_results(folder: RunFolder, writer: Writer) -> None:
    """It is not ours to remove."""
    path = folder.path / "results.json"
    if "results.json" not in writer.ledger.names and os.path.lexists(path):
        raise FolderError(
            f"{path} is in the way: it is not in the list of files that the run wrote",
            safe="it is as it was, and so is the run",
            remedy="move it away, then give the command again",
        )


def _names(folder: RunFolder) -> list[str]:
    """The names of the files that a run is known to write, but for its segments."""
    names = ["run.json", "manifest.json", "results.json", "report.html"]
    with contextlib.suppress(FolderError):
        names += [one["file"] for one in (folder.results or {}).get("figures") or [] if "file" in one]
    record = folder.record
    return names + [f"items/{name}.json" for name in record.get("items", ())] + [record.get("input", "run.json")]


def _names_of_segments(folder: RunFolder, listed: list[dict[str, Any]] | None) -> list[str]:
    names: list[str] = []
    for entry in listed or ():
        with contextlib.suppress(OSError, ValueError):
            files = folder.about(entry["name"], listed=False)[0]["files"]
            names += [f"segments/{entry['name']}/{file}" for file in (*files, "segment.json")]
    return names


def _found_segments(folder: RunFolder) -> list[dict[str, Any]]:
    """The segments that follow one another, without a manifest: those of the list, and those that nobody listed."""
    listed: list[dict[str, Any]] = []
    files = folder.files
    with contextlib.suppress(OSError, ValueError):
        while True:
            name = f"{len(listed):06d}"
            known = files is not None and f"segments/{name}/segment.json" in files.names
            content, crc = folder.about(name, listed=known)
            if content.get("after") != (listed[-1]["crc32"] if listed else None):
                break
            listed.append({"name": name, "crc32": crc})
    return listed


def _restore_record(folder: RunFolder) -> list[str]:
    """Write `run.json` again from its copy, if it cannot be read."""
    try:
        _ = folder.record
        return []
    except FolderError as error:
        files = folder.files
        if isinstance(error, NotARun) and (files is None or "run.json" not in files.names):
            raise
        if _is_beyond(folder):
            raise FolderError(
                f"{error.what}; the copy in its first segment cannot be read either",
                safe="all else that it wrote",
                remedy="restore run.json from a copy of yours, or run again with --overwrite"
                if not _is_part(folder)
                else f"let the whole go on without it: meanformer resume {folder.path.parent.parent} --discard-damaged",
            ) from error
        try:
            record = _copy_of_record(folder)
        except (OSError, ValueError, KeyError):
            raise error from None
        if record.get("format") != FORMAT:
            raise
    with contextlib.closing(Writer(folder.path, folder.inside)) as writer:
        writer.list_again(["run.json"], complete=False)
        writer.write("run.json", seal(record))
    return ["run.json, restored from its copy"]


def _copy_of_record(folder: RunFolder) -> dict[str, Any]:
    """The copy of `run.json` in the first segment."""
    return check_shape("run.json", folder.about("000000")[0]["note"]["record"])


def _is_beyond(folder: RunFolder) -> bool:
    """Whether neither `run.json` nor its copy is there, and whole: nothing can read the rest. What the disk refuses to
    read may be whole.
    """
    try:
        if folder.read_json("run.json") is not None:
            return False
    except FolderError as error:
        if isinstance(error.__cause__, OSError):
            return False
    try:
        _copy_of_record(folder)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError):
        return True
    except OSError:
        return False
    return False

"""Run folders among other people's files: what is removed, what is written where, and what damage and oddities do."""

import contextlib
import errno
import os
import random
import shutil
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf
from meanformer.store import disk, ledger, lock
from meanformer.store.folder import RunFolder
from meanformer.store.sealed import seal, unseal
from store.runs import bits, rewrite, shrinking


def names(path: Path) -> set[str]:
    return {p.relative_to(path).as_posix() for p in path.rglob("*") if not p.is_dir() or p.is_symlink()}


OWN = {ledger.NAME, lock.NAME}


# What is removed


def test_only_what_a_run_wrote_is_removed(path):
    others = [".git/config", ".env", "figures/mine.png", "notes.txt", "cases/mine/run.json"]
    for name in others:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    assert RunFolder(path).clear() == sorted(others)
    assert names(path) == {*others, *OWN}
    assert all((path / name).read_text() == "mine" for name in others)


@pytest.mark.parametrize("name", ["segments/000001/mine", "segments/mine", "segments/000002/times/c/.1.meanformer.tmp"])
def test_what_would_be_in_the_way_of_the_next_run_stops_a_removal(name, path, whole):
    """Segments are written as whole folders, into which nothing else fits."""
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("mine")
    with pytest.raises(mf.FolderError, match=f"in the way, in .*: {name}") as error:
        RunFolder(path).clear()
    assert error.value.safe == "nothing was removed"
    assert bits(mf.load(path)) == bits(whole)
    (path / name).unlink()
    assert RunFolder(path).clear() == []


def test_an_empty_folder_would_be_too(path):
    (path / "segments/000001/mine").mkdir()
    with pytest.raises(mf.FolderError, match=r"in the way, in .*: segments/000001/mine/"):
        RunFolder(path).clear()
    (path / "segments/000001/mine").rmdir()
    shutil.rmtree(path / "segments/000002")
    (path / "segments/000002/times/c").mkdir(parents=True)  # as a removal leaves it that was killed
    assert RunFolder(path).clear() == []


def test_a_segment_that_was_being_written_is_not_in_the_way(path):
    (path / "segments/000002").rename(path / "segments/.000002.meanformer.tmp")
    assert RunFolder(path).clear() == []


def test_a_run_goes_on_beside_what_was_kept(path, whole):
    (path / "notes.txt").write_text("mine")
    RunFolder(path).clear()
    assert bits(shrinking(mf.Journal(path))) == bits(whole)
    assert (path / "notes.txt").read_text() == "mine"


def test_links_are_neither_followed_nor_removed(path, tmp_path):
    """A listed file that somebody has replaced by a link, and folders that lead elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "paths.svg").write_text("mine")
    (path / "report.html").unlink()
    (path / "report.html").symlink_to(elsewhere / "paths.svg")
    (path / "figures" / "paths.svg").unlink()
    (path / "figures").rmdir()
    (path / "figures").symlink_to(elsewhere)
    assert RunFolder(path).clear() == ["figures", "report.html"]
    assert (elsewhere / "paths.svg").read_text() == "mine"
    # Nothing is written through them either.
    with pytest.raises(mf.FolderError, match="a link is in the place of a folder"):
        RunFolder(path).put("figures/new.svg", b"x")
    assert names(elsewhere) == {"paths.svg"}


@pytest.mark.parametrize("name", ["../mine", "/mine", "figures/../../mine", "", ".", "a//b"])
def test_a_list_leads_nowhere_else(name, path, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (path / ledger.NAME).write_bytes((path / ledger.NAME).read_bytes() + ledger.line([name, 0]))
    RunFolder(path).clear()
    assert (tmp_path / "mine").read_text() == "mine"
    with pytest.raises(ValueError, match="leads out"):
        RunFolder(path).put(name, b"x")


def test_a_linked_folder_and_the_working_folder(path, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(path)
    assert RunFolder(tmp_path / "link").clear() == []
    assert (tmp_path / "link").is_symlink() and names(path) == OWN
    shrinking(mf.Journal(path))
    monkeypatch.chdir(path)
    assert RunFolder(".").clear() == []
    RunFolder(".").remove()  # as far as that is possible
    assert names(path) == set()


def test_a_damaged_list_removes_nothing_before_it_is_mended(path):
    """And then too little, not too much."""
    data = (path / ledger.NAME).read_bytes().splitlines(keepends=True)
    at = next(k for k, line in enumerate(data) if b"paths.svg" in line)
    data[at] = data[at].replace(b"paths", b"pathz")
    (path / ledger.NAME).write_bytes(b"".join(data))
    before = names(path)
    with pytest.raises(mf.FolderError, match="no whole list of the files"):
        RunFolder(path).clear()
    assert names(path) == before
    RunFolder(path).discard_damaged()
    assert RunFolder(path).clear() == ["figures/paths.svg"]


def test_without_a_list_nothing_is_removed(path):
    (path / ledger.NAME).unlink()
    before = names(path)
    with pytest.raises(mf.FolderError, match="no whole list of the files"):
        RunFolder(path).clear()
    assert names(path) == before


def test_what_is_in_the_way_is_not_overwritten(path):
    RunFolder(path).clear()
    (path / "manifest.json").write_text("mine")
    with pytest.raises(mf.FolderError, match=r"manifest\.json is in the way"):
        shrinking(mf.Journal(path))
    assert (path / "manifest.json").read_text() == "mine"


# Who writes, and where


@pytest.mark.skipif(not disk.DESCRIPTORS, reason="no descriptors of folders")
@pytest.mark.parametrize("what", ["renamed", "removed", "replaced"])
def test_a_folder_that_is_moved_during_a_run(what, tmp_path, whole, monkeypatch):
    path, keep, count = tmp_path / "run", mf.Journal.keep, [0]

    def moved(self, *args):
        keep(self, *args)
        count[0] += 1
        if count[0] == 2:
            path.rename(tmp_path / "new")
            if what == "removed":
                shutil.rmtree(tmp_path / "new")
            if what == "replaced":
                path.mkdir()

    journal = mf.Journal(path, every=0)
    with monkeypatch.context() as patch:
        patch.setattr(mf.Journal, "keep", moved)
        with pytest.raises(mf.FolderError, match="was removed" if what == "removed" else "was renamed") as caught:
            shrinking(journal)
    journal.close()
    # Nothing is made again under the old name.
    assert names(path) == set() if what == "replaced" else not path.exists()
    if what != "removed":
        assert str(tmp_path / "new") in caught.value.safe
        assert f"meanformer resume {tmp_path / 'new'}" in caught.value.remedy
        assert len(mf.load(tmp_path / "new").times) == 3
        assert bits(shrinking(mf.Journal(tmp_path / "new"))) == bits(whole)


def test_parts_of_a_run_that_was_moved_are_not_made(tmp_path):
    """A worker of a sweep knows the sweep by its mark, not by the name of its folder."""
    sweep = RunFolder(tmp_path / "sweep")
    with sweep.held():
        sweep.create({"kind": "sweep"}, {})
        task = sweep.part("tasks", "000000")
        with task.held():
            task.create({"kind": "flow"}, {})
        (tmp_path / "sweep").rename(tmp_path / "new")
        RunFolder(tmp_path / "sweep").create({"kind": "sweep"}, {})
        other = RunFolder(tmp_path / "sweep" / "tasks" / "000001", inside=task.inside)
        with pytest.raises(mf.FolderError, match="renamed or removed while its runs"):
            other.hold()
        assert not (tmp_path / "sweep" / "tasks").exists()
    assert RunFolder(tmp_path / "new").clear() == []
    assert names(tmp_path / "new") == OWN


def test_a_file_system_without_locks_is_told_and_written_to(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        return flock

    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOLCK))
    with pytest.warns(UserWarning, match="knows no locks"):
        RunFolder(tmp_path / "run").put("a", b"x")
    monkeypatch.setattr(fcntl, "flock", refuse(errno.EAGAIN))
    with pytest.raises(mf.FolderError, match="this very process is writing"):
        RunFolder(tmp_path / "run").put("b", b"x")
    (tmp_path / "run" / lock.NAME).write_text("meanformer 1")
    with pytest.raises(mf.FolderError, match="another process is writing"):
        RunFolder(tmp_path / "run").put("b", b"x")


# Damage


FILES = ("run.json", "manifest.json", "results.json", "segments/000002/segment.json", ledger.NAME)


def read_all(path: Path) -> mf.Trajectory:
    folder = RunFolder(path)
    _ = folder.record, folder.results, folder.status
    run = mf.load(path)
    _ = run.saved
    return run


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_found_and_mended(name, path, whole):
    """A flip is told in words, or does not matter; what is forgotten is computed again, to the same bits."""
    data, draw = (path / name).read_bytes(), random.Random(name)
    places, found = {0, 1, len(data) - 2, *draw.choices(range(len(data) - 1), k=25)}, 0
    for place in sorted(places):
        damaged = bytearray(data)
        damaged[place] ^= 1 << draw.randrange(8)
        (path / name).write_bytes(damaged)
        try:
            assert bits(read_all(path)) == bits(whole)
        except mf.FolderError as error:
            assert Path(name).name in error.what or "segment 000002" in error.what
            assert "--discard-damaged" in error.remedy
            found += 1
        (path / name).write_bytes(data)
    assert found == (0 if name == ledger.NAME else len(places))  # what the list says is not needed for reading
    (path / name).write_bytes(data.replace(b"e", b"f", 3))
    RunFolder(path).discard_damaged()
    assert bits(shrinking(mf.Journal(path))) == bits(whole) == bits(mf.load(path))
    assert RunFolder(path).discard_damaged() == []


def test_a_digit_of_a_result_is_not_shown(path):
    data = (path / "results.json").read_bytes()
    (path / "results.json").write_bytes(data.replace(b"1.25", b"1.75"))
    with pytest.raises(mf.FolderError, match="it has changed since it was written"):
        _ = RunFolder(path).results
    assert RunFolder(path).discard_damaged() == ["results.json"]


def test_a_figure_that_has_changed_is_told_apart(path):
    folder = RunFolder(path)
    assert folder.files.fits("figures/paths.svg", zlib.crc32(b"<svg/>"))
    assert not folder.files.fits("figures/paths.svg", zlib.crc32(b"<svg />"))
    assert not folder.files.fits("figures/mine.svg", zlib.crc32(b"<svg/>"))
    folder.put("figures/paths.svg", b"<svg></svg>")
    assert folder.files.fits("figures/paths.svg", zlib.crc32(b"<svg></svg>"))


def unlisted(path, data):
    (path / ledger.NAME).unlink()


def headless(path, data):
    (path / ledger.NAME).write_bytes(b"".join(data.splitlines(keepends=True)[1:]))


def holed(path, data):
    lines = data.splitlines(keepends=True)
    (path / ledger.NAME).write_bytes(
        b"".join(line[:20] + b"?" + line[21:] if b"json" in line else line for line in lines)
    )


@pytest.mark.parametrize("harm", [unlisted, headless, holed])
@pytest.mark.parametrize("between", ["nothing", "report", "resume", "record"])
def test_a_lost_list_can_be_mended_whatever_was_tried_before(harm, between, path, whole):
    harm(path, (path / ledger.NAME).read_bytes())
    if between == "report" and harm is unlisted:
        with RunFolder(path).watched() as folder:
            folder.put_beside("report.html", b"<html>again")
    if between == "record":
        (path / "run.json").write_bytes(b"damaged")
    with contextlib.suppress(mf.FolderError):
        if between == "resume":
            RunFolder(path).put("results.json", {"status": "done"})
    if harm is unlisted and between != "resume":
        with pytest.raises(mf.FolderError, match="no whole list"):
            RunFolder(path).clear()
    assert RunFolder(path).discard_damaged() != []
    assert RunFolder(path).discard_damaged() == []
    RunFolder(path).put("results.json", {"status": "done"})
    assert bits(shrinking(mf.Journal(path))) == bits(whole)
    left = RunFolder(path).clear()
    assert set(left) <= {"figures/paths.svg"}  # of which nobody knows any more


def test_a_copy_that_is_newer_than_its_list_goes_on(path, tmp_path, whole):
    """As a backup makes it while the run goes on: first the list, then the segments."""
    folder = RunFolder(tmp_path / "copy")
    shutil.copytree(path, folder.path)
    count = len(folder.manifest)
    lines = (folder.path / ledger.NAME).read_bytes().splitlines(keepends=True)
    last = f"segments/{count - 1:06d}".encode()
    (folder.path / ledger.NAME).write_bytes(b"".join(line for line in lines if last not in line))
    rewrite(folder.path / "manifest.json", segments=folder.manifest[:-1])
    (folder.path / "results.json").unlink()
    with pytest.raises(mf.FolderError, match="--discard-damaged lists it again"):
        shrinking(mf.Journal(folder.path))
    folder.discard_damaged()
    assert bits(shrinking(mf.Journal(folder.path))) == bits(whole)


def test_parts_that_had_not_begun_and_parts_of_a_lost_list(tmp_path):
    sweep = RunFolder(tmp_path / "sweep")
    with sweep.held():
        sweep.create({"kind": "sweep"}, {})
        for name in ("000000", "000001"):
            with sweep.part("tasks", name).held() as part:
                part.write("a", b"x")
        sweep.part("tasks", "000001").create({"kind": "flow"}, {})
    (sweep.path / ledger.NAME).unlink()
    assert sweep.discard_damaged() == [f"{ledger.NAME}, made again"]
    assert sweep.clear() == []


def test_a_name_that_was_cut_off_is_listed_again(path, monkeypatch):
    """A disk that is full in the middle of a line, and the same process tries again."""
    real, count = os.write, [0]

    def short(descriptor, data):
        count[0] += 1
        if count[0] == 1:
            return real(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = RunFolder(path)
    with folder.held() as held:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(OSError, match="No space"):
                held.write("figures/new.svg", b"x")
        held.write("figures/new.svg", b"x")
    assert "figures/new.svg" in folder.files.names
    assert not folder.files.damaged


def test_a_record_that_could_not_be_read_is_refused_before_the_run(tmp_path):
    with pytest.raises(mf.FolderError, match=r"could not be read again: name: .*, got 7"):
        shrinking(mf.Journal(tmp_path / "run", record={"name": 7}))
    assert names(tmp_path / "run") == OWN


def test_a_part_is_not_made_through_a_link(tmp_path):
    sweep = RunFolder(tmp_path / "sweep")
    (tmp_path / "elsewhere").mkdir()
    with sweep.held():
        sweep.create({"kind": "sweep"}, {})
        (sweep.path / "tasks").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(NotADirectoryError):
            sweep.part("tasks", "000000").hold()
    assert names(tmp_path / "elsewhere") == set()


def test_a_lost_manifest_loses_nothing(path):
    count = len(RunFolder(path).manifest)
    (path / "manifest.json").unlink()
    with pytest.raises(mf.FolderError, match="lost its manifest"):
        mf.load(path)
    assert RunFolder(path).discard_damaged() == [f"manifest.json, made again from {count} segments"]
    assert len(RunFolder(path).manifest) == count


def test_a_damaged_record_is_restored(path):
    before = RunFolder(path).record
    (path / "run.json").write_bytes(b"\0" * 500)
    assert RunFolder(path).discard_damaged() == ["run.json, restored from its copy"]
    assert RunFolder(path).record == before


def test_seals():
    content = {"a": [1, 2.5, None, "ä\ud800"], "checksum": "mine"}
    assert unseal(seal(content)) == content
    for data in (b"", b"{}", seal(content)[:-1], seal(content) + b" ", b"[" * 100_000):
        with pytest.raises(ValueError, match="has changed"):
            unseal(data)


ODD = [None, True, 3, -1, 1e300, "x", "", "../x", [], [[]], {}, {"a": 1}, ["x", None], 10**30]


@pytest.mark.parametrize("name", ["run.json", "manifest.json", "results.json", "segments/000001/segment.json"])
def test_odd_content_gets_words(name, path):
    """Whole files, with right sums, in which one entry is something else."""
    data = (path / name).read_bytes()
    content, listed = unseal(data), RunFolder(path).manifest
    for key, odd in [(key, odd) for key in content for odd in ODD if odd != content[key]]:
        rewrite(path / name, **{key: odd})
        if name.startswith("segments"):  # as it is listed
            listed[1]["crc32"] = zlib.crc32((path / name).read_bytes())
            (path / "manifest.json").write_bytes(seal({"segments": listed}))
        with contextlib.suppress(mf.FolderError, mf.InputError):
            read_all(path)
        with contextlib.suppress(mf.FolderError, mf.InputError):
            RunFolder(path).discard_damaged()
        (path / name).write_bytes(data)


def test_odd_nodes_get_words(path):
    """Whatever stands in the place of the run itself."""
    folder = RunFolder(path)
    arrays, note = folder.read_segment(len(folder.manifest) - 1)
    draw, seen = random.Random(1), set()

    def holes(node, place=()):
        yield place
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in inner:
            yield from holes(value, (*place, key))

    def changed(node, place, odd):
        if not place:
            return odd
        copy = dict(node) if isinstance(node, dict) else list(node)
        copy[place[0]] = changed(node[place[0]], place[1:], odd)
        return copy

    odd_nodes = [*ODD[:4], "x", [], {}, {"class": "meanformer.__main__:app", "fields": {}}, {"class": 3}]
    odd_nodes += [{"enum": "meanformer.outcome:Ending", "value": 99}, {"float": "x"}, {"jax": "no"}, {"tuple": 3}]
    odd_nodes += [{"class": "meanformer.attention.softmax:Softmax", "fields": {}}, {"jax": [[1], 2], "dtype": "f8"}]
    places = [place for place in holes(note["final"]) if place]
    for place in draw.sample(places, 60):
        odd = draw.choice(odd_nodes)
        folder.add_segment(arrays, note | {"final": changed(note["final"], place, odd)})
        try:
            run = mf.load(path)
            _ = run.saved, run.outcome
        except (mf.FolderError, mf.InputError) as error:
            seen.add(type(error))
        rewrite(path / "manifest.json", segments=folder.manifest[:-1])
    assert seen == {mf.FolderError, mf.InputError}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["run.json", "results.json", "manifest.json", ledger.NAME])
def test_a_pipe_is_not_waited_for(name, path):
    (path / name).unlink()
    os.mkfifo(path / name)
    told = []

    def read():
        try:
            RunFolder(path).put("a", b"x")
            _ = RunFolder(path).results, RunFolder(path).manifest, RunFolder(path).record
        except (mf.FolderError, OSError) as error:
            told.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(120)
    assert told and ("not a file" in told[0] or "lost its run.json" in told[0])


@pytest.mark.parametrize("content", [b"[" * 200_000, b"\xff\xfe", b"", b'{"format": 1}', b'{"format": NaN}', b"3"])
def test_files_that_no_run_wrote(content, path):
    (path / "run.json").write_bytes(content)
    with pytest.raises(mf.FolderError):
        _ = RunFolder(path).record
    with pytest.raises(mf.FolderError):
        mf.load(path)


@pytest.mark.parametrize("name", ["x" * 300, "ü" * 140, "a\nb", "-rf", "näme with spaces", "\udcff"])
def test_odd_names_of_folders(name, tmp_path, whole):
    """They work, or are refused in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            shrinking(mf.Journal(tmp_path / name))
        except mf.FolderError as error:
            assert len(name.encode(errors="surrogateescape")) > 255
            assert "too long" in error.what
            return
    assert bits(mf.load(tmp_path / name)) == bits(whole)
    assert np.array_equal(mf.load(tmp_path / name).points, whole.points)

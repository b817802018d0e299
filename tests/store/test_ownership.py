"""Whose a file is, and which folder: names that others use too, files of other runs, copies, folders that move."""

import contextlib
import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf
from meanformer.app.runs import list_runs
from meanformer.report.run import write_report
from meanformer.store import disk, ledger, lock
from meanformer.store.folder import RunFolder
from meanformer.store.places import holds_other_things
from meanformer.store.sealed import seal
from report._folders import folder as made_by_hand
from report._folders import record, results
from store.runs import bits, shrinking


@pytest.fixture
def other(tmp_path):
    """The run of other tokens."""
    field, tokens = mf.Affine(-np.eye(2)), mf.PointCloud(np.ones((3, 2)))
    mf.layers(field, tokens, 30, journal=mf.Journal(tmp_path / "other", every=0))
    RunFolder(tmp_path / "other").put("results.json", {"status": "done", "numbers": {"radius": 7.5}})
    return tmp_path / "other"


# Names that others use too


@pytest.mark.parametrize(
    ("name", "content"), [(ledger.NAME, '{"id": 1}\n'), (ledger.NAME, ""), (lock.NAME, "secret"), (lock.NAME, "4242")]
)
def test_a_file_of_somebody_else_under_our_names_is_not_touched(name, content, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text(content)
    assert holds_other_things(tmp_path / "mine")
    with pytest.raises(mf.FolderError, match="in the way"):
        shrinking(mf.Journal(tmp_path / "mine"))
    assert (tmp_path / "mine" / name).read_text() == content
    assert not (tmp_path / "mine" / "run.json").exists()


def test_a_file_with_a_second_name_elsewhere_keeps_its_bytes(path, tmp_path):
    """A copy by links, as backups make them: what goes on here does not change it."""
    before = {}
    for name in (ledger.NAME, lock.NAME):
        os.link(path / name, tmp_path / f"backup of {name}")
        before[name] = (path / name).read_bytes()
    (path / lock.NAME).write_text("meanformer 77")
    RunFolder(path).put("figures/new.svg", b"x")
    assert (tmp_path / f"backup of {ledger.NAME}").read_bytes() == before[ledger.NAME]
    assert (tmp_path / f"backup of {lock.NAME}").read_text() == "meanformer 77"


def test_copies_and_changed_files_are_not_removed(tmp_path):
    """A case that somebody has copied under another name is not a part of the run, though it knows its mark."""
    cases = RunFolder(tmp_path / "cases of mine")
    with cases.held():
        cases.create({"kind": "cases", "cases": ["one"]}, {})
        cases.part("cases", "one").create({"kind": "flow"}, {})
        cases.part("cases", "one").put("figures/a.svg", b"<svg/>")
    shutil.copytree(cases.path / "cases/one", cases.path / "cases/backup")
    (cases.path / "cases/one/figures/a.svg").write_text("my own notes")
    with pytest.raises(mf.FolderError, match=r"changed since the run wrote it.*cases/one/figures/a.svg"):
        cases.clear()
    assert cases.exists()
    (cases.path / "cases/one/figures/a.svg").write_bytes(b"<svg/>")
    (cases.path / "cases/one/note").write_text("mine")
    kept = cases.clear()
    assert "cases/one/note" in kept
    assert not [name for name in kept if name.startswith("cases/one/") and name != "cases/one/note"]
    assert (cases.path / "cases/backup/run.json").exists()


def test_nothing_is_removed_if_something_is_in_the_way_below(tmp_path):
    cases = RunFolder(tmp_path / "run")
    with cases.held():
        cases.create({"kind": "cases", "cases": ["one"]}, {})
        cases.part("cases", "one").create({"kind": "flow"}, {})
    (cases.path / "cases/one" / lock.NAME).unlink()
    (cases.path / "cases/one" / lock.NAME).mkdir()
    with pytest.raises(mf.FolderError, match="a folder is in the place of a file"):
        cases.clear()
    assert cases.exists()


@pytest.mark.parametrize("name", ["x" * 300, "\ud800x"])
def test_names_that_no_file_can_have_are_not_listed(name, path):
    with (path / ledger.NAME).open("ab") as file:
        file.write(ledger.line([name, 3]))
    assert RunFolder(path).clear() == []


# Runs that are not whole


@pytest.mark.parametrize(
    "call", [lambda path: shrinking(mf.Journal(path)), lambda path: RunFolder(path).put("a", b"x")]
)
def test_a_run_that_has_lost_its_record_is_not_taken_for_a_free_folder(call, path, whole):
    (path / "run.json").unlink()
    with pytest.raises(mf.FolderError, match=r"lost its run\.json"):
        call(path)
    with pytest.raises(mf.FolderError, match=r"lost its run\.json"):
        mf.load(path)
    assert RunFolder(path).discard_damaged()[0] == "run.json, restored from its copy"
    assert bits(mf.load(path)) == bits(whole)


def test_a_removal_that_was_interrupted_leaves_a_free_folder(path, monkeypatch):
    """What is left of it is not a run that has lost its record."""
    real = disk.remove_file

    def fail_later(name, at):
        real(name, at)
        if name == "run.json":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(disk, "remove_file", fail_later)
        RunFolder(path).clear()
    assert (path / "segments").exists()
    assert not RunFolder(path).has_lost_record()
    shrinking(mf.Journal(path))


def test_a_line_that_was_cut_off_does_not_blind_the_list(path):
    """It goes before the next one is written: what has changed is still told apart."""
    with (path / ledger.NAME).open("ab") as file:
        file.write(b"0000 torn\0\0")
    RunFolder(path).put("figures/new.svg", b"<svg/>")
    assert not RunFolder(path).files.damaged
    (path / "figures/paths.svg").write_text("my own notes")
    with pytest.raises(mf.FolderError, match=r"changed since the run wrote it.*figures/paths\.svg"):
        RunFolder(path).clear()


def test_a_run_that_goes_on_after_a_removal_that_was_interrupted_is_a_run_again(path):
    with (path / ledger.NAME).open("ab") as file:
        file.write(ledger.line(ledger.CLEARING))
    RunFolder(path).put("figures/new.svg", b"<svg/>")
    (path / "run.json").unlink()
    assert RunFolder(path).has_lost_record()


def test_a_copy_of_a_case_that_is_mended_is_no_case(tmp_path):
    cases = RunFolder(tmp_path / "run")
    with cases.held():
        cases.create({"kind": "cases", "cases": ["one"]}, {})
        cases.part("cases", "one").create({"kind": "flow"}, {})
    copy = RunFolder(shutil.copytree(cases.path / "cases/one", cases.path / "cases/backup"))
    lines = (copy.path / ledger.NAME).read_bytes().splitlines(keepends=True)
    (copy.path / ledger.NAME).write_bytes(lines[0] + b"".join(line for line in lines[1:] if b"segments" not in line))
    assert copy.discard_damaged()
    cases.clear()
    assert copy.exists()


def test_a_report_beside_a_run_leaves_the_list_of_its_holder(path, tmp_path):
    """A copy by links is made while a run goes on, then a report: the run goes on in the same list."""
    folder = RunFolder(path)
    with folder.held():
        os.link(path / ledger.NAME, tmp_path / "backup")
        with RunFolder(path).watched() as seen:
            seen.put_beside("report.html", b"<html>again")
        folder.put("results.json", {"status": "done", "numbers": {}})
    assert RunFolder(path).results is not None


def test_results_that_nobody_listed_are_named_and_kept(path, other, tmp_path):
    """In a run that has none: they are not ours to remove, and the command does not say the same again."""
    shrinking(mf.Journal(tmp_path / "new"))
    shutil.copy(other / "results.json", tmp_path / "new" / "results.json")
    with pytest.raises(mf.FolderError, match="move it away"):
        RunFolder(tmp_path / "new").discard_damaged()
    (tmp_path / "new" / "results.json").unlink()
    assert RunFolder(tmp_path / "new").discard_damaged() == []


@pytest.mark.parametrize("name", ["run.json", "results.json", "segments"])
def test_files_of_another_run_are_told_apart(name, path, other, whole):
    """Each is whole by itself, as after a copy to the wrong place."""
    if name == "segments":
        shutil.rmtree(path / name)
        shutil.copytree(other / name, path / name)
        shutil.copy(other / "manifest.json", path / "manifest.json")
    else:
        shutil.copy(other / name, path / name)
    with pytest.raises(mf.FolderError, match="it is whole, but another run wrote it"):
        _ = RunFolder(path).results, mf.load(path).points
    RunFolder(path).discard_damaged()
    assert bits(shrinking(mf.Journal(path))) == bits(whole)


def test_an_older_manifest_is_made_again(path, whole):
    listed = RunFolder(path).manifest
    (path / "manifest.json").write_bytes(seal({"segments": listed[:2]}))
    assert mf.load(path).outcome.kind == "UNFINISHED"
    words = RunFolder(path).discard_damaged()
    assert words == [f"manifest.json, which was older than {len(listed) - 2} of the segments"]
    assert RunFolder(path).manifest == listed
    assert bits(mf.load(path)) == bits(whole)


@pytest.mark.parametrize("name", ["results.json", "manifest.json", "run.json", ledger.NAME, lock.NAME])
@pytest.mark.parametrize("what", ["folder", "pipe", "link"])
def test_mending_ends_in_words_whatever_is_in_the_way(name, what, path):
    (path / name).unlink()
    make = {"folder": os.mkdir, "pipe": os.mkfifo, "link": lambda place: place.symlink_to("/nowhere")}
    make[what](path / name)
    with contextlib.suppress(mf.FolderError):  # and no other error
        RunFolder(path).discard_damaged()


# Folders that move


@pytest.mark.skipif(not disk.DESCRIPTORS, reason="no descriptors of folders")
@pytest.mark.parametrize("what", ["renamed", "removed", "replaced", "linked"])
def test_a_folder_that_moves_while_its_report_is_made(what, tmp_path, monkeypatch):
    """Nothing is written under the old name, and nothing into what stands there now."""
    path = made_by_hand(tmp_path / "run", record(), results())
    (tmp_path / "mine").mkdir()

    def move(*_):
        shutil.move(path, tmp_path / "moved")
        if what == "removed":
            shutil.rmtree(tmp_path / "moved")
        if what == "replaced":
            path.mkdir()
        if what == "linked":
            path.symlink_to(tmp_path / "mine")
        return "<html>"

    monkeypatch.setattr("meanformer.report.page.Page.html", move)
    with pytest.raises(mf.FolderError, match="was removed while" if what == "removed" else "was renamed while"):
        write_report(path)
    assert not path.exists() or not list(path.iterdir())
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.skipif(not disk.DESCRIPTORS, reason="no descriptors of folders")
def test_parts_are_not_made_in_a_copy(tmp_path):
    """It has the mark of the run, but is not its folder."""
    cases = RunFolder(tmp_path / "run")
    with cases.held():
        cases.create({"kind": "cases", "cases": ["one"]}, {})
        part = cases.part("cases", "one")
        cases.path.rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", cases.path)
        with pytest.raises(mf.FolderError, match="was renamed or removed"):
            part.create({"kind": "flow"}, {})
    assert not (cases.path / "cases").exists()


def test_a_folder_without_permission_hides_no_run(tmp_path, monkeypatch):
    """As for anybody but root, to whom nothing is forbidden."""
    made_by_hand(tmp_path / "good", record(), results())
    (tmp_path / "closed").mkdir(mode=0)
    real = Path.lstat

    def lstat(self):
        if self.parent.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return real(self)

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(PermissionError):
        (tmp_path / "closed" / "cases").is_symlink()
    assert [run["name"] for run in list_runs(tmp_path)] == ["good"]


# What is given


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("path", [None, 0.5, b"runs", ["runs"], "", "a\0b", "\ud800"])
@pytest.mark.parametrize("call", [mf.load, mf.load_table, mf.Journal, lambda path: shrinking().save(path)])
def test_paths_that_are_none(call, path):
    with pytest.raises(mf.InputError, match="a run folder is named by its path"):
        call(path)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("every", [-1, np.nan, "a", None, np.ones(2)])
def test_times_that_are_none(every, tmp_path):
    with pytest.raises(mf.InputError, match="every must be"):
        mf.Journal(tmp_path / "run", every=every)


BAD_RECORDS = [[1], "abc", {1: 2}, {"format": 99}, {"kind": "sweep"}, {"experiment": {}}, {"input": "../x"}]
BAD_RECORDS += [{"x": np.nan}, {"x": object()}, {"x": np.ones(2)}, {"title": "\ud800"}]


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("entries", BAD_RECORDS)
def test_entries_that_no_record_can_take(entries, tmp_path):
    with pytest.raises(mf.InputError, match="record"):
        mf.Journal(tmp_path / "run", record=entries)
    assert not (tmp_path / "run").exists()

"""Run folders that come from others: links that lead out, a few bytes that ask for much memory, parts of other runs."""

import contextlib
import json
import os
import shutil
import sys
import traceback
import tracemalloc
import zlib

import numpy as np
import pytest

import meanformer as mf
from meanformer.app.runs import list_runs
from meanformer.report.run import write_report
from meanformer.store import codec, disk, ledger
from meanformer.store.arrays import from_files, to_files
from meanformer.store.folder import RunFolder
from meanformer.store.ledger import Ledger
from meanformer.store.writer import Writer
from report._folders import folder as made_by_hand
from report._folders import record, results
from store.runs import shrinking

links = pytest.mark.skipif(not disk.DESCRIPTORS, reason="no descriptors of folders")


def move_out(place, outside):
    """Put a link where something was."""
    shutil.move(place, outside)
    place.symlink_to(outside)


# Words


class Odd(Exception):
    """What its words are made of cannot be changed."""

    @property
    def args(self):
        return (HOSTILE,)


def test_what_is_raised_does_not_speak_to_the_terminal(tmp_path):
    """A traceback is printed as it is, with the errors before."""
    RunFolder(tmp_path / "run").create({"kind": HOSTILE, "name": "x"}, {})
    for read in (mf.load, mf.load_table):
        with pytest.raises(mf.FolderError) as found:
            read(tmp_path / "run")
        assert "x\\x1b]0;owned\\x07\\n\\u202e" in str(found.value)
        assert not obeyed(found.value)
    assert not obeyed(mf.InputError(*[HOSTILE] * 4))


@pytest.mark.parametrize("error", [TypeError, AttributeError, ValueError])
def test_what_was_raised_before_does_not_either(error, path, monkeypatch):
    def read(*_):
        try:
            raise error(HOSTILE)
        except error as first:
            raise ValueError(f"{HOSTILE} is wrong") from first

    monkeypatch.setattr("meanformer.store.folder.from_files", read)
    with pytest.raises(mf.FolderError) as found:
        mf.load(path)
    assert not obeyed(found.value)


@pytest.mark.parametrize("kind", [KeyError, Odd])
def test_errors_of_the_caller_are_his(kind):
    """He may be handling one when he calls us, and look at it afterwards."""
    mine = kind(HOSTILE)
    with pytest.raises(mf.InputError):
        try:
            raise mine
        except kind:
            mf.PointCloud("x")
    assert mine.args == (HOSTILE,)


@pytest.mark.parametrize("kind", [KeyError, Odd])
def test_errors_whose_words_are_theirs_do_not_hide_ours(kind, path, monkeypatch):
    def read(*_):
        try:
            raise kind(HOSTILE)
        except kind as error:
            raise ValueError("wrong") from error

    monkeypatch.setattr("meanformer.store.folder.from_files", read)
    with pytest.raises(mf.FolderError, match="damaged: wrong"):
        mf.load(path)


def test_names_of_files_do_not_either(tmp_path, monkeypatch):
    monkeypatch.setattr("meanformer.store.arrays.to_files", lambda arrays: {HOSTILE + "/zarr.json": b"{}"})
    RunFolder(tmp_path / "run").create({"kind": "flow", "name": "x"}, {})
    with pytest.raises(mf.FolderError) as found:
        RunFolder(tmp_path / "run").read_segment(0)
    assert not obeyed(found.value)


HOSTILE = "x\x1b]0;owned\x07\n\u202e"


def obeyed(error):
    """What a terminal would obey of the traceback of an error."""
    return set("\x1b\x07\u202e") & set("".join(traceback.format_exception(error)))


# Links


@links
@pytest.mark.parametrize("name", ["run.json", "results.json", "manifest.json", "segments", "segments/000002"])
def test_links_lead_nowhere(name, path, tmp_path):
    """What they lead to may be a file that its owner shows to nobody."""
    move_out(path / name, tmp_path / "private")
    with pytest.raises(mf.FolderError, match="it is a link"):
        _ = RunFolder(path).results, mf.load(path).points


@links
def test_items_behind_a_link_are_not_lost(path, tmp_path):
    RunFolder(path).put("items/A.json", {"numbers": {}})
    move_out(path / "items", tmp_path / "elsewhere")
    with pytest.raises(mf.FolderError, match="it is a link"):
        RunFolder(path).read_json("items/A.json")


@links
def test_a_folder_in_the_place_of_a_file_keeps_no_descriptor(path):
    (path / "results.json").unlink()
    (path / "results.json").mkdir()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH208, PTH112
    for _ in range(5):
        with pytest.raises(mf.FolderError, match="cannot be used"):
            _ = RunFolder(path).results
    assert not before or len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@links
@pytest.mark.parametrize("name", ["run.json", "results.json"])
def test_a_report_shows_nothing_from_outside(name, tmp_path):
    path = made_by_hand(tmp_path / "run", record(title="private"), results())
    move_out(path / name, tmp_path / "private")
    with pytest.raises(mf.FolderError, match="it is a link"):
        write_report(path)
    assert not (path / "report.html").exists()


def with_a_case(path):
    cases = RunFolder(path)
    with cases.held():
        cases.create({"kind": "cases", "cases": ["one"]}, {})
        cases.part("cases", "one").create({"kind": "flow"}, {})
    return cases


@links
@pytest.mark.parametrize("name", ["cases", "cases/one"])
def test_cases_that_are_links_are_not_read(name, tmp_path):
    cases = with_a_case(tmp_path / "run")
    assert [case.record["kind"] for case in cases.cases] == ["flow"]
    move_out(cases.path / name, tmp_path / "private")
    with pytest.raises(mf.FolderError, match="is a link"):
        _ = cases.cases


# Parts and items of other runs


def test_a_case_of_another_run_is_told_apart(tmp_path):
    cases, other = with_a_case(tmp_path / "run"), with_a_case(tmp_path / "other")
    shutil.rmtree(cases.path / "cases/one")
    shutil.copytree(other.path / "cases/one", cases.path / "cases/one")
    with pytest.raises(mf.FolderError, match="is a part of another run"):
        _ = cases.cases
    with cases.held(), pytest.raises(mf.FolderError, match="is a part of another run"):
        cases.part("cases", "one").put("results.json", {"status": "done"})


def test_an_item_of_another_run_is_told_apart(path, tmp_path):
    shrinking(mf.Journal(tmp_path / "other"))
    for place, number in ((path, 1.0), (tmp_path / "other", 2.0)):
        RunFolder(place).put("items/A.json", {"numbers": {"radius": number}})
    shutil.copy(tmp_path / "other/items/A.json", path / "items/A.json")
    with pytest.raises(mf.FolderError, match="it is whole, but another run wrote it"):
        RunFolder(path).read_json("items/A.json")


# Much memory


@pytest.mark.parametrize("dtype", ["U500000000", "S500000000", "O", "V8", "M8[s]", "datetime64[Y]"])
def test_arrays_in_the_text_are_numbers(dtype):
    """One letter of a text may have two gigabytes."""
    with pytest.raises(ValueError, match="an array of"):
        codec.decode({"numpy": ["1"], "dtype": dtype, "shape": [1]}, {}.__getitem__)


def test_arrays_are_what_their_own_description_says():
    """zarr would also believe one of the whole group, or of an older format, which has filters that unpickle."""
    files = to_files({"a": np.arange(3.0)})
    root, about = (json.loads(files[name]) for name in ("zarr.json", "a/zarr.json"))
    about |= {"shape": [10**8], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**8]}}}
    whole = {"kind": "inline", "must_understand": False, "metadata": {"a": about}}
    consolidated = {"zarr.json": json.dumps(root | {"consolidated_metadata": whole}).encode()}
    assert from_files(files | consolidated)["a"].tolist() == [0, 1, 2]
    old = {"zarr_format": 2, "shape": [10**8], "chunks": [10**8], "dtype": "<f8", "compressor": None, "fill_value": 0,
           "order": "C", "filters": None}  # fmt: skip
    older = {".zgroup": b'{"zarr_format": 2}', "a/.zarray": json.dumps(old).encode(), "b/.zarray": b"{}"}
    assert from_files(files | older)["a"].tolist() == [0, 1, 2]
    del files["zarr.json"]
    assert from_files(files | older).keys() == {"a"}


def test_what_is_read_is_not_shown_to_zarr(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    assert mf.load(path).points.size


def sweep(path, axes, rows):
    folder = RunFolder(path)
    with folder.held():
        folder.create({"kind": "sweep", "axes": axes}, {})
        folder.add_segment({}, {"rows": rows})
    return path


def test_a_table_that_is_nearly_empty_is_refused(tmp_path):
    axes = {name: list(range(1000)) for name in "abc"}
    path = sweep(tmp_path / "sweep", axes, [{"task": 0, "numbers": {"radius": 1.0}}])
    with pytest.raises(mf.FolderError, match="has 1 of the 1,000,000,000 numbers of its table"):
        mf.load_table(path)


def test_a_long_word_in_a_table_is_there_once(tmp_path):
    rows = [{"task": 3, "numbers": {"outcome": "x" * 100_000, "radius": 1.5}}, {"task": 7, "numbers": {"radius": 2}}]
    path = sweep(tmp_path / "sweep", {"a": list(range(1000))}, rows)
    tracemalloc.start()
    with contextlib.closing(mf.load_table(path)) as table:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2e7  # of 4e8 for a thousand words of this length
        assert table["outcome"].values[3] == "x" * 100_000
        assert table["outcome"].values[4] == ""
        assert table["radius"].sum() == 3.5


def test_a_long_line_in_a_list_is_not_read():
    """It would become sixty times as large."""
    text = b"[" + b"[]," * 300_000 + b"3]"
    data = ledger.line({"run": "a"}) + b"%08x %s\n" % (zlib.crc32(text), text)
    tracemalloc.start()
    found = Ledger(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.damaged
    assert peak < 4 * len(data)


def test_long_lists_are_not_looked_into_by_the_explorer(path):
    with (path / ledger.NAME).open("ab") as file:
        file.truncate(2**25)
    (entry,) = [run for run in list_runs(path.parent) if run["name"] == path.name]
    assert "its files.jsonl has 32.0 MB" in entry["kind"]


def test_a_file_that_has_become_enormous_is_told_before_anything_is_removed(path):
    """It takes no place on the disk, and all the memory."""
    os.truncate(path / "figures/paths.svg", 2 * disk.LARGEST)
    with pytest.raises(mf.FolderError, match=r"changed since the run wrote it.*figures/paths\.svg"):
        RunFolder(path).clear()
    assert (path / "run.json").exists()


# Lists of files that two write, or that are damaged


def test_a_line_that_was_cut_off_does_not_blind_the_list_beside_a_run(path, tmp_path):
    """A report is written while nobody holds the folder: what another run wrote is told apart as before."""
    shrinking(mf.Journal(tmp_path / "other"))
    RunFolder(tmp_path / "other").put("results.json", {"status": "done", "numbers": {"radius": 7.5}})
    with (path / ledger.NAME).open("ab") as file:
        file.write(b"0000 torn")
    with RunFolder(path).watched() as seen:
        seen.put_beside("report.html", b"<html>again")
    assert not RunFolder(path).files.damaged
    assert RunFolder(path).files.fits("report.html", zlib.crc32(b"<html>again"))
    shutil.copy(tmp_path / "other/results.json", path / "results.json")
    with pytest.raises(mf.FolderError, match="another run wrote it"):
        _ = RunFolder(path).results


def test_a_last_line_that_has_changed_is_damage(tmp_path):
    """It was not cut off: what it listed, here an item that was written anew, is there."""
    folder = RunFolder(tmp_path / "run")
    folder.create({"kind": "paper", "items": ["A"]}, {})
    for number in (1.0, 2.0):
        folder.put("items/A.json", {"numbers": {"radius": number}})
    data = (folder.path / ledger.NAME).read_bytes()
    (folder.path / ledger.NAME).write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    for mended in (False, True):
        assert RunFolder(folder.path).files.damaged is not mended
        assert RunFolder(folder.path).read_json("items/A.json")["numbers"]["radius"] == 2.0
        assert RunFolder(folder.path).discard_damaged() == ([] if mended else ["files.jsonl, made again"])


def test_a_list_that_is_made_again_meanwhile_has_the_report_too(path):
    with disk.held(path) as at, contextlib.closing(Writer(path, beside=at)) as beside:
        with RunFolder(path).held() as holder:
            holder.ledger.damaged = True
            holder.list_again([], complete=True)
        beside.write("other.html", b"<html>")
    assert RunFolder(path).files.fits("other.html", zlib.crc32(b"<html>"))
    assert not RunFolder(path).files.damaged


def test_a_failing_write_takes_nothing_of_others_with_it(tmp_path, monkeypatch):
    real = os.write

    def half(descriptor, data):
        real(descriptor, data[:2])
        with disk.appending("list", at) as other:
            real(other, b"theirs\n")
        raise OSError(5, "the disk reports an error")

    with disk.held(tmp_path) as at, disk.appending("list", at) as mine:
        disk.append(mine, b"before\n")
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk"):
            patch.setattr(os, "write", half)
            disk.append(mine, b"mine\n")
    assert (tmp_path / "list").read_bytes().endswith(b"theirs\n")


def test_a_file_of_somebody_else_under_a_name_before_it_is_whole_stays(path):
    other = path / disk.temporary("other.html")
    other.write_text("mine")
    with RunFolder(path).watched() as seen, pytest.raises(mf.FolderError, match=rf"{other.name} is in the way"):
        seen.put_beside("other.html", b"<html>")
    with pytest.raises(mf.FolderError, match=rf"{other.name} is in the way"):
        RunFolder(path).put("other.html", b"<html>")
    assert other.read_text() == "mine"

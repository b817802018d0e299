"""The list of run folders: one that is odd, in whatever way, is told of, and hides no other."""

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from app._pages import PATIENCE
from app.door import Door
from meanformer.app import runs
from meanformer.app.runs import MOST_BYTES, MOST_LISTED, find_run, list_runs

RECORD: dict[str, Any] = {
    "format": 1,
    "kind": "flow",
    "title": "A title",
    "created": "2026-01-31T14:05:00+00:00",
    "experiment": {"measure": {"kind": "ball"}},
}
posix = pytest.mark.skipif(sys.platform == "win32", reason="files that only POSIX has")


def folder_with(root: Path, name: str | bytes, text: str | bytes) -> Path:
    folder = root / os.fsdecode(name)
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return folder


def changed(**parts: Any) -> str:
    return json.dumps({**RECORD, **parts})


@pytest.fixture
def root(tmp_path) -> Path:
    """A folder with one good run."""
    folder_with(tmp_path / "runs", "good", json.dumps(RECORD))
    return tmp_path / "runs"


def listed(root: Path) -> dict[str, dict[str, Any]]:
    """What the page is told, by the names that it shows; in a thread of its own, as anything here could wait."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(Door(root).inside("api/runs")), daemon=True)
    thread.start()
    thread.join(PATIENCE / 10)
    assert answers, "the list never comes"
    assert answers[0].status == 200, answers[0].text
    return {entry["shown"]: entry for entry in json.loads(answers[0].text)}


def check(root: Path, name: str, words: str) -> None:
    """The odd one is told of in words and cannot be asked for; the good one is there."""
    found = listed(root)
    assert found["good"]["damaged"] == ""
    assert found["good"]["title"] == "A title"
    assert find_run(root, "good") == root / "good"
    assert words in found[name]["damaged"], found[name]
    assert found[name]["damaged"].endswith(".")
    assert found[name]["name"] == ""
    assert find_run(root, "") is None


ODD = {
    "empty": "",
    "null": "null",
    "true": "true",
    "number": "17",
    "text": '"run"',
    "list": "[]",
    "list of lists": "[[1]]",
    "no format": "{}",
    "format as text": '{"format": "1"}',
    "old format": changed(format=0),
    "format as list": changed(format=[1], versions=[]),
    "half": json.dumps(RECORD)[:40],
    "noise": b"\xff\xfe\x00\x80" * 20,
    "not UTF-8": b'{"title": "\xff"}',
    "nulls": b"\0" * 100,
    "deep": '{"a": ' * 50_000,
    "brackets": "[" * 100_000,
    "long number": changed().replace("1,", "1" * 9000 + ",", 1),
    "experiment as text": changed(experiment="all"),
    "experiment as list": changed(experiment=[1]),
    "measure as list": changed(experiment={"measure": [1]}),
    "measure as text": changed(experiment={"measure": "ball"}),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_an_odd_record_hides_no_other(root, text):
    folder_with(root, "odd", text)
    check(root, "odd", "")


SHOWN = {
    "kind as list": changed(kind=["flow"]),
    "kind as table": changed(kind={}),
    "no kind": json.dumps({key: value for key, value in RECORD.items() if key != "kind"}),
    "lone surrogate": json.dumps(RECORD).replace("A title", r"\ud800 title"),
    "title as list": changed(title=[1, {"a": None}]),
    "title as table": changed(title={"a": "b"}),
    "no number": json.dumps(RECORD).replace('"A title"', "NaN"),
    "long title": changed(title="x" * 900_000),
    "created as number": changed(created=1e308),
    "created as list": changed(created=[[]]),
    "created at the end of time": changed(created="+275760-09-13T00:00:00.000Z"),
    "created nowhere": changed(created="\ud800"),
    "not a table of experiment": changed(experiment=None),
    "twice": '{"title": "first",' + json.dumps(RECORD)[1:],
}


@pytest.mark.parametrize("text", SHOWN.values(), ids=SHOWN)
def test_odd_words_in_a_record_harm_nothing(root, text):
    """It is listed, or left out as a run of another kind; what is shown of it is short and plain."""
    folder_with(root, "odd", text)
    found = listed(root)
    assert found["good"]["damaged"] == ""
    for entry in found.values():
        assert all(isinstance(value, str) and len(value) <= runs.LONGEST + 80 for value in entry.values())
        assert all(value.isprintable() for value in entry.values())
        assert entry["created"] in ("", RECORD["created"])


def test_letters_that_turn_a_text_around_are_spelt_out(root):
    folder_with(root, "gnp\u202etxt.exe", changed(title="safe\u2066\u200f\u0007 <b>\n"))
    entry = listed(root)[r"gnp\u202etxt.exe"]
    assert entry["title"] == r"safe\u2066\u200f\u0007 <b>\u000a"
    assert find_run(root, entry["name"]) == root / "gnp\u202etxt.exe"


@posix
def test_names_that_are_not_utf8(root):
    folder = folder_with(root, b"odd\xff\xfe", json.dumps(RECORD))
    check(root, r"odd\udcff\udcfe", "not UTF-8")
    assert find_run(root, "odd\udcff\udcfe") is None
    assert folder.is_dir()


def fifo(file: Path, tmp_path: Path) -> None:
    os.mkfifo(file)


def bound(file: Path, tmp_path: Path) -> None:
    """A socket; its path is short, as those of sockets must be."""
    before = Path.cwd()
    os.chdir(file.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(file.name)
    finally:
        os.chdir(before)


def secret_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(changed(title="a secret of another folder"))
    file.symlink_to(tmp_path / "secret.json")


FILES = {
    "a folder": lambda file, _: file.mkdir(),
    "a FIFO": fifo,
    "a socket": bound,
    "a link to a device": lambda file, _: file.symlink_to("/dev/zero"),
    "a link to a terminal": lambda file, _: file.symlink_to("/dev/stdin"),
    "a link to nowhere": lambda file, _: file.symlink_to("nowhere"),
    "a link to itself": lambda file, _: file.symlink_to("run.json"),
    "a link to another file": secret_link,
}


@posix
@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_only_regular_files_are_read(root, tmp_path, make):
    (root / "odd").mkdir()
    make(root / "odd" / "run.json", tmp_path)
    check(root, "odd", "is not a file")
    assert find_run(root, "odd") is None


@posix
def test_a_device_is_not_read(root, monkeypatch):
    (root / "odd").mkdir()
    try:
        os.mknod(root / "odd" / "run.json", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except OSError:
        pytest.skip("this user makes no devices")
    check(root, "odd", "is not a file")


def test_large_files_are_not_looked_into(root):
    """Of two gigabytes, which take no place on the disk; the run can still be asked for."""
    (root / "odd").mkdir()
    with (root / "odd" / "run.json").open("wb") as file:
        file.truncate(2 * 2**30)
    (root / "good" / "results.json").write_bytes(b"[" * 10**6)
    entry = listed(root)["odd"]
    assert "2,048.0 MB" in entry["kind"]
    assert find_run(root, entry["name"]) == root / "odd"
    folder_with(root, "full", changed(points="x" * (MOST_BYTES["run.json"] - 1000)))
    assert listed(root)["full"]["title"] == "A title"


@posix
def test_links_lead_nowhere(root, tmp_path):
    """A run folder that came from elsewhere may hold them: they would show what lies outside."""
    folder_with(tmp_path / "elsewhere", "run", changed(title="elsewhere"))
    folder_with(tmp_path / "elsewhere" / "cases", "case", changed(title="elsewhere"))
    (root / "link").symlink_to(tmp_path / "elsewhere" / "run")
    (root / "good" / "cases").symlink_to(tmp_path / "elsewhere" / "cases")
    (root / "circle").symlink_to("circle")
    check(root, "link", "it leads to")
    assert set(listed(root)) == {"good", "link"}
    for name in (
        "link",
        "link/run",
        "good/cases/case",
        "../elsewhere/run",
        "circle",
        str(root / "good"),
        "./good",
        "..",
    ):
        assert find_run(root, name) is None, name
    # The folder itself may be one: somebody named it.
    (tmp_path / "other").symlink_to(root)
    assert find_run(tmp_path / "other", "good") is not None


def test_cases_and_the_folder_itself(root):
    folder_with(root / "good" / "cases", "one", changed(title="A case"))
    folder_with(root, ".good.removed", json.dumps(RECORD))
    assert set(listed(root)) == {"good", "good/cases/one"}
    assert find_run(root, "good/cases/one") == root / "good" / "cases" / "one"
    assert set(listed(root / "good")) == {"good"}
    assert list_runs(root / "nothing") == []
    assert list_runs(root / "good" / "run.json") == []


@posix
def test_a_folder_that_may_not_be_read(root):
    folder_with(root, "odd", "{}").chmod(0)
    try:
        assert listed(root)["good"]["damaged"] == ""
    finally:
        (root / "odd").chmod(0o700)


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_many_folders(root, count):
    """The newest are listed, and any is found."""
    for k in range(count):
        (root / f"r{k:06d}").mkdir()
        (root / f"r{k:06d}" / "run.json").touch()
    os.utime(root / "good" / "run.json", (2**33, 2**33))
    found = listed(root)
    assert len(found) == MOST_LISTED
    assert found["good"]["damaged"] == ""
    assert find_run(root, f"r{count // 2:06d}") is not None

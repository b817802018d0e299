"""The command line where something is amiss around it: readers that have gone, full disks, names that are none."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from meanformer._words import printable
from report._folders import folder, record, results
from test_cli import call

ESC = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(arguments, **options):
    options = {"stderr": subprocess.PIPE, "env": os.environ | options.pop("env", {})} | options
    return subprocess.Popen([sys.executable, "-m", "meanformer", *arguments], **options)


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (["show", "run", "--json"], {}),
        (["--help"], {}),
        (["show", "run"], {"PYTHONUNBUFFERED": "1"}),  # the pipe breaks while a table is printed, not at the end
    ],
)
def test_a_reader_that_has_gone(here, arguments, env):
    """As `meanformer list | true`: quiet, and the exit code of a program that SIGPIPE ends."""
    folder(here / "run", found=results())
    read, write = os.pipe()
    os.close(read)
    with start(arguments, stdout=write, env=env) as process:
        os.close(write)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_reader_of_errors_that_has_gone(here):
    read, write = os.pipe()
    os.close(read)
    with start(["show", "nothing"], stdout=subprocess.DEVNULL, stderr=write) as process:
        os.close(write)
    assert process.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["show", "run"], ["cite", "run", "--json"]])
def test_a_full_disk_behind_the_output(here, arguments):
    folder(here / "run", found=results())
    with Path("/dev/full").open("wb") as full, start(arguments, stdout=full) as process:
        assert process.stderr is not None
        words = process.stderr.read().decode()
    assert process.returncode == 1
    assert words.startswith("Failed: the output cannot be written: the disk is full\n")
    assert len(words.splitlines()) == 3


def test_closed_streams(here):
    folder(here / "run", found=results())
    done = subprocess.run(
        [
            "sh",
            "-c",
            f"{sys.executable} -m meanformer show run >&- 2>err; echo $?; {sys.executable} -m meanformer show run 2>&-",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("0\nTokens gather\n")
    assert (done.stderr, Path("err").read_text()) == ("", "")


def test_letters_that_the_output_does_not_have(here):
    folder(here / "run", record(title="Größe ∞"), results())
    with start(["show", "run"], stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"}) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.startswith(b"Gr\\xf6\\xdfe \\u221e\n")


# Terminals -----------------------------------------------------------------------------------------------------------


def test_what_a_terminal_would_obey():
    assert (
        printable("a\x1b[31m\x9b\r\x00\u202e\u2066b\n\tc\ud800") == "a\\x1b[31m\\x9b\\r\\x00\\u202e\\u2066b\n\tc\\ud800"
    )
    assert printable("Größe ∞ 日本 🙂") == "Größe ∞ 日本 🙂"


@pytest.mark.parametrize("command", ["show", "compare", "cite", "report"])
def test_a_folder_of_others_does_not_speak_to_the_terminal(here, monkeypatch, capsys, command):
    """Titles, numbers, checks, notes, settings and citations with codes for the terminal, and marks of rich."""
    bad = f"x{ESC}[/red][bold]y"
    found = results(summary=bad, numbers={bad: bad}, notes=[bad], outcome=bad, fate=bad)
    found["checks"][1]["claim"] = bad
    folder(here / "run", record(title=bad, cites=[bad], experiment={"attention": {"kind": bad, bad: bad}}), found)
    folder(here / "[/red]", record(title="other"), results())
    assert call(monkeypatch, command, "run", *(["[/red]"] if command == "compare" else [])) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    if command != "report":
        assert "\\x1b]0;owned\\x07" in "".join(out.replace("│", "").split())


def test_an_error_does_not_either(here, monkeypatch, capsys):
    assert call(monkeypatch, "show", f"no{ESC}") == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "no\\x1b]0;owned" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "run\nForged"], 0),
        (["report", "run\nForged"], 0),
        (["show", "none\nForged"], 2),
        (["run", "tour", "--out", "run\nForged"], 2),
    ],
)
def test_words_of_others_do_not_begin_a_line(here, monkeypatch, capsys, arguments, code):
    """Neither the name of a folder nor what a run says of itself."""
    found = results(notes=["b\nForged"], failed=[{"task": 0, "error": "d\nForged"}])
    folder(here / "run\nForged", record(title="a\nForged"), found)
    assert call(monkeypatch, *arguments) == code
    shown = "".join(capsys.readouterr())
    assert "\\nForged" in shown
    assert "\nForged" not in shown


# Names ---------------------------------------------------------------------------------------------------------------


LONG = "n" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "tour", "--out", LONG],
        ["run", "tour", "--out", f"runs/{LONG}/x"],
        ["run", LONG],
        ["run", f"{LONG}.toml"],
        ["reproduce", "castin2025", "--out", LONG],
        ["model", "package:none", "--words", "a", "--out", LONG],
        ["init", LONG],
        ["show", LONG],
        ["resume", LONG],
        ["report", LONG],
        ["cite", LONG],
        ["compare", LONG, LONG],
        ["run", "tour", "--out", "n\udcff"],
        ["run", "n\udcff.toml"],
        ["run", "tour", "--set", "title=\udcff"],
        ["init", "n\udcff"],
        ["init", "n\nt1 = 1"],
        ["init", ""],
        ["init", "/"],
        ["show", "n\udcff"],
        ["run", "tour", "--out", ""],
        ["run", "tour", "--out="],
        ["reproduce", "castin2025", "--quick", "--out", ""],
        ["show", ""],
        ["resume", ""],
        ["compare", "", "."],
    ],
)
def test_names_that_are_none_are_refused(here, monkeypatch, capsys, arguments):
    assert call(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Refused: ")
    assert "Errno" not in err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", [["run", "tour"], ["reproduce", "castin2025", "--quick"]])
@pytest.mark.parametrize(
    ("out", "got"),
    [
        ("file", "a file"),
        ("file/x", "a file"),
        ("file/x/../y", "a file"),
        ("link", "a link that leads nowhere"),
        ("link/x", "a link that leads nowhere"),
        ("folder", "a folder with other things in it"),
    ],
)
def test_what_is_in_the_way_of_a_folder_is_refused(here, monkeypatch, capsys, command, out, got):
    """Before any work, wherever it stands in the name: exit code 2, as for a name that no file can have."""
    Path("file").write_text("mine")
    Path("link").symlink_to("nowhere")
    Path("folder").mkdir()
    Path("folder/mine.txt").write_text("mine")
    before = {entry.name for entry in here.rglob("*")}
    assert call(monkeypatch, *command, "--out", out) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"Refused: {out.partition('/')[0]} is in the way\n  got:      {got}\n")
    assert {entry.name for entry in here.rglob("*")} == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_where_no_folder_can_be_made(here, monkeypatch, capsys):
    assert call(monkeypatch, "run", "tour", "--out", "/proc/x/y") == 2
    err = capsys.readouterr().err
    assert err.startswith("Refused: no folder can be made at /proc/x/y\n")
    assert "choose another folder" in err
    assert "writable" not in err


def test_an_empty_name_is_not_the_folder_in_which_we_are(here, monkeypatch, capsys):
    folder(here, found=results())
    assert call(monkeypatch, "show", "") == 2
    assert "got:      show ''\n" in capsys.readouterr().err
    assert call(monkeypatch, "show", ".", "--json") == 0


def test_no_home_and_no_language(here):
    folder(here / "run", found=results())
    bare = dict.fromkeys(("HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "XDG_CACHE_HOME"), "") | {"LC_ALL": "C"}
    with start(["show", "run", "--json"], stdout=subprocess.PIPE, env=bare) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["title"] == "Tokens gather"


# Disks ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def unprivileged():
    """As a user who may not write everywhere: permissions do not bind root."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


@pytest.fixture
def locked(here, monkeypatch, capsys):
    """A run folder that may be read, not written."""
    path = folder(here / "run", found=results())
    # Where the modules of root's Python are read by root alone, all that is imported late is there already.
    folder(here / "other", found=results())
    for arguments in (("show", "other"), ("report", "other"), ("init", "another")):
        assert call(monkeypatch, *arguments) == 0
    capsys.readouterr()
    for place in (here, *here.parents):
        if place.stat().st_uid == os.geteuid() and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o055)
    modes = [path, here]
    for place in modes:
        place.chmod(0o555)
    yield path
    for place in modes:
        place.chmod(0o755)


def test_a_report_where_nothing_may_be_written(locked, monkeypatch, capsys):
    with unprivileged():
        assert call(monkeypatch, "show", "run") == 0
        capsys.readouterr()
        assert call(monkeypatch, "report", "run") == 1
    err = capsys.readouterr().err
    assert err.startswith("Failed: cannot write to run: no permission\n")
    assert "safe:     the run itself" in err
    assert {entry.name for entry in locked.iterdir()} == {"run.json", "results.json", "figures"}


def test_a_file_to_start_from_where_nothing_may_be_written(locked, monkeypatch, capsys):
    with unprivileged():
        assert call(monkeypatch, "init", "mine") == 2
    err = capsys.readouterr().err
    assert err.startswith("Refused: mine.toml cannot be written\n")
    assert "Permission denied" in err


def test_a_file_to_start_from_does_not_follow_links(here, monkeypatch, capsys):
    """Not even one that leads nowhere: what it names would be written."""
    (here / "mine.toml").symlink_to(here / "elsewhere")
    assert call(monkeypatch, "init", "mine") == 2
    assert "a file of that name" in capsys.readouterr().err
    assert not (here / "elsewhere").exists()


@contextlib.contextmanager
def small_disk(most):
    """Files may have so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_to_start_from_that_does_not_fit(here, monkeypatch, capsys):
    with small_disk(100):
        assert call(monkeypatch, "init", "mine") == 2
    assert "File too large" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_report_that_does_not_fit(here, monkeypatch, capsys):
    path = folder(here / "run", found=results())
    (path / "report.html").write_text("the old one")
    with small_disk(2000):
        assert call(monkeypatch, "report", "run") == 1
    err = capsys.readouterr().err
    assert err.startswith("Failed: cannot write to run: ")
    assert "safe:     the run itself" in err
    assert (path / "report.html").read_text() == "the old one"


@pytest.mark.parametrize("name", ["pipe.npy", "/dev/zero", "folder.npy"])
def test_an_experiment_does_not_wait_for_pipes(here, monkeypatch, capsys, name):
    os.mkfifo("pipe.npy")
    Path("folder.npy").mkdir()
    text = f"""
    attention = {{kind = "linear", Q = {{file = "{name}"}}, K = "identity", V = "identity"}}
    measure = {{kind = "cube", n = 3, d = 2}}
    layers = {{depth = 2}}
    """
    Path("mine.toml").write_text(text)
    assert call(monkeypatch, "run", "mine.toml") == 2
    err = capsys.readouterr().err
    assert f"the file '{name}' cannot be read" in err
    assert "it is not a file" in err
    assert not Path("runs").exists()


def test_an_experiment_that_is_a_pipe(here, monkeypatch, capsys):
    os.mkfifo("mine.toml")
    assert call(monkeypatch, "run", "mine.toml") == 2
    assert "there is no experiment 'mine.toml'" in capsys.readouterr().err

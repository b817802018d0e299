"""The command line: words, files and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import meanformer as mf
from meanformer import cli
from meanformer.experiments import runner
from meanformer.store import disk

SMALL = """
title = "Three layers of a <small> transformer"
about = "For tests."
cites = ["castin2025"]
[attention]
kind = "softmax"
Q = "identity"
K = "identity"
V = "identity"
[measure]
kind = "ball"
n = 6
d = 2
[layers]
depth = 3
[diagnostics]
check = false
[figures]
draw = ["paths"]
"""


def call(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["meanformer", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a small experiment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_a_run_from_its_file_to_its_citation(here, monkeypatch, capsys):
    assert call(monkeypatch, "run", "small.toml") == 0
    out, err = capsys.readouterr()
    assert err == ""  # no progress away from a terminal
    assert "\x1b" not in out
    assert "Three layers of a <small> transformer" in out
    assert "Report: runs/small/report.html" in out
    assert (here / "runs/small/figures/paths.svg").exists()
    page = (here / "runs/small/report.html").read_text()
    assert "Three layers of a &lt;small&gt; transformer" in page
    assert mf.load("runs/small").stats["steps"] == 3

    assert call(monkeypatch, "show", "runs/small", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "done"
    assert shown["numbers"]["steps"] == 3
    assert shown["numbers"]["radius"] == pytest.approx(float(mf.load("runs/small").final.radius), rel=1e-15)

    # The same command again reads what is there; another experiment gets another folder.
    written = (here / "runs/small/run.json").stat().st_mtime_ns
    assert call(monkeypatch, "run", "small.toml") == 0
    assert "Already done, in" in capsys.readouterr().out
    assert (here / "runs/small/run.json").stat().st_mtime_ns == written
    assert call(monkeypatch, "run", "small.toml", "--set", "depth=2", "--seed", "7", "--json") == 0
    changed = json.loads(capsys.readouterr().out.split("report.html\n", 1)[-1])
    assert (changed["folder"], changed["seed"], changed["numbers"]["steps"]) == ("runs/small-2", 7, 2)
    assert call(monkeypatch, "run", "small.toml", "--set", "depth=2", "--out", "runs/small") == 2
    assert "holds another run" in capsys.readouterr().err

    assert call(monkeypatch, "compare", "runs/small", "runs/small-2", "--json") == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["settings"] == {"seed": [0, 7], "layers.depth": [3, 2]}
    assert compared["numbers"]["steps"] == [3, 2]
    assert call(monkeypatch, "compare", "runs/small", "runs/small-2") == 0
    assert re.search(r"layers\.depth\s*│\s*3\s*│\s*2", capsys.readouterr().out)

    assert call(monkeypatch, "cite", "runs/small") == 0
    bibtex = capsys.readouterr().out
    assert "2501.18322" in bibtex
    assert mf.__version__ in bibtex

    (here / "runs/small/report.html").unlink()
    assert call(monkeypatch, "report", "runs/small") == 0
    assert capsys.readouterr().out.strip() == "runs/small/report.html"
    assert (here / "runs/small/report.html").read_text() == page


def test_a_dry_run_leaves_nothing(here, monkeypatch, capsys):
    assert call(monkeypatch, "run", "small.toml", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "6 tokens of dimension 2" in out
    assert "cost" in out
    assert [entry.name for entry in here.iterdir()] == ["small.toml"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["run", "tuor"], ["'tuor'", "did you mean 'tour'?"]),
        (["run", "small.toml", "--set", "depht=2"], ["depht", "depth"]),
        (["run", "small.toml", "--set", "n=-1"], ["n"]),
        (["run", "small.toml", "--bad"], ["--bad"]),
        (["walk"], ["walk"]),
        (["reproduce", "castin2024"], ["'castin2024'", "castin2025"]),
        (["reproduce", "castin2025", "A99"], ["A99"]),
        (["init", "small"], ["small.toml"]),
        (["run", "/dev/null"], ["a device, a pipe or a socket"]),
        (["run", "small.toml", "--set", "attention.Q=[[1, nan], [0, 1]]"], ["give attention.Q.0.1 such a value"]),
        (["show", "none"], ["none holds no run: there is no such folder"]),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(arguments, words, here, monkeypatch, capsys):
    assert call(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert [entry.name for entry in here.iterdir()] == ["small.toml"]


@pytest.mark.parametrize("command", ["show", "resume", "report", "cite", "compare"])
def test_a_folder_without_a_run_is_told(command, here, monkeypatch, capsys):
    assert call(monkeypatch, command, "runs/none") == 2
    assert "holds no run" in capsys.readouterr().err


def test_failure_says_what_is_safe(here, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write", full)
    assert call(monkeypatch, "run", "small.toml") == 1
    err = capsys.readouterr().err
    assert err.startswith("Failed: cannot write to runs/small: the disk is full\n")
    assert "safe:     nothing has been computed yet" in err
    assert "choose another folder with --out" in err


def test_init_writes_a_file_that_runs(here, monkeypatch, capsys):
    assert call(monkeypatch, "init", "mine") == 0
    assert "meanformer run mine.toml" in capsys.readouterr().out
    assert call(monkeypatch, "run", "mine.toml", "--dry-run") == 0
    assert (here / "mine.toml").read_text().count("#") > 10


def test_list_names_everything(monkeypatch, capsys):
    assert call(monkeypatch, "list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"tour", "clusters", "phase-diagram"} <= {e["name"] for e in found["experiments"]}
    assert set(found["papers"]) == {"castin2025", "geshkovski2023"}
    assert call(monkeypatch, "list") == 0
    assert "clusters" in capsys.readouterr().out


def test_interrupt(here, monkeypatch, capsys):
    """Ctrl-C: exit code 130, and how to go on."""

    class Ended(BaseException):
        pass

    def end(code):
        raise Ended(code)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_found", interrupted)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "argv", ["meanformer", "run", "small.toml"])
    with pytest.raises(Ended, match="130"):
        cli.main()
    assert capsys.readouterr().err.endswith("To go on:\n  meanformer resume runs/small\n")
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert call(monkeypatch, "show", "runs/small") == 0
    shown = capsys.readouterr().out
    assert "Not finished: the run is complete, its numbers and figures are not." in shown
    assert "Go on:  meanformer resume runs/small" in shown
    assert call(monkeypatch, "resume", "runs/small") == 0
    assert "Report: runs/small/report.html" in capsys.readouterr().out


ENDLESS = [sys.executable, "-m", "meanformer", "run", "small.toml", "--set", "depth=1000000"]
ENDLESS += ["--set", "every=0.1", "--set", "times=final"]


def wait_for_segments(process, manifest):
    """Until a run in a process has written some."""
    deadline = time.monotonic() + 400
    while not (manifest.exists() and len(json.loads(manifest.read_text())["segments"]) > 3):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr
        time.sleep(0.05)


def test_interrupt_of_a_process(here):
    """Ctrl-C in the middle of a run: words and a folder to go on with, not a crash."""
    # A suite started in the background ignores Ctrl-C, and its children inherit that: here it must count.
    heed = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-c", heed, *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_segments(process, here / "runs/small/manifest.json")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=400)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("To go on:\n  meanformer resume runs/small\n")
    assert mf.load("runs/small").outcome.kind == "UNFINISHED"


ASKED = """
import signal, sys, time
from meanformer import FolderError, cli
from meanformer.cli import commands

signal.signal(signal.SIGINT, signal.default_int_handler)  # also in a suite in the background

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def disguised():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ValueError("invalid matrix") from None

def failed():
    Finalised()
    raise FolderError("the disk is full", safe="all", remedy="none")

def told_slowly():
    real = cli.complain
    cli.complain = lambda words: [time.sleep(0.2) for _ in range(3)] and real(words)
    failed()

def told_slowly_twice():
    real = cli.complain
    again = lambda words: words.startswith("Interrupted") and signal.raise_signal(signal.SIGINT)
    cli.complain = lambda words: [again(words), *(time.sleep(0.2) for _ in range(3))] and real(words)
    failed()

def done():
    Finalised()
    print("all")
    sys.exit(0)

commands.app = globals()[sys.argv[1]]
sys.argv[1:] = ["show", "run"]
cli.main()
"""


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("disguised", 130, ["Interrupted."]),
        ("failed", 1, ["Failed: the disk is full", "  safe:     all", "  remedy:   none"]),
        ("told_slowly", 130, ["Interrupted."]),
        ("told_slowly_twice", 130, ["Interrupted."]),
        ("done", 0, []),
    ],
)
def test_an_interruption_that_got_lost_or_became_another_error(how, code, words):
    done = subprocess.run([sys.executable, "-c", ASKED, how], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (code, words)


def test_version_help_and_completion(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"meanformer {mf.__version__}\n"
    assert call(monkeypatch, "run", "--help") == 0
    text = capsys.readouterr().out
    for word in ("--out", "--seed", "--set", "--dry-run", "--json", "Examples", "tour"):
        assert word in text
    assert call(monkeypatch, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in ("Exit codes", "130", "--install-completion"):
        assert word in text


def test_as_a_program():
    """`python -m meanformer`, as a process: exit code and streams."""
    done = subprocess.run(
        [sys.executable, "-m", "meanformer", "run", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "tour" in done.stderr


def test_overwrite_removes_the_run_and_nothing_else(here, monkeypatch, capsys):
    assert call(monkeypatch, "run", "small.toml", "--quiet") == 0
    for name in (".env", ".git/config", "figures/mine.png", "notes.txt"):
        file = here / "runs/small" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    capsys.readouterr()
    assert call(monkeypatch, "run", "small.toml", "--overwrite", "--out", "runs/small", "--set", "depth=2") == 0
    err = capsys.readouterr().err
    kept = ".env, .git/config, figures/mine.png, notes.txt"
    assert err == f"Kept in runs/small, since no run wrote it: {kept}\n"
    assert mf.load("runs/small").stats["steps"] == 2
    assert all((here / "runs/small" / name).read_text() == "mine" for name in kept.split(", "))


def test_overwrite_in_the_working_folder_and_through_a_link(here, monkeypatch, capsys):
    (here / "inner").mkdir()
    (here / "link").symlink_to("inner")
    monkeypatch.chdir(here / "inner")
    for depth, out in ((2, "."), (3, "."), (2, "../link"), (3, "../link")):
        assert call(monkeypatch, "run", "../small.toml", "--overwrite", "--out", out, "--set", f"depth={depth}") == 0
        assert mf.load(out).stats["steps"] == depth
    assert (here / "link").is_symlink()
    assert sorted(entry.name for entry in here.iterdir()) == ["inner", "link", "small.toml"]


@pytest.mark.parametrize("content", ["y\n", "{}", '{"scripts": {"start": "node"}}'])
@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_run_json_of_somebody_else_is_in_the_way(content, more, here, monkeypatch, capsys):
    """It is no damaged run, and no command offers to mend it."""
    (here / "mine").mkdir()
    (here / "mine/run.json").write_text(content)
    assert call(monkeypatch, "run", "small.toml", "--out", "mine", *more) == 2
    assert capsys.readouterr().err.startswith("Refused: mine is in the way")
    assert [(entry.name, entry.read_text()) for entry in (here / "mine").iterdir()] == [("run.json", content)]


def test_resuming_what_is_done_checks_that_it_is_whole(here, monkeypatch, capsys):
    assert call(monkeypatch, "run", "small.toml", "--quiet") == 0
    whole = mf.load("runs/small").points.tolist()
    (chunk,) = (here / "runs/small/segments/000002/rows/0").glob("c/**/0/0/0")
    data = bytearray(chunk.read_bytes())
    data[20] ^= 1
    chunk.write_bytes(data)
    capsys.readouterr()
    assert call(monkeypatch, "resume", "runs/small") == 1
    assert "segment 000002 of runs/small is damaged" in capsys.readouterr().err
    assert call(monkeypatch, "resume", "runs/small", "--discard-damaged") == 0
    assert mf.load("runs/small").points.tolist() == whole


def test_a_folder_renamed_during_a_run_in_a_process(here):
    """Exit code 1, words, nothing under the old name, and the run goes on under the new one."""
    with subprocess.Popen(ENDLESS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_segments(process, here / "runs/small/manifest.json")
        (here / "runs/small").rename(here / "runs/new")
        out, err = process.communicate(timeout=400)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("Failed: runs/small was renamed while it was written to")
    assert err.rstrip().endswith(f"meanformer resume {here / 'runs/new'}")
    assert [entry.name for entry in (here / "runs").iterdir()] == ["new"]
    assert mf.load("runs/new").outcome.kind == "UNFINISHED"

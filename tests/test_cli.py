"""The command line: words, exit codes, and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import meanformer as mf
from meanformer import cli
from meanformer.experiments import tour as tours

ROW = tours.Row("softmax", 2.5, 7.25, 3, 1.5, 10, 0.1, "REACHED", 6.0)
FREE = tours.Row("linear", 2.5, None, 3, 1.5, 10, 0.1, "STEP_TOO_SMALL", 0.5)


def call(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["meanformer", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code or 0


@pytest.fixture
def quick(monkeypatch):
    """A tour that only remembers how it was called."""
    calls = []

    def run_tour(out, n, seed, animation, watch):
        calls.append((str(out), n, seed, animation))
        for _ in watch(tours.scenes()[:2]):
            pass
        return tours.Tour(n, seed, 1.0, [ROW, FREE], [f"{out}/tour.png"])

    monkeypatch.setattr(tours, "run_tour", run_tour)
    return calls


def test_run_prints_a_table(quick, monkeypatch, capsys):
    assert call(monkeypatch, "run") == 0
    assert quick == [("runs/tour", 300, 0, True)]
    out, err = capsys.readouterr()
    assert err == ""  # no progress display away from a terminal
    assert "\x1b" not in out
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]]
        for line in out.splitlines()
        if line.startswith("│")
    }
    assert rows["softmax"] == ["2.5", "7.25", "3", "1.50", "10", "0.1", "reached t = 6"]
    assert rows["linear"] == ["2.5", "—", "3", "1.50", "10", "0.1", "blew up near t = 0.5"]
    assert "runs/tour/tour.png" in out


def test_run_passes_its_options(quick, monkeypatch, capsys):
    assert (
        call(monkeypatch, "run", "tour", "--out", "here", "--n", "50", "--seed", "7", "--no-animation", "--json") == 0
    )
    assert quick == [("here", 50, 7, False)]
    numbers = json.loads(capsys.readouterr().out)  # nothing but JSON
    assert numbers["version"] == mf.__version__
    assert numbers["rows"][1]["bound"] is None


def test_unknown_experiment_is_refused_with_the_list(quick, monkeypatch, capsys):
    assert call(monkeypatch, "run", "tuor") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'tuor'" in err
    assert "expected: 'tour'" in err
    assert "did you mean 'tour'?" in err
    assert "Traceback" not in err
    assert quick == []


@pytest.mark.parametrize("arguments", [["run", "--n", "many"], ["run", "--bad"], ["walk"], ["run", "--n", "3"]])
def test_bad_options_are_refused(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_failure(monkeypatch, capsys):
    def run_tour(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(tours, "run_tour", run_tour)
    assert call(monkeypatch, "run") == 1
    assert capsys.readouterr().err == "OSError: disk full\n"


def test_interrupt(monkeypatch, capsys):
    class Ended(BaseException):
        pass

    def run_tour(*_, **__):
        raise KeyboardInterrupt

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(tours, "run_tour", run_tour)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "argv", ["meanformer", "run"])
    with pytest.raises(Ended, match="130"):
        cli.main()
    assert capsys.readouterr().err.endswith("Interrupted.\n")


def test_interrupt_of_a_process(tmp_path):
    """Ctrl-C in the middle of a compilation: exit code 130 and words, not a crash."""
    # A suite started in the background ignores Ctrl-C, and its children inherit that: here it must count.
    heed = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    program = [sys.executable, "-m", "meanformer", "run", "--out", str(tmp_path / "out"), "--n", "5"]
    command = [sys.executable, "-c", heed, *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "out").exists() and time.monotonic() < deadline:
            time.sleep(0.05)  # the folder is made just before the first run
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Interrupted.\n")


def test_a_folder_that_cannot_be_made_costs_no_computing(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert call(monkeypatch, "run", "--out", str(tmp_path / "file" / "below")) == 1
    assert "file" in capsys.readouterr().err


def test_version_and_help(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"meanformer {mf.__version__}\n"
    assert call(monkeypatch, "run", "--help") == 0
    text = capsys.readouterr().out
    for word in ("--out", "--seed", "--no-animation", "--json", "Examples", "tour"):
        assert word in text


def test_as_a_program():
    """`python -m meanformer`, as a process: exit code and streams."""
    done = subprocess.run(
        [sys.executable, "-m", "meanformer", "run", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'tour'" in done.stderr

"""Sweeps: every task once, its numbers in one table, whatever happens on the way."""

import errno
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments import sweeps
from meanformer.experiments.config import experiment_of, read_experiment
from meanformer.experiments.runner import Interrupted, Watch, resume, run_experiment
from meanformer.store import disk
from meanformer.store.folder import RunFolder
from meanformer.store.table import results_of

SWEEP = """
title = "A line of temperatures"
[attention]
kind = "softmax"
Q = "identity"
K = "identity"
V = "identity"
tau = 1.0
[measure]
kind = "ball"
n = 6
d = 2
[layers]
depth = 3
[sweep]
draws = 2
numbers = ["radius", "clusters", "outcome"]
workers = 1
[sweep.grid]
"attention.tau" = [0.5, 1.0, 2.0]
"""


@pytest.fixture
def sweep(tmp_path):
    return experiment_of(SWEEP, "sweep.toml", tmp_path)


def test_the_table_has_the_numbers_of_each_run(sweep, tmp_path):
    folder = run_experiment(sweep, tmp_path / "run")
    table = mf.load_table(tmp_path / "run")
    assert dict(table.sizes) == {"attention.tau": 3, "draw": 2}
    assert table["outcome"].values.tolist() == [["REACHED"] * 2] * 3
    I = jnp.eye(2)
    for tau in (0.5, 1.0, 2.0):
        for draw in (0, 1):
            task = sweep.task({"attention.tau": tau, "draw": draw})
            from meanformer.experiments.build import build

            tokens = build(task, tmp_path).measure
            expected = mf.layers(mf.Softmax(I, I, I, tau=tau), tokens, 3).final.radius
            found = table["radius"].sel({"attention.tau": tau, "draw": draw})
            assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert len({float(v) for v in table["radius"].values.ravel()}) == 6  # draws differ
    assert not (tmp_path / "run" / "tasks").exists()
    assert folder.results["numbers"]["runs"] == 6
    assert any(figure["name"] == "curves-radius" for figure in folder.results["figures"])


def test_an_interrupted_sweep_repeats_nothing(sweep, tmp_path, monkeypatch):
    done, run_task = [], sweeps._run_task

    def counted(experiment, task, values, path):
        done.append(task)
        return run_task(experiment, task, values, path)

    def stop(words, share):
        if words.startswith("4 of 6"):
            raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "_run_task", counted)
    with pytest.raises(Interrupted):
        run_experiment(sweep, tmp_path / "run", watch=Watch(stage=stop))
    assert len(results_of(RunFolder(tmp_path / "run"))) == 4
    assert np.isnan(RunFolder(tmp_path / "run").table()["radius"].values).sum() == 2
    folder = resume(tmp_path / "run")
    assert done == [0, 1, 2, 3, 4, 5]
    whole = run_experiment(sweep, tmp_path / "whole")
    assert folder.table().equals(whole.table())


def flip(file):
    data = file.read_bytes()
    file.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])


def remove(*places):
    for place in places:
        shutil.rmtree(place) if place.is_dir() else place.unlink()


BEYOND = "000001, which has lost its run.json and the copy of it"
LOSSES = {
    "a byte": (lambda task: flip(next(f for f in sorted(task.rglob("*")) if f.is_file() and "c" in f.parts)), None),
    "a folder": (lambda task: remove(task), None),
    "run.json": (lambda task: remove(task / "run.json"), "000001: run.json, restored from its copy"),
    "a byte of run.json": (lambda task: flip(task / "run.json"), "000001: run.json, restored from its copy"),
    "run.json, its copy": (lambda task: remove(task / "run.json", task / "segments/000000"), BEYOND),
    "run.json, a byte of its copy": (
        lambda task: [remove(task / "run.json"), flip(task / "segments/000000/segment.json")],
        BEYOND,
    ),
    "bytes of both": (lambda task: [flip(task / "run.json"), flip(task / "segments/000000/segment.json")], BEYOND),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A sweep that keeps its states."""
    text = SWEEP.replace("workers = 1", "workers = 1\nkeep = true").replace("[0.5, 1.0, 2.0]", "[0.5]")
    folder = tmp_path_factory.mktemp("kept")
    return run_experiment(experiment_of(text, "sweep.toml", folder), folder / "run").path


@pytest.mark.parametrize("loss", LOSSES)
def test_states_that_are_kept_are_checked_and_made_again(loss, kept, tmp_path):
    shutil.copytree(kept, tmp_path / "run")
    lose, words = LOSSES[loss]
    lose(tmp_path / "run/tasks/000001")
    with pytest.raises(mf.FolderError, match="the states of task 1" if loss == "a folder" else "000001"):
        resume(tmp_path / "run")
    found = RunFolder(tmp_path / "run").discard_damaged()
    assert words is None or words in found
    assert ("the states of 1 task" in found) == (words is None or words == BEYOND)
    assert RunFolder(tmp_path / "run").status == "unfinished"
    assert resume(tmp_path / "run").table().equals(RunFolder(kept).table())
    for task in ("tasks/000000", "tasks/000001"):
        assert (mf.load(tmp_path / "run" / task).points == mf.load(kept / task).points).all()
    resume(tmp_path / "run")
    assert RunFolder(tmp_path / "run").discard_damaged() == []


@pytest.mark.parametrize("listed", ["nothing", "a byte"])
def test_the_remains_of_a_task_are_named(listed, kept, tmp_path):
    """They may be somebody else's, and all of them are in the way."""
    shutil.copytree(kept, tmp_path / "run")
    task = tmp_path / "run/tasks/000001"
    remove(task / "run.json", task / "files.jsonl") if listed == "nothing" else remove(task / "run.json")
    if listed == "a byte":
        flip(task / "files.jsonl")
    RunFolder(tmp_path / "run").discard_damaged()
    before = sorted(task.rglob("*"))
    with pytest.raises(mf.FolderError, match=r"000001 is in the way.*lost its run\.json") as error:
        resume(tmp_path / "run")
    assert f"meanformer resume {tmp_path / 'run'}" in error.value.remedy
    assert sorted(task.rglob("*")) == before
    task.rename(tmp_path / "away")
    assert resume(tmp_path / "run").table().equals(RunFolder(kept).table())
    assert (mf.load(task).points == mf.load(kept / "tasks/000001").points).all()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_what_the_disk_does_not_read_is_not_removed(number, kept, tmp_path, monkeypatch):
    shutil.copytree(kept, tmp_path / "run")
    task, read = tmp_path / "run/tasks/000001", disk.read
    before = sorted(task.rglob("*"))

    def fail(name, at, *rest, **options):
        if at == task and not name.endswith("files.jsonl"):
            raise OSError(number, "it is not read")
        return read(name, at, *rest, **options)

    with monkeypatch.context() as patch, pytest.raises(mf.FolderError, match="it is not read"):
        patch.setattr(disk, "read", fail)
        RunFolder(tmp_path / "run").discard_damaged()
    assert sorted(task.rglob("*")) == before
    assert resume(tmp_path / "run").table().equals(RunFolder(kept).table())


def test_a_task_that_fails_is_told_and_the_others_go_on(sweep, tmp_path, monkeypatch):
    build = sweeps.build

    def broken(experiment, base):
        if experiment.attention.tau == 1.0:
            raise RuntimeError("a broken task")
        return build(experiment, base)

    monkeypatch.setattr(sweeps, "build", broken)
    results = run_experiment(sweep, tmp_path / "run").results
    assert results["numbers"]["failed"] == 2
    assert {row["task"] for row in results["failed"]} == {2, 3}
    assert "a broken task" in results["failed"][0]["error"]
    assert "2 failed" in results["summary"]


@pytest.mark.usefixtures("heeded")
def test_a_task_that_is_interrupted_has_not_failed(sweep, tmp_path, monkeypatch):
    """Even if code in between makes an error of its own of it."""
    numbers_of, count = sweeps.numbers_of, itertools.count()

    def asked(run, names):
        if next(count) == 5:  # the last one
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise ValueError("invalid matrix") from None
        return numbers_of(run, names)

    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "numbers_of", asked)
        with pytest.raises(Interrupted):
            run_experiment(sweep, tmp_path / "run")
    folder = resume(tmp_path / "run")
    assert folder.results["failed"] == []
    assert folder.table().equals(run_experiment(sweep, tmp_path / "whole").table())


@pytest.mark.usefixtures("heeded")
def test_what_goes_wrong_after_an_interruption_is_told(sweep, tmp_path, monkeypatch):
    """Numbers that do not fit in memory, or on the disk, are not safe."""

    def asked(*args):
        yield {"task": 0, "numbers": {"radius": 1.0}, "seconds": 0.0, "around": 0.0}
        signal.raise_signal(signal.SIGINT)

    def too_many(folder, rows):
        raise MemoryError("too many")

    monkeypatch.setattr(sweeps, "_results", asked)
    monkeypatch.setattr(sweeps, "add_rows", too_many)
    with pytest.raises((MemoryError, Interrupted), match="too many"):
        run_experiment(sweep, tmp_path / "run")


def test_a_sweep_that_fails_ends_its_workers(tmp_path, monkeypatch):
    """Also where somebody keeps the error, as an interactive session does."""
    before = set(multiprocessing.active_children())
    started = []

    def stage(words, share):
        started.extend(set(multiprocessing.active_children()) - before)
        raise ValueError("the end")

    text = SWEEP.replace("workers = 1", "workers = 2")
    with pytest.raises(ValueError, match="the end") as kept:
        run_experiment(experiment_of(text, "sweep.toml", tmp_path), tmp_path / "run", watch=Watch(stage=stage))
    assert started
    for process in started:
        deadline = time.monotonic() + 60
        while process.exitcode is None and time.monotonic() < deadline:  # a thread of the pool asks for it, too
            time.sleep(0.05)
        assert process.exitcode == -signal.SIGTERM
    assert kept.value


def test_a_pool_of_processes_killed_and_resumed(tmp_path):
    """Kill -9 of the parent: its workers end too, and what they had done is not done again."""
    file = tmp_path / "many.toml"
    text = SWEEP.replace("workers = 1", "workers = 2").replace("draws = 2", "draws = 12")
    file.write_text(text)
    command = [sys.executable, "-m", "meanformer", "run", "many.toml", "--out", "run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 400
        while len(RunFolder(tmp_path / "run").manifest) < 2:
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        workers = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while any(map(_alive, workers)):
        assert time.monotonic() < deadline, "the workers live on"
        time.sleep(0.05)
    before = results_of(RunFolder(tmp_path / "run"))
    folder = resume(tmp_path / "run")
    after = results_of(folder)
    assert set(after) == set(range(36))
    assert all(after[task] == row for task, row in before.items())
    alone = run_experiment(read_experiment(file, ["sweep.workers=1"]), tmp_path / "alone")
    assert folder.table().equals(alone.table())


@pytest.mark.parametrize("workers", ["starting", "at work"])
def test_ctrl_c_in_a_terminal_is_for_the_parent_alone(workers, tmp_path):
    """A terminal sends it to all processes; the words are those of the parent, and nothing of Python's."""
    text = SWEEP.replace("workers = 1", "workers = 2").replace("draws = 2", "draws = 1000")
    (tmp_path / "many.toml").write_text(text)
    heed = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", heed, sys.executable, "-m", "meanformer", "run", "many.toml", "--out", "run", "-q"]
    with subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 400
        while len(_children(process.pid)) < 3 if workers == "starting" else len(results_of_run(tmp_path)) < 2:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5 if workers == "starting" else 0.0)  # the workers import what they need
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=400)
    assert (process.returncode, out) == (130, "")
    assert err == "Interrupted. What is done is safe. To go on:\n  meanformer resume run\n"


def results_of_run(path):
    folder = RunFolder(path / "run")
    return results_of(folder) if folder.exists() else {}


def _children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    return [int(word) for word in children.read_text().split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

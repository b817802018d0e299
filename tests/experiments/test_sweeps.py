"""Sweeps: every task once, its numbers in one table, whatever happens on the way."""

import itertools
import multiprocessing
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


@pytest.mark.parametrize("loss", ["a byte", "a folder", "run.json", "a byte of run.json"])
def test_states_that_are_kept_are_checked_and_made_again(loss, tmp_path):
    text = SWEEP.replace("workers = 1", "workers = 1\nkeep = true").replace("[0.5, 1.0, 2.0]", "[0.5]")
    folder = run_experiment(experiment_of(text, "sweep.toml", tmp_path), tmp_path / "run")
    table, tasks = folder.table(), [tmp_path / "run" / "tasks" / f"00000{k}" for k in range(2)]
    points = [mf.load(task).points for task in tasks]
    if loss == "a folder":
        shutil.rmtree(tasks[1])
    elif loss == "run.json":
        (tasks[1] / "run.json").unlink()
    elif loss == "a byte of run.json":
        data = (tasks[1] / "run.json").read_bytes()
        (tasks[1] / "run.json").write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    else:
        chunk = next(file for file in sorted(tasks[1].rglob("*")) if file.parent.name == "c" or file.name == "c")
        chunk = chunk if chunk.is_file() else next(file for file in chunk.rglob("*") if file.is_file())
        chunk.write_bytes(bytes([chunk.read_bytes()[0] ^ 1]) + chunk.read_bytes()[1:])
    with pytest.raises(mf.FolderError, match="000001"):
        resume(tmp_path / "run")
    words = RunFolder(tmp_path / "run").discard_damaged()
    assert words == (["000001: run.json, restored from its copy"] if "run.json" in loss else words)
    assert ("the states of 1 task" in words) == ("run.json" not in loss)
    assert RunFolder(tmp_path / "run").status == "unfinished"
    assert resume(tmp_path / "run").table().equals(table)
    assert all((mf.load(task).points == before).all() for task, before in zip(tasks, points, strict=True))
    resume(tmp_path / "run")
    assert RunFolder(tmp_path / "run").discard_damaged() == []


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
        process.join(60)
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

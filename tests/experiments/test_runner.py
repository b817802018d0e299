"""Experiments from their files to their folders: cases, interruptions, other inputs."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.cli import folders
from meanformer.experiments.config import experiment_of
from meanformer.experiments.numbers import claims_of, numbers_of
from meanformer.experiments.runner import Interrupted, Watch, resume, run_experiment
from meanformer.report.run import write_report
from meanformer.store.folder import RunFolder
from store.runs import bits

CASES = """
title = "Two depths"
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
[[cases]]
name = "shallow"
title = "Shallow"
layers = {depth = 2}
[[cases]]
name = "deep"
"""


@pytest.fixture
def experiment(tmp_path):
    return experiment_of(CASES, "cases.toml", tmp_path)


def test_cases_have_folders_rows_and_one_picture(experiment, tmp_path):
    said = []
    folder = run_experiment(
        experiment, tmp_path / "run", watch=Watch(stage=lambda words, share: said.append((words, share)))
    )
    assert folder.status == "done"
    assert [case.path.name for case in folder.cases] == ["shallow", "deep"]
    assert [int(case.trajectory().stats["steps"]) for case in folder.cases] == [2, 3]
    rows = folder.results["rows"]
    assert [(row["name"], row["title"], row["numbers"]["steps"]) for row in rows] == [
        ("shallow", "Shallow", 2),
        ("deep", "deep", 3),
    ]
    assert [figure["name"] for figure in folder.results["figures"]] == ["panels"]
    assert (tmp_path / "run" / folder.results["figures"][0]["file"]).stat().st_size > 1000
    assert said[:2] == [("shallow", 0.0), ("deep", 0.5)]


def test_an_interrupted_experiment_goes_on_and_does_nothing_twice(experiment, tmp_path):
    def stop_at_the_second(words, share):
        if share == 0.5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        run_experiment(experiment, tmp_path / "run", watch=Watch(stage=stop_at_the_second))
    assert caught.value.folder == tmp_path / "run"
    folder = RunFolder(tmp_path / "run")
    assert folder.status == "unfinished"
    first = (tmp_path / "run/cases/shallow/results.json").stat().st_mtime_ns
    assert resume(tmp_path / "run").status == "done"
    assert (tmp_path / "run/cases/shallow/results.json").stat().st_mtime_ns == first
    whole = run_experiment(experiment, tmp_path / "whole")
    for a, b in zip(folder.cases, whole.cases, strict=True):
        assert bits(a.trajectory()) == bits(b.trajectory())


def test_a_run_from_python_is_resumed_by_its_folder(tmp_path, monkeypatch):
    """The folder has the call: no file is needed."""
    I = jnp.eye(2)
    tokens = mf.PointCloud(np.random.default_rng(0).normal(size=(6, 2)))
    whole = mf.layers(mf.Softmax(I, I, I), tokens, 4, step=0.3)
    keep, kept = mf.Journal.keep, []

    def twice(self, *args):
        keep(self, *args)
        kept.append(1)
        if len(kept) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mf.Journal, "keep", twice)
        with pytest.raises(KeyboardInterrupt):
            mf.layers(mf.Softmax(I, I, I), tokens, 4, step=0.3, journal=mf.Journal(tmp_path / "run", every=0))
    assert len(mf.load(tmp_path / "run").times) == 3
    folder = resume(tmp_path / "run")
    assert folder.status == "done"
    assert bits(folder.trajectory()) == bits(whole)


def without_seconds(results):
    rows = [{**row, "seconds": 0} for row in results["rows"]]
    return {**results, "seconds": 0, "rows": rows}


@pytest.mark.parametrize("loss", ["gone", "a byte", "of another run"])
@pytest.mark.parametrize("place", ["", "cases/deep"])
def test_figures_that_are_gone_or_changed_are_told_and_drawn_again(place, loss, experiment, tmp_path, capsys):
    path = run_experiment(experiment, tmp_path / "run").path
    written, results = write_report(path).read_text(), RunFolder(path).results
    (drawn,) = (path / place / "figures").iterdir()
    data = drawn.read_bytes()
    drawn.unlink()
    if loss != "gone":
        drawn.write_bytes(b"<svg/>" if loss == "of another run" else data[:-9] + b"x" + data[-8:])
    with pytest.raises(mf.FolderError, match=f"{drawn.name} has changed since the run wrote it, or is gone") as error:
        resume(path)
    assert f"meanformer resume {path} --discard-damaged" in error.value.remedy
    folders.write_report(path)
    name = drawn.relative_to(path).as_posix()
    assert f"Not in the report, since gone or changed: {name}" in capsys.readouterr().err
    words = RunFolder(path).discard_damaged()
    assert any(drawn.name in word for word in words)
    assert RunFolder(path).status == "unfinished"
    resume(path)
    assert drawn.read_bytes() == data
    assert without_seconds(RunFolder(path).results) == without_seconds(results)
    assert write_report(path).read_text().count("<img") == written.count("<img")
    assert RunFolder(path).discard_damaged() == []


def test_another_experiment_and_other_files_are_not_touched(experiment, tmp_path):
    other = experiment_of(CASES.replace("n = 6", "n = 7"), "cases.toml", tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"format": 1, "kind": "cases", "experiment_hash": "other"}))
    with pytest.raises(mf.InputError, match="holds another run"):
        run_experiment(other, tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(mf.InputError, match="other things"):
        run_experiment(other, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_numbers_are_those_of_the_final_state():
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, -2.0]])
    I = jnp.eye(2)
    run = mf.layers(mf.Affine(I), tokens, 1, step=1.0)  # doubles everything
    numbers = numbers_of(run)
    assert numbers["radius"] == 4.0
    assert numbers["mean_norm"] == 0.0
    assert numbers["trace"] == pytest.approx(4 * (1 + 4) / 2)
    assert numbers["participation_ratio"] == pytest.approx(25 / 17)
    assert numbers["stable_rank"] == pytest.approx(1.25)
    assert numbers["clusters"] == 4
    assert (numbers["outcome"], numbers["time"], numbers["steps"]) == ("REACHED", 1.0, 1)
    assert "rank" not in numbers
    assert numbers_of(run, ["rank", "steps"]) == {"rank": None, "steps": 1}


def test_a_violated_bound_is_told():
    tokens = mf.PointCloud([[1.0, 0.0], [-1.0, 0.0]])
    I = jnp.eye(2)
    run = mf.layers(mf.Softmax(I, I, I), tokens, 1, step=1.0)
    (claim,) = claims_of(run, None)
    assert claim["holds"] is True
    # A step of length 9 in "one unit of time" is no solution of the equation, and leaves its bound.
    wrong = mf.layers(mf.Softmax(I, I, 9 * I), tokens, 1, step=1.0)
    moved = mf.Trajectory(run.times, wrong.saved, wrong.last, run.outcome, run.stats, run.system, True)
    (claim,) = claims_of(moved, None)
    assert claim["holds"] is False
    assert claim["measured"] > claim["bound"]


def test_what_has_collapsed_is_one_cluster():
    """1 % of the diameter at the start: at 1 % of its own, a cloud that shrinks keeps its clusters for ever."""
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, -2.0]])
    run = mf.layers(mf.Affine(-jnp.eye(2)), tokens, 1, step=0.999)
    assert run.clusters().count == 4
    assert numbers_of(run, ["clusters"]) == {"clusters": 1}


def test_a_folder_makes_nobody_read_other_files(tmp_path, monkeypatch):
    """One of somebody else may name any file of this machine: it goes on only if it began with the same bytes."""
    (tmp_path / "theirs").mkdir()
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    table = '[measure]\nkind = "points"\npoints = {file = "../x.npy"}\n'
    text = CASES.partition("[[cases]]")[0].replace('[measure]\nkind = "ball"\nn = 6\nd = 2\n', table)
    begun = run_experiment(experiment_of(text, "theirs.toml", tmp_path / "theirs"), tmp_path / "theirs" / "run")
    assert "3 tokens" in repr(begun.trajectory())
    np.save(tmp_path / "x.npy", np.full((3, 2), 1234.5))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("a file was read"))
    with pytest.raises(mf.InputError, match="holds another"):
        resume(begun.path)
    # What shows a folder shows what is in it.
    assert "1234.5" not in write_report(begun.path).read_text("utf-8")
    assert "3 tokens" in repr(mf.load(begun.path))

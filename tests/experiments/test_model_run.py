"""Run folders of models: stages, going on after an interruption, inputs."""

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments import model as model_file
from meanformer.experiments import model_parts
from meanformer.experiments.comparison import compare, summary
from meanformer.experiments.model import Asked, Given, analyse, given, resume_model
from meanformer.experiments.runner import Interrupted, Watch, resume
from meanformer.models import along, closure, head_facts, load
from meanformer.models.projection import token_map
from meanformer.report.model import write_model_report
from meanformer.store import disk, ledger
from meanformer.store.folder import RunFolder
from meanformer.store.writer import Writer
from store.runs import rewrite

ORACLES = Path(__file__).parents[1] / "models" / "oracles"
NAMES = [stage.name for stage in model_parts.STAGES]
WORDS = "the tokens move in a mean field ."


def asked(**changes) -> Asked:
    return Asked(**{"model": str(ORACLES / "bert"), "given": given(words=WORDS), "draws": 2, "depth": 5} | changes)


def found(folder: Path) -> dict:
    """What was found, but for how long it took, and for the sum of bytes that say so."""
    results = json.loads((folder / "results.json").read_text())
    results["numbers"].pop("seconds")
    return {name: value for name, value in results.items() if name not in ("seconds", "peak_bytes", "checksum")}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "bert"
    told = []
    watch = Watch(stage=lambda words, share: told.append(share))
    analyse(asked(), folder, command="meanformer model bert", watch=watch)
    assert told == sorted(told)
    assert told[0] == 0
    assert 0.9 < told[-1] <= 1
    return folder


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["manifest.json", "input.txt", "run.json"])
def test_a_run_that_is_killed_at_its_beginning_goes_on(name, listed, tmp_path, monkeypatch):
    """As soon as it is a run, it has its input; before, it begins anew."""
    write = Writer.write

    def killed(self, file, data):
        if file == name and listed:  # but not yet written
            self._claim({file: data})
            raise KeyboardInterrupt
        write(self, file, data)
        if file == name:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Writer, "write", killed)
        analyse(asked(), path)
    monkeypatch.setattr("meanformer.experiments.model_parts.STAGES", ())
    monkeypatch.setattr("meanformer.experiments.model_parts.results_of", lambda *_: {})
    folder = RunFolder(path)
    assert folder.exists() == (name == "run.json" and not listed)
    folder = resume_model(path) if folder.exists() else analyse(asked(), path)
    assert (folder.status, (path / "input.txt").read_text()) == ("done", WORDS)


def test_a_figure_that_is_gone_is_drawn_again(done, tmp_path):
    shutil.copytree(done, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    drawn = [folder.path / one["file"] for one in folder.results["figures"]]
    before = {file: file.read_bytes() for file in drawn}
    drawn[0].unlink()
    with pytest.raises(mf.FolderError, match=drawn[0].name):
        resume(folder.path)
    assert f"figures/{drawn[0].name}" in folder.discard_damaged()
    resume(folder.path)
    assert {file: file.read_bytes() for file in drawn} == before
    assert folder.discard_damaged() == []


def test_an_input_that_was_changed_since_is_not_lost(tmp_path, monkeypatch):
    """Of a run that was killed before it was one."""
    write = Writer.write

    def killed(self, file, data):
        if file == "run.json":
            raise KeyboardInterrupt
        write(self, file, data)

    path = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Writer, "write", killed)
        analyse(asked(), path)
    (path / "input.txt").write_text("mine")
    with pytest.raises(mf.FolderError, match=r"changed since the run wrote it.*input\.txt"):
        analyse(asked(), path)
    assert (path / "input.txt").read_text() == "mine"


def test_an_input_in_the_place_of_ours(tmp_path):
    """There is no run yet that could be resumed."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/files.jsonl").write_bytes(ledger.line({"run": "a", "inside": None, "place": None}))
    (tmp_path / "run/input.txt").write_text("mine")
    with pytest.raises(mf.FolderError, match="in the way") as error:
        analyse(asked(), tmp_path / "run")
    assert error.value.remedy == "move it away, then give the same command again"
    assert (tmp_path / "run/input.txt").read_text() == "mine"


@pytest.mark.parametrize("source", ["file", "-"])
def test_an_input_is_not_larger_than_what_a_folder_keeps(source, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "LARGEST", 1000)
    for size in (1000, 1001):
        (tmp_path / "text.txt").write_bytes(b"a" * size)
        name = str(tmp_path / "text.txt") if source == "file" else source
        with (tmp_path / "text.txt").open(encoding="utf-8") as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            if size == 1000:
                assert given(text=name).data == b"a" * size
            else:
                with pytest.raises(mf.InputError, match="too large"):
                    given(text=name)


def test_results_are_those_of_the_library(done):
    results = RunFolder(done).results
    record = load(ORACLES / "bert").record(WORDS)
    L, H, n = record.depth, record.model.heads, record.n
    curves = along(record)
    for name in ("average_cosine", "effective_rank", "norm"):
        np.testing.assert_allclose(results["curves"][name], getattr(curves, name), rtol=1e-12)
    np.testing.assert_allclose(results["attention"]["energy"], curves.energy, rtol=1e-12)
    np.testing.assert_allclose(results["closure"]["error"], closure(record, draws=0).error, rtol=1e-12)
    np.testing.assert_allclose(results["closure"]["tilt"], closure(record, draws=0).tilt, rtol=1e-12)
    # Nulls have mean values and ratios of their own.
    for null in ("random", "matched", "resampled"):
        bands = [results["closure"][name] for name in (null, f"{null}_mean_only", f"{null}_ratio")]
        assert np.shape([[band[line] for line in ("low", "middle", "high")] for band in bands]) == (3, 3, L)
        low, high = (np.divide(bands[0][a], bands[1][b]) for a, b in (("low", "high"), ("high", "low")))
        assert ((low <= bands[2]["middle"]) & (bands[2]["middle"] <= high)).all()
        assert np.shape(results["closure"][f"{null}_mean_only_heads"]["middle"]) == (L, H)
    assert "parameters" not in results["model"]
    facts = head_facts(record)
    assert [(head["layer"], head["head"]) for head in results["heads"]] == [(f.layer, f.head) for f in facts]
    np.testing.assert_allclose(results["heads"][3]["ov"], np.stack([facts[3].ov.real, facts[3].ov.imag], 1), rtol=1e-12)
    assert results["input"] == {
        "kind": "text", "source": "", "cut_from": None, "n": n, "labels": list(record.labels), "grid": None,
        "weights": None,
    }  # fmt: skip
    assert np.shape(results["map"]["points"]) == (L + 1, n, 2)
    assert np.shape(results["map"]["deep"]["points"])[1:] == (n, 2)
    assert min(results["map"]["deep"]["layers"]) > L
    assert results["deep"]["layers"][-1] == 5
    # The plane is that of the model: what lies beyond its depth does not turn it.
    states = [np.asarray(record.state(l).points) for l in range(L + 1)]
    np.testing.assert_allclose(results["map"]["points"], token_map(states).points, atol=1e-4)
    assert [row["layer"] for row in results["most_seen"]] == list(range(L))
    for band in results["bands"].values():
        low, middle, high = (np.array(band["effective_rank"][name]) for name in ("low", "middle", "high"))
        assert low.shape == (L + 1,)
        assert (low <= middle).all()
        assert (middle <= high).all()
    # Tokens are the same before random weights act, and not before Gaussian tokens are drawn.
    first = {null: band["average_cosine"]["middle"][0] for null, band in results["bands"].items()}
    assert first["random weights"] == pytest.approx(curves.average_cosine[0], rel=1e-12)
    assert abs(first["Gaussian tokens"] - curves.average_cosine[0]) > 1e-6
    numbers = results["numbers"]
    errors, means = (np.array(results["closure"][name]) for name in ("error", "mean_only"))
    assert numbers["closure_beats_mean"] == (errors < means).mean()
    assert numbers["closure_error"] == pytest.approx(np.median(errors))
    assert numbers["heads"] == L * H
    assert all((done / figure["file"]).is_file() for figure in results["figures"])
    assert results["peak_bytes"] > 2**20
    assert 0 < results["seconds"] == numbers["seconds"]
    assert results["notes"] == []
    page = write_model_report(done).read_text()
    for heading in (
        "The tokens, layer by layer",
        "Over depth",
        "The Gaussian closure",
        "Heads",
        "Frozen layers",
        "Cite",
    ):
        assert f">{heading}</h2>" in page


def test_interrupted_at_each_stage(done, tmp_path, monkeypatch):
    """A run that is stopped in each of its stages finds the same as one that is not."""
    folder, original = tmp_path / "run", tmp_path / "text.txt"
    original.write_text(WORDS)
    question = asked(given=given(text=str(original)))

    def stop_at(name):
        def stop(work):
            raise KeyboardInterrupt

        stages = [s._replace(compute=stop) if s.name == name else s for s in model_parts.STAGES]
        monkeypatch.setattr(model_parts, "STAGES", tuple(stages))

    stages = model_parts.STAGES
    for number, name in enumerate(NAMES):
        monkeypatch.setattr(model_parts, "STAGES", stages)
        stop_at(name)
        with pytest.raises(Interrupted):
            analyse(question, folder) if number % 2 else resume_or_begin(folder, question)
        assert sorted(p.stem for p in (folder / "items").glob("*.json")) == sorted(NAMES[:number])
        assert summary(folder)["progress"] == f"{number} of {len(NAMES)} stages are done"
        assert RunFolder(folder).status == "unfinished"
        original.unlink(missing_ok=True) if number == 0 else None
        question = dataclasses.replace(question, given=Given("text", WORDS.encode(), "text.txt"))
    monkeypatch.setattr(model_parts, "STAGES", stages)
    resume_model(folder)
    once, again = found(done), found(folder)
    assert again["input"].pop("source") == "text.txt"
    assert once["input"].pop("source") == ""
    assert again == once


def resume_or_begin(folder: Path, question: Asked) -> RunFolder:
    return resume_model(folder) if folder.exists() else analyse(question, folder)


def test_a_stage_that_is_damaged_is_done_again(done, tmp_path):
    folder = tmp_path / "bert"
    shutil.copytree(done, folder)
    (folder / "results.json").unlink()
    (folder / "items" / "heads.json").write_text('{"name": "heads", "fou')
    kept = (folder / "items" / "curves.json").stat().st_mtime_ns
    resume_model(folder)
    assert found(folder) == found(done)
    assert (folder / "items" / "curves.json").stat().st_mtime_ns == kept


def test_what_a_model_cannot_have_is_a_note(done, tmp_path, monkeypatch):
    folder = tmp_path / "bert"
    shutil.copytree(done, folder)
    (folder / "results.json").unlink()
    (folder / "items" / "closure.json").unlink()

    def refused(*_, **__):
        mf._checks.refuse("there is no closure here", got="a test", expected="none", remedy="none")

    monkeypatch.setattr(sys.modules["meanformer.models.closures"], "closure", refused)
    resume_model(folder)
    results = found(folder)
    assert results["notes"] == ["No Gaussian closure: there is no closure here."]
    assert results["closure"] is None
    assert "closure_error" not in results["numbers"]
    assert results["curves"] == found(done)["curves"]


def test_a_folder_that_changed_is_not_gone_on_with(done, tmp_path):
    folder = tmp_path / "bert"
    shutil.copytree(done, folder)
    (folder / "results.json").unlink()
    (folder / "input.txt").write_text("another text")
    with pytest.raises(mf.FolderError, match=r"input\.txt has changed since the run began"):
        resume_model(folder)
    (folder / "input.txt").unlink()
    with pytest.raises(mf.FolderError, match=r"is gone: input\.txt(.|\n)*meanformer model bert"):
        resume_model(folder)
    model = tmp_path / "model"
    shutil.copytree(ORACLES / "bert", model)
    (folder / "input.txt").write_text(WORDS)
    settings = RunFolder(folder).record["experiment"]
    rewrite(folder / "run.json", experiment=settings | {"model": str(model)})
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    with pytest.raises(mf.FolderError, match=r"files of the model .* have changed"):
        resume_model(folder)


def test_other_questions_have_other_marks(tmp_path):
    one = asked()
    others = [{"seed": 1}, {"draws": 3}, {"depth": None}, {"cut": False}, {"dtype": "float64"}]
    others += [{"given": given(words=WORDS + " .")}, {"model": str(ORACLES / "roberta")}]
    assert len({one.mark, *(asked(**change).mark for change in others)}) == 1 + len(others)
    # Where model and text lie does not matter.
    shutil.copytree(ORACLES / "bert", tmp_path / "elsewhere")
    (tmp_path / "a text.txt").write_text(WORDS)
    moved = asked(model=str(tmp_path / "elsewhere"), given=given(text=str(tmp_path / "a text.txt")))
    assert moved.mark == one.mark
    assert (one.stem, moved.stem) == ("bert-text", "elsewhere-a-text")


def test_models_that_differ_in_their_weights_alone_have_other_marks(tmp_path, monkeypatch):
    """One bit is changed, and no size nor time: in a folder, and at the end of a file that counts as very large."""

    def marks(place, weights):
        before = asked(model=str(place)).mark
        data, times = bytearray(weights.read_bytes()), weights.stat()
        data[-1] ^= 1
        weights.write_bytes(data)
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
        return before, asked(model=str(place)).mark

    folder = tmp_path / "bert"
    shutil.copytree(ORACLES / "bert", folder)
    (weights,) = folder.glob("*.safetensors")
    one, other = marks(folder, weights)
    assert one != other
    digest = model_file._digest(weights)
    monkeypatch.setattr(model_file, "LARGE", 4096)
    monkeypatch.setattr(model_file, "END", 1024)
    assert model_file._digest(weights) != digest  # now it is large
    one, other = marks(folder, weights)
    assert one != other


def test_the_folder_is_that_of_one_question(done):
    with pytest.raises(mf.InputError, match="holds another run"):
        analyse(asked(seed=1), done)
    before = (done / "results.json").stat().st_mtime_ns
    analyse(asked(), done)
    resume_model(done)
    assert (done / "results.json").stat().st_mtime_ns == before


def test_the_commands_know_it(done, tmp_path):
    short = summary(done)
    assert short["status"] == "done"
    assert "map" not in short
    assert "ov" not in short["heads"][0]
    side = compare([done, done])
    assert side["settings"] == {}
    assert side["numbers"]["tokens"] == [short["numbers"]["tokens"]] * 2
    with pytest.raises(mf.FolderError, match="holds a model, not one run"):
        mf.load(done)
    with pytest.raises(mf.FolderError, match="holds a model, not a sweep"):
        mf.load_table(done)
    copy = tmp_path / "bert"
    shutil.copytree(done, copy)
    (copy / "mine.txt").write_text("mine")
    assert RunFolder(copy).clear() == ["mine.txt"]
    (copy / "mine.txt").unlink()
    RunFolder(copy).remove()
    assert not copy.exists()


def test_numbers_for_json():
    value = {"a": np.array([1.0, np.nan]), "b": (1 + 2j, float("inf")), "c": np.int64(3), "d": [True, None, "x"]}
    plain = model_parts.plain(value)
    assert plain == {"a": [1.0, None], "b": [[1.0, 2.0], None], "c": 3, "d": [True, None, "x"]}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain

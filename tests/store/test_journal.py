"""Interrupted runs go on to the same bits, and folders give runs back."""

import errno
import json
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.store import disk
from meanformer.store.folder import RunFolder
from store.runs import RUNS, bits, layers, tokens


class Interruption(Exception):
    pass


def interrupted(run, path, monkeypatch):
    """Call a run until it is done, each time interrupted after one segment; the run, and how often that was."""
    keep, times = mf.Journal.keep, 0
    while True:
        journal = mf.Journal(path, every=0)
        with monkeypatch.context() as patch:

            def once(self, *args):
                keep(self, *args)
                raise Interruption

            patch.setattr(mf.Journal, "keep", once)
            try:
                return run(journal), times
            except Interruption:
                journal.close()
                times += 1
                assert mf.load(path).outcome.kind == "UNFINISHED"


@pytest.mark.parametrize("name", RUNS)
def test_interrupted_and_whole_runs_have_the_same_bits(name, tmp_path, monkeypatch):
    run = RUNS[name]
    whole = run()
    resumed, times = interrupted(run, tmp_path / "run", monkeypatch)
    assert times >= 1
    loaded = mf.load(tmp_path / "run")
    assert bits(resumed) == bits(whole) == bits(loaded)
    assert loaded.summary() == whole.summary()
    assert str(loaded.fate) == str(whole.fate)
    # The same call on a finished folder reads it.
    assert bits(run(mf.Journal(tmp_path / "run"))) == bits(whole)


def test_a_folder_belongs_to_one_call(tmp_path):
    layers(mf.Journal(tmp_path / "run"))
    with pytest.raises(mf.InputError, match="holds another run"):
        mf.layers(mf.Softmax(jnp.eye(2), jnp.eye(2), -jnp.eye(2)), tokens(), 5, journal=mf.Journal(tmp_path / "run"))


def test_saved_runs_load_and_are_lazy(tmp_path, monkeypatch):
    run = layers()
    assert run.save(tmp_path / "run") == tmp_path / "run"
    loaded = mf.load(tmp_path / "run")
    reads = []
    read = RunFolder.read_segment
    monkeypatch.setattr(RunFolder, "read_segment", lambda self, n: reads.append(n) or read(self, n))
    assert np.array_equal(loaded.final.points, run.final.points)
    assert loaded.outcome.kind == "REACHED"
    assert reads == []
    assert bits(loaded) == bits(run)
    assert reads != []


def test_a_full_disk_says_what_is_safe_and_the_run_goes_on(tmp_path, monkeypatch):
    whole, write, count = layers(), disk._write, [0]

    def full(path, data):
        count[0] += 1
        if count[0] > 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(disk, "_write", full)
    journal = mf.Journal(tmp_path / "run", every=0)
    with pytest.raises(mf.FolderError, match="the disk is full") as caught:
        layers(journal)
    journal.close()
    assert "saved states" in caught.value.safe
    assert f"meanformer resume {tmp_path / 'run'}" in caught.value.remedy
    monkeypatch.setattr(disk, "_write", write)
    unfinished = mf.load(tmp_path / "run")
    count = len(unfinished.times)
    assert f"{count} saved states" in caught.value.safe
    assert 1 <= count < len(whole.times)
    assert bits(layers(mf.Journal(tmp_path / "run"))) == bits(whole)


def test_a_folder_that_cannot_be_written_is_told_before_the_run(tmp_path, monkeypatch):
    def forbidden(path, data):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(disk, "_write", forbidden)
    with pytest.raises(mf.FolderError, match="no permission") as caught:
        layers(mf.Journal(tmp_path / "run"))
    assert caught.value.safe == "nothing has been computed yet"


def test_one_writer_at_a_time(tmp_path):
    first = RunFolder(tmp_path / "run").lock()
    with pytest.raises(mf.FolderError, match="another process is writing"):
        layers(mf.Journal(tmp_path / "run"))
    first.release()
    assert layers(mf.Journal(tmp_path / "run")).outcome.ok


def test_damage_is_found_and_the_rest_is_safe(tmp_path):
    whole = layers(mf.Journal(tmp_path / "run", every=0))
    folder = RunFolder(tmp_path / "run")
    count = len(folder.manifest)
    chunk = next(
        p for p in (tmp_path / "run" / "segments" / "000004").rglob("*") if p.is_file() and p.parent.name != "000004"
    )
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(mf.FolderError, match=r"segment 000004 .* is damaged") as caught:
        _ = mf.load(tmp_path / "run").saved
    assert f"4 of {count}" in caught.value.safe
    folder.discard_damaged()
    assert len(folder.manifest) == 4
    assert bits(layers(mf.Journal(tmp_path / "run"))) == bits(whole)


def test_other_formats_are_refused_with_the_version_to_use(tmp_path):
    layers(mf.Journal(tmp_path / "run"))
    file = tmp_path / "run" / "run.json"
    record = json.loads(file.read_text()) | {"format": 99}
    file.write_text(json.dumps(record))
    with pytest.raises(mf.FolderError, match="has format 99, this version reads format 1"):
        mf.load(tmp_path / "run")


def test_a_late_journal_leaves_no_folder_for_a_short_run(tmp_path):
    whole = layers()
    assert bits(layers(mf.Journal(tmp_path / "run", every=1e9, late=True))) == bits(whole)
    assert not (tmp_path / "run").exists()
    layers(mf.Journal(tmp_path / "run", every=0, late=True))
    assert bits(mf.load(tmp_path / "run")) == bits(whole)


def test_runs_with_functions_load_but_do_not_evaluate_them(tmp_path):
    one = jnp.eye(2)
    field = mf.Scheduled(lambda t: mf.Softmax(one, one, jnp.cos(t) * one))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = mf.layers(field, tokens(), 3, journal=mf.Journal(tmp_path / "run"))
    loaded = mf.load(tmp_path / "run")
    assert bits(loaded) == bits(run)
    with pytest.raises(mf.InputError, match="keeps no functions"):
        loaded.field(loaded.final, loaded.final.points)


def test_a_folder_of_format_1_is_read_for_ever():
    """`frozen` was written when format 1 was made, and is never written again."""
    I = jnp.eye(2)
    field = mf.MultiHead([mf.Softmax(I, I, I, tau=2.0), mf.L2(I, -I, I)])
    start = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.5]], positions=[0.2, 0.5, 1.0])
    expected = mf.layers(field, start, 3, step=0.25)
    run = mf.load(Path(__file__).parent / "frozen")
    np.testing.assert_allclose(run.points, expected.points, rtol=1e-13)
    np.testing.assert_array_equal(run.states.positions[0], start.positions)
    assert run.times.tolist() == [0.0, 0.25, 0.5, 0.75]
    assert run.summary() == expected.summary()
    np.testing.assert_allclose(mf.velocity(run.field, run.final), mf.velocity(field, expected.final), rtol=1e-13)

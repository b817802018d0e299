"""Interrupted runs go on to the same bits, and folders give runs back."""

import contextlib
import errno
import gc
import signal
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.runner import flushed, interruptible
from meanformer.store import disk
from meanformer.store.folder import RunFolder
from store.runs import RUNS, bits, layers, rewrite, tokens


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
    monkeypatch.setattr(RunFolder, "read_segment", lambda self, n, *more: reads.append(n) or read(self, n, *more))
    assert np.array_equal(loaded.final.points, run.final.points)
    assert loaded.outcome.kind == "REACHED"
    assert reads == []
    assert bits(loaded) == bits(run)
    assert reads != []


@pytest.mark.parametrize("t1", [0.1, jnp.inf], ids=["finite", "endless"])
def test_runs_of_gaussians_load_with_their_fates(t1, tmp_path):
    gaussian = mf.Gaussian(jnp.zeros(1), jnp.eye(1))
    run = mf.flow(mf.Softmax(jnp.eye(1), jnp.eye(1), jnp.eye(1)), gaussian, t1, save=3 if t1 < 1 else None)
    loaded = mf.load(run.save(tmp_path / "run"))
    assert bits(loaded) == bits(run)
    assert str(loaded.fate) == str(run.fate) and loaded.fate.kind == run.fate.kind != ""


def test_a_full_disk_says_what_is_safe_and_the_run_goes_on(tmp_path, monkeypatch):
    whole, write, count = layers(), disk.write, [0]

    def full(name, data, at):
        count[0] += 1
        if count[0] > 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(name, data, at)

    monkeypatch.setattr(disk, "write", full)
    journal = mf.Journal(tmp_path / "run", every=0)
    with pytest.raises(mf.FolderError, match="the disk is full") as caught:
        layers(journal)
    journal.close()
    assert "saved states" in caught.value.safe
    assert f"meanformer resume {tmp_path / 'run'}" in caught.value.remedy
    monkeypatch.setattr(disk, "write", write)
    unfinished = mf.load(tmp_path / "run")
    count = len(unfinished.times)
    assert f"{count} saved states" in caught.value.safe
    assert 1 <= count < len(whole.times)
    assert bits(layers(mf.Journal(tmp_path / "run"))) == bits(whole)


def test_a_folder_that_cannot_be_written_is_told_before_the_run(tmp_path, monkeypatch):
    def forbidden(name, data, at):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(disk, "write", forbidden)
    with pytest.raises(mf.FolderError, match="no permission") as caught:
        layers(mf.Journal(tmp_path / "run"))
    assert caught.value.safe == "nothing has been computed yet"


def test_one_writer_at_a_time(tmp_path):
    first = RunFolder(tmp_path / "run")
    first.hold()
    with pytest.raises(mf.FolderError, match="this very process is writing"):
        layers(mf.Journal(tmp_path / "run"))
    first.release()
    assert layers(mf.Journal(tmp_path / "run")).outcome.ok


def test_damage_is_found_and_the_rest_is_safe(tmp_path):
    whole = layers(mf.Journal(tmp_path / "run", every=0))
    folder = RunFolder(tmp_path / "run")
    count = len(folder.manifest)
    segment = tmp_path / "run" / "segments" / "000004"
    chunk = next(p for p in segment.rglob("*") if p.is_file() and "c" in p.relative_to(segment).parts)  # numbers alone
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
    rewrite(tmp_path / "run" / "run.json", format=99)
    with pytest.raises(mf.FolderError, match="has format 99, this version reads format 2"):
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


@pytest.mark.parametrize("version", [1, 2])
def test_a_folder_of_every_format_is_read_for_ever(version):
    """`frozen1` was written when format 1 was made, and so on; they are never written again."""
    I = jnp.eye(2)
    field = mf.MultiHead([mf.Softmax(I, I, I, tau=2.0), mf.L2(I, -I, I)])
    start = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.5]], positions=[0.2, 0.5, 1.0])
    expected = mf.layers(field, start, 3, step=0.25)
    run = mf.load(Path(__file__).parent / f"frozen{version}")
    np.testing.assert_allclose(run.points, expected.points, rtol=1e-13)
    np.testing.assert_array_equal(run.states.positions[0], start.positions)
    assert run.times.tolist() == [0.0, 0.25, 0.5, 0.75]
    assert run.summary() == expected.summary()
    np.testing.assert_allclose(mf.velocity(run.field, run.final), mf.velocity(field, expected.final), rtol=1e-13)


@pytest.fixture
def heeded():
    """Ctrl-C counts, also in a suite that was started in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_interrupt_in_the_middle_of_a_write_neither_loses_nor_doubles_rows(tmp_path, monkeypatch, stride):
    """Ctrl-C at each step of the writer, or each fifth, as the command line has it: the write ends first, then the
    run.
    """

    def layers(journal=None):  # a segment at the start, in the middle and at the end
        return mf.layers(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens(), 3, journal=journal)

    whole, write, keep, steps = layers(), disk.write, mf.Journal.keep, 0
    for last in range(1, 200, stride):
        path, count, handed = tmp_path / f"run{last}", [0], [0]

        def counted(self, rows, *others, handed=handed):
            handed[0] += len(rows)
            keep(self, rows, *others)

        def interrupted(name, data, at, last=last, count=count):
            write(name, data, at)
            count[0] += 1
            if count[0] == last:
                signal.raise_signal(signal.SIGINT)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write", interrupted)
            patch.setattr(mf.Journal, "keep", counted)
            try:
                with interruptible(path), flushed(mf.Journal(path, every=0)) as journal:
                    run = layers(journal)
            except KeyboardInterrupt:
                run = None
        if run is not None:
            steps = last
            break
        if handed[0]:  # what was computed before is there, although nothing has gone on yet
            assert len(mf.load(path).times) == handed[0]
        assert bits(layers(mf.Journal(path))) == bits(whole) == bits(mf.load(path))
    assert steps > 50


def test_a_sampled_run_that_blows_up_has_the_same_end_when_it_is_resumed(tmp_path, monkeypatch):
    """Its last whole state is that at the start of the last segment, which must be kept too."""
    I = jnp.eye(2)

    def run(journal=None):
        field = mf.Affine(50.0 * I) + mf.Softmax(I, I, I)
        options = {"solver": "euler", "step": 0.5, "save": 4, "sample": 3, "progress": False}
        return mf.flow(field, tokens(), 200.0, journal=journal, **options)

    whole = run()
    assert whole.outcome.kind == "NOT_FINITE"
    resumed, times = interrupted(run, tmp_path / "run", monkeypatch)
    assert times >= 2
    assert np.isfinite(whole.final.points).all()
    assert bits(resumed) == bits(whole) == bits(mf.load(tmp_path / "run"))


def test_a_run_that_has_not_reached_a_save_time_can_be_read(tmp_path, monkeypatch):
    I = jnp.eye(2)

    def run(journal=None):
        options = {"solver": "euler", "step": 0.01, "save": [0.99, 1.0], "progress": False}
        return mf.flow(mf.Softmax(I, I, -I), tokens(), 1.0, journal=journal, **options)

    resumed, times = interrupted(run, tmp_path / "run", monkeypatch)
    assert times >= 1
    assert bits(resumed) == bits(run())


@pytest.mark.parametrize("damaged", [1, 3])
def test_what_is_damaged_is_computed_again(damaged, tmp_path):
    whole = layers(mf.Journal(tmp_path / "run", every=0))
    folder = RunFolder(tmp_path / "run")
    folder.put("results.json", {"status": "done"})
    (tmp_path / "run" / "segments" / f"{damaged:06d}" / "segment.json").write_text("{}")
    assert folder.discard_damaged() == [f"segment {damaged} and those after it"]
    assert folder.status == "unfinished"
    assert bits(layers(mf.Journal(tmp_path / "run"))) == bits(whole) == bits(mf.load(tmp_path / "run"))
    assert folder.discard_damaged() == []


@pytest.mark.parametrize("kind", ["done", "unfinished"])
def test_a_call_that_is_damaged_is_restored_by_the_same_call(kind, tmp_path, monkeypatch):
    """All else can be read meanwhile, and the call alone computes it again: nothing is forgotten."""
    whole = layers()
    with monkeypatch.context() as patch, contextlib.suppress(Interruption):
        if kind == "unfinished":
            patch.setattr(mf.Journal, "finish", lambda self, run: (_ for _ in ()).throw(Interruption))
        layers(mf.Journal(tmp_path / "run", every=0))
    folder, first = RunFolder(tmp_path / "run"), tmp_path / "run/segments/000000/segment.json"
    before, listed = first.read_bytes(), folder.manifest
    first.write_text("{}")
    there = mf.load(folder.path)
    assert (there.outcome.kind == "REACHED") == (kind == "done")
    with pytest.raises(mf.FolderError, match=r"segment 000000.*is damaged, and it holds the call") as error:
        folder.discard_damaged()
    assert "the same call in Python" in error.value.remedy
    assert bits(mf.load(folder.path)) == bits(there)
    assert bits(layers(mf.Journal(folder.path))) == bits(whole)
    assert first.read_bytes() == before
    assert folder.manifest[: len(listed)] == listed
    assert folder.discard_damaged() == []


def test_a_saved_run_that_is_damaged_keeps_what_can_be_read(tmp_path):
    layers().save(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert len(folder.manifest) > 2
    for number in range(len(folder.manifest) - 1):
        about = folder.path / f"segments/{number:06d}/segment.json"
        data = about.read_bytes()
        about.write_bytes(b"{}")
        files = {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()}
        with pytest.raises(mf.FolderError, match="a run that was saved cannot be computed again") as error:
            folder.discard_damaged()
        assert "save the run again" in error.value.remedy
        assert {file: file.read_bytes() for file in folder.path.rglob("*") if file.is_file()} == files
        about.write_bytes(data)
    assert folder.discard_damaged() == []


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_wrong_keyword_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError, match="evry"):
        mf.Journal(tmp_path / "run", evry=1)  # type: ignore[call-arg]
    gc.collect()


def test_saving_other_statistics_over_a_run_is_refused(tmp_path):
    I = jnp.eye(2)

    def seen(name):
        return mf.layers(mf.Softmax(I, I, I), tokens(), 2, observers={name: lambda mu, t: mu.radius})

    seen("a").save(tmp_path / "run")
    with pytest.raises(mf.InputError, match="holds another run"):
        seen("b").save(tmp_path / "run")


def test_other_versions_are_told_on_resume(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(mf.Journal, "finish", lambda self, run: (_ for _ in ()).throw(Interruption))
        journal = mf.Journal(tmp_path / "run", every=0)
        with pytest.raises(Interruption):
            layers(journal)
        journal.close()
    versions = RunFolder(tmp_path / "run").record["versions"]
    rewrite(tmp_path / "run" / "run.json", versions=versions | {"jax": "0.0.1"})
    with pytest.warns(UserWarning, match="other versions of jax"):
        layers(mf.Journal(tmp_path / "run"))

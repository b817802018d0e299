"""Signals, faults of the disk and odd clocks in the middle of a run: words, and then the same bits."""

import contextlib
import errno
import gc
import inspect
import io
import itertools
import os
import shutil
import signal
import subprocess
import time
import weakref

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D

import meanformer as mf
from meanformer.experiments.runner import Interrupted, flushed, interruptible
from meanformer.store import interruption
from meanformer.store.interruption import asked_once, recognised, undisturbed
from store.runs import bits, shrinking


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_asked_to_end_five_times(name, tmp_path, whole, monkeypatch):
    """The first time interrupts; the others come while what is done is written, and do not disturb that."""
    path, keep, flush = tmp_path / "run", mf.Journal.keep, mf.Journal.flush
    count = itertools.count()

    def kept(self, *args):
        keep(self, *args)
        if next(count) == 1:
            signal.raise_signal(signal.Signals[name])

    def flushing(self):
        for _ in range(2):
            signal.raise_signal(signal.Signals[name])
        flush(self)
        for _ in range(2):
            signal.raise_signal(signal.Signals[name])

    with monkeypatch.context() as patch:
        patch.setattr(mf.Journal, "keep", kept)
        patch.setattr(mf.Journal, "flush", flushing)
        with pytest.raises(Interrupted), interruptible(path), flushed(mf.Journal(path)) as journal:
            shrinking(journal)
    assert len(mf.load(path).times) == 3  # all that was computed
    assert bits(shrinking(mf.Journal(path))) == bits(whole)
    # Afterwards they mean what they meant before.
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.Signals[name])


def in_a_finaliser(ask):
    """Signals where Python forgets what is raised."""

    class Finalised:
        def __del__(self):
            ask()

    Finalised()


def in_the_garbage_collector(ask):
    """The same, as JAX's callback does it while it collects."""

    def collecting(phase, info):
        if phase == "start":
            ask()

    gc.callbacks.append(collecting)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collecting)


def in_a_weak_reference(ask):
    """The same, in what is called when a key of a dictionary goes."""

    class Key:
        pass

    key = Key()
    held = weakref.ref(key, lambda _: ask())
    del key
    assert held() is None


FORGETFUL = pytest.mark.parametrize("forgetful", [in_a_finaliser, in_the_garbage_collector, in_a_weak_reference])


@FORGETFUL
@pytest.mark.usefixtures("heeded")
def test_an_interruption_that_got_lost_is_not_forgotten(forgetful, tmp_path, whole, monkeypatch):
    """Python prints what is raised inside of a finaliser, and forgets it: nothing is raised there, and the next segment
    remembers.
    """
    keep, count, lost = mf.Journal.keep, itertools.count(), []

    def kept(self, *args):
        if next(count) == 1:
            forgetful(lambda: [signal.raise_signal(signal.SIGTERM) for _ in range(3)])
        keep(self, *args)

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("sys.unraisablehook", lost.append)
        patch.setattr(interruption, "SOON", 3600.0)  # it is the next segment that remembers
        patch.setattr(mf.Journal, "keep", kept)
        with pytest.raises(Interrupted), interruptible(path), flushed(mf.Journal(path)) as journal:
            shrinking(journal)
    assert lost == []
    assert len(mf.load(path).times) == 3
    assert bits(shrinking(mf.Journal(path))) == bits(whole)


@FORGETFUL
@pytest.mark.usefixtures("heeded")
def test_an_interruption_that_got_lost_comes_again(forgetful, monkeypatch):
    """By itself, also where no segment follows, as in a compilation; and once."""
    lost = []
    monkeypatch.setattr("sys.unraisablehook", lost.append)
    with asked_once():
        with pytest.raises(KeyboardInterrupt):  # it comes some time after
            forgetful(lambda: signal.raise_signal(signal.SIGINT))
            wait(60)
        signal.raise_signal(signal.SIGINT)
        wait(5 * interruption.SOON)
    assert lost == []


@FORGETFUL
@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_got_lost_at_the_very_end_is_raised_there(forgetful, number):
    with pytest.raises(KeyboardInterrupt), asked_once():
        forgetful(lambda: signal.raise_signal(number))
    time.sleep(2 * interruption.SOON)  # and not again


def wait(seconds):
    """In steps, since Python heeds signals between them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


@FORGETFUL
@pytest.mark.usefixtures("heeded")
def test_after_a_write_an_interruption_is_raised_wherever_it_came(forgetful):
    def write():
        with undisturbed():
            forgetful(lambda: signal.raise_signal(signal.SIGINT))

    with asked_once(), pytest.raises(KeyboardInterrupt):
        write()


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("forgetful", [in_a_finaliser, in_the_garbage_collector])
def test_what_cleans_up_is_not_left_in_the_middle(forgetful):
    ended = []

    def ask():
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    with pytest.raises(KeyboardInterrupt), asked_once():
        forgetful(ask)
    assert ended == [True]


@pytest.mark.usefixtures("heeded")
def test_other_words_of_what_python_forgets_are_printed(monkeypatch):
    lost = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: lost.append(found.exc_type))
    with asked_once():
        in_a_weak_reference(lambda: [][0])
    assert lost == [IndexError]
    in_a_weak_reference(lambda: [][1])  # and afterwards as before
    assert lost == [IndexError] * 2


def drawn_while_asked(monkeypatch):
    """A figure, and Ctrl-C where compiled code asks Python for a transformation, and then says that there is none."""
    matrix, count = Affine2D.get_matrix, itertools.count()

    def asked(self):
        if any(frame.function == "_convert_path" for frame in inspect.stack()) and next(count) == 1:
            signal.raise_signal(signal.SIGINT)
        return matrix(self)

    figure = Figure()
    figure.subplots().plot([0, 1], [1, 0])
    with monkeypatch.context() as patch:
        patch.setattr(Affine2D, "get_matrix", asked)
        figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.usefixtures("heeded")
def test_an_interruption_that_became_another_error(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Invalid affine"), asked_once():
        drawn_while_asked(monkeypatch)
    with pytest.raises(Interrupted), interruptible(tmp_path / "run"):
        drawn_while_asked(monkeypatch)
    with pytest.raises(ValueError, match="not asked"), interruptible(tmp_path / "run"):
        raise ValueError("not asked")


@pytest.mark.usefixtures("heeded")
def test_what_goes_wrong_after_an_interruption_has_its_own_words(tmp_path, monkeypatch):
    def full(self):
        raise mf.FolderError("the disk is full", safe="nothing", remedy="free some space")

    monkeypatch.setattr(mf.Journal, "flush", full)
    path = tmp_path / "run"
    with (
        pytest.raises((mf.FolderError, Interrupted)) as found,  # the latter alone would end the suite
        interruptible(path),
        recognised(),
        flushed(mf.Journal(path)),
    ):
        signal.raise_signal(signal.SIGINT)
    assert "the disk is full" in str(found.value)


@pytest.mark.usefixtures("heeded")
def test_an_ignored_signal_does_not_hide_another(heeded):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def write():
        with undisturbed():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        write()


def test_what_is_ignored_stays_ignored(tmp_path, whole):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(tmp_path / "run"), flushed(mf.Journal(tmp_path / "run")) as journal:
            signal.raise_signal(signal.SIGINT)
            assert bits(shrinking(journal)) == bits(whole)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("call", "number", "stride"),
    [
        *[("write", "ENOSPC", 11), ("fsync", "EIO", 11), ("replace", "EROFS", 11)],
        *[
            pytest.param(call, number, 1, marks=pytest.mark.nightly)
            for call in ("write", "fsync", "replace")
            for number in ("EIO", "ENOSPC", "EROFS")
        ],
    ],
)
def test_a_disk_that_fails_in_the_middle(call, number, stride, tmp_path, whole, monkeypatch):
    """At each step, or some: words that say what is safe, and the next process goes on to the same bits."""
    words = {"EIO": "the disk reports an error", "ENOSPC": "the disk is full", "EROFS": "the disk is read-only"}[number]
    real, failed = getattr(os, call), 0
    for last in range(0, 1000, stride):
        path, count = tmp_path / f"run{last}", itertools.count()

        def broken(*args, count=count, last=last, **options):
            if next(count) >= last:
                raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))
            return real(*args, **options)

        journal = mf.Journal(path, every=0)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, broken)
            try:
                shrinking(journal)
            except mf.FolderError as error:
                assert words in str(error)
                failed += 1
            else:
                break
            finally:
                journal.close()
        kept = 0
        with contextlib.suppress(mf.FolderError):  # perhaps it had not begun
            kept = len(mf.load(path).times)
        assert 0 <= kept <= 4
        assert bits(shrinking(mf.Journal(path))) == bits(whole) == bits(mf.load(path))
    assert failed >= 10 / stride


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own, where that is possible."""
    if shutil.which("mount") is None or os.name == "nt" or os.geteuid() != 0:
        pytest.skip("no right to mount a disk")
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("a disk cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_real_disk_that_turns_full(small_disk, whole, monkeypatch):
    keep, count = mf.Journal.keep, itertools.count()

    def kept(self, *args):
        keep(self, *args)
        if next(count) == 1:
            with contextlib.suppress(OSError):
                (small_disk / "other").write_bytes(bytes(2**21))

    journal = mf.Journal(small_disk / "run", every=0)
    with monkeypatch.context() as patch:
        patch.setattr(mf.Journal, "keep", kept)
        with pytest.raises(mf.FolderError, match="the disk is full") as caught:
            shrinking(journal)
    journal.close()
    assert "3 saved states" in caught.value.safe
    assert len(mf.load(small_disk / "run").times) == 3
    (small_disk / "other").unlink()
    assert bits(shrinking(mf.Journal(small_disk / "run"))) == bits(whole)


def test_a_clock_that_goes_backwards(tmp_path, whole, monkeypatch):
    now = itertools.count(2e9, -1e7)
    monkeypatch.setattr(time, "time", lambda: next(now))
    monkeypatch.setattr(time, "monotonic", lambda real=time.monotonic: real() // 60)  # and one that hardly goes
    shrinking(mf.Journal(tmp_path / "run", every=0))
    assert bits(mf.load(tmp_path / "run")) == bits(whole)
    assert bits(shrinking(mf.Journal(tmp_path / "run"))) == bits(whole)

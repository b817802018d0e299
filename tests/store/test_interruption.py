"""Ctrl-C and its kin, wherever they come: once, in words, with nothing lost and nothing left changed."""

import contextlib
import gc
import inspect
import io
import itertools
import signal
import sys
import threading
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
def test_an_interruption_that_got_lost_wakes_who_waits(forgetful):
    """As for another process."""
    other = threading.Event()
    patience = threading.Timer(60, other.set)
    patience.start()
    with pytest.raises(KeyboardInterrupt), asked_once():
        forgetful(lambda: signal.raise_signal(signal.SIGINT))
        other.wait()
    patience.cancel()
    assert not other.is_set()


@FORGETFUL
@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_that_got_lost_at_the_very_end_is_raised_there(forgetful, number):
    with pytest.raises(KeyboardInterrupt), asked_once():
        forgetful(lambda: signal.raise_signal(number))
    time.sleep(2 * interruption.SOON)  # and not again


@FORGETFUL
@pytest.mark.usefixtures("heeded")
def test_what_goes_wrong_at_the_very_end_has_its_own_words(forgetful, tmp_path):
    """Nothing is left to be interrupted."""
    with pytest.raises((mf.FolderError, KeyboardInterrupt), match="full"), asked_once():
        forgetful(lambda: signal.raise_signal(signal.SIGINT))
        raise mf.FolderError("full", safe="all", remedy="free some space")
    time.sleep(2 * interruption.SOON)  # nor does it come afterwards


@pytest.mark.usefixtures("heeded")
def test_an_interruption_at_the_very_end_of_a_run_says_how_to_go_on(tmp_path):
    with pytest.raises(KeyboardInterrupt) as found, interruptible(tmp_path / "run"):
        in_a_finaliser(lambda: signal.raise_signal(signal.SIGINT))
    assert isinstance(found.value, Interrupted)


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


def test_whoever_prints_what_python_forgets_has_it_back(monkeypatch):
    """Also if that was somebody else's meanwhile."""
    before = sys.unraisablehook
    with asked_once():
        assert sys.unraisablehook != before
    assert sys.unraisablehook is before
    with asked_once():
        monkeypatch.setattr("sys.unraisablehook", other := lambda found: None)
    assert sys.unraisablehook is other


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


def asked_for():
    signal.raise_signal(signal.SIGINT)


def asked_for_and_told_as_an_error():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ValueError("invalid matrix") from None


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("ask", [asked_for, asked_for_and_told_as_an_error])
@pytest.mark.parametrize(
    "error", [mf.FolderError("full", safe="nothing", remedy="free some space"), MemoryError("full")]
)
def test_what_goes_wrong_after_an_interruption_has_its_own_words(ask, error, tmp_path, monkeypatch):
    def full(self):
        raise error

    monkeypatch.setattr(mf.Journal, "flush", full)
    path = tmp_path / "run"
    with (
        pytest.raises((type(error), Interrupted)) as found,  # the latter alone would end the suite
        interruptible(path),
        recognised(),
        flushed(mf.Journal(path)),
    ):
        ask()
    assert "full" in str(found.value)


@pytest.mark.usefixtures("heeded")
def test_what_goes_wrong_in_a_folder_is_no_interruption(tmp_path):
    """As when it is left, on the way out."""
    path = tmp_path / "run"
    with pytest.raises((mf.FolderError, Interrupted), match="moved"), interruptible(path):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise mf.FolderError("moved", safe="all", remedy="none")


@pytest.mark.usefixtures("heeded")
def test_what_goes_wrong_long_after_has_its_own_words(tmp_path, monkeypatch):
    """Who hears of an interruption may decide to go on."""
    monkeypatch.setattr(interruption, "RECENT", 0.01)
    with pytest.raises((ValueError, Interrupted), match="singular"), interruptible(tmp_path / "run"):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.02)
        raise ValueError("singular")


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("guard", [asked_once, undisturbed])
def test_interrupted_at_any_line_of_beginning_and_ending(guard, name):
    """It interrupts, and afterwards every signal does what it did before."""
    number, file = signal.Signals[name], interruption.__file__
    before = [signal.getsignal(each) for each in interruption.ENDINGS], sys.unraisablehook

    def interrupted(last):
        """Ask at a line: whether that interrupts; None if there are fewer."""
        lines = itertools.count()

        def tracer(frame, event, arg):
            if frame.f_code.co_filename == file and event == "line" and next(lines) == last:
                sys.settrace(None)
                signal.raise_signal(number)
            return tracer if frame.f_code.co_filename == file else None

        sys.settrace(tracer)
        try:
            for _ in range(2):
                with guard():
                    pass
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False if next(lines) > last else None

    def checked(last):
        try:
            return interrupted(last)
        finally:
            assert ([signal.getsignal(each) for each in interruption.ENDINGS], sys.unraisablehook) == before

    traced = sys.gettrace()
    try:
        found = list(itertools.takewhile(lambda it: it is not None, map(checked, range(1000))))
    finally:
        sys.settrace(traced)
    assert 20 < len(found) < 1000
    assert all(found)


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

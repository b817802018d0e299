"""Faults of the disk and odd clocks in the middle of a run: words, and then the same bits."""

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import time

import pytest

import meanformer as mf
from store.runs import bits, shrinking


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

"""A small run, and its folder."""

import pytest

import meanformer as mf
from meanformer.store.folder import RunFolder
from store.runs import shrinking


@pytest.fixture(scope="module")
def whole():
    return shrinking()


@pytest.fixture
def path(tmp_path):
    """A finished run, as `meanformer run` leaves it."""
    shrinking(mf.Journal(tmp_path / "run", every=0))
    folder = RunFolder(tmp_path / "run")
    folder.put("figures/paths.svg", b"<svg/>")
    folder.put("results.json", {"status": "done", "numbers": {"radius": 1.25}})
    with folder.watched():
        folder.put_beside("report.html", b"<html>")
    return tmp_path / "run"

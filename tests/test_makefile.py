"""`make` creates its environment, and touches none that somebody else made. Nothing is installed: Python is a stub."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUB = """#!/bin/sh
# Says what it was asked, and creates what `-m venv` would: an environment whose python is this stub again.
echo "$@" >> "{log}"
case "$1 $2" in
  "--version "*) echo "Python 3.99" ;;
  "-m venv")
    [ ! -e "{folder}/fail" ] || exit 1
    for place in "$@"; do :; done
    mkdir -p "$place/bin" && cp "$0" "$place/bin/python" ;;
esac
"""
NEEDS_VENV = ["venv", "demo", "test", "docs", "pictures", "study", "theory", "mutants", "lint", "typecheck"]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


class Copy:
    """A folder with the Makefile and a stub of Python."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder, folder / "log"
        shutil.copy(ROOT / "Makefile", folder)
        (folder / "pyproject.toml").touch()
        stub = folder / "python-stub"
        stub.write_text(STUB.format(log=self.log, folder=folder))
        stub.chmod(0o755)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Not the flags of a make that runs these tests.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        command = ["make", *arguments, f"PYTHON={self.folder / 'python-stub'}"]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)

    def asked(self) -> str:
        """What Python was asked since the last look."""
        text = self.log.read_text() if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return text


@pytest.fixture
def copy(tmp_path) -> Copy:
    return Copy(tmp_path)


def test_an_environment_is_made_once(copy):
    assert copy.make("venv").returncode == 0
    assert "-m venv .venv" in copy.asked() and (copy.folder / ".venv" / ".dev").exists()
    assert copy.make("venv").returncode == 0
    assert copy.asked() == ""


@pytest.mark.parametrize("target", [*NEEDS_VENV, "bench"])
def test_an_environment_of_somebody_else_is_left_as_it_is(copy, target):
    name = ".venv-bench" if target == "bench" else ".venv"
    theirs = copy.folder / name / "lib" / "theirs.py"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious")
    done = copy.make(target)
    assert done.returncode != 0 and theirs.read_text() == "precious"
    assert [path.name for path in (copy.folder / name).iterdir()] == ["lib"]
    assert "venv" not in copy.asked()
    assert f"{name} is here already" in done.stderr and f"make VENV=.venv-meanformer {target}" in done.stderr


def test_another_place_can_be_chosen(copy):
    (copy.folder / ".venv").mkdir()
    assert copy.make("venv", "VENV=.venv-meanformer").returncode == 0
    assert "-m venv .venv-meanformer" in copy.asked() and list((copy.folder / ".venv").iterdir()) == []


def test_one_that_was_interrupted_is_known_again(copy):
    (copy.folder / "fail").touch()
    assert copy.make("venv").returncode != 0
    (copy.folder / "fail").unlink()
    assert copy.make("venv").returncode == 0


def test_clean_removes_what_make_has_made(copy):
    for name in ("src", "tests", "docs", "examples", "benchmarks", ".venv-bench"):
        (copy.folder / name).mkdir()
    assert copy.make("venv").returncode == 0
    done = copy.make("clean")
    assert done.returncode == 0 and ".venv-bench is not ours" in done.stdout
    assert not (copy.folder / ".venv").exists() and (copy.folder / ".venv-bench").exists()

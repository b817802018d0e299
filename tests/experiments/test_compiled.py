"""Compiled programmes that outlive the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meanformer.experiments.compiled import cache_folder, keep_compiled

# A programme with a check inside, as solvers have them: JAX keeps no programme that may call back to Python.
CODE = """
from meanformer.experiments.compiled import keep_compiled
print(keep_compiled())
import equinox as eqx, jax, jax.numpy as jnp
jax.jit(lambda x: eqx.error_if(jnp.sin(x), x < 0, "negative"))(jnp.ones(3)[0])
"""
# The last one JAX sets itself when it is loaded, so that children of this process inherit it.
SETTINGS = (
    "MEANFORMER_CACHE",
    "JAX_ENABLE_COMPILATION_CACHE",
    "JAX_COMPILATION_CACHE_DIR",
    "EQX_ON_ERROR",
    "TF_CPP_MIN_LOG_LEVEL",
)


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    own = {"XDG_CACHE_HOME": str(folder), "LOCALAPPDATA": str(folder), "HOME": str(folder)}
    own["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    command = [sys.executable, "-c", CODE]
    return subprocess.run(command, env=clean | own | environment, capture_output=True, text=True, check=True)


def kept(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*-cache")}


def test_what_is_compiled_is_kept_and_used_again(tmp_path):
    first = run(tmp_path)
    found = kept(tmp_path)
    assert any("lambda" in name for name in found)
    assert tmp_path in Path(first.stdout.strip()).parents
    second = run(tmp_path)
    assert kept(tmp_path) == found
    assert first.stdout == second.stdout
    assert first.stderr == second.stderr == ""  # a user sees nothing of it


@pytest.mark.parametrize("choice", [{"MEANFORMER_CACHE": "0"}, {"JAX_ENABLE_COMPILATION_CACHE": "false"}])
def test_nothing_is_kept_when_told_so(choice, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "jax")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in choice.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    assert keep_compiled() is None
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the variable is that of other platforms")
def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "jax")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    before = dict(os.environ)
    assert keep_compiled() is None
    assert dict(os.environ) == before


def test_folders_of_the_platforms():
    home = Path.home()
    assert cache_folder({}, "linux").parent == home / ".cache" / "meanformer"
    assert cache_folder({"XDG_CACHE_HOME": "/here"}, "linux").parent == Path("/here/meanformer")
    assert cache_folder({"XDG_CACHE_HOME": "/here"}, "darwin").parent == home / "Library" / "Caches" / "meanformer"
    assert cache_folder({"LOCALAPPDATA": "/there"}, "win32").parent == Path("/there/meanformer")
    assert cache_folder({}, "win32").parent == home / "AppData" / "Local" / "meanformer"

"""Seconds until something happens: help, import, and the first `meanformer run`, cold and warm."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from .harness import Part, Table

REPEATS = 5
# JAX sets the level of its log when it is loaded, and children would inherit that; and a user has bytecode.
NOT_INHERITED = ("TF_CPP_MIN_LOG_LEVEL", "PYTHONDONTWRITEBYTECODE")
INHERITED = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


def spent(arguments: list[str], **environment: str) -> tuple[float, float]:
    """Wall and CPU seconds of a Python process."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments],
        env=INHERITED | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed with exit code {child.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def measure(say: Callable[[str], None]) -> Part:
    """Small commands five times, runs cold and warm."""
    part = Part("startup", "Start-up")
    table = Table("A process of its own each time; medians of 5", ["command", "wall s", "CPU s"])
    commands = {
        "python -c pass": ["-c", "pass"],
        "import meanformer": ["-c", "import meanformer"],
        "import meanformer, and use of a name (loads JAX)": ["-c", "import meanformer; meanformer.Softmax"],
        "meanformer --help": ["-m", "meanformer", "--help"],
    }
    for name, command in commands.items():
        say(name)
        spent(command)  # once before: files that are read for the first time come from the disk
        walls, cpus = zip(*(spent(command) for _ in range(REPEATS)), strict=True)
        table.rows.append([f"`{name}`", f"{statistics.median(walls):.2f}", f"{statistics.median(cpus):.2f}"])
        if name.endswith("--help"):
            part.at_most("`meanformer --help`, CPU", statistics.median(cpus), 0.5, " s")
    part.tables.append(table)
    part.tables.append(runs(part, say))
    return part


def runs(part: Part, say: Callable[[str], None]) -> Table:
    """`meanformer run` with an empty cache of compiled programs, then with a full one, then without one."""
    table = Table("`meanformer run`, the whole tour of eleven kinds with its report", ["cache", "wall s", "CPU s"])
    on = {"MEANFORMER_CACHE": "1", "MEANFORMER_CACHE_DIR": ""}
    choices = {
        "empty (the first run)": on,
        "full (the second run)": on,
        "off (`MEANFORMER_CACHE=0`)": {"MEANFORMER_CACHE": "0"},
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in choices}
    for turn in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            command = ["-m", "meanformer", "run", "--out", f"{folder}/tour"]
            for name, environment in choices.items():
                say(f"meanformer run, cache {name}, {turn + 1} of {REPEATS}")
                found[name].append(
                    spent(command, XDG_CACHE_HOME=folder, LOCALAPPDATA=folder, HOME=folder, **environment)
                )
    for name, times in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        table.rows.append([name, f"{wall:.1f}", f"{cpu:.1f}"])
        part.stated(f"`meanformer run`, cache {name}", f"{wall:.1f} s, {cpu:.1f} s of CPU")
    return table

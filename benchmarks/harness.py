"""Timing side by side, and the records that a part of the benchmarks leaves."""

import dataclasses
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "torch", "pykeops", "geomloss", "ott-jax")
# Other libraries keep their threads spinning for some milliseconds after a call: the next contestant waits for them.
PAUSE = 0.05
# A call that is faster than this is repeated within one measurement.
SHORTEST = 0.02


@dataclasses.dataclass
class Table:
    """Rows of text under a head, with a sentence above."""

    caption: str
    head: list[str]
    rows: list[list[str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Target:
    """One figure beside what was wanted of it; `met` is None where nothing was asked but the figure itself."""

    what: str
    figure: str
    wanted: str
    met: bool | None = None


@dataclasses.dataclass
class Part:
    """What one part found; `facts` (machine, versions, peak memory) are filled in by the run."""

    name: str
    title: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    targets: list[Target] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def at_least(self, what: str, value: float, floor: float) -> None:
        """Note a figure that should not be below `floor`."""
        self.targets.append(Target(what, f"{value:.3g}", f"at least {floor:g}", bool(value >= floor)))

    def at_most(self, what: str, value: float, ceiling: float, unit: str = "") -> None:
        """Note a figure that should not be above `ceiling`."""
        self.targets.append(Target(what, f"{value:.3g}{unit}", f"at most {ceiling:g}{unit}", bool(value <= ceiling)))

    def stated(self, what: str, figure: str) -> None:
        """Note a figure of which only the statement was asked."""
        self.targets.append(Target(what, figure, "stated"))


@dataclasses.dataclass
class Timing:
    """Seconds of one contestant: the first call, which compiles, and then one number per round."""

    first: float
    rounds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def compiling(self) -> float:
        """The first call less a usual one."""
        return max(self.first - self.median, 0.0)

    def __str__(self) -> str:
        low, high = np.quantile(self.rounds, [0.25, 0.75])
        return f"{seconds(self.median)} ({seconds(low)} – {seconds(high)})"


def seconds(value: float) -> str:
    """A time with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _finished(call: Callable[[], Any]) -> Any:
    result = call()
    if "jax" in sys.modules:  # JAX computes in the background
        sys.modules["jax"].block_until_ready(result)
    return result


def side_by_side(contestants: dict[str, Callable[[], Any]], repeats: int = 7) -> dict[str, Timing]:
    """Time all contestants in turn, `repeats` rounds of them, each round in the reverse order of the one before."""
    if repeats < 5:
        raise ValueError(f"a median needs at least 5 repeats, got {repeats}")
    timings, loops = {}, {}
    for name, call in contestants.items():
        began = time.perf_counter()
        _finished(call)
        timings[name] = Timing(time.perf_counter() - began, [])
        began = time.perf_counter()
        _finished(call)
        loops[name] = max(1, int(SHORTEST / (time.perf_counter() - began)))
    for turn in range(repeats):
        names = list(contestants)
        for name in names if turn % 2 == 0 else reversed(names):
            time.sleep(PAUSE)
            began = time.perf_counter()
            for _ in range(loops[name]):
                _finished(contestants[name])
            timings[name].rounds.append((time.perf_counter() - began) / loops[name])
    return timings


def ratio(slow: Timing, fast: Timing) -> float:
    """How many times `fast` is faster: the median of the quotients of the rounds."""
    return statistics.median(s / f for s, f in zip(slow.rounds, fast.rounds, strict=True))


def ratio_text(slow: Timing, fast: Timing) -> str:
    """`ratio`, with quartiles."""
    quotients = [s / f for s, f in zip(slow.rounds, fast.rounds, strict=True)]
    low, middle, high = np.quantile(quotients, [0.25, 0.5, 0.75])
    return f"{middle:.3g} ({low:.3g} – {high:.3g})"


def first_call(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds: for a call that compiles before the rounds begin."""
    began = time.perf_counter()
    return _finished(call), time.perf_counter() - began


def growth(sizes: list[int], times: list[float]) -> list[float]:
    r"""Exponents $\log(T_{i+1}/T_i)/\log(n_{i+1}/n_i)$ between neighbouring sizes."""
    return list(np.diff(np.log(times)) / np.diff(np.log(sizes)))


def facts() -> dict[str, Any]:
    """The machine and the versions, as seen by this process."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "machine": f"{model}, {cores} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def installed(*packages: str) -> bool:
    """Whether all these packages are installed (without importing them)."""
    import importlib.util

    return all(importlib.util.find_spec(package) is not None for package in packages)

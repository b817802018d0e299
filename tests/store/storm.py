"""Runs of all kinds, killed at random instants and gone on with, to equal bits: run by test_storm.py as a script.

    python storm.py FOLDER 1000          so many SIGKILLs, in two lanes

Each process is a fork of one that has imported everything and computed nothing: JAX starts its threads in the child.
Now and then a process is asked to end instead (Ctrl-C five times, SIGTERM, SIGHUP), or is held for a while.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib.figure  # noqa: F401
import zarr.storage  # noqa: F401

import meanformer as mf
from meanformer.experiments import build, figures, numbers, sweeps  # noqa: F401
from meanformer.experiments.config import experiment_of
from meanformer.experiments.model import Asked, analyse, given
from meanformer.experiments.reproductions.runner import reproduce
from meanformer.experiments.runner import resume, run_experiment
from meanformer.store.folder import RunFolder
from meanformer.store.interruption import ENDINGS, asked_once

LANES = 2
MODEL = Path(__file__).parents[1] / "models" / "oracles" / "bert"

FIELD = 'attention = {kind = "softmax", Q = "identity", K = "identity", V = "identity"}\n'
LOOK = 'diagnostics = {check = false}\nfigures = {draw = ["paths"]}\nsave = {every = 1e-9}\n'
TOKENS = 'measure = {kind = "ball", n = 30, d = 2}\n'
TEXTS = {
    "tokens": FIELD + TOKENS + "flow = {t1 = 2.0, rtol = 1e-9}\n" + LOOK,
    "layers": FIELD + TOKENS + "layers = {depth = 12}\n" + LOOK,
    "endless": 'attention = {kind = "softmax", Q = "identity", K = -1.0, V = "identity"}\n'
    + 'measure = {kind = "gaussian", mean = [1.0, 1.0], cov = "identity"}\nflow = {t1 = inf}\n'
    + LOOK,
    "density": 'attention = {kind = "l2", Q = 0.7, K = 0.7, V = 1.0}\n'
    + 'measure = {kind = "density", cells = 80, of = {kind = "gaussian", cov = [[0.2]]}}\nflow = {t1 = 0.3}\n'
    + LOOK,
    "cases": FIELD
    + TOKENS
    + "layers = {depth = 4}\n"
    + LOOK
    + '[[cases]]\nname = "a"\n[[cases]]\nname = "b"\nmeasure = {n = 20}\n',
    "sweep": FIELD
    + TOKENS
    + "layers = {depth = 30}\n"
    + LOOK
    + 'sweep = {draws = 4, workers = 2, numbers = ["radius", "clusters"], grid = {"attention.tau" = [0.5, 1.0]}}\n',
}


def experiment(name: str) -> Callable[[Path], Any]:
    def run(path: Path) -> None:
        run_experiment(experiment_of(TEXTS[name], f"{name}.toml", path.parent), path)

    return run


def model(path: Path) -> None:
    analyse(Asked(str(MODEL), given(words="the tokens move in a mean field ."), depth=3, draws=2), path)


def paper(path: Path) -> None:
    reproduce("castin2025", path, items=["A5b", "A6"], quick=True)


KINDS: dict[str, Callable[[Path], Any]] = {name: experiment(name) for name in TEXTS}
KINDS |= {"model": model, "reproduction": paper}
# What takes long is killed less often.
SHARES = {"sweep": 1, "model": 2, "reproduction": 2, "cases": 3}


def found(path: Path) -> str:
    """A hash of all that was found, but for how long it took and when."""
    folder, digest = RunFolder(path), hashlib.sha256()

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            times = ("seconds", "computing_seconds", "made_by", "peak_bytes", "around", "loading")
            return {key: plain(value) for key, value in node.items() if key not in times}
        return [plain(value) for value in node] if isinstance(node, list) else node

    assert folder.status == "done"
    digest.update(json.dumps(plain(folder.results), sort_keys=True).encode())
    runs = [case.path for case in folder.cases] or [path] * (folder.record["kind"] == "flow")
    for run in runs:
        loaded = mf.load(run)
        for leaf in jax.tree.leaves((loaded.times, loaded.saved, loaded.last, loaded.outcome)):
            digest.update(str(leaf.dtype).encode() + bytes(memoryview(jax.device_get(leaf)).cast("B")))
    if folder.record["kind"] == "sweep":
        digest.update(folder.table().to_dataframe().to_csv().encode())
    for file in sorted((path / "figures").glob("*.svg")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def child(kind: str, path: Path, told: Path) -> int:
    """A process that runs, or goes on, and tells what it found."""
    number = os.fork()
    if number:
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(number, number)
        return number
    try:
        os.setpgid(0, 0)
        for ending in ENDINGS:
            signal.signal(ending, signal.default_int_handler)
        with asked_once():  # to the end, as the command line has it
            try:
                resume(path) if RunFolder(path).exists() else KINDS[kind](path)
                told.write_text(found(path))
                os._exit(0)
            except KeyboardInterrupt:
                os._exit(130)
            except BaseException:
                told.with_suffix(".error").write_text(traceback.format_exc())
    finally:
        os._exit(1)


def ended(number: int, patience: float) -> int | None:
    """The exit status of a child, or None if it is still there."""
    until = time.monotonic() + patience
    while True:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > until:
            return None
        time.sleep(0.002)


def lane(base: Path, seed: int, kills: int) -> dict[str, Any]:
    """So many kills of all kinds of runs."""
    base.mkdir(parents=True)
    draw = random.Random(seed)
    reference, seconds = {}, {}
    for kind in KINDS:
        for attempt in ("cold", "warm"):  # compiled, then read
            path, told = base / f"{kind}-{attempt}", base / f"{kind}-{attempt}.told"
            began = time.monotonic()
            status = ended(child(kind, path, told), 1200)
            assert status == 0, f"{kind}: {status}: {errors(told)}"
            seconds[kind] = time.monotonic() - began
            assert reference.setdefault(kind, told.read_text()) == told.read_text(), f"{kind}: two runs differ"
    counts = {kind: {"kills": 0, "asked": 0, "held": 0, "whole": 0} for kind in KINDS}
    paths: dict[str, tuple[Path, Path]] = {}
    bag = [kind for kind in KINDS for _ in range(SHARES.get(kind, 6))]
    number = 0
    while sum(count["kills"] for count in counts.values()) < kills:
        kind, number = draw.choice(bag), number + 1
        path, told = paths.setdefault(kind, (base / f"{kind}-{number}", base / f"{kind}-{number}.told"))
        process = child(kind, path, told)
        status = ended(process, draw.uniform(0, 1.05 * seconds[kind]))
        how = draw.choice(["kill"] * 6 + ["group"] * 6 + ["int", "term", "hup", "stop"])
        if status is None:
            status = attack(process, how, counts[kind])
        if status == 0:  # done: equal bits, and from the beginning
            assert told.read_text() == reference[kind], f"{kind}: other bits in {path}"
            counts[kind]["whole"] += 1
            del paths[kind]
            shutil.rmtree(path)
        else:
            code = os.waitstatus_to_exitcode(status)
            assert code in (-signal.SIGKILL, 130), f"{kind}: exit {code} in {path}: {errors(told)}"
            counts[kind]["kills"] += code == -signal.SIGKILL
    for kind, (path, told) in paths.items():  # what is left goes on to its end
        status = ended(child(kind, path, told), 1200)
        assert status == 0, f"{kind}: {status}: {errors(told)}"
        assert told.read_text() == reference[kind], f"{kind}: other bits in {path}"
        counts[kind]["whole"] += 1
    return counts


def attack(process: int, how: str, count: dict[str, int]) -> int:
    """End a process in one of many ways, or hold it; its exit status."""
    if how == "stop":
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.05)
        os.kill(process, signal.SIGCONT)
        count["held"] += 1
    elif how in ("int", "term", "hup"):
        ending = {"int": signal.SIGINT, "term": signal.SIGTERM, "hup": signal.SIGHUP}[how]
        for _ in range(5 if how == "int" else 1):
            os.kill(process, ending)
            time.sleep(0.001)
        count["asked"] += 1
    else:
        (os.killpg if how == "group" else os.kill)(process, signal.SIGKILL)
    status = ended(process, 1200)
    assert status is not None, f"still there after {how}"
    return status


def errors(told: Path) -> str:
    file = told.with_suffix(".error")
    return file.read_text()[-3000:] if file.exists() else "no words"


def main(base: Path, kills: int) -> None:
    lanes = []
    for seed in range(LANES):
        number = os.fork()
        if number == 0:
            try:
                told = lane(base / f"lane{seed}", seed, -(-kills // LANES))
                (base / f"lane{seed}.json").write_text(json.dumps(told))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        lanes.append(number)
    failed = [os.waitpid(number, 0)[1] for number in lanes]
    assert not any(failed), "a lane failed"
    total: dict[str, dict[str, int]] = {}
    for seed in range(LANES):
        for kind, counts in json.loads((base / f"lane{seed}.json").read_text()).items():
            before = total.setdefault(kind, dict.fromkeys(counts, 0))
            total[kind] = {name: before[name] + count for name, count in counts.items()}
    print(json.dumps(total))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

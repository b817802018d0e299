"""A server of the explorer, as a process of its own, and a page of it that asks and collects answers."""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from meanformer.app.protocol import unpack
from meanformer.experiments.config import read_experiment
from meanformer.experiments.runner import run_experiment

PATIENCE = 600.0
"""So many seconds a test waits for a message: what compiles on a busy machine takes long."""

SMALL: dict[str, Any] = {
    "seed": 3,
    "attention": {
        "kind": "softmax",
        "Q": [[1.0, 0.2], [0.0, 0.7]],
        "K": [[0.5, 0.0], [0.1, 1.0]],
        "V": [[0.6, -0.3], [0.2, 0.4]],
    },
    "measure": {"kind": "ball", "n": 16, "d": 2},
    "flow": {"t1": 0.5},
    "save": {"times": 6},
}
"""An experiment that costs nothing once it is compiled."""
SLOW: dict[str, Any] = {**SMALL, "measure": {"kind": "ball", "n": 3000, "d": 2}, "flow": {"t1": 500.0}}
"""A run of minutes."""


def ran(file: Path, folder: Path) -> Path:
    """The folder of `meanformer run file --out folder`, which is run in this process."""
    return run_experiment(read_experiment(file), folder).path


def alone(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns, run in a thread of its own: in this one a browser may keep its loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def changed(experiment: dict[str, Any], **tables: Any) -> dict[str, Any]:
    """An experiment with keys of its tables changed; a table that is None is left out."""
    new = {key: dict(part) if isinstance(part, dict) else part for key, part in experiment.items()}
    for name, part in tables.items():
        if part is None:
            new.pop(name, None)
        else:
            new[name] = {**new.get(name, {}), **part} if isinstance(part, dict) else part
    return new


@dataclasses.dataclass
class Server:
    """A running explorer: `folder` is where it was started, and its runs are in `folder / "runs"`."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    first: str
    """The address that was printed first, with its token."""

    def new_address(self) -> str:
        """What the terminal prints when Enter is pressed."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return _printed(self.process)

    @functools.cached_property
    def entered(self) -> "Entered":
        """A session, which tests share that are not about how one gets it."""
        return enter(self.new_address())

    @property
    def home(self) -> str:
        """The address of the page, for who has the cookie."""
        return self.address + self.entered.place

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @contextlib.contextmanager
    def page(self) -> Iterator["Page"]:
        """A page that is connected."""
        address, cookie = self.home.replace("http", "ws") + "ws", {"Cookie": self.entered.cookie}
        with connect(
            address, max_size=None, open_timeout=PATIENCE, close_timeout=60, additional_headers=cookie
        ) as socket:
            yield Page(socket)

    def workers(self) -> list[int]:
        """The processes of its workers, where Linux tells."""
        return children_of(self.process.pid)


@dataclasses.dataclass(frozen=True)
class Entered:
    """What a browser has that was let in: the place, e.g. "/abc/", and its cookie, "name=value"."""

    place: str
    cookie: str


def enter(address: str) -> Entered:
    """What the page at an address of the terminal does: its token for a session."""
    root, _, token = address.partition("/#token=")
    with urllib.request.urlopen(f"{root}/enter", token.encode(), timeout=PATIENCE) as answer:
        return Entered(json.load(answer)["place"], answer.headers["Set-Cookie"].partition(";")[0])


def children_of(pid: int) -> list[int]:
    """The processes that a process started, from /proc."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of the program, in brackets, may hold anything.
            if int(file.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(file.parent.name))
    return sorted(found)


class Answer(dict):
    """A message of the server, with its arrays."""

    def __init__(self, message: dict[str, Any], arrays: dict[str, np.ndarray]):
        super().__init__(message)
        self.arrays = arrays


class Answers(list):
    """All answers to one request, in their order."""

    def one(self, say: str) -> Answer:
        """The only answer that says this."""
        found = [answer for answer in self if answer["say"] == say]
        assert len(found) == 1, f"{len(found)} answers say {say!r}: {[dict(answer) for answer in self]}"
        return found[0]

    def frames(self, name: str) -> np.ndarray:
        """An array of all frames, whatever messages they came in."""
        parts = [answer for answer in self if answer["say"] == "frames"]
        at = 0
        for part in parts:
            assert part["first"] == at
            at += len(part.arrays["times"])
        return np.concatenate([part.arrays[name] for part in parts])

    def curve(self, name: str) -> np.ndarray:
        """A curve that came after the end."""
        return next(a.arrays[name] for a in self if a["say"] == "curves" and name in a.arrays)


class Page:
    """What a browser does with the websocket."""

    def __init__(self, socket: ClientConnection):
        self.socket = socket
        self.numbers = itertools.count(1)
        self.hello = self.receive()
        assert self.hello["say"] == "hello"

    def receive(self, timeout: float = PATIENCE) -> Answer:
        """The next message, to whatever request."""
        data = self.socket.recv(timeout)
        return Answer(*unpack(data)) if isinstance(data, bytes) else Answer(json.loads(data), {})

    def send(self, do: str, slot: str = "main", **parts: Any) -> int:
        """Ask, and do not wait: the number of the request."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"do": do, "slot": slot, "run": number, **parts}))
        return number

    def answers(self, number: int, slot: str = "main", timeout: float = PATIENCE) -> Answers:
        """The answers to a request until its last; those to others are dropped."""
        found, until = Answers(), time.monotonic() + timeout
        while True:
            answer = self.receive(until - time.monotonic())
            if (answer.get("slot"), answer.get("run")) == (slot, number):
                found.append(answer)
                if is_last(found):
                    return found

    def ask(self, do: str, slot: str = "main", **parts: Any) -> Answers:
        """Ask, and wait for all answers."""
        return self.answers(self.send(do, slot, **parts), slot)

    def run(self, experiment: Any, want: list[str] | None = None, slot: str = "main") -> Answers:
        """The answers to an experiment."""
        return self.ask("run", slot, experiment=experiment, **({} if want is None else {"want": want}))


def is_last(answers: Answers) -> bool:
    """Whether a request is answered; a run of tokens ends with its energy, or with the word that there is none."""
    last = answers[-1]
    if last["say"] == "end":
        return not any(answer["say"] == "start" and answer["of"] == "tokens" for answer in answers)
    return last["say"] in ("refused", "failed", "cancelled", "toml", "read") or "energy_name" in last


@contextlib.contextmanager
def started(folder: Path, *arguments: str, port: int = 0, browser: bool = False, **extra: str) -> Iterator[Server]:
    """A server with its own folder, until the block ends; `extra` goes into its environment."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", **extra}
    command = [sys.executable, "-m", "meanformer", "explore", *arguments]
    command += ["--port", str(port), *(() if browser else ("--no-browser",))]
    with (folder / "errors.txt").open("a") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        process = subprocess.Popen(command, cwd=folder, env=environment, text=True, encoding="utf-8", **pipes)
        try:
            first = _printed(process)
            yield Server(process, first.partition("/#")[0], folder, first)
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _printed(process: subprocess.Popen[str]) -> str:
    """The next address that the server prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+/#token=[\w-]+", line):
            return found[0]
    raise AssertionError(f"the server ended with code {process.wait()} and printed no address")

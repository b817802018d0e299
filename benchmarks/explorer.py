"""The explorer: seconds from a change on the page to its frames, and twenty pages at once for a minute."""

import contextlib
import dataclasses
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .harness import Part, Table

SIZES = (500, 5_000, 50_000)
REPEATS = 7
PAGES, SECONDS, PAUSE, TOKENS = 20, 60.0, 1.0, 300
LONGEST = 300.0
"""Seconds after which a message that has not come is an error."""


def experiment(n: int, rng: random.Random) -> dict[str, Any]:
    """What the page asks for when matrices change: many tokens with fast sums, and fewer frames."""
    matrices = {name: [[rng.uniform(-1, 1) for _ in range(2)] for _ in range(2)] for name in "QKV"}
    return {
        "attention": {"kind": "softmax", **matrices},
        "measure": {"kind": "ball", "n": n, "d": 2},
        "flow": {"t1": 2.0, **({"accuracy": 1e-5} if n > 5000 else {})},
        "save": {"times": max(11, min(101, 3_000_000 // (2 * n)))},
    }


@dataclasses.dataclass(frozen=True)
class Entered:
    """Who was let in: the address of the websocket, and the cookie that it needs."""

    address: str
    cookie: str

    def connect(self) -> Any:
        """A websocket, as a context."""
        from websockets.sync.client import connect

        return connect(self.address, max_size=None, open_timeout=60, additional_headers={"Cookie": self.cookie})


def enter(printed: str) -> Entered:
    """What a browser does with the address that the explorer printed."""
    root, _, token = printed.partition("/#token=")
    with urllib.request.urlopen(f"{root}/enter", token.encode()) as answer:
        place, cookie = json.load(answer)["place"], answer.headers["Set-Cookie"].partition(";")[0]
    return Entered(f"ws{root.removeprefix('http')}{place}ws", cookie)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[int, "Entered"]]:
    """A server on a machine that has never compiled anything: its process, and how its websocket is reached."""
    environment = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_COMPILATION_CACHE"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "meanformer", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)))
            yield process.pid, enter(found[0])
        finally:
            process.terminate()


class Page:
    """A websocket that asks for runs and notes when their parts come."""

    def __init__(self, entered: Entered):
        self.stack = contextlib.ExitStack()
        self.socket = self.stack.enter_context(entered.connect())
        self.numbers = itertools.count(1)
        self.socket.recv(LONGEST)

    def send(self, asked: dict[str, Any]) -> int:
        """Ask for a run; the one before is cancelled."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"do": "run", "slot": "main", "run": number, "experiment": asked}))
        return number

    def receive(self, timeout: float) -> dict[str, Any]:
        """The next message, without its arrays."""
        from meanformer.app.protocol import unpack

        data = self.socket.recv(timeout)
        return unpack(data)[0] if isinstance(data, bytes) else json.loads(data)

    def timed(self, asked: dict[str, Any]) -> dict[str, float]:
        """Seconds from a change to the first frame, the first that moved, the last, and the last curve."""
        began, number, found = time.perf_counter(), self.send(asked), {}
        while "curves" not in found:
            answer = self.receive(LONGEST)
            say = answer["say"]
            if say in ("refused", "failed"):
                raise RuntimeError(answer["words"])
            if answer["run"] == number and (say != "curves" or "energy_name" in answer):
                found.setdefault(say, time.perf_counter() - began)
        return found


def resident(pid: int) -> float:
    """Megabytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(server: int) -> dict[str, float]:
    """Megabytes of the server, and of its workers in sum."""
    workers = [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if int(stat.read_text().rpartition(")")[2].split()[1]) == server
    ]
    return {"server": resident(server), f"{len(workers)} workers": sum(map(resident, workers))}


def latencies(part: Part, entered: Entered, say: Callable[[str], None]) -> None:
    """One page that changes its matrices."""
    head = ["tokens", "", "first frame", "first that moved", "all frames", "all curves"]
    table = Table(f"Seconds from a change to what is seen; warm: medians of {REPEATS}, with the slowest", head)
    rng, page = random.Random(1), Page(entered)
    steps = ("start", "frames", "end", "curves")
    for n in SIZES:
        say(f"{n:,} tokens, cold")
        cold = page.timed(experiment(n, rng))
        table.rows.append([f"{n:,}", "cold", *(f"{cold[step]:.2f}" for step in steps)])
        say(f"{n:,} tokens, warm")
        warm = [page.timed(experiment(n, rng)) for _ in range(REPEATS)]
        columns = [sorted(one[step] for one in warm) for step in steps]
        table.rows.append([f"{n:,}", "warm", *(f"{statistics.median(c):.3f} ({c[-1]:.3f})" for c in columns)])
        first, moved = (statistics.median(column) for column in columns[:2])
        part.stated(f"n = {n:,}: change to first frame, to the first that moved", f"{first:.3f} s, {moved:.3f} s")
    page.stack.close()
    part.tables.append(table)


class Visitor(threading.Thread):
    """A page whose reader changes a matrix about once a second."""

    def __init__(self, entered: Entered, seed: int):
        super().__init__(daemon=True)
        self.page, self.rng = Page(entered), random.Random(seed)
        self.asked = self.ended = 0
        self.errors: list[str] = []
        self.moved: list[float] = []
        """Seconds from a change to its first frames; one that the next overtook before they came has none."""
        self.last: list[float] = []
        """The same for the last change, which nothing overtakes: these alone tell how long a page may have to wait."""

    def run(self) -> None:
        """Change and watch for a minute, then wait for the last run."""
        end = time.perf_counter() + SECONDS
        try:
            while time.perf_counter() < end:
                self._watch(self.page.send(experiment(TOKENS, self.rng)), PAUSE * self.rng.uniform(0.5, 1.5))
            self._watch(self.page.send(experiment(TOKENS, self.rng)), LONGEST, to_the_end=True)
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    def _watch(self, number: int, seconds: float, to_the_end: bool = False) -> None:
        began, seen = time.perf_counter(), False
        self.asked += 1
        while (left := began + seconds - time.perf_counter()) > 0:
            try:
                answer = self.page.receive(left)
            except TimeoutError:
                break
            if answer["say"] in ("refused", "failed"):
                self.errors.append(answer["words"])
            if answer["run"] == number and answer["say"] == "frames" and not seen:
                seen = True
                (self.last if to_the_end else self.moved).append(time.perf_counter() - began)
            if answer["run"] == number and answer["say"] == "end":
                self.ended += 1
                if to_the_end:
                    return
        if to_the_end:
            self.errors.append("the last run did not end")


def spread(seconds: list[float]) -> str:
    """The median and the slowest; a page that never saw a frame has neither."""
    return f"median {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s" if seconds else "none came"


def load(part: Part, server: int, entered: Entered, say: Callable[[str], None]) -> None:
    """Twenty pages at once."""
    before = memory(server)
    visitors = [Visitor(entered, seed) for seed in range(PAGES)]
    say(f"{PAGES} pages at once for {SECONDS:g} s")
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
        visitor.page.stack.close()
    after = memory(server)
    moved = sorted(itertools.chain.from_iterable(visitor.moved for visitor in visitors))
    last = sorted(itertools.chain.from_iterable(visitor.last for visitor in visitors))
    errors = [error for visitor in visitors for error in visitor.errors]
    asked, ended = (sum(getattr(visitor, name) for visitor in visitors) for name in ("asked", "ended"))
    rows = [
        ["changes", f"{asked}"],
        ["runs to the end (the others were overtaken by the next change of their page)", f"{ended}"],
        ["errors", f"{len(errors)}" + "".join(f"; {error}" for error in sorted(set(errors))[:3])],
        ["changes whose first frames came before the next change", f"{len(moved)} of {asked - len(visitors)}"],
        ["seconds to them, where they came", spread(moved)],
        [f"the last change of each page, all at once: {len(last)} had frames, after", spread(last)],
        *([f"memory of {name}: before, after", f"{before[name]:.0f} MB, {after[name]:.0f} MB"] for name in before),
    ]
    caption = f"{PAGES} pages at once for {SECONDS:g} s, {TOKENS} tokens, a new matrix each second or so"
    part.tables.append(Table(caption, ["", ""], rows))
    part.at_most(f"explorer, {PAGES} pages at once: errors", len(errors), 0)


def measure(say: Callable[[str], None]) -> Part:
    """Latencies of one page, then many pages."""
    part = Part("explorer", "The explorer")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (server, entered):
        latencies(part, entered, say)
        load(part, server, entered, say)
    return part


def main() -> None:
    """Measure this alone, and print what was found."""
    part = measure(lambda text: print(f"    {text}", flush=True))
    for table in part.tables:
        print(f"\n{table.caption}\n")
        for row in (table.head, ["---"] * len(table.head), *table.rows):
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

"""Queue and workers, with a worker that does what it is told, well or badly."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app._pages import PATIENCE, alone
from meanformer.app import pool as pools
from meanformer.app.pool import Job, Pool, shape_of

# It speaks as a real one does, through the same desk; what it does is in the job.
WORKER = """
import json, os, sys, time
from meanformer.app.worker import Desk
desk = Desk(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
desk.answer(b"d", json.dumps({"id": 0}).encode())
while True:
    job = desk.jobs.get()
    def tell(**words):
        desk.answer(b"t", json.dumps({"slot": job["slot"], "run": job["run"], **words}).encode())
    tell(say="begun", pid=os.getpid())
    end = time.monotonic() + job.get("seconds", 0)
    while time.monotonic() < end and (job.get("deaf") or job["id"] not in desk.cancelled):
        time.sleep(0.005)
        if job.get("chatter"):
            tell(say="doing")
    if job.get("dies"):
        os._exit(3)
    if job["id"] not in desk.cancelled or job.get("deaf"):
        desk.answer(b"b", b"bytes")
        tell(say="end")
    desk.answer(b"d", json.dumps({"id": job["id"], "size": job.get("size", {})}).encode())
"""


class Desk:
    """A pool, and what it delivered, in order."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.heard: list[dict[str, Any]] = []
        self.forgotten: list[str] = []

    async def ask(self, name: str, **message: Any) -> Job:
        """Submit a job; its `slot` is its name."""

        async def deliver(data: str | bytes) -> None:
            told = json.loads(data) if isinstance(data, str) else {"slot": name, "say": "bytes"}
            self.heard.append(told)
            if message.get("gone"):
                raise ConnectionError("the page is gone")

        job = Job(
            {"do": "run", "slot": name, "run": 1, **message},
            deliver,
            lambda job: self.forgotten.append(job.message["slot"]),
        )
        await self.pool.submit(job)
        return job

    def said(self, name: str) -> list[str]:
        return [told["say"] for told in self.heard if told["slot"] == name]

    async def until(self, name: str, *says: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait until one of these was said to a job."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for told in self.heard:
                if told["slot"] == name and told["say"] in says:
                    return told
            await asyncio.sleep(0.005)
        raise AssertionError(f"{name} was told {self.said(name)}, and not {says}")

    async def idle(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait until so many workers, and the clerk, are idle."""
        end = time.monotonic() + seconds
        while count and len(self.pool.idle) < count + 1:
            assert time.monotonic() < end, "no worker is idle"
            await asyncio.sleep(0.005)


@pytest.fixture
def play(monkeypatch) -> Callable[..., None]:
    """Runs a play with a pool of such workers, and sees to it that nothing is left of them."""
    monkeypatch.setattr(pools, "COMMAND", (sys.executable, "-c", WORKER))

    def run(scene: Callable[[Desk], Awaitable[None]], workers: int = 1, ready: int | None = None) -> None:
        async def whole() -> None:
            pool = Pool(workers)
            await pool.open()
            desk = Desk(pool)
            try:
                await desk.idle(workers if ready is None else ready)
                await scene(desk)
            finally:
                processes = [worker.process for worker in pool.workers if worker.process is not None]
                await pool.close()
            assert all(process.returncode is not None for process in processes)

        alone(whole())

    return run


def test_first_come_first_served_and_who_waits_is_told(play):
    async def scene(desk: Desk) -> None:
        for name in ("a", "b", "c", "d"):
            await desk.ask(name, seconds=0.2)
        await desk.until("d", "end")
        ends = [told["slot"] for told in desk.heard if told["say"] == "end"]
        assert ends == ["a", "b", "c", "d"]
        assert desk.said("a") == ["begun", "bytes", "end"]
        queued = {told["slot"]: told for told in desk.heard if told["say"] == "queued"}
        assert {name: told["before"] for name, told in queued.items()} == {"b": 0, "c": 1, "d": 2}
        assert queued["b"]["words"] == "Waiting for a free worker."
        assert queued["c"]["words"] == "Waiting: 1 run before this one."
        assert queued["d"]["words"] == "Waiting: 2 runs before this one."
        await desk.idle(1)
        assert desk.forgotten == ["a", "b", "c", "d"]

    play(scene)


def test_two_workers_do_two_jobs_at_once(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", seconds=600, n=1)
        await desk.ask("b", seconds=600, n=2)
        first, second = await desk.until("a", "begun"), await desk.until("b", "begun")
        assert first["pid"] != second["pid"]

    play(scene, workers=2)


def test_what_needs_no_run_waits_for_none(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", seconds=600)
        await desk.ask("b", seconds=600)
        for do in ("toml", "read"):
            await desk.ask(do, do=do)
            await desk.until(do, "end")
            assert "queued" not in desk.said(do)
            while not desk.pool.idle:  # the clerk puts it away
                await asyncio.sleep(0.005)
        assert desk.said("b") == ["queued"]

    play(scene)


def test_the_clerk_runs_nothing(play):
    """A run waits for the worker, though the clerk has nothing to do."""

    async def scene(desk: Desk) -> None:
        await desk.ask("toml", do="toml")
        clerk = (await desk.until("toml", "begun"))["pid"]
        await desk.idle(1)
        long = await desk.ask("a", seconds=600)
        await desk.until("a", "begun")
        await desk.ask("b")
        assert (await desk.until("b", "queued", "begun"))["say"] == "queued"
        await desk.pool.cancel(long)
        assert (await desk.until("b", "begun"))["pid"] != clerk

    play(scene)


def test_before_a_worker_is_there_a_job_waits(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a")
        await desk.until("a", "end")
        assert desk.said("a")[0] == "queued"
        assert "starting up" in desk.heard[0]["words"]

    play(scene, ready=0)


def test_a_cancelled_job_leaves_the_queue(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", seconds=0.3)
        waiting = await desk.ask("b")
        await desk.ask("c")
        await desk.pool.cancel(waiting)
        await desk.until("c", "end")
        assert desk.said("b") == ["queued"]

    play(scene)


def test_a_cancelled_job_is_left_by_its_worker_which_lives(play):
    async def scene(desk: Desk) -> None:
        job = await desk.ask("a", seconds=600)
        worker = (await desk.until("a", "begun"))["pid"]
        began = time.monotonic()
        await desk.pool.cancel(job)
        await desk.pool.cancel(job)  # twice is once
        await desk.ask("b")
        assert (await desk.until("b", "begun"))["pid"] == worker
        assert time.monotonic() - began < PATIENCE
        assert desk.said("a") == ["begun"]

    play(scene)


@pytest.mark.parametrize("chatter", [False, True])
def test_a_worker_that_does_not_listen_is_ended_and_the_next_job_served(play, monkeypatch, chatter):
    monkeypatch.setattr(pools, "GRACE", 0.3)

    async def scene(desk: Desk) -> None:
        job = await desk.ask("a", seconds=600, deaf=True, chatter=chatter)
        worker = (await desk.until("a", "begun"))["pid"]
        await desk.ask("b")
        await desk.pool.cancel(job)
        told = len(desk.said("a"))
        assert (await desk.until("b", "begun"))["pid"] != worker
        assert len(desk.said("a")) == told  # nothing of what nobody wants
        assert desk.forgotten[0] == "a"

    play(scene)


@pytest.mark.parametrize("chatter", [False, True])
def test_a_job_that_never_ends_is_ended(play, monkeypatch, chatter):
    monkeypatch.setattr(pools, "PATIENCE", 0.4)

    async def scene(desk: Desk) -> None:
        await desk.ask("a", seconds=600, chatter=chatter)
        words = (await desk.until("a", "failed"))["words"]
        assert "too long" in words
        await desk.ask("b")
        await desk.until("b", "end")

    play(scene)


def test_a_worker_that_dies_is_told_of_and_replaced(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", dies=True)
        told = await desk.until("a", "failed")
        assert "The worker process ended" in told["words"]
        await desk.ask("b")
        assert (await desk.until("b", "begun"))["pid"] != (await desk.until("a", "begun"))["pid"]
        await desk.until("b", "end")

    play(scene)


def test_a_page_that_is_gone_stops_nobody(play):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", seconds=0.05, gone=True)
        await desk.ask("b")
        await desk.until("b", "end")

    play(scene)


def test_workers_are_renewed_before_they_grow_old(play, monkeypatch):
    monkeypatch.setattr(pools, "MOST_JOBS", 2)

    async def scene(desk: Desk) -> None:
        for name in ("a", "b", "c"):
            await desk.ask(name)
            await desk.until(name, "end")
        pids = [told["pid"] for told in desk.heard if told["say"] == "begun"]
        assert pids[0] == pids[1] != pids[2]

    play(scene)


@pytest.mark.parametrize("size", [{"bytes": 4 * 2**30, "maps": 10}, {"bytes": 10, "maps": 50_000}])
def test_workers_are_renewed_when_they_are_large(play, size):
    async def scene(desk: Desk) -> None:
        await desk.ask("a", size=size)
        await desk.ask("b")
        assert (await desk.until("b", "begun"))["pid"] != (await desk.until("a", "begun"))["pid"]

    play(scene)


def test_a_worker_that_has_compiled_the_like_is_preferred(play, monkeypatch):
    async def scene(desk: Desk) -> None:
        monkeypatch.setattr(pools, "PREFERENCE", 600.0)
        await desk.ask("a", kind="softmax", t1=1, seconds=0)
        knows = (await desk.until("a", "begun"))["pid"]
        await desk.idle(2)
        for number, t1 in enumerate([2, 2.5, 3.0]):
            await desk.ask(f"b{number}", kind="softmax", t1=t1, seconds=0)
            assert (await desk.until(f"b{number}", "begun"))["pid"] == knows
            await desk.idle(2)
        # While it is busy the like waits for it, but not for ever; something else goes to the other at once.
        await desk.ask("c", kind="softmax", t1=4, seconds=600)
        assert (await desk.until("c", "begun"))["pid"] == knows
        await desk.ask("d", kind="l2", t1=4)
        assert (await desk.until("d", "begun"))["pid"] != knows
        await desk.until("d", "end")
        monkeypatch.setattr(pools, "PREFERENCE", 1.0)
        await desk.ask("e", kind="softmax", t1=5, seconds=0)
        assert desk.said("e") == ["queued"]
        assert (await desk.until("e", "begun"))["pid"] != knows

    play(scene, workers=2)


def test_a_worker_that_cannot_start_is_told_of(play, monkeypatch):
    monkeypatch.setattr(pools, "COMMAND", (sys.executable, "-c", "raise SystemExit(1)"))

    async def scene(desk: Desk) -> None:
        await desk.ask("a")
        assert "cannot be started" in (await desk.until("a", "failed"))["words"]

    play(scene, ready=0)


def test_shapes_are_told_apart_by_words_and_sizes_and_not_by_numbers():
    job = {"id": 1, "run": 1, "slot": "a", "experiment": {"measure": {"n": 5}, "Q": [[1, 0], [0, 1]], "kind": "l2"}}
    same = {
        "id": 2,
        "run": 9,
        "slot": "b",
        "experiment": {"kind": "l2", "measure": {"n": 5}, "Q": [[0.5, 1], [2, 0.0]]},
    }
    assert shape_of(job) == shape_of(same)
    others: list[dict[str, Any]] = [{"measure": {"n": 6}}, {"kind": "softmax"}, {"Q": [[1, 0]]}, {"mask": True}]
    for other in others:
        assert shape_of({**job, "experiment": {**job["experiment"], **other}}) != shape_of(job)


def test_the_shape_of_much_is_short_and_soon_told():
    """A worker remembers the shapes of its jobs; a page may send a megabyte of them."""
    inner: Any = {f"key {number}": '"\\' for number in range(20_000)}
    for _ in range(30):
        inner = {"of": inner, "quoted": '"'}
    began = time.process_time()
    assert len(shape_of(inner)) < 100
    assert time.process_time() - began < 5

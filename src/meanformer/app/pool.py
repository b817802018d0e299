"""The worker processes, and the queue before them."""

import asyncio
import collections
import dataclasses
import hashlib
import itertools
import json
import os
import struct
import sys
import time as clock
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from .limits import LIMITS

GRACE = 8.0
"""So many seconds a worker has to leave a job that nobody wants any more, before it is ended: compiling takes some."""
PATIENCE = LIMITS.seconds + 60.0
"""A job that takes longer is ended, whatever it does."""
CLERKS = ("toml", "read")
"""Jobs that read and write experiments, and run none."""
PREFERENCE = 0.5
"""So many seconds a job waits for a worker that has compiled the like: compiling takes longer."""
# A worker is renewed after so many jobs, or when it has grown: each program that JAX compiles stays in memory.
MOST_JOBS, MOST_BYTES, MOST_MAPS = 300, 3 * 2**30, 40_000
MOST_RUNNING = 8 * 2**30
"""A worker that grows beyond this is ended in the middle of its job."""
COMMAND = (sys.executable, "-m", "meanformer.app.worker")
RECORD = struct.Struct("<cI")
NOT_STARTED = "The computation cannot be started; the terminal says why."

Deliver = Callable[[str | bytes], Awaitable[None]]


@dataclasses.dataclass(eq=False)
class Job:
    """Something that a page asked for: `message` for the worker, `deliver` to the page."""

    message: dict[str, Any]
    deliver: Deliver
    forget: Callable[["Job"], None] = lambda job: None
    """Called when the job is done."""
    asked: float = dataclasses.field(default_factory=clock.monotonic)
    cancelled: float | None = None
    """When the page lost interest."""

    async def tell(self, **words: Any) -> None:
        """A message from the server itself."""
        await self.deliver(json.dumps({"slot": self.message["slot"], "run": self.message["run"], **words}))


class Worker:
    """A process that does one job after the other; started when it is first needed, and again after it has ended."""

    def __init__(self, clerk: bool = False) -> None:
        self.clerk = clerk
        self.process: asyncio.subprocess.Process | None = None
        self.records: asyncio.Queue[tuple[bytes, bytes] | None] = asyncio.Queue(4)
        self.reader: asyncio.Task[None] | None = None
        self.jobs = 0
        self.size: dict[str, int] = {}
        self.compiled: set[str] = set()
        """The shapes of the jobs that this process has done: their programs are compiled."""

    async def start(self) -> None:
        """Start the process; it answers when JAX is loaded."""
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.records, self.jobs, self.size, self.compiled = asyncio.Queue(4), 0, {}, set()
        self.reader = asyncio.create_task(self._read(self.process, self.records))

    async def _read(self, process: asyncio.subprocess.Process, records: asyncio.Queue[Any]) -> None:
        assert process.stdout is not None
        try:
            while True:
                letter, length = RECORD.unpack(await process.stdout.readexactly(RECORD.size))
                await records.put((letter, await process.stdout.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await records.put(None)

    async def write(self, message: dict[str, Any]) -> None:
        """Hand a message to the process."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.returncode is None

    @property
    def worn(self) -> bool:
        """Whether a new process should take over."""
        return self.jobs >= MOST_JOBS or self.size.get("bytes", 0) > MOST_BYTES or self.size.get("maps", 0) > MOST_MAPS

    def bytes_now(self) -> int:
        """The memory of the process; 0 where the system does not tell."""
        try:
            assert self.process is not None
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def end(self) -> None:
        """End the process, at once."""
        if self.reader is not None:
            self.reader.cancel()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self.process is not None:
            await self.process.wait()
        self.process = None


class Pool:
    """Some workers and one queue: first come, first served, by the idle worker that knows the job best.

    One more, the clerk, does what needs no run, and so never lets the page wait for one.
    """

    def __init__(self, count: int = 2):
        self.workers = [*(Worker() for _ in range(count)), Worker(clerk=True)]
        self.queue: collections.deque[Job] = collections.deque()
        self.running: dict[Worker, Job] = {}
        self.idle: list[Worker] = []
        self.numbers = itertools.count(1)
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start the workers: the page is there while they load."""
        self._spawn(self._open())

    async def _open(self) -> None:
        """One worker first, which has the cores to itself until it can begin with what the page asks for."""
        first, *others = self.workers
        await self._renew(first)
        for worker in others:
            self._spawn(self._renew(worker))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        """End all workers."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self.workers:
            await worker.end()

    async def submit(self, job: Job) -> None:
        """Put a job into the queue."""
        job.message = {**job.message, "id": next(self.numbers)}
        self.queue.append(job)
        self._dispatch()
        if job in self.queue:
            before = sum(other.message["do"] not in CLERKS for other in self.queue) - 1
            waiting = "Waiting for a free worker." if self.running else "The computation is starting up."
            words = f"Waiting: {before} run{'s' * (before != 1)} before this one." if before > 0 else waiting
            await job.tell(say="queued", before=before, words=words)

    def _dispatch(self) -> None:
        """Hand jobs to idle workers."""
        for job in list(self.queue):
            worker = self._chosen(job)
            if worker is not None:
                self.queue.remove(job)
                self.idle.remove(worker)
                self.running[worker] = job
                worker.compiled.add(shape_of(job.message))
                self._spawn(self._serve(worker, job))

    def _chosen(self, job: Job) -> Worker | None:
        """An idle worker for a job: one that has compiled the like; another one, if no such worker is soon free."""
        if job.message["do"] in CLERKS:
            return next((worker for worker in self.idle if worker.clerk), None)
        idle = [worker for worker in self.idle if not worker.clerk]
        shape = shape_of(job.message)
        known = [worker for worker in idle if shape in worker.compiled]
        if known or not idle:
            return known[0] if known else None
        soon = job.asked + PREFERENCE - clock.monotonic()
        if soon > 0 and any(shape in worker.compiled for worker in self.running):
            asyncio.get_running_loop().call_later(soon, self._dispatch)
            return None
        return idle[0]

    async def cancel(self, job: Job) -> None:
        """Take a job out of the queue, or ask its worker to leave it."""
        if job.cancelled is not None:
            return
        job.cancelled = clock.monotonic()
        if job in self.queue:
            self.queue.remove(job)
            return
        for worker, running in list(self.running.items()):
            if running is job and worker.alive:
                await _quietly(worker.write({"cancel": job.message["id"]}))

    async def _serve(self, worker: Worker, job: Job) -> None:
        """One job; then the worker is idle again, as a new process where the old one has ended."""
        try:
            # A process that ended while it was idle has lost nothing: a new one does the job.
            if worker.alive or await self._started(worker):
                await self._do(worker, job)
            else:
                await _quietly(job.tell(say="failed", words=NOT_STARTED))
        except Exception:  # a fault of ours: the job is lost, and not the worker
            traceback.print_exc()
            await worker.end()
        finally:
            self.running.pop(worker, None)
            job.forget(job)
        if not worker.alive or worker.worn:
            await self._renew(worker)
        else:
            self._rest(worker)

    def _rest(self, worker: Worker) -> None:
        self.idle.append(worker)
        self._dispatch()

    async def _renew(self, worker: Worker) -> None:
        while not await self._started(worker):  # not again at once
            while self.queue and not self.idle and not self.running:  # nobody else works either
                await _quietly(self.queue.popleft().tell(say="failed", words=NOT_STARTED))
            await asyncio.sleep(5)
        self._rest(worker)

    async def _started(self, worker: Worker) -> bool:
        """Whether a new process has come up."""
        await worker.end()
        try:
            await worker.start()
        except OSError:  # the system has no more processes, files or memory
            traceback.print_exc()
            return False
        return await worker.records.get() is not None

    async def _do(self, worker: Worker, job: Job) -> None:
        """Hand a job to a worker, and its answers to the page."""
        began = clock.monotonic()
        worker.jobs += 1
        await _quietly(worker.write(job.message))
        if job.cancelled is not None:
            await _quietly(worker.write({"cancel": job.message["id"]}))
        while True:
            # Also between messages: a worker that talks all the time may still not listen.
            if job.cancelled is not None and clock.monotonic() - job.cancelled > GRACE:
                await worker.end()
                return
            if clock.monotonic() - began > PATIENCE:
                await worker.end()
                await _quietly(job.tell(say="failed", words="The run took too long for this page, and was ended."))
                return
            if worker.bytes_now() > MOST_RUNNING:
                await worker.end()
                words = f"The run needed more than {MOST_RUNNING >> 30} GB of memory, and was ended: try fewer tokens."
                await _quietly(job.tell(say="failed", words=words))
                return
            try:
                record = await asyncio.wait_for(worker.records.get(), 0.5)
            except TimeoutError:
                continue
            if record is None:
                await worker.end()
                words = "The worker process ended, perhaps for want of memory. A new one takes over; try fewer tokens."
                await _quietly(job.tell(say="failed", words=words))
                return
            letter, data = record
            if letter == b"d":
                worker.size = json.loads(data).get("size", {})
                return
            if job.cancelled is None:
                await _quietly(job.deliver(data.decode() if letter == b"t" else data))


def shape_of(value: Any) -> str:
    """What decides whether a job needs new programs: all words and sizes of what is asked, but not the numbers."""
    # A digest, since workers remember it, and a page may send much.
    return hashlib.sha256(json.dumps(_shape(value), sort_keys=True).encode()).hexdigest()


def _shape(value: Any) -> Any:
    sizes = ("n", "d", "depth", "times", "cells", "count")
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key not in ("id", "run", "slot")}
        return {key: part if key in sizes else _shape(part) for key, part in kept.items()}
    if isinstance(value, list):
        return [len(value), *(_shape(part) for part in value[:1])]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"  # a browser writes 1.0 as 1
    return value[:40] if isinstance(value, str) else value


async def _quietly(sending: Awaitable[None]) -> None:
    """Send to somebody who may be gone."""
    try:
        await sending
    except Exception:  # a closed socket has many names
        return

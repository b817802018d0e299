"""A pool of processes that end with their parent. Each compiles for itself, and finds on disk what others compiled."""

import concurrent.futures as futures
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# How many tasks are handed out ahead, for each process.
AHEAD = 4


def cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_pool(
    work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], workers: int, start: Callable[..., None], *setup: Any
) -> Iterator[Any]:
    """The results of `work(*task)`, as they are done, no more than a few ahead: there may be a million tasks.

    Each process first calls `start(*setup)`. All functions are top-level ones, since they are sent by name.
    """
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(start, setup))
    tasks = iter(tasks)
    try:
        with _unheard():
            waiting = {pool.submit(work, *task) for task in itertools.islice(tasks, AHEAD * workers)}
        while waiting:
            done, waiting = futures.wait(waiting, return_when=futures.FIRST_COMPLETED)
            with _unheard():
                waiting |= {pool.submit(work, *task) for task in itertools.islice(tasks, len(done))}
            yield from (future.result() for future in done)
    except BaseException:
        for process in list((pool._processes or {}).values()):  # what they do is not worth waiting for
            process.terminate()
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Start processes that never hear Ctrl-C, which is for the parent; it hears one that comes meanwhile afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(start: Callable[..., None], setup: tuple[Any, ...]) -> None:
    """Get a process ready, and let it end with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it cannot be blocked
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    start(*setup)

"""A worker process: does one job after the other, as JSON lines on standard input ask, and answers on standard output.

It is a process of its own so that it can be ended at any instant, whatever it computes, with all its memory; and so
that the server itself never waits for JAX. Answers are records: one letter (t: text for the page, b: bytes for the
page, d: the job is done), 4 bytes of length, and the contents.
"""

import json
import os
import queue
import signal
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, BinaryIO

NAME = "page"
"""The name of the source of what the page sends, in refusals."""


class Desk:
    """Where jobs come in and answers go out. A thread reads, so that a wish to cancel is heard while a job runs."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO):
        self.outgoing = outgoing
        self.jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.cancelled: set[int] = set()
        threading.Thread(target=self._read, args=(incoming,), daemon=True).start()

    def _read(self, incoming: BinaryIO) -> None:
        for line in incoming:
            message = json.loads(line)
            if "cancel" in message:
                self.cancelled.add(message["cancel"])
            else:
                self.jobs.put(message)
        # The server is gone: so is the reason to compute.
        os._exit(0)

    def answer(self, letter: bytes, data: bytes) -> None:
        """Write a record."""
        self.outgoing.write(letter + struct.pack("<I", len(data)) + data)
        self.outgoing.flush()


def main() -> None:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the server ends this one
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    desk = Desk(sys.stdin.buffer, outgoing)
    from . import work  # JAX

    desk.answer(b"d", json.dumps({"id": 0}).encode())
    while True:
        job = desk.jobs.get()
        assert job is not None
        try:
            work.do(job, desk)
        except Exception:  # a fault of ours: told in the terminal, not on the page
            traceback.print_exc()
            words = "The computation failed, and the terminal says where. Other settings may work."
            desk.answer(b"t", json.dumps({**work.address(job), "say": "failed", "words": words}).encode())
        desk.cancelled.discard(job["id"])
        desk.answer(b"d", json.dumps({"id": job["id"], "size": _size()}).encode())


def _size() -> dict[str, int]:
    """The memory of this process, and the number of its memory maps, which are limited; where Linux tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return {}
    return {"bytes": pages * os.sysconf("SC_PAGE_SIZE"), "maps": maps}


if __name__ == "__main__":
    main()

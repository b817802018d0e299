"""One page: its websocket, what it asks for, and what becomes of that when it asks for something else."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from .limits import MESSAGE_BYTES
from .pool import Job, Pool
from .runs import find_run

ASKED: dict[str, dict[str, type]] = {
    "run": {"experiment": dict},
    "gaussians": {"experiment": dict, "starts": list},
    "replay": {"folder": str},
    "toml": {"experiment": dict},
    "read": {"text": str},
    "cancel": {},
}
"""What a page may ask for, and what it must send with it."""
MOST_SLOTS = 8
MOST_LEVELS = 32
"""Tables in tables in tables: more than any experiment has, and few enough for whoever walks through a message."""
SEND_SECONDS = 30.0
"""A page that does not take a message for so long is let go: it would keep a worker waiting."""


class Session:
    """A page that is connected. Each slot has at most one job; a new one cancels the old."""

    def __init__(self, socket: WebSocket, pool: Pool, runs: Path, seen: Callable[[], None]):
        self.socket, self.pool, self.runs, self.seen = socket, pool, runs, seen
        self.slots: dict[str, Job] = {}
        self.sending = asyncio.Lock()
        self.serving: asyncio.Task[Any] | None = None
        self.gone = False

    async def deliver(self, data: str | bytes) -> None:
        """Send to the page, one message at a time; a page that takes none is let go."""
        async with self.sending:
            if self.gone:
                raise ConnectionError("the page takes no messages")
            sent = self.socket.send_text(data) if isinstance(data, str) else self.socket.send_bytes(data)
            try:
                await asyncio.wait_for(sent, SEND_SECONDS)
            except TimeoutError:
                # No word of farewell, which would wait as long.
                self.gone = True
                if self.serving is not None:
                    self.serving.cancel()
                raise

    async def serve(self, hello: dict[str, Any]) -> None:
        """Answer until the page goes."""
        self.serving = asyncio.current_task()
        try:
            await self.deliver(json.dumps({"say": "hello", **hello}))
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                self.seen()
                await self.hear(message.get("text"))
        except (WebSocketDisconnect, RuntimeError, TimeoutError, OSError):
            return  # the page is gone, in one of the ways in which sockets say so
        except asyncio.CancelledError:
            if not self.gone:
                raise
        finally:
            for job in list(self.slots.values()):
                await self.pool.cancel(job)

    async def hear(self, text: str | None) -> None:
        """One message of the page."""
        found = read_message(text)
        if isinstance(found, str):
            await self.deliver(json.dumps({"say": "refused", "slot": "", "run": 0, "words": found, "path": []}))
            return
        slot, number = found["slot"], found["run"]
        old = self.slots.pop(slot, None)
        if old is not None:
            await self.pool.cancel(old)
        if found["do"] == "cancel":
            await self.deliver(json.dumps({"say": "cancelled", "slot": slot, "run": number}))
            return
        words = f"A page has at most {MOST_SLOTS} places for runs." if len(self.slots) >= MOST_SLOTS else ""
        if found["do"] == "replay":
            folder = await asyncio.to_thread(find_run, self.runs, found["folder"])
            words = words or ("" if folder else f"There is no run {found['folder'][:80]!r} in {self.runs}.")
            found["folder"] = str(folder)
        if words:
            answer = {"say": "refused", "slot": slot, "run": number, "words": words, "path": []}
            await self.deliver(json.dumps(answer))
            return
        job = Job(found, self.deliver, self._forget)
        self.slots[slot] = job
        await self.pool.submit(job)

    def _forget(self, job: Job) -> None:
        """A job that is done leaves its slot."""
        slot = job.message["slot"]
        if self.slots.get(slot) is job:
            del self.slots[slot]


def read_message(text: str | None) -> dict[str, Any] | str:
    """What a page asks for, or what is wrong with its message, in a sentence."""
    if text is None:
        return "A page sends text."
    if len(text) > MESSAGE_BYTES:
        return f"The message is too long: {len(text):,} characters, at most {MESSAGE_BYTES:,}."
    try:
        message = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return "The message is not JSON."
    if not isinstance(message, dict) or not isinstance(message.get("do"), str) or message["do"] not in ASKED:
        return f"A message is a table with a key `do`, one of {', '.join(ASKED)}."
    if _levels(message, MOST_LEVELS) > MOST_LEVELS:
        return f"The message is nested too deeply: at most {MOST_LEVELS} levels."
    slot, number = message.get("slot"), message.get("run", 0)
    if not isinstance(slot, str) or not 0 < len(slot) <= 40:
        return "A message has a `slot`, a short text."
    if type(number) is not int or not 0 <= number < 2**53:
        return "A message has a `run`, a whole number."
    parts = ASKED[message["do"]]
    for name, kind in parts.items():
        if not isinstance(message.get(name), kind):
            return f"To {message['do']}, a page sends `{name}`, a {kind.__name__}."
    want = message.get("want", [])
    if not isinstance(want, list) or any(word != "received" for word in want):
        return 'What is wanted besides is a list of words: ["received"].'
    kept = {"do": message["do"], "slot": slot, "run": number, **{name: message[name] for name in parts}}
    return kept | {"want": want} if message["do"] == "run" else kept


def _levels(value: Any, most: int) -> int:
    """How many tables and lists stand in one another; `most` + 1 for more than that."""
    inside, level = [value], 0
    while inside and level <= most:
        parts = (part for one in inside for part in (one.values() if isinstance(one, dict) else one))
        inside, level = [part for part in parts if isinstance(part, (dict, list))], level + 1
    return level


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

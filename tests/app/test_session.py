"""A page that is connected: what becomes of it when it takes no messages, and of what it asked for."""

import asyncio
import json
from typing import Any

import pytest
from starlette.websockets import WebSocket

from app._pages import PATIENCE, alone
from meanformer.app import session as sessions
from meanformer.app.pool import Job, Pool
from meanformer.app.session import Session


class Deaf(WebSocket):
    """A socket that says hello and asks for a run, and never takes an answer."""

    def __init__(self) -> None:
        super().__init__({"type": "websocket"}, self.receive, self.send)
        asked = {"do": "run", "slot": "main", "run": 1, "experiment": {}}
        self.waiting = [{"type": "websocket.receive", "text": json.dumps(asked)}]
        self.sent = 0

    async def receive(self) -> dict[str, Any]:
        if self.waiting:
            return self.waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send_text(self, data: str) -> None:
        self.sent += 1
        if self.sent > 1:  # the greeting still fits into its buffer
            await asyncio.Event().wait()

    async def close(self, code: int, reason: str) -> None:
        await asyncio.Event().wait()  # a farewell would wait as well


class Told(Pool):
    """A pool that answers each job with one message."""

    def __init__(self) -> None:
        self.cancelled: list[Job] = []
        self.failure: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    async def submit(self, job: Job) -> None:
        self.task = asyncio.create_task(self._answer(job))

    async def _answer(self, job: Job) -> None:
        job.message = {**job.message, "id": 1}
        try:
            await job.tell(say="doing", words="")
        except Exception as error:
            self.failure = error

    async def cancel(self, job: Job) -> None:
        self.cancelled.append(job)


def test_a_page_that_takes_no_messages_is_let_go(monkeypatch, tmp_path):
    monkeypatch.setattr(sessions, "SEND_SECONDS", 0.05)
    pool = Told()

    async def meet() -> Session:
        session = Session(Deaf(), pool, tmp_path, lambda: None)
        await asyncio.wait_for(session.serve({}), PATIENCE)
        assert pool.task is not None
        await asyncio.wait_for(pool.task, PATIENCE)
        monkeypatch.setattr(sessions, "SEND_SECONDS", PATIENCE)
        with pytest.raises(ConnectionError):  # at once: nobody waits for it again
            await asyncio.wait_for(session.deliver("more"), PATIENCE / 2)
        return session

    session = alone(meet())
    assert session.gone and isinstance(pool.failure, TimeoutError)
    assert [job.message["slot"] for job in pool.cancelled] == ["main"]

"""Connections that ask for nothing: they are closed, so that they keep nobody out. Nothing here imports JAX."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 10.0
"""Within so many seconds a request has come as a whole, and a stranger has been served."""
MOST_STRANGERS = 128
"""So many connections without a session there are at most; for one more, the oldest of them is closed.

It is well below the number of files that a process may have open, which is often 1024.
"""


class Connection(H11Protocol):
    """A connection over HTTP, of uvicorn, which has no limit of its own for requests that never come to their end.

    One is a stranger's until a request on it has passed the guard, which says so in the `state` of its scope. A
    websocket, once accepted, is no longer looked at here.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has called: beyond the limit, the stranger who has been here longest goes."""
        super().connection_made(transport)
        self.known = False
        self.made = self.loop.time()
        self.seen: Any = None
        strangers = [other for other in self.connections if isinstance(other, Connection) and not other.known]
        if len(strangers) > MOST_STRANGERS:
            min(strangers, key=lambda other: other.made).drop()
        self.timer = self.loop.call_later(PATIENCE, self.look)

    def look(self) -> None:
        """Close what has not asked for anything since the last look, and strangers in any case."""
        waiting = self.conn.their_state is h11.IDLE and self.scope is self.seen
        if waiting or not self._is_known():
            self.drop()
        else:
            self.seen = self.scope
            self.timer = self.loop.call_later(PATIENCE, self.look)

    def _is_known(self) -> bool:
        self.known = self.known or (self.scope is not None and self.scope.get("state", {}).get("known", False))
        return self.known

    def drop(self) -> None:
        """Close without a word, which might never be taken."""
        self.connections.discard(self)
        self.timer.cancel()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What comes is no HTTP: say so, if nothing has been said, and let no answer follow that was on its way."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.drop()

    def on_response_complete(self) -> None:
        """A request has been answered: whose it was is known by now."""
        self._is_known()
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """The websocket has its own protocol from here on, which the guard lets in or not."""
        self.timer.cancel()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.timer.cancel()
        super().connection_lost(exc)

"""Who is let in: addresses that work once, and sessions that need two secrets. Nothing here imports JAX.

The terminal shows an address with a token. The token is good for one visit, and not for long; whoever brings it gets a
session, which is known by a *place* (the first part of every path below which the page is served) and a *cookie*.
Both are needed. Browsers send cookies to every port of a host, so that other servers of this machine may see ours, but
none of them knows the place; the place is in the address of the page and in the history of the browser, but the cookie
is in neither.
"""

import collections
import dataclasses
import secrets
import time as clock
from collections.abc import Callable

TOKEN_SECONDS = 600.0
"""So long an address can be used."""
MOST_SESSIONS = 64
"""The oldest is forgotten when there is one more."""


@dataclasses.dataclass(frozen=True)
class Pass:
    """The two secrets of a session."""

    place: str
    cookie: str


class Access:
    """The token of now, of which there is at most one, and the sessions."""

    def __init__(self, now: Callable[[], float] = clock.monotonic):
        self.now = now
        self.sessions: collections.deque[Pass] = collections.deque(maxlen=MOST_SESSIONS)
        self._token, self._until = "", 0.0

    def new_token(self) -> str:
        """A token for one visit; the one before it is no longer good."""
        self._token, self._until = secrets.token_urlsafe(24), self.now() + TOKEN_SECONDS
        return self._token

    @property
    def pending(self) -> bool:
        """Whether there is a token that can still be used."""
        return self._token != "" and self.now() < self._until

    def enter(self, token: str) -> Pass | None:
        """The session for a token, which is used up; None if it is not the token of now."""
        if not self.pending or not _same(token, self._token):
            return None
        self._token = ""
        given = Pass(secrets.token_urlsafe(24), secrets.token_urlsafe(24))
        self.sessions.append(given)
        return given

    def knows(self, place: str, cookies: list[str]) -> bool:
        """Whether a session has this place and one of these cookies."""
        # All are looked at, whichever fits: how long it takes tells nothing.
        found = [
            _same(place, known.place) & _same(cookie, known.cookie) for known in self.sessions for cookie in cookies
        ]
        return any(found)


def _same(given: str, secret: str) -> bool:
    """Whether two texts are the same, in a time that does not tell how much of them is."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())

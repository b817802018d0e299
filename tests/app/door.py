"""The server without its process: requests go to the application itself, as uvicorn would hand them over."""

import asyncio
import functools
import json
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import Headers

from app._pages import Entered, alone
from meanformer.app.server import Settings, make_app

PORT = 8123
HOSTS = tuple(f"{name}:{PORT}" for name in ("127.0.0.1", "localhost", "[::1]"))
ADDRESS = f"http://{HOSTS[0]}"


class Response:
    """What was answered to a request, and its headers."""

    def __init__(self, messages: list[dict[str, Any]]):
        start, *parts = messages
        self.status, self.headers = start["status"], Headers(raw=start["headers"])
        self.body = b"".join(part.get("body", b"") for part in parts)

    @property
    def text(self) -> str:
        return self.body.decode()


class Door:
    """An application whose workers were never started."""

    def __init__(self, runs, hosts=HOSTS):
        self.app = make_app(Settings(hosts, runs))
        self.access = self.app.state.explorer.access

    def enter(self, token: str) -> Response:
        """Hand a token over, as the page at the door does."""
        return self.request("/enter", "POST", token.encode(), Origin=ADDRESS)

    @functools.cached_property
    def entered(self) -> Entered:
        """A session."""
        answer = self.enter(self.access.new_token())
        return Entered(json.loads(answer.text)["place"], answer.headers["Set-Cookie"].partition(";")[0])

    def inside(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Response:
        """A request of the page that was let in, e.g. for "api/runs"."""
        return self.request(self.entered.place + path, method, body, **{"Cookie": self.entered.cookie} | headers)

    def request(self, target: str, method: str = "GET", body: bytes = b"", **headers: str | list[str]) -> Response:
        """A bare request: nothing is followed, and no cookie kept; a list is a header given several times."""
        first = {"type": "http.request", "body": body, "more_body": False}
        return Response(alone(self._answers({"type": "http", "method": method}, target, headers, [first])))

    def socket(self, target: str, **headers: str | list[str]) -> list[dict[str, Any]]:
        """What a page is told that opens the socket and goes; nothing if it is refused."""
        coming = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
        heard = alone(self._answers({"type": "websocket", "subprotocols": []}, target, headers, coming))
        accepted = [message["type"] for message in heard if message["type"] != "websocket.send"]
        assert accepted in (["websocket.accept"], ["websocket.close"]), accepted
        return [json.loads(message["text"]) for message in heard if message["type"] == "websocket.send"]

    async def _answers(
        self, scope: dict[str, Any], target: str, headers: dict[str, str | list[str]], coming: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        raw, _, query = target.encode().partition(b"?")
        named = {"Host": HOSTS[0], **headers}
        pairs = [(name, [value] if isinstance(value, str) else value) for name, value in named.items()]
        scope |= {
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http" if scope["type"] == "http" else "ws",
            "path": unquote(raw.decode("ascii")),
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": [
                (name.lower().replace("_", "-").encode(), value.encode("latin-1"))
                for name, values in pairs
                for value in values
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", PORT),
            "state": {},
        }
        waiting, heard = list(coming), []

        async def receive() -> dict[str, Any]:
            return waiting.pop(0) if waiting else await asyncio.Event().wait()

        async def send(message: dict[str, Any]) -> None:
            heard.append(message)

        await self.app(scope, receive, send)
        return heard

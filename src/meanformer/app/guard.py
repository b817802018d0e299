"""What stands before the application: refuses whatever was not asked by our own page in the name of our user.

Strangers get the door alone: an empty page whose script hands the token of its address over and goes on to the place
that it gets for it. The token stands behind a #, which browsers send to no server; it is handed over by a request that
only a script makes, so that nobody who looks at a link before it is clicked uses it up.
"""

from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .access import TOKEN_SECONDS, Access

POLICY = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; connect-src 'self'; style-src 'self'; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
DOOR = Path(__file__).parent / "door"
TYPES = {"door.js": "text/javascript", "door.css": "text/css"}
LONGEST_TOKEN = 200
USED = (
    f"This address has been used, or is older than {TOKEN_SECONDS / 60:g} minutes. Press Enter in the terminal where "
    "meanformer explore runs: it prints a new one."
)


class Guard:
    """Asks each request for its names, its origin and its session, before anything else looks at it."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], access: Access):
        self.app, self.access = app, access
        hosts = tuple(host.lower() for host in hosts)  # as browsers write them
        # Nor do they write the port that stands for no port.
        self.hosts = (*hosts, *(host.removesuffix(":80") for host in hosts if host.endswith(":80")))
        self.origins = {f"http://{host}" for host in self.hosts}
        # Cookies know no ports: servers on several of them keep theirs apart by name.
        self.cookie = f"meanformer-{hosts[0].rpartition(':')[2]}"
        self.door = {name: (DOOR / name).read_text(encoding="utf-8") for name in ("door.html", *TYPES)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        place, _, rest = scope["path"].removeprefix("/").partition("/")
        why = self._refused(scope)
        if not why and self.access.knows(place, self._cookies(scope)):
            scope.setdefault("state", {})["known"] = True  # for whoever looks after connections
            await self.app({**scope, "path": f"/{rest}"}, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        else:
            answer = _page(why, 403) if why else await self._at_the_door(Request(scope, receive))
            answer.headers.update(POLICY)
            await answer(scope, receive, send)

    def _refused(self, scope: Scope) -> str:
        """Why a request is refused, whoever it is from; nothing if it is not."""
        names = [name for name, _ in scope["headers"]]
        if len(set(names)) < len(names):  # one of them might be looked at here, and another elsewhere
            return "Refused: a header is given twice."
        headers = {name: value.decode("latin-1").lower() for name, value in scope["headers"]}
        if headers.get(b"host", "") not in self.hosts:
            return "Refused: this server does not go by that name."
        if headers.get(b"origin", f"http://{self.hosts[0]}") not in self.origins:
            return "Refused: the request comes from another page."
        return ""

    def _cookies(self, scope: Scope) -> list[str]:
        """All cookies of our name: servers on other ports can set some too."""
        given = b";".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
        pairs = (part.strip().partition("=") for part in given.split(";"))
        return [value for name, _, value in pairs if name == self.cookie]

    async def _at_the_door(self, request: Request) -> Response:
        """The answer to a stranger."""
        path, method = request.scope["path"], request.method
        if (method, path) == ("POST", "/enter"):
            return await self._enter(request)
        if method == "GET" and (name := path.removeprefix("/")) in TYPES:
            return Response(self.door[name], media_type=TYPES[name])
        return HTMLResponse(self.door["door.html"], 200 if (method, path) == ("GET", "/") else 403)

    async def _enter(self, request: Request) -> Response:
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > LONGEST_TOKEN:
                    break
        except ClientDisconnect:
            body = b""
        given = self.access.enter(body.decode("latin-1"))
        if given is None:
            return JSONResponse({"words": USED}, 403)
        answer = JSONResponse({"place": f"/{given.place}/"})
        answer.set_cookie(self.cookie, given.cookie, path=f"/{given.place}/", httponly=True, samesite="strict")
        return answer


def _page(words: str, status: int) -> HTMLResponse:
    return HTMLResponse(f'<!doctype html><html lang="en"><title>meanformer</title><p>{words}</p>', status)

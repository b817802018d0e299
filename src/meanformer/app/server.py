"""The server: the page, its files, and the websocket. Nothing here imports JAX.

It is meant for one person on one machine: the `guard` lets nobody else in.
"""

import asyncio
import contextlib
import dataclasses
import io
import time as clock
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.requests import ClientDisconnect

from .. import __version__
from .access import Access
from .guard import POLICY, Guard
from .limits import LIMITS, MESSAGE_BYTES
from .pool import Pool
from .presets import presets
from .protocol import unpack
from .runs import list_runs
from .session import Session

STATIC = Path(__file__).parent / "static"
MOST_PAGES = 64
GIF_BYTES, GIF_FRAMES, GIF_SIDE = 64 * 2**20, 200, 1600
FILM_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the server was started."""

    hosts: tuple[str, ...]
    """The names, with the port, by which it may be called."""
    runs: Path = Path("runs")
    workers: int = 2
    start: str | None = None
    """An experiment file, as text, with which the page begins."""
    replay: str | None = None
    """A run folder that the page shows first."""


class Explorer:
    """What the server knows while it runs."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.access = Access()
        self.traces = contextlib.ExitStack()
        """What is removed when the address has been used, and at the end."""
        self.pool = Pool(settings.workers)
        self.sessions: set[Session] = set()
        self.films = asyncio.Semaphore(1)
        self.seen()

    def seen(self) -> None:
        """Somebody is here."""
        self.last_seen = clock.monotonic()

    def idle_seconds(self) -> float:
        """How long nobody has asked for anything, and nothing has been computed."""
        if self.pool.running:
            self.seen()
        return clock.monotonic() - self.last_seen

    async def serve(self, socket: WebSocket) -> None:
        """A page, from its first message to its last."""
        await socket.accept()
        if len(self.sessions) >= MOST_PAGES:
            await socket.close(1013, f"At most {MOST_PAGES} pages at once.")
            return
        session = Session(socket, self.pool, self.settings.runs, self.seen)
        self.sessions.add(session)
        hello = {"version": __version__, "limits": dataclasses.asdict(LIMITS)}
        try:
            await session.serve(hello | {"start": self.settings.start, "replay": self.settings.replay})
        finally:
            self.sessions.discard(session)


def make_app(settings: Settings) -> FastAPI:
    """The server as an ASGI application."""
    explorer = Explorer(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await explorer.pool.open()
        try:
            yield
        finally:
            explorer.traces.close()
            await explorer.pool.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.explorer = explorer

    @app.middleware("http")
    async def seen(request: Request, call_next: Any) -> Response:
        explorer.seen()
        response = await call_next(request)
        response.headers.update(POLICY)
        return response

    app.add_middleware(Guard, hosts=settings.hosts, access=explorer.access)

    @app.get("/")
    async def page() -> Response:
        explorer.traces.close()
        return FileResponse(STATIC / "index.html")

    # Looked up, never opened: no name that a request brings reaches the file system.
    files = {file.relative_to(STATIC).as_posix(): file for file in STATIC.rglob("*") if file.is_file()}

    @app.get("/static/{path:path}")
    async def file(path: str) -> Response:
        return FileResponse(files[path]) if path in files else HTMLResponse("There is no such file.", 404)

    @app.get("/api/presets")
    async def preset_list() -> Response:
        return JSONResponse(presets())

    @app.get("/api/runs")
    async def run_list() -> Response:
        return JSONResponse(await asyncio.to_thread(list_runs, settings.runs))

    @app.post("/api/gif")
    async def gif(request: Request) -> Response:
        body = bytearray()
        try:
            async with explorer.films, asyncio.timeout(FILM_SECONDS):  # one at a time, from its first byte on
                async for part in request.stream():
                    body += part
                    if len(body) > GIF_BYTES:
                        words = f"The pictures are too large: at most {GIF_BYTES >> 20} MB."
                        return JSONResponse({"words": words}, 413)
                made = await asyncio.to_thread(make_gif, bytes(body))
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads: the page has left
        except TimeoutError:
            return JSONResponse({"words": f"The pictures did not come within {FILM_SECONDS:g} seconds."}, 408)
        except ValueError as error:
            return JSONResponse({"words": f"These pictures cannot be made a film: {error}."}, 400)
        return Response(made, media_type="image/gif")

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        await explorer.serve(websocket)

    return app


def make_gif(data: bytes) -> bytes:
    """A film from the pictures that the page has drawn; `ValueError` in words for anything else."""
    from PIL import Image, UnidentifiedImageError

    header, arrays = unpack(data)
    if not 1 <= len(arrays) <= GIF_FRAMES:
        raise ValueError(f"{len(arrays)} pictures, and not 1 to {GIF_FRAMES}")
    pause = header.get("milliseconds", 50)
    if not isinstance(pause, (int, float)) or not 10 <= pause <= 5000:
        raise ValueError("a pause between pictures is 10 to 5000 milliseconds long")
    frames = []
    for array in arrays.values():
        try:
            picture = Image.open(io.BytesIO(array.tobytes()), formats=["PNG"])
            if max(picture.size) > GIF_SIDE:  # before it is decoded
                raise ValueError(f"pictures are at most {GIF_SIDE} pixels wide and high")
            frames.append(picture.convert("RGB").quantize(128, dither=Image.Dither.NONE))
        except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
            raise ValueError("a picture is not PNG") from error
    if len({frame.size for frame in frames}) != 1:
        raise ValueError("pictures of different sizes")
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=pause, loop=0, optimize=False)
    return out.getvalue()


SOCKET_BYTES = 2 * MESSAGE_BYTES
"""Longer messages end the connection before they are read."""

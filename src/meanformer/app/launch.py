"""`meanformer explore`: start the server, print its address, open the browser. Nothing here imports JAX."""

import asyncio
import contextlib
import secrets
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from ..experiments.registry import library
from .server import SOCKET_BYTES, Explorer, Settings, make_app

PORT = 8642
TRIED = 20
"""So many ports after the first are tried, if nobody asked for one."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
LONGEST_FILE = 500_000


def bound_socket(host: str, port: int | None) -> socket.socket:
    """A socket on the port that was asked for, or on the first free one."""
    ports = range(PORT, PORT + TRIED) if port is None else [port]
    for number in ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        # On Windows this would let two servers share a port.
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen()  # at once: whoever reads the address may call, and nobody else can have the port
        except OSError as error:
            listening.close()
            reason = error.strerror
            continue
        return listening
    from .. import _checks as checks

    checks.refuse(
        f"the page cannot be served at {host}",
        got=f"port {ports[0]}: {reason}" if port is not None else f"no free port from {PORT} to {PORT + TRIED - 1}",
        expected="an address of this machine, and a port that nobody uses",
        remedy="choose another one: meanformer explore --port 0 takes any that is free",
    )


def what_to_show(what: str | None) -> tuple[str | None, Path | None]:
    """What `meanformer explore WHAT` begins with: the text of an experiment, or a run folder."""
    if what is None:
        return None, None
    path = library().get(what, Path(what))
    if (path / "run.json").is_file():
        return None, path
    if path.is_file() and path.stat().st_size <= LONGEST_FILE:
        return path.read_text(encoding="utf-8", errors="replace"), None
    from .. import _checks as checks

    checks.refuse(
        f"the page cannot begin with {what!r}",
        got="a large file" if path.is_file() else "a folder without a run" if path.is_dir() else "no such file or name",
        expected="an experiment of `meanformer list`, a TOML file, or a run folder",
        remedy="leave it out, and choose on the page",
    )


def explore(
    what: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    names: Sequence[str] = (),
    runs: Path = Path("runs"),
    workers: int = 2,
    idle_minutes: float = 60.0,
    browser: bool = True,
) -> None:
    """Serve the page until Ctrl-C, or until nothing has been asked for `idle_minutes`; `names` are further names of
    this machine.
    """
    start, folder = what_to_show(what)
    listening = bound_socket(host, port)
    number = listening.getsockname()[1]
    names = (f"[{host}]" if ":" in host else host, *LOCAL, *(name.lower() for name in names))
    settings = Settings(
        hosts=tuple(f"{name}:{number}" for name in dict.fromkeys(names)),
        token=token or secrets.token_urlsafe(24),
        # A run folder is found in the folder where it is.
        runs=runs if folder is None else folder.resolve().parent,
        workers=workers,
        start=start,
        replay=None if folder is None else folder.resolve().name,
    )
    app = make_app(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=SOCKET_BYTES,
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    address = f"http://{settings.hosts[0]}/?token={settings.token}"
    print(f"The explorer is at\n\n    {address}\n\nCtrl-C ends it.", flush=True)
    if host not in LOCAL:
        print(f"It listens on {host}: whoever can reach this machine and knows the token can compute here.", flush=True)
        print("Names by which pages may call it: " + ", ".join(settings.hosts) + " (--name adds one).", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, app.state.explorer, listening, address if browser else None, 60 * idle_minutes))


async def _serve(
    server: uvicorn.Server, explorer: Explorer, listening: socket.socket, address: str | None, idle_seconds: float
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    if address is not None:
        while not server.started and not serving.done():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(webbrowser.open, address)
    while not serving.done():
        await asyncio.wait([serving], timeout=min(1.0, idle_seconds / 4))
        if explorer.idle_seconds() > idle_seconds:
            print("Nobody has been here for a while: the explorer ends.", flush=True)
            server.should_exit = True
            break
    await serving

"""`meanformer explore`: start the server, print its address, open the browser. Nothing here imports JAX."""

import asyncio
import contextlib
import ipaddress
import os
import select
import socket
import sys
import threading
import time
import tomllib
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from ..experiments.registry import library
from ..store.interruption import asked_as_before
from .access import TOKEN_SECONDS
from .connections import Connection
from .redirect import remove_redirect, write_redirect
from .runs import fault_of
from .server import SOCKET_BYTES, Explorer, Settings, make_app

PORT = 8642
RUNS = Path("runs")
TRIED = 20
"""So many ports after the first are tried, if nobody asked for one."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
LONGEST_FILE = 500_000
ONCE = (
    f"The address works once, within {TOKEN_SECONDS / 60:g} minutes. Enter prints a new one; Ctrl-C ends the explorer."
)


def bound_socket(host: str, port: int | None) -> socket.socket:
    """A socket on the port that was asked for, or on the first free one."""
    _check_host(host)
    ports = range(PORT, PORT + TRIED) if port is None else [port]
    for number in ports:
        listening = _socket_for(host)
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


def _check_host(host: str) -> None:
    """Refuse a host that no port of this machine could have."""
    from .. import _checks as checks

    expected = "an address of this machine; without --host, 127.0.0.1, which only this machine can reach"
    if not host.strip():
        checks.refuse(
            "no host to listen on",
            got="an empty name, which would be every address of this machine",
            expected=expected,
            remedy="leave --host out; --host 0.0.0.0 if everybody who can reach this machine is meant",
        )
    try:
        with contextlib.closing(_socket_for(host)) as trial:
            trial.bind((host, 0))
    except (OSError, ValueError) as error:  # ValueError: no name at all
        checks.refuse(
            f"the page cannot be served at {_short(host)!r}",
            got=getattr(error, "strerror", None) or str(error),
            expected=expected,
            remedy="look at the address after --host, or leave it out",
        )


def _socket_for(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


def _check_runs(runs: Path) -> None:
    """Refuse a folder of runs that is none; that which is meant without --runs may come later."""
    if runs != RUNS and not os.path.isdir(runs):  # noqa: PTH112  (a path may be too odd to ask)
        from .. import _checks as checks

        checks.refuse(
            f"there are no runs in {_short(str(runs))!r}",
            got="a file" if os.path.isfile(runs) else "no such folder",  # noqa: PTH113
            expected="a folder with run folders in it",
            remedy="name another one with --runs, or leave it out: then it is runs",
        )


def hosts_at(port: int, host: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """All names of the server with its port, as browsers write them; that of `host` is the first."""
    known = (_as_browsers_write(host), *LOCAL, *map(_as_browsers_write, names))
    return tuple(f"{name}:{port}" for name in dict.fromkeys(known))


def _as_browsers_write(name: str) -> str:
    """A name in lower case; an address of IPv6 in its short form, between brackets."""
    name = name.lower().strip("[]")
    with contextlib.suppress(ValueError):
        name = str(ipaddress.ip_address(name))
    return f"[{name}]" if ":" in name else name


def what_to_show(what: str | None) -> tuple[str | None, Path | None]:
    """What `meanformer explore WHAT` begins with: the text of an experiment, or a run folder."""
    if what is None:
        return None, None
    path = library().get(what, Path(what))
    try:
        if (path / "run.json").is_file():
            got = fault_of(path.resolve())
            if not got:
                return None, path
        elif path.is_file() and path.stat().st_size <= LONGEST_FILE:
            text = path.read_text(encoding="utf-8", errors="replace")
            tomllib.loads(text)
            return text, None
        else:
            kind = "a large file" if path.is_file() else "a folder without a run" if path.is_dir() else ""
            got = kind or "no such file or name"
    except tomllib.TOMLDecodeError as error:
        got = f"a file that is not TOML: {error}"
    except (OSError, ValueError) as error:  # no permission, or a name that no file can have
        got = getattr(error, "strerror", None) or str(error)
    from .. import _checks as checks

    checks.refuse(
        f"the page cannot begin with {_short(what)!r}",
        got=got,
        expected="an experiment of `meanformer list`, a TOML file, or a run folder",
        remedy="leave it out, and choose on the page",
    )


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"


def explore(
    what: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    names: Sequence[str] = (),
    runs: Path = RUNS,
    workers: int = 2,
    idle_minutes: float = 60.0,
    browser: bool = True,
) -> None:
    """Serve the page until Ctrl-C, or until nothing has been asked for `idle_minutes`; `names` are further names of
    this machine.
    """
    start, folder = what_to_show(what)
    _check_runs(runs)
    listening = bound_socket(host, port)
    number = listening.getsockname()[1]
    settings = Settings(
        hosts=hosts_at(number, host, names),
        # A run folder is found in the folder where it is.
        runs=runs if folder is None else folder.resolve().parent,
        workers=workers,
        start=start,
        replay=None if folder is None else folder.resolve().name,
    )
    app = make_app(settings)
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="error",  # strangers can send what is worth a warning, as often as they like
        ws="websockets-sansio",
        ws_max_size=SOCKET_BYTES,
        ws_per_message_deflate=False,  # a few bytes would become many messages, all at once; and nothing is far away
        lifespan="on",
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    doorman = Doorman(app.state.explorer, f"http://{settings.hosts[0]}")
    address = doorman.new_address()
    print(f"The explorer is at\n\n    {address}\n\n{ONCE}", flush=True)
    if host not in LOCAL:
        print(f"It listens on {host}: whoever can reach this machine and has an address can compute here.", flush=True)
        print("Names by which pages may call it: " + ", ".join(settings.hosts) + " (--name adds one).", flush=True)
    with contextlib.suppress(KeyboardInterrupt), asked_as_before():
        asyncio.run(_serve(server, doorman, listening, address if browser else None, 60 * idle_minutes))


class Doorman:
    """Gives out addresses, one after the other."""

    def __init__(self, explorer: Explorer, root: str):
        self.explorer, self.root = explorer, root

    def new_address(self) -> str:
        """An address for one visit; the one before it is no longer good."""
        return f"{self.root}/#token={self.explorer.access.new_token()}"

    def open_browser(self, address: str) -> None:
        """Lead the browser to the address, by a file that is removed when it has been used."""
        try:
            file = write_redirect(address)
        except OSError as error:
            print(f"No browser was opened, as no private file can be written: {error.strerror}.", flush=True)
            return
        self.explorer.traces.callback(remove_redirect, file)
        webbrowser.open(file.as_uri())

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Print a new address for whatever comes on standard input, until that ends."""
        if sys.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed; the loop has ended
            source = sys.stdin.fileno()
            while True:
                _wait_for(source)
                # Not by way of `sys.stdin`, whose lock this thread would hold when the process ends.
                if not os.read(source, 4096):
                    return
                loop.call_soon_threadsafe(lambda: print(f"\n    {self.new_address()}\n", flush=True))


def _wait_for(source: int) -> None:
    """Wait until there is something to be read."""
    while sys.platform != "win32":
        select.select([source], [], [])
        # In the background, what is typed is for the shell, and to read it would stop this process.
        try:
            if os.tcgetpgrp(source) == os.getpgrp():
                return
        except OSError:  # no terminal, or not that of this process
            return
        time.sleep(1.0)


async def _serve(
    server: uvicorn.Server, doorman: Doorman, listening: socket.socket, address: str | None, idle_seconds: float
) -> None:
    explorer = doorman.explorer
    threading.Thread(target=doorman.listen, args=(asyncio.get_running_loop(),), daemon=True).start()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    if address is not None:
        while not server.started and not serving.done():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(doorman.open_browser, address)
    while not serving.done():
        await asyncio.wait([serving], timeout=min(1.0, idle_seconds / 4))
        if not explorer.access.pending:
            explorer.traces.close()
        if explorer.idle_seconds() > idle_seconds:
            print("Nobody has been here for a while: the explorer ends.", flush=True)
            server.should_exit = True
            break
    await serving

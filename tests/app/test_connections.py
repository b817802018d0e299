"""Connections that ask for nothing, slowly, or for ever: they are closed, and keep nobody out."""

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from app._pages import Server, started
from meanformer.app import connections
from meanformer.app.connections import MOST_STRANGERS

resource = pytest.importorskip("resource", reason="looks at processes as Linux shows them")
WAIT = 60.0
"""So many seconds a connection may stay open on a busy machine, which is much more than it should."""
HEAD = "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of its own: those of other tests have no use for a crowd."""
    with started(tmp_path_factory.mktemp("explorer"), "--workers", "1") as running:
        assert running.entered
        yield running


def called(server: Server, text: str = "") -> socket.socket:
    """A connection on which this much was said."""
    line = socket.create_connection(("127.0.0.1", server.port), WAIT)
    line.sendall(text.format(port=server.port, place=server.entered.place).encode())
    return line


def heard(line: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while part := line.recv(65536):
            answer += part
    return answer


def answers(server: Server) -> bool:
    """Whether its user is served: the page, and a websocket."""
    line = called(
        server, HEAD.replace("/ ", "{place} ") + f"Cookie: {server.entered.cookie}\r\nConnection: close\r\n\r\n"
    )
    with line, server.page() as page:
        page.send("cancel")
        return page.receive()["say"] == "cancelled" and b"<main" in heard(line)


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


HALF = {
    "nothing": "",
    "half a line": "GET /",
    "a head without an end": HEAD,
    "a body that never comes": HEAD.replace("GET", "POST") + "Content-Length: 1000\r\n\r\nhalf",
    "half a token": HEAD.replace("GET /", "POST /enter") + "Content-Length: 100\r\n\r\nhalf",
    "half a second request": HEAD + "\r\n" + HEAD,
    "half a chunk": HEAD.replace("GET", "POST") + "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "half a socket": HEAD.replace("/ ", "/ws ") + "Connection: Upgrade\r\nUpgrade: websocket\r\n",
}


def test_half_open_connections_are_closed(server):
    """Of strangers, and of somebody who was let in before; also those that say a little again and again.

    A page that asks for nothing stays: its websocket is no stranger.
    """
    known = HEAD.replace("/ ", "{place} ") + f"Cookie: {server.entered.cookie}\r\n"
    with server.page() as page, called(server, HEAD) as trickling:
        lines = {name: called(server, text) for name, text in HALF.items()}
        lines["half a second request of a page"] = called(server, known + "\r\n" + known)
        ends, began = time.monotonic() + WAIT, time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < ends:
                trickling.sendall(b"X-A: b\r\n")
                time.sleep(0.2)
        assert time.monotonic() < ends
        for name, line in lines.items():
            with line:
                assert b"<main" not in heard(line) or name.endswith("of a page")
        time.sleep(max(0.0, began + connections.PATIENCE + 1 - time.monotonic()))
        page.send("cancel")
        assert page.receive()["say"] == "cancelled"
    assert answers(server)


def test_a_thousand_half_open_connections_keep_nobody_out(server):
    """The number of strangers is bounded, the oldest goes for the newest, and memory does not grow with them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1500:
        pytest.skip("this process may not open so many files")
    before = resident(server.process.pid)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    try:
        with contextlib.ExitStack() as crowd:
            for k in range(1000):
                crowd.enter_context(called(server, list(HALF.values())[k % len(HALF)]))
                if k % 200 == 199:
                    assert answers(server)
            assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) < MOST_STRANGERS + 100
            assert resident(server.process.pid) - before < 50 * 2**20
            assert answers(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_film_whose_page_leaves_is_forgotten(server):
    """To cancel an export is no failure, and tells the terminal nothing."""
    head = HEAD.replace("GET / ", "POST {place}api/gif ") + f"Cookie: {server.entered.cookie}\r\n"
    for _ in range(3):
        with called(server, head + "Content-Length: 100000\r\n\r\nhalf"):
            assert answers(server)
    assert answers(server)
    assert (server.folder / "errors.txt").read_text() == ""


def test_a_flood_of_messages_is_taken_piece_by_piece(server):
    """Of a page that never reads an answer: memory stays, and others are served."""
    text = json.dumps({"do": "read", "slot": "a", "run": 1, "text": "x" * (2**20 - 200)})
    before = resident(server.process.pid)
    with server.page() as flooding:
        assert flooding.socket.protocol.extensions == []  # compressed, a thousand would come at once
        for _ in range(60):
            flooding.socket.send(text)
        assert resident(server.process.pid) - before < 50 * 2**20
        assert answers(server)
        flooding.socket.socket.shutdown(socket.SHUT_RDWR)  # no farewell, which it would not read either
    assert answers(server)


def test_strangers_print_nothing(server):
    """Neither lines nor tracebacks, whatever they send: the terminal is where the address stands."""
    host = f"Host: 127.0.0.1:{server.port}\r\n"
    for text in (
        "\0\0\0\r\n\r\n",
        "HELLO\r\n\r\n",
        f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        f"POST /enter HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
        f"GET / HTTP/1.1\r\n{host}\r\n\0\0\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}Upgrade: nonsense\r\nConnection: upgrade, close\r\n\r\n",
        f"GET /ws HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: upgrade, close\r\n\r\n",
        f"GET /ws HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
    ):
        with called(server, text) as line:
            heard(line)
    assert answers(server)
    assert (server.folder / "errors.txt").read_text() == ""

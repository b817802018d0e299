"""Who gets in: tokens, names, origins, files; what a page is told; and what becomes of the processes."""

import asyncio
import contextlib
import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app._pages import PATIENCE, SLOW, SMALL, TOKEN, started
from app.door import ADDRESS, PORT, Door
from meanformer.app import launch
from meanformer.app.protocol import pack
from meanformer.app.server import GIF_FRAMES, GIF_SIDE, make_gif

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")


@pytest.fixture(scope="module")
def door(tmp_path_factory) -> Door:
    """The application of a server, which is not started."""
    return Door(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def cookie(door) -> str:
    """The cookie that the address of the terminal gives."""
    return door.request(f"/?token={TOKEN}").headers["Set-Cookie"].partition(";")[0]


# --- who gets in ---


@pytest.mark.parametrize("path", ["/", "/static/style.css", "/api/presets", "/api/runs", "/nowhere", "/docs"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\u00e9", "\udcff"])
def test_without_the_token_nothing_is_told(door, path, token):
    query = "" if token is None else f"?token={quote(token, errors='surrogateescape')}"
    answer = door.request(path + query)
    assert answer.status == 403
    assert "needs its token" in answer.text
    assert TOKEN not in answer.text
    assert "Set-Cookie" not in answer.headers


def test_a_wrong_cookie_is_refused(door, cookie):
    name = cookie.partition("=")[0]
    for value in ("", "wrong", f'"{TOKEN}x"'):
        assert door.request("/", Cookie=f"{name}={value}").status == 403
    assert door.request("/", Cookie=f"other={TOKEN}").status == 403


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have(door):
    answer = door.request(f"/?token={TOKEN}")
    assert answer.status == 303
    assert answer.headers["Location"] == "/"  # the token leaves the address
    given = answer.headers["Set-Cookie"]
    assert "httponly" in given.lower()
    assert "samesite=strict" in given.lower()
    assert str(PORT) in given.partition("=")[0]  # cookies know no ports
    page = door.request("/", Cookie=given.partition(";")[0])
    assert page.status == 200
    assert "<!doctype html>" in page.text.lower()
    assert TOKEN not in page.text


def test_what_the_page_needs_is_in_the_package(door, cookie):
    """All that the page names is served by this server, and nothing comes from another."""
    page = door.request("/", Cookie=cookie).text
    named = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert named
    for address in named:
        assert address.startswith(("/static/", "static/")), address
        assert door.request("/" + address.lstrip("/"), Cookie=cookie).status == 200, address


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""]
)
def test_another_name_of_the_host_is_refused(door, cookie, host):
    """A page of another site whose name leads to this machine carries that name."""
    answer = door.request("/", Cookie=cookie, Host=host.format(port=PORT))
    assert answer.status == 403
    assert "does not go by that name" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_its_own_names_are_heard(door, cookie, host):
    assert door.request("/", Cookie=cookie, Host=host.format(port=PORT)).status == 200


FOREIGN = ["http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1", "null", ""]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method, path", [("GET", "/"), ("GET", "/api/runs"), ("POST", "/api/gif")])
def test_requests_of_other_pages_are_refused(door, cookie, origin, method, path):
    answer = door.request(path, method, Cookie=cookie, Origin=origin.format(port=PORT))
    assert answer.status == 403
    assert "another page" in answer.text


def test_requests_of_its_own_page_are_heard(door, cookie):
    answer = door.request("/api/runs", Cookie=cookie, Origin=ADDRESS)
    assert answer.status == 200


def test_a_socket_needs_the_token_and_our_own_page(door, cookie):
    assert door.socket() == door.socket("/ws?token=wrong") == door.socket(Cookie="meanformer=wrong") == []
    for origin in FOREIGN:
        assert door.socket(f"/ws?token={TOKEN}", Origin=origin.format(port=PORT)) == []
        assert door.socket(Cookie=cookie, Origin=origin.format(port=PORT)) == []
    for own in ({"Cookie": cookie, "Origin": ADDRESS}, {"Cookie": cookie}):
        assert [told["say"] for told in door.socket(**own)] == ["hello"]
    assert [told["say"] for told in door.socket(f"/ws?token={TOKEN}")] == ["hello"]


def test_a_socket_under_another_name_is_refused(door):
    assert door.socket(f"/ws?token={TOKEN}", Host=f"evil.example:{PORT}") == []


def test_the_process_refuses_as_the_application_does(server):
    """Over the wire: the page without its token, under another name, and the socket."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    for path, host, status in (("/", "localhost", 403), (f"/?token={TOKEN}", "evil.example", 403)):
        connection.request("GET", path, headers={"Host": f"{host}:{server.port}"})
        answer = connection.getresponse()
        assert (answer.status, TOKEN in answer.read().decode()) == (status, False)
    connection.close()
    for query, options in (("", {}), (f"?token={TOKEN}", {"origin": "http://evil.example"})):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{server.port}/ws{query}", **options)
        assert refused.value.response.status_code == 403


def test_only_this_machine_is_listened_to(server):
    addresses = {"127.0.0.2"} if sys.platform == "linux" else set()
    with contextlib.suppress(OSError):
        addresses |= set(socket.gethostbyname_ex(socket.gethostname())[2]) - {"127.0.0.1"}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: only the route is asked for
        addresses.add(probe.getsockname()[0])
    for address in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, server.port), 5).close()


def test_each_answer_tells_the_browser_to_be_careful(door, cookie):
    answers = {
        "page": door.request("/", Cookie=cookie),
        "redirect": door.request(f"/?token={TOKEN}"),
        "refusal": door.request("/"),
        "presets": door.request("/api/presets", Cookie=cookie),
        "missing": door.request("/nowhere", Cookie=cookie),
        "missing file": door.request("/static/nowhere.js", Cookie=cookie),
        "wrong method": door.request("/api/gif", Cookie=cookie),
    }
    for name, answer in answers.items():
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy, name
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert answers["missing"].status == answers["missing file"].status == 404
    assert answers["wrong method"].status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/..%5cserver.py",
        "/static/js/../../server.py",
        "/static//etc/passwd",
        "/static/%2Fetc/passwd",
        "/static/",
        "/static/js",
        "/static/style.css%00",
        pytest.param("/static/" + "a/" * 3000, id="many folders"),
        pytest.param("/static/" + "a" * 3000, id="a long name"),
    ],
)
def test_no_file_beside_the_page_is_served(door, cookie, path):
    answer = door.request(path, Cookie=cookie)
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_modules_come_with_their_type(door, cookie):
    answer = door.request("/static/js/main.js", Cookie=cookie)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/javascript")


def test_the_presets_are_listed_with_their_text(door, cookie):
    found = json.loads(door.request("/api/presets", Cookie=cookie).text)
    assert {entry["view"] for entry in found} == {"tokens", "gaussian", "density"}
    assert all({"name", "title", "about", "group", "text", "experiment"} <= set(entry) for entry in found)


# --- films ---


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> np.ndarray:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return np.frombuffer(out.getvalue(), np.uint8)


def test_pictures_become_a_film(door, cookie):
    colours = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
    frames = {str(k): picture(colour) for k, colour in enumerate(colours)}
    answer = door.request("/api/gif", "POST", pack({"milliseconds": 50}, frames), Cookie=cookie)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/gif")
    film = Image.open(io.BytesIO(answer.body))
    assert (film.n_frames, film.size, film.info["duration"]) == (3, (20, 10), 50)
    for k, colour in enumerate(colours):
        film.seek(k)
        assert film.convert("RGB").getpixel((5, 5)) == pytest.approx(colour, abs=8)


NO_FILMS = {
    "nothing": b"",
    "words": b"hello",
    "noise": b"\xff" * 100,
    "no pictures": pack({}, {}),
    "brackets": b"\xa0\x86\x01\x00" + b"[" * 100_000,
}


@pytest.mark.parametrize("body", NO_FILMS.values(), ids=NO_FILMS)
def test_what_is_no_film_is_refused_in_words(door, cookie, body):
    answer = door.request("/api/gif", "POST", body, Cookie=cookie)
    assert answer.status == 400
    assert json.loads(answer.text)["words"].startswith("These pictures cannot be made a film: ")
    assert "Traceback" not in answer.text


BAD_FILMS = {
    "no pictures": (pack({}, {}), "0 pictures"),
    "too many": (pack({}, {str(k): picture((0, 0, 0)) for k in range(GIF_FRAMES + 1)}), f"1 to {GIF_FRAMES}"),
    "too large": (pack({}, {"0": picture((0, 0, 0), (GIF_SIDE + 1, 1))}), f"at most {GIF_SIDE} pixels"),
    "of two sizes": (pack({}, {"0": picture((0, 0, 0)), "1": picture((0, 0, 0), (9, 9))}), "different sizes"),
    "no PNG": (pack({}, {"0": np.zeros(50, np.uint8)}), "not PNG"),
    "half a PNG": (pack({}, {"0": picture((0, 0, 0), (300, 300))[:90]}), "not PNG"),
    "no time": (pack({"milliseconds": 0}, {"0": picture((0, 0, 0))}), "10 to 5000"),
    "a text for a time": (pack({"milliseconds": "50"}, {"0": picture((0, 0, 0))}), "10 to 5000"),
}


@pytest.mark.parametrize("data, words", BAD_FILMS.values(), ids=BAD_FILMS)
def test_each_fault_of_a_film_has_its_words(data, words):
    with pytest.raises(ValueError, match=words):
        make_gif(data)


# --- processes ---


def wait_until(true, seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(found)


def gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent has not looked at it yet counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def own(tmp_path):
    """A server for a test that does not leave it as it was."""
    with started(tmp_path, "--workers", "1") as running:
        assert wait_until(running.workers)
        yield running


@linux
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_server(own, how):
    workers = own.workers()
    own.process.send_signal(how)
    own.process.wait(PATIENCE)
    assert wait_until(lambda: all(gone(pid) for pid in workers)), "orphans"


@linux
def test_workers_end_with_a_server_that_is_killed_while_they_compute(own):
    """And the clerk, who has nothing to do."""
    with own.page() as page:
        page.send("run", experiment=SLOW)
        assert page.receive()["say"] in ("queued", "start")
        while page.receive()["say"] != "doing":
            pass
        workers = own.workers()
        assert len(workers) == 2
        own.process.kill()
        own.process.wait(PATIENCE)
    assert wait_until(lambda: all(gone(pid) for pid in workers)), "orphans"


@linux
def test_a_worker_that_is_killed_is_told_of_and_replaced(server):
    with server.page() as page:
        number = page.send("run", experiment=SLOW)
        while page.receive()["say"] != "start":
            pass
        before = server.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        last = page.answers(number)[-1]
        assert last["say"] == "failed"
        assert "worker process ended" in last["words"]
        assert page.run(SMALL).one("end")["outcome"]["kind"] == "REACHED"
        # The one that had nothing to do is replaced too, before it is needed.
        assert "softmax" in page.ask("toml", "toml", experiment=SMALL).one("toml")["text"]
        assert not set(server.workers()) & set(before)


@linux
def test_nobody_asking_for_a_while_ends_the_server(tmp_path):
    few = ("--workers", "1", "--idle", "0.1")  # six seconds
    with started(tmp_path, *few) as running, running.page() as page:
        for _ in range(9):  # what asks keeps it
            time.sleep(1)
            page.send("cancel")
            assert page.receive()["say"] == "cancelled"
        workers = running.workers()
        assert workers
        assert running.process.wait(PATIENCE) == 0  # a page that is left open does not
        assert running.process.stdout is not None
        assert "the explorer ends" in running.process.stdout.read()
        assert wait_until(lambda: all(gone(pid) for pid in workers)), "orphans"


def test_a_port_that_is_taken_is_refused_in_words(server, tmp_path):
    command = [sys.executable, "-m", "meanformer", "explore", "--port", str(server.port), "--no-browser"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode != 0
    assert f"port {server.port}" in ended.stderr
    assert "--port 0" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_token_of_its_own_is_drawn(monkeypatch, capsys):
    """Without one given it is long, random, and in the address that is printed; only the serving is left out."""
    monkeypatch.setattr(launch, "_serve", lambda server, explorer, listening, *_: listening.close())
    monkeypatch.setattr(asyncio, "run", lambda work: None)
    tokens = set()
    for _ in range(2):
        launch.explore(port=0, browser=False)
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=([\w-]{32,})", capsys.readouterr().out)
        assert found
        tokens.add(found[1])
    assert len(tokens) == 2

"""Who gets in: sessions, names, origins, odd headers, files; and what each answer tells the browser."""

import http.client
import json
import os
import re
import socket as sockets
import sys

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app._pages import PATIENCE, enter
from app.door import ADDRESS, HOSTS, PORT, Door
from meanformer.app import launch
from meanformer.app.access import TOKEN_SECONDS

SECRETS = ("token", "place", "cookie")
PATHS = ("", "static/style.css", "static/js/main.js", "api/presets", "api/runs", "api/gif", "nowhere", "docs", "ws")


@pytest.fixture(scope="module")
def door(tmp_path_factory) -> Door:
    """The application of a server, which is not started."""
    return Door(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def place(door) -> str:
    return door.entered.place


@pytest.fixture(scope="module")
def cookie(door) -> str:
    return door.entered.cookie


def is_the_door(answer) -> bool:
    """Whether a stranger got the empty page, and nothing else."""
    return "needs its token" in answer.text and "static" not in answer.text and "Set-Cookie" not in answer.headers


# --- tokens ---


def test_a_token_becomes_a_session_once(door):
    token = door.access.new_token()
    answer = door.enter(token)
    assert answer.status == 200
    place = json.loads(answer.text)["place"]
    assert re.fullmatch(r"/[\w-]{32,}/", place)
    cookie, *settings = [part.strip() for part in answer.headers["Set-Cookie"].split(";")]
    assert str(PORT) in cookie.partition("=")[0]
    assert {"HttpOnly", "SameSite=strict", f"Path={place}"} == set(settings)
    assert token not in answer.text + cookie
    page = door.request(place, Cookie=cookie)
    assert page.status == 200
    assert "<main" in page.text
    assert not any(secret in page.text for secret in (token, place.strip("/"), cookie.partition("=")[2]))
    again = door.enter(token)
    assert again.status == 403
    assert "Press Enter in the terminal" in json.loads(again.text)["words"]
    assert "Set-Cookie" not in again.headers
    assert door.request(place, Cookie=cookie).status == 200  # nothing is taken from who is in


def test_a_token_that_is_too_old_is_refused(door, monkeypatch):
    token, began = door.access.new_token(), door.access.now()
    monkeypatch.setattr(door.access, "now", lambda: began + TOKEN_SECONDS + 1)
    assert door.enter(token).status == 403


@pytest.mark.parametrize("body", [b"", b"wrong", b"\xff" * 100, b"x" * 10**6, b"[" * 10**5, b"\0"])
def test_what_is_no_token_is_refused(door, body):
    answer = door.request("/enter", "POST", body, Origin=ADDRESS)
    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("origin", ["http://evil.example", f"http://127.0.0.1:{PORT + 1}", "null"])
def test_no_other_page_can_hand_a_token_over(door, origin):
    token = door.access.new_token()
    assert door.request("/enter", "POST", token.encode(), Origin=origin).status == 403
    assert door.enter(token).status == 200  # it was not used up


def test_looking_at_an_address_uses_nothing_up(door):
    """What a browser, a mail scanner or a chat does with a link before anybody clicks."""
    token = door.access.new_token()
    for target in ("/", f"/?token={token}", f"/enter?token={token}", "/enter"):
        for method in ("GET", "HEAD", "OPTIONS"):
            assert is_the_door(door.request(target, method)) or method == "HEAD"
    assert door.enter(token).status == 200


# --- sessions ---


@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_gets_the_door_alone(door, path):
    for prefix in ("/", "/x/", f"/{'a' * 32}/"):
        answer = door.request(prefix + path)
        assert is_the_door(answer)
        assert answer.status == (200 if prefix + path == "/" else 403)


@pytest.mark.parametrize("path", PATHS)
def test_a_cookie_alone_opens_nothing(door, cookie, path):
    """Browsers send it to other ports of this host too."""
    for prefix in ("/", "//", "/x/", "/./", "/%2e/", f"/{cookie.partition('=')[2]}/"):
        assert is_the_door(door.request(prefix + path, Cookie=cookie))
    assert door.socket(f"/{path}", Cookie=cookie) == []


@pytest.mark.parametrize("path", PATHS)
def test_an_address_alone_opens_nothing(door, place, cookie, path):
    """It stands in the history of the browser, and on pictures of the screen."""
    name, _, value = cookie.partition("=")
    for given in ({}, {"Cookie": ""}, {"Cookie": f"{name}="}, {"Cookie": f"other={value}"}, {"Cookie": value}):
        assert is_the_door(door.request(place + path, **given))
        assert door.socket(place + path, **given) == []


def test_sessions_do_not_mix(door, place, cookie):
    other = Door(door.app.state.explorer.settings.runs)
    assert is_the_door(other.request(place, Cookie=cookie))
    again = door.enter(door.access.new_token())
    assert is_the_door(door.request(json.loads(again.text)["place"], Cookie=cookie))


def test_a_cookie_that_another_port_has_set_keeps_nobody_out(door, place, cookie):
    name = cookie.partition("=")[0]
    for given in (f"{name}=tossed; {cookie}", f"{cookie}; {name}=tossed", f"a=b;{cookie};c"):
        assert door.request(place, Cookie=given).status == 200


def test_a_socket_needs_the_session_and_our_own_page(door, place, cookie):
    for origin in FOREIGN:
        assert door.socket(f"{place}ws", Cookie=cookie, Origin=origin.format(port=PORT)) == []
    assert door.socket(f"{place}ws", Cookie=cookie, Host=f"evil.example:{PORT}") == []
    assert door.socket(f"{place}ws", Cookie=cookie, Origin=[ADDRESS, "http://evil.example"]) == []
    for own in ({"Cookie": cookie, "Origin": ADDRESS}, {"Cookie": cookie}):
        assert [told["say"] for told in door.socket(f"{place}ws", **own)] == ["hello"]


def test_only_who_was_let_in_keeps_the_server_awake(door, place, cookie):
    explorer = door.app.state.explorer
    explorer.last_seen -= 1000
    for _ in range(3):
        door.request("/")
        door.request(place)
        door.enter("wrong")
    assert explorer.idle_seconds() > 900
    door.request(place, Cookie=cookie)
    assert explorer.idle_seconds() < 900


# --- names and origins ---

HOSTILE = [
    *("evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""),
    *("127.0.0.1.:{port}", "localhost.:{port}", "127.0.0.1:{port}.evil.example", "127.0.0.1:0{port}", "127.1:{port}"),
    *("0.0.0.0:{port}", "2130706433:{port}", "[::ffff:127.0.0.1]:{port}", "evil@127.0.0.1:{port}", "127.0.0.1:{port}#"),
    *("127.0.0.1:{port},evil.example", "127.0.0.1:{port} evil.example", "127.0.0.1:{port}\t", "\u212alocalhost:{port}"),
]


@pytest.mark.parametrize("host", [host for host in HOSTILE if host.isascii()])
def test_another_name_of_the_host_is_refused(door, host):
    """A page of another site whose name leads to this machine carries that name."""
    for path in ("/", "/enter", door.entered.place):
        answer = door.request(path, Cookie=door.entered.cookie, Host=host.format(port=PORT))
        assert answer.status == 403
        assert "does not go by that name" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_its_own_names_are_heard(door, host):
    assert door.inside("", Host=host.format(port=PORT)).status == 200


def heard(hosts, tmp_path, host: str, origin: str | None = None) -> int:
    """The status of the answer to a stranger who calls the server by `host`."""
    headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
    return Door(tmp_path, hosts).request("/", **headers).status


@pytest.mark.parametrize(
    ("given", "sent"),
    [("MyBox", "mybox"), ("FD00::1", "[fd00::1]"), ("fd00:0:0::0001", "[fd00::1]"), ("::1", "[::1]")],
)
def test_names_are_heard_as_browsers_write_them(tmp_path, given, sent):
    for hosts in (launch.hosts_at(PORT, given), launch.hosts_at(PORT, "0.0.0.0", [given])):
        assert heard(hosts, tmp_path, f"{sent}:{PORT}", f"http://{sent}:{PORT}") == 200
        assert heard(hosts, tmp_path, f"127.0.0.1:{PORT}") == 200
        assert heard(hosts, tmp_path, f"other:{PORT}") == 403
        assert heard(hosts, tmp_path, sent) == 403
    assert launch.hosts_at(PORT, given)[0] == f"{sent}:{PORT}"  # the address that is printed
    assert heard((f"{given}:{PORT}",), tmp_path, f"{given.lower()}:{PORT}") == 200


def test_the_port_that_browsers_leave_out(tmp_path):
    hosts = launch.hosts_at(80, "MyBox", ["8080"])
    for host in ("mybox", "127.0.0.1", "localhost", "[::1]"):
        for written in (host, f"{host}:80"):
            assert heard(hosts, tmp_path, written) == heard(hosts, tmp_path, written, f"http://{written}") == 200
        for other in (f"{host}:81", f"{host}:8080", f"{host}.evil.example", f"{host}:"):
            assert heard(hosts, tmp_path, other) == heard(hosts, tmp_path, host, f"http://{other}") == 403
        assert heard(hosts, tmp_path, host, f"https://{host}") == 403
    assert heard(launch.hosts_at(8080, "MyBox"), tmp_path, "mybox") == 403
    door = Door(tmp_path, hosts)
    entered = door.request("/enter", "POST", door.access.new_token().encode(), Host="mybox", Origin="http://mybox")
    assert entered.headers["Set-Cookie"].startswith("meanformer-80=")


FOREIGN = [
    *("http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1", "null", ""),
    *(
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1:{port} http://evil.example",
        "http://127.0.0.1:{port}.evil.example",
    ),
    *("http://evil@127.0.0.1:{port}", "file://", "127.0.0.1:{port}", "//127.0.0.1:{port}"),
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method, path", [("GET", ""), ("GET", "api/runs"), ("POST", "api/gif")])
def test_requests_of_other_pages_are_refused(door, origin, method, path):
    answer = door.inside(path, method, Origin=origin.format(port=PORT))
    assert answer.status == 403
    assert "another page" in answer.text


@pytest.mark.parametrize("host", HOSTS)
def test_requests_of_its_own_page_are_heard(door, host):
    assert door.inside("api/runs", Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "name, values",
    {
        "Origin": [ADDRESS, "http://evil.example"],
        "Host": [HOSTS[0], "evil.example"],
        "Cookie": [None, "a=b"],
        "Content-Length": ["0", "1"],
        "Transfer-Encoding": ["chunked", "identity"],
        "X-Anything": ["1", "1"],
    }.items(),
)
def test_a_header_given_twice_is_refused(door, name, values):
    """One of the two would be looked at here, and the other elsewhere."""
    values = [door.entered.cookie if value is None else value for value in values]
    for order in (values, values[::-1], [values[0]] * 2):
        answer = door.inside("", **{name: order})
        assert answer.status == 403
        assert "given twice" in answer.text


# --- over the wire ---


def spoken(port: int, *lines: str, ending: str = "\r\n\r\n") -> tuple[int, str]:
    """All that is answered to a request that is written as it stands, until the connection is closed."""
    with sockets.create_connection(("127.0.0.1", port), PATIENCE) as line:
        line.sendall(("\r\n".join(lines) + ending).encode("latin-1"))
        answer = b""
        try:
            while part := line.recv(65536):
                answer += part
        except ConnectionError:  # closed with something of ours unread
            pass
    status = re.match(rb"HTTP/1\.1 (\d+)", answer)
    return int(status[1]) if status else 0, answer.decode("latin-1")


def test_odd_requests_open_nothing(server):
    """Host and origin doubled, hidden in whitespace or folded lines, absolute targets, two requests in one."""
    host, cookie, place = f"Host: 127.0.0.1:{server.port}", f"Cookie: {server.entered.cookie}", server.entered.place
    good = (f"GET {place} HTTP/1.1", host, cookie, "Connection: close")
    assert spoken(server.port, *good)[0] == 200
    own, evil = f"Origin: {server.address}", "Origin: http://evil.example"
    odd = {
        "two origins": (*good, own, evil),
        "two origins, the other way": (*good, evil, own),
        "origin in other letters": (*good, own, "oRiGiN: http://evil.example"),
        "origin and whitespace": (*good, "Origin : http://evil.example"),
        "origin folded": (*good, own, " http://evil.example"),
        "two hosts": (*good, "Host: evil.example"),
        "host in other letters": (*good, "HOST: evil.example"),
        "no host": (good[0], *good[2:]),
        "no host, as of old": (f"GET {place} HTTP/1.0", *good[2:]),
        "a tab in the host": (good[0], f"Host: 127.0.0.1:\t{server.port}", *good[2:]),
        "two cookies": (*good, "Cookie: a=b"),
        "an absolute target": (f"GET http://evil.example{place} HTTP/1.1", *good[1:]),
        "an absolute target of ours": (f"GET {server.home} HTTP/1.1", *good[1:]),
        "a target that is a name": (f"GET 127.0.0.1:{server.port} HTTP/1.1", *good[1:]),
        "to connect": (f"CONNECT 127.0.0.1:{server.port} HTTP/1.1", *good[1:]),
        "a null": (f"GET {place}\0 HTTP/1.1", *good[1:]),
        "no protocol": (f"GET {place}",),
        "a long target": (f"GET {place}{'a' * 70_000} HTTP/1.1", *good[1:]),
        "two lengths": (f"POST {place}api/gif HTTP/1.1", *good[1:], "Content-Length: 1", "Content-Length: 2"),
        "a negative length": (f"POST {place}api/gif HTTP/1.1", *good[1:], "Content-Length: -1"),
        "an odd encoding": (f"POST {place}api/gif HTTP/1.1", *good[1:], "Transfer-Encoding: xchunked"),
    }
    for name, lines in odd.items():
        status, text = spoken(server.port, *lines)
        assert status in (0, 400, 403, 404, 405, 501), (name, status, text[:300])
        assert "<main" not in text, name
    # A request in the body of another is a body.
    inner = "\r\n".join(good) + "\r\n\r\n"
    for framing in (f"Content-Length: {len(inner)}", "Transfer-Encoding: chunked"):
        lines = ("POST /nowhere HTTP/1.1", host, framing)
        status, text = spoken(server.port, *lines, ending=f"\r\n\r\n{inner}")
        assert "<main" not in text
    errors = (server.folder / "errors.txt").read_text()
    assert "Traceback" not in errors, errors[-2000:]
    assert spoken(server.port, *good)[0] == 200


def test_the_process_refuses_as_the_application_does(server):
    """Over the wire: the page without its session, under another name, and the socket."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    for path, host, status in (("/", "localhost", 200), (server.entered.place, "evil.example", 403)):
        connection.request("GET", path, headers={"Host": f"{host}:{server.port}"})
        answer = connection.getresponse()
        assert (answer.status, "<main" in answer.read().decode()) == (status, False)
    connection.close()
    cookie, socket = {"Cookie": server.entered.cookie}, server.home.replace("http", "ws") + "ws"
    for address, options in (
        (socket, {}),
        (f"ws://127.0.0.1:{server.port}/ws", {"additional_headers": cookie}),
        (socket, {"additional_headers": cookie, "origin": "http://evil.example"}),
        (socket, {"additional_headers": {**cookie, "Origin": server.address}, "origin": "http://evil.example"}),
    ):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, **options)
        assert refused.value.response.status_code in (400, 403)


def test_enter_in_the_terminal_prints_a_new_address(server):
    first, second = server.new_address(), server.new_address()
    assert first != second
    assert enter(second).place != server.entered.place
    with pytest.raises(OSError, match="403"):
        enter(second)
    with pytest.raises(OSError, match="403"):
        enter(first)


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")
def test_in_the_background_nothing_is_read_from_the_terminal(monkeypatch):
    """It is for the shell, and to read it would stop the process."""
    reading, writing = os.pipe()
    os.write(writing, b"ls\n")
    groups = iter([os.getpgrp() + 1, os.getpgrp() + 1, os.getpgrp()])
    monkeypatch.setattr(launch.os, "tcgetpgrp", lambda source: next(groups))
    pauses = []
    monkeypatch.setattr(launch.time, "sleep", pauses.append)
    launch._wait_for(reading)
    assert len(pauses) == 2  # until it was in the foreground
    assert list(groups) == []
    for end in (reading, writing):
        os.close(end)


def test_only_this_machine_is_listened_to(server):
    addresses = {"127.0.0.2"} if sys.platform == "linux" else set()
    try:
        addresses |= set(sockets.gethostbyname_ex(sockets.gethostname())[2])
        with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only the route is asked for
            addresses.add(probe.getsockname()[0])
    except OSError:
        pass
    for address in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError):
            sockets.create_connection((address, server.port), 5).close()


# --- answers ---


def test_what_the_page_needs_is_in_the_package(door):
    """All that the page names is served by this server, below its place, and nothing comes from another."""
    named = re.findall(r'(?:src|href)="([^"#]+)"', door.inside("").text)
    assert named
    for address in named:
        assert address.startswith("static/"), address
        assert door.inside(address).status == 200, address


def test_the_door_needs_nothing_from_inside(door):
    named = re.findall(r'(?:src|href)="([^"#]+)"', door.request("/").text)
    assert named == ["data:,", "/door.css", "/door.js"]
    for name, kind in (("js", "text/javascript"), ("css", "text/css")):
        answer = door.request(f"/door.{name}")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(kind)


def test_each_answer_tells_the_browser_to_be_careful(door):
    answers = {
        "page": door.inside(""),
        "door": door.request("/"),
        "script of the door": door.request("/door.js"),
        "entering": door.enter(door.access.new_token()),
        "not entering": door.enter("wrong"),
        "refusal": door.request("/", Host="evil.example"),
        "presets": door.inside("api/presets"),
        "missing": door.inside("nowhere"),
        "missing file": door.inside("static/nowhere.js"),
        "with a slash": door.inside("api/runs/"),
        "wrong method": door.inside("api/gif"),
    }
    for name, answer in answers.items():
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy, name
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "Location" not in answer.headers
    assert answers["missing"].status == answers["missing file"].status == answers["with a slash"].status == 404
    assert answers["wrong method"].status == 405


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "..%5cserver.py",
        "js/../../server.py",
        "js/../style.css",
        "/etc/passwd",
        "%2Fetc/passwd",
        "",
        "js",
        "js/",
        "STYLE.CSS",
        "style.css%00",
        "style.css/",
        "%ff%fe",
        pytest.param("a/" * 3000, id="many folders"),
        pytest.param("a" * 3000, id="a long name"),
        pytest.param("a" * 5000, id="a name of five thousand letters"),
    ],
)
def test_no_file_beside_the_page_is_served(door, path):
    answer = door.inside(f"static/{path}")
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_modules_come_with_their_type(door):
    answer = door.inside("static/js/main.js")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/javascript")


def test_the_presets_are_listed_with_their_text(door):
    found = json.loads(door.inside("api/presets").text)
    assert {entry["view"] for entry in found} == {"tokens", "gaussian", "density"}
    assert all({"name", "title", "about", "group", "text", "experiment"} <= set(entry) for entry in found)

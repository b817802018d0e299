"""From the terminal to the page: a real browser, the processes of the machine, and another user of it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pages import PATIENCE, children_of, enter, started
from browser import View, Watch
from playwright.sync_api import expect

from browsers import FLAGS, MOMENT, chromium

linux = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at processes as Linux shows them")
NOBODY = 65534


@pytest.fixture
def stranger(browser, server) -> Iterator[Callable[[str], View]]:
    """Opens pages in a browser that has never been here."""
    context = browser.new_context()
    context.set_default_timeout(1000 * MOMENT)

    def opened(address: str) -> View:
        page = context.new_page()
        view = View(page, Watch(page, server.address))
        page.goto(address)
        return view

    yield opened
    context.close()


def connected(view: View) -> None:
    expect(view.page.locator("#connection")).to_have_text("Connected", timeout=1000 * MOMENT)


def test_an_address_lets_in_and_hides_its_token(stranger, server):
    address = server.new_address()
    view = stranger(address)
    connected(view)
    token = address.partition("token=")[2]
    assert token not in view.page.url
    assert view.ask("() => history.length") <= 2  # the door is no place to go back to
    (cookie,) = view.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert view.page.url.startswith(server.address + cookie["path"])
    assert cookie["value"] not in view.page.url
    assert view.ask("() => document.cookie") == ""
    stored = view.ask("() => JSON.stringify([localStorage, sessionStorage])")
    assert token not in stored
    assert cookie["value"] not in stored
    view.watch.check()


def test_an_address_lets_in_once(stranger, browser, server):
    address = server.new_address()
    connected(stranger(address))
    other = browser.new_context()
    page = other.new_page()
    page.goto(address)
    expect(page.locator("#words")).to_contain_text("This address has been used")
    expect(page.locator("#words")).to_contain_text("Press Enter in the terminal")
    expect(page.locator("#again")).to_be_hidden()
    assert "token" not in page.url
    assert other.cookies() == []
    # A new one, in this very tab, from which it differs behind the # alone.
    page.goto(server.new_address())
    expect(page).to_have_url(re.compile(r"/[\w-]{20,}/"))
    other.close()


def test_who_was_let_in_opens_more_tabs(stranger, server):
    """With a click: another site can lead here too. So do links that were saved, and the used address."""
    address = server.new_address()
    first = stranger(address)
    connected(first)
    for again in (address, f"{server.address}/gone/#gaussian"):
        view = stranger(again)
        expect(view.page.locator("h1")).to_have_text("This page needs its token")
        view.page.get_by_role("button", name="Go on to the explorer").click()
        connected(view)
    assert view.ask("() => window.meanformer.getState().view") == "gaussian"


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/x/", "/#token=wrong", "/?token=wrong"])
def test_a_stranger_stays_at_the_door(stranger, server, path):
    view = stranger(server.address + path)
    expect(view.page.locator("h1")).to_have_text("This page needs its token")
    expect(view.page.locator("#again")).to_be_hidden()
    assert view.page.context.cookies() == []
    assert view.page.locator("main").count() == 0


# --- the machine ---


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter, as /run is; those of tests are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="mf-"))
    folder.chmod(0o755)
    (folder / "everybody.txt").write_text("everybody")
    (folder / "runtime").mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def leading(public: Path) -> list[Path]:
    """The files that lead the browser; the browser itself may keep others there."""
    return list((public / "runtime").glob("meanformer-explorer-*/*"))


def wait_until(true: Callable[[], object]) -> None:
    end = time.monotonic() + MOMENT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def command_lines() -> str:
    """What every user of the machine can read of its processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return "\n".join(found)


def browser_script(folder: Path, body: str) -> str:
    """A program for the variable BROWSER."""
    script = folder / "browser.sh"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o700)
    return f"{script} %s"


def ended(pid: int) -> None:
    """End a process and those it started, all of them ours."""
    for child in children_of(pid):
        ended(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@linux
def test_no_command_line_tells_the_address(tmp_path, public):
    """The browser that the explorer opens is let in, while no process shows where, nor by which token."""
    profile, marked = tmp_path / "profile", tmp_path / "pid"
    flags = " ".join([*FLAGS, "--headless=new", "--no-first-run", "--disable-background-networking"])
    body = (
        f'echo $$ > {marked}\nexec {chromium()} {flags} --user-data-dir={profile} "$1" > {tmp_path}/chromium.txt 2>&1'
    )
    extra = {"BROWSER": browser_script(tmp_path, body), "XDG_RUNTIME_DIR": str(public / "runtime")}
    with started(tmp_path, "--workers", "1", browser=True, **extra) as server:
        token, seen, end = server.first.partition("token=")[2], set(), time.monotonic() + MOMENT
        try:
            while not (marked.exists() and not leading(public)):
                assert time.monotonic() < end, (tmp_path / "chromium.txt").read_text()
                shown = command_lines()
                assert token not in shown
                assert f"127.0.0.1:{server.port}" not in shown
                seen |= {word for word in shown.split() if word.startswith("file://") and "meanformer-explorer" in word}
                time.sleep(0.02)
            # The file is gone once the browser has been let in, and so has the token.
            assert len(seen) == 1
            for _ in range(20):
                shown = command_lines()
                assert token not in shown
                assert f"127.0.0.1:{server.port}" not in shown
                time.sleep(0.05)
            with pytest.raises(OSError, match="403"):
                enter(server.first)
        finally:
            if marked.exists():
                ended(int(marked.read_text()))


def as_nobody(code: str, *arguments: str) -> str:
    """What a program of another user prints, who has a Python of the system."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    if sys.platform == "win32" or os.geteuid() != 0 or python is None:
        pytest.skip("only root can be somebody else, who needs a Python of the system")
    done = subprocess.run(
        [python, "-I", "-c", code, *arguments],
        **{"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/", "env": {}},
        **{"capture_output": True, "text": True, "timeout": PATIENCE, "check": False},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


READ = """
import pathlib, sys
for name in sys.argv[1:]:
    try:
        found = pathlib.Path(name)
        print("read", sorted(found.iterdir()) if found.is_dir() else found.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        print(type(error).__name__)
"""
CALL = """
import socket, sys
for text in sys.argv[2:]:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as line:
        line.sendall(text.replace("|", "\\r\\n").encode())
        while part := line.recv(65536):
            print(part.decode())
"""


@linux
def test_another_user_of_the_machine_reaches_nothing(tmp_path, public):
    """Neither the file that leads the browser, nor the process, nor the page; what is open to all can be read."""
    extra = {"BROWSER": browser_script(tmp_path, "exit 0"), "XDG_RUNTIME_DIR": str(public / "runtime")}
    with started(tmp_path, "--workers", "1", browser=True, **extra) as server:
        wait_until(lambda: leading(public))
        (file,) = leading(public)
        token = server.first.partition("token=")[2]
        assert token in file.read_text()
        of_process = [f"/proc/{server.process.pid}/{name}" for name in ("environ", "fd", "mem", "maps")]
        told = as_nobody(READ, str(public / "everybody.txt"), str(file), str(file.parent), *of_process)
        assert told.splitlines() == ["read everybody", *["PermissionError"] * 6]
        host = f"Host: 127.0.0.1:{server.port}|Connection: close"
        session = enter(server.first)
        heard = as_nobody(
            CALL,
            str(server.port),
            f"GET / HTTP/1.1|{host}||",
            f"GET {session.place} HTTP/1.1|{host}||",
            f"GET /api/runs HTTP/1.1|{host}|Cookie: {session.cookie}||",
            f"POST /enter HTTP/1.1|{host}|Content-Length: {len(token)}||{token}",
        )
        assert heard.count("HTTP/1.1 200") == 1  # the door
        assert heard.count("HTTP/1.1 403") == 3
        assert "<main" not in heard
        assert "set-cookie" not in heard.lower()
        wait_until(lambda: not leading(public))  # used: it is removed


@linux
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_file_goes_with_the_explorer(tmp_path, public, how):
    extra = {"BROWSER": browser_script(tmp_path, "exit 0"), "XDG_RUNTIME_DIR": str(public / "runtime")}
    with started(tmp_path, "--workers", "1", browser=True, **extra) as server:
        wait_until(lambda: leading(public))
        server.process.send_signal(how)
        server.process.wait(PATIENCE)
    assert list((public / "runtime").iterdir()) == []

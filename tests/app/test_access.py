"""Tokens that work once, and sessions that need two secrets."""

import asyncio
import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

from meanformer import InputError
from meanformer.app import access, launch, redirect
from meanformer.app.access import MOST_SESSIONS, TOKEN_SECONDS, Access


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(clock) -> Access:
    return Access(clock)


def test_a_token_works_once(known):
    token = known.new_token()
    assert known.pending
    assert known.enter(token) is not None
    assert not known.pending
    assert known.enter(token) is None


def test_a_token_is_forgotten_after_a_while(known, clock):
    token = known.new_token()
    clock.time = TOKEN_SECONDS
    assert not known.pending
    assert known.enter(token) is None
    token = known.new_token()
    clock.time += TOKEN_SECONDS - 1
    assert known.enter(token) is not None


def test_there_is_one_token_at_a_time(known):
    first, second = known.new_token(), known.new_token()
    assert first != second
    assert known.enter(first) is None
    assert known.enter(second) is not None


@pytest.mark.parametrize("token", ["", "wrong", "\u00e9", "\udcff", "x" * 10**6])
def test_a_wrong_token_opens_nothing_and_uses_nothing_up(known, token):
    assert known.enter(token) is None  # before there is any
    right = known.new_token()
    for wrong in (token, right[:-1], right + "x", right.swapcase(), right + token, f" {right}"):
        if wrong != right:
            assert known.enter(wrong) is None
    assert known.enter(right) is not None
    assert known.enter("") is None


def test_a_session_needs_its_place_and_its_cookie(known):
    one, other = (known.enter(known.new_token()) for _ in range(2))
    assert len({one.place, one.cookie, other.place, other.cookie}) == 4
    assert all(len(secret) >= 32 for secret in (one.place, one.cookie))
    assert known.knows(one.place, [one.cookie])
    assert known.knows(one.place, ["tossed", one.cookie, ""])  # other ports of the host can set cookies too
    for place, cookies in (
        (one.place, []),
        (one.place, [""]),
        (one.place, [one.place]),
        (one.place, [other.cookie]),
        (one.place[:-1], [one.cookie]),
        ("", [one.cookie]),
        (one.cookie, [one.cookie]),
        (other.place, [one.cookie]),
    ):
        assert not known.knows(place, cookies)


def test_old_sessions_are_forgotten(known):
    given = [known.enter(known.new_token()) for _ in range(MOST_SESSIONS + 1)]
    assert not known.knows(given[0].place, [given[0].cookie])
    assert all(known.knows(one.place, [one.cookie]) for one in given[1:])


def test_secrets_are_compared_in_constant_time(known, monkeypatch):
    """By `secrets.compare_digest`, all of them, whichever fits."""
    compared = []
    exact = access.secrets.compare_digest
    monkeypatch.setattr(access.secrets, "compare_digest", lambda a, b: compared.append((a, b)) or exact(a, b))
    given = [known.enter(known.new_token()) for _ in range(3)]
    assert len(compared) == 3
    compared.clear()
    assert known.knows(given[0].place, [given[0].cookie])
    first = len(compared)
    compared.clear()
    assert not known.knows("x", ["y"])
    assert first == len(compared) == 6


# --- what the terminal and the browser are told ---


@pytest.mark.parametrize("what", ["a" * 5000, "a/" * 5000, "nothing-here", "a\0b", "\udcff", "/dev/zero"], ids=ascii)
def test_what_cannot_be_shown_is_refused_in_words(what):
    """Names that no file can have, among others; before a port is taken."""
    with pytest.raises(InputError, match="the page cannot begin with") as refused:
        launch.explore(what)
    assert len(str(refused.value)) < 600


@pytest.fixture
def not_served(monkeypatch):
    """All but the serving."""
    monkeypatch.setattr(launch, "_serve", lambda server, doorman, listening, *_: listening.close())
    monkeypatch.setattr(asyncio, "run", lambda work: None)


@pytest.mark.usefixtures("not_served")
@pytest.mark.parametrize("host", ["", " "], ids=ascii)
def test_an_empty_host_is_refused(host):
    """As of a variable of the shell that is not set; it would be every address of the machine."""
    with pytest.raises(InputError, match="no host to listen on"):
        launch.explore(host=host, port=0, browser=False)


@pytest.mark.usefixtures("not_served")
@pytest.mark.parametrize("port", [None, 0])
@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "a" * 70, "1:2:3"], ids=ascii)
def test_a_wrong_host_is_not_a_port_that_is_taken(host, port):
    """192.0.2.1 is for examples, and no machine has it."""
    with pytest.raises(InputError, match="the page cannot be served at") as refused:
        launch.explore(host=host, port=port, browser=False)
    assert "after --host" in refused.value.remedy
    assert "port" not in str(refused.value)


@pytest.mark.usefixtures("not_served")
def test_a_port_that_is_taken_is_no_wrong_host():
    with (
        contextlib.closing(launch.bound_socket("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="the page cannot be served at") as refused,
    ):
        launch.explore(port=taken.getsockname()[1], browser=False)
    assert "--port 0" in refused.value.remedy


@pytest.mark.usefixtures("not_served")
def test_what_makes_no_page_is_refused_before_the_start(tmp_path, monkeypatch):
    """A file that is no experiment, a run folder that cannot be read, a folder of runs that is none."""
    monkeypatch.chdir(tmp_path)
    Path("ex.py").write_text("import this\n")
    Path("mine").mkdir()
    Path("mine/run.json").write_text("{")
    for what, got in (("ex.py", "not TOML: .*line 1"), ("mine", r"mine/run\.json cannot be used")):
        with pytest.raises(InputError, match=f"the page cannot begin with '{what}'\n  got: .*{got}"):
            launch.explore(what, port=0, browser=False)
    for runs, got in (("nope", "no such folder"), ("ex.py", "a file"), ("ex.py/x", "no such folder")):
        with pytest.raises(InputError, match=f"there are no runs in '{runs}'\n  got: *{got}"):
            launch.explore(runs=Path(runs), port=0, browser=False)
    launch.explore(runs=Path("runs"), port=0, browser=False)  # it may come later
    launch.explore(runs=Path("mine"), port=0, browser=False)


@pytest.mark.usefixtures("not_served")
def test_an_address_of_its_own_is_drawn(capsys):
    """It is long, random, and printed; only the serving is left out."""
    tokens = set()
    for _ in range(2):
        launch.explore(port=0, browser=False)
        found = re.search(r"http://127\.0\.0\.1:\d+/#token=([\w-]{32,})\n", capsys.readouterr().out)
        assert found
        tokens.add(found[1])
    assert len(tokens) == 2


@pytest.mark.parametrize("runtime", [True, False])
def test_the_browser_is_led_by_a_file_that_only_its_user_can_read(monkeypatch, tmp_path, runtime):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(redirect, "SNAPS", tmp_path / "none")
    for name in ("home", "runtime"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("runtime" if runtime else "not there")))
    file = redirect.write_redirect('http://127.0.0.1:1/#token=a&"b')
    assert file.parent.parent == tmp_path / ("runtime" if runtime else "home")
    assert not file.parent.name.startswith(".")
    if sys.platform != "win32":
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
    assert 'content="0; url=http://127.0.0.1:1/#token=a&amp;&quot;b"' in file.read_text()
    redirect.remove_redirect(file)
    redirect.remove_redirect(file)  # again: nothing happens
    assert list(file.parent.parent.iterdir()) == []


def test_browsers_in_snaps_find_the_file_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(redirect, "SNAPS", tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "home").mkdir()
    assert redirect.write_redirect("http://x").parent.parent == tmp_path / "home"


@pytest.mark.usefixtures("as_a_user")
def test_without_a_place_for_the_file_no_browser_is_opened(monkeypatch, capsys):
    monkeypatch.setattr(redirect, "_places", lambda: ["/nonexistent"])
    monkeypatch.setattr(launch.webbrowser, "open", lambda address: pytest.fail("a browser was opened"))
    launch.Doorman(None, "http://x").open_browser("http://x/#token=secret")  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "No browser was opened" in said
    assert "secret" not in said


@pytest.mark.usefixtures("as_a_user")
def test_without_standard_input_nothing_is_waited_for(monkeypatch):
    for source in (None, io.StringIO("\n")):  # as where there is no terminal, and in notebooks
        monkeypatch.setattr(sys, "stdin", source)
        launch.Doorman(None, "http://x").listen(None)  # type: ignore[arg-type]

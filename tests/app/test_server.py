"""Films, and what becomes of the processes."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app._pages import PATIENCE, SLOW, SMALL, started
from app.door import Door
from meanformer.app.protocol import pack
from meanformer.app.server import GIF_FRAMES, GIF_SIDE, make_gif

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")


@pytest.fixture(scope="module")
def door(tmp_path_factory) -> Door:
    """The application of a server, which is not started."""
    return Door(tmp_path_factory.mktemp("runs"))


# --- films ---


def picture(colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> np.ndarray:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return np.frombuffer(out.getvalue(), np.uint8)


def test_pictures_become_a_film(door):
    colours = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
    frames = {str(k): picture(colour) for k, colour in enumerate(colours)}
    answer = door.inside("api/gif", "POST", pack({"milliseconds": 50}, frames))
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
def test_what_is_no_film_is_refused_in_words(door, body):
    answer = door.inside("api/gif", "POST", body)
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
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_without_complaints(how, tmp_path):
    # A suite started in the background ignores Ctrl-C, and its children inherit that: here it must count.
    heed = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    )
    program = [sys.executable, "-m", "meanformer", "explore", "--no-browser", "--port", "0", "--workers", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", heed, *program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while "token=" not in process.stdout.readline():
            assert process.poll() is None
        assert wait_until(lambda: b"meanformer.app.worker" in children(process.pid))
        process.send_signal(how)
        _, complaints = process.communicate(timeout=PATIENCE)
    assert complaints == ""
    assert process.returncode == (0 if how == signal.SIGINT else -signal.SIGTERM)


def children(pid: int) -> bytes:
    """The command lines of the processes that a process has started."""
    found = b""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(file.read_text().rpartition(")")[2].split()[1]) == pid:
                found += file.with_name("cmdline").read_bytes()
        except OSError:
            continue
    return found


@linux
def test_ctrl_c_is_for_the_server_alone(server):
    """A terminal sends it to all processes: workers would fail in the middle of something, and tell of it at length."""
    with server.page() as page:
        page.run(SMALL)
        before = server.workers()
        for worker in before:
            os.kill(worker, signal.SIGINT)
        assert page.run(SMALL).one("end")["outcome"]["kind"] == "REACHED"
        assert server.workers() == before


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

"""Messages that no page would send: each is answered by a sentence, and nothing grows or breaks."""

import copy
import json
import random
import time
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from websockets.exceptions import ConnectionClosed

from app._pages import PATIENCE, SLOW, SMALL, Page, started
from meanformer.app.limits import MESSAGE_BYTES
from meanformer.app.session import ASKED, MOST_LEVELS, read_message

COUNT = 1000
BURST = 7
"""So many messages are sent before the answers are read; a page has one place more."""
SERVER_SLACK, WORKER_SLACK = 16 * 2**20, 80 * 2**20
"""So much may the server grow from the 500th message to the last; and a worker, when it is sent the last 250 again.
New messages make it compile new programs, which it keeps until it is renewed."""
NEVER = ("Traceback", 'File "', "/src/", "site-packages", ".py")
"""What tells of the inside."""

STARTS = [[[1.0, 0.2], [0.2, 0.5]]]
VALID: list[dict[str, Any]] = [
    {"do": "run", "slot": "main", "run": 1, "experiment": SMALL, "want": ["received"]},
    {"do": "toml", "slot": "toml", "run": 1, "experiment": SMALL},
    {"do": "gaussians", "slot": "g", "run": 1, "experiment": {"attention": SMALL["attention"]}, "starts": STARTS},
    {
        "do": "read",
        "slot": "read",
        "run": 1,
        "text": '[attention]\nkind = "softmax"\n[measure]\nkind = "ball"\nn = 3\n',
    },
    {"do": "replay", "slot": "main", "run": 1, "folder": "clusters"},
    {"do": "cancel", "slot": "main"},
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 2**31, 2**53, 2**64, -(2**64), 10**400, 1e308, 5e-324, -0.0),
    *("", "a", "inf", "nan", "../../etc/passwd", "\u0000", "\ud800", "é" * 50, "x" * 5000, "{}", "__class__"),
    *([], [[]], [[[]]], [None], [[None]], [1, "a", None, {}], [[1.0, 2.0], [3.0]], [[[1.0]]], [0.0] * 200),
    *({}, {"": {}}, {"kind": []}, {"kind": {}}, {"kind": "softmax"}, {"file": "/etc/passwd"}, {"of": "Q"}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a message."""
    found = [path] if path else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        found += places(part, (*path, key))
    return found


def mutated(rng: random.Random, message: dict[str, Any]) -> str:
    """A valid message with one to three parts made odd, lost, or joined by others."""
    message = copy.deepcopy(message)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(places(message))
        table: Any = message
        for key in path[:-1]:
            table = table[key]
        what = rng.random()
        if what < 0.65:
            table[path[-1]] = copy.deepcopy(rng.choice(ODD))
        elif what < 0.8:
            del table[path[-1]]
        elif isinstance(table, dict):
            table[rng.choice(["new", "file", "cases", "sweep", "", "é", "seed", "d", "sample"])] = rng.choice(ODD)
        if not message:
            break
    # Python reads NaN and Infinity, which JSON has not; a browser never writes them, but others may.
    return (
        json.dumps(message)
        .replace('"nan"', rng.choice(['"nan"', "NaN"]))
        .replace('"inf"', rng.choice(['"inf"', "1e999"]))
    )


def garbled(rng: random.Random, text: str) -> str:
    """A message cut short, or with wrong letters."""
    if rng.random() < 0.5:
        return text[: rng.randrange(len(text))]
    letters = list(text)
    for _ in range(rng.randint(1, 4)):
        letters[rng.randrange(len(letters))] = rng.choice('{}[]",:0-e\\x\u0000é\U0001f600')
    return "".join(letters)


def nested(rng: random.Random) -> str:
    """Tables in tables: from some to a hundred thousand."""
    depth = rng.choice([5, 13, MOST_LEVELS - 2, MOST_LEVELS + 2, 400, 990, 5000, 100_000])
    opening, closing = rng.choice([("[", "]"), ('{"of": ', "}"), ('{"kind": "scaled", "factor": 1.0, "of": ', "}")])
    depth = min(depth, MESSAGE_BYTES // len(opening + closing))  # longer messages end the connection
    inside = opening * depth + "1" + closing * depth
    where = rng.choice(["attention", "measure", "flow", "seed", "starts"])
    return f'{{"do": "run", "slot": "deep", "run": 3, "experiment": {{"{where}": {inside}}}}}'


def messages(seed: int, count: int) -> list[str | bytes]:
    """So many of them, the same each time."""
    rng = random.Random(seed)
    valid = [json.dumps(message) for message in VALID]
    makers = {
        "mutated": lambda: mutated(rng, {**rng.choice(VALID), "slot": f"slot {rng.randrange(BURST)}"}),
        "garbled": lambda: garbled(rng, rng.choice(valid)),
        "nested": lambda: nested(rng),
        "letters": lambda: "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x400)])) for _ in range(40)),
        "bytes": lambda: rng.randbytes(rng.randrange(200)),
        "odd": lambda: json.dumps(rng.choice(ODD)),
        "long": lambda: json.dumps({**VALID[3], "text": "# " + "x" * rng.choice([10**5, MESSAGE_BYTES])}),
        "as bytes": lambda: rng.choice(valid).encode(),
    }
    kinds = rng.choices(list(makers), weights=[60, 20, 6, 4, 4, 3, 1, 2], k=count)
    return [makers[kind]() for kind in kinds]


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def settled(page: Page) -> list[dict[str, Any]]:
    """What the server says until it has answered a last request, for a run: all before it are done or cancelled."""
    number = page.send("run", "settled", experiment=SMALL)
    heard: list[dict[str, Any]] = []
    while not heard or (heard[-1]["slot"], heard[-1]["run"], heard[-1]["say"]) != ("settled", number, "end"):
        heard.append(dict(page.receive()))
    return heard


def said_to(page: Page, sent: list[str | bytes]) -> list[dict[str, Any]]:
    """All that a server says while it is sent these messages, some at a time."""
    heard: list[dict[str, Any]] = []
    for first in range(0, len(sent), BURST):
        for message in sent[first : first + BURST]:
            page.socket.send(message)
        heard += settled(page)
    return heard


def check_answers(heard: list[dict[str, Any]], count: int, errors: str) -> None:
    """Each is a sentence that tells nothing of the inside, and none is due to a fault of ours."""
    for answer in heard:
        text = json.dumps(answer, ensure_ascii=False)
        assert not any(word in text for word in NEVER), text
        if answer["say"] in ("refused", "failed"):
            assert answer["words"].strip(), text
            assert isinstance(answer["path"] if answer["say"] == "refused" else [], list)
    assert sum(answer["say"] == "refused" for answer in heard) > count // 3
    # What we know to be wrong is refused; to fail is for faults of ours.
    failed = [answer["words"] for answer in heard if answer["say"] == "failed"]
    assert not failed, (failed, errors[-3000:])
    assert "Traceback" not in errors


def test_a_hundred_odd_messages(server):
    with server.page() as page:
        heard = said_to(page, messages(seed=10, count=100))
        check_answers(heard, 100, (server.folder / "errors.txt").read_text())
        assert page.run(SMALL).one("end")["outcome"]["kind"] == "REACHED"


@pytest.mark.nightly
def test_a_thousand_odd_messages(tmp_path):
    pytest.importorskip("resource", reason="looks at memory as Linux shows it")
    with started(tmp_path, "--workers", "1") as server, server.page() as page:
        heard, sizes = settled(page), []
        sent = messages(seed=9, count=COUNT)
        for part in (sent[: COUNT // 2], sent[COUNT // 2 :], sent[-COUNT // 4 :]):
            heard += said_to(page, part)
            sizes.append({pid: resident(pid) for pid in [server.process.pid, *server.workers()]})
        assert server.process.poll() is None
        check_answers(heard, COUNT, (tmp_path / "errors.txt").read_text())
        grown = sizes[1][server.process.pid] - sizes[0][server.process.pid]
        assert grown < SERVER_SLACK
        # A worker that was ended and replaced has nothing to be compared with.
        workers = {pid: sizes[2][pid] - sizes[1][pid] for pid in server.workers() if pid in sizes[1]}
        assert workers
        assert all(grown < WORKER_SLACK for grown in workers.values()), (workers, sizes)
        assert page.run(SMALL).one("end")["outcome"]["kind"] == "REACHED"


def test_a_message_beyond_all_bounds_ends_the_connection_and_nothing_else(server):
    with server.page() as page, pytest.raises(ConnectionClosed):
        page.socket.send("x" * (3 * MESSAGE_BYTES))
        page.receive()
    with server.page() as page:
        page.socket.send("x" * (MESSAGE_BYTES + 1))
        answer = page.receive()
        assert answer["say"] == "refused"
        assert f"{MESSAGE_BYTES:,}" in answer["words"]


def test_a_new_request_in_a_slot_cancels_the_old(server):
    with server.page() as page:
        old = page.send("run", experiment=SLOW)
        while page.receive()["say"] != "start":
            pass
        new = page.send("run", experiment=SMALL)
        ends: list[Any] = []
        while not ends or "energy_name" not in ends[-1]:
            answer = page.receive(PATIENCE)
            ends.append(answer)
            assert not (answer["run"] == old and answer["say"] in ("end", "curves", "failed", "refused"))
        assert ends[-1]["run"] == new


def begin_long_run(page: Page) -> None:
    """Ask for a run that would take minutes, and wait until it is under way."""
    page.send("run", experiment=SLOW)
    while page.receive()["say"] != "start":
        pass


def test_to_cancel_is_answered_at_once_and_ends_the_run(server):
    with server.page() as page:
        begin_long_run(page)
        number = page.send("cancel")
        while (answer := page.receive())["say"] != "cancelled":
            assert answer["say"] in ("doing", "frames")
        assert answer["run"] == number
        # Nothing more comes of it; what is asked next does.
        assert {a["slot"] for a in page.run(SMALL, slot="other")} == {"other"}


def test_a_page_that_leaves_takes_its_runs_with_it(server):
    with server.page() as page:
        begin_long_run(page)
    with server.page() as page:
        began = time.monotonic()
        assert page.run(SMALL).one("end")["outcome"]["kind"] == "REACHED"
        assert time.monotonic() - began < 100


def test_a_page_has_so_many_places(server):
    with server.page() as page:
        for number in range(8):
            page.send("run", f"slot {number}", experiment={**SMALL, "flow": {"t1": 300.0}})
        number = page.send("run", "one more", experiment=SMALL)
        answers = page.answers(number, "one more")
        assert answers[-1]["say"] == "refused"
        assert "at most 8 places" in answers[-1]["words"]


# --- the reader of messages, by itself ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
KEYS = ["do", "slot", "run", "experiment", "starts", "folder", "text", "want", "other"]


@hypothesis.given(
    st.one_of(
        st.none(),
        st.text(max_size=60),
        JSON.map(json.dumps),
        st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(list(ASKED)), max_size=9).map(json.dumps),
    )
)
@hypothesis.settings(max_examples=500)
def test_a_message_is_read_or_refused_in_a_sentence(text):
    found = read_message(text)
    if isinstance(found, str):
        assert found.endswith(".")
        assert len(found) < 300
        return
    assert found["do"] in ASKED
    assert set(found) <= {"do", "slot", "run", "want", *ASKED[found["do"]]}
    assert isinstance(found["slot"], str)
    assert type(found["run"]) is int


@pytest.mark.parametrize("message", VALID, ids=[message["do"] for message in VALID])
def test_what_a_page_sends_is_read(message):
    found = read_message(json.dumps(message))
    assert found == {"run": 0, **message}


WRONG: dict[str, Any] = {
    "no table": [],
    "nothing to do": {"slot": "a"},
    "something else to do": {"do": "eval", "slot": "a"},
    "a list to do": {"do": [], "slot": "a"},
    "a table to do": {"do": {}, "slot": "a"},
    "no slot": {"do": "cancel"},
    "an empty slot": {"do": "cancel", "slot": ""},
    "a long slot": {"do": "cancel", "slot": "a" * 41},
    "a slot that is a number": {"do": "cancel", "slot": 1},
    "a run that is a text": {"do": "cancel", "slot": "a", "run": "1"},
    "a run that is a truth value": {"do": "cancel", "slot": "a", "run": True},
    "a negative run": {"do": "cancel", "slot": "a", "run": -1},
    "a run too large": {"do": "cancel", "slot": "a", "run": 2**53},
    "no experiment": {"do": "run", "slot": "a"},
    "an experiment that is a list": {"do": "run", "slot": "a", "experiment": []},
    "starts that are a table": {"do": "gaussians", "slot": "a", "experiment": {}, "starts": {}},
    "a folder that is a list": {"do": "replay", "slot": "a", "folder": ["a"]},
    "a text that is a number": {"do": "read", "slot": "a", "text": 3},
    "something else wanted": {"do": "run", "slot": "a", "experiment": {}, "want": ["all"]},
    "a table wanted": {"do": "run", "slot": "a", "experiment": {}, "want": [{}]},
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_message_is_said(message):
    found = read_message(json.dumps(message))
    assert isinstance(found, str)
    assert found.endswith(".")


def test_a_message_has_so_many_levels():
    def deep(levels: int) -> str:
        return json.dumps({"do": "run", "slot": "a", "experiment": {"x": json.loads("[" * levels + "]" * levels)}})

    assert isinstance(read_message(deep(MOST_LEVELS - 2)), dict)
    assert "nested too deeply" in str(read_message(deep(MOST_LEVELS - 1)))
    assert "nested too deeply" in str(read_message(deep(700)))
    assert "not JSON" in str(read_message('{"a": ' + "[" * 100_000))
    assert "not JSON" in str(read_message('{"do": "cancel", "slot": "a", "run": NaN}'))

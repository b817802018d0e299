"""Who may use the page, and what it does without its server."""

import http.server
import json
import shutil
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from _pages import PATIENCE, started
from browser import link, small, tokens, visit
from playwright.sync_api import expect

from browsers import MOMENT

REACH = """async (address) => {
  const found = {};
  for (const [name, path] of [["page", ""], ["runs", "api/runs"], ["presets", "api/presets"]])
    found[name] = await fetch(address + path, { credentials: "include" }).then((a) => a.status, () => "refused");
  const body = new Uint8Array(8);
  found.gif = await fetch(address + "api/gif", { method: "POST", body, credentials: "include" })
    .then((a) => a.status, () => "refused");
  found.socket = await new Promise((resolve) => {
    const web = new WebSocket(address.replace("http", "ws") + "ws");
    web.onmessage = (event) => resolve(JSON.parse(event.data).say);
    web.onclose = (event) => resolve(`closed ${event.code}`);
  });
  return found;
}"""


class Elsewhere(http.server.ThreadingHTTPServer):
    """Another server of this machine, which has nothing to do with ours, and notes what it is sent."""

    def __init__(self) -> None:
        self.cookies: dict[str, str | None] = {}
        super().__init__(("127.0.0.1", 0), Page)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Page(http.server.BaseHTTPRequestHandler):
    """Its one page, under every path."""

    def do_GET(self) -> None:
        assert isinstance(self.server, Elsewhere)
        self.server.cookies[self.path] = self.headers["Cookie"]
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><link rel='icon' href='data:,'>")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def elsewhere():
    with Elsewhere() as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield other
        other.shutdown()
        thread.join()


def test_a_foreign_page_reaches_nothing(browser, server, elsewhere):
    """A page of another port, in the browser that was let in; even one that knows the address of ours."""
    with visit(browser, server) as opened:
        view = opened(tokens(server))
        ours = view.ask(REACH, server.home)
        assert ours == {"page": 200, "runs": 200, "presets": 200, "gif": 400, "socket": "hello"}
        view.watch.forgive("400")  # the browser's own line about the answer that the test asks for
        page = view.page.context.new_page()
        page.goto(elsewhere.address)
        for address in (f"{server.address}/", server.home):
            theirs = page.evaluate(REACH, address)
            assert theirs == dict.fromkeys(("page", "runs", "presets", "gif"), "refused") | {"socket": "closed 1006"}
            # Nor may it show our page inside its own.
            page.evaluate(
                """(address) => {
                  const frame = document.createElement("iframe");
                  frame.src = address;
                  document.body.append(frame);
                }""",
                address,
            )
        page.wait_for_load_state("networkidle")
        assert all("meanformer" not in (frame.title() if frame.url.startswith("http") else "") for frame in page.frames)


def test_another_port_of_this_host_gets_no_key(browser, server, elsewhere):
    """Cookies know no ports. Ours is kept to its place; and whoever has it, has not the place."""
    with visit(browser, server) as opened:
        page = opened().page.context.new_page()
        page.goto(f"{elsewhere.address}/")
        page.goto(f"{elsewhere.address}/api/runs")
        assert elsewhere.cookies == {"/": None, "/api/runs": None}
        page.goto(elsewhere.address + server.entered.place)  # as if they knew it
        stolen = elsewhere.cookies[server.entered.place]
        assert stolen == server.entered.cookie
    for path in ("/", "/ws", "/api/runs", "/api/presets", "/static/js/main.js"):
        asked = urllib.request.Request(server.address + path, headers={"Cookie": stolen})
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as refused:
            text = refused.read().decode()
        assert "needs its token" in text
        assert "static" not in text


# What a run folder, an experiment or a link could hold that was made by somebody else.
EVIL = {
    "a script": "</script><script>window.evil = 1</script>",
    "a picture": '"><img src=x onerror="window.evil = 1">',
    "a drawing": '<svg onload="window.evil = 1"><script>window.evil = 1</script></svg>',
    "a link": '<a href="javascript:window.evil = 1" autofocus onfocus="window.evil = 1">',
    "an address": "javascript:window.evil=1",
    "a template": "${window.evil = 1}{{constructor.constructor('window.evil = 1')()}}",
    "another direction": "abc\u202egnp.exe\u2066",
    "a formula": "=HYPERLINK(1)",
}


def unharmed(view) -> None:
    """Nothing foreign has run, and nothing of it is part of the page."""
    assert view.ask("() => window.evil") is None
    foreign = "img, iframe, object, embed, base, a[href^='javascript' i], svg script, [onerror], [onload], [onfocus]"
    assert view.page.locator(foreign).count() == 0
    assert view.page.locator("script").count() == 1


def test_hostile_run_folders_stay_words(browser, server):
    """In names of folders, titles, kinds, times; whole ones and damaged ones."""
    runs = server.folder / "runs"
    runs.mkdir(exist_ok=True)
    others = set(runs.iterdir())  # of other tests
    record = {"format": 1, "kind": "flow", "created": "2026-01-31T14:05:00+00:00", "experiment": {}}
    try:
        for k, words in enumerate(EVIL.values()):
            for name, text in (
                (f"title {k}", json.dumps(record | {"title": words, "created": words, "name": words})),
                (f"{words.replace('/', '_')} {k}", json.dumps(record | {"title": f"{k}"})),
                (f"{words.replace('/', '_')} damaged {k}", words),
                (f"format {k}", json.dumps(record | {"format": words, "versions": {"meanformer": words}})),
            ):
                (runs / name).mkdir(parents=True)
                (runs / name / "run.json").write_text(text)
        with visit(browser, server) as opened:
            view = opened(tokens(server))
            view.page.get_by_test_id("open").click()
            view.page.get_by_test_id("open-run").click()
            entries = view.page.locator(".runs button")
            expect(entries).to_have_count(4 * len(EVIL) + len(others))
            assert view.page.locator(".runs button:disabled").count() == 2 * len(EVIL)
            texts = entries.all_text_contents()
            assert any(EVIL["a script"] in text for text in texts)
            assert not any("\u202e" in text for text in texts)
            unharmed(view)
            # To replay one fails, in words.
            entries.filter(has_text="title 0").filter(has_not=view.page.locator(".damaged")).click()
            expect(view.page.locator("#alert")).to_be_visible()
            unharmed(view)
    finally:
        for path in set(runs.iterdir()) - others:
            shutil.rmtree(path)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=() if name == "a picture" else pytest.mark.nightly)
        for name, words in EVIL.items()
    ],
)
def test_hostile_words_in_an_experiment_stay_words(opened, server, words):
    """In a link, in a file that is opened, and in what the server says of them."""
    evil = small(attention={"kind": words, "Q": words}, measure={"kind": words, "n": words})
    view = opened(tokens(server, evil, colour=words, fit=words))
    expect(view.page.locator("#connection")).to_have_text("Connected", timeout=1000 * MOMENT)
    view.until("() => document.querySelector('#status').textContent !== 'Starting.'")
    unharmed(view)
    view.page.get_by_test_id("open").click()
    view.page.get_by_test_id("open-toml").click()
    quoted = json.dumps(words)
    view.page.get_by_test_id("open-text").fill(f"title = {quoted}\nabout = {quoted}\n[attention]\nkind = {quoted}\n")
    view.page.get_by_test_id("open-go").click()
    expect(view.page.locator("dialog[open] .error")).not_to_be_empty()
    unharmed(view)


INJECTED = {
    "inline script": "const s = document.createElement('script'); s.append('window.evil = 1'); "
    "document.body.append(s);",
    "foreign script": "const s = document.createElement('script'); s.src = given; document.body.append(s);",
    "markup": "document.body.innerHTML += '<img src=x onerror=\"window.evil = 1\">';",
    "handler": "document.body.setAttribute('onclick', 'window.evil = 1'); document.body.click();",
    "javascript link": "const a = document.createElement('a'); a.href = 'javascript:window.evil = 1'; a.click();",
    "timer": "setTimeout('window.evil = 1');",
    "frame": "const f = document.createElement('iframe'); f.srcdoc = '<script>parent.evil = 1</script>'; "
    "document.body.append(f);",
    "worker": "new Worker(URL.createObjectURL(new Blob(['fetch(1)'])));",
    "base": "const b = document.createElement('base'); b.href = given; document.head.append(b);",
    "module": "return import(given).then(() => 'loaded', () => null);",
    "request": "return fetch(given, { mode: 'no-cors' }).then(() => 'sent', () => null);",
    "picture": "return new Promise((done) => { const i = new Image(); i.onerror = () => done(null); "
    "i.onload = () => done('sent'); i.src = given; });",
}


@pytest.mark.parametrize("code", INJECTED.values(), ids=INJECTED)
def test_a_script_that_got_in_could_do_nothing(browser, server, elsewhere, code):
    """The policy of the page: were markup ever taken for markup, the browser would still refuse it."""
    with visit(browser, server) as opened:
        view = opened(f"{server.home}static/icon.svg" if "base" in code else server.home)
        given = f"{elsewhere.address}/evil.js"
        got = view.ask(f"async (given) => {{ try {{ {code} }} catch (e) {{ return null; }} return null; }}", given)
        view.page.wait_for_timeout(100)
        assert got is None
        assert view.ask("() => window.evil") is None
        assert "/evil.js" not in elsewhere.cookies
        assert view.ask("() => document.baseURI").startswith(server.address)
        view.watch.errors.clear()  # the browser tells of each refusal
        view.watch.foreign.clear()


def test_words_of_others_stay_words(opened, server):
    """Markup in a link or in a file is shown as it is."""
    evil = '<img src="x" onerror="document.title = 1">'
    view = opened(link(server, view=evil))
    expect(view.page.locator("#alert")).to_contain_text("<img src=")
    view.page.locator("#alert button").click()
    view.page.get_by_test_id("open").click()
    view.page.get_by_test_id("open-toml").click()
    view.page.get_by_test_id("open-text").fill(f"[measure]\nkind = '{evil}'\n")
    view.page.get_by_test_id("open-go").click()
    expect(view.page.locator("dialog[open] .error")).to_contain_text("<img src=")
    assert view.page.locator("img").count() == 0


def test_a_lost_server_is_told_and_found_again(browser, tmp_path: Path):
    """The page says so, and tries again; when a new one has let this browser in, it goes there with its settings."""
    with started(tmp_path, "--workers", "1") as first, visit(browser, first) as opened:
        view = opened(tokens(first))
        view.ran()
        before = view.points(-1)
        first.process.terminate()
        first.process.wait(PATIENCE)
        expect(view.page.locator("#connection")).to_contain_text("Not connected")
        # What was computed stays; a change waits.
        view.find("scrub").press("End")
        expect(view.find("time")).to_have_text("t = 1.00 of 1")
        view.type("tau", "3")
        with started(tmp_path, "--workers", "1", port=first.port) as second:
            expect(view.page.locator("#connection")).to_contain_text("open a new address")
            other = opened(second.first)
            expect(other.page.locator("#connection")).to_have_text("Connected")
            other.page.close()
            expect(view.page.locator("#connection")).to_have_text("Connected")
            view.ran()
            assert view.points(-1) != before
            assert view.experiment()["attention"]["tau"] == 3
            expect(view.find("outcome")).to_have_text("Reached t = 1.")
            view.page.close()
        # The browser itself tells of each failed try.
        view.watch.forgive("ERR_CONNECTION_REFUSED")
        view.watch.forgive("WebSocket connection to")
        view.watch.forgive("403")

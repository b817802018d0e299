"""Who may use the page, and what it does without its server."""

import http.server
import threading
from pathlib import Path

import pytest
from _pages import PATIENCE, started
from browser import MOMENT, link, tokens, visit
from playwright.sync_api import expect

REACH = """async (address) => {
  const found = {};
  for (const [name, path] of [["page", "/"], ["runs", "/api/runs"], ["presets", "/api/presets"]])
    found[name] = await fetch(address + path, { credentials: "include" }).then((a) => a.status, () => "refused");
  const body = new Uint8Array(8);
  found.gif = await fetch(address + "/api/gif", { method: "POST", body, credentials: "include" })
    .then((a) => a.status, () => "refused");
  found.socket = await new Promise((resolve) => {
    const web = new WebSocket(address.replace("http", "ws") + "/ws");
    web.onmessage = (event) => resolve(JSON.parse(event.data).say);
    web.onclose = (event) => resolve(`closed ${event.code}`);
  });
  return found;
}"""


@pytest.fixture(scope="module")
def elsewhere():
    """Another page of this machine: the address of a server that has nothing to do with ours."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><link rel='icon' href='data:,'>")

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{other.server_address[1]}"
        other.shutdown()
        thread.join()


def test_a_wrong_token_is_refused(browser, server):
    context = browser.new_context()
    page = context.new_page()
    for address in (f"{server.address}/?token=wrong", server.address, f"{server.address}/static/js/main.js"):
        assert page.goto(address).status == 403
        expect(page.locator("body")).to_contain_text("needs its token")
        expect(page.locator("body")).to_contain_text("meanformer explore")
    assert context.cookies() == []
    context.close()


def test_the_printed_address_lets_in_and_hides_its_token(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    assert server.token not in page.url
    expect(page.locator("#connection")).to_have_text("Connected", timeout=1000 * MOMENT)
    (cookie,) = context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("() => document.cookie") == ""
    context.close()


def test_a_foreign_page_reaches_nothing(browser, server, elsewhere):
    """A page of another origin, in the browser that has the cookie: it is of the same host, so the cookie is sent."""
    with visit(browser, server) as opened:
        view = opened(tokens(server))
        ours = view.ask(REACH, server.address)
        assert ours == {"page": 200, "runs": 200, "presets": 200, "gif": 400, "socket": "hello"}
        view.watch.forgive("400")  # the browser's own line about the answer that the test asks for
        page = view.page.context.new_page()
        page.goto(elsewhere)
        theirs = page.evaluate(REACH, server.address)
        assert theirs == dict.fromkeys(("page", "runs", "presets", "gif"), "refused") | {"socket": "closed 1006"}
        # Nor may it show our page inside its own.
        page.evaluate(
            """(address) => {
              const frame = document.createElement("iframe");
              frame.src = address;
              document.body.append(frame);
            }""",
            server.address,
        )
        page.wait_for_load_state("networkidle")
        assert all("meanformer" not in (frame.title() if frame.url.startswith("http") else "") for frame in page.frames)


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
    """The page says so, tries again, and runs what was changed meanwhile."""
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
        with started(tmp_path, "--workers", "1", port=first.port):
            expect(view.page.locator("#connection")).to_have_text("Connected")
            view.ran()
            assert view.points(-1) != before
            expect(view.find("outcome")).to_have_text("Reached t = 1.")
            view.page.close()
        # The browser itself tells of each failed try.
        view.watch.forgive("ERR_CONNECTION_REFUSED")
        view.watch.forgive("WebSocket connection to")

"""A real browser for the tests of the page: it watches for errors and waits for what is seen."""

import base64
import contextlib
import io
import json
import time
from typing import Any

import numpy as np
from _pages import Server
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from browsers import MOMENT, PATIENCE

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 812}


class Watch:
    """What must not happen on a page: errors, and requests to anybody but our server."""

    def __init__(self, page: Page, address: str):
        self.own = (f"{address}/", f"ws{address.removeprefix('http')}/", "data:", "blob:", "about:blank")
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))
        page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(_line(said)))
        page.on("request", lambda request: self._asked(request.url))
        page.on("websocket", lambda socket: self._asked(socket.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(self.own):
            self.foreign.append(url)

    def forgive(self, words: str) -> None:
        """Errors with these words are what the test is about."""
        self.errors = [error for error in self.errors if words not in error]

    def check(self) -> None:
        assert not self.errors, self.errors
        assert not self.foreign, self.foreign


def _line(said: Any) -> str:
    return f"console {said.type}: {said.text} ({said.location.get('url', '')})"


class View:
    """The page as a test uses it."""

    def __init__(self, page: Page, watch: Watch):
        self.page, self.watch = page, watch

    def find(self, testid: str) -> Locator:
        """A part of the view that is shown; views have parts of the same names."""
        return self.page.locator(f"main > section:not([hidden]) [data-testid='{testid}']")

    def ask(self, script: str, *given: Any) -> Any:
        """The value of a function of the page."""
        return self.page.evaluate(script, *given)

    def until(self, script: str, given: Any = None, patience: float = PATIENCE) -> Any:
        """Wait until a function of the page gives something true. Playwright's own way is refused by the page's CSP."""
        end = time.monotonic() + patience
        while not (found := self.page.evaluate(script, given)):
            if time.monotonic() > end:
                raise AssertionError(f"still not: {script} {self.page.locator('#status').text_content()!r}")
            self.page.wait_for_timeout(20)
        return found

    def ran(self) -> dict:
        """Wait for the end of the run of the experiment that the Tokens view now has; what it ended with."""
        # A change is told in the next frame: until then the run before it looks like the one that was asked for.
        self.ask(
            "() => new Promise((told) => { requestAnimationFrame(() => setTimeout(told)); setTimeout(told, 300); })"
        )
        return self.until(
            """() => {
              const { runner, getState } = window.meanformer || {};
              if (!runner?.asked?.over || runner.wish) return null;
              const { message } = runner.asked;
              const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
              if (message.do === "run" && !same(message.experiment, getState().tokens.experiment)) return null;
              const { end, count, n, d, total } = runner.recording || {};
              return end && window.meanformer.stage.recording === runner.recording
                ? { outcome: end.outcome, numbers: end.numbers, clusters: end.clusters, count, n, d, total } : null;
            }"""
        )

    def choose(self, testid: str, value: str) -> None:
        self.find(testid).select_option(value)

    def pick(self, testid: str) -> None:
        """One of a few options side by side: a radio button that its label covers."""
        self.find(testid).locator("xpath=ancestor::label").click()

    def type(self, testid: str, text: str) -> None:
        """Type into a field and leave it."""
        field = self.find(testid)
        field.fill(text)
        field.press("Tab")

    def show(self, view: str) -> None:
        self.page.locator(f"#tab-{view}").click()
        expect(self.page.locator(f"#view-{view}")).to_be_visible()

    def preset(self, name: str) -> None:
        """Choose a preset."""
        chooser = self.find("preset")
        chooser.locator(f"option[value='{name}']").wait_for(state="attached")
        chooser.select_option(name)

    def experiment(self) -> dict:
        return self.ask("() => { const s = window.meanformer.getState(); return s[s.view].experiment; }")

    def points(self, frame: int) -> list[list[float]]:
        """The tokens of a frame, as they arrived; another run may just have begun."""
        flat, d = self.until(
            """(k) => {
              const { exact, d } = window.meanformer.runner.recording || {};
              const found = exact?.at(k);
              return found ? [Array.from(found), d] : null;
            }""",
            frame,
        )
        return [flat[k : k + d] for k in range(0, len(flat), d)]


def small(**tables: dict) -> dict:
    """An experiment that costs nothing once it is compiled: sixteen tokens in a disc. Tables are added to, or None."""
    experiment = {
        "seed": 3,
        "attention": {"kind": "softmax", "Q": [[1, 0], [0, 1]], "K": [[1, 0], [0, 1]], "V": [[1, 0], [0, 1]], "tau": 1},
        "measure": {"kind": "ball", "n": 16, "d": 2, "radius": 2},
        "flow": {"t1": 1},
        "save": {"times": 11},
    }
    for name, part in tables.items():
        experiment[name] = {**experiment.get(name, {}), **part} if isinstance(part, dict) else part
    return {name: part for name, part in experiment.items() if part is not None}


def link(server: Server, **state: Any) -> str:
    """The address of the page with a state in it."""
    text = base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")
    return f"{server.home}#{text}"


def tokens(server: Server, experiment: dict | None = None, **display: Any) -> str:
    """The address of the Tokens view with an experiment."""
    return link(server, tokens={"experiment": small() if experiment is None else experiment}, display=display)


def pixels(part: Locator) -> np.ndarray:
    """What is seen of a part of the page: (height, width, 3), from 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(part.screenshot())).convert("RGB")).astype(int)


def coloured(part: Locator) -> int:
    """How many pixels of it are clearly coloured: paper, ink and axes are grey."""
    seen = pixels(part)
    return int((seen.max(-1) - seen.min(-1) > 60).sum())


@contextlib.contextmanager
def visit(browser: Browser, server: Server, **options: Any):
    """A visitor with the cookie of the server, whose pages are watched: `opened(address)` gives a `View`.

    Nothing moves by itself, as for readers who wish so, unless `reduced_motion` says otherwise.
    """
    settings = {"viewport": DESKTOP, "reduced_motion": "reduce", "color_scheme": "light"}
    context = browser.new_context(**settings | options)
    context.set_default_timeout(1000 * MOMENT)
    name, _, value = server.entered.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": server.home}])
    views: list[View] = []

    def opened(address: str | None = None) -> View:
        page = context.new_page()
        views.append(View(page, Watch(page, server.address)))
        page.goto(server.home if address is None else address)
        return views[-1]

    try:
        yield opened
        for view in views:
            view.watch.check()
    finally:
        context.close()

"""The page for everybody: keyboard, names, contrast, phones, less motion."""

import pytest
from browser import DESKTOP, PHONE, link, small, tokens, visit
from playwright.sync_api import expect

from browsers import PATIENCE

VIEWS = ("tokens", "gaussian", "sides", "density")
# Parts of a page that do something, and so need a name.
ROLES = {
    *("application", "button", "checkbox", "combobox", "dialog", "link", "listbox", "menu", "menuitem", "radio"),
    *("radiogroup", "searchbox", "slider", "spinbutton", "switch", "tab", "tabpanel", "textbox"),
}

# All that is there to be used, one for each group of radio buttons, with numbers that tell them again.
STOPS = """() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
  const usable = all.filter((part) => part.tabIndex >= 0 && !part.disabled && part.checkVisibility()
    && !part.closest("[inert]") && !(part.type === "radio" && !part.checked));
  usable.forEach((part, k) => (part.dataset.stop = k));
  return usable.length;
}"""
FOCUSED = """() => {
  const part = document.activeElement;
  const ringed = (node) => {
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(node);
    return boxShadow !== "none" || (outlineStyle !== "none" && parseFloat(outlineWidth) >= 1);
  };
  const label = part.closest("label");
  return { stop: part.dataset.stop ?? null, words: part.outerHTML.slice(0, 160),
    seen: ringed(part) || (label !== null && ringed(label)) };
}"""

# The contrast of each text with the first opaque colour behind it, where that is below 4.5 (3 for large texts).
PALE = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [R, G, B] = [r, g, b].map((x) => (x / 255 <= 0.04045 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * R + 0.7152 * G + 0.0722 * B;
  };
  const behind = (part) => {
    for (let node = part; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("white");
  };
  const found = [];
  for (const part of document.querySelectorAll("body *")) {
    const own = [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !part.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (part.closest(":disabled, [aria-disabled=true], .visually-hidden, svg, noscript, option, .skip")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(part);
    const [a, b] = [light(rgba(color)), light(behind(part))].sort((x, y) => y - x);
    const large = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.6 && fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: ${part.outerHTML.slice(0, 120)}`);
  }
  return found;
}"""


def everywhere(server) -> str:
    """All four views with runs of a moment."""
    one = {"Q": [[0.7]], "K": [[0.7]], "V": [[1]], "tau": 1, "kind": "l2"}
    law = {"kind": "density", "cells": 60, "of": {"kind": "gaussian", "d": 1, "mean": [0], "cov": [[0.5]]}}
    starts = [[[0.5, 0.1], [0.1, 0.5]]]
    return link(
        server,
        tokens={"experiment": small()},
        gaussian={"experiment": {"attention": small()["attention"]}, "starts": starts},
        sides={"experiment": small(), "kinds": ["softmax", "l2"]},
        density={"experiment": {"attention": one, "measure": law, "flow": {"t1": 0.3}, "save": {"times": 7}}},
    )


def finished(view, name: str) -> None:
    """Wait until a view has shown all that it computes."""
    words = {
        "tokens": "16 tokens, 11 frames",
        "gaussian": "Done",
        "sides": "2 runs from the same start",
        "density": "7 frames",
    }
    expect(view.page.locator("#status")).to_contain_text(words[name], timeout=1000 * PATIENCE)


@pytest.mark.parametrize("name", VIEWS)
def test_everything_is_reached_by_tab_and_seen(opened, server, name):
    view = opened(everywhere(server))
    view.show(name)
    finished(view, name)
    count = view.ask(STOPS)
    assert count > 20
    reached, unseen = set(), []
    view.page.locator("#skip").focus()
    for key in ("Tab", "Shift+Tab"):  # rings are for those who use keys
        view.page.keyboard.press(key)
    for _ in range(count):
        at = view.ask(FOCUSED)
        reached.add(at["stop"])
        if not at["seen"]:
            unseen.append(at["words"])
        view.page.keyboard.press("Tab")
    missing = view.ask(
        "(got) => [...document.querySelectorAll('[data-stop]')]"
        ".filter((part) => !got.includes(part.dataset.stop)).map((part) => part.outerHTML.slice(0, 120))",
        list(reached),
    )
    assert missing == []
    assert unseen == []


def test_keys_play_and_step(opened, server):
    view = opened(tokens(server, small(flow={"t1": 1})))
    view.ran()
    view.page.keyboard.press("Space")  # on a fresh page nothing has the focus
    expect(view.find("play")).to_have_attribute("aria-label", "Pause")
    view.page.keyboard.press("Space")
    expect(view.find("play")).to_have_attribute("aria-label", "Play")
    assert view.ask("() => document.scrollingElement.scrollTop") == 0
    view.page.locator("#skip").focus()
    view.page.keyboard.press("Enter")
    assert view.ask("() => document.activeElement.classList.contains('pictures')")
    view.find("stage").focus()
    view.page.keyboard.press("Home")
    view.page.keyboard.press("ArrowRight")
    expect(view.find("time")).to_have_text("t = 0.10 of 1")
    view.page.keyboard.press("Space")
    expect(view.find("play")).to_have_attribute("aria-label", "Pause")
    expect(view.find("time")).not_to_have_text("t = 0.10 of 1")
    view.page.keyboard.press("Space")
    expect(view.find("play")).to_have_attribute("aria-label", "Play")
    view.page.keyboard.press("End")
    expect(view.find("time")).to_have_text("t = 1.00 of 1")
    # The menu is opened, walked and left by keys.
    view.page.get_by_test_id("export").focus()
    view.page.keyboard.press("ArrowDown")
    expect(view.page.get_by_test_id("export-toml")).to_be_focused()
    view.page.keyboard.press("ArrowDown")
    expect(view.page.get_by_test_id("export-link")).to_be_focused()
    view.page.keyboard.press("Escape")
    expect(view.page.get_by_test_id("export")).to_be_focused()
    view.page.keyboard.press("?")
    expect(view.page.locator("#help")).to_be_visible()
    view.page.keyboard.press("Escape")
    expect(view.page.locator("#help")).to_be_hidden()


def test_all_can_be_read(opened, server):
    """In each view everything has a name, as the browser tells it to a screen reader; texts have contrast, light and
    dark; and zoomed to 200 %, which is a window of half the width, nothing is wider than the window.
    """
    view, narrow = opened(everywhere(server)), {"width": DESKTOP["width"] // 4, "height": 700}
    tree = view.page.context.new_cdp_session(view.page)
    for name in VIEWS:
        view.show(name)
        finished(view, name)
        nodes = [n for n in tree.send("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
        parts = [(n["role"]["value"], n.get("name", {}).get("value", "").strip()) for n in nodes]
        assert sum(role in ROLES for role, _ in parts) > 20
        assert [part for part in parts if part[0] in ROLES and not part[1]] == [], name
    for scheme in ("light", "dark"):
        view.page.emulate_media(color_scheme=scheme)
        for name in VIEWS:
            view.show(name)
            assert view.ask(PALE) == [], (scheme, name)
        view.page.locator("#help-button").click()
        assert view.ask(PALE) == [], scheme
        view.page.keyboard.press("Escape")
    view.page.set_viewport_size(narrow)
    for name in VIEWS:
        view.show(name)
        assert view.ask("() => document.documentElement.scrollWidth") <= narrow["width"], name


def test_a_phone(browser, server):
    """Nothing is wider than the screen, and what is on it can be used with a finger."""
    with visit(browser, server, viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2) as opened:
        view = opened(everywhere(server))
        for name in VIEWS:
            view.show(name)
            finished(view, name)
            assert view.ask("() => document.documentElement.scrollWidth") <= PHONE["width"], name
        view.show("tokens")
        view.find("play").tap()
        expect(view.find("play")).to_have_attribute("aria-label", "Pause")
        view.find("play").tap()
        view.choose("kind", "l2")
        view.ran()
        assert view.experiment()["attention"]["kind"] == "l2"
        for menu in ("export", "open"):
            view.page.get_by_test_id(menu).tap()
            box = view.page.locator(".menu-list:visible").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= PHONE["width"]
            view.page.keyboard.press("Escape")
        view.page.locator("#help-button").tap()
        box = view.page.locator("#help").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]

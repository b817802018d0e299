"""The browser in which tests look at pages: a Chromium that is already there; nothing is ever downloaded."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE, MOMENT = 600.0, 120.0
"""Seconds that a run, and that a page, may take on a busy machine; it is looked at again and again until then."""
# WebGL without a graphics card; root may not have a sandbox.
FLAGS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--use-angle=swiftshader"]
INSTALL = "install it (Debian: apt-get install chromium) to look at pages as a reader does"


def chromium() -> str:
    """The path of Chromium; without one the test is skipped, or fails if MEANFORMER_REQUIRE_BROWSER=1."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("MEANFORMER_REQUIRE_BROWSER") == "1":
            pytest.fail(f"MEANFORMER_REQUIRE_BROWSER=1, and no Chromium was found: {INSTALL}")
        pytest.skip(f"no Chromium was found: {INSTALL}")
    return found


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """The browser, as long as the block lasts; Playwright knows one such block at a time in a process."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * MOMENT)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield started
        started.close()

"""The browser in which tests look at pages: a Chromium that is already there; nothing is ever downloaded."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "install it (Debian: apt-get install chromium) to look at pages as a reader does"


def chromium() -> str:
    """The path of Chromium; without one the test is skipped, or fails if MEANFORMER_REQUIRE_BROWSER=1."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("MEANFORMER_REQUIRE_BROWSER") == "1":
            pytest.fail(f"MEANFORMER_REQUIRE_BROWSER=1, and no Chromium was found: {INSTALL}")
        pytest.skip(f"no Chromium was found: {INSTALL}")
    return found

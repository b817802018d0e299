"""The pictures of the page on the explorer: photographs of it, in a Chromium that is there already.

python docs/pictures/explorer.py --out docs/img                  # all of them
python docs/pictures/explorer.py --out docs/img --only tokens    # one: tokens, gaussian, sides, density
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import small
from playwright.sync_api import sync_playwright

# Picture -> the tab of the page, how far along the run it is taken, and the height of the window.
PICTURES = {
    "tokens": ("Tokens", 0.42, 900),
    "gaussian": ("Gaussian", 0.6, 1180),
    "sides": ("Side by side", 0.5, 900),
    "density": ("Density", 0.6, 1000),
}
WIDTH = 1280
MINUTES = 3 * 60_000


def photographed(address: str, name: str, picture: Path) -> None:
    """One view, when its runs have ended."""
    tab, share, height = PICTURES[name]
    browser = next(path for word in small.BROWSERS if (path := shutil.which(word)))
    arguments = ["--no-sandbox", "--enable-unsafe-swiftshader", "--use-angle=swiftshader", "--disable-gpu-compositing"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=arguments)
        page = running.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light", bypass_csp=True)
        page.goto(address)
        page.get_by_role("tab", name=tab).click()
        panel = page.get_by_role("tabpanel", name=tab)
        _until_done(page)
        slider = panel.get_by_test_id("scrub")
        if slider.count():
            slider.first.evaluate(
                "(scrub, share) => { scrub.value = +scrub.min + share * (scrub.max - scrub.min);"
                " scrub.dispatchEvent(new Event('input', {bubbles: true})); }",
                share,
            )
            page.wait_for_timeout(500)
        page.screenshot(path=str(picture))
        running.close()


def _until_done(page: Any) -> None:
    """Wait until nothing has been computed for a second."""
    page.wait_for_timeout(3000)
    page.wait_for_function(
        "() => { const words = document.querySelector('[role=status]').textContent;"
        " if (/Computing|Waiting|starting|Compiling|Connecting/.test(words)) window.calm = 0;"
        " window.calm = window.calm || Date.now(); return Date.now() - window.calm > 1500; }",
        timeout=MINUTES,
        polling=200,
    )


def main() -> None:
    """Photograph the views that are asked for."""
    parser = argparse.ArgumentParser(description="The pictures of the page on the explorer.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="the folder")
    parser.add_argument("--only", choices=PICTURES, help="one picture")
    options = parser.parse_args()
    command = [sys.executable, "-m", "meanformer", "explore", "--port", "0", "--no-browser"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        addresses = (found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        try:
            for name in PICTURES if options.only is None else (options.only,):
                source = Path(folder) / f"{name}.png"
                photographed(next(addresses), name, source)
                server.stdin.write("\n")  # each address works once; this asks for the next
                server.stdin.flush()
                small.convert(source, options.out / f"explorer_{name}.png")
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

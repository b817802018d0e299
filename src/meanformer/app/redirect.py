"""How the browser learns the address: from a file that only its user can read. Nothing here imports JAX.

What stands on a command line can be read by every user of a machine. So the browser is told the name of a small page,
in a folder of its own, which leads on to the address.
"""

import contextlib
import html
import os
import shutil
import tempfile
from pathlib import Path

SNAPS = Path("/snap/bin")
"""Browsers in snaps read neither temporary nor hidden folders, but see what lies in the home folder."""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>meanformer</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}" rel="noreferrer">To the explorer</a></p></body></html>
"""


def write_redirect(address: str) -> Path:
    """A page that leads to the address, in a new folder; both can be read by this user alone."""
    reason: OSError | None = None
    for place in _places():
        try:
            folder = Path(tempfile.mkdtemp(prefix="meanformer-explorer-", dir=place))  # nobody else can enter it
        except OSError as error:
            reason = error
            continue
        file = folder / "open.html"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(PAGE.format(address=html.escape(address)))
        return file
    assert reason is not None
    raise reason


def remove_redirect(file: Path) -> None:
    """Remove the page and its folder, if they are still there."""
    shutil.rmtree(file.parent, ignore_errors=True)


def _places() -> list[str]:
    """Where the page may lie, the best place first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    found = [runtime] if runtime and Path(runtime).is_dir() and not SNAPS.is_dir() else []
    with contextlib.suppress(RuntimeError):  # a user without a home
        found.append(str(Path.home()))
    return [*found, tempfile.gettempdir()]

"""Where a run comes from: versions, commit, machine. Nothing here imports JAX."""

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from ..attention import CONVENTION

PACKAGES = ("meanformer", "jax", "jaxlib", "equinox", "diffrax", "numpy", "scipy", "zarr")


def provenance() -> dict[str, Any]:
    """What `run.json` says about the making of a run."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "convention": CONVENTION,
    }


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit of the sources, with a plus if they have been changed; None for an installed package."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # The sources may be installed inside somebody else's repository: it must track this very file.
    if git("ls-files", "--error-unmatch", str(Path(__file__))) is None:
        return None
    name, changes = git("rev-parse", "--short=12", "HEAD"), git("status", "--porcelain", "--", str(folder.parent))
    return None if name is None else name + ("+" if changes else "")

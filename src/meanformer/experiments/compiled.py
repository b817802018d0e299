"""Compiled programmes, kept on disk between runs of the command line. Nothing here imports JAX."""

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> Path:
    """The user's cache folder, as the platform has it, and in it one folder for each kind of processor.

    A compiled programme uses the instructions of the processor it was compiled on, and a home may be shared by several.
    """
    if system == "win32":
        base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif system == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "meanformer" / f"compiled-{_processor()}"


def _processor() -> str:
    """A short name of the processor and of what it can do."""
    words = [platform.machine(), platform.processor()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        words += sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def keep_compiled() -> Path | None:
    """Let JAX, before it is loaded, keep what it compiles in `cache_folder()`, and say where; None if it shall not.

    `MEANFORMER_CACHE=0` opts out, and so does JAX's own `JAX_ENABLE_COMPILATION_CACHE=0`; what else is set in the
    environment stays as it is. Where the folder cannot be made, nothing is kept.
    """
    off = ("0", "false", "off", "no", "n", "f")
    switches = ("MEANFORMER_CACHE", "JAX_ENABLE_COMPILATION_CACHE")
    if "jax" in sys.modules or any(os.environ.get(name, "1").lower() in off for name in switches):
        return None
    try:
        folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder())
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or not ours to write
        return None
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        # The checks inside a solver call back to Python when they fail, and what calls back cannot be kept. As NaN,
        # which a run reports, they are part of the programme.
        "EQX_ON_ERROR": "nan",
        # XLA takes two of its own settings for instructions that the processor lacks, and says so at each load.
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    return folder

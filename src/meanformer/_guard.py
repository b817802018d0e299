"""What must hold before JAX is loaded: double precision, and a JAX that computes right numbers.

Nothing here imports JAX, so that `import meanformer` and `meanformer --help` stay instant.
"""

import os
import re
import sys
from importlib import metadata

MINIMUM_JAX = "0.9.2"

# Version -> reason. pyproject.toml excludes the same ones; a test holds the two together.
EXCLUDED_JAX = {
    "0.10.2": "computes wrong numbers under jit on CPU (jax-ml/jax#39103)",
    "0.11.1": "writes into arrays inside loops at quadratic cost",
}


def _release(version: str) -> tuple[int, int, int]:
    """The numbers of a version; a development build shares the faults of its release."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(part) for part in numbers.group().split(".")] if numbers else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major, minor, patch


def check_jax_version(version: str) -> None:
    """Refuses a JAX version that meanformer cannot give right answers with.

    Args:
        version: The version of the installed JAX, such as `"0.10.1"`.

    Raises:
        ImportError: If it is too old or known to be faulty; the message says what to install.
    """
    release = _release(version)
    reason = next((why for bad, why in EXCLUDED_JAX.items() if _release(bad) == release), None)
    if release < _release(MINIMUM_JAX):
        reason = "is too old"
    if reason is None:
        return
    wanted = ",".join([f">={MINIMUM_JAX}", *(f"!={bad}" for bad in EXCLUDED_JAX)])
    raise ImportError(
        f"meanformer cannot run on this JAX, which {reason}: "
        f'got jax {version}, expected jax{wanted}. Install another one: pip install "jax{wanted}"'
    )


def check_installed_jax() -> None:
    """Applies `check_jax_version` to the JAX of this environment, read from its metadata."""
    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"meanformer needs JAX: got none, expected jax>={MINIMUM_JAX}. "
            "Reinstall meanformer with its dependencies: pip install --force-reinstall meanformer"
        ) from None
    check_jax_version(version)


def enable_x64() -> None:
    """Makes float64 the default dtype of JAX, loaded or yet to be; `MEANFORMER_X64=0` opts out."""
    if os.environ.get("MEANFORMER_X64", "1") == "0":
        return
    if "jax" in sys.modules:
        # Too late for the environment variable, which JAX reads once.
        sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ["JAX_ENABLE_X64"] = "1"

"""What the suite has compiled. Compiling is half of its work; by day JAX keeps the programs for the next run, which
finds them again after a change elsewhere too, as it goes by their operations.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
MOST_BYTES = 1 << 30

FLAGS = (
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""By day: optimised less, with the emitters that compile sooner, and not split among threads, where both cores are
busy. At night it is as users have it."""


def known(flags: str, folder: Path = FOLDER.parent) -> str:
    """`flags`, or nothing if this XLA does not know one of them: it would end the process. Tried once for each XLA."""
    note = folder / f"flags-of-xla-{version('jaxlib')}"
    with contextlib.suppress(OSError):
        if note.read_text() == flags:
            return flags
    environment = os.environ | {"XLA_FLAGS": flags}
    tried = subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment, capture_output=True)
    if tried.returncode:
        return ""
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        note.write_text(flags)
    return flags


def tidy() -> None:
    """Forget programs that have become too many, over many changes."""
    with contextlib.suppress(OSError):  # another run of the suite may do the same
        if sum(file.stat().st_size for file in FOLDER.glob("*")) > MOST_BYTES:
            shutil.rmtree(FOLDER)


@contextlib.contextmanager
def without_the_cache_of_jax():
    """For tests of what is compiled, and of what is traced from."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def turn(choice: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", choice)
        compilation_cache.reset_cache()

    before = jax.config.jax_enable_compilation_cache  # pyright: ignore
    turn(False)
    try:
        yield
    finally:
        turn(before)

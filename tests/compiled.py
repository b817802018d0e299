"""What the suite has compiled. Compiling is half of its work; by day JAX keeps the programs for the next run, which
finds them again after a change elsewhere too, as it goes by their operations.
"""

import shutil
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
MOST_BYTES = 1 << 30

FLAGS = "--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
"""By day: optimised less, and not split among threads, where both cores are busy. At night it is as users have it."""


def tidy() -> None:
    """Forget programs that have become too many, over many changes."""
    if sum(file.stat().st_size for file in FOLDER.glob("*")) > MOST_BYTES:
        shutil.rmtree(FOLDER)

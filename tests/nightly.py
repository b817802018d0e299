"""The tests that wait for the night (`make nightly`), in nightly.txt: each takes seconds, and there is a quicker one
of its subject.

What a mutant names (`tests/mutations`) is never there, so that every deliberate mistake is caught before a merge.
A name stands for all cases of a test, or with brackets for one of them.
"""

import os
from pathlib import Path

NIGHT = os.environ.get("MEANFORMER_NIGHTLY") == "1"
"""Whether everything is tested, as thoroughly as we can; `make nightly` sets the variable."""

WAITING = frozenset(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines())


def waits(node: str) -> bool:
    """Whether a test, by its full name, waits for the night."""
    name = node.removeprefix("tests/")
    return name in WAITING or name.partition("[")[0] in WAITING

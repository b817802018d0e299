"""How much the page may ask for. `meanformer run` has none of these bounds. Nothing here imports JAX."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Limits:
    """The bounds, with their names on the page."""

    n: int = 100_000
    n_exact: int = 10_000
    n_sinkhorn: int = 5_000
    d: int = 8
    t1: float = 1e4
    depth: int = 2000
    frames: int = 1001
    numbers: int = 12_000_000
    heads: int = 16
    rows: int = 64
    cells: int = 4000
    starts: int = 40
    drag: int = 2000
    steps: int = 100_000
    seconds: float = 120.0
    nesting: int = 12


LIMITS = Limits()
MESSAGE_BYTES = 2**20
"""The longest message of a page."""

"""Published results, computed again: one package for each paper. Nothing here imports JAX."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Paper

PAPERS = {
    "castin2025": "A unified perspective on the dynamics of deep transformers (arXiv 2501.18322)",
    "geshkovski2023": "The emergence of clusters in self-attention dynamics (arXiv 2305.05465)",
}
COSTS = {"castin2025": "quick 2 minutes, full 15", "geshkovski2023": "quick half a minute, full 2 minutes"}
"""On two cores."""


def paper(key: str) -> "Paper":
    """A paper that can be reproduced."""
    from ... import _checks as checks

    checks.one_of(key, "this paper", PAPERS)
    return import_module(f"{__name__}.{key}").PAPER

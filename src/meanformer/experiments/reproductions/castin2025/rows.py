"""Verdicts that nothing at all cannot win."""

from typing import Any

import numpy as np

from ..base import Row


def judged(kept: Any, missing: int = 0) -> str:
    """The verdict on cases of which each is `kept` or not, while `missing` ones could not be told.

    One that is not kept is enough for "fails"; without any case, or with missing ones, the rest is "undecided".
    """
    kept = np.asarray(kept, bool)
    return "fails" if not kept.all() else "undecided" if missing or not kept.size else "holds"


def largest(values: Any) -> float | str:
    """The largest value, NaN if one is, "none" if there is none."""
    values = np.asarray(values)
    return float(values.max()) if values.size else "none"


def error_row(claim: str, errors: Any, tolerance: float, why: str = "", missing: int = 0) -> Row:
    """The largest of some errors, all of which must be at most `tolerance` (NaN is not)."""
    errors = np.asarray(errors)
    words = f"{missing} not told; {why}" if missing and why else f"{missing} not told" if missing else why
    return Row(claim, 0.0, largest(errors), f"{tolerance:g}", judged(errors <= tolerance, missing), words)

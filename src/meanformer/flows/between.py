"""States between save times: the run goes on from the save time before, as accurately as it was made."""

from typing import Any

import numpy as np

from .._types import Scalar
from ..attention.approximate import Approximate
from ..outcome import Ending
from .methods import method_of
from .observe import ALL_TOKENS
from .padding import padded, padded_state
from .run import FEW_ROWS, first_step
from .stepping import Asked, Control, Span, advance
from .system import AbstractSystem

# Between two save times; a run that needs more is not followed.
MOST_STEPS = 10_000


def went_on(system: AbstractSystem, stats: dict[str, Any], t: Scalar, y: Any, end: Scalar) -> Any:
    """The state at `end` of a run that is in the state `y` at time `t`; None if it cannot be had to the accuracy of the
    run, whose `stats` these are.
    """
    method = method_of(stats.get("solver"))
    if method is None or "rtol" not in stats:
        return None
    dtype = system.dtype
    control = Control(np.asarray(stats["rtol"], dtype), np.asarray(stats["atol"], dtype), None)
    asked = Asked((), ALL_TOKENS, isinstance(system.field, Approximate))
    wide = padded(system, t, asked)
    budget, none = np.asarray(MOST_STEPS), np.full(FEW_ROWS, np.inf, dtype)
    t, end = np.asarray(t, dtype), np.asarray(end, dtype)
    span = Span(t, end, first_step(t, end), budget, none, np.asarray(FEW_ROWS))
    segment = advance(wide, method, control, asked, padded_state(wide, y), span)
    if int(segment.ending) != Ending.REACHED:
        return None
    return system.cut(segment.y, slice(system.size))

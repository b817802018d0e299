"""Plans along a run: how sums over tokens are done, made again when the cloud outgrows them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

from .. import _checks as checks
from .._types import Scalar, is_traced
from ..attention.approximate import Approximate, unwrapped
from ..attention.planned import Plan, asked_of, check_plan, checked_accuracy, planned, usage
from .particles import ParticleSystem
from .system import AbstractSystem

# A plan covers ranges of logits this much larger than they are, so that it lasts for a while. In three dimensions a
# grid is too dear for more.
MARGIN, SMALL_MARGIN = 2.0, 1.4
# It is made again when the ranges have come this close to what it covers, or have fallen so far below.
OUTGROWN, OVERSIZED = 0.94, 0.3

# How much wider than usual a plan is made when a run seems to leave it.
WIDEST = 4.0
# Stages, errors and copies of the state, and queries, keys and values, while a step is made.
STATES_IN_A_STEP = 32
# Where exact sums were the best choice, it is made again after so many segments (or layers).
LOOK_AGAIN = 8


class Planner:
    """Keeps a plan that fits the state; `stats` says what was done.

    `accuracy` is None for exact sums, a number, or a plan to begin with.
    """

    def __init__(self, accuracy: float | int | Plan | None, stats: dict[str, Any]):
        self.plan = accuracy if isinstance(accuracy, Plan) else None
        self.accuracy = None if accuracy is None else self.plan.accuracy if self.plan else checked_accuracy(accuracy)
        self.stats, self.asked = stats, 0
        self.margin = 1.0
        # Where the plan was made: the number of the piece, time and state. None for a plan from elsewhere.
        self.piece, self.origin = 0, None
        if self.accuracy is not None:
            stats.update({"accuracy": self.accuracy, "plans": 0, "sum_error": 0.0})
        if self.plan is not None:
            stats.update({"sum_error": self.plan.error, "sums": self.plan.words})

    @property
    def said(self) -> str:
        """What will be done, in words."""
        return "" if self.plan is None else f"sums over tokens: {self.plan}"

    def fitted(self, system: AbstractSystem, t: Scalar, y: Any) -> AbstractSystem:
        """The system with sums that have the accuracy at the state `y`."""
        if self.accuracy is None or not isinstance(system, ParticleSystem) or is_traced(system, t, y):
            return system
        field = unwrapped(system.field)
        tokens = system.mu.with_points(system.tokens(t, y))
        if not np.isfinite(np.asarray(tokens.points)).all():
            return system
        if self.plan is None or not self._fits(Approximate(field, self.plan.sums), tokens, t):
            self._make(system, t, y)
            assert self.plan is not None
            checks.fits_in_memory(
                f"a run of {system.summary()} with {self.plan.words}",
                STATES_IN_A_STEP * system.state_bytes + self.plan.bytes,
                "fewer tokens, or a lower accuracy",
            )
            self.stats["plans"] += 1
            self.stats["sum_error"] = max(self.stats["sum_error"], self.plan.error)
            self.stats["sums"] = self.plan.words
        return with_sums(system, self.plan)

    def widen(self) -> None:
        """Let the next plan cover more; sums become exact when that has been tried."""
        self.plan, self.margin = None, 2 * self.margin
        if self.margin > WIDEST:
            self.stats["sums"], self.accuracy = "exact sums", None

    def _make(self, system: ParticleSystem, t: Scalar, y: Any) -> None:
        field, tokens = unwrapped(system.field), system.mu.with_points(system.tokens(t, y))
        margin = MARGIN if all(a.keys.shape[1] < 3 for a in asked_of(field, tokens, t)) else SMALL_MARGIN
        self.plan = planned(field, tokens, self.accuracy, t, margin * self.margin)[0]
        self.origin = self.piece, t, y

    def state(self, t: Scalar, y: Any) -> Any:
        """What a journal keeps: the state for which the plan was made (`y` if there is none), since plans are functions
        of it.
        """
        if "accuracy" not in self.stats:
            return None
        return (t, y) if self.origin is None else self.origin[1:]

    def note(self) -> dict[str, Any]:
        """What else a journal keeps."""
        piece = None if self.origin is None or self.plan is None else self.origin[0]
        return {"asked": self.asked, "margin": self.margin, "exact": self.accuracy is None, "piece": piece}

    def restore(self, note: dict[str, Any], state: Any, piece_of: Callable[[int], Any]) -> None:
        """Make the plan again that a journal tells of; `piece_of(number)` is the system of a piece."""
        self.asked, self.margin = note["asked"], note["margin"]
        if note["exact"]:
            self.plan = self.accuracy = None
        elif note["piece"] is not None:
            self.piece = note["piece"]
            self._make(piece_of(self.piece), *state)

    def _fits(self, field: Approximate, tokens: Any, t: Scalar) -> bool:
        assert self.plan is not None
        if self.plan.exact:
            self.asked += 1
            return self.asked % LOOK_AGAIN != 0
        used = float(usage(field, tokens, t))
        if self.stats["plans"] == 0 and used > 1 / SMALL_MARGIN:
            return False  # a plan from elsewhere, that would not last
        # Without a grid nothing is used, and nothing can be outgrown.
        return used == 0 or OVERSIZED < used < OUTGROWN or (used < OUTGROWN and self.plan.bytes < 2**28)


def with_sums(system: AbstractSystem, plan: Plan) -> AbstractSystem:
    """The system with the sums of a plan."""
    field = unwrapped(system.field)
    return eqx.tree_at(lambda s: s.field, system, field if plan.exact else Approximate(field, plan.sums))


def checked_plan(accuracy: Any, system: AbstractSystem, traced: bool) -> None:
    """Refuse an accuracy where there is none to choose."""
    if accuracy is None:
        return
    if not isinstance(system, ParticleSystem):
        checks.refuse(
            "accuracy is for sums over tokens",
            got=f"accuracy = {accuracy} for {system.summary()}",
            expected="a PointCloud",
            remedy="leave accuracy out",
        )
    if isinstance(accuracy, Plan):
        check_plan(accuracy, system.mu)
    else:
        checked_accuracy(accuracy)
        if traced:
            checks.refuse(
                "a plan needs known numbers",
                got="an accuracy under jit, vmap or grad",
                expected="a plan that was made outside",
                remedy="plan = mf.plan(field, tokens, 1e-6), then mf.flow(..., accuracy=plan) inside",
            )

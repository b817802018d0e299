"""The numbers of a run that an experiment reports, and the checks of the theory."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meanformer as mf

from .names import NUMBERS

Number = float | int | str | None


class _Look:
    """A run with what several numbers need, computed once."""

    def __init__(self, run: mf.Trajectory):
        self.run = run
        self.final = run.final
        self.tokens = isinstance(self.final, mf.PointCloud)
        self.gaussian = isinstance(self.final, mf.Gaussian)
        self.own = run.original().final if self.tokens else self.final
        """The final state out of the frame."""

    def bound(self) -> float | None:
        """The bound of the theory on the final radius."""
        if not self.tokens:
            return None
        system = self.run.system if self.run.whole is None else self.run.whole
        if isinstance(getattr(system, "space", None), mf.Sphere):
            return float(system.mu.radius)
        bound = mf.support_bound(self.run.field, system.mu, self.run.outcome.time, self.run.times[0])
        return None if bound is None else float(bound)


_OF: dict[str, Callable[[_Look], Any]] = {
    "outcome": lambda look: look.run.outcome.kind,
    "time": lambda look: look.run.outcome.time,
    "radius": lambda look: look.own.radius if look.tokens else None,
    "bound": lambda look: look.bound(),
    "mean_norm": lambda look: np.linalg.norm(np.asarray(look.own.mean)),
    "trace": lambda look: np.trace(np.asarray(look.own.covariance)),
    "clusters": lambda look: mf.clusters(look.final).count if look.tokens else None,
    "effective_rank": lambda look: mf.effective_rank(look.final),
    "participation_ratio": lambda look: mf.participation_ratio(look.final),
    "stable_rank": lambda look: mf.stable_rank(look.final),
    "average_cosine": lambda look: mf.average_cosine(look.final) if not look.gaussian else None,
    "isoscore": lambda look: mf.isoscore(look.final),
    "fate": lambda look: None if look.run.fate is None else look.run.fate.kind,
    "fate_time": lambda look: None if look.run.fate is None else look.run.fate.time,
    "rank": lambda look: None if look.run.fate is None else look.run.fate.rank,
    "growth": lambda look: None if look.run.fate is None else look.run.fate.growth,
    "mass_lost": lambda look: look.run.stats.get("mass_lost"),
    "steps": lambda look: look.run.stats["steps"],
    "rejected": lambda look: look.run.stats.get("rejected"),
    "seconds": lambda look: look.run.stats.get("seconds"),
}
assert list(_OF) == list(NUMBERS)


def numbers_of(run: mf.Trajectory, names: Sequence[str] | None = None) -> dict[str, Number]:
    """The numbers of a run by name (see `names.NUMBERS`); by default all that it has. What a run does not have, or what
    is not finite, is None.
    """
    look = _Look(run)
    found = {name: _plain(_OF[name](look)) for name in (NUMBERS if names is None else names)}
    return found if names is not None else {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Number:
    if value is None or isinstance(value, str):
        return value
    number = np.asarray(value).item()
    return number if isinstance(number, int) or math.isfinite(number) else None


def checked(run: mf.Trajectory) -> "mf.Checked | None":
    """What the theory claims of a run; None where it cannot be checked, as for a sample of the tokens."""
    try:
        return mf.check(run) if run.whole is None and len(run.times) > 1 else None
    except mf.InputError:
        return None


def claims_of(run: mf.Trajectory, found: "mf.Checked | None") -> list[dict[str, Any]]:
    """The claims as `results.json` has them; that of the radius alone, where not more was checked."""
    if found is not None:
        return [_claim(c.claim, c.bound, c.measured, c.why, c.holds, c.slack) for c in found.claims]
    look = _Look(run)
    bound = look.bound()
    if bound is None:
        return []
    radius = float(look.own.radius)
    return [
        _claim("support radius R(t) at the end", bound, radius, "", radius <= bound * (1 + 1e-4), 1 - radius / bound)
    ]


def _claim(
    claim: str,
    bound: float | None,
    measured: float | None,
    why: str,
    holds: bool | None = None,
    slack: float = math.nan,
) -> dict[str, Any]:
    numbers = {"bound": bound, "measured": measured, "slack": slack}
    plain = {
        name: None if value is None or not math.isfinite(value) else float(value) for name, value in numbers.items()
    }
    return {"claim": claim, **plain, "holds": holds, "why": why}

"""The numbers of a run that an experiment reports, and the checks of the theory."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meanformer as mf

from ..diagnostics.clusters import box_diameter, clusters_at
from ..theory.check import no_bound, solver_error
from .names import NUMBERS

Number = float | int | str | None


class _Look:
    """A run with what several numbers need, computed once."""

    def __init__(self, run: mf.Trajectory):
        self.run = run
        self.final = run.final
        self.tokens = isinstance(self.final, mf.PointCloud)
        self.gaussian = isinstance(self.final, mf.Gaussian)
        self.original = run.original() if self.tokens else run
        self.own = self.original.final
        """The final state out of the frame."""

    def radius_claim(self) -> mf.Claim | None:
        r"""The final radius and the bound of the theory on it, $e^{\int\|V\|}R_0$; None for what has no radius."""
        if not self.tokens:
            return None
        bound, why = self._bound()
        words, radius = "support radius R(t) at the end", float(self.own.radius)
        return mf.Claim(words, bound, radius, why, solver_error(self.run))

    def _bound(self) -> tuple[float | None, str]:
        """The bound, or why there is none."""
        system = self.run.system if self.run.whole is None else self.run.whole
        if isinstance(getattr(system, "space", None), mf.Sphere):
            return float(system.mu.radius), ""
        if not self._saved_start():
            return None, "the start, from which the bound grows, was not saved"
        field, start = self.run.field, self.run.times[0]
        bound = mf.support_bound(field, system.mu, self.run.outcome.time, start)
        return (None, no_bound(field, start)) if bound is None else (float(bound), "")

    def clusters(self) -> int:
        """At 1 % of the diameter that the tokens have, or had at the start: what has collapsed is one cluster."""
        system = self.run.system if self.run.whole is None else self.run.whole
        start, end = (np.asarray(mu.points, float) for mu in (system.mu, self.final))
        delta = 0.01 * max(box_diameter(start), box_diameter(end))
        return clusters_at(end, np.asarray(self.final.weights, float), delta).count

    def _saved_start(self) -> bool:
        """Whether the first save time is the start: a run does not keep its t0, but the tokens with which it began."""
        return bool(np.array_equal(self.original.points[0], self.run.system.mu.points))


_OF: dict[str, Callable[[_Look], Any]] = {
    "outcome": lambda look: look.run.outcome.kind,
    "time": lambda look: look.run.outcome.time,
    "radius": lambda look: look.own.radius if look.tokens else None,
    "bound": lambda look: None if (claim := look.radius_claim()) is None else claim.bound,
    "mean_norm": lambda look: np.linalg.norm(np.asarray(look.own.mean)),
    "trace": lambda look: np.trace(np.asarray(look.own.covariance)),
    "clusters": lambda look: look.clusters() if look.tokens else None,
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
        return [_plain_claim(claim) for claim in found.claims]
    claim = _Look(run).radius_claim()
    return [] if claim is None else [_plain_claim(claim)]


def _plain_claim(claim: mf.Claim) -> dict[str, Any]:
    numbers = {"bound": claim.bound, "measured": claim.measured, "slack": claim.slack}
    plain = {
        name: None if value is None or not math.isfinite(value) else float(value) for name, value in numbers.items()
    }
    return {"claim": claim.claim, **plain, "holds": claim.holds, "why": claim.why}

"""What a run says about a theorem: the verdict, and the reading of the run that all theorems of `criteria` share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._scale import unit
from ..attention.schedule import is_constant
from ..attention.softmax import Softmax
from ..attention.view import act
from ..display.card import BAD, GOOD, OPEN, Html, card, number, shown, status
from ..spaces import Euclidean
from .history import token_run

# Two eigenvalues, or a matrix and its ideal form, that are closer than this are the same.
SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a run says about a theorem; prints as a sentence.

    - `holds`: whether the conclusion is seen; None if a hypothesis fails, or the run is too short to tell;
    - `claim`: the conclusion; `hypotheses`: the conditions, and which of them hold; `evidence`: the numbers.

    `bool(verdict)` is true if the conclusion is seen: undecided is not.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    run = mf.flow(mf.Softmax(I, I, I), tokens, t1=8.0)
    assert mf.polytope_limit(run)
    assert mf.collapse_limit(run).holds is None  # it is for V = -c I
    ```

    MATH h.
    """

    holds: bool | None
    claim: str
    hypotheses: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether the conclusion is seen: undecided is not."""
        return self.holds is True

    def __str__(self) -> str:
        word = {True: "Seen", False: "Not seen", None: "Undecided"}[self.holds]
        numbers = ", ".join(
            f"{key.replace('_', ' ')} {value:.3g}" for key, value in self.evidence.items() if np.ndim(value) == 0
        )
        return f"{word}: {self.claim} ({self.hypotheses})" + (f"; {numbers}" if numbers else "")

    __repr__ = __str__

    @shown
    def _repr_html_(self) -> Html:
        colour, word = {True: (GOOD, "Seen"), False: (BAD, "Not seen"), None: (OPEN, "Undecided")}[self.holds]
        numbers = [(key.replace("_", " "), number(v)) for key, v in self.evidence.items() if np.ndim(v) == 0]
        return card(status(colour, f"{word}: {self.claim}"), [("conditions", self.hypotheses), *numbers])


Judge = Callable[[], tuple[bool | None, dict[str, Any]]]


class Case:
    """A run of tokens read for a theorem: matrices, tokens in both frames, and the hypotheses that were asked for.

    Tokens are in units of the power of two `unit`, and so is `A`.
    """

    def __init__(self, run: Any, asker: str, claim: str):
        self.run, self.claim = token_run(run, asker), claim
        run.need_all_tokens(asker)
        self.conditions: list[tuple[str, bool]] = []
        mu = run.system.mu
        weights = np.asarray(mu.weights, float)
        self.seen = weights > 0
        d = mu.d
        terms = run.field.terms(run.times[0])
        leaf = terms[0].leaf
        self.known = len(terms) == 1 and isinstance(leaf, Softmax) and not terms[0].causal and is_constant(run.field)
        if self.known:
            maps = leaf.maps
            self.known = all(bias is None for bias in (maps.query_bias, maps.key_bias, maps.value_bias))
        self.asks("one softmax head, constant and unbiased", self.known)
        self.asks("in continuous time", not run.discrete)
        self.asks("in Euclidean space", isinstance(run.system.space, Euclidean))
        self.asks("equal weights", bool(np.ptp(weights[self.seen]) <= 1e-9 * weights.max()))
        if self.known:
            self.V = np.asarray(act(terms[0].left, leaf.V.T).T, float)
            self.A = np.asarray(leaf.A / leaf.tau, float)
        else:
            self.V, self.A = np.zeros((d, d)), np.zeros((d, d))
        finite = np.isfinite(np.asarray(run.points)).all(axis=(1, 2))
        self.times = np.asarray(run.times, float)[finite]
        self.frame = np.asarray(run.points, float)[finite][:, self.seen]
        # In units of the largest token, so that no square of a length, and no cutoff, depends on the units of the run.
        self.unit = float(unit(self.frame))
        self.frame, self.A = self.frame / self.unit, self.A * self.unit * self.unit
        self.span = float(self.times[-1] - self.times[0])

    def asks(self, condition: str, holds: bool) -> None:
        """Ask for a hypothesis."""
        self.conditions.append((condition, bool(holds)))

    @property
    def applies(self) -> bool:
        """Whether all hypotheses that were asked for hold."""
        return all(holds for _, holds in self.conditions)

    def along(self, left: np.ndarray, rate: float) -> np.ndarray:
        r"""The coordinates $\ell\cdot z=e^{-\lambda t}\ell\cdot x$ at all times, for the columns $\ell$ of `left`, left
        eigenvectors of $V$ for $\lambda$: no exponential of $V$ is needed.
        """
        coordinates = self.frame @ left
        if self.run.propagators is not None:
            return coordinates
        return np.exp(-rate * (self.times - self.times[0]))[:, None, None] * coordinates

    def rounding(self, left: np.ndarray, rate: float) -> float:
        r"""What rounding leaves uncertain of the last coordinates of `along`: in the frame $z=e^{-tV}x$ directions of
        negative eigenvalues grow, and hide the others.
        """
        last = np.finfo(float).eps * float(np.abs(self.frame[-1]).max()) * float(np.abs(left).sum())
        return last if self.run.propagators is not None else last * float(np.exp(-rate * self.span))

    def moved(self, z: np.ndarray, rate: float) -> float:
        """The largest displacement of a token during the last unit of time, 1 / `rate`."""
        before = max(0, int(np.searchsorted(self.times, self.times[-1] - 1 / rate, side="right")) - 1)
        return float(np.linalg.norm(z[-1] - z[before], axis=1).max())

    def verdict(self, judge: Judge, grown: float, horizon: float, still: float = np.inf) -> Verdict:
        """The verdict: `judge` is asked if the hypotheses hold.

        Where it does not see the conclusion, a run says nothing if it is shorter than `horizon`, with `grown` its
        length in units of its own time, or if tokens still move, by more than `still` in the last such unit.
        """
        failing = [condition for condition, holds in self.conditions if not holds]
        if failing:
            # What is asked after it may make no sense where an earlier hypothesis fails.
            return Verdict(None, self.claim, "it does not apply; not satisfied: " + failing[0])
        seen, evidence = judge()
        hypotheses = "hypotheses hold: " + "; ".join(condition for condition, _ in self.conditions)
        doubt = None
        if seen is None:
            doubt = "the coordinates are lost in rounding; run in the original frame, or to an earlier time"
        elif not seen and grown < horizon * (1 - SAME):
            doubt = f"the run is too short: {grown:.3g} of {horizon:.3g} units of time"
        elif not seen and evidence.get("moving", 0.0) > still:
            doubt = "tokens still move; run longer"
        if doubt is not None:
            return Verdict(None, self.claim, f"{hypotheses}; but {doubt}", evidence)
        return Verdict(bool(seen), self.claim, hypotheses, evidence)

"""What becomes of a Gaussian run, in words with the evidence."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._indexing import member
from .display.card import BAD, GOOD, OPEN, Html, array, card, number, shown, status
from .display.drawing import bars

if TYPE_CHECKING:
    import pandas
    import xarray


class FateKind(enum.IntEnum):
    """The fates of a Gaussian run."""

    UNDECIDED = 0
    CONVERGED = 1
    BLEW_UP = 2
    DIVERGED = 3


@dataclass(frozen=True, eq=False)
class Fate:
    r"""What becomes of a Gaussian run, with the evidence; `str(fate)` is a sentence.

    With $\dot L=GL$ and the speed $\gamma=\|GL\|_F/\|L\|_F$, a run that grows is told apart by its exponent

    $$p=\frac{d\log\gamma}{d\log\operatorname{tr}\Sigma}:\qquad p>0.2\ \text{blows up},\quad
    |p|\le0.2\ \text{diverges exponentially},\quad p<-0.2\ \text{slower}.$$

    - `kind`: "CONVERGED", "BLEW_UP", "DIVERGED" or "UNDECIDED";
    - `time`: of the blow-up, $t^*$, with its estimated `error`; otherwise the time at which the fate was known;
    - `rank` and `limit`, the covariance `(d, d)`, of a converged run, else None;
    - `growth`: $\frac d{dt}\log\operatorname{tr}\Sigma$ at the end, the rate of an exponential divergence;
    - `exponent`: $p$ at the end;
    - `slopes`: $d\log\lambda_i/d\log t$ of the eigenvalues of $\Sigma$, largest eigenvalue first: 0 stays, -1 dies; one
      for each column of the factor, at most `d`, and none for a finite horizon;
    - `steps`: how many steps were tried; `mean_rate`: $\lim\frac1t\log|m|$, if known; `evidence`: more, in words.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    fate = mf.flow(mf.Softmax(I, I, I), g, t1=jnp.inf).fate
    print(fate)
    assert fate.kind == "BLEW_UP" and abs(fate.time - 0.5) <= fate.error
    ```

    MATH e.5.
    """

    kind: str
    time: float
    error: float
    rank: int | None
    limit: np.ndarray | None
    growth: float
    exponent: float
    slopes: np.ndarray
    steps: int
    evidence: str = ""
    """More about the fate, in words; may be empty."""
    mean_rate: float | None = None
    r"""The rate $\lim\frac1t\log|m|$ at which the mean grows, or None."""

    @property
    def law(self) -> str | None:
        """How a diverging run grows: "exponential" or "slower"; None for other fates."""
        if self.kind != "DIVERGED":
            return None
        return "exponential" if abs(self.exponent) <= 0.2 else "slower"

    def __str__(self) -> str:
        slopes = ", ".join(f"{slope:.3g}" for slope in self.slopes[:8]) + ", ..." * (len(self.slopes) > 8)
        if self.kind == "BLEW_UP":
            text = f"BLEW_UP at t* = {self.time:.9g} (+- {self.error:.1g}), exponent p = {self.exponent:.3g}"
        elif self.kind == "CONVERGED":
            text = f"CONVERGED, rank {self.rank} (known at t = {self.time:.3g}; slopes of the eigenvalues: {slopes})"
        elif self.law == "exponential":
            text = f"DIVERGED exponentially: tr Sigma ~ exp({self.growth:.6g} t)"
        elif self.kind == "DIVERGED":
            power = self.growth * self.time
            text = f"DIVERGED slower than exponentially: tr Sigma ~ t^{power:.3g} near t = {self.time:.3g}"
        else:
            text = f"UNDECIDED at t = {self.time:.3g} after {self.steps} steps"
            text += f" (slopes of the eigenvalues: {slopes})" if slopes else ""
        return f"{text}; {self.evidence}" if self.evidence else text

    __repr__ = __str__

    @shown
    def _repr_html_(self) -> Html:
        colour = {"CONVERGED": GOOD, "BLEW_UP": BAD, "DIVERGED": BAD}.get(self.kind, OPEN)
        converged, blew_up = self.kind == "CONVERGED", self.kind == "BLEW_UP"
        rows = [
            ("blow-up time" if blew_up else "known at", number(self.time) if not blew_up else f"{self.time:.9g}"),
            ("error", f"{self.error:.1g}" if blew_up else None),
            ("rank", str(self.rank) if converged else None),
            ("limit", None if self.limit is None else array(self.limit)),
            ("growth", f"{number(self.growth)}, of log tr Sigma" if self.law == "exponential" else None),
            ("exponent", None if converged else number(self.exponent)),
            ("slopes", None if blew_up else ", ".join(map(number, self.slopes[:6])) or None),
            ("evidence", self.evidence or None),
        ]
        return card(status(colour, f"Fate: {self.kind}"), rows)


@dataclass(frozen=True, eq=False)
class Fates:
    """The fates of many runs: arrays with one entry per run, with the names of `Fate`; `fates[i]` is a `Fate`.

    - `code`, `time`, `error`, `rank`, `growth`, `exponent`, `steps`: shape `(n,)`; `kind` has the codes as words;
    - `limit`: shape `(n, d, d)`; `slopes`: shape `(n, r)`, for factors of `r` columns, at most `d`;
    - `seconds`: the wall time of all, with compiling.

    `rank` is -1 and `limit` not a number where a run has no limit.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    found = mf.fates([mf.Softmax(I, I, I), mf.Softmax(-I, I, I)], g)
    assert found.kind.tolist() == ["BLEW_UP", "CONVERGED"] and found.rank.tolist() == [-1, 0]
    assert found.limit.shape == (2, 2, 2) and found[0].kind == "BLEW_UP"
    ```

    MATH e.5.
    """

    code: np.ndarray
    time: np.ndarray
    error: np.ndarray
    rank: np.ndarray
    limit: np.ndarray
    growth: np.ndarray
    exponent: np.ndarray
    slopes: np.ndarray
    steps: np.ndarray
    seconds: float

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, index: int) -> Fate:
        index = member(index, len(self))
        converged = self.code[index] == FateKind.CONVERGED
        return Fate(
            kind=FateKind(self.code[index]).name,
            time=float(self.time[index]),
            error=float(self.error[index]),
            rank=int(self.rank[index]) if converged else None,
            limit=self.limit[index] if converged else None,
            growth=float(self.growth[index]),
            exponent=float(self.exponent[index]),
            slopes=self.slopes[index],
            steps=int(self.steps[index]),
        )

    @property
    def kind(self) -> np.ndarray:
        """The kinds as words, shape `(n,)`."""
        return np.array([FateKind(code).name for code in self.code])

    def counts(self) -> dict[str, int]:
        """How many runs had each fate: a dictionary with all four kinds."""
        return {kind.name: int((self.code == kind).sum()) for kind in FateKind}

    def summary(self) -> str:
        """All fates in one line: how many of each kind, and of each rank."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items() if count)
        ranks, how_many = np.unique(self.rank[self.code == FateKind.CONVERGED], return_counts=True)
        limits = ", ".join(f"{count} of rank {rank}" for rank, count in zip(ranks, how_many, strict=True))
        return f"{len(self)} runs in {self.seconds:.1f} s: {counts}" + (f"; limits: {limits}" if limits else "")

    def __repr__(self) -> str:
        return f"<Fates: {self.summary()}>"

    @shown
    def _repr_html_(self) -> Html:
        counts = {name.lower().replace("_", " "): count for name, count in self.counts().items() if count}
        ranks, numbers = np.unique(self.rank[self.code == FateKind.CONVERGED], return_counts=True)
        counts |= {f"rank {rank}": int(count) for rank, count in zip(ranks, numbers, strict=True)}
        values = list(counts.values())
        drawn = bars(list(counts), values, values, "how many runs have each fate, and limits each rank")
        return card(f"Fates of {len(self)} runs", [], drawn)

    def to_xarray(self) -> "xarray.Dataset":
        """The fates as a labelled dataset, with the axes `run`, `eigenvalue`, `coordinate` and `coordinate_`."""
        import xarray

        axes = {"slopes": ("run", "eigenvalue"), "limit": ("run", "coordinate", "coordinate_")}
        data: dict[str, Any] = {n: (axes.get(n, ("run",)), v) for n, v in vars(self).items() if n != "seconds"}
        data["kind"] = (("run",), self.kind)
        return xarray.Dataset(data, attrs={"seconds": self.seconds})

    def to_dataframe(self) -> "pandas.DataFrame":
        """The fates as a table with a row for each run: the names of `Fate`, with `slope1`, ... and `limit1_1`,
        `limit1_2`, ..., each entry of the limit once.
        """
        import pandas  # xarray brings it

        plain = ("time", "error", "rank", "growth", "exponent", "steps")
        upper = zip(*np.triu_indices(self.limit.shape[1]), strict=True)
        return pandas.DataFrame(
            {"kind": self.kind}
            | {name: getattr(self, name) for name in plain}
            | {f"slope{i + 1}": self.slopes[:, i] for i in range(self.slopes.shape[1])}
            | {f"limit{i + 1}_{j + 1}": self.limit[:, i, j] for i, j in upper}
        )

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """The histogram of the ranks, as matplotlib axes; options as for `plot_ranks`."""
        from .plots.covariances import plot_ranks

        return plot_ranks(self.rank, ax=ax, **options)

"""The clustering theorems of Geshkovski et al. (2023) on random tokens: how often is each conclusion seen?

Settings of TARGETS B1 to B3, and of the other rows of MATH h; tokens uniform in [-5, 5]^d, one draw per seed.

    python -m benchmarks.criteria --seeds 20
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

import meanformer as mf
from meanformer.diagnostics.criteria import (
    Verdict,
    boolean_attention,
    collapse_limit,
    hyperplane_limit,
    paranormal_limit,
    polytope_limit,
)

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
Draw = Callable[[np.random.Generator], Data]


class Setting(NamedTuple):
    """A theorem with random data: `draw(rng)` gives A, V and tokens; `numbers` of the evidence are shown."""

    name: str
    t1: float
    judge: Callable[[Any], Verdict]
    draw: Draw
    numbers: tuple[str, ...]
    rescaled: bool = True
    mover: Any = mf.Softmax  # another field that moves the tokens of a run that is told as one of softmax: a control


class Row(NamedTuple):
    """The verdicts of a setting: counts, and of each number of the evidence the least, the median and the largest."""

    name: str
    t1: float
    seen: int
    missed: int
    undecided: int
    numbers: dict[str, tuple[float, float, float]]
    failures: list[tuple[int, Verdict]]
    seconds: float

    def __str__(self) -> str:
        numbers = "; ".join(f"{key} {mid:.2g} [{low:.2g}, {top:.2g}]" for key, (low, mid, top) in self.numbers.items())
        counts = f"{self.seen} | {self.missed} | {self.undecided}"
        return f"| {self.name} | {self.t1:g} | {counts} | {numbers} | {self.seconds:.1f} |"


def _cube(rng: np.random.Generator, n: int, d: int, size: float = 5.0) -> np.ndarray:
    return rng.uniform(-size, size, (n, d))


def _identity(n: int, d: int) -> Draw:
    return lambda rng: (np.eye(d), np.eye(d), _cube(rng, n, d))


def _positive(n: int, d: int) -> Draw:
    """A with a positive definite symmetric part and a large antisymmetric one."""

    def draw(rng: np.random.Generator) -> Data:
        W, turn = rng.standard_normal((2, d, d)) / np.sqrt(d)
        return W @ W.T + 0.2 * np.eye(d) + (turn - turn.T), np.eye(d), _cube(rng, n, d)

    return draw


def _simple_top(n: int, d: int, second: float) -> Draw:
    """V with eigenvalues 1, `second` and others in [-second, second], in a random orthogonal basis, sheared."""

    def draw(rng: np.random.Generator) -> Data:
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0] + 0.2 * rng.standard_normal((d, d))
        values = np.concatenate([[1.0, second], rng.uniform(-second, second, d - 2)])
        return np.eye(d), basis @ np.diag(values) @ np.linalg.inv(basis), _cube(rng, n, d)

    return draw


def _paranormal(n: int) -> Draw:
    return lambda rng: (np.eye(3), np.diag([1.0, 1.0, 0.3]), _cube(rng, n, 3))


def _collapsing(n: int, d: int) -> Draw:
    return lambda rng: (np.eye(d), -np.eye(d), rng.standard_normal((n, d)))


POLYTOPE = ("clusters", "defect", "worst_token", "straggler", "hull_growth")
PLANES = ("hyperplanes", "width")
BOOLEAN = ("rank", "inner_columns", "off_boolean", "exceptional_row")
SETTINGS = (
    Setting("B1: V = A = I, d = 2, n = 20", 5.0, polytope_limit, _identity(20, 2), POLYTOPE),
    Setting("B1: V = A = I, d = 2, n = 20", 8.0, polytope_limit, _identity(20, 2), POLYTOPE),
    Setting("B1: V = A = I, d = 3, n = 40", 8.0, polytope_limit, _identity(40, 3), POLYTOPE),
    Setting("control: Sinkhorn, told as B1, d = 2", 8.0, polytope_limit, _identity(20, 2), POLYTOPE, mover=mf.Sinkhorn),
    Setting("row 2: V = I, A + A^T > 0, d = 2, n = 20", 8.0, polytope_limit, _positive(20, 2), POLYTOPE),
    Setting("row 2: V = I, A + A^T > 0, d = 2, n = 20", 12.0, polytope_limit, _positive(20, 2), POLYTOPE),
    Setting("B2: V has 1 and 0.5, d = 3, n = 20", 5.0, hyperplane_limit, _simple_top(20, 3, 0.5), PLANES),
    Setting("B2: V has 1 and 0.5, d = 3, n = 20", 8.0, hyperplane_limit, _simple_top(20, 3, 0.5), PLANES),
    Setting("B2: V has 1 and 0.9, d = 3, n = 20", 8.0, hyperplane_limit, _simple_top(20, 3, 0.9), PLANES),
    Setting("B2: V has 1 and 0.9, d = 3, n = 20", 25.0, hyperplane_limit, _simple_top(20, 3, 0.9), PLANES),
    Setting("B3: V = A = 1, d = 1, n = 12", 5.0, boolean_attention, _identity(12, 1), BOOLEAN),
    Setting("B3: V = A = 1, d = 1, n = 12", 8.0, boolean_attention, _identity(12, 1), BOOLEAN),
    Setting("row 4: V = diag(1, 1, 0.3), n = 12", 8.0, paranormal_limit, _paranormal(12), POLYTOPE[:4]),
    Setting(
        "row 5: V = -I, A = I, d = 2, n = 20",
        200.0,
        collapse_limit,
        _collapsing(20, 2),
        ("radius", "exponent", "mean"),
        False,
    ),
)


def study(seeds: int = 20, settings: tuple[Setting, ...] = SETTINGS) -> list[Row]:
    """All settings on the seeds 0, ..., `seeds` - 1."""
    rows = []
    for setting in settings:
        began = time.perf_counter()
        verdicts = []
        for seed in range(seeds):
            A, V, x = setting.draw(np.random.default_rng(seed))
            field, told = (kind(np.eye(len(A)), A.T, V) for kind in (setting.mover, mf.Softmax))  # A = K^T Q
            frame = mf.Rescaled() if setting.rescaled else None
            run = mf.flow(field, mf.PointCloud(x), t1=setting.t1, frame=frame, save=41)
            verdicts.append(setting.judge(eqx.tree_at(lambda r: r.system.field, run, told)))
        rows.append(_row(setting, verdicts, time.perf_counter() - began))
    return rows


def _row(setting: Setting, verdicts: list[Verdict], seconds: float) -> Row:
    counts = [sum(v.holds is answer for v in verdicts) for answer in (True, False, None)]
    table = {key: np.array([v.evidence[key] for v in verdicts if v.evidence]) for key in setting.numbers}
    numbers = {key: (float(v.min()), float(np.median(v)), float(v.max())) for key, v in table.items() if len(v)}
    failures = [(seed, v) for seed, v in enumerate(verdicts) if not v.holds]
    return Row(setting.name, setting.t1, *counts, numbers, failures, seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    print(f"{options.seeds} seeds each; of every number the median, the least and the largest\n")
    print("| setting | T | seen | not seen | undecided | numbers | s |\n|---|---|---|---|---|---|---|")
    rows = []
    for setting in SETTINGS:
        rows += study(options.seeds, (setting,))
        print(rows[-1], flush=True)
    for row in (row for row in rows if not row.name.startswith("control")):
        for seed, verdict in row.failures:
            numbers = ", ".join(f"{k} {verdict.evidence[k]:.3g}" for k in row.numbers) if verdict.evidence else ""
            print(f"- {row.name}, T = {row.t1:g}, seed {seed}: {verdict.holds}; {numbers or verdict.hypotheses}")


if __name__ == "__main__":
    main()

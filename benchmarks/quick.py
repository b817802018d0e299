"""Three ratios with floors, without other libraries: `python -m benchmarks --quick`, which `make nightly` runs.

A floor is a third of what is usual, or less: a ratio below it is a fault, not noise.
"""

import sys
from collections.abc import Callable

import meanformer as mf

from .draws import rank_draws
from .exact import in_numpy, tokens_of, velocity
from .fast import ACCURACY, identity_softmax, normal_tokens
from .gaussians import ours, projected_euler
from .harness import Timing, ratio, side_by_side

# Usual, on one thread: 3, 20 and 45.
FLOORS = {"NumPy / exact": 0.9, "exact / fast": 5.0, "Euler / Gaussian fates": 10.0}
EULER_STEPS, EULER_TIMED = 100_000, 500


def exact_to_numpy() -> float:
    """NumPy over `mf.velocity`, at n = 4096, k = 2."""
    x = tokens_of(4096, 2, "float64")
    timings = side_by_side({"ours": velocity(x), "numpy": in_numpy(x)}, 5)
    return ratio(timings["numpy"], timings["ours"])


def fast_to_exact() -> float:
    """Exact over fast sums, at n = 16384, k = 2."""
    field, cloud = identity_softmax(2), normal_tokens(16_384, 2)
    plan = mf.plan(field, cloud, ACCURACY)
    calls = {"fast": lambda: mf.velocity(field, cloud, accuracy=plan), "exact": lambda: mf.velocity(field, cloud)}
    timings = side_by_side(calls, 5)
    return ratio(timings["exact"], timings["fast"])


def fates_to_euler() -> float:
    """Projected Euler with 100 000 steps over `mf.fates`. Equal answers would need more: Euler then has 96 of these 100
    ranks right, we all of them. Its time is scaled from fewer steps, which all cost the same.
    """
    draws = rank_draws(3, 100, 3, identity_value=True)
    calls = {"ours": ours("softmax", draws), "euler": lambda: projected_euler("softmax", draws, EULER_TIMED)}
    timings = side_by_side(calls, 5)
    euler = Timing(0.0, [t * EULER_STEPS / EULER_TIMED for t in timings["euler"].rounds])
    return ratio(euler, timings["ours"])


RATIOS: dict[str, Callable[[], float]] = {
    "NumPy / exact": exact_to_numpy,
    "exact / fast": fast_to_exact,
    "Euler / Gaussian fates": fates_to_euler,
}


def main() -> int:
    """Measure, print, and say by the exit code whether all ratios are high enough."""
    low = []
    for name, measured in RATIOS.items():
        value = measured()
        enough = value >= FLOORS[name]
        print(f"{name:<24} {value:8.2f}   floor {FLOORS[name]:g}{'' if enough else '   TOO LOW'}", flush=True)
        if not enough:
            low.append(name)
    if low:
        print(f"Below the floor: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0

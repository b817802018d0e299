r"""A flow of a million tokens from $\mathcal N(0,\operatorname{diag}(.4,.1))$ with $A=I/2$, $V=I$, until $t=1$.

The Gaussian limit is $\dot\Sigma=\Sigma^2$, hence $\Sigma_1=\operatorname{diag}(2/3,1/9)$ (MATH e.3).
"""

import resource
import sys
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .harness import Part, Table, seconds, side_by_side

N = 1_000_000
START = np.array([0.4, 0.1])
SAMPLE = 1_000
LARGEST_MEMORY = 4.0  # GB


def standard_errors(n: int) -> np.ndarray:
    r"""Of $\Sigma_1$, from the sample's $\Sigma_0$: the entry $ij$ of a perturbation of $\operatorname{diag}(s)$ grows
    by $\frac1{(1-s_i)(1-s_j)}$.
    """
    at_start = np.sqrt(np.outer(START, START) * (1 + np.eye(2)) / n)
    return at_start / np.outer(1 - START, 1 - START)


def measure(say: Callable[[str], None]) -> Part:
    """A first run, which compiles, and then five rounds."""
    part = Part("million", "A million tokens through `mf.flow`")
    I = jnp.eye(2)
    field = mf.Softmax(I / 2, I, I)
    points = np.random.default_rng(0).standard_normal((N, 2)) * np.sqrt(START)
    tokens, runs = mf.PointCloud(points), []

    def flow() -> None:
        say("a run")
        runs[:] = [mf.flow(field, tokens, 1.0, accuracy=1e-6, sample=SAMPLE, save=5, progress=False)]

    timing = side_by_side({"flow": flow}, 5)["flow"]
    run = runs[-1]
    covariance = np.asarray(run.statistics["covariance"])[-1]
    exact = np.diag(START / (1 - START))
    off = np.abs(covariance - exact) / standard_errors(N)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    steps = int(run.stats["steps"])
    row = [seconds(timing.first), str(timing), str(steps), str(int(run.stats["rejected"])), str(run.stats["plans"])]
    row += [f"{float(run.stats['sum_error']):.1e}", f"{peak:.2f}", str(run.outcome)]
    part.tables.append(
        Table(
            f"n = {N:,}, k = d = 2, A = I/2, V = I, t from 0 to 1, accuracy 1e-6, sample={SAMPLE}",
            [
                "wall s, compiling",
                "wall s",
                "steps",
                "rejected",
                "plans",
                "error of sums",
                "peak memory, GB",
                "outcome",
            ],
            [row],
        )
    )
    entries = ((0, 0), (0, 1), (1, 1))
    part.tables.append(
        Table(
            "Covariance at t = 1",
            ["entry", "measured", "limit", "in standard errors"],
            [
                [f"{i + 1}{j + 1}", f"{covariance[i, j]:.6f}", f"{exact[i, j]:.6f}", f"{off[i, j]:.2f}"]
                for i, j in entries
            ],
        )
    )
    part.stated("flow of 1e6 tokens: wall time", f"{timing}; first run {seconds(timing.first)}; {steps} steps")
    part.at_most("flow of 1e6 tokens: peak memory", peak, LARGEST_MEMORY, " GB")
    part.at_most("flow of 1e6 tokens: covariance, standard errors from diag(2/3, 1/9)", float(off.max()), 4.0)
    return part

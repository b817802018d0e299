r"""Gaussian fates against projected Euler in NumPy, at equal answers: the ranks that the theorem of MATH e.4 gives."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .draws import Draws, rank_draws
from .harness import Part, Table, Timing, ratio, ratio_text, seconds, side_by_side

KINDS = {"softmax": mf.Softmax, "l2": mf.L2, "sinkhorn": mf.Sinkhorn}
CELLS = [(kind, d) for kind in KINDS for d in (3, 5)]
COUNT = 100
# Euler is tried with more and more steps, and in each run all thresholds are tried.
STEPS = (1_000, 10_000, 100_000)
THRESHOLDS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
LONGEST_STEP, STABLE = 0.1, 0.25
RTOL = 1e-7


def _product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return A.swapaxes(-1, -2) @ B


def pull(kind: str, L: np.ndarray, draws: Draws) -> np.ndarray:
    r"""$GL$ for a batch of factors $L$ (MATH e.2): $VLT$ with $T$ from $P=KL/\sqrt\tau$ and $R=QL/\sqrt\tau$."""
    root = np.sqrt(draws.tau)
    P, R = draws.K @ L / root, draws.Q @ L / root
    if kind == "softmax":
        T = _product(P, R)
    elif kind == "l2":
        T = _product(P, np.linalg.solve(np.eye(P.shape[1]) / 2 + P @ P.swapaxes(-1, -2), R))
    else:
        U, S, W = np.linalg.svd(_product(P, R))
        T = (U * (2 * S / (1 + np.sqrt(1 + 4 * S * S)))[:, None, :]) @ W
    return draws.V @ (L @ T)


def projected_euler(kind: str, draws: Draws, steps: int) -> np.ndarray:
    r"""Eigenvalues of $\Sigma$ after `steps` of $\Sigma\leftarrow\big(\Sigma+h(G\Sigma+\Sigma G^\top)\big)_+$, for all
    draws at once; $h=\min(0.1,\ 0.25\,\|L\|/\|GL\|)$, so that no draw overflows.
    """
    Sigma = draws.cov
    for _ in range(steps):
        eigenvalues, U = np.linalg.eigh(Sigma)
        L = U * np.sqrt(np.maximum(eigenvalues, 0))[:, None, :]
        GL = pull(kind, L, draws)
        size, speed = np.linalg.norm(L, axis=(1, 2)), np.linalg.norm(GL, axis=(1, 2))
        step = np.minimum(LONGEST_STEP, STABLE * size / np.maximum(speed, 1e-300))
        rate = GL @ L.swapaxes(-1, -2)
        Sigma = L @ L.swapaxes(-1, -2) + step[:, None, None] * (rate + rate.swapaxes(-1, -2))
    return np.linalg.eigvalsh(Sigma)


def best_share(eigenvalues: np.ndarray, rank: int) -> tuple[float, float]:
    """The largest share of right ranks among all thresholds, and its threshold: more than a user could know."""
    shares = [((eigenvalues > threshold).sum(axis=1) == rank).mean() for threshold in THRESHOLDS]
    best = int(np.argmax(shares))
    return float(shares[best]), THRESHOLDS[best]


def ours(kind: str, draws: Draws) -> Callable[[], mf.Fates]:
    """`mf.fates` on the batch, making the fields included."""
    count, d = draws.factor.shape[:2]

    def call() -> mf.Fates:
        arrays = (jnp.asarray(a) for a in (draws.Q, draws.K, draws.V))
        fields = jax.vmap(lambda Q, K, V: KINDS[kind](Q, K, V, draws.tau))(*arrays)
        gaussians = mf.Gaussian(np.zeros((count, d)), factor=draws.factor)
        return mf.fates(fields, gaussians, rtol=RTOL, progress=False)

    return call


def steps_for_equal_answers(kind: str, draws: Draws, share: float) -> tuple[int, float, float, bool]:
    """The smallest number of Euler steps that gives at least this share of right ranks, its threshold and share;
    the last number tried if none does.
    """
    for steps in STEPS:
        found, threshold = best_share(projected_euler(kind, draws, steps), draws.rank)
        if found >= share:
            return steps, threshold, found, True
    return steps, threshold, found, False


def measure(say: Callable[[str], None]) -> Part:
    """Each kind in two dimensions."""
    part = Part("gaussians", "Gaussian fates against projected Euler")
    head = ["kind", "d", "ours: right", "run", "first call less run", "Euler: steps", "threshold", "right", "run"]
    table = Table(f"Ranks of {COUNT} limits, V = I, K = -Q of rank d/2; the theorem gives the right one", head)
    table.head.append("ours is faster by")
    for kind, d in CELLS:
        say(f"{kind}, d = {d}")
        draws = rank_draws(d, COUNT, d, identity_value=True)
        call = ours(kind, draws)
        began = time.perf_counter()
        share = float((call().rank == draws.rank).mean())
        first = time.perf_counter() - began
        steps, threshold, found, equal = steps_for_equal_answers(kind, draws, share)
        say(f"Euler: {steps} steps, {found:.0%} right")
        # Euler's work is the same in each step: long runs are timed on fewer steps, and scaled.
        timed = min(steps, 1_000)
        timings = side_by_side({"ours": call, "euler": lambda k=kind, w=draws, t=timed: projected_euler(k, w, t)}, 5)
        euler = Timing(0.0, [t * steps / timed for t in timings["euler"].rounds])
        row = [kind, str(d), f"{share:.0%}", str(timings["ours"]), seconds(max(first - timings["ours"].median, 0))]
        row += [f"{steps:,}", f"{threshold:g}", f"{found:.0%}", str(euler)]
        row += [("" if equal else "more than ") + ratio_text(euler, timings["ours"])]
        table.rows.append(row)
        words = f"fates, {kind}, d = {d}: Euler / ours, "
        words += "at equal answers" if equal else f"with Euler at {steps:,} steps and {found:.0%} right"
        part.stated(words, f"{ratio(euler, timings['ours']):.3g}")
    part.tables.append(table)
    part.notes.append(
        f"Euler steps all draws of a batch at once and is granted the best of {len(THRESHOLDS)} thresholds, chosen by "
        "the theorem; beyond 1,000 steps its time is scaled from 1,000."
    )
    return part

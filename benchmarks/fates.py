"""The study of Gaussian fates: ranks of 1800 limits, blow-up times, and how long it takes, against two peers.

`python -m benchmarks.fates` (or `make study`) prints its tables and writes them to benchmarks/FATES.md. All programmes
run on the same draws, one after the other, in one process; times include compiling.
"""

import argparse
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from scipy.integrate import LSODA

import meanformer as mf

from .draws import Draws, rank_draws
from .peers import lsoda_fate, projected_euler_fate, strict_rank_of, velocity

KINDS = {"softmax": mf.Softmax, "l2": mf.L2, "sinkhorn": mf.Sinkhorn}
CELLS = [(kind, d, identity) for kind in KINDS for d in (3, 4, 5) for identity in (True, False)]
RTOL = 1e-7
EULER_DRAWS = 10


def fields_of(kind: str, draws: Draws):
    """A batch of fields from a batch of draws."""
    arrays = (jnp.asarray(a) for a in (draws.Q, draws.K, draws.V))
    return jax.vmap(lambda Q, K, V: KINDS[kind](Q, K, V, draws.tau))(*arrays)


def ours(kind: str, draws: Draws):
    """Ranks (-1: undecided) and seconds of meanformer, making the fields included."""
    began = time.perf_counter()
    n, d = draws.factor.shape[:2]
    fates = mf.fates(fields_of(kind, draws), mf.Gaussian(np.zeros((n, d)), factor=draws.factor), rtol=RTOL)
    return fates, time.perf_counter() - began


def lsoda(kind: str, draws: Draws, count: int):
    """Ranks (-1: undecided) and seconds of LSODA, with the rule that meanformer has."""
    began = time.perf_counter()
    ranks = []
    for Q, K, V, L in zip(draws.Q[:count], draws.K, draws.V, draws.factor, strict=False):
        fate = lsoda_fate(kind, Q, K, V, draws.tau, L, RTOL, horizon=1e10, max_steps=3000, decide=strict_rank_of)
        ranks.append(-1 if fate.rank is None else fate.rank)
    return np.array(ranks), time.perf_counter() - began


def euler(kind: str, draws: Draws, count: int):
    """Ranks (-1: overflow) and seconds of projected Euler."""
    began = time.perf_counter()
    covs = draws.cov
    ranks = [
        projected_euler_fate(kind, Q, K, V, draws.tau, S)
        for Q, K, V, S in zip(draws.Q[:count], draws.K, draws.V, covs, strict=False)
    ]
    return np.array([-1 if rank is None else rank for rank in ranks]), time.perf_counter() - began


def rank_table(count: int, seed: int) -> list[str]:
    """TARGETS A2 and A3: `count` draws in each of 18 cells."""
    lines = [
        f"## Ranks: {count} draws x d = 3, 4, 5 x three kinds x V = I, W^T W (seed {seed}, rtol {RTOL:g})",
        "",
        "| kind | d | V | theorem | ours: ranks | wrong | undecided | s | LSODA: wrong | undecided | s "
        f"| Euler, {EULER_DRAWS} draws: wrong | s for {count} |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    undecided, totals, mistakes = [], np.zeros(3), np.zeros(3, int)
    for kind, d, identity in CELLS:
        draws = rank_draws(d, count, seed + d, identity)
        fates, seconds = ours(kind, draws)
        peer, peer_seconds = lsoda(kind, draws, count)
        clipped, clipped_seconds = euler(kind, draws, min(count, EULER_DRAWS))
        clipped_seconds *= count / len(clipped)
        converged = fates.rank >= 0
        values, counts = np.unique(fates.rank[converged], return_counts=True)
        ranks = ", ".join(f"{v}: {c}" for v, c in zip(values, counts, strict=True))
        wrong = int((fates.rank[converged] != draws.rank).sum() + (fates.code > 1).sum())
        peer_wrong = int((peer[peer >= 0] != draws.rank).sum())
        clipped_wrong = int((clipped != draws.rank).sum())
        totals += (seconds, peer_seconds, clipped_seconds)
        mistakes += (wrong, peer_wrong, clipped_wrong)
        name = "I" if identity else "W^T W"
        undecided += [(kind, d, name, i, fates[i]) for i in np.flatnonzero(fates.code == 0)]
        lines.append(
            f"| {kind} | {d} | {name} | {draws.rank} | {ranks} | {wrong} | {(fates.code == 0).sum()} | {seconds:.2f} "
            f"| {peer_wrong} | {(peer < 0).sum()} | {peer_seconds:.2f} | {clipped_wrong} | {clipped_seconds:.1f} |"
        )
        print(lines[-1], flush=True)
    total = count * len(CELLS)
    lines += [
        "",
        f"All {total}: ours {totals[0]:.1f} s with compiling, {mistakes[0]} wrong, {len(undecided)} undecided "
        f"({100 * len(undecided) / total:.2f} %); LSODA {totals[1]:.1f} s, {mistakes[1]} wrong; projected Euler "
        f"{totals[2]:.0f} s (scaled from {EULER_DRAWS} draws a cell), {mistakes[2]} of {EULER_DRAWS * len(CELLS)} "
        "wrong. "
        f"Ratios: LSODA / ours {totals[1] / totals[0]:.2f}, Euler / ours {totals[2] / totals[0]:.0f}.",
        "",
        "Undecided:" if undecided else "None undecided.",
        *(f"- {kind}, d = {d}, V = {name}, draw {i}: {fate}" for kind, d, name, i, fate in undecided),
        "",
    ]
    return lines


def large_table(total: int, seed: int, sample: int) -> list[str]:
    """The same cells with many more draws; LSODA on some of them, scaled up."""
    count = total // len(CELLS)
    seconds, peer_seconds, wrong, undecided = 0.0, 0.0, 0, 0
    for kind, d, identity in CELLS:
        draws = rank_draws(d, count, seed + d, identity)
        fates, spent = ours(kind, draws)
        seconds += spent
        wrong += int((fates.rank[fates.code == 1] != draws.rank).sum() + (fates.code > 1).sum())
        undecided += int((fates.code == 0).sum())
        peer_seconds += lsoda(kind, draws, sample)[1] * count / sample
        print(f"large: {kind} {d} {identity} {spent:.1f} s", flush=True)
    done = count * len(CELLS)
    return [
        f"## {done} draws (18 cells of {count}, seed {seed})",
        "",
        f"Ours {seconds:.1f} s with compiling ({1e3 * seconds / done:.2f} ms a draw), {wrong} wrong, {undecided} "
        "undecided "
        f"({100 * undecided / done:.2f} %); LSODA {peer_seconds:.0f} s, scaled from {sample} draws a cell. "
        f"Ratio LSODA / ours {peer_seconds / seconds:.2f}.",
        "",
    ]


def reference_blowup(Q, K, V, tau, L0, growth=1e12):
    r"""$t^*$ of a softmax run by LSODA in the rescaled time of MATH e.5, at a tight tolerance."""
    shape, d = L0.shape, L0.size
    gamma0 = np.linalg.norm(velocity("softmax", L0, Q, K, V, tau)) / np.linalg.norm(L0)

    def rhs(_, y):
        L = y[:d].reshape(shape)
        dL = velocity("softmax", L, Q, K, V, tau)
        gamma = np.linalg.norm(dL) / np.linalg.norm(L)
        return np.append(dL.ravel(), 1.0) / (gamma + 1 / (1 / gamma0 + y[-1]))

    run = LSODA(rhs, 0.0, np.append(L0.ravel(), 0.0), np.inf, rtol=1e-12, atol=1e-14 * np.linalg.norm(L0))
    size = (L0 * L0).sum()
    for _ in range(20_000):
        run.step()
        L = run.y[:d].reshape(shape)
        if (L * L).sum() > growth * size:
            rate = 2 * (L * velocity("softmax", L, Q, K, V, tau)).sum() / (L * L).sum()
            return run.y[-1] + 1 / rate
    return np.inf


def blowup_table(count: int, seed: int) -> list[str]:
    """TARGETS A1 (V = I, exact), A5b (the L2 counterexample, exact) and V != I (against a second integrator)."""
    lines = [
        "## Blow-up times (rtol 1e-8)",
        "",
        "| family | cases | blow-ups | wrong kind | worst relative error of t* |",
        "|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(seed)
    d = 5
    Q, K, L = (rng.standard_normal((count, d, d)) for _ in range(3))
    for i in range(count):  # lower dimensions, and ranks, as zero rows and columns
        size, rank, rows = rng.integers(2, d + 1), rng.integers(1, d + 1), rng.integers(1, d + 1)
        for M in (Q, K, L):
            M[i, :, size:] = 0
        L[i, size:], L[i, :, rank:] = 0, 0
        Q[i, rows:] = 0
    eye = np.broadcast_to(np.eye(d), Q.shape)
    A = K.swapaxes(1, 2) @ Q
    exact = np.array([mf.softmax_blowup_time(a, mf.Gaussian(np.zeros(d), factor=l)) for a, l in zip(A, L, strict=True)])
    fates = mf.fates(
        jax.vmap(mf.Softmax)(*(jnp.asarray(a) for a in (Q, K, eye))),
        mf.Gaussian(np.zeros((count, d)), factor=L),
        rtol=1e-8,
    )
    lines.append(_row("softmax, V = I, singular Sigma0, Q, K", fates, exact))
    alpha, beta, gamma = rng.uniform(0.1, 2, (3, count))
    gamma += beta**2 / alpha
    covs = np.stack([np.stack([alpha, beta], 1), np.stack([beta, gamma], 1)], 1)
    counterexample = mf.L2(Q=[[0.0, 1.0]], K=[[1.0, 0.0]], V=[[0.0, 0.0], [0.0, 1.0]])
    fates = mf.fates(counterexample, mf.Gaussian(np.zeros((count, 2)), cov=covs), rtol=1e-8)
    lines.append(_row("L2 counterexample (A5b)", fates, (1 + 2 * alpha) / (2 * beta)))
    d, drawn = 3, 3 * count  # generic A, V positive definite: a good half of the runs blow up
    Q, K, L, W = (rng.standard_normal((drawn, d, d)) for _ in range(4))
    V = W.swapaxes(1, 2) @ W
    fields = jax.vmap(mf.Softmax)(*(jnp.asarray(a) for a in (Q, K, V)))
    fates = mf.fates(fields, mf.Gaussian(np.zeros((drawn, d)), factor=L), rtol=1e-8)
    blown = np.flatnonzero(fates.code == 2)[:count]
    second = np.array([reference_blowup(Q[i], K[i], V[i], 1.0, L[i]) for i in blown])
    known = np.isfinite(second)
    error = np.abs(fates.time[blown][known] / second[known] - 1).max()
    lines.append(
        f"| softmax, V = W^T W, generic A, d = 3, against LSODA at 1e-12 | {len(blown)} | {len(blown)} "
        f"| {int((~known).sum())} not reached by LSODA | {error:.1e} |"
    )
    return [*lines, ""]


def _row(name: str, fates, exact: np.ndarray) -> str:
    blown = np.isfinite(exact)
    wrong = int(((fates.code == 2) != blown).sum())
    both = blown & (fates.code == 2)
    error = np.abs(fates.time[both] / exact[both] - 1).max()
    return f"| {name} | {len(exact)} | {int(blown.sum())} | {wrong} | {error:.1e} |"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="draws in each of 18 cells")
    parser.add_argument("--large", type=int, default=10_000, help="draws in all of the large table; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("FATES.md"))
    options = parser.parse_args()
    lines = [
        "# Gaussian fates, measured",
        "",
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, "
        f"NumPy {np.__version__}, scipy {scipy.__version__}, float64. Written by `make study`.",
        "",
        *blowup_table(50, options.seed),
        *rank_table(options.count, options.seed),
    ]
    if options.large:
        lines += large_table(options.large, options.seed + 100, 10)
    options.out.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

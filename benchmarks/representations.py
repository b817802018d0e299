"""One problem as tokens, as a Gaussian and as a density: how the three approach each other (TARGETS A11).

python -m benchmarks.representations
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import meanformer as mf

T1 = 0.5
LINE = mf.Gaussian([0.3], cov=0.5)
PLANE = mf.Gaussian([0.2, -0.1], cov=[[0.5, 0.1], [0.1, 0.3]])
HUMPS = {1: mf.gaussian_mixture([[-1.0], [1.2]], 0.1, [0.3, 0.7])}
HUMPS[2] = mf.gaussian_mixture([[-1.0, 0.3], [0.9, -0.4]], 0.15, [0.4, 0.6])
# A = K^T Q is not symmetric.
PLANE_MATRICES = tuple(
    jnp.array(M) for M in ([[0.6, -0.2], [0.1, 0.4]], [[0.5, 0.3], [-0.4, 0.7]], [[0.8, 0.2], [-0.1, 0.6]])
)
MATRICES = {1: (0.8, 0.7, 0.9), 2: PLANE_MATRICES}
KINDS = {"softmax": mf.Softmax, "L2": mf.L2, "Sinkhorn": mf.Sinkhorn}
GRIDS = {1: (100, 200, 400), 2: (16, 32, 64)}
TOKENS = (250, 1000, 4000)
# Cells of the reference for two humps, by dimension and whether attention is Sinkhorn.
FINE = {(1, False): 1600, (1, True): 800, (2, False): 100, (2, True): 40}


def grids(kind: str, d: int) -> tuple[int, ...]:
    """Numbers of cells along an axis."""
    return (16, 24, 32) if kind == "Sinkhorn" and d == 2 else GRIDS[d]


def exact_cloud(g: mf.Gaussian, count: int = 20_000) -> mf.PointCloud:
    """A Gaussian by many tokens: quantiles on a line, a fine grid in the plane."""
    if g.d == 1:
        unit = (np.arange(count) + 0.5) / count
        return mf.PointCloud(float(g.mean[0]) + float(jnp.abs(g.factor[0, 0])) * norm.ppf(unit)[:, None])
    return mf.to_cloud(mf.to_density(g, cells=120))


def gap(mu: Any, exact: Any, cloud: Any) -> tuple[float, float, float]:
    """Errors of mean and covariance, and W1 (in the plane: sliced).

    A density is compared with the exact one on its own grid: as atoms, cells are half a side away from everything else.
    """
    if isinstance(mu, mf.Density):
        cloud = mf.to_density(exact, mu.cells, low=mu.low, high=mu.high)
    mean = float(np.linalg.norm(np.asarray(mu.mean - exact.mean)))
    cov = float(np.linalg.norm(np.asarray(mu.covariance - exact.covariance)))
    return mean, cov, mf.sliced_wasserstein(mu, cloud, 1, 64)


def orders(sizes: Any, errors: np.ndarray) -> np.ndarray:
    """Orders between successive sizes, for each column of errors."""
    return -np.diff(np.log(errors), axis=0) / np.diff(np.log(np.asarray(sizes, float)))[:, None]


def density_rows(d: int, kind: str, start: Any, field: Any, exact: Any, cloud: mf.PointCloud, name: str) -> list[str]:
    """The density against the exact answer as the grid grows."""
    found, lines, sizes = [], [], grids(kind, d)
    for cells in sizes:
        began = time.perf_counter()
        run = mf.flow(field, mf.to_density(start, cells=cells), T1, save=17, progress=False)
        masses, lost = (np.asarray(a) for a in run.saved)
        drift = float(np.abs(masses.reshape(len(masses), -1).sum(axis=1) + lost - 1).max())
        found.append(gap(run.final, exact, cloud))
        shape = " x ".join(map(str, run.final.cells))
        order = orders(sizes[: len(found)], np.array(found))[-1] if len(found) > 1 else [np.nan] * 3
        lines.append(
            f"| {name} | {kind} | {cells} ({shape}) | "
            + " | ".join(f"{e:.2e} ({o:.2f})" for e, o in zip(found[-1], order, strict=True))
            + f" | {drift:.0e} | {float(lost[-1]):.0e} | {masses.min():.1g} | {mf.weak_residual(run).relative:.1e} "
            f"| {time.perf_counter() - began:.1f} |"
        )
        print(lines[-1], flush=True)
    return lines


def token_rows(d: int, kind: str, start: Any, field: Any, exact: Any, cloud: mf.PointCloud, name: str) -> list[str]:
    """Random tokens against the exact answer as their number grows: root mean squares over draws."""
    rms, lines = [], []
    tokens = (125, 250, 500) if kind == "Sinkhorn" else TOKENS
    repeats = 24
    for n in tokens:
        squares = []
        for seed in range(repeats):
            run = mf.flow(field, start.sample(n, key=jax.random.key(seed)), T1, save=2, rtol=1e-5, progress=False)
            squares.append(np.square(gap(run.final, exact, cloud)))
        rms.append(np.sqrt(np.mean(squares, axis=0)))
        order = orders(tokens[: len(rms)], np.array(rms))[-1] if len(rms) > 1 else [np.nan] * 3
        lines.append(
            f"| {name} | {kind} | {n} | "
            + " | ".join(f"{e:.2e} ({o:.2f})" for e, o in zip(rms[-1], order, strict=True))
            + " |"
        )
        print(lines[-1], flush=True)
    return lines


def tables() -> list[str]:
    """All of it, as markdown."""
    densities, tokens = [], []
    for d, g in ((1, LINE), (2, PLANE)):
        for kind, make in KINDS.items():
            field = make(*MATRICES[d])
            exact = mf.flow(field, g, T1, progress=False).final
            cloud = exact_cloud(exact)
            densities += density_rows(d, kind, g, field, exact, cloud, f"Gaussian, d = {d}")
            tokens += token_rows(d, kind, g, field, exact, cloud, f"Gaussian, d = {d}")
            # Two humps have no closed form: the tokens are the cells of a grid finer than any of the densities.
            fine = mf.to_cloud(mf.to_density(HUMPS[d], cells=FINE[d, kind == "Sinkhorn"]))
            seen = np.flatnonzero(np.asarray(fine.weights) > 1e-13)  # the rest may leave the grids
            fine = mf.PointCloud(fine.points[seen], fine.weights[seen] / fine.weights[seen].sum())
            reference = mf.flow(field, fine, T1, save=2, rtol=1e-8, progress=False).final
            densities += density_rows(d, kind, HUMPS[d], field, reference, reference, f"two humps, d = {d}")
    head = "mean (order) | covariance (order) | W1 (order)"
    return [
        f"## Three representations, t = {T1}",
        "",
        "A density against the exact Gaussian, or against the tokens of a finer grid. Errors, with the order between",
        "successive grids; W1 on the grid of the density, sliced in the plane. Mass drift is |mass + lost - 1|.",
        "",
        f"| start | kind | cells (after extension) | {head} | mass drift | lost | minimum | weak residual | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *densities,
        "",
        "Random tokens against the exact Gaussian: root mean squares over 24 draws, with the order in n.",
        "",
        f"| start | kind | n | {head} |",
        "|---|---|---|---|---|---|",
        *tokens,
        "",
    ]


if __name__ == "__main__":
    tables()

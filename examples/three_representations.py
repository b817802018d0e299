r"""One problem, three representations: tokens, a density on a grid, and the exact Gaussian, as n and the grid grow.

    python examples/three_representations.py --out runs/three_representations.png

The start is a Gaussian on a line, which softmax, L2 and Sinkhorn attention keep Gaussian (MATH e.2), so that its exact
flow is the reference for the other two. The upper row has the errors of $n$ independent tokens at the end, root mean
squares over several draws: $n^{-1/2}$ is expected (MATH d.5). The lower row has the errors of the density by finite
volumes: second order in the side of a cell is expected. The legends have the measured orders, slopes of least-squares
lines, for tokens with one standard error (bootstrap over the draws, which softmax and L2 share).

The grids are not coarse ones: below about 160 cells the errors of the moments change sign as the grid is refined, and
the slope of a line through them means nothing (40 to 320 cells: 1.1 to 2.9 for the mean, 1.3 to 1.7 for the covariance;
2.1 for $W_1$). The mean under Sinkhorn attention, right to $3\cdot10^{-6}$, changes sign between the first two grids.

With `--plane` a fourth column has softmax in the plane, with an $A=K^\top Q$ that is not symmetric, and the sliced
distance; it takes some minutes more. Its grids, 24 to 48 cells along an axis, are coarse in this sense: 2.6 to 3.2.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import meanformer as mf
from meanformer.plots import style

T = 0.5
LINE = mf.Gaussian(mean=[0.4], cov=[[0.25]])
PLANE = mf.Gaussian(mean=[0.3, -0.2], cov=[[0.3, 0.1], [0.1, 0.2]])
Q, K, V = np.array([[0.6, -0.2], [0.1, 0.4]]), np.array([[0.5, 0.3], [-0.4, 0.7]]), np.array([[0.8, 0.2], [-0.1, 0.6]])

# By title: the field, the start, the numbers of tokens, the numbers of cells.
PROBLEMS = {
    "softmax, $d=1$": (mf.Softmax(0.8, 1.1, 0.9), LINE, (25, 100, 400), (160, 320, 640)),
    "L2, $d=1$": (mf.L2(0.8, 1.1, 0.9), LINE, (25, 100, 400), (160, 320, 640)),
    "Sinkhorn, $d=1$": (mf.Sinkhorn(0.8, 1.1, 0.9, tol=1e-7), LINE, (20, 60, 180), (120, 240, 480)),
}
IN_PLANE = {"softmax, $d=2$, $A\\neq A^T$": (mf.Softmax(Q, K, V), PLANE, (25, 100, 400), (24, 36, 48))}
QUICK = {"softmax, $d=1$": (mf.Softmax(0.8, 1.1, 0.9), LINE, (25, 400), (80, 160))}
REPEATS, FEW_REPEATS = 48, 16

# By name: the errors of each draw, shape (sizes, draws).
Errors = dict[str, np.ndarray]


def moments(mu: mf.PointCloud | mf.Density, exact: mf.Gaussian) -> dict[str, float]:
    """The errors of mean and covariance."""
    return {
        "mean": float(np.linalg.norm(mu.mean - exact.mean)),
        "covariance": float(np.linalg.norm(mu.covariance - exact.covariance)),
    }


def spread_out(exact: mf.Gaussian) -> mf.PointCloud | mf.Density:
    """The Gaussian so finely that its own error does not count: its quantiles on a line, a fine grid in the plane."""
    if exact.d == 2:
        return mf.to_density(exact, cells=160)
    levels = (np.arange(20_000) + 0.5) / 20_000
    quantiles = norm.ppf(levels, float(exact.mean[0]), float(exact.covariance[0, 0]) ** 0.5)
    return mf.PointCloud(quantiles[:, None])


def distance(mu: mf.PointCloud | mf.Density, nu: mf.PointCloud | mf.Density) -> float:
    """$W_1$ on a line, where it is a matter of sorting; its sliced version in the plane."""
    return mf.wasserstein(mu, nu, p=1) if mu.d == 1 else mf.sliced_wasserstein(mu, nu, p=1, directions=32)


def on_the_same_grid(exact: mf.Gaussian, rho: mf.Density) -> mf.Density:
    """The Gaussian at the cells of `rho`: on one grid two densities compare without the error of rounding to it."""
    return mf.to_density(exact, cells=list(rho.cells), low=rho.low, high=rho.high)


def padded(tokens: mf.PointCloud, n: int) -> mf.PointCloud:
    """The same measure with n tokens, those added of weight zero: runs of one shape are compiled once."""
    points, weights = np.zeros((n, tokens.d)), np.zeros(n)
    points[: tokens.n], weights[: tokens.n] = tokens.points, tokens.weights
    return mf.PointCloud(points, weights)


def of_tokens(
    field: mf.AbstractField, start: mf.Gaussian, exact: mf.Gaussian, sizes: Sequence[int], repeats: int
) -> Errors:
    """The errors of n tokens, for several draws."""
    reference, rows = spread_out(exact), []
    for n in sizes:
        row = []
        for key in jax.random.split(jax.random.key(n), repeats):
            tokens = padded(start.sample(n, key=key), max(sizes))
            end = mf.flow(field, tokens, t1=T, rtol=1e-5, save=2, progress=False).final
            row.append({"distance": distance(end, reference), **moments(end, exact)})
        rows.append(row)
    return {name: np.array([[draw[name] for draw in row] for row in rows]) for name in rows[0][0]}


def of_densities(field: mf.AbstractField, start: mf.Gaussian, exact: mf.Gaussian, sizes: Sequence[int]) -> Errors:
    """The errors of densities on finer and finer grids."""
    rows = []
    for cells in sizes:
        run = mf.flow(field, mf.to_density(start, cells=cells), t1=T, save=2, progress=False)
        assert run.outcome.ok and abs(float(run.final.mass) - 1) < 1e-12 and float(run.final.masses.min()) >= 0
        rows.append({"distance": distance(run.final, on_the_same_grid(exact, run.final)), **moments(run.final, exact)})
    return {name: np.array([[row[name]] for row in rows]) for name in rows[0]}


def rms(errors: np.ndarray) -> np.ndarray:
    """Root mean squares over the draws."""
    return np.sqrt(np.mean(errors**2, axis=1))


def order(sizes: Sequence[int], errors: np.ndarray) -> float:
    """Minus the slope of a least-squares line through the logarithms."""
    return -float(np.polyfit(np.log(sizes), np.log(rms(errors)), 1)[0])


def measured(sizes: Sequence[int], errors: np.ndarray) -> str:
    """The order, with its standard error where there are several draws."""
    words = f"order {order(sizes, errors):.2f}"
    if errors.shape[1] == 1:
        return words
    rng = np.random.default_rng(0)
    again = [order(sizes, np.stack([rng.choice(row, len(row)) for row in errors])) for _ in range(300)]
    return f"{words} \N{PLUS-MINUS SIGN} {np.std(again):.2f}"


COLOURS = {"distance": style.PALETTE[0], "mean": style.PALETTE[1], "covariance": style.PALETTE[2]}


def draw(ax, sizes: Sequence[int], errors: Errors, guide: float, names: dict[str, str]) -> None:
    """Errors over sizes, with their orders, and a line of the order that is expected."""
    for name, values in errors.items():
        label = f"{names[name]}: {measured(sizes, values)}"
        ax.loglog(sizes, rms(values), "o-", color=COLOURS[name], markersize=5, linewidth=1.6, label=label)
    highest = max(rms(values)[0] for values in errors.values())
    above = 1.8 * highest * (np.array(sizes) / sizes[0]) ** -guide
    ax.loglog(sizes, above, ":", color=style.SOFT, linewidth=1.4, label=f"slope {-guide:g}")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set_ylim(bottom=min(ax.get_ylim()[0], 0.2 * min(rms(values)[-1] for values in errors.values())))
    ax.legend(frameon=False, fontsize=8.5, loc="lower left")


def main() -> None:
    """Run all, print the errors, draw them."""
    parser = argparse.ArgumentParser(description="Tokens and densities against the exact Gaussian.")
    parser.add_argument("--out", type=Path, default=Path("runs/three_representations.png"), help="the picture")
    parser.add_argument("--plane", action="store_true", help="softmax in the plane, too")
    parser.add_argument("--quick", action="store_true", help="softmax only, with small sizes: some seconds")
    options = parser.parse_args()
    columns = QUICK if options.quick else PROBLEMS | (IN_PLANE if options.plane else {})
    with style.style():
        grid = {"figsize": (3.7 * len(columns), 7.0), "layout": "constrained", "sharey": "row", "squeeze": False}
        figure, axes = plt.subplots(2, len(columns), **grid)
    for (title, (field, start, numbers, cells)), above, below in zip(columns.items(), *axes, strict=True):
        began = time.monotonic()
        exact = mf.flow(field, start, t1=T, save=2).final
        tokens = of_tokens(field, start, exact, numbers, FEW_REPEATS if options.quick else REPEATS)
        density = of_densities(field, start, exact, cells)
        for kind, sizes, errors in (("n", numbers, tokens), ("cells", cells, density)):
            for name, values in errors.items():
                about = f"{title.split(',')[0]:<9} d = {start.d}, {kind:<5} {sizes[0]:>3} to {sizes[-1]:>3}: {name:<11}"
                first, *_, last = rms(values)
                print(f"{about}{first:.2e} to {last:.2e}, {measured(sizes, values)}")
        print(f"{'':<9} {time.monotonic() - began:.0f} s", flush=True)
        names = {"distance": "$W_1$" if start.d == 1 else "sliced $W_1$", "mean": "mean", "covariance": "covariance"}
        with style.style():
            draw(above, numbers, tokens, 0.5, names)
            draw(below, cells, density, 2.0, names)
            above.set(title=f"{title}", xlabel="tokens $n$")
            below.set(xlabel="cells" if start.d == 1 else "cells along each axis")
    axes[0, 0].set_ylabel("error of tokens (root mean square)")
    axes[1, 0].set_ylabel("error of the density")
    figure.suptitle(f"Tokens and densities against the exact Gaussian, at $t={T:g}$", fontsize=12)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=80)
    plt.close(figure)
    print(f"The picture is {options.out.resolve()}")


if __name__ == "__main__":
    main()

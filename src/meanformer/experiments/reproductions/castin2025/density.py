r"""A11: one law moved in three ways: as a density on a grid, as tokens, and as a Gaussian, by its closure."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import meanformer as mf

from ....plots import style
from ....plots.densities import INK_MAP, SHARES, enclosing_level
from ....plots.fates import number
from ..base import Budget, Found, Item, Picture, Row, within
from .meanfield import drawn_flows

T1 = 0.5
# Of the sliced distance in the plane.
DIRECTIONS = 24


class Setting(NamedTuple):
    """A Gaussian start and softmax in one dimension."""

    d: int
    field: Any
    start: mf.Gaussian


def setting(d: int) -> Setting:
    """On the line, and in the plane, where A = K^T Q is not symmetric."""
    if d == 1:
        return Setting(1, mf.Softmax(0.8, 0.7, 0.9), mf.Gaussian([0.3], cov=0.5))
    Q, K, V = (jnp.array(M) for M in ([[0.6, -0.2], [0.1, 0.4]], [[0.5, 0.3], [-0.4, 0.7]], [[0.8, 0.2], [-0.1, 0.6]]))
    return Setting(2, mf.Softmax(Q, K, V), mf.Gaussian([0.2, -0.1], cov=[[0.5, 0.1], [0.1, 0.3]]))


class Compared(NamedTuple):
    """The end of each of the three, and the errors of two of them against the third, the closure."""

    where: Setting
    closure: mf.Gaussian
    density: mf.Density  # on the finest grid
    tokens: mf.PointCloud  # the last draw of most tokens
    cells: np.ndarray  # along an axis, as the runs began
    unknowns: np.ndarray  # cells in all, as the runs ended
    grid_errors: np.ndarray
    n: np.ndarray
    token_errors: np.ndarray


def grid_error(rho: mf.Density, exact: mf.Gaussian) -> float:
    """The distance W1 (in the plane: sliced) to the exact law on the same grid."""
    return mf.sliced_wasserstein(rho, mf.to_density(exact, rho.cells, low=rho.low, high=rho.high), 1, DIRECTIONS)


def compare(
    where: Setting, cells: tuple[int, ...], n: tuple[int, ...], repeats: tuple[int, ...], fine_cells: int, seed: int
) -> Compared:
    """Three flows of one law until `T1`."""
    field, start = where.field, where.start
    closure = mf.flow(field, start, T1, save=2, solver="tsit5", progress=False).final
    densities = [mf.flow(field, mf.to_density(start, cells=c), T1, save=2, progress=False).final for c in cells]
    # Tokens are compared with the closure on a grid whose own error is below theirs.
    fine = mf.to_density(closure, cells=fine_cells)
    errors, tokens = [], mf.to_cloud(fine)
    for count, many, key in zip(n, repeats, jax.random.split(jax.random.key(seed), len(n)), strict=True):
        squares = []
        for tokens in drawn_flows(field, start, T1, count, many, key):
            squares.append(mf.sliced_wasserstein(tokens, fine, 1, DIRECTIONS) ** 2)
        errors.append(np.sqrt(np.mean(squares)))
    return Compared(
        where,
        closure,
        densities[-1],
        tokens,
        np.array(cells),
        np.array([np.prod(rho.cells) for rho in densities]),
        np.array([grid_error(rho, closure) for rho in densities]),
        np.array(n),
        np.array(errors),
    )


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of log y in log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def rows_of(found: Compared) -> list[Row]:
    """Orders of the errors, and how far the three agree in the end."""
    d, distance = found.where.d, "W_1" if found.where.d == 1 else r"W_1\ \mathrm{(sliced)}"
    order = -slope(found.cells, found.grid_errors)
    sizes = f"{found.cells[0]} to {found.cells[-1]} cells along an axis, error {found.grid_errors[-1]:.1e} at the end"
    verdict = "holds" if order >= 1.7 else "fails"
    grid = rf"$d={d}$: order of the grid in the side of a cell, ${distance}$"
    claim = rf"$d={d}$: slope of the error of tokens in $n$, ${distance}$"
    why = f"{found.n[0]:,} to {found.n[-1]:,} tokens"
    traces = [float(np.trace(np.asarray(mu.covariance))) for mu in (found.closure, found.density, found.tokens)]
    apart = float(np.abs(np.array(traces[1:]) / traces[0] - 1).max())
    allowed = 5 / np.sqrt(found.n[-1])
    words = ", ".join(f"{name} {trace:.4f}" for name, trace in zip(("closure", "grid", "tokens"), traces, strict=True))
    return [
        Row(grid, 2.0, order, "at least 1.7", verdict, sizes),
        within(claim, -0.5, slope(found.n, found.token_errors), 0.15, why, relative=False),
        Row(
            rf"$d={d}$: $\mathrm{{tr}}\,\Sigma$ at the end, largest relative difference to the closure",
            0.0,
            apart,
            f"5 / sqrt(n) = {allowed:.2g}",
            "holds" if apart <= allowed else "fails",
            words,
        ),
    ]


def compute(budget: Budget) -> Found:
    """Both dimensions; the quick form has the line only, since grids of the plane take long to compile."""
    dimensions = budget.choose((1,), (1, 2))
    cells = {
        1: budget.choose((50, 100, 200), (50, 100, 200, 400, 800)),
        2: (16, 24, 32, 48, 64),
    }
    n = budget.choose((64, 256, 1000), (64, 256, 1000, 4000, 16_000, 64_000))
    repeats = budget.choose((24, 16, 16), (48, 48, 32, 16, 8, 4))
    fine = {1: 8000, 2: 128}
    found = []
    for d in dimensions:
        budget.say((d - 1) / len(dimensions), f"dimension {d}")
        found.append(compare(setting(d), cells[d], n, repeats, fine[d], budget.seed))
    caption = (
        f"One law at $t={T1}$, moved as a density on a grid, as tokens and as a Gaussian by its closure. Left: laws "
        "(in the plane: the grid as ink, some tokens, and the lines around the densest 50 % and 95 % of grid and "
        "closure). Right: the distance of grid and tokens to the closure, over the number of unknowns: the grid is of "
        "second order in the side of a cell, random tokens of order one half."
    )
    rows = [row for one in found for row in rows_of(one)]
    return Found(rows, [Picture("three_representations", density_figure(found), caption)])


def density_figure(found: list[Compared]) -> Figure:
    """A row for each dimension: the laws at the end, and the errors."""
    with style.style():
        figure = Figure(figsize=(9.6, 3.8 * len(found)), dpi=style.DPI, layout="constrained")
        axes = figure.subplots(len(found), 2, squeeze=False)
        for (left, right), one in zip(axes, found, strict=True):
            (draw_line if one.where.d == 1 else draw_plane)(left, one)
            draw_errors(right, one)
    return figure


GRID, TOKENS, CLOSURE = style.PALETTE[0], style.PALETTE[3], style.PALETTE[1]


def draw_line(ax: Any, one: Compared) -> None:
    """Three graphs on the line."""
    rho = one.density
    x, values = np.asarray(rho.centres(0)), np.asarray(rho.values)
    m, s = float(one.closure.mean[0]), float(jnp.sqrt(one.closure.covariance[0, 0]))
    points = np.asarray(one.tokens.points)[np.asarray(one.tokens.weights) > 0, 0]
    ax.hist(points, np.linspace(m - 4 * s, m + 4 * s, 33), density=True, color=TOKENS, alpha=0.45, label="tokens")
    ax.plot(x, values, color=GRID, linewidth=2.6, label="grid")
    normal = np.exp(-((x - m) ** 2) / (2 * s**2)) / (s * np.sqrt(2 * np.pi))
    ax.plot(x, normal, color=CLOSURE, linewidth=1.4, linestyle=(0, (4, 2)), label="Gaussian closure")
    first = mf.to_density(one.where.start, rho.cells, low=rho.low, high=rho.high)
    ax.plot(x, np.asarray(first.values), color=style.FAINT, linewidth=1.2, label="start", zorder=1)
    ax.set(xlim=(m - 3.6 * s, m + 3.6 * s), xlabel="$x$", ylabel=rf"density at $t={T1}$")
    ax.legend(frameon=False, fontsize=8.5)
    ax.set_title("$d=1$: three laws, one curve")


def draw_plane(ax: Any, one: Compared) -> None:
    """The grid as ink, the closure as two ellipses, some tokens."""
    rho = one.density
    values, (x, y) = np.asarray(rho.values), (np.asarray(rho.centres(a)) for a in (0, 1))
    ax.contourf(x, y, values.T, levels=14, cmap=INK_MAP)
    points = np.asarray(one.tokens.points)[:400]
    angles = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ax.scatter(*points.T, s=5, color=TOKENS, linewidth=0, alpha=0.9, zorder=2)
    for share in SHARES:
        ax.contour(x, y, values.T, levels=[enclosing_level(values, share)], colors=[GRID], linewidths=2.4, zorder=3)
        # A Gaussian holds this share inside of r standard deviations: share = 1 - exp(-r^2 / 2).
        ring = np.sqrt(-2 * np.log(1 - share)) * circle @ np.asarray(one.closure.factor).T
        ax.plot(*(np.asarray(one.closure.mean) + ring).T, color=CLOSURE, linewidth=1.3, linestyle=(0, (4, 2)), zorder=4)
    m, s = np.asarray(one.closure.mean), np.sqrt(np.diag(np.asarray(one.closure.covariance)))
    ax.set(xlim=(m[0] - 3.2 * s[0], m[0] + 3.2 * s[0]), ylim=(m[1] - 3.2 * s[1], m[1] + 3.7 * s[1]))
    ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    ax.legend(
        handles=[
            Line2D([], [], color=TOKENS, marker="o", markersize=3, linestyle="", label="tokens"),
            Line2D([], [], color=GRID, linewidth=2.4, label="grid"),
            Line2D([], [], color=CLOSURE, linewidth=1.3, linestyle=(0, (4, 2)), label="Gaussian closure"),
        ],
        frameon=False,
        fontsize=8.5,
        loc="upper center",
        ncols=3,
        columnspacing=1.2,
        handlelength=1.6,
    )
    ax.set_title("$d=2$: the same contours three times")


def draw_errors(ax: Any, one: Compared) -> None:
    """Errors over the number of unknowns, with their orders."""
    look: dict[str, Any] = {"markerfacecolor": style.PAPER, "markeredgewidth": 1.5, "markersize": 5.5}
    order, rate = -slope(one.cells, one.grid_errors), slope(one.n, one.token_errors)
    ax.plot(one.unknowns, one.grid_errors, "o-", color=GRID, label=f"grid: order ${order:.2f}$ in the side", **look)
    ax.plot(one.n, one.token_errors, "s-", color=TOKENS, label=f"tokens: slope ${rate:.2f}$", **look)
    for sizes, errors, power in ((one.unknowns, one.grid_errors, -2 / one.where.d), (one.n, one.token_errors, -0.5)):
        guide = 0.6 * errors[0] * (sizes / sizes[0]) ** power
        ax.plot(sizes, guide, ":", color=style.SOFT, linewidth=1.3)
    ax.plot([], [], ":", color=style.SOFT, label=r"theory: order $2$ and slope $-1/2$")
    ax.set(xscale="log", yscale="log", xlabel="unknowns: cells or tokens")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"${number(value, 6)}$"))
        axis.set_minor_locator(ticker.NullLocator())
    ax.set_ylabel("$W_1$ to the closure" if one.where.d == 1 else "sliced $W_1$ to the closure")
    ax.legend(frameon=False, fontsize=8.5)
    ax.set_title(f"$d={one.where.d}$: errors")


ITEM = Item(
    id="A11",
    title="Three representations of one flow",
    setting=rf"Softmax on a Gaussian law in $d=1$ and $d=2$, until $t={T1}$: the PDE "
    r"$\partial_t\rho+\mathrm{div}(\rho\,\Gamma_\rho)=0$ by finite volumes on a grid, random tokens, and the exact "
    r"moment equations $\dot m=u$, $\dot\Sigma=G\Sigma+\Sigma G^\top$.",
    compute=compute,
    minutes=(0.3, 3.5),
)

r"""A7: tokens drawn from a Gaussian follow the exact Gaussian flow up to an error of order $n^{-1/2}$."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import meanformer as mf

from ....plots import style
from ....plots.rates import plot_rate
from ....theory.meanfield import MeanFieldRate, _fit
from ..base import Budget, Found, Item, Picture, Row, within

I = np.eye(2)
FIELD = (I / 2, I, I)  # Q, K, V: A = K^T Q = I / 2
START = ([0.0, 0.0], [[0.4, 0.0], [0.0, 0.1]])
T1 = 1.0
# Reference draws, one each, computed independently of this code: relative errors of the covariance at t = 1.
REFERENCE_DRAWS = {250: 0.086, 1000: 0.054, 4000: 0.023}
# Above so many tokens sums are approximate, of this accuracy, at a cost of O(n).
MOST_EXACT, ACCURACY = 4000, 1e-6
# Fewer tokens than this are filled up by tokens of weight 0, so that one compiled program serves several n.
FEWEST = 1000
# Plans are made for tokens so much farther out than at the start, so that one lasts for the whole run and every draw.
SPREAD = 1.6


def drawn_flows(
    field: Any, law: Any, t1: float, n: int, repeats: int, key: jax.Array, rtol: float = 1e-5
) -> Iterator[mf.PointCloud]:
    """Flow `n` tokens drawn from a law, `repeats` times: where they are at `t1`."""
    accuracy: Any = None
    for one in jax.random.split(key, repeats):
        tokens = filled(law.sample(n, key=one))
        if n > MOST_EXACT and accuracy is None:
            accuracy = mf.plan(field, tokens.with_points(SPREAD * tokens.points), ACCURACY)
        run = mf.flow(field, tokens, t1, save=2, rtol=rtol, accuracy=accuracy, progress=False)
        if not run.outcome.ok:
            raise RuntimeError(f"a run of {n} tokens ended early: {run.outcome}")
        yield run.final


def filled(tokens: mf.PointCloud) -> mf.PointCloud:
    """The same measure by `FEWEST` tokens or more: those that are added have no weight."""
    more = max(0, FEWEST - tokens.n)
    weights = jnp.pad(tokens.weights, (0, more))
    return mf.PointCloud(jnp.pad(tokens.points, ((0, more), (0, 0))), weights)


def covariance_errors(
    field: Any, law: Any, t1: float, exact: np.ndarray, n: int, repeats: int, key: jax.Array
) -> np.ndarray:
    r"""$\|\Sigma_n-\Sigma\|_F/\|\Sigma\|_F$ at `t1` for each draw of `n` tokens."""
    ends = drawn_flows(field, law, t1, n, repeats, key)
    gaps = [np.linalg.norm(np.asarray(mu.covariance) - exact) for mu in ends]
    return np.array(gaps) / np.linalg.norm(exact)


def fitted_rate(
    n: Sequence[int], errors: Sequence[np.ndarray], t1: float, reference: str = "the exact Gaussian"
) -> MeanFieldRate:
    """Errors of several draws of each `n`, with the slope of their root mean squares and its 95 % interval."""
    slope, interval = _fit(np.array(n), list(errors), np.ones(len(n)))
    rms = np.array([np.sqrt(np.mean(row**2)) for row in errors])
    return MeanFieldRate(np.array(n), tuple(errors), rms, slope, interval, "covariance", reference, np.nan, t1)


def draw_row(n: int, reference: float, errors: np.ndarray) -> Row:
    """Whether a reference draw is one as ours are: inside of 95 % of them."""
    low, middle, high = np.quantile(errors, [0.025, 0.5, 0.975])
    verdict = "holds" if low <= reference <= high else "fails"
    ours = f"median {100 * middle:.1f} %, 95 % of draws in {100 * low:.1f} to {100 * high:.1f} %"
    why = f"the reference is a single draw, computed independently, not a published number; ours are {len(errors)}"
    claim = rf"relative error of the covariance, $n={n}$"
    return Row(claim, f"{100 * reference:.1f} %", ours, "inside of 95 % of our draws", verdict, why)


def compute(budget: Budget) -> Found:
    """Errors for growing numbers of tokens, and the slope of their fit."""
    sizes = budget.choose((250, 1000, 4000), (250, 1000, 4000, 16_000, 64_000, 250_000, 1_000_000))
    repeats = budget.choose((32, 24, 8), (96, 96, 40, 24, 12, 6, 3))
    field = mf.Softmax(*(jnp.asarray(M) for M in FIELD))
    law = mf.Gaussian(*START)
    exact = np.asarray(mf.flow(field, law, T1, save=2, solver="tsit5", progress=False).final.covariance)
    keys = jax.random.split(jax.random.key(budget.seed), len(sizes))
    errors = []
    for k, (n, count) in enumerate(zip(sizes, repeats, strict=True)):
        budget.say(sum(sizes[:k]) / sum(sizes), f"{count} draws of {n} tokens")
        errors.append(covariance_errors(field, law, T1, exact, n, count, keys[k]))
    rate = fitted_rate(sizes, errors, T1)
    low, high = rate.interval
    rows = [
        within(r"$\Sigma_{11}(1)$ of the Gaussian flow", 2 / 3, float(exact[0, 0]), 1e-6),
        within(r"$\Sigma_{22}(1)$ of the Gaussian flow", 1 / 9, float(exact[1, 1]), 1e-6),
        within(
            f"slope of the error of the covariance in $n$, up to {sizes[-1]:,} tokens",
            -0.5,
            rate.slope,
            0.15,
            f"95 % interval {low:.3f} to {high:.3f}, by bootstrap over the draws",
            relative=False,
        ),
        *(draw_row(n, share, errors[sizes.index(n)]) for n, share in REFERENCE_DRAWS.items()),
    ]
    words = (
        f"Relative errors of the covariance of up to {sizes[-1]:,} tokens at $t=1$, against the exact Gaussian flow. "
        f"Dots are single draws, circles their root mean squares; the line is the fit of slope ${rate.slope:.3f}$, "
        "the dotted one has the slope $-1/2$ of the theory. Crosses are single reference draws, computed independently."
    )
    return Found(rows, [Picture("mean_field_rate", rate_figure(rate), words)])


def rate_figure(rate: MeanFieldRate) -> Figure:
    """Errors over the number of tokens, with the reference draws."""
    with style.style():
        figure = Figure(figsize=(6.8, 4.6), dpi=style.DPI, layout="constrained")
        ax = figure.add_subplot()
        plot_rate(rate, ax, legend=False, title="Tokens approach the Gaussian flow like $n^{-1/2}$")
        look: dict[str, Any] = {"color": style.PALETTE[1], "markeredgewidth": 2.0, "markersize": 7, "zorder": 5}
        ax.plot(list(REFERENCE_DRAWS), list(REFERENCE_DRAWS.values()), "x", label="reference (single draws)", **look)
        ax.set_ylabel(r"$\|\Sigma_n-\Sigma\|_F\,/\,\|\Sigma\|_F$ at $t=1$")
        ax.legend(frameon=False, fontsize=8.5)
    return figure


ITEM = Item(
    id="A7",
    title="The mean-field limit: particles follow the Gaussian closure",
    setting=r"Softmax with $A=K^\top Q=I/2$, $V=I$ in $d=2$; $n$ tokens drawn from $\mathcal N(0,\Sigma_0)$, "
    r"$\Sigma_0=\mathrm{diag}(0.4,0.1)$, flow until $t=1$, where the Gaussian flow has "
    r"$\Sigma(1)=\mathrm{diag}(2/3,1/9)$. Above 4000 tokens sums take $O(n)$ work, with an accuracy of $10^{-6}$.",
    compute=compute,
    minutes=(0.3, 3.6),
)

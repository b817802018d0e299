r"""A1: the covariance of a Gaussian under softmax attention with $V=I$, in closed form, and its blow-up time."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

import meanformer as mf

from ....fate import FateKind
from ....plots import style
from ..base import Budget, Found, Item, Picture, Row
from .gaussians import SAVES, relative_errors
from .rows import error_row, judged

D = 5  # of the blow-ups; the flows are those of the plane


class Draws(NamedTuple):
    r"""Problems: `Q`, `K` and the factor `M` of $\Sigma_0=MM^\top$, each (count, d, d)."""

    Q: np.ndarray
    K: np.ndarray
    M: np.ndarray

    @property
    def d(self) -> int:
        """The dimension."""
        return self.Q.shape[-1]

    @property
    def starts(self) -> list[mf.Gaussian]:
        r"""$\mathcal N(0,MM^\top)$ for each."""
        return [mf.Gaussian(np.zeros(self.d), factor=M) for M in self.M]

    @property
    def A(self) -> np.ndarray:
        r"""$A=K^\top Q$."""
        return self.K.swapaxes(1, 2) @ self.Q


def draw(d: int, count: int, seed: int) -> Draws:
    """Standard normal matrices; in every third problem $K=-Q$, for which there is no blow-up."""
    Q, K, M = np.random.default_rng([seed, d]).standard_normal((3, count, d, d))
    K[::3] = -Q[::3]
    return Draws(Q, K, M)


def blow_up_times(draws: Draws) -> np.ndarray:
    r"""$T^*=1/\lambda_{\max}(\Sigma_0^{1/2}(A+A^\top)\Sigma_0^{1/2})$, infinite if that is not positive.

    The eigenvalues are those of $M^\top(A+A^\top)M$, since $\Sigma_0=MM^\top$.
    """
    top = np.linalg.eigvalsh(draws.M.swapaxes(1, 2) @ (draws.A + draws.A.swapaxes(1, 2)) @ draws.M)[:, -1]
    return np.divide(1.0, top, out=np.full(len(top), np.inf), where=top > 0)


def exact_flow(A: np.ndarray, M: np.ndarray, times: Any) -> np.ndarray:
    r"""$\Sigma(t)=(\Sigma_0^{-1}-t(A+A^\top))^{-1}=M(I-t\,M^\top(A+A^\top)M)^{-1}M^\top$, shape (times, d, d)."""
    t = np.asarray(times)[:, None, None]
    return M @ np.linalg.inv(np.eye(len(M)) - t * (M.T @ (A + A.T) @ M)) @ M.T


def detected(draws: Draws) -> mf.Fates:
    """What the flow finds out by itself."""
    import jax

    fields = jax.vmap(lambda Q, K: mf.Softmax(Q, K, np.eye(draws.d)))(draws.Q, draws.K)
    return mf.fates(fields, mf.Gaussian(np.zeros(draws.M.shape[:2]), factor=draws.M), rtol=1e-8, progress=False)


def flows(draws: Draws, exact: np.ndarray, say: Any) -> tuple[list[mf.Trajectory], np.ndarray]:
    r"""Runs to $0.9\,T^*$ (to $t=10$ if there is no blow-up), and the largest relative error of $\Sigma$ in each."""
    runs, errors = [], []
    for i, (Q, K, start) in enumerate(zip(draws.Q, draws.K, draws.starts, strict=True)):
        end = 0.9 * exact[i] if np.isfinite(exact[i]) else 10.0
        run = mf.flow(mf.Softmax(Q, K, np.eye(draws.d)), start, end, save=SAVES, progress=False)
        formula = exact_flow(draws.A[i], draws.M[i], run.times)
        errors.append(relative_errors(run.states.covariance, formula).max())
        runs.append(run)
        say((i + 1) / len(exact), f"flow {i + 1} of {len(exact)}")
    return runs, np.array(errors)


def rows_of(exact: np.ndarray, fates: mf.Fates, errors: np.ndarray) -> list[Row]:
    """The flow next to the formulas: `exact` times and the fates of the same problems, errors of other flows."""
    n, finite = len(exact), np.isfinite(exact)
    told = fates.code != FateKind.UNDECIDED
    right = fates.code == np.where(finite, FateKind.BLEW_UP, FateKind.CONVERGED)
    both, unseen = finite & right, int((finite & ~right).sum())
    return [
        error_row(
            f"Sigma(t) = (Sigma0^-1 - t (A + A^T))^-1 up to 0.9 T*, {len(errors)} flows: largest relative error",
            errors,
            1e-6,
            "Frobenius norm, at every saved time",
        ),
        Row(
            "Blow-up if and only if A + A^T has a positive eigenvalue (Sigma0 > 0)",
            f"{n} of {n}",
            f"{int(right.sum())} of {n}",
            "exact",
            judged(right[told], missing=int((~told).sum())),
            f"{int(finite.sum())} problems with a positive eigenvalue, which blow up, {int((~finite).sum())} without, "
            "which converge",
        ),
        error_row(
            "T* = 1 / lmax(Sigma0^(1/2) (A + A^T) Sigma0^(1/2)): largest relative error of the detected time",
            np.abs(fates.time[both] / exact[both] - 1),
            1e-6,
            f"{int(both.sum())} blow-ups, told from the flow alone",
            missing=unseen,
        ),
    ]


def picture(runs: list[mf.Trajectory], draws: Draws, ends: np.ndarray, exact: np.ndarray, fates: mf.Fates) -> Figure:
    """Left: the trace of some covariances, whose blow-up is at `ends`; right: errors of all detected times."""
    finite = np.flatnonzero(np.isfinite(ends))
    shown = finite[np.argsort(ends[finite])][np.linspace(0, len(finite) - 1, min(5, len(finite))).round().astype(int)]
    with style.style():
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        for colour, i in zip(style.PALETTE, shown, strict=False):
            times = np.concatenate([np.geomspace(1e-4, 0.5, 60), 1 - np.geomspace(0.49, 5e-3, 40)])
            formula = exact_flow(draws.A[i], draws.M[i], times * ends[i])
            left.plot(times, _traces(formula), color=colour, linewidth=1.3, label=f"$T^{{*}}={ends[i]:.3g}$")
            places = np.asarray(runs[i].times)[::6] / ends[i]
            left.plot(places, _traces(runs[i].states.covariance)[::6], "o", color=colour, markersize=4.5)
        left.axvline(1.0, color=style.SOFT, linewidth=0.9, linestyle="--")
        left.set(yscale="log", xlabel="$t/T^{*}$", ylabel=r"$\mathrm{tr}\,\Sigma(t)$", xlim=(-0.02, 1.03))
        left.set_title("Curves: closed form.  Dots: flow")
        left.legend(frameon=False, fontsize=8.5)
        both = np.isfinite(exact) & (fates.code == FateKind.BLEW_UP)
        gaps = np.maximum(np.abs(fates.time[both] / exact[both] - 1), 1e-16)
        right.plot(exact[both], gaps, "o", color=style.PALETTE[0], markersize=4, alpha=0.75)
        right.axhline(1e-6, color=style.PALETTE[1], linewidth=1.1, linestyle="--")
        words = {"fontsize": 8.5, "ha": "right", "color": style.PALETTE[1]}
        right.text(0.99, 1.3e-6, "tolerance", transform=right.get_yaxis_transform(), **words)
        right.set(xscale="log", yscale="log", xlabel="exact $T^{*}$", ylabel="relative error of detected $T^{*}$")
        right.xaxis.set_minor_formatter(ticker.NullFormatter())
        right.set_ylim(top=1e-5)
        right.set_title(f"{int(both.sum())} detected blow-ups")
    return figure


def _traces(covs: Any) -> np.ndarray:
    return np.trace(np.asarray(covs), axis1=1, axis2=2)


def compute(budget: Budget) -> Found:
    """Fates in dimension five, and flows in the plane, next to the formulas."""
    many = draw(D, budget.choose(30, 300), budget.seed)
    exact = blow_up_times(many)
    budget.say(0.05, "fates")
    fates = detected(many)
    few = draw(2, budget.choose(18, 150), budget.seed)
    ends = blow_up_times(few)
    runs, errors = flows(few, ends, lambda share, words: budget.say(0.2 + 0.8 * share, words))
    caption = (
        r"Softmax attention with $V=I$ on Gaussians. Left: the trace of five covariances of the plane over time, in "
        r"units of the exact $T^{*}$; the flow (dots, to $0.9\,T^{*}$) lies on the closed form (curves). Right: the "
        r"blow-up times that flows in $\mathbb{R}^5$ find by themselves, against the formula."
    )
    return Found(
        rows_of(exact, fates, errors),
        [Picture("blow_up", picture(runs, few, ends, exact, fates), caption)],
        ["In every third draw $K=-Q$: then there is no blow-up, and none is reported."],
    )


ITEM = Item(
    "A1",
    "Softmax, V = I: the covariance in closed form, and its blow-up time",
    r"Centred Gaussians in $\mathbb{R}^5$ and $\mathbb{R}^2$, $Q$, $K$ and $M$ iid normal, $\Sigma_0=MM^\top$, "
    r"$A=K^\top Q$, $V=I$: $\Sigma(t)=(\Sigma_0^{-1}-t(A+A^\top))^{-1}$, with blow-up at "
    r"$T^{*}=1/\lambda_{\max}\big(\Sigma_0^{1/2}(A+A^\top)\Sigma_0^{1/2}\big)$ if that is positive.",
    compute,
    minutes=(0.15, 0.5),
)

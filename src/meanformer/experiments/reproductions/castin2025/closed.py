"""A5, A5b, A6: L2 and Sinkhorn attention on Gaussians, in closed form."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import quad

import meanformer as mf

from ....fate import FateKind
from ....plots import style
from ..base import Budget, Found, Item, Picture, Row, within
from .gaussians import SAVES, centred, relative_errors
from .rows import error_row, judged

I = np.eye(2)


def random_covariances(count: int, seed: int) -> np.ndarray:
    r"""$\Sigma_0=MM^\top$ with $M$ iid normal, in the plane."""
    M = np.random.default_rng(seed).standard_normal((count, 2, 2))
    return M @ M.swapaxes(1, 2)


# A5: L2 attention with K = Q = V = I


def compute_growth(budget: Budget) -> Found:
    r"""$\dot\Sigma=4(\Sigma^{-1}+2I)^{-1}\Sigma$: no blow-up, and all eigenvalues grow like $e^{2t}$ in the end."""
    covs = random_covariances(budget.choose(20, 200), budget.seed)
    field, t1 = mf.L2(I, I, I), 12.0
    found = mf.fates(field, centred(covs), progress=False)
    budget.say(0.5, "flow")
    # One wide and one narrow direction: the narrow one takes off later.
    start = centred(np.array([[0.5, 0.1], [0.1, 0.12]]))
    run = mf.flow(field, start, t1, save=SAVES, progress=False)
    exact = mf.matched_flow("l2", I, 1, start, run.times)
    values = np.linalg.eigvalsh(np.asarray(run.states.covariance))
    times = np.asarray(run.times)
    slopes = np.log(values[1:] / values[:-1]) / np.diff(times)[:, None]
    kinds = found.counts()
    rows = [
        growth_row(found),
        within(
            "d/dt log tr Sigma tends to 2: the rate farthest from it",
            2.0,
            float(found.growth[np.abs(found.growth - 2).argmax()]),
            1e-6,
            "when the trace is a billion times that of the start",
        ),
        within(
            f"d/dt log of the smaller eigenvalue tends to 2: at t = {t1:g}",
            2.0,
            float(slopes[-1, 0]),
            1e-4,
            "difference quotient between the last two saved times",
        ),
        error_row(
            "Sigma(t) in closed form (Wright's omega function): largest relative error",
            relative_errors(run.states.covariance, exact.covariance),
            1e-6,
        ),
    ]
    caption = (
        r"L2 attention with $Q=K=V=I$, one Gaussian of the plane. Left: the eigenvalues of $\Sigma$ (dots: flow; "
        r"lines: closed form). Right: their logarithmic slopes $4\lambda/(1+2\lambda)$, which tend to 2: exponential "
        "growth, no blow-up."
    )
    remarks = [f"Fates of {len(covs)} random starts: {kinds['DIVERGED']} diverge, {kinds['BLEW_UP']} blow up."]
    return Found(rows, [Picture("l2_growth", growth_picture(times, values, slopes, exact), caption)], remarks)


def growth_row(found: mf.Fates) -> Row:
    """No blow-up in any run."""
    grown = int(sum(found[i].law == "exponential" for i in range(len(found))))
    words = f"{grown} of {len(found)}"
    verdict = "holds" if grown == len(found) else "undecided" if (found.code != FateKind.BLEW_UP).all() else "fails"
    return Row(
        "L2, K = Q = V = I: no blow-up, exponential growth", f"{len(found)} of {len(found)}", words, "exact", verdict
    )


def growth_picture(times: np.ndarray, values: np.ndarray, slopes: np.ndarray, exact: mf.Gaussian) -> Figure:
    """Eigenvalues and their slopes."""
    lines = np.linalg.eigvalsh(np.asarray(exact.covariance))
    with style.style():
        figure = Figure(figsize=(9.6, 3.7), layout="constrained")
        left, right = figure.subplots(1, 2)
        for i, name in enumerate((r"$\lambda_2$", r"$\lambda_1$")):
            colour = style.PALETTE[1 - i]
            left.plot(times, lines[:, i], color=colour, linewidth=1.3)
            left.plot(times[::4], values[::4, i], "o", color=colour, markersize=4, label=name)
            right.plot((times[1:] + times[:-1]) / 2, slopes[:, i], color=colour, linewidth=1.6, label=name)
        right.axhline(2, color=style.SOFT, linewidth=0.9, linestyle="--")
        left.set(yscale="log", xlabel="$t$", ylabel="eigenvalues", title="Eigenvalues of the covariance")
        right.set(xlabel="$t$", ylabel=r"$d\,\log\lambda_i/dt$", title="Logarithmic slopes", ylim=(0, 2.15))
        for ax in (left, right):
            ax.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


# A5b: an L2 attention that blows up

Q_ROW, K_ROW, V_ONE = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), np.diag([0.0, 1.0])


def counterexample(slant: float = 0.0) -> mf.L2:
    r"""$K=(1\ 0)$, $Q=(0\ 1)$, $V=\mathrm{diag}(0,1)$, with rows of zeros; with `slant`, $K$ has full rank."""
    zero = np.zeros((1, 2))
    return mf.L2(np.concatenate([Q_ROW, zero]), np.concatenate([K_ROW, slant * Q_ROW]), V_ONE)


def l2_blow_up_times(covs: np.ndarray) -> np.ndarray:
    r"""$t^*=(1+2\Sigma_{11})/(2\Sigma_{12})$ of each start, with $\Sigma_{12}>0$."""
    return (1 + 2 * covs[..., 0, 0]) / (2 * covs[..., 0, 1])


def compute_counterexample(budget: Budget) -> Found:
    r"""$t^*=(1+2\Sigma_{11})/(2\Sigma_{12})$."""
    covs = random_covariances(budget.choose(20, 200), budget.seed + 1)
    covs[:, 0, 1] = covs[:, 1, 0] = np.abs(covs[:, 0, 1])  # to the side of the blow-up
    exact = l2_blow_up_times(covs)
    found = mf.fates(counterexample(), centred(covs), progress=False)
    budget.say(0.4, "K of full rank")
    slants = (1.0, 0.3, 0.1)
    full_rank = {slant: mf.fates(counterexample(slant), centred(covs), progress=False) for slant in slants}
    budget.say(0.8, "picture")
    return Found(
        counterexample_rows(exact, found, full_rank),
        [Picture("l2_blow_up", counterexample_picture(exact, found), COUNTEREXAMPLE)],
        [
            r"$\|G\|\leq\|V\|\|Q\|\|K^+\|$ needs a $K$ of full column rank, and so does global existence. "
            r"With $K=(1\ 0)$, $\Sigma_{11}$ stays and $\dot\Sigma_{12}=2\Sigma_{12}^2/(1+2\Sigma_{11})$. The "
            'poster\'s "always global" leaves the hypothesis out; the paper may well state one.'
        ],
    )


def counterexample_rows(exact: np.ndarray, found: mf.Fates, full_rank: dict[float, mf.Fates]) -> list[Row]:
    """The blow-up next to its closed form; and none with a second row in $K$."""
    blown, n = found.code == FateKind.BLEW_UP, len(exact)
    every = np.concatenate([fates.code for fates in full_rank.values()])
    told = every != FateKind.UNDECIDED
    global_runs = np.isin(every, (FateKind.CONVERGED, FateKind.DIVERGED))
    return [
        Row(
            'L2 attention is "always global", as the poster prints it',
            "no blow-up",
            f"{blown.sum()} of {n} blow up",
            "exact",
            "misleads" if blown.any() else judged(~blown, missing=int((found.code == FateKind.UNDECIDED).sum())),
            "needs a hypothesis such as full column rank of K, which the paper may state: with it there is no blow-up, "
            "see below; here K = (1 0)",
        ),
        error_row(
            "K = (1 0), Q = (0 1), V = diag(0, 1): blow-up at t* = (1 + 2 Sigma_11) / (2 Sigma_12): largest relative "
            "error",
            np.abs(found.time / exact - 1)[blown],
            1e-6,
            f"{n} random starts with Sigma_12 > 0",
            missing=int((~blown).sum()),
        ),
        Row(
            f"The same with K = (1 0; 0 s), s = {', '.join(f'{s:g}' for s in full_rank)}, of full rank: no blow-up",
            f"{len(every)} of {len(every)}",
            f"{global_runs.sum()} of {len(every)}",
            "exact",
            judged(global_runs[told], missing=int((~told).sum())),
            "each run converges or grows exponentially",
        ),
    ]


COUNTEREXAMPLE = (
    r"L2 attention with $K=(1\ 0)$, $Q=(0\ 1)$, $V=\mathrm{diag}(0,1)$. Left: $\Sigma_{12}$ and $\Sigma_{22}$ from one "
    r"start (dots: flow; lines: closed form) blow up at $t^{*}$; with a second row $(0\ s)$ in $K$ (grey, "
    r"$\Sigma_{22}$) they only grow exponentially. Right: detected and exact $t^{*}$ of all starts."
)


def counterexample_picture(exact: np.ndarray, found: mf.Fates) -> Figure:
    """One start over time, and all blow-up times."""
    cov = np.array([[0.5, 0.4], [0.4, 1.0]])
    start, end = centred(cov), float(l2_blow_up_times(cov))
    fine = np.linspace(0, 0.985, 200)
    run = mf.flow(counterexample(), start, 0.96 * end, save=SAVES, progress=False)
    grey = {s: mf.flow(counterexample(s), start, 1.25 * end, save=SAVES, progress=False) for s in (0.3, 0.5, 1.0)}
    with style.style():
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        for power, (i, j, value) in enumerate(((0, 1, 0.4), (1, 1, 1.0)), start=1):
            colour = style.PALETTE[power - 1]
            left.plot(fine * end, value / (1 - fine) ** power, color=colour, linewidth=1.3)
            ours = np.asarray(run.states.covariance)[::5, i, j]
            name = rf"$\Sigma_{{{i + 1}{j + 1}}}$"
            left.plot(np.asarray(run.times)[::5], ours, "o", color=colour, markersize=4, label=name)
        left.axvline(end, color=style.SOFT, linewidth=0.9, linestyle="--")
        for s, other in grey.items():
            sizes = np.asarray(other.states.covariance)[:, 1, 1]
            left.plot(np.asarray(other.times), sizes, color=style.SOFT, linewidth=1.1)
            left.annotate(f"$s={s:g}$", (float(other.times[-1]), sizes[-1]), xytext=(3, -3), textcoords="offset points")
        left.set(yscale="log", xlabel="$t$", ylabel="covariance", xlim=(0, 1.34 * end))
        left.set_title(f"One start: $t^{{*}}={end:g}$")
        left.legend(frameon=False, fontsize=9, loc="upper left")
        low, high = 0.8 * exact.min(), 1.25 * exact.max()
        right.plot([low, high], [low, high], color=style.SOFT, linewidth=0.9)
        right.plot(exact, found.time, "o", color=style.PALETTE[0], markersize=4, alpha=0.75)
        right.set(xscale="log", yscale="log", xlabel=r"$(1+2\Sigma_{11})/(2\Sigma_{12})$", ylabel="detected $t^{*}$")
        right.set(xlim=(low, high), ylim=(low, high), aspect="equal", title=f"{len(exact)} starts")
    return figure


# A6: Sinkhorn attention on the line

KERNELS = {"dot": 1.0, "distance": 2.0}  # the kernel, and what multiplies a in its equation


def sinkhorn_time(a: float, v: float, start: float, end: float) -> float:
    r"""The time from variance `start` to `end` by quadrature of $\dot\sigma=\frac va(\sqrt{1+4a^2\sigma^2}-1)$."""

    def pace(log_variance: float) -> float:
        s = np.exp(log_variance)
        # sqrt(1 + x) - 1 = x / (1 + sqrt(1 + x)): no cancellation.
        return (1 + np.sqrt(1 + 4 * a**2 * s**2)) / (4 * a * v * s)

    return quad(pace, np.log(start), np.log(end), epsabs=0.0, epsrel=1e-12, limit=200)[0]


def compute_sinkhorn(budget: Budget) -> Found:
    """The flow of two variances at once, next to quadrature, with both kernels."""
    # Two problems on a line each, as one in the plane with diagonal matrices: one grows, one shrinks.
    q, k, v, variances, t1 = np.array([0.9, -0.8]), np.array([1.2, 0.7]), 0.8, np.array([0.05, 3.0]), 6.0
    start = centred(np.diag(variances))
    runs, rows = {}, []
    for share, (kernel, factor) in enumerate(KERNELS.items()):
        budget.say(share / 2, f"kernel {kernel}")
        field = mf.Sinkhorn(np.diag(q), np.diag(k), v * I, kernel=kernel)
        run = mf.flow(field, start, t1, save=SAVES, progress=False)
        runs[kernel] = run
        sizes = np.einsum("tii->ti", np.asarray(run.states.covariance))
        for i, word in enumerate(("grows", "shrinks")):
            rows.append(quadrature_row(kernel, factor, word, q[i] * k[i], v, np.asarray(run.times), sizes[:, i]))
    crossed = sinkhorn_time(q[0] * k[0], v, variances[0], float(runs["distance"].final.covariance[0, 0]))
    rows.append(
        Row(
            "The conventions differ: time by the equation of one kernel to where the other is at t = 6",
            t1,
            crossed,
            "more than 1 apart",
            "holds" if abs(crossed - t1) > 1 else "fails",
            "a convention that were not told apart would show here",
        )
    )
    caption = (
        r"Variances on the line under Sinkhorn attention, $\dot\sigma=\frac{v}{b}(\sqrt{1+4b^2\sigma^2}-1)$: $b=a$ for "
        r"the kernel $e^{Qx\cdot Ky}$, $b=2a$ for $e^{-|Qx-Ky|^2}$. Dots: flow; lines: quadrature."
    )
    return Found(rows, [Picture("sinkhorn_line", sinkhorn_picture(runs, q * k, v), caption)])


def quadrature_row(
    kernel: str, factor: float, word: str, a: float, v: float, times: np.ndarray, sizes: np.ndarray
) -> Row:
    """The times of a run next to those of quadrature between its variances."""
    chosen = np.arange(5, len(times), 5)
    exact = np.array([sinkhorn_time(factor * a, v, sizes[0], sizes[i]) for i in chosen])
    return error_row(
        f'kernel "{kernel}" (b = {"2 a" if factor == 2 else "a"}), a = {a:.3g}, a variance that {word}: largest '
        "relative error of the time by quadrature",
        np.abs(exact / times[chosen] - 1),
        1e-6,
    )


def sinkhorn_picture(runs: dict[str, Any], a: np.ndarray, v: float) -> Figure:
    """Variances over time, growing and shrinking."""
    with style.style():
        figure = Figure(figsize=(9.6, 3.7), layout="constrained")
        for i, ax in enumerate(figure.subplots(1, 2)):
            for colour, (kernel, run) in zip(style.PALETTE, runs.items(), strict=False):
                sizes = np.asarray(run.states.covariance)[:, i, i]
                line = np.geomspace(sizes[0], sizes[-1], 40)
                times = [sinkhorn_time(KERNELS[kernel] * a[i], v, line[0], s) for s in line]
                ax.plot(times, line, color=colour, linewidth=1.3)
                name = f'kernel "{kernel}"'
                ax.plot(np.asarray(run.times)[::5], sizes[::5], "o", color=colour, markersize=4, label=name)
            ax.set(yscale="log", xlabel="$t$", ylabel=r"variance $\sigma(t)$")
            ax.set_title(f"$a={a[i]:.3g}$, $v={v:g}$: " + ("growth $e^{2vt}$" if a[i] > 0 else "decay $1/t$"))
            ax.legend(frameon=False, fontsize=9)
    return figure


ITEMS = [
    Item(
        "A5",
        "L2 attention, K = Q = V = I: exponential growth, no blow-up",
        r"$\dot\Sigma=4(\Sigma^{-1}+2I)^{-1}\Sigma$ in the plane; the logarithmic slope of each eigenvalue is "
        r"$4\lambda/(1+2\lambda)$ and tends to 2.",
        compute_growth,
        minutes=(0.1, 0.1),
    ),
    Item(
        "A5b",
        "L2 attention that blows up: global existence needs a hypothesis on K",
        r"$K=(1\ 0)$, $Q=(0\ 1)$, $V=\mathrm{diag}(0,1)$: blow-up at $t^{*}=(1+2\Sigma_{11})/(2\Sigma_{12})$ if "
        r"$\Sigma_{12}>0$. With $K$ of full column rank there is none.",
        compute_counterexample,
        minutes=(0.05, 0.2),
    ),
    Item(
        "A6",
        "Sinkhorn attention on the line, in both conventions",
        r"$\dot\sigma=\frac{v}{b}(\sqrt{1+4b^2\sigma^2}-1)$, with $b=a=qk$ for the kernel $e^{Qx\cdot Ky}$ and $b=2a$ "
        r"for $e^{-|Qx-Ky|^2}$.",
        compute_sinkhorn,
        minutes=(0.1, 0.1),
    ),
]

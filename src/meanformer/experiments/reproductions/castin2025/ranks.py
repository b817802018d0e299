r"""A2, A3: ranks of the limits of random Gaussians with $K=-Q$.

$Q\in\mathbb R^{\lfloor d/2\rfloor\times d}$ iid normal, $K=-Q$, exponent divided by $\sqrt d$, $\Sigma_0=MM^\top$ with
$M$ iid normal. For symmetric $V\succ0$ every limit has $Q\Sigma_\infty=0$ and rank exactly
$d-\lfloor d/2\rfloor=\lceil d/2\rceil$; for $V=I$ it is $N(N^\top\Sigma_0^{-1}N)^{-1}N^\top$, $N=\ker Q$ (MATH e.4).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import meanformer as mf

from ....fate import FateKind
from ....plots import style
from ..base import Budget, Found, Item, Picture, Row
from .gaussians import kernel_limit, relative_errors
from .rows import error_row

DIMENSIONS = (3, 4, 5)
KINDS: dict[str, Callable[..., Any]] = {
    "softmax": lambda *matrices: mf.Softmax(*matrices),
    "L2": lambda *matrices: mf.L2(*matrices),
    "Sinkhorn": lambda *matrices: mf.Sinkhorn(*matrices),
}
RTOL = 1e-7
# Limits are read at a finite time, which they approach like 1/t.
LIMIT_ERROR, KERNEL_ERROR = 1e-3, 1e-2

# The procedure behind the published histograms, as the authors' public script has it: explicit Euler steps on Sigma
# of these sizes, negative eigenvalues then replaced by 1e-14, until the speed is below TOLERANCE (or the trace above
# TOO_LARGE, and another start is drawn); rank is the number of eigenvalues above THRESHOLD, and what is above ceil(d/2)
# is left out of the figure.
EULER_STEPS = {3: 0.09, 4: 0.05, 5: 0.02}
TOLERANCE, TOO_LARGE, MOST_STEPS = 1e-4, 1e3, 60_000
THRESHOLD = 0.1


class Draws(NamedTuple):
    r"""Problems in one dimension: `Q` (count, k, d), `M` and `W` (count, d, d), with $V=W^\top W$ or $I$."""

    Q: np.ndarray
    M: np.ndarray
    W: np.ndarray

    @property
    def d(self) -> int:
        """The dimension."""
        return self.Q.shape[-1]

    @property
    def rank(self) -> int:
        r"""$\lceil d/2\rceil$: the rank of every limit, by the theorem."""
        return self.d - self.Q.shape[-2]

    @property
    def start(self) -> mf.Gaussian:
        r"""$\mathcal N(0,MM^\top)$, a batch."""
        return mf.Gaussian(np.zeros(self.M.shape[:2]), factor=self.M)


def draw(d: int, count: int, seed: int) -> Draws:
    """`count` problems in dimension `d`."""
    rng = np.random.default_rng([seed, d])
    return Draws(*(rng.standard_normal((count, rows, d)) for rows in (d // 2, d, d)))


def fates(kind: str, draws: Draws, identity: bool) -> mf.Fates:
    """The fates of all problems under one kind of attention; `identity`: with $V=I$."""
    import jax

    V = np.broadcast_to(np.eye(draws.d), draws.W.shape) if identity else draws.W.swapaxes(1, 2) @ draws.W
    make = KINDS[kind]
    fields = jax.vmap(lambda Q, V: make(Q, -Q, V, draws.d**0.5))(draws.Q, V)
    return mf.fates(fields, draws.start, rtol=RTOL, progress=False)


def exact_limits(draws: Draws) -> np.ndarray:
    r"""$N(N^\top\Sigma_0^{-1}N)^{-1}N^\top$, $N=\ker Q$, for every problem."""
    return np.stack([kernel_limit(Q, M @ M.T) for Q, M in zip(draws.Q, draws.M, strict=True)])


class Published(NamedTuple):
    """What the published procedure says of each problem: a rank, -1 for a run that is drawn again (it grew beyond all
    bounds, or took too long), and whether the first Euler step left the cone of positive matrices.
    """

    rank: np.ndarray
    left_cone: np.ndarray


def published(draws: Draws) -> Published:
    r"""The published procedure, $V=I$: $\Sigma\leftarrow P_+\big(\Sigma+h(\Sigma A\Sigma+\Sigma A^\top\Sigma)\big)$."""
    h, A = EULER_STEPS[draws.d], -draws.Q.swapaxes(1, 2) @ draws.Q / draws.d**0.5
    Sigma = draws.M @ draws.M.swapaxes(1, 2)
    rank, left_cone = np.full(len(A), -1), np.zeros(len(A), bool)
    active = np.arange(len(A))
    for step in range(MOST_STEPS):
        S = Sigma[active]
        speed = 2 * S @ A[active] @ S
        values, vectors = np.linalg.eigh(S + h * speed)
        if step == 0:
            left_cone = values[:, 0] < 0
        Sigma[active] = (vectors * np.where(values < 0, 1e-14, values)[:, None, :]) @ vectors.swapaxes(1, 2)
        converged = np.linalg.norm(speed, axis=(1, 2)) < TOLERANCE
        rank[active[converged]] = (np.linalg.eigvalsh(S[converged]) > THRESHOLD).sum(axis=1)
        active = active[~converged & (np.trace(Sigma[active], axis1=1, axis2=2) <= TOO_LARGE)]
        if not active.size:
            break
    return Published(rank, left_cone)


def rank_row(claim: str, ranks: np.ndarray, expected: int, why: str = "") -> Row:
    """A row that holds if every rank is `expected`, and fails if one is not; -1 is undecided."""
    wrong, unknown = int(((ranks >= 0) & (ranks != expected)).sum()), int((ranks < 0).sum())
    verdict = "fails" if wrong else "undecided" if unknown else "holds"
    return Row(claim, f"{expected} in {len(ranks)} of {len(ranks)}", counted(ranks), "exact", verdict, why)


def unclear(draws: Draws, found: mf.Fates, identity: bool) -> str:
    r"""How close to singular $\Sigma_0=MM^\top$ and $V=W^\top W$ are in the draws without a rank."""
    unknown = found.rank < 0
    if not unknown.any():
        return ""
    factors = {"Sigma0": draws.M} | ({} if identity else {"V": draws.W})
    shares = {name: (1 / np.linalg.cond(factor[unknown])) ** 2 for name, factor in factors.items()}
    words = "; ".join(f"{name} {', '.join(f'{share:.0e}' for share in values)}" for name, values in shares.items())
    return f"undecided draws: smallest over largest eigenvalue of {words}"


def counted(ranks: np.ndarray, missing: str = "undecided") -> str:
    """Ranks in short: "2 in 97, 3 undecided"."""
    values, counts = np.unique(ranks, return_counts=True)
    pairs = sorted(zip(values, counts, strict=True), key=lambda pair: -pair[1])
    return ", ".join(f"{count} {missing}" if value < 0 else f"{value} in {count}" for value, count in pairs)


def published_row(draws: Draws, found: Published, exact: np.ndarray) -> Row:
    """What the published procedure says, and why."""
    n, rank = len(found.rank), draws.rank
    lower = (found.rank >= 0) & (found.rank < rank)
    thresholded = (np.linalg.eigvalsh(exact) > THRESHOLD).sum(axis=1)
    why = (
        f"lower in {lower.sum()} draws of {n}; the first Euler step (h = {EULER_STEPS[draws.d]:g}) leaves the cone of "
        f"positive matrices in {found.left_cone.sum()}, and cutting off negative eigenvalues destroys rank; the true "
        f"limit has a nonzero eigenvalue below {THRESHOLD:g} in {(thresholded < rank).sum()}; "
        f"{(found.rank > rank).sum()} higher ranks are left out of the figure; {(found.rank < 0).sum()} runs are drawn "
        "again"
    )
    verdict = "holds" if (found.rank == rank).all() else "misleads"
    claim = f"d = {draws.d}, published procedure (Euler on Sigma, eigenvalues above {THRESHOLD:g}): rank"
    return Row(claim, f"{rank} in {n} of {n}", counted(found.rank, "no rank"), "exact", verdict, why)


class Measured(NamedTuple):
    """Errors of the draws that converged, and how many did not."""

    errors: np.ndarray
    missing: int


def together(parts: list[Measured]) -> Measured:
    """Several dimensions in one."""
    return Measured(np.concatenate([part.errors for part in parts]), sum(part.missing for part in parts))


def limit_errors(found: mf.Fates, exact: np.ndarray) -> Measured:
    r"""$\|\Sigma-\Sigma_\infty\|_F/\|\Sigma_\infty\|_F$ of our limits."""
    converged = found.code == FateKind.CONVERGED
    return Measured(relative_errors(found.limit[converged], exact[converged]), int((~converged).sum()))


def limit_row(name: str, measured: Measured) -> Row:
    """The claim about limits with $V=I$."""
    claim = f"{name}: limit N (N^T Sigma0^-1 N)^-1 N^T, N = ker Q: largest relative error"
    return error_row(
        claim, measured.errors, LIMIT_ERROR, "read at a finite time, with an error like 1/t", measured.missing
    )


def differences(found: list[mf.Fates]) -> Measured:
    """The largest relative difference of the limits of several kinds, for every draw on which all of them converge."""
    converged = np.all([one.code == FateKind.CONVERGED for one in found], axis=0)
    limits = [one.limit[converged] for one in found]
    pairs = [relative_errors(limits[i], limits[j]) for i in range(len(limits)) for j in range(i)]
    return Measured(np.max(pairs, axis=0), int((~converged).sum()))


def same_row(measured: Measured) -> Row:
    """The claim that, with $V=I$, the limit does not depend on the kind."""
    claim = f"V = I: the same limit for {', '.join(KINDS)}: largest relative difference"
    return error_row(claim, measured.errors, LIMIT_ERROR, "read at finite times", measured.missing)


def compute_identity(budget: Budget) -> Found:
    """A2: the published procedure and ours on the same draws."""
    rows: list[Row] = []
    groups: dict[int, dict[str, np.ndarray]] = {}
    for k, d in enumerate(DIMENSIONS):
        draws = draw(d, budget.choose(20, 100), budget.seed)
        budget.say(k / 3, f"d = {d}: ours")
        exact = exact_limits(draws)
        ours = fates("softmax", draws, identity=True)
        budget.say((k + 0.2) / 3, f"d = {d}: the published procedure")
        theirs = published(draws)
        rows += [
            rank_row(f"d = {d}: rank ceil(d/2) in every draw, none discarded", ours.rank, draws.rank),
            limit_row(f"d = {d}", limit_errors(ours, exact)),
            published_row(draws, theirs, exact),
        ]
        groups[d] = {
            "published procedure": theirs.rank,
            f"exact limit, eigenvalues above {THRESHOLD:g}": (np.linalg.eigvalsh(exact) > THRESHOLD).sum(axis=1),
            "ours, from log-log slopes": ours.rank,
        }
    title = r"Softmax, $K=-Q$, $V=I$: what three procedures call the rank of $\Sigma_\infty$"
    caption = (
        r"Ranks of the limits in dimension 3, 4 and 5 on the same draws; the theorem's rank $\lceil d/2\rceil$ is "
        "shaded. The published procedure reports lower ranks, because its Euler steps leave the cone of positive "
        "matrices, and because limits have nonzero eigenvalues below its threshold: already the exact limit, counted "
        "with that threshold, has the wrong rank. Read from log-log slopes, the rank is right in every draw. Hatched: "
        "runs to which a procedure gives no rank."
    )
    remarks = [
        "The published figure shows that ranks are low; so do we, with the rank that theory gives, "
        r"$\lceil d/2\rceil$, in every draw. What misleads is the spread towards lower ranks."
    ]
    return Found(rows, [Picture("ranks_identity", histograms({"": groups}, title), caption)], remarks)


def compute_random(budget: Budget) -> Found:
    """A3: three kinds, with $V=I$ and $V=W^TW$."""
    rows: list[Row] = []
    groups: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    limits: dict[str, list[mf.Fates]] = {}
    every = [draw(d, budget.choose(20, 100), budget.seed) for d in DIMENSIONS]
    for j, (label, words) in enumerate({"$V=I$": "V = I", r"$V=W^\top W$": "V = W^T W"}.items()):
        groups[label] = {d: {} for d in DIMENSIONS}
        for k, kind in enumerate(KINDS):
            budget.say((3 * j + k) / 6, f"{words}: {kind}")
            found = [fates(kind, draws, identity=j == 0) for draws in every]
            for draws, one in zip(every, found, strict=True):
                groups[label][draws.d][kind] = one.rank
                claim = f"{kind}, {words}, d = {draws.d}: rank ceil(d/2) in every draw"
                rows.append(rank_row(claim, one.rank, draws.rank, unclear(draws, one, identity=j == 0)))
            pairs = list(zip(every, found, strict=True))
            if j == 0:
                limits[kind] = found
                errors = [limit_errors(one, exact_limits(draws)) for draws, one in pairs]
                rows.append(limit_row(f"{kind}, {words}", together(errors)))
            else:
                shares = [kernel_shares(draws, one) for draws, one in pairs]
                rows.append(kernel_row(f"{kind}, {words}", together(shares)))
        if j == 0:
            rows.append(same_row(together([differences(list(kinds)) for kinds in zip(*limits.values(), strict=True)])))
    title = r"Random $Q$ of $\lfloor d/2\rfloor$ rows, $K=-Q$: ranks of the limits"
    caption = (
        r"Ranks of the limits for three kinds of attention, with $V=I$ (above) and random $V=W^\top W$ (below), in "
        r"dimension 3, 4 and 5; shaded: $\lceil d/2\rceil$, the rank of the theorem. No draw is left out: runs whose "
        "rank is not decided would have a bar of their own, hatched."
    )
    return Found(rows, [Picture("ranks_random", histograms(groups, title), caption)])


def kernel_shares(draws: Draws, found: mf.Fates) -> Measured:
    r"""$\|Q\Sigma_\infty\|/\|Q\|\|\Sigma_\infty\|$ of the draws that converged."""
    sizes = np.linalg.norm(draws.Q, axis=(1, 2)) * np.linalg.norm(found.limit, axis=(1, 2))
    shares = np.linalg.norm(draws.Q @ found.limit, axis=(1, 2)) / sizes
    converged = found.code == FateKind.CONVERGED
    return Measured(shares[converged], int((~converged).sum()))


def kernel_row(name: str, measured: Measured) -> Row:
    r"""$Q\Sigma_\infty=0$: what dies, dies like $1/t$ or faster, and no rank is read before $t=100$ (MATH e.5)."""
    claim = f"{name}: Q Sigma_inf = 0: largest |Q Sigma| / |Q| |Sigma|"
    why = "read at a finite time, not before t = 100 in units of the run, and it decays like 1/t"
    return error_row(claim, measured.errors, KERNEL_ERROR, why, measured.missing)


def histograms(groups: dict[str, dict[int, dict[str, np.ndarray]]], title: str) -> Figure:
    """A row of panels for each label, a panel for each dimension, a group of bars for each procedure or kind."""
    with style.style():
        figure = Figure(figsize=(11.4, 1.0 + 2.9 * len(groups)), layout="constrained")
        axes = figure.subplots(len(groups), len(DIMENSIONS), squeeze=False, width_ratios=[d + 2.5 for d in DIMENSIONS])
        for row, (label, panels) in zip(axes, groups.items(), strict=True):
            for ax, (d, bars) in zip(row, panels.items(), strict=True):
                mf.plot_ranks(
                    bars, d, ax, expected=d - d // 2, legend=False, title=f"$d={d}$" + f",  {label}" * bool(label)
                )
                ax.set_ylabel("number of draws" if ax is row[0] else "")
                for number in ax.texts:  # three of them side by side
                    number.set_fontsize(6.5)
        names = list(next(iter(next(iter(groups.values())).values())))
        handles = [Patch(color=colour, label=name) for colour, name in zip(style.PALETTE, names, strict=False)]
        handles.append(Patch(color=style.FAINT, alpha=0.5, label=r"theorem: $\lceil d/2\rceil$"))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
        figure.suptitle(title, fontsize=12.5)
    return figure


ITEMS = [
    Item(
        "A2",
        "Ranks of limits, V = I: the published procedure and the theorem",
        r"$Q\in\mathbb{R}^{\lfloor d/2\rfloor\times d}$ iid normal, $K=-Q$, $A=K^\top Q/\sqrt{d}$, $V=I$, "
        r"$\Sigma_0=MM^\top$ with $M$ iid normal, $d=3,4,5$. The limit is $N(N^\top\Sigma_0^{-1}N)^{-1}N^\top$ with "
        r"$N=\ker Q$, of rank $\lceil d/2\rceil$.",
        compute_identity,
        minutes=(0.15, 0.4),
    ),
    Item(
        "A3",
        "Ranks of limits: softmax, L2 and Sinkhorn, V = I and random V",
        r"As A2, also with $V=W^\top W$, $W$ iid normal. For symmetric $V\succ0$ and $K=-Q$ the covariance converges, "
        r"$Q\Sigma_\infty=0$, and its rank is $d-\mathrm{rank}\,Q=\lceil d/2\rceil$; for $V=I$ the limit is the same "
        "for the three kinds.",
        compute_random,
        minutes=(0.25, 0.8),
    ),
]

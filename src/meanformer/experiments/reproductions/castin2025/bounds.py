r"""A8 and A9: what the theory bounds for tokens in a ball: how fast they spread, and how far two flows come apart."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import meanformer as mf

from ....plots import style
from ....plots.bounds import plot_slack
from ....plots.fates import beside
from ..base import Budget, Found, Item, Picture, Row
from .rows import judged, largest

N, D = 8, 2
# Weights jump at two of the save times: three random fields, one after the other.
TIMES = np.linspace(0, 1.2, 13)
BREAKS = TIMES[[4, 8]]
RTOL = 1e-8
# An inequality may be missed by this share of its bound: the errors of the solver.
SLACK = 1e-6
# The bounds of A9 are exponentials of exponentials in the size of the matrices: entries of this size leave something
# to compare.
GENTLE = 0.25


def two_heads(*matrices: Any) -> Any:
    """Two heads of softmax."""
    return mf.MultiHead([mf.Softmax(*matrices[:3]), mf.Softmax(*matrices[3:])])


class Kind(NamedTuple):
    """A kind of attention: how it is made, of how many matrices."""

    name: str
    make: Callable[..., Any]
    matrices: int = 3
    masked: bool = False
    size: float = 0.8  # of the entries of its matrices


KINDS = (
    Kind("softmax", mf.Softmax),
    Kind("L2", mf.L2),
    Kind("Sinkhorn", mf.Sinkhorn, size=0.6),
    Kind("sigmoid", mf.Sigmoid),
    Kind("two heads", two_heads, 6, size=0.6),
    Kind("masked softmax", lambda *M: mf.Causal(mf.Softmax(*M)), masked=True),
)


def random_field(kind: Kind, rng: np.random.Generator, size: float) -> Any:
    """A field of this kind with normal matrices."""
    return kind.make(*(jnp.asarray(size * rng.standard_normal((D, D))) for _ in range(kind.matrices)))


def random_tokens(rng: np.random.Generator) -> mf.PointCloud:
    """Tokens in the unit ball, one of them on its boundary, with random weights."""
    x = rng.standard_normal((N, D))
    x *= rng.random((N, 1)) ** (1 / D) / np.linalg.norm(x, axis=1, keepdims=True)
    x[0] /= np.linalg.norm(x[0])
    return mf.PointCloud(x, rng.dirichlet(np.ones(N))).with_positions()


def run(field: Any, mu: mf.PointCloud) -> Any:
    """The flow of A8 and A9: one compiled program for each kind."""
    done = mf.flow(field, mu, float(TIMES[-1]), save=TIMES, rtol=RTOL, progress=False)
    if not done.outcome.ok:
        raise RuntimeError(f"a run ended early: {done.outcome}")
    return done


def value_norm(field: Any) -> float:
    r"""$\|V\|$, the largest singular value; under a mask that of what is masked; $\sum_h\|V_h\|$ for several heads."""
    if isinstance(field, mf.MultiHead):  # whose W are I
        return sum(value_norm(head) for head in field.heads)
    return float(np.linalg.norm(np.asarray(getattr(field, "field", field).V), 2))


def radius_bounds(norms: Sequence[float], radius: float) -> np.ndarray:
    r"""$e^{\int_0^t\|V\|}R_0=e^{\sum_k\|V_k\|\Delta t_k}R_0$ at all times, for $V_k$ constant between the jumps."""
    ends = np.append(BREAKS, TIMES[-1])
    begins = np.append(0.0, BREAKS)
    spent = np.clip(TIMES[:, None] - begins, 0.0, ends - begins)  # how long each piece has been on
    return radius * np.exp(spent @ np.asarray(norms))


def radius_ratios(kind: Kind, systems: int, seed: int) -> np.ndarray:
    """Radius over its bound, at all times of random systems with piecewise constant weights."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(systems):
        pieces = [random_field(kind, rng, kind.size) for _ in range(3)]
        mu = random_tokens(rng)
        bounds = radius_bounds([value_norm(piece) for piece in pieces], float(mu.radius))
        rows.append(np.asarray(run(mf.Piecewise(pieces, breaks=list(BREAKS)), mu).states.radius) / bounds)
    return np.array(rows)


def radius_row(name: str, ratios: np.ndarray) -> Row:
    """Whether the radius stays below its bound in every system, and how close it came after the start."""
    kept = (ratios <= 1 + SLACK).all(axis=1)  # not so where a number is NaN
    broken = int((~kept).sum())
    median = f"; at the end {np.median(ratios[:, -1]):.3f} of the bound in the median" if len(ratios) else ""
    why = f"{len(ratios)} systems{median}"
    claim = rf"{name}: largest $R(t)\,/\,e^{{\int\|V\|}}R_0$"
    why = f"not below the bound in {broken} of {why}" if broken else why
    return Row(claim, "at most 1", largest(ratios[:, 1:]), f"{SLACK:.0e}", judged(kept), why)


def radius(budget: Budget) -> Found:
    """A8."""
    systems = budget.choose(10, 200)
    found = {}
    for k, kind in enumerate(KINDS):
        budget.say(k / len(KINDS), kind.name)
        found[kind.name] = radius_ratios(kind, systems, budget.seed)
    rows = [radius_row(name, ratios) for name, ratios in found.items()]
    caption = (
        r"The radius $R(t)$ of the support over its bound $e^{\int_0^t\|V\|}R_0$, for "
        f"{systems} random systems of each kind of attention; weights jump at the dotted times. "
        "Strong lines are medians; what is left to the dashed line is the slack of the bound."
    )
    return Found(rows, [Picture("radius_slack", radius_figure(found), caption)])


def radius_figure(found: dict[str, np.ndarray]) -> Figure:
    """A panel for each kind."""
    with style.style():
        figure = Figure(figsize=(9.6, 5.6), dpi=style.DPI, layout="constrained")
        axes = figure.subplots(2, 3, sharex=True, sharey=True)
        for ax, (name, ratios) in zip(axes.flat, found.items(), strict=True):
            plot_slack(TIMES, ratios, ax, scale="linear", label=" ", title=name)
            for t in BREAKS:
                ax.axvline(t, color=style.FAINT, linestyle=":", linewidth=1.0, zorder=1)
            if ax.get_legend() is not None and ax is not axes[0, -1]:
                ax.get_legend().remove()
            if ax not in axes[-1]:
                ax.set_xlabel("")
        figure.supylabel("radius over its bound", fontsize=10)
    return figure


class Pairs(NamedTuple):
    r"""Pairs of starts of one kind, by the way the second start is made.

    `ratios` are $W_p(t)/W_p(0)$ at the end, `exponents` those of the bound; shape (systems,) each.
    """

    ratios: dict[tuple[str, int], np.ndarray]
    exponents: dict[tuple[str, int], np.ndarray]


def steepest(field: Any, mu: mf.PointCloud, step: float = 1e-5) -> np.ndarray:
    r"""The direction in which the flow map stretches $W_2$ most at `mu`.

    Its derivative $J$ by differences; distances weigh tokens, so that it is the first right singular vector of
    $D^{1/2}JD^{-1/2}$ with $D$ the weights.
    """
    root = np.sqrt(np.repeat(np.asarray(mu.weights), D))
    here = np.asarray(run(field, mu).final.points)
    columns = []
    for one in np.eye(N * D).reshape(-1, N, D):
        there = run(field, mu.with_points(mu.points + step * jnp.asarray(one))).final.points
        columns.append(((np.asarray(there) - here) / step).ravel())
    scaled = root[:, None] * np.stack(columns, axis=1) / root[None]
    return (np.linalg.svd(scaled)[2][0] / root).reshape(N, D)


def second_starts(field: Any, mu: mf.PointCloud, masked: bool, rng: np.random.Generator) -> dict[str, mf.PointCloud]:
    """Starts to compare `mu` with; under a mask only those with the same positions and weights are comparable."""
    moved = {
        "noise": 0.1 * rng.standard_normal((N, D)),
        "worst direction": 1e-3 * steepest(field, mu),
        "one token": np.eye(N)[:, :1] * np.array([[0.1, 0.0]]),
    }
    starts = {name: mu.with_points(mu.points + jnp.asarray(move)) for name, move in moved.items()}
    return starts if masked else {"unrelated": random_tokens(rng), **starts}


def stability_pairs(kind: Kind, systems: int, seed: int) -> Pairs:
    """Random and adversarial pairs: how much farther apart they are at the end, and what the bound allows."""
    rng = np.random.default_rng(seed)
    distance = mf.conditional_wasserstein if kind.masked else mf.wasserstein
    ratios: dict[tuple[str, int], list[float]] = {}
    exponents: dict[tuple[str, int], list[float]] = {}
    for _ in range(systems):
        field, mu = random_field(kind, rng, GENTLE), random_tokens(rng)
        end = run(field, mu).final
        for name, nu in second_starts(field, mu, kind.masked, rng).items():
            there = run(field, nu).final
            for p in (2,) if kind.masked else (1, 2):
                bound = mf.stability_bound(field, mu, nu, float(TIMES[-1]), p=p)
                assert bound is not None
                ratios.setdefault((name, p), []).append(distance(end, there, p) / distance(mu, nu, p))
                exponents.setdefault((name, p), []).append(bound.exponent)
    return Pairs(*({key: np.array(row) for key, row in table.items()} for table in (ratios, exponents)))


def stability_row(kind: Kind, pairs: Pairs) -> Row:
    """Whether the logarithm of the ratio stays below the exponent of the bound in every pair."""
    ratios, exponents = (np.concatenate([np.empty(0), *table.values()]) for table in pairs)
    logs = np.log(ratios)
    kept = logs <= exponents + SLACK  # not so where a number is NaN
    broken = int((~kept).sum())
    letter, powers = ("d", "2") if kind.masked else ("W", "1, 2")
    claim = rf"{kind.name}: largest $\log({letter}_p(t)/{letter}_p(0))$ over the exponent of the bound, $p={powers}$"
    why = f"{len(ratios)} pairs"
    if len(ratios):
        worst = max(pairs.ratios, key=lambda key: float(pairs.ratios[key].max()))
        why += f"; distances grow at most by {ratios.max():.2f} ({worst[0]}, p = {worst[1]})"
    why = f"not below the bound in {broken} of {why}" if broken else why
    return Row(claim, "at most 1", largest(logs / exponents), f"{SLACK:.0e}", judged(kept), why)


def sharp_ratio() -> float:
    r"""$W_2(t)/W_2(0)$ over its bound for a translation with $Q=0$, where tokens follow their mean."""
    field = mf.Softmax(jnp.zeros((D, D)), jnp.eye(D), 0.8 * jnp.eye(D))
    mu = random_tokens(np.random.default_rng(0))
    nu = mu.with_points(mu.points + 0.01)
    bound = mf.stability_bound(field, mu, nu, float(TIMES[-1]))
    assert bound is not None
    return mf.wasserstein(run(field, mu).final, run(field, nu).final) / mf.wasserstein(mu, nu) / bound.constant


def stability(budget: Budget) -> Found:
    """A9."""
    systems = budget.choose(2, 25)
    kinds = [kind for kind in KINDS if kind.name in ("softmax", "L2", "sigmoid", "masked softmax")]
    found = {}
    for k, kind in enumerate(kinds):
        budget.say(k / len(kinds), kind.name)
        found[kind] = stability_pairs(kind, systems, budget.seed)
    sharp = sharp_ratio()
    verdict = "holds" if abs(sharp - 1) <= 1e-6 else "fails"
    claim = r"the bound is attained: a translation, softmax with $Q=0$, $W_2(t)/W_2(0)$ over its bound"
    rows = [stability_row(kind, pairs) for kind, pairs in found.items()]
    rows.append(Row(claim, 1.0, sharp, "1e-06", verdict, "tokens then move with their mean alone"))
    caption = (
        "How much farther apart two flows are at the end than at the start, as a share of what the bound allows (both "
        "as logarithms): a pair for each mark, left of the dashed line if it obeys. Diamonds are adversarial: the "
        "direction in which the flow map stretches most. The bound is pessimistic, and yet attained: the star."
    )
    return Found(rows, [Picture("stability", stability_figure(found, sharp), caption)])


def stability_figure(found: dict[Kind, Pairs], sharp: float) -> Figure:
    """For each kind, which share of the exponent of the bound its pairs use; the bound is at 1."""
    looks = {"unrelated": ("s", 0), "noise": ("o", 2), "one token": ("^", 3), "worst direction": ("D", 1)}
    with style.style():
        figure = Figure(figsize=(7.6, 3.8), dpi=style.DPI, layout="constrained")
        ax = figure.add_subplot()
        for k, pairs in enumerate(found.values()):
            for place, (name, (marker, colour)) in enumerate(looks.items()):
                keys = [key for key in pairs.ratios if key[0] == name]
                if keys:
                    shares = np.concatenate([np.log(pairs.ratios[key]) / pairs.exponents[key] for key in keys])
                    height = np.full(len(shares), k + 0.18 * (place - 1.5))
                    edge = style.PALETTE[colour]
                    ax.scatter(shares, height, s=24, marker=marker, color=edge, alpha=0.75, linewidth=0, zorder=3)
        ax.scatter([np.log(sharp) + 1], [len(found)], s=60, marker="*", color=style.INK, zorder=4)
        ax.axvline(1, color=style.INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2)
        ax.axvline(0, color=style.FAINT, linewidth=0.8, zorder=1)
        ax.set_yticks(range(len(found) + 1), [*(kind.name for kind in found), "softmax, $Q=0$"])
        ax.tick_params(axis="y", length=0, labelcolor=style.INK)
        ax.set(ylim=(len(found) + 0.5, -0.5), xlim=(None, 1.06))
        ax.set_xlabel(r"$\log\left(W_p(t)/W_p(0)\right)$ as a share of the exponent of the bound (dashed)")
        handles = [
            Line2D([], [], linestyle="", marker=marker, color=style.PALETTE[colour], markersize=5, label=name)
            for name, (marker, colour) in looks.items()
        ]
        handles.append(Line2D([], [], linestyle="", marker="*", color=style.INK, markersize=8, label="translation"))
        beside(ax, handles)
        ax.set_title("Two starts come apart no faster than the bound allows")
    return figure


ITEMS = (
    Item(
        id="A8",
        title="The support grows at most exponentially",
        setting=rf"{N} tokens in the unit ball of $\mathbb R^{D}$ with random weights; $Q,K,V$ normal and piecewise "
        rf"constant in time, with jumps at $t={BREAKS[0]:.1f}$ and ${BREAKS[1]:.1f}$, until $t={TIMES[-1]:.1f}$. The "
        r"claim is $R(t)\le e^{\int_0^t\|V\|}R_0$, with $\sum_h\|W_hV_h\|$ for several heads.",
        compute=radius,
        minutes=(0.3, 1.1),
    ),
    Item(
        id="A9",
        title="Stability in Wasserstein distance",
        setting=rf"Two starts in the unit ball of $\mathbb R^{D}$, {N} tokens each, random constant weights, until "
        rf"$t={TIMES[-1]:.1f}$. The claim is $W_p(\mu_t,\nu_t)\le C\,W_p(\mu_0,\nu_0)$ with "
        r"$\log C=\int_0^t(L_x+L_\mu)(R_s)\,ds$; under a mask for the conditional distance $d_p$, with $L_\mu$ times "
        r"$p/(p-1)$. Pairs: unrelated tokens, noise, one token moved, and the direction that is stretched most.",
        compute=stability,
        minutes=(0.1, 0.9),
    ),
)

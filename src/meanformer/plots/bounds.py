"""Bounds of the theory against measurements: `mf.check(run).plot()`, and the slack of many runs."""

import re
import textwrap
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.lines import Line2D

from .. import _checks as checks
from ..theory.check import SLACK, Checked
from . import style
from .fates import axes_for, beside, number

# A picture is logarithmic where the largest value is so many times the smallest.
LARGE = 20.0
VIOLATED = style.PALETTE[1]


def plot_checked(
    checked: Any, ax: Any = None, *, scale: str | None = None, legend: bool = True, title: str | None = None
) -> Any:
    """What the theory claims along a run, next to what was measured: bounds dashed, measurements solid.

    The slack between the two is shaded; where a claim fails the measurement is marked. A run without a claim for all
    times has bars: see `plot_claims`.

    **Arguments:**

    - `checked`: what `mf.check(run)` returns.
    - `ax`: axes to draw into; a new figure by default.
    - `scale`: of the vertical axis, "linear" or "log"; by default logarithmic if values span more than a factor 20.

    **Returns:** the axes.
    """
    checked = _checked(checked)
    paths = {claim: tuple(np.asarray(a, np.float64) for a in path) for claim, path in checked.paths.items()}
    if scale is not None:
        checks.one_of(scale, "scale", ("linear", "log"))
    if not paths:
        return plot_claims(checked, ax, title=title)
    colours = [style.PALETTE[k] for k in (0, 2, 4, 3, 5, 6)]  # red is for violations
    values = np.concatenate([np.concatenate(path[1:]) for path in paths.values()])
    positive = values[(values > 0) & np.isfinite(values)]
    log = scale == "log" if scale else bool(len(positive) and positive.max() > LARGE * positive.min())
    handles: list[Any] = []
    broken = False
    with style.style():
        ax = axes_for(ax, (7.2, 4.2))
        for k, (claim, (times, bounds, measured)) in enumerate(paths.items()):
            colour = colours[k % len(colours)]
            slack = _percent(bounds[-1], measured[-1])
            above = measured > bounds * (1 + SLACK)
            bounds = np.where(np.isfinite(bounds), bounds, np.nan)
            ax.fill_between(times, measured, bounds, where=bounds >= measured, color=colour, alpha=0.10, linewidth=0)
            ax.plot(times, bounds, color=colour, linewidth=1.4, linestyle=(0, (4, 2)), zorder=3)
            ax.plot(times, measured, color=colour, linewidth=2.0, zorder=3)
            ax.plot(times[above], measured[above], "o", color=VIOLATED, markersize=4, zorder=4)
            broken = broken or bool(above.any())
            handles.append(Line2D([], [], color=colour, linewidth=2.0, label=f"{_maths(claim)}"))
            handles.append(Line2D([], [], linestyle="", label=f"slack ${slack}$ at the end"))
        handles.append(Line2D([], [], color=style.SOFT, linewidth=1.4, linestyle=(0, (4, 2)), label="bound"))
        handles.append(Line2D([], [], color=style.SOFT, linewidth=2.0, label="measured"))
        if broken:
            handles.append(Line2D([], [], color=VIOLATED, marker="o", markersize=4, linestyle="", label="violated"))
        ax.set_yscale("log" if log else "linear")
        if legend:
            beside(ax, handles)
        ax.set(xlabel="time $t$", ylabel=_maths(next(iter(paths))) if len(paths) == 1 else "bound and measurement")
        ax.set_title(_heading(checked) if title is None else title)
    return ax


def plot_claims(checked: Any, ax: Any = None, *, title: str | None = None) -> Any:
    """A bar for each claim of the theory about a run: its slack, one minus measured over bound.

    A sharp bound has no bar, a claim that fails a red one to the left (cut at -25 %); beside them are measurement and
    bound. Claims without a bound are listed too.

    **Arguments:** `checked`, what `mf.check(run)` returns; `ax`, axes to draw into, a new figure by default; `title`.

    **Returns:** the matplotlib axes.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    checked = mf.check(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0))
    ax = mf.plot_claims(checked)
    assert len(ax.get_yticks()) == len(checked.claims)
    ```
    """
    checked = _checked(checked)
    claims = checked.claims
    if not claims:
        checks.refuse(
            "there is nothing to draw",
            got="no claim",
            expected="at least one claim about the run",
            remedy="the theory says nothing about this run: see mf.check",
        )
    with style.style():
        ax = axes_for(ax, (7.6, 1.3 + 0.5 * len(claims)))
        for k, claim in enumerate(claims):
            words: dict[str, Any] = {"va": "center", "fontsize": 8.5}
            if claim.bound is None:
                text = claim.why + ("" if np.isnan(claim.measured) else f": ${number(claim.measured)}$")
                ax.text(0.01, k, text, color=style.SOFT, **words)
                continue
            slack = float(np.clip(100 * claim.slack, -25.0, 100.0))
            colour = style.PALETTE[0] if claim.holds else VIOLATED
            ax.barh(k, slack / 100, height=0.55, color=colour, alpha=0.85, zorder=2)
            relation = r"\leq" if claim.holds else ">"
            text = f"${number(claim.measured)}{relation}{number(claim.bound)}$"
            ax.text(1.03, k, text, color=style.INK if claim.holds else VIOLATED, **words)
        left = -0.27 if any(claim.holds is False for claim in claims) else 0.0
        ax.set_xlim(left, 1.0)
        ax.set_ylim(len(claims) - 0.5, -0.5)  # the first claim on top
        ax.set_yticks(range(len(claims)), [_maths(_wrapped(claim.claim)) for claim in claims])
        ax.tick_params(axis="y", length=0, labelcolor=style.INK)
        ax.xaxis.set_major_locator(ticker.FixedLocator([0, 0.25, 0.5, 0.75, 1]))
        ax.xaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        ax.axvline(0, color=style.INK, linewidth=1.0, zorder=3)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(r"slack, $1-$ measured$\,/\,$bound")
        look: dict[str, Any] = {"va": "top", "fontsize": 8.5, "color": style.SOFT}
        ax.annotate(r"measured $\leq$ bound", (1.03, 0), (0, -19), "axes fraction", "offset points", **look)
        ax.set_title(_heading(checked) if title is None else title)
    return ax


def plot_slack(
    times: Any, ratios: Any, ax: Any = None, *, scale: str | None = None, label: str = "", title: str | None = None
) -> Any:
    """Measured over bound along many runs: curves that the theory keeps below 1.

    Runs that exceed 1 (by more than $10^{-4}$, the errors of solvers) are drawn in red and counted in the title. If
    three runs or more have their times in common, a strong line shows the median.

    **Arguments:**

    - `times`: shape `(T,)`, or one vector per run.
    - `ratios`: measured over bound, shape `(runs, T)`, or one vector per run.
    - `ax`: axes to draw into; a new figure by default.
    - `scale`: of the vertical axis, "linear" or "log"; by default logarithmic if ratios span more than a factor 20.
    - `label`: of the vertical axis; "measured / bound" by default.

    **Returns:** the matplotlib axes.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    runs = [mf.flow(mf.Softmax(q * I, I, I), tokens, t1=1.0) for q in (0.5, 1.0)]
    bound = np.exp(runs[0].times)  # |V| = 1: the radius grows no faster
    ax = mf.plot_slack(runs[0].times, [run.states.radius / bound for run in runs])
    assert ax.get_title().startswith("2 runs, all below the bound")
    ```
    """
    if scale is not None:
        checks.one_of(scale, "scale", ("linear", "log"))
    curves = _curves(times, ratios)
    values = np.concatenate([ratio for _, ratio in curves])
    positive = values[values > 0]
    log = scale == "log" if scale else bool(len(positive) and positive.max() > LARGE * positive.min())
    with style.style():
        ax = axes_for(ax, (6.8, 4.2))
        broken = [bool((ratio > 1 + SLACK).any()) for _, ratio in curves]
        alpha = float(np.clip(8 / len(curves), 0.12, 0.7))
        for (t, ratio), above in zip(curves, broken, strict=True):
            colour, strength = (VIOLATED, 0.9) if above else (style.PALETTE[0], alpha)
            ax.plot(t, ratio, color=colour, alpha=strength, linewidth=1.0, zorder=3 if above else 2)
        if len(curves) > 2 and all(np.array_equal(t, curves[0][0]) for t, _ in curves):
            middle = np.median(np.stack([ratio for _, ratio in curves]), axis=0)
            ax.plot(curves[0][0], middle, color=style.INK, linewidth=1.8, label="median", zorder=4)
        ax.axhline(1.0, color=style.INK, linewidth=1.2, linestyle=(0, (4, 2)), label="bound", zorder=3)
        if log:
            ax.set_yscale("log")
            low, high = np.log(positive.min()), np.log(max(1.0, positive.max()))
            ax.set_ylim(np.exp(low - 0.05 * (high - low)), np.exp(high + 0.08 * (high - low)))
        else:
            ax.set_ylim(0, 1.08 * max(1.0, values.max()))
        ax.margins(x=0.0)
        beside(ax)
        ax.set(xlabel="time $t$", ylabel=label or r"measured$\,/\,$bound")
        count = f"{len(curves)} run{'s' * (len(curves) != 1)}"
        ends = [ratio[-1] for _, ratio in curves]
        verdict = f"all below the bound; at the end ${number(min(ends))}$ to ${number(max(ends))}$ of it"
        verdict = f"{sum(broken)} above the bound" if any(broken) else verdict
        ax.set_title(f"{count}, {verdict}" if title is None else title)
    return ax


def _curves(times: Any, ratios: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Times and ratios of each run."""
    try:
        rows = [np.asarray(row, np.float64) for row in ratios]
        shared = np.ndim(times[0]) == 0
        moments = [np.asarray(times, np.float64)] * len(rows) if shared else [np.asarray(t, np.float64) for t in times]
    except (TypeError, ValueError, IndexError, KeyError):
        rows, moments = [], []
    fits = len(rows) == len(moments) > 0 and all(
        row.ndim == 1 and row.shape == t.shape and len(t) and np.isfinite(row).all() and (row >= 0).all()
        for t, row in zip(moments, rows, strict=True)
    )
    if not fits:
        shapes = ", ".join(str(row.shape) for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
        checks.refuse(
            "each run needs its times and its ratios",
            got=f"{checks.described(ratios)} with rows {shapes}" if rows else checks.described(ratios),
            expected="times of shape (T,) and ratios of shape (runs, T), finite and not negative; or a vector per run",
            remedy="plot_slack(times, radii / bounds)",
        )
    return list(zip(moments, rows, strict=True))


def _checked(checked: Any) -> Checked:
    if not isinstance(checked, Checked):
        checks.refuse(
            "this picture is of a checked run",
            got=checks.described(checked),
            expected="what mf.check(run) returns",
            remedy="mf.check(run).plot()",
        )
    return checked


def _heading(checked: Checked) -> str:
    """The run up to its first colon, and whether the theory holds."""
    bounded = [claim for claim in checked.claims if claim.bound is not None]
    broken = len(checked.violations)
    if broken:
        verdict = f"{broken} of {len(bounded)} bounds violated"
    elif bounded:
        verdict = f"all {len(bounded)} bounds hold" if len(bounded) > 1 else "the bound holds"
    else:
        verdict = "no bound"
    return f"{_maths(checked.title.split(':')[0])}: {verdict}"


def _maths(words: str) -> str:
    """Words of a table with their symbols set as mathematics."""
    words = re.sub(r"\bR\^(\d+)", r"$\\mathbb{R}^{\1}$", words)
    words = re.sub(r"\bR(\(t\))?(?=,|$)", r"$R\1$", words)
    words = re.sub(r"\b([LWd])_([\d.]*\d|x|mu|inf)\b(\(\w\))?", r"$\1_{\2}\3$", words)
    words = words.replace("_{mu}", "_{\\mu}").replace("_{inf}", "_{\\infty}")
    return re.sub(r"\bt\s=\s([-+.e\d]+)", lambda found: f"$t={number(float(found[1]))}$", words)


def _wrapped(words: str) -> str:
    """Words on lines of 34 characters; an equation stays on its line, by spaces that do not break."""
    return textwrap.fill(words.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"), 34, break_on_hyphens=False)


def _percent(bound: float, measured: float) -> str:
    slack = 100 * (1 - measured / bound) if bound > 0 else 100 * float(measured <= 0)
    return f"{slack:.3g}\\%"

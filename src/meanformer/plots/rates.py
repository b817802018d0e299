"""The rate at which tokens approach their mean-field limit: `rate.plot()`."""

from typing import Any

import numpy as np
from matplotlib import ticker

from .. import _checks as checks
from ..diagnostics.gap import THRESHOLD
from ..theory.meanfield import MeanFieldRate
from . import style
from .fates import axes_for, number

_SYMBOLS = {"covariance": r"$\|\Sigma_n-\Sigma\|_F$", "mean": r"$|m_n-m|$"}
# The rate of the theory, for moments (MATH d.5).
THEORY = -0.5


def plot_rate(rate: Any, ax: Any = None, *, repeats: bool = True, legend: bool = True, title: str | None = None) -> Any:
    r"""Errors of $n$ tokens against the mean-field limit over $n$, both axes logarithmic.

    Faint dots are the repeats, and circles their root mean square. The line is the fit $n^{\text{slope}}$, the band
    around it the 95 % confidence interval of its slope; the dotted line has the slope $-1/2$ of the theory (MATH d.5),
    below the others, for comparison. Where the reference is a run of many tokens, its own sampling error is taken out
    of the dots too.

    **Arguments:**

    - `rate`: what `mf.mean_field_rate` returns.
    - `ax`: axes to draw into; a new figure by default.
    - `repeats`: whether to draw the errors of the single draws.

    **Returns:** the axes.
    """
    n, errors, rms = _measured(rate)
    with style.style():
        ax = axes_for(ax, (5.8, 4.4))
        ax.set(xscale="log", yscale="log")
        if checks.flag(repeats, "repeats"):
            sizes = np.repeat(n, [len(row) for row in errors])
            found = np.concatenate(errors)
            seen = found > 0
            label = "single draws"
            ax.scatter(sizes[seen], found[seen], s=14, color=style.PALETTE[0], alpha=0.3, linewidth=0, label=label)
        look: dict[str, Any] = {"markerfacecolor": style.PAPER, "markeredgewidth": 1.6, "markersize": 6, "zorder": 4}
        ax.plot(n, rms, "o", color=style.PALETTE[0], label="root mean square", **look)
        # A least-squares line goes through the mean of the logarithms.
        centre, height = np.exp(np.log(n).mean()), np.exp(np.log(rms).mean())
        line = np.geomspace(n[0] / 1.15, n[-1] * 1.15, 65)
        low, high = rate.interval
        bands = [height * (line / centre) ** slope for slope in (low, high)]
        ax.fill_between(line, np.minimum(*bands), np.maximum(*bands), color=style.FAINT, alpha=0.4, linewidth=0)
        label = f"fit: slope ${rate.slope:.3f}$  (95 %: ${low:.3f}$ to ${high:.3f}$)"
        ax.plot(line, height * (line / centre) ** rate.slope, color=style.INK, linewidth=1.3, label=label, zorder=3)
        guide = 0.5 * (rms * n**-THEORY).min() * line**THEORY
        ax.plot(line, guide, ":", color=style.SOFT, linewidth=1.4, label="theory: $n^{-1/2}$", zorder=2)
        _ticks(ax, n)
        ax.set(xlabel="number of tokens $n$", ylabel=f"error {_SYMBOLS[rate.statistic]}")
        if legend:
            ax.legend(frameon=False, fontsize=8.5)
        words = f"{rate.statistic} at $t={number(rate.t1)}$, against {rate.reference}"
        if rate.kernel >= THRESHOLD:
            words += "\n$\\|\\Sigma^{1/2}A\\Sigma^{1/2}\\|/\\tau$ reaches "
            words += f"${rate.kernel:.2f}\\geq1/\\sqrt{{2}}$: too large for $n^{{-1/2}}$"
        ax.set_title(words[0].upper() + words[1:] if title is None else title)
    return ax


def _measured(rate: Any) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Numbers of tokens, errors on the scale of the root mean squares, and these."""
    if not isinstance(rate, MeanFieldRate):
        checks.refuse(
            "this picture is of a mean-field rate",
            got=checks.described(rate),
            expected="what mf.mean_field_rate returns",
            remedy="mf.mean_field_rate(field, law, t1, key=key).plot()",
        )
    n, rms = np.asarray(rate.n, np.float64), np.asarray(rate.rms, np.float64)
    if not (rms > 0).all():
        checks.refuse(
            "a rate is drawn on a logarithmic scale",
            got=f"root mean squares {rms}",
            expected="errors above 0",
            remedy="there is no error to draw: print the rate",
        )
    raw = [np.asarray(row, np.float64) for row in rate.errors]
    return n, [row * (size / np.sqrt(np.mean(row**2))) for row, size in zip(raw, rms, strict=True)], rms


def _ticks(ax: Any, n: np.ndarray) -> None:
    """The numbers of tokens themselves, unless they are too many or too close to be told apart."""
    ax.set_xlim(n[0] / 1.3, n[-1] * 1.3)
    if len(n) <= 9 and np.diff(np.log(n)).min() > 0.055 * np.log(n[-1] / n[0]):
        ax.set_xticks(n, [f"{size:g}" if size < 1e5 else f"${number(size)}$" for size in n])
        ax.xaxis.set_minor_locator(ticker.NullLocator())

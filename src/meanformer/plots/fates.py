"""What pictures of Gaussian runs share: their data, the words and colours of fates, axes and legends."""

import math
from typing import Any

import numpy as np

from .. import _checks as checks
from . import style

_CONVERGED = (style.PALETTE[2], style.PALETTE[0], style.PALETTE[5])  # rank 0, 1, 2 and more
_OTHER = {"BLEW_UP": style.PALETTE[1], "DIVERGED": style.PALETTE[4], "UNDECIDED": style.SOFT}
_WORDS = {"CONVERGED": "converged", "BLEW_UP": "blow-up", "DIVERGED": "diverges", "UNDECIDED": "undecided"}


def history(run: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, means and factors of a Gaussian run, up to its last finite covariance."""
    states: Any = getattr(run, "states", None)
    if not hasattr(states, "factor") or not hasattr(states, "mean"):
        checks.refuse(
            "this picture is of a Gaussian run",
            got=checks.described(run),
            expected="a run of mf.flow from a Gaussian",
            remedy="start from mf.Gaussian(mean, cov); a run of tokens has run.plot()",
        )
    times, means, factors = (np.asarray(a, np.float64) for a in (run.times, states.mean, states.factor))
    finite = np.isfinite(factors).all(axis=(1, 2))
    end = len(times) if finite.all() else max(1, int(np.argmin(finite)))
    return times[:end], means[:end], factors[:end]


def fate_words(run: Any) -> str:
    """How the run ends, in two words: e.g. "converged, rank 1"."""
    kind = fate_kind(run)
    return f"converged, rank {int(run.fate.rank)}" if kind == "CONVERGED" else _WORDS.get(kind, "no verdict")


def fate_colour(run: Any) -> str:
    """The colour of a fate; limits of rank 0, 1, and higher differ."""
    kind = fate_kind(run)
    return _CONVERGED[min(int(run.fate.rank), 2)] if kind == "CONVERGED" else _OTHER.get(kind, style.INK)


def fate_kind(run: Any) -> str:
    """The kind of the fate; empty if the run has none."""
    return str(getattr(getattr(run, "fate", None), "kind", ""))


def heading(run: Any, d: int) -> str:
    """The field, the dimension and the fate, as a title."""
    ending = fate_words(run) if fate_kind(run) else ""
    blow_up = blow_up_time(run)
    if blow_up is not None:
        ending = f"blow-up at $t^{{*}}={number(blow_up)}$"
    return f"{type(run.field).__name__}, Gaussian in $\\mathbb{{R}}^{{{d}}}$" + (f": {ending}" if ending else "")


def blow_up_time(run: Any) -> float | None:
    """$t^*$ of a run that blows up."""
    return float(run.fate.time) if fate_kind(run) == "BLEW_UP" and math.isfinite(float(run.fate.time)) else None


def numbers(values: np.ndarray) -> list[str]:
    """Numbers for mathtext, with as many digits as tell them apart (up to ten)."""
    texts = ([number(value, digits) for value in values] for digits in range(3, 11))
    return next((t for t in texts if len(set(t)) == len(values)), [number(value, 10) for value in values])


def number(value: float, digits: int = 3) -> str:
    """A number for mathtext: 0.137, 2.5 x 10^6."""
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    leading, power = text.split("e")
    return (f"{leading}\\times" if leading != "1" else "") + f"10^{{{int(power)}}}"


def axes_for(ax: Any, figsize: tuple[float, float], three: bool = False) -> Any:
    """The user's axes if they fit, else those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # only here: a picture on the screen needs its figure manager

        figure: Any = plt.figure(figsize=figsize, layout="compressed")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
        return figure.add_subplot(projection="3d" if three else None)
    if (getattr(ax, "name", "") == "3d") != three:
        checks.refuse(
            "the axes do not fit the picture",
            got=f"{'two' if three else 'three'}-dimensional axes",
            expected='axes with projection="3d"' if three else "two-dimensional axes",
            remedy="leave ax out",
        )
    return ax


def beside(ax: Any, handles: list[Any] | None = None, title: str | None = None, at: float = 1.02) -> None:
    """A legend to the right of the axes, where no data are."""
    options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (at, 1.0), "borderaxespad": 0.0, "title": title}
    options |= {"frameon": False, "fontsize": 8.5, "title_fontsize": 8.5, "alignment": "left"}
    ax.legend(**options) if handles is None else ax.legend(handles=handles, **options)

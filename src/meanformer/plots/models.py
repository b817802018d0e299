"""The figures of a model's analysis, from its `results.json` alone."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .depth import CURVES, DEEP, Drawing, plot_curve, plot_deep, plot_fates, plot_spectrum
from .export import Keep, keep_figure
from .heads import (
    plot_closure_heads,
    plot_closure_layers,
    plot_closure_ratio,
    plot_entropy,
    plot_leaders,
    plot_ov,
    plot_symmetry,
)
from .tokenmap import plot_map

PICTURES: dict[str, Callable[[Mapping[str, Any]], Drawing | None]] = {
    "map": plot_map,
    **{f"curve-{name}": partial(plot_curve, name=name) for name in CURVES},
    "spectrum": plot_spectrum,
    "closure-ratio": plot_closure_ratio,
    "closure-layers": plot_closure_layers,
    "closure-heads": plot_closure_heads,
    "symmetry": plot_symmetry,
    "ov": plot_ov,
    "entropy": plot_entropy,
    "leaders": plot_leaders,
    "fates": plot_fates,
    **{f"deep-{part}": partial(plot_deep, part=part) for part in DEEP},
}
"""A figure with its caption for each name, from the tables of `results.json`; None if its numbers are not there."""


def draw_model(
    results: Mapping[str, Any], keep: Keep, say: Callable[[str], None] | None = None
) -> list[dict[str, str]]:
    """Draw what `results` has numbers for; `keep` takes each file, in `figures`, and `say` is told what is being drawn.

    **Returns:** for each figure its "name", "file" (relative to the folder) and "caption".
    """
    found = []
    for name, picture in PICTURES.items():
        drawn = picture(results)
        if drawn is not None:
            if say is not None:
                say(f"drawing {name}")
            figure, caption = drawn
            found.append(keep_figure(figure, keep, name, caption))
    return found

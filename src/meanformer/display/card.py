"""Cards: a title, a table and a small picture, as HTML that takes its colours from the page around it."""

import functools
import html
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

# Where larger ones are told by their shape.
LARGEST_MATRIX = 3
ROUNDING = 1e-12
GOOD, BAD, OPEN = "#228833", "#EE6677", "#CCBB44"


class Html(str):
    """Text that is HTML already. All other text is escaped."""


def escaped(text: Any) -> Html:
    """Text as HTML; what is HTML already stays."""
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def shown(build: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """The method `_repr_html_` that shows what `build` makes of an object.

    A display never raises into a cell: if `build` fails, a warning says so, and the notebook shows the object as text.
    Objects that are being traced have no numbers to show.
    """

    @functools.wraps(build)
    def _repr_html_(self: Any) -> str | None:
        from .._types import is_traced  # not above: fates are read where there is no JAX

        if is_traced(self):
            return None
        try:
            return build(self)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            warnings.warn(f"a {type(self).__name__} is shown as text: its display failed ({what})", stacklevel=2)
            return None

    return _repr_html_


def card(title: Any, rows: Iterable[tuple[Any, Any]], picture: Html | None = None, formula: Html | None = None) -> Html:
    """A title, a formula, and rows of names and values (those without a value are left out), beside a picture."""
    lines = "".join(
        f'<tr style="background:none">{_cell(name, "opacity:0.7;white-space:nowrap")}{_cell(value)}</tr>'
        for name, value in rows
        if value is not None
    )
    set_off = "" if formula is None else f'<div style="padding:0.5em 0;overflow-x:auto">{formula}</div>'
    named = re.sub(r"\bR\^(\d+)", r"&#8477;<sup>\1</sup>", escaped(title))
    words = f'<div style="font-weight:600">{named}</div>{set_off}{_table(lines) if lines else ""}'
    return Html(
        '<div style="display:flex;flex-wrap:wrap;gap:0.6em 1.5em;align-items:center;line-height:1.5">'
        f'{picture or ""}<div style="flex:1 1 18em;min-width:0;overflow-x:auto">{words}</div></div>'
    )


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Html:
    """A table with a header."""
    head = "".join(_cell(name, "opacity:0.7") for name in header)
    line = "background:none;border-top:1px solid rgba(128,128,128,0.35)"
    body = "".join(f'<tr style="{line}">{"".join(map(_cell, row))}</tr>' for row in rows)
    lines = f'<tr style="background:none">{head}</tr>{body}'
    return Html(f'<div style="overflow-x:auto;line-height:1.7">{_table(lines)}</div>')


def _table(lines: str) -> str:
    # A class of its own keeps the tables of pages off; notebooks are told by each style.
    style = "border:none;border-collapse:collapse;margin:0.3em 0;font-size:inherit"
    return f'<table class="meanformer" style="{style}">{lines}</table>'


def _cell(value: Any, style: str = "") -> str:
    plain = "border:none;background:none;text-align:left;vertical-align:top;padding:0 1.2em 0 0;font-size:inherit"
    return f'<td style="{plain};{style}">{escaped(value)}</td>'


def status(colour: str, words: Any) -> Html:
    """A sentence behind a dot: green, red or yellow."""
    return Html(f'<span style="color:{colour}">&#9679;</span> {escaped(words)}')


def number(value: Any) -> str:
    """A number with four digits."""
    return f"{float(value):.4g}"


def array(values: Any, scale: float = 0.0) -> Html:
    """A number, a short vector or a small matrix, without the rounding errors of numbers of size `scale`; of others the
    shape.
    """
    values = np.asarray(values)
    values = np.where(np.abs(values) <= ROUNDING * scale, 0, values) if scale else values
    if values.ndim == 0:
        return escaped(number(values) if values.dtype.kind == "f" else values)
    if values.ndim > 2 or max(values.shape) > LARGEST_MATRIX or 0 in values.shape:
        return Html(" &times; ".join(map(str, values.shape)))
    if values.ndim == 1:
        return Html("(" + ", ".join(escaped(number(v)) for v in values) + ")")
    if values.shape[0] == values.shape[1] > 1 and (values == values[0, 0] * np.eye(len(values))).all():
        factor = number(values[0, 0])
        return Html({"1": "<i>I</i>", "0": "0", "-1": "&minus;<i>I</i>"}.get(factor, f"{factor} <i>I</i>"))
    return Html("(" + "; ".join(", ".join(number(v) for v in row) for row in values) + ")")

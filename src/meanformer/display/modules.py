"""Fields and laws: the formula of the kind, and a table of what it is made of."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from .card import Html, array, card, escaped
from .mathml import formula_of

# Of more parts than this, such as heads, the others are counted.
MOST_PARTS = 4
_LETTERS = {"tau": "τ", "eps": "ε"}
_INDENT = Html("&emsp;")


def module_card(module: Any) -> Html:
    """The formula of a field, and its matrices, numbers and parts."""
    return card(type(module).__name__, list(_rows(module, Html(""))), formula=formula_of(type(module)))


def _rows(module: Any, indent: Html) -> Iterator[tuple[Html, Any]]:
    """A row for each thing that a module holds; the parts inside are indented."""
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if field.name == "maps":  # projections: their matrices are those of the kind
            yield from _rows(value, indent)
            continue
        name = Html(indent + escaped(_LETTERS.get(field.name, field.name)))
        if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
            yield name, f"{len(value)} {'part' if len(value) == 1 else 'parts'}"
            for k, part in enumerate(value[:MOST_PARTS]):
                inside = Html(indent + _INDENT)
                yield Html(f"{inside}{k}"), type(part).__name__
                yield from _rows(part, Html(inside + _INDENT))
            if len(value) > MOST_PARTS:
                yield Html(indent + _INDENT + "..."), f"and {len(value) - MOST_PARTS} more"
        elif isinstance(value, tuple) and value and hasattr(value[0], "shape"):
            yield name, Html(", ".join(array(one) for one in value[:MOST_PARTS]) + ", ..." * (len(value) > MOST_PARTS))
        elif dataclasses.is_dataclass(value):
            yield name, type(value).__name__
            yield from _rows(value, Html(indent + _INDENT))
        elif value is not None and value is not False:
            yield name, _value(value)


def _value(value: Any) -> Any:
    if hasattr(value, "shape") or isinstance(value, tuple):
        return array(np.asarray(value))
    return getattr(value, "__name__", value) if callable(value) else value

"""Where tokens live: `"sphere"`, or `{sphere = 2.0}` for another radius."""

from typing import Annotated, Any

import meanformer as mf

from .base import OneOfForms, Positive, Table, Word


class OnSphere(Table):
    """The sphere of a radius."""

    sphere: Positive


Space = Annotated[
    Any,
    OneOfForms(
        lambda value: "word" if isinstance(value, str) else "radius" if isinstance(value, (dict, Table)) else None,
        {"word": Annotated[str, Word("space", ["sphere"])], "radius": OnSphere},
        '"sphere", or {sphere = 2.0} for another radius',
    ),
]


def made_space(space: Any) -> mf.Sphere | None:
    """The space that the file means; None is Euclidean."""
    return None if space is None else mf.Sphere(space.sphere if isinstance(space, OnSphere) else 1.0)

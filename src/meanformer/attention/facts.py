"""What is known of a field as a whole, found out once for each field."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from .._types import Scalar, common_dtype
from .._warm import remembered
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from .base import AbstractField
from .extent import Extent, check_extent, check_speed, extent_of
from .hardmax import Hardmax
from .schedule import check_velocity, is_constant, pieces_of
from .sinkhorn import Sinkhorn


@dataclass(frozen=True)
class Facts:
    """The dtype of a field, the classes inside it, whether it does not depend on time, and for which measures it was
    checked.
    """

    dtype: Any
    classes: frozenset[type]
    constant: bool
    checked: set[Any] = field(default_factory=set)

    @property
    def discontinuous(self) -> bool:
        """Whether there is hardmax in it."""
        return Hardmax in self.classes

    @property
    def solves(self) -> bool:
        """Whether Sinkhorn problems are solved in it."""
        return Sinkhorn in self.classes

    @property
    def ours(self) -> bool:
        """Whether it is made of the kinds of this package alone, which see tokens by their weights."""
        return all(kind.__module__.startswith(("meanformer.attention.", "builtins")) for kind in self.classes)


def facts_of(field: AbstractField, t: Scalar) -> Facts:
    """What is known of a field, from time `t` on."""
    return _facts_of_constant(field) or _found(field, t, False)


@remembered
def _facts_of_constant(field: AbstractField) -> Facts | None:
    return _found(field, np.zeros(()), True) if is_constant(field) else None


def _found(field: AbstractField, t: Scalar, constant: bool) -> Facts:
    terms = [piece.terms(t) for piece in pieces_of(field)]
    classes: set[type] = set()
    _collect(jax.tree.structure((field, terms)), classes)
    return Facts(common_dtype(field, terms), frozenset(classes), constant)


def _collect(structure: Any, classes: set[type]) -> None:
    """Add the classes of the nodes of a tree."""
    data = structure.node_data()
    if data is not None:
        classes.add(data[0])
    for child in structure.children():
        _collect(child, classes)


def _sign(measure: Any) -> Any:
    """What a check of a field looks at in a measure."""
    if not isinstance(measure, (PointCloud, Gaussian, Density)):
        return type(measure)  # which is refused
    if isinstance(measure, Gaussian):
        return Gaussian, measure.mean.shape
    axes = measure.points.ndim if isinstance(measure, PointCloud) else None
    return type(measure), axes, measure.d, measure.positions is None


def check_moves(field: Any, measure: Any, t: Scalar) -> Facts:
    """`check_velocity`, once for a field and a kind of measure; and the facts of the field."""
    if isinstance(field, AbstractField):
        facts = _facts_of_constant(field)
        if facts is not None:
            sign = _sign(measure)
            if sign not in facts.checked:
                check_velocity(field, measure, t)
                facts.checked.add(sign)
            elif isinstance(measure, Gaussian):  # of which values are looked at too
                check_extent(_extent_of_constant(field), measure)
            return facts
    check_velocity(field, measure, t)
    return _found(field, t, False)


@remembered
def _extent_of_constant(field: AbstractField) -> Extent:
    return extent_of(field.terms(np.zeros(())))


def check_speeds(field: AbstractField, gaussian: Gaussian, t0: Scalar, t1: Scalar) -> None:
    """`check_speed` from `t0` to `t1`, under each piece of a field."""
    time = t1 - t0
    if facts_of(field, t0).constant:
        check_speed(_extent_of_constant(field), gaussian, time)
        return
    for piece in pieces_of(field):
        check_speed(extent_of(piece.terms(t0)), gaussian, time)

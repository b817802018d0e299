"""What may stand in the brackets behind a batch: JAX takes the last member for all that are beyond the end."""

import operator
from typing import Any, NoReturn

import jax
import numpy as np

from ._checks import InputError, refuse
from ._reading import Unreadable, read
from ._types import is_traced

TAKEN = "whole numbers, slices, or arrays of whole numbers or of truth values"


class OutOfRange(InputError, IndexError):
    """A member that a batch does not have. It is an `InputError`, and the `IndexError` that ends a loop."""

    def __reduce__(self) -> tuple[Any, ...]:
        return OutOfRange, (self.what, self.got, self.expected, self.remedy)


def checked_index(index: Any, batch: tuple[int, ...]) -> Any:
    """`index` for the leading axes `batch` of all arrays of a measure; those that are traced are not looked at."""
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) > len(batch):
        refuse(
            "a batch is indexed along its own axes",
            got=f"{len(parts)} indices for a batch of shape {batch}",
            expected=f"at most {len(batch)}",
            remedy="index a member first, then its arrays: batch[0].mean[1]",
        )
    return tuple(_checked(part, size) for part, size in zip(parts, batch, strict=False))


def member(index: Any, size: int, expected: str = "a whole number") -> int:
    """The number of one of `size` members, as it was given."""
    try:
        number = operator.index(index)
    except TypeError:
        _not_an_index(index, expected)
    if isinstance(index, bool):
        _not_an_index(index, expected)
    if not -size <= number < size:
        _out_of_range(number, size)
    return number


def _checked(part: Any, size: int) -> Any:
    if is_traced(part):
        return part
    if isinstance(part, slice):
        try:
            part.indices(size)
        except (TypeError, ValueError):
            _not_an_index(part, TAKEN)
        return part
    if isinstance(part, list) or (isinstance(part, (np.ndarray, jax.Array)) and part.ndim):
        return _checked_array(part, size)
    return member(part, size, TAKEN)


def _checked_array(part: Any, size: int) -> np.ndarray:
    try:
        array = np.asarray(read(part))
    except Unreadable:
        _not_an_index(part, TAKEN)
    if array.dtype == bool and array.shape != (size,):
        refuse(
            "a mask has a truth value for each member of the batch",
            got=f"shape {array.shape}",
            expected=f"shape ({size},)",
            remedy="make it from numbers of the batch: batch[batch.radius < 1]",
        )
    if array.dtype != bool and not np.issubdtype(array.dtype, np.integer):
        _not_an_index(part, TAKEN)
    if array.dtype != bool and array.size and not (-size <= array.min() and array.max() < size):
        _out_of_range(int(array.max() if array.max() >= size else array.min()), size)
    return array


def _out_of_range(index: int, size: int) -> NoReturn:
    raise OutOfRange(
        "the batch has no such member",
        got=f"index {index} for a batch of {size}",
        expected=f"{-size} <= index < {size}",
        remedy="count from 0, or from the end: -1 is the last",
    )


def _not_an_index(index: Any, expected: str) -> NoReturn:
    refuse(
        "members are numbered by whole numbers",
        got=repr(index),
        expected=expected,
        remedy="batch[0] is the first member, batch[-1] the last",
    )

"""Input checks. A refusal says what was asked, what was received, what was expected, and what to do.

All checks of *values* are skipped for traced arrays: they belong to the host, before any computing.
"""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._types import is_traced


class InputError(ValueError):
    """Input refused before any computing; the message says what, got, expected and remedy."""

    def __init__(self, what: str, got: Any, expected: str, remedy: str):
        self.what, self.got, self.expected, self.remedy = what, str(got), expected, remedy
        super().__init__(f"{what}\n  got:      {got}\n  expected: {expected}\n  remedy:   {remedy}")


def refuse(what: str, *, got: Any, expected: str, remedy: str) -> NoReturn:
    """Raise an `InputError`."""
    raise InputError(what, got, expected, remedy)


def to_array(value: Any, name: str) -> Array:
    """`value` as a floating array: a floating dtype is kept, integers become the default float."""
    if isinstance(value, str) or value is None:
        refuse(
            f"{name} must be numeric",
            got=repr(value),
            expected="an array of real numbers",
            remedy=f"pass {name} as an array",
        )
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        refuse(
            f"{name} cannot be read as an array",
            got=f"{type(value).__name__} ({error})",
            expected="an array of real numbers",
            remedy=f"pass {name} as a rectangular list, NumPy or JAX array",
        )
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        refuse(
            f"{name} must be real",
            got=array.dtype,
            expected="real numbers",
            remedy=f"pass {name}.real if that is what you mean",
        )
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(jnp.zeros(()).dtype)
    return array


def finite(array: Array, name: str) -> Array:
    """Refuse NaN and infinity."""
    if not is_traced(array) and not bool(jnp.isfinite(array).all()):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(np.asarray(array)))[0])
        refuse(
            f"{name} must be finite",
            got=f"{np.asarray(array)[index]} at index {index}",
            expected="no NaN or infinity",
            remedy=f"clean {name} first (e.g. drop the rows where it is not finite)",
        )
    return array


def matrix(value: Any, name: str) -> Array:
    """A finite matrix; a scalar is read as 1 x 1."""
    array = to_array(value, name)
    array = array[None, None] if array.ndim == 0 else array
    if array.ndim != 2 or 0 in array.shape:
        refuse(
            f"{name} must be a non-empty matrix",
            got=f"shape {array.shape}",
            expected="shape (rows, d)",
            remedy=f"reshape {name}; one row of length d has shape (1, d)",
        )
    return finite(array, name)


def vector(value: Any, name: str, size: int | None = None, why: str = "") -> Array:
    """A finite vector, of length `size` if given."""
    array = to_array(value, name)
    if array.ndim != 1 or (size is not None and array.shape[0] != size):
        length = "any length" if size is None else f"length {size}"
        refuse(
            f"{name} must be a vector",
            got=f"shape {array.shape}",
            expected=f"{length}{why}",
            remedy=f"pass {name} with one axis",
        )
    return finite(array, name)


def scalar(value: Any, name: str) -> Array:
    """A finite number."""
    array = to_array(value, name)
    if array.ndim != 0:
        refuse(
            f"{name} must be a single number",
            got=f"shape {array.shape}",
            expected="a scalar",
            remedy=f"pass one number as {name}",
        )
    return finite(array, name)


def positive(value: Any, name: str, remedy: str) -> Array:
    """A finite number above zero."""
    array = scalar(value, name)
    if not is_traced(array) and not float(array) > 0:
        refuse(f"{name} must be positive", got=float(array), expected=f"{name} > 0", remedy=remedy)
    return array


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        refuse(
            f"{name} must be a whole number",
            got=repr(value),
            expected=f"an integer >= {least}",
            remedy=f"pass {name}={least} or more",
        )
    return int(value)


def one_of(value: Any, name: str, options: Iterable[str]) -> str:
    """One of the words `options`; a near miss is named."""
    options = list(options)
    if value not in options:
        near = difflib.get_close_matches(str(value).lower(), options, n=1)
        refuse(
            f"{name} is not known",
            got=repr(value),
            expected=" or ".join(map(repr, options)),
            remedy=f"did you mean {near[0]!r}?" if near else f"choose one of these for {name}",
        )
    return value


def available_memory() -> int:
    """Bytes of memory free for use now (what the operating system calls available)."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fits_in_memory(what: str, nbytes: float, remedy: str) -> None:
    """Refuse an allocation that the machine cannot hold."""
    available = available_memory()
    if nbytes > 0.9 * available:
        refuse(
            f"{what} cannot fit in memory",
            got=f"{nbytes / 1e9:.3g} GB needed",
            expected=f"at most 90 % of the {available / 1e9:.3g} GB available",
            remedy=remedy,
        )

"""Reading arrays: what comes from outside as one array of numbers, or in words why it is none.

Values are read exactly, or not at all: whole numbers too, if they are floating-point numbers. Arrays of the other byte
order are turned round. Masked arrays are read if no entry is masked: what is hidden is not data. Not read are: numbers
of extended precision (`np.longdouble`), since JAX has none and would drop digits; those of half precision, since
spectra and errors need more digits (`.astype` converts both); records, objects, text and dates, and truth values among
numbers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# Arrays of NumPy have at most so many axes.
MOST_AXES = 64
CONTENTS = {"U": "text", "S": "text", "T": "text", "M": "dates", "m": "durations", "V": "records"}
EXACT = 53  # whole numbers of so many bits are floats
LONG = np.dtype(np.longdouble).itemsize > 8  # on some machines it is a double


class Unreadable(Exception):
    """What cannot be read: what is wrong, what it is instead, and what to do, each perhaps left to the caller."""

    def __init__(self, got: str, wrong: str = "cannot be read as numbers", remedy: str | None = None):
        super().__init__(got)
        self.got, self.wrong, self.remedy = got, wrong, remedy


def read(value: Any) -> Any:
    """`value` as an array of NumPy in the byte order of the machine, or of JAX if it is one or holds traced numbers."""
    if isinstance(value, jax.Array):
        return _readable(value, value)
    if isinstance(value, (list, tuple)) and _walk(value, value, MOST_AXES):
        return jnp.asarray(value)
    _refuse_masked(value, value)
    try:
        array = np.asarray(value)
    except Exception as error:
        if isinstance(value, (list, tuple)) and isinstance(error, ValueError):
            raise Unreadable(f"{_a(value)} with rows of different lengths") from None
        raise Unreadable(f"{_a(value)} that gives no array: {type(error).__name__}: {error}") from None
    array = _readable(array, value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def whole_numbers(array: Any, dtype: Any) -> None:
    """Refuse whole numbers that are none of the floating-point numbers of `dtype`; traced ones are not known."""
    most = 2 ** (jnp.finfo(dtype).nmant + 1)
    if array.size == 0 or isinstance(array, Tracer) or jnp.iinfo(array.dtype).max <= most:
        return
    values = np.asarray(array)
    if -most <= values.min() and values.max() <= most:
        return
    with np.errstate(invalid="ignore"):
        rounded = values.astype(dtype)
    inexact = [int(v) for v, r in zip(values.flat, rounded.flat, strict=True) if int(v) != int(r)]
    if inexact:
        raise Unreadable(
            f"{inexact[0]}, which {np.dtype(dtype).name} does not hold",
            "must be numbers that can be held exactly",
            "convert {name}, which rounds it: np.asarray({name}).astype(float)",
        )


def _readable(array: Any, value: Any) -> Any:
    """`array`, if its dtype is one to compute with."""
    dtype = array.dtype
    if isinstance(array, jax.Array) and jnp.issubdtype(dtype, jax.dtypes.extended):
        raise Unreadable("random keys")
    if dtype.kind in CONTENTS and not _of_numbers(dtype):
        raise Unreadable(f"{_a(value)} of {CONTENTS[dtype.kind]}")
    if dtype.kind == "O":
        raise Unreadable(_described(array, value))
    if LONG and dtype.itemsize > 8 * (1 + (dtype.kind == "c")):
        remedy = "convert {name}, which may round it: .astype(np.float64)"
        raise Unreadable(f"dtype {dtype.name}", "must be of at most double precision", remedy)
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32:
        raise Unreadable(
            f"dtype {dtype.name}", "must be of at least single precision", "convert {name}: .astype(np.float32)"
        )
    return array


def _of_numbers(dtype: np.dtype) -> bool:
    """Whether this is one of the small types of numbers that NumPy takes for records."""
    return dtype.kind == "V" and bool(jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer))


def _described(objects: Any, value: Any) -> str:
    if isinstance(value, int):
        return "a whole number beyond 64 bits"
    return f"{_a(value)} of objects of type {_name(objects.flat[0])}" if objects.size and objects.ndim else _a(value)


def _walk(part: Any, value: Any, axes: int) -> bool:
    """Whether a nested list holds traced numbers; refused if something in it is masked, of less precision than an
    array may have, a whole number that no float is, or a truth value.
    """
    traced, truths = False, 0
    for entry in part:
        if isinstance(entry, (list, tuple)):
            if axes == 1:
                raise Unreadable(f"{_a(value)} that is nested more than {MOST_AXES} deep")
            traced |= _walk(entry, value, axes - 1)
        else:
            traced |= isinstance(entry, Tracer)
            truths += isinstance(entry, (bool, np.bool_))
            _refuse_masked(entry, value)
            if isinstance(entry, int) and EXACT < entry.bit_length() <= 64:
                whole_numbers(np.asarray(entry), float)
            elif isinstance(entry, (np.ndarray, np.generic, jax.Array)):
                _check_entry(entry, value)
    if 0 < truths < len(part):
        raise Unreadable(f"{_a(value)} with truth values among numbers", "must be numbers, not truth values")
    return traced


def _check_entry(entry: Any, value: Any) -> None:
    """Refuse an array or a number with a dtype in a list, which are read as one array that may be of another dtype."""
    if entry.dtype.itemsize < 4:
        _readable(entry, value)
    elif entry.dtype.kind in "iu":
        whole_numbers(entry, float)


def _refuse_masked(entry: Any, value: Any) -> None:
    if isinstance(entry, np.ma.MaskedArray) and np.ma.is_masked(entry):
        got, wrong = f"{_a(value)} with masked entries", "must not be masked"
        raise Unreadable(got, wrong, "drop the masked rows, or fill them: {name}.filled(0.0)")


def _name(value: Any) -> str:
    return type(value).__name__


def _a(value: Any) -> str:
    """The name of a type with its article."""
    name = _name(value)
    return f"an {name}" if name == "ndarray" or name.lower().startswith(tuple("aeiou")) else f"a {name}"

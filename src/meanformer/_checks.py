"""Input checks. A refusal says what was asked, what was received, what was expected, and what to do.

All checks of *values* are skipped for traced arrays: they belong to the host, before any computing.
"""

import difflib
import functools
import inspect
import math
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._reading import EXACT, Unreadable, read, whole_numbers
from ._types import as_array, default_float, is_traced
from ._words import one_line, spell_out


class InputError(ValueError):
    """Input refused before any computing; the message says what, got, expected and remedy.

    It is a `ValueError`; the four parts are its attributes `what`, `got`, `expected` and `remedy`, all text. Values are
    checked where they are known: under `jit`, `vmap` and `grad` shapes alone are.

    ```python
    try:
        mf.PointCloud([1.0, 2.0])
    except mf.InputError as error:
        print(error)
        assert error.got == "shape (2,)"
    ```
    """

    def __init__(self, what: str, got: Any, expected: str, remedy: str):
        got = " ".join(str(got).split())  # on one line, whatever it is
        got = got if len(got) <= 200 else f"{got[:200]} ..."
        what, got, expected, remedy = map(one_line, (what, got, expected, remedy))  # it may quote somebody else
        spell_out(sys.exception())  # so may what it is raised from
        self.what, self.got, self.expected, self.remedy = what, got, expected, remedy
        super().__init__(f"{what}\n  got:      {got}\n  expected: {expected}\n  remedy:   {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:  # it may cross processes
        return InputError, (self.what, self.got, self.expected, self.remedy)


def refuse(what: str, *, got: Any, expected: str, remedy: str) -> NoReturn:
    """Raise an `InputError`."""
    raise InputError(what, got, expected, remedy)


def described(value: Any) -> str:
    """What a value of the wrong kind is, in a few words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of shape {value.shape}"
    if inspect.isfunction(value):
        return f"the function {value.__name__}{inspect.signature(value)}"
    return f"a value of type {type(value).__name__}"


def to_array(value: Any, name: str, kind: str = "an array of real numbers") -> Array:
    """`value` as a floating array: a floating dtype is kept, integers become the default float."""
    remedy = f"pass {name} as {kind}"
    if isinstance(value, str) or value is None:
        refuse(f"{name} must be numeric", got=repr(value), expected=kind, remedy=remedy)
    try:
        array = read(value)
        if jnp.issubdtype(array.dtype, jnp.integer):
            whole_numbers(array, default_float())
    except Unreadable as error:
        refuse(f"{name} {error.wrong}", got=error.got, expected=kind, remedy=(error.remedy or remedy).format(name=name))
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        remedy = f"pass the real part of {name} if that is what you mean"
        refuse(f"{name} must be real", got=f"dtype {array.dtype}", expected=kind, remedy=remedy)
    if array.dtype == bool:
        remedy = f"convert {name} with .astype(float) if 0 and 1 are what you mean"
        refuse(f"{name} must be numbers, not truth values", got=f"dtype {array.dtype}", expected=kind, remedy=remedy)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return as_array(array, default_float())
    return as_array(value if type(value) is float else array)  # a number of Python has its dtype only weakly


def known(*arrays: Any) -> bool:
    """Whether the values are known now, and so can be checked.

    Checks compute with NumPy: under `jit` JAX traces even what is known.
    """
    return not is_traced(arrays)


def finite(array: Any, name: str) -> Any:
    """Refuse NaN and infinity."""
    if known(array) and not np.isfinite(np.asarray(array)).all():
        values = np.asarray(array)
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        alone = array.ndim == 0
        refuse(
            f"{name} must be finite",
            got=f"{name} = {values}" if alone else f"{values[index]} at index {index}",
            expected="a finite number" if alone else "no NaN or infinity",
            remedy=f"pass a finite number as {name}" if alone else f"replace or drop what is not finite in {name}",
        )
    return array


UNITS = "measure in larger units: divide the points by a power of two"


def representable(value: Any, name: str, remedy: str = UNITS) -> Any:
    """Refuse a result that is beyond the floating-point range, though all that it is made of is within."""
    if known(value) and not np.isfinite(np.asarray(value)).all():
        refuse(
            f"{name} is beyond the range of floating-point numbers",
            got="a number that is too large, or not a number",
            expected=f"finite numbers, below {float(jnp.finfo(np.asarray(value).dtype).max):.3g}",
            remedy=remedy,
        )
    return value


def matrix(value: Any, name: str) -> Array:
    """A finite matrix; a scalar is read as 1 x 1."""
    array = to_array(value, name, "a matrix")
    array = array[None, None] if array.ndim == 0 else array
    if array.ndim != 2 or 0 in array.shape:
        refuse(
            f"{name} must be a non-empty matrix",
            got=f"shape {array.shape}",
            expected="shape (rows, columns)",
            remedy=f"reshape {name}; one row of length d has shape (1, d)",
        )
    return finite(array, name)


def vector(value: Any, name: str, size: int | None = None, why: str = "") -> Array:
    """A finite vector, of length `size` if given."""
    array = to_array(value, name, "a vector")
    shape = "(n,)" if size is None else f"({size},)"
    if array.ndim != 1:
        refuse(
            f"{name} must be a vector",
            got=f"shape {array.shape}",
            expected=f"shape {shape}{why}",
            remedy=f"pass {name} with one axis",
        )
    if size is not None and array.shape[0] != size:
        refuse(
            f"{name} must have length {size}",
            got=f"length {array.shape[0]}",
            expected=f"length {size}{why}",
            remedy=f"pass {name} of shape {shape}",
        )
    return finite(array, name)


def scalar(value: Any, name: str) -> Array:
    """A finite number."""
    array = to_array(value, name, "a number")
    if array.ndim != 0:
        refuse(
            f"{name} must be a single number",
            got=f"shape {array.shape}",
            expected="a scalar",
            remedy=f"pass one number as {name}",
        )
    return finite(array, name)


def number(value: Any, name: str) -> Any:
    """A finite number for use on the host: one of Python's becomes an array of NumPy, which costs next to nothing."""
    if (type(value) is float and math.isfinite(value)) or (type(value) is int and value.bit_length() < EXACT):
        return np.asarray(value, default_float())
    return scalar(value, name)


def positive(value: Any, name: str, remedy: str) -> Array:
    """A finite number above zero."""
    array = scalar(value, name)
    if known(array) and not float(array) > 0:
        refuse(f"{name} must be positive", got=f"{name} = {float(array):g}", expected=f"{name} > 0", remedy=remedy)
    return array


def relative_tolerance(rtol: Any, digits: Any, usual: str = "1e-6") -> Array:
    """A relative tolerance that the dtype `digits` can meet."""
    rtol = positive(rtol, "rtol", f"{usual} is the default")
    if known(rtol) and float(rtol) >= 1:
        refuse(
            "rtol must be below 1",
            got=f"rtol = {float(rtol):g}",
            expected="a relative error",
            remedy=f"{usual} is the default, 1e-3 is coarse",
        )
    least = 50 * float(jnp.finfo(digits).eps)
    if known(rtol) and float(rtol) < least:
        double = digits == np.float64
        refuse(
            "rtol is too strict for the dtype",
            got=f"rtol = {float(rtol):.3g} in {digits}",
            expected=f"rtol >= {least:.2g}",
            remedy="loosen rtol" + ("" if double else ", or pass float64 tokens: points.astype('float64')"),
        )
    return rtol


def power(value: Any) -> float:
    """The exponent p of a Wasserstein distance, a known number p >= 1."""
    array = scalar(value, "p")
    if not known(array) or not float(array) >= 1:
        refuse(
            "p must be a number, 1 or more",
            got=f"p = {float(array):g}" if known(array) else "a traced number",
            expected="p >= 1",
            remedy="p=1 and p=2 are the usual ones; below 1 it is no distance of this kind",
        )
    return float(array)


# Larger whole numbers do not fit into an array, and count nothing.
MOST = 2**62


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < MOST:
        refuse(
            f"{name} must be a whole number, {least} or more",
            got=f"{name} = {value!r}",
            expected=f"an integer >= {least}" + ", and below 2^62" * (isinstance(value, int) and value >= MOST),
            remedy=f"pass a Python integer, e.g. {name}={max(least, 10)}",
        )
    return int(value)


def dimension(value: Any) -> int:
    """The dimension d of a space whose points fit in memory."""
    d = whole(value, "d")
    fits_in_memory("a space of this dimension", 64 * d, "take a smaller d")
    return d


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        refuse(
            f"{name} must be True or False",
            got=f"{name} = {value!r}",
            expected="a truth value",
            remedy=f"pass {name}=True or {name}=False",
        )
    return bool(value)


def takes(function: Any, arguments: int) -> bool:
    """Whether `function` can be called with so many arguments (yes, if it does not tell)."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def draws(n: Any, d: int, key: Any) -> int:
    """The number of tokens to draw in dimension `d`, if it is one, fits in memory, and `key` is a random key."""
    n = whole(n, "n")
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0
    old = hasattr(key, "dtype") and key.dtype == jnp.uint32 and key.shape == (2,)
    if not typed and not old:
        refuse(
            "key must be a random key",
            got=repr(key),
            expected="one key of JAX",
            remedy="key=jax.random.key(0); another number gives another sample",
        )
    fits_in_memory(f"drawing n = {n} tokens", 4 * 8 * n * d, "draw fewer tokens")
    return n


def one_of(value: Any, name: str, options: Iterable[str]) -> str:
    """One of the words `options`; a near miss is named."""
    options = list(options)
    if not isinstance(value, str) or value not in options:
        near = difflib.get_close_matches(str(value).lower(), options, n=1)
        refuse(
            f"{name} is not known",
            got=repr(value),
            expected=" or ".join(map(repr, options)),
            remedy=f"did you mean {near[0]!r}?" if near else f"choose one of these for {name}",
        )
    return value


def available_memory() -> int:
    """Bytes of memory free for use now (what the operating system calls available), looked up once a second."""
    return _available_memory(int(time.monotonic()))


@functools.lru_cache(1)
def _available_memory(second: int) -> int:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fits_in_memory(what: str, nbytes: float | int, remedy: str) -> None:
    """Refuse an allocation that the machine cannot hold."""
    available = available_memory()
    nbytes = min(nbytes, 1e300)  # of whole numbers that are no floats
    if nbytes > 0.9 * available:
        refuse(
            f"{what} cannot fit in memory",
            got=f"{nbytes / 1e9:.3g} GB needed",
            expected=f"at most 90 % of the {available / 1e9:.3g} GB available",
            remedy=remedy,
        )

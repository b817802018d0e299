"""Numbers of any size: what is squared is first divided by a power of two, which is exact, and multiplied back after.

Squares of 1e-200 are 0 and those of 1e200 infinite (in single precision: of 1e-23 and 1e20), while a length, an angle
or a rank is neither. All take arrays of NumPy and of JAX, can be traced, and have the derivatives of the formula: the
power of two is locally constant.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _numpy_of(array: Any) -> Any:
    return np if isinstance(array, (np.ndarray, np.generic, float)) else jnp


def unit(array: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """The power of two at the largest size of `array`: a power u with max |array| in [u, 2 u), or less by a factor of 4
    at the end of the range; 1 if all are zero, or some not finite. Over some axes, which are kept with length one, or
    over all, as a number.
    """
    xp = _numpy_of(array)
    array = array if xp is np else jax.lax.stop_gradient(array)
    largest = xp.max(xp.abs(array), axis=axis, keepdims=axis is not None, initial=0)
    some = (largest > 0) & (largest < np.inf)
    largest = xp.where(some, largest, 1)
    power = largest / (2 * xp.frexp(largest)[0])  # not `ldexp`: the power above the largest number is infinite
    # A program may multiply by 1/u instead, which must not be subnormal: those are 0 there.
    return xp.minimum(power, np.asarray(2.0 ** (np.finfo(power.dtype).maxexp - 3), power.dtype))


def norm(array: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """The root of the sum of squares, along `axis` or of all; its derivative at 0 is 0."""
    xp = _numpy_of(array)
    u = unit(array, axis)
    squares = xp.sum((array / u) ** 2, axis=axis, keepdims=axis is not None)
    none = squares == 0  # what is no number stays none
    length = u * xp.where(none, 0, xp.sqrt(xp.where(none, 1, squares)))
    return length if axis is None else xp.squeeze(length, axis)


def square(small: Any, unit: Any) -> Any:
    """`small` times the square of `unit`, which alone may be beyond the range where the product is not."""
    return small * unit * unit


def times(*factors: Any) -> Any:
    """The product of numbers, one or more of JAX: within the range where it is, though products of some of them may not
    be. It is 0 if one of them is: infinite are those that are beyond the range.
    """
    units = [unit(factor) for factor in factors]
    mantissas = [factor / u for factor, u in zip(factors, units, strict=True)]
    none = functools.reduce(jnp.logical_or, [m == 0 for m in mantissas])
    mantissa = math.prod(jnp.where(none & jnp.isinf(m), 1, m) for m in mantissas)
    return jnp.ldexp(mantissa, sum(jnp.frexp(u)[1] - 1 for u in units))


def quotient(above: Sequence[Any], below: Sequence[Any]) -> float:
    """The product of the numbers `above` over that of those `below`, of Python or NumPy: within the range where it is,
    though products of some of them may not be; else 0 or infinite.
    """
    (up, powers), (down, less) = (np.frexp(np.array(numbers, float)) for numbers in (above, below))
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(np.prod(up) / np.prod(down), int(powers.sum() - less.sum())))


def grown(value: Any, exponent: Any) -> Any:
    """`value * exp(exponent)`: within the range where it is, though the exponential may not be; 0 stays 0."""
    xp = _numpy_of(value)
    value = xp.asarray(value)
    # Of 0 the exponential is finite: so derivatives are no NaN either.
    most = np.asarray(math.log(np.finfo(value.dtype).max) - 1, value.dtype)
    with np.errstate(over="ignore", under="ignore"):
        half = xp.exp(xp.where(value == 0, xp.minimum(exponent, most), exponent) / 2)
        return value * half * half


def product(small: Any, units: Any) -> Any:
    """U C U for C = `small`, of shape `(*batch, d, d)`, and U the diagonal of `units`, of shape `(*batch, d, 1)`:
    by the larger of two units first, so that what is within the range stays there.
    """
    xp, across = _numpy_of(units), units.swapaxes(-1, -2)
    return small * xp.maximum(units, across) * xp.minimum(units, across)


def common(small: Any, units: Any) -> tuple[Any, Any]:
    """(C, u) with `square(C, u)` = `product(small, units)`: one power of two for all, u of shape `(*batch, 1, 1)`."""
    xp = _numpy_of(units)
    some = xp.diagonal(small, axis1=-2, axis2=-1)[..., None] != 0  # a row of zeros has no unit
    largest = unit(xp.where(some, units, 0), (-2, -1))
    return product(small, xp.where(some, units / largest, 1)), largest


def gram_by_rows(factor: Any) -> tuple[Any, Any]:
    """(C, u) with `product(C, u)` = L L^T for L = `factor`, of shape `(*batch, d, r)`: a power of two for each row."""
    u = unit(factor, -1)
    scaled = factor / u
    return _numpy_of(factor).einsum("...ir,...jr->...ij", scaled, scaled), u


def gram(factor: Any) -> tuple[Any, Any]:
    """(C, u) with `square(C, u)` = L L^T for L = `factor`, of shape `(*batch, d, r)`; u has shape `(*batch, 1, 1)`."""
    return common(*gram_by_rows(factor))


def root(array: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """A power of two whose square is the `unit` of `array`, or half of it: over it twice, `array` is about one."""
    u = unit(array, axis)
    return unit(_numpy_of(u).sqrt(u), axis)

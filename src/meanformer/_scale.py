"""Numbers of any size: what is squared is first divided by a power of two, which is exact, and multiplied back after.

Squares of 1e-200 are 0 and those of 1e200 infinite (in single precision: of 1e-23 and 1e20), while a length, an angle
or a rank is neither. All take arrays of NumPy and of JAX, can be traced, and have the derivatives of the formula: the
power of two is locally constant.
"""

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


def gram(factor: Any) -> tuple[Any, Any]:
    """(C, u) with `square(C, u)` = L L^T for L = `factor`, of shape `(*batch, d, r)`; u has shape `(*batch, 1, 1)`."""
    u = unit(factor, (-2, -1))
    scaled = factor / u
    return _numpy_of(factor).einsum("...ir,...jr->...ij", scaled, scaled), u


def root(array: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """A power of two whose square is the `unit` of `array`, or half of it: over it twice, `array` is about one."""
    u = unit(array, axis)
    return unit(_numpy_of(u).sqrt(u), axis)

r"""A problem in units of its own: a factor of about one that moves in about one unit of time.

$\dot L=GL$ has no scale: with $L=cL'$, $Q'=cQ$, $K'=cK$ the logits are what they were, and $V'=V/s$ is the same motion
in the time $st$. So a march of a very large, small, fast or slow Gaussian is one of an ordinary size. Units are powers
of two; problems of ordinary sizes have none, and are left as they are to the bit.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .. import _checks as checks
from ..attention.affine import Affine
from ..attention.base import AbstractField, AbstractLeaf
from ..attention.extent import ROOM, bits, power, refuse_logits, sizes
from ..attention.l2 import L2
from ..attention.linear import Linear
from ..attention.sinkhorn import Sinkhorn
from ..attention.softmax import Softmax
from ..measures.gaussian import Gaussian

# Sizes and speeds between 2^-ORDINARY and 2^ORDINARY are left as they are.
ORDINARY = 128
MOST = np.finfo(np.float64).maxexp - ROOM


class Units(NamedTuple):
    """The exponents of the units: lengths are in units of 2^`length`, times in those of 2^-`speed`."""

    length: Any
    speed: Any

    def time(self, values: Any) -> Any:
        """Times as they are; infinite beyond the range."""
        return self._times(values, -self.speed)

    def rate(self, values: Any) -> Any:
        """Rates as they are."""
        return self._times(values, self.speed)

    def lengths(self, values: Any, degree: int = 1) -> Any:
        """Lengths, or squares of them, as they are."""
        return self._times(values, degree * self.length)

    def own_time(self, values: Any) -> Any:
        """Times in units of this problem."""
        return self._times(values, self.speed)

    def _times(self, values: Any, exponent: Any) -> Any:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return _shifted(values, exponent)


def _shifted(array: Any, exponent: Any) -> Any:
    """An array times 2^exponent, which has the leading axes of the array; itself if that is 0."""
    exponent = np.asarray(exponent, np.int32)  # as `ldexp` takes them everywhere
    if not exponent.any():
        return array
    array = np.asarray(array)
    return np.ldexp(array, exponent.reshape(exponent.shape + (1,) * (array.ndim - exponent.ndim)))


class _Speed(NamedTuple):
    """How fast one term moves a Gaussian, and its logits: binary logarithms."""

    name: str
    speed: Any
    logits: Any


def _speed(left: Any, leaf: Any, length: Any, with_mean: Any, batch: int) -> _Speed | None:
    """An estimate of $|GL|/|L|$; None if the kind is not known here."""
    name, left = type(leaf).__name__, bits(left, batch)
    if type(leaf) is Affine:
        return _Speed(name, left + bits(leaf.M, batch), None)
    if type(leaf) not in (Softmax, L2, Sinkhorn, Linear):
        return None
    found = sizes(leaf, batch)
    assert found is not None
    logits = found.logits(length)
    if type(leaf) is Sinkhorn:
        return _Speed(name, left + found.v + np.minimum(logits, 0), logits)
    if type(leaf) is L2:
        query, key = (size + found.rest / 2 + length for size in (found.q, found.k))
        return _Speed(name, left + found.v + query - np.abs(key), logits)
    if type(leaf) is Linear:
        maps = leaf.maps
        value, key = (
            size + with_mean if bias is None else np.maximum(size + with_mean, bits(bias, batch))
            for size, bias in ((found.v, maps.value_bias), (found.k, maps.key_bias))
        )
        return _Speed(name, left + value + key + found.q + found.rest, logits)
    return _Speed(name, left + found.v + logits, logits)


def own_units(
    field: AbstractField, gaussian: Gaussian, with_mean: bool, batch: int = 0, strict: bool = True
) -> tuple[AbstractField, Gaussian, Units]:
    """The problem in units of its own, or each of a batch of them (arrays of NumPy), and the units.

    If `strict`, logits, speeds and times that leave the range are refused.
    """
    length, mean = bits(gaussian.factor, batch), bits(gaussian.mean, batch)
    none = Units(np.zeros_like(length, int), np.zeros_like(length, int))
    reach = np.maximum(length, mean) if with_mean else length
    terms = _terms(field, batch)
    found = [_speed(left, leaf, length, reach, batch) for left, leaf in terms]
    if not all(found):
        return field, gaussian, none
    speeds = np.stack([np.broadcast_to(part.speed, length.shape) for part in found if part is not None])
    fastest = speeds.max(axis=0)
    if strict:
        _check(found, speeds, fastest)
    with np.errstate(invalid="ignore"):
        extreme = (np.abs(fastest) > ORDINARY) & np.isfinite(fastest)
        extreme |= (np.abs(reach) > ORDINARY) & np.isfinite(reach)
    if not extreme.any():
        return field, gaussian, none

    def exponents(size: Any) -> Any:
        return np.where(extreme & np.isfinite(size), np.round(np.where(np.isfinite(size), size, 0)), 0).astype(int)

    units = Units(exponents(np.maximum(reach, mean - MOST)), np.clip(exponents(fastest), -MOST, MOST))
    with np.errstate(over="ignore", under="ignore"):
        field = jax.tree.map(lambda part: _in_units(part, units), field, is_leaf=_is_leaf)
        mean, factor = (_shifted(a, -units.length) for a in (gaussian.mean, gaussian.factor))
    return field, eqx.tree_at(lambda g: (g.mean, g.factor), gaussian, (mean, factor)), units


def _is_leaf(part: Any) -> bool:
    return isinstance(part, AbstractLeaf)


def _terms(field: AbstractField, batch: int) -> list[tuple[Any, Any]]:
    def terms(field: AbstractField) -> list[tuple[Any, Any]]:
        return [(term.left, term.leaf) for term in field.terms(np.zeros(()))]

    if isinstance(field, AbstractLeaf):  # alone, as most are
        return [(np.ones(len(jax.tree.leaves(field)[0])) if batch else 1.0, field)]
    return jax.vmap(terms)(field) if batch else terms(field)


def _in_units(part: Any, units: Units) -> Any:
    """A part of a field; what is no leaf, a number or a matrix on the left, has no units."""
    if not _is_leaf(part):
        return part
    slower = -units.speed
    offset = slower - units.length

    def maps(leaf: Any) -> list[tuple[Any, Any]]:
        if type(leaf) is Affine:
            return [(leaf.M, slower), (leaf.b, offset)]
        own = leaf.maps
        return [(own.Q, units.length), (own.K, units.length), (own.V, slower), (own.value_bias, offset)]

    def arrays(leaf: Any) -> list[Any]:
        return [array for array, _ in maps(leaf) if array is not None]

    return eqx.tree_at(arrays, part, [_shifted(array, by) for array, by in maps(part) if array is not None])


def _check(found: list[_Speed | None], speeds: np.ndarray, fastest: Any) -> None:
    """Refuse what leaves the range in any units."""
    for part, speed in zip(found, speeds, strict=True):
        assert part is not None
        if part.logits is None:
            continue
        sizes = np.broadcast_to(part.logits, fastest.shape)
        if (sizes > MOST).any():
            which = int(np.argmax(sizes > MOST))
            refuse_logits(part.name, sizes.ravel()[which], MOST, _number(which, sizes))
        # Logits that become zero, where they are all that moves the Gaussian.
        _refuse_beyond(sizes, (sizes < -MOST) & (speed == fastest), "each logit", "(Q L)^T K L / tau")
    _refuse_beyond(fastest, np.abs(fastest) > MOST, "the speed", "|G|")


def _number(which: int, batch: Any) -> str:
    return f", in number {which} of the batch" if np.size(batch) > 1 else ""


def _refuse_beyond(sizes: Any, beyond: Any, what: str, formula: str) -> None:
    beyond = beyond & np.isfinite(sizes)  # what is zero is so in all units
    if not beyond.any():
        return
    which = int(np.argmax(beyond))
    checks.refuse(
        f"{what} of this Gaussian is beyond the range of floating-point numbers",
        got=f"{formula} of about {power(np.ravel(sizes)[which])}{_number(which, sizes)}",
        expected=f"between {power(-MOST)} and {power(MOST)}",
        remedy="scale Q and K, or V: in another unit of time the fate is the same",
    )

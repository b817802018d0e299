r"""How large the products are that a field forms on a Gaussian: told before any computing, as binary logarithms.

With $\Sigma=LL^\top$ these are the logits $(QL)^\top KL/\tau$, and the speed $\dot L=GL$, of the size $|V||L|$ times
the logits where a kind does not saturate.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._scale import unit
from .._types import common_dtype
from .._warm import remembered
from ..measures.gaussian import Gaussian

# Bits at the end of the range that are left to sums, to stages of a solver, and to growth.
ROOM = 7
# Bits below the size of a Gaussian at which what moves it cannot be seen.
NOTHING = 64


class Sizes(NamedTuple):
    """The binary logarithms of the largest entries of the matrices of a kind of attention, and of 1 / temperature."""

    q: Any
    k: Any
    v: Any
    rest: Any

    def logits(self, length: Any) -> Any:
        """Of the logits, for a factor of this size."""
        return self.q + self.k + self.rest + 2 * length


def bits(array: Any, batch: int = 0) -> Any:
    """The binary logarithm of the largest entry, over all axes but the first `batch` ones; minus infinity for zeros."""
    array = np.abs(np.asarray(array, np.float64))
    with np.errstate(divide="ignore"):
        return np.log2(array.max(axis=tuple(range(batch, array.ndim)), initial=0.0))


def sizes(leaf: Any, batch: int = 0) -> Sizes | None:
    """The sizes of a kind of attention, or of a batch of them; None of anything else, and of kinds of others."""
    if not hasattr(leaf, "maps") or not type(leaf).__module__.startswith("meanformer.attention."):
        return None
    temperature = getattr(leaf, "eps" if hasattr(leaf, "eps") else "tau")
    Q, K, V = (bits(M, batch) for M in (leaf.maps.Q, leaf.maps.K, leaf.maps.V))
    return Sizes(Q, K, V, -bits(temperature, batch))


class Part(NamedTuple):
    """One term of a field, and the sizes of its matrices."""

    leaf: Any
    left: Any
    sizes: Sizes

    @property
    def name(self) -> str:
        """The kind."""
        return type(self.leaf).__name__

    def speed(self, length: Any) -> Any:
        """Of $|V||L|$, with what stands on the left."""
        return self.left + self.sizes.v + length


class Extent(NamedTuple):
    """The terms of a field whose values are known, and the sizes of them all for a factor of size one: the largest of
    the logits, the largest of the speeds and the smallest one.
    """

    parts: tuple[Part, ...]
    logits: Any
    fastest: Any
    slowest: Any


@remembered
def _sizes(leaf: Any) -> Sizes | None:
    return sizes(leaf)


def extent_of(terms: Iterable[Any]) -> Extent:
    """What is known of the terms of a field."""
    known = [term for term in terms if checks.known(term.left, term.leaf)]
    found = [(term, _sizes(term.leaf)) for term in known]
    parts = tuple(Part(term.leaf, bits(term.left), size) for term, size in found if size is not None)
    if not parts:
        return Extent((), -np.inf, -np.inf, np.inf)
    logits = [part.sizes.logits(0) for part in parts]
    speeds = [part.speed(0) + size for part, size in zip(parts, logits, strict=True)]
    return Extent(parts, max(logits), max(speeds), min(speeds))


def check_extent(extent: Extent, gaussian: Gaussian) -> None:
    """Refuse a Gaussian on which logits leave the range; of known values only."""
    if not extent.parts or not checks.known(gaussian):
        return
    length = bits(gaussian.factor)
    if not extent.logits + 2 * length > _most(gaussian):
        return
    for part in extent.parts:
        most = _most(part.leaf, gaussian)
        if part.sizes.logits(length) > most and (size := _logits(part, gaussian)) > most:
            refuse_logits(part.name, size, most)


def check_speed(extent: Extent, gaussian: Gaussian, time: Any) -> None:
    """Refuse a Gaussian that moves faster than the range has numbers for, or slower while it moves far in `time`; of
    known values only.
    """
    if not extent.parts or not checks.known(gaussian):
        return
    length = bits(gaussian.factor)
    if not np.isfinite(length):  # a point
        return
    if extent.fastest + 3 * length <= _most(gaussian) and extent.slowest + 3 * length >= -_most(gaussian):
        return
    for part in extent.parts:
        most, times = _most(part.leaf, gaussian), part.speed(length)
        speed = times + part.sizes.logits(length)
        if speed > most and not part.leaf.saturates and (size := times + _logits(part, gaussian)) > most:
            units = "larger units, L / c with Q c and K c; or scale V down"
            _refuse_speed(part.name, size, f"at most {power(most)}", units)
        far = checks.known(time) and speed - length + bits(time) > -NOTHING
        if speed < -most and far and (size := times + _logits(part, gaussian)) > -np.inf:
            units = "smaller units, L c with Q / c and K / c; or scale V up and the time down"
            _refuse_speed(part.name, size, f"at least {power(-most)}, for so long a time", units)


def _most(*trees: Any) -> int:
    return jnp.finfo(common_dtype(*trees)).maxexp - ROOM


def _refuse_speed(name: str, size: Any, expected: str, units: str) -> NoReturn:
    checks.refuse(
        f"the speed of the Gaussian under {name} is beyond the range of floating-point numbers",
        got=f"|V| |L| |(Q L)^T K L| / tau of about {power(size)}, where Sigma = L L^T",
        expected=expected,
        remedy=f"measure in {units}",
    )


def _logits(part: Part, gaussian: Gaussian) -> Any:
    """What the logits are, as binary logarithm: without what Q or K send to zero."""
    Q, K, L = (np.asarray(M, np.float64) for M in (part.leaf.maps.Q, part.leaf.maps.K, gaussian.factor))
    q, k, u = (unit(M) for M in (Q, K, L))
    small = ((K / k) @ (L / u)).T @ ((Q / q) @ (L / u))
    return bits(small) + np.log2(q) + np.log2(k) + 2 * np.log2(u) + part.sizes.rest


def refuse_logits(name: str, size: Any, most: Any, of: str = "") -> NoReturn:
    """Refuse logits that leave the range."""
    checks.refuse(
        f"the logits of {name} on this Gaussian are beyond the range of floating-point numbers",
        got=f"(Q L)^T K L / tau of about {power(size)}, where Sigma = L L^T{of}",
        expected=f"at most {power(most)}",
        remedy="scale Q and K, or the Gaussian, down; logits have no units: L / c with Q c and K c has the same",
    )


def power(size: Any) -> str:
    """A number by its binary logarithm, which may be beyond the range: 1e+320."""
    return f"1e{round(float(size) * np.log10(2)):+d}"

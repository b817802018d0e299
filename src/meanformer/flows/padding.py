"""Clouds padded to a few sizes inside a run, so that programs are not compiled again for each number of tokens.

Padding repeats the last token with weight zero: it moves along, and nobody sees it. What counts tokens without their
weights must leave it out (`ParticleSystem.size_of`), so a cloud is padded only where all that looks at it is ours.
"""

from typing import Any

import numpy as np

from .._types import Scalar
from .._warm import assembled
from ..attention.facts import facts_of
from ..spaces import AbstractSpace
from .particles import ParticleSystem
from .stepping import Asked
from .system import AbstractSystem

# Up to here a size is a power of two; further on a multiple of an eighth of the next one, and of 16: at most half more.
DOUBLED, UNIT = 32, 16


def padded_size(n: int) -> int:
    """The size to which a cloud of `n` tokens is padded."""
    power = 1 << max(n - 1, 7).bit_length()
    unit = power if power <= DOUBLED else max(power // 8, UNIT)
    return -(-n // unit) * unit


def padded(system: AbstractSystem, t0: Scalar, asked: Asked) -> AbstractSystem:
    """The system with a cloud of one of the few sizes, if that can be done unseen."""
    if not isinstance(system, ParticleSystem) or asked.planned or not _hides_padding(system, t0, asked):
        return system
    mu, size = system.mu, padded_size(system.mu.n)
    positions = None if mu.positions is None else _longer(np.asarray(mu.positions), size)
    cloud = mu.unchecked(_longer(np.asarray(mu.points), size), _longer(np.asarray(mu.weights), size, 0), positions)
    field, space, frame = system.field, system.space, system.frame
    return assembled(ParticleSystem, field=field, mu=cloud, space=space, frame=frame, count=np.asarray(mu.n))


def padded_state(system: AbstractSystem, y: Any) -> Any:
    """A state of the tokens, for the padded `system`."""
    if not isinstance(system, ParticleSystem) or system.count is None:
        return y
    points, *others = y if isinstance(y, tuple) else (y,)
    points = _longer(np.asarray(points), system.mu.n)
    return (points, *others) if isinstance(y, tuple) else points


def _longer(array: np.ndarray, size: int, value: Any = None) -> np.ndarray:
    """`array` with its last row, or with `value`, repeated up to `size` rows."""
    filler = array[-1:] if value is None else np.full_like(array[-1:], value)
    return np.concatenate([array, np.repeat(filler, size - len(array), axis=0)])


def _hides_padding(system: ParticleSystem, t0: Scalar, asked: Asked) -> bool:
    """Whether all that looks at the tokens goes by their weights."""
    return (
        facts_of(system.field, t0).ours
        and all(rule.by_weight for rule in asked.rules)
        and asked.observer.by_weight
        and type(system.space).__module__ == AbstractSpace.__module__
    )

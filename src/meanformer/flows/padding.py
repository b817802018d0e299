"""Clouds padded to a few sizes inside a run, so that programs are not compiled again for each number of tokens.

Padding repeats the last token with weight zero: it moves along, and nobody sees it. What counts tokens without their
weights must leave it out (`ParticleSystem.size_of`), so a cloud is padded only where all that looks at it is ours.
"""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._types import Scalar
from ..spaces import AbstractSpace
from .particles import ParticleSystem
from .stepping import Asked
from .system import AbstractSystem

# Up to here a size is a power of two, and further on a multiple of an eighth of the next one: at most a quarter more.
DOUBLED = 64


def padded_size(n: int) -> int:
    """The size to which a cloud of `n` tokens is padded."""
    power = 1 << max(n - 1, 7).bit_length()
    unit = power if power <= DOUBLED else power // 8
    return -(-n // unit) * unit


def padded(system: AbstractSystem, t0: Scalar, asked: Asked) -> AbstractSystem:
    """The system with a cloud of one of the few sizes, if that can be done unseen."""
    if not isinstance(system, ParticleSystem) or asked.planned or not _hides_padding(system, t0, asked):
        return system
    mu, size = system.mu, padded_size(system.mu.n)
    points, weights = np.asarray(mu.points), np.asarray(mu.weights)
    positions = None if mu.positions is None else np.asarray(mu.positions)
    cloud = eqx.tree_at(
        lambda m: (m.points, m.weights, m.positions),
        mu,
        (_longer(points, size), _longer(weights, size, 0), None if positions is None else _longer(positions, size)),
        is_leaf=lambda leaf: leaf is None,
    )
    return eqx.tree_at(lambda s: (s.mu, s.count), system, (cloud, np.asarray(mu.n)), is_leaf=lambda leaf: leaf is None)


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
    terms = jax.tree.structure(system.field.terms(t0))
    return (
        all(rule.by_weight for rule in asked.rules)
        and asked.observer.by_weight
        and type(system.space).__module__ == AbstractSpace.__module__
        and _all_from("meanformer.attention.", terms)
    )


@lru_cache(256)
def _all_from(package: str, structure: Any) -> bool:
    """Whether all classes in a tree, other than containers, are from a package."""
    data = structure.node_data()
    kind = None if data is None else data[0]
    known = kind in (None, tuple, list, dict, type(None)) or kind.__module__.startswith(package)
    return known and all(_all_from(package, child) for child in structure.children())

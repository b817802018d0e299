"""What a run keeps: all tokens at the save times, or a sample of them, and statistics of the whole measure."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .. import _checks as checks
from .._programs.call import program
from .._types import Scalar, as_array, is_traced
from .._warm import Module, light
from .particles import ParticleSystem
from .system import AbstractSystem


def _mean(mu: Any, t: Scalar) -> Array:
    return mu.mean


def _covariance(mu: Any, t: Scalar) -> Array:
    return mu.covariance


def _radius(mu: Any, t: Scalar) -> Array:
    return mu.radius


# Of the whole cloud, when only a sample of its tokens is kept.
STATISTICS = {"mean": _mean, "covariance": _covariance, "radius": _radius}


class Observer(Module):
    """Which tokens are kept (None: all), and which functions of the measure."""

    tokens: Int[Array, " sample"] | None
    functions: dict[str, Callable[[Any, Scalar], Any]]

    @property
    def by_weight(self) -> bool:
        """Whether tokens of weight zero never matter."""
        return all(function in STATISTICS.values() for function in self.functions.values())

    def record(self, system: AbstractSystem, t: Scalar, y: Any) -> tuple[Any, dict[str, Array]]:
        """What is kept of a state: a snapshot, and the statistics."""
        snapshot = system.snapshot(t, y)
        if self.tokens is not None:
            snapshot = (snapshot[0][self.tokens], *snapshot[1:])
        return snapshot, self.statistics(system, t, y)

    @light
    def look(self, system: AbstractSystem, t: Scalar, y: Any) -> tuple[Any, dict[str, Array]]:
        """What is looked at inside a program, of which `rows` makes records: the state, and the statistics."""
        return y if self.tokens is None else system.cut(y, self.tokens), self.statistics(system, t, y)

    @light
    def statistics(self, system: AbstractSystem, t: Scalar, y: Any) -> dict[str, Array]:
        """The functions of the measure."""
        measure = system.measure(y) if self.functions else None
        return {name: jnp.asarray(function(measure, t)) for name, function in self.functions.items()}

    @light
    def seen(self, system: AbstractSystem) -> AbstractSystem:
        """The system of the tokens that are kept: their share of the weights, scaled to one."""
        if self.tokens is None or not isinstance(system, ParticleSystem):
            return system
        mu, rows = system.mu, self.tokens
        weights = mu.weights[rows]
        positions = None if mu.positions is None else mu.positions[rows]
        kept = eqx.tree_at(
            lambda m: (m.points, m.weights, m.positions),
            mu,
            (mu.points[rows], weights / weights.sum(), positions),
            is_leaf=lambda leaf: leaf is None,
        )
        return eqx.tree_at(lambda s: s.mu, system, kept)

    @light
    def bytes(self, system: AbstractSystem) -> int:
        """The memory of what is kept of a state."""
        if self.tokens is None or not isinstance(system, ParticleSystem):
            return system.state_bytes
        return self.tokens.shape[0] * system.mu.d * system.mu.points.dtype.itemsize + 8 * system.mu.d**2


ALL_TOKENS = Observer(None, {})


def answer_of(what: str, function: Callable[[Any, Scalar], Any], mu: Any, t: Scalar) -> Any:
    """The shapes of what a user's function of the measure and the time gives; refused, with its own error, where it
    fails. `what` names it.
    """
    try:
        return eqx.filter_eval_shape(function, mu, t)
    except jax.errors.JAXTypeError as error:
        raise checks.InputError(
            f"{what} needs numbers that are not known when it is compiled",
            f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}",
            "a function (mu, t) that is written with jax.numpy: a run compiles it",
            "use jax.numpy instead of NumPy, and jnp.where in place of `if`",
        ) from error
    except Exception as error:
        raise checks.InputError(
            f"{what} fails",
            f"{type(error).__name__}: {error}",
            f"a function that is called with (mu, t), the measure first: here with {checks.described(mu)} and a time",
            "look at the order of its arguments, and at what the measure has; the error itself stands above this one",
        ) from error


def checked_observer(sample: Any, observers: Any, system: AbstractSystem, t: Scalar) -> Observer:
    """The observer that the user's `sample` and `observers` mean."""
    tokens, functions = None, {}
    if sample is not None:
        sample = checks.whole(sample, "sample")
        if not isinstance(system, ParticleSystem):
            checks.refuse(
                "a sample is of tokens",
                got=f"sample = {sample} for {system.summary()}",
                expected="a PointCloud",
                remedy="leave sample out",
            )
        functions = dict(STATISTICS)
        if sample < system.mu.n:
            weights = system.mu.weights
            visible = np.arange(system.mu.n) if is_traced(weights) else np.flatnonzero(np.asarray(weights) > 0)
            chosen = np.random.default_rng(0).choice(visible, min(sample, visible.size), replace=False)
            tokens = as_array(np.sort(chosen))
    if observers is not None:
        wrong = [
            name
            for name, function in (observers.items() if isinstance(observers, dict) else ())
            if not isinstance(name, str) or not checks.takes(function, 2)
        ]
        if wrong or not isinstance(observers, dict):
            checks.refuse(
                "observers are named functions of the measure and the time",
                got=f"{wrong[0]!r}: no function of two arguments" if wrong else checks.described(observers),
                expected="a dict of functions (mu, t) -> array",
                remedy='observers={"trace": lambda mu, t: jnp.trace(mu.covariance)}',
            )
        for name, function in observers.items():
            if name in functions:
                checks.refuse(
                    f"{name!r} is the name of a statistic that is kept anyway",
                    got=f"observers with {name!r}, and a sample",
                    expected=f"other names than {', '.join(functions)}",
                    remedy="choose another name",
                )
            shape = answer_of(f"the observer {name!r}", function, system.measure(system.start()), t)
            if not hasattr(shape, "shape") and not isinstance(shape, (int, float)):
                checks.refuse(
                    f"the observer {name!r} must give one array",
                    got=checks.described(shape),
                    expected="an array, the same shape at all times: observers are compiled",
                    remedy="stack several numbers, or give several observers",
                )
        functions |= observers
    return Observer(tokens, functions) if functions or tokens is not None else ALL_TOKENS


@program
def _look(observer: Observer, system: AbstractSystem, t: Scalar, y: Any) -> Any:
    return observer.look(system, t, y)


def recorded(observer: Observer, system: AbstractSystem, t: Scalar, y: Any) -> Any:
    """`observer.record` of a state on the host, with a leading axis of length one."""
    seen = _look(observer, system, t, y) if observer.functions else observer.look(system, t, y)
    states, statistics = jax.tree.map(lambda a: np.asarray(a)[None], seen)
    return system.snapshots(np.asarray(t)[None], states), statistics


def stacked(blocks: list[Any]) -> Any:
    """Records one block after the other, along their leading axis."""
    return blocks[0] if len(blocks) == 1 else jax.tree.map(lambda *a: np.concatenate(a), *blocks)

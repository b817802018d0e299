r"""One step of an embedded pair: the state after it, an estimate of its error, and the states inside it.

These are the methods of runs on the host (`meanformer.flows.stepping`), whose program holds one copy of the field and
so compiles several times faster than a general solver's; all others are those of diffrax. Nothing here imports it.
"""

import abc
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool

from .._types import Scalar
from .._warm import Module
from ..attention.solved import Watch
from ..rosenbrock import rodas5p_between, rodas5p_step

# Of a time, a state, and what is known of the Sinkhorn problems near it: the velocity, and what is known of them now.
Velocity = Callable[[Scalar, Any, Watch | None], tuple[Any, Watch | None]]


class Known(NamedTuple):
    """What a step hands on to the next one: the velocity at its end (None: not known), and the Sinkhorn problems solved
    so far (None: none, or not watched).
    """

    velocity: Any
    watch: Watch | None


class Step(NamedTuple):
    """What a step gives: the state after it, its error, the states inside it by the share of the step that is done, and
    what the next step starts from.
    """

    y: Any
    error: Any
    inside: Callable[[Scalar], Any]
    known: Known


class AbstractMethod(Module):
    """A one-step method."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The power of the step to which the error estimate is proportional; 0 if there is no estimate."""

    @property
    @abc.abstractmethod
    def chained(self) -> bool:
        """Whether the last velocity of a step is the first one of the next."""

    @property
    @abc.abstractmethod
    def watches(self) -> bool:
        """Whether it keeps an eye on Sinkhorn problems."""

    @abc.abstractmethod
    def step(self, velocity: Velocity, t: Scalar, y: Any, h: Scalar, known: Known, first: Bool[Array, ""]) -> Step:
        """A step of length `h` from `y`. `known` has the velocity there, if `chained`. The `first` step has the length
        zero: it is there for the velocity at its end.
        """


class Table(NamedTuple):
    r"""The numbers of an explicit method: $a_{ij}$ for $j<i$, $c_i$, $b_i$, those of the error, and of the states
    inside, $y(t+\theta h)=y+h\sum_i\beta_i(\theta)k_i$ with $\beta_i(\theta)=\sum_p B_{ip}\theta^p$, $p\ge1$.
    """

    a: np.ndarray
    c: np.ndarray
    b: np.ndarray
    error: np.ndarray
    inside: np.ndarray
    order: int


def _table(rows: list[list[float]], b: list[float], error: list[float], inside: list[list[float]], order: int) -> Table:
    a = np.array([[*row, *[0.0] * (len(b) - len(row))] for row in rows])
    return Table(a, a.sum(1), np.array(b), np.array(error), np.array(inside), order)


# Tsitouras, Runge-Kutta pairs of order 5(4) satisfying only the first column simplifying assumption, Comput. Math.
# Appl. 62 (2011). The last row of a is b: the last stage is the first one of the next step.
_B = [
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
]
TABLES = {
    "tsit5": _table(
        [
            [],
            [0.161],
            [-0.008480655492356989, 0.335480655492357],
            [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
            [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
            [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401, -0.028269050394068383],
            _B,
        ],
        [*_B, 0.0],
        [
            0.001780011052225771,
            0.0008164344596567469,
            -0.007880878010261995,
            0.1447110071732629,
            -0.5823571654525552,
            0.45808210592918697,
            -1 / 66,
        ],
        [
            [1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
            [0.0, 0.1317, -0.2234, 0.1017],
            [0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253],
            [0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902],
            [0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
            [0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661],
            [0.0, 1.5, -4.0, 2.5],
        ],
        5,
    ),
    "euler": _table([[]], [1.0], [0.0], [[1.0]], 0),
}


class RungeKutta(AbstractMethod):
    r"""An explicit method, $k_i=\Gamma(t+c_ih,\,y+h\sum_{j<i}a_{ij}k_j)$, $y_1=y+h\sum_ib_ik_i$.

    The stages are a loop, so that the field stands once in the program.
    """

    name: str = eqx.field(static=True)

    @property
    def order(self) -> int:
        return TABLES[self.name].order

    @property
    def chained(self) -> bool:
        table = TABLES[self.name]
        return len(table.b) > 1 and np.array_equal(table.a[-1], table.b)

    @property
    def watches(self) -> bool:
        return True

    def step(self, velocity: Velocity, t: Scalar, y: Any, h: Scalar, known: Known, first: Bool[Array, ""]) -> Step:
        table = TABLES[self.name]
        a, c, b, error, inside = (jnp.asarray(numbers, t.dtype) for numbers in table[:5])
        count = len(table.b)

        def moved(weights: Array, ks: Any) -> Any:
            return jax.tree.map(lambda k: h * jnp.tensordot(weights, k, 1), ks)

        def after(weights: Array, ks: Any) -> Any:
            return jax.tree.map(jnp.add, y, moved(weights, ks))

        def stage(i: Array, carry: tuple[Any, Watch | None]) -> tuple[Any, Watch | None]:
            ks, watch = carry
            k, watch = velocity(t + c[i] * h, after(a[i], ks), watch)
            return _put(ks, i, k), watch

        ks = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), y)
        if self.chained:
            # The first velocity of all is that of the last stage of a step of length zero.
            ks, begin = _put(ks, 0, known.velocity), jnp.where(first, count - 1, 1)
        else:
            begin = jnp.where(first, count, 0)
        ks, watch = jax.lax.fori_loop(begin, count, stage, (ks, known.watch))

        def state(share: Scalar) -> Any:
            weights = share * reduce(lambda total, coefficients: total * share + coefficients, inside.T[::-1])
            return after(weights, ks)

        last = jax.tree.map(lambda k: k[-1], ks) if self.chained else None
        return Step(after(b, ks), moved(error, ks), state, Known(last, watch))


def _put(ks: Any, i: Any, values: Any) -> Any:
    return jax.tree.map(lambda k, v: jax.lax.dynamic_update_index_in_dim(k, v, i, 0), ks, values)


class Rosenbrock(AbstractMethod):
    """Rodas5P, the linearly implicit method of `meanformer.rosenbrock`, for up to a few hundred unknowns."""

    @property
    def order(self) -> int:
        return 5

    @property
    def chained(self) -> bool:
        return False

    @property
    def watches(self) -> bool:
        return False

    def step(self, velocity: Velocity, t: Scalar, y: Any, h: Scalar, known: Known, first: Bool[Array, ""]) -> Step:
        flat, unravel = ravel_pytree(y)
        # A step of length zero has no factorisation; it is not made.
        after, error, stages = rodas5p_step(
            lambda t, y: ravel_pytree(velocity(t, unravel(y), None)[0])[0],
            t,
            flat,
            jnp.where(first, 1, h),
            autonomous=False,
        )
        after, error, stages = jnp.where(first, flat, after), jnp.where(first, 0, error), jnp.where(first, 0, stages)

        def state(share: Scalar) -> Any:
            return unravel(rodas5p_between(share, flat, after, stages))

        return Step(unravel(after), unravel(error), state, Known(None, None))


@lru_cache
def _method(name: str) -> AbstractMethod | None:
    return Rosenbrock() if name == "rodas5p" else RungeKutta(name) if name in TABLES else None


def method_of(name: Any) -> AbstractMethod | None:
    """The method of this name, if it is one of ours."""
    return _method(name) if isinstance(name, str) else None

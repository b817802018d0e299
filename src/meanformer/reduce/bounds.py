r"""Averages shifted by a bound of the logits instead of their maximum.

$\sum_jw_je^{c_{ij}}$, $\max_jw_j=1$, is shifted by $b_i\ge\max_jc_{ij}$ as well as by the maximum itself, as long as
nothing that matters underflows. Let the *spread* bound $b_i-c_{ij}$ over all pairs. The token of weight 1 makes the
shifted sum at least $e^{-\text{spread}}$; what is flushed to zero is below the smallest normal number, $n$ times at
most. So $n\cdot\text{tiny}\cdot e^{\text{spread}}\le\text{eps}$ suffices: a spread of 660 in float64, 60 in float32.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._types import Scalar
from .exponential import LOG2_E, power_of_two
from .reducers import Sum, Tokens, average, dot, finite_or_zero, minus_squared_distance, with_ones


class Bound(NamedTuple):
    r"""Queries and keys of which the logits are $(c_{ij}-b_i)\log_2e$, and not below minus `spread` times that."""

    logit: Callable[[Array, Array], Array]
    queries: Array
    keys: Array
    offset: Array
    r"""$b_i$"""
    spread: Scalar


def _centred(keys: Float[Array, "n k"], weights: Float[Array, " n"]) -> tuple[Array, Array, Scalar]:
    """The keys about the middle of their box, that middle, and their radius; tokens without weight are moved there."""
    some = (weights > -jnp.inf)[:, None]
    fixed = jax.lax.stop_gradient(keys)
    middle = finite_or_zero(
        (jnp.where(some, fixed, jnp.inf).min(axis=0) + jnp.where(some, fixed, -jnp.inf).max(axis=0)) / 2
    )
    centred = jnp.where(some, keys - middle[None], 0)
    return centred, middle, _norms(centred).max()


def _norms(x: Float[Array, "n k"]) -> Float[Array, " n"]:
    """Lengths of the rows. A shift cancels in the result, so it carries no derivative."""
    return jnp.sqrt(jnp.sum(jax.lax.stop_gradient(x) ** 2, axis=1))


def _bound_dot(queries: Array, keys: Array, weights: Array) -> Bound:
    r"""Cauchy-Schwarz: $|q\cdot(k-c)|\le|q|R=:s$. The shift is one more coordinate, $(q,-s)\cdot(k-c,1)$."""
    centred, middle, radius = _centred(keys, weights)
    s = _norms(queries) * radius
    lifted = jnp.concatenate([queries, -s[:, None]], axis=1)
    return Bound(dot, LOG2_E * lifted, with_ones(centred), queries @ middle + s, 2 * s.max())


def _bound_distance(queries: Array, keys: Array, weights: Array) -> Bound:
    r"""$-(|q-c|+R)^2\le-|q-k|^2\le0$: no shift is needed."""
    centred, middle, radius = _centred(keys, weights)
    root = jnp.sqrt(jnp.asarray(LOG2_E, queries.dtype))
    moved = queries - middle[None]
    offset = jnp.zeros_like(queries, shape=queries.shape[0])
    return Bound(minus_squared_distance, root * moved, root * centred, offset, (_norms(moved).max() + radius) ** 2)


BOUNDS: dict[Callable[[Array, Array], Array], Callable[[Array, Array, Array], Bound]] = {
    dot: _bound_dot,
    minus_squared_distance: _bound_distance,
}


def widest_spread(n: int, dtype: Any) -> float:
    """The spread up to which n tokens are averaged as well with a bound as with the maximum."""
    numbers = jnp.finfo(dtype)
    return math.log(numbers.eps) - math.log(numbers.tiny) - math.log(n)


def average_within(bound: Bound, tokens: Tokens, fold: Callable[..., Any]) -> tuple[Array, Array]:
    """The result of `Average`, by `fold` of a plain sum of powers of two."""
    heaviest = jax.lax.stop_gradient(finite_or_zero(tokens.weights.max()))
    weighted = Tokens(bound.keys, jnp.exp(tokens.weights - heaviest), with_ones(tokens.values))
    return average(fold(Sum(power_of_two), bound.logit, bound.queries, weighted), bound.offset + heaviest)


@jax.custom_batching.custom_vmap
def everywhere(truth: Bool[Array, ""]) -> Bool[Array, ""]:
    """`truth`, and under `vmap` whether it holds for the whole batch: a branch on it remains a branch."""
    return truth


@everywhere.def_vmap
def _(size: int, batched: Any, truth: Any) -> Any:
    return everywhere(truth.all()), False


@jax.custom_batching.custom_vmap
def anywhere(truth: Bool[Array, ""]) -> Bool[Array, ""]:
    """`truth`, and under `vmap` whether it holds for some of the batch: a branch on it remains a branch."""
    return truth


@anywhere.def_vmap
def _(size: int, batched: Any, truth: Any) -> Any:
    return anywhere(truth.any()), False

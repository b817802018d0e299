"""Dense algebra: LAPACK routines in batches, and exponentials.

Batched calls of LAPACK inside a compiled program on CPU can wait for each other for ever: seen with jaxlib 0.10.1 on
two cores, as soon as a program has several of them (Cholesky and triangular solves, singular values) on some thirty
small matrices. Called for one matrix after the other they do not, and cost no more.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap as one_by_one
from jaxtyping import Array, Float

__all__ = ["expm", "expm_on_host", "inverse", "one_by_one"]

# A norm of 2^64 has no exponential in floating point.
MOST_SQUARES = 64


@jax.custom_jvp
def inverse(X: Float[Array, "n n"]) -> Float[Array, "n n"]:
    r"""$X^{-1}$, with $d(X^{-1})=-X^{-1}\,dX\,X^{-1}$."""
    return one_by_one(jnp.linalg.inv)(X)


@inverse.defjvp
def _inverse_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    P = inverse(primals[0])
    return P, -P @ tangents[0] @ P


def _taylor(X: Any, one: Any) -> Any:
    r"""$\sum_{k\le16}X^k/k!$ in six products; at norms up to 1/2 it misses $e^X$ by less than $2^{-60}$."""
    powers = [one, X, X @ X]
    powers += [X @ powers[2], powers[2] @ powers[2]]

    def part(first: int, count: int) -> Any:
        return sum(powers[k] * np.asarray(1 / math.factorial(first + k), X.dtype) for k in range(count))

    total = part(12, 5)
    for first in (8, 4, 0):
        total = total @ powers[4] + part(first, 4)
    return total


@jax.custom_jvp
def expm(X: Float[Array, "n n"]) -> Float[Array, "n n"]:
    r"""$e^X=(e^{X/2^s})^{2^s}$. Products alone: the usual fractions, with their branches and factorisations, take ten
    times as long to compile.
    """
    norm = jnp.abs(X).sum(0).max()
    squares = jnp.clip(jnp.ceil(jnp.log2(jnp.maximum(norm, 0.25))) + 1, 0, MOST_SQUARES).astype(int)
    start = _taylor(X * jnp.exp2(-squares.astype(X.dtype)), jnp.eye(X.shape[0], dtype=X.dtype))
    return jax.lax.fori_loop(0, squares, lambda _, power: power @ power, start)


@expm.defjvp
def _expm_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    from jax.scipy.linalg import expm as differentiable

    return jax.jvp(differentiable, primals, tangents)


def expm_on_host(X: Float[np.ndarray, "*batch n n"]) -> Float[np.ndarray, "*batch n n"]:
    """`expm` of known matrices, each with as many squares as the largest one needs; compiles nothing."""
    norm = float(np.abs(X).sum(-2).max(initial=0.25))
    squares = int(np.clip(np.ceil(np.log2(norm)) + 1, 0, MOST_SQUARES)) if np.isfinite(norm) else 0
    with np.errstate(over="ignore", invalid="ignore"):  # what grows beyond all bounds is infinite
        power = _taylor(X * np.asarray(0.5**squares, X.dtype), np.eye(X.shape[-1], dtype=X.dtype))
        for _ in range(squares):
            power = power @ power
    return power

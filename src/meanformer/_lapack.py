"""LAPACK routines in batches.

Batched calls of LAPACK inside a compiled program on CPU can wait for each other for ever: seen with jaxlib 0.10.1 on
two cores, as soon as a program has several of them (Cholesky and triangular solves, singular values) on some thirty
small matrices. Called for one matrix after the other they do not, and cost no more.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap as one_by_one
from jaxtyping import Array, Float

__all__ = ["inverse", "one_by_one"]


@jax.custom_jvp
def inverse(X: Float[Array, "n n"]) -> Float[Array, "n n"]:
    r"""$X^{-1}$, with $d(X^{-1})=-X^{-1}\,dX\,X^{-1}$."""
    return one_by_one(jnp.linalg.inv)(X)


@inverse.defjvp
def _inverse_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    P = inverse(primals[0])
    return P, -P @ tangents[0] @ P

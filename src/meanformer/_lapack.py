"""LAPACK routines in batches.

Batched calls of LAPACK inside a compiled program on CPU can wait for each other for ever: seen with jaxlib 0.10.1 on two
cores, as soon as a program has several of them (Cholesky and triangular solves, singular values) on some thirty small
matrices. Called for one matrix after the other they do not, and cost no more.
"""

from jax.custom_batching import sequential_vmap as one_by_one

__all__ = ["one_by_one"]

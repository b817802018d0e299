"""LAPACK routines inside batches."""

from jax.custom_batching import sequential_vmap as one_by_one

__all__ = ["one_by_one"]

"""The shape vocabulary of the library, and its one rule about floating-point types.

Dtype rule: the floating dtype of the input is kept; integers and Python numbers become the default float
(float64 unless 64-bit is switched off); where inputs are mixed, the widest wins.
"""

from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

# On the host a run keeps its arrays in NumPy, which compiles nothing.
AnyArray: TypeAlias = Array | np.ndarray
Points: TypeAlias = Float[AnyArray, "*batch n d"]
Weights: TypeAlias = Float[AnyArray, "*batch n"]
Tokens: TypeAlias = Float[Array, "n d"]
Queries: TypeAlias = Float[Array, "m d"]
Matrix: TypeAlias = Float[Array, "rows columns"]
Vector: TypeAlias = Float[Array, " size"]
Scalar: TypeAlias = Float[AnyArray, ""]
Key: TypeAlias = PRNGKeyArray

T = TypeVar("T")


def is_traced(*trees: Any) -> bool:
    """Whether any leaf of `trees` is being traced (inside `jit`, `vmap`, `grad`)."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def as_array(value: Any, dtype: Any = None) -> Array:
    """`value` as an array; numbers that are known stay known under `jit`, so that they can still be checked."""
    with nullcontext() if is_traced(value) else jax.ensure_compile_time_eval():
        return jnp.asarray(value, dtype)


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def common_dtype(*trees: Any) -> Any:
    """The widest floating dtype among the array leaves of `trees` (the default float if there is none)."""
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(trees) if _is_floating(leaf)}
    return max(dtypes, key=lambda t: jnp.finfo(t).bits) if dtypes else jnp.zeros(()).dtype


def cast(tree: T, dtype: Any) -> T:
    """`tree` with every floating array leaf in `dtype`."""
    return jax.tree.map(lambda a: as_array(a, dtype) if _is_floating(a) else a, tree)

"""The shape vocabulary of the library, and its one rule about floating-point types.

Dtype rule: the floating dtype of the input is kept; integers and Python numbers become the default float
(float64 unless 64-bit is switched off); where inputs are mixed, the widest wins.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

if TYPE_CHECKING:  # type checkers see two libraries where there is one interface
    AnyArray: TypeAlias = Any
    Scalar: TypeAlias = Any
else:
    # On the host a run keeps its arrays in NumPy, which compiles nothing.
    AnyArray = Array | np.ndarray
    Scalar = Float[AnyArray, ""] | np.floating
Points: TypeAlias = Float[AnyArray, "*batch n d"]
Weights: TypeAlias = Float[AnyArray, "*batch n"]
Tokens: TypeAlias = Float[AnyArray, "n d"]
Queries: TypeAlias = Float[AnyArray, "m d"]
Matrix: TypeAlias = Float[AnyArray, "rows columns"]
Vector: TypeAlias = Float[AnyArray, " size"]
Key: TypeAlias = PRNGKeyArray

T = TypeVar("T")


def is_traced(*trees: Any) -> bool:
    """Whether any leaf of `trees` is being traced (inside `jit`, `vmap`, `grad`)."""
    if any(hasattr(type(tree), "__next__") for tree in trees):  # JAX warns of iterators, and does not look into them
        trees = tuple(tree for tree in trees if not hasattr(type(tree), "__next__"))
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def default_float() -> np.dtype:
    """The dtype of numbers that come without one."""
    return jax.dtypes.canonicalize_dtype(float)


def as_array(value: Any, dtype: Any = None) -> Array:
    """`value` as an array; numbers that are known stay known under `jit`, so that they can still be checked."""
    if _is_of(value, dtype):
        return value
    with nullcontext() if is_traced(value) else jax.ensure_compile_time_eval():
        if isinstance(value, np.ndarray):
            # `asarray` would compile a program for each shape. What is put may share memory: so a copy.
            return jax.device_put(np.array(value, dtype))
        return jnp.asarray(value, dtype)


def _is_floating(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or jnp.issubdtype(dtype, jnp.floating))


def _is_of(leaf: Any, dtype: Any) -> bool:
    """Whether this is an array of JAX that has a dtype, and is meant to have it: numbers of Python have theirs only
    weakly.
    """
    return isinstance(leaf, jax.Array) and leaf.dtype == dtype and not leaf.weak_type


def common_dtype(*trees: Any) -> Any:
    """The widest floating dtype among the array leaves of `trees` (the default float if there is none)."""
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(trees) if _is_floating(leaf)}
    if len(dtypes) == 1:
        return dtypes.pop()
    return max(dtypes, key=lambda t: jnp.finfo(t).bits) if dtypes else default_float()


def cast(tree: T, dtype: Any) -> T:
    """`tree` with every floating array leaf in `dtype`."""
    if all(_is_of(leaf, dtype) for leaf in jax.tree.leaves(tree) if _is_floating(leaf)):
        return tree
    return jax.tree.map(lambda a: as_array(a, dtype) if _is_floating(a) else a, tree)


def wider(a: Any, b: Any) -> Any:
    """The wider one of two floating dtypes."""
    return a if a == b else max(a, b, key=lambda t: jnp.finfo(t).bits)


def as_host(value: Any, dtype: Any) -> Any:
    """A number as an array of NumPy, unless it is traced."""
    return jnp.asarray(value, dtype) if is_traced(value) else np.asarray(value, dtype)

"""Random numbers on the host: those that `jax.random` draws from the same key, without a program for each shape.

JAX compiles before it draws, 0.1 to 4 seconds for each number of tokens. Its generator is simple, threefry2x32 in
counter mode (Salmon et al. 2011): the i-th number is a hash of i. In NumPy uniform numbers agree with JAX bit by bit,
normal ones to the 1e-10 with which JAX inverts the error function. Keys that are traced, or of another generator, are
left to `jax.random`; so are normal numbers at 32 bits, where that inverse is off by 1e-3 at four deviations.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ._types import Key, is_traced

GENERATOR = "threefry2x32"
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
WORD = 0xFFFFFFFF
# Numbers that are hashed at once, so that they stay in a cache of the processor.
BLOCK = 1 << 14

Shape = tuple[int, ...]


def uniform(key: Key, shape: Shape, dtype: Any, low: float = 0.0) -> Any:
    """Uniform numbers in [low, 1), `low` 0 or -1."""
    words, dtype = _words(key), np.dtype(dtype)
    if words is None or dtype.itemsize < 4:
        return jr.uniform(key, shape, dtype, low, 1.0)
    bits = _bits(words, int(np.prod(shape)), dtype.itemsize)
    mantissa = np.finfo(dtype).nmant
    one = np.ones((), dtype).view(bits.dtype)
    unit = (bits >> (8 * dtype.itemsize - mantissa) | one).view(dtype) - 1
    return (unit * dtype.type(1 - low) + dtype.type(low)).reshape(shape)


def normal(key: Key, shape: Shape, dtype: Any) -> Any:
    """Standard normal numbers."""
    if _words(key) is None or dtype != np.float64:
        return jr.normal(key, shape, dtype)
    # -1 alone has no inverse: it is moved to the next number.
    from scipy.special import erfinv  # takes a third of a second, and uniform draws need none

    return np.sqrt(2) * erfinv(np.maximum(uniform(key, shape, dtype, -1.0), np.nextafter(-1, 0)))


def exponential(key: Key, shape: Shape, dtype: Any) -> Any:
    """Exponential numbers of mean 1."""
    return -np.log1p(-uniform(key, shape, dtype)) if _words(key) else jr.exponential(key, shape, dtype)


def directions(key: Key, shape: Shape, dtype: Any) -> Any:
    """Uniform points of the unit sphere: normal vectors over their length."""
    noise = normal(key, shape, dtype)
    return noise / (noise**2).sum(-1, keepdims=True) ** 0.5


def ball(key: Key, shape: Shape, dtype: Any) -> Any:
    r"""Uniform points of the unit ball: a direction times $u^{1/d}$."""
    one, other = split(key, 2)
    return directions(one, shape, dtype) * uniform(other, (*shape[:-1], 1), dtype) ** (1 / shape[-1])


def choice(key: Key, weights: Any, n: int) -> Any:
    """`n` indices, each with the probability that `weights` gives it."""
    if _words(key) is None or is_traced(weights):
        return jr.choice(key, weights.shape[0], (n,), p=weights)
    sums = np.cumsum(np.asarray(weights))
    return np.searchsorted(sums, sums[-1] * (1 - uniform(key, (n,), sums.dtype)))


def split(key: Key, count: int) -> list[Key]:
    """`count` independent keys."""
    words = _words(key)
    if words is None:
        return list(jr.split(key, count))
    return [_key(pair) for pair in np.stack(_hashed(words, np.arange(count)), axis=1)]


def fold_in(key: Key, number: int) -> Key:
    """The key of a use, known by its `number` below 2**32, of another key."""
    words = _words(key)
    if words is None:
        return jr.fold_in(key, number)
    return _key(np.concatenate(_hashed(words, np.asarray([number]))))


def numpy_of(*values: Any) -> Any:
    """The module to compute with: NumPy, which compiles nothing; JAX's for values that are traced."""
    return jnp if is_traced(values) else np


def host(array: Any) -> Any:
    """The array in NumPy, if it is not traced."""
    return array if is_traced(array) else np.asarray(array)


def _words(key: Key) -> tuple[int, int] | None:
    """The two words of a key that NumPy can draw from."""
    config: Any = jax.config
    if is_traced(key) or not config.jax_threefry_partitionable:
        return None
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if str(jr.key_impl(key) if typed else config.jax_default_prng_impl) != GENERATOR:
        return None
    first, second = np.asarray(jr.key_data(key) if typed else key)
    return int(first), int(second)


def _key(words: np.ndarray) -> Key:
    return jr.wrap_key_data(jnp.asarray(words), impl=GENERATOR)


def _bits(words: tuple[int, int], count: int, size: int) -> np.ndarray:
    """`count` unsigned integers of `size` bytes, 4 or 8."""
    bits = np.empty(count, np.uint32 if size == 4 else np.uint64)
    for start in range(0, count, BLOCK):
        high, low = _hashed(words, np.arange(start, min(start + BLOCK, count)))
        bits[start : start + BLOCK] = high ^ low if size == 4 else high.astype(np.uint64) << 32 | low
    return bits


def _hashed(words: tuple[int, int], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threefry of 64-bit counters, as two words each: five times four rounds, and words of the key after each four."""
    key = (*words, words[0] ^ words[1] ^ PARITY)
    high, low = (counts >> 32).astype(np.uint32), (counts & WORD).astype(np.uint32)
    high += np.uint32(key[0])
    low += np.uint32(key[1])
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            high += low
            low = (low << np.uint32(turn)) | (low >> np.uint32(32 - turn))
            low ^= high
        high += np.uint32(key[(group + 1) % 3])
        low += np.uint32((key[(group + 2) % 3] + group + 1) & WORD)
    return high, low

"""What a logarithm lacks of its argument, for numbers of any size."""

import math

import jax.numpy as jnp
from jaxtyping import Array


def log_defect(s: Array) -> Array:
    r"""$s^2-\tfrac12\log(1+2s^2)$ for $s\ge0$, with all its digits where the terms nearly cancel, and where $s^2$ is
    infinite.
    """
    large, small = s > 1 / jnp.finfo(s.dtype).eps, s < 0.5
    logs = jnp.log1p(2 * jnp.where(large, 0, s) ** 2) / 2
    finite = jnp.minimum(s, jnp.finfo(s.dtype).max)
    logs = jnp.where(large, jnp.log(jnp.where(large, finite, 1)) + math.log(2) / 2, logs)
    # log(1 + x) = 2 artanh r with r = x / (2 + x): the first term of the series is subtracted by hand.
    squares = jnp.where(small, s, 0) ** 2
    r = squares / (1 + squares)
    series = jnp.polyval(jnp.asarray([1 / (2 * k + 3) for k in reversed(range(12))], s.dtype), r**2)
    return jnp.where(small, r * (squares - r**2 * series), s**2 - logs)

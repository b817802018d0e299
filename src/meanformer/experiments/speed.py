"""A short measurement of speed on this machine; `make bench` of the repository compares with other libraries."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

import meanformer as mf

REPEATS = 3


def _best(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call after the first, which compiles."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times[1:])


def measure() -> list[dict[str, Any]]:
    """Exact sums, fast sums, a flow, and Gaussian fates: what, seconds, and the speed in words."""
    I = jnp.eye(2)
    field = mf.Softmax(I, I, I)
    few, many = (mf.Gaussian(jnp.zeros(2), I).sample(n, key=jr.key(0)) for n in (4096, 100_000))
    plan = mf.plan(field, many, 1e-6)
    draws = jr.normal(jr.key(1), (200, 1, 3))
    gaussian = mf.Gaussian(jnp.zeros(3), jnp.eye(3))
    fields = [mf.Softmax(q, -q, jnp.eye(3)) for q in draws]
    exact = _best(lambda: mf.velocity(field, few))
    fast = _best(lambda: mf.velocity(field, many, accuracy=plan))
    flow = _best(lambda: mf.flow(field, few, 1.0, progress=False).final.points)
    fates = _best(lambda: jnp.asarray(mf.fates(fields, gaussian).time))
    return [
        {
            "what": "velocity of 4,096 tokens",
            "seconds": exact,
            "speed": f"{few.n**2 / exact / 1e9:.2f} G pairs/s",
        },
        {"what": "velocity of 100,000 tokens, 1e-6", "seconds": fast, "speed": f"{1e5 / fast / 1e6:.2f} M tokens/s"},
        {"what": "flow of 4,096 tokens to t = 1", "seconds": flow, "speed": ""},
        {"what": "fates of 200 Gaussians in R^3", "seconds": fates, "speed": f"{200 / fates:.0f} fates/s"},
    ]

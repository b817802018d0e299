"""When to save."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Scalar, is_traced

DEFAULT_COUNT = 101
# By default a run keeps no more than this many bytes of states (and never fewer than two states).
DEFAULT_BYTES = 2**28


class SaveTimes(eqx.Module):
    """A schedule of save times; made by `linear_times` and `log_times`."""

    count: int = eqx.field(static=True)
    first: Scalar | None

    def resolve(self, t0: Scalar, t1: Scalar) -> Float[Array, " times"]:
        """The times, from t0 to t1."""
        unit = jnp.linspace(0, 1, self.count, dtype=t0.dtype)
        if self.first is None:
            times = t0 + (t1 - t0) * unit
        else:
            first = self.first.astype(t0.dtype)
            inner = first * jnp.exp(jnp.log((t1 - t0) / first) * jnp.linspace(0, 1, self.count - 1, dtype=t0.dtype))
            times = jnp.concatenate([t0[None], t0 + inner])
        return times.at[-1].set(t1)


def linear_times(count: int) -> SaveTimes:
    """`count` equally spaced times, both ends included: `flow(..., save=mf.linear_times(50))`, or `save=50`."""
    return SaveTimes(checks.whole(count, "count", 2), None)


def log_times(count: int, first: Any) -> SaveTimes:
    """t0, then `count - 1` times from `t0 + first` to t1, equally spaced in the logarithm."""
    return SaveTimes(checks.whole(count, "count", 3), checks.positive(first, "first", "the first time after t0"))


def resolve_save(save: Any, t0: Scalar, t1: Scalar, state_bytes: int) -> Float[Array, " times"]:
    """The save times that the user's `save` means."""
    if save is None:
        save = max(2, min(DEFAULT_COUNT, DEFAULT_BYTES // state_bytes))
    if isinstance(save, int) and not isinstance(save, bool):
        save = linear_times(save)
    if isinstance(save, SaveTimes):
        if save.first is not None and not is_traced(t0, t1, save.first) and not float(save.first) < float(t1 - t0):
            checks.refuse(
                "log_times must start before t1",
                got=f"first = {float(save.first):g}",
                expected=f"first < t1 - t0 = {float(t1 - t0):g}",
                remedy="choose a smaller first time",
            )
        return save.resolve(t0, t1)
    times = checks.vector(save, "save").astype(t0.dtype)
    if times.shape[0] == 0:
        checks.refuse(
            "no time to save",
            got="an empty list",
            expected="times in [t0, t1]",
            remedy="leave save out for the default",
        )
    if not is_traced(times, t0, t1):
        if not bool((times[1:] > times[:-1]).all()):
            checks.refuse(
                "save times must increase", got=save, expected="increasing times", remedy="sort them, without repeats"
            )
        if float(times[0]) < float(t0) or float(times[-1]) > float(t1):
            checks.refuse(
                "save times must lie in the run",
                got=f"times from {float(times[0]):g} to {float(times[-1]):g}",
                expected=f"[{float(t0):g}, {float(t1):g}]",
                remedy="drop the others, or change t0 and t1",
            )
    return times

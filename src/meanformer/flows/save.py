"""When to save."""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .. import _checks as checks
from .._types import AnyArray, Scalar, cast, is_traced
from .._warm import Module, light

DEFAULT_COUNT = 101
# By default a run keeps no more than this many bytes of states (and never fewer than two states).
DEFAULT_BYTES = 2**28


class SaveTimes(Module):
    """A schedule of save times; made by `linear_times` and `log_times`."""

    count: int = eqx.field(static=True)
    first: Scalar | None

    @light
    def resolve(self, t0: Scalar, t1: Scalar) -> Float[AnyArray, " times"]:
        """The times, from t0 to t1."""
        traced = is_traced(t0, t1, self.first)
        xp: Any = jnp if traced else np
        t0, t1 = xp.asarray(t0), xp.asarray(t1)
        if self.first is None:
            times = t0 + (t1 - t0) * xp.linspace(0, 1, self.count, dtype=t0.dtype)
        else:
            first = xp.asarray(self.first, t0.dtype)
            unit = xp.linspace(0, 1, self.count - 1, dtype=t0.dtype)
            times = xp.concatenate([t0[None], t0 + first * xp.exp(xp.log((t1 - t0) / first) * unit)])
        return xp.concatenate([times[:-1], t1[None]])


@functools.cache
def _linear(count: int) -> SaveTimes:
    return SaveTimes(count, None)


def linear_times(count: int) -> SaveTimes:
    r"""`count` equally spaced times, both ends included: `flow(..., save=mf.linear_times(50))`, or `save=50`,

    $$t_k=t_0+\tfrac k{N-1}(t_1-t_0),\qquad k=0,\dots,N-1 .$$

    **Arguments:** `count`, $N\ge2$.

    ```python
    times = mf.linear_times(3).resolve(t0=jnp.asarray(0.0), t1=jnp.asarray(1.0))  # what a run does with it
    assert jnp.allclose(times, jnp.asarray([0.0, 0.5, 1.0]))
    ```
    """
    return _linear(checks.whole(count, "count", 2))


def log_times(count: int, first: Any) -> SaveTimes:
    r"""$t_0$, then `count - 1` times from $t_0+$ `first` to $t_1$, equally spaced in the logarithm:
    `flow(..., save=mf.log_times(50, first=0.01))`.

    **Arguments:** `count`, at least 3; `first`, a positive time below $t_1-t_0$.

    ```python
    times = mf.log_times(4, first=0.01).resolve(t0=jnp.asarray(0.0), t1=jnp.asarray(1.0))  # what a run does with it
    assert jnp.allclose(times, jnp.asarray([0.0, 0.01, 0.1, 1.0]))
    ```
    """
    return SaveTimes(checks.whole(count, "count", 3), checks.positive(first, "first", "the first time after t0"))


def _check_size(count: int, state_bytes: int) -> None:
    checks.fits_in_memory(
        f"saving {count} states of {state_bytes / 1e6:.3g} MB each",
        2.5 * count * state_bytes,
        "save fewer times: save=2",
    )


def resolve_save(save: Any, t0: Scalar, t1: Scalar, state_bytes: int) -> Float[AnyArray, " times"]:
    """The save times that the user's `save` means."""
    if save is None:
        save = max(2, min(DEFAULT_COUNT, DEFAULT_BYTES // state_bytes))
    if isinstance(save, (int, np.integer)) and not isinstance(save, bool):
        save = _linear(checks.whole(save, "save", 2))
    if isinstance(save, SaveTimes):
        _check_size(save.count, state_bytes)
        if (
            save.first is not None
            and checks.known(t0, t1, save.first)
            and not float(save.first) < float(t1) - float(t0)
        ):
            checks.refuse(
                "log_times must start before t1",
                got=f"first = {float(save.first):g}",
                expected=f"first < t1 - t0 = {float(t1) - float(t0):g}",
                remedy="choose a smaller first time",
            )
        return save.resolve(t0, t1)
    if isinstance(save, (str, bool, float)) or callable(save):
        checks.refuse(
            "save must be a number of times, or times",
            got=f"save = {save!r}",
            expected="an integer, an array of times, or mf.log_times(count, first)",
            remedy="save=50 for 50 equally spaced times; save=[0.0, 0.5, 1.0]",
        )
    times = cast(checks.vector(save, "save"), t0.dtype)
    if times.shape[0] == 0:
        checks.refuse(
            "no time to save",
            got="an empty list",
            expected="times in [t0, t1]",
            remedy="leave save out for the default",
        )
    _check_size(times.shape[0], state_bytes)
    if checks.known(times, t0, t1):
        values = np.asarray(times)
        late = np.flatnonzero(values[1:] <= values[:-1])
        if late.size:
            checks.refuse(
                "save times must increase",
                got=f"{values[late[0]]:g} before {values[late[0] + 1]:g}",
                expected="increasing times",
                remedy="sort them, without repeats",
            )
        if values[0] < float(t0) or values[-1] > float(t1):
            checks.refuse(
                "save times must lie in the run",
                got=f"times from {values[0]:g} to {values[-1]:g}",
                expected=f"[{float(t0):g}, {float(t1):g}]",
                remedy="drop the others, or change t0 and t1",
            )
    return times

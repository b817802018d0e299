"""Rules that stop a run before t1. A rule looks at the measure after every accepted step.

Any function `(mu, t) -> bool` (written with `jax.numpy`) is a rule too: `flow(..., stop=lambda mu, t: mu.radius <
1e-3)`.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .. import _checks as checks
from .._scale import norm
from .._types import Scalar
from .._warm import Module
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from .observe import answer_of


class AbstractStop(Module):
    """A rule that is asked after every accepted step, inside the compiled run: `flow(..., stop=rule)`.

    A subclass has one method, `rule(mu, t, velocity)`, which answers with an array of shape `()`, true to stop, and is
    written with `jax.numpy`. Without velocities a function `(mu, t) -> bool` does as well.

    ```python
    class SlowOnAverage(mf.AbstractStop):
        speed: float

        def __call__(self, mu, t, velocity):
            return mu.weights @ jnp.linalg.norm(velocity(), axis=1) < self.speed


    rule = SlowOnAverage(1.0)  # in a run: mf.flow(field, tokens, t1=1.0, stop=rule)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert rule(tokens, jnp.asarray(0.0), lambda: 0.5 * tokens.points)
    ```
    """

    by_weight: ClassVar[bool] = False
    """Whether tokens of weight zero never matter to the rule. Then clouds may be padded with such tokens, and another
    number of tokens does not compile the run again.
    """

    @abc.abstractmethod
    def __call__(self, mu: PointCloud | Gaussian | Density, t: Scalar, velocity: Callable[[], Any]) -> Bool[Array, ""]:
        r"""Whether to stop, an array of shape `()`.

        `velocity()` computes the velocities of the tokens in the run's frame, shape `(n, d)`; of a Gaussian $\dot m$
        and $\dot\Sigma$; of a density the number $(\int|\Gamma_\rho|^2d\rho)^{1/2}$.
        """


class Stationary(AbstractStop):
    r"""Stop when no visible token moves faster than `speed` (per unit of time, in the run's frame).

    For tokens: $\max_{w_i>0}|\dot x_i|<$ `speed`; for a Gaussian: when $|\dot m|$ and $\|\dot\Sigma\|_F$ are below
    `speed`; for a density: $\int|\Gamma_\rho|^2d\rho$ below its square.

    **Arguments:** `speed`, a positive number.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rules = [mf.Stationary(speed=1.0), mf.RadiusAbove(2.0)]  # the first that holds
    run = mf.flow(mf.Affine(-jnp.eye(2)), tokens, t1=1.0, stop=rules)
    assert run.outcome.kind == "STOPPED" and run.final.radius < 1.0  # here the speed is |x|
    ```
    """

    by_weight: ClassVar[bool] = True
    speed: Scalar
    """The speed below which a run stops."""

    def __init__(self, speed: Any = 1e-6):
        self.speed = checks.positive(speed, "speed", "tokens hardly ever stop completely")

    def __call__(self, mu: PointCloud | Gaussian | Density, t: Scalar, velocity: Callable[[], Any]) -> Bool[Array, ""]:
        if isinstance(mu, Gaussian):
            return jnp.stack([norm(part) for part in velocity()]).max() < self.speed
        if isinstance(mu, Density):
            return velocity() < self.speed
        speeds = jnp.where(mu.visible, norm(velocity(), axis=-1), 0)
        return speeds.max() < self.speed.astype(speeds.dtype)


class RadiusAbove(AbstractStop):
    r"""Stop when a visible token leaves the ball of `radius` $R$ around 0, $\max_{w_i>0}|x_i|>R$; a Gaussian or a
    density, when $\int|x|^2d\mu>R^2$.

    **Arguments:** `radius`, a positive number.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rules = [mf.Stationary(speed=0.1), mf.RadiusAbove(2.0)]  # the first that holds
    run = mf.flow(mf.Affine(jnp.eye(2)), tokens, t1=1.0, stop=rules)
    assert run.outcome.kind == "STOPPED" and run.final.radius > 2.0
    ```
    """

    by_weight: ClassVar[bool] = True
    radius: Scalar
    """The radius $R$ of the ball."""

    def __init__(self, radius: Any):
        self.radius = checks.positive(radius, "radius", "the radius of a ball around 0")

    def __call__(self, mu: PointCloud | Gaussian | Density, t: Scalar, velocity: Callable[[], Any]) -> Bool[Array, ""]:
        if isinstance(mu, Gaussian):
            return norm(jnp.concatenate([mu.factor, mu.mean[:, None]], axis=1)) > self.radius
        if isinstance(mu, Density):
            covariance, unit = mu.scaled_covariance()
            deviation = jnp.sqrt(jnp.trace(covariance)) * unit.reshape(())
            return norm(jnp.append(mu.mean, deviation)) > self.radius
        return mu.radius > self.radius.astype(mu.points.dtype)


class _When(AbstractStop):
    """A user's function as a rule."""

    function: Callable[[Any, Scalar], Any]

    def __call__(self, mu: PointCloud | Gaussian | Density, t: Scalar, velocity: Callable[[], Any]) -> Bool[Array, ""]:
        return jnp.asarray(self.function(mu, t), bool)


class WallClock(Module):
    """Stop when the run has taken `seconds` (looked at between segments, on the host; not under tracing).

    Where a run ends then depends on the machine. A short run, of one segment, is not stopped.

    **Arguments:** `seconds`, a positive number.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    field = mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2))
    run = mf.flow(field, tokens, t1=1.0, stop=mf.WallClock(60.0))
    assert run.outcome.kind == "REACHED"
    ```
    """

    seconds: float = eqx.field(static=True)
    """The seconds after which a run stops."""

    def __init__(self, seconds: float | int):
        self.seconds = float(checks.positive(seconds, "seconds", "give the run some time, e.g. mf.WallClock(60)"))


def _answers(rule: Any, mu: Any, t: Scalar) -> bool:
    """Whether a user's function answers yes or no about a measure."""
    if not checks.takes(rule, 2):
        return False
    answer = answer_of(f"the stop rule {checks.described(rule)}", rule, mu, t)
    return isinstance(answer, bool) or (getattr(answer, "shape", None) == () and answer.dtype == bool)


def resolve_stop(stop: Any, mu: Any, t: Scalar) -> tuple[tuple[AbstractStop, ...], float]:
    """The user's `stop` as rules inside the compiled run and a limit in seconds."""
    rules: list[AbstractStop] = []
    seconds = float("inf")
    for rule in stop if isinstance(stop, (tuple, list)) else () if stop is None else (stop,):
        if isinstance(rule, WallClock):
            seconds = min(seconds, rule.seconds)
        elif isinstance(rule, AbstractStop):
            rules.append(rule)
        elif callable(rule) and not isinstance(rule, type) and _answers(rule, mu, t):
            rules.append(_When(rule))
        else:
            checks.refuse(
                "stop must be a rule, or several",
                got=repr(rule) if isinstance(rule, (int, float, str)) else checks.described(rule),
                expected="mf.Stationary(1e-6), mf.WallClock(60), or a function (mu, t) -> one truth value",
                remedy="stop=mf.Stationary(1e-6), or stop=lambda mu, t: mu.radius < 1e-3",
            )
    return tuple(rules), seconds

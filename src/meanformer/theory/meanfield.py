"""The mean-field limit, measured: how fast tokens approach it as their number grows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import _checks as checks
from .._progress import Progress
from .._scale import norm, unit
from .._types import Key
from ..attention.base import AbstractField
from ..attention.closure import NotGaussianPreserving
from ..attention.schedule import check_velocity, pieces_of
from ..diagnostics.gap import THRESHOLD, SlowMeanFieldWarning, kernel_size
from ..flows.flow import flow
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian

STATISTICS = ("mean", "covariance")
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class MeanFieldRate:
    r"""Errors of $n$ tokens against the mean-field limit, and the rate at which they decay.

    - `n`, shape `(m,)`; `errors`, a tuple with one array per number of tokens, an error per repeat; `rms`, shape
      `(m,)`, their root mean square;
    - `slope`, `interval`: the exponent of a fit $\mathrm{rms}\propto n^{\text{slope}}$ and its 95 % confidence
      interval, by bootstrap over the repeats; the theory says $-1/2$ for moments;
    - `statistic`, `reference`: what was compared with what, in words; `t1`: when; `kernel`: the largest
      $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau$ along the Gaussian run, which must stay below $1/\sqrt2$ (nan: not known).

    ```python
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), jnp.eye(2))
    g = mf.Gaussian(jnp.zeros(2), cov=0.25 * jnp.eye(2))
    rate = mf.mean_field_rate(field, g, 1.0, n=[3, 40], repeats=16, key=jax.random.key(0))
    assert rate.reference == "the exact Gaussian" and rate.kernel < 0.2
    assert [len(row) for row in rate.errors] == [16, 16]
    ```

    MATH d.5.
    """

    n: np.ndarray
    errors: tuple[np.ndarray, ...]
    rms: np.ndarray
    slope: float
    interval: tuple[float, float]
    statistic: str
    reference: str
    kernel: float
    t1: float

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.statistic} error at t = {self.t1:g} against {self.reference}: {self.rms[0]:.3g} at "
            f"n = {self.n[0]}, {self.rms[-1]:.3g} at n = {self.n[-1]}; "
            f"slope {self.slope:.3f} (95 %: {low:.3f} to {high:.3f})"
        )

    __repr__ = __str__

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Errors against $n$ with the fit, both axes logarithmic, as matplotlib axes."""
        from ..plots.rates import plot_rate

        return plot_rate(self, ax=ax, **options)


def mean_field_rate(
    field: AbstractField,
    law: Any,
    t1: Any,
    *,
    n: Sequence[int] = (250, 500, 1000, 2000, 4000),
    repeats: int | Sequence[int] = 16,
    key: Key,
    statistic: str = "covariance",
    reference: int | None = None,
    rtol: float = 1e-5,
    progress: bool | None = None,
) -> MeanFieldRate:
    r"""Flow $n$ independent tokens of a `law` to `t1`, for several $n$, and fit the rate of their error,

    $$\Big(\mathbb E\,\|\Sigma_n(t_1)-\Sigma(t_1)\|_F^2\Big)^{1/2}\propto n^{\text{slope}}.$$

    **Arguments:**

    - `law`: what tokens are drawn from, with `.sample(n, key=...)`: a `Gaussian`, a mixture, a uniform law. The tokens
      get positions i/n, for masked fields.
    - `n`, `repeats`: numbers of tokens, and how many draws of each (one number, or one per n). With fewer than some
      sixteen draws a bootstrap interval is too narrow: with eight it covers the rate in about 85 % of cases.
    - `statistic`: "covariance" (Frobenius norm of the error at `t1`) or "mean".
    - `reference`: by default the exact Gaussian flow if the law and the field have one; otherwise, or if a number is
      given, one run of so many tokens (by default four times the largest n), whose own sampling error is taken
      out of the root mean squares by the factor $(1+n/n_{\text{ref}})^{-1/2}$: right on average over references, so
      that with a single one the interval covers the true rate in about 88 % of cases, not 95 %. Give more.
    - `rtol`: of the token runs. `progress`: a bar, if it takes long (default: on a terminal, in a notebook).

    **Returns:** a `MeanFieldRate`.

    Warns (`SlowMeanFieldWarning`) where the rate $n^{-1/2}$ cannot hold for softmax on Gaussian data.

    ```python
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), jnp.eye(2))
    g = mf.Gaussian(jnp.zeros(2), cov=0.25 * jnp.eye(2))
    rate = mf.mean_field_rate(field, g, 1.0, n=[3, 40], repeats=16, key=jax.random.key(0))
    print(rate)
    assert rate.interval[0] < -0.5 < rate.interval[1]
    ```

    MATH d.5.
    """
    sizes, counts, t1 = _checked(field, law, n, repeats, key, statistic, t1)
    progress = None if progress is None else checks.flag(progress, "progress")
    keys = iter(jr.split(key, sum(counts) + 1))
    exact, words, kernel = _limit(field, law, t1, statistic)
    exact = exact if reference is None else None
    least = max(sizes)
    many = 0 if exact is not None else checks.whole(4 * least if reference is None else reference, "reference", least)
    cost = [float(size) ** 2 for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
    with Progress(progress, 0.0, sum(cost) + float(many) ** 2, "mean field", "pairs") as bar:
        first = next(keys)
        done = 0.0
        if exact is None:
            exact, words = _moment(field, law, many, t1, first, statistic, rtol), f"a run of {many} tokens"
            done += float(many) ** 2
        errors = []
        for size, count in zip(sizes, counts, strict=True):
            row = []
            for _ in range(count):
                row.append(norm(_moment(field, law, size, t1, next(keys), statistic, rtol) - exact))
                done += float(size) ** 2
                bar.update(done, len(errors))
            errors.append(np.array(row))
    shrink = np.array([1.0 if many == 0 else (1 + size / many) ** -0.5 for size in sizes])
    rms = shrink * np.array([_rms(row) for row in errors])
    slope, interval = _fit(np.array(sizes), errors, shrink)
    return MeanFieldRate(np.array(sizes), tuple(errors), rms, slope, interval, statistic, words, kernel, float(t1))


def _several(counts: Any) -> bool:
    """Whether these are numbers in a row, and not one."""
    return isinstance(counts, Sequence) or (isinstance(counts, np.ndarray) and counts.ndim > 0)


def _checked(
    field: Any, law: Any, n: Any, repeats: Any, key: Any, statistic: Any, t1: Any
) -> tuple[list[int], list[int], Any]:
    if not hasattr(law, "sample") or not hasattr(law, "d"):
        checks.refuse(
            "mean_field_rate draws tokens from a law",
            got=checks.described(law),
            expected="a Gaussian, or a law such as mf.uniform_cube(d=2)",
            remedy="mf.empirical(points) is the law of given tokens",
        )
    checks.one_of(statistic, "statistic", STATISTICS)
    sizes = [checks.whole(size, "n", 2) for size in (n if _several(n) else [n])]
    if len(sizes) < 2 or sizes != sorted(set(sizes)):
        checks.refuse(
            "a rate needs several numbers of tokens",
            got=f"n = {sizes}",
            expected="two or more, increasing",
            remedy="n=[250, 1000, 4000]",
        )
    counts = list(repeats) if _several(repeats) else [repeats] * len(sizes)
    if len(counts) != len(sizes):
        checks.refuse(
            "repeats must match n",
            got=f"{len(counts)} repeats for {len(sizes)} numbers of tokens",
            expected="one number, or one per n",
            remedy="repeats=16",
        )
    counts = [checks.whole(count, "repeats", 2) for count in counts]
    checks.fits_in_memory(f"the keys of {sum(counts)} runs", 64 * sum(counts), "take fewer repeats")
    for piece in pieces_of(field) if isinstance(field, AbstractField) else (field,):
        # A cloud of two tokens stands for all: it carries the checks of the field.
        check_velocity(piece, law.sample(2, key=key).with_positions(), jnp.zeros(()))
    return sizes, counts, checks.scalar(t1, "t1")


def _limit(field: AbstractField, law: Any, t1: Any, statistic: str) -> tuple[np.ndarray | None, str, float]:
    """The exact Gaussian limit, if there is one, and the size of the kernel along it."""
    if not isinstance(law, Gaussian):
        return None, "", np.nan
    try:
        run = flow(field, law, t1, save=33, progress=False)
    except NotGaussianPreserving:
        kernel = kernel_size(field, law, 0.0)
        _warn_if_slow(kernel, 0.0)
        return None, "", kernel
    if not run.outcome.ok:
        checks.refuse(
            "the Gaussian limit does not reach t1",
            got=str(run.outcome),
            expected="a Gaussian flow that exists until t1",
            remedy="shorten the run: tokens do not follow a Gaussian that blows up",
        )
    states = run.states
    kernel = max((kernel_size(field, states[k], float(t)) for k, t in enumerate(run.times)), default=np.nan)
    _warn_if_slow(kernel, float(t1))
    return _statistic(run.final, statistic), "the exact Gaussian", kernel


def _warn_if_slow(kernel: float, t1: float) -> None:
    if kernel >= THRESHOLD:
        warnings.warn(
            f"|Sigma^1/2 A Sigma^1/2| reaches {kernel:.3g} >= 0.707 until t = {t1:g}: the sampling variance of softmax "
            "attention on Gaussian tokens is infinite there, and the error cannot decay like n^-1/2; shorten the run, "
            "or scale Q and K down",
            SlowMeanFieldWarning,
            stacklevel=4,
        )


def _moment(field: AbstractField, law: Any, n: int, t1: Any, key: Key, statistic: str, rtol: float) -> np.ndarray:
    tokens: PointCloud = law.sample(n, key=key)
    if tokens.positions is None:
        tokens = tokens.with_positions()
    run = flow(field, tokens, t1, save=2, rtol=rtol, progress=False)
    if not run.outcome.ok:
        checks.refuse(
            "a run of tokens did not reach t1",
            got=f"n = {n}: {run.outcome}",
            expected="runs that reach t1",
            remedy="shorten the run, or scale the weights down",
        )
    return _statistic(run.final, statistic)


def _statistic(mu: Any, statistic: str) -> np.ndarray:
    return np.asarray(checks.representable(mu.mean if statistic == "mean" else mu.covariance, f"the {statistic}"))


def _rms(row: np.ndarray) -> float:
    return float(norm(row) / np.sqrt(len(row)))


def _fit(n: np.ndarray, errors: list[np.ndarray], shrink: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The slope of log rms against log n, and a 95 % interval by resampling the repeats of each n."""
    x = np.log(n) - np.log(n).mean()
    size = max(unit(row) for row in errors)
    errors = [row / size for row in errors]

    def slopes(squares: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):  # a law without scatter has no error, and no rate
            return np.log(shrink * np.sqrt(squares)) @ x / (x @ x)

    rng = np.random.default_rng(0)
    found = slopes(np.array([[np.mean(row**2) for row in errors]]))
    drawn = [np.mean(rng.choice(row, (_RESAMPLES, len(row))) ** 2, axis=1) for row in errors]
    low, high = np.percentile(slopes(np.stack(drawn, axis=1)), [2.5, 97.5])
    return float(found[0]), (float(low), float(high))

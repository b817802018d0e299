r"""Tokens against their Gaussian limit."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._scale import norm
from ..attention.softmax import Softmax
from ..measures.cloud import PointCloud
from ..measures.convert import spread, to_gaussian
from ..measures.gaussian import Gaussian
from ..metrics.bures import bures_wasserstein

# Above this the sampling variance of softmax attention on Gaussian tokens is infinite (MATH d.5).
THRESHOLD = 1 / np.sqrt(2)


class SlowMeanFieldWarning(UserWarning):
    r"""Tokens cannot follow the Gaussian at the rate $n^{-1/2}$: the variance of softmax attention on Gaussian samples
    is infinite where $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau\ge1/\sqrt2$.

    ```python
    import warnings

    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    tokens = g.sample(40, key=jax.random.key(0))
    runs = [mf.flow(mf.Softmax(I, I, -I), mu, t1=1.0) for mu in (tokens, g)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gap = mf.gaussian_gap(*runs)
    assert caught[0].category is mf.SlowMeanFieldWarning and np.isclose(gap.kernel[0], 1)
    ```

    MATH d.5.
    """


@dataclass(frozen=True, eq=False)
class GaussianGap:
    r"""How far `tokens`, their number, are from a Gaussian, along time; arrays of shape `(T,)` over `times`.

    - `mean`: $|m_n-m|$; `covariance`: $\|\Sigma_n-\Sigma\|_F$, and `relative`, the same over $\|\Sigma\|_F$;
    - `bures`: the Bures-Wasserstein distance of the two Gaussians with these moments, a lower bound of $W_2$;
    - `kernel`: $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau$, the largest over softmax heads; the rate $n^{-1/2}$ needs it below
      $1/\sqrt2$. Not a number without softmax.

    ```python
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), jnp.eye(2))
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    tokens = g.sample(40, key=jax.random.key(0))
    gap = mf.gaussian_gap(mf.flow(field, tokens, t1=1.0), mf.flow(field, g, t1=1.0))
    assert gap.bures.shape == gap.times.shape and gap.kernel.max() < 0.2
    ```

    MATH d.5.
    """

    times: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    relative: np.ndarray
    bures: np.ndarray
    kernel: np.ndarray
    tokens: int

    def __str__(self) -> str:
        return (
            f"{self.tokens} tokens against the Gaussian, at t = {self.times[-1]:.4g}: mean off by {self.mean[-1]:.3g}, "
            f"covariance by {100 * self.relative[-1]:.3g} %, Bures-Wasserstein distance {self.bures[-1]:.3g}"
        )

    __repr__ = __str__


def kernel_size(field: Any, gaussian: Gaussian, t: float) -> float:
    r"""The largest $\|L^\top AL\|/\tau$ over the softmax heads of a field at one time."""
    L = np.asarray(gaussian.factor)
    heads = [term.leaf for term in field.terms(jnp.asarray(t)) if isinstance(term.leaf, Softmax)]
    norms = [np.linalg.norm(L.T @ np.asarray(head.A) @ L, 2) / float(head.tau) for head in heads]
    return float(max(norms, default=np.nan))


def gaussian_gap(run_tokens: Any, run_gaussian: Any) -> GaussianGap:
    r"""Moment errors and Bures-Wasserstein distance between a run of tokens and a run of a Gaussian, along time.

    The times are the save times of the token run that lie within the Gaussian run. Warns (`SlowMeanFieldWarning`) when
    the variance of softmax attention on Gaussian samples is infinite, so that the error cannot decay like $n^{-1/2}$:
    when $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau\ge1/\sqrt2$ at some time.

    **Arguments:** a run of tokens, in either frame, and a run of a Gaussian in the same space.

    **Returns:** a `GaussianGap`, where the formulas are.

    ```python
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), jnp.eye(2))
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    tokens = g.sample(40, key=jax.random.key(0))
    gap = mf.gaussian_gap(mf.flow(field, tokens, t1=1.0), mf.flow(field, g, t1=1.0))
    print(gap)
    assert gap.tokens == 40 and 0.05 < gap.relative[-1] < 0.5
    ```

    MATH d.5.
    """
    _check_runs(run_tokens, run_gaussian)
    run_tokens = run_tokens.original()
    low, high = (float(run_gaussian.times[k]) for k in (0, -1))
    rows = [k for k, t in enumerate(np.asarray(run_tokens.times)) if low <= t <= high]
    if not rows:
        checks.refuse(
            "the two runs share no time",
            got=f"tokens from t = {float(run_tokens.times[0]):g}, the Gaussian until t = {high:g}",
            expected="runs over the same times",
            remedy="flow both from the same t0 to the same t1",
        )
    table = []
    for k in rows:
        t = float(run_tokens.times[k])
        cloud = run_tokens.system.mu.with_points(run_tokens.points[k])
        # Both runs may share their save times; otherwise the Gaussian is interpolated.
        same = np.flatnonzero(np.asarray(run_gaussian.times) == t)
        gaussian = run_gaussian.states[int(same[0])] if same.size else run_gaussian.at(t)
        distance = bures_wasserstein(to_gaussian(cloud), gaussian)
        shift = norm(np.asarray(cloud.mean - gaussian.mean))
        (found, one), (exact, two) = (map(np.asarray, spread(mu)) for mu in (cloud, gaussian))
        unit, scale = max(one.item(), two.item()), norm(exact)
        # Both over the square of the larger unit; the quotient has none.
        gap = norm(found * (one / unit) ** 2 - exact * (two / unit) ** 2)
        relative = gap / scale * (unit / two.item()) ** 2 if scale > 0 else np.inf
        size = gap * unit * unit
        table.append((t, shift, size, relative, float(distance), kernel_size(run_gaussian.field, gaussian, t)))
    result = GaussianGap(*np.array(table).T, tokens=run_tokens.system.mu.n)
    largest = np.nanmax(result.kernel, initial=0.0)
    if largest >= THRESHOLD:
        warnings.warn(
            f"|Sigma^1/2 A Sigma^1/2| reaches {largest:.3g} >= 0.707: the sampling variance of softmax attention on "
            "Gaussian tokens is infinite there, and the error cannot decay like n^-1/2; shorten the run, or scale Q "
            "and K down",
            SlowMeanFieldWarning,
            stacklevel=2,
        )
    return result


def _check_runs(run_tokens: Any, run_gaussian: Any) -> None:
    kinds = [type(getattr(getattr(run, "system", None), "mu", None)) for run in (run_tokens, run_gaussian)]
    if kinds != [PointCloud, Gaussian]:
        checks.refuse(
            "gaussian_gap compares a run of tokens with a run of a Gaussian",
            got=" and ".join(checks.described(run) for run in (run_tokens, run_gaussian)),
            expected="mf.gaussian_gap(mf.flow(field, tokens, t1), mf.flow(field, gaussian, t1))",
            remedy="pass the two runs in this order",
        )
    run_tokens.need_all_tokens("gaussian_gap")
    dimensions = [run.system.mu.d for run in (run_tokens, run_gaussian)]
    if dimensions[0] != dimensions[1]:
        checks.refuse(
            "the two runs live in different spaces",
            got=f"tokens in R^{dimensions[0]}, a Gaussian in R^{dimensions[1]}",
            expected="one dimension",
            remedy="draw the tokens from the Gaussian: gaussian.sample(1000, key=key)",
        )

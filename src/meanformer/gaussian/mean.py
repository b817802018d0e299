r"""The mean along a covariance that is known: $\dot m=M(t)m+c(t)$, to any time.

With an infinite horizon $|m|\sim e^{\alpha t}$ leaves the floating-point range, so that $(m,1)$ is carried as a
direction and the logarithm of its norm (MATH e.5).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._lapack import expm_on_host
from .._programs.call import program
from .._scale import norm as length
from ..attention.base import AbstractField
from ..attention.closure import closure_of
from ..measures.gaussian import Gaussian

# A stretch of time is cut until |M| h is below SMALL, but into no more than MOST pieces: far out, M hardly changes.
SMALL, MOST = 0.5, 8


def _generators(field: AbstractField, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_compiled`, with the number of factors padded to a power of two: runs of all lengths share few compilations."""
    count = len(factors)
    padded = np.concatenate([factors, np.repeat(factors[-1:], (1 << (count - 1).bit_length()) - count, axis=0)])
    ends, velocities = _compiled(field, jnp.asarray(padded))
    return np.asarray(ends)[:count], np.asarray(velocities)[:count]


@program
def _compiled(field: AbstractField, factors: Float[Array, "n d r"]) -> tuple[Array, Array]:
    r"""The matrices $\begin{pmatrix}M&c\\0&0\end{pmatrix}$ that move $(m,1)$, and $\dot L=GL$, at each factor."""

    def one(L: Array) -> tuple[Array, Array]:
        def u(mean: Array) -> Array:
            return closure_of(field.terms(jnp.zeros((), L.dtype)), Gaussian(mean, factor=L))[0]

        zero = jnp.zeros(L.shape[0], L.dtype)
        _, G = closure_of(field.terms(jnp.zeros((), L.dtype)), Gaussian(zero, factor=L))
        top = jnp.concatenate([jax.jacfwd(u)(zero), u(zero)[:, None]], axis=1)
        return jnp.concatenate([top, jnp.zeros((1, L.shape[0] + 1), L.dtype)]), G @ L

    return jax.lax.map(one, factors)


def mean_path(
    field: AbstractField, times: np.ndarray, factors: np.ndarray, mean: np.ndarray
) -> tuple[np.ndarray, float | None]:
    r"""The means at `times`, and the rate $\frac d{dt}\log|m|$ at the end; None if the mean stays zero.

    By the commutator-free exponential method of order 4 (Blanes and Moan 2006) between the given times, with the factor
    from cubic interpolation.
    """
    ends, velocities = _generators(field, factors)
    if not mean.any() and not ends[:, :-1, -1].any():
        return np.zeros((len(times), len(mean))), None
    if len(times) == 1:
        return mean[None], None
    lengths = np.diff(times)
    sizes = np.linalg.norm(ends, axis=(1, 2))
    pieces = np.clip(np.ceil(lengths * np.maximum(sizes[1:], sizes[:-1]) / SMALL), 1, MOST).astype(int)
    nodes = 0.5 + np.array([-1, 1]) * np.sqrt(3) / 6
    places = [(k, (j + node) / n) for k, n in enumerate(pieces) for j in range(n) for node in nodes]
    interval, inner_share = np.array([k for k, _ in places]), np.array([x for _, x in places])
    # In the variable s = log(1 + t / unit), in which an algebraic tail is smooth; early on it is t itself.
    still = not velocities[0].any()
    unit = times[-1] if still else length(factors[0]) / length(velocities[0])
    s, slopes = np.log1p(times / unit), velocities * (times + unit)[:, None, None]
    h = np.diff(s)[interval][:, None, None]
    u = np.log1p((times[interval] + inner_share * lengths[interval]) / unit) - s[interval]
    # Just before a blow-up two times may be the same float.
    u = np.divide(u[:, None, None], h, out=np.zeros_like(h), where=h > 0)
    between = (2 * u**3 - 3 * u**2 + 1) * factors[interval] + (3 * u**2 - 2 * u**3) * factors[interval + 1]
    between = between + h * ((u**3 - 2 * u**2 + u) * slopes[interval] + (u**3 - u**2) * slopes[interval + 1])
    inner = _generators(field, between)[0].reshape(-1, 2, *ends.shape[1:])
    state, log_norm = _normalised(np.append(mean, 1.0), 0.0)
    path, at = [(state, log_norm)], 0
    for k, n in enumerate(pieces):
        for first, second in inner[at : at + n]:
            a, b = 0.25 + np.sqrt(3) / 6, 0.25 - np.sqrt(3) / 6
            for generator in (a * first + b * second, b * first + a * second):
                state, log_norm = _moved(state, log_norm, generator * lengths[k] / n)
        path.append((state, log_norm))
        at += n
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = np.array([np.where(v[:-1] == 0, 0.0, v[:-1] * np.exp(norm)) for v, norm in path])
        logs = [norm + np.log(length(v[:-1])) for v, norm in path[-2:]]
        rate = (logs[-1] - logs[0]) / lengths[-1] if len(path) > 1 else None
    return means, None if rate is None or not np.isfinite(rate) else float(rate)


def _normalised(state: np.ndarray, log_norm: float) -> tuple[np.ndarray, float]:
    size = length(state)
    return state / size, log_norm + float(np.log(size))


def _moved(state: np.ndarray, log_norm: float, generator: np.ndarray) -> tuple[np.ndarray, float]:
    """The exponential of `generator` times the state, shifted by its growth so that nothing overflows."""
    shift = max(0.0, float(np.linalg.eigvals(generator).real.max()))
    return _normalised(expm_on_host(generator - shift * np.eye(len(state))) @ state, log_norm + shift)

r"""What Gaussians keep, where they can stop, and when they must blow up (MATH e.3.6, e.4).

Computed with NumPy in float64, outside of `jit`. The temperature is absorbed: pass `field.A / field.tau`.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import _checks as checks
from .._scale import gram, norm, quotient, square, unit
from ..attention.kernel import AbstractAttention
from ..measures.gaussian import Gaussian
from . import _host as host


def _spaces(A: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases, as columns, of the orthogonal complement of ker A and of ker A."""
    given = A.A if isinstance(A, AbstractAttention) else A
    A = host.matrix(given, "A", d)
    _, values, Vt = np.linalg.svd(A)
    rank = int((values > max(A.shape) * host.unit(given) * values[0]).sum())
    return Vt[:rank].T, Vt[rank:].T


def frozen_covariance(A: Any, gaussian: Gaussian) -> np.ndarray:
    r"""The part of $\Sigma_0$ that softmax, L2 and Sinkhorn attention never change, whatever $V$ is,

    $$\Sigma_{low}=N(N^\top\Sigma_0^{-1}N)^{-1}N^\top,\qquad N=\ker A,\qquad\Sigma(t)\succeq\Sigma_{low}\ \ \forall t.$$

    It is the conditional covariance on $\ker A$ given the rest, computed as $LZZ^\top L^\top$ with $Z$ an orthonormal
    basis of $\ker(AL)$: no inverse, and any rank is legal. For $K=-Q$, $V=I$ it is the limit of $\Sigma(t)$.

    **Arguments:** `A` of shape `(d, d)`, or an attention; for several heads, their matrices on top of each other. A
    single Gaussian.

    **Returns:** a NumPy array of shape `(d, d)`.

    ```python
    A = jnp.array([[1.0, 0.0], [0.0, 0.0]])
    g = mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    assert np.allclose(mf.frozen_covariance(A, g), [[0, 0], [0, 0.75]])  # 0.75 = 1 - 0.5^2 / 1
    ```

    MATH e.3.6.
    """
    m, L = host.moments(gaussian)
    seen, _ = _spaces(A, m.shape[0])
    _, values, Zt = np.linalg.svd(seen.T @ L)
    rank = int((values > max(L.shape) * host.unit(gaussian.factor) * norm(L)).sum())
    factor = L @ Zt[rank:].T
    with np.errstate(over="ignore"):
        return checks.representable(square(*gram(factor)), "the frozen covariance")


def conserved(A: Any, gaussian: Gaussian) -> np.ndarray:
    r"""A matrix that stays constant in time for every $V$, under softmax, L2 and Sinkhorn attention:

    $$N^\top\Sigma^{-1}N,\qquad N\ \text{an orthonormal basis of}\ \ker A,$$

    because $GN=0$. The basis depends on `A` alone, so the values at two times can be compared entry by entry.

    **Arguments:** `A` as for `frozen_covariance`; a single Gaussian of full rank.

    **Returns:** a NumPy array of shape `(r, r)`, $r=\dim\ker A$: `(0, 0)` if `A` is invertible.

    **Raises:** `InputError` if $\Sigma$ is singular.

    ```python
    A = jnp.array([[1.0, 0.0], [0.0, 0.0]])
    g = mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    later = mf.softmax_identity_flow(A, g, t=0.25)
    assert np.allclose(mf.conserved(A, g), 4 / 3) and np.allclose(mf.conserved(A, later), 4 / 3)
    ```

    MATH e.3.6.
    """
    m, L = host.moments(gaussian)
    _, N = _spaces(A, m.shape[0])
    if not np.isfinite(gaussian.condition):
        checks.refuse(
            "the conserved quantity needs a covariance of full rank",
            got=f"a singular covariance in dimension {m.shape[0]}",
            expected="Sigma > 0",
            remedy="frozen_covariance takes any rank",
        )
    solved = np.linalg.lstsq(L, N, rcond=None)[0]  # L^+ N: the inverse of L, not of Sigma
    with np.errstate(over="ignore"):
        return checks.representable(square(*gram(solved.T)), "the conserved matrix", "measure in smaller units")


def stationarity(A: Any, V: Any, Sigma: Any) -> float:
    r"""How far $\Sigma$ is from a fixed point of softmax attention, as a share of the largest speed:

    $$\frac{\|V\Sigma A\Sigma+\Sigma A^\top\Sigma V^\top\|_F}{2\,\|V\|_F\|A\|_F\|\Sigma\|_F^2}\in[0,1].$$

    **Arguments:** `A`, `V` of shape `(d, d)`; `Sigma` a covariance `(d, d)` or a Gaussian.

    **Returns:** a float; 0 for a fixed point.

    ```python
    A = jnp.diag(jnp.array([1.0, -1.0]))
    assert mf.stationarity(A, jnp.eye(2), jnp.ones((2, 2))) == 0  # Sigma A Sigma = 0
    assert mf.stationarity(A, jnp.eye(2), jnp.eye(2)) > 0.3
    ```

    MATH e.4.
    """
    if isinstance(Sigma, Gaussian):
        Sigma = gram(host.moments(Sigma)[1])[0]
    Sigma = host.known(checks.matrix(Sigma, "Sigma"), "Sigma")
    d = Sigma.shape[1]
    Sigma, V, A = (host.matrix(M, name, d, d) for M, name in ((Sigma, "Sigma"), (V, "V"), (A, "A")))
    Sigma, V, A = (M / unit(M) for M in (Sigma, V, A))
    half = V @ Sigma @ A @ Sigma
    largest = 2 * norm(V) * norm(A) * norm(Sigma) ** 2
    return float(norm(half + half.T) / largest) if largest > 0 else 0.0


class RankBound(NamedTuple):
    """A bound on the `rank` of stationary covariances, and the `hypothesis` that it rests on, in words."""

    rank: int
    hypothesis: str


def rank_bound(A: Any, V: Any = None) -> RankBound:
    r"""The largest rank that a stationary covariance of softmax attention can have.

    - $V=vI$: $\dim\ker(A+A^\top)+\min(n_+,n_-)$, with $n_+$ positive and $n_-$ negative eigenvalues of $A+A^\top$.
    - $V=V^\top\succ0$ and $A=A^\top\preceq0$: $\dim\ker A$.
    - otherwise, and with `V` left out: $\lfloor(d+\dim\ker A)/2\rfloor$, for those $\Sigma$ with $\Sigma A\Sigma=0$.
      They are stationary for every $V$; others exist for exceptional pairs only.

    **Arguments:** `A` and `V` of shape `(d, d)`.

    **Returns:** a pair: `rank`, a whole number, and `hypothesis`, which of the three cases was used, in words.

    ```python
    A = jnp.diag(jnp.array([1.0, -1.0]))
    bound = mf.rank_bound(A, jnp.eye(2))
    assert bound.rank == 1 and bound.hypothesis == "V is a multiple of I"
    ```

    MATH e.4.
    """
    d = host.known(checks.matrix(A, "A"), "A").shape[1]
    kernel, rounding = _spaces(A, d)[1].shape[1], host.unit(A, 1.0 if V is None else V)
    A = host.matrix(A, "A", d, d)
    if V is not None:
        V = host.matrix(V, "V", d, d)
        A, V = A / unit(A), V / unit(V)
        values = np.linalg.eigvalsh(A + A.T)
        zero = 4 * d * rounding * norm(A)
        positive, negative = int((values > zero).sum()), int((values < -zero).sum())
        if V[0, 0] != 0 and not host.differ(V, V[0, 0] * np.eye(d), rounding):
            rank = d - positive - negative + min(positive, negative)
            return RankBound(rank, "V is a multiple of I")
        symmetric = not host.differ(V, V.T, rounding) and not host.differ(A, A.T, rounding)
        if symmetric and np.linalg.eigvalsh(V)[0] > 0 and not positive:
            return RankBound(kernel, "V is symmetric positive definite and A symmetric negative semi-definite")
    return RankBound((d + kernel) // 2, "Sigma A Sigma = 0, which makes Sigma stationary for every V")


class BlowupBounds(NamedTuple):
    """A blow-up, if there is one, comes not before `lower`; there is one, not after `upper`, if that is finite."""

    lower: float
    upper: float


@np.errstate(over="ignore")  # times beyond the range are 0 or infinite
def blowup_bounds(A: Any, V: Any, gaussian: Gaussian) -> BlowupBounds:
    r"""Bounds on the blow-up time of softmax attention from a Gaussian,

    $$\frac1{2\|V\|\|A\|\|\Sigma_0\|}\le t^*\le
    \frac d{2\lambda_{\min}(A)\lambda_{\min}(V)^2\operatorname{tr}(V^{-1}\Sigma_0)}.$$

    The upper bound needs symmetric $V,A\succ0$; it is `inf` otherwise, and then there need not be a blow-up. Norms are
    spectral.

    **Arguments:** `A`, `V` of shape `(d, d)`, with the temperature in `A`: `field.A / field.tau`; a single Gaussian.

    **Returns:** a pair of floats, `lower` and `upper`.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.0], [0.0, 0.5]])
    lower, upper = mf.blowup_bounds(I, I, g)
    assert lower == 0.5 == mf.softmax_blowup_time(I, g) and np.isclose(upper, 2 / 3)
    ```

    MATH e.4.
    """
    m, L = host.moments(gaussian)
    d = m.shape[0]
    rounding = host.unit(V, A)
    V, A = (host.matrix(M, name, d, d) for M, name in ((V, "V"), (A, "A")))
    sizes = [float(np.linalg.norm(M, 2)) for M in (V, A, L, L)]
    lower = quotient([0.5], sizes) if min(sizes) > 0 else np.inf
    upper = np.inf
    if not host.differ(V, V.T, rounding) and not host.differ(A, A.T, rounding) and min(sizes) > 0:
        v, a = np.linalg.eigvalsh(V)[0], np.linalg.eigvalsh(A)[0]
        if v > 0 and a > 0:
            size = unit(L)
            trace = np.trace((L / size).T @ np.linalg.solve(V / v, L / size))  # of v V^-1 Sigma
            upper = quotient([d / 2], [a, v, trace, size, size])
    return BlowupBounds(lower, upper)

r"""Gaussian flows that are known in closed form (MATH e.3), exact for any rank and without an inverse.

Computed with NumPy in float64, outside of `jit`. The temperature is absorbed where only $A$ is asked for: pass
`field.A / field.tau`. Since $V\to\lambda V$ is $t\to\lambda t$, a flow with $V=I$ at time $\lambda t$ is the one
with $V=\lambda I$ at time $t$.
"""

from typing import Any, TypeAlias

import numpy as np
from scipy.special import wrightomega

from .. import _checks as checks
from .._scale import grown, norm, quotient, unit
from ..measures.gaussian import Gaussian
from . import _host as host

KINDS = ("softmax", "l2", "sinkhorn")
Values: TypeAlias = np.ndarray | np.floating


def _gaussian(mean: np.ndarray, factor: np.ndarray, like: Gaussian) -> Gaussian:
    for name, values in (("mean", mean), ("covariance", factor)):
        if not np.isfinite(values).all():
            checks.refuse(
                f"the {name} at this time is too large for floating-point numbers",
                got=f"a {name} that grows exponentially, beyond 1e308",
                expected="a time at which it is finite",
                remedy="ask for earlier times; a Gaussian with mean 0 keeps it, and its covariance is the same",
            )
    return Gaussian(mean.astype(like.mean.dtype), factor=factor.astype(like.factor.dtype))


# One dimension: the logarithm of the growth, which keeps its digits where little happens


def _softmax_growth(x: Values) -> Values:
    r"""$\log\sigma/\sigma_0=-\log(1-x)$, $x=2va\sigma_0t$."""
    return -np.log1p(-x)


def _l2_growth(p: Values, s: Values) -> Values:
    r"""$-w=\log\sigma/\sigma_0$, where $e^w-1+pw=-s$, $p=2k^2\sigma_0$, $s=4va\sigma_0t$ (MATH e.3.4 over $u_0$)."""
    moving = (s != 0) & (p > 1e-140)
    p_ = np.where(moving, p, 1)
    # e^w = p omega(z); log omega = z - omega where omega underflows.
    z = (1 - s) / p_ - np.log(p_)
    omega = wrightomega(z)
    small = omega < 1
    w = np.log(p_) + np.where(small, z - omega, np.log(np.where(small, 1, omega)))
    # The start is exact to round-off in e^w; Newton steps make that round-off in w, however small w is.
    for _ in range(3):
        w = w - (np.expm1(w) + p_ * w + s) / (np.exp(w) + p_)
    # Where p is too small for z, e^w = 1 - s: softmax with 2a.
    rest = np.where(moving, 0.0, s)
    if (rest >= 1).any():
        checks.refuse(
            "the variance at this time is too large for floating-point numbers",
            got=f"k^2 variance / tau = {np.min(p) / 2:.3g}, where l2 attention is nearly softmax",
            expected="a time before the blow-up of softmax with 2 q k",
            remedy="ask for earlier times",
        )
    return np.where(moving, -w, -np.log1p(-rest))


def _sinkhorn_growth(bs: Values, vt: Values, sign: Values) -> Values:
    r"""$\log\sigma/\sigma_0=\log\sinh\vartheta/\sinh\vartheta_0$, $\sinh\vartheta_0=2|b|\sigma_0$ (MATH e.3.4).

    $\vartheta-\coth\frac\vartheta2=c$ is solved by Newton's method from the root of $\vartheta-2/\vartheta=c$. The
    left side is concave and increasing and that start is too small, so the steps go up to the solution monotonically.
    """
    moving = bs > 1e-140  # below, squares underflow
    theta0 = np.arcsinh(2 * np.where(moving, bs, 1))
    c = theta0 - 1 / np.tanh(theta0 / 2) + 2 * sign * vt
    root = np.hypot(c, np.sqrt(8))
    theta = np.where(c > 0, (root + c) / 2, 4 / (root + np.abs(c)))
    for _ in range(60):
        step = (c - theta + 1 / np.tanh(theta / 2)) / (1 + 0.5 / np.sinh(np.minimum(theta, 700) / 2) ** 2)
        theta = theta + step
        if (np.abs(step) <= 4 * np.finfo(float).eps * theta).all():
            break
    growth = theta - theta0 + np.log(np.expm1(-2 * theta) / np.expm1(-2 * theta0))
    return np.where(moving, growth, 0.0)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite is refused, or infinite
def one_dimensional(
    kind: str,
    q: Any,
    k: Any,
    v: Any,
    tau: Any,
    mean: Any,
    variance: Any,
    t: Any,
    kernel: str = "dot",
) -> tuple[Values, Values]:
    r"""Mean and variance at time `t` of a Gaussian on the line under attention, in closed form. With $a=qk/\tau$,

    $$\dot\sigma=2va\sigma^2\ \text{(softmax)},\qquad\dot\sigma=\frac{4va\sigma^2}{1+2k^2\sigma/\tau}\ \text{(L2)},
    \qquad\dot\sigma=\frac vb\big(\sqrt{1+4b^2\sigma^2}-1\big)\ \text{(Sinkhorn)},$$

    where $b=a$, or $2a$ for `kernel="distance"`.

    **Arguments:** `kind` one of "softmax", "l2", "sinkhorn"; `tau` is the `eps` of Sinkhorn; `variance` is $\sigma_0$,
    not its root; `t` is not negative. Numbers or arrays, element by element.

    **Returns:** a pair of NumPy arrays, mean and variance, in the common shape of the arguments.

    **Raises:** `InputError` for a time at or after the blow-up of softmax.

    ```python
    mean, variance = mf.one_dimensional("softmax", 1.0, 1.0, 1.0, 1.0, mean=1.0, variance=1.0, t=0.25)
    assert np.isclose(variance, 2.0)  # 1 / (1 - 2 t)
    assert np.isclose(mean, np.exp(0.25) * np.sqrt(2))
    ```

    MATH e.3.4.
    """
    kind = checks.one_of(kind, "kind", KINDS)
    kernel = checks.one_of(kernel, "kernel", ("dot", "distance"))
    given = {"q": q, "k": k, "v": v, "tau": tau, "mean": mean, "variance": variance, "t": t}
    arrays = {name: host.known(checks.finite(checks.to_array(x, name), name), name) for name, x in given.items()}
    if not arrays["tau"].min() > 0:
        host.temperature(arrays["tau"].min(), "tau")
    host.not_negative(arrays["variance"], "variance", "a variance of 0 is a single point")
    host.not_negative(arrays["t"], "t", "the flow backward in time is the flow of -v")
    try:
        q, k, v, tau, mean, variance, t = np.broadcast_arrays(*arrays.values())
    except ValueError:
        checks.refuse(
            "the parameters must have shapes that fit together",
            got=", ".join(f"{name} {x.shape}" for name, x in arrays.items() if x.ndim),
            expected="one shape, or single numbers",
            remedy="give as many of each",
        )
    a = q * k / tau
    for name, product in (("q k variance / tau", a * variance), ("k^2 variance / tau", k**2 / tau * variance)):
        checks.representable(product, name, host.SMALLER)
    checks.representable(v * t, "v t", host.SMALLER)
    checks.representable(v * a * variance * t, "v q k variance t / tau", host.SMALLER)
    if kind == "softmax":
        x = checks.representable(2 * v * a * variance * t, "2 v q k variance t / tau", host.SMALLER)
        if (x >= 1).any():
            worst = np.unravel_index(x.argmax(), x.shape)
            host.before(t[worst][None], float(t[worst] / x[worst]))
        growth = _softmax_growth(x)
        mean_growth = v * t + growth / 2
    elif kind == "l2":
        p, s = 2 * k**2 / tau * variance, 4 * v * a * variance * t
        checks.representable(p, "2 k^2 variance / tau", host.SMALLER)
        checks.representable(s, "4 v q k variance t / tau", host.SMALLER)
        growth = _l2_growth(p, s)
        # (1/sigma_0 - 1/sigma) / 4a = v t (1 - e^w) / s, and v t / (1 + p) where nothing moves.
        share = np.where(s == 0, 1 / (1 + p), -np.expm1(-growth) / np.where(s == 0, 1, s))
        mean_growth = growth / 2 + v * t * share
    else:
        b = a if kernel == "dot" else 2 * a
        checks.representable(2 * b * variance, "2 b variance", host.SMALLER)
        growth = _sinkhorn_growth(np.abs(b) * variance, v * t, np.sign(b))
        mean_growth = v * t
    return grown(mean, mean_growth), grown(variance, growth)


# V = I


@np.errstate(over="ignore")  # a time beyond the range is 0, or infinite
def softmax_blowup_time(A: Any, gaussian: Gaussian, V: Any = 1.0) -> float:
    r"""The time $t^*$ at which softmax attention makes a Gaussian infinite; `inf` if it never does. In two cases it is
    known:

    $$t^*=\frac1{\lambda_{\max}\big(v\,L_0^\top(A+A^\top)L_0\big)}\ \text{ if }V=vI,\qquad
    t^*=\frac1{2\lambda_{\max}(VA\Sigma_0)}\ \text{ if }V,A,\Sigma_0\text{ are symmetric and commute.}$$

    Both are `inf` if that eigenvalue is not positive, or cannot be told from 0: entries of $L_0^\top(A+A^\top)L_0$ are
    known up to $4d\epsilon\,|L_0|^\top(|A|+|A|^\top)|L_0|$, $\epsilon$ the round-off of the least precise argument.
    So small directions are resolved beside large ones, and what is zero but for rounding is zero.

    **Arguments:** `A` of shape `(d, d)`, with the temperature in it (`field.A / field.tau`); a single Gaussian; `V` a
    number $v$ or a matrix `(d, d)`.

    **Returns:** a float.

    **Raises:** `InputError` for other `V`, where there is no closed form: see `blowup_bounds`; for an eigenvalue that
    is positive, but lost in rounding beside others.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    assert mf.softmax_blowup_time(I, g) == 0.5
    assert mf.softmax_blowup_time(-I, g) == np.inf
    ```

    MATH e.3.1, e.3.3.
    """
    mean, L = host.moments(gaussian)
    d = mean.shape[0]
    rounding = host.unit(A, V, gaussian.factor)
    A = host.matrix(A, "A", d, d)
    V = host.scaling(V, "V", d)
    # Each in units of a power of two; the time is in units of one over their product.
    units = [float(unit(M)) for M in (A, V, L, L)]
    A, V = A / units[0], V / units[1]
    if not host.differ(V, V[0, 0] * np.eye(d), rounding):
        columns = unit(L, 0)
        L, size = L / columns, np.minimum(columns / units[2], 1)  # a column of zeros has the unit 1
        M, bound = V[0, 0] * L.T @ (A + A.T) @ L, abs(V[0, 0]) * abs(L).T @ (abs(A) + abs(A).T) @ abs(L)
    else:
        L = L / units[2]
        sigma = L @ L.T
        defects = {
            "V is not symmetric": (V, V.T, 1.0, V),
            "A is not symmetric": (A, A.T, 1.0, A),
            "V A is not A V": (V @ A, A @ V, V, A),
            "V Sigma is not Sigma V": (V @ sigma, sigma @ V, V, sigma),
            "A Sigma is not Sigma A": (A @ sigma, sigma @ A, A, sigma),
        }
        for words, (one, other, *sizes) in defects.items():
            if host.differ(one, other, rounding, float(np.prod([norm(size) for size in sizes]))):
                checks.refuse(
                    "no closed form of the blow-up time is known here",
                    got=f"a V that is not a multiple of I, and {words}",
                    expected="V = v I, or symmetric V, A and Sigma that commute",
                    remedy="blowup_bounds brackets the time, and a flow of the Gaussian finds it",
                )
        size, product, bound = np.ones((1, d)), V @ A @ sigma, abs(V) @ abs(A) @ abs(L) @ abs(L).T
        M, bound = product + product.T, bound + bound.T
    # The products are exact up to rounding entry by entry: what is zero but for it (A antisymmetric, say) is zero.
    top = host.top_eigenvalue((M + M.T) / 2, 4 * d * rounding * bound, size[0])
    return quotient([1], [top, *units]) if top > 0 else np.inf


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def softmax_identity_flow(A: Any, gaussian: Gaussian, t: Any, v: Any = 1.0) -> Gaussian:
    r"""The Gaussian at time `t` under softmax attention with $V=vI$,

    $$\Sigma(t)=L_0\big(I-tv\,L_0^\top(A+A^\top)L_0\big)^{-1}L_0^\top,\qquad
    m(t)=e^{vt}\,(I-2tv\,\Sigma_0A)^{-1/2}m_0\ \text{ if }A=A^\top .$$

    **Arguments:** `A` of shape `(d, d)`, with the temperature in it (`field.A / field.tau`); a single Gaussian; `t`
    before the blow-up, a number or a vector `(T,)`; `v` a number. For $A\ne A^\top$ the mean must be 0: it then stays
    0.

    **Returns:** a `Gaussian`; for a vector of times a batch, with means `(T, d)`.

    **Raises:** `InputError` for a time at or after the blow-up, and for a mean without a closed form.

    ```python
    g = mf.Gaussian(jnp.array([1.0, 0.0]), cov=jnp.eye(2))
    later = mf.softmax_identity_flow(jnp.eye(2), g, t=0.25)
    assert np.allclose(later.covariance, 2 * jnp.eye(2))  # 1 / (1 - 2 t)
    assert np.allclose(later.mean, [np.exp(0.25) * np.sqrt(2), 0])
    ```

    MATH e.3.1, e.3.2.
    """
    m, L = host.moments(gaussian)
    d = m.shape[0]
    rounding = host.unit(A)
    A, t, v = host.matrix(A, "A", d, d), host.times(t), host.number(v, "v")
    if host.differ(A, A.T, rounding) and m.any():
        checks.refuse(
            "the mean has a closed form for symmetric A only",
            got=f"an A with an asymmetry of {np.abs(A - A.T).max():.3g}, and a mean that is not 0",
            expected="A == A.T, or mean 0",
            remedy="centre the Gaussian: its covariance does not depend on the mean",
        )
    host.before(t, softmax_blowup_time(A, gaussian, v))
    values, U = np.linalg.eigh(checks.representable(L.T @ (A + A.T) @ L, "L^T (A + A^T) L", host.SMALLER))
    root = np.sqrt(np.maximum(1 - v * t[..., None] * values, np.finfo(float).tiny))
    # (I - 2tv Sigma A)^(-1/2) = I + L U diag((1/root - 1) / x) U^T L^T A, x = values / 2, without the division by x.
    gain = 2 * v * t[..., None] / (root * (1 + root))
    sizes, LU = np.where(values != 0, values / 2, 1), L @ U
    moved = _moved(m, A.T @ LU, LU, sizes, gain, 1 / root)
    return _gaussian(grown(moved, v * t[..., None]), LU / root[..., None, :], gaussian)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def matched_flow(
    kind: str, K: Any, sign: int, gaussian: Gaussian, t: Any, tau: Any = 1.0, kernel: str = "dot"
) -> Gaussian:
    r"""The Gaussian at time `t` under attention with $Q=\pm K$ and $V=I$, any $k$ and any ranks.

    $K\Sigma K^\top/\tau$ keeps its eigenvectors and each eigenvalue $\nu_i$ follows the law of one dimension. With
    $KL_0/\sqrt\tau=U\,\mathrm{diag}(\sqrt{\nu_i})\,W^\top$ and $\varphi_i=\sqrt{\nu_i(t)/\nu_i(0)}$,

    $$L(t)=L_0\big(I+W\,\mathrm{diag}(\varphi_i-1)\,W^\top\big),\qquad
    m(t)=e^t\Big(m_0+L_0W\,\mathrm{diag}\Big(\frac{\varphi_i^p-1}{\sqrt{\nu_i}}\Big)U^\top Km_0/\sqrt\tau\Big),$$

    where $p=1$ for softmax, $p=2$ for L2 with $Q=-K$, and $p=0$ for L2 with $Q=K$ and for Sinkhorn.

    **Arguments:** `kind` one of "softmax", "l2", "sinkhorn"; `K` of shape `(k, d)`; `sign` 1 or -1; a single Gaussian;
    `t` a number or a vector `(T,)`; `tau` is the `eps` of Sinkhorn, `kernel` ("dot" or "distance") its kernel.

    **Returns:** a `Gaussian`; for a vector of times a batch, with means `(T, d)`.

    **Raises:** `InputError` for a time at or after the blow-up of softmax with `sign=1`.

    ```python
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    later = mf.matched_flow("softmax", jnp.eye(2), sign=-1, gaussian=g, t=1.0)
    assert np.allclose(later.covariance, jnp.eye(2) / 3)  # 1 / (1 + 2 t)
    ```

    MATH e.3.5.
    """
    kind = checks.one_of(kind, "kind", KINDS)
    kernel = checks.one_of(kernel, "kernel", ("dot", "distance"))
    if isinstance(sign, bool) or not isinstance(sign, (int, float, np.number)) or sign not in (1, -1):
        checks.refuse("sign must be 1 or -1", got=repr(sign), expected="Q = sign * K", remedy="sign=-1 means Q = -K")
    m, L = host.moments(gaussian)
    K, t = host.matrix(K, "K", m.shape[0]) / np.sqrt(host.temperature(tau, "tau")), host.times(t)
    # With the directions that K does not see, which rest: L W, times the growth of each column, is a factor.
    U, roots, Wt = np.linalg.svd(checks.representable(K @ L, "K L", host.SMALLER))
    U, LW = U[:, : len(roots)], L @ Wt.T
    nu, time = checks.representable(roots**2, "K Sigma K^T / tau", host.SMALLER), t[..., None]
    if kind == "softmax":
        host.before(t, 1 / (2 * nu[0]) if sign * nu[0] > 0 else np.inf)
        growth, power = _softmax_growth(2 * sign * nu * time), 1
    elif kind == "l2":
        growth, power = _l2_growth(2 * nu + 0 * time, 4 * sign * nu * time), 1 - sign
    else:
        beta = 1 if kernel == "dot" else 2
        growth, power = _sinkhorn_growth(beta * nu + 0 * time, time, np.float64(sign)), 0
    sizes, change = np.where(roots > 0, roots, 1), power * growth / 2
    moved = _moved(m, K.T @ U, LW[:, : len(roots)], sizes, np.expm1(change) / sizes, np.exp(change))
    growth = np.concatenate([growth, np.zeros((*growth.shape[:-1], len(Wt) - len(roots)))], axis=-1)
    return _gaussian(grown(moved, time), grown(LW, growth[..., None, :] / 2), gaussian)


def _moved(m: Any, seen: Any, columns: Any, sizes: Any, gain: Any, left: Any) -> np.ndarray:
    r"""$m+\sum_ia_i(s_i\cdot m)\,c_i$, where $s_i\cdot c_j=r_i\delta_{ij}$ and $1+a_ir_i$ is `left`, without
    cancellation: what shrinks is taken out, and put back as small as it is.
    """
    shrinks, rest = left < 0.4, m + 0 * left[..., :1]
    for _ in range(12):  # each time leaves its rounding
        rest = rest - np.where(shrinks, rest @ seen / sizes, 0) @ columns.T
    return rest + (np.where(shrinks, left / sizes, gain) * (m @ seen)) @ columns.T


# A blow-up of l2 attention


@np.errstate(over="ignore")  # a time beyond the range is 0, or infinite
def l2_blowup_time(Q: Any, K: Any, V: Any, gaussian: Gaussian, tau: Any = 1.0) -> float:
    r"""The time at which L2 attention makes a Gaussian infinite, where it does so in closed form.

    For single rows $Q=q^\top$, $K=k^\top$ with $k^\top V=0$ and $q^\top V=v\,q^\top$, $\alpha=k^\top\Sigma k$ stays
    constant and $\beta=q^\top\Sigma k$ obeys

    $$\dot\beta=\frac{2v\beta^2}{1+2\alpha},\qquad
    t^*=\frac{1+2\alpha}{2v\beta}\ \text{ if }v\beta>0,\text{ else }\infty.$$

    **Arguments:** `Q`, `K` of shape `(1, d)`, `V` of shape `(d, d)`; a single Gaussian; with `tau`, $q$ and $k$ are
    divided by $\sqrt\tau$.

    **Returns:** a float; `inf` too where $v$ or $\beta$ cannot be told from 0, by the rounding of their sums.

    **Raises:** `InputError` where there is no closed form. If `K` has full column rank there is no blow-up.

    ```python
    g = mf.Gaussian(jnp.zeros(2), cov=[[1.0, 0.5], [0.5, 1.0]])
    Q, K, V = jnp.array([[0.0, 1.0]]), jnp.array([[1.0, 0.0]]), jnp.diag(jnp.array([0.0, 1.0]))
    assert mf.l2_blowup_time(Q, K, V, g) == 3.0
    ```

    MATH e.4.
    """
    m, L = host.moments(gaussian)
    d, tau, rounding = m.shape[0], host.temperature(tau, "tau"), host.unit(Q, K, V, gaussian.factor)
    Q, K = (host.matrix(M, name, d, 1)[0] for M, name in ((Q, "Q"), (K, "K")))
    V = host.matrix(V, "V", d, d)
    # Each in units of a power of two; L as it is, but for sums at the end of the range.
    of_q, of_k, of_v, of_L = *(float(unit(M)) for M in (Q, K, V)), 2.0**64 if unit(L) > 1 else 1.0
    Q, K, V, L = Q / of_q, K / of_k, V / of_v, L / of_L
    direction = Q / max(norm(Q), np.finfo(float).tiny)
    v, known = direction @ V @ direction, 4 * d * rounding
    for words, row, image in (("K V is not 0", K, 0 * K), ("Q V is not a multiple of Q", Q, v * Q)):
        if host.differ(row @ V, image, rounding, float(norm(row) * norm(V))):
            checks.refuse(
                "no closed form of the blow-up time is known here",
                got=words,
                expected="single rows Q and K with K V = 0 and Q V = v Q",
                remedy="let a flow of the Gaussian find it; K of full column rank excludes a blow-up",
            )
    # As for softmax, sums are known up to some round-offs of that of their sizes.
    alpha, beta, size = _dot(K @ L, K @ L), _dot(Q @ L, K @ L), _dot(abs(Q) @ abs(L), abs(K) @ abs(L))
    rests = abs(v) <= known * (abs(direction) @ abs(V) @ abs(direction))
    if rests or not v * beta[0] > 0 or abs(quotient(beta, size)) <= known:
        return np.inf
    steep = v, *beta, of_q, of_v  # v beta, over of_k and of_L^2
    return quotient([tau], [2, of_k, of_L, of_L, *steep]) + quotient([*alpha, of_k], steep)


def _dot(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """The dot product as a number and two powers of two to be multiplied by, which may be beyond the range."""
    (x, of_x), (y, of_y) = np.frexp(x), np.frexp(y)
    power = int(np.where(x * y != 0, of_x + of_y, -4000).max())
    return float(np.ldexp(x * y, of_x + of_y - power).sum()), 2.0 ** (power // 2), 2.0 ** (power - power // 2)

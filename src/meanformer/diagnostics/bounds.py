"""Bounds of the theory for compactly supported data, as numbers (MATH d)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._scale import grown, times
from .._types import AnyArray, Scalar, cast, common_dtype
from ..attention.base import AbstractField, check_kind
from ..attention.kernel import AbstractAttention
from ..attention.lipschitz import Lipschitz
from ..attention.schedule import breaks_of, check_velocity, is_constant, pieces_of
from ..attention.sinkhorn import Sinkhorn
from ..attention.view import Term, act
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian

# Nodes of Gauss-Legendre quadrature for weights that depend on time.
_NODES = 64


def growth(field: AbstractField, t: Scalar) -> tuple[Scalar, Scalar] | None:
    r"""$(a,b)$ with $|\Gamma_\mu(x)|\le aR+b$ on the ball of radius R: $a=\sum_h\|L_hV_h\|$, $b=\sum_h|L_hb_h|$;
    None if there is no such bound.
    """
    rate = offset = jnp.zeros((), t.dtype)
    for term in field.terms(t):
        if not term.leaf.bounded or term.leaf.linear_part is None:
            return None
        V, bias = term.leaf.linear_part
        rate = rate + jnp.linalg.norm(act(term.left, V.T).T, 2)
        if bias is not None:
            offset = offset + jnp.linalg.norm(act(term.left, bias[None])[0])
    return rate, offset


def support_bound(field: AbstractField, mu: PointCloud, t1: Any, t0: Any = 0.0) -> Float[Array, ""] | None:
    r"""The bound on the support radius at `t1`,

    $$R(t)\le e^{\int_{t_0}^t\|V\|}R_0,$$

    with $\sum_h\|W_hV_h\|$ in the exponent for several heads, and $R_0+\int|b|$ for $R_0$ where values have biases. It
    holds for softmax, L2, Sinkhorn, hardmax, sigmoid, their masked versions and affine maps. The integral is exact for
    constant and piecewise constant weights, a 64-point Gauss rule for scheduled ones.

    **Arguments:** a field, a `PointCloud`, and times $t_1\ge t_0$.

    **Returns:** a number of shape `()`; None for other fields (linear, unnormalised, perceptron, norms).

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    run = mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0)
    bound = mf.support_bound(run.field, tokens, t1=1.0)
    assert np.isclose(bound, np.e) and run.final.radius <= bound
    ```

    MATH d.1; Castin et al. 2025.
    """
    field, mu, t0, t1 = _checked_span(field, mu, t0, t1)
    return grown_radius(field, mu.radius, t0, t1)


def _checked_span(field: Any, mu: Any, t0: Any, t1: Any) -> tuple[AbstractField, PointCloud, Scalar, Scalar]:
    t0, t1 = _checked_times(t0, t1)
    if isinstance(mu, (Gaussian, Density)):
        checks.refuse(
            "this bound is for tokens",
            got=checks.described(mu),
            expected="a PointCloud, whose support has a radius",
            remedy="mf.to_cloud(mu) for the tokens of a density; mf.check(run) tells what is known of other measures",
        )
    check_velocity(field, mu, t0)
    return cast((field, mu, t0, t1), common_dtype(field, field.terms(t0), mu))


def _checked_times(t0: Any, t1: Any) -> tuple[Scalar, Scalar]:
    t0, t1 = checks.scalar(t0, "t0"), checks.scalar(t1, "t1")
    if checks.known(t0, t1) and float(t1) < float(t0):
        checks.refuse(
            "the bound holds forward in time",
            got=f"t0 = {float(t0):g}, t1 = {float(t1):g}",
            expected="t1 >= t0",
            remedy="swap them; the field -1.0 * field goes backwards",
        )
    return t0, t1


def _over_pieces(field: AbstractField, t0: Scalar, t1: Scalar) -> list[tuple[AbstractField, Scalar, Scalar]]:
    """The pieces of a field with continuous weights that are met from `t0` to `t1`, with their times."""
    ends = [t0, *(jnp.clip(jnp.asarray(b, t0.dtype), t0, t1) for b in breaks_of(field)), t1]
    spans = zip(pieces_of(field), ends[:-1], ends[1:], strict=True)
    return [(f, a, b) for f, a, b in spans if not (checks.known(a, b) and float(a) == float(b))]


def grown_radius(field: AbstractField, radius: Scalar, t0: Scalar, t1: Scalar) -> Scalar | None:
    """The bound on the radius at `t1` from a radius at `t0`."""
    grown: Scalar | None = radius
    for piece, start, end in _over_pieces(field, t0, t1):
        grown = None if grown is None else _grown(piece, grown, start, end)
    return grown


def grown_radii(field: AbstractField, radius: Scalar, t0: Scalar, times: AnyArray) -> Array | None:
    """The bounds on the radius at many times, on the host; None if there is none up to the largest."""
    return _grown_radii(_over_pieces(field, t0, np.asarray(times).max()), radius, times)


@program
def _grown_radii(pieces: list[tuple[AbstractField, Scalar, Scalar]], radius: Scalar, times: AnyArray) -> Array | None:
    def at(t: Scalar) -> Scalar | None:
        grown = radius
        for piece, start, end in pieces:
            after = _grown(piece, grown, start, jnp.clip(t, start, end))
            if after is None:
                return None
            grown = jnp.where(t > start, after, grown)
        return grown

    # One after the other: a rule of many nodes at all times at once would need much memory.
    return jax.lax.map(at, times)


@program(inline=True)
def _grown(field: AbstractField, radius: Scalar, start: Scalar, end: Scalar) -> Scalar | None:
    r"""A bound on $R$ after $\dot R\le a(t)R+b(t)$ from `start` to `end`: $e^{\int a}(R+\int b)$."""
    if growth(field, start) is None:
        return None
    rates, offsets = _integrated(lambda t: growth(field, t), field, start, end)
    return grown(radius + offsets, rates)


def _integrated(function: Callable[[Scalar], Any], field: AbstractField, start: Scalar, end: Scalar) -> Any:
    """Integrals over time of what depends on it through the weights of `field` alone."""
    nodes, weights = np.polynomial.legendre.leggauss(1 if is_constant(field) else _NODES)
    nodes, weights = (jnp.asarray(v / 2, start.dtype) for v in (nodes + 1, weights))
    values = jax.vmap(lambda node: function(start + (end - start) * node))(nodes)
    return jax.tree.map(lambda v: (end - start) * weights @ v, values)


def lipschitz_constants(field: AbstractField, radius: Any, t: Any = 0.0) -> Lipschitz | None:
    r"""Local Lipschitz constants of a field on the ball of `radius` $R$: $L_x$ in the point and $L_\mu$ in the measure,

    $$|\Gamma_\mu(x)-\Gamma_\mu(x')|\le L_x|x-x'|,\qquad|\Gamma_\mu(x)-\Gamma_\nu(x)|\le L_\mu W_1(\mu,\nu)$$

    for points and supports in the ball; for softmax, with $a=\|A\|/\tau$, $L_x=\|V\|aR^2$ and
    $L_\mu=\|V\|(1+2aR^2)e^{2aR^2}$. Summed over the heads. Under a mask $L_\mu$ is that of the visible measure,
    renormalised for averaging kinds.

    **Arguments:** a field; a positive radius; the time `t`, for scheduled weights.

    **Returns:** a `Lipschitz`, a pair `x`, `mu` of shape `()`. `mu` is None for Sinkhorn, where no explicit constant is
    known; the result is None for fields without constants (hardmax, which is discontinuous, perceptrons, norms).

    ```python
    constants = mf.lipschitz_constants(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), radius=1.0)
    assert np.isclose(constants.x, 1) and np.isclose(constants.mu, 3 * np.exp(2))
    ```

    MATH d.2; Castin et al. 2024.
    """
    check_kind(field)
    radius, t = checks.positive(radius, "radius", "the radius of a ball around 0"), checks.scalar(t, "t")
    terms = field.terms(t)
    terms, radius = cast((terms, radius), common_dtype(terms, radius))
    return _constants(terms, radius, np.ones(len(terms), radius.dtype))


@program(inline=True)
def _constants(terms: tuple[Term, ...], radius: Scalar, factors: AnyArray) -> Lipschitz | None:
    """The sum over terms, whose $L_mu$ have `factors`."""
    in_x, in_mu = jnp.zeros((), radius.dtype), jnp.zeros((), radius.dtype)
    for term, factor in zip(terms, factors, strict=True):
        one = term.leaf.lipschitz(term.left, radius)
        if one is None:
            return None
        in_x = in_x + one.x
        # An infinite factor of a constant that is 0 counts for nothing.
        in_mu = None if in_mu is None or one.mu is None else in_mu + times(factor, one.mu)
    return Lipschitz(in_x, in_mu)


def _hardy_factors(terms: tuple[Term, ...], p: float, dtype: Any) -> np.ndarray:
    """The factor of each term in a distance with exponent `p`."""
    return np.array([hardy_factor(term, p) for term in terms], dtype)


def hardy_factor(term: Term, p: float) -> float:
    r"""$p/(p-1)$ where a mask is renormalised: the averages over prefixes (Hardy's inequality, MATH d.4); else 1.

    A masked integral without a division, $\int1_{r\le s}\dots d\bar\mu$, needs no such factor.
    """
    leaf = term.leaf
    if not (term.causal and isinstance(leaf, AbstractAttention) and (term.prefix or leaf.normalised)):
        return 1.0
    return p / (p - 1) if p > 1 else np.inf


class Stability(NamedTuple):
    r"""What `stability_bound` returns: $W_p(\mu_t,\nu_t)\le e^{\text{exponent}}\,W_p(\mu_0,\nu_0)$.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), 0.5 * jnp.eye(2))
    bound = mf.stability_bound(field, tokens, tokens, t1=1.0)
    assert np.isclose(bound.constant, np.exp(bound.exponent)) and np.isclose(bound.radius, np.exp(0.5))
    ```

    MATH d.3.
    """

    exponent: float
    r"""The integral of $L_x+L_\mu$ over time."""
    constant: float
    r"""$e^{\text{exponent}}$, perhaps infinite."""
    radius: float
    """The bound on both supports at the end, on which the constants rest."""


def stability_bound(
    field: AbstractField, mu: PointCloud, nu: PointCloud, t1: Any, t0: Any = 0.0, *, p: float | int = 2
) -> Stability | None:
    r"""Dobrushin's stability of the flow of two measures on a common ball,

    $$W_p(\mu_t,\nu_t)\le\exp\Big(\int_{t_0}^t\big(L_x(R_s)+L_\mu(R_s)\big)ds\Big)W_p(\mu_0,\nu_0),$$

    with $R_s$ the bound on both radii. For masked fields the distance is the conditional one and $L_\mu$ is multiplied
    by $p/(p-1)$ where the mask is renormalised (MATH d.4): $p>1$ is then needed. It is extremely pessimistic.

    **Arguments:** a field, two `PointCloud`s, times $t_1\ge t_0$, and $p\ge1$.

    **Returns:** a `Stability`, floats `exponent`, `constant` and `radius`; None where no constant is known (Sinkhorn in
    the measure) or the radius has no bound (linear, unnormalised).

    ```python
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), 0.5 * jnp.eye(2))
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nu = mu.with_points(0.9 * mu.points)
    after = [mf.flow(field, start, t1=1.0).final for start in (mu, nu)]
    bound = mf.stability_bound(field, mu, nu, t1=1.0)
    assert mf.wasserstein(*after) <= bound.constant * mf.wasserstein(mu, nu)
    ```

    MATH d.3; Castin et al. 2025.
    """
    p = checks.power(p)
    field, mu, t0, t1 = _checked_span(field, mu, t0, t1)
    field, nu, t0, t1 = _checked_span(field, nu, t0, t1)
    radius = np.maximum(mu.radius, nu.radius)  # on the host, where nothing is compiled for it
    exponent = 0.0
    for piece, start, end in _over_pieces(field, t0, t1):
        terms = piece.terms(start)
        factors = _hardy_factors(terms, p, start.dtype)
        first, grown = _constants(terms, radius, factors), _grown(piece, radius, start, end)
        if first is None or first.mu is None or grown is None:
            return None
        exponent += float(_exponent(piece, radius, start, end, factors))
        radius = grown
    with np.errstate(over="ignore"):
        return Stability(exponent, float(np.exp(exponent)), float(radius))


@program(inline=True)
def _exponent(field: AbstractField, radius: Scalar, start: Scalar, end: Scalar, factors: AnyArray) -> Scalar:
    r"""$\int(L_x(R_s)+L_\mu(R_s))ds$ over one piece, by Gauss quadrature: the radius grows where weights do not."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = (jnp.asarray(v / 2, start.dtype) for v in (nodes + 1, weights))

    def rate(node: Scalar) -> Scalar:
        t = start + (end - start) * node
        here = _grown(field, radius, start, t)
        constants = _constants(field.terms(t), here, factors)  # pyright: ignore[reportArgumentType]
        return constants.x + constants.mu  # pyright: ignore

    return (end - start) * weights @ jax.vmap(rate)(nodes)


def euler_bound(field: AbstractField, mu: PointCloud, depth: int, t1: Any = 1.0, *, p: float | int = 2) -> float | None:
    r"""A bound on the distance between `depth` residual layers of step $h=t_1/\text{depth}$ and the flow at $t_1$,

    $$W_p\le\frac h2\,S\,(e^{Lt_1}-1),\qquad L=L_x(R)+L_\mu(R),\quad S=\|V\|R+|b|,$$

    with $R$ the bound on the radius at $t_1$, for every $p\ge1$ and constant weights: Euler's method with
    $|\ddot x|\le LS$ (both the flow and the layers stay in the ball of radius R). Under a mask the distance is the
    conditional one, and $L_\mu$ has the factor of `stability_bound`.

    **Arguments:** a field with constant weights, a `PointCloud`, the number of layers, the last time, and $p\ge1$.

    **Returns:** a float, perhaps infinite; None where no constant is known.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    field = mf.Softmax(0.1 * jnp.eye(2), jnp.eye(2), 0.5 * jnp.eye(2))
    bounds = [mf.euler_bound(field, tokens, depth) for depth in (48, 96)]
    assert np.isclose(bounds[1], bounds[0] / 2)  # of first order in the step
    ```

    MATH c, d.2.
    """
    p = checks.power(p)
    depth = checks.whole(depth, "depth")
    check_kind(field)
    if not is_constant(field):
        checks.refuse(
            "the Euler bound is for constant weights",
            got=f"a {type(field).__name__} field that depends on time",
            expected="a field without Scheduled or Piecewise parts",
            remedy="compare mf.layers with mf.flow directly",
        )
    field, mu, t0, t1 = _checked_span(field, mu, 0.0, t1)
    radius, speed = grown_radius(field, mu.radius, t0, t1), growth(field, t0)
    terms = field.terms(t0)
    constants = None if radius is None else _constants(terms, radius, _hardy_factors(terms, p, t0.dtype))
    if radius is None or speed is None or constants is None or constants.mu is None:
        return None
    L, S, end = constants.x + constants.mu, times(speed[0], radius) + speed[1], t1.astype(float)
    # In double precision, where what is beyond single is finite.
    return float(times(end / depth / 2, S.astype(float), jnp.expm1(times(L.astype(float), end))))


def trace_bound(field: AbstractField, trace: Any, t1: Any, t0: Any = 0.0) -> float | None:
    r"""The bound on the trace of the covariance under Sinkhorn attention, for every measure,

    $$\operatorname{tr}\Sigma(t)\le e^{2\int_{t_0}^t\sum_h\|W_hV_h\|}\operatorname{tr}\Sigma_0,$$

    because $\int|\bar y-m|^2d\mu\le\operatorname{tr}\Sigma$ by Jensen, since both marginals of the plan are $\mu$.

    **Arguments:** a field, a sum of Sinkhorn heads and affine maps; the `trace` at `t0`, a number; and $t_1\ge t_0$.

    **Returns:** a float; None for other kinds, and under a mask.

    ```python
    field = mf.Sinkhorn(jnp.eye(2), jnp.eye(2), jnp.eye(2), eps=1.0)
    assert np.isclose(mf.trace_bound(field, trace=2.0, t1=0.5), 2 * np.e)
    assert mf.trace_bound(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), trace=2.0, t1=0.5) is None
    ```

    MATH e.4.
    """
    check_kind(field)
    trace = checks.scalar(trace, "trace")
    if checks.known(trace) and float(trace) < 0:
        checks.refuse(
            "a trace is not negative",
            got=f"trace = {float(trace):g}",
            expected="trace >= 0",
            remedy="pass the trace of a covariance: jnp.trace(mu.covariance)",
        )
    t0, t1 = _checked_times(t0, t1)
    field, trace, t0, t1 = cast((field, trace, t0, t1), common_dtype(field, field.terms(t0), trace))
    exponent = jnp.zeros((), trace.dtype)
    for piece, start, end in _over_pieces(field, t0, t1):
        for term in piece.terms(start):
            plain = not isinstance(term.leaf, AbstractAttention) and term.leaf.bounded
            if term.causal or not (isinstance(term.leaf, Sinkhorn) or plain):
                return None
        if growth(piece, start) is None:
            return None
        exponent = exponent + _integrated(lambda t, piece=piece: growth(piece, t), piece, start, end)[0]
    return float(grown(float(trace), 2 * float(exponent)))

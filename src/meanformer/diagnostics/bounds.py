"""Bounds of the theory, as numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Scalar, cast, common_dtype
from ..attention.base import AbstractField
from ..attention.schedule import breaks_of, check_velocity, is_constant, pieces_of
from ..attention.view import act
from ..measures.cloud import PointCloud

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
    r"""The bound on the support radius at `t1` (MATH d.1; Castin et al. 2025),

    $$R(t)\le e^{\int_{t_0}^t\|V\|}R_0,$$

    with $\sum_h\|W_hV_h\|$ in the exponent for several heads, and $R_0+\int|b|$ for $R_0$ where values have biases.
    It holds for softmax, L2, Sinkhorn, hardmax, sigmoid, their masked versions and affine maps; for other fields
    (linear, unnormalised, perceptron, norms) the result is None. The integral is exact for constant and piecewise
    constant weights, a 64-point Gauss rule for scheduled ones.
    """
    t0, t1 = checks.scalar(t0, "t0"), checks.scalar(t1, "t1")
    if checks.known(t0, t1) and float(t1) < float(t0):
        checks.refuse(
            "the bound holds forward in time",
            got=f"t0 = {float(t0):g}, t1 = {float(t1):g}",
            expected="t1 >= t0",
            remedy="swap them; the field -1.0 * field goes backwards",
        )
    check_velocity(field, mu, t0)
    field, mu, t0, t1 = cast((field, mu, t0, t1), common_dtype(field, field.terms(t0), mu))
    radius: Array | None = mu.radius
    ends = [t0, *(jnp.clip(jnp.asarray(b, t0.dtype), t0, t1) for b in breaks_of(field)), t1]
    for piece, start, end in zip(pieces_of(field), ends[:-1], ends[1:], strict=True):
        if radius is not None and not (checks.known(start, end) and float(start) == float(end)):
            radius = _grown(piece, radius, start, end)
    return radius


def _grown(field: AbstractField, radius: Scalar, start: Scalar, end: Scalar) -> Scalar | None:
    r"""A bound on $R$ after $\dot R\le a(t)R+b(t)$ from `start` to `end`: $e^{\int a}(R+\int b)$."""
    if growth(field, start) is None:
        return None
    nodes, weights = np.polynomial.legendre.leggauss(1 if is_constant(field) else _NODES)
    nodes, weights = (jnp.asarray(v / 2, start.dtype) for v in (nodes + 1, weights))
    rates, offsets = jax.vmap(lambda node: growth(field, start + (end - start) * node))(nodes)  # pyright: ignore
    return jnp.exp((end - start) * weights @ rates) * (radius + (end - start) * weights @ offsets)

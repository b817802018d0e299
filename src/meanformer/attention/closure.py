r"""Gaussian measures: a Gaussian-preserving field is affine on them, $\Gamma_\mu(x)=u+G(x-m)$ (MATH e)."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._lapack import one_by_one
from ..measures.gaussian import Gaussian

Closure = tuple[Float[Array, " v"], Float[Array, "v d"]]


class NotGaussianPreserving(checks.InputError):
    """The field does not map Gaussians to Gaussians, so that it has no exact Gaussian flow."""


def check_closure(term: Any) -> None:
    """Refuse a term that is not affine on Gaussians, with the reason."""
    name, reason = type(term.leaf).__name__, term.leaf.not_gaussian
    if term.causal:
        name, reason = f"Causal({name})", "sees a mixture of Gaussians at each position, on which it is not affine"
    if reason is not None:
        raise NotGaussianPreserving(
            f"{name} does not preserve Gaussians: it {reason}",
            got=f"{name} on a Gaussian",
            expected="softmax, L2, Sinkhorn, linear and affine fields, their sums and heads",
            remedy="flow tokens instead: mf.flow(field, gaussian.sample(1000, key=key), t1)",
        )


def closure_of(terms: Iterable[Any], gaussian: Gaussian) -> Closure:
    r"""$(u,G)$ of a whole field: $\sum_hL_h(u_h,G_h)$ over its terms (MATH e.1)."""
    total: Closure | None = None
    for term in terms:
        u, G = term.leaf.closure(gaussian)
        u, G = (term.left * u, term.left * G) if term.left.ndim == 0 else (term.left @ u, term.left @ G)
        total = (u, G) if total is None else (total[0] + u, total[1] + G)
    assert total is not None
    return total


@jax.custom_jvp
def inverse(X: Float[Array, "k k"]) -> Float[Array, "k k"]:
    r"""$X^{-1}$ of a symmetric matrix with eigenvalues of at least 1; $d(X^{-1})=-X^{-1}\,dX\,X^{-1}$.

    The derivative is products only: mapped over a basis it is far cheaper than that of a Cholesky solve.
    """
    return one_by_one(jnp.linalg.inv)(X)


@inverse.defjvp
def _inverse_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    P = inverse(primals[0])
    return P, -P @ tangents[0] @ P


Gain = tuple[Float[Array, "r r"], Float[Array, "r r"], Float[Array, "r r"], Float[Array, " r"]]


def sinkhorn_gain(M: Float[Array, "r r"]) -> Float[Array, "r r"]:
    r"""$\varphi(MM^\top)=2(I+R)^{-1}$ with $R=(I+4MM^\top)^{1/2}$ (MATH e.2), from the singular values of $M$.

    Squaring $M$ would lose half of the digits. The derivative solves $R\,dR+dR\,R=4\,d(MM^\top)$; it does not go
    through that of `svd`, which is not a number for equal singular values.
    """
    return _gain(M)[0]


def _svd(M: Array) -> tuple[Array, Array, Array]:
    return tuple(jnp.linalg.svd(M))


@jax.custom_jvp
def _gain(M: Float[Array, "r r"]) -> Gain:
    """The gain, R, its eigenvectors and its eigenvalues; the last two have no derivative."""
    vectors, values, _ = one_by_one(_svd)(M)
    roots = jnp.sqrt(1 + 4 * values**2)
    return (vectors * (2 / (1 + roots))[None]) @ vectors.T, (vectors * roots[None]) @ vectors.T, vectors, roots


@_gain.defjvp
def _gain_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Gain, Gain]:
    (M,), (dM,) = primals, tangents
    gain, R, vectors, roots = _gain(M)
    sums = roots[:, None] + roots[None]

    def solve(_: Any, right: Array) -> Array:
        return vectors @ ((vectors.T @ right @ vectors) / sums) @ vectors.T

    square = dM @ M.T
    # As a linear solve, so that it can be differentiated again: the eigenvectors are then constants.
    dR = jax.lax.custom_linear_solve(lambda E: R @ E + E @ R, 4 * (square + square.T), solve, symmetric=True)
    constants = (jnp.zeros_like(vectors), jnp.zeros_like(roots))
    return (gain, R, vectors, roots), (-gain @ dR @ gain / 2, dR, *constants)

r"""Gaussian measures: a Gaussian-preserving field is affine on them, $\Gamma_\mu(x)=u+G(x-m)$ (MATH e)."""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._lapack import one_by_one
from .._scale import unit
from .._types import Scalar
from ..measures.gaussian import Gaussian

Closure = tuple[Float[Array, " v"], Float[Array, "v d"]]


class NotGaussianPreserving(checks.InputError):
    r"""The field does not map Gaussians to Gaussians, so that it has no exact Gaussian flow: $\Gamma_\mu$ is not affine
    for a Gaussian $\mu$ (MATH e.2). It is an `InputError`, and says why.

    ```python
    g = mf.Gaussian(mean=[0.0, 0.0], cov=jnp.eye(2))
    try:
        mf.Sigmoid(jnp.eye(2), jnp.eye(2), jnp.eye(2)).affine(g)
    except mf.NotGaussianPreserving as error:
        print(error)
    ```
    """


def refuse_closure(name: str, reason: str) -> NoReturn:
    """Raise `NotGaussianPreserving`."""
    raise NotGaussianPreserving(
        f"{name} does not preserve Gaussians: it {reason}",
        got=f"{name} on a Gaussian",
        expected="softmax, L2, Sinkhorn, linear and affine fields, their sums and heads",
        remedy="flow tokens instead: mf.flow(field, gaussian.sample(1000, key=key), t1)",
    )


def check_closure(term: Any) -> None:
    """Refuse a term that is not affine on Gaussians, with the reason."""
    name = type(term.leaf).__name__
    if term.causal:
        refuse_closure(f"Causal({name})", "needs positions, and a Gaussian has none")
    if term.leaf.not_gaussian is not None:
        refuse_closure(name, term.leaf.not_gaussian)


def _times(left: Array, value: Array) -> Array:
    """`left`, a number or a matrix, times a vector or a matrix."""
    return left * value if left.ndim == 0 else left @ value


def closure_of(terms: Iterable[Any], gaussian: Gaussian) -> Closure:
    r"""$(u,G)$ of a whole field: $\sum_hL_h(u_h,G_h)$ over its terms (MATH e.1)."""
    parts = [(term.left, *term.leaf.closure(gaussian)) for term in terms]
    first, *rest = [(_times(left, u), _times(left, G)) for left, u, G in parts]
    return reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), rest, first)


def stretch_of(terms: Iterable[Any], gaussian: Gaussian) -> Float[Array, "d r"]:
    r"""$GL$ of a whole field, from the factor: the velocity of $L$."""
    first, *rest = [_times(term.left, term.leaf.stretch(gaussian)) for term in terms]
    return reduce(operator.add, rest, first)


# The singular value decompositions below are called one by one in a batch; see `_lapack`. Their derivatives are written
# out: that of `svd` is not a number for equal singular values (MATH e.2).

Ridge = tuple[Float[Array, "r k"], Float[Array, "r r"], Float[Array, "k k"]]


def ridge(N: Float[Array, "k r"]) -> Float[Array, "r k"]:
    r"""$X=2N^\top(I+2NN^\top)^{-1}$, the gain of L2 attention in terms of $N=KL$ (MATH e.2).

    From the singular values of $N$, since inverting $I+2NN^\top$ would lose digits when $\Sigma$ is large.
    """
    return _ridge(N)[0]


@jax.custom_jvp
def _ridge(N: Float[Array, "k r"]) -> Ridge:
    r"""$X$, $S=(I+2N^\top N)^{-1}$ and $P=(I+2NN^\top)^{-1}$."""
    k, r = N.shape
    U, values, Wt = one_by_one(_full_svd)(N)
    shrunk = 1 / (1 + 2 * values**2)
    # Of large values, whose squares may be beyond the range, the gain is 1 / value to the last digit.
    gains = jnp.where(values < _large(values.dtype), 2 * values * shrunk, 1 / jnp.maximum(values, 1))
    X = (Wt[: values.size].T * gains[None]) @ U[:, : values.size].T
    S, P = (
        (B * jnp.concatenate([shrunk, jnp.ones(n - values.size, N.dtype)])[None]) @ B.T for B, n in ((Wt.T, r), (U, k))
    )
    return X, S, P


@_ridge.defjvp
def _ridge_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Ridge, Ridge]:
    (N,), (dN,) = primals, tangents
    X, S, P = _ridge(N)
    inner, outer = dN.T @ N, dN @ N.T
    dX = 2 * S @ dN.T @ P - X @ dN @ X
    return (X, S, P), (dX, -2 * S @ (inner + inner.T) @ S, -2 * P @ (outer + outer.T) @ P)


Gain = tuple[Float[Array, "r r"], Float[Array, "r r"], Float[Array, "r r"], Float[Array, "r r"], Float[Array, " r"]]


def _large(dtype: Any) -> float:
    """A number whose fourth power is at the end of the range."""
    return 2.0 ** (jnp.finfo(dtype).maxexp // 4)


def sinkhorn_gain(M: Float[Array, "r r"]) -> tuple[Float[Array, "r r"], Float[Array, "r r"]]:
    r"""$T=\varphi(MM^\top)M$ and $\varphi(MM^\top)=2(I+R)^{-1}$ with $R=(I+4MM^\top)^{1/2}$ (MATH e.2).

    From the singular values $S$ of $M$: those of $T$ are $2S/(1+\sqrt{1+4S^2})$. The derivative solves
    $R\,dR+dR\,R=4\,d(MM^\top)$. A large $M$ is taken in units $u$ of a power of two, as $M/u$, $R/u$ and
    $u\,\varphi$: its square may be beyond the range.
    """
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(M)))
    u = jnp.where(largest < _large(M.dtype), 1, unit(M))
    T, gain = _gain(M / u, 1 / u)[:2]
    return T, gain / u


def _full_svd(M: Array) -> tuple[Array, Array, Array]:
    return tuple(jnp.linalg.svd(M))


@jax.custom_jvp
def _gain(M: Float[Array, "r r"], one: Scalar) -> Gain:
    """T, the gain, R, its eigenvectors and its eigenvalues, where `one` stands for 1; the last two have no
    derivative.
    """
    U, values, Wt = one_by_one(_full_svd)(M)
    roots = jnp.maximum(jnp.sqrt(one**2 + 4 * values**2), one)
    shrunk = 2 / (one + roots)
    return (U * (shrunk * values)[None]) @ Wt, (U * shrunk[None]) @ U.T, (U * roots[None]) @ U.T, U, roots


@_gain.defjvp
def _gain_derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Gain, Gain]:
    (M, one), (dM, _) = primals, tangents  # the unit is a constant
    T, gain, R, vectors, roots = _gain(M, one)
    sums = roots[:, None] + roots[None]

    def solve(_: Any, right: Array) -> Array:
        return vectors @ ((vectors.T @ right @ vectors) / sums) @ vectors.T

    square = dM @ M.T
    # As a linear solve, so that it can be differentiated again: the eigenvectors are then constants.
    dR = jax.lax.custom_linear_solve(lambda E: R @ E + E @ R, 4 * (square + square.T), solve, symmetric=True)
    dgain = -gain @ dR @ gain / 2
    constants = (jnp.zeros_like(vectors), jnp.zeros_like(roots))
    return (T, gain, R, vectors, roots), (dgain @ M + gain @ dM, dgain, dR, *constants)

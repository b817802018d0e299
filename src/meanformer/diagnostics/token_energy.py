r"""Energies of weighted tokens, and their dissipation along attention (MATH f).

With $M$ symmetric, $k=e^{(Mx)\cdot y}$, $Z(x)=\int k\,d\mu$ and $n(x)=\int yk\,d\mu$: Sinkhorn attention moves
$\frac12\mathrm{OT}_M$, softmax and unnormalised attention move $E_0=\frac12\iint k$. The derivative along the flow is
$\int\nabla\frac{\delta E}{\delta\mu}\cdot\Gamma\,d\mu$, with $\Gamma$ projected on the space of the tokens. Sums over
pairs of tokens are blocked: no n x n array.
"""

from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._programs.call import program
from .._scale import norm, unit
from .._types import Matrix, Scalar, cast, common_dtype
from .._warm import Module
from ..attention.potentials import Potentials
from ..attention.problem import Problem
from ..attention.schedule import is_constant
from ..attention.sinkhorn import Sinkhorn
from ..attention.softmax import Softmax
from ..attention.unnormalised import Unnormalised
from ..attention.view import act
from ..measures.cloud import PointCloud
from ..reduce.exact import dot, log_weights
from ..spaces import AbstractSpace, Euclidean, Sphere

SMALLER = "scale Q and K, or V, down: K^T Q / tau and its multiples must be finite"


def far(M: Array, other: Array) -> bool:
    """Whether two matrices, if they are known, differ by more than rounding."""
    if not checks.known(M, other):
        return False
    rounding = max(1e-8, 100 * float(jnp.finfo(M.dtype).eps))
    one, two = (checks.representable(np.asarray(A), "a product of Q, K or V", SMALLER) for A in (M, other))
    return bool(norm(one - two) > rounding * norm(one))


def multiple(V: Array, M: Array) -> Scalar:
    r"""The $c$ with $V=cM$: $\langle V,M\rangle/\langle M,M\rangle$, and 0 for $M=0$, where nothing moves."""
    v, m = unit(V), unit(M)
    V, M = V / v, M / m
    size = jnp.sum(M**2)
    return jnp.sum(V * M) / jnp.where(size > 0, size, 1) * (v / m)


def _pairs(M: Matrix, mu: PointCloud) -> Problem:
    r"""All pairs of tokens, with logits $(Mx_i)\cdot x_j$."""
    return Problem(mu.points @ M.T, mu.points, mu.weights, dot)


def _transport(B: Matrix, mu: PointCloud) -> Potentials:
    r"""The potentials of $e^{(Bx)\cdot y}$, as exact as the dtype has them: $K^\top Q=B$ with $K=I$."""
    identity = jnp.eye(mu.d, dtype=B.dtype)
    return Sinkhorn(B, identity, identity, tol=100 * float(jnp.finfo(B.dtype).eps)).potentials(mu)


def _transport_value(mu: PointCloud, solution: Potentials) -> Scalar:
    r"""$\sum_iw_i(f_i+g_i)$; not a number if the potentials are not those of Sinkhorn."""
    total = jnp.sum(jnp.where(mu.visible, mu.weights * (solution.f + solution.g), 0))
    return jnp.where(solution.converged, total, jnp.nan)


def tokens_ot(B: Matrix, mu: PointCloud) -> Scalar:
    r"""$\mathrm{OT}_B(\mu,\mu)$."""
    return _transport_value(mu, _transport(B, mu))


def tokens_e0(A: Matrix, mu: PointCloud) -> Scalar:
    r"""$E_0=\frac12\sum_iw_iZ_i$, in the log domain until the end."""
    log_Z = -_pairs(A, mu).rows(jnp.zeros_like(mu.weights))[1]
    return jnp.exp(jax.nn.logsumexp(log_weights(mu.weights) + log_Z)) / 2


class TokenLaw(Module):
    """The energy that a field moves, and how: call it at a measure for the energy and its derivative in time.

    `M` is the matrix in the exponent, `V` the value matrix; `expected` says where the energy goes, if that is known.
    """

    kind: str = eqx.field(static=True)
    name: str = eqx.field(static=True)
    expected: str | None = eqx.field(static=True)
    M: Matrix
    V: Matrix
    space: AbstractSpace
    factor: Scalar

    def __call__(self, mu: PointCloud) -> tuple[Scalar, Scalar]:
        solution = _transport(self.M, mu) if self.kind == "sinkhorn" else None
        energy, slope = _moved(self.kind, self.M, self.V, self.space, mu, solution)
        return self.factor * energy, self.factor * slope


@program
def _moved(
    kind: str, M: Matrix, V: Matrix, space: AbstractSpace, mu: PointCloud, solution: Potentials | None
) -> tuple[Scalar, Scalar]:
    r"""The energy, and $\int\nabla\frac{\delta E}{\delta\mu}\cdot\Gamma\,d\mu$."""
    pairs = _pairs(M, mu)
    if solution is not None:  # OT_B / 2, grad (f + g) / 2 = -(B^T y + B x) / 2 and V y, with the means y and x; any B
        (to, _), (back, _) = pairs.rows(solution.g, mu.points), pairs.columns(solution.f, mu.points)
        energy, gradient, values = _transport_value(mu, solution) / 2, -(to @ M + back @ M.T) / 2, to
    else:  # E_0, A n, and V n or V n / Z; A symmetric
        mean, f = pairs.rows(jnp.zeros_like(mu.weights), mu.points)
        n = jnp.exp(-f)[:, None] * mean
        energy, gradient, values = tokens_e0(M, mu), n @ M.T, mean if kind == "softmax" else n
    velocity = space.project(mu.points, values @ V.T)
    return energy, jnp.sum(jnp.where(mu.visible, mu.weights * jnp.sum(gradient * velocity, axis=1), 0))


def token_law(field: Any, space: AbstractSpace, mu: PointCloud) -> TokenLaw:
    """The energy of tokens that `field` moves in `space`; refused, with the condition that fails, if none is known."""
    if not is_constant(field):
        _refuse("weights that depend on time")
    terms = field.terms(jnp.zeros(()))
    if len(terms) != 1 or terms[0].causal or not isinstance(terms[0].leaf, (Sinkhorn, Softmax, Unnormalised)):
        _refuse(" + ".join(type(term.leaf).__name__ + ", masked" * term.causal for term in terms))
    leaf = terms[0].leaf
    biases = (leaf.maps.query_bias, leaf.maps.key_bias)
    # The potentials of Sinkhorn absorb the biases of queries and keys.
    if leaf.maps.value_bias is not None or (not isinstance(leaf, Sinkhorn) and any(b is not None for b in biases)):
        _refuse("a bias")
    V = act(terms[0].left, leaf.V.T).T
    M = leaf.B if isinstance(leaf, Sinkhorn) else leaf.A / leaf.tau
    M, V, space = cast((M, V, space), common_dtype(M, V, mu))
    kind = type(leaf).__name__.lower()
    symmetric = not far(M, M.T)
    if kind != "sinkhorn" and not symmetric:
        _refuse("an A = K^T Q that is not symmetric")
    sign = _definite(M, V, space) if symmetric else None
    words = {1: "descends", -1: "ascends"} if kind == "sinkhorn" else {1: "ascends", -1: "descends"}
    name, factor = "OT_B / 2" if kind == "sinkhorn" else "E_0", jnp.ones((), M.dtype)
    beta = M[0, 0]
    isotropic = not far(M, beta * jnp.eye(mu.d, dtype=M.dtype)) and float(beta) > 0
    if kind != "sinkhorn" and isinstance(space, Sphere) and isotropic:
        name, factor = "E_beta", 1 / beta
    return TokenLaw(kind, name, None if sign is None else words[sign], M, V, space, factor)


def _definite(M: Matrix, V: Matrix, space: AbstractSpace) -> int | None:
    r"""The sign of $n\cdot MVn$ for all $n$, or on a curved space that of $c$ in $V=cM$; None if there is none."""
    if isinstance(space, Euclidean):
        product = (M / unit(M)) @ (V / unit(V))
        values = np.linalg.eigvalsh(np.asarray(product + product.T))
        rounding = 1e-12 * float(np.abs(values).max())
        return 1 if values[0] >= -rounding else -1 if values[-1] <= rounding else None
    c = multiple(V, M)
    return None if far(V, c * M) else 1 if float(c) >= 0 else -1


def _refuse(got: str) -> NoReturn:
    checks.refuse(
        "no energy of tokens is known for this field",
        got=got,
        expected="one head, constant and unmasked: Sinkhorn (any B), Softmax or Unnormalised with A = A^T, no biases",
        remedy="mf.ot_energy and mf.e0_energy are defined for any tokens: evaluate them at run.states[k]",
    )

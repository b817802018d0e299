r"""Energies of Gaussians: attention as a Bures-Wasserstein gradient flow (MATH f).

Where $G=-2\nabla F(\Sigma)$, with $dF=\operatorname{tr}(\nabla F\,d\Sigma)$, the covariance descends $F$:
$\dot F=-\operatorname{tr}(G\Sigma G^\top)\le0$. Everything is computed from $M=L^\top BL$: any rank, no inverse, and
first derivatives at equal and at zero singular values too.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._types import Scalar, cast, common_dtype
from ..attention.kernel import AbstractAttention
from ..attention.l2 import L2
from ..attention.sinkhorn import Sinkhorn
from ..attention.softmax import Softmax
from ..measures.gaussian import Gaussian


def _read(M: Any, name: str, gaussian: Any, *, square: bool = True) -> tuple[Array, Array, Array]:
    """A matrix that acts on the space of a single Gaussian, its mean and its factor, in one dtype."""
    if not isinstance(gaussian, Gaussian) or gaussian.mean.ndim > 1:
        batch = f"a batch of shape {gaussian.mean.shape[:-1]}" if isinstance(gaussian, Gaussian) else None
        checks.refuse(
            "the energy is that of a single Gaussian",
            got=batch or checks.described(gaussian),
            expected="a Gaussian with a mean of shape (d,)",
            remedy="jax.vmap over the batch" if batch else "mf.Gaussian(mean, cov=Sigma), or factor=L",
        )
    M = checks.matrix(M, name)
    d = gaussian.d
    if M.shape[1] != d or (square and M.shape[0] != d):
        checks.refuse(
            f"{name} must act on the space of the Gaussian",
            got=f"{name} of shape {M.shape} for d = {d}",
            expected=f"shape ({d if square else 'k'}, {d})",
            remedy=f"give {name} as many columns as the Gaussian has dimensions",
        )
    return cast((M, gaussian.mean, gaussian.factor), common_dtype(M, gaussian))


def ot_energy(B: Any, gaussian: Gaussian) -> Scalar:
    r"""The entropic self-transport $\mathrm{OT}_B(\mu,\mu)$ of a Gaussian, mean included, for any $B$ (MATH f),

    $$\min_{\pi\in\Pi(\mu,\mu)}\int-(Bx)\cdot y\,d\pi+\mathrm{KL}(\pi|\mu\otimes\mu)
    =\sum_i\Big[-\frac{r_i-1}2+\frac12\log\frac{1+r_i}2\Big]-m^\top Bm,\qquad r_i=\sqrt{1+4S_i^2},$$

    with $S_i$ the singular values of $L^\top BL$. **Arguments:** `B` of shape `(d, d)`: `field.B` of `Sinkhorn`.
    """
    B, m, L = _read(B, "B", gaussian)
    # The derivative of singular values alone, without vectors, is finite when they are equal or zero.
    squares = jnp.linalg.svd(L.T @ B @ L, compute_uv=False) ** 2
    half = 2 * squares / (1 + jnp.sqrt(1 + 4 * squares))  # (r - 1) / 2, without the cancellation
    return jnp.sum(jnp.log1p(half) / 2 - half) - m @ B @ m


def softmax_energy(A: Any, gaussian: Gaussian) -> Scalar:
    r"""$-\tfrac14\operatorname{tr}(A^\top\Sigma A\Sigma)=-\tfrac14\|L^\top AL\|_F^2$ (MATH f), of the covariance alone.

    Softmax with $A=\pm A^\top$ and $V=cA^\top$ descends $c$ times it. **Arguments:** `A` of shape `(d, d)`, with the
    temperature in it: `field.A / field.tau`.
    """
    A, _, L = _read(A, "A", gaussian)
    return -jnp.sum((L.T @ A @ L) ** 2) / 4


def l2_energy(K: Any, gaussian: Gaussian) -> Scalar:
    r"""$-\tfrac12\big[\operatorname{tr}(K\Sigma K^\top)-\tfrac12\log\det(I+2K\Sigma K^\top)\big]$ (MATH f).

    L2 attention with $Q=\pm K$ and $V=cA^\top$ descends $c$ times it; of the covariance alone. **Arguments:** `K` of
    shape `(k, d)`, with the temperature in it: `field.K / sqrt(field.tau)`.
    """
    K, _, L = _read(K, "K", gaussian, square=False)
    KL = K @ L
    log_det = jnp.linalg.slogdet(jnp.eye(len(K), dtype=K.dtype) + 2 * KL @ KL.T)[1]
    return -(jnp.sum(KL**2) - log_det / 2) / 2


def e0_energy(A: Any, gaussian: Gaussian) -> Scalar:
    r"""$E_0=\tfrac12\iint e^{(Ax)\cdot y}d\mu\,d\mu$ of a Gaussian; infinite if $\|L^\top AL\|\ge1$ (MATH f),

    $$E_0=\tfrac12\det(J)^{-1/2}\exp\big(m^\top Am+\tfrac12b^\top J^{-1}b\big),\qquad M=L^\top AL,$$
    $$J=\begin{pmatrix}I&-M\\-M^\top&I\end{pmatrix},\qquad b=\begin{pmatrix}L^\top Am\\L^\top A^\top m\end{pmatrix},$$

    that is $\tfrac12\det(I-M^\top M)^{-1/2}$ if $m=0$. `A` has the temperature in it: `field.A / field.tau`.
    """
    A, m, L = _read(A, "A", gaussian)
    M = L.T @ A @ L
    one = jnp.eye(len(M), dtype=M.dtype)
    finite = jnp.linalg.svd(M, compute_uv=False)[0] < 1
    M = jnp.where(finite, M, 0)  # the branch that is not taken has no NaN derivative either
    J = jnp.block([[one, -M], [-M.T, one]])
    b = jnp.concatenate([L.T @ A @ m, L.T @ A.T @ m])
    log_energy = m @ A @ m + b @ jnp.linalg.solve(J, b) / 2 - jnp.linalg.slogdet(J)[1] / 2
    return jnp.where(finite, jnp.exp(log_energy) / 2, jnp.inf)


def _far(M: Array, other: Array) -> bool:
    """Whether two matrices, if they are known, differ by more than rounding."""
    if not checks.known(M, other):
        return False
    rounding = max(1e-8, 100 * float(jnp.finfo(M.dtype).eps))
    return bool(np.linalg.norm(np.asarray(M) - np.asarray(other)) > rounding * np.linalg.norm(np.asarray(M)))


def _multiple(V: Array, M: Array) -> Scalar:
    r"""The $c$ with $V=cM$: $\langle V,M\rangle/\langle M,M\rangle$, and 0 for $M=0$, where nothing moves."""
    size = jnp.sum(M**2)
    return jnp.sum(V * M) / jnp.where(size > 0, size, 1)


def _refuse(kind: str, got: str, expected: str) -> NoReturn:
    checks.refuse(
        f"this {kind} attention is not a gradient flow of Gaussians",
        got=got,
        expected=expected,
        remedy="with such matrices it has an energy; ot_energy, softmax_energy and l2_energy are defined for any",
    )


def gaussian_energy(field: AbstractAttention, gaussian: Gaussian) -> Scalar:
    r"""The energy $F$ that a Gaussian descends where attention is a gradient flow, $G=-2\nabla F$ (MATH f).

    - `Softmax` with $A=\pm A^\top$ and $V=cA^\top$: $F=c\,\cdot$ `softmax_energy`;
    - `L2` with $Q=\pm K$ and $V=cA^\top$: $F=c\,\cdot$ `l2_energy`;
    - `Sinkhorn` with $B=B^\top$ and $V=cB$: $F=\tfrac c2\mathrm{OT}_B$, see `ot_energy`.

    Here $A=K^\top Q/\tau$. For $c<0$ the Gaussian climbs $-F$. For Sinkhorn this is the gradient flow of the measure,
    mean included; for the other two it is that of the covariance, whatever the mean does. Any other field is refused,
    with the condition that fails; traced matrices are taken to satisfy theirs.

    ```python
    mf.gaussian_energy(mf.Softmax(Q, Q, Q.T @ Q), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2)))
    ```
    """
    if not isinstance(field, (Softmax, L2, Sinkhorn)):
        checks.refuse(
            "gaussian_energy takes softmax, l2 or Sinkhorn attention",
            got=checks.described(field),
            expected="mf.Softmax, mf.L2 or mf.Sinkhorn",
            remedy="other kinds are not known to be gradient flows of Gaussians",
        )
    kind = type(field).__name__
    biases = (field.maps.query_bias, field.maps.key_bias, field.maps.value_bias)
    if any(bias is not None for bias in biases):
        _refuse(kind, "a bias", "no biases")
    _read(field.V, "V", gaussian)
    if isinstance(field, Sinkhorn):
        B, V = field.B, field.V
        if _far(B, B.T):
            _refuse(kind, "a B that is not symmetric", "B = B^T and V = c B")
        c = _multiple(V, B)
        _check_multiple(kind, V, c * B, B, "B", "B = B^T and V = c B")
        return c / 2 * ot_energy(B, gaussian)
    A, V = field.A / field.tau, field.V
    if isinstance(field, Softmax):
        expected = "A = A^T (or A = -A^T) and V = c A^T"
        if _far(A, A.T) and _far(A, -A.T):
            _refuse(kind, "an A = K^T Q that is neither symmetric nor antisymmetric", expected)
    else:
        expected = "Q = K (or Q = -K) and V = c A^T"
        if _far(field.Q, field.K) and _far(field.Q, -field.K):
            _refuse(kind, "a Q that is neither K nor -K", expected)
    c = _multiple(V, A.T)
    _check_multiple(kind, V, c * A.T, A, "A^T", expected)
    if isinstance(field, Softmax):
        return c * softmax_energy(A, gaussian)
    return c * l2_energy(field.K / jnp.sqrt(field.tau), gaussian)


def _check_multiple(kind: str, V: Array, multiple: Array, M: Array, name: str, expected: str) -> None:
    if checks.known(V, M) and np.asarray(M).any() and _far(V, multiple):
        off = np.linalg.norm(np.asarray(V) - np.asarray(multiple)) / np.linalg.norm(np.asarray(V))
        _refuse(kind, f"a V that is not a multiple of {name}: off by {off:.2g} of its norm", expected)


@dataclass(frozen=True, eq=False)
class EnergyPath:
    """The energy along a run: arrays `times` and `energy`, and whether it never grew (`descends`, up to rounding)."""

    times: np.ndarray
    energy: np.ndarray
    descends: bool

    def __str__(self) -> str:
        how = "never grew" if self.descends else "grew at some time"
        return f"F from {self.energy[0]:.6g} at t = {self.times[0]:.4g} to {self.energy[-1]:.6g}; it {how}"

    __repr__ = __str__


def energy_along(run: Any) -> EnergyPath:
    r"""The energy of `gaussian_energy` at the save times of a Gaussian run; along an exact flow it descends,
    $\dot F=-\operatorname{tr}(G\Sigma G^\top)\le0$ for a centred Gaussian.

    ```python
    A = jnp.array([[1.0, 0.2], [0.2, -0.5]])
    run = mf.flow(mf.Softmax(jnp.eye(2), A, A), mf.Gaussian(jnp.zeros(2), cov=0.1 * jnp.eye(2)), t1=1.0)
    print(mf.energy_along(run))
    ```
    """
    if not isinstance(getattr(getattr(run, "system", None), "mu", None), Gaussian):
        checks.refuse(
            "energy_along takes a run of a Gaussian",
            got=checks.described(run),
            expected="mf.flow(field, gaussian, t1)",
            remedy="flow a Gaussian",
        )
    if run.discrete:
        checks.refuse(
            "energy_along takes a flow: layers of finite step need not descend",
            got="a run of mf.layers",
            expected="mf.flow(field, gaussian, t1)",
            remedy="evaluate mf.gaussian_energy(field, run.states[k]) for each layer",
        )
    states = run.states
    energies = np.array([float(gaussian_energy(run.field, states[k])) for k in range(len(run.times))])
    slack = 1e-10 * np.maximum(1e-300, np.abs(energies).max())
    return EnergyPath(np.asarray(run.times), energies, bool((np.diff(energies) <= slack).all()))

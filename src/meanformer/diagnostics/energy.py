r"""Energies of measures: attention as a gradient flow (MATH f). Those of tokens are summed in `token_energy`.

For Gaussians the flow is that of Bures and Wasserstein: where $G=-2\nabla F(\Sigma)$, with
$dF=\operatorname{tr}(\nabla F\,d\Sigma)$, the covariance descends $F$: $\dot F=-\operatorname{tr}(G\Sigma G^\top)\le0$.
Everything is computed from $M=L^\top BL$: any rank, no inverse, and first derivatives at equal and at zero singular
values too.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _checks as checks
from .._scale import norm, unit
from .._types import Scalar, cast, common_dtype
from ..attention.kernel import AbstractAttention
from ..attention.l2 import L2
from ..attention.sinkhorn import Sinkhorn
from ..attention.softmax import Softmax
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from .defect import log_defect
from .token_energy import far, multiple, token_law, tokens_e0, tokens_ot


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
    M = _acting(M, name, gaussian, square)
    return cast((M, gaussian.mean, gaussian.factor), common_dtype(M, gaussian))


def _acting(M: Any, name: str, mu: Gaussian | PointCloud, square: bool = True) -> Array:
    """A matrix that acts on the space of a measure."""
    M = checks.matrix(M, name)
    if M.shape[1] != mu.d or (square and M.shape[0] != mu.d):
        checks.refuse(
            f"{name} must act on the space of the {'Gaussian' if isinstance(mu, Gaussian) else 'tokens'}",
            got=f"{name} of shape {M.shape} for d = {mu.d}",
            expected=f"shape ({mu.d if square else 'k'}, {mu.d})",
            remedy=f"give {name} as many columns as the measure has dimensions",
        )
    return M


def _of_tokens(M: Any, name: str, mu: PointCloud) -> tuple[Array, PointCloud]:
    """A matrix that acts on the space of a single cloud, and the cloud, in one dtype."""
    if mu.points.ndim != 2:
        checks.refuse(
            "the energy is that of a single cloud",
            got=f"points of shape {mu.points.shape}",
            expected="points of shape (n, d)",
            remedy="jax.vmap over the batch",
        )
    M = _acting(M, name, mu)
    return cast((M, mu), common_dtype(M, mu))


def ot_energy(B: Any, mu: Gaussian | PointCloud) -> Scalar:
    r"""The entropic self-transport of a Gaussian or of tokens, for any $B$ (MATH f),

    $$\mathrm{OT}_B(\mu,\mu)=\min_{\pi\in\Pi(\mu,\mu)}\int-(Bx)\cdot y\,d\pi+\mathrm{KL}(\pi|\mu\otimes\mu)
    =\int(f+g)\,d\mu,$$

    with $f,g$ the potentials of Sinkhorn for the kernel $e^{(Bx)\cdot y}$; for a Gaussian, mean included, it is

    $$\sum_i\Big[-\frac{r_i-1}2+\frac12\log\frac{1+r_i}2\Big]-m^\top Bm,\qquad r_i=\sqrt{1+4S_i^2},$$

    with $S_i$ the singular values of $L^\top BL$.

    **Arguments:** `B` of shape `(d, d)`: `field.B` of `Sinkhorn`; a single Gaussian or cloud. **Returns:** a number of
    shape `()`; not a number if, for tokens, the iterations of Sinkhorn stall.

    ```python
    g, r = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2)), np.sqrt(5)
    assert np.isclose(mf.ot_energy(jnp.eye(2), g), np.log((1 + r) / 2) - (r - 1))
    ```
    """
    if isinstance(mu, PointCloud):
        return tokens_ot(*_of_tokens(B, "B", mu))
    B, m, L = _read(B, "B", mu)
    # The derivative of singular values alone, without vectors, is finite when they are equal or zero.
    squares = jnp.linalg.svd(L.T @ B @ L, compute_uv=False) ** 2
    half = 2 * squares / (1 + jnp.sqrt(1 + 4 * squares))  # (r - 1) / 2, without the cancellation
    return jnp.sum(jnp.log1p(half) / 2 - half) - m @ B @ m


def softmax_energy(A: Any, gaussian: Gaussian) -> Scalar:
    r"""The energy of a Gaussian under softmax attention, of the covariance alone (MATH f),

    $$-\tfrac14\operatorname{tr}(A^\top\Sigma A\Sigma)=-\tfrac14\|L^\top AL\|_F^2 .$$

    Softmax with $A=\pm A^\top$ and $V=cA^\top$ descends $c$ times it.

    **Arguments:** `A` of shape `(d, d)`, with the temperature in it: `field.A / field.tau`; a single Gaussian.
    **Returns:** a number of shape `()`, infinite beyond the floating-point range.

    ```python
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    assert np.isclose(mf.softmax_energy(jnp.eye(2), g), -0.5)
    ```
    """
    A, _, L = _read(A, "A", gaussian)
    # Each row of L in its own unit, and A between them: what A does not see may be of any size.
    a, rows = unit(A), unit(L, 1)
    L, A = L / rows, A / a * rows
    A, left = A / unit(A) * rows.T, unit(A)
    total, scale = jnp.sum((L.T @ (A / unit(A)) @ L) ** 2) / 4, a * left * unit(A)
    return -jnp.where(total > 0, total * scale * scale, 0)


def l2_energy(K: Any, gaussian: Gaussian) -> Scalar:
    r"""The energy of a Gaussian under L2 attention, of the covariance alone (MATH f),

    $$-\tfrac12\big[\operatorname{tr}(K\Sigma K^\top)-\tfrac12\log\det(I+2K\Sigma K^\top)\big].$$

    L2 attention with $Q=\pm K$ and $V=cA^\top$ descends $c$ times it.

    **Arguments:** `K` of shape `(k, d)`, with the temperature in it: `field.K / sqrt(field.tau)`; a single Gaussian.
    **Returns:** a number of shape `()`, infinite beyond the floating-point range.

    ```python
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    assert np.isclose(mf.l2_energy(jnp.eye(2), g), -(2 - np.log(3)) / 2)
    ```
    """
    K, _, L = _read(K, "K", gaussian, square=False)
    # Rows of L in units of their own, as for softmax.
    k, rows = unit(K), unit(L, 1)
    K = K / k * rows.T
    left = unit(K)
    values = jnp.linalg.svd((K / left) @ (L / rows), compute_uv=False) * left * k
    return -jnp.sum(log_defect(values)) / 2


def e0_energy(A: Any, mu: Gaussian | PointCloud) -> Scalar:
    r"""The interaction energy of a Gaussian or of tokens (MATH f),

    $$E_0(\mu)=\tfrac12\iint e^{(Ax)\cdot y}d\mu(x)\,d\mu(y).$$

    Of a Gaussian it is infinite if $\|L^\top AL\|\ge1$, and else

    $$E_0=\tfrac12\det(J)^{-1/2}\exp\big(m^\top Am+\tfrac12b^\top J^{-1}b\big),\qquad M=L^\top AL,$$

    $$J=\begin{pmatrix}I&-M\\-M^\top&I\end{pmatrix},\qquad b=\begin{pmatrix}L^\top Am\\L^\top A^\top m\end{pmatrix},$$

    that is $\tfrac12\det(I-M^\top M)^{-1/2}$ if $m=0$.

    **Arguments:** `A` of shape `(d, d)`, with the temperature in it: `field.A / field.tau`; a single Gaussian or cloud.
    **Returns:** a number of shape `()`.

    ```python
    g = mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    assert np.isclose(mf.e0_energy(0.5 * jnp.eye(2), g), 0.5 / (1 - 0.5**2))
    assert mf.e0_energy(jnp.eye(2), g) == jnp.inf
    ```
    """
    if isinstance(mu, PointCloud):
        return tokens_e0(*_of_tokens(A, "A", mu))
    A, m, L = _read(A, "A", mu)
    M = L.T @ A @ L
    one = jnp.eye(len(M), dtype=M.dtype)
    finite = jnp.linalg.svd(M, compute_uv=False)[0] < 1
    M = jnp.where(finite, M, 0)  # the branch that is not taken has no NaN derivative either
    J = jnp.block([[one, -M], [-M.T, one]])
    b = jnp.concatenate([L.T @ A @ m, L.T @ A.T @ m])
    log_energy = m @ A @ m + b @ jnp.linalg.solve(J, b) / 2 - jnp.linalg.slogdet(J)[1] / 2
    return jnp.where(finite, jnp.exp(log_energy) / 2, jnp.inf)


def sphere_energy(beta: Any, mu: PointCloud) -> Scalar:
    r"""The energy that attention with $Q=K=V=I$ and $\tau=1/\beta$ climbs on the unit sphere (MATH f),

    $$E_\beta=\frac1{2\beta}\sum_{ij}w_iw_je^{\beta x_i\cdot x_j}.$$

    **Arguments:** a number $\beta>0$; a `PointCloud`, which is not projected on the sphere. **Returns:** a number of
    shape `()`.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert np.isclose(mf.sphere_energy(1.0, tokens), (3 * np.e + 4 + 2 / np.e) / 18)
    ```
    """
    beta = checks.positive(beta, "beta", "beta = 1 / tau is an inverse temperature")
    if not isinstance(mu, PointCloud):
        checks.refuse(
            "the energy on the sphere is that of tokens",
            got=checks.described(mu),
            expected="a PointCloud",
            remedy="mf.uniform_sphere(d=3).sample(100, key=key)",
        )
    beta = beta.astype(common_dtype(mu))
    return e0_energy(beta * jnp.eye(mu.d, dtype=beta.dtype), mu) / beta


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
    mean included; for the other two it is that of the covariance, whatever the mean does.

    **Arguments:** a field and a single Gaussian. **Returns:** a number of shape `()`, infinite beyond the
    floating-point range.

    **Raises:** `InputError` for any other field, with the condition that fails; traced matrices are taken to satisfy
    theirs.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    assert np.isclose(mf.gaussian_energy(mf.Softmax(I, I, 2 * I), g), 2 * mf.softmax_energy(I, g))
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
        if far(B, B.T):
            _refuse(kind, "a B that is not symmetric", "B = B^T and V = c B")
        c = multiple(V, B)
        _check_multiple(kind, V, c * B, B, "B", "B = B^T and V = c B")
        return c / 2 * ot_energy(B, gaussian)
    A, V = field.A / field.tau, field.V
    if isinstance(field, Softmax):
        expected = "A = A^T (or A = -A^T) and V = c A^T"
        if far(A, A.T) and far(A, -A.T):
            _refuse(kind, "an A = K^T Q that is neither symmetric nor antisymmetric", expected)
    else:
        expected = "Q = K (or Q = -K) and V = c A^T"
        if far(field.Q, field.K) and far(field.Q, -field.K):
            _refuse(kind, "a Q that is neither K nor -K", expected)
    c = multiple(V, A.T)
    _check_multiple(kind, V, c * A.T, A, "A^T", expected)
    if isinstance(field, Softmax):
        return c * softmax_energy(A, gaussian)
    return c * l2_energy(field.K / jnp.sqrt(field.tau), gaussian)


def _check_multiple(kind: str, V: Array, matched: Array, M: Array, name: str, expected: str) -> None:
    if checks.known(V, M) and np.asarray(M).any() and far(V, matched):
        off = norm(np.asarray(V) - np.asarray(matched)) / norm(np.asarray(V))
        _refuse(kind, f"a V that is not a multiple of {name}: off by {off:.2g} of its norm", expected)


@dataclass(frozen=True, eq=False)
class EnergyPath:
    r"""The energy $E$ called `name` along a run (MATH f).

    - `times`, `energy`, and `slope`, the derivative $\dot E$ that the theory gives at these times (the dissipation),
      shape `(T,)`;
    - `expected`: "descends" or "ascends", if the theory gives a sign, else None; `held`: whether the energy did,
      between all save times, up to `slack` of its size (None without a sign);

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    path = mf.energy_along(mf.flow(mf.Softmax(0.1 * I, I, I), g, t1=1.0))
    assert path.expected == "descends" and path.held
    assert (path.slope <= 0).all() and path.energy.shape == path.times.shape
    ```
    """

    times: np.ndarray
    energy: np.ndarray
    slope: np.ndarray
    expected: str | None
    name: str = "F"
    """What the energy is called: "F" for Gaussians, "OT_B / 2", "E_0" or "E_beta" for tokens."""
    slack: float = 1e-10
    """How much of its size the energy may move the wrong way between two save times."""

    @property
    def descends(self) -> bool:
        """Whether the energy never grew between two save times."""
        return self._never(1)

    @property
    def ascends(self) -> bool:
        """Whether the energy never fell between two save times."""
        return self._never(-1)

    @property
    def held(self) -> bool | None:
        """Whether the energy went where the theory sends it; None if no sign is known."""
        return None if self.expected is None else self.descends if self.expected == "descends" else self.ascends

    def _never(self, sign: int) -> bool:
        # Beyond the floating-point range nothing can be said. Where a Sinkhorn problem stalled nothing holds.
        energy = self.energy[~np.isinf(self.energy)]
        size = np.maximum(1e-300, np.maximum.accumulate(np.abs(energy)))
        return bool((sign * np.diff(energy) <= self.slack * size[1:]).all() and not np.isnan(energy).any())

    def __str__(self) -> str:
        how = "never grew" if self.descends else "never fell" if self.ascends else "grew and fell"
        if self.expected is None:
            word = "and no sign is known"
        else:
            word = f"as it should: it {self.expected}" if self.held else f"but it {self.expected}, in theory"
        return (
            f"{self.name} from {self.energy[0]:.6g} at t = {self.times[0]:.4g} to {self.energy[-1]:.6g} at "
            f"t = {self.times[-1]:.4g}; it {how}, {word}"
        )

    __repr__ = __str__


def energy_along(run: Any, slack: Any = 1e-10) -> EnergyPath:
    r"""The energy at the save times of a run, and its derivative in time as the theory has it (MATH f).

    A Gaussian descends the $F$ of `gaussian_energy`,

    $$\dot F=-\operatorname{tr}(G\Sigma G^\top),$$

    and $-|u|^2$ more for Sinkhorn, which moves the mean too. For tokens, without biases and with constant weights,

    - `Sinkhorn`: $\frac12\mathrm{OT}_B$, $-\int\bar y^\top BV\bar y\,d\mu$ if $B=B^\top$: it descends if
      $\operatorname{sym}(BV)\succeq0$, and ascends if $\preceq0$;
    - `Unnormalised` and `Softmax` with $A=A^\top$: $E_0$, $\int An\cdot Vn\,d\mu$ and $\int Z^{-1}An\cdot Vn\,d\mu$: it
      ascends if $\operatorname{sym}(AV)\succeq0$, and descends if $\preceq0$;
    - on the sphere the same with projected velocities and a sign if $V=cA$, $V=cB$; with $A=\beta I$ the energy is
      $E_\beta=E_0/\beta$ (`sphere_energy`).

    **Arguments:** a run of `mf.flow` from a Gaussian or tokens; `slack`, how much of its size the energy may move the
    wrong way between two save times. **Returns:** an `EnergyPath`. **Raises:** `InputError` for other fields, with the
    condition that fails.

    ```python
    I, g = jnp.eye(2), mf.Gaussian(jnp.zeros(2), cov=jnp.eye(2))
    path = mf.energy_along(mf.flow(mf.Softmax(0.1 * I, I, I), g, t1=1.0))
    print(path)  # F from -0.05 at t = 0 to -0.078125 at t = 1; it never grew, as it should: it descends
    assert np.allclose(path.energy[[0, -1]], [-0.05, -0.078125], rtol=1e-4)
    ```
    """
    slack = float(checks.positive(slack, "slack", "1e-10 is the default"))
    mu = getattr(getattr(run, "system", None), "mu", None)
    if not isinstance(mu, (Gaussian, PointCloud)):
        checks.refuse(
            "energy_along takes a run of a Gaussian or of tokens",
            got=checks.described(run),
            expected="mf.flow(field, measure, t1)",
            remedy="flow a Gaussian or a PointCloud",
        )
    if run.discrete:
        checks.refuse(
            "energy_along takes a flow: layers of finite step need not descend",
            got="a run of mf.layers",
            expected="mf.flow(field, measure, t1)",
            remedy="evaluate the energy at run.states[k] for each layer",
        )
    run.need_all_tokens("energy_along")
    run = run.original()
    if isinstance(mu, PointCloud):
        law = token_law(run.field, run.system.space, mu)
        values, expected, name = [law(mu.with_points(x)) for x in run.points], law.expected, law.name
    else:
        states, expected, name = run.states, "descends", "F"
        values = [_gaussian_descent(run.field, states[k]) for k in range(len(run.times))]
    energy, slope = np.array([[float(number) for number in pair] for pair in values]).T
    return EnergyPath(np.asarray(run.times), energy, slope, expected, name, slack)


def _gaussian_descent(field: AbstractAttention, gaussian: Gaussian) -> tuple[Scalar, Scalar]:
    r"""$F$ and $\dot F$."""
    G, b = field.affine(gaussian)
    loss = jnp.sum((G @ gaussian.factor) ** 2)
    if isinstance(field, Sinkhorn):
        loss = loss + jnp.sum((G @ gaussian.mean + b) ** 2)
    return gaussian_energy(field, gaussian), -loss

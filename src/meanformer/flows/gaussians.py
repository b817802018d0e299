"""Gaussians: the exact flow of mean and covariance."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Scalar
from .._warm import light
from ..attention.base import AbstractField
from ..attention.closure import closure_of, stretch_of
from ..measures.gaussian import Gaussian
from .system import AbstractSystem


class GaussianSystem(AbstractSystem):
    r"""$\dot m=u$, $\dot L=GL$, where $\Gamma_\mu(x)=u+G(x-m)$ for $\mu=\mathcal N(m,LL^\top)$ (MATH e.1)."""

    field: AbstractField
    mu: Gaussian

    @light
    def start(self) -> tuple[Array, Array]:
        return self.mu.mean, self.mu.factor

    def velocity(self, t: Scalar, y: Any, args: Any = None) -> tuple[Array, Array]:
        gaussian = self.measure(y)
        terms = self.field.terms(t)
        return closure_of(terms, gaussian)[0], stretch_of(terms, gaussian)

    def measure(self, y: Any) -> Gaussian:
        # Without the checks of the constructor: rows after an early end need not be finite.
        return eqx.tree_at(lambda mu: (mu.mean, mu.factor), self.mu, (y[0], y[1]))

    def moments_of_speed(
        self, t: Scalar, y: Any, velocity: Any = None
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        r"""$\dot m$ and $\dot\Sigma=G\Sigma+\Sigma G^\top$."""
        u, moved = self.velocity(t, y) if velocity is None else velocity
        half = moved @ y[1].T
        return u, half + half.T

    def snapshot(self, t: Scalar, y: Any) -> Any:
        return y

    def restored(self, snapshot: Any) -> Any:
        return snapshot

    def states(self, snapshots: Any) -> Gaussian:
        return self.measure(snapshots)

    @property
    def size(self) -> int:
        return 1

    @property
    def state_bytes(self) -> int:
        return (self.mu.mean.size + self.mu.factor.size) * self.dtype.itemsize

    @property
    def dtype(self) -> Any:
        return self.mu.mean.dtype

    @property
    def unknowns(self) -> int:
        """How many numbers a solver integrates."""
        return self.mu.mean.size + self.mu.factor.size

    def scale(self) -> Scalar:
        """The size of the mean or of the factor, whichever is smaller and not negligible."""
        mean, factor = jnp.abs(self.mu.mean).max(), jnp.abs(self.mu.factor).max()
        smaller, larger = jnp.minimum(mean, factor), jnp.maximum(mean, factor)
        return jnp.where(smaller > 1e-9 * larger, smaller, larger)

    @light
    def summary(self) -> str:
        return f"a Gaussian in R^{self.mu.d}"

r"""The frame in which a run is computed: the tokens themselves, or $z=\Phi(t)^{-1}x$ with $\dot\Phi=V(t)\Phi$ (MATH
c).
"""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._lapack import expm, expm_on_host
from .._types import Matrix, Points, Scalar, is_traced
from .._warm import Module, light
from ..attention.base import AbstractField
from ..attention.facts import facts_of
from ..attention.kernel import AbstractAttention
from ..attention.schedule import is_constant
from ..attention.solved import Guesses, Solved, evaluate_solved, mix_solved
from ..attention.view import View, act
from ..measures.cloud import PointCloud


def value_matrix(field: AbstractField, t: Scalar) -> Matrix:
    r"""The matrix $V(t)$ of the field's linear part, $\sum_hL_hV_h$ over its heads."""
    total: Any = None
    for term in field.terms(t):
        if term.leaf.linear_part is None:
            checks.refuse(
                "the rescaled frame needs a value matrix V",
                got=type(term.leaf).__name__,
                expected="attention kinds, MultiHead, Causal, Affine, and sums of them",
                remedy="run this field in the original frame (leave out frame=)",
            )
        left, V = term.left, term.leaf.linear_part[0]
        if not is_traced(left, V):  # on the host nothing is compiled for it
            left, V = np.asarray(left), np.asarray(V)
        V = act(left, V.T).T
        total = V if total is None else total + V
    assert total is not None
    return total


class AbstractFrame(Module):
    """The state `y` that is integrated, and its meaning. `points(y)` are the tokens in the frame."""

    @abc.abstractmethod
    @light
    def start(self, points: Points) -> Any:
        """The state at t0."""

    @abc.abstractmethod
    def points(self, y: Any) -> Points:
        """The tokens in the frame."""

    @abc.abstractmethod
    def original(self, t: Scalar, y: Any) -> Points:
        """The tokens themselves, out of the frame."""

    @abc.abstractmethod
    def velocity(self, field: AbstractField, mu: PointCloud, t: Scalar, y: Any, guesses: Guesses | None) -> Solved:
        """The time derivative of the state, and the Sinkhorn problems solved for it, from `guesses`; `mu` has the
        weights and positions.
        """

    @abc.abstractmethod
    def propagator(self, t: Scalar, y: Any) -> Matrix | None:
        r"""$\Phi$ with $x=\Phi z$; None in the original frame."""

    @abc.abstractmethod
    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> tuple[Any, Any]:
        """The tokens in the frame and the propagators, of states along a leading axis, on the host."""

    @abc.abstractmethod
    def state(self, points: Points, propagator: Matrix | None) -> Any:
        """The state from what is saved of it."""


class Original(AbstractFrame):
    """The tokens themselves."""

    @light
    def start(self, points: Points) -> Any:
        return points

    def points(self, y: Any) -> Points:
        return y

    def original(self, t: Scalar, y: Any) -> Points:
        return y

    def velocity(self, field: AbstractField, mu: PointCloud, t: Scalar, y: Any, guesses: Guesses | None) -> Solved:
        seen = mu.with_points(y)
        return evaluate_solved(field, seen, seen.points, t, View(mu.positions), guesses)

    def propagator(self, t: Scalar, y: Any) -> Matrix | None:
        return None

    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> tuple[Any, Any]:
        return ys, None

    def state(self, points: Points, propagator: Matrix | None) -> Any:
        return points


ORIGINAL = Original()


class ConstantRescaled(AbstractFrame):
    r"""$z=e^{-(t-t_0)V}x$: $\dot z=\Phi^{-1}\Gamma(\Phi z)-Vz$, $\Phi=e^{(t-t_0)V}$."""

    V: Matrix
    t0: Scalar

    def _exponential(self, time: Any) -> Matrix:
        r"""$e^{tV}$; on the host nothing is compiled for it."""
        X = time * self.V
        return expm(X) if is_traced(X) else expm_on_host(np.asarray(X))

    @light
    def start(self, points: Points) -> Any:
        return points

    def points(self, y: Any) -> Points:
        return y

    def original(self, t: Scalar, y: Any) -> Points:
        return y @ self._exponential(t - self.t0).T

    def velocity(self, field: AbstractField, mu: PointCloud, t: Scalar, y: Any, guesses: Guesses | None) -> Solved:
        seen, view = mu.with_points(self.original(t, y)), View(mu.positions)
        x = seen.points
        terms = field.terms(t)
        if len(terms) == 1 and isinstance(terms[0].leaf, AbstractAttention) and terms[0].left.ndim == 0:
            # One head: V commutes with Phi, so the values can be mixed in the frame. No digits are lost to the
            # condition of Phi, which grows exponentially.
            values = y @ self.V.T
            bias = terms[0].leaf.maps.value_bias
            if bias is not None:
                values = values + terms[0].left * (self._exponential(self.t0 - t) @ bias)[None]
            found = mix_solved(terms[0].leaf, seen, x, values, terms[0].view(view), guesses)
            return found._replace(velocity=found.velocity - y @ self.V.T)
        back = self._exponential(self.t0 - t)
        found = evaluate_solved(field, seen, x, t, view, guesses)
        return found._replace(velocity=(found.velocity - x @ self.V.T) @ back.T)

    def propagator(self, t: Scalar, y: Any) -> Matrix | None:
        return self._exponential(t - self.t0)

    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> tuple[Any, Any]:
        return ys, expm_on_host((times - np.asarray(self.t0))[:, None, None] * np.asarray(self.V))

    def state(self, points: Points, propagator: Matrix | None) -> Any:
        return points


class MovingRescaled(AbstractFrame):
    r"""$z=\Phi^{-1}x$ with $\dot\Phi=V(t)\Phi$; the state is $(z,\Phi,\Phi^{-1})$."""

    @light
    def start(self, points: Points) -> Any:
        identity = jnp.eye(points.shape[-1], dtype=points.dtype)
        return points, identity, identity

    def points(self, y: Any) -> Points:
        return y[0]

    def original(self, t: Scalar, y: Any) -> Points:
        z, forward, _ = y
        return z @ forward.T

    def velocity(self, field: AbstractField, mu: PointCloud, t: Scalar, y: Any, guesses: Guesses | None) -> Solved:
        _, forward, back = y
        seen = mu.with_points(self.original(t, y))
        V = value_matrix(field, t)
        found = evaluate_solved(field, seen, seen.points, t, View(mu.positions), guesses)
        drift = (found.velocity - seen.points @ V.T) @ back.T
        return found._replace(velocity=(drift, V @ forward, -back @ V))

    def propagator(self, t: Scalar, y: Any) -> Matrix | None:
        return y[1]

    @light
    def snapshots(self, times: np.ndarray, ys: Any) -> tuple[Any, Any]:
        return ys[0], ys[1]

    def state(self, points: Points, propagator: Matrix | None) -> Any:
        assert propagator is not None
        return points, propagator, jnp.linalg.inv(propagator)


class Rescaled(Module):
    r"""The frame $z=e^{-(t-t_0)V}x$, in which clusters stay at finite distance: `flow(..., frame=mf.Rescaled())` (MATH
    c). For averaging kinds

    $$\dot z_i=V\sum_jP_{ij}(z_j-z_i),$$

    with $P$ that of the tokens $x$.

    $V$ is the matrix of the values, summed over heads, $\sum_hW_hV_h$. For weights that depend on time, $z=\Phi^{-1}x$
    with $\dot\Phi=V(t)\Phi$, $\Phi(t_0)=I$. The states of such a run have the points $z$, shape `(n, d)`;
    `run.original()` gives back $x=\Phi z$.

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    run = mf.flow(mf.Affine(I), tokens, t1=1.0, frame=mf.Rescaled())
    assert jnp.allclose(run.final.points, tokens.points)  # x = exp(t) x(0)
    assert jnp.allclose(run.original().final.points, jnp.exp(1.0) * tokens.points)
    ```
    """

    def bind(self, field: AbstractField, t0: Scalar) -> AbstractFrame:
        """The frame of this field, from the time `t0` on; called by `mf.flow`."""
        V = value_matrix(field, t0)
        # Of a kind that is not ours, nobody knows whether it depends on time.
        return ConstantRescaled(V, t0) if is_constant(field) and facts_of(field, t0).ours else MovingRescaled()

"""Weights that depend on time."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Queries, Scalar, cast
from ..measures.cloud import PointCloud
from .base import AbstractField, check_square
from .view import Term, View


class Scheduled(AbstractField):
    r"""A field with weights continuous in time, $\Gamma_\mu(x,t)$: `function(t)` returns the field at time `t`.

    Write `function` with `jax.numpy`. To differentiate in its parameters, make it an `equinox.Module` that holds them.

    **Arguments:** `function`, from a time, an array of shape `()`, to a field, with the same shapes at all times.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    field = mf.Scheduled(lambda t: mf.Affine(jnp.cos(t) * jnp.eye(2)))
    assert jnp.allclose(mf.velocity(field, tokens, t=jnp.pi), -tokens.points)
    ```
    """

    function: Callable[[Scalar], AbstractField]
    """The function of time."""

    def __init__(self, function: Callable[[Scalar], AbstractField]):
        if isinstance(function, AbstractField) or not callable(function) or not checks.takes(function, 1):
            checks.refuse(
                "Scheduled takes a function of time",
                got=checks.described(function),
                expected="a function t -> field",
                remedy="Scheduled(lambda t: mf.Softmax(Q(t), K(t), V(t)))",
            )
        self.function = function

    def at(self, t: Scalar) -> AbstractField:
        """The field at time `t`."""
        field = self.function(t)
        if not isinstance(field, AbstractField):
            checks.refuse(
                "the function of Scheduled must return a field",
                got=checks.described(field),
                expected="e.g. mf.Softmax(Q(t), K(t), V(t))",
                remedy="wrap the matrices in an attention kind",
            )
        if breaks_of(field):
            checks.refuse(
                "a schedule is continuous in time",
                got="a function that returns a Piecewise field",
                expected="weights continuous in t",
                remedy="put the schedules inside: mf.Piecewise([mf.Scheduled(a), mf.Scheduled(b)], breaks)",
            )
        return field

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return cast(self.at(t), x.dtype).evaluate(mu, x, t, view)

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        return self.at(t).terms(t)


class Piecewise(AbstractField):
    r"""Piecewise constant weights: $\Gamma^{(k)}$ for $b_k\le t<b_{k+1}$, `fields[0]` before the first break.

    `mf.flow` restarts its integrator at every break and never steps across one. A break belongs to the piece that it
    starts.

    **Arguments:** `fields`, a list, one more than `breaks`; `breaks`, increasing times, known numbers, of shape `(k,)`.

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    field = mf.Piecewise([mf.Affine(I), mf.Affine(-I)], breaks=[0.7])
    assert (mf.velocity(field, tokens, t=0.7) == -tokens.points).all()
    ```
    """

    fields: tuple[AbstractField, ...]
    """The fields, first to last."""
    breaks: tuple[float, ...] = eqx.field(static=True)
    """The times between them."""

    def __init__(self, fields: Sequence[AbstractField], breaks: Sequence[float]):
        if not isinstance(fields, (list, tuple)) or not all(isinstance(f, AbstractField) for f in fields):
            checks.refuse(
                "Piecewise takes a list of fields",
                got=[type(f).__name__ for f in fields] if isinstance(fields, (list, tuple)) else type(fields).__name__,
                expected="one field per piece",
                remedy="mf.Piecewise([mf.Softmax(Q0, K0, V0), mf.Softmax(Q1, K1, V1)], breaks=[0.7])",
            )
        times = checks.vector(breaks, "breaks")
        if not checks.known(times):
            checks.refuse(
                "breaks must be known numbers",
                got="traced breaks",
                expected="numbers",
                remedy="keep breaks out of the arguments of jit, vmap and grad",
            )
        self.fields, self.breaks = tuple(fields), tuple(float(b) for b in np.asarray(times))
        if len(self.fields) != len(self.breaks) + 1:
            checks.refuse(
                "Piecewise needs one more field than breaks",
                got=f"{len(self.fields)} fields, {len(self.breaks)} breaks",
                expected=f"{len(self.breaks) + 1} fields",
                remedy="breaks are the inner times only, without t0 and t1",
            )
        if list(self.breaks) != sorted(set(self.breaks)):
            checks.refuse(
                "breaks must increase",
                got=self.breaks,
                expected="increasing times",
                remedy="sort them, without repeats",
            )

    def index(self, t: Scalar) -> Array:
        """The number of the piece at time `t`, from 0 on, an array of shape `()`."""
        return jnp.searchsorted(jnp.asarray(self.breaks, t.dtype), t, side="right")

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        branches = [lambda mu, x, t, view, f=f: f.evaluate(mu, x, t, view) for f in self.fields]
        return jax.lax.switch(self.index(t), branches, mu, x, t, view)

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        if not checks.known(t):
            checks.refuse(
                "a piecewise field needs known times",
                got="a traced time",
                expected="numbers",
                remedy="keep t, t0 and t1 out of the arguments of jit, vmap and grad",
            )
        return self.fields[int(np.searchsorted(self.breaks, float(t), side="right"))].terms(t)


def _piecewise(node: Any) -> bool:
    return isinstance(node, Piecewise)


def breaks_of(field: AbstractField) -> tuple[float, ...]:
    """The breaks of all piecewise parts of a field, in order."""
    found: set[float] = set()
    for node in jax.tree.leaves(field, is_leaf=_piecewise):
        if isinstance(node, Piecewise):
            found |= {*node.breaks, *(b for inner in node.fields for b in breaks_of(inner))}
    return tuple(sorted(found))


def frozen(field: AbstractField, t: float) -> AbstractField:
    """The field with each piecewise part replaced by its piece at time `t`, continuous up to both its breaks."""

    def freeze(node: Any) -> Any:
        if not isinstance(node, Piecewise):
            return node
        return frozen(node.fields[int(np.searchsorted(node.breaks, t, side="right"))], t)

    return jax.tree.map(freeze, field, is_leaf=_piecewise)


def constant_at(field: AbstractField, t: float) -> AbstractField:
    """The field with the weights that it has at time `t`."""

    def fix(node: Any) -> Any:
        return constant_at(node.at(jnp.asarray(t)), t) if isinstance(node, Scheduled) else node

    return jax.tree.map(fix, frozen(field, t), is_leaf=lambda node: isinstance(node, Scheduled))


def pieces_of(field: AbstractField) -> tuple[AbstractField, ...]:
    """The field between its breaks, first to last."""
    breaks = breaks_of(field)
    return tuple(frozen(field, t) for t in (*(b - 1 for b in breaks[:1]), *breaks)) if breaks else (field,)


def check_velocity(field: Any, mu: Any, t: Scalar, where: str = "") -> None:
    """Refuse what does not move the tokens of `mu`, from time `t` on."""
    for piece in pieces_of(field) if isinstance(field, AbstractField) else (field,):
        check_square(piece, mu, t, where)


def is_constant(field: AbstractField) -> bool:
    """Whether no part of the field depends on time."""
    moving = (Scheduled, Piecewise)
    return not any(isinstance(n, moving) for n in jax.tree.leaves(field, is_leaf=lambda n: isinstance(n, moving)))

"""How queries see a measure, and the terms of which every field is a sum."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .. import _checks as checks
from .._types import Queries
from .._warm import Module
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..measures.gaussian import Gaussian
from ..reduce.sums import AbstractSums, Exact

if TYPE_CHECKING:
    from .base import AbstractLeaf


class View(Module):
    r"""How the queries see the measure: all of it, or, if `causal`, only the tokens at positions $r\le s$ (MATH b.8).

    It is what a kind of attention is handed by `Causal` and by a flow; only those who write a field meet it.

    **Arguments:** `s`, the positions of the queries, shape `(m,)`, or None; `causal`, see above; `prefix`, whether
    kinds that do not normalise divide by the mass seen, $\theta([0,s])$; `sums`, how sums over the tokens are done.

    ```python
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).with_positions()
    assert mf.View(mu.positions).query_positions(mu) is None  # all tokens are seen
    assert mf.View(mu.positions, causal=True).query_positions(mu) is mu.positions
    ```
    """

    s: Float[Array, " m"] | None
    """The positions of the queries, shape `(m,)`, or None."""
    causal: bool = eqx.field(static=True, default=False)
    r"""Whether a query at $s$ sees the tokens at $r\le s$ alone."""
    prefix: bool = eqx.field(static=True, default=False)
    r"""Whether kinds that do not normalise divide by the mass seen, $\theta([0,s])$."""
    sums: AbstractSums = Exact()
    """How the sums over the tokens are done."""

    def query_positions(self, mu: PointCloud | Density) -> Float[Array, " m"] | None:
        """The positions of the queries, shape `(m,)`, if the view is causal (refused if there are none), else None."""
        if not self.causal:
            return None
        if mu.positions is None or self.s is None:
            of_tokens = "the density has none" if isinstance(mu, Density) else "the tokens have none"
            missing = of_tokens if mu.positions is None else "the query points have none"
            checks.refuse(
                "masked attention needs positions",
                got=missing,
                expected="a position s in [0, 1] for each token and each query",
                remedy="use tokens.with_positions(), or to_density(..., positions=...); for other query points pass s=",
            )
        return self.s

    def seen(self, mu: PointCloud, x: Queries) -> Bool[Array, "m n"]:
        r"""Which tokens the queries at `x` see, shape `(m, n)`: those at $r_j\le s_i$ if the view is causal, else all.

        For kinds that form such an array: `jax.nn.softmax(logits, axis=1, where=view.seen(mu, x))`.
        """
        s = self.query_positions(mu)
        if s is None or mu.positions is None:
            return jnp.ones((x.shape[0], mu.n), bool)
        return mu.positions[None, :] <= s[:, None]


def as_cloud(mu: Any) -> Any:
    """The tokens that a field looks at: of a density its cells; a Gaussian has none."""
    if isinstance(mu, Gaussian):
        checks.refuse(
            "a Gaussian has no tokens at which a field could be asked",
            got=checks.described(mu),
            expected="a PointCloud or a Density",
            remedy="ask for G and b, field.affine(gaussian), or draw tokens, gaussian.sample(n, key=key)",
        )
    return mu.cloud() if isinstance(mu, Density) else mu


@lru_cache
def one(dtype: Any) -> Array:
    """The number 1, made once for each dtype."""
    with jax.ensure_compile_time_eval():
        return jnp.ones((), dtype)


class Term(NamedTuple):
    """One leaf of a field: `left` (a number or a matrix) times `leaf`, under a mask if `causal`, with its own `sums` if
    there are any.
    """

    left: Array
    leaf: "AbstractLeaf"
    causal: bool = False
    prefix: bool = False
    sums: AbstractSums | None = None

    def view(self, outer: View) -> View:
        """The view of the leaf inside the view of the whole."""
        sums = outer.sums if self.sums is None else self.sums
        causal, prefix = (True, self.prefix) if self.causal else (outer.causal, outer.prefix)
        return View(outer.s, causal, prefix, sums)


def act(left: Any, velocity: Any) -> Any:
    """`left` (a number or a matrix) applied to each row."""
    return left * velocity if left.ndim == 0 else velocity @ left.T


def compose(outer: Any, inner: Any) -> Any:
    """The product of two left factors, each a number or a matrix."""
    return outer * inner if 0 in (outer.ndim, inner.ndim) else outer @ inner

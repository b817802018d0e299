"""How queries see a measure, and the terms of which every field is a sum."""

from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from .. import _checks as checks
from ..measures.cloud import PointCloud
from ..measures.density import Density
from ..reduce.sums import AbstractSums, Exact

if TYPE_CHECKING:
    from .base import AbstractLeaf


class View(eqx.Module):
    r"""How the queries see the measure: all of it, or, if `causal`, only the tokens at positions $r\le s$.

    `prefix` asks kinds that do not normalise to divide by the mass seen, $\theta([0,s])$ (MATH b.8). `sums` says how
    the sums over the tokens are done.
    """

    s: Float[Array, " m"] | None
    causal: bool = eqx.field(static=True, default=False)
    prefix: bool = eqx.field(static=True, default=False)
    sums: AbstractSums = Exact()

    def query_positions(self, mu: PointCloud | Density) -> Float[Array, " m"] | None:
        """Positions of the queries if the view is causal (refused when there are none), else None."""
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


def act(left: Array, velocity: Float[Array, "m v"]) -> Float[Array, "m d"]:
    """`left` (a number or a matrix) applied to each row."""
    return left * velocity if left.ndim == 0 else velocity @ left.T


def compose(outer: Array, inner: Array) -> Array:
    """The product of two left factors, each a number or a matrix."""
    return outer * inner if 0 in (outer.ndim, inner.ndim) else outer @ inner

"""Masked attention."""

import equinox as eqx
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Queries, Scalar
from ..measures.cloud import PointCloud
from .base import AbstractField
from .view import Term, View


class Causal(AbstractField):
    r"""Masked attention: a query at position $s$ sees the tokens at positions $r\le s$ (MATH b.8), for softmax

    $$\Gamma_\mu(s,x)=\frac{\int_{r\le s}Vy\,e^{Qx\cdot Ky/\tau}\,d\mu(r,y)}
    {\int_{r\le s}e^{Qx\cdot Ky/\tau}\,d\mu(r,y)}.$$

    Ties see each other. Positions are those of the cloud (`tokens.with_positions()`) and never move. By kind:

    - softmax, L2, hardmax renormalise over the visible tokens;
    - sigmoid, linear, unnormalised integrate over the visible tokens, without a division; with `prefix=True` they
      are divided by the mass seen;
    - Sinkhorn is solved on the visible tokens with renormalised weights, once per query: $O(n^3)$ per sweep.

    **Arguments:** `field`, any field, also a sum or several heads; `prefix`, see above.

    **Raises:** `InputError`, when it is evaluated, if tokens or queries have no positions.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).with_positions()
    P = mf.Causal(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2))).matrix(tokens)
    assert (jnp.triu(P, 1) == 0).all() and jnp.allclose(P.sum(axis=1), 1.0)
    ```
    """

    field: AbstractField
    """The field that is masked."""
    prefix: bool = eqx.field(static=True)
    """Whether kinds that do not normalise are divided by the mass seen."""

    def __init__(self, field: AbstractField, prefix: bool = False):
        if not isinstance(field, AbstractField):
            checks.refuse(
                "Causal masks a field",
                got=checks.described(field),
                expected="e.g. mf.Causal(mf.Softmax(Q, K, V))",
                remedy="pass the attention to be masked",
            )
        self.field, self.prefix = field, checks.flag(prefix, "prefix")

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.field.evaluate(mu, x, t, View(view.s, True, self.prefix, view.sums))

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        # A mask inside a mask keeps its own rule, as in `evaluate`: the innermost one is applied.
        return tuple(
            term if term.causal else term._replace(causal=True, prefix=self.prefix) for term in self.field.terms(t)
        )

"""Several heads."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Matrix, Queries, Scalar, cast, common_dtype
from ..measures.cloud import PointCloud
from .affine import Affine
from .base import AbstractField
from .hardmax import Hardmax
from .kernel import AbstractAttention
from .softmax import Softmax
from .view import Term, View, compose, one

# Up to so many tokens all heads are computed at once.
FEW_TOKENS = 2048


def stackable(fields: Sequence[Any]) -> bool:
    """Whether the fields differ only in the values of their arrays."""

    def alike(a: Any, b: Any) -> bool:
        return a.shape == b.shape if eqx.is_array(a) and eqx.is_array(b) else a is b

    first, *rest = fields
    return all(
        jax.tree.structure(field) == jax.tree.structure(first)
        and all(map(alike, jax.tree.leaves(field), jax.tree.leaves(first)))
        for field in rest
    )


def stack(fields: Sequence[Any]) -> Any:
    """Stackable fields as one, with a leading axis on every array."""
    return jax.tree.map(lambda a, *others: jnp.stack([a, *others]) if eqx.is_array(a) else a, *fields)


def sum_stacked(one: Callable[[Any], tuple[Array, Any]], items: Sequence[Any], n: int) -> tuple[Array, Any]:
    """For stackable items: the sum of the first thing that `one` gives, and the second of all, stacked; n is the number
    of tokens. It is one compiled item, mapped.
    """
    stacked = stack(items)
    if n <= FEW_TOKENS:
        values, others = eqx.filter_vmap(one)(stacked)
        return values.sum(axis=0), others
    # One after the other: the memory of one item, and blocks that do not count are skipped.
    arrays, rest = eqx.partition(stacked, eqx.is_array)
    start = jax.eval_shape(lambda: one(items[0])[0])

    def add(total: Array, values: Any) -> tuple[Array, Any]:
        value, other = one(eqx.combine(values, rest))
        return total + value, other

    return jax.lax.scan(jax.checkpoint(add), jnp.zeros(start.shape, start.dtype), arrays)


def _check_network(Q: Array, K: Array, V: Array, O: Array, bq: Any, bk: Any, bv: Any, bo: Any) -> None:
    """Refuse stacked matrices and biases that do not fit each other, in the shapes in which they are stored."""
    d = Q.shape[1]
    if K.shape != Q.shape or V.shape[1] != d or O.shape != (d, V.shape[0]):
        checks.refuse(
            "the matrices of the network do not fit each other",
            got=f"Q {Q.shape}, K {K.shape}, V {V.shape}, O {O.shape}",
            expected="Q and K (H k, d), V (H v, d), O (d, H v)",
            remedy="transpose the matrices of libraries that multiply from the right",
        )
    biases = (("query_bias", bq, Q), ("key_bias", bk, K), ("value_bias", bv, V), ("output_bias", bo, O))
    for name, bias, M in biases:
        if bias is not None:
            checks.vector(bias, name, M.shape[0], f" = rows of {name[0].upper()}")


class MultiHead(AbstractField):
    r"""Several heads, of any mix of kinds (MATH b.7; Vaswani et al. 2017),

    $$\Gamma_\mu(x)=\sum_{h=1}^HW_h\,\Gamma^{(h)}_\mu(x).$$

    **Arguments:** `heads`, a list of fields, with `V` of shape `(v_h, d)`; `W`, a list of matrices of shape `(d, v_h)`,
    the identity by default. It keeps Gaussians if every head does.

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    heads = [mf.Linear(I, I, I), mf.Affine(-I)]
    field = mf.MultiHead(heads, W=[0.5 * I, I])
    parts = [mf.velocity(head, tokens) for head in heads]
    assert jnp.allclose(mf.velocity(field, tokens), 0.5 * parts[0] + parts[1])
    ```
    """

    heads: tuple[AbstractField, ...]
    """The fields of the heads."""
    W: tuple[Matrix, ...] | None
    """The output matrices, each of shape `(d, v_h)`; None for identities."""

    def __init__(self, heads: Sequence[AbstractField], W: Sequence[Any] | None = None):
        listed = isinstance(heads, (list, tuple))
        if not listed or not heads or not all(isinstance(h, AbstractField) for h in heads):
            types = ", ".join(type(h).__name__ for h in (heads if listed else [heads]))
            checks.refuse(
                "MultiHead needs a list of heads",
                got=f"[{types}]" if listed else types,
                expected="a list with at least one field, and fields only",
                remedy="MultiHead([mf.Softmax(Q1, K1, V1), mf.Softmax(Q2, K2, V2)], W=[W1, W2])",
            )
        heads = tuple(heads)
        if W is not None:
            if not isinstance(W, (list, tuple)) and np.ndim(W) != 3:
                checks.refuse(
                    "W must be a list with one matrix per head",
                    got=f"one array of shape {np.shape(W)}" if hasattr(W, "shape") else repr(W),
                    expected=f"{len(heads)} matrices of shape (d, v)",
                    remedy="W=[W1, ..., WH]; from one matrix (d, H v): W=jnp.split(O, H, axis=1)",
                )
            W = tuple(checks.matrix(M, f"W[{h}]") for h, M in enumerate(W))
            if len(W) != len(heads):
                checks.refuse(
                    "one output matrix per head",
                    got=f"{len(heads)} heads, {len(W)} matrices W",
                    expected=f"{len(heads)} matrices",
                    remedy="give W=[W1, ..., WH]",
                )
            for h, (head, M) in enumerate(zip(heads, W, strict=True)):
                if isinstance(head, AbstractAttention) and head.V.shape[0] != M.shape[1]:
                    checks.refuse(
                        f"W[{h}] must take what head {h} gives",
                        got=f"W[{h}] of shape {M.shape}, V of shape {head.V.shape}",
                        expected=f"W[{h}] of shape (d, {head.V.shape[0]})",
                        remedy="transpose W, or slice it by columns",
                    )
        self.heads, self.W = cast((heads, W), common_dtype(heads, W))

    @staticmethod
    def from_network(
        Q: Any,
        K: Any,
        V: Any,
        O: Any,
        *,
        heads: int,
        kind: Callable[..., AbstractAttention] = Softmax,
        tau: Any = None,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
        output_bias: Any = None,
    ) -> AbstractField:
        r"""Heads from the stacked matrices in which a network stores them.

        **Arguments:** `Q`, `K` of shape `(H k, d)`, `V` of shape `(H v, d)`, `O` of shape `(d, H v)`: head h owns the
        rows (of `O`: the columns) `h k .. (h+1) k`, or `h v .. (h+1) v`. `kind` is the class of the heads; `tau` is
        $\sqrt k$ by default, as in networks; `query_bias`, `key_bias` `(H k,)`, `value_bias` `(H v,)` and
        `output_bias` `(d,)`, as stored.

        **Returns:** a `MultiHead`; with an `output_bias` its sum with an `Affine` field.
        """
        count = checks.whole(heads, "heads")
        Q, K, V, O = (checks.matrix(M, name) for M, name in ((Q, "Q"), (K, "K"), (V, "V"), (O, "O")))
        for name, size in (("Q", Q.shape[0]), ("K", K.shape[0]), ("V", V.shape[0]), ("O", O.shape[1])):
            if size % count:
                checks.refuse(
                    f"{name} cannot be cut into {count} heads",
                    got=f"{size} {'columns' if name == 'O' else 'rows'}",
                    expected=f"a multiple of {count}",
                    remedy="check the number of heads; an empty slice would be a silent zero head",
                )
        _check_network(Q, K, V, O, query_bias, key_bias, value_bias, output_bias)
        if not callable(kind):
            checks.refuse(
                "kind must be an attention class",
                got=f"kind = {kind!r}",
                expected="e.g. kind=mf.Softmax",
                remedy="pass the class itself, not its name and not an instance",
            )
        k = Q.shape[0] // count
        tau = np.sqrt(k) if tau is None else tau

        def cut(array: Any) -> list[Any]:
            return [None] * count if array is None else jnp.split(jnp.asarray(array), count)

        slices = zip(cut(Q), cut(K), cut(V), cut(query_bias), cut(key_bias), cut(value_bias), strict=True)
        heat = () if kind is Hardmax else (tau,)
        made = [kind(q, k, v, *heat, query_bias=bq, key_bias=bk, value_bias=bv) for q, k, v, bq, bk, bv in slices]
        attention = MultiHead(made, W=[W.T for W in cut(O.T)])
        if output_bias is None:
            return attention
        return attention + Affine(jnp.zeros((O.shape[0], Q.shape[1]), Q.dtype), output_bias)

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        def one(head: AbstractField, W: Matrix | None) -> Array:
            velocity = head.evaluate(mu, x, t, view)
            return velocity if W is None else velocity @ W.T

        outputs = [None] * len(self.heads) if self.W is None else list(self.W)
        pairs = list(zip(self.heads, outputs, strict=True))
        if stackable(pairs) and len(pairs) > 1:
            return sum_stacked(lambda pair: (one(*pair), ()), pairs, mu.n)[0]
        first, *rest = (one(*pair) for pair in pairs)
        for velocity in rest:
            first = first + velocity
        return first

    def terms(self, t: Scalar) -> tuple[Term, ...]:
        outputs = [one(common_dtype(self))] * len(self.heads) if self.W is None else self.W
        return tuple(
            term._replace(left=compose(W, term.left))
            for head, W in zip(self.heads, outputs, strict=True)
            for term in head.terms(t)
        )

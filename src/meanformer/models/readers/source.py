"""Tensors as parts of blocks."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import _checks as checks
from ...attention.affine import Affine
from ...attention.base import AbstractField
from ...attention.causal import Causal
from ...attention.heads import MultiHead
from ...attention.kernel import AbstractAttention, Projections
from ...attention.norm import LayerNorm, RMSNorm
from ...attention.perceptron import Perceptron
from ...attention.softmax import Softmax
from ..layers import Gated, Rotary
from ..weights import Weights

Map = tuple[np.ndarray, np.ndarray | None]
"""A linear map, `(out, in)`, and its bias."""


class Source:
    """The weights of a model, with the parts that are made of them: shapes are those that the settings say."""

    def __init__(self, weights: Weights, prefixes: Sequence[str], probe: str):
        found = [prefix for prefix in prefixes if prefix + probe in weights]
        self.weights, self.prefix = weights, found[0] if found else prefixes[0]

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """A tensor; -1 is any length."""
        return self.weights.read(self.prefix + name, *shape)

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return self.prefix + name in self.weights

    def linear(self, name: str, out: int, into: int, *, bias: bool = True, transposed: bool = False) -> Map:
        """A linear map, shape `(out, into)`, stored the other way if `transposed`, with its bias if it has one."""
        matrix = self(f"{name}.weight", into, out).T if transposed else self(f"{name}.weight", out, into)
        return matrix, self(f"{name}.bias", out) if bias else None

    def norm(self, name: str, d: int, eps: float) -> LayerNorm:
        """A layer normalisation."""
        scale, bias = (
            ("gamma", "beta") if self.has(f"{name}.gamma") else ("weight", "bias")
        )  # old files have Greek names
        return LayerNorm(self(f"{name}.{scale}", d), self(f"{name}.{bias}", d), eps)

    def rms(self, name: str, d: int, eps: float) -> RMSNorm:
        """A root-mean-square normalisation."""
        return RMSNorm(self(f"{name}.weight", d), None, eps)

    def check_all_read(self, inside: str, ignored: Sequence[str] = ()) -> None:
        """Refuse tensors of the blocks that nobody asked for: the network computes something that we would not."""
        left = [n for n in self.weights.unused(self.prefix + inside) if not n.endswith(tuple(ignored))]
        if left:
            checks.refuse(
                "the blocks have tensors that nothing asks for",
                got=", ".join(left[:2]) + (f" and {len(left) - 2} more" if len(left) > 2 else ""),
                expected="the plain architecture of this model_type, with the layers that config.json counts",
                remedy="merge adapters into the weights first; other variants are not supported",
            )


def attention(
    q: Map, k: Map, v: Map, o: Map, *, heads: int, kv_heads: int | None = None, causal: bool = False, rates: Any = None
) -> AbstractField:
    r"""Heads with temperature $\sqrt k$ from stacked maps; few keys and values are repeated for groups of queries.

    With `rates` queries and keys are turned by their positions, see `Rotary`.
    """
    groups = heads // (kv_heads or heads)
    slices = zip(cut(q, heads), cut(k, heads // groups, groups), cut(v, heads // groups, groups), strict=True)
    outputs = np.split(o[0], heads, axis=1)
    field: AbstractField = MultiHead([_head(*maps, rates) for maps in slices], W=outputs)
    field = Causal(field) if causal else field
    # Outside of the mask: a bias is no attention.
    return field if o[1] is None else field + Affine(np.zeros((o[0].shape[0], q[0].shape[1]), o[0].dtype), o[1])


def cut(pair: Map, parts: int, times: int = 1) -> list[Map]:
    """The parts of stacked maps, each so many times; by NumPy, which compiles nothing."""
    matrix, bias = pair
    matrices = np.split(matrix, parts)
    biases = [None] * parts if bias is None else np.split(bias, parts)
    return [(matrices[i // times], biases[i // times]) for i in range(parts * times)]


def _head(q: Map, k: Map, v: Map, rates: np.ndarray | None) -> AbstractAttention:
    tau = math.sqrt(q[0].shape[0])
    if rates is None:
        return Softmax(q[0], k[0], v[0], tau, query_bias=q[1], key_bias=k[1], value_bias=v[1])
    dtype = q[0].dtype
    maps = Projections(q[0], k[0], v[0], q[1], k[1], v[1])
    return Rotary(maps, jnp.asarray(tau, dtype), jnp.asarray(rates, dtype), jnp.ones((), dtype))


def perceptron(w1: Map, w2: Map, activation: Callable[[Any], Any]) -> Perceptron:
    """A perceptron with one hidden layer."""
    return Perceptron(w1[0], w2[0], w1[1], w2[1], activation=activation)


def gated(gate: Map, up: Map, down: Map, activation: Callable[[Any], Any]) -> Gated:
    """A gated perceptron."""
    return Gated(jnp.asarray(gate[0]), jnp.asarray(up[0]), jnp.asarray(down[0]), activation)

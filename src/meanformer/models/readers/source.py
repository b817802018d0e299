"""What a reader of an architecture reads from: the settings in config.json, and tensors as parts of blocks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from ... import _checks as checks
from ...attention.affine import Affine
from ...attention.base import AbstractField
from ...attention.causal import Causal
from ...attention.heads import MultiHead
from ...attention.kernel import Projections
from ...attention.norm import LayerNorm, RMSNorm
from ...attention.perceptron import Perceptron
from ...attention.softmax import Softmax
from ..layers import ACTIVATIONS, Gated, Rotary
from ..weights import Weights

Map = tuple[np.ndarray, np.ndarray | None]
"""A linear map, `(out, in)`, and its bias."""


class Config:
    """The settings of a model."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings

    def need(self, *names: str) -> Any:
        """A setting that must be there, under one of its names."""
        for name in names:
            if self.settings.get(name) is not None:
                return self.settings[name]
        checks.refuse(
            "config.json lacks a setting",
            got=f"no {' or '.join(names)}, model_type {self.settings.get('model_type')!r}",
            expected="the settings of the architecture",
            remedy="take the config.json that came with the weights",
        )

    def get(self, name: str, default: Any) -> Any:
        """A setting, or its default."""
        value = self.settings.get(name)
        return default if value is None else value

    def only(self, name: str, allowed: Sequence[Any], why: str) -> None:
        """Refuse a setting that the reader cannot honour."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            checks.refuse(
                f"{why} is not supported",
                got=f"{name} = {value!r}",
                expected=f"{name} = " + " or ".join(repr(a) for a in allowed),
                remedy="use another model, or build its fields by hand (docs: Real weights)",
            )

    def activation(self, *names: str) -> Callable[[Any], Any]:
        """The function between the two matrices of the perceptron."""
        word = self.need(*names)
        return ACTIVATIONS[checks.one_of(str(word), "this activation of the perceptron", ACTIVATIONS)]


class Source:
    """The weights of a model, with the parts that are made of them."""

    def __init__(self, weights: Weights, prefixes: Sequence[str], probe: str):
        found = [prefix for prefix in prefixes if prefix + probe in weights]
        self.weights, self.prefix = weights, found[0] if found else prefixes[0]

    def __call__(self, name: str) -> np.ndarray:
        """A tensor."""
        return self.weights[self.prefix + name]

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return self.prefix + name in self.weights

    def linear(self, name: str, transposed: bool = False) -> Map:
        """A linear map `(out, in)` with its bias, if it has one."""
        matrix = self(f"{name}.weight")
        bias = self(f"{name}.bias") if self.has(f"{name}.bias") else None
        return matrix.T if transposed else matrix, bias

    def norm(self, name: str, eps: float) -> LayerNorm:
        """A layer normalisation; old files have other names for its scale and bias."""
        scale, bias = ("gamma", "beta") if self.has(f"{name}.gamma") else ("weight", "bias")
        shift = self(f"{name}.{bias}") if self.has(f"{name}.{bias}") else None
        return LayerNorm(self(f"{name}.{scale}"), shift, eps)

    def rms(self, name: str, eps: float) -> RMSNorm:
        """A root-mean-square normalisation."""
        return RMSNorm(self(f"{name}.weight"), None, eps)

    def check_all_read(self, inside: str, ignored: Sequence[str] = ()) -> None:
        """Refuse tensors of the blocks that nobody asked for: the network computes something that we would not."""
        left = [n for n in self.weights.unused(self.prefix + inside) if not n.endswith(tuple(ignored))]
        if left:
            checks.refuse(
                "the blocks have tensors that this architecture does not know",
                got=", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else ""),
                expected="the plain architecture of this model_type",
                remedy="merge adapters into the weights first; other variants are not supported",
            )


def attention(
    q: Map, k: Map, v: Map, o: Map, *, heads: int, kv_heads: int | None = None, causal: bool = False, rates: Any = None
) -> AbstractField:
    r"""Heads with temperature $\sqrt k$ from stacked maps; few keys and values are repeated for groups of queries.

    With `rates` queries and keys are turned by their positions, see `Rotary`.
    """
    kv_heads = kv_heads or heads
    for name, (matrix, _), count in (("query", q, heads), ("key", k, kv_heads), ("value", v, kv_heads)):
        if matrix.shape[0] % count or heads % kv_heads:
            checks.refuse(
                f"the {name} matrix cannot be cut into heads",
                got=f"{matrix.shape[0]} rows for {count} heads, {heads} of queries",
                expected="a multiple",
                remedy="check the numbers of heads in config.json",
            )
    k, v = (_repeated(pair, kv_heads, heads // kv_heads) for pair in (k, v))
    kind = Softmax if rates is None else partial(_rotary, rates=rates)
    field = MultiHead.from_network(
        *(q[0], k[0], v[0], o[0]), heads=heads, kind=kind, query_bias=q[1], key_bias=k[1], value_bias=v[1]
    )
    field = Causal(field) if causal else field
    # Outside of the mask: a bias is no attention.
    return field if o[1] is None else field + Affine(np.zeros((o[0].shape[0], q[0].shape[1]), o[0].dtype), o[1])


def _rotary(Q: Any, K: Any, V: Any, tau: Any, *, rates: np.ndarray, **biases: Any) -> Rotary:
    maps = Projections(Q, K, V, **biases)
    dtype = maps.Q.dtype
    return Rotary(maps, jnp.asarray(tau, dtype), jnp.asarray(rates, dtype), jnp.ones((), dtype))


def perceptron(w1: Map, w2: Map, activation: Callable[[Any], Any]) -> Perceptron:
    """A perceptron with one hidden layer."""
    return Perceptron(w1[0], w2[0], w1[1], w2[1], activation=activation)


def gated(gate: Map, up: Map, down: Map, activation: Callable[[Any], Any]) -> Gated:
    """A gated perceptron."""
    return Gated(*(jnp.asarray(pair[0]) for pair in (gate, up, down)), activation)


def _repeated(pair: Map, groups: int, times: int) -> Map:
    if times == 1:
        return pair
    matrix, bias = pair
    tall = np.repeat(matrix.reshape(groups, -1, matrix.shape[1]), times, axis=0).reshape(-1, matrix.shape[1])
    return tall, None if bias is None else np.repeat(bias.reshape(groups, -1), times, axis=0).reshape(-1)

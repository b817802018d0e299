"""[attention]: the kinds, and what combines them."""

import abc
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array
from pydantic import Field

import meanformer as mf

from ... import _checks as checks
from .base import Count, OneOfKinds, Positive, Site, Table
from .matrices import Matrix, Shape, Vector, made_matrix, made_vector

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
}


class FieldTable(Table):
    """A table that means a field."""

    @abc.abstractmethod
    def build(self, site: Site) -> mf.AbstractField:
        """The field, for tokens of dimension `site.d`."""


class Head(FieldTable):
    """What the kinds of attention share: three matrices and three biases."""

    made: ClassVar[Callable[..., mf.AbstractField]]
    Q: Matrix
    K: Matrix
    V: Matrix
    query_bias: Vector | None = None
    key_bias: Vector | None = None
    value_bias: Vector | None = None

    def build(self, site: Site) -> mf.AbstractField:
        options = {name: getattr(self, name) for name in type(self).model_fields}
        del options["kind"]
        matrices = made_matrices({name: (options.pop(name), (site.d, site.d)) for name in "QKV"}, site)
        for name, matrix in (("query_bias", "Q"), ("key_bias", "K"), ("value_bias", "V")):
            if options[name] is not None:
                options[name] = made_vector(options[name], site.at(name), matrices[matrix].shape[0])
        with site.refusing():
            return self.made(**matrices, **{name: value for name, value in options.items() if value is not None})


def made_matrices(specs: dict[str, tuple[Any, Shape]], site: Site) -> dict[str, Array]:
    """The matrices of one table, each with the shape that it has by default; they may refer to each other."""
    done: dict[str, Array] = {}

    def find(name: str, on_the_way: tuple[str, ...] = ()) -> Array:
        checks.one_of(name, "this matrix", specs)
        if name in on_the_way:
            checks.refuse(
                "matrices refer to each other in a circle",
                got=" of ".join((*on_the_way, name)),
                expected="one of them given by itself",
                remedy='e.g. Q = "identity" and K = {of = "Q"}',
            )
        if name not in done:
            spec, shape = specs[name]
            done[name] = made_matrix(spec, site.at(name), shape, lambda other: find(other, (*on_the_way, name)))
        return done[name]

    return {name: find(name) for name in specs}


class Softmax(Head):
    """Softmax attention: weights proportional to exp(Qx.Ky / tau)."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Softmax
    kind: Literal["softmax"] = "softmax"
    tau: Positive = 1.0


class L2(Head):
    """L2 attention: weights proportional to exp(-|Qx - Ky|^2 / tau)."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.L2
    kind: Literal["l2"] = "l2"
    tau: Positive = 1.0


class Sinkhorn(Head):
    """Sinkhorn attention: a kernel made bistochastic."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Sinkhorn
    kind: Literal["sinkhorn"] = "sinkhorn"
    eps: Positive = 1.0
    kernel: Literal["dot", "distance"] = "dot"
    tol: Positive | None = None
    max_iter: Annotated[int, Field(ge=1, le=10**9)] = 2000
    allow_large_causal: bool = False


class Sigmoid(Head):
    """Sigmoid attention: weights sigma(Qx.Ky / tau + bias)."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Sigmoid
    kind: Literal["sigmoid"] = "sigmoid"
    tau: Positive = 1.0
    bias: float = 0.0
    per_token: bool = False


class Linear(Head):
    """Linear attention: weights Qx.Ky / tau."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Linear
    kind: Literal["linear"] = "linear"
    tau: Positive = 1.0


class Unnormalised(Head):
    """Unnormalised attention: weights exp(Qx.Ky / tau)."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Unnormalised
    kind: Literal["unnormalised"] = "unnormalised"
    tau: Positive = 1.0


class Hardmax(Head):
    """Hardmax attention: all weight on the largest Qx.Ky."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.Hardmax
    kind: Literal["hardmax"] = "hardmax"


class MultiHead(FieldTable):
    """Several heads, added; `W` has one output matrix for each."""

    kind: Literal["multi-head"] = "multi-head"
    heads: Annotated[list["Attention"], Field(min_length=1)]
    W: list[Matrix] | None = None

    def build(self, site: Site) -> mf.AbstractField:
        heads = _each(self.heads, site.at("heads"))
        W = self.W and [made_matrix(M, site.at("W", h), (site.d, site.d)) for h, M in enumerate(self.W)]
        with site.refusing():
            return mf.MultiHead(heads, W)


class Causal(FieldTable):
    """Masked: a token sees those at positions up to its own."""

    kind: Literal["causal"] = "causal"
    of: "Attention"
    prefix: bool = False

    def build(self, site: Site) -> mf.AbstractField:
        with site.refusing():
            return mf.Causal(self.of.build(site.at("of")), self.prefix)


class Sum(FieldTable):
    """Fields, added."""

    kind: Literal["sum"] = "sum"
    terms: Annotated[list["Attention"], Field(min_length=1)]

    def build(self, site: Site) -> mf.AbstractField:
        first, *rest = _each(self.terms, site.at("terms"))
        for term in rest:
            first = first + term
        return first


class Scaled(FieldTable):
    """A field times a number."""

    kind: Literal["scaled"] = "scaled"
    factor: float
    of: "Attention"

    def build(self, site: Site) -> mf.AbstractField:
        return self.factor * self.of.build(site.at("of"))


class Affine(FieldTable):
    """The field Mx + b."""

    kind: Literal["affine"] = "affine"
    M: Matrix
    b: Vector | None = None

    def build(self, site: Site) -> mf.AbstractField:
        M = made_matrix(self.M, site.at("M"), (site.d, site.d))
        b = None if self.b is None else made_vector(self.b, site.at("b"), site.d)
        with site.refusing():
            return mf.Affine(M, b)


class Perceptron(FieldTable):
    """The field W2 phi(W1 x + b1) + b2, with `hidden` rows in W1 where these are drawn."""

    kind: Literal["perceptron"] = "perceptron"
    W1: Matrix
    W2: Matrix
    b1: Vector | None = None
    b2: Vector | None = None
    hidden: Count | None = None
    activation: Literal["relu", "gelu", "tanh", "silu"] = "relu"

    def build(self, site: Site) -> mf.AbstractField:
        hidden = site.d if self.hidden is None else self.hidden
        made: dict[str, Any] = made_matrices(
            {"W1": (self.W1, (hidden, site.d)), "W2": (self.W2, (site.d, hidden))}, site
        )
        sizes = {"b1": made["W1"].shape[0], "b2": made["W2"].shape[0]}
        for name, size in sizes.items():
            bias = getattr(self, name)
            made[name] = None if bias is None else made_vector(bias, site.at(name), size)
        with site.refusing():
            return mf.Perceptron(**made, activation=ACTIVATIONS[self.activation])


class Norm(Table):
    """A layer norm (with the mean subtracted) or an RMS norm."""

    kind: Literal["layer", "rms"] = "layer"
    scale: Vector | None = None
    bias: Vector | None = None
    eps: Annotated[float, Field(ge=0)] = 1e-5


class Normed(FieldTable):
    """What the two wrappers share."""

    made: ClassVar[Callable[..., mf.AbstractField]]
    of: "Attention"
    norm: Norm = Norm()

    def build(self, site: Site) -> mf.AbstractField:
        gains = {
            name: None if value is None else made_vector(value, site.at("norm", name), site.d)
            for name, value in (("scale", self.norm.scale), ("bias", self.norm.bias))
        }
        kind = mf.LayerNorm if self.norm.kind == "layer" else mf.RMSNorm
        with site.refusing():
            return self.made(self.of.build(site.at("of")), kind(**gains, eps=self.norm.eps))


class PreNorm(Normed):
    """Attention that sees normalised tokens."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.PreNorm
    kind: Literal["pre-norm"] = "pre-norm"


class PostNorm(Normed):
    """A normalisation after the residual sum."""

    made: ClassVar[Callable[..., mf.AbstractField]] = mf.PostNorm
    kind: Literal["post-norm"] = "post-norm"


class Piecewise(FieldTable):
    """Weights that change at given times."""

    kind: Literal["piecewise"] = "piecewise"
    fields: Annotated[list["Attention"], Field(min_length=1)]
    breaks: list[float]

    def build(self, site: Site) -> mf.AbstractField:
        fields = _each(self.fields, site.at("fields"))
        with site.refusing():
            return mf.Piecewise(fields, self.breaks)


def _each(fields: list[Any], site: Site) -> list[mf.AbstractField]:
    return [field.build(site.at(number)) for number, field in enumerate(fields)]


KINDS: tuple[type[FieldTable], ...] = (Softmax, L2, Sinkhorn, Sigmoid, Linear, Unnormalised, Hardmax, MultiHead, Causal)
KINDS += (Sum, Scaled, Affine, Perceptron, PreNorm, PostNorm, Piecewise)
Attention = Annotated[Any, OneOfKinds(*KINDS)]
for _kind in KINDS:
    _kind.model_rebuild()

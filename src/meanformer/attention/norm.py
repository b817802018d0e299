r"""Layer normalisation, and the two ways a block uses it: before attention, or after the residual sum."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Queries, Scalar, Vector, cast, common_dtype
from ..measures.cloud import PointCloud
from .base import AbstractField, AbstractNormed, matrices_of
from .view import View


class AbstractNorm(eqx.Module):
    """A token-wise normalisation."""

    @abc.abstractmethod
    def __call__(self, x: Queries) -> Queries:
        """Normalise each row."""


def _gains(scale: Any, bias: Any, eps: Any) -> tuple[Array | None, Array | None, float]:
    scale = None if scale is None else checks.vector(scale, "scale")
    size = None if scale is None else scale.shape[0]
    bias = None if bias is None else checks.vector(bias, "bias", size, " as scale" if size else "")
    eps = float(checks.scalar(eps, "eps"))
    if eps < 0:
        checks.refuse(
            "eps must not be negative",
            got=f"eps = {eps:g}",
            expected="eps >= 0",
            remedy="it is added to the variance; 1e-5 is the default",
        )
    return *cast((scale, bias), common_dtype(scale, bias)), eps


class LayerNorm(AbstractNorm):
    r"""$\frac{x-\bar x}{\sqrt{\mathrm{var}(x)+\epsilon}}\cdot$ `scale` $+$ `bias`, over the coordinates of each
    token.
    """

    scale: Vector | None
    bias: Vector | None
    eps: float = eqx.field(static=True)

    def __init__(self, scale: Any = None, bias: Any = None, eps: Any = 1e-5):
        self.scale, self.bias, self.eps = _gains(scale, bias, eps)

    def __call__(self, x: Queries) -> Queries:
        centred = x - x.mean(axis=1, keepdims=True)
        return _gained(self, centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + self.eps))


class RMSNorm(AbstractNorm):
    r"""$\frac{x}{\sqrt{\mathrm{mean}(x^2)+\epsilon}}\cdot$ `scale` $+$ `bias`, over the coordinates of each token."""

    scale: Vector | None
    bias: Vector | None
    eps: float = eqx.field(static=True)

    def __init__(self, scale: Any = None, bias: Any = None, eps: Any = 1e-5):
        self.scale, self.bias, self.eps = _gains(scale, bias, eps)

    def __call__(self, x: Queries) -> Queries:
        return _gained(self, x / jnp.sqrt((x**2).mean(axis=1, keepdims=True) + self.eps))


def _gained(norm: LayerNorm | RMSNorm, x: Queries) -> Queries:
    x = x if norm.scale is None else x * norm.scale[None]
    return x if norm.bias is None else x + norm.bias[None]


def _checked(field: Any, norm: Any, kind: str) -> tuple[AbstractField, AbstractNorm]:
    if not isinstance(field, AbstractField):
        checks.refuse(
            f"{kind} takes a field",
            got=checks.described(field),
            expected="e.g. mf.Softmax(Q, K, V)",
            remedy=f"mf.{kind}(mf.Softmax(Q, K, V))",
        )
    if norm is not None and not isinstance(norm, AbstractNorm):
        checks.refuse(
            f"the norm of {kind} is not known",
            got=checks.described(norm),
            expected="mf.LayerNorm() or mf.RMSNorm()",
            remedy=f"mf.{kind}(field, mf.RMSNorm())",
        )
    return field, LayerNorm() if norm is None else norm


class PreNorm(AbstractNormed):
    r"""The field $x\mapsto\Gamma_{N_\#\mu}(N(x))$: attention sees normalised tokens, the residual stream does not
    change.

    **Arguments:** `field`, any field; `norm`, a `LayerNorm` (default) or `RMSNorm`.
    """

    field: AbstractField
    norm: AbstractNorm

    def __init__(self, field: AbstractField, norm: AbstractNorm | None = None):
        self.field, self.norm = _checked(field, norm, "PreNorm")

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.field.evaluate(mu.with_points(self.norm(mu.points)), self.norm(x), t, view)

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return matrices_of(self.field, mu.with_points(self.norm(mu.points)), self.norm(x), t, view)


class PostNorm(AbstractNormed):
    r"""The field $x\mapsto N(x+\Gamma_\mu(x))-x$: one residual step of length one gives the original block
    $N(x+\Gamma_\mu(x))$.

    The whole encoder block of the original architecture is two such layers:

    ```python
    block = [mf.PostNorm(heads), mf.PostNorm(mf.Perceptron(W1, W2, b1, b2))]
    mf.layers(block * 6, tokens, step=1.0)
    ```
    """

    field: AbstractField
    norm: AbstractNorm

    def __init__(self, field: AbstractField, norm: AbstractNorm | None = None):
        self.field, self.norm = _checked(field, norm, "PostNorm")

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return self.norm(x + self.field.evaluate(mu, x, t, view)) - x

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return matrices_of(self.field, mu, x, t, view)

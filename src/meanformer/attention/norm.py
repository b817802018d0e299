r"""Layer normalisation, and the two ways a block uses it: before attention, or after the residual sum."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._types import Queries, Vector, cast, common_dtype
from .._warm import Module
from ..measures.cloud import PointCloud
from .base import AbstractField, AbstractNormed


class AbstractNorm(Module):
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
    r"""Layer normalisation (Ba, Kiros, Hinton 2016), over the $d$ coordinates of each token,

    $$N(x)=\gamma\odot\frac{x-\bar x}{\sqrt{\mathrm{var}(x)+\epsilon}}+\beta,\qquad
    \bar x=\tfrac1d\sum_ix_i,\quad\mathrm{var}(x)=\tfrac1d\sum_i(x_i-\bar x)^2 .$$

    **Arguments:** `scale`, $\gamma$, and `bias`, $\beta$, of shape `(d,)`, one and zero by default; `eps`, $\epsilon$.

    **Returns**, when called: the rows of an array of shape `(m, d)`, normalised.

    ```python
    N = mf.LayerNorm(eps=0.0)
    N(jnp.asarray([[1.0, 5.0], [0.0, -4.0]]))  # [[-1, 1], [1, -1]]
    assert jnp.allclose(N(jnp.asarray([[1.0, 5.0]])), jnp.asarray([[-1.0, 1.0]]))
    ```
    """

    scale: Vector | None
    r"""The scale $\gamma$, shape `(d,)`, or None."""
    bias: Vector | None
    r"""The bias $\beta$, shape `(d,)`, or None."""
    eps: float = eqx.field(static=True)
    r"""What is added to the variance."""

    def __init__(self, scale: Any = None, bias: Any = None, eps: Any = 1e-5):
        self.scale, self.bias, self.eps = _gains(scale, bias, eps)

    def __call__(self, x: Queries) -> Queries:
        x, eps = _in_range(x, self.eps)
        centred = x - x.mean(axis=1, keepdims=True)
        return _gained(self, centred / jnp.sqrt((centred**2).mean(axis=1, keepdims=True) + eps))


class RMSNorm(AbstractNorm):
    r"""Root-mean-square normalisation (Zhang, Sennrich 2019), over the $d$ coordinates of each token,

    $$N(x)=\gamma\odot\frac x{\sqrt{|x|^2/d+\epsilon}}+\beta,$$

    which for $\gamma=1$, $\beta=0$ and $\epsilon=0$ lies on the sphere of radius $\sqrt d$.

    **Arguments:** `scale`, $\gamma$, and `bias`, $\beta$, of shape `(d,)`, one and zero by default; `eps`, $\epsilon$.

    **Returns**, when called: the rows of an array of shape `(m, d)`, normalised.

    ```python
    x = mf.RMSNorm(eps=0.0)(jnp.asarray([[3.0, 4.0]]))
    assert jnp.allclose(jnp.linalg.norm(x), jnp.sqrt(2.0))
    ```
    """

    scale: Vector | None
    r"""The scale $\gamma$, shape `(d,)`, or None."""
    bias: Vector | None
    r"""The bias $\beta$, shape `(d,)`, or None."""
    eps: float = eqx.field(static=True)
    """What is added to the mean square."""

    def __init__(self, scale: Any = None, bias: Any = None, eps: Any = 1e-5):
        self.scale, self.bias, self.eps = _gains(scale, bias, eps)

    def __call__(self, x: Queries) -> Queries:
        x, eps = _in_range(x, self.eps)
        return _gained(self, x / jnp.sqrt((x**2).mean(axis=1, keepdims=True) + eps))


def _in_range(x: Queries, eps: float) -> tuple[Queries, Array | float]:
    """Rows whose squares are within the range, and `eps` for each: very large ones are over a power of two."""
    x = jnp.asarray(x)
    x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)
    half = jnp.finfo(x.dtype).maxexp // 2
    large = jax.lax.stop_gradient(jnp.abs(x).max(axis=1, keepdims=True)) > 2.0 ** (half - 12)
    unit = jnp.where(large, jnp.asarray(2.0 ** (half + 8), x.dtype), jnp.ones((), x.dtype))
    return x / unit, eps / unit / unit


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
    r"""The field $x\mapsto\Gamma_{N_\#\mu}(N(x))$: attention sees normalised tokens, the tokens themselves are not
    normalised.

    **Arguments:** `field`, any field in dimension d; `norm`, $N$, a `LayerNorm` (default) or `RMSNorm`.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    field = mf.PreNorm(mf.Affine(jnp.eye(2)), mf.RMSNorm(eps=0.0))
    larger = tokens.push(lambda x: 10.0 * x)
    assert jnp.allclose(mf.velocity(field, larger), mf.velocity(field, tokens))
    ```
    """

    field: AbstractField
    """The field that sees normalised tokens."""
    norm: AbstractNorm
    """The normalisation."""

    def __init__(self, field: AbstractField, norm: AbstractNorm | None = None):
        self.field, self.norm = _checked(field, norm, "PreNorm")

    def inside(self, mu: PointCloud, x: Queries) -> tuple[PointCloud, Queries]:
        seen = mu.with_points(self.norm(mu.points))
        return seen, seen.points if x is mu.points else self.norm(x)

    def outside(self, x: Queries, velocity: Float[Array, "m v"]) -> Float[Array, "m v"]:
        return velocity


class PostNorm(AbstractNormed):
    r"""The field $x\mapsto N(x+\Gamma_\mu(x))-x$: one residual step of length one gives the original block
    $N(x+\Gamma_\mu(x))$.

    The whole encoder block of the original architecture is two such layers,
    `block = [mf.PostNorm(heads), mf.PostNorm(perceptron)]`, in `mf.layers(block * 6, tokens, step=1.0)`.

    **Arguments:** `field`, any field in dimension d; `norm`, $N$, a `LayerNorm` (default) or `RMSNorm`.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    norm = mf.RMSNorm()
    field = mf.PostNorm(mf.Affine(jnp.eye(2)), norm)
    assert jnp.allclose(tokens.points + mf.velocity(field, tokens), norm(2.0 * tokens.points))
    ```
    """

    field: AbstractField
    """The field before the normalisation."""
    norm: AbstractNorm
    """The normalisation."""

    def __init__(self, field: AbstractField, norm: AbstractNorm | None = None):
        self.field, self.norm = _checked(field, norm, "PostNorm")

    def inside(self, mu: PointCloud, x: Queries) -> tuple[PointCloud, Queries]:
        return mu, x

    def outside(self, x: Queries, velocity: Float[Array, "m v"]) -> Float[Array, "m v"]:
        return self.norm(x + velocity) - x

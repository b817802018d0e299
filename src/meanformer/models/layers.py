"""A block of a network, and the parts of it that the core does not have: rotated heads, gated perceptrons."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._types import Queries, Scalar, Vector
from .._warm import Module
from ..attention.base import AbstractField, AbstractLeaf
from ..attention.kernel import AbstractAttention, Projections, averaged_tokens
from ..attention.norm import AbstractNorm, PostNorm, PreNorm
from ..attention.view import View
from ..measures.cloud import PointCloud


def rotated(x: Float[Array, "m k"], angles: Float[Array, "m half"]) -> Float[Array, "m k"]:
    """Turn the pairs of coordinates $(i,i+k/2)$ by `angles`."""
    a, b = jnp.split(x, 2, axis=1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)


class Rotary(AbstractAttention):
    r"""Softmax attention with rotary positions (Su et al. 2021): with $p$ the place of a token in the text, $R_p$ turns
    the pair $(i,i+k/2)$ of coordinates by $p\,\omega_i$, and

    $$\Gamma_\mu(p,x)=\frac{\int Vy\,e^{R_pQx\cdot R_rKy/\tau}\,d\mu(r,y)}{\int e^{R_pQx\cdot R_rKy/\tau}\,d\mu(r,y)}.$$

    Only differences $p-r$ matter. The places are positions $s\in(0,1]$ times `length`, the number of tokens.
    """

    maps: Projections
    tau: Scalar
    rates: Vector
    r"""The rates $\omega_i$, shape `(k/2,)`, in radians per token."""
    length: Scalar
    """How many tokens the positions from 0 to 1 stand for."""
    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    not_gaussian: ClassVar[str | None] = "turns queries and keys by their positions"

    def turned(self, x: Float[Array, "m k"], s: Float[Array, " m"]) -> Float[Array, "m k"]:
        """Queries or keys, turned by their positions."""
        return rotated(x, (s * self.length)[:, None] * self.rates[None])

    def mix(self, mu: PointCloud, x: Queries, values: Any, view: View) -> Float[Array, "m v"]:
        if mu.positions is None or view.s is None:
            checks.refuse(
                "rotary attention needs positions",
                got="the tokens have none" if mu.positions is None else "the query points have none",
                expected="a position s in [0, 1] for each token and each query",
                remedy="tokens.with_positions(); for other query points pass s=",
            )
        queries, keys = self.placed(x, view.s, mu.points, mu.positions)
        return view.sums.average(self.logit, queries, averaged_tokens(mu, keys, values), view.query_positions(mu))[0]

    def features(self, x: Queries, y: Queries) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        return self.maps.queries(x) / self.tau, self.maps.keys(y)

    def placed(
        self, x: Queries, s: Float[Array, " m"], y: Queries, r: Float[Array, " n"]
    ) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        """Features of queries at positions `s` and tokens at `r`, turned by them."""
        queries, keys = self.features(x, y)
        return self.turned(queries, s), self.turned(keys, r)


def own_features(leaf: Any, mu: PointCloud) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Queries over the temperature, and keys, of the tokens of `mu` as they meet in a softmax head: turned, if it turns
    them.
    """
    if not isinstance(leaf, Rotary):
        return leaf.features(mu.points, mu.points)
    assert mu.positions is not None
    return leaf.placed(mu.points, mu.positions, mu.points, mu.positions)


class Gated(AbstractLeaf):
    r"""The gated perceptron $\Gamma_\mu(x)=W_3\,(\phi(W_1x)\odot W_2x)$ (Shazeer 2020): every token on its own."""

    gate: Float[Array, "h d"]
    """$W_1$, shape `(h, d)`."""
    up: Float[Array, "h d"]
    """$W_2$, shape `(h, d)`."""
    down: Float[Array, "d h"]
    """$W_3$, shape `(d, h)`."""
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        return (self.activation(x @ self.gate.T) * (x @ self.up.T)) @ self.down.T

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return ()

    @property
    def dimensions(self) -> tuple[int, int]:
        return self.down.shape[0], self.gate.shape[1]

    @property
    def linear_part(self) -> None:
        return None

    @property
    def bounded(self) -> bool:
        return False


class Step(NamedTuple):
    """What happens to the points of a cloud in one block, each of shape `(n, d)`."""

    seen: Array
    velocity: Array
    middle: Array
    after: Array


class Block(Module):
    r"""One block of a network, on the residual stream $x$: with its normalisations first (`pre`),

    $$x\leftarrow x+\Gamma_{N_1\#\mu}(N_1(x)),\quad x\leftarrow x+\Phi(N_2(x)),$$

    or, as in the original architecture, last: $x\leftarrow N_1(x+\Gamma_\mu(x))$, $x\leftarrow N_2(x+\Phi(x))$.
    """

    attention: AbstractField
    r"""$\Gamma$, a function of what it sees: masked if the model is, with the output bias."""
    perceptron: AbstractField
    r"""$\Phi$."""
    norm1: AbstractNorm
    norm2: AbstractNorm
    pre: bool = eqx.field(static=True)
    """Whether normalisations stand before attention and perceptron."""

    @property
    def field(self) -> AbstractField:
        """The velocity that attention gives to the stream."""
        return PreNorm(self.attention, self.norm1) if self.pre else self.attention

    @property
    def halves(self) -> tuple[AbstractField, AbstractField]:
        """The two half blocks as fields: with step 1, `mf.layers` of both is the block."""
        wrap = PreNorm if self.pre else PostNorm
        return wrap(self.attention, self.norm1), wrap(self.perceptron, self.norm2)

    def __call__(self, mu: PointCloud) -> Step:
        """One block, with what happens inside."""
        x, t = mu.points, jnp.zeros((), mu.points.dtype)
        seen = self.norm1(x) if self.pre else x
        here = mu.with_points(seen)
        velocity = self.attention.evaluate(here, seen, t, View(mu.positions))
        middle = x + velocity if self.pre else self.norm1(x + velocity)
        inner = self.norm2(middle) if self.pre else middle
        out = middle + self.perceptron.evaluate(mu.with_points(inner), inner, t, View(mu.positions))
        return Step(seen, velocity, middle, out if self.pre else self.norm2(out))


# Blocks of one shape are one program.
apply = program(lambda block, mu: block(mu))


def gelu(x: Array) -> Array:
    """GELU with the error function."""
    return jax.nn.gelu(x, approximate=False)


def quick_gelu(x: Array) -> Array:
    r"""$x\,\sigma(1.702x)$."""
    return x * jax.nn.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": jax.nn.gelu,
    "gelu_pytorch_tanh": jax.nn.gelu,
    "gelu_fast": jax.nn.gelu,
    "quick_gelu": quick_gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}

r"""Local Lipschitz constants of a field on a ball (MATH d.2).

For $|x|,|x'|\le R$ and measures on the ball $B_R$,
$|\Gamma_\mu(x)-\Gamma_\mu(x')|\le L_x|x-x'|$ and $|\Gamma_\mu(x)-\Gamma_\nu(x)|\le L_\mu W_1(\mu,\nu)$. Each
kind gives its own pair from the sizes of its parts on the ball; biases are included.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .._types import Matrix, Scalar, Vector
from .view import act

if TYPE_CHECKING:
    from .kernel import Projections


class Lipschitz(NamedTuple):
    r"""Lipschitz constants of a field on the ball of radius $R$ (MATH d.2): for points and measures on the ball,

    $$|\Gamma_\mu(x)-\Gamma_\mu(x')|\le L_x|x-x'|,\qquad|\Gamma_\mu(x)-\Gamma_\nu(x)|\le L_\mu W_1(\mu,\nu).$$

    `mf.lipschitz_constants` makes one.

    ```python
    I = jnp.eye(2)
    constants = mf.lipschitz_constants(mf.Softmax(I, I, I), radius=1.0)
    assert constants.x == 1.0 and jnp.allclose(constants.mu, 3 * jnp.exp(2.0))
    ```
    """

    x: Scalar
    """$L_x$, in the point; a number."""
    mu: Scalar | None
    r"""$L_\mu$, in the measure for $W_1$; None if none is known."""


class Sizes(NamedTuple):
    r"""The parts of an attention on the ball of radius R, for logits $(Qx+b_q)\cdot(Ky+b_k)$ times `unit`.

    - `v`: $\|WV\|$, and `values`: a bound on $|W(Vy+b_v)|$;
    - `a`: $\|A\|$; `in_x`, `in_y`: bounds on the gradients of the logit in $x$ and $y$; `logit`: on its size.
    """

    v: Scalar
    values: Scalar
    a: Scalar
    in_x: Scalar
    in_y: Scalar
    logit: Scalar


def spectral(M: Matrix) -> Scalar:
    """The spectral norm."""
    return jnp.linalg.norm(M, 2)


def length(vector: Vector | None, dtype: Any) -> Scalar:
    """The length of a bias, 0 without one."""
    return jnp.zeros((), dtype) if vector is None else jnp.linalg.norm(vector)


def sizes(maps: "Projections", unit: Scalar, left: Array, radius: Scalar) -> Sizes:
    """How large the parts of an attention are on the ball of `radius`, after `left`."""
    dtype = maps.V.dtype
    v = spectral(act(left, maps.V.T).T)
    offset = None if maps.value_bias is None else act(left, maps.value_bias[None])[0]
    a = unit * spectral(maps.K.T @ maps.Q)
    key, query = maps.key_bias, maps.query_bias
    from_key = unit * length(None if key is None else maps.Q.T @ key, dtype)
    from_query = unit * length(None if query is None else maps.K.T @ query, dtype)
    rest = unit * jnp.abs(key @ query) if key is not None and query is not None else jnp.zeros((), dtype)
    return Sizes(
        v=v,
        values=v * radius + length(offset, dtype),
        a=a,
        in_x=a * radius + from_key,
        in_y=a * radius + from_query,
        logit=a * radius**2 + (from_key + from_query) * radius + rest,
    )

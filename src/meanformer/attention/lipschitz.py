r"""Local Lipschitz constants of a field on a ball (MATH d.2).

For $|x|,|x'|\le R$ and measures on the ball $B_R$,
$|\Gamma_\mu(x)-\Gamma_\mu(x')|\le L_x|x-x'|$ and $|\Gamma_\mu(x)-\Gamma_\nu(x)|\le L_\mu W_1(\mu,\nu)$. Each
kind gives its own pair from the sizes of its parts on the ball; biases are included.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .._scale import norm, times, unit
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
    r"""The parts of an attention on the ball of radius R, for logits $(Qx+b_q)\cdot(Ky+b_k)$ over the temperature.

    - `v`: $\|WV\|$, and `values`: a bound on $|W(Vy+b_v)|$;
    - `quadratic`: $\|A\|R^2$; `in_x`, `in_y`: bounds on the gradients of the logit in $x$ and $y$; `logit`: on its
      size. $\|A\|$ itself may be beyond the range.
    """

    v: Scalar
    values: Scalar
    quadratic: Scalar
    in_x: Scalar
    in_y: Scalar
    logit: Scalar


def spectral(M: Matrix) -> Scalar:
    """The spectral norm."""
    return jnp.linalg.norm(M, 2)


def length(vector: Vector | None, dtype: Any) -> Scalar:
    """The length of a bias, 0 without one."""
    return jnp.zeros((), dtype) if vector is None else norm(vector)


def sizes(maps: "Projections", inverse_temperature: Scalar, left: Array, radius: Scalar) -> Sizes:
    """How large the parts of an attention are on the ball of `radius`, after `left`."""
    dtype = maps.V.dtype
    v = spectral(act(left, maps.V.T).T)
    offset = None if maps.value_bias is None else act(left, maps.value_bias[None])[0]
    of_q, of_k = unit(maps.Q), unit(maps.K)
    Q, K = maps.Q / of_q, maps.K / of_k
    a = (inverse_temperature, spectral(K.T @ Q), of_q, of_k)  # the factors of |A|
    key, query = maps.key_bias, maps.query_bias
    from_key = times(inverse_temperature, length(None if key is None else Q.T @ key, dtype), of_q)
    from_query = times(inverse_temperature, length(None if query is None else K.T @ query, dtype), of_k)
    rest = jnp.abs(key @ query) if key is not None and query is not None else jnp.zeros((), dtype)
    quadratic = times(*a, radius, radius)
    return Sizes(
        v=v,
        values=v * radius + length(offset, dtype),
        quadratic=quadratic,
        in_x=times(*a, radius) + from_key,
        in_y=times(*a, radius) + from_query,
        logit=quadratic + (from_key + from_query) * radius + inverse_temperature * rest,
    )

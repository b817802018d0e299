r"""Local Lipschitz constants of a field on a ball (MATH d.2).

For $|x|,|x'|\le R$ and measures on the ball $B_R$,
$|\Gamma_\mu(x)-\Gamma_\mu(x')|\le L_x|x-x'|$ and $|\Gamma_\mu(x)-\Gamma_\nu(x)|\le L_\mu W_1(\mu,\nu)$. Each
kind gives its own pair from the sizes of its parts on the ball; biases are included.
"""

import itertools
from collections.abc import Sequence
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

    - `v`: $\|WV\|$;
    - `logit`: a bound on the size of the logit, and `reach`: on that of its gradient in $y$, times $R$;
    - `v_quadratic`: $\|WV\|\|A\|R^2$, and `v_logit`: $\|WV\|$ times `logit`;
    - `values_in_x`, `values_in_y`: a bound on $|W(Vy+b_v)|$, times those on the gradients of the logit in $x$ and $y$.

    Products are computed as a whole: $\|A\|$, say, may be beyond the range where the product is not.
    """

    v: Scalar
    logit: Scalar
    reach: Scalar
    v_quadratic: Scalar
    v_logit: Scalar
    values_in_x: Scalar
    values_in_y: Scalar


def spectral(M: Matrix) -> Scalar:
    """The spectral norm."""
    return jnp.linalg.norm(M, 2)


def length(vector: Vector | None, dtype: Any) -> Scalar:
    """The length of a bias, 0 without one."""
    return jnp.zeros((), dtype) if vector is None else norm(vector)


def expanded(*sums: Sequence[tuple[Any, ...]]) -> Scalar:
    """The product of sums, each given by its summands, and each of these by its factors."""
    return sum(times(*itertools.chain(*summands)) for summands in itertools.product(*sums))  # pyright: ignore


def sizes(maps: "Projections", inverse_temperature: Scalar, left: Array, radius: Scalar) -> Sizes:
    """How large the parts of an attention are on the ball of `radius`, after `left`."""
    v = spectral(act(left, maps.V.T).T)
    values: list[tuple[Any, ...]] = [(v, radius)]
    if maps.value_bias is not None:
        values.append((norm(act(left, maps.value_bias[None])[0]),))
    of_q, of_k = unit(maps.Q), unit(maps.K)
    Q, K = maps.Q / of_q, maps.K / of_k
    a = (inverse_temperature, spectral(K.T @ Q), of_q, of_k)  # the factors of |A|
    in_x: list[tuple[Any, ...]] = [(*a, radius)]
    in_y, logit = in_x.copy(), [(*in_x[0], radius)]
    key, query = maps.key_bias, maps.query_bias
    if key is not None:
        in_x.append((inverse_temperature, norm(Q.T @ key), of_q))
        logit.append((*in_x[-1], radius))
    if query is not None:
        in_y.append((inverse_temperature, norm(K.T @ query), of_k))
        logit.append((*in_y[-1], radius))
    if key is not None and query is not None:
        logit.append((inverse_temperature, jnp.abs(key @ query)))
    return Sizes(
        v=v,
        logit=expanded(logit),
        reach=expanded(in_y, [(radius,)]),
        v_quadratic=times(v, *a, radius, radius),
        v_logit=expanded([(v,)], logit),
        values_in_x=expanded(values, in_x),
        values_in_y=expanded(values, in_y),
    )

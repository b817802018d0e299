r"""A linearly implicit step for stiff equations: Rodas5P, of order 5(4) and L-stable.

Steinebach, *Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia Differential
Equations package*, BIT 63:27 (2023). One factorisation of $W=I/(h\gamma)-J$ serves eight stages,

$$Wk_i=F\Big(t+c_ih,\,y+\sum_{j<i}a_{ij}k_j\Big)+\frac1h\sum_{j<i}C_{ij}k_j+hd_i\,\partial_tF,\qquad
y_1=y+\sum_ia_{8i}k_i+k_8,$$

and there is no iteration: in a batch no member waits for another one's Newton steps to converge.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._lapack import inverse
from ._types import Scalar

GAMMA = 0.21193756319429014
_LAST = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946)
A = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _LAST,
    (*_LAST, 1.0),
    (*_LAST, 1.0, 1.0),
)
C = (
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (
        30.91273214028599,
        -3.1208243349937974,
        77.79954646070892,
        34.28646028294783,
        -19.097331116725623,
        -28.087943162872662,
    ),
    (
        37.80277123390563,
        -3.2571969029072276,
        112.26918849496327,
        66.9347231244047,
        -40.06618937091002,
        -54.66780262877968,
        -9.48861652309627,
    ),
)
NODES = (0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0, 1.0, 1.0)
A, C = (np.array([[*row, *[0.0] * (8 - len(row))] for row in table]) for table in (A, C))
D = (GAMMA, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0.0, 0.0, 0.0)
# Inside a step, of order 4: $y(\theta)=(1-\theta)y_0+\theta(y_1+(1-\theta)(c_0+\theta(c_1+\theta c_2)))$ with $c=Hk$.
H = np.array(
    [
        [
            25.948786856663858,
            -2.5579724845846235,
            10.433815404888879,
            -2.3679251022685204,
            0.524948541321073,
            1.1241088310450404,
            0.4272876194431874,
            -0.17202221070155493,
        ],
        [
            -9.91568850695171,
            -0.9689944594115154,
            3.0438037242978453,
            -24.495224566215796,
            20.176138334709044,
            15.98066361424651,
            -6.789040303419874,
            -6.710236069923372,
        ],
        [
            11.419903575922262,
            2.8879645146136994,
            72.92137995996029,
            80.12511834622643,
            -52.072871366152654,
            -59.78993625266729,
            -0.15582684282751913,
            4.883087185713722,
        ],
    ]
)


def rodas5p_step(
    velocity: Callable[[Scalar, Float[Array, " n"]], Float[Array, " n"]],
    t: Scalar,
    y: Float[Array, " n"],
    h: Scalar,
    autonomous: bool = True,
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, "8 n"]]:
    r"""The state after a step of length `h`, an estimate of its error, and the stages $k_i$.

    `autonomous` says that the velocity does not depend on the time, which saves the term $\partial_tF$.
    """

    def here(y: Array) -> Array:
        return velocity(t, y)

    _, tangent = jax.linearize(here, y)
    jacobian = jax.vmap(tangent, out_axes=1)(jnp.eye(y.size, dtype=y.dtype))
    drift: Any = 0 if autonomous else jax.jvp(lambda t: velocity(t, y), (t,), (jnp.ones_like(t),))[1]
    solve = inverse(jnp.eye(y.size, dtype=y.dtype) / (h * GAMMA) - jacobian)

    # The stages as a loop: one stage is compiled, not eight.
    def stage(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        stages, _ = carry
        a, c, node, d = (jnp.asarray(table, y.dtype)[i] for table in (A, C, NODES, D))
        point = y + a @ stages
        value = velocity(t + node * h, point) + c @ stages / h
        if not autonomous:
            value = value + h * d * drift
        return stages.at[i].set(solve @ value), point

    stages, point = jax.lax.fori_loop(0, len(A), stage, (jnp.zeros((len(A), y.size), y.dtype), y))
    return point + stages[-1], stages[-1], stages


def rodas5p_between(
    share: Scalar, y0: Float[Array, " n"], y1: Float[Array, " n"], stages: Float[Array, "8 n"]
) -> Float[Array, " n"]:
    """The state inside a step, after this share of it."""
    bends = jnp.asarray(H, y0.dtype) @ stages
    return (1 - share) * y0 + share * (y1 + (1 - share) * (bends[0] + share * (bends[1] + share * bends[2])))

r"""Local interpolation of exponentials on a line of equally spaced nodes.

A function $y\mapsto e^{ay}$ with $|a|\le\alpha$ (per spacing) is read off the p nodes around y,

$$e^{au}\approx\sum_l\varphi_l(u)\,e^{ax_l},\qquad x_l=l-\tfrac{p-1}2,\quad|u|\le\tfrac12,$$

with weights $\varphi_l$ that are exact at the p Chebyshev points a of $[-\alpha,\alpha]$. For $\alpha\to0$ they are
Lagrange's, which are exact at $a=0$ to p orders; spread over the band they reach nearly twice as far at one error.
The error is *relative*, $|\sum_l\varphi_l(u)e^{a(x_l-u)}-1|\le\varepsilon$ for each exponential, so that a positive
sum of exponentials is known up to the same relative error, however far its values range.
"""

import functools
from decimal import Decimal, localcontext

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Digits in which the weights are computed: the equations for them are nearly singular, and these are more than enough.
DIGITS = 60


def _solved(matrix: list[list[Decimal]], right: list[list[Decimal]]) -> list[list[Decimal]]:
    """Gauss-Jordan elimination with pivoting, in decimal numbers."""
    rows = [a + b for a, b in zip(matrix, right, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]


@functools.lru_cache(maxsize=64)
def weights(order: int, reach: float) -> np.ndarray:
    r"""The weights $\varphi_l$ as polynomials in u: coefficients of shape `(degree + 1, order)`, lowest degree first.

    `reach` is $\alpha$; 0 gives Lagrange's weights. The series of $e^{au}$ is cut where it adds nothing in float64.
    """
    with localcontext() as context:
        context.prec = DIGITS
        nodes = [Decimal(l) - Decimal(order - 1) / 2 for l in range(order)]
        if reach == 0:
            powers = [[node**j if j else Decimal(1) for node in nodes] for j in range(order)]
            identity = [[Decimal(int(i == j)) for j in range(order)] for i in range(order)]
            return np.array(_solved(powers, identity), float).T.copy()
        angles = (np.arange(order) + 0.5) / order * np.pi
        band = [Decimal(float(reach * np.cos(angle))) for angle in angles]
        degree = order
        while (reach / 2) ** (degree + 1) > 1e-18 * float(np.prod(np.arange(1, degree + 2, dtype=float))):
            degree += 1
        series = [[Decimal(1)] for _ in band]
        for terms, a in zip(series, band, strict=True):
            for j in range(1, degree + 1):
                terms.append(terms[-1] * a / j)
        exponentials = [[(a * node).exp() for node in nodes] for a in band]
        return np.array(_solved(exponentials, series), float).T.copy()


def evaluated(coefficients: np.ndarray, u: Float[Array, " m"]) -> Float[Array, "m p"]:
    """The weights at the points u, by Horner's rule."""
    table = jnp.asarray(coefficients, u.dtype)
    result = jnp.broadcast_to(table[-1][None], (u.shape[0], table.shape[1]))
    for row in table[-2::-1]:
        result = result * u[:, None] + row[None]
    return result


@functools.lru_cache(maxsize=64)
def error(order: int, reach: float) -> float:
    r"""$\max|\sum_l\varphi_l(u)e^{a(x_l-u)}-1|$ over $|a|\le\alpha$ and $|u|\le\frac12$, on a fine mesh."""
    u, a = np.linspace(-0.5, 0.5, 65), np.linspace(-reach, reach, 16 * order + 1)
    phi = np.polynomial.polynomial.polyval(u, weights(order, reach))  # (order, mesh)
    nodes = np.arange(order) - (order - 1) / 2
    kernels = np.exp(a[:, None, None] * (nodes[None, :, None] - u[None, None, :]))
    return float(np.abs(np.einsum("lu,alu->au", phi, kernels) - 1).max())


@functools.lru_cache(maxsize=64)
def reach_of(order: int, tolerance: float) -> float:
    r"""The largest $\alpha$ at which the relative error is at most `tolerance` (to two digits, rounded down)."""
    low, high = 1e-3, 8.0
    while high / low > 1.02:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if error(order, middle) <= tolerance else (low, middle)
    return low

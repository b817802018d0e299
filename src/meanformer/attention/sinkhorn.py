"""Sinkhorn attention."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import _checks as checks
from .._programs.call import program
from .._types import Points, Queries, Scalar, cast
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from ..reduce.exact import Tokens, dot, log_weights, minus_squared_distance
from ..reduce.sums import AbstractSums, Exact, Logit
from . import potentials
from .base import check_field
from .closure import Closure, sinkhorn_gain
from .kernel import AbstractAttention, Projections, temperature
from .lipschitz import Lipschitz, sizes
from .potentials import Potentials
from .problem import Problem
from .view import View

CAUSAL_LIMIT = 512
EXACT = Exact()

# More columns of values than this are mixed after the solve: its sums would carry all of them along.
FEW_COLUMNS = 3

_solve = program(potentials.solve)


class Sinkhorn(AbstractAttention):
    r"""Sinkhorn attention (MATH b.3; Sander et al. 2022): the kernel $e^{c(x,y)}$ made bistochastic against $\mu$,

    $$\Gamma_\mu(x)=\int Vy\,k(x,y)\,d\mu(y),\qquad k(x,y)=e^{f(x)+g(y)+c(x,y)},$$

    with the potentials $f$, $g$ for which $\int k(x,y)\,d\mu(y)=1$ for all $x$ and $\int k(x,y)\,d\mu(x)=1$ for all
    $y$. With `kernel="dot"`, $c=Qx\cdot Ky/\varepsilon$; with `kernel="distance"`, $c=-|Qx-Ky|^2/\varepsilon$, which
    is the dot kernel at $\varepsilon/2$. Only the effective matrix `B` matters. The mean obeys $\dot m=Vm$ for every
    measure. On a Gaussian the field is affine (MATH e.2).

    **Arguments:**

    - `Q`, `K`, `V` and biases: as for `Softmax`, shapes `(k, d)`, `(k, d)`, `(d, d)`.
    - `eps`: divides the whole exponent; `kernel`: "dot" or "distance", see above.
    - `tol`: bounds the defect $|\sum_iw_ik_{ij}-1|$ of every column, $10^{-10}$ by default, about $10^{-5}$ in float32;
      `max_iter`: bounds sweeps and Newton steps together.
    - `allow_large_causal`: masked, it costs $O(n^3)$ per sweep; more than 512 tokens need this to be True.

    Rows are probabilities even when the iteration stops early. `potentials(mu)` reports how well the problem was
    solved; a flow watches its problems, starts each from the solution of the one before, and ends with the outcome
    `SINKHORN_STALLED` where one was not solved. Under `jit` or `grad`, and with solvers of diffrax, it looks at both
    ends of the run (of each piece, if there are breaks).

    ```python
    tokens, I = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), jnp.eye(2)
    field = mf.Sinkhorn(I, I, -I, eps=0.5)
    assert jnp.allclose(tokens.weights @ mf.velocity(field, tokens), -tokens.mean)
    ```
    """

    maps: Projections
    eps: Scalar
    r"""The temperature $\varepsilon$, a number."""
    tol: Scalar
    """The largest defect of a column."""
    max_iter: Int[Array, ""]
    """The largest number of sweeps and Newton steps."""
    kernel: str = eqx.field(static=True)
    """The kernel, "dot" or "distance"."""
    allow_large_causal: bool = eqx.field(static=True)
    """Whether more than 512 tokens may be masked."""
    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True
    mixes_keys: ClassVar[bool] = True
    not_gaussian: ClassVar[str | None] = None
    saturates: ClassVar[bool] = True

    def __init__(
        self,
        Q: Any,
        K: Any,
        V: Any,
        eps: Any = 1.0,
        kernel: str = "dot",
        tol: Any = None,
        max_iter: int = 2000,
        *,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
        allow_large_causal: bool = False,
    ):
        self.maps = Projections(Q, K, V, query_bias, key_bias, value_bias)
        self.eps = temperature(eps, "eps", self.maps)
        self.kernel = checks.one_of(kernel, "kernel", ("dot", "distance"))
        unit = float(jnp.finfo(self.eps.dtype).eps)
        tol = max(1e-10, 100 * unit) if tol is None else tol
        self.tol = cast(checks.positive(tol, "tol", "1e-10 is the default in float64"), self.eps.dtype)
        if checks.known(self.tol) and not 4 * unit <= float(self.tol) < 1:
            checks.refuse(
                "tol must be below 1, and not below what the dtype resolves",
                got=f"tol = {float(self.tol):.3g} in {self.eps.dtype}",
                expected=f"{4 * unit:.2g} <= tol < 1",
                remedy="leave tol out: 1e-10 is the default in float64",
            )
        self.max_iter = jnp.asarray(checks.whole(max_iter, "max_iter"))
        self.allow_large_causal = checks.flag(allow_large_causal, "allow_large_causal")

    @property
    def B(self) -> Float[Array, "d d"]:
        r"""The effective matrix, shape `(d, d)`: $A/\varepsilon$ for the dot kernel, $2A/\varepsilon$ for the distance
        kernel.
        """
        return (1 if self.kernel == "dot" else 2) * self.A / self.eps

    def potentials(
        self, mu: PointCloud, guess: Float[Array, " n"] | None = None, sums: AbstractSums = EXACT
    ) -> Potentials:
        """The potentials `f` and `g` on the tokens of `mu`, each of shape `(n,)`, with `sweeps`, `newton_steps`, the
        marginal `error`, and whether they `converged`.

        `guess` starts the iteration (any `g` of the same tokens, e.g. of a nearby cloud); by default the exact
        potentials of the Gaussian with the same mean and covariance. `sums` says how sums over the tokens are done.
        """
        check_field(self, mu, jnp.zeros(()))
        guess = self.first_guess(mu) if guess is None else checks.vector(guess, "guess", mu.n, ", one per token")
        return _solve(self._problem(mu, sums), guess, self.tol, self.max_iter)[0]

    def mix(self, mu: PointCloud, x: Queries, values: Float[Array, "n v"] | None, view: View) -> Float[Array, "m v"]:
        return self.mix_solved(mu, x, values, view, None)[0]

    def mix_solved(
        self, mu: PointCloud, x: Queries, values: Array | None, view: View, guess: Float[Array, " n"] | None = None
    ) -> tuple[Float[Array, "m v"], Potentials]:
        """What `mix` gives, and the solved problem, from a `guess` of its potential; masked, the worst of its problems,
        without potentials.

        At the tokens themselves, `x is mu.points`, both come out of one solve and one sum.
        """
        s = view.query_positions(mu)
        if s is not None:
            assert values is not None
            return self._prefix_mix(mu, x, values, s)
        guess = self.first_guess(mu) if guess is None else guess
        together = x is mu.points and values is not None and values.shape[1] <= FEW_COLUMNS
        problem = self._problem(mu, view.sums)
        found, mixed = _solve(problem, guess, self.tol, self.max_iter, values if together else None)
        return mixed if together else self.mix_with(mu, found.g, x, values, view.sums), found

    @property
    def bounded_speed(self) -> bool:
        r"""$\|GL\|\le\|V\|\|L\|$."""
        return True

    def lipschitz(self, left: Array, radius: Scalar) -> Lipschitz:
        r"""$D_x\Gamma=V\operatorname{Cov}_{p_x}(y)B$; in the measure no explicit constant is known (MATH m)."""
        s = sizes(self.maps, self._unit, left, radius)
        return Lipschitz(s.v_quadratic, None)

    def closure(self, gaussian: Gaussian) -> Closure:
        r"""$G=VL\,\varphi(MM^\top)L^\top B$, $M=L^\top BL$, $\varphi(\lambda)=2/(1+\sqrt{1+4\lambda})$; key and query
        biases are absorbed by the potentials.
        """
        # Not through the matrix B: what Q or K send to zero then stays zero, to the last digit.
        L, unit = gaussian.factor, self._unit
        LB = unit * (self.K @ L).T @ self.Q
        _, gain = sinkhorn_gain(LB @ L)
        return self.maps.value(gaussian.mean), self.V @ L @ gain @ LB

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        r"""$VLT$."""
        L = gaussian.factor
        return self.V @ (L @ sinkhorn_gain(self._unit * (self.K @ L).T @ (self.Q @ L))[0])

    @property
    def _unit(self) -> Scalar:
        """B is this times A."""
        return (1 if self.kernel == "dot" else 2) / self.eps

    def column_error(self, mu: PointCloud, solution: Potentials, rows: Int[Array, " m"]) -> Scalar:
        r"""$\max_j|\sum_iw_ie^{f_i+g_j+c_{ij}}-1|$ over the tokens `rows`, in exact sums."""
        queries, keys = self.features(mu.points, mu.points)
        seen = Tokens(queries, log_weights(mu.weights) + solution.f, jnp.zeros((mu.n, 0), queries.dtype))
        total = Exact().average(self.logit, keys[rows], seen)[1]
        return jnp.max(jnp.where(mu.weights[rows] > 0, jnp.abs(jnp.expm1(total + solution.g[rows])), 0))

    def check_size(self, mu: PointCloud) -> None:
        """Refuse a masked problem that is too large."""
        if mu.n > CAUSAL_LIMIT and not self.allow_large_causal:
            checks.refuse(
                "masked Sinkhorn attention costs O(n^3) per sweep",
                got=f"{mu.n} tokens",
                expected=f"at most {CAUSAL_LIMIT}",
                remedy="use fewer tokens, or Sinkhorn(..., allow_large_causal=True) and patience",
            )

    def features(self, x: Queries, y: Points) -> tuple[Float[Array, "m k"], Float[Array, "n k"]]:
        unit = jnp.sqrt(self.eps)
        return self.maps.queries(x) / unit, self.maps.keys(y) / unit

    @property
    def logit(self) -> Logit:
        return dot if self.kernel == "dot" else minus_squared_distance

    def _problem(self, mu: PointCloud, sums: AbstractSums) -> Problem:
        queries, keys = self.features(mu.points, mu.points)
        return Problem(queries, keys, mu.weights, self.logit, sums)

    def mix_with(self, mu: PointCloud, g: Array, x: Array, values: Array | None, sums: AbstractSums) -> Array:
        """What `mix` gives at a known potential: off the support, and on it, only `g` is needed. It is softmax with
        weights $w_je^{g_j}$, a row update.
        """
        queries, keys = self.features(x, mu.points)
        tokens = Tokens(keys, sums.log_weights(mu.weights) + g, keys if values is None else values)
        return sums.average(self.logit, queries, tokens)[0]

    def _prefix_mix(self, mu: PointCloud, x: Array, values: Array, s: Array) -> tuple[Array, Potentials]:
        r"""Sinkhorn on the visible tokens, for each query; prefixes in order, each started from the one before."""
        self.check_size(mu)
        positions = mu.positions
        assert positions is not None

        def one(guess: Array, query: tuple[Array, Array]) -> tuple[Array, tuple[Array, Potentials]]:
            point, position = query
            weights = jnp.where(positions <= position, mu.weights, 0)
            total = weights.sum()
            # A query that sees nothing gets 0; the problem that is then solved in its place is a legal one.
            weights = jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), mu.weights)
            seen = eqx.tree_at(lambda m: m.weights, mu, weights)
            solution = self.potentials(seen, guess)
            mixed = self.mix_with(seen, solution.g, point[None], values, Exact())[0]
            guess = jax.lax.stop_gradient(jnp.where(total > 0, solution.g, guess))
            return guess, (jnp.where(total > 0, mixed, 0), solution)

        order = jnp.argsort(s)
        # A guess from all tokens would let the later ones change bits of the earlier ones.
        start = jnp.zeros_like(mu.weights)
        _, (mixed, found) = jax.lax.scan(one, start, (x[order], s[order]))
        none = start[:0]
        worst = Potentials(
            none, none, found.error.max(), found.sweeps.max(), found.newton_steps.max(), found.converged.all()
        )
        return jnp.zeros_like(mixed).at[order].set(mixed), worst

    def first_guess(self, mu: PointCloud) -> Float[Array, " n"]:
        r"""The potential $g$ of $\mathcal N(m,\Sigma)$ with the moments of `mu`, exact for Gaussian data:

        $g(y)=-\tfrac12\hat k^\top N\hat k-\hat q(m)\cdot k+\ldots$ in key space, from MATH e.2 without an inverse.
        """
        mu = jax.lax.stop_gradient(mu)
        problem = jax.lax.stop_gradient(self._problem(mu, Exact()))
        factor = 1 if self.kernel == "dot" else 2
        weights = problem.weights[:, None]
        query_mean, key_mean = (weights * problem.queries).sum(0), (weights * problem.keys).sum(0)
        keys, queries = problem.keys - key_mean[None], problem.queries - query_mean[None]
        # M = L^T B L enters only through key space: with S = Cov(q) and C = Cov(k), the spectrum of S C.
        query_cov, key_cov = (weights * queries).T @ queries, (weights * keys).T @ keys
        values, vectors = jnp.linalg.eigh(query_cov)
        half = vectors * jnp.sqrt(jnp.maximum(values, 0))[None]
        squares, basis = jnp.linalg.eigh(factor**2 * half.T @ key_cov @ half)
        gains = 2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(squares, 0)))
        image = factor * keys @ half @ basis
        g = -0.5 * (image**2 * gains[None]).sum(axis=1) - factor * keys @ query_mean
        return g if self.kernel == "dot" else g + (problem.keys**2).sum(axis=1)

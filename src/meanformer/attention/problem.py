r"""The Sinkhorn problem of a weighted cloud against itself: its sums over tokens, its defects, its linear system.

$(f,g)$ make $k_{ij}=e^{f_i+g_j+c_{ij}}$ bistochastic against the weights. $f$ is a function of $g$ (row normalisation),
so the unknown is $g$ alone, a fixed point of the sweep $\mathcal T$ (MATH b.3):

$$f_i=-\operatorname{lse}_j(c_{ij}+g_j+\log w_j),\qquad(\mathcal Tg)_j=-\operatorname{lse}_i(c_{ij}+f_i+\log w_i),$$

and the column sums are $a_j=e^{g_j-(\mathcal Tg)_j}$. It maximises the concave semi-dual $\sum w_if_i+\sum w_jg_j$,
whose gradient is $w_j(1-a_j)$ and whose Hessian is $-(\mathrm{diag}(wa)-P^\top WP)$, $P$ the row-stochastic plan.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Bool, Float

from .._types import Scalar
from .._warm import Module
from ..reduce.exact import QUERY_BLOCK, Tokens, dot, log_weights
from ..reduce.sums import AbstractSums, Exact

# The diagonal of I - CR is a difference of numbers near one: below this it is rounding.
SMALLEST_DIAGONAL = 1e-14


class Problem(Module):
    """Queries, keys and weights of a cloud against itself; `logit` makes $c_{ij}$ from a query and a key."""

    queries: Float[Array, "n k"]
    keys: Float[Array, "n k"]
    weights: Float[Array, " n"]
    logit: Callable[[Array, Array], Array] = eqx.field(static=True)
    sums: AbstractSums = Exact()

    def rows(self, g: Float[Array, " n"], values: Float[Array, "n v"] | None = None) -> tuple[Array, Array]:
        r"""Row averages of `values` with weights $w_je^{c_{ij}+g_j}$, and $f$."""
        return self.half(self.queries, self.keys, g, values)

    def columns(self, f: Float[Array, " n"], values: Float[Array, "n v"] | None = None) -> tuple[Array, Array]:
        r"""Column averages of `values` with weights $w_ie^{c_{ij}+f_i}$, and $\mathcal Tg$."""
        # Both kernels are symmetric in their two arguments, so keys may query.
        return self.half(self.keys, self.queries, f, values)

    def half(
        self, q: Array, k: Array, potential: Array, values: Array | None, needed: Array | None = None
    ) -> tuple[Array, Array]:
        """`rows`, or `columns`, from what asks and what is asked; only so many columns of the averages are `needed`."""
        values = jnp.zeros((k.shape[0], 0), k.dtype) if values is None else values
        logs = self.sums.log_weights(self.weights) + jnp.where(self.visible, potential, 0)
        mean, total = self.sums.average(self.logit, q, Tokens(k, logs, values), needed=needed)
        return mean, -total

    @property
    def visible(self) -> Bool[Array, " n"]:
        """Which tokens have weight. The others are in no sum: they ask, but are not asked."""
        return self.weights > 0

    @property
    def small(self) -> bool:
        """Whether one block of logits holds all pairs of tokens, so that linear systems are solved directly."""
        return self.weights.size <= QUERY_BLOCK

    @property
    def rounding(self) -> Scalar:
        """The marginal error that the rounding of the logits leaves: no iteration gets below it."""
        return 4 * jnp.finfo(self.keys.dtype).eps * self.largest_logit

    @property
    def largest_logit(self) -> Scalar:
        """A bound on the logits of tokens of positive weight, up to a factor of two."""
        squares = jnp.stack([jnp.sum(self.queries**2, axis=1), jnp.sum(self.keys**2, axis=1)])
        return jnp.sum(jnp.max(jnp.where(self.visible[None], squares, 0), axis=1))

    def heated(self, heat: Scalar) -> "Problem":
        """The problem with its logits multiplied by `heat`."""
        root = jnp.sqrt(heat)
        return Problem(root * self.queries, root * self.keys, self.weights, self.logit, self.sums)

    @property
    def symmetric(self) -> Bool[Array, ""]:
        r"""Whether $q_i\cdot k_j=q_j\cdot k_i$ for all visible tokens, up to the root of rounding:
        $\|qk^\top-kq^\top\|^2=2\operatorname{tr}(q^\top q\,k^\top k)-2\operatorname{tr}(q^\top k\,q^\top k)$.
        """
        q, k = (jnp.where(self.visible[:, None], side, 0) for side in (self.queries, self.keys))
        size, mixed = jnp.sum((q.T @ q) * (k.T @ k)), q.T @ k
        return size - jnp.sum(mixed * mixed.T) <= 1000 * jnp.finfo(q.dtype).eps * size

    def mirrored(self, g: Float[Array, " n"], f: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""The row update $f$ of $g$ as a potential of the columns, in the gauge of $g$, for symmetric logits: $f$ and
        $g$ differ by the parts of $c$ in one variable.
        """
        if self.logit is not dot:
            f = f + jnp.sum(self.keys**2, axis=1) - jnp.sum(self.queries**2, axis=1)
        return f + self.weights @ (g - f)

    def sweep(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""$\mathcal Tg$."""
        return self.columns(self.rows(g)[1])[1]

    def defects(self, g: Array, swept: Array) -> tuple[Scalar, Scalar]:
        r"""$\sum_jw_j|a_j-1|$, and $\max_j|a_j-1|$ over the visible tokens: the sum would hide those of tiny weight."""
        defects = jnp.abs(jnp.expm1(jnp.where(self.visible, g - swept, 0)))
        return self.weights @ defects, jnp.max(defects)

    def centred(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""`g` in the gauge $\sum_jw_jg_j=0$."""
        return g - self.weights @ g

    def system(self, f: Array, g: Array, column_sums: Array) -> "System":
        """The linear system of Newton's steps and of derivatives, at potentials with these column sums."""
        return System(self, f, g, jnp.sqrt(self.weights * column_sums))


class System(Module):
    r"""$I-CR$, where $R$ and $C$ average over rows and columns of the plan, scaled by `root`, $\sqrt{wa}$.

    Scaled, it is symmetric with eigenvalues in $[1-s^2,1]$, but for the constants, which the gauge removes. At low
    temperature it is nearly singular, since groups of tokens that hardly exchange mass have hardly coupled potentials:
    a ridge keeps the solution bounded there.
    """

    problem: Problem
    f: Float[Array, " n"]
    g: Float[Array, " n"]
    root: Float[Array, " n"]

    @property
    def safe(self) -> Float[Array, " n"]:
        """What solutions are divided by."""
        return jnp.where(self.root > 0, self.root, 1)

    @property
    def gauge(self) -> Float[Array, " n"]:
        """The constants, scaled and of length one."""
        return self.root / jnp.sqrt(self.root @ self.root)

    def operated(self, h: Float[Array, " n"], average: Float[Array, " n"], ridge: float) -> Float[Array, " n"]:
        """The operator at `h`, from the average of `h / safe` over rows and then columns."""
        return (1 + ridge) * h - self.root * average + self.gauge * (self.gauge @ h)

    def apply(self, h: Float[Array, " n"], ridge: float) -> Float[Array, " n"]:
        """The operator at `h`."""
        rows = self.problem.rows(self.g, (h / self.safe)[:, None])[0]
        return self.operated(h, self.problem.columns(self.f, rows)[0][:, 0], ridge)

    def diagonal(self, doubled: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""$1-\sum_iC_{ji}R_{ij}$, from the column update of $2f$ at twice the logits.

        At low temperature the plan is almost a permutation and the operator almost zero, row by row: conjugate
        gradients divide by this.
        """
        w, visible = self.problem.weights, self.problem.visible
        squares = 2 * self.g + log_weights(w) - doubled
        return jnp.maximum(1 - jnp.exp(squares) * jnp.where(visible, w / self.safe**2, 1), SMALLEST_DIAGONAL)

    def directly(self, rhs: Float[Array, " n"], ridge: float) -> Float[Array, " n"]:
        r"""The solution for few tokens: the scaled operator is $I-A^\top A$ with $A_{ij}=\sqrt{w_i/w_ja_j}\,R_{ij}$."""
        p = self.problem
        R = jnp.exp(p.logit(p.queries, p.keys) + self.f[:, None] + (self.g + log_weights(p.weights))[None])
        A = jnp.sqrt(p.weights)[:, None] * R / self.safe[None]
        gauge = self.gauge
        matrix = (1 + ridge) * jnp.eye(A.shape[0], dtype=A.dtype) - A.T @ A + gauge[:, None] * gauge[None]
        return jnp.linalg.solve(matrix, self.root * rhs) / self.safe

    def solved(self, rhs: Float[Array, " n"], tol: float, ridge: float, steps: int) -> Float[Array, " n"]:
        r"""$\delta$ with $(I-CR)\delta=$ `rhs`, differentiable in both modes."""
        if self.problem.small:
            return self.directly(rhs, ridge)

        def iteratively(matvec: Callable[[Array], Array], b: Array) -> Array:
            # A grid does not resolve twice the logits.
            exact = isinstance(self.problem.sums, Exact)
            heat = jnp.asarray(2, b.dtype)
            diagonal = self.diagonal(self.problem.heated(heat).columns(2 * self.f)[1]) if exact else jnp.ones_like(b)
            return cg(matvec, b, tol=tol, maxiter=steps, M=lambda h: h / diagonal)[0]

        # Said to be symmetric here, because reverse mode cannot transpose a solver by itself.
        scaled = self.root * rhs
        solution = jax.lax.custom_linear_solve(lambda h: self.apply(h, ridge), scaled, iteratively, symmetric=True)
        return solution / self.safe

r"""The Sinkhorn potentials of a weighted cloud against itself, in the log domain and without an n x n array.

$(f,g)$ make $k_{ij}=e^{f_i+g_j+c_{ij}}$ bistochastic against the weights. $f$ is a function of $g$ (row normalisation),
so the unknown is $g$ alone, a fixed point of the sweep $\mathcal T$ (MATH b.3):

$$f_i=-\operatorname{lse}_j(c_{ij}+g_j+\log w_j),\qquad(\mathcal Tg)_j=-\operatorname{lse}_i(c_{ij}+f_i+\log w_i),$$

and the column sums are $a_j=e^{g_j-(\mathcal Tg)_j}$. It maximises the concave semi-dual $\sum w_if_i+\sum w_jg_j$,
whose gradient is $w_j(1-a_j)$ and whose Hessian is $-(\mathrm{diag}(wa)-P^\top WP)$, $P$ the row-stochastic plan.
Sweeps are used while they contract fast; then damped Newton steps, if need be down a ladder of temperatures. Their
linear systems are solved by conjugate gradients with blocked products, or directly where a block holds all pairs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar
from ..reduce.exact import QUERY_BLOCK, Tokens, dot, log_weights
from ..reduce.sums import AbstractSums, Exact

# Sweeps before the contraction is judged, and how many more are cheaper than Newton steps.
TRIAL_SWEEPS = 6
PATIENCE = 40
HALVINGS = 8
# Newton steps that are tried at first, before the ladder; and steps without progress that are borne at a level of it.
FIRST_STEPS = 12
STALL = 20
# Steps of conjugate gradients in a Newton step, which then counts as so many sweeps.
CG_STEPS = 100
# The diagonal of I - CR is a difference of numbers near one: below this it is rounding.
SMALLEST_DIAGONAL = 1e-14
# Logits at which the ladder of temperatures starts.
EASY_LOGIT = 8.0


class Potentials(eqx.Module):
    r"""The solution of a Sinkhorn problem, and how well it was solved.

    `g` is in the gauge $\sum_jw_jg_j=0$; `f` is its row update, so that every row of $k=e^{f\oplus g+c}$ is a
    probability against the weights exactly. `error` is the column defect $\sum_jw_j|a_j-1|$ at `g`; `converged` says
    whether every column is right up to the tolerance, or up to what the rounding of large logits allows (MATH b.1).
    """

    f: Float[Array, " n"]
    g: Float[Array, " n"]
    error: Scalar
    sweeps: Int[Array, ""]
    newton_steps: Int[Array, ""]
    converged: Bool[Array, ""]


class Report(NamedTuple):
    """How a problem was solved; the fields are those of `Potentials`."""

    error: Any
    sweeps: Any
    newton_steps: Any
    converged: Any


class Problem(eqx.Module):
    """Queries, keys and weights of a cloud against itself; `logit` makes $c_{ij}$ from a query and a key."""

    queries: Float[Array, "n k"]
    keys: Float[Array, "n k"]
    weights: Float[Array, " n"]
    logit: Callable[[Array, Array], Array] = eqx.field(static=True)
    sums: AbstractSums = Exact()

    def rows(self, g: Float[Array, " n"], values: Float[Array, "n v"] | None = None) -> tuple[Array, Array]:
        r"""Row averages of `values` with weights $w_je^{c_{ij}+g_j}$, and $f$."""
        mean, total = self._fold(self.logit, self.queries, self.keys, g, values)
        return mean, -total

    def columns(self, f: Float[Array, " n"], values: Float[Array, "n v"] | None = None) -> tuple[Array, Array]:
        r"""Column averages of `values` with weights $w_ie^{c_{ij}+f_i}$, and $\mathcal Tg$."""
        # Both kernels are symmetric in their two arguments, so keys may query.
        mean, total = self._fold(self.logit, self.keys, self.queries, f, values)
        return mean, -total

    def _fold(self, logit: Any, q: Array, k: Array, potential: Array, values: Array | None) -> tuple[Array, Array]:
        values = jnp.zeros((k.shape[0], 0), k.dtype) if values is None else values
        return self.sums.average(logit, q, Tokens(k, log_weights(self.weights) + potential, values))

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
        return jnp.sum(jnp.max(jnp.where(self.weights[None] > 0, squares, 0), axis=1))

    def heated(self, heat: Scalar) -> "Problem":
        """The problem with its logits multiplied by `heat`."""
        root = jnp.sqrt(heat)
        return Problem(root * self.queries, root * self.keys, self.weights, self.logit, self.sums)

    @property
    def symmetric(self) -> Bool[Array, ""]:
        r"""Whether $q_i\cdot k_j=q_j\cdot k_i$ for all visible tokens, asked of one vector in general position."""
        probe = jnp.where(self.weights > 0, jnp.sin(1 + jnp.arange(self.weights.size, dtype=self.keys.dtype) ** 2), 0)
        there, back = self.queries @ (probe @ self.keys), self.keys @ (probe @ self.queries)
        there, back = (jnp.where(self.weights > 0, image, 0) for image in (there, back))
        return jnp.abs(there - back).max() <= 100 * jnp.finfo(self.keys.dtype).eps * jnp.abs(there).max()

    def mirrored(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""The $g$ that equals $f$, for symmetric logits: $f$ and $g$ differ by the parts of $c$ in one variable."""
        f = self.rows(g)[1]
        if self.logit is dot:
            return f
        return f + jnp.sum(self.keys**2, axis=1) - jnp.sum(self.queries**2, axis=1)

    def sweep(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""$\mathcal Tg$."""
        return self.columns(self.rows(g)[1])[1]

    def defect(self, g: Array, swept: Array) -> Scalar:
        r"""$\sum_jw_j|a_j-1|$."""
        return jnp.sum(self.weights * jnp.abs(jnp.expm1(g - swept)))

    def worst_defect(self, g: Array, swept: Array) -> Scalar:
        r"""$\max_j|a_j-1|$ over the visible tokens: the weighted sum would hide tokens of tiny weight."""
        return jnp.max(jnp.where(self.weights > 0, jnp.abs(jnp.expm1(g - swept)), 0))

    def centred(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""`g` in the gauge $\sum_jw_jg_j=0$."""
        return g - jnp.sum(self.weights * g)


def _scaled_solve(problem: Problem, g: Array, mass: Array, rhs: Array, tol: Scalar | float, ridge: float) -> Array:
    r"""$\delta$ with $(I-CR)\delta=$ `rhs`, where $R$ and $C$ average over rows and columns of the plan at `g`.

    Scaled by $\sqrt{\texttt{mass}}$ the operator is symmetric with eigenvalues in $[1-s^2,1]$, but for the
    constants, which the gauge removes. At low temperature it is nearly singular, since groups of tokens that hardly
    exchange mass have hardly coupled potentials: `ridge` keeps the solution bounded there.
    """
    f = problem.rows(g)[1]
    root = jnp.sqrt(mass)
    safe = jnp.where(root > 0, root, 1)
    gauge = root / jnp.linalg.norm(root)

    def operator(h: Float[Array, "n v"]) -> Float[Array, "n v"]:
        average = problem.columns(f, problem.rows(g, h / safe[:, None])[0])[0]
        return (1 + ridge) * h - root[:, None] * average + gauge[:, None] * (gauge @ h)[None]

    def directly(_: Any, b: Array) -> Array:
        return jnp.linalg.solve(operator(jnp.eye(b.shape[0], dtype=b.dtype)), b)

    def iteratively(matvec: Callable[[Array], Array], b: Array) -> Array:
        # At low temperature the plan is almost a permutation and the operator almost zero, row by row: divide by its
        # diagonal, 1 - sum_i C_ji R_ij, which is one sum with twice the logits.
        if not isinstance(problem.sums, Exact):  # a grid does not resolve twice the logits
            return cg(matvec, b, tol=tol, maxiter=CG_STEPS)[0]  # pyright: ignore[reportArgumentType]
        doubled = 2 * g + log_weights(problem.weights) - problem.heated(jnp.asarray(2, g.dtype)).columns(2 * f)[1]
        sums = jnp.where(mass > 0, mass / jnp.where(mass > 0, problem.weights, 1), 1)
        diagonal = jnp.maximum(1 - jnp.exp(doubled) / sums, SMALLEST_DIAGONAL)
        return cg(matvec, b, tol=tol, maxiter=CG_STEPS, M=lambda h: h / diagonal[:, None])[0]  # pyright: ignore[reportArgumentType]

    # Said to be symmetric here, because reverse mode cannot transpose a solver by itself.
    solver = directly if problem.small else iteratively
    return jax.lax.custom_linear_solve(operator, (root * rhs)[:, None], solver, symmetric=True)[:, 0] / safe


def _newton(
    problem: Problem, g: Array, tol: Array, max_steps: Array, polish: Array
) -> tuple[Array, Array, Array, Array]:
    """Damped Newton steps, each followed by a sweep, until every column is right up to `tol`.

    Small defects do not bound the potentials of a badly conditioned problem, so `polish` asks for one more step.
    Returns `g`, its weighted defect, the worst defect that was reached, and the number of steps.
    """

    def step(carry: Any) -> Any:
        g, swept, error, best, _, stalled, count = carry
        polished = ~polish | (best <= tol)
        column_sums = jnp.exp(g - swept)
        # (diag(wa) - P^T W P) d = w (1 - a), divided by wa
        direction = _scaled_solve(
            problem, g, problem.weights * column_sums, 1 / column_sums - 1, jnp.clip(error, 1e-8, 1e-2), 1e-10
        )

        def halve(trial: Any) -> Any:
            length = trial[0] / 2
            candidate = g + length * direction
            candidate_swept = problem.sweep(candidate)
            return length, candidate_swept, problem.defect(candidate, candidate_swept)

        def worse(trial: Any) -> Array:
            return ~(trial[2] < error) & (trial[0] > 2.0**-HALVINGS)

        start = (jnp.asarray(2.0, g.dtype), swept, jnp.full((), jnp.inf, g.dtype))
        _, candidate_swept, reached = jax.lax.while_loop(worse, halve, start)
        better = reached < error
        g = problem.centred(jnp.where(better, candidate_swept, swept))
        swept = problem.sweep(g)
        worst = problem.worst_defect(g, swept)
        stalled = jnp.where(worst < 0.99 * best, 0, stalled + 1)
        return g, swept, problem.defect(g, swept), jnp.minimum(best, worst), polished, stalled, count + 1

    def unfinished(carry: Any) -> Array:
        *_, best, polished, stalled, count = carry
        return ~((best <= tol) & polished) & (stalled < STALL) & (count < max_steps)

    swept = problem.sweep(g)
    worst = problem.worst_defect(g, swept)
    none = jnp.zeros((), max_steps.dtype)
    # A start that is good enough comes from sweeps that contract fast: well conditioned.
    start = (g, swept, problem.defect(g, swept), worst, ~polish | (worst <= tol), none, none)
    g, _, error, best, *_, count = jax.lax.while_loop(unfinished, step, start)
    return g, error, best, count


def _sweeps(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, Array]:
    r"""Sweeps, as long as they contract fast; returns `g` and how many there were.

    For symmetric logits a sweep is half as long and averaged, $g\leftarrow\frac12(g+f)$: it then contracts by $\frac12$
    or better when $B\succeq0$, whatever the temperature (MATH b.3).
    """
    symmetric = problem.symmetric

    def averaged(g: Array) -> tuple[Array, Array]:
        mirrored = problem.mirrored(g)
        mirrored = mirrored + jnp.sum(problem.weights * (g - mirrored))
        return (g + mirrored) / 2, problem.worst_defect(g, mirrored)

    def alternating(g: Array) -> tuple[Array, Array]:
        swept = problem.sweep(g)
        return swept, problem.worst_defect(g, swept)

    def step(carry: Any) -> Any:
        g, error, _, count = carry
        new, new_error = jax.lax.cond(symmetric, averaged, alternating, g)
        return problem.centred(new), new_error, error, count + 1

    def worthwhile(carry: Any) -> Array:
        _, error, before, count = carry
        # log(error / tol) / log(before / error) more sweeps are to be expected
        fast = jnp.log(error / tol) < PATIENCE * jnp.log(before / error)
        return (error > tol) & (count < max_iter) & (fast | (count < TRIAL_SWEEPS))

    infinite = jnp.full((), jnp.inf, guess.dtype)
    start = (problem.centred(guess), infinite, infinite, jnp.zeros((), max_iter.dtype))
    g, _, _, count = jax.lax.while_loop(worthwhile, step, start)
    return g, count


def _solve(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, Report]:
    """Sweeps, then Newton steps; if they fail, Newton steps down a ladder of temperatures.

    At a high temperature every problem is easy, and the solution, scaled, is a good start at half that temperature.
    """
    g, sweeps = _sweeps(problem, guess, tol, max_iter)
    cost = 1 if problem.small else CG_STEPS
    hottest = jnp.minimum(1, EASY_LOGIT / problem.largest_logit)

    def level(carry: Any) -> Any:
        heat, g, _, _, climbed, count = carry
        last = heat >= 1
        target = jnp.where(last, tol, jnp.maximum(tol, 1e-3))
        budget = (max_iter - sweeps - cost * count + cost - 1) // cost
        budget = jnp.where(climbed, budget, jnp.minimum(budget, FIRST_STEPS))
        g, error, worst, steps = _newton(problem.heated(heat), g, target, budget, last)
        climb = last & (worst > tol) & ~climbed
        cooler = jnp.where(climb, hottest, jnp.minimum(1, 2 * heat))
        g = jnp.where(climb, 0, g * jnp.where(last, 1, cooler / heat))
        # No temperature is left after the last level; the climb to the top of the ladder is made once.
        heat = jnp.where(last & ~climb, jnp.inf, cooler)
        return heat, g, error, worst <= tol, climbed | climb, count + steps

    def unfinished(carry: Any) -> Array:
        return jnp.isfinite(carry[0])

    no = jnp.asarray(False)
    start = (jnp.ones_like(tol), g, jnp.full_like(tol, jnp.inf), no, no, jnp.zeros_like(sweeps))
    _, g, error, converged, _, steps = jax.lax.while_loop(unfinished, level, start)
    return g, Report(error, sweeps, steps, converged)


@jax.custom_jvp
def _root(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, Report]:
    """The solution as a function of the problem alone; the other arguments only say how to find it."""
    return _solve(problem, guess, tol, max_iter)


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> Any:
    r"""Implicit differentiation of $g=\mathcal T(g)$: $(I-CR)\dot g=\partial\mathcal T$ at fixed $g$."""
    problem = primals[0]
    g, report = _root(*primals)
    _, moved = jax.jvp(lambda p: p.sweep(g), (problem,), (tangents[0],))
    g_dot = _scaled_solve(problem, g, problem.weights, moved, 1e-11, 1e-14)
    no_tangents = Report(jnp.zeros_like(report.error), *(np.zeros(c.shape, jax.dtypes.float0) for c in report[1:]))
    return (g, report), (g_dot, no_tangents)


def solve(problem: Problem, guess: Float[Array, " n"], tol: Scalar, max_iter: Int[Array, ""]) -> Potentials:
    """The potentials, differentiable in the queries, keys and weights by the implicit function theorem (both modes)."""
    tol = jnp.maximum(tol, jax.lax.stop_gradient(problem.rounding))
    g, report = _root(problem, jax.lax.stop_gradient(guess), tol, max_iter)
    g = problem.centred(jnp.where(problem.weights > 0, g, 0))
    f = problem.rows(g)[1]
    # Tokens of zero weight are not in the problem; their potential is the one off the support.
    g = jnp.where(problem.weights > 0, g, problem.columns(f)[1])
    return Potentials(f, g, *report)

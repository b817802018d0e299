r"""The Sinkhorn potentials of a weighted cloud against itself, in the log domain and without an n x n array.

$(f,g)$ make $k_{ij}=e^{f_i+g_j+c_{ij}}$ bistochastic against the weights. $f$ is a function of $g$ (row normalisation),
so the unknown is $g$ alone, a fixed point of the sweep $\mathcal T$ (MATH b.3):

$$f_i=-\operatorname{lse}_j(c_{ij}+g_j+\log w_j),\qquad(\mathcal Tg)_j=-\operatorname{lse}_i(c_{ij}+f_i+\log w_i),$$

and the column sums are $a_j=e^{g_j-(\mathcal Tg)_j}$. It maximises the concave semi-dual $\sum w_if_i+\sum w_jg_j$,
whose gradient is $w_j(1-a_j)$ and whose Hessian is $-(\mathrm{diag}(wa)-P^\top WP)$, $P$ the row-stochastic plan.
Sweeps are used while they contract fast; then damped Newton steps, by conjugate gradients with blocked products, if
need be down a ladder of temperatures.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar
from ..reduce.exact import Average, Tokens, fold_tokens
from .kernel import log_weights

# Sweeps before the contraction is judged, and how many more are cheaper than Newton steps.
TRIAL_SWEEPS = 6
PATIENCE = 30
HALVINGS = 8
# Newton steps without progress after which a level of temperature is given up.
STALL = 4
# Logits at which the ladder of temperatures starts.
EASY_LOGIT = 8.0


class Potentials(eqx.Module):
    r"""The solution of a Sinkhorn problem, and how well it was solved.

    `g` is in the gauge $\sum_jw_jg_j=0$; `f` is its row update, so that every row of $k=e^{f\oplus g+c}$ is a
    probability against the weights exactly. `error` is the column defect $\sum_jw_j|a_j-1|$ at `g`; `converged` says
    whether it is below the tolerance asked, or below what the rounding of large logits allows (MATH b.1).
    """

    f: Float[Array, " n"]
    g: Float[Array, " n"]
    error: Scalar
    sweeps: Int[Array, ""]
    newton_steps: Int[Array, ""]
    converged: Bool[Array, ""]


class Problem(eqx.Module):
    """Queries, keys and weights of a cloud against itself; `logit` makes $c_{ij}$ from a query and a key."""

    queries: Float[Array, "n k"]
    keys: Float[Array, "n k"]
    weights: Float[Array, " n"]
    logit: Callable[[Array, Array], Array] = eqx.field(static=True)

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
        return fold_tokens(Average(), logit, q, Tokens(k, log_weights(self.weights) + potential, values))

    @property
    def rounding(self) -> Scalar:
        """The marginal error that the rounding of the logits leaves: no iteration gets below it."""
        return 4 * jnp.finfo(self.keys.dtype).eps * self.largest_logit

    @property
    def largest_logit(self) -> Scalar:
        """A bound on the logits, up to a factor of two."""
        return jnp.max(jnp.sum(self.queries**2, axis=1)) + jnp.max(jnp.sum(self.keys**2, axis=1))

    def heated(self, heat: Scalar) -> "Problem":
        """The problem with its logits multiplied by `heat`."""
        root = jnp.sqrt(heat)
        return Problem(root * self.queries, root * self.keys, self.weights, self.logit)

    def sweep(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""$\mathcal Tg$."""
        return self.columns(self.rows(g)[1])[1]

    def defect(self, g: Array, swept: Array) -> Scalar:
        r"""$\sum_jw_j|a_j-1|$."""
        return jnp.sum(self.weights * jnp.abs(jnp.expm1(g - swept)))

    def centred(self, g: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""`g` in the gauge $\sum_jw_jg_j=0$."""
        return g - jnp.sum(self.weights * g)


def _scaled_solve(problem: Problem, g: Array, mass: Array, rhs: Array, tol: float) -> Array:
    r"""$\delta$ with $(I-CR)\delta=$ `rhs`, where $R$ and $C$ average over rows and columns of the plan at `g`.

    Scaled by $\sqrt{\texttt{mass}}$ the operator is symmetric with eigenvalues in $[1-s^2,1]$, but for the
    constants, which the gauge removes; conjugate gradients, with blocked products, solve it.
    """
    f = problem.rows(g)[1]
    root = jnp.sqrt(mass)
    safe = jnp.where(root > 0, root, 1)
    gauge = root / jnp.linalg.norm(root)

    def operator(h: Array) -> Array:
        average = problem.columns(f, problem.rows(g, (h / safe)[:, None])[0])[0][:, 0]
        return h - root * average + gauge * (gauge @ h)

    def solve(matvec: Callable[[Array], Array], b: Array) -> Array:
        return cg(matvec, b, tol=tol, maxiter=300)[0]

    # Said to be symmetric here, because reverse mode cannot transpose `cg` by itself.
    return jax.lax.custom_linear_solve(operator, root * rhs, solve, symmetric=True) / safe


def _newton(problem: Problem, g: Array, tol: Array, max_steps: Array) -> tuple[Array, Array, Array]:
    """Damped Newton steps, each followed by a sweep, until the defect is below `tol`."""

    def step(carry: Any) -> Any:
        g, swept, error, best, stalled, count = carry
        column_sums = jnp.exp(g - swept)
        # (diag(wa) - P^T W P) d = w (1 - a), divided by wa
        direction = _scaled_solve(problem, g, problem.weights * column_sums, 1 / column_sums - 1, tol=1e-8)

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
        error = problem.defect(g, swept)
        stalled = jnp.where(error < 0.99 * best, 0, stalled + 1)
        return g, swept, error, jnp.minimum(best, error), stalled, count + 1

    def unfinished(carry: Any) -> Array:
        _, _, error, _, stalled, count = carry
        return (error > tol) & (stalled < STALL) & (count < max_steps)

    swept = problem.sweep(g)
    error = problem.defect(g, swept)
    none = jnp.zeros((), max_steps.dtype)
    g, _, error, *_, count = jax.lax.while_loop(unfinished, step, (g, swept, error, error, none, none))
    return g, error, count


def _sweeps(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, Array]:
    """Plain sweeps, as long as they contract fast; returns `g` and how many there were."""

    def step(carry: Any) -> Any:
        g, error, _, count = carry
        swept = problem.sweep(g)
        return problem.centred(swept), problem.defect(g, swept), error, count + 1

    def worthwhile(carry: Any) -> Array:
        _, error, before, count = carry
        # log(error / tol) / log(before / error) more sweeps are to be expected
        fast = jnp.log(error / tol) < PATIENCE * jnp.log(before / error)
        return (error > tol) & (count < max_iter) & (fast | (count < TRIAL_SWEEPS))

    infinite = jnp.full((), jnp.inf, guess.dtype)
    start = (problem.centred(guess), infinite, infinite, jnp.zeros((), max_iter.dtype))
    g, _, _, count = jax.lax.while_loop(worthwhile, step, start)
    return g, count


def _solve(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    """Sweeps, then Newton steps; if they fail, Newton steps down a ladder of temperatures.

    At a high temperature every problem is easy, and the solution, scaled, is a good start at half that temperature.
    """
    g, sweeps = _sweeps(problem, guess, tol, max_iter)
    hottest = jnp.minimum(1, EASY_LOGIT / problem.largest_logit)

    def level(carry: Any) -> Any:
        heat, g, _, climbed, count = carry
        last = heat >= 1
        target = jnp.where(last, tol, jnp.maximum(tol, 1e-3))
        g, error, steps = _newton(problem.heated(heat), g, target, max_iter - sweeps - count)
        climb = last & (error > tol) & ~climbed
        cooler = jnp.where(climb, hottest, jnp.minimum(1, 2 * heat))
        g = jnp.where(climb, 0, g * jnp.where(last, 1, cooler / heat))
        # The error at a high temperature says nothing about the problem itself.
        return (
            jnp.where(last & ~climb, jnp.inf, cooler),
            g,
            jnp.where(last, error, jnp.inf),
            climbed | climb,
            count + steps,
        )

    def unfinished(carry: Any) -> Array:
        return jnp.isfinite(carry[0])

    start = (jnp.ones_like(tol), g, jnp.full_like(tol, jnp.inf), jnp.asarray(False), jnp.zeros_like(sweeps))
    _, g, error, _, steps = jax.lax.while_loop(unfinished, level, start)
    return g, (error, sweeps, steps)


@jax.custom_jvp
def _root(problem: Problem, guess: Array, tol: Array, max_iter: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    """The solution as a function of the problem alone; the other arguments only say how to find it."""
    return _solve(problem, guess, tol, max_iter)


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> Any:
    r"""Implicit differentiation of $g=\mathcal T(g)$: $(I-CR)\dot g=\partial\mathcal T$ at fixed $g$."""
    problem = primals[0]
    g, report = _root(*primals)
    _, moved = jax.jvp(lambda p: p.sweep(g), (problem,), (tangents[0],))
    g_dot = _scaled_solve(problem, g, problem.weights, moved, tol=1e-11)
    error, *counts = report
    no_tangents = (jnp.zeros_like(error), *(np.zeros(c.shape, jax.dtypes.float0) for c in counts))
    return (g, report), (g_dot, no_tangents)


def solve(problem: Problem, guess: Float[Array, " n"], tol: Scalar, max_iter: Int[Array, ""]) -> Potentials:
    """The potentials, differentiable in the queries, keys and weights by the implicit function theorem (both modes)."""
    tol = jnp.maximum(tol, jax.lax.stop_gradient(problem.rounding))
    g, (error, sweeps, steps) = _root(problem, jax.lax.stop_gradient(guess), tol, max_iter)
    g = problem.centred(jnp.where(problem.weights > 0, g, 0))
    f = problem.rows(g)[1]
    # Tokens of zero weight are not in the problem; their potential is the one off the support.
    g = jnp.where(problem.weights > 0, g, problem.columns(f)[1])
    return Potentials(f, g, error, sweeps, steps, error <= tol)

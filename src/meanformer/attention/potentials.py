r"""The Sinkhorn potentials of a weighted cloud against itself, in the log domain and without an n x n array.

`problem` has the mathematics, `iteration` the solver. Here is what they give: potentials and the values mixed with
them, as functions of the problem, with derivatives.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._types import Scalar
from .._warm import Module
from .iteration import CG_STEPS, Machine
from .problem import Problem

# Marginal errors above this are no solution, even where the rounding of the logits allows no better.
MOST_ROUNDING = 1e-2


class Potentials(Module):
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


@jax.custom_jvp
def _root(problem: Problem, values: Array, guess: Array, tol: Array, max_iter: Array) -> tuple[Any, Report]:
    r"""$f$, $g$ and $\sum_jw_jk_{ij}v_j$, functions of the problem and the values alone; the other arguments only say
    how to find them.
    """
    end = Machine(problem, tol, max_iter, values).run(guess)
    return (end.f, end.g, end.mixed), Report(end.error, end.sweeps, end.steps, end.converged)


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> Any:
    r"""Implicit differentiation of $g=\mathcal T(g)$: $(I-CR)\dot g=\partial\mathcal T$ at fixed $g$."""
    problem, values, *_ = primals
    (f, g, mixed), report = _root(*primals)
    _, moved = jax.jvp(lambda p: p.sweep(g), (problem,), (tangents[0],))
    system = problem.system(f, g, jnp.ones_like(g))
    g_dot = system.solved(moved, 1e-11, 1e-14, CG_STEPS)
    _, dots = jax.jvp(_completed, (problem, g, values), (tangents[0], g_dot, tangents[1]))
    no_tangents = Report(jnp.zeros_like(report.error), *(np.zeros(c.shape, jax.dtypes.float0) for c in report[1:]))
    return ((f, g, mixed), report), (dots, no_tangents)


def _completed(problem: Problem, g: Array, values: Array) -> tuple[Array, Array, Array]:
    """`f`, `g` and the mixed values as functions of `g` on the support: in its gauge, and off the support."""
    g = problem.centred(jnp.where(problem.visible, g, 0))
    mixed, f = problem.rows(g, values)
    return f, jnp.where(problem.visible, g, problem.columns(f)[1]), mixed


def solve(
    problem: Problem,
    guess: Float[Array, " n"],
    tol: Scalar,
    max_iter: Int[Array, ""],
    values: Float[Array, "n v"] | None = None,
) -> tuple[Potentials, Float[Array, "n v"]]:
    """The potentials and the values mixed with them, in one program with one sum over tokens; differentiable in the
    queries, keys, weights and values by the implicit function theorem (both modes).
    """
    values = jnp.zeros((guess.size, 0), guess.dtype) if values is None else values
    # Beyond a certain rounding nothing is solved, and that is told.
    tol = jnp.maximum(tol, jnp.minimum(jax.lax.stop_gradient(problem.rounding), MOST_ROUNDING))
    (f, g, mixed), report = _root(problem, values, jax.lax.stop_gradient(guess), tol, max_iter)
    return Potentials(f, g, *report), mixed

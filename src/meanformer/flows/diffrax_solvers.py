"""Solvers for diffrax: Rodas5P, and a solver that returns to the space after each step."""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..rosenbrock import H, rodas5p_step


class _Rodas5PInterpolation(diffrax.AbstractLocalInterpolation):
    """The dense output of Rodas5P, of order 4."""

    t0: Any
    t1: Any
    y0: Any
    y1: Any
    bends: Any

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return jax.tree.map(lambda b, a: b - a, self.evaluate(t1), self.evaluate(t0))
        u = jnp.where(self.t1 > self.t0, (t0 - self.t0) / jnp.where(self.t1 > self.t0, self.t1 - self.t0, 1), 0)

        def between(a: Any, b: Any, c: Any) -> Any:
            return (1 - u) * a + u * (b + (1 - u) * (c[0] + u * (c[1] + u * c[2])))

        return jax.tree.map(between, self.y0, self.y1, self.bends)


class Rodas5P(diffrax.AbstractAdaptiveSolver):
    """The linearly implicit method of `meanformer.rosenbrock`, for stiff equations of up to a few hundred unknowns."""

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = _Rodas5PInterpolation

    def order(self, terms):
        return 5

    def error_order(self, terms):
        return 5

    def init(self, terms, t0, t1, y0, args):
        return None

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        flat, unravel = ravel_pytree(y0)

        def velocity(t: Any, y: Any) -> Any:
            return ravel_pytree(terms.vf(t, unravel(y), args))[0]

        # A member of a batch that has ended makes steps of length zero, which count for nothing.
        t, h = jnp.asarray(t0, flat.dtype), jnp.asarray(jnp.where(t1 > t0, t1 - t0, 1), flat.dtype)
        y1, error, stages = rodas5p_step(velocity, t, flat, h, autonomous=False)
        dense = {"y0": y0, "y1": unravel(y1), "bends": jax.vmap(unravel)(jnp.asarray(H, flat.dtype) @ stages)}
        return unravel(y1), unravel(error), dense, None, diffrax.RESULTS.successful

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


class Retracting(diffrax.AbstractWrappedSolver):
    """A solver that brings the state back to the space after each step (MATH b.9)."""

    solver: diffrax.AbstractSolver
    retract: Callable[[PyTree], PyTree]

    @property
    def term_structure(self):
        return self.solver.term_structure

    @property
    def interpolation_cls(self):
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self):
        # A wrapped Runge-Kutta solver counts as one, and diffrax looks for (and sets) this on it.
        return self.solver.scan_kind  # pyright: ignore[reportAttributeAccessIssue]

    def order(self, terms):
        return self.solver.order(terms)

    def strong_order(self, terms):
        return self.solver.strong_order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        y1, error, dense, solver_state, result = self.solver.step(terms, t0, t1, y0, args, solver_state, made_jump)
        return self.retract(y1), error, dense, solver_state, result

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

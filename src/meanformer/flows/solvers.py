"""Solvers by name, and a solver that returns to the space after each step."""

from collections.abc import Callable
from typing import Any

import diffrax
from jaxtyping import PyTree

from .. import _checks as checks

SOLVERS: dict[str, Callable[[], diffrax.AbstractSolver]] = {
    "tsit5": diffrax.Tsit5,
    "dopri5": diffrax.Dopri5,
    "dopri8": diffrax.Dopri8,
    "bosh3": diffrax.Bosh3,
    "heun": diffrax.Heun,
    "midpoint": diffrax.Midpoint,
    "euler": diffrax.Euler,
    "kvaerno3": diffrax.Kvaerno3,
    "kvaerno5": diffrax.Kvaerno5,
}


def resolve_solver(solver: Any) -> diffrax.AbstractSolver:
    """A diffrax solver from its name, or as it is."""
    if isinstance(solver, diffrax.AbstractSolver):
        return solver
    return SOLVERS[checks.one_of(solver, "solver", SOLVERS)]()


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

"""Solvers by name. Diffrax is imported only for those that need it."""

from typing import Any

from .. import _checks as checks
from .methods import method_of

# Those with a method of our own (`meanformer.flows.methods`) use it on the host.
NAMES = {
    "tsit5": "Tsit5",
    "dopri5": "Dopri5",
    "dopri8": "Dopri8",
    "bosh3": "Bosh3",
    "heun": "Heun",
    "midpoint": "Midpoint",
    "euler": "Euler",
    "kvaerno3": "Kvaerno3",
    "kvaerno5": "Kvaerno5",
    "rodas5p": "Rodas5P",
}


def checked_solver(solver: Any) -> Any:
    """A known name, or a solver of diffrax."""
    if not isinstance(solver, str) and solver is not None:
        import diffrax

        if isinstance(solver, diffrax.AbstractSolver):
            return solver
    return checks.one_of(solver, "solver", NAMES)


def diffrax_solver(solver: Any) -> Any:
    """The solver of diffrax of this name, or as it is."""
    import diffrax

    if not isinstance(solver, str):
        return solver
    if solver == "rodas5p":
        from .diffrax_solvers import Rodas5P

        return Rodas5P()
    return getattr(diffrax, NAMES[solver])()


def estimates_errors(solver: Any) -> bool:
    """Whether steps can be chosen by error control."""
    method = method_of(solver)
    if method is not None:
        return method.order > 0
    import diffrax

    return isinstance(diffrax_solver(solver), diffrax.AbstractAdaptiveSolver)

"""How a run ended, in words with advice. A numerical failure is an outcome, never an exception."""

import enum

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from . import _checks as checks
from ._types import is_traced


class Ending(enum.IntEnum):
    """The ways in which the computing of a run can end."""

    REACHED = 0
    STOPPED = 1
    STEP_LIMIT = 2
    STEP_TOO_SMALL = 3
    NOT_FINITE = 4
    SINKHORN_STALLED = 5
    FATE_KNOWN = 6
    UNFINISHED = 7


_WORDS = {
    Ending.REACHED: "reached t1",
    Ending.STOPPED: "stopped by a rule",
    Ending.FATE_KNOWN: "the fate is known",
    Ending.STEP_LIMIT: (
        "ran out of steps; raise max_steps, loosen rtol (of a density: take larger cells), or shorten the run"
    ),
    Ending.STEP_TOO_SMALL: (
        "the step became too small: the solution probably blows up near this time (or rtol is too strict for the "
        "dtype); end the run earlier, or rescale the weights"
    ),
    Ending.NOT_FINITE: "the state left the floating-point range: blow-up; end the run earlier, or rescale the weights",
    Ending.SINKHORN_STALLED: (
        "Sinkhorn iterations did not reach their tolerance, so the velocities are not those of Sinkhorn attention; "
        "raise max_iter or eps, or loosen tol"
    ),
    Ending.UNFINISHED: "not finished: the run goes on, or was interrupted; `meanformer resume` its folder to go on",
}


class Outcome(eqx.Module):
    """How a run ended: `kind` (a word), `time`, `ok`, and `str(outcome)`, a sentence with advice.

    Under `jit`, `vmap` or `grad` only `code` (an integer, see `Ending`) and `time` are available, as arrays.
    """

    code: Int[Array, "*batch"]
    time: Float[Array, "*batch"]

    @property
    def kind(self) -> str:
        """The ending, as a word: the name of an `Ending`."""
        if is_traced(self.code):
            checks.refuse(
                "an outcome has words after the run only",
                got="a traced outcome, under jit, vmap or grad",
                expected="a finished run",
                remedy="compare run.outcome.code with meanformer.outcome.Ending",
            )
        return Ending(int(self.code)).name

    @property
    def ok(self) -> Array | bool:
        """Whether the run did what was asked: it reached t1, a stop rule or its fate."""
        fine = (self.code == Ending.REACHED) | (self.code == Ending.STOPPED) | (self.code == Ending.FATE_KNOWN)
        return fine if is_traced(fine) or jnp.ndim(fine) else bool(fine)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if is_traced(self.code) or jnp.ndim(self.code):
            return f"Outcome(code={self.code})"
        return f"{self.kind} at t = {float(self.time):.6g}: {_WORDS[Ending(int(self.code))]}"

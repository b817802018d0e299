"""How a run ended, in words with advice. A numerical failure is an outcome, never an exception."""

import enum

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from . import _checks as checks
from ._types import AnyArray, is_traced
from ._warm import Module
from .display.card import BAD, GOOD, Html, shown, status


class Ending(enum.IntEnum):
    """The ways in which the computing of a run can end: what the integers in `run.outcome.code` mean.

    - `REACHED` (0): the run reached `t1`, or its last layer.
    - `STOPPED` (1): a stop rule held.
    - `STEP_LIMIT` (2): `max_steps` steps did not reach `t1`.
    - `STEP_TOO_SMALL` (3): error control asked for a step that is too small beside t and t1; as a rule, a blow-up near
      this time.
    - `NOT_FINITE` (4): the state left the floating-point range, or its velocity did.
    - `SINKHORN_STALLED` (5): a Sinkhorn problem on the way was not solved to its tolerance.
    - `FATE_KNOWN` (6): a Gaussian run to `t1=jnp.inf` ended when its fate was known.
    - `UNFINISHED` (7): a loaded run that goes on, or was interrupted.

    ```python
    outcome = mf.Outcome(code=jnp.asarray(4), time=jnp.asarray(0.5))
    assert outcome.code == mf.Ending.NOT_FINITE and outcome.kind == "NOT_FINITE"
    ```
    """

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
        "the step became too small beside t and t1: the solution blows up near this time, or t1 is very far, or rtol "
        "too strict for the dtype; end the run earlier, or rescale the weights"
    ),
    Ending.NOT_FINITE: (
        "the state, or its velocity, left the floating-point range: a blow-up, growth for long, or logits that "
        "overflow; end the run earlier, raise tau, or rescale the weights"
    ),
    Ending.SINKHORN_STALLED: (
        "Sinkhorn iterations did not reach their tolerance, so the velocities are not those of Sinkhorn attention; "
        "raise max_iter or eps, or loosen tol"
    ),
    Ending.UNFINISHED: "not finished: the run goes on, or was interrupted; `meanformer resume` its folder to go on",
}


class Outcome(Module):
    """How a run ended: `kind` (a word), `time`, `ok`, and `str(outcome)`, a sentence with advice.

    A numerical failure is an outcome, never an exception. Under `jit`, `vmap` or `grad` only `code` (an integer, see
    `Ending`), `time` and `ok` are available, as arrays.

    ```python
    tokens = mf.uniform_cube(d=2).sample(40, key=jax.random.key(0))
    run = mf.flow(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens, t1=1.0)
    assert run.outcome.ok and str(run.outcome) == "REACHED at t = 1: reached t1"
    ```
    """

    code: Int[AnyArray, "*batch"]
    """The ending as an integer, see `Ending`; one per run in a batch."""
    time: Float[AnyArray, "*batch"]
    """The time at which the computing ended."""

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
        """Whether the run did what was asked: it reached t1, a stop rule or its fate. An array for a batch."""
        fine = (self.code == Ending.REACHED) | (self.code == Ending.STOPPED) | (self.code == Ending.FATE_KNOWN)
        return fine if is_traced(fine) or jnp.ndim(fine) else bool(fine)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if is_traced(self.code) or jnp.ndim(self.code):
            return f"Outcome(code={self.code})"
        return f"{self.kind} at t = {float(self.time):.6g}: {_WORDS[Ending(int(self.code))]}"

    @shown
    def _repr_html_(self) -> Html:
        fine = np.isin(np.asarray(self.code), [Ending.REACHED, Ending.STOPPED, Ending.FATE_KNOWN])
        words = f"{fine.sum()} of {fine.size} runs did what was asked" if fine.ndim else str(self)
        return status(GOOD if fine.all() else BAD, words)

"""Gaussian runs until their fate is known, and what finite runs tell of it."""

import dataclasses
import time as clock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._programs.call import program
from .._progress import Progress
from .._types import Scalar, cast, is_traced
from ..attention.base import AbstractField
from ..attention.schedule import constant_at, is_constant
from ..fate import Fate, FateKind
from ..gaussian.classify import FASTER, Record, classify, limit_of, look, stationary, turned, unit_speed_of
from ..gaussian.march import (
    IMPLICIT_SIZE,
    March,
    Sight,
    bounded_speed,
    leaves_of,
    mean_matters,
    needs_patience,
    segment,
    sight,
    start,
)
from ..gaussian.mean import mean_path
from ..gaussian.units import Units, own_units
from ..measures.gaussian import Gaussian
from ..outcome import Ending, Outcome
from .gaussians import GaussianSystem
from .journal import AbstractJournal, Kept, shell_of
from .observe import Observer
from .save import DEFAULT_COUNT
from .stepping import Control
from .stop import WallClock
from .trajectory import Trajectory

# As in a batch: two looks in a segment of sixteen steps.
LOOKS, STEPS = 2, 8
# Steps to try: implicit ones are few, explicit ones cheap.
IMPLICIT_BUDGET, EXPLICIT_BUDGET = 2000, 4000


@program
def _start(field: AbstractField, gaussian: Gaussian, with_mean: bool) -> tuple[March, Sight]:
    march = start(field, gaussian, with_mean)
    return march, sight(field, march, with_mean)


@program
def _advance(field: AbstractField, march: March, rtol: Scalar, with_mean: bool) -> tuple[March, Sight, Any]:
    return segment(field, march, rtol, LOOKS, STEPS, with_mean, keep=True)


def endless_run(
    system: GaussianSystem,
    t0: Scalar,
    rtol: Any,
    save: Any,
    stop: Any,
    max_steps: int | None,
    progress: bool | None,
    unused: dict[str, Any],
    began: float,
    journal: AbstractJournal,
    call: tuple[Any, Any, dict[str, Any]],
) -> Trajectory:
    """March a Gaussian until its fate is known, or its steps are spent; save some of the states on the way."""
    seconds = checked_endless(system, t0, save, stop, unused)
    count = DEFAULT_COUNT if save is None else checks.whole(save, "save", 2)
    # Fates are told in double precision, whatever the dtype of the start.
    rtol = float(checks.relative_tolerance(1e-8 if rtol is None else rtol, jnp.zeros(()).dtype, "1e-8"))
    progress = None if progress is None else checks.flag(progress, "progress")
    usual = IMPLICIT_BUDGET if system.unknowns <= IMPLICIT_SIZE else EXPLICIT_BUDGET
    budget = checks.whole(usual if max_steps is None else max_steps, "max_steps")
    # Ranks are read from small singular values.
    field, mu = cast((system.field, system.mu), jnp.zeros(()).dtype)
    field, mu, units = own_units(field, mu, mean_matters(field))
    watch = _Watch(field, mu, LOOKS * -(-budget // (LOOKS * STEPS)))
    finished = journal.begin("flow", *call)
    if finished is not None:
        return finished
    earlier = journal.resume(
        lambda: shell_of(system, Observer(None, {}), t0, False), watch.state(), (watch.times[0], watch.states[0])
    )
    if earlier is not None:
        watch.restore(earlier)
        began -= earlier.note["seconds"]
    with Progress(progress, 0, budget, "flow to its fate", "steps:") as bar:
        while watch.goes_on and clock.monotonic() - began < seconds:
            watch.advance(rtol)
            bar.update(int(watch.march.tries), int(watch.march.tries))
            row = float(watch.march.t), (watch.times[-1], watch.states[-1])
            journal.keep([row], watch.state(), {"done": watch.done, "seconds": clock.monotonic() - began})
    ending = Ending.FATE_KNOWN if watch.kind != FateKind.UNDECIDED else Ending.STEP_LIMIT
    if watch.goes_on:
        ending = Ending.STOPPED
    times, states = watch.path()
    if watch.with_mean:
        means, factors, mean_rate = states[:, :, -1], states[:, :, :-1], None
    else:
        means, mean_rate = mean_path(field, times, states, np.asarray(mu.mean))
        factors = states
    fate = watch.fate(rtol, float(t0), mean_rate, units)
    times, means, factors = units.time(times), units.lengths(means), units.lengths(factors)
    rows = np.unique(np.linspace(0, len(times) - 1, count).round().astype(int))
    saved = cast((jnp.asarray(means[rows]), jnp.asarray(factors[rows])), system.dtype)
    times = jnp.asarray(float(t0) + times[rows], system.dtype)
    tried, moved = int(watch.march.tries), watch.accepted
    stats = {"steps": moved, "rejected": tried - moved, "seconds": clock.monotonic() - began}
    last = jax.tree.map(lambda a: a[-1], saved)
    outcome = Outcome(jnp.asarray(int(ending)), times[-1])
    run = Trajectory(times, saved, last, outcome, stats, system, False, fate)
    journal.finish(run)
    return run


class _Watch:
    """A march, and what has been seen of it."""

    def __init__(self, field: AbstractField, mu: Gaussian, looks: int):
        self.field, self.with_mean = field, mean_matters(field)
        self.march, seen = _start(field, _compressed(mu), self.with_mean)
        self.bounded = np.atleast_1d(bounded_speed(leaves_of(field)))
        self.patient = needs_patience(field)
        self.record = Record.empty(1, looks + 1, self.march.Y.shape[1] - self.with_mean)
        self.looks, self.done = looks, 0
        self.rotation = np.eye(self.record.slopes.shape[2])
        self._look(seen, 0)
        Y, F, G = (np.asarray(a)[None] for a in (seen.Y, seen.F, seen.G))
        self.speed = unit_speed_of(Y, F, G, with_mean=self.with_mean)
        self.times, self.states = [np.zeros(1)], [np.asarray(self.march.Y)[None]]
        alive = stationary(self.record.singular[:, 0])
        still = self.speed == 0
        self.answer = {
            "kind": np.where(still, int(FateKind.CONVERGED), int(FateKind.UNDECIDED)),
            "time": np.zeros(1),
            "error": np.zeros(1),
            "rank": np.where(still, alive.sum(axis=1), -1),
            "exponent": np.zeros(1),
            "alive": alive,
            "gave_up": np.zeros(1, bool),
        }

    @property
    def kind(self) -> FateKind:
        return FateKind(int(self.answer["kind"][0]))

    @property
    def goes_on(self) -> bool:
        """Whether it is worth to march on."""
        spent = self.done >= self.looks or not np.isfinite(self.record.log_size[0, self.done])
        return self.kind == FateKind.UNDECIDED and not spent and not self.answer["gave_up"][0]

    @property
    def accepted(self) -> int:
        return int((np.diff(np.concatenate(self.times)) > 0).sum())

    def state(self) -> Any:
        """What a journal keeps of it, besides the path."""
        return self.march, vars(self.record), self.rotation

    def restore(self, kept: Kept) -> None:
        """Go on from what a journal kept."""
        self.march, record, self.rotation = kept.state
        self.record = Record(**{name: np.array(values) for name, values in record.items()})
        self.times += [times for _, (times, _) in kept.rows]
        self.states += [states for _, (_, states) in kept.rows]
        self.done = kept.note["done"]
        self._classify()

    def _look(self, seen: Any, number: int) -> None:
        t, Y, F, dF, G = (np.asarray(a)[None] for a in (seen.t, seen.Y, seen.F, seen.dF, seen.G))
        factor = Y[:, :, :-1] if self.with_mean else Y
        for name, values in look(t, Y, F, dF, G, factor).items():
            getattr(self.record, name)[:, number] = values

    def advance(self, rtol: float) -> None:
        """One segment more, and what it shows."""
        self.march, seen, (times, states) = _advance(self.field, self.march, jnp.asarray(rtol), self.with_mean)
        self.times.append(np.asarray(times).reshape(-1))
        states = np.asarray(states).reshape(-1, *self.march.Y.shape)
        # All states are kept in the gauge of the start, so that they can be interpolated.
        width = states.shape[2] - self.with_mean
        self.states.append(np.concatenate([states[..., :width] @ self.rotation.T, states[..., width:]], axis=2))
        Y, rotation = turned(np.asarray(self.march.Y)[None], self.with_mean)
        self.march = eqx.tree_at(lambda m: m.Y, self.march, jnp.asarray(Y[0]))
        self.rotation = self.rotation @ rotation[0]
        for k in range(LOOKS):
            self._look(jax.tree.map(lambda a, k=k: np.asarray(a)[k], seen), self.done + 1 + k)
        self.done += LOOKS
        self._classify()

    def _classify(self) -> None:
        self.answer = classify(self.record.rows(np.arange(1), self.done), self.speed, self.patient, self.bounded)

    def path(self) -> tuple[np.ndarray, np.ndarray]:
        """Times and states of the start and of all accepted steps."""
        times, states = np.concatenate(self.times), np.concatenate(self.states)
        rows = np.flatnonzero(np.append(True, np.diff(times) > 0) & np.isfinite(states).all(axis=(1, 2)))
        return times[rows], states[rows]

    def fate(self, rtol: float, t0: float, mean_rate: float | None, units: Units) -> Fate:
        """The fate, in words."""
        now = {name: values[0, self.done] for name, values in vars(self.record).items()}
        converged = self.kind == FateKind.CONVERGED
        time, error = float(self.answer["time"][0]), float(self.answer["error"][0])
        if self.kind == FateKind.BLEW_UP:
            error += 10 * rtol * time
        Y = np.asarray(self.march.Y)[None]
        factor = Y[:, :, :-1] if self.with_mean else Y
        return Fate(
            kind=self.kind.name,
            time=t0 + float(units.time(time)),
            error=float(units.time(error)),
            rank=int(self.answer["rank"][0]) if converged else None,
            limit=units.lengths(limit_of(factor, self.answer["alive"])[0], 2) if converged else None,
            growth=float(units.rate(now["growth"])),
            exponent=float(self.answer["exponent"][0]),
            slopes=now["slopes"],
            steps=int(self.march.tries),
            evidence="" if self.speed[0] else "the start is stationary",
            mean_rate=None if mean_rate is None else float(units.rate(mean_rate)),
        )


def _compressed(mu: Gaussian) -> Gaussian:
    r"""Another factor of the same $\Sigma$: orthogonal columns, and none that are zero."""
    vectors, values, _ = np.linalg.svd(np.asarray(mu.factor), full_matrices=False)
    kept = max(1, int((values > 1e-15 * values[0]).sum()))
    return Gaussian(mu.mean, factor=(vectors * values[None])[:, :kept])


def checked_endless(system: GaussianSystem, t0: Scalar, save: Any, stop: Any, unused: dict[str, Any]) -> float:
    """Refuse what a run to its fate has no use for; the seconds that it may take."""
    # Under `jit` all that is computed is traced, even from numbers that are known.
    if is_traced(system, t0, jnp.zeros(()) + 0):
        checks.refuse(
            "a fate is found on the host",
            got="t1 = inf under jit, vmap or grad",
            expected="known numbers",
            remedy="use mf.fates for a batch, or a finite t1",
        )
    for name, value in unused.items():
        if value is not None:
            checks.refuse(
                f"with t1 = inf a run has no {name}",
                got=f"{name} = {value!r}",
                expected="rtol, save, max_steps, stop=mf.WallClock(...), progress",
                remedy=f"leave out {name}, or give a finite t1",
            )
    if not is_constant(system.field):
        checks.refuse(
            "a fate is that of a field that does not depend on time",
            got=type(system.field).__name__,
            expected="constant weights",
            remedy="give a finite t1; after the last break of a Piecewise field go on with its last piece and t1=inf",
        )
    if save is not None and not isinstance(save, (int, np.integer)):
        checks.refuse(
            "with t1 = inf the times are those of the steps",
            got=f"save = {save!r}",
            expected="a number of states",
            remedy="save=101, or a finite t1",
        )
    seconds = float("inf")
    for rule in stop if isinstance(stop, (tuple, list)) else () if stop is None else (stop,):
        if not isinstance(rule, WallClock):
            checks.refuse(
                "with t1 = inf a run stops at its fate",
                got=f"stop = {rule!r}",
                expected="stop=mf.WallClock(60), or none",
                remedy="give a finite t1 for other rules",
            )
        seconds = min(seconds, rule.seconds)
    return seconds


def with_fate(run: Trajectory, t0: Scalar, control: Control) -> Trajectory:
    """The run with what it tells of its fate: a blow-up, if it ended in one."""
    return dataclasses.replace(run, fate=_finite_fate(run, float(t0), control))


def _finite_fate(run: Trajectory, t0: float, control: Control) -> Fate:
    # If a run ended early, its last resolved state is also its last saved one.
    t = float(run.times[-1] if not run.outcome.ok else run.outcome.time)
    steps = int(run.stats["steps"] + run.stats["rejected"])
    nothing = np.zeros(0)
    if run.outcome.kind not in ("STEP_TOO_SMALL", "NOT_FINITE"):
        why = "run with t1=jnp.inf to know more"
    elif control.step is not None:
        why = "constant steps do not resolve a blow-up: leave out step="
    else:
        why = ""
    if why:
        return Fate("UNDECIDED", t, 0.0, None, None, np.nan, np.nan, nothing, steps, why)
    field, final = cast((constant_at(run.field, t), run.final), jnp.zeros(()).dtype)
    field, final, units = own_units(field, final, mean_matters(field), strict=False)
    _, seen = _start(field, final, mean_matters(field))
    arrays = (np.asarray(a)[None] for a in (seen.Y, seen.F, seen.dF, seen.G, final.factor))
    so_far = units.own_time(t - t0)
    now = {name: values[0] for name, values in look(np.full(1, so_far), *arrays).items()}
    with np.errstate(all="ignore"):
        gap = 1 / (now["exponent"] * now["growth"])
    # A run may also fail for other reasons: it blew up only if little time was left.
    near = now["exponent"] > FASTER and 0 < gap < 0.01 * so_far
    kind = "BLEW_UP" if near and not bounded_speed(leaves_of(field)) else "UNDECIDED"
    time, error, growth = t, 0.0, float(units.rate(now["growth"]))
    if kind == "BLEW_UP":
        gap = float(units.time(gap))
        time, error = t + gap, gap + 10 * float(control.rtol) * (t + gap - t0)
    return Fate(kind, time, error, None, None, growth, float(now["exponent"]), now["slopes"], steps)

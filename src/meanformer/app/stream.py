"""A run of tokens or of a density, sent to the page while it is computed."""

import math
import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import meanformer as mf

from .. import _checks as checks
from .._programs.call import program
from ..diagnostics.bounds import grown_radii
from ..diagnostics.clusters import box_diameter, clusters_at
from ..diagnostics.spectra import effective_ranks
from ..diagnostics.token_energy import token_law
from ..experiments.build import Problem
from ..experiments.numbers import numbers_of
from ..flows.journal import AbstractJournal, Kept
from ..spaces import Euclidean
from .limits import LIMITS

Send = Callable[[dict[str, Any], dict[str, np.ndarray]], None]
"""Sends a message with arrays to the page."""

# Up to so many numbers a run is sent in double precision, and else in single.
DOUBLE = 2_000_000
# Clusters, energies and attention cost more than the frames themselves: so many tokens and pairs are looked at in all.
CLUSTERED_TOKENS, PAIRS, MOST_PAIRED = 100_000, 60_000_000, 2000
CLUSTER_TOLERANCE = 0.01
# As long as frames come quickly, they are sent in one message each so many seconds.
PAUSE = 0.1


class Cancelled(Exception):
    """The page no longer wants this run."""


class Stream(AbstractJournal):
    """A journal that sends the rows of a run instead of writing them, and ends the run when `wanted()` is false."""

    def __init__(
        self, send: Send, say: Callable[[str, float | None], None], wanted: Callable[[], bool], t1: float, frames: int
    ):
        self.send, self.say, self.wanted, self.t1, self.frames = send, say, wanted, t1, frames
        self.sent = 0
        self.system: Any = None
        self.cells: tuple[int, ...] = ()
        self.curves: Curves | None = None
        self.waiting: list[tuple[float, Any]] = []
        self.last = -math.inf

    def start(self, verb: str, measure: Any, options: dict[str, Any]) -> None:
        """Send the start, which is seen while the rest is compiled."""
        if isinstance(measure, mf.PointCloud):
            _send_tokens(self.send, measure, options, verb == "layers", self.t1, self.frames)
        elif isinstance(measure, mf.Density):
            self.cells = measure.cells
            _send_density(self.send, measure, self.t1, self.frames)
        self.say("Computing. The first run of its kind is compiled, which takes some seconds.", None)

    def begin(self, verb: str, field: Any, measure: Any, options: dict[str, Any]) -> Any:
        return None

    def resume(self, shell: Callable[[], Any], state: Any, row: Any = None) -> Kept | None:
        run = shell()
        self.system = run.system
        if not isinstance(run.system.mu, mf.Density):
            self.curves = Curves(run.field, run.system, float(run.times[0]))
        elif run.system.mu.cells != self.cells:  # the grid of the run holds the density until the end
            _send_density(self.send, run.system.mu, self.t1, self.frames)
        return None

    def keep(self, rows: list[tuple[float, Any]], state: Any, note: dict[str, Any]) -> None:
        if not self.wanted():
            raise Cancelled
        self.waiting += rows
        if self.waiting and clock.monotonic() - self.last > PAUSE:
            self._flush()

    def finish(self, run: Any) -> None:
        """A run that ended between two save times has a row more."""
        have = self.sent + len(self.waiting)
        saved = jax.tree.map(np.asarray, run.saved)
        times = np.asarray(run.times)
        self.waiting += [
            (float(times[k]), (jax.tree.map(lambda a, k=k: a[k], saved), {})) for k in range(have, len(times))
        ]
        self._flush()

    def _flush(self) -> None:
        if self.waiting:
            times = np.array([time for time, _ in self.waiting])
            saved = jax.tree.map(
                lambda *rows: np.stack([np.asarray(row) for row in rows]), *(row[0] for _, row in self.waiting)
            )
            send_frames(self.send, self.sent, times, saved, self.system, self.curves)
            self.sent += len(self.waiting)
            self.waiting, self.last = [], clock.monotonic()
            self.say(f"Computing: t = {times[-1]:.4g} of {self.t1:.4g}.", min(1.0, max(0.0, times[-1] / self.t1)))


class Curves:
    """What is drawn over time, for a run of tokens: radius, bound and ranks; later clusters and energies."""

    def __init__(self, field: Any, system: Any, t0: float):
        self.field, self.mu, self.space, self.t0 = field, system.mu, system.space, t0
        self.weights = np.asarray(self.mu.weights, float)
        self.radius = float(self.mu.radius)

    def quick(self, times: np.ndarray, z: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Radius, bound and effective rank; `z` in the frame of the run, `x` out of it."""
        seen = self.weights > 0
        with np.errstate(over="ignore", invalid="ignore"):
            radius = np.linalg.norm(x[:, seen], axis=2).max(axis=1)
        found = {"radius": radius, "effective_rank": effective_ranks(_covariances(z, self.weights))}
        bound = self._bound(times)
        return found if bound is None else found | {"bound": bound}

    def _bound(self, times: np.ndarray) -> np.ndarray | None:
        if isinstance(self.space, mf.Sphere):
            return np.full(len(times), self.radius)
        # In few sizes, each of which is compiled once.
        padded = np.append(times, np.full(2 ** math.ceil(math.log2(len(times))) - len(times), times[-1]))
        bound = grown_radii(self.field, self.mu.radius, jnp.asarray(self.t0), jnp.asarray(padded))
        return None if bound is None else np.asarray(bound, float)[: len(times)]

    def clusters(self, z: np.ndarray) -> np.ndarray:
        """How many clusters there are, at 1 % of the largest diameter so far; NaN where nobody looked."""
        count, largest = np.full(len(z), np.nan), 0.0
        step = -(-z.shape[0] * z.shape[1] // CLUSTERED_TOKENS)
        for k in range(len(z)):
            largest = max(largest, box_diameter(z[k])) if np.isfinite(z[k]).all() else largest
            if (k % step == 0 or k == len(z) - 1) and np.isfinite(z[k]).all():
                count[k] = clusters_at(z[k], self.weights, CLUSTER_TOLERANCE * largest).count
        return count

    def energy(self, x: np.ndarray) -> tuple[str, np.ndarray] | None:
        """The energy that the theory knows for this field, and its name."""
        try:
            law = token_law(self.field, self.space or Euclidean(), self.mu)
        except mf.InputError:
            return None
        return f"{law.name}, {law.expected or 'no sign known'}", self._at_some(
            x, lambda cloud: float(law(cloud)[0]), np.full(len(x), np.nan)
        )

    def received(self, times: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """The attention that each token receives over its weight, averaged over heads."""
        out = np.full(x.shape[:2], np.nan, np.float32)
        try:
            return self._at_some(x, lambda cloud: _received(self.field, cloud), out)
        except mf.InputError:
            return None

    def _at_some(self, x: np.ndarray, function: Callable[[Any], Any], out: np.ndarray) -> np.ndarray:
        """The function at as many frames as the pairs of tokens allow."""
        n = x.shape[1]
        step = -(-len(x) * n * n // PAIRS)
        for k in range(len(x)) if n <= MOST_PAIRED else ():
            if (k % step == 0 or k == len(x) - 1) and np.isfinite(x[k]).all():
                out[k] = function(self.mu.with_points(jnp.asarray(x[k])))
        return out


@program
def _received(field: Any, mu: Any) -> Array:
    P = field.matrix(mu)
    P = P if P.ndim == 3 else P[None]
    sums = jnp.abs(P).sum(axis=2, keepdims=True)
    shares = jnp.where(sums > 0, P / jnp.where(sums > 0, sums, 1), 0)
    return jnp.einsum("i,hij->j", mu.weights, shares) / len(P) / jnp.where(mu.weights > 0, mu.weights, 1)


def _covariances(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Covariances over the frames, shape (k, d, d)."""
    with np.errstate(over="ignore", invalid="ignore"):
        centred = z - np.einsum("n,knd->kd", weights, z)[:, None]
        return np.einsum("n,knd,kne->kde", weights, centred, centred)


def _send_tokens(
    send: Send, mu: mf.PointCloud, options: Mapping[str, Any], discrete: bool, t1: float, frames: int
) -> None:
    arrays = {"points": np.asarray(mu.points, float), "weights": np.asarray(mu.weights, float)}
    if mu.positions is not None:
        arrays["positions"] = np.asarray(mu.positions, float)
    frame = "rescaled" if options.get("frame") is not None else "plain"
    t0 = options.get("t0", 0.0)
    words = {"say": "start", "of": "tokens", "n": mu.n, "d": mu.d, "frame": frame, "discrete": discrete}
    send(words | {"t0": float(t0), "t1": t1, "times": frames}, arrays)


def _send_density(send: Send, rho: mf.Density, t1: float, frames: int) -> None:
    words = {"say": "start", "of": "density", "cells": rho.cells[0], "discrete": False, "t0": 0.0, "t1": t1}
    words |= {"times": frames, "spacing": float(rho.spacing[0])}
    send(words, {"x": np.asarray(rho.centres(0), float), "density": _per_length(rho.masses, rho)})


def _per_length(masses: Any, rho: mf.Density) -> np.ndarray:
    """Masses of cells as a density on the line."""
    return np.asarray(masses, float) / float(rho.spacing[0])


def send_frames(send: Send, first: int, times: np.ndarray, saved: Any, system: Any, curves: Curves | None) -> None:
    """Frames of a run, as its trajectory has them: points and propagators, or masses and what was lost."""
    values, other = saved
    words = {"say": "frames", "first": first}
    if curves is None:
        density = _per_length(values, system.mu)
        send(words, {"times": times, "density": density, "lost": np.asarray(other, float)})
        return
    z = np.asarray(values, float)
    x = z if other is None else out_of_frame(z, other)
    dtype = np.float64 if z[0].size * 101 <= DOUBLE else np.float32
    with np.errstate(over="ignore"):
        send(words, {"times": times, "points": z.astype(dtype), **curves.quick(times, z, x)})


def out_of_frame(z: np.ndarray, propagators: Any) -> np.ndarray:
    r"""$x=\Phi z$ for each frame; may leave the floating-point range."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.einsum("kij,knj->kni", np.asarray(propagators, float), z)


def send_end(send: Send, run: Any, curves: Curves | None, want: tuple[str, ...] = ()) -> None:
    """How a run ended, its costly curves, and the clusters of its end."""
    outcome = run.outcome
    late = f", after {LIMITS.seconds:g} seconds, the limit of this page" * (seconds_of(run) >= LIMITS.seconds)
    told = {"kind": outcome.kind, "words": str(outcome) + late, "ok": bool(outcome.ok), "time": float(outcome.time)}
    end = {"say": "end", "outcome": told, "summary": run.summary(), "numbers": numbers_of(run)}
    end |= {"seconds": run.stats.get("seconds"), "fate": None if run.fate is None else str(run.fate)}
    if curves is None:
        send(end, {})
        return
    z = np.asarray(run.points, float)
    largest = max((box_diameter(frame) for frame in z if np.isfinite(frame).all()), default=0.0)
    labels = clusters_at(np.asarray(run.final.points, float), curves.weights, CLUSTER_TOLERANCE * largest)
    send(end | {"clusters": labels.count}, {"labels": labels.labels.astype(np.int32)})
    times = np.asarray(run.times)
    x = z if run.propagators is None else out_of_frame(z, run.propagators)
    words: dict[str, Any] = {"say": "curves", "first": 0}
    if "received" in want and (received := curves.received(times, x)) is not None:
        send(words, {"received": received})
    send(words, {"clusters": curves.clusters(z)})
    energy = None if run.discrete else curves.energy(x)
    send(
        words | {"energy_name": None if energy is None else energy[0]}, {} if energy is None else {"energy": energy[1]}
    )


def seconds_of(run: Any) -> float:
    """How long a run took that ended by a rule."""
    return float(run.stats.get("seconds") or 0.0) if run.outcome.kind == "STOPPED" else 0.0


def run_problem(problem: Problem, stream: Stream, want: tuple[str, ...]) -> None:
    """Run a problem, sending its frames; a run that takes too long ends there, which its outcome says."""
    options = dict(problem.options)
    if problem.verb == "flow":
        options["stop"] = [*(options.get("stop") or []), mf.WallClock(LIMITS.seconds)]
    run = Problem(problem.verb, problem.field, problem.measure, options).run(journal=stream, progress=False)
    send_end(stream.send, run, stream.curves, want)


def _check_replay(run: Any) -> None:
    """Refuse what the page cannot show."""
    mu, frames = run.system.mu, len(run.times)
    numbers = 0 if isinstance(mu, mf.Gaussian) else mu.n * mu.d if isinstance(mu, mf.PointCloud) else mu.masses.size
    if isinstance(mu, mf.Gaussian) or (isinstance(mu, mf.Density) and mu.d != 1) or frames * numbers > LIMITS.numbers:
        got = f"{type(mu).__name__}, d = {mu.d}, {numbers:,} numbers x {frames} frames"
        checks.refuse(
            "the page cannot replay this run",
            got=got,
            expected=f"tokens, at most {LIMITS.numbers:,} numbers in all, or a density on a line",
            remedy="meanformer report RUN shows any run",
        )


def replay(run: Any, send: Send, want: tuple[str, ...]) -> None:
    """A run that was computed earlier, as if it were computed now."""
    _check_replay(run)
    t1, mu, frames = float(run.outcome.time), run.system.mu, len(run.times)
    saved = jax.tree.map(np.asarray, run.saved)
    if isinstance(mu, mf.Density):
        _send_density(send, mu, t1, frames)
        curves = None
    else:
        rescaled = run.propagators is not None
        times = np.asarray(run.times)
        _send_tokens(send, mu, {"frame": rescaled or None, "t0": float(times[0])}, run.discrete, t1, frames)
        curves = Curves(run.field, run.system, float(times[0]))
    send_frames(send, 0, np.asarray(run.times), saved, run.system, curves)
    send_end(send, run, curves, want)

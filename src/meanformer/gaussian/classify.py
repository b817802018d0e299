r"""What a march has shown so far: blow-up, divergence, convergence with its rank, or nothing yet (MATH e.5).

All rules are free of scales: times are measured in units of $1/\gamma(0)$, sizes relative to the start. Plain NumPy, on
many marches at once.
"""

from dataclasses import dataclass

import numpy as np

from .._scale import norm
from ..fate import FateKind as Kind

# A run is not called before it has moved for this long, in its own unit of time.
SHORTEST = 100.0
# Growth of tr Sigma after which a run counts as growing; more, if its law may change late and a blow-up cannot be
# excluded: L2 far below saturation first grows as if it blew up, an affine part may hide a small softmax part.
GROWTH, PATIENT_GROWTH, HOPELESS_GROWTH = 1e9, 1e30, 1e90
FASTER, RISING, ALIVE, STEADY = 0.2, 1e-6, 0.05, 0.02
# MATH e.5 says -0.3; but eigenvalues that live can show slopes of -0.3 to -0.6 for decades, those that die tend to -1.
DEAD = -0.8
NEGLIGIBLE, ROUNDING = 1e-14, 1e-15
# An eigenvalue that is still to begin its decay, at t = t', shows a slope of -t/t': small and steady, and wrong. So an
# alive slope must fade, by this factor in a decade, and be so small that no decay can begin before CERTIFIED units of
# time.
FADE, CERTIFIED = 0.5, 1e8
# Where all eigenvalues die like 1/t, one that will stay at a share r of the start turns away at some 1/r units of time.
ALL_DEAD = 1e4
# Beyond this many units of time rounding has eaten the slopes.
HORIZON = 1e11
# Below this a slope is rounding, and need not fade any more.
NOISE = 1e-7


@dataclass
class Record:
    """What was seen of `n` marches, look after look: arrays of shape `(n, looks)`, NaN where there is nothing yet.

    `slopes` and `singular` have a last axis over the eigenvalues of Sigma, in decreasing order; see `look`.
    """

    t: np.ndarray
    log_size: np.ndarray
    log_speed: np.ndarray
    growth: np.ndarray
    exponent: np.ndarray
    turning: np.ndarray
    singular: np.ndarray
    slopes: np.ndarray

    @staticmethod
    def empty(n: int, looks: int, r: int) -> "Record":
        """A record of nothing."""
        flat = [np.full((n, looks), np.nan) for _ in range(6)]
        return Record(*flat, *(np.full((n, looks, r), np.nan) for _ in range(2)))

    def rows(self, which: np.ndarray, last: int) -> "Record":
        """The record of some marches, up to look number `last`."""
        return Record(*(a[which, : last + 1] for a in vars(self).values()))


def look(t: np.ndarray, Y: np.ndarray, F: np.ndarray, dF: np.ndarray, G: np.ndarray, factor: np.ndarray) -> dict:
    r"""What is seen of marches at the states `Y`, with $F=\dot Y$, `dF` $=\ddot Y$, and the factor of $\Sigma$.

    - `slopes`: $\rho_i=2t\,u_i^\top Gu_i$, the log-log slopes of the eigenvalues $\lambda_i$ of $\Sigma$;
    - `log_size`: $\log\operatorname{tr}\Sigma$, `log_speed`: $\log\gamma$;
    - `growth`: $\frac d{dt}\log\operatorname{tr}\Sigma$; `exponent`: $p=d\log\gamma/d\log\operatorname{tr}\Sigma$;
    - `turning`: $t\|\dot\Sigma\|/\|\Sigma\|$, which a limit sends to 0 and a rotation does not.
    """
    with np.errstate(all="ignore"):
        # In units of the largest entry, so that nothing under- or overflows.
        unit = np.abs(Y).max(axis=(1, 2))
        unit = np.where(unit > 0, unit, 1.0)
        Y, F, dF, factor = (a / unit[:, None, None] for a in (Y, F, dF, factor))
        size, speed = (Y * Y).sum(axis=(1, 2)), (F * F).sum(axis=(1, 2))
        growth = 2 * (Y * F).sum(axis=(1, 2)) / size
        acceleration = (F * dF).sum(axis=(1, 2)) / speed - growth / 2
        vectors, singular, _ = np.linalg.svd(np.nan_to_num(factor), full_matrices=False)
        slopes = 2 * t[:, None] * np.einsum("bij,bik,bkj->bj", vectors, G, vectors)
        moved = G @ factor
        half = moved @ factor.transpose(0, 2, 1)
        sigma_dot, sigma = half + half.transpose(0, 2, 1), factor @ factor.transpose(0, 2, 1)
        turning = t * np.sqrt((sigma_dot**2).sum(axis=(1, 2)) / (sigma**2).sum(axis=(1, 2)))
        return {
            "t": t,
            "log_size": np.log(size) + 2 * np.log(unit),
            "log_speed": np.log(speed / size) / 2,
            "growth": growth,
            "exponent": acceleration / growth,
            "turning": turning,
            "singular": singular * unit[:, None],
            "slopes": slopes,
        }


def turned(Y: np.ndarray, with_mean: bool) -> tuple[np.ndarray, np.ndarray]:
    r"""States whose factor has orthogonal columns, $L\to LO$, and the rotations $O$.

    Large and small directions are then apart, and rounding in the large ones no longer drowns the small ones.
    """
    factor = Y[:, :, :-1] if with_mean else Y
    good = np.asarray(np.isfinite(factor).all(axis=(1, 2)))
    # Factors have no more columns than rows, so that all of O is there.
    _, _, rotations = np.linalg.svd(np.where(good[:, None, None], factor, 0), full_matrices=False)
    O = np.where(good[:, None, None], rotations.swapaxes(1, 2), np.eye(factor.shape[2]))
    with np.errstate(all="ignore"):
        return np.concatenate([factor @ O, Y[:, :, factor.shape[2] :]], axis=2), O


def unit_speed_of(Y: np.ndarray, F: np.ndarray, G: np.ndarray, *, with_mean: bool = False) -> np.ndarray:
    r"""$\gamma(0)=\|F\|/\|Y\|$, and 0 where nothing moves but by rounding: such a start is stationary. What is not
    finite is not a number: nothing is known of it.

    Without the mean among its columns $Y$ is a factor of $\Sigma$. It may turn while $\Sigma=YY^\top$ stands still:
    $\dot\Sigma=FY^\top+YF^\top=0$, and then for ever, since $G$ depends on $\Sigma$ alone.
    """
    speed, size, gain = (norm(a, axis=(1, 2)) for a in (F, Y, G))
    with np.errstate(all="ignore"):
        half = (F / speed[:, None, None]) @ (Y / size[:, None, None]).transpose(0, 2, 1)
        moved = np.sqrt(((half + half.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2)))
        moves = (speed > 1e-14 * size * gain) & (with_mean | (moved > 1e-14))
        known = np.isfinite(speed) & np.isfinite(gain)
        return np.where(known, np.where(moves, speed / size, 0.0), np.nan)


def stationary(singular: np.ndarray) -> np.ndarray:
    """Which eigenvalues of a stationary start are there, from the singular values of its factor."""
    return singular > NEGLIGIBLE * singular[:, :1]


def limit_of(factor: np.ndarray, alive: np.ndarray) -> np.ndarray:
    r"""$\sum_{alive}\lambda_iu_iu_i^\top$: the limit, up to what is still dying."""
    vectors, values, _ = np.linalg.svd(np.nan_to_num(factor), full_matrices=False)
    kept = vectors * np.where(alive, values, 0)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        return kept @ kept.transpose(0, 2, 1)


def classify(record: Record, unit_speed: np.ndarray, patient: bool, bounded: np.ndarray) -> dict[str, np.ndarray]:
    r"""The fate of each march, as far as it is known.

    **Arguments:** the record, first look at the start; `unit_speed` $=\gamma(0)$; whether the field saturates; whether
    its speed is known to be bounded, so that no blow-up is possible.

    **Returns:** arrays `kind`, `time` (of blow-up, else now), `error` of that time, `rank` (-1: none), `exponent`
    $p$ over the last decades of growth, `alive` (which
    eigenvalues stay), `gave_up` (whether going on is pointless).
    """
    with np.errstate(all="ignore"):
        grown = _grown(record, patient, bounded)
        settled, rank, alive = _settled(record, unit_speed)
        now = record.t[:, -1]
        kind = np.select([grown["kind"] > 0, settled], [grown["kind"], int(Kind.CONVERGED)], int(Kind.UNDECIDED))
        blown = kind == Kind.BLEW_UP
        return {
            "kind": kind,
            "time": np.where(blown, grown["time"], now),
            "error": np.where(blown, grown["error"], 0.0),
            "rank": np.where(kind == Kind.CONVERGED, rank, -1),
            "exponent": grown["exponent"],
            "alive": alive,
            "gave_up": grown["hopeless"] | (unit_speed * now > HORIZON),
        }


def _grown(record: Record, patient: bool, bounded: np.ndarray) -> dict[str, np.ndarray]:
    """Whether tr Sigma has grown for good, and how: faster than exponentially, exponentially, or slower."""
    grown = record.log_size - record.log_size[:, :1]
    now = grown[:, -1:]
    enough = now[:, 0] > np.log(np.where(bounded, GROWTH, PATIENT_GROWTH if patient else GROWTH))
    # The exponent over the last three decades of growth; the one at this instant may oscillate, if eigenvectors turn.
    inside = (grown > now - np.log(1e3)) & np.isfinite(grown)
    first = inside.argmax(axis=1)[:, None]
    before, speed_before = (np.take_along_axis(a, first, axis=1)[:, 0] for a in (grown, record.log_speed))
    mean_exponent = (record.log_speed[:, -1] - speed_before) / (now[:, 0] - before)
    # Its two halves: a small exponent that still rises may become a blow-up.
    half = np.argmax(grown >= ((now[:, 0] + before) / 2)[:, None], axis=1)[:, None]
    middle, speed_middle = (np.take_along_axis(a, half, axis=1)[:, 0] for a in (grown, record.log_speed))
    early = (speed_middle - speed_before) / (middle - before)
    late = (record.log_speed[:, -1] - speed_middle) / (now[:, 0] - middle)
    rises = (late > 3 * np.abs(early)) & (late > RISING) & ~bounded
    enough &= inside.sum(axis=1) > 1
    p = record.exponent
    faster = enough & (mean_exponent > FASTER) & (p[:, -1] > FASTER) & ~bounded
    other = enough & (mean_exponent <= FASTER) & ~rises
    estimate = record.t + 1 / (p * record.growth)
    decade = (grown > now - np.log(10)) & inside
    # At least one look before the last one, for an estimate of the error.
    decade[:, -2] |= inside[:, -2] if inside.shape[1] > 1 else False
    spread = np.where(decade, np.abs(estimate - estimate[:, -1:]), 0).max(axis=1)
    return {
        "kind": np.select([faster, other], [int(Kind.BLEW_UP), int(Kind.DIVERGED)], 0),
        "time": estimate[:, -1],
        "error": spread,
        "exponent": np.where(enough, mean_exponent, p[:, -1]),
        "hopeless": now[:, 0] > np.log(HOPELESS_GROWTH),
    }


def _settled(record: Record, unit_speed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether every eigenvalue has stayed alive or dead for a decade of time, how many are alive, and which."""
    t, now = record.t, record.t[:, -1:]
    inside = (t >= now / 10) & np.isfinite(t)
    long_enough = ((t > 0) & (t <= now / 10)).any(axis=1) & (unit_speed * now[:, 0] >= SHORTEST)
    slopes = record.slopes
    largest = record.singular[:, :, :1]
    # Rounding at the start does not die with the rest.
    negligible = record.singular <= np.maximum(NEGLIGIBLE * largest, ROUNDING * largest[:, :1])
    window = inside[:, :, None]

    def throughout(condition: np.ndarray) -> np.ndarray:
        return np.asarray((condition | ~window).all(axis=1))

    dead = throughout((slopes < DEAD) | negligible)
    low = np.where(window, slopes, np.inf).min(axis=1)
    high = np.where(window, slopes, -np.inf).max(axis=1)
    size = np.abs(slopes)
    first = np.take_along_axis(size, inside.argmax(axis=1)[:, None, None], axis=1)[:, 0]
    growing = (np.diff(size, axis=1) > 0) & (size[:, 1:] > NOISE) & window[:, 1:] & window[:, :-1]
    fades = ~growing.any(axis=1) & (size[:, -1] <= np.maximum(FADE * first, NOISE))
    certain = size[:, -1] <= (unit_speed * now[:, 0] / CERTIFIED)[:, None]
    alive = throughout(size < ALIVE) & (high - low < STEADY) & fades & certain & ~dead
    rank = alive.sum(axis=1)
    fallen = record.log_size[:, -1] - record.log_size[:, 0] <= -np.log(ALL_DEAD)  # soon, if exponentially
    long_enough &= (rank > 0) | (unit_speed * now[:, 0] >= ALL_DEAD) | fallen
    still = np.asarray((rank == 0) | ((record.turning < ALIVE) | ~inside).all(axis=1))
    known = np.asarray((alive | dead).all(axis=1))
    return np.logical_and.reduce([long_enough, known, still]), rank, alive

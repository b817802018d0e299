"""Many Gaussians under one attention: the path and the fate of each start, sent one by one."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import meanformer as mf

from .. import _checks as checks
from ..plots.fates import fate_words
from .limits import LIMITS
from .stream import Cancelled, Send

FRAMES = 161


def checked_starts(starts: Any) -> np.ndarray:
    """Covariances of the plane, shape (n, 2, 2), from what the page sent."""
    try:
        covs = np.asarray(starts, float)
    except (TypeError, ValueError, OverflowError):
        covs = np.zeros(0)
    if covs.ndim != 3 or covs.shape[1:] != (2, 2) or not 1 <= len(covs) <= LIMITS.starts or not np.isfinite(covs).all():
        checks.refuse(
            "starts are covariances of the plane",
            got=f"an array of shape {covs.shape}" if covs.ndim == 3 else "something else",
            expected=f"1 to {LIMITS.starts} matrices of 2 x 2 finite numbers",
            remedy="click into the disc",
        )
    return covs


def run_gaussians(
    field: Any,
    covs: np.ndarray,
    send: Send,
    say: Callable[[str, float | None], None],
    wanted: Callable[[], bool],
) -> None:
    """The path of each start until its fate is known, then how many had which fate."""
    starts = [mf.Gaussian(jnp.zeros(2), cov=jnp.asarray(cov)) for cov in covs]  # all are checked before the first runs
    found: Counter[str] = Counter()
    say("Computing. The first run of its kind is compiled, which takes some seconds.", 0.0)
    for number, start in enumerate(starts):
        if not wanted():
            raise Cancelled
        stop = mf.WallClock(LIMITS.seconds / len(starts))
        run = mf.flow(field, start, t1=jnp.inf, save=FRAMES, stop=stop, progress=False)
        factors, fate = np.asarray(run.states.factor, float), run.fate
        assert fate is not None
        with np.errstate(over="ignore", invalid="ignore"):
            path = np.einsum("kir,kjr->kij", factors, factors)
        finite = np.isfinite(path).all(axis=(1, 2))
        # From the factor: in the covariance small ones are lost below 1e-16 of the largest.
        eigenvalues = np.zeros((int(finite.sum()), 2))
        singular = np.linalg.svd(factors[finite], compute_uv=False)
        eigenvalues[:, : singular.shape[1]] = singular**2
        told = {"kind": fate.kind, "words": str(fate), "short": fate_words(run), "time": float(fate.time)}
        told |= {"law": fate.law, "rank": fate.rank, "error": float(fate.error), "growth": float(fate.growth)}
        told |= {"limit": None if fate.limit is None else np.asarray(fate.limit).tolist()}
        send(
            {"say": "path", "number": number, "fate": told},
            {"times": np.asarray(run.times)[finite], "covs": path[finite], "eigenvalues": eigenvalues},
        )
        found[fate_words(run)] += 1
        say(f"Computing: {number + 1} of {len(starts)} starts.", (number + 1) / len(starts))
    words = ", ".join(f"{count} of {len(starts)}: {name}" for name, count in found.most_common())
    send({"say": "end", "counts": dict(found), "words": words}, {})

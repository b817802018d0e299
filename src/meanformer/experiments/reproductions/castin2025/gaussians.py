"""What the Gaussian items share."""

from typing import Any

import numpy as np

import meanformer as mf

# Saved states of a run: runs with as many of them, and matrices of one shape, share one compiled programme.
SAVES = 61


def centred(cov: Any) -> mf.Gaussian:
    r"""$\mathcal N(0,\Sigma)$; a batch if `cov` has a leading axis."""
    return mf.Gaussian(np.zeros(np.shape(cov)[:-1]), cov=cov)


def largest_error(ours: Any, exact: Any) -> float:
    r"""The largest $\|\Sigma-\Sigma_{exact}\|_F/\|\Sigma_{exact}\|_F$ of a batch."""
    ours, exact = np.asarray(ours), np.asarray(exact)
    return float((np.linalg.norm(ours - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))).max())

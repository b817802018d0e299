"""What the Gaussian items share."""

from typing import Any

import numpy as np

import meanformer as mf

# Saved states of a run: runs with as many of them, and matrices of one shape, share one compiled programme.
SAVES = 61


def centred(cov: Any) -> mf.Gaussian:
    r"""$\mathcal N(0,\Sigma)$; a batch if `cov` has a leading axis."""
    return mf.Gaussian(np.zeros(np.shape(cov)[:-1]), cov=cov)


def relative_errors(ours: Any, exact: Any) -> np.ndarray:
    r"""$\|\Sigma-\Sigma_{exact}\|_F/\|\Sigma_{exact}\|_F$ for each of a batch."""
    ours, exact = np.asarray(ours), np.asarray(exact)
    return np.linalg.norm(ours - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))


def kernel_limit(Q: np.ndarray, cov: np.ndarray) -> np.ndarray:
    r"""$N(N^\top\Sigma_0^{-1}N)^{-1}N^\top$ with $N=\ker Q$: the limit for $K=-Q$, $V=I$ (MATH e.4)."""
    _, sizes, rows = np.linalg.svd(Q)
    N = rows[int((sizes > 1e-12 * sizes[0]).sum()) :].T
    return N @ np.linalg.inv(N.T @ np.linalg.solve(cov, N)) @ N.T

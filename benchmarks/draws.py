r"""The random problems of the rank histograms (TARGETS A2, A3), the same for every competitor.

$Q\in\mathbb R^{\lfloor d/2\rfloor\times d}$ iid normal, $K=-Q$, $\tau=\sqrt d$, $\Sigma_0=MM^\top$ with $M$ iid normal,
and $V=I$ or $V=W^\top W$. By the convergence theorem of MATH e.4 every limit has rank $d-\lfloor d/2\rfloor$.
"""

from typing import NamedTuple

import numpy as np


class Draws(NamedTuple):
    r"""A batch of problems: `Q`, `K` (count, k, d), `V` (count, d, d), `factor` $M$ (count, d, d), one `tau`."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    factor: np.ndarray
    tau: float

    @property
    def cov(self) -> np.ndarray:
        r"""$\Sigma_0=MM^\top$, (count, d, d)."""
        return self.factor @ self.factor.swapaxes(-1, -2)

    @property
    def rank(self) -> int:
        r"""$d-\operatorname{rank}Q$: the rank of every limit (MATH e.4)."""
        return self.Q.shape[-1] - self.Q.shape[-2]


def rank_draws(d: int, count: int, seed: int, identity_value: bool) -> Draws:
    """Draw `count` problems in dimension `d`; with one seed, $Q$ and $M$ are the same for both kinds of $V$."""
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((count, d // 2, d))
    factor = rng.standard_normal((count, d, d))
    if identity_value:
        V = np.broadcast_to(np.eye(d), (count, d, d))
    else:
        W = rng.standard_normal((count, d, d))
        V = W.swapaxes(-1, -2) @ W
    return Draws(Q, -Q, V, factor, float(np.sqrt(d)))

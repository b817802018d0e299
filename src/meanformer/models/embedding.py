"""From words, images and tables to the first tokens of a network."""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from ..attention.norm import AbstractNorm
from .config import Config
from .images import pixels_of

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
        padding: int | None = None,
    ):
        self.words, self.positions, self.types, self.padding = words, positions, types, padding
        self.norm, self.projection = norm, projection
        self.limit = limit if positions is None else positions.shape[0]

    def checked(self, ids: Any) -> np.ndarray:
        """Numbers of the vocabulary, shape `(n,)`."""
        try:
            numbers = np.asarray(ids)
        except ValueError:  # rows of different lengths
            numbers = np.zeros(())
        if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
            checks.refuse(
                "ids are the numbers of words in the vocabulary",
                got="none" if numbers.shape == (0,) else repr(ids)[:60],
                expected="a list of whole numbers",
                remedy="model.record(ids=[101, 2023, 102]), or give a text",
            )
        if numbers.min() < 0 or numbers.max() >= len(self.words):
            checks.refuse(
                "a word number lies outside of the vocabulary",
                got=f"numbers from {numbers.min()} to {numbers.max()}",
                expected=f"0 to {len(self.words) - 1}",
                remedy="take the tokenizer that belongs to the model",
            )
        if self.padding is not None and (numbers == self.padding).any():
            checks.refuse(
                "padding among the words: this model does not count it, and others after it move up",
                got=f"the number {self.padding} at place {int((numbers == self.padding).argmax())}",
                expected="words alone",
                remedy="leave the padding out",
            )
        return numbers

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """The tokens, shape `(n, d)`, of numbers of the vocabulary."""
        x = self.words[ids]
        x = x if self.positions is None else x + self.positions[: len(ids)]
        x = x if self.types is None else x + self.types[0]
        x = x if self.norm is None else np.asarray(self.norm(jnp.asarray(x)))
        return x if self.projection is None else _affine(x, self.projection)


class Patches(AbstractEmbedding):
    """Images: a linear map of each patch, after a token of its own, plus a vector for each place."""

    takes = "image"

    def __init__(
        self,
        kernel: np.ndarray,
        bias: np.ndarray,
        first: np.ndarray,
        positions: np.ndarray,
        *,
        grid: tuple[int, int],
        preprocessing: Config,
    ):
        self.map: Map = (kernel.reshape(kernel.shape[0], -1), bias)
        self.channels, self.patch = kernel.shape[1], kernel.shape[2:]
        self.first, self.positions, self.grid, self.preprocessing = first, positions, grid, preprocessing
        self.size = (grid[0] * self.patch[0], grid[1] * self.patch[1])
        self.limit = 1 + grid[0] * grid[1]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the tokens: rows and columns of the patches, from the upper left corner."""
        return ("cls", *(f"{row},{column}" for row in range(self.grid[0]) for column in range(self.grid[1])))

    def pixels(self, image: Any) -> np.ndarray:
        """The image as the model takes it: scaled to its size, colours centred; shape `(channels, height, width)`."""
        return pixels_of(image, self.channels, self.size, self.preprocessing)

    def __call__(self, pixels: Any) -> np.ndarray:
        """The tokens, shape `(1 + patches, d)`, of pixel values as the model takes them."""
        pixels = _numbers(pixels, "pixels", self.map[0].dtype)
        if pixels.shape != (self.channels, *self.size):
            checks.refuse(
                "the pixels do not fit the model",
                got=f"shape {pixels.shape}",
                expected=f"shape {(self.channels, *self.size)}: channels, height, width",
                remedy="model.record(image=...) scales any image",
            )
        (rows, columns), (height, width) = self.grid, self.patch
        cut = pixels.reshape(self.channels, rows, height, columns, width)
        patches = cut.transpose(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        return np.concatenate([self.first, _affine(patches, self.map)]) + self.positions


class Table(AbstractEmbedding):
    """Rows of a table: a linear map of the features, plus one of the class where it is known."""

    takes = "table"

    def __init__(self, features: Map, classes: Map):
        self.features, self.classes = features, classes
        self.limit = None

    def __call__(self, table: Any) -> tuple[np.ndarray, np.ndarray]:
        """The tokens, shape `(n, d)`, of features `(n, f)`, padded with zeros, and the classes of the first rows."""
        try:
            x, y = table
        except (TypeError, ValueError):
            checks.refuse(
                "a table is a pair",
                got=checks.described(table),
                expected="features (n, f), and the classes of the first rows",
                remedy="model.record(table=(features, classes))",
            )
        x, y = (_numbers(a, name, self.features[0].dtype) for a, name in ((x, "the features"), (y, "the classes")))
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
        return tokens, y


def _numbers(value: Any, name: str, dtype: Any) -> np.ndarray:
    """Finite numbers, in the dtype of the model."""
    return np.asarray(checks.finite(checks.to_array(value, name), name), dtype)

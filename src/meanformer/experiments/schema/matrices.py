r"""Matrices and vectors of an experiment file.

| in the file | matrix |
| --- | --- |
| `[[1.0, 0.0], [0.0, 2.0]]` | these rows |
| `"identity"`, `"zero"` | $I$, $0$ |
| `2.0`, `{identity = 2.0}` | $2I$ |
| `{diagonal = [1.0, 2.0]}` | diagonal |
| `{rotation = 0.9}` | the rotation of the plane by this angle |
| `{random = "normal", shape = [1, 2]}` | independent entries: normal, or uniform on $[-1,1]$; or `"orthogonal"` rows |
| `{gram = {...}}` | $W^\top W$ of the matrix inside |
| `{of = "Q", scale = -1.0}` | another matrix of the same table |
| `{file = "Q.npy"}` | from a file |

All tables take a factor `scale`.
"""

import abc
import zlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from pydantic import Field

from ... import _checks as checks
from ... import _draws as draws
from ..._types import as_array
from ..toml import dotted
from .base import Count, OneOfForms, Seed, Site, Table, is_number

Shape = tuple[int, int]
Siblings = Callable[[str], Array]
"""Finds another matrix of the same table."""


class Scaled(Table):
    """What all matrices written as tables share: a factor."""

    scale: float = 1.0

    @abc.abstractmethod
    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        """The matrix without its factor."""


class Identity(Scaled):
    """A multiple of the identity."""

    identity: float

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        return self.identity * _identity(shape)


class Diagonal(Scaled):
    """A diagonal matrix."""

    diagonal: Annotated[list[float], Field(min_length=1)]

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        return jnp.diag(jnp.asarray(self.diagonal, float))


class Rotation(Scaled):
    """The rotation of the plane by an angle, in radians."""

    rotation: float

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        c, s = np.cos(self.rotation), np.sin(self.rotation)
        return jnp.asarray([[c, -s], [s, c]])


class Random(Scaled):
    """A random matrix. Without a `seed` of its own it is drawn from the seed of the experiment and its place in the
    file: two matrices differ, and another seed draws them all anew.
    """

    random: Literal["normal", "orthogonal", "uniform"]
    shape: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    seed: Seed | None = None

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        rows, columns = shape if self.shape is None else self.shape
        checks.fits_in_memory(f"a matrix of {rows} x {columns}", 32 * max(rows, columns) ** 2, "give a smaller shape")
        key = drawing_key(site, self.seed)
        if self.random == "orthogonal":
            return jr.orthogonal(key, max(rows, columns))[:rows, :columns]
        if self.random == "uniform":
            return _uniform(key, (rows, columns))
        return _normal(key, (rows, columns))


class Gram(Scaled):
    r"""$W^\top W$: symmetric, and positive definite if W has full column rank."""

    gram: "Matrix"

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        W = made_matrix(self.gram, site.at("gram"), shape, siblings)
        return W.T @ W


class Of(Scaled):
    """Another matrix of the same table."""

    of: str

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        with site.refusing("of"):
            return siblings(self.of)


class File(Scaled):
    """An array from a .npy file."""

    file: str

    def unscaled(self, site: Site, shape: Shape, siblings: Siblings) -> Array:
        return checks.to_array(site.load(self.file), self.file)


FORMS = {"identity": Identity, "diagonal": Diagonal, "rotation": Rotation, "random": Random}
FORMS |= {"gram": Gram, "of": Of, "file": File}


def _form(value: Any) -> str | None:
    if isinstance(value, dict):
        return next((name for name in FORMS if name in value), None)
    if isinstance(value, Scaled):
        return next(name for name, form in FORMS.items() if isinstance(value, form))
    if isinstance(value, list):
        return "rows" if value and all(isinstance(row, list) for row in value) else None
    return "word" if isinstance(value, str) else "number" if is_number(value) else None


Matrix = Annotated[
    Any,
    OneOfForms(
        _form,
        {"rows": list[list[float]], "word": Literal["identity", "zero"], "number": float, **FORMS},
        'a matrix: rows [[1.0, 0.0], [0.0, 1.0]], a number, "identity", "zero", or a table with '
        + ", ".join(FORMS)
        + " in it",
        list(FORMS),
    ),
]
Gram.model_rebuild()


class RandomVector(Table):
    """A random vector."""

    random: Literal["normal", "uniform"]
    scale: float = 1.0
    seed: Seed | None = None


class VectorFile(Table):
    """A vector from a .npy file."""

    file: str


def _vector_form(value: Any) -> str | None:
    if isinstance(value, (list, Table)):
        return "list" if isinstance(value, list) else "file" if isinstance(value, VectorFile) else "random"
    if isinstance(value, dict):
        return "random" if "random" in value else "file" if "file" in value else None
    return "number" if is_number(value) else None


Vector = Annotated[
    Any,
    OneOfForms(
        _vector_form,
        {"list": list[float], "number": float, "random": RandomVector, "file": VectorFile},
        'a vector: [1.0, 0.0], a number for all coordinates, {random = "normal"}, or {file = "b.npy"}',
        ["random", "file"],
    ),
]


def drawing_key(site: Site, seed: int | None) -> PRNGKeyArray:
    """The random key of a place in the file; with its own seed, one for all places."""
    if seed is not None:
        return key_for("its own seed", seed)
    return key_for(dotted((*site.draw, *site.path)), site.seed)


def key_for(use: str, seed: int) -> PRNGKeyArray:
    """The random key of a use of a seed, other than the tokens, whose key is that of the seed itself: what is drawn for
    two uses of one seed is independent.
    """
    return draws.fold_in(jr.key(seed), zlib.crc32(use.encode()))


def no_siblings(name: str) -> Array:
    """For matrices that stand alone."""
    checks.refuse(
        "this matrix has no others beside it",
        got=f'of = "{name}"',
        expected="a matrix that is given here",
        remedy="write the matrix out, or draw both with the same seed",
    )


def made_matrix(spec: Any, site: Site, shape: Shape, siblings: Siblings = no_siblings) -> Array:
    """The matrix that a place in the file means; `shape` is that of identities, and of random matrices by default."""
    with site.refusing():
        checks.fits_in_memory(f"a matrix of {shape[0]} x {shape[1]}", 32 * shape[0] * shape[1], "lower the dimension")
        if isinstance(spec, Scaled):
            matrix = spec.unscaled(site, shape, siblings)
            return checks.matrix(spec.scale * matrix, dotted(site.path[-1:]))
        if isinstance(spec, str):
            return _identity(shape) if spec == "identity" else jnp.zeros(shape)
        if isinstance(spec, float):
            return spec * _identity(shape)
        return checks.matrix(spec, dotted(site.path[-1:]))


def made_vector(spec: Any, site: Site, size: int) -> Array:
    """The vector that a place in the file means; `size` is that of random vectors, and of a number for all."""
    with site.refusing():
        if isinstance(spec, VectorFile):
            return checks.vector(site.load(spec.file), dotted(site.path[-1:]))
        if isinstance(spec, RandomVector):
            draw = _normal if spec.random == "normal" else _uniform
            return spec.scale * draw(drawing_key(site, spec.seed), (size,))
        return jnp.full(size, spec) if isinstance(spec, float) else checks.vector(spec, dotted(site.path[-1:]))


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return jnp.asarray(draws.uniform(key, shape, jnp.result_type(float), low=-1.0))


def _normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return jnp.asarray(draws.normal(key, shape, jnp.result_type(float)))


def _identity(shape: Shape) -> Array:
    return as_array(np.eye(*shape))

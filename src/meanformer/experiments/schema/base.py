"""What all tables of an experiment file share: strict keys, and refusals that name the place in the file."""

import contextlib
import dataclasses
import difflib
import functools
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ... import _checks as checks
from ..toml import Path as Place
from ..toml import Source, dotted

MARK = "~"
"""The alternatives of a union carry this mark in the places that pydantic tells, so that no key is mistaken for one."""

# What the library advises to those who write Python, as one writes it in a file.
REMEDIES = {
    "push them there": 'project them: project = "sphere" in [measure]',
    "solver='euler', step=": 'solver = "euler" and step = 0.01 in [flow], or use [layers]',
    "flow(..., step=": 'step = 0.01 in [flow], or solver = "tsit5"',
    "stop=mf.Stationary": "give a finite t1, and stop = [{stationary = 1e-6}]",
    "with_positions()": "positions = true in [measure]",
    "flow tokens instead": 'tokens from the same law: kind = "normal" in [measure]',
    "to go backwards": 'swap them; to go backwards, use kind = "scaled" with factor = -1.0 in [attention]',
    "flow tokens: mf.flow(": 'take tokens: kind = "sphere" in [measure]',
    "push the states afterwards": "leave out frame",
    "layers(..., save='final')": 'times = "final" in [save]',
}

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


def near(word: Any, options: Any) -> str | None:
    """The nearest of some words, if one is near."""
    found = difflib.get_close_matches(str(word).lower(), list(options), n=1)
    return found[0] if found else None


class Table(BaseModel):
    """A table with these keys and no others; numbers are finite, and of the type that is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, data: Any) -> Any:
        """Refuse unknown and missing keys by name, before values are looked at."""
        if not isinstance(data, dict):
            return data
        for key in data:
            if key not in cls.model_fields:
                raise PydanticCustomError("unknown_key", "unknown", {"key": key, "known": list(cls.model_fields)})
        for key, field in cls.model_fields.items():
            if field.is_required() and key not in data:
                context = {"key": key, "about": field.description or "", "given": list(data)}
                raise PydanticCustomError("missing_key", "missing", context)
        return data


class OneOfForms:
    """The type of values that may look in several ways, which `tag` tells apart: `Annotated[Any, OneOfForms(...)]`."""

    def __init__(self, tag: Callable[[Any], str | None], forms: dict[str, Any], expected: str, options: Any = ()):
        self.tag, self.forms, self.expected, self.options = tag, forms, expected, list(options)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        parts = [Annotated[form, Tag(MARK + name)] for name, form in self.forms.items()]
        union: Any = functools.reduce(operator.or_, parts)
        return handler.generate_schema(Annotated[union, Discriminator(self._marked), BeforeValidator(self._check)])

    def _marked(self, value: Any) -> str | None:
        name = self.tag(value)
        return None if name is None else MARK + name

    def _check(self, value: Any) -> Any:
        if self.tag(value) is None:
            raise PydanticCustomError("wrong_form", "form", {"expected": self.expected, "options": self.options})
        return value


class OneOfKinds(OneOfForms):
    """The type of tables that their `kind` tells apart."""

    def __init__(self, *kinds: type[Table]):
        named = {kind.model_fields["kind"].default: kind for kind in kinds}
        super().__init__(_kind, named, "a table with a `kind`")

    def _check(self, value: Any) -> Any:
        if isinstance(value, dict) and "kind" not in value:
            context = {"options": list(self.forms), "instead": near("kind", value) or ""}
            raise PydanticCustomError("no_kind", "kind", context)
        if isinstance(value, dict) and (_kind(value) not in self.forms):
            raise PydanticCustomError("unknown_kind", "kind", {"options": list(self.forms)})
        return super()._check(value)


class Word:
    """The type of one of some words; a near miss is named."""

    def __init__(self, what: str, options: Any):
        self.what, self.options = what, list(options)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Annotated[source, BeforeValidator(self._check)])

    def _check(self, value: Any) -> Any:
        if value not in self.options:
            raise PydanticCustomError("unknown_word", "word", {"what": self.what, "options": self.options})
        return value


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


def _number_or_list(value: Any) -> str | None:
    return "list" if isinstance(value, list) else "number" if is_number(value) else None


NumberOrList = Annotated[
    Any,
    OneOfForms(
        _number_or_list, {"number": float, "list": list[float]}, "a number, or a list with one for each coordinate"
    ),
]
CountOrList = Annotated[
    Any,
    OneOfForms(
        _number_or_list,
        {"number": Count, "list": list[Count]},
        "a whole number, or a list with one for each coordinate",
    ),
]


class Located(checks.InputError):
    """A refusal whose message names its place in the file; `path` is that place, for those who show it there."""

    def __init__(self, what: str, got: Any, expected: str, remedy: str, path: Place = ()):
        super().__init__(what, got, expected, remedy)
        self.path = path


@dataclasses.dataclass(frozen=True)
class Site:
    """Where something is built: its place in the file, the file's folder, the seed, and the dimension of the tokens."""

    source: Source
    folder: Path
    seed: int
    path: Place = ()
    d: int = 1
    draw: Place = ()
    """Joins `path` where random numbers are drawn: the number of a layer that redraws its weights."""

    def at(self, *keys: str | int) -> "Site":
        """The site of a part."""
        return dataclasses.replace(self, path=(*self.path, *keys))

    @contextlib.contextmanager
    def refusing(self, *keys: str | int) -> Iterator[None]:
        """Give what the library refuses the place in the file."""
        try:
            yield
        except Located:
            raise
        except checks.InputError as error:
            path = self._named((*self.path, *keys), f"{error.what} {error.got}")
            remedy = next((here for there, here in REMEDIES.items() if there in error.remedy), error.remedy)
            what = f"{self.source.where(path)}: {_bracketed(path)}: {error.what}"
            raise Located(what, error.got, error.expected, remedy, path) from error

    def _named(self, path: Place, words: str) -> Place:
        """The key of the table at `path` that a refusal names first, if it names one."""
        table: Any = self.source.data
        for key in path:
            table = table.get(key) if isinstance(table, dict) else table[int(key)] if isinstance(table, list) else None
        found = re.findall(r"\w+", words) if isinstance(table, dict) else []
        return next(((*path, word) for word in found if word in table), path)

    def load(self, name: str) -> np.ndarray:
        """The array in a .npy file next to the experiment file."""
        file = self.folder / name
        with self.refusing():
            try:
                if file.exists() and not file.is_file():  # a pipe would be waited for, a device has no end
                    raise OSError("it is not a file")
                array = np.load(file, allow_pickle=False)
            except (OSError, ValueError, EOFError, SyntaxError, TypeError, MemoryError) as error:
                checks.refuse(
                    f"the file {name!r} cannot be read",
                    got="no such file" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__,
                    expected=f"an array of numbers, written by numpy.save, in {self.folder}",
                    remedy="names are relative to the experiment file; arrays of Python objects are not read",
                )
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
                checks.refuse(
                    f"the file {name!r} holds no array of real numbers",
                    got=getattr(array, "dtype", "an archive of several arrays"),
                    expected="one array of real numbers",
                    remedy="write it with numpy.save(name, array.astype(float))",
                )
        return array


def _bracketed(path: Place) -> str:
    """A path as people write tables and their keys: [attention] tau."""
    return dotted(path) if not path else f"[{path[0]}]" + (f" {dotted(path[1:])}" if len(path) > 1 else "")

"""Fields, measures, systems and options as JSON with arrays beside it, and back.

Only data is kept: numbers, words, arrays, and fields, measures, runs and solvers by the names of their classes.
Nothing is evaluated when it is read: no class is called, and only modules of meanformer and diffrax are imported. A
function is kept by its name alone, and says so when it is called.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib
import inspect
import json
import math
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from .arrays import DTYPES, is_plain

# Arrays with no more numbers than this are written into the JSON, where people can read them.
INLINE = 64
NUMBERS = "fiub"  # the kinds of their dtypes
# Modules of these packages are imported to find a class.
PACKAGES = ("meanformer", "diffrax")

Sink = Callable[[np.ndarray], Any]
Source = Callable[[Any], np.ndarray]


class Missing:
    """A function that was not kept."""

    def __init__(self, name: str, code: str = ""):
        self.name, self.code = name, code

    def __call__(self, *_: Any, **__: Any) -> Any:
        checks.refuse(
            "a run folder keeps no functions",
            got=f"a call of {self.name}",
            expected="the function itself",
            remedy="make the field and the options again in Python, and give them to mf.flow with the same journal",
        )


def encode(node: Any, sink: Sink) -> Any:
    """`node` as JSON; `sink` takes the larger arrays and gives back the name to write for each."""
    if node is None or isinstance(node, (bool, str)):
        return node
    if isinstance(node, enum.Enum):
        return {"enum": _name(type(node)), "value": node.value}
    if isinstance(node, int):
        return node
    if isinstance(node, float):
        return node if math.isfinite(node) else {"float": repr(node)}
    if isinstance(node, (jax.Array, np.ndarray, np.generic)):
        return _encode_array(node, sink)
    if isinstance(node, list):
        return [encode(item, sink) for item in node]
    if isinstance(node, tuple) and not hasattr(node, "_fields"):
        return {"tuple": [encode(item, sink) for item in node]}
    if isinstance(node, dict) and all(isinstance(key, str) for key in node):
        return {"dict": {key: encode(value, sink) for key, value in node.items()}}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in dataclasses.fields(node) if hasattr(node, field.name)]
        return {"class": _name(type(node)), "fields": {name: encode(getattr(node, name), sink) for name in names}}
    if isinstance(node, Missing):
        return {"function": node.name, "code": node.code}
    if callable(node):
        return {"function": getattr(node, "__qualname__", type(node).__name__), "code": _digest_of_function(node)}
    refuse_to_keep(checks.described(node))


def refuse_to_keep(got: str) -> NoReturn:
    """Say what cannot be written into a folder."""
    checks.refuse(
        "a run folder keeps numbers, arrays, fields and measures",
        got=got,
        expected="what mf.flow and mf.layers take",
        remedy='give plain numbers, a solver by its name (solver="kvaerno5"), or run without a journal',
    )


def _encode_array(array: Any, sink: Sink) -> Any:
    kind = "jax" if isinstance(array, jax.Array) else "numpy"
    values = np.asarray(array)
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    small = values.size <= INLINE and values.dtype.kind in NUMBERS and is_plain(str(values.dtype), values.shape)
    if small and (values.size == 0 or np.isfinite(values).all()):
        # Decimals of Python numbers give back the same bits.
        return {kind: values.tolist(), "dtype": str(values.dtype), "shape": list(values.shape)}
    return {kind: sink(values)}


def decode(node: Any, source: Source) -> Any:
    """What `encode` was given; `source` finds arrays by their names."""
    if isinstance(node, list):
        return [decode(item, source) for item in node]
    if not isinstance(node, dict):
        return node
    if "float" in node:
        return float(node["float"])
    if "tuple" in node:
        return tuple(decode(item, source) for item in node["tuple"])
    if "dict" in node:
        return {key: decode(value, source) for key, value in node["dict"].items()}
    if "enum" in node:
        return _member(node["enum"], node["value"])
    if "function" in node:
        return Missing(node["function"], node.get("code", ""))
    for kind, make in (("jax", jnp.asarray), ("numpy", np.asarray)):
        if kind in node:
            return make(_inline(node, node[kind]) if "dtype" in node else source(node[kind]))
    return _decode_object(node, source)


def _inline(node: dict[str, Any], values: Any) -> np.ndarray:
    """An array that is written into the JSON: of numbers, whose size is that of the text."""
    if not is_plain(node["dtype"], node["shape"]):
        raise ValueError(f"an array of {str(node['dtype'])[:80]}, of shape {str(node['shape'])[:80]}")
    return np.array(values, DTYPES[node["dtype"]]).reshape(node["shape"])


def _decode_object(node: dict[str, Any], source: Source) -> Any:
    cls = _class(node["class"])
    if cls is None:
        return Missing(node["class"])
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        if field.name in node["fields"]:
            value = decode(node["fields"][field.name], source)
        elif field.default is not dataclasses.MISSING:  # a field that is newer than the folder
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            continue
        object.__setattr__(made, field.name, value)
    return made


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _class(name: str) -> Any:
    """The class of a name. Those of our packages are imported; a module of a user is found if it is loaded, else it is
    None: nobody else's code runs because a folder names it, and no class is filled with data that expects none.
    """
    ours, found = _found(name)
    if inspect.isclass(found) and (dataclasses.is_dataclass(found) if ours else issubclass(found, eqx.Module)):
        return found
    return _unknown(name) if ours else None


def _member(name: str, value: Any) -> enum.Enum:
    """A member of one of our enumerations."""
    ours, found = _found(name)
    if ours and inspect.isclass(found) and issubclass(found, enum.Enum) and value in found._value2member_map_:
        return found._value2member_map_[value]
    _unknown(f"{name} = {value!r}")


def _found(name: str) -> tuple[bool, Any]:
    """Whether a name is in our packages, and what it names, None if nothing."""
    module, _, qualname = str(name).partition(":")
    package, *inner = module.split(".")
    ours = package in PACKAGES and "__main__" not in inner
    found: Any = None
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        found = importlib.import_module(module) if ours else sys.modules.get(module)
        for part in qualname.split("."):
            found = inspect.getattr_static(found, part)  # asks nobody
    return ours, found


def _unknown(name: str) -> NoReturn:
    checks.refuse(
        "a run folder names a class that is not known",
        got=name,
        expected=f"a class of {' or '.join(PACKAGES)}, of this version",
        remedy="read the folder with the version of meanformer that wrote it (see run.json)",
    )


def _digest(values: np.ndarray) -> str:
    words = f"{values.dtype}{values.shape}".encode()
    return hashlib.sha256(words + np.ascontiguousarray(values).tobytes()).hexdigest()


def _digest_of_function(function: Any) -> str:
    """A hash of what a function does: its code, constants, defaults, and the values that it closes over."""
    seen: set[int] = set()

    def of(node: Any) -> Any:
        if id(node) in seen:
            return "again"
        if isinstance(node, functools.partial):
            return ["partial", of(node.func), of(node.args), of(node.keywords)]
        if inspect.ismethod(node):
            return ["method", of(node.__func__), of(node.__self__)]
        if inspect.isbuiltin(node) or isinstance(node, (type, np.ufunc)):
            return ["name", getattr(node, "__module__", ""), node.__name__]
        node = inspect.unwrap(node) if callable(node) else node  # jitted functions
        if inspect.isfunction(node):
            seen.add(id(node))
            cells = [cell.cell_contents for cell in node.__closure__ or ()]
            return [of(node.__code__), of(node.__defaults__), of(node.__kwdefaults__), of(cells)]
        if isinstance(node, types.CodeType):
            names = [list(part) for part in (node.co_names, node.co_varnames, node.co_freevars)]
            return [node.co_code.hex(), names, [of(constant) for constant in node.co_consts]]
        if isinstance(node, (list, tuple)):
            return [of(item) for item in node]
        if isinstance(node, (set, frozenset)):
            return sorted(json.dumps(of(item)) for item in node)
        if isinstance(node, dict):
            return {str(key): of(value) for key, value in node.items()}
        if isinstance(node, (bytes, complex)) or node is ...:
            return repr(node)
        if callable(node) and not dataclasses.is_dataclass(node):
            checks.refuse(
                "a journal must know what a function does",
                got=checks.described(node),
                expected="a function, or an equinox.Module",
                remedy="give a plain function, or run without a journal",
            )
        return encode(node, _digest)

    return hashlib.sha256(json.dumps(of(function), sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(*nodes: Any) -> str:
    """A hash of everything that is encoded: the same inputs give the same words, in every process."""
    text = json.dumps([encode(node, _digest) for node in nodes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

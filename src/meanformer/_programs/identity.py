"""What a function is, told by value: its code, and what it captures.

Two functions with the same code that capture equal things compute the same. Numbers and arrays that a function captures
(in its closure, its defaults, or the global names it reads) become arguments of the program, so that a loop over
thresholds, with a new `lambda` each time, needs one program.
"""

import builtins
import dis
import enum
import functools
import hashlib
import os
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# Libraries whose versions (for meanformer: whose sources) are part of the key of what is kept on disk.
LIBRARIES = ("meanformer", "jax", "jaxlib", "equinox", "diffrax", "lineax", "optimistix", "numpy", "scipy")
# Modules of Python that tell of more than their arguments: files, clocks, the process. What reaches them is not known.
# fmt: off
_OUTWARD = frozenset({
    "__main__", "_io", "_random", "csv", "ctypes", "datetime", "gc", "getpass", "glob", "importlib", "inspect",
    "io", "locale", "mmap", "multiprocessing", "os", "pathlib", "pickle", "platform", "posix", "random", "resource",
    "secrets", "select", "shelve", "shutil", "signal", "site", "socket", "sqlite3", "subprocess", "sys", "sysconfig",
    "tempfile", "threading", "time", "tkinter", "urllib", "uuid", "warnings", "weakref",
})
# fmt: on
_STANDARD = Path(os.__file__).resolve().parent
_PLAIN = (int, bool, str, bytes, complex, type(None), type(Ellipsis), range)
_JITTED = type(jax.jit(lambda: None))
FUNCTIONS = (types.FunctionType, functools.partial, _JITTED)
# With these a function may read what its code does not name.
_UNREADABLE = frozenset({"globals", "locals", "eval", "exec", "__import__", "vars", "open", "input", "breakpoint"})
# Attributes by which a library that is trusted reads files.
_READING = frozenset({"load", "loadtxt", "genfromtxt", "fromregex", "fromfile", "memmap", "open_memmap", "tofile"})
# With these a function may do something else with an argument of the program than with a number.
_ASKING = frozenset({"isinstance", "issubclass", "type", "hasattr", "callable"})
# Names in a class that say nothing of what its methods compute.
# fmt: off
_NOISE = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__abstractmethods__",
    "_abc_impl", "__abstractvars__", "__abstractclassvars__", "__dataclass_params__", "__dataclass_fields__",
    "__match_args__", "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__parameters__", "__orig_bases__",
})
# fmt: on

Build = Callable[[Iterator[Any]], Any]


class Unknown(Exception):
    """Of something whose value cannot be told."""


class Same:
    """Equal to itself only. It keeps its thing, so that no other one gets its address."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Opened(NamedTuple):
    """A function, taken apart: what it is, the values that may move, and how to make it from other values."""

    fixed: Hashable
    moving: list[Any]
    build: Build | None
    code: str | None


# Codes that cannot be traced with what they capture as arguments: `if threshold > 1:`.
_rigid: set[str] = set()
# Codes that change what they capture when they are traced: `seen.append(t)`. Their values say nothing.
_changing: set[str] = set()


def opened(function: Any) -> Opened:
    """`function` taken apart, so far as that is possible."""
    if name := library_name(function):
        return Opened(name, [], None, None)
    code = _code_of(function)
    if code in _changing:
        return Opened(Same(function), [], None, code)
    if code not in _rigid:
        try:
            reader = _Reader(moves=True)
            fixed, build = reader.read(function)
            return Opened(fixed, reader.moving, build, code)
        except Unknown:
            pass
    return Opened(_Reader(moves=False, unknown=Same(function)).read(function)[0], [], None, code)


def keep_rigid(functions: list[Opened]) -> bool:
    """From now on, what these functions capture is constant in their programs. Whether that is new for some of them."""
    new = {function.code for function in functions if function.code is not None} - _rigid
    _rigid.update(new)
    return bool(new)


def keep_apart(functions: list[Opened]) -> None:
    """From now on, functions of these codes are told apart by identity alone."""
    _changing.update(function.code for function in functions if function.code is not None)


def value_of(thing: Any) -> Hashable:
    """`thing` by value, as nested tuples. Raises Unknown."""
    return _Reader(moves=False).read(thing)[0]


def is_array(value: Any) -> bool:
    """Whether `value` is an array that can be an argument of a program."""
    return isinstance(value, jax.Array) or is_numpy(value)


def is_numpy(value: Any) -> bool:
    """Whether `value` is an array or a scalar of NumPy, of numbers; V are those of JAX, such as bfloat16."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcV"


class _Reader:
    """Reads values: what stays fixed is returned, what may move is put into `moving`, in order."""

    def __init__(self, moves: bool, unknown: Same | None = None):
        self.moves, self.unknown = moves, unknown
        self.moving: list[Any] = []
        self.path: list[Any] = []

    def read(self, value: Any) -> tuple[Hashable, Build | None]:
        """What is fixed of `value`, and how to build it again from values in the place of those that move."""
        kind = type(value)
        if kind in _PLAIN:
            return (kind.__name__, value), None
        if kind is float:
            return self._moved(value, "float", lambda: value.hex())
        if is_array(value) and not isinstance(value, Tracer):
            weak = getattr(value, "weak_type", False)
            return self._moved(value, ("array", value.shape, str(value.dtype), weak), lambda: _digest(value))
        if isinstance(value, enum.Enum):
            return ("enum", self._still(type(value)), value.name), None
        if isinstance(value, np.dtype):
            return ("dtype", str(value)), None
        if name := library_name(value):
            return name, None
        if kind is types.ModuleType or value is _Missing:
            return self._unknown(value)
        if any(value is other for other in self.path):
            if self.moves:  # inside itself it would be called with its old values
                raise Unknown
            return ("again", [value is other for other in self.path].index(True)), None
        self.path.append(value)
        try:
            return self._composite(value)
        finally:
            self.path.pop()

    def _composite(self, value: Any) -> tuple[Hashable, Build | None]:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, _JITTED) and isinstance(wrapped := getattr(value, "__wrapped__", None), Callable):
            fixed, build = self.read(wrapped)
            return ("jit", fixed), build
        if isinstance(value, functools.partial):
            fixed, build = self._parts([value.func, value.args, dict(value.keywords)])
            return ("partial", fixed), build and (
                lambda new: (lambda f, a, k: functools.partial(f, *a, **k))(*build(new))
            )
        if isinstance(value, type):
            return self._still_class(value), None
        if isinstance(value, (set, frozenset)):
            return (type(value).__name__, frozenset(self._still(item) for item in value)), None
        try:
            leaves, structure = jax.tree.flatten(value)
        except (TypeError, ValueError):  # a dict whose keys have no order
            return self._unknown(value)
        if len(leaves) == 1 and leaves[0] is value:
            return self._unknown(value)
        fixed, build = self._parts(leaves)
        return ("tree", structure, fixed), build and (lambda new: structure.unflatten(build(new)))

    def _function(self, function: types.FunctionType) -> tuple[Hashable, Build | None]:
        digest, names, free, asks = _code(function.__code__)
        space = function.__globals__
        draws = "random" in function.__code__.co_names and any(space.get(name) is np for name in names)
        if digest is None or draws:
            return self._unknown(function)
        if asks and self.moves:
            raise Unknown
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        used = [name for name in names if name in space]
        missing = tuple(name for name in names if name not in space and not hasattr(builtins, name))
        values = [space[name] for name in used]
        fixed, build = self._parts([*cells, *values, function.__defaults__, function.__kwdefaults__, vars(function)])

        def built(new: Iterator[Any]) -> types.FunctionType:
            assert build is not None
            *parts, defaults, keywords, attributes = build(new)
            names = space | dict(zip(used, parts[len(cells) :], strict=True))
            closure = tuple(types.CellType(part) for part in parts[: len(cells)])
            made = types.FunctionType(function.__code__, names, function.__name__, defaults, closure)
            made.__kwdefaults__ = keywords
            vars(made).update(attributes)
            return made

        return ("function", digest, free, tuple(used), missing, fixed), build and built

    def _parts(self, values: list[Any]) -> tuple[Hashable, Build | None]:
        """Several values, which are built as a list."""
        read = [self.read(value) for value in values]
        fixed = tuple(part for part, _ in read)
        if all(build is None for _, build in read):
            return fixed, None

        def build(new: Iterator[Any]) -> list[Any]:
            return [value if make is None else make(new) for value, (_, make) in zip(values, read, strict=True)]

        return fixed, build

    def _moved(self, value: Any, kind: Hashable, content: Callable[[], Hashable]) -> tuple[Hashable, Build | None]:
        if not self.moves:
            return (kind, content()), None
        self.moving.append(value)
        return kind, next

    def _still(self, value: Any) -> Hashable:
        """`value`, none of which moves."""
        moves, self.moves = self.moves, False
        try:
            return self.read(value)[0]
        finally:
            self.moves = moves

    def _still_class(self, cls: type) -> Hashable:
        members = {name: value for name, value in vars(cls).items() if name not in _NOISE}
        for name, value in members.items():
            if isinstance(value, (staticmethod, classmethod)):
                members[name] = (type(value).__name__, value.__func__)
            elif isinstance(value, property):
                members[name] = ("property", value.fget, value.fset, value.fdel)
        body = tuple((name, self._still(value)) for name, value in sorted(members.items()))
        return ("class", cls.__qualname__, tuple(self._still(base) for base in cls.__bases__), body)

    def _unknown(self, value: Any) -> tuple[Hashable, None]:
        if self.unknown is None:
            raise Unknown(f"{type(value).__name__}")
        return self.unknown, None


def library_name(thing: Any) -> Hashable | None:
    """The name of a module, function or class of a library, under which it is found; None for anything else."""
    if type(thing) is types.ModuleType:
        return ("module", thing.__name__) if _trusted(thing.__name__) else None
    owner = getattr(thing, "__objclass__", thing)  # of the methods of types that are not written in Python
    module, name = getattr(owner, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _trusted(module):
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    # Some types are known by their name alone: that of None.
    return ("library", module, name) if found is thing or (isinstance(thing, type) and module == "builtins") else None


@functools.lru_cache(maxsize=1024)
def _trusted(module: str) -> bool:
    """Whether what is in a module is known by its name: a library of ours, or Python's own, not a file of that name."""
    top = module.partition(".")[0]
    if top in LIBRARIES:
        return True
    if top not in sys.stdlib_module_names or top in _OUTWARD:
        return False
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or (Path(file).resolve().is_relative_to(_STANDARD) and "-packages" not in file)


class _Missing:
    """The contents of an empty cell."""


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Missing


def _digest(array: Any) -> str:
    """The contents of an array."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _code_of(function: Any) -> str | None:
    while function is not None and not hasattr(function, "__code__"):
        function = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    return None if function is None else _code(function.__code__)[0]


@functools.lru_cache(maxsize=4096)
def _code(code: types.CodeType) -> tuple[str | None, tuple[str, ...], tuple[str, ...], bool]:
    """A digest of what the code does (None if it may do more than can be read off it), the global names and the free
    ones that it reads, and whether it may ask what sort of thing it was given.
    """
    names: dict[str, None] = {}
    asks = False

    def described(code: types.CodeType, outer: types.CodeType) -> Hashable:
        nonlocal asks
        asks |= bool(code.co_exceptiontable) or not _ASKING.isdisjoint(code.co_names)
        if not _READING.isdisjoint(code.co_names):
            raise Unknown
        for step in dis.get_instructions(code):
            writes = step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
            writes |= step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer.co_freevars
            imports = step.opname == "IMPORT_NAME" and not _trusted(step.argval)
            if writes or imports:
                raise Unknown
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                if step.argval in _UNREADABLE:
                    raise Unknown
                names[step.argval] = None
        constants = tuple(
            described(item, outer)
            if isinstance(item, types.CodeType)
            else (type(item).__name__, sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item))
            for item in code.co_consts
        )
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        tables = (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
        return code.co_code, code.co_exceptiontable, constants, counts, tables

    try:
        text = repr(described(code, code))
    except Unknown:
        return None, (), (), True
    return hashlib.sha256(text.encode()).hexdigest(), tuple(names), code.co_freevars, asks

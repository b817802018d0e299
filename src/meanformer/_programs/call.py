"""The decorator: a function as a program, compiled once for each kind of arguments on each machine."""

import functools
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import tree_flatten, tree_unflatten

from . import executable, identity, store
from .executable import trace_context

# Whether no transformation is under way. Another JAX may have moved it; tracers among the arguments are seen anyway.
trace_state_clean: Any = getattr(jax._src.core, "trace_state_clean", lambda: True)  # pyright: ignore


P = ParamSpec("P")
R = TypeVar("R")

QUICK: Mapping[str, Any] = {"xla_cpu_use_fusion_emitters": False}
"""Options with which XLA compiles in two thirds of the time, to programs up to twice as slow on large arrays."""

SMALL = 200
"""Programs all of whose arrays have at most so many numbers are compiled with `QUICK`: there it costs nothing."""

MOST_PROGRAMS = 1024
"""How many compiled programs of one function stay in memory."""


class Hole:
    """The place of an array in what a program returns."""


class _Compiled(NamedTuple):
    """A program that takes and returns arrays, and what it returns around them."""

    run: Callable[..., tuple[Any, ...]]
    structure: Any
    leaves: list[Any]

    def result(self, arrays: tuple[Any, ...]) -> Any:
        if len(arrays) == len(self.leaves):
            return tree_unflatten(self.structure, arrays)
        new = iter(arrays)
        return tree_unflatten(self.structure, [next(new) if leaf is Hole else leaf for leaf in self.leaves])


class _Given(NamedTuple):
    """The arguments of a call: a key of all but the values of arrays, these values, and how to put the two together."""

    key: tuple[Hashable, ...]
    moving: list[Any]
    functions: list[tuple[Any, identity.Opened]]


class Program(Generic[P, R]):
    """A function that is compiled when it is called; see `program`."""

    def __init__(self, function: Callable[P, R], options: Mapping[str, Any] | None, inline: bool = False):
        functools.update_wrapper(self, function)
        self._function, self._options, self._inline = function, options, inline
        self._compiled: dict[Hashable, _Compiled] = {}
        _programs.append(self)

    def with_options(self, options: Mapping[str, Any]) -> "Program[P, R]":
        """The same function, compiled with other options."""
        return Program(self._function, options, self._inline)

    @functools.cached_property
    def _plain(self) -> Callable[P, R]:
        return eqx.filter_jit(self._function)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        transformed = not trace_state_clean()
        if transformed and self._inline:
            return self._function(*args, **kwargs)
        if transformed or not _one_processor() or _debugging():
            return self._plain(*args, **kwargs)
        leaves, structure = tree_flatten((args, kwargs))
        try:
            given = _read(leaves, structure)
        except identity.Unknown:
            return self._plain(*args, **kwargs)
        try:
            found = self._compiled.get(given.key)
        except TypeError:  # an object of the user's that cannot be hashed
            return self._function(*args, **kwargs)
        if found is not None:
            return found.result(found.run(*given.moving))
        try:
            found, arrays = self._prepared(given, leaves, structure)
        except Exception:
            moved = [opened for _, opened in given.functions if opened.moving]
            if not identity.keep_rigid(moved):
                raise
            # It may do without: `if threshold > 1:` needs a number.
            return self(*args, **kwargs)
        changed = [opened for function, opened in given.functions if identity.opened(function).fixed != opened.fixed]
        if changed:
            identity.keep_apart(changed)
            given = _read(leaves, structure)
        if len(self._compiled) >= MOST_PROGRAMS:
            self._compiled.pop(next(iter(self._compiled)), None)
        self._compiled[given.key] = found
        return found.result(arrays)

    def _prepared(self, given: _Given, leaves: list[Any], structure: Any) -> tuple[_Compiled, tuple[Any, ...]]:
        """The program, from disk or compiled, and what it returns for these arguments."""
        place = self._place(given)
        data = place and store.read(place)
        if data:
            try:
                run, outputs = executable.unpacked(data, len(given.moving))
                found = _Compiled(run, *reversed(tree_flatten(outputs)))
                return found, jax.block_until_ready(run(*given.moving))
            except Exception:  # whatever is wrong with it: it is compiled, and kept, again
                pass
        return self._built(given, leaves, structure, place)

    def _place(self, given: _Given) -> str | None:
        """The key on disk, if anything is to be there."""
        if store.folder() is None:
            return None
        return executable.key_on_disk(self._function, self._options_for(given), given.key[1:])

    def _options_for(self, given: _Given) -> Mapping[str, Any]:
        if self._options is not None:
            return self._options
        return QUICK if all(getattr(value, "size", 1) <= SMALL for value in given.moving) else {}

    def _built(
        self, given: _Given, leaves: list[Any], structure: Any, place: str | None
    ) -> tuple[_Compiled, tuple[Any, ...]]:
        """The program, compiled."""
        box: list[Any] = []
        jitted = jax.jit(_flat(self._function, _plan(leaves, given), structure, box))
        lowered = jitted.lower(*given.moving)
        names = executable.calls(lowered)
        shape = tree_flatten(box[0])
        if any("callback" in name for name in names):
            # Such a program may fail while it runs, and equinox says where.
            checked = eqx.filter_jit(lambda *moving: jitted(*moving))

            def run(*moving: Any) -> tuple[Any, ...]:
                return checked(*(jax.numpy.asarray(value) for value in moving))

            found = _Compiled(run, *reversed(shape))
            return found, run(*given.moving)
        run, whole = executable.compiled(lowered, self._options_for(given))
        if place and whole and executable.only_lapack(names) and executable.as_loaded():
            # What changes something when it is traced must be traced in the next process too.
            still = _read(leaves, structure).key == given.key and place == self._place(given)
            data = executable.packed(run, bool(names), box[0]) if still else None
            if data:
                store.write(place, data)
        return _Compiled(run, *reversed(shape)), run(*given.moving)


@overload
def program(function: Callable[P, R], /) -> Program[P, R]: ...
@overload
def program(
    *, options: Mapping[str, Any] | None = ..., inline: bool = ...
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
def program(function: Any = None, /, *, options: Mapping[str, Any] | None = None, inline: bool = False) -> Any:
    """A function that is compiled for each kind of its arguments, once on each machine.

    As with `equinox.filter_jit`, arrays among the leaves of the arguments are arguments of the program, and everything
    else is part of it; what is returned may hold other things than arrays. Unlike there,

    - programs are kept on disk between processes (`meanformer._programs.store`), unless they call back to Python;
    - functions among the arguments are told apart by their code and what they capture (`identity`), so that a new
      `lambda` each time needs no new program;
    - a call costs some ten microseconds more than that of what is compiled.

    Inside a transformation of JAX it is `equinox.filter_jit`, or the function itself if it is `inline`; with more than
    one CPU for a device it is `equinox.filter_jit`. With an argument that cannot be hashed it runs uncompiled.

    Args:
        function: A pure function. Call it in one way: `f(x, 1)` and `f(x, n=1)` are two programs.
        options: Options of XLA's compiler, left out where this XLA does not know them; by default `QUICK` for small
            arrays, and none for others.
        inline: Whether it has no `jit` of its own inside a transformation.
    """
    if function is None:
        return functools.partial(Program, options=options, inline=inline)
    return Program(function, options, inline)


_programs: list[Program[..., Any]] = []


def forget() -> None:
    """Forget all programs in memory; those on disk stay."""
    for each in _programs:
        each._compiled.clear()


def _debugging() -> bool:
    """Whether JAX looks at each result, or compiles nothing."""
    config = jax.config
    return config.jax_debug_nans or config.jax_debug_infs or config.jax_disable_jit  # pyright: ignore


@functools.cache
def _one_processor() -> bool:
    """Whether a CPU is all that there is to compute with, so that all arrays are there."""
    devices = jax.devices()
    return len(devices) == 1 and devices[0].platform == "cpu"


@functools.lru_cache(maxsize=4096)
def _type_of(shape: tuple[int, ...], dtype: np.dtype, context: Hashable) -> Any:
    """The abstract value that JAX gives to a NumPy array."""
    return jax.typeof(np.broadcast_to(np.zeros((), dtype), shape))


# The types of JAX's arrays that were seen: quicker than `isinstance`.
_array_types: set[type] = set()


def _read(leaves: list[Any], structure: Any) -> _Given:
    """The leaves of the arguments, sorted. Raises Unknown if there is a tracer among them."""
    context = trace_context()
    key: list[Any] = [context, structure]
    moving: list[Any] = []
    functions: list[tuple[Any, identity.Opened]] = []
    for leaf in leaves:
        if type(leaf) in _array_types:
            moving.append(leaf)
            key.append(leaf.aval)
        elif isinstance(leaf, jax.Array):
            if isinstance(leaf, Tracer):
                raise identity.Unknown
            _array_types.add(type(leaf))
            moving.append(leaf)
            key.append(leaf.aval)
        elif identity.is_array(leaf):
            moving.append(leaf)
            key.append(_type_of(leaf.shape, leaf.dtype, context))
        elif isinstance(leaf, identity.FUNCTIONS):
            opened = identity.opened(leaf)
            functions.append((leaf, opened))
            moving += opened.moving
            key.append(opened.fixed)
        else:
            key.append((type(leaf), leaf.hex() if type(leaf) is float else leaf))
    return _Given(tuple(key), moving, functions)


def _plan(leaves: list[Any], given: _Given) -> list[Callable[[Iterator[Any]], Any]]:
    """How each leaf is had from the values that move. No array of this call is held on to."""
    opened = iter(given.functions)
    plan: list[Callable[[Iterator[Any]], Any]] = []
    for leaf in leaves:
        if identity.is_array(leaf):
            plan.append(next)
        elif isinstance(leaf, identity.FUNCTIONS) and (build := next(opened)[1].build) is not None:
            plan.append(build)
        else:
            plan.append(lambda new, leaf=leaf: leaf)
    return plan


def _flat(function: Callable[..., Any], plan: list[Any], structure: Any, box: list[Any]) -> Callable[..., Any]:
    """`function` from arrays to arrays; what it returns, with holes for the arrays, is put into `box`."""

    def flat(*moving: Any) -> tuple[Any, ...]:
        new = iter(moving)
        args, kwargs = tree_unflatten(structure, [make(new) for make in plan])
        leaves, shape = tree_flatten(function(*args, **kwargs))
        box[:] = [tree_unflatten(shape, [Hole if identity.is_array(leaf) else leaf for leaf in leaves])]
        return tuple(leaf for leaf in leaves if identity.is_array(leaf))

    flat.__name__ = getattr(function, "__name__", "program")
    return flat

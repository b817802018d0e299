"""What keeps repeated calls cheap: modules whose fields are read at once, answers that are kept, and methods that are
only called.
"""

import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar, no_type_check

import equinox as eqx

from ._types import is_traced

T = TypeVar("T")


class Module(eqx.Module):
    """A module of equinox whose fields are read at the speed of Python: a run of forty tokens reads some 160."""

    if not TYPE_CHECKING:  # a type checker would no longer tell which attributes there are

        @no_type_check  # at night, when each call is checked, a look is not
        def __getattribute__(self, name: str, /) -> Any:
            value = object.__getattribute__(self, name)
            # A method is a tree, which equinox makes of it.
            return super().__getattribute__(name) if type(value) is MethodType else value


def assembled(kind: type[T], /, **fields: Any) -> T:
    """A module from all its fields, which are known to fit: without the checks of its class and of equinox."""
    assert fields.keys() == kind.__dataclass_fields__.keys(), kind  # pyright: ignore
    module = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def remembered(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """`function` of one frozen object, asked once for each. What holds traced arrays is asked each time."""
    known: dict[int, tuple[Any, T]] = {}

    @wraps(function)
    def ask(thing: Any) -> T:
        number = id(thing)
        found = known.get(number)
        if found is not None and found[0]() is thing:
            return found[1]
        answer = function(thing)
        if not is_traced(thing):
            known[number] = weakref.ref(thing, lambda _: known.pop(number, None)), answer
        return answer

    return ask


class _Light:
    """A method, looked up as a function with its first argument."""

    def __init__(self, function: Callable[..., Any]):
        self.__func__, self.__doc__ = function, function.__doc__
        self.__isabstractmethod__ = getattr(function, "__isabstractmethod__", False)

    def __get__(self, thing: Any, kind: Any = None) -> Any:
        return self.__func__ if thing is None else partial(self.__func__, thing)


def light(method: Callable[..., Any]) -> Any:
    """A method of an `equinox.Module` that is only called, never handed to JAX.

    Equinox makes a tree of each method that is looked up, which costs more than many of the calls.
    """
    return _Light(method)

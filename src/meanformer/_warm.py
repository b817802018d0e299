"""What keeps repeated calls cheap: answers that are kept, and methods that are only called."""

import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

from ._types import is_traced

T = TypeVar("T")


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

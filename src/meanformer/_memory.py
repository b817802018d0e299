"""Answers about objects that do not change, kept as long as the objects live."""

import weakref
from collections.abc import Callable
from functools import wraps
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

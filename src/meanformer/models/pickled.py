"""What a pickle would make, told from its instructions: nothing is made, called or imported.

Tables, lists and tuples may hold each other, and the same one may be in several places; what is written in 60 lines
can so have 2^60 parts. What torch writes has few, calls four functions, and its tables have names and numbers as keys.
"""

from typing import Any

_SIZES = {"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1}
SIZES = {f"torch {kind}Storage": size for kind, size in _SIZES.items()}
SIZES |= {"torch BoolStorage": 1, "torch.storage UntypedStorage": 1}
"""Kinds of data, and the bytes of a number."""
TABLE = "collections OrderedDict"
CALLED = (TABLE, "torch Size", "torch device", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter")
DEEPEST = 100
# Tensors have six parts each, and some are in several places.
MOST_PARTS = 10**6


class Suspicious(ValueError):
    """A file that holds more than tensors; the message says what."""


class Name:
    """A class or a function."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name


class Whole:
    """A "table", a "list", a "tuple", an "object" or "data", with its parts; numbers and texts are not counted."""

    __slots__ = ("items", "kind", "parts")

    def __init__(self, kind: str, items: list[Any]):
        self.kind, self.parts = kind, [item for item in items if isinstance(item, Whole)]
        self.items = items if kind == "tuple" else []


class Machine:
    """Follows the instructions of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.data: dict[str, int] = {}
        """The bytes of the data that tensors are views of."""
        self.made = 0

    def follow(self, word: str, argument: Any) -> None:
        """Do what an instruction does; IndexError and KeyError if the pickle is broken."""
        if word.endswith("BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif word.endswith("BINGET"):
            self.stack.append(self.memo[argument])
        elif word in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
            self._put(self._marked() if word.endswith("S") else self._taken(2 if word == "SETITEM" else 1), word)
        elif word in ("REDUCE", "BUILD"):
            (self._call if word == "REDUCE" else self._build)(*self._taken(2))
        elif word == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif word == "GLOBAL":
            self.stack.append(Name(argument))
        elif word == "BINPERSID":
            self._load(self._taken(1)[0])
        elif "TUPLE" in word:
            count = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "EMPTY_TUPLE": 0}.get(word)
            self._push("tuple", self._marked() if count is None else self._taken(count))
        elif word.startswith("EMPTY"):
            self._push("table" if word == "EMPTY_DICT" else "list", [])
        elif word not in ("PROTO", "STOP"):  # a number or a text
            self.stack.append(argument)

    def _push(self, kind: str, items: list[Any]) -> None:
        self.made += 1
        self.stack.append(Whole(kind, items))

    def _taken(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError
        return [self.stack.pop() for _ in range(count)][::-1]

    def _marked(self) -> list[Any]:
        found, self.stack = self.stack, self.below.pop()
        return found

    def _put(self, items: list[Any], word: str) -> None:
        """Fill a table or a list."""
        whole, kind = self.stack[-1], "table" if word.startswith("SET") else "list"
        if not isinstance(whole, Whole) or whole.kind != kind:
            raise Suspicious(f"{word} of what is no {kind}")
        if kind == "table":
            if any(isinstance(key, (Whole, Name)) for key in items[::2]):
                raise Suspicious("a key that is neither a name nor a number")
            items = items[1::2]
        whole.parts += [item for item in items if isinstance(item, Whole)]

    def _call(self, function: Any, given: Any) -> None:
        name = function.name if isinstance(function, Name) else "what has no name"
        if name not in CALLED or not isinstance(given, Whole) or given.kind != "tuple":
            raise Suspicious(f"a call of {name.replace(' ', '.')}")
        if name == TABLE and given.items:
            raise Suspicious("a table that is not filled entry by entry")
        self._push("table" if name == TABLE else "object", given.items)

    def _build(self, whole: Any, state: Any) -> None:
        """What torch writes about the versions of modules, beside a table."""
        if not all(isinstance(one, Whole) and one.kind == "table" for one in (whole, state)):
            raise Suspicious("BUILD of what is no table")
        whole.parts.append(state)
        self.stack.append(whole)

    def _load(self, given: Any) -> None:
        """Data: a kind, a name, a place, and how many numbers."""
        items = given.items if isinstance(given, Whole) else []
        kind = items[1].name if len(items) in (5, 6) and isinstance(items[1], Name) else ""
        plain = kind in SIZES and [type(item) for item in (items[0], *items[2:5])] == [str, str, str, int]
        if not plain or items[4] < 0 or items[5:] not in ([], [None]):
            raise Suspicious("data that are not described as torch does")
        self.data[items[2]] = max(self.data.get(items[2], 0), SIZES[kind] * items[4])
        self._push("data", [])

    def check(self, size: int) -> None:
        """Look at what was made by a file of this size."""
        if sum(self.data.values()) > size:
            raise Suspicious(f"{sum(self.data.values()):,} bytes of data, in a file of {size:,}")
        counts: dict[Whole, tuple[int, int] | None] = {}  # parts and depth; None while they are counted
        waiting = [item for item in self.stack if isinstance(item, Whole)]
        while waiting:
            whole = waiting[-1]
            if counts.get(whole) is not None:
                waiting.pop()
            elif whole not in counts:
                counts[whole] = None
                new = [part for part in whole.parts if counts.get(part) is None]
                if any(part in counts for part in new):
                    raise Suspicious("something that holds itself")
                waiting += new
            else:
                inner = [found for part in whole.parts if (found := counts[part])]
                parts, depth = 1 + sum(n for n, _ in inner), 1 + max((d for _, d in inner), default=0)
                if depth > DEEPEST or parts > MOST_PARTS + 10 * self.made:
                    raise Suspicious(f"tables in tables, {depth} deep, with {parts:,} parts")
                counts[whole] = parts, depth
                waiting.pop()

"""TOML with line numbers: where each key of an experiment file stands; and experiments written as TOML."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from .. import _checks as checks

Path = tuple[str | int, ...]
"""A place in the data: keys of tables, and numbers in lists."""

BARE = re.compile(r"[A-Za-z0-9_-]+")
PLAIN = re.compile(r"[^,\[\]{}#\n]+")
# Strings, the triple ones first.
STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'", flags=re.DOTALL
)
BLANK = re.compile(r"(?:\s|#[^\n]*)*")
SPACES = re.compile(r"[ \t]*")
LONGEST = 100
"""Longer lists are written with a line for each entry."""


def dotted(path: Path) -> str:
    """A path as it is written: attention.heads.0.tau."""
    return ".".join(str(key) for key in path)


@dataclasses.dataclass(frozen=True)
class Source:
    """An experiment file: its name, its text, its data, and where each part of the data stands, in words."""

    name: str
    text: str
    data: dict[str, Any]
    places: dict[Path, str]
    inside: Path = ()
    """The case that is read on top of the file, if any: `("cases", 2)`."""

    def where(self, path: Path) -> str:
        """The words for the place of `path`, or of the nearest table around it: "clusters.toml, line 7"."""
        for length in range(len(path), 0, -1):
            for full in (self.inside + path[:length], path[:length]):
                if full in self.places:
                    return f"{self.name}, {self.places[full]}"
        return f"{self.name}, {self.places[self.inside]}" if self.inside in self.places else self.name


def parse(text: str, name: str) -> Source:
    """Read TOML; a syntax error is refused with its line."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        # Not TOML's own attributes: Python 3.11 has none. At the end of the file it tells no line.
        line = int(found[1]) if found else text.rstrip("\n").count("\n") + 1
        lines = text.splitlines()
        _refuse_syntax(name, line, lines[line - 1].strip() if line <= len(lines) else "", str(error).split(" (at")[0])
    except (ValueError, RecursionError) as error:  # a number of 10,000 digits, a thousand brackets
        _refuse_syntax(name, 1, type(error).__name__, str(error))
    return Source(name, text, data, {path: f"line {line}" for path, line in _Index(text).entries()})


def parse_value(text: str) -> Any:
    """A value as TOML writes it; anything else is a string."""
    try:
        data = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return data["value"] if list(data) == ["value"] else text


def _refuse_syntax(name: str, line: int, got: str, message: str) -> None:
    checks.refuse(
        f"{name}, line {line}: this is not TOML: {message[:1].lower()}{message[1:]}",
        got=got or "the end of the file",
        expected='lines such as `t1 = 4.0`, `kind = "softmax"` or `[flow]`',
        remedy="mend this line, or the one before it; text stands in quotes, numbers do not",
    )


class _Index:
    """Walks through text that is known to be TOML, and notes the line of each key."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.lists: dict[Path, int] = {}  # how many tables each [[list]] has so far

    def entries(self) -> Iterator[tuple[Path, int]]:
        """Each path with its line, in the order of the file."""
        table: Path = ()
        while self._skip(BLANK) and self.at < len(self.text):
            if self._take("[["):
                table = self._header(new=True)
                yield table, self._line()
                self._take("]]")
            elif self._take("["):
                table = self._header(new=False)
                yield table, self._line()
                self._take("]")
            else:
                yield from self._pair(table)

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return True

    def _take(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) * found
        return found

    def _key(self) -> list[str]:
        """A key, which may have dots."""
        parts = []
        while True:
            self._skip(SPACES)
            quoted = STRING.match(self.text, self.at)
            found = quoted or BARE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            parts.append(tomllib.loads(f"k = {found[0]}")["k"] if quoted else found[0])
            self._skip(SPACES)
            if not self._take("."):
                return parts

    def _header(self, new: bool) -> Path:
        """The path of a table; inside a [[list]] it is one of its last table."""
        keys, path = self._key(), ()
        for place, key in enumerate(keys):
            path = (*path, key)
            last = place == len(keys) - 1
            if new and last:
                self.lists[path] = self.lists.get(path, -1) + 1
            if path in self.lists:
                path = (*path, self.lists[path])
        return path

    def _pair(self, table: Path) -> Iterator[tuple[Path, int]]:
        path, line = table, self._line()
        for key in self._key():
            path = (*path, key)
            yield path, line
        self._take("=")
        self._skip(SPACES)
        yield from self._value(path)

    def _value(self, path: Path) -> Iterator[tuple[Path, int]]:
        if self._take("["):
            count = 0
            while self._skip(BLANK) and not self._take("]"):
                yield (*path, count), self._line()
                yield from self._value((*path, count))
                count += 1
                self._skip(BLANK)
                self._take(",")
        elif self._take("{"):
            while self._skip(BLANK) and not self._take("}"):
                yield from self._pair(path)
                self._skip(BLANK)
                self._take(",")
        else:
            found = STRING.match(self.text, self.at) or PLAIN.match(self.text, self.at)
            assert found is not None
            self.at = found.end()


def written(data: dict[str, Any]) -> str:
    """The data of an experiment as the text of a file, which `parse` reads back; "inf" as a time is TOML's own inf."""
    alone = {key: value for key, value in data.items() if not isinstance(value, dict) and value is not None}
    lines = [f"{_key_text(key)} = {_value_text(value, key)}" for key, value in alone.items()]
    for name, table in data.items():
        if isinstance(table, dict):
            kept = {key: value for key, value in table.items() if value is not None}
            lines += ["", f"[{_key_text(name)}]"]
            lines += [f"{_key_text(key)} = {_value_text(value, key)}" for key, value in kept.items()]
    return "\n".join(lines).lstrip("\n") + "\n"


def _key_text(key: str) -> str:
    return key if BARE.fullmatch(key) else _quoted(key)


def _value_text(value: Any, key: str = "") -> str:
    """A value as TOML writes it; long lists get a line for each entry."""
    if isinstance(value, dict):
        pairs = [f"{_key_text(name)} = {_value_text(part, name)}" for name, part in value.items() if part is not None]
        return "{" + ", ".join(pairs).replace("\n", " ") + "}"
    if isinstance(value, list):
        parts = [_value_text(part) for part in value]
        flat = f"[{', '.join(parts)}]"
        return (
            flat
            if len(flat) <= LONGEST or not isinstance(value[0], (list, dict))
            else "[\n  " + ",\n  ".join(parts) + ",\n]"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (value == "inf" and key == "t1"):
        return repr(float(value))
    return _quoted(value)


def _quoted(value: Any) -> str:
    """Text as JSON has it, which TOML reads, but for one character; and whole numbers."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""How much a tokenizer may make of a text before it cuts it: a file of some letters could ask for terabytes."""

import base64
from collections.abc import Iterator
from typing import Any

from .. import _checks as checks

# Known tokenizers write at most some tens of bytes for one; compositions of Unicode are among them.
MOST = 1000


def check_growth(settings: dict[str, Any]) -> None:
    """Refuse the content of a tokenizer.json whose replacements, one after the other, could make a text enormous."""
    factor = 1
    for part in _parts(settings.get("normalizer")):
        factor *= _growth(part)
        if factor > MOST:
            checks.refuse(
                "tokenizer.json makes texts far longer than they are",
                got=f"replacements that multiply their length by {factor:,} or more",
                expected=f"at most {MOST:,} bytes for each of the text",
                remedy="take the tokenizer.json that came with the weights",
            )


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """All tables inside a table, itself included; the file is no deeper than its reader allows."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(inner)


def _growth(part: dict[str, Any]) -> int:
    """The largest number of bytes that one byte becomes."""
    if isinstance(part.get("precompiled_charsmap"), str):
        return _longest(part["precompiled_charsmap"])
    written, pattern = part.get("content", part.get("prepend")), part.get("pattern")
    if not isinstance(written, str):
        return 1
    found = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(found, str) and found:
        return max(1, -(-_size(written) // _size(found)))
    return _size(written) + 1  # a pattern may be found between all letters


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _longest(charsmap: str) -> int:
    """The longest replacement in a map of characters: after a trie, whose size comes first, words that end with 0."""
    try:
        data = base64.b64decode(charsmap)
    except ValueError:
        return 1  # the library refuses it
    words = data[4 + int.from_bytes(data[:4], "little") :]
    return max(1, *(len(word) for word in words.split(b"\0")))

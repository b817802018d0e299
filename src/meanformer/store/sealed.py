"""JSON files that tell whether they are whole: their last entry is a checksum of all bytes before it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_MARK = b',\n "checksum": "'
_END = b"\n}"


def seal(content: Mapping[str, Any]) -> bytes:
    """The bytes of a file with this content, which is not empty."""
    body = json.dumps(content, indent=1, allow_nan=False).encode().removesuffix(_END)
    return body + _MARK + _digest(body) + b'"' + _END + b"\n"


def is_sealed(data: bytes) -> bool:
    """Whether a file has a checksum, right or wrong."""
    return _MARK in data


def unseal(data: bytes) -> dict[str, Any]:
    """The content of a file; `ValueError` in words if any of its bytes has changed since it was written."""
    body, _, rest = data.rpartition(_MARK)
    if rest != _digest(body) + b'"' + _END + b"\n":
        raise ValueError("it has changed since it was written")
    return parse(body + _END)


def parse(data: bytes) -> dict[str, Any]:
    """JSON that holds a dictionary; `ValueError` in words for anything else."""
    try:
        content = json.loads(data, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, not a dictionary")
    return content


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")

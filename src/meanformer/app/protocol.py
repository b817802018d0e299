"""Messages between the page, the server and its workers. Nothing here imports JAX.

A message is a dictionary. With arrays it is packed into bytes: 4 bytes, the length of the header, little-endian; the
header, JSON in UTF-8, padded with spaces so that it ends at a multiple of 8 bytes; then the arrays, each padded
likewise, so that a browser can look at them where they are. The header's "arrays" tell their names, dtypes and shapes.
"""

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

DTYPES = ("float32", "float64", "int32", "uint8")
ALIGNED = 8


def to_text(message: Mapping[str, Any]) -> str:
    """A message without arrays, as JSON; what is not finite becomes null, which JSON has."""
    return json.dumps(_finite(message), allow_nan=False)


def pack(message: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """A message with arrays, as bytes."""
    described = [{"name": name, "dtype": a.dtype.name, "shape": list(a.shape)} for name, a in arrays.items()]
    assert all(part["dtype"] in DTYPES for part in described), described
    header = to_text({**message, "arrays": described}).encode()
    header += b" " * (-(4 + len(header)) % ALIGNED)
    parts = [struct.pack("<I", len(header)), header]
    for array in arrays.values():
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        parts += [data, b"\0" * (-len(data) % ALIGNED)]
    return b"".join(parts)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The message and its arrays; `ValueError` for anything else."""
    if len(data) < 4:
        raise ValueError("a message has at least 4 bytes")
    at = 4 + struct.unpack("<I", data[:4])[0]
    if at > len(data):
        raise ValueError("the header is longer than the message")
    try:
        header = json.loads(data[4:at])
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error
    described = header.pop("arrays", []) if isinstance(header, dict) else None
    if not isinstance(described, list):
        raise ValueError("the header is not a table with a list of arrays")
    arrays = {}
    for part in described:
        known = isinstance(part, dict) and isinstance(part.get("name"), str) and part.get("dtype") in DTYPES
        shape = part.get("shape") if known else None
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("an array has a name, a dtype and a shape")
        dtype = np.dtype(part["dtype"]).newbyteorder("<")
        size = math.prod(shape) * dtype.itemsize
        if at + size > len(data):
            raise ValueError("the arrays are longer than the message")
        arrays[part["name"]] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += size + (-size % ALIGNED)
    return header, arrays


def refusal(error: Any, name: str) -> dict[str, Any]:
    """An `InputError` as the page shows it: four parts, a sentence, and the place in the experiment, if one is known.

    `name` is that of the source, which people on the page have not seen.
    """
    parts = {key: str(getattr(error, key)) for key in ("what", "got", "expected", "remedy")}
    what = parts["what"].removeprefix(f"{name}: ")
    # The page shows them at their place, and has no use for the name of the place in a file; nor for further mistakes.
    sentence = re.sub(r"^\[\w+\]( [\w.]+)?: ", "", what)
    remedy = parts["remedy"].partition("\n")[0]
    words = f"{sentence[:1].upper()}{sentence[1:]}: got {parts['got']}, expected {parts['expected']}. Remedy: {remedy}"
    words += "" if words.endswith(("?", ".")) else "."
    return {"say": "refused", **parts, "what": what, "words": words, "path": list(getattr(error, "path", ()))}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

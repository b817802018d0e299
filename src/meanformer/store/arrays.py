"""Named arrays as the files of a zarr group (format 3), and back."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# A chunk is at most this large: one file, and what a reader must load for one number.
CHUNK_BYTES = 2**25


def to_files(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The files of a group with these arrays, by name."""
    import zarr
    from zarr.storage import MemoryStore

    contents: dict[str, Any] = {}
    group = zarr.create_group(store=MemoryStore(contents), zarr_format=3)
    for name, values in arrays.items():
        # Empty chunks too: a chunk of -0.0 must not come back as 0.0.
        group.create_array(
            name, data=values, chunks=_chunks(values), compressors=None, config={"write_empty_chunks": True}
        )
    return {name: buffer.to_bytes() for name, buffer in contents.items()}


def from_files(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """The arrays of such files; `ValueError` in words for what `to_files` does not make."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    size = sum(map(len, files.values()))
    for name, data in files.items():
        if name.endswith("/zarr.json"):
            _check_plain(name, data, size)
    buffer = default_buffer_prototype().buffer
    contents: Any = {name: buffer.from_bytes(data) for name, data in files.items()}
    names = [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]
    try:
        group = zarr.open_group(store=MemoryStore(contents), mode="r")
        members = {name: group[name] for name in names}
        return {name: np.asarray(item[...]) for name, item in members.items() if isinstance(item, zarr.Array)}
    except Exception as error:  # zarr has many for files that are not its own
        raise ValueError(f"its arrays cannot be read: {error}") from error


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Whole rows, as many as fit into a chunk."""
    if values.ndim == 0 or values.size == 0:
        return tuple(max(1, size) for size in values.shape)
    rows = max(1, CHUNK_BYTES // max(1, values.nbytes // values.shape[0]))
    return (min(rows, values.shape[0]), *values.shape[1:])


def _check_plain(name: str, data: bytes, size: int) -> None:
    """Refuse an array that is larger than the bytes there are, or needs more than copying them."""
    try:
        about = json.loads(data)
        kind, codecs = about["node_type"], [codec["name"] for codec in about.get("codecs", [])]
        if kind == "array" and codecs == ["bytes"]:
            claimed = math.prod(about["shape"]) * np.dtype(about["data_type"]).itemsize
            if min(about["shape"], default=0) >= 0 and claimed <= size:
                return
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{name} describes no array") from error
    if kind != "group":
        raise ValueError(f"{name} does not describe an array of the numbers that are there")

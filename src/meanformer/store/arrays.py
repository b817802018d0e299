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

    names = [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]
    claims = [_claimed(name, files[f"{name}/zarr.json"]) for name in names]
    size, chunks = (sum(claim[k] for claim in claims) for k in (0, 1))
    if size > sum(map(len, files.values())) or chunks > len(files):
        raise ValueError("its files do not describe arrays of the numbers that are there")
    buffer = default_buffer_prototype().buffer
    contents: Any = {name: buffer.from_bytes(data) for name, data in files.items()}
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


def _claimed(name: str, data: bytes) -> tuple[int, int]:
    """The bytes and the chunks that an array says it has. One that needs more than copying them is refused."""
    try:
        about = json.loads(data)
        kind, codecs = about["node_type"], [codec["name"] for codec in about.get("codecs", [])]
        if kind == "group":
            return 0, 0
        shape, chunk = about["shape"], about["chunk_grid"]["configuration"]["chunk_shape"]
        if kind == "array" and codecs == ["bytes"] and min(shape, default=0) >= 0 and min(chunk, default=1) > 0:
            chunks = math.prod(-(-side // of) for side, of in zip(shape, chunk, strict=True))
            return math.prod(shape) * np.dtype(about["data_type"]).itemsize, chunks
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{name} describes no array") from error
    raise ValueError(f"{name} does not describe an array of plain numbers")

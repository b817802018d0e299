"""Named arrays as the files of a zarr group (format 3), and back."""

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
    """The arrays of such files."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    buffer = default_buffer_prototype().buffer
    contents: Any = {name: buffer.from_bytes(data) for name, data in files.items()}
    group = zarr.open_group(store=MemoryStore(contents), mode="r")
    names = [name.removesuffix("/zarr.json") for name in files if name.endswith("/zarr.json")]
    members = {name: group[name] for name in names}
    return {name: np.asarray(item[...]) for name, item in members.items() if isinstance(item, zarr.Array)}


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Whole rows, as many as fit into a chunk."""
    if values.ndim == 0 or values.size == 0:
        return tuple(max(1, size) for size in values.shape)
    rows = max(1, CHUNK_BYTES // max(1, values.nbytes // values.shape[0]))
    return (min(rows, values.shape[0]), *values.shape[1:])

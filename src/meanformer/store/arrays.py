"""Named arrays as the files of a zarr group (format 3), and back.

zarr writes them. What is read may come from anybody, and zarr would believe more than one description of an array: of
another format, or of the group, with filters that unpickle. Here the description that is checked is the one in use.
"""

import json
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
    arrays: dict[str, np.ndarray] = {}
    for name in [file.removesuffix("/zarr.json") for file in files if file.endswith("/zarr.json")]:
        try:
            about = json.loads(files[f"{name}/zarr.json"])
            if about["node_type"] == "array":
                arrays[name] = _read(name, about, files)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"{name!r} does not describe an array of the numbers that are there") from error
    return arrays


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Whole rows, as many as fit into a chunk."""
    if values.ndim == 0 or values.size == 0:
        return tuple(max(1, size) for size in values.shape)
    rows = max(1, CHUNK_BYTES // max(1, values.nbytes // values.shape[0]))
    return (min(rows, values.shape[0]), *values.shape[1:])


def _read(name: str, about: dict[str, Any], files: Mapping[str, bytes]) -> np.ndarray:
    """An array of plain numbers, all of whose chunks are there: so it is not larger than they are."""
    (codec,), dtype = about["codecs"], np.dtype(str(about["data_type"]))
    shape, chunk = map(_sides, (about["shape"], about["chunk_grid"]["configuration"]["chunk_shape"]))
    counts = [-(-side // of) for side, of in zip(shape, chunk, strict=True)]
    if codec["name"] != "bytes" or dtype.kind not in "biufc" or max(counts, default=0) > len(files):
        raise ValueError("not chunks of plain numbers")
    stored = dtype.newbyteorder(codec["configuration"]["endian"]) if dtype.itemsize > 1 else dtype
    parts = {
        place: np.frombuffer(files["/".join([name, "c", *map(str, place)])], stored).reshape(chunk)
        for place in np.ndindex(*counts)
    }
    values = np.empty(shape, dtype)
    for place, part in parts.items():
        within = values[(*(slice(k * of, (k + 1) * of) for k, of in zip(place, chunk, strict=True)), ...)]
        within[...] = part[(*map(slice, within.shape), ...)]  # the last chunks are longer than what is left
    return values


def _sides(sides: Any) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError("not whole numbers")
    return tuple(sides)

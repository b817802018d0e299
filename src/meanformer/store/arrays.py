"""Named arrays as the files of a zarr group (format 3), and back.

zarr writes them. What is read may come from anybody, and zarr would believe more than one description of an array: of
another format, or of the group, with filters that unpickle. Here the description that is checked is the one in use.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .sealed import seal

# A chunk is at most this large: one file, and what a reader must load for one number.
CHUNK_BYTES = 2**25
# The numbers that files hold, by their names. (NumPy evaluates others: "(1,2)f8" is a tuple.)
DTYPES = {str(dtype): dtype for dtype in map(np.dtype, "?bhilqBHILQefdFD")}
ORDERS: dict[str, Literal["<", ">"]] = {"little": "<", "big": ">"}
# How `to_files` names the pieces of an array. What a reader does not know may change what they mean.
LAYOUT = {
    "zarr_format": 3,
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "storage_transformers": [],
}
# An array of no numbers may have sides nevertheless, up to this product: who reads it may make others of its length.
MOST_EMPTY = 2**16


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


def to_segment(arrays: dict[str, np.ndarray], note: dict[str, Any], after: int | None) -> tuple[dict[str, bytes], int]:
    """The files of a segment which follows that with the sum `after`; and its own sum."""
    files = to_files(arrays)
    sums = {file: [len(data), zlib.crc32(data)] for file, data in files.items()}
    about = seal({"note": note, "files": sums, "after": after})
    return {**files, "segment.json": about}, zlib.crc32(about)


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


def is_plain(dtype: object, shape: Sequence[int]) -> bool:
    """Whether an array is of numbers by a name that is known here, and not of more rows than it has numbers."""
    return dtype in DTYPES and (0 not in shape or math.prod(side or 1 for side in shape) <= MOST_EMPTY)


def _read(name: str, about: dict[str, Any], files: Mapping[str, bytes]) -> np.ndarray:
    """An array of plain numbers, all of whose chunks are there: so it is not larger than they are."""
    (codec,), grid = about["codecs"], about["chunk_grid"]
    shape, chunk = map(_sides, (about["shape"], grid["configuration"]["chunk_shape"]))
    counts = [-(-side // of) for side, of in zip(shape, chunk, strict=True)]
    known = codec["name"] == "bytes" and grid["name"] == "regular" and about == about | LAYOUT
    if not known or not is_plain(about["data_type"], shape) or max(counts, default=0) > len(files):
        raise ValueError("not chunks of plain numbers")
    dtype = DTYPES[about["data_type"]]
    stored = dtype.newbyteorder(ORDERS[codec["configuration"]["endian"]]) if dtype.itemsize > 1 else dtype
    parts = {
        place: np.frombuffer(files["/".join([name, "c", *map(str, place)])], stored).reshape(chunk)
        for place in np.ndindex(*counts)
    }
    if dtype.kind == "b" and any((part.view(np.uint8) > 1).any() for part in parts.values()):
        raise ValueError("neither true nor false")
    values = np.empty(shape, dtype)
    for place, part in parts.items():
        within = values[(*(slice(k * of, (k + 1) * of) for k, of in zip(place, chunk, strict=True)), ...)]
        within[...] = part[(*map(slice, within.shape), ...)]  # the last chunks are longer than what is left
    return values


def _sides(sides: Any) -> tuple[int, ...]:
    if not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError("not whole numbers")
    return tuple(sides)

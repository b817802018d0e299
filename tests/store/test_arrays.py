"""Arrays as files: back to the same bits, and of what others wrote only plain numbers."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer.store import codec
from meanformer.store.arrays import CHUNK_BYTES, from_files, to_files
from store.runs import I, tokens


@pytest.mark.parametrize("most", [1, 100, CHUNK_BYTES])
def test_arrays_come_back_as_they_were(most, monkeypatch):
    """All kinds of numbers, in one chunk or in many, the last of which may be longer than what is left."""
    monkeypatch.setattr("meanformer.store.arrays.CHUNK_BYTES", most)
    draw = np.random.default_rng(0)
    arrays = {
        "floats": draw.normal(size=(7, 3)),
        "singles": draw.normal(size=(5, 2, 3)).astype(np.float32),
        "whole": np.arange(13),
        "bytes": np.arange(13, dtype=np.uint8),
        "truth": np.array([True, False, True]),
        "complex": draw.normal(size=9) * 1j,
        "odd": np.array([-0.0, 0.0, np.nan, np.inf]),
        "one/number": np.array(3.0),
        "none": np.zeros((0, 2)),
    }
    found = from_files(to_files(arrays))
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape)
        assert found[name].tobytes() == values.tobytes()


def test_arrays_of_other_machines():
    files = to_files({"a": np.arange(5.0)})
    files["a/zarr.json"] = files["a/zarr.json"].replace(b"little", b"big")
    files["a/c/0"] = np.arange(5.0).astype(">f8").tobytes()
    assert from_files(files)["a"].tobytes() == np.arange(5.0).tobytes()


def test_arrays_that_claim_more_than_there_is(path):
    """A file of a few bytes must not ask for all the memory, nor for anything but copying."""
    about = path / "segments" / "000002" / "times" / "zarr.json"
    content = json.loads(about.read_text())
    files = {name: (about.parents[1] / name).read_bytes() for name in ("zarr.json", "times/c/0", "times/zarr.json")}
    assert from_files(files)["times"].size
    codecs = [
        [],
        [{"name": "gzip", "configuration": {"level": 1}}],
        [{"name": "crc32c", "configuration": {"endian": "little"}}],
        *[[{"name": "bytes", "configuration": {"endian": order}}] for order in ("x", "swap", "native", "|", "<", None)],
        [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}],
    ]
    sides = [[10**14], [-1], [np.nan], [np.inf], [True], [1.0], [0, 10**30], [10**30], [1] * 70, [0], [], None, "1"]
    grids = [{"name": "regular", "configuration": {"chunk_shape": of}} for of in ([1], *sides)]
    # NumPy evaluates some of them.
    numpys = ["(1,,2)f8,", "01f8,f8", "(" + "1," * 10**6 + ")f8,f8", "f8", ">f8", "float", "double"]
    zarrs = [{"name": "float64"}, "r64", "string", None]
    for change in (
        *[{"data_type": name} for name in ("x", "object", "U4", "S8", "V8", "M8[s]", "f8,f8", *numpys, *zarrs)],
        {"storage_transformers": [{"name": "x"}]},
        {"zarr_format": 2},
        {"chunk_key_encoding": {"name": "v2"}},
        {"chunk_grid": content["chunk_grid"] | {"name": "rectilinear"}},
        *[{"codecs": some} for some in codecs],
        *[{"shape": shape} for shape in sides if shape != [0]],
        *[{"shape": [20], "chunk_grid": grid} for grid in grids],
        *[{"shape": [0], "chunk_grid": grids[10]}, {"chunk_grid": None}],
    ):
        with pytest.raises(ValueError, match="describe"):
            from_files(files | {"times/zarr.json": json.dumps(content | change).encode()})


@pytest.mark.parametrize("shape", [(10**8, 0), (0, 10**8), (2**9, 0, 2**9)])
def test_arrays_of_no_numbers_have_few_rows(shape):
    """Nothing of them is stored, but who reads them may make arrays of as many rows."""
    with pytest.raises(ValueError, match="describe"):
        from_files(to_files({"a": np.zeros(shape)}))
    with pytest.raises(ValueError, match="an array of"):
        codec.decode({"jax": [], "dtype": "float64", "shape": list(shape)}, {}.__getitem__)
    encoded = codec.encode(np.zeros(shape), lambda values: values.shape)
    assert encoded == {"numpy": shape}
    small = np.zeros((0, *shape[:-2], 7))
    assert codec.decode(codec.encode(small, str), {}.__getitem__).shape == small.shape
    assert from_files(to_files({"a": small}))["a"].shape == small.shape


def test_truth_is_nought_or_one():
    files = to_files({"a": np.array([True, False])})
    assert from_files(files)["a"].tolist() == [True, False]
    with pytest.raises(ValueError, match="describe"):
        from_files(files | {"a/c/0": b"\2\0"})


@pytest.mark.parametrize("kind", ["bfloat16", "rows without numbers"])
def test_what_could_not_be_read_again_is_not_written(kind, tmp_path):
    made = jnp.zeros(3, jnp.bfloat16) if kind == "bfloat16" else jnp.zeros((10**6, 0))
    with pytest.raises(mf.InputError, match="keeps numbers") as error:
        mf.layers(
            mf.Affine(-I), tokens(), 3, observers={"mine": lambda mu, _: made}, journal=mf.Journal(tmp_path / "run")
        )
    assert str(made.dtype) in error.value.got


def test_arrays_that_together_claim_more_than_there_is():
    files = to_files({"a": np.zeros(600)})
    assert from_files(files).keys() == {"a"}
    many = {f"{k}/zarr.json": files["a/zarr.json"] for k in range(2)}  # their chunks are not there
    with pytest.raises(ValueError, match="describe"):
        from_files(files | many)

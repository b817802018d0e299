"""Messages with arrays: bytes and back, where browsers can look at them, and whatever else may come."""

import json
import struct

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra.numpy import array_shapes, arrays

from meanformer import InputError
from meanformer.app.protocol import ALIGNED, DTYPES, pack, refusal, to_text, unpack

ARRAYS = {
    "doubles": np.array([[1.5, -0.0, np.nan], [np.inf, -np.inf, 5e-324]]),
    "singles": np.arange(3, dtype=np.float32),
    "whole": np.array([-1, 2**31 - 1, -(2**31)], np.int32),
    "bytes": np.frombuffer(b"PNG\x00\xff", np.uint8),
    "none": np.zeros((0, 2)),
    "one": np.array(7.0),
}


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def packed(header: object, data: bytes = b"") -> bytes:
    """What `pack` does, without its care."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(4 + len(text)) % ALIGNED)
    return struct.pack("<I", len(text)) + text + data


def described(dtype: object = "float64", shape: object = (1,), name: object = "x") -> dict[str, object]:
    return {"arrays": [{"name": name, "dtype": dtype, "shape": shape}]}


def test_arrays_come_back_to_the_bit():
    message = {"slot": "main", "run": 3, "say": "é ∑", "nested": {"a": [1, 2.5, None, True]}}
    header, found = unpack(pack(message, ARRAYS))
    assert header == message
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert bits(found[name]) == bits(array)


@hypothesis.given(st.data(), st.sampled_from(DTYPES), st.text(max_size=20))
@hypothesis.settings(max_examples=50)
def test_any_array_comes_back(data, dtype, words):
    shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    first, second = (data.draw(arrays(dtype, shapes)) for _ in range(2))
    header, found = unpack(pack({"say": words}, {"first": first, "second": second}))
    assert header == {"say": words}
    for name, array in (("first", first), ("second", second)):
        assert (found[name].shape, found[name].dtype, bits(found[name])) == (array.shape, array.dtype, bits(array))


def test_other_orders_in_memory_are_straightened():
    array = np.arange(12.0).reshape(3, 4)
    _, found = unpack(pack({}, {"t": array.T, "step": array[:, ::2], "big": array.astype(">f8")}))
    np.testing.assert_array_equal(found["t"], array.T)
    np.testing.assert_array_equal(found["step"], array[:, ::2])
    np.testing.assert_array_equal(found["big"], array)


@pytest.mark.parametrize("words", ["", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg"])
def test_each_array_begins_where_a_browser_can_look(words):
    data = pack({"say": words}, ARRAYS)
    assert len(data) % 8 == 0
    (length,) = struct.unpack("<I", data[:4])
    assert (4 + length) % 8 == 0
    # A reader that knows only the contract: arrays one after the other, each padded to eight bytes.
    at, header = 4 + length, json.loads(data[4 : 4 + length])
    for part in header["arrays"]:
        array = ARRAYS[part["name"]]
        assert data[at : at + array.nbytes] == bits(array)
        at += array.nbytes + (-array.nbytes % 8)
    assert at == len(data)


def test_what_is_not_finite_is_null_in_words():
    message = {"a": float("nan"), "b": [float("inf"), (-float("inf"), 1.0)], "c": {"d": float("inf")}}
    expected = {"a": None, "b": [None, [None, 1.0]], "c": {"d": None}}
    assert json.loads(to_text(message)) == expected
    assert unpack(pack(message, {}))[0] == expected
    assert "Infinity" not in to_text(message)


def test_what_the_page_cannot_read_is_not_packed():
    with pytest.raises(AssertionError):
        pack({}, {"x": np.arange(3)})  # 64-bit whole numbers


MALFORMED = {
    "nothing": b"",
    "three bytes": b"\x01\x00\x00",
    "a length without a header": struct.pack("<I", 8),
    "a header that ends early": struct.pack("<I", 2**32 - 1) + b"{}",
    "an empty header": struct.pack("<I", 0),
    "no JSON": packed(b"hello"),
    "no UTF-8": packed(b"\xff\xfe{}"),
    "a list": packed([]),
    "a number": packed(3),
    "nothing as a header": packed(None),
    "arrays that are no list": packed({"arrays": {"x": 1}}),
    "an array that is no table": packed({"arrays": ["x"]}),
    "no name": packed({"arrays": [{"dtype": "uint8", "shape": [0]}]}),
    "a name that is no text": packed(described(name=3), bytes(8)),
    "objects": packed(described("object"), bytes(8)),
    "another dtype": packed(described("float16"), bytes(8)),
    "a dtype that is a list": packed(described(["uint8"]), bytes(8)),
    "no shape": packed({"arrays": [{"name": "x", "dtype": "uint8"}]}),
    "a shape that is a number": packed(described(shape=1), bytes(8)),
    "a negative size": packed(described(shape=[-1]), bytes(8)),
    "a fractional size": packed(described(shape=[1.0]), bytes(8)),
    "a size that is a truth value": packed(described(shape=[True]), bytes(8)),
    "more than there is": packed(described(shape=[2]), bytes(8)),
    "more than any machine has": packed(described(shape=[2**62, 2**62]), bytes(8)),
    "nothing, very wide": packed(described(shape=[0, 2**70]), bytes(8)),
    "too many axes": packed(described(shape=[1] * 100), bytes(8)),
    "too many digits": packed(b'{"arrays": [], "n": ' + b"9" * 5000 + b"}"),
    "too many brackets": packed(b"[" * 100_000),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_anything_else_is_a_value_error(data):
    with pytest.raises(ValueError):
        unpack(data)


def test_each_cut_of_a_message_is_a_value_error():
    whole = pack({"say": "x"}, {"a": np.arange(4.0), "b": np.arange(2.0)})
    for length in range(len(whole)):
        with pytest.raises(ValueError):
            unpack(whole[:length])


@hypothesis.given(st.binary(max_size=200))
@hypothesis.settings(max_examples=300)
def test_any_bytes_are_a_message_or_a_value_error(data):
    try:
        header, found = unpack(data)
    except ValueError:
        return
    assert isinstance(header, dict)
    assert all(isinstance(array, np.ndarray) for array in found.values())


@hypothesis.given(st.integers(0, 10**6), st.integers(0, 255))
@hypothesis.settings(max_examples=300)
def test_a_message_with_a_wrong_byte_is_a_message_or_a_value_error(place, byte):
    data = bytearray(pack({"slot": "main", "milliseconds": 50}, ARRAYS))
    data[place % len(data)] = byte
    try:
        _, found = unpack(bytes(data))
    except ValueError:
        return
    assert all(array.nbytes <= len(data) for array in found.values())


def test_a_refusal_has_four_parts_a_sentence_and_a_place():
    error = InputError("page: V is not square", got="(2, 3)", expected="(2, 2)", remedy="give two columns")
    error.path = ("attention", "heads", 0, "V")  # pyright: ignore[reportAttributeAccessIssue]
    told = refusal(error, "page")
    assert told == {
        "say": "refused",
        "what": "V is not square",
        "got": "(2, 3)",
        "expected": "(2, 2)",
        "remedy": "give two columns",
        "words": "V is not square: got (2, 3), expected (2, 2). Remedy: give two columns.",
        "path": ["attention", "heads", 0, "V"],
    }
    assert refusal(InputError("no", got="1", expected="2", remedy="3"), "page")["path"] == []

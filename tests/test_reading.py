"""Arrays from outside: read exactly, or refused in words, in one place for all that takes arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from meanformer._checks import to_array
from meanformer._reading import LONG
from oracles.refusals import assert_refused

X = np.array([[1.0, 2.0], [3.0, 4.5], [5.0, -6.0]])


class Silent:
    """An object that says it is an array, and is not."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("the device is gone")


def endless():
    rows = [1.0]
    rows.append(rows)
    return rows


READ = {
    "big endian": (X.astype(">f8"), "float64"),
    "big endian, single": (X.astype(">f4"), "float32"),
    "big endian integers": ((2 * X).astype(">i2"), "float64"),
    "little endian": (X.astype("<f8"), "float64"),
    "no entry masked": (np.ma.array(X, mask=np.zeros_like(X, bool)), "float64"),
    "masked array without a mask": (np.ma.array(X.astype(">f4")), "float32"),
    "rows that are masked arrays": ([np.ma.array(row) for row in X], "float64"),
    "large whole numbers that are floats": ([[2**53, -(2**60)], [3, 2**62]], "float64"),
    "large whole numbers among floats": ([[2**60, 1.0]], "float64"),
    "large whole numbers in an array": (np.array([[2**63 + 2**12, 1]], np.uint64), "float64"),
    "large whole numbers of 64 bits": ([[2**63, 2**64 - 2**11], [-(2**63), 0.5]], "float64"),
    "large whole numbers of NumPy": ([[np.int64(2**60), 1.0], [np.uint64(2**63), np.int8(3)]], "float64"),
    "rows of large whole numbers": ([np.array([2**60, 1]), np.array([0.5, 1])], "float64"),
    "turned round": (X[::-1, ::-1], "float64"),
    "not to be written": (np.broadcast_to(X[0], (3, 2)), "float64"),
    "memory": (memoryview(X), "float64"),
}

REFUSED = {
    "one entry masked": (np.ma.masked_greater(X, 4.0), "must not be masked", "MaskedArray", "points.filled(0.0)"),
    "a masked row": ([X[0], np.ma.masked_less(X[1], 4.0)], "must not be masked", "a list", "drop"),
    "a masked number": ([[1.0, np.ma.masked]], "must not be masked", "a list", "drop"),
    "a masked number, deep": (([(np.ma.array(1.0, mask=True), 2.0)],), "must not be masked", "a tuple", "drop"),
    "extended precision": (X.astype(np.longdouble), "at most double", "float128", "astype(np.float64)"),
    "extended precision in a list": ([[np.longdouble(1) / 3]], "at most double", "float128", "astype(np.float64)"),
    "complex of extended precision": (X.astype(np.clongdouble), "at most double", "complex256", "astype(np.float64)"),
    "a quarter of a float": (jnp.asarray(X, jnp.float8_e4m3fn), "at least single", "float8", "astype(np.float32)"),
    "half precision": (X.astype(">f2"), "at least single", "float16", "astype(np.float32)"),
    "half precision, wide": (jnp.asarray(X, jnp.bfloat16), "at least single", "bfloat16", "astype(np.float32)"),
    "records": (np.zeros(3, [("x", float), ("y", float)]), "cannot be read", "of records", "pass points"),
    "bytes": (np.zeros((2, 2), "V8"), "cannot be read", "of records", "pass points"),
    "objects": (X.astype(object), "cannot be read", "objects of type float", "pass points"),
    "none among numbers": ([[1.0, None]], "cannot be read", "of type", "pass points"),
    "text": (np.array([["1.0"]]), "cannot be read", "of text", "pass points"),
    "text of any length": (np.array([["1.0"]], np.dtypes.StringDType()), "cannot be read", "of text", "pass points"),
    "dates": (np.array([["2026-01-01"]], "M8[D]"), "cannot be read", "of dates", "pass points"),
    "durations": (np.array([[5]], "m8[s]"), "cannot be read", "of durations", "pass points"),
    "complex": (X + 1j, "must be real", "complex128", "real part"),
    "complex, big endian": ((X + 1j).astype(">c16"), "must be real", "complex128", "real part"),
    "truth values": (X > 2, "not truth values", "bool", "astype(float)"),
    "truth values among numbers": ([[1.0, True]], "not truth values", "among numbers", "pass points"),
    "large integers": ([[2**70, 1]], "cannot be read", "objects of type int", "pass points"),
    "a whole number that is no float": ([[2**53 + 1, 1]], "held exactly", "9007199254740993", "astype(float)"),
    "one among floats": ([[2**53 + 1, 1.0]], "held exactly", "9007199254740993", "astype(float)"),
    "one in an array": (np.array([[1, -(2**53) - 1]]), "held exactly", "-9007199254740993", "astype(float)"),
    "one without a sign": (np.array([[2**64 - 1]], np.uint64), "held exactly", "float64 does not", "astype(float)"),
    "one of JAX": (jnp.asarray([[2**53 + 1, 1]]), "held exactly", "9007199254740993", "astype(float)"),
    "one of 64 bits": ([[2**63 + 1, 0]], "held exactly", "9223372036854775809", "astype(float)"),
    "one of 64 bits below 0": ([[1 - 2**63, 0.5]], "held exactly", "-9223372036854775807", "astype(float)"),
    "one of NumPy in a list": ([[np.int64(2**53 + 1), 0.5]], "held exactly", "9007199254740993", "astype(float)"),
    "one of NumPy without a sign": ([[np.uint64(2**64 - 1), 0.5]], "held exactly", "551615", "astype(float)"),
    "one in a row": (
        [np.array([2**53 + 1, 1]), np.array([0.5, 1])],
        "held exactly",
        "9007199254740993",
        "astype(float)",
    ),
    "one of JAX in a list": ([[jnp.asarray(2**53 + 1), 0.5]], "held exactly", "9007199254740993", "astype(float)"),
    "half precision in a list": ([[np.float16(1), 2.0]], "at least single", "float16", "astype(np.float32)"),
    "rows of half precision": ([X[0], X[1].astype("f2")], "at least single", "float16", "astype(np.float32)"),
    "an array with an article": (X.astype(object), "cannot be read", "an ndarray of objects", "pass points"),
    "an array that fails": (Silent(), "cannot be read", "RuntimeError: the device is gone", "pass points"),
    "an endless list": (endless(), "cannot be read", "nested more than 64 deep", "pass points"),
    "a generator": ((x for x in X), "cannot be read", "a generator", "pass points"),
    "keys": (jax.random.split(jax.random.key(0), 2), "cannot be read", "random keys", "pass points"),
}
if not LONG:  # here it is a double
    REFUSED = {name: row for name, row in REFUSED.items() if "extended" not in name}


@pytest.mark.parametrize("name", READ)
def test_read_exactly(name):
    given, dtype = READ[name]
    cloud = mf.PointCloud(given)
    assert cloud.points.dtype == dtype
    np.testing.assert_array_equal(np.asarray(cloud.points, float), np.array(np.asarray(given).tolist(), float))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_words(name):
    value, *words = REFUSED[name]
    assert_refused(lambda: mf.PointCloud(value), words)


@pytest.mark.parametrize(
    "call",
    [
        lambda strange: mf.PointCloud(X, weights=strange[0]),
        lambda strange: mf.PointCloud(X, positions=strange[0]),
        lambda strange: mf.Gaussian(strange[0], cov=np.eye(3)),
        lambda strange: mf.Gaussian(np.zeros(3), cov=strange),
        lambda strange: mf.Gaussian(np.zeros(3), factor=strange),
        lambda strange: mf.Density(strange[0], low=0.0, high=1.0),
        lambda strange: mf.Density([1.0, 1.0, 1.0], low=strange[0, 0], high=1.0),
        lambda strange: mf.Softmax(strange, np.eye(3), np.eye(3)),
        lambda strange: mf.Affine(np.eye(3), strange[0]),
        lambda strange: mf.Softmax(1.0, 1.0, 1.0, tau=strange[0, 0]),
        lambda strange: mf.flow(mf.Affine(np.eye(2)), mf.PointCloud(X), 1.0, save=strange[0]),
        lambda strange: mf.flow(mf.Affine(np.eye(2)), mf.PointCloud(X), strange[0, 0]),
        lambda strange: mf.effective_rank(strange),
        lambda strange: mf.image_patches(strange, 1),
        lambda strange: mf.uniform_ball(3, centre=strange[0]),
        lambda strange: mf.Softmax(np.eye(2), np.eye(2), np.eye(2))(mf.PointCloud(X), strange[:, :2]),
    ],
)
def test_one_home_for_all_arguments(call):
    """A hidden value is used nowhere, and digits are dropped nowhere."""
    for strange in (np.ma.array(np.eye(3), mask=True), *[np.eye(3).astype(np.longdouble)][: int(LONG)]):
        with pytest.raises(mf.InputError, match=r"must not be masked|at most double precision"):
            call(strange)


def test_lists_of_traced_numbers():
    found = jax.jit(lambda a, b: to_array([[a, 2.0], [b, 4.0]], "x"))(1.0, 3.0)
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


def test_whole_numbers_as_times():
    field, tokens = mf.Affine(np.zeros((2, 2))), mf.PointCloud(X)
    for t1, words in ((2**53 + 1, "held exactly"), (10**400, "cannot be read")):
        assert_refused(lambda t1=t1: mf.flow(field, tokens, t1), ("t1", words))

"""Tokens with names: words, patches of an image and back, arrays from files."""

import numpy as np
import pytest

import meanformer as mf
from meanformer._checks import InputError

RNG = np.random.default_rng(0)
GREY, COLOUR = RNG.random((7, 9)), RNG.random((7, 9, 3))


def test_patches_are_cut_along_the_rows():
    """By a double loop; what does not fill a patch is cut off below and on the right."""
    for image in (GREY, COLOUR):
        tokens = mf.image_patches(image, size=2)
        assert tokens.grid == (3, 4) and tokens.cloud.n == 12
        expected = [image[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].ravel() for r in range(3) for c in range(4)]
        np.testing.assert_array_equal(tokens.cloud.points, expected)
        assert tokens.labels[:5] == ("0,0", "0,1", "0,2", "0,3", "1,0")
        assert tokens.patch == (2, 2, *image.shape[2:])
        np.testing.assert_array_equal(tokens.image(), image[:6, :8])


def test_an_image_is_put_together_from_other_points():
    tokens = mf.image_patches(COLOUR, size=3)
    np.testing.assert_array_equal(tokens.image(1 - tokens.cloud.points), 1 - COLOUR[:6, :9])
    with_first = mf.Labelled(
        mf.PointCloud(np.concatenate([np.zeros((1, 27)), tokens.cloud.points])),
        ("cls", *tokens.labels),
        tokens.grid,
        tokens.patch,
    )
    np.testing.assert_array_equal(with_first.image(), tokens.image())  # a token before the patches has no place


@pytest.mark.parametrize(
    ("image", "most"),
    [
        (np.array([[0, 51], [102, 255]], np.uint8), 255),
        (np.array([[0, 51], [102, 65535]], np.uint16), 65535),
        ([[0, 51], [102, 255]], 255),
    ],
)
def test_whole_numbers_become_shares(image, most):
    points = mf.image_patches(image, size=2).cloud.points
    np.testing.assert_allclose(points, np.asarray(image, float).reshape(1, 4) / most, rtol=1e-15)


def test_other_numbers_and_their_precision_are_kept():
    tokens = mf.image_patches(np.array([[-1.5, 300.0]], np.float32), size=1)
    assert tokens.cloud.points.dtype == np.float32 and tokens.cloud.points.ravel().tolist() == [-1.5, 300.0]


def test_a_patch_may_be_the_whole_image():
    assert mf.image_patches(GREY, size=7).grid == (1, 1)


def test_tokens_from_arrays_clouds_and_files(tmp_path):
    x = RNG.random((3, 2))
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    stored = mf.labelled_tokens(tmp_path / "x.npy")
    assert stored.cloud.points.dtype == np.float32 and stored.labels == ("0", "1", "2")
    np.testing.assert_array_equal(stored.cloud.points, x.astype(np.float32))
    assert mf.labelled_tokens(str(tmp_path / "x.npy"), np.array(["a", "b", "c"])).labels == ("a", "b", "c")
    cloud = mf.PointCloud(x, [0.2, 0.3, 0.5])
    assert mf.labelled_tokens(cloud, [1, 2, 3]).cloud is cloud
    np.save(tmp_path / "whole.npy", np.eye(2, dtype=int))
    np.testing.assert_array_equal(mf.labelled_tokens(tmp_path / "whole.npy").cloud.points, np.eye(2))


class Opened:
    """An object that tells when it is made from a file."""

    def __reduce__(self):
        return pytest.fail, ("code in the file was run",)


def test_code_in_a_file_is_not_run(tmp_path):
    np.save(tmp_path / "bad.npy", np.array([Opened()]), allow_pickle=True)
    with pytest.raises(InputError, match="Object arrays cannot be loaded"):
        mf.labelled_tokens(tmp_path / "bad.npy")


def test_files_that_hold_no_array_of_numbers(tmp_path):
    np.savez(tmp_path / "several.npz", np.eye(2))
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "table.npy", np.zeros(2, [("a", float), ("b", int)]))
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    for name in ("several.npz", "short.npy", "empty.npy", "table.npy", "words.npy", "absent.npy", "."):
        with pytest.raises(InputError, match="cannot be read from this file") as refusal:
            mf.labelled_tokens(tmp_path / name)
        assert str(tmp_path) not in str(refusal.value)


CLOUD = mf.PointCloud(np.eye(4))
BAD = {
    "a file": (lambda: mf.image_patches("a.png"), "an image is an array here"),
    "a line": (lambda: mf.image_patches(np.zeros(4)), "rows and columns of pixels"),
    "no pixels": (lambda: mf.image_patches(np.zeros((0, 4))), "rows and columns of pixels"),
    "several": (lambda: mf.image_patches(np.zeros((2, 4, 4, 3))), "rows and columns of pixels"),
    "channels first": (lambda: mf.image_patches(np.zeros((3, 8, 8))), "channels come last"),
    "small": (lambda: mf.image_patches(GREY, size=8), "smaller than a patch"),
    "size": (lambda: mf.image_patches(GREY, size=2.0), "size must be a whole number"),
    "not finite": (lambda: mf.image_patches([[0.0, np.nan]], size=1), "image must be finite"),
    "truth values": (lambda: mf.image_patches(GREY > 0.5), "not truth values"),
    "ragged": (lambda: mf.image_patches([[1], [1, 2]]), "cannot be read as numbers"),
    "too large": (lambda: mf.image_patches([[0, 256]], size=1), "grey or colour values"),
    "negative": (lambda: mf.image_patches([[-1, 25]], size=1), "grey or colour values"),
    "one string": (lambda: mf.labelled_tokens(np.eye(4), "four"), "names of tokens come as a list"),
    "no list": (lambda: mf.labelled_tokens(np.eye(4), 4), "names of tokens come as a list"),
    "few labels": (lambda: mf.labelled_tokens(np.eye(4), ["a"]), "1 labels for 4 tokens"),
    "a batch": (lambda: mf.labelled_tokens(np.zeros((2, 3, 4))), "not a batch"),
    "large grid": (lambda: mf.Labelled(CLOUD, list("abcd"), (2, 3)), "more places than there are tokens"),
    "large patch": (lambda: mf.Labelled(CLOUD, list("abcd"), (2, 2), (3, 3)), "shape of a patch"),
    "patch without grid": (lambda: mf.Labelled(CLOUD, list("abcd"), None, (2, 2)), "without a grid"),
    "no patches": (lambda: mf.labelled_tokens(np.eye(4)).image(), "no patches of pixels"),
    "other points": (lambda: mf.image_patches(GREY, 3).image(np.zeros((2, 6, 9))), "all of its patches"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case, as_a_user):
    call, words = BAD[case]
    with pytest.raises(InputError, match=words):
        call()

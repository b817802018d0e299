"""From ids, images and tables to the first tokens; and what a model does not take."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_bert import WORDS, D, bert_tensors

import meanformer as mf
from meanformer.models.config import Config
from meanformer.models.embedding import Patches, Table
from meanformer.models.images import open_image, pixels_of
from meanformer.models.transformer import Transformer

ORACLES = Path(__file__).parent / "oracles"


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bert(tiny):
    return mf.models.load(tiny(), dtype="float64")


def test_words_are_sums(bert):
    tensors = {name.removeprefix("embeddings."): array.astype(float) for name, array in bert_tensors().items()}
    x = tensors["word_embeddings.weight"][[3, 1, 3]]
    x += tensors["position_embeddings.weight"][:3] + tensors["token_type_embeddings.weight"][:1]
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
    x = x * tensors["LayerNorm.weight"] + tensors["LayerNorm.bias"]
    np.testing.assert_allclose(bert.record(ids=[3, 1, 3]).start.points, x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "got:      none"),
        ([1.0, 2.0], "[1.0, 2.0]"),
        ([[1, 2]], "[[1, 2]]"),
        ([[1], [1, 2]], "[[1], [1, 2]]"),
        ([True], "[True]"),
        ("12", "'12'"),
        (["a"], "['a']"),
        (3, "3"),
        ([10**30], "a list of whole numbers"),
        ([-1, 2], "numbers from -1 to 2"),
        ([0, WORDS], f"0 to {WORDS - 1}"),
    ],
)
def test_wrong_ids(bert, refused, ids, words):
    refused(lambda: bert.record(ids=ids), "vocabulary", words)


def test_padding_is_not_counted_by_roberta(tiny, refused):
    model = mf.models.load(tiny({"model_type": "roberta", "pad_token_id": 1}))
    refused(lambda: model.record(ids=[0, 3, 1, 4]), "padding among the words", "the number 1 at place 2")
    assert model.record(ids=[0, 3, 4]).n == 3


def test_one_input(bert, refused):
    refused(lambda: bert.record(), "takes one input", "got:      none")
    refused(lambda: bert.record("a", ids=[1]), "takes one input", "text and ids")
    for name in ("image", "pixels", "table"):
        refused(lambda name=name: bert.record(**{name: [[0.0]]}), "this model does not take a", name, "text or ids")
    refused(lambda: bert.record(ids=[1], cut="yes"), "cut must be True or False")
    refused(lambda: bert.record(ids=[1, 2], labels="ab"), "labels are a list of names", "2 names")
    refused(lambda: bert.record(ids=[1, 2], labels=["a"]), "each token has one label", "1 labels for 2 tokens")


def test_tokens_take_the_precision_of_the_model(tiny, bert, refused):
    single = mf.models.load(tiny(name="single"))
    for model, kind in ((single, np.float32), (bert, np.float64)):
        for given in (np.float32, np.float64, np.int64):
            start = model.record(tokens=np.ones((3, D), given)).start
            assert start.points.dtype == start.weights.dtype == model.dtype == kind
    cloud = mf.PointCloud(np.ones((3, D), np.float32), weights=np.asarray([1 / 3, 0.5, 1 / 6], np.float32))
    np.testing.assert_allclose(bert.record(tokens=cloud).start.weights, cloud.weights, rtol=1e-7)
    for shape in ((3, D + 1), (2, 3, D)):
        refused(lambda shape=shape: single.record(tokens=np.ones(shape)), "tokens do not fit", f"(n, {D})", str(shape))
    refused(lambda: single.record(tokens=np.full((2, D), np.nan)), "must be finite")
    refused(lambda: single.record(tokens="x.npy"), "must be numeric")


# Images --------------------------------------------------------------------------------------------------------------


def pixels(image, channels=3, **settings):
    return pixels_of(image, channels, (4, 4), Config(settings, "preprocessor_config.json"))


def picture(mode="RGB", size=(4, 4)):
    random = np.random.default_rng(1).integers(0, 256, (*size[::-1], 3), np.uint8)
    return Image.fromarray(random).convert(mode)


RANDOM = np.asarray(picture())


def test_colours_are_centred():
    np.testing.assert_allclose(pixels(RANDOM), RANDOM.transpose(2, 0, 1) / 127.5 - 1, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"do_normalize": False}, RANDOM / 255),
        ({"do_normalize": False, "do_rescale": False}, RANDOM),
        ({"do_normalize": False, "rescale_factor": 2}, 2.0 * RANDOM),
        ({"image_mean": [0, 0.1, 0.2], "image_std": [1, 2, 4]}, (RANDOM / 255 - [0, 0.1, 0.2]) / [1, 2, 4]),
        ({"image_mean": None, "size": {"height": 4, "width": 4}, "resample": 3}, RANDOM / 127.5 - 1),
        ({"size": 4, "crop_size": 9, "do_center_crop": False}, RANDOM / 127.5 - 1),
    ],
)
def test_settings_are_honoured(settings, wanted):
    np.testing.assert_allclose(pixels(RANDOM, **settings), wanted.transpose(2, 0, 1), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": {"shortest_edge": 4}}, "not scaled to the size of the model"),
        ({"size": {"height": 8, "width": 8}}, "height 4 and width 4"),
        ({"size": 8}, "size = 8 in preprocessor_config.json"),
        ({"size": "4"}, "not scaled to the size of the model"),
        ({"do_center_crop": True}, "crops or pads images is not supported"),
        ({"do_pad": True}, "crops or pads images is not supported"),
        ({"resample": 7}, "this filter for scaling images is not supported"),
        ({"do_rescale": "yes"}, "preprocessor_config.json has a setting of the wrong kind"),
        ({"rescale_factor": 0}, "a number above zero"),
        ({"image_mean": [0.5]}, "a list of 3 numbers"),
        ({"image_mean": 0.5}, "a list of 3 numbers"),
        ({"image_std": [1, 1, "1"]}, "a list of 3 numbers"),
        ({"image_std": [1, 1, 0]}, "a list of 3 numbers above zero"),
    ],
)
def test_settings_are_refused(refused, settings, words):
    refused(lambda: pixels(RANDOM, **settings), words)


@pytest.mark.parametrize("resample", [0, 1, 2, 3, 4, 5])
def test_filters_are_those_of_pillow(resample):
    large = picture(size=(11, 7))
    wanted = np.asarray(large.resize((4, 4), resample=resample)) / 127.5 - 1
    np.testing.assert_allclose(pixels(np.asarray(large), resample=resample), wanted.transpose(2, 0, 1), atol=1e-15)


def test_images_that_are_not_resized(refused):
    wide = np.zeros((4, 6, 3), np.uint8)
    assert pixels(wide, do_resize=False).shape == (3, 4, 6)
    assert pixels(wide).shape == (3, 4, 4)
    model = mf.models.load(ORACLES / "vit")
    refused(lambda: model.record(pixels=pixels(wide, do_resize=False)), "the pixels do not fit the model", "(3, 4, 6)")


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1"])
def test_kinds_of_pictures(tmp_path, mode):
    """Grey, transparent and painted ones become colours."""
    file = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    picture(mode).save(file)
    wanted = np.asarray(picture(mode).convert("RGB")) / 127.5 - 1
    np.testing.assert_allclose(pixels(file), wanted.transpose(2, 0, 1), atol=1e-15)
    assert pixels(str(file), channels=1).shape == (1, 4, 4)


def test_arrays():
    grey = RANDOM[:, :, 0]
    for array in (grey, grey[..., None], np.repeat(grey[..., None], 3, 2), grey - 0.2 * (grey > 0), grey.tolist()):
        np.testing.assert_array_equal(np.asarray(open_image(array)), np.repeat(grey[..., None], 3, 2))
    opaque = np.concatenate([RANDOM, RANDOM[..., :1]], axis=2)
    np.testing.assert_array_equal(np.asarray(open_image(opaque)), RANDOM)
    assert pixels(np.full((1, 1, 3), 255, np.uint8)).tolist() == np.ones((3, 4, 4)).tolist()


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 4, 2)), "shape (4, 4, 2)"),
        (np.zeros(4), "shape (4,)"),
        (np.zeros((0, 4, 3)), "shape (0, 4, 3)"),
        (np.zeros((1, 2, 3, 3)), "shape (1, 2, 3, 3)"),
        (np.random.default_rng(0).random((4, 4, 3)), "multiply values between 0 and 1 by 255"),
        (np.full((4, 4), 256), "values from 256 to 256"),
        (np.full((4, 4), -1), "values from -1 to -1"),
        (np.full((4, 4), np.nan), "values from nan to nan"),
        (np.ones((4, 4), bool), "an array of bool"),
        (np.ones((4, 4), complex), "an array of complex128"),
        ([["a", "b"]], "an array of <U1"),
    ],
)
def test_arrays_that_are_no_image(refused, array, words):
    refused(lambda: pixels(array), "image", words)


def test_files_that_are_no_image(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    picture(size=(64, 64)).save(buffer, "png")
    whole = buffer.getvalue()
    broken = {"cut.png": whole[:600], "head.png": whole[:20], "empty.png": b"", "text.png": b"hello"}
    for name, content in broken.items():
        Path(name).write_bytes(content)
        refused(lambda name=name: open_image(name), "the image cannot be read", name)
    refused(lambda: open_image("nothing.png"), "the image cannot be read", "nothing.png: No such file")
    refused(lambda: open_image("."), "the image cannot be read", ".: Is a directory")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    Path("large.png").write_bytes(whole)
    refused(lambda: open_image("large.png"), "the image cannot be read", "exceeds limit")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)  # large, but less than twice: a warning, of no use here
    assert open_image("large.png").size == (64, 64)
    Image.fromarray(np.full((4, 4), 1000, np.uint16)).save("deep.png")
    refused(lambda: open_image("deep.png"), "more than 8 bits", "deep.png", "I;16")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    refused(lambda: open_image("large.png"), "an image needs the package PIL")


def test_patches_go_by_rows():
    """With the identity for a map, a token is a patch: channel by channel, row by row."""
    kernel = np.eye(12).reshape(12, 3, 2, 2)
    patches = Patches(
        *(kernel, np.zeros(12), np.full((1, 12), 7.0), np.zeros((7, 12))), grid=(2, 3), preprocessing=Config({})
    )
    image = np.random.default_rng(0).normal(size=(3, 4, 6))
    tokens = patches(image)
    assert patches.labels == ("cls", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    np.testing.assert_array_equal(tokens[0], np.full(12, 7.0))
    np.testing.assert_array_equal(tokens[3], image[:, 0:2, 4:6].ravel())


def test_channels(refused):
    grey = Patches(
        *(np.ones((1, 1, 2, 2)), np.zeros(1), np.zeros((1, 1)), np.zeros((5, 1))),
        grid=(2, 2),
        preprocessing=Config({"do_normalize": False}),
    )
    np.testing.assert_allclose(grey(grey.pixels(RANDOM)).shape, (5, 1))
    refused(lambda: pixels(RANDOM, channels=4), "a model of 4 channels", "pixels=")


@pytest.mark.parametrize("given", [np.ones((3, 16, 15)), np.ones((16, 16, 3)), np.full((3, 16, 16), np.inf), "x"])
def test_wrong_pixels(refused, given):
    model = mf.models.load(ORACLES / "vit")
    refused(lambda: model.record(pixels=given), "pixels")


# Tables --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    """A set transformer of three features, with the blocks of another model."""
    blocks = mf.models.load(ORACLES / "bert").blocks
    d = blocks[0].norm1.scale.shape[0]
    random = np.random.default_rng(0)
    features, classes = random.normal(size=(d, 3)).astype("f"), random.normal(size=(d, 1)).astype("f")
    return Transformer("rows", "tabpfn", blocks, Table((features, np.ones(d, "f")), (classes, np.zeros(d, "f"))))


def test_rows_of_a_table(rows):
    x, y = np.arange(8.0).reshape(4, 2), [1, 0]
    record = rows.record(table=(x, y))
    assert record.labels == ("row 0, 1", "row 1, 0", "row 2, ?", "row 3, ?")
    np.testing.assert_array_equal(record.start.weights, [0.5, 0.5, 0, 0])
    features, classes = rows.embedding.features[0], rows.embedding.classes[0]
    wanted = x @ features[:, :2].T + 1 + np.pad(y, (0, 2))[:, None] * classes[:, 0]
    np.testing.assert_allclose(record.start.points, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.ones(3), "a table is a pair"),
        (3, "a table is a pair"),
        (([[1.0]],), "a table is a pair"),
        (([[1.0]], [1], [2]), "a table is a pair"),
        (([[1.0]], []), "classes of shape (0,)"),
        (([[1.0]], [0, 1]), "features of shape (1, 1), classes of shape (2,)"),
        (([1.0], [0]), "features of shape (1,)"),
        (([[1.0] * 4], [0]), "f <= 3"),
        (([[1.0]], [[0]]), "classes of shape (1, 1)"),
        (([[np.nan]], [0]), "the features must be finite"),
        (([[1.0]], [np.inf]), "the classes must be finite"),
        (([[1.0]], ["a"]), "the classes cannot be read as numbers"),
        (([["a"]], [0]), "the features cannot be read as numbers"),
    ],
)
def test_wrong_tables(rows, refused, table, words):
    refused(lambda: rows.record(table=table), words)


def test_a_table_is_no_text(rows, refused):
    refused(lambda: rows.record("a text"), "does not take a text", "tabpfn", "table, or tokens")

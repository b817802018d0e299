"""Files of weights that are broken, wrong, or meant to do harm."""

import json
import os
import pickle
import sys
import types
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_bert import WORDS, D, bert_tensors

import meanformer as mf
from meanformer.models import weights as module

QUERY = "encoder.layer.1.attention.self.query.weight"
SHARDS = "model.safetensors.index.json"


class Harm:
    """Unpickled, it makes a file."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch '{self.canary}'",)


@pytest.fixture
def harmful(tiny):
    """A model whose weights are a pickle with code, and the file that the code would make."""
    canary = Path("canary").absolute()
    folder = Path(tiny(files={"pytorch_model.bin": pickle.dumps({"weights": Harm(canary)}, protocol=2)}))
    (folder / "model.safetensors").unlink()
    return folder, canary


def test_the_canary_sings(harmful):
    """Plain pickle does run the code: the tests below look at something."""
    folder, canary = harmful
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert canary.exists()


def test_without_torch_a_pickle_is_not_opened(harmful, refused, monkeypatch):
    folder, canary = harmful
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(pickle, "Unpickler", None)
    refused(lambda: mf.models.load(str(folder)), "read by torch, which is not installed", "as safetensors")
    (folder / "pytorch_model.bin").rename("model.ckpt")
    refused(lambda: mf.models.load("model.ckpt"), "read by torch, which is not installed")
    assert not canary.exists()


def fake_torch(version, load):
    return types.SimpleNamespace(__version__=version, load=load)


def test_torch_reads_weights_only(harmful, refused, monkeypatch):
    (harmful[0] / "pytorch_model.bin").write_bytes(5 * pickle.dumps({}, protocol=2))
    seen = {}

    def load(path, **options):
        seen.update(options)
        raise pickle.UnpicklingError("Weights only load failed.\nmore lines")

    monkeypatch.setitem(sys.modules, "torch", fake_torch("2.13.0+cpu", load))
    error = refused(lambda: mf.models.load(str(harmful[0])), "not a file of weights alone", "code in a pickle is never")
    assert error.got == "Weights only load failed."
    assert seen["weights_only"] is True


@pytest.mark.parametrize("version", ["1.13.1", "2.5.1+cpu", "2.9.0"])
def test_a_torch_that_is_not_safe_is_not_used(harmful, refused, monkeypatch, version):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(version, lambda *_, **__: pytest.fail("it was used")))
    refused(lambda: mf.models.load(str(harmful[0])), "does not read .bin files safely", version, "2.10 or newer")


@pytest.mark.parametrize("form", ["plain", "archive", "checkpoint"])
def test_code_in_a_pickle_is_never_run(harmful, refused, form):
    torch = pytest.importorskip("torch")
    folder, canary = harmful
    path = folder / "pytorch_model.bin"
    if form != "plain":
        torch.save({"weights": Harm(canary)}, path)
    if form == "checkpoint":
        path = path.rename("model.ckpt")
    refused(lambda: mf.models.load(str(path)), "not a file of weights alone")
    assert not canary.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_bin_file_with_half_precision(tiny, zipped):
    torch = pytest.importorskip("torch")
    folder = Path(tiny())
    wanted = mf.models.load(folder).blocks[0].norm1.scale
    state = {name: torch.tensor(array) for name, array in load_file(folder / "model.safetensors").items()}
    kinds = [torch.bfloat16, torch.float64, torch.float32, torch.float16]
    state = {name: tensor.to(kinds[i % 4]) for i, (name, tensor) in enumerate(state.items())}
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    model = mf.models.load(folder)
    assert model.dtype == np.float32
    np.testing.assert_allclose(model.blocks[0].norm1.scale, wanted, rtol=2**-8)


def test_a_checkpoint_of_another_network(tiny, refused):
    torch = pytest.importorskip("torch")
    tiny()
    for state in ({"weights": torch.ones(2)}, ({}, None), ({}, None, []), 3):
        torch.save(state, "other.ckpt")
        refused(lambda: mf.models.load("other.ckpt"), "no architecture that is known", "other.ckpt")
    torch.save(({"weights": torch.ones(2)}, None, {"emsize": "512"}), "other.ckpt")
    refused(lambda: mf.models.load("other.ckpt"), "other.ckpt has a setting of the wrong kind", 'emsize = "512"')
    torch.save([1, 2], Path("tiny", "pytorch_model.bin"))
    Path("tiny", "model.safetensors").unlink()
    refused(lambda: mf.models.load("tiny"), "no table of tensors")


def test_code_of_the_model_is_refused(tiny, refused):
    folder = tiny({"auto_map": {"AutoModel": "modeling.Model"}}, files={"modeling.py": "raise SystemExit"})
    refused(lambda: mf.models.load(folder), "its own code, which is never run", "auto_map", "model_type 'bert'")


# Broken files --------------------------------------------------------------------------------------------------------


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90868376\n"


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"<!DOCTYPE html>" * 9, b"\x02\0\0\0\0\0\0\0{}" + b"x" * 9])
def test_a_broken_file(tiny, refused, content):
    folder = tiny(files={"model.safetensors": content})
    refused(lambda: mf.models.load(folder), "model.safetensors cannot be read", "download it again")


def test_a_file_that_was_cut_short(tiny, refused):
    file = Path(tiny(), "model.safetensors")
    whole = file.read_bytes()
    for length in (5, 100, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(lambda: mf.models.load("tiny"), "model.safetensors cannot be read", "cut short")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_to_a_large_file(tiny, refused, name):
    folder = tiny(files={name: POINTER})
    if name == "pytorch_model.bin":
        Path(folder, "model.safetensors").unlink()
    refused(lambda: mf.models.load(folder), f"{name} is a pointer", f"{len(POINTER)} bytes", "git lfs pull")


def test_a_folder_without_weights(tiny, refused):
    folder = Path(tiny(files={"tf_model.h5": "x"}))
    (folder / "model.safetensors").unlink()
    refused(lambda: mf.models.load(str(folder)), "has no weights", "tiny, with config.json, tf_model.h5", "converted")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "config.json cannot be read"),
        ("", "config.json cannot be read"),
        ("[" * 100_000, "config.json cannot be read"),
        (b"\xff\xfe{", "config.json cannot be read"),
        (POINTER, "a pointer to a large file"),
        ("[1, 2]", "config.json holds no table"),
        ("null", "config.json holds no table"),
    ],
)
def test_a_broken_config(tiny, refused, content, words):
    folder = tiny(files={"config.json": content})
    refused(lambda: mf.models.load(folder), words)


# Parts of a model, and their index -----------------------------------------------------------------------------------


@pytest.fixture
def in_parts(tiny):
    """A model in two files, after a change of its index."""

    def make(change=lambda index: index):
        folder = Path(tiny())
        (folder / "model.safetensors").unlink()
        arrays = bert_tensors()
        files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(arrays)}
        for file in set(files.values()):
            save_file({name: arrays[name] for name in arrays if files[name] == file}, folder / file)
        (folder / SHARDS).write_text(json.dumps(change({"weight_map": files})))
        return folder

    return make


def test_a_model_in_parts(tiny, in_parts):
    whole, parts = mf.models.load(tiny(name="whole")), mf.models.load(in_parts())
    for a, b in zip(whole.blocks, parts.blocks, strict=True):
        np.testing.assert_array_equal(a.perceptron.W1, b.perceptron.W1)


@pytest.mark.parametrize("name", ["../tiny/model.safetensors", "/etc/passwd", "sub/a.safetensors", "", ".", "a\0b"])
def test_an_index_names_files_beside_it(in_parts, refused, name, tiny):
    Path(tiny(name="other"), "sub").mkdir()
    folder = in_parts(lambda index: {"weight_map": index["weight_map"] | {QUERY: name}})
    refused(
        lambda: mf.models.load(str(folder.name)), "names a file that is not in its folder", "a file beside the index"
    )


def test_a_part_is_missing(in_parts, refused):
    folder = in_parts()
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(lambda: mf.models.load("tiny"), "not in its folder", "model-00002-of-00002.safetensors")


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({}, "does not say which file"),
        ({"weight_map": []}, "does not say which file"),
        ([], "holds no table"),
        ({"weight_map": {"other": "model-00001-of-00002.safetensors"}}, "lists a tensor that its file does not hold"),
    ],
)
def test_a_broken_index(in_parts, refused, index, words):
    in_parts(lambda _: index)
    refused(lambda: mf.models.load("tiny"), SHARDS, words)


# Tensors -------------------------------------------------------------------------------------------------------------


def nan_in(name, value):
    array = bert_tensors()[name]
    array.flat[3] = value
    return {name: array}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [QUERY, "embeddings.word_embeddings.weight", "encoder.layer.0.output.LayerNorm.bias"])
def test_weights_that_are_not_finite(tiny, refused, name, value):
    folder = tiny(tensors=nan_in(name, value))
    refused(lambda: mf.models.load(folder), "the weights are not finite", f"{name}, with 1 of")


def test_weights_too_large_for_single_precision(tiny, refused):
    folder = tiny(tensors={QUERY: np.full((D, D), 1e300)})
    refused(lambda: mf.models.load(folder), "not finite", QUERY, "finite numbers of float32")
    assert mf.models.load(folder, dtype="float64").dtype == np.float64


def test_what_is_not_needed_is_not_read(tiny):
    """NaN in the pooler is nobody's business."""
    assert mf.models.load(tiny(tensors=nan_in("pooler.dense.weight", np.nan))).depth == 2


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (QUERY, (D + 1, D)),
        (QUERY, (D * D,)),
        ("encoder.layer.0.output.dense.bias", (1,)),
        ("encoder.layer.0.output.dense.bias", ()),
        ("embeddings.position_embeddings.weight", (0, D)),
        ("embeddings.word_embeddings.weight", (0, D)),
        ("embeddings.word_embeddings.weight", (WORDS, 2 * D)),
        ("embeddings.LayerNorm.weight", (D, 1)),
    ],
)
def test_a_wrong_shape(tiny, refused, name, shape):
    folder = tiny(tensors={name: np.zeros(shape, np.float32)})
    refused(lambda: mf.models.load(folder), "another shape than config.json says", name, str(shape))


@pytest.mark.parametrize("name", sorted(set(bert_tensors()) - {"pooler.dense.weight"})[::5])
def test_a_missing_tensor(tiny, refused, name):
    """Biases too: without one the network would be another."""
    folder = tiny(tensors={name: None})
    refused(lambda: mf.models.load(folder), "lack a tensor that the architecture needs", f"no {name}")


def test_tensors_that_nobody_asks_for(tiny, refused):
    extra = {f"encoder.layer.{l}.attention.self.query.lora_{x}": np.zeros((2, D), "f") for l in (0, 1) for x in "AB"}
    folder = tiny(tensors=extra)
    refused(lambda: mf.models.load(folder), "tensors that nothing asks for", "query.lora_A", "merge adapters")
    more = {name.replace("layer.1", "layer.7"): array for name, array in bert_tensors().items() if "layer.1" in name}
    folder = tiny(tensors=more, name="deeper")
    refused(lambda: mf.models.load(folder), "encoder.layer.7", "and 14 more", "the layers that config.json counts")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, bool, ml_dtypes.float8_e4m3fn])
def test_quantised_weights(tiny, refused, kind):
    folder = tiny(tensors={QUERY: np.ones((D, D), kind)})
    words = "a tensor cannot be read" if kind == ml_dtypes.float8_e4m3fn else "quantised weights are not supported"
    refused(lambda: mf.models.load(folder), words, QUERY)


def test_a_quantised_model(tiny, refused):
    folder = tiny({"quantization_config": {"quant_method": "gptq", "bits": 4}})
    refused(lambda: mf.models.load(folder), "a quantised model", "quantization_config in config.json")


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_other_precisions(tiny, kind):
    rounded = {name: array.astype(kind) for name, array in bert_tensors().items()}
    exact = {name: array.astype(np.float32) for name, array in rounded.items()}
    found, wanted = (mf.models.load(tiny(tensors=t, name=n)) for t, n in ((rounded, "half"), (exact, "single")))
    assert found.dtype == np.float32
    for a, b in zip(jax.tree.leaves(found.blocks), jax.tree.leaves(wanted.blocks), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found.embedding.words, wanted.embedding.words)


def test_a_model_larger_than_the_memory(tiny, refused, monkeypatch):
    folder = tiny()
    monkeypatch.setattr(module.checks, "available_memory", lambda: 5000)
    monkeypatch.setattr(module.Stored, "read", property(lambda _: pytest.fail("it was read")))
    error = refused(lambda: mf.models.load(folder), "cannot fit in memory", "take a smaller model")
    numbers = sum(array.size for array in bert_tensors().values())
    assert error.got == f"{4 * numbers / 1e9:.3g} GB needed"
    refused(lambda: mf.models.load(folder, dtype="float64"), f"{8 * numbers / 1e9:.3g} GB", 'or dtype="float32"')


def test_packages_that_are_not_installed(tiny, refused, monkeypatch):
    folder = tiny()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    refused(lambda: mf.models.load(folder), "needs the package safetensors", 'pip install -e ".[models]"')


def test_switched_off_double_precision(tiny, refused):
    folder = tiny()
    jax.config.update("jax_enable_x64", False)
    try:
        refused(lambda: mf.models.load(folder, dtype="float64"), "float64 is switched off", "MEANFORMER_X64")
    finally:
        jax.config.update("jax_enable_x64", True)
    refused(lambda: mf.models.load(folder, dtype="float16"), "this dtype is not known", "'float32' or 'float64'")

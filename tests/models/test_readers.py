"""Settings and names of tensors: honoured or refused, architecture by architecture. Numbers are in `test_exact.py`."""

import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_bert import BERT, bert_tensors

import meanformer as mf
from meanformer.models.config import MISSING, Config
from meanformer.models.readers import READERS
from meanformer.models.readers.decoders import rotary_rates

ORACLES = Path(__file__).parent / "oracles"


@pytest.fixture
def variant(tmp_path, monkeypatch):
    """The folder of a tiny model with other settings, or other tensors; None leaves a setting out."""
    monkeypatch.chdir(tmp_path)

    def make(kind, tensors=None, **settings):
        shutil.rmtree(kind, ignore_errors=True)
        folder = Path(shutil.copytree(ORACLES / kind, kind))
        table = json.loads((folder / "config.json").read_text()) | settings
        (folder / "config.json").write_text(json.dumps({k: v for k, v in table.items() if v is not None}))
        if tensors is not None:
            save_file(tensors(load_file(folder / "model.safetensors")), folder / "model.safetensors")
        return kind

    return make


def same(a, b):
    for x, y in zip(jax.tree.leaves(a.blocks), jax.tree.leaves(b.blocks), strict=True):
        np.testing.assert_array_equal(x, y)


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(BERT) - {"model_type"}))
def test_a_setting_is_missing(tiny, refused, name):
    folder = tiny({name: None})
    refused(lambda: mf.models.load(folder), "config.json lacks a setting", f"no {name}")


@pytest.mark.parametrize("value", ["8", -8, 0, 8.0, True, [8], {"a": 8}], ids=str)
def test_a_whole_number_of_the_wrong_kind(tiny, refused, value):
    for name in ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"):
        tiny({name: value}, name=name)
        error = refused(lambda name=name: mf.models.load(name), "of the wrong kind", "a whole number, 1 or more")
        assert error.got == f"{name} = {json.dumps(value)}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_attention_heads": 3}, "hidden_size = 8, num_attention_heads = 3"),
        ({"num_hidden_layers": 10**9}, "at most 10000"),
        ({"num_hidden_layers": 3}, "no encoder.layer.2.attention.self.query.weight"),
        ({"num_hidden_layers": 1}, "tensors that nothing asks for"),
        ({"hidden_size": 16}, "of shape (14, 8)"),
        ({"intermediate_size": 13}, "of shape (12, 8)"),
        ({"max_position_embeddings": 10**12}, "of shape (6, 8)"),
        ({"layer_norm_eps": "small"}, 'layer_norm_eps = "small"'),
        ({"layer_norm_eps": -1e-5}, "a number, zero or more"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps = NaN"),
        ({"layer_norm_eps": float("inf")}, "layer_norm_eps = Infinity"),
        ({"hidden_act": "gelu_"}, "did you mean 'gelu'?"),
        ({"hidden_act": 3}, "this activation of the perceptron is not known"),
        ({"position_embedding_type": "relative_key"}, "a relative position encoding is not supported"),
        ({"is_decoder": True}, "a decoder with the layers of an encoder is not supported"),
        ({"model_type": "roberta", "pad_token_id": 5}, "at most 4"),
        ({"model_type": "roberta", "pad_token_id": -1}, "a whole number, 0 or more"),
        ({"model_type": None}, "config.json names no architecture"),
        ({"model_type": ["bert"]}, "config.json names no architecture"),
        ({"model_type": "BERT"}, "this architecture is not supported"),
    ],
    ids=str,
)
def test_settings_that_are_refused(tiny, refused, settings, words):
    folder = tiny(settings)
    refused(lambda: mf.models.load(folder), words)


@pytest.mark.parametrize("kind", sorted(MISSING))
def test_what_is_missing_for_an_architecture(tiny, refused, kind):
    assert kind not in READERS
    folder = tiny({"model_type": kind})
    error = refused(lambda: mf.models.load(folder), "this architecture is not supported", "bert, roberta", "by hand")
    assert error.got == f"model_type '{kind}': missing here is {MISSING[kind]}"


OTHERS = [
    ("albert", {"num_hidden_layers": 10**9}, "at most 10000"),
    ("albert", {"num_hidden_groups": 7}, "at most 3"),
    ("albert", {"inner_group_num": 10**9}, "no encoder.albert_layer_groups.0.albert_layers.1."),
    ("albert", {"embedding_size": 3}, "another shape"),
    ("distilbert", {"n_heads": 7}, "numbers that do not divide each other"),
    ("distilbert", {"activation": None}, "lacks a setting"),
    ("gpt2", {"n_head": 5}, "numbers that do not divide each other"),
    ("gpt2", {"n_inner": 7}, "another shape"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "a temperature for each layer"),
    ("gpt2", {"scale_attn_weights": False}, "attention without a temperature"),
    ("gpt2", {"add_cross_attention": True}, "cross attention"),
    ("llama", {"num_key_value_heads": 3}, "a multiple of num_key_value_heads"),
    ("llama", {"num_key_value_heads": 4}, "another shape"),
    ("llama", {"head_dim": 4}, "another shape"),
    ("llama", {"mlp_bias": True}, "a gated perceptron with biases"),
    ("llama", {"attention_bias": True}, "no model.layers.0.self_attn.q_proj.bias"),
    ("llama", {"attention_bias": "no"}, "true or false"),
    ("llama", {"rope_parameters": []}, "a table"),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2}}, 'rope_type = "yarn"'),
    ("llama", {"rope_parameters": {"rope_type": "linear"}}, "no factor"),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 2}}, "no original_max_position_embeddings"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 0}}, "a number above zero"),
    ("llama", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "a rotation for each kind of layer"),
    ("llama", {"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2}}, 'type = "dynamic"'),
    ("llama", {"partial_rotary_factor": 0.5}, "a rotation of some coordinates only"),
    ("mistral", {"sliding_window": "all"}, "sliding_window"),
    ("mistral", {"rms_norm_eps": None, "hidden_act": "relu6"}, "this activation"),
    ("qwen2", {"sliding_window": 5, "use_sliding_window": 1}, "true or false"),
    ("vit", {"image_size": 17}, "the patches do not fill the image"),
    ("vit", {"image_size": 24}, "another shape"),
    ("vit", {"image_size": 8 * 10**9}, "another shape"),
    ("vit", {"image_size": [16]}, "a positive whole number, or two"),
    ("vit", {"image_size": "16"}, "a positive whole number, or two"),
    ("vit", {"patch_size": 4}, "another shape"),
    ("vit", {"num_channels": 1}, "another shape"),
    ("vit", {"qkv_bias": False}, "tensors that nothing asks for"),
]


@pytest.mark.parametrize(("kind", "settings", "words"), OTHERS, ids=str)
def test_settings_of_other_architectures(variant, refused, kind, settings, words):
    folder = variant(kind, **settings)
    refused(lambda: mf.models.load(folder), words)


# Names and biases ----------------------------------------------------------------------------------------------------


def renamed(old, new):
    return {name.replace(old, new): array for name, array in bert_tensors().items() if old in name}


def test_old_names_of_norms(tiny):
    """In old files the scale and the bias of a norm are gamma and beta."""
    old = renamed("LayerNorm.weight", "LayerNorm.gamma") | renamed("LayerNorm.bias", "LayerNorm.beta")
    gone = {name: None for name in bert_tensors() if "LayerNorm" in name}
    same(mf.models.load(tiny(tensors=gone | old)), mf.models.load(tiny(name="new")))


@pytest.mark.parametrize("prefix", ["bert.", "model."])
def test_prefixes(tiny, refused, prefix):
    tensors = bert_tensors()
    other = {prefix + name: array for name, array in tensors.items()} | dict.fromkeys(tensors)
    same(mf.models.load(tiny(tensors=other)), mf.models.load(tiny(name="plain")))
    unknown = {"encoder_of_mine." + name: array for name, array in tensors.items()} | dict.fromkeys(tensors)
    folder = tiny(tensors=unknown, name="unknown")
    refused(lambda: mf.models.load(folder), "there is encoder_of_mine.embeddings.word_embeddings.weight")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gpt2", "h.0.attn.c_attn.bias"),
        ("distilbert", "transformer.layer.1.ffn.lin2.bias"),
        ("albert", "encoder.embedding_hidden_mapping_in.bias"),
        ("qwen2", "layers.1.self_attn.k_proj.bias"),
        ("vit", "embeddings.patch_embeddings.projection.bias"),
    ],
)
def test_a_bias_is_missing(variant, refused, kind, name):
    """It is not taken for a network without biases."""
    folder = variant(kind, lambda tensors: {n: array for n, array in tensors.items() if not n.endswith(name)})
    refused(lambda: mf.models.load(folder), "lack a tensor", name)


@pytest.mark.parametrize("name", ["mlp.up_proj.bias", "self_attn.o_proj.bias", "self_attn.q_norm.weight"])
def test_a_tensor_too_many(variant, refused, name):
    folder = variant("qwen2", lambda tensors: tensors | {f"layers.0.{name}": np.zeros(8, np.float32)})
    refused(lambda: mf.models.load(folder), "tensors that nothing asks for", name)


def test_masks_in_old_files_are_left_out(variant):
    def with_masks(tensors):
        names = [name for name in tensors if name.endswith("0.attn.c_attn.bias")]
        masks = {"bias": np.ones((1, 1, 9, 9), np.uint8), "masked_bias": np.asarray(-1e4, np.float32)}
        return tensors | {names[0].replace("c_attn.bias", key): mask for key, mask in masks.items()}

    same(mf.models.load(variant("gpt2", with_masks)), mf.models.load(ORACLES / "gpt2"))


def test_vit_without_biases_of_queries(variant):
    biases = re.compile(r"\.([qkv]_proj|query|key|value)\.bias$")
    folder = variant("vit", lambda tensors: {n: a for n, a in tensors.items() if not biases.search(n)}, qkv_bias=False)
    model = mf.models.load(folder)
    heads = model.record(tokens=np.ones((2, model.d))).heads(0)
    assert {head.query_bias is None and head.value_bias is None for head in heads} == {True}


# Rotary positions and windows ----------------------------------------------------------------------------------------


def rates(**settings):
    return rotary_rates(Config(settings), 8)


def test_rates_of_rotations():
    plain = 100.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(rates(rope_theta=100), plain)
    np.testing.assert_allclose(rates(rope_parameters={"rope_theta": 100.0, "rope_type": "default"}), plain)
    np.testing.assert_allclose(rates(rope_theta=100.0, rope_scaling={"type": "linear", "factor": 4}), plain / 4)
    np.testing.assert_allclose(rates(), 10000.0 ** (-np.arange(4) / 4))
    # Of four waves, of 6.3, 20, 63 and 199 tokens, the first stays, the last two are stretched, between is a mixture.
    llama3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
    found = rates(rope_theta=100, rope_scaling=llama3 | {"original_max_position_embeddings": 60}) / plain
    share = (60 * plain[1] / (2 * np.pi) - 1) / 3
    np.testing.assert_allclose(found, [1, share + (1 - share) / 8, 1 / 8, 1 / 8])
    sharp = llama3 | {"original_max_position_embeddings": 60, "high_freq_factor": 1}
    np.testing.assert_allclose(rates(rope_theta=100, rope_scaling=sharp) / plain, [1, 1, 1 / 8, 1 / 8])


def test_rotations_need_pairs(refused):
    refused(lambda: rotary_rates(Config({}), 7), "coordinates are turned in pairs", "7")


@pytest.mark.parametrize(
    ("kind", "settings", "limit"),
    [
        ("mistral", {"sliding_window": 5}, 5),
        ("mistral", {"sliding_window": 500, "max_position_embeddings": 30}, 30),
        ("mistral", {"sliding_window": None, "max_position_embeddings": 30}, 30),
        ("qwen2", {"sliding_window": 5, "max_position_embeddings": 30}, 30),
        ("qwen2", {"sliding_window": 5, "use_sliding_window": None, "max_position_embeddings": 30}, 30),
        ("qwen2", {"sliding_window": 5, "use_sliding_window": True}, 5),
        ("llama", {"max_position_embeddings": None}, None),
    ],
)
def test_windows_are_limits(variant, kind, settings, limit):
    """Up to there a window hides nothing."""
    assert mf.models.load(variant(kind, **settings)).embedding.limit == limit


def test_many_heads_of_queries_share_keys():
    heads = mf.models.load(ORACLES / "llama").record(ids=[1, 2]).heads(0)
    for a, b in ((0, 1), (2, 3)):
        np.testing.assert_array_equal(heads[a].K, heads[b].K)
        np.testing.assert_array_equal(heads[a].V, heads[b].V)
        assert not np.allclose(heads[a].Q, heads[b].Q)
    assert not np.allclose(heads[1].K, heads[2].K)

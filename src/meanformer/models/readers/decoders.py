"""GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023): decoders, in which a token sees those before it."""

import math

import numpy as np

from ... import _checks as checks
from ..embedding import Words
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Config, Map, Source, attention, gated, perceptron


def read_gpt2(config: Config, weights: Weights) -> Parts:
    """GPT-2: matrices are stored as `(in, out)`, queries, keys and values in one."""
    config.only("scale_attn_weights", (True,), "attention without a temperature")
    config.only("scale_attn_by_inverse_layer_idx", (False,), "a temperature for each layer")
    config.only("add_cross_attention", (False,), "cross attention")
    source = Source(weights, ("", "transformer."), "wte.weight")
    eps, heads = config.get("layer_norm_epsilon", 1e-5), config.need("n_head")
    activation = config.activation("activation_function")
    embedding = Words(source("wte.weight"), positions=source("wpe.weight"))

    def block(number: int) -> Block:
        at = f"h.{number}."
        fused, bias = source.linear(f"{at}attn.c_attn", transposed=True)
        parts = np.split(fused, 3)
        biases = [None] * 3 if bias is None else np.split(bias, 3)
        q, k, v = zip(parts, biases, strict=True)
        w1, w2 = (source.linear(f"{at}mlp.{name}", transposed=True) for name in ("c_fc", "c_proj"))
        return Block(
            attention(q, k, v, source.linear(f"{at}attn.c_proj", transposed=True), heads=heads, causal=True),
            perceptron(w1, w2, activation),
            source.norm(f"{at}ln_1", eps),
            source.norm(f"{at}ln_2", eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(config.need("n_layer")))
    # Old files keep the mask itself.
    source.check_all_read("h.", ignored=(".attn.bias", ".attn.masked_bias"))
    return Parts(blocks, embedding, source.norm("ln_f", eps), causal=True)


def read_llama(config: Config, weights: Weights) -> Parts:
    """Llama, and what has its layers: Mistral, Qwen2. Rotary positions, gated perceptrons, few keys and values."""
    source = Source(weights, ("", "model."), "embed_tokens.weight")
    eps, heads = config.get("rms_norm_eps", 1e-6), config.need("num_attention_heads")
    kv_heads = config.get("num_key_value_heads", heads)
    activation = config.activation("hidden_act")
    size = config.get("head_dim", config.need("hidden_size") // heads)
    rates = rotary_rates(config, size)
    limit = config.get("max_position_embeddings", None)
    window = config.get("sliding_window", None)
    if window is not None and config.get("use_sliding_window", config.need("model_type") != "qwen2"):
        limit = window if limit is None else min(limit, window)  # up to there a window hides nothing
    embedding = Words(source("embed_tokens.weight"), limit=limit)

    def block(number: int) -> Block:
        at = f"layers.{number}."
        q, k, v, o = (source.linear(f"{at}self_attn.{name}_proj") for name in "qkvo")
        maps: list[Map] = [source.linear(f"{at}mlp.{name}_proj") for name in ("gate", "up", "down")]
        if any(bias is not None for _, bias in maps):
            config.only("mlp_bias", (False,), "a gated perceptron with biases")
        return Block(
            attention(q, k, v, o, heads=heads, kv_heads=kv_heads, causal=True, rates=rates),
            gated(*maps, activation),
            source.rms(f"{at}input_layernorm", eps),
            source.rms(f"{at}post_attention_layernorm", eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(config.need("num_hidden_layers")))
    source.check_all_read("layers.", ignored=(".rotary_emb.inv_freq",))
    return Parts(blocks, embedding, source.rms("norm", eps), causal=True, rotary=True)


def rotary_rates(config: Config, size: int) -> np.ndarray:
    r"""The rates $\omega_i=\theta^{-2i/k}$ of the rotation, in radians per token; Llama 3 slows the slow ones down."""
    settings = config.get("rope_parameters", None) or config.get("rope_scaling", None) or {}
    theta = settings.get("rope_theta") or config.get("rope_theta", 10000.0)
    rates = theta ** (-np.arange(0, size, 2) / size)
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if kind == "default":
        return rates
    if kind == "linear":
        return rates / settings["factor"]
    if kind != "llama3":
        checks.refuse(
            "this scaling of rotary positions is not supported",
            got=f"rope_type = {kind!r}",
            expected="default, linear or llama3",
            remedy="use a model without it, or one whose positions were scaled before it was stored",
        )
    # Waves longer than the context that the model was first trained for are stretched; between, a mixture.
    waves = 2 * math.pi / rates
    length, low, high = (
        settings[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    share = np.clip((length / waves - low) / (high - low), 0, 1)
    return (1 - share) * rates / settings["factor"] + share * rates

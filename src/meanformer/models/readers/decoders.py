"""GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023): decoders, in which a token sees those before it."""

import math

import numpy as np

from ... import _checks as checks
from ..config import MOST_OF_A_HEAD, Config
from ..embedding import Words
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Source, attention, cut, gated, perceptron


def read_gpt2(config: Config, weights: Weights) -> Parts:
    """GPT-2: matrices are stored as `(in, out)`, queries, keys and values in one."""
    config.only("scale_attn_weights", (True,), "attention without a temperature")
    config.only("scale_attn_by_inverse_layer_idx", (False,), "a temperature for each layer")
    config.only("add_cross_attention", (False,), "cross attention")
    source = Source(weights, ("", "transformer."), "wte.weight")
    eps, activation = config.number("layer_norm_epsilon", 1e-5), config.activation("activation_function")
    d, heads = config.whole("n_embd"), config.whole("n_head")
    h = config.whole("n_inner", 4 * d)
    config.quotient("n_embd", "n_head")
    depth = config.layers("n_layer")
    embedding = Words(source("wte.weight", -1, d), positions=source("wpe.weight", config.whole("n_positions"), d))

    def block(number: int) -> Block:
        at = f"h.{number}."
        q, k, v = cut(source.linear(f"{at}attn.c_attn", 3 * d, d, transposed=True), 3)
        return Block(
            attention(q, k, v, source.linear(f"{at}attn.c_proj", d, d, transposed=True), heads=heads, causal=True),
            perceptron(
                source.linear(f"{at}mlp.c_fc", h, d, transposed=True),
                source.linear(f"{at}mlp.c_proj", d, h, transposed=True),
                activation,
            ),
            source.norm(f"{at}ln_1", d, eps),
            source.norm(f"{at}ln_2", d, eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(depth))
    # Old files keep the mask itself.
    source.check_all_read("h.", ignored=(".attn.bias", ".attn.masked_bias"))
    return Parts(blocks, embedding, source.norm("ln_f", d, eps), causal=True)


def read_llama(config: Config, weights: Weights) -> Parts:
    """Llama, and what has its layers: Mistral, Qwen2. Rotary positions, gated perceptrons, few keys and values."""
    kind = config.get("model_type")
    config.only("mlp_bias", (False,), "a gated perceptron with biases")
    source = Source(weights, ("", "model."), "embed_tokens.weight")
    eps, activation = config.number("rms_norm_eps", 1e-6), config.activation("hidden_act")
    d, h, heads = (config.whole(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    size = config.quotient("hidden_size", "num_attention_heads") if not config.has("head_dim") else None
    size = config.whole("head_dim", size, most=MOST_OF_A_HEAD)
    few = config.has("num_key_value_heads")
    kv_heads = heads // config.quotient("num_attention_heads", "num_key_value_heads") if few else heads
    depth = config.layers("num_hidden_layers")
    biased = kind == "qwen2", config.flag("attention_bias", False) if kind == "llama" else False
    rates = rotary_rates(config, size)
    limits = [config.whole("max_position_embeddings")] if config.has("max_position_embeddings") else []
    if config.has("sliding_window") and config.flag("use_sliding_window", kind != "qwen2"):
        limits += [config.whole("sliding_window")]  # up to there a window hides nothing
    embedding = Words(source("embed_tokens.weight", -1, d), limit=min(limits, default=None))

    def block(number: int) -> Block:
        at = f"layers.{number}."
        q, k, v = (
            source.linear(f"{at}self_attn.{name}_proj", count * size, d, bias=any(biased))
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        o = source.linear(f"{at}self_attn.o_proj", d, heads * size, bias=biased[1])
        gate, up = (source.linear(f"{at}mlp.{name}_proj", h, d, bias=False) for name in ("gate", "up"))
        return Block(
            attention(q, k, v, o, heads=heads, kv_heads=kv_heads, causal=True, rates=rates),
            gated(gate, up, source.linear(f"{at}mlp.down_proj", d, h, bias=False), activation),
            source.rms(f"{at}input_layernorm", d, eps),
            source.rms(f"{at}post_attention_layernorm", d, eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("layers.", ignored=(".rotary_emb.inv_freq",))
    return Parts(blocks, embedding, source.rms("norm", d, eps), causal=True, rotary=True)


def rotary_rates(config: Config, size: int) -> np.ndarray:
    r"""The rates $\omega_i=\theta^{-2i/k}$ of the rotation, in radians per token; Llama 3 slows the slow ones down."""
    settings = config.table("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    for name in ("full_attention", "sliding_attention"):
        settings.only(name, ({},), "a rotation for each kind of layer")
    for place in (config, settings):
        place.only("partial_rotary_factor", (1.0,), "a rotation of some coordinates only")
    kind = "rope_type" if settings.has("rope_type") or not settings.has("type") else "type"
    settings.only(kind, ("default", "linear", "llama3"), "this scaling of rotary positions")
    if size % 2:
        checks.refuse(
            "coordinates are turned in pairs",
            got=f"heads of dimension {size}",
            expected="an even dimension",
            remedy="take the head_dim of the network that was trained",
        )
    theta = (settings if settings.has("rope_theta") else config).number("rope_theta", 10000.0, positive=True)
    with np.errstate(all="ignore"):
        return _finite(_rates(settings, kind, theta ** (-np.arange(0, size, 2) / size)))


def _finite(rates: np.ndarray) -> np.ndarray:
    if not np.isfinite(rates.astype(np.float32)).all():
        checks.refuse(
            "rotary positions turn without bound",
            got="rates that are not finite",
            expected="rope_theta and factors such as 10000.0 and 8.0",
            remedy="take the config.json that came with the weights",
        )
    return rates


def _rates(settings: Config, kind: str, rates: np.ndarray) -> np.ndarray:
    """The rates, slowed down as the settings say."""
    if settings.get(kind, "default") == "default":
        return rates
    slower = rates / settings.number("factor", positive=True)
    if settings.get(kind) == "linear":
        return slower
    # Waves longer than the context that the model was first trained for are stretched; between, a mixture.
    length = settings.whole("original_max_position_embeddings")
    low, high = (settings.number(f"{name}_freq_factor") for name in ("low", "high"))
    turns = length * rates / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1) if high > low else turns > low
    return (1 - share) * slower + share * rates

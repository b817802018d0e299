"""ViT (Dosovitskiy et al. 2020): the tokens are patches of an image, after a token of its own."""

from ... import _checks as checks
from ..config import Config
from ..embedding import Patches
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Source, attention, perceptron


def read_vit(config: Config, weights: Weights) -> Parts:
    """ViT: an encoder with its normalisations first."""
    source = Source(weights, ("", "vit."), "embeddings.cls_token")
    eps, activation = config.number("layer_norm_eps", 1e-12), config.activation("hidden_act")
    d, h, heads = (config.whole(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    config.quotient("hidden_size", "num_attention_heads")
    depth = config.layers("num_hidden_layers")
    size, patch, channels = config.pair("image_size"), config.pair("patch_size"), config.whole("num_channels", 3)
    rows, columns = size[0] // patch[0], size[1] // patch[1]
    if size != (rows * patch[0], columns * patch[1]):
        checks.refuse(
            "the patches do not fill the image",
            got=f"images of {size[0]} x {size[1]}, patches of {patch[0]} x {patch[1]}, in config.json",
            expected="sizes of images that are multiples of those of patches",
            remedy="such a network drops a border, which is not supported",
        )
    embedding = Patches(
        source("embeddings.patch_embeddings.projection.weight", d, channels, *patch),
        source("embeddings.patch_embeddings.projection.bias", d),
        source("embeddings.cls_token", 1, 1, d)[0],
        source("embeddings.position_embeddings", 1, 1 + rows * columns, d)[0],
        grid=(rows, columns),
        preprocessing=Config(config.get("preprocessing", {}), "preprocessor_config.json"),
    )
    # Names changed once: both are in use.
    old = source.has("encoder.layer.0.layernorm_before.weight")

    def block(number: int) -> Block:
        at = f"encoder.layer.{number}." if old else f"layers.{number}."
        if old:
            names = [f"attention.attention.{name}" for name in ("query", "key", "value")]
            names += ["attention.output.dense", "intermediate.dense", "output.dense"]
        else:
            names = [f"attention.{name}_proj" for name in "qkvo"] + ["mlp.fc1", "mlp.fc2"]
        q, k, v = (source.linear(at + name, d, d, bias=config.flag("qkv_bias", True)) for name in names[:3])
        w1, w2 = source.linear(at + names[4], h, d), source.linear(at + names[5], d, h)
        return Block(
            attention(q, k, v, source.linear(at + names[3], d, d), heads=heads),
            perceptron(w1, w2, activation),
            source.norm(f"{at}layernorm_before", d, eps),
            source.norm(f"{at}layernorm_after", d, eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("encoder." if old else "layers.")
    return Parts(blocks, embedding, source.norm("layernorm", d, eps))

"""ViT (Dosovitskiy et al. 2020): the tokens are patches of an image, after a token of its own."""

from ..embedding import Patches
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Config, Source, attention, perceptron


def read_vit(config: Config, weights: Weights) -> Parts:
    """ViT: an encoder with its normalisations first."""
    source = Source(weights, ("", "vit."), "embeddings.cls_token")
    eps, heads = config.get("layer_norm_eps", 1e-12), config.need("num_attention_heads")
    activation = config.activation("hidden_act")
    kernel, bias = source.linear("embeddings.patch_embeddings.projection")
    embedding = Patches(
        kernel,
        bias,
        source("embeddings.cls_token")[0],
        source("embeddings.position_embeddings")[0],
        size=config.need("image_size"),
        preprocessing=config.get("preprocessing", {}),
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
        q, k, v, o, w1, w2 = (source.linear(at + name) for name in names)
        return Block(
            attention(q, k, v, o, heads=heads),
            perceptron(w1, w2, activation),
            source.norm(f"{at}layernorm_before", eps),
            source.norm(f"{at}layernorm_after", eps),
            pre=True,
        )

    blocks = tuple(block(number) for number in range(config.need("num_hidden_layers")))
    source.check_all_read("encoder." if old else "layers.")
    return Parts(blocks, embedding, source.norm("layernorm", eps))

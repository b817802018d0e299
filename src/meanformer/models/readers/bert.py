"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019), ALBERT (Lan et al. 2019):
encoders that normalise after the residual sum.
"""

from ..config import Config
from ..embedding import Words
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Source, attention, perceptron


def read_bert(config: Config, weights: Weights) -> Parts:
    """BERT and RoBERTa: RoBERTa counts positions from the padding token on."""
    config.only("position_embedding_type", ("absolute",), "a relative position encoding")
    config.only("is_decoder", (False,), "a decoder with the layers of an encoder")
    source = Source(weights, ("", "bert.", "roberta.", "model."), "embeddings.word_embeddings.weight")
    eps, activation = config.number("layer_norm_eps", 1e-12), config.activation("hidden_act")
    d, h, heads = (config.whole(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    config.quotient("hidden_size", "num_attention_heads")
    depth = config.layers("num_hidden_layers")
    places = config.whole("max_position_embeddings")
    padding = config.whole("pad_token_id", 1, least=0, most=places - 2) if config.get("model_type") != "bert" else -1
    embedding = Words(
        source("embeddings.word_embeddings.weight", -1, d),
        positions=source("embeddings.position_embeddings.weight", places, d)[padding + 1 :],
        types=source("embeddings.token_type_embeddings.weight", -1, d),
        norm=source.norm("embeddings.LayerNorm", d, eps),
        padding=padding if padding >= 0 else None,
    )

    def block(number: int) -> Block:
        at = f"encoder.layer.{number}."
        q, k, v = (source.linear(f"{at}attention.self.{name}", d, d) for name in ("query", "key", "value"))
        w1, w2 = source.linear(f"{at}intermediate.dense", h, d), source.linear(f"{at}output.dense", d, h)
        return Block(
            attention(q, k, v, source.linear(f"{at}attention.output.dense", d, d), heads=heads),
            perceptron(w1, w2, activation),
            source.norm(f"{at}attention.output.LayerNorm", d, eps),
            source.norm(f"{at}output.LayerNorm", d, eps),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("encoder.")
    return Parts(blocks, embedding)


def read_distilbert(config: Config, weights: Weights) -> Parts:
    """DistilBERT: BERT with half of its layers, without types."""
    source = Source(weights, ("", "distilbert."), "embeddings.word_embeddings.weight")
    d, h, heads = (config.whole(name) for name in ("dim", "hidden_dim", "n_heads"))
    config.quotient("dim", "n_heads")
    depth = config.layers("n_layers")
    eps, activation = 1e-12, config.activation("activation")
    embedding = Words(
        source("embeddings.word_embeddings.weight", -1, d),
        positions=source("embeddings.position_embeddings.weight", config.whole("max_position_embeddings"), d),
        norm=source.norm("embeddings.LayerNorm", d, eps),
    )

    def block(number: int) -> Block:
        at = f"transformer.layer.{number}."
        q, k, v, o = (source.linear(f"{at}attention.{name}_lin", d, d) for name in ("q", "k", "v", "out"))
        return Block(
            attention(q, k, v, o, heads=heads),
            perceptron(source.linear(f"{at}ffn.lin1", h, d), source.linear(f"{at}ffn.lin2", d, h), activation),
            source.norm(f"{at}sa_layer_norm", d, eps),
            source.norm(f"{at}output_layer_norm", d, eps),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("transformer.")
    return Parts(blocks, embedding)


def read_albert(config: Config, weights: Weights) -> Parts:
    """ALBERT: groups of layers share their weights; with one group all layers are the same block."""
    config.only("position_embedding_type", ("absolute",), "a relative position encoding")
    source = Source(weights, ("", "albert."), "embeddings.word_embeddings.weight")
    eps, activation = config.number("layer_norm_eps", 1e-12), config.activation("hidden_act")
    d, h, heads = (config.whole(name) for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    config.quotient("hidden_size", "num_attention_heads")
    depth, narrow = config.layers("num_hidden_layers"), config.whole("embedding_size")
    groups, inner = config.whole("num_hidden_groups", 1, most=depth), config.whole("inner_group_num", 1)
    embedding = Words(
        source("embeddings.word_embeddings.weight", -1, narrow),
        positions=source("embeddings.position_embeddings.weight", config.whole("max_position_embeddings"), narrow),
        types=source("embeddings.token_type_embeddings.weight", -1, narrow),
        norm=source.norm("embeddings.LayerNorm", narrow, eps),
        projection=source.linear("encoder.embedding_hidden_mapping_in", d, narrow),
    )

    def block(group: int, number: int) -> Block:
        at = f"encoder.albert_layer_groups.{group}.albert_layers.{number}."
        q, k, v, o = (source.linear(f"{at}attention.{name}", d, d) for name in ("query", "key", "value", "dense"))
        return Block(
            attention(q, k, v, o, heads=heads),
            perceptron(source.linear(f"{at}ffn", h, d), source.linear(f"{at}ffn_output", d, h), activation),
            source.norm(f"{at}attention.LayerNorm", d, eps),
            source.norm(f"{at}full_layer_layer_norm", d, eps),
            pre=False,
        )

    shared = [[block(group, number) for number in range(inner)] for group in range(groups)]
    blocks = tuple(
        b for layer in range(depth) for b in shared[int(layer / (depth / groups))]
    )  # as ALBERT counts, in floating point
    source.check_all_read("encoder.")
    return Parts(blocks, embedding)

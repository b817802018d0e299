"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019), ALBERT (Lan et al. 2019):
encoders that normalise after the residual sum.
"""

from ..embedding import Words
from ..layers import Block
from ..weights import Weights
from .parts import Parts
from .source import Config, Source, attention, perceptron


def read_bert(config: Config, weights: Weights) -> Parts:
    """BERT and RoBERTa: RoBERTa counts positions from the padding token on."""
    config.only("position_embedding_type", ("absolute",), "a relative position encoding")
    config.only("is_decoder", (False,), "a decoder with the layers of an encoder")
    kind = config.need("model_type")
    prefixes = ("", "bert.", "roberta.", "model.")
    source = Source(weights, prefixes, "embeddings.word_embeddings.weight")
    eps, heads = config.get("layer_norm_eps", 1e-12), config.need("num_attention_heads")
    activation = config.activation("hidden_act")
    offset = 0 if kind == "bert" else config.get("pad_token_id", 1) + 1
    embedding = Words(
        source("embeddings.word_embeddings.weight"),
        positions=source("embeddings.position_embeddings.weight")[offset:],
        types=source("embeddings.token_type_embeddings.weight"),
        norm=source.norm("embeddings.LayerNorm", eps),
    )

    def block(number: int) -> Block:
        at = f"encoder.layer.{number}."
        q, k, v = (source.linear(f"{at}attention.self.{name}") for name in ("query", "key", "value"))
        return Block(
            attention(q, k, v, source.linear(f"{at}attention.output.dense"), heads=heads),
            perceptron(source.linear(f"{at}intermediate.dense"), source.linear(f"{at}output.dense"), activation),
            source.norm(f"{at}attention.output.LayerNorm", eps),
            source.norm(f"{at}output.LayerNorm", eps),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(config.need("num_hidden_layers")))
    source.check_all_read("encoder.")
    return Parts(blocks, embedding)


def read_distilbert(config: Config, weights: Weights) -> Parts:
    """DistilBERT: BERT with half of its layers, without types."""
    source = Source(weights, ("", "distilbert."), "embeddings.word_embeddings.weight")
    heads, activation = config.need("n_heads"), config.activation("activation")
    embedding = Words(
        source("embeddings.word_embeddings.weight"),
        positions=source("embeddings.position_embeddings.weight"),
        norm=source.norm("embeddings.LayerNorm", 1e-12),
    )

    def block(number: int) -> Block:
        at = f"transformer.layer.{number}."
        q, k, v, o = (source.linear(f"{at}attention.{name}_lin") for name in ("q", "k", "v", "out"))
        return Block(
            attention(q, k, v, o, heads=heads),
            perceptron(source.linear(f"{at}ffn.lin1"), source.linear(f"{at}ffn.lin2"), activation),
            source.norm(f"{at}sa_layer_norm", 1e-12),
            source.norm(f"{at}output_layer_norm", 1e-12),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(config.need("n_layers")))
    source.check_all_read("transformer.")
    return Parts(blocks, embedding)


def read_albert(config: Config, weights: Weights) -> Parts:
    """ALBERT: groups of layers share their weights; with one group all layers are the same block."""
    config.only("position_embedding_type", ("absolute",), "a relative position encoding")
    source = Source(weights, ("", "albert."), "embeddings.word_embeddings.weight")
    eps, heads = config.get("layer_norm_eps", 1e-12), config.need("num_attention_heads")
    activation = config.activation("hidden_act")
    embedding = Words(
        source("embeddings.word_embeddings.weight"),
        positions=source("embeddings.position_embeddings.weight"),
        types=source("embeddings.token_type_embeddings.weight"),
        norm=source.norm("embeddings.LayerNorm", eps),
        projection=source.linear("encoder.embedding_hidden_mapping_in"),
    )

    def block(group: int, number: int) -> Block:
        at = f"encoder.albert_layer_groups.{group}.albert_layers.{number}."
        q, k, v, o = (source.linear(f"{at}attention.{name}") for name in ("query", "key", "value", "dense"))
        return Block(
            attention(q, k, v, o, heads=heads),
            perceptron(source.linear(f"{at}ffn"), source.linear(f"{at}ffn_output"), activation),
            source.norm(f"{at}attention.LayerNorm", eps),
            source.norm(f"{at}full_layer_layer_norm", eps),
            pre=False,
        )

    depth, groups = config.need("num_hidden_layers"), config.get("num_hidden_groups", 1)
    shared = [[block(g, i) for i in range(config.get("inner_group_num", 1))] for g in range(groups)]
    blocks = tuple(b for layer in range(depth) for b in shared[layer * groups // depth])
    source.check_all_read("encoder.")
    return Parts(blocks, embedding)

"""The settings and tensors of a tiny BERT with random weights; see `conftest.py`."""

import numpy as np

D, HIDDEN, WORDS, PLACES = 8, 12, 14, 6
BERT = {
    "model_type": "bert",
    "hidden_size": D,
    "intermediate_size": HIDDEN,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": PLACES,
    "hidden_act": "gelu",
}


def bert_tensors() -> dict[str, np.ndarray]:
    """The tensors of a BERT with two layers, and a pooler, which nobody needs."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, D),
        "embeddings.position_embeddings.weight": (PLACES, D),
        "embeddings.token_type_embeddings.weight": (2, D),
        "pooler.dense.weight": (D, D),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{l}." for l in range(2)):
        linear = {f"attention.self.{name}": (D, D) for name in ("query", "key", "value")}
        linear |= {"attention.output.dense": (D, D), "intermediate.dense": (HIDDEN, D), "output.dense": (D, HIDDEN)}
        for name, (rows, columns) in linear.items():
            shapes |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    shapes |= {f"{norm}.{part}": (D,) for norm in norms for part in ("weight", "bias")}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

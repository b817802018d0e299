"""TabPFN (Hollmann et al. 2022), version 0.1: a set transformer. Rows of a table are tokens without positions; rows
whose class is asked for see the others, and nobody sees them: their weight is zero.
"""

from pathlib import Path
from typing import Any

from ... import _checks as checks
from ..config import Config
from ..embedding import Table
from ..layers import ACTIVATIONS, Block
from ..weights import Weights, load_bin, tensors_of
from .parts import Parts
from .source import Source, attention, cut, perceptron

EPS = 1e-5


def read_tabpfn(path: Path, dtype: Any) -> Parts:
    """The checkpoint of version 0.1: a tuple of tensors, of the optimiser's state, and of settings."""
    found = load_bin(path)
    kinds = [type(part) for part in found] if isinstance(found, (tuple, list)) else []
    if len(kinds) != 3 or not issubclass(kinds[0], dict) or kinds[2] is not dict:
        checks.refuse(
            "this checkpoint is of no architecture that is known",
            got=f"{path.name}, {checks.described(found)}",
            expected="the checkpoint of tabpfn 0.1, or a folder with config.json",
            remedy="name the folder of a model that save_pretrained has written",
        )
    config = Config(found[2], path.name)
    config.only("pre_norm", (False,), "a set transformer with its normalisations first")
    config.only("efficient_eval_masking", (True,), "attention among the rows that are asked for")
    d, heads, features = (config.whole(name) for name in ("emsize", "nhead", "num_features"))
    h, depth = d * config.whole("nhid_factor"), config.layers("nlayers")
    config.quotient("emsize", "nhead")
    source = Source(Weights(tensors_of(found[0]), dtype), ("module.", ""), "encoder.weight")

    def block(number: int) -> Block:
        at = f"transformer_encoder.layers.{number}."
        fused = source(f"{at}self_attn.in_proj_weight", 3 * d, d), source(f"{at}self_attn.in_proj_bias", 3 * d)
        q, k, v = cut(fused, 3)
        w1, w2 = source.linear(f"{at}linear1", h, d), source.linear(f"{at}linear2", d, h)
        return Block(
            attention(q, k, v, source.linear(f"{at}self_attn.out_proj", d, d), heads=heads),
            perceptron(w1, w2, ACTIVATIONS["gelu"]),
            source.norm(f"{at}norm1", d, EPS),
            source.norm(f"{at}norm2", d, EPS),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("transformer_encoder.")
    return Parts(blocks, Table(source.linear("encoder", d, features), source.linear("y_encoder", d, 1)))

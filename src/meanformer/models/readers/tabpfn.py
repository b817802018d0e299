"""TabPFN (Hollmann et al. 2022), version 0.1: a set transformer. Rows of a table are tokens without positions; rows
whose class is asked for see the others, and nobody sees them: their weight is zero.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ... import _checks as checks
from ..embedding import Table
from ..layers import ACTIVATIONS, Block
from ..weights import Weights, load_bin
from .parts import Parts
from .source import Source, attention, perceptron

EPS = 1e-5


def read_tabpfn(path: Path, dtype: Any) -> Parts:
    """The checkpoint of version 0.1: a tuple of tensors, of the optimiser's state, and of settings."""
    found = load_bin(path)
    state = found[0] if isinstance(found, (tuple, list)) and found else found
    settings = found[2] if isinstance(found, (tuple, list)) and len(found) > 2 else {}
    if not isinstance(state, dict) or not any("transformer_encoder.layers.0" in name for name in state):
        checks.refuse(
            "this checkpoint is of no architecture that is known",
            got=f"{path.name}, {checks.described(found)}",
            expected="the checkpoint of tabpfn 0.1, or a folder with config.json",
            remedy="name the folder of a model that save_pretrained has written",
        )
    readers = {name: (lambda tensor=tensor: tensor.float().numpy()) for name, tensor in state.items()}
    source = Source(Weights(readers, dtype), ("module.", ""), "encoder.weight")
    heads = int(settings.get("nhead", 4))
    activation = ACTIVATIONS["gelu"]
    depth = 1 + max(int(name.split(".layers.")[1].split(".")[0]) for name in state if ".layers." in name)

    def block(number: int) -> Block:
        at = f"transformer_encoder.layers.{number}."
        parts = np.split(source(f"{at}self_attn.in_proj_weight"), 3)
        q, k, v = zip(parts, np.split(source(f"{at}self_attn.in_proj_bias"), 3), strict=True)
        return Block(
            attention(q, k, v, source.linear(f"{at}self_attn.out_proj"), heads=heads),
            perceptron(source.linear(f"{at}linear1"), source.linear(f"{at}linear2"), activation),
            source.norm(f"{at}norm1", EPS),
            source.norm(f"{at}norm2", EPS),
            pre=False,
        )

    blocks = tuple(block(number) for number in range(depth))
    source.check_all_read("transformer_encoder.")
    return Parts(blocks, Table(source.linear("encoder"), source.linear("y_encoder")))

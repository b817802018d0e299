"""What a reader of an architecture gives."""

from typing import NamedTuple

from ...attention.norm import AbstractNorm
from ..embedding import AbstractEmbedding
from ..layers import Block


class Parts(NamedTuple):
    """The blocks in their order, the embedding, the normalisation after the last block; whether a token sees only those
    before it, and whether attention needs positions.
    """

    blocks: tuple[Block, ...]
    embedding: AbstractEmbedding
    final: AbstractNorm | None = None
    causal: bool = False
    rotary: bool = False

"""Pretrained transformers, seen as the dynamics of their tokens.

Needs the extra `models`: safetensors, tokenizers, pillow. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanformer.models.record import Head as Head
    from meanformer.models.record import LayerRecord as LayerRecord
    from meanformer.models.record import TransformerRecord as TransformerRecord
    from meanformer.models.transformer import Transformer as Transformer
    from meanformer.models.transformer import load as load

_EXPORTS = {
    "load": "transformer",
    "Transformer": "transformer",
    "TransformerRecord": "record",
    "LayerRecord": "record",
    "Head": "record",
}

__all__ = list(_EXPORTS)  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_EXPORTS)

"""Pretrained transformers, seen as the dynamics of their tokens.

Needs the extra `models`: safetensors, tokenizers, pillow. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meanformer.models.closures import Closure as Closure
    from meanformer.models.closures import closure as closure
    from meanformer.models.curves import DepthCurves as DepthCurves
    from meanformer.models.curves import along as along
    from meanformer.models.curves import most_seen as most_seen
    from meanformer.models.deep import DeepCurves as DeepCurves
    from meanformer.models.deep import extrapolate as extrapolate
    from meanformer.models.frozen import Frozen as Frozen
    from meanformer.models.frozen import frozen_fates as frozen_fates
    from meanformer.models.nulls import gaussian_tokens as gaussian_tokens
    from meanformer.models.nulls import random_weights as random_weights
    from meanformer.models.record import Head as Head
    from meanformer.models.record import LayerRecord as LayerRecord
    from meanformer.models.record import TransformerRecord as TransformerRecord
    from meanformer.models.spectra import HeadFacts as HeadFacts
    from meanformer.models.spectra import head_facts as head_facts
    from meanformer.models.transformer import Transformer as Transformer
    from meanformer.models.transformer import load as load

_EXPORTS = {
    "load": "transformer",
    "Transformer": "transformer",
    "TransformerRecord": "record",
    "LayerRecord": "record",
    "Head": "record",
    "closure": "closures",
    "Closure": "closures",
    "gaussian_tokens": "nulls",
    "random_weights": "nulls",
    "along": "curves",
    "DepthCurves": "curves",
    "most_seen": "curves",
    "head_facts": "spectra",
    "HeadFacts": "spectra",
    "frozen_fates": "frozen",
    "Frozen": "frozen",
    "extrapolate": "deep",
    "DeepCurves": "deep",
}

__all__ = list(_EXPORTS)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_EXPORTS)

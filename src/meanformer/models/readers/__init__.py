"""One reader for each architecture: settings and tensors to blocks."""

from collections.abc import Callable

from .bert import read_albert, read_bert, read_distilbert
from .decoders import read_gpt2, read_llama
from .parts import Parts
from .vit import read_vit

READERS: dict[str, Callable[..., Parts]] = {
    "bert": read_bert,
    "roberta": read_bert,
    "xlm-roberta": read_bert,
    "distilbert": read_distilbert,
    "albert": read_albert,
    "gpt2": read_gpt2,
    "llama": read_llama,
    "mistral": read_llama,
    "qwen2": read_llama,
    "vit": read_vit,
}
"""The `model_type` of config.json, and who reads it."""

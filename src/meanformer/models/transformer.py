"""A pretrained transformer, as blocks of fields."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from ..attention.kernel import AbstractAttention
from ..attention.norm import AbstractNorm
from ..measures.cloud import PointCloud
from ..measures.labelled import Labelled
from .embedding import AbstractEmbedding, Patches, Table, Words
from .layers import Block
from .places import find
from .readers import READERS
from .readers.source import Config
from .readers.tabpfn import read_tabpfn
from .record import TransformerRecord
from .tokenizer import Tokenizer, read_tokenizer
from .weights import read_weights

CHECKPOINTS = (".cpkt", ".ckpt", ".pt", ".pth")
MISSING = {
    "t5": "relative position biases and cross attention",
    "bart": "cross attention",
    "deberta": "disentangled attention",
    "deberta-v2": "disentangled attention",
    "bloom": "biases of logits that grow with the distance (ALiBi)",
    "gptj": "a perceptron beside attention",
    "gpt_neox": "a perceptron beside attention",
    "phi": "a perceptron beside attention",
    "falcon": "a perceptron beside attention",
    "gemma": "scales that are counted from one",
    "gemma2": "caps on logits",
    "mixtral": "mixtures of experts",
    "qwen2_moe": "mixtures of experts",
    "qwen3": "normalised queries and keys",
    "swin": "shifted windows",
    "clip": "two towers",
    "mpnet": "relative position biases",
    "electra": "a reader: its layers are those of BERT",
    "mamba": "attention",
}
"""What is missing for architectures that are often asked for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Transformer:
    """A pretrained transformer: what it computes, as fields, and how it makes its first tokens.

    Made by `mf.models.load`. `name` and `kind` (its `model_type`); `blocks`, in the order in which tokens go through
    them (the same object again where weights are shared); `final`, the normalisation after the last block, or None;
    `causal`: whether a token sees only those before it.
    """

    name: str
    kind: str
    blocks: tuple[Block, ...]
    embedding: AbstractEmbedding
    final: AbstractNorm | None = None
    tokenizer: Tokenizer | None = None
    causal: bool = False
    rotary: bool = False

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    @property
    def heads(self) -> int:
        """The number of heads of a block."""
        return len(_leaves(self.blocks[0]))

    @property
    def d(self) -> int:
        """The dimension of the tokens."""
        return _leaves(self.blocks[0])[0].Q.shape[1]

    @property
    def k(self) -> int:
        """The dimension of keys, of one head."""
        return _leaves(self.blocks[0])[0].Q.shape[0]

    @property
    def tied(self) -> bool:
        """Whether all blocks are one: the setting of the theory, where depth is time."""
        return len({id(block) for block in self.blocks}) == 1 and self.depth > 1

    def __str__(self) -> str:
        sees = "a token sees those before it" if self.causal else "all tokens see each other"
        tied = ", all layers the same" if self.tied else ""
        place = "before" if self.blocks[0].pre else "after"
        return (
            f"{self.name} ({self.kind}): {self.depth} layers of {self.heads} heads{tied}; d = {self.d}, k = {self.k}; "
            f"{sees}; norms {place} each part"
        )

    __repr__ = __str__

    def record(
        self,
        text: str | None = None,
        *,
        ids: Any = None,
        image: Any = None,
        pixels: Any = None,
        table: Any = None,
        tokens: Any = None,
        labels: Any = None,
        cut: bool = False,
    ) -> TransformerRecord:
        """What the model does with a text, an image, a table, or tokens.

        **Arguments:** one of

        - `text`, through the tokenizer of the model; or `ids`, numbers of its vocabulary;
        - `image`, a path or an array `(height, width, 3)` of values 0 to 255, scaled to the size of the model; or
          `pixels`, as the model takes them;
        - `table`, features `(n, f)` and the classes of the first rows, for set transformers;
        - `tokens`, an array `(n, d)` or a `PointCloud`: the stream before the first block, whatever made it.

        With `labels`, names of the tokens; with `cut`, what is too long for the model is cut off, in place of refused.

        **Returns:** a `TransformerRecord`.
        """
        return TransformerRecord(self, self.tokens(text, ids, image, pixels, table, tokens, labels, cut))

    def tokens(
        self,
        text: str | None = None,
        ids: Any = None,
        image: Any = None,
        pixels: Any = None,
        table: Any = None,
        tokens: Any = None,
        labels: Any = None,
        cut: bool = False,
    ) -> Labelled:
        """The first tokens of the model, a measure with labels; arguments as those of `record`."""
        given = {"text": text, "ids": ids, "image": image, "pixels": pixels, "table": table, "tokens": tokens}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            checks.refuse(
                "a model takes one input",
                got=" and ".join(named) or "none",
                expected=f"one of {', '.join(given)}",
                remedy='model.record("a text")',
            )
        weights = grid = None
        if tokens is not None:
            cloud = tokens if isinstance(tokens, PointCloud) else PointCloud(np.asarray(tokens))
            points, weights = np.asarray(cloud.points), cloud.weights
            if points.ndim != 2 or points.shape[1] != self.d:
                checks.refuse(
                    "the tokens do not fit the model",
                    got=f"shape {points.shape}",
                    expected=f"shape (n, {self.d})",
                    remedy="give the stream before the first block",
                )
            found = tuple(str(i) for i in range(len(points)))
        elif isinstance(self.embedding, Words) and (text is not None or ids is not None):
            ids, found = self._ids(text, ids, cut)
            points = self.embedding(ids)
        elif isinstance(self.embedding, Patches) and (image is not None or pixels is not None):
            points = self.embedding(self.embedding.pixels(image) if pixels is None else pixels)
            found, grid = self.embedding.labels, self.embedding.grid
        elif isinstance(self.embedding, Table) and table is not None:
            x, y = table
            points = self.embedding(x, y)
            known = np.arange(len(points)) < len(y)
            weights = known / known.sum()  # nobody sees the rows whose class is asked for
            found = tuple(f"row {i}, {y[i]:g}" if known[i] else f"row {i}, ?" for i in range(len(points)))
        else:
            checks.refuse(
                f"this model does not take a {named[0]}",
                got=f"{self.kind}, whose input is of the kind {self.embedding.takes!r}",
                expected={"ids": "text or ids", "image": "image or pixels", "table": "table"}[self.embedding.takes]
                + ", or tokens",
                remedy="choose a model that fits the input",
            )
        dtype = np.float64 if points.dtype == np.float64 else np.float32
        cloud = PointCloud(jnp.asarray(points, dtype), None if weights is None else jnp.asarray(weights, dtype))
        return Labelled(cloud.with_positions() if self.causal or self.rotary else cloud, labels or found, grid)

    def _ids(self, text: str | None, ids: Any, cut: bool) -> tuple[Any, tuple[str, ...]]:
        """Numbers of the vocabulary, and their labels, as many as the model takes."""
        if ids is None:
            if self.tokenizer is None:
                checks.refuse(
                    "this model came without a tokenizer that can be read",
                    got="a text",
                    expected="tokenizer.json, vocab.txt, or vocab.json with merges.txt beside the weights",
                    remedy="add the file, or give numbers: model.record(ids=[...])",
                )
            if not isinstance(text, str) or not text.strip():
                checks.refuse(
                    "the text is empty" if isinstance(text, str) else "a text is a string",
                    got=repr(text)[:60],
                    expected="some words",
                    remedy='model.record("a text")',
                )
            ids, labels = self.tokenizer(text)
        else:
            plain = np.asarray(ids).ravel().tolist()
            labels = self.tokenizer.words(plain) if self.tokenizer else tuple(str(i) for i in plain)
        limit = self.embedding.limit
        if limit is not None and len(ids) > limit:
            if not cut:
                checks.refuse(
                    "the text is longer than the model takes",
                    got=f"{len(ids)} tokens",
                    expected=f"at most {limit}",
                    remedy="shorten it, or model.record(text, cut=True)",
                )
            ids, labels = ids[:limit], labels[:limit]
        return ids, labels


def _leaves(block: Block) -> list[AbstractAttention]:
    """The attention kinds of the heads of a block."""
    terms = block.attention.terms(jnp.zeros(()))
    return [term.leaf for term in terms if isinstance(term.leaf, AbstractAttention)]


def load(name: str | Path, *, dtype: str = "float32") -> Transformer:
    """A pretrained transformer.

    **Arguments:** `name`: a folder in the Hugging Face layout (config.json, weights as safetensors or as `.bin`),
    `package:NAME` for weights inside an installed distribution, the checkpoint of tabpfn 0.1, or the name of a model on
    a hub, if this machine has access to one. `dtype`: "float32", as most weights are stored, or "float64".

    **Returns:** a `Transformer`. Code that comes with a model is never run; `.bin` files are read weights-only, by
    torch.
    """
    kind = np.dtype(checks.one_of(dtype, "this dtype", ("float32", "float64")))
    path = find(name)
    if path.is_file():
        if path.suffix not in CHECKPOINTS:
            checks.refuse(
                "this file is no model",
                got=path.name,
                expected="a folder with config.json and weights",
                remedy="name the folder",
            )
        return Transformer(path.stem, "tabpfn", **read_tabpfn(path, kind)._asdict())
    settings = _settings(path)
    parts = READERS[settings["model_type"]](Config(settings), read_weights(path, kind))
    short = str(name).removeprefix("package:").rstrip("/").rsplit("/", 1)[-1]
    return Transformer(short, settings["model_type"], **parts._asdict(), tokenizer=read_tokenizer(path))


def _settings(folder: Path) -> dict[str, Any]:
    """config.json, with that of the image processor inside it; refused if we cannot honour it."""

    def table(name: str) -> dict[str, Any]:
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            checks.refuse(
                f"{name} cannot be read",
                got=str(error),
                expected="a table in JSON",
                remedy="take the file that came with the weights",
            )
        if not isinstance(found, dict):
            checks.refuse(f"{name} holds no table", got=checks.described(found), expected="{...}", remedy="replace it")
        return found

    settings = table("config.json")
    kind = settings.get("model_type")
    if settings.get("auto_map"):
        checks.refuse(
            "this model brings its own code, which is never run",
            got=f"auto_map in config.json, model_type {kind!r}",
            expected=f"one of {', '.join(READERS)}",
            remedy="build its fields by hand from its tensors (docs: Real weights)",
        )
    if kind not in READERS:
        missing = MISSING.get(str(kind))
        checks.refuse(
            "this architecture is not supported",
            got=f"model_type {kind!r}" + (f": missing here is {missing}" if missing else ""),
            expected=f"one of {', '.join(READERS)}",
            remedy="build its fields by hand from its tensors (docs: Real weights)",
        )
    if (folder / "preprocessor_config.json").is_file():
        settings["preprocessing"] = table("preprocessor_config.json")
    return settings

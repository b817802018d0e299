"""Text to tokens, by the files that came with a model."""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import _checks as checks
from .files import LARGEST, file_in, need, read_table, reason
from .growth import check_growth

FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
# Families whose vocabularies are read without a tokenizer.json: more would be guessing.
PIECES = ("Bert", "DistilBert", "Albert", "Electra", "Smiles")
BYTES = {"gpt2": "GPT2", "roberta": "Roberta"}
ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>", "<s>", "</s>", "<mask>", "<|endoftext|>")


class Tokenizer:
    """Text to numbers of the vocabulary, and their labels, by the files in the `folder` of a model of this `kind`.

    The files are read when they are first needed: numbers, images and tables do without.
    """

    def __init__(self, folder: Path, kind: str):
        self._folder, self._kind = folder.absolute(), kind

    @cached_property
    def _inner(self) -> Any:
        inner = read_tokenizer(self._folder, self._kind)
        inner.no_truncation()
        inner.no_padding()
        return inner

    def __call__(self, text: str, most: int | None = None) -> tuple[list[int], tuple[str, ...]]:
        """The numbers of the tokens, with those that the model puts before and after, and their labels.

        With `most`, no more than so many: the text is cut, not what stands after it.
        """
        inner = self._inner
        try:
            if most is not None:
                inner.enable_truncation(most)
            found = inner.encode(text)
        except BaseException as error:  # what the library calls a panic is no Exception
            _raise_others(error)
            checks.refuse(
                "the tokenizer cannot read this text",
                got=f"{text[:40]!r}: {reason(error)}",
                expected="text whose symbols its vocabulary knows",
                remedy="leave out half characters (surrogates), and symbols that the vocabulary lacks",
            )
        finally:
            inner.no_truncation()
        if not found.ids:
            checks.refuse(
                "nothing of this text is left by the tokenizer",
                got=repr(text[:40]),
                expected="letters, digits or symbols",
                remedy="give a text that is more than spaces and control characters",
            )
        if most is not None and len(found.ids) > most:  # a part of a kind that adds tokens after the text was cut
            checks.refuse(
                "the tokenizer gives more tokens than it was asked for",
                got=f"{len(found.ids):,} tokens",
                expected=f"at most {most:,}",
                remedy="take the tokenizer.json that came with the weights, or give model.record(ids=[...])",
            )
        return list(found.ids), tuple(self._label(word) for word in found.tokens)

    def labels(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The labels of numbers; the numbers themselves where there is no tokenizer that can be read."""
        try:
            inner = self._inner
        except checks.InputError:
            return tuple(str(i) for i in ids)
        words = [inner.id_to_token(i) for i in ids]
        return tuple(str(i) if word is None else self._label(word) for i, word in zip(ids, words, strict=True))

    def _label(self, word: str) -> str:
        """A token as one can read it: letters that stand for bytes are decoded, what is not printed is written out."""
        if type(self._inner.decoder).__name__ == "ByteLevel" and set(word) <= LETTERS.keys():
            word = bytes(LETTERS[letter] for letter in word).decode("utf-8", "backslashreplace")
        word = word.replace("▁", " ")  # a space, of sentencepiece
        word = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in word)
        return word.strip() or "␣"


def _letters() -> dict[str, int]:
    """The letters that byte-level vocabularies write for bytes: those that are printed, then the next from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in seen]
    return {chr(b): b for b in seen} | {chr(256 + i): b for i, b in enumerate(hidden)}


LETTERS = _letters()


def read_tokenizer(folder: Path, kind: str) -> Any:
    """The tokenizer of a model folder, by the library tokenizers."""
    names = [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    if not set(FILES) & set(names):
        models = sorted(name for name in names if name.endswith(".model"))
        checks.refuse(
            "this model came without a tokenizer that can be read",
            got=f"a text, and {models[0]} of sentencepiece alone" if models else "a text, and no vocabulary",
            expected="tokenizer.json, vocab.txt, or vocab.json with merges.txt beside the weights",
            remedy="add tokenizer.json (a fast tokenizer of transformers saves it), or give model.record(ids=[...])",
        )
    library = need("tokenizers", "a text")
    for name in names:
        if name in (*FILES, "merges.txt"):
            file_in(folder, name, LARGEST)
    if "tokenizer.json" in names:
        check_growth(read_table(folder, "tokenizer.json"))
        return _built("tokenizer.json", lambda: library.Tokenizer.from_file(str(folder / "tokenizer.json")))
    settings = _plain_settings(folder, kind, names)
    if "vocab.txt" in names:
        return _built("vocab.txt", lambda: _from_words(library, folder / "vocab.txt", settings))
    return _built("vocab.json with merges.txt", lambda: _from_merges(library, folder, settings, kind))


def _built(name: str, build: Any) -> Any:
    try:
        return build()
    except BaseException as error:
        _raise_others(error)
        checks.refuse(
            f"{name} cannot be read as a tokenizer",
            got=reason(error),
            expected="a file of the tokenizers library, or a vocabulary",
            remedy="download it again, or update the package tokenizers",
        )


def _raise_others(error: BaseException) -> None:
    """Let through what is neither an error nor a panic of the library, such as Ctrl-C."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _plain_settings(folder: Path, kind: str, names: list[str]) -> dict[str, Any]:
    """tokenizer_config.json, if all that it asks of a vocabulary without tokenizer.json is what we do with it."""
    settings = read_table(folder, "tokenizer_config.json", optional=True)
    families = PIECES if "vocab.txt" in names else (BYTES.get(kind, ""),)
    family = re.sub(r"Tokenizer(Fast)?$", "", str(settings.get("tokenizer_class") or families[0]))
    more = read_table(folder, "added_tokens.json", optional=True)
    if family not in families or not family or settings.get("auto_map") or more:
        checks.refuse(
            "the tokenizer of this model is of a kind that is not known",
            got=f"{settings.get('tokenizer_class') or kind}" + (f", with {len(more)} more tokens" if more else ""),
            expected=f"tokenizer.json, or the vocabulary of {' or '.join(filter(None, families)) or 'GPT2 or Roberta'}",
            remedy="add tokenizer.json (a fast tokenizer saves it), or give model.record(ids=[...])",
        )
    return settings


def _from_words(library: Any, path: Path, settings: dict[str, Any]) -> Any:
    """A vocabulary with one word on each line."""
    with path.open(encoding="utf-8") as file:  # lines end with line feeds alone: words may be other breaks
        vocabulary = {line.rstrip("\n"): number for number, line in enumerate(file)}
    check_growth({"model": {"vocab": vocabulary}})
    if any(word.startswith("##") for word in vocabulary):
        inner = _pieces(library, vocabulary, settings)
    else:
        inner = _symbols(library, vocabulary, settings)
    return _with_ends(library, inner, vocabulary)


def _pieces(library: Any, vocabulary: dict[str, int], settings: dict[str, Any]) -> Any:
    """The tokenizer of BERT, from its vocabulary of word pieces."""
    inner = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = library.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    inner.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    return inner


def _symbols(library: Any, vocabulary: dict[str, int], settings: dict[str, Any]) -> Any:
    """A vocabulary without pieces, such as the symbols of chemistry: the longest that fits comes first.

    What chemistry writes in brackets, and rings such as %10, are one symbol also if it is not known.
    """
    words = sorted(filter(None, vocabulary), key=len, reverse=True)
    whole = [pattern for sign, pattern in (("[", r"\[[^\]]+\]"), ("%", r"%\d\d")) if sign not in vocabulary]
    pattern = "|".join([*whole, *map(re.escape, words), "."])
    unknown = next((word for word in ("[UNK]", "<unk>") if word in vocabulary), None)
    inner = library.Tokenizer(library.models.WordLevel(vocabulary, **({"unk_token": unknown} if unknown else {})))
    if settings.get("do_lower_case"):
        inner.normalizer = library.normalizers.Lowercase()
    split = library.pre_tokenizers.Split(library.Regex(pattern), behavior="isolated")
    inner.pre_tokenizer = library.pre_tokenizers.Sequence([library.pre_tokenizers.WhitespaceSplit(), split])
    return inner


def _from_merges(library: Any, folder: Path, settings: dict[str, Any], kind: str) -> Any:
    """The byte-level tokenizer of GPT-2, and of RoBERTa, which puts a token before and after the text."""
    vocabulary = read_table(folder, "vocab.json")
    check_growth({"model": {"vocab": vocabulary, "merges": []}})
    inner = library.Tokenizer(library.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    byte_level = library.pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
    inner.pre_tokenizer, inner.decoder = byte_level, library.decoders.ByteLevel()
    return _with_ends(library, inner, vocabulary, () if kind == "gpt2" else ENDS)


def _with_ends(library: Any, inner: Any, vocabulary: dict[str, int], known: Any = ENDS) -> Any:
    """The tokens that a model puts around a text, if its vocabulary has them; and those that are no text."""
    inner.add_special_tokens([library.AddedToken(w, lstrip=w == "<mask>") for w in SPECIAL if w in vocabulary])
    for ends in known:
        if set(ends) <= vocabulary.keys():
            numbers = [(word, vocabulary[word]) for word in ends]
            template = f"{ends[0]} $A {ends[1]}"
            inner.post_processor = library.processors.TemplateProcessing(template, special_tokens=numbers)
            break
    return inner

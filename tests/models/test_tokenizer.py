"""Text to tokens and labels."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from tiny_bert import PLACES
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

import meanformer as mf
from meanformer.models.tokenizer import LETTERS, Tokenizer

ENDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def vocabulary(tmp_path):
    """A tokenizer from files."""

    def make(kind="bert", **files):
        for name, content in files.items():
            name = re.sub("_(json|txt)$", r".\1", name)
            (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return Tokenizer(tmp_path, kind)

    return make


def lines(*words):
    return "".join(f"{word}\n" for word in words)


# tokenizer.json ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_json(tiny):
    """A tiny model with a tokenizer.json of five words, that cuts and pads."""
    words = [*ENDS, "the", "tokens", "move", "##s"]
    inner = Library(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    inner.enable_truncation(4)
    inner.enable_padding(length=9)
    return mf.models.load(tiny(files={"tokenizer.json": inner.to_str()}))


def test_neither_cut_nor_padded(with_json):
    assert with_json.tokenizer("the tokens move") == ([2, 5, 6, 7, 3], ("[CLS]", "the", "tokens", "move", "[SEP]"))
    assert len(with_json.tokenizer("move " * 20)[0]) == 22


def test_a_text_that_is_too_long(with_json, refused):
    text = "the tokens move the tokens"
    refused(lambda: with_json.record(text), "longer than the model takes", "7 tokens", f"at most {PLACES}", "cut=True")
    # What stands after the text stays: the model never saw a text without it.
    assert with_json.record(text, cut=True).labels == ("[CLS]", "the", "tokens", "move", "the", "[SEP]")
    assert len(with_json.tokenizer(text)[0]) == 7
    refused(lambda: with_json.record(ids=[5] * 7), "7 tokens")
    assert with_json.record(ids=[2, 5, 6, 7, 6, 5, 3], cut=True).labels[-1] == "the"


def test_labels_of_numbers(with_json, tiny):
    assert with_json.record(ids=[2, 8, 13]).labels == ("[CLS]", "##s", "13")
    assert mf.models.load(tiny(name="bare")).record(ids=[2, 8]).labels == ("2", "8")
    assert with_json.record(ids=[2, 8], labels=["a", "b"]).labels == ("a", "b")


@pytest.mark.parametrize("text", ["", " ", "\n\t ", None, 3, ["a"]])
def test_no_text(with_json, refused, text):
    words = "a model takes one input" if text is None else "the text is empty" if isinstance(text, str) else "a string"
    refused(lambda: with_json.record(text), words)


@pytest.mark.parametrize(("text", "labels"), [("😀", ["[UNK]"]), ("the\0 move", ["the", "move"]), ("\0", [])])
def test_strange_texts(with_json, text, labels):
    assert list(with_json.record(text).labels) == ["[CLS]", *labels, "[SEP]"]


def test_half_a_character(with_json, refused):
    refused(lambda: with_json.record("a\ud800b"), "cannot read this text", r"'a\ud800b'", "surrogates")


def test_nothing_is_left_of_a_text(tiny, refused):
    inner = Library(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    model = mf.models.load(tiny(files={"tokenizer.json": inner.to_str()}))
    refused(lambda: model.record("\0"), "nothing of this text is left", "control characters")


def test_a_long_text_is_no_problem(with_json):
    start = time.process_time()
    assert with_json.record("the tokens " * 10_000, cut=True).n == PLACES
    assert time.process_time() - start < 5


def test_a_broken_file(vocabulary, refused):
    for content in ("", "{", "{}", "version https://git-lfs.github.com/spec/v1\n"):
        refused(lambda text=content: vocabulary(tokenizer_json=text)("a"), "tokenizer.json cannot be read")


def test_models_without_a_tokenizer(tiny, refused):
    model = mf.models.load(tiny())
    refused(lambda: model.record("a text"), "without a tokenizer that can be read", "no vocabulary", "ids=[...]")
    Path("tiny", "spiece.model").write_bytes(b"\n\x0e")
    refused(lambda: model.record("a text"), "a text, and spiece.model of sentencepiece alone", "add tokenizer.json")
    assert model.record(ids=[1, 2]).n == 2


def test_the_library_is_not_installed(vocabulary, refused, monkeypatch):
    tokenizer = vocabulary(vocab_txt=lines(*ENDS, "##s"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    refused(lambda: tokenizer("a"), "a text needs the package tokenizers", 'pip install -e ".[models]"')
    assert tokenizer.labels([4]) == ("4",)


# vocab.txt -----------------------------------------------------------------------------------------------------------


def test_word_pieces(vocabulary):
    words = [*ENDS, "token", "##s", "clich", "##e", "##é", "é", "好", "Token", "\u2028", "!"]
    bert = vocabulary(vocab_txt=lines(*words))
    assert bert("Tokens cliché 好好!")[1] == ("[CLS]", "token", "##s", "clich", "##e", "好", "好", "!", "[SEP]")
    assert bert("token [MASK] dog")[0] == [2, 5, 4, 1, 3]
    # A line ends with a line feed and nothing else: the words after U+2028 keep their numbers.
    assert bert("!")[0] == [2, 14, 3]


def test_settings_of_word_pieces(vocabulary):
    words = [*ENDS, "token", "##s", "clich", "##e", "##é", "Token"]
    settings = {"do_lower_case": False, "strip_accents": False, "tokenizer_class": "BertTokenizerFast"}
    bert = vocabulary(vocab_txt=lines(*words), tokenizer_config_json=settings)
    assert bert("Tokens token cliché")[1] == ("[CLS]", "Token", "##s", "token", "clich", "##é", "[SEP]")


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, {}, "BertJapaneseTokenizer"),
        ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, {}, "of a kind that is not known"),
        ({}, {"<new>": 9}, "with 1 more tokens"),
    ],
)
def test_vocabularies_that_need_more(vocabulary, refused, settings, more, words):
    """Another way to cut words, or words that are added: tokens would be wrong without a word."""
    files = {"vocab_txt": lines(*ENDS, "a", "##s"), "tokenizer_config_json": settings, "added_tokens_json": more}
    tokenizer = vocabulary(**files)
    refused(lambda: tokenizer("a"), "of a kind that is not known", words)
    assert tokenizer.labels([5]) == ("5",)


# Symbols of chemistry; the pattern is that of Schwaller et al. 2018, as rxnmapper has it -----------------------------

PATTERN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)
SYMBOLS = "c C ( ) O 1 2 = N . n 3 F Cl >> ~ - 4 [C@H] S [C@@H] [O-] Br # / [nH] [N+] s o P [Na+] [NaH] I B \\ %10 %11"
REACTIONS = [
    "CCO",
    "ClC(Cl)Cl",
    "CCl.BrC",
    "c1cc[nH]c1",
    "C[C@H](N)C(=O)O.[Na+]>>C[C@@H](N)C(=O)[O-]",
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "C/C=C\\C~[NaH]",
    "C%10CC%11CC%10C%11",
    "C%25CC%25",
    "[Xe]C[13CH3]",
    "N#CC(Br)I>>B",
    "C:C+C@?*$>C",
    "SiCOs1nnpF",
]


@pytest.fixture
def chemistry(vocabulary):
    return vocabulary("albert", vocab_txt=lines(*ENDS, *SYMBOLS.split()), tokenizer_config_json={})


@pytest.mark.parametrize("reaction", REACTIONS)
def test_symbols_of_chemistry(chemistry, reaction):
    """The same symbols; those that the vocabulary lacks are one [UNK] each. Letters of no symbol are no part of it."""
    ids, labels = chemistry(reaction)
    words = [*ENDS, *SYMBOLS.split()]
    wanted = PATTERN.findall(reaction) if reaction != REACTIONS[-1] else list("S?COs1nnpF")
    assert labels == ("[CLS]", *(w if w in words else "[UNK]" for w in wanted), "[SEP]")
    assert ids == [words.index(label) for label in labels]


def test_the_longest_symbol_comes_first(vocabulary):
    tokenizer = vocabulary(vocab_txt=lines(*ENDS, "C", "l", "Cl", "CC", "lC", "", "C C"))
    assert tokenizer("CClCC")[1][1:-1] == ("CC", "lC", "C")
    assert tokenizer("Cl l\tC\n")[1][1:-1] == ("Cl", "l", "C")  # spaces only separate


def test_brackets_as_words(vocabulary):
    """Where a vocabulary knows a bracket itself, it is no part of a symbol."""
    tokenizer = vocabulary(vocab_txt=lines(*ENDS, "a", "[", "]", "%", "1"))
    assert tokenizer("[a]%11")[1][1:-1] == ("[", "a", "]", "%", "1", "1")


def test_symbols_that_cannot_be_said(vocabulary, refused):
    tokenizer = vocabulary(vocab_txt=lines("a", "b"))
    assert tokenizer("abba") == ([0, 1, 1, 0], ("a", "b", "b", "a"))
    refused(lambda: tokenizer("abc"), "the tokenizer cannot read this text", "symbols that the vocabulary lacks")


def test_many_symbols(chemistry):
    start = time.process_time()
    assert len(chemistry("CCl%10[nH]" * 10_000)[0]) == 40_002
    assert time.process_time() - start < 5


# vocab.json and merges.txt -------------------------------------------------------------------------------------------


def byte_level(*special):
    """A vocabulary of all bytes, and two merges."""
    words = [*special, *LETTERS, "Ġt", "Ġth"]
    return {"vocab_json": {word: i for i, word in enumerate(words)}, "merges_txt": "#version: 0.2\nĠ t\nĠt h\n"}


def test_gpt2_has_no_ends(vocabulary):
    tokenizer = vocabulary("gpt2", **byte_level("<|endoftext|>"))
    ids, labels = tokenizer("a that<|endoftext|>")
    assert labels == ("a", "th", "a", "t", "<|endoftext|>")
    assert ids[-1] == 0
    # Also where the vocabulary has the words of another family.
    both = vocabulary("gpt2", **byte_level("<s>", "</s>"))
    assert both("a that")[1] == ("a", "th", "a", "t")


def test_roberta_has_ends(vocabulary):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = vocabulary("roberta", **byte_level(*special))
    ids, labels = tokenizer("a <mask>t")
    assert labels == ("<s>", "a", "<mask>", "t", "</s>")
    assert (ids[0], ids[2], ids[-1]) == (0, 4, 2)
    spaced = vocabulary("roberta", **byte_level(*special), tokenizer_config_json={"add_prefix_space": True})
    assert spaced("t")[0] == [0, len(special) + 256, 2]


def test_other_families_need_tokenizer_json(vocabulary, refused):
    """They cut words in other places."""
    refused(lambda: vocabulary("qwen2", **byte_level())("a"), "of a kind that is not known", "qwen2", "GPT2 or Roberta")


def test_merges_are_missing(vocabulary, refused):
    files = byte_level()
    refused(
        lambda: vocabulary("gpt2", vocab_json=files["vocab_json"])("a"), "vocab.json with merges.txt cannot be read"
    )


# Labels --------------------------------------------------------------------------------------------------------------


def test_labels_of_bytes(vocabulary):
    """Spaces, new lines, letters of several bytes, and bytes that are no letter."""
    tokenizer = vocabulary("gpt2", **byte_level())
    assert tokenizer("é\0 \n")[1] == (r"\xc3", r"\xa9", r"\x00", "␣", r"\n")
    assert tokenizer("😀")[1] == (r"\xf0", r"\x9f", r"\x98", r"\x80")
    words = {"é": 0, "Ã©": 1, "ĠcafÃ©": 2, "Ċ": 3, "âĢ": 4}
    inner = Library(models.BPE(words, []))
    inner.decoder = decoders.ByteLevel()
    tokenizer = vocabulary(tokenizer_json=inner.to_str())
    assert tokenizer.labels(range(1, 6)) == ("é", "café", r"\n", r"\xe2\x80", "5")


def test_labels_of_sentencepiece(vocabulary):
    inner = Library(models.BPE({"▁the": 0, "▁": 1, "<0x0A>": 2, "Ġ": 3}, []))
    inner.decoder = decoders.Metaspace()
    tokenizer = vocabulary(tokenizer_json=inner.to_str())
    assert tokenizer.labels(range(4)) == ("the", "␣", "<0x0A>", "Ġ")


def test_letters_for_bytes():
    """Those of the library."""
    assert set(LETTERS) == set(pre_tokenizers.ByteLevel.alphabet())
    for byte in (0, 10, 32, 65, 127, 160, 173, 255):
        letter = next(letter for letter, b in LETTERS.items() if b == byte)
        assert decoders.ByteLevel().decode([letter]) == bytes([byte]).decode("utf-8", "replace")

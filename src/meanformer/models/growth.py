"""How much a tokenizer may make of a text before it cuts it: a file of some letters could ask for terabytes.

Each part of tokenizer.json is known by its kind, with the most bytes that it makes of one; parts follow each other, so
that these numbers multiply. A kind that is not in these tables could do anything, and is refused.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import _checks as checks

# Known tokenizers write at most some hundreds of bytes for one: compositions of Unicode, letters for bytes, "[UNK]".
MOST = 1000
# The longest words of known vocabularies are runs of some hundred spaces. Some readers take a step down for each letter
# of a word, and a hundred thousand of them end the process.
LONGEST_WORD = 4096
# Known tokenizers put two or three tokens around a text, and do so again for each part of it that is cut off.
MOST_ENDS = 64
LARGEST_MAP = 2**22
REMEDY = "take the tokenizer.json that came with the weights"

Table = dict[str, Any]


def check_growth(settings: Table) -> None:
    """Refuse the content of a tokenizer.json that could make a text enormous, or that has words which are."""
    model = settings.get("model")
    model = model if isinstance(model, dict) else {}
    _check_words(model, settings.get("added_tokens"))
    factors = [*_factors(settings.get("normalizer"), "normalizer", NORMALIZERS)]
    factors += [*_factors(settings.get("pre_tokenizer"), "pre_tokenizer", PRE_TOKENIZERS), _of_model(model)]
    factor = 1.0
    for one in factors:
        factor *= one
        if factor > MOST:
            checks.refuse(
                "tokenizer.json makes texts far longer than they are",
                got=f"parts that multiply their length by {factor:,.0f} or more",
                expected=f"at most {MOST:,} bytes for each of the text",
                remedy=REMEDY,
            )
    _check_ends(settings.get("post_processor"))


def _check_words(model: Table, added: Any) -> None:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):  # pairs of a word and a number
        vocabulary = [pair[0] for pair in vocabulary if isinstance(pair, list) and pair]
    more = [one.get("content") for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    words = [*vocabulary, *more] if isinstance(vocabulary, (dict, list)) else more
    longest = max((word for word in words if isinstance(word, str)), key=_size, default="")
    if _size(longest) > LONGEST_WORD:
        checks.refuse(
            "a word of the vocabulary is too long",
            got=f"{longest[:20]!r}, ..., of {_size(longest):,} bytes",
            expected=f"at most {LONGEST_WORD:,} bytes",
            remedy="take the tokenizer that came with the weights",
        )


def _factors(value: Any, where: str, kinds: dict[str, Callable[[Table], float]]) -> Iterator[float]:
    """What each part of a normalizer or a pre_tokenizer multiplies the length of a text by."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "Sequence":
            inner = part.get("normalizers" if where == "normalizer" else "pretokenizers")
            waiting += inner if isinstance(inner, list) else []
        elif isinstance(kind, str) and kind in kinds:
            yield kinds[kind](part)
        else:
            checks.refuse(
                f"a {where} in tokenizer.json is of a kind that is not known",
                got=f"type = {kind!r:.80}",
                expected=", ".join(sorted(kinds)),
                remedy="give model.record(ids=[...]), with numbers that you have made otherwise",
            )


def _replaced(part: Table) -> float:
    written, pattern = part.get("content"), part.get("pattern")
    if not isinstance(written, str) or not isinstance(pattern, dict):
        return 1.0  # the library refuses it
    found = pattern.get("String")
    if pattern.get("Regex") == " {2,}":  # in many tokenizers of sentencepiece
        found = "  "
    if isinstance(found, str) and found:
        return max(1.0, _size(written) / _size(found))
    return _size(written) + 1  # a pattern may be found between all letters


def _written(key: str, default: str = "") -> Callable[[Table], float]:
    """The factor of what is written before each piece, or for each space."""
    return lambda part: 1 + _size(part.get(key) or default)


def _same(part: Table) -> float:
    return 1.0


def _times(factor: float) -> Callable[[Table], float]:
    return lambda part: factor


# The most that Unicode knows: 18 Arabic letters for one of 3 bytes, three letters for one, lower case of 3 bytes for 2.
COMPATIBLE, CANONICAL, LOWER = 11.0, 3.0, 1.5
NORMALIZERS = {
    "BertNormalizer": _times(5 / 3 * CANONICAL * LOWER),  # spaces around each Chinese character
    "ByteLevel": _times(2.0),
    "Lowercase": _times(LOWER),
    "NFC": _times(CANONICAL),
    "NFD": _times(CANONICAL),
    "NFKC": _times(COMPATIBLE),
    "NFKD": _times(COMPATIBLE),
    "Nmt": _same,
    "Precompiled": lambda part: _of_map(part.get("precompiled_charsmap")),
    "Prepend": _written("prepend"),
    "Replace": _replaced,
    "Strip": _same,
    "StripAccents": _same,
}
PRE_TOKENIZERS = {
    "BertPreTokenizer": _same,
    "ByteLevel": lambda part: 2 if part.get("add_prefix_space") is False else 4,
    "CharDelimiterSplit": _same,
    "Digits": _same,
    "FixedLength": _same,
    "Metaspace": _written("replacement", "▁"),
    "Punctuation": _same,
    "Split": _same,
    "UnicodeScripts": _same,
    "Whitespace": _same,
    "WhitespaceSplit": _same,
}


def _of_model(model: Table) -> float:
    """The longest token for one byte: that for the unknown, a letter with its marks, <0x0A>, or another's label."""
    marks = sum(_size(model.get(key)) for key in ("continuing_subword_prefix", "end_of_word_suffix"))
    shared = _longest_shared(model["vocab"]) if "merges" in model and isinstance(model.get("vocab"), dict) else 1
    return float(max(_size(model.get("unk_token")), 1 + marks, 6 if model.get("byte_fallback") else 1, shared))


def _longest_shared(vocabulary: Table) -> int:
    """The longest of the words that have a number in common: merges give any of them for another."""
    first: dict[Any, str] = {}
    longest = 1
    for word, number in vocabulary.items():
        if isinstance(number, int) and first.setdefault(number, word) != word:
            longest = max(longest, _size(word), _size(first[number]))
    return longest


def _check_ends(post_processor: Any) -> None:
    """Refuse what repeats a text, or puts much around it; without `single` a part is one of two tokens."""
    count = size = 0
    for part in _tables(post_processor):
        pieces = part.get("single")
        pieces = [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
        texts = sum("Sequence" in piece for piece in pieces)
        if texts > 1:
            checks.refuse(
                "tokenizer.json repeats the text",
                got=f"a template that has it {texts:,} times",
                expected="the text once, with tokens before and after",
                remedy=REMEDY,
            )
        known = part.get("special_tokens")
        known = known if isinstance(known, dict) else {}
        for piece in pieces:
            named = piece.get("SpecialToken")
            found = known.get(str(named.get("id"))) if isinstance(named, dict) else None
            if isinstance(found, dict):
                ids, words = found.get("ids"), found.get("tokens")
                count += len(ids) if isinstance(ids, list) else 0
                size += sum(map(_size, words)) if isinstance(words, list) else 0
        for pair in (part.get("sep"), part.get("cls")):
            if isinstance(pair, list):
                count, size = count + 1, size + sum(map(_size, pair))
    if count > MOST_ENDS or size > LONGEST_WORD:
        checks.refuse(
            "tokenizer.json puts too much around a text",
            got=f"{count:,} tokens of {size:,} bytes",
            expected=f"at most {MOST_ENDS} tokens of {LONGEST_WORD:,} bytes",
            remedy=REMEDY,
        )


def _tables(value: Any) -> Iterator[Table]:
    """All tables inside a value, itself included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
        inner: Iterable[Any] = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting.extend(inner)


def _size(text: Any) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def _of_map(charsmap: Any) -> float:
    """The most bytes for one that a map of characters writes: a trie, after its size, then words that end with 0.

    The trie is a double array (Yata et al. 2007) in 32 bits: the place of a child is that of its parent, changed by an
    offset and by the letter, which it repeats; a child that ends a key has, at its own offset, the place of the word.
    """
    try:
        data = base64.b64decode(charsmap)
    except (ValueError, TypeError):
        return 1.0  # the library refuses it
    end = 4 + int.from_bytes(data[:4], "little")
    if min(end, len(data)) > LARGEST_MAP:
        return float("inf")
    units = np.frombuffer(data[4:end][: (len(data[4:end]) // 4) * 4], "<u4").astype(np.int64)
    words, factor = data[end:], 1.0
    seen = np.zeros(len(units), bool)
    nodes = _offsets(units[:1])
    depth = 0
    while nodes.size:
        depth += 1
        found = [_children(units, some) for some in np.array_split(nodes, 1 + len(nodes) // 1000)]
        children = np.unique(np.concatenate(found))
        children = children[~seen[children]]
        seen[children] = True
        nodes = children ^ _offsets(units[children])
        ends = nodes[(units[children] >> 8 & 1).astype(bool) & (nodes < len(units))]
        longest = max((_word(words, int(place)) for place in np.unique(units[ends] & 0x7FFFFFFF)), default=0)
        factor = max(factor, longest / depth)
    return factor


def _offsets(units: np.ndarray) -> np.ndarray:
    return (units >> 10) << ((units & 512) >> 6)


def _children(units: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    letters = np.arange(1, 256)
    places = nodes[:, None] ^ letters
    inside = places < len(units)
    repeated = units[np.where(inside, places, 0)] & 0x800000FF
    return places[inside & (repeated == letters)]


def _word(words: bytes, place: int) -> int:
    end = words.find(b"\0", place)
    return (len(words) if end < 0 else end) - min(place, len(words))

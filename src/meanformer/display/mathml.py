r"""The formulas of docstrings as MathML, which browsers set themselves: no fonts, no scripts, no network.

This is the part of TeX that our docstrings use: letters, Greek, fractions, powers, indices, sums and integrals.
"""

import functools
import html
import inspect
import re
import unicodedata

from .card import Html

_TOKENS = re.compile(r"\\[a-zA-Z]+|\\.|[a-zA-Z]|\d+|\S")
_DISPLAYED, _INLINE = re.compile(r"\$\$(.+?)\$\$", re.DOTALL), re.compile(r"\$([^$]+)\$")
_SIGNS = {
    r"\cdot": "·",
    r"\le": "≤",
    r"\ge": "≥",
    r"\in": "∈",
    r"\int": "∫",
    r"\sum": "∑",
    r"\mapsto": "↦",
    r"\odot": "⊙",
    r"\to": "→",
    r"\top": "⊤",
    r"\times": "×",
    r"\#": "#",
    "-": "−",
}
_SPACES = {r"\,": 0.17, r"\;": 0.28, r"\quad": 1, r"\qquad": 2, r"\ ": 0.25}
# Brackets after these grow with what is inside.
_LARGE = {r"\big", r"\Big", r"\left", r"\right"}
_UPRIGHT = {r"\mathrm", r"\operatorname", r"\text"}
_WORDS = {r"\arg": "arg", r"\max": "max", r"\min": "min", r"\log": "log", r"\exp": "exp"}


def formula_of(kind: type) -> Html | None:
    """The formula of a class: the displayed one of its docstring, or its first equation; None if it has none."""
    text = inspect.getdoc(kind) or ""
    inline = [tex for tex in _INLINE.findall(text) if "=" in tex or r"\mapsto" in tex]
    found = [*_DISPLAYED.findall(text), *inline]
    return mathml(" ".join(found[0].split()).rstrip(" .,")) if found else None


@functools.lru_cache(maxsize=256)
def mathml(tex: str) -> Html | None:
    """A formula as `<math>`; None if there is more in it than we know."""
    tokens = _TOKENS.findall(tex)
    try:
        inside = _row(tokens)
    except (KeyError, IndexError):
        return None
    if tokens:  # a brace that closes nothing
        return None
    return Html(f'<math style="font-size:1.1em" displaystyle="true">{inside}</math>')


def _row(tokens: list[str]) -> str:
    """Elements up to a closing brace, or to the end; they are taken from `tokens`."""
    parts = []
    while tokens and tokens[0] != "}":
        parts.append(_scripted(tokens))
    return "".join(parts)


def _scripted(tokens: list[str]) -> str:
    """One element with its index and its power."""
    around = tokens[0] in {r"\sum", r"\max", r"\min"}
    base, scripts = _element(tokens), {}
    while tokens and tokens[0] in "_^":
        place = tokens.pop(0)
        scripts[place] = _element(tokens)
    names = {"_": "munder" if around else "msub", "^": "mover" if around else "msup"}
    if len(scripts) == 2:
        name = "munderover" if around else "msubsup"
        return f"<{name}>{base}{scripts['_']}{scripts['^']}</{name}>"
    for place, script in scripts.items():
        return f"<{names[place]}>{base}{script}</{names[place]}>"
    return base


def _element(tokens: list[str]) -> str:
    token = tokens.pop(0)
    if token == "{":
        inside = _row(tokens)
        tokens.pop(0)  # the brace, or an error if it is missing
        return f"<mrow>{inside}</mrow>"
    if token == r"\frac":
        above = _element(tokens)
        return f"<mfrac>{above}{_element(tokens)}</mfrac>"
    if token in _UPRIGHT:
        words = re.sub("<[^>]*>", "", _element(tokens))
        return f"<mtext>{words}</mtext>"
    if token in _SPACES:
        return f'<mspace width="{_SPACES[token]}em"/>'
    if token in _LARGE:
        return f"<mo>{html.escape(tokens.pop(0))}</mo>"
    if token in _WORDS:
        return f"<mi>{_WORDS[token]}</mi>"
    if token.isdigit():
        return f"<mn>{token}</mn>"
    if len(token) == 1 and token.isalpha():
        return f"<mi>{token}</mi>"
    if token in _SIGNS:
        return f"<mo>{_SIGNS[token]}</mo>"
    if len(token) == 1:
        return f'<mo stretchy="false">{html.escape(token)}</mo>'
    return f"<mi>{_greek(token[1:])}</mi>"


def _greek(name: str) -> str:
    """The letter of this name; a KeyError if there is none."""
    letter = name.removeprefix("var").upper().replace("LAMBDA", "LAMDA")  # as Unicode spells it
    return unicodedata.lookup(f"GREEK {'SMALL' if name.islower() else 'CAPITAL'} LETTER {letter}")

r"""Formulas as SVG paths: no LaTeX, no fonts, no network. Matplotlib's mathtext sets them.

A formula has the colour of the text around it and stands on its baseline. `inline` sets the `$...$` of a sentence and
escapes all the rest.
"""

import functools
import html
import re
import unicodedata
from typing import Any

from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath, text_to_path

# Letters of Computer Modern are smaller than those of screens: so many em of the text are one em of a formula.
SCALE = 1.12
# Outlines are in units of 1/1000 em.
UNITS = 1000
# Longer ones are shown as they are written: setting them takes seconds, or minutes.
LONGEST = 500
# Characters (not escaped) between two dollars; a dollar after a backslash is a dollar.
_PARTS = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)+?)(?<!\\)\$")
# Signs that turn the direction of writing, so that what is read is not what is there, are written out.
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}


@functools.lru_cache(maxsize=4096)
def formula(tex: str) -> str | None:
    """The `<svg>` of a formula, without dollars; None if mathtext does not know how to set it, or if it is too long."""
    if len(tex) > LONGEST:
        return None
    words = escape(plain(tex))
    tex = _for_mathtext(tex)
    settings: dict[Any, Any] = {"mathtext.fontset": "cm", "text.usetex": False, "font.family": "DejaVu Sans"}
    with rc_context(settings):
        font = FontProperties(size=UNITS, family="DejaVu Sans")
        try:
            width, height, depth = text_to_path.get_text_width_height_descent(f"${tex}$", font, ismath=True)
            outline = TextPath((0, 0), f"${tex}$", size=UNITS, prop=font, usetex=False)
        except (ValueError, RuntimeError):
            return None
    # A little air, so that no outline is cut by rounding.
    air = 0.03 * UNITS
    box = (-air, depth - height - air, width + 2 * air, height + 2 * air)
    em = SCALE / UNITS
    place = f"width:{box[2] * em:.3f}em;height:{box[3] * em:.3f}em;vertical-align:{-(depth + air) * em:.3f}em"
    return (
        f'<svg class="formula" role="img" aria-label="{words}" viewBox="{" ".join(f"{b:.0f}" for b in box)}" '
        f'style="{place}"><title>{words}</title><path fill="currentColor" d="{_path_data(outline)}"/></svg>'
    )


def _for_mathtext(tex: str) -> str:
    """Common TeX that mathtext does not know, in words that it does."""
    tex = tex.replace("^*", "^{*}")  # a star alone is set as a product, with space around it
    tex = re.sub(r"\\(le|ge)(?![a-zA-Z])", r"\\\1q", tex)
    tex = re.sub(r"\\(mathbb|mathcal|mathrm|mathbf) ?([a-zA-Z])(?![a-zA-Z])", r"\\\1{\2}", tex)
    tex = re.sub(r"(\\frac\{[^{}]*\})([a-zA-Z0-9])", r"\1{\2}", tex)
    return re.sub(r"\\[bB]igg?[lr]?(?![a-zA-Z])", "", tex)


def _path_data(outline: Outline) -> str:
    """The commands of an SVG path, the vertical axis pointing down."""
    parts = []
    for points, code in outline.iter_segments(curves=True, simplify=False):
        numbers = [] if code == Outline.CLOSEPOLY else points * ([1, -1] * (len(points) // 2))
        parts.append(_COMMANDS[code] + " ".join(f"{number:.0f}" for number in numbers))
    return "".join(parts)


def escape(text: str) -> str:
    """Text as HTML that shows it as it is: marks are no markup, and no sign turns the direction of writing."""
    return html.escape(text).translate(_TURNS)


def inline(text: str) -> str:
    r"""HTML of a sentence: `$...$` set as formulas, `` `...` `` as code, everything else escaped; `\$` is a dollar.

    Addresses at arXiv become links; nothing else does.
    """
    parts = _PARTS.split(text)
    return "".join(_formula_or_code(part) if k % 2 else _words(part) for k, part in enumerate(parts))


def _formula_or_code(tex: str) -> str:
    return formula(tex) or f'<code class="tex">{escape(tex)}</code>'


def _words(text: str) -> str:
    escaped = escape(text.replace(r"\$", "$"))
    link = r'<a href="\g<0>" rel="noopener">\g<0></a>'
    linked = re.sub(r"https://arxiv\.org/[\w./-]*\w", link, escaped, flags=re.ASCII)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", linked)


_SIGNS = {
    r"\top": "ᵀ",
    r"\cdot": "·",
    r"\int": "∫",
    r"\sum": "∑",
    r"\infty": "∞",
    r"\leq": "≤",
    r"\le": "≤",
    r"\geq": "≥",
    r"\ge": "≥",
    r"\to": "→",
    r"\in": "∈",
    r"\times": "×",
    r"\propto": "∝",
    r"\pm": "±",
    r"\mapsto": "↦",
    r"\dot": "d/dt ",
    r"\frac": "",
}


def plain(tex: str) -> str:
    """A formula as words for those who cannot see it: Greek letters and signs as such, braces left out."""
    tex = re.sub(r"\\(mathrm|mathbb|mathcal|operatorname|text|mathbf|left|right|big|Big|limits)\b", "", tex)
    tex = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", tex)
    tex = re.sub(r"\\[a-zA-Z]+", _sign, tex)
    return " ".join(re.sub(r"\\[,;!:\s]|[{}]", " ", tex).split())


def _sign(found: re.Match[str]) -> str:
    """The sign of a command: a Greek letter, one of `_SIGNS`, or its name."""
    if found[0] in _SIGNS:
        return _SIGNS[found[0]]
    name = found[0][1:]
    letter = name.removeprefix("var").upper().replace("LAMBDA", "LAMDA")  # as Unicode spells it
    try:
        return unicodedata.lookup(f"GREEK {'SMALL' if name.islower() else 'CAPITAL'} LETTER {letter}")
    except KeyError:
        return name

"""Words of others, as a terminal, a log or a traceback may show them. Nothing here imports JAX."""

import contextlib
import inspect
import re

# What a terminal obeys in place of showing it: control characters but tab and line feed, and those that turn the
# direction of writing round, so that what is read is not what is there; halves of characters cannot be written at all.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(words: object) -> str:
    r"""Text as a terminal may show it: what it would obey is written out, as \x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), str(words))


def one_line(words: object) -> str:
    r"""The same for words that make a part of a line, such as names: a line feed is written out too, as \n."""
    return printable(words).replace("\n", "\\n")


def spell_out(error: BaseException | None) -> None:
    """Make the words of an error, and of those before it, printable: a traceback prints them all. One that a caller of
    ours is handling meanwhile is his, and stays as it is.
    """
    callers, seen = _frames_of_others(), set[int]()  # who raises errors may have made a circle of them
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if error.__traceback__ is not None and id(error.__traceback__.tb_frame) in callers:
            return
        words = tuple(printable(part) if isinstance(part, str) else part for part in error.args)
        if words != error.args:
            with contextlib.suppress(AttributeError, TypeError):  # a class may say what its errors are made of
                error.args = words
        error = error.__cause__ or error.__context__


def _frames_of_others() -> set[int]:
    """Those that are being executed, by their `id`: who keeps frames keeps all in them, such as open journals."""
    found, frame = set[int](), inspect.currentframe()
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("meanformer"):
            found.add(id(frame))
        frame = frame.f_back
    return found

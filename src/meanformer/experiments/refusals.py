"""What pydantic finds, as one refusal: the line, the key, what came, what is expected, and the nearest right word."""

import re
from typing import Any, NamedTuple, NoReturn

from pydantic import ValidationError

from .schema.base import MARK, Located, near
from .toml import Path, Source, dotted

SHOWN = 3
"""So many further mistakes are named."""


class Mistake(NamedTuple):
    """One of them."""

    path: Path
    what: str
    got: str
    expected: str
    remedy: str


def refuse_invalid(error: ValidationError, source: Source) -> NoReturn:
    """Raise the first mistake in full, with the next ones in a line each."""
    first, *others = [_mistake(found) for found in error.errors(include_url=False)]
    remedy = first.remedy
    for other in others[:SHOWN]:
        remedy += f"\n  also:     {source.where(other.path)}: {other.what}"
    if len(others) > SHOWN:
        remedy += f"\n  and {len(others) - SHOWN} more"
    what = f"{source.where(first.path)}: {first.what}"
    raise Located(what, first.got, first.expected, remedy, first.path) from None


def table_name(path: Path) -> str:
    """The table of a path, in words."""
    return f"[{dotted(path)}]" if path else "the file"


def _mistake(error: Any) -> Mistake:
    path = tuple(key for key in error["loc"] if not (isinstance(key, str) and key.startswith(MARK)))
    context, got = error.get("ctx", {}), error["input"]
    kind = error["type"]
    if kind in _SPECIAL:
        return _SPECIAL[kind](path, got, context)
    expected = re.sub(r"^(Input|String|List) should (be|have) |, not \d+$| after validation", "", error["msg"])
    remedy = f"give {dotted(path) or 'the file'} such a value"
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", context["expected"])
        expected, remedy = context["expected"], _did_you_mean(got, options, remedy)
    elif kind == "finite_number":
        expected = "a finite number"
    elif kind == "string_pattern_mismatch":
        expected = "a short name of letters, digits and dashes: it becomes a folder"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        expected = "a table"
    return Mistake(path, f"{_key(path)} has a wrong value", repr(got), expected, remedy)


def _key(path: Path) -> str:
    return f"{dotted(path)}" if path else "the file"


def _did_you_mean(word: Any, options: Any, otherwise: str) -> str:
    found = near(word, options)
    return f'did you mean "{found}"?' if found else otherwise


def _unknown_key(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    from .changes import homes

    key, known = context["key"], context["known"]
    found = near(key, [name for name in known if name not in got]) or near(key, known)
    elsewhere = [name for name in homes().get(key, []) if name != path[:1]]
    if found:
        remedy = f"did you mean `{found}`?"
    elif elsewhere:
        remedy = f"`{key}` belongs in " + " or ".join(f"[{name}]" for name in elsewhere)
    else:
        remedy = "take it out, or choose one of these keys"
    return Mistake(
        (*path, key), f"unknown key {key!r} in {table_name(path)}", f"{key} = {got[key]!r}", ", ".join(known), remedy
    )


def _missing_key(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    key, about = context["key"], context["about"]
    what = f"the key {key!r} is missing in {table_name(path)}"
    expected = f"{key}: {about}" if about else f"a value for {key}"
    return Mistake((*path, key), what, ", ".join(context["given"]) or "an empty table", expected, f"add {key} = ...")


def _no_kind(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    instead, options = context["instead"], context["options"]
    remedy = f"did you mean `kind` where it says `{instead}`?" if instead else f'add kind = "{options[0]}"'
    what = f"the key 'kind' is missing in {table_name(path)}"
    return Mistake(path, what, ", ".join(got) or "an empty table", "kind: " + ", ".join(options), remedy)


def _unknown_kind(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    options = context["options"]
    remedy = _did_you_mean(got["kind"], options, "choose one of these kinds")
    return Mistake((*path, "kind"), f"{_key(path)}.kind is not known", repr(got["kind"]), ", ".join(options), remedy)


def _wrong_form(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    words = list(got) if isinstance(got, dict) else [got]
    found = next((word for word in (near(key, context["options"]) for key in words) if word), None)
    remedy = f"did you mean `{found}`?" if found else f"write {dotted(path[-1:]) or 'it'} in one of these ways"
    return Mistake(path, f"{_key(path)} has a wrong value", repr(got), context["expected"], remedy)


def _unknown_word(path: Path, got: Any, context: dict[str, Any]) -> Mistake:
    options = context["options"]
    remedy = _did_you_mean(got, options, f"choose one of these for {dotted(path[-1:])}")
    return Mistake(path, f"this {context['what']} is not known", repr(got), ", ".join(options), remedy)


_SPECIAL = {
    "unknown_key": _unknown_key,
    "missing_key": _missing_key,
    "no_kind": _no_kind,
    "unknown_kind": _unknown_kind,
    "wrong_form": _wrong_form,
    "unknown_word": _unknown_word,
}

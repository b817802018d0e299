"""Write the text of docs/api: each public name with its arguments and the first sentence of its docstring.

python docs/api_text.py

The pages read well where nobody builds the site. On the site itself `::: meanformer.NAME`, which stands in a comment
before the text, brings the whole docstring, and the text goes: see `hooks.py`.
"""

import enum
import inspect
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import meanformer as mf

API = Path(__file__).parent / "api"
# A comment with the name and the members that are shown, and the text that follows it, up to the next blank line.
ENTRY = re.compile(r"^<!-- (::: meanformer\.([\w.]+)\n(?: .*\n)*)-->\n((?:.+\n)*)", re.MULTILINE)
MEMBERS = re.compile(r"members: \[(.*)\]")


def written(page: str) -> str:
    """A page with the text of each name in it made anew."""
    return ENTRY.sub(lambda found: f"<!-- {found[1]}-->\n{_entry(found[2], found[1])}", page)


def directives(page: str) -> str:
    """A page as the site wants it: the names without their texts."""
    return ENTRY.sub(r"\1", page)


def _entry(name: str, directive: str) -> str:
    thing = attrgetter(name)(mf)
    lines = [f"- `mf.{name}{_arguments(thing)}`: {_words(thing)}"]
    listed = MEMBERS.search(directive)
    for member in listed[1].split(", ") if listed else ():
        lines.append(f"    - `.{member}{_member(thing, member)}")
    return "\n".join(lines) + "\n"


def _member(cls: type, name: str) -> str:
    """The arguments of a method, and the words of a method, a property or a field."""
    part = inspect.getattr_static(cls, name, None)
    if isinstance(part, (classmethod, staticmethod)):
        return f"{_arguments(getattr(cls, name))}`: {_words(part)}"
    part = getattr(part, "__func__", part)
    if inspect.isfunction(part):
        return f"{_arguments(part, bound=True)}`: {_words(part)}"
    if isinstance(part, property):
        return f"`: {_words(part)}"
    source = "\n".join(inspect.getsource(base) for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))
    below = re.search(rf'^    {name}: [^\n]*\n    r?"""(.*?)"""', source, re.MULTILINE | re.DOTALL)
    assert below is not None, f"{cls.__name__}.{name} has no text"
    return f"`: {_first_sentence(below[1])}"


def _arguments(thing: Any, bound: bool = False) -> str:
    """The arguments of a function or a constructor, without types."""
    if isinstance(thing, type) and issubclass(thing, (Exception, enum.Enum)):
        return ""
    parameters = list(inspect.signature(thing).parameters.values())[bound:]
    text = str(inspect.Signature([p.replace(annotation=p.empty) for p in parameters]))
    return re.sub(r"=<[^>]*>", "=...", text)


def _words(thing: Any) -> str:
    """The first sentence of a docstring."""
    return _first_sentence(inspect.getdoc(thing) or "")


def _first_sentence(text: str) -> str:
    """Up to a full stop, a list or a heading; on one line, displayed formulas between single dollars."""
    words = re.split(r"```|\*\*\w+|\n *- ", text)[0]
    line = " ".join(re.sub(r"\$\$(.+?)\$\$", lambda found: f"${found[1].strip()}$", words, flags=re.DOTALL).split())
    return re.split(r"(?:(?<=\.\$)|(?<=\.)(?<!e\.g\.)(?<!i\.e\.)) (?=[A-Z`$])", line)[0]


if __name__ == "__main__":
    for path in sorted(API.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(written(text), encoding="utf-8")

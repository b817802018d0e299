"""Deliberate mistakes, named by the function they are in and by what changes there; formatting does not matter.

    replace("_a <= _b", "_a < _b")              an expression, wherever it stands in the function
    assign("step", "2 * _")                     the value of the statement that assigns to `step`
    returns("0 * _")                            the value of a `return`
    drop("note")                                the statement that assigns to `note`, or calls it

Patterns are told of in `patterns.py`; in the other three `_` is the value that was there. A change must have exactly
one place in its function: `near` asks for places in a statement that mentions these names, `nth` picks one of several.
Anything else is an error, and so is a change that changes nothing.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .patterns import expression, filled, matches

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "meanformer"


class NotApplicable(Exception):
    """A mistake that cannot be made in this source."""


@dataclass(frozen=True)
class Change:
    """What is done to a tree: `rewrite` gives what takes the place of a node, or None for all other nodes."""

    told: str
    rewrite: Callable[[ast.AST], ast.AST | None]
    near: tuple[str, ...]
    nth: int | None


@dataclass(frozen=True)
class Mutant:
    """One mistake: `edits` are (place, change), a place is `reduce/exact.py:fold` or `reduce/exact.py` for a module."""

    name: str
    mistake: str
    edits: tuple[tuple[str, Change], ...]
    tests: tuple[str, ...]

    def sources(self) -> dict[Path, str]:
        """The files with the mistake."""
        trees: dict[Path, ast.Module] = {}
        for place, change in self.edits:
            file, _, function = place.partition(":")
            path = PACKAGE / file
            if path not in trees:
                trees[path] = ast.parse(path.read_text())
            try:
                trees[path] = apply(trees[path], function, change)
            except NotApplicable as error:
                raise NotApplicable(f"mutant {self.name}, {place}: {error}") from None
        return {path: ast.unparse(ast.fix_missing_locations(tree)) for path, tree in trees.items()}


def mutant(name: str, mistake: str, *edits: tuple[str, Change], tests: str | tuple[str, ...]) -> Mutant:
    """A mistake that these tests catch."""
    return Mutant(name, mistake, edits, (tests,) if isinstance(tests, str) else tests)


def replace(old: str, new: str, *, near: str = "", nth: int | None = None) -> Change:
    """Replace an expression that matches a pattern."""
    pattern = expression(old)

    def rewrite(node: ast.AST) -> ast.AST | None:
        found: dict[str, ast.AST] = {}
        return filled(new, found) if matches(pattern, node, found) else None

    return Change(f"replace {old} by {new}", rewrite, tuple(near.split()), nth)


def assign(name: str, new: str, *, near: str = "", nth: int | None = None) -> Change:
    """Assign another value to a name, an attribute, or a tuple of names."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        return _with_value(node, new) if name in _targets(node) and getattr(node, "value", None) else None

    return Change(f"assign {new} to {name}", rewrite, tuple(near.split()), nth)


def returns(new: str, *, near: str = "", nth: int | None = None) -> Change:
    """Return another value."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        return _with_value(node, new) if isinstance(node, ast.Return) and node.value else None

    return Change(f"return {new}", rewrite, tuple(near.split()), nth)


def drop(name: str, *, near: str = "", nth: int | None = None) -> Change:
    """Leave out the statement that assigns to a name, or that calls it."""

    def rewrite(node: ast.AST) -> ast.AST | None:
        called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _named(node.value.func, name)
        return ast.Pass() if called or name in _targets(node) else None

    return Change(f"drop {name}", rewrite, tuple(near.split()), nth)


def apply(tree: ast.Module, function: str, change: Change) -> ast.Module:
    """A copy of a module with one change in one function (`Class.method`), or outside of all functions if it is ""."""
    before, tree = ast.dump(tree), copy.deepcopy(tree)
    scope = _scope(tree, function)
    places = [
        (parent, field, index, new)
        for statement, parent, field, index, node in _places(scope, inside=bool(function))
        if set(change.near) <= _names(statement) and (new := change.rewrite(node)) is not None
    ]
    if not places:
        raise NotApplicable(f"found no place to {change.told}")
    if change.nth is None and len(places) > 1:
        raise NotApplicable(f"found {len(places)} places to {change.told}; say which with `near` or `nth`")
    if (change.nth or 0) >= len(places):
        raise NotApplicable(f"found only {len(places)} places to {change.told}")
    parent, field, index, new = places[change.nth or 0]
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    if ast.dump(tree) == before:
        raise NotApplicable(f"to {change.told} changes nothing")
    return tree


def _scope(tree: ast.Module, function: str) -> ast.AST:
    scope: ast.AST = tree
    for name in function.split(".") if function else ():
        inside = [node for node in _defined(scope) if node.name == name]
        if len(inside) != 1:
            raise NotApplicable(f"{name} is defined {len(inside)} times, not once")
        scope = inside[0]
    return scope


def _defined(scope: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The functions and classes defined in a scope, but not in one another."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, FUNCTIONS):
            yield child
        else:
            yield from _defined(child)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _places(node: ast.AST, inside: bool, statement: ast.AST | None = None) -> Iterator[tuple]:
    """All (statement, parent, field, index, child) below a node, in the order of the text."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or (not inside and isinstance(child, FUNCTIONS)):
                continue
            mentioned = _head(child) if isinstance(child, ast.stmt) else statement
            yield mentioned, node, field, index, child
            yield from _places(child, inside, mentioned)


def _head(statement: ast.stmt) -> ast.AST:
    """A statement without the block in it."""
    return ast.Module([value for field, value in ast.iter_fields(statement) if field not in BLOCKS], [])


BLOCKS = ("body", "orelse", "finalbody", "handlers")


def _names(node: ast.AST | None) -> set[str]:
    names: set[str] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += item
        elif isinstance(item, ast.AST):
            if isinstance(item, ast.Name):
                names.add(item.id)
            elif isinstance(item, ast.Attribute):
                names.add(item.attr)
            elif isinstance(item, ast.keyword | ast.arg) and item.arg:
                names.add(item.arg)
            elif isinstance(item, ast.Constant) and isinstance(item.value, str):
                names.add(item.value)
            stack += [value for _, value in ast.iter_fields(item)]
    return names


def _targets(node: ast.AST) -> set[str]:
    """What a statement assigns to: `a`, `a.b`, `a, b`."""
    if isinstance(node, ast.Assign):
        return {ast.unparse(target).strip("()") for target in node.targets}
    return {ast.unparse(node.target)} if isinstance(node, ast.AugAssign | ast.AnnAssign) else set()


def _named(function: ast.AST, name: str) -> bool:
    text = ast.unparse(function)
    return text == name or text.endswith(f".{name}")


def _with_value(node: ast.AST, new: str) -> ast.AST:
    changed = copy.copy(node)
    changed.value = filled(new, {"_": node.value})
    return changed

"""Patterns of Python expressions.

`_` stands for any expression, `_a`, `_b` for expressions that a replacement uses (the same name twice: the same
expression twice), `*_rest` for the remaining arguments of a call, `**_` for the remaining keywords. All else stands
for itself, however it is laid out.
"""

import ast
import copy


def expression(text: str) -> ast.expr:
    """A pattern, or the text of an expression."""
    return ast.parse(text, mode="eval").body


def filled(text: str, found: dict[str, ast.AST]) -> ast.AST:
    """The expression `text`, with what was `found` in the place of its wildcards."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return copy.deepcopy(found.get(node.id, node))

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            node.args = [part for arg in node.args for part in self._spread(arg)]
            node.keywords = [part for arg in node.keywords for part in self._spread(arg)]
            return node

        def _spread(self, node: ast.AST) -> list:
            value = getattr(node, "value", None)
            spread = isinstance(node, ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None)
            return value.elts if spread and isinstance(value, ast.List) else [node]

    return Fill().visit(expression(text))


def matches(pattern: ast.AST, node: ast.AST, found: dict[str, ast.AST]) -> bool:
    """Whether a node is what a pattern says; `found` then has what its wildcards stand for."""
    if isinstance(pattern, ast.Name) and pattern.id.startswith("_") and len(pattern.id) <= 2:
        if not isinstance(node, ast.expr):
            return False
        if pattern.id != "_" and pattern.id in found:
            return ast.dump(found[pattern.id]) == ast.dump(node)
        found[pattern.id] = node
        return True
    if type(pattern) is not type(node):
        return False
    for field, wanted in ast.iter_fields(pattern):
        if field in ("ctx", "type_comment", "kind"):
            continue
        got = getattr(node, field)
        if isinstance(wanted, list):
            if not _all_match(wanted, got, found):
                return False
        elif isinstance(wanted, ast.AST):
            if not isinstance(got, ast.AST) or not matches(wanted, got, found):
                return False
        elif wanted != got:
            return False
    return True


def _all_match(patterns: list, nodes: list, found: dict[str, ast.AST]) -> bool:
    """Whether a list of nodes matches a list of patterns, whose last may stand for all the rest."""
    rest = patterns[-1] if patterns and _is_rest(patterns[-1]) else None
    fixed = patterns[:-1] if rest else patterns
    if len(nodes) < len(fixed) or (rest is None and len(nodes) > len(fixed)):
        return False
    if fixed and isinstance(fixed[0], ast.keyword):  # keywords in any order
        given = {node.arg: node for node in nodes}
        if not all(p.arg in given and matches(p.value, given[p.arg].value, found) for p in fixed):
            return False
        nodes = [node for node in nodes if node.arg not in {p.arg for p in fixed}]
    elif not all(isinstance(n, ast.AST) and matches(p, n, found) for p, n in zip(fixed, nodes, strict=False)):
        return False
    else:
        nodes = nodes[len(fixed) :]
    if rest:
        found[rest.value.id] = ast.List(nodes, ast.Load())
    return True


def _is_rest(node: ast.AST) -> bool:
    starred = isinstance(node, ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None)
    return starred and isinstance(node.value, ast.Name) and node.value.id.startswith("_")

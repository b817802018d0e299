"""Modules that are read fast are still modules of equinox."""

import ast
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import meanformer as mf
from meanformer._warm import Module, assembled

PACKAGE = Path(mf.__file__).parent


class Line(Module):
    slope: jax.Array
    name: str = "line"

    def __call__(self, x):
        return self.slope * x

    def shifted(self, x):
        return self.slope * x + 1

    @property
    def steep(self):
        return self.slope > 1


def test_fields_and_properties_are_read():
    line = Line(jnp.asarray(2.0))
    assert line.slope == 2 and line.name == "line" and line.steep and line(3.0) == 6
    with pytest.raises(AttributeError, match="height"):
        _ = line.height  # pyright: ignore
    with pytest.raises(AttributeError):
        line.slope = 3  # pyright: ignore


def test_methods_are_trees_as_those_of_equinox_are():
    line = Line(jnp.asarray(2.0))
    assert [leaf.tolist() for leaf in jax.tree.leaves(line.shifted) if eqx.is_array(leaf)] == [2.0]
    assert eqx.filter_jit(line.shifted)(3.0) == 7
    slope = eqx.filter_grad(lambda method: method(3.0))(line.shifted)
    assert [leaf.tolist() for leaf in jax.tree.leaves(slope) if eqx.is_array(leaf)] == [3.0]


def test_methods_of_fields_are_trees():
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0]])
    field = mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2))
    assert jax.tree.structure(field.matrix).num_leaves >= jax.tree.structure(field).num_leaves
    change = eqx.filter_grad(lambda method: method(tokens)[0, 1])(field.matrix)
    assert any(eqx.is_array(leaf) and jnp.any(leaf != 0) for leaf in jax.tree.leaves(change))


def test_assembled_is_made():
    line = assembled(Line, slope=jnp.asarray(2.0), name="line")
    assert eqx.tree_equal(line, Line(jnp.asarray(2.0)))
    assert jax.tree.structure(line) == jax.tree.structure(Line(jnp.asarray(2.0)))


@pytest.mark.parametrize("fields", [{"slope": 2.0}, {"slope": 2.0, "nmae": "line"}], ids=["missing", "misspelt"])
def test_assembled_needs_all_fields(fields):
    with pytest.raises(AssertionError, match="Line"):
        assembled(Line, **fields)


def test_all_modules_are_read_fast():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    found = [
        f"{path.name}:{node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and {"eqx.Module", "equinox.Module"} & {ast.unparse(base) for base in node.bases}
    ]
    assert found == ["_warm.py:Module"]

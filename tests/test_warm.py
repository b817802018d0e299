"""Modules that are read fast are still modules of equinox."""

import re
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
    # Were it no tree, its arrays would have to be hashed, which is refused.
    assert jnp.allclose(eqx.filter_jit(field.matrix)(tokens), field.matrix(tokens), atol=1e-15)


def test_assembled_is_made():
    line = assembled(Line, slope=jnp.asarray(2.0), name="line")
    assert eqx.tree_equal(line, Line(jnp.asarray(2.0)))
    assert jax.tree.structure(line) == jax.tree.structure(Line(jnp.asarray(2.0)))


def test_a_run_has_all_fields():
    tokens = mf.PointCloud([[1.0, 0.0], [0.0, 1.0]])
    run = mf.flow(mf.Softmax(jnp.eye(2), jnp.eye(2), jnp.eye(2)), tokens, 0.1, save=2)
    for module in (run, run.system, run.outcome, run.final):
        again = type(module).__dataclass_fields__
        assert set(vars(module)) == set(again)


def test_all_modules_are_read_fast():
    found = [path for path in PACKAGE.rglob("*.py") if re.search(r"^class .*\(eqx\.Module\b", path.read_text(), re.M)]
    assert [path.name for path in found] == ["_warm.py"]

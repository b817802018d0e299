"""Every public name says what it is, with an example that runs; so do the methods of public classes, in words."""

import inspect
import re
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import meanformer as mf

# Every public name, as it stands after "mf."; those of a part with names of its own come after its name.
NAMES = [*mf.__all__, *(f"models.{name}" for name in mf.models.__all__)]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def named(name: str) -> Any:
    """What is behind a public name."""
    return attrgetter(name)(mf)


def examples(name: str) -> list[str]:
    """The Python blocks of the docstring of a public name."""
    return FENCE.findall(inspect.getdoc(named(name)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = examples(name)
    assert found, f"mf.{name} has no example"
    for code in found:
        exec(compile(code, f"mf.{name}", "exec"), {"jax": jax, "jnp": jnp, "np": np, "mf": mf})
    plt.close("all")


# Names whose meaning is no formula: containers, errors, files, rules, pictures of them.
WORDS = [
    "stack_clouds",
    "Labelled",
    "Plan",
    "Outcome",
    "Ending",
    "InputError",
    "LargeGridWarning",
    "WallClock",
    "AbstractStop",
    "Trajectory",
    "Journal",
    "load",
    "load_table",
    "FolderError",
    "Fates",
    "Checked",
    "NotConvergedWarning",
    "AttentionPath",
    "ClusterHistory",
    "Verdict",
    "plot_claims",
    "plot_clusters",
    "plot_ranks",
    "models.load",
    "models.TransformerRecord",
    "models.LayerRecord",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_its_formula(name):
    text = inspect.getdoc(named(name))
    assert ("$" in text) != (name in WORDS), f"{name}: a formula, or a place in WORDS"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isfunction(named(name))])
def test_a_public_function_says_what_comes_back(name):
    """With its shape, or the class that has it."""
    text = inspect.getdoc(named(name))
    assert re.search(r"shape|\(n, d\)|number|`[A-Z]\w+`|law|axes|array|field|dataset", text), name


CLASSES = [name for name in NAMES if inspect.isclass(named(name))]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_a_public_class_are_documented(name):
    """Own or inherited: one that implements an abstract method says no more than that one."""
    cls = named(name)
    ours = [parent for parent in cls.__mro__ if parent.__module__.startswith("meanformer")]
    for attribute in sorted({a for parent in ours for a in vars(parent) if not a.startswith("_")}):
        value = inspect.getattr_static(cls, attribute)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(value) or isinstance(value, property):
            texts = [inspect.getdoc(vars(parent)[attribute]) for parent in ours if attribute in vars(parent)]
            assert any(texts), f"mf.{name}.{attribute}"

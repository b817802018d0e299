"""Every public name says what it is, with an example that runs; so do the methods of public classes, in words."""

import inspect
import re

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import meanformer as mf

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(name: str) -> list[str]:
    """The Python blocks of the docstring of a public name."""
    return FENCE.findall(inspect.getdoc(getattr(mf, name)) or "")


@pytest.mark.parametrize("name", mf.__all__)
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
]


@pytest.mark.parametrize("name", mf.__all__)
def test_a_public_name_has_its_formula(name):
    text = inspect.getdoc(getattr(mf, name))
    assert ("$" in text) != (name in WORDS), f"{name}: a formula, or a place in WORDS"


@pytest.mark.parametrize("name", [name for name in mf.__all__ if inspect.isfunction(getattr(mf, name))])
def test_a_public_function_says_what_comes_back(name):
    """With its shape, or the class that has it."""
    text = inspect.getdoc(getattr(mf, name))
    assert re.search(r"shape|\(n, d\)|number|`[A-Z]\w+`|law|axes|array|field|dataset", text), name


CLASSES = [name for name in mf.__all__ if inspect.isclass(getattr(mf, name))]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_a_public_class_are_documented(name):
    """Own or inherited: one that implements an abstract method says no more than that one."""
    cls = getattr(mf, name)
    ours = [parent for parent in cls.__mro__ if parent.__module__.startswith("meanformer")]
    for attribute in sorted({a for parent in ours for a in vars(parent) if not a.startswith("_")}):
        value = inspect.getattr_static(cls, attribute)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(value) or isinstance(value, property):
            texts = [inspect.getdoc(vars(parent)[attribute]) for parent in ours if attribute in vars(parent)]
            assert any(texts), f"mf.{name}.{attribute}"

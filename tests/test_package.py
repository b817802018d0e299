"""The package as a whole: lazy import, version guard, public names, one-way imports, size."""

import ast
import inspect
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import jaxtyping
import pytest
from packaging.requirements import Requirement

import meanformer as mf
from meanformer import _guard
from nightly import NIGHT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "meanformer"
SOURCES = sorted(PACKAGE.rglob("*.py"))


def run_python(code: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("JAX_ENABLE_X64", "MEANFORMER_X64")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Lazy import and precision


def test_import_does_not_load_jax():
    code = "import sys, meanformer; dir(meanformer); meanformer.__version__; print('jax' in sys.modules)"
    assert run_python(code) == "False"


def test_help_does_not_load_jax():
    code = """
import sys
sys.argv = ["meanformer", "--help"]
from meanformer.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("jax loaded:", "jax" in sys.modules)
"""
    out = run_python(code)
    assert "Usage" in out
    assert out.endswith("jax loaded: False")


@pytest.mark.parametrize("first, second", [("meanformer", "jax"), ("jax", "meanformer")])
@pytest.mark.parametrize("choice, dtype", [({}, "float64"), ({"MEANFORMER_X64": "0"}, "float32")])
def test_precision_in_either_order_of_import(first, second, choice, dtype):
    code = f"import {first}, {second}; import jax.numpy as jnp; print(jnp.zeros(1).dtype)"
    assert run_python(code, **choice) == dtype


@pytest.mark.nightly
@pytest.mark.skipif(not NIGHT, reason="annotations are checked at night: MEANFORMER_NIGHTLY=1")
def test_annotations_are_checked_in_this_run():
    from meanformer.flows.padding import padded_size

    with pytest.raises(jaxtyping.TypeCheckError):
        padded_size("forty")  # pyright: ignore


# The guard against faulty versions of JAX


@pytest.mark.parametrize("version", ["0.10.2", "0.10.2.dev20260101", "0.11.1", "0.8", "0.8.3", "0.9.1"])
def test_guard_refuses(version):
    with pytest.raises(ImportError) as refusal:
        _guard.check_jax_version(version)
    message = str(refusal.value)
    assert f"got jax {version}," in message
    assert "expected jax>=0.9.2,!=0.10.2,!=0.11.1" in message
    assert "pip install" in message


@pytest.mark.parametrize("version", ["0.9.2", "0.10.0", "0.10.1", "0.10.20", "0.11.0", "0.11.2", "1.0"])
def test_guard_accepts(version):
    _guard.check_jax_version(version)


def test_guard_runs_at_import():
    code = """
from importlib import metadata
metadata.version = lambda name: "0.10.2"
try:
    import meanformer
except ImportError as refusal:
    print(refusal)
"""
    assert "got jax 0.10.2" in run_python(code)


def test_pyproject_excludes_what_the_guard_excludes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = {r.name: r for r in map(Requirement, project["dependencies"])}
    specifiers = {(s.operator, s.version) for s in requirements["jax"].specifier}
    assert specifiers == {(">=", _guard.MINIMUM_JAX), *(("!=", bad) for bad in _guard.EXCLUDED_JAX)}


# Public names


@pytest.mark.parametrize("name", mf.__all__)
def test_public_name_resolves_and_is_documented(name):
    value = getattr(mf, name)
    # Of the class itself, not of a parent, and not the signature that dataclasses put where there is none.
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text
    assert not text.startswith(f"{name}(")
    assert name in dir(mf)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Sofmax"):
        _ = mf.Sofmax


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    parts = [alias.name for node in imports if node.module == "meanformer" for alias in node.names]
    assert parts == ["models"]  # a part with names of its own
    imports = [node for node in imports if node.module != "meanformer"]
    names = [(alias, node.module) for node in imports for alias in node.names]
    assert {alias.asname: module for alias, module in names if alias.asname == alias.name} == mf._EXPORTS


# One-way imports

# fmt: off
ORDER = [
    "_guard", "__init__", "_words", "_types", "_reading", "_warm", "_checks", "_indexing", "_draws", "_progress",
    "_programs", "_scale", "_lapack", "rosenbrock", "display", "outcome", "fate", "spaces", "reduce", "measures",
    "metrics", "attention", "gaussian", "diagnostics", "flows", "theory", "models", "store", "plots",
    "experiments", "report", "app", "cli", "__main__",
]
# fmt: on
LOOKS_AHEAD = {("meanformer.flows.trajectory", f"Trajectory.{method}") for method in ("plot", "animate", "save")}
LOOKS_AHEAD.add(("meanformer.fate", "Fates.plot"))
LOOKS_AHEAD.add(("meanformer.diagnostics.history", "ClusterHistory.plot"))
LOOKS_AHEAD |= {("meanformer.theory.check", "Checked.plot"), ("meanformer.theory.meanfield", "MeanFieldRate.plot")}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imported_modules(node: ast.stmt, package: str) -> list[str]:
    """The meanformer modules that one import statement names, a public name standing for its module."""
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        anchor = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*anchor, node.module] if node.module else anchor)
        # `from meanformer import reduce` names a part, `from meanformer import Softmax` a public name.
        found = [f"{base}.{alias.name}" if base == "meanformer" else base for alias in node.names]
        public = {f"meanformer.{name}": module for name, module in mf._EXPORTS.items()}
        found = [public.get(name, name) for name in found]
    else:
        found = []
    return [name for name in found if name.split(".")[0] == "meanformer"]


def place(module: str) -> int:
    if module == "meanformer":  # the namespace of all public names: as late as the last of them
        return max(place(public) for public in mf._EXPORTS.values())
    part = module.split(".")[1]
    return ORDER.index("__init__" if part == "__version__" else part)


def upward_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports of a part that stands later in ORDER, inside functions too, as 'scope: module'."""
    found = []
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(child, f"{scope}.{child.name}".lstrip("."))
                continue
            if isinstance(child, ast.Import | ast.ImportFrom) and (module, scope) not in LOOKS_AHEAD:
                names = imported_modules(child, package)
                found.extend(f"{scope or 'module'}: {name}" for name in names if place(name) > place(module))
            visit(child, scope)

    visit(ast.parse(source), "")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    module, source = module_name(path), path.read_text()
    if path == PACKAGE / "__init__.py":
        # Its block for type checkers names everything and is never run.
        source = ast.unparse([node for node in ast.parse(source).body if not isinstance(node, ast.If)])
    assert upward_imports(source, module, is_package=path.name == "__init__.py") == []


IN_METHOD = """
class Trajectory:
    def {}(self):
        from meanformer.plots import tokens
"""


@pytest.mark.parametrize(
    "module, source, caught",
    [
        ("meanformer.measures.cloud", "from meanformer.attention.base import AbstractField", True),
        ("meanformer.measures.cloud", "import meanformer.flows", True),
        ("meanformer.measures.cloud", "import meanformer as mf", True),
        ("meanformer.experiments.runner", "import meanformer as mf", False),
        ("meanformer.measures.cloud", "from meanformer import flows", True),
        ("meanformer.measures.cloud", "from meanformer import Softmax", True),
        ("meanformer.measures.cloud", "from ..attention import base", True),
        ("meanformer.measures.cloud", "from .. import attention", True),
        ("meanformer.measures.cloud", "def f():\n    from meanformer.flows import flow", True),
        ("meanformer.measures.cloud", "if TYPE_CHECKING:\n    from meanformer.flows import flow", True),
        ("meanformer.measures.cloud", "from meanformer.spaces import Sphere\nfrom . import laws", False),
        ("meanformer.measures.cloud", "from meanformer import __version__\nimport jax", False),
        ("meanformer.flows.trajectory", "import meanformer.plots", True),
        ("meanformer.flows.trajectory", IN_METHOD.format("plot"), False),
        ("meanformer.flows.trajectory", IN_METHOD.format("at"), True),
        ("meanformer.flows.flow", IN_METHOD.format("plot"), True),
    ],
)
def test_the_import_checker_itself(module, source, caught):
    assert bool(upward_imports(source, module)) is caught


# Size


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_is_short(path):
    assert len(path.read_text().splitlines()) <= 400

"""The scripts of docs/pictures as modules: each is loaded by its path, once, after those that it imports."""

import importlib.util
import sys
from types import ModuleType

from docs.pages import DOCS


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / "pictures" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


small, reproductions, gallery = map(_loaded, ("small", "reproductions", "gallery"))

"""The scripts of docs as modules: each is loaded by its path, once, after those that it imports."""

import importlib.util
import sys
from types import ModuleType

from docs.pages import DOCS


def _loaded(path: str) -> ModuleType:
    name = path.rpartition("/")[2]
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{path}.py")
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


small, reproductions, gallery = map(_loaded, ("pictures/small", "pictures/reproductions", "pictures/gallery"))
api_text = _loaded("api_text")

"""All mistakes, by the part of the package they are in."""

import importlib
from pathlib import Path

from ..mutators import Mutant

PARTS: dict[str, list[Mutant]] = {
    path.stem: importlib.import_module(f"{__name__}.{path.stem}").MUTANTS
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem != "__init__"
}

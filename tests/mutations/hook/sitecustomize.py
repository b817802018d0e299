"""Read at the start of each Python process that has this folder in PYTHONPATH: puts a mistake into what it imports.

`MEANFORMER_MUTANT` is a file with the sources that take the place of the package's own, {path: text} in JSON. Nothing
is edited, and what Python has compiled earlier is neither used nor replaced.
"""

import importlib.machinery
import json
import os
from pathlib import Path

if name := os.environ.get("MEANFORMER_MUTANT"):
    SOURCES = json.loads(Path(name).read_text())
    Loader = importlib.machinery.SourceFileLoader
    data_of, stats_of = Loader.get_data, Loader.path_stats

    def get_data(self, path):
        """The source with the mistake."""
        return SOURCES[path].encode() if path in SOURCES else data_of(self, path)

    def path_stats(self, path):
        """Without a date of the source Python's cache of compiled files is left alone."""
        if path in SOURCES:
            raise OSError(f"{path} has a mistake, and is not kept")
        return stats_of(self, path)

    Loader.get_data, Loader.path_stats = get_data, path_stats

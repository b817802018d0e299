"""The experiments that the page offers. Nothing here imports JAX: the page lists them at once."""

import math
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "presets"

# The view and the group of each, in the order of the page.
GROUPS: dict[tuple[str, str], tuple[str, ...]] = {
    ("tokens", "Clusters (B1 to B3)"): ("polygon", "polytope", "hyperplanes", "leaders"),
    ("tokens", "Kinds of attention"): (
        *("softmax-petals", "l2-neighbours", "sinkhorn-collapse", "sigmoid-rotation", "linear-petals"),
        *("unnormalised-blowup", "hardmax"),
    ),
    ("tokens", "Heads, mask, depth"): ("two-heads", "causal", "deep-transformer"),
    ("tokens", "On the sphere"): ("circle", "sphere"),
    ("tokens", "Many tokens"): ("many-tokens",),
    ("gaussian", "Five regimes (A4)"): (
        *("gaussian-to-zero", "gaussian-to-a-line", "gaussian-two-lines", "gaussian-growth", "gaussian-both"),
    ),
    ("gaussian", "Other kinds"): ("gaussian-l2-growth", "gaussian-sinkhorn-line"),
    ("density", "On a line"): ("density-humps", "density-contraction"),
}


def presets() -> list[dict[str, Any]]:
    """What the page offers: names, words, the view they are for, the text of the file, and the same as data."""
    return [
        {"name": name, "view": view, "group": group, **_read(name)}
        for (view, group), names in GROUPS.items()
        for name in names
    ]


def _read(name: str) -> dict[str, Any]:
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    words = {key: " ".join(data.pop(key).split()) for key in ("title", "about")}
    return {**words, "text": text, "experiment": _plain(data)}


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity: a word, as in the settings of a run."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return "inf" if value == math.inf else value

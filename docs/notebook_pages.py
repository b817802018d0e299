"""The notebooks of `docs/notebooks/` as pages of the site, with what they showed when they were executed.

A page is Markdown like any other: text as it stands, code and what it printed as blocks, pictures as files beside it.
No other package is needed, and no network.
"""

import base64
import json
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PICTURES = {"image/png": "png", "image/gif": "gif"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and its pictures; the notebook itself stays, to be downloaded."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text, pictures = page_of(json.loads(file.content_string), PurePosixPath(file.src_uri).stem)
        files.append(File.generated(config, str(PurePosixPath(file.src_uri).with_suffix(".md")), content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, str(PurePosixPath(file.src_uri).with_name(name)), content=content))
    return files


def page_of(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by the names of their files."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_shown(output, source, name, pictures))
    link = f'<p><a href="{name}.ipynb" download>Download this notebook</a></p>'
    return "\n\n".join([parts[0], link, *parts[1:]]), pictures


def _shown(output: dict[str, Any], source: str, name: str, pictures: dict[str, bytes]) -> str:
    """What a cell has shown, as Markdown; a picture is added to `pictures`."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind, suffix in PICTURES.items():
        if kind in data:
            file = f"{name}-{len(pictures) + 1}.{suffix}"
            pictures[file] = base64.b64decode("".join(data[kind]))
            words = re.sub(r"[^\w.,=() -]", "", source.splitlines()[-1])
            return f"![What {words} shows]({file})"
    if "text/html" in data:
        inside = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))  # a blank line would end the block
        return f'<div class="shown">\n{inside}\n</div>'
    return "```text\n" + "".join(data["text/plain"]).rstrip("\n") + "\n```"

r"""What the site has beyond its Markdown files: displayed formulas, MathJax without a network, pages outside `docs/`.

The repository must read well without the site: a page links to `../benchmarks/RESULTS.md`, where that file is; on the
site, which has it as a page of its own, the link goes there.
"""

import posixpath
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from xml.etree.ElementTree import Element

from api_text import directives
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from meanformer.report.references import BIBTEX

ROOT = Path(__file__).parents[1]
log = get_plugin_logger("docs")  # its warnings end a strict build

# File of the repository -> its page on the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "benchmarks/FATES.md": "measured/fates.md",
    "benchmarks/RESULTS.md": "performance.md",
    "benchmarks/THEORY.md": "measured/theory.md",
}
SOURCE_OF = {page: source for source, page in OUTSIDE.items()}
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"
INLINE = r'<span class="arithmatex">\\\([^<]*\\\)</span>'
# Where names and sections stay as they are: blocks of code, headings, links.
FIXED = re.compile(r"(<pre.*?</pre>|<h[1-6].*?</h[1-6]>|<a .*?</a>)", re.DOTALL)
NAME = re.compile(r"<code>(mf\.((?:models\.)?[a-zA-Z]\w*)[^<]*)</code>")
# Sections of math.md, in text and not in code: MATH b.1, d.2 to d.4, f.
SECTIONS = re.compile(r"(?<!<code>)\bMATH [a-m](?:\.\d+)?\b(?:(?:,| to| and) [a-m](?:\.\d+)?\b(?!\.\w))*")
# Public name, or part with names of its own -> the page of the reference that has it.
PAGE_OF = {
    name: page.stem
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for name in re.findall(
        r"^(?:<!-- ::: |# .*\{ #)meanformer\.([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
}
# Page, or folder -> its weight in a search, 2 for all others: guides come before tables of measurements.
BOOST = {
    "measured/": 0.3,
    "performance": 0.3,
    "reproductions/": 0.5,
    "changelog": 0.3,
    "contributing": 0.5,
    "math": 0.7,
    "api/": 1.0,
}
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


class DisplayedFormulas(Extension):
    r"""`$$...$$` inside a paragraph, as many of our docstrings have it, is a displayed formula too."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Before the inline formulas between single dollars (priority 189.9)."""
        md.inlinePatterns.register(_Displayed(r"\$\$(.+?)\$\$", md), "displayed-formula", 190)


class _Displayed(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:
        element = Element("span", {"class": "arithmatex"})
        element.text = AtomicString(rf"\[{m[1]}\]")
        return element, m.start(0), m.end(0)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add our Markdown extension."""
    config.markdown_extensions.append(DisplayedFormulas())  # pyright: ignore[reportArgumentType]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs/`, and MathJax."""
    for source, page in OUTSIDE.items():
        if page not in files.src_uris:
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    mathjax = next(path for path in metadata.files("sphinx-mathjax-offline") or () if path.name == "tex-svg.js")
    files.append(File.generated(config, "assets/tex-svg.js", abs_src_path=str(mathjax.locate())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links around, and fill in what the package knows of itself."""
    here = page.file.src_uri
    boost = next((value for folder, value in BOOST.items() if here.startswith(folder)), 2.0)
    page.meta.setdefault("search", {"boost": boost})
    source = SOURCE_OF.get(here, f"docs/{here}") if page.file.generated_by else f"docs/{here}"
    markdown = LINK.sub(lambda found: _link(found, here, source), markdown)
    if here.startswith("api/"):
        markdown = directives(markdown)
    if here == "math.md":  # short anchors for its sections
        markdown = re.sub(r"^(###? ([a-z])\.(\d*) .*)$", r"\1 { #\2\3 }", markdown, flags=re.MULTILINE)
    for mark, text in FILLED.get(here, {}).items():
        markdown = markdown.replace(mark, text())
    return markdown


def on_page_content(html: str, page: Page, **_) -> str:
    """Link names to the reference and pictures to themselves; keep a formula and the comma after it on one line."""
    html = "".join(part if FIXED.match(part) else _linked(part, page) for part in FIXED.split(html))
    html = re.sub(r'(?<!">)(<img [^>]*src="([^"]+)"[^>]*>)', r'<a href="\2">\1</a>', html)
    return re.sub(rf"({INLINE}[.,;:)]+)", r'<span class="together">\1</span>', html)


def _linked(html: str, page: Page) -> str:
    """Text with links from `mf.name` to the reference, and from sections to the formulas."""

    def to_reference(found: re.Match[str]) -> str:
        if found[2] not in PAGE_OF:
            log.warning(f"{page.file.src_uri}: mf.{found[2]} is no public name")
            return found[0]
        target = get_relative_url(f"api/{PAGE_OF[found[2]]}.html", page.url)
        return f'<a class="name" href="{target}#meanformer.{found[2]}">{found[0]}</a>'

    def to_formulas(found: re.Match[str]) -> str:
        section = rf'<a href="{get_relative_url("math.html", page.url)}#\1\2">\g<0></a>'
        return "MATH" + re.sub(r"\b([a-m])(?:\.(\d+))?\b", section, found[0].removeprefix("MATH"))

    return SECTIONS.sub(to_formulas, NAME.sub(to_reference, html))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take our own worker: that of the theme for pages from files comes from the network."""
    return output.replace(REMOTE_WORKER, get_relative_url("assets/worker.js", page.url))


def on_post_template(output_content: str, **_) -> str:
    """The page for addresses that do not exist is of use on a server only, and searches there without our worker."""
    return output_content.replace(f'<script src="{REMOTE_WORKER}"></script>', "")


def _link(found: re.Match[str], here: str, source: str) -> str:
    """A link as it stands in the file `source` of the repository, for the page `here` of the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
    if target.startswith("docs/"):
        page = re.sub(r"\.ipynb$", ".md", target.removeprefix("docs/"))
    elif target in OUTSIDE:
        page = OUTSIDE[target]
    else:
        return found[0]
    return f"]({posixpath.relpath(page, posixpath.dirname(here) or '.')}{found[2] or ''})"


def commands() -> str:
    """The reference of the command line, from its own help."""
    document = [sys.executable, "-m", "typer", "meanformer.cli.commands", "utils", "docs", "--name", "meanformer"]
    text = subprocess.run(document, capture_output=True, encoding="utf-8", check=True).stdout
    return text[text.index("\n## ") :]


def references() -> str:
    """All papers and libraries, as BibTeX."""
    entries = "\n".join(BIBTEX.values()).replace("VERSION", metadata.version("meanformer"))
    return f"```bibtex\n{entries}\n```"


# Page -> what is written in place of a mark.
FILLED = {"cli.md": {"<!-- the commands -->": commands}, "citing.md": {"<!-- the references -->": references}}

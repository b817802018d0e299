"""The site: built strictly, complete, readable without a network, spelt well."""

import contextlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import meanformer as mf
from browsers import chromium
from docs.pages import DOCS, PAGES, ROOT, name_of, prose
from docs.scripts import api_text
from test_package import ORDER

MEMBERS = re.compile(r"^::: meanformer\.([\w.]+)\n    options:\n      members: \[(.*)\]$", re.MULTILINE)
# Built by make and by this module; nothing of it is in the repository.
BUILD = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, from a strict build without warnings (and not `--quiet`, which hides them from `--strict`)."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([*BUILD, str(folder)], cwd=ROOT, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and not re.search("WARN|ERROR", said), said
    return folder


class Loaded(HTMLParser):
    """What a browser fetches for a page, where its links go, and where links can go to."""

    def __init__(self, page: Path):
        super().__init__()
        self.resources: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values["id"]} if values.get("id") else set()
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in {"script", "img", "iframe", "source", "video"} and values.get("src"):
            self.resources.append(values["src"])
        if tag == "link" and values.get("rel") in {"stylesheet", "icon", "preconnect", "preload"}:
            self.resources.append(values["href"])


def test_pages_open_from_files(site):
    """Scripts, styles and pictures are all in the site itself."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for resource in Loaded(page).resources:
            assert "//" not in resource, f"{page}: {resource}"
            if page.name != "404.html":
                assert (page.parent / resource.split("?")[0]).is_file(), f"{page}: {resource}"


def test_links_lead_to_pages_and_anchors(site):
    """Also those that the hooks make, of names and sections, which mkdocs does not see."""
    pages = {page.resolve(): Loaded(page) for page in site.rglob("*.html") if page.name != "404.html"}
    count = 0
    for page, loaded in pages.items():
        for link in loaded.links:
            if not re.match(r"\w+:", link):
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                assert target.is_file(), f"{page}: {link}"
                assert target not in pages or anchor in pages[target].anchors, f"{page}: {link}"
                count += "meanformer." in anchor or "math.html#" in link
    assert count > 500


def test_formulas_reach_mathjax(site):
    """No dollar is left over, in pages that have formulas and no prices."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r'<(span|div) class="arithmatex">.*?</\1>', "", text, flags=re.DOTALL)
        assert "$" not in text, f"{page}: {text[max(0, text.find('$') - 80) : text.find('$') + 80]}"


def test_the_command_line_and_the_references_are_filled_in(site):
    cli, citing = ((site / name).read_text(encoding="utf-8") for name in ("cli.html", "citing.html"))
    commands = ["run", "resume", "report", "reproduce", "model", "list", "init", "show", "compare", "cite", "bench"]
    for command in commands:
        assert f'id="meanformer-{command}"' in cli
    assert "sinkformers" in citing and "VERSION" not in citing


def test_the_api_pages_have_every_public_name_once(site):
    """In their sources; and each has come out as a heading with an anchor, with the text of its docstring."""
    pages = {page: api_text.directives(page.read_text(encoding="utf-8")) for page in DOCS.glob("api/*.md")}
    named = {page: re.findall(r"^::: meanformer\.([\w.]+)$", text, re.MULTILINE) for page, text in pages.items()}
    public = [*mf.__all__, *(f"models.{name}" for name in mf.models.__all__)]
    assert sorted(name for names in named.values() for name in names) == sorted(public)
    for page, names in named.items():
        anchors = Loaded(site / "api" / f"{page.stem}.html").anchors
        assert {f"meanformer.{name}" for name in names} <= anchors
        for name, members in MEMBERS.findall(pages[page]):
            missing = {f"meanformer.{name}.{member}" for member in members.split(", ")} - anchors
            assert not missing


def test_the_api_reads_well_without_the_site(site):
    """Each name with its arguments and its first sentence, as the package has them; on the site that text is gone."""
    for page in DOCS.glob("api/*.md"):
        text = page.read_text(encoding="utf-8")
        assert text == api_text.written(text), f"python docs/api_text.py writes {page.name} again"
        shown = (site / "api" / f"{page.stem}.html").read_text(encoding="utf-8")
        for name in re.findall(r"^<!-- ::: meanformer\.([\w.]+)$", text, re.MULTILINE):
            assert re.search(rf"^- `mf\.{re.escape(name)}[(`].*: .{{20,}}$", text, re.MULTILINE), name
            assert f"<code>mf.{name}(" not in re.sub(r"<pre.*?</pre>", "", shown, flags=re.DOTALL).split("<h2")[0]
    example = "<!-- ::: meanformer.velocity\n-->\n- `mf.velocity(field, mu, t=0.0, accuracy=None)`: "
    made = api_text.written("<!-- ::: meanformer.velocity\n-->\n")
    assert made.startswith(example) and api_text.directives(made) == "::: meanformer.velocity\n"
    assert api_text.written(made.replace("accuracy", "accurate")) == made


def test_signatures_on_the_api_pages(site):
    """Constructors taken over by name show their arguments."""
    text = re.sub(r"<[^>]+>", "", (site / "api" / "attention.html").read_text(encoding="utf-8"))
    for kind in ("Softmax", "L2", "Linear", "Unnormalised"):
        assert f"{kind}(Q, K, V, tau=1.0" in text.replace("&quot;", '"'), kind


def test_every_page_is_in_the_navigation():
    """mkdocs warns of the contrary; here: what it warns of is an error, so that this cannot be switched off unseen."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^strict: true$", settings, re.MULTILINE)
    assert "omitted_files: warn" in settings and "anchors: warn" in settings


def test_pages_are_spelt_well():
    """Common misspellings; names that only look like one are listed in pyproject.toml."""
    codespell = Path(sys.executable).with_name("codespell")
    sources = [*map(str, PAGES), "CHANGELOG.md", "src", "examples", "benchmarks"]
    done = subprocess.run([codespell, *sources], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_links_to_files_of_the_repository_exist():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose(page)):
            if not re.match(r"\w+:", link):
                target = page.parent / link
                assert target.exists(), f"{name_of(page)}: {link}"


def test_anchors_of_the_readme_exist(site):
    """It is no page of the site, but its links go to pages that are."""
    for page, anchor in re.findall(
        r"\]\(docs/([\w/-]+)\.md#([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")
    ):
        assert anchor in Loaded(site / f"{page}.html").anchors, f"{page}#{anchor}"


def test_links_to_papers_are_well_formed():
    for page in PAGES:
        for number in re.findall(r"arxiv\.org/abs/([^)}\s]*)", page.read_text(encoding="utf-8")):
            assert re.fullmatch(r"\d{4}\.\d{4,5}", number), f"{name_of(page)}: {number}"


def test_the_architecture_page_names_what_exists():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| part of") : text.index("`meanformer/__init__.py` holds")]
    first = [row.split("|")[1] for row in table.splitlines()[2:] if row]
    parts = [name.rstrip("/") for cell in first for name in re.findall(r"`([\w/]+)`", cell)]
    here = [part for part in ORDER if (ROOT / "src/meanformer" / part).is_dir() or not part.startswith("__")]
    here = [part for part in here if any((ROOT / "src/meanformer").glob(f"{part}*"))]
    assert set(parts) == set(here)
    folders = ORDER[ORDER.index("reduce") :]
    assert [part for part in parts if part in folders] == [part for part in here if part in folders]
    for path in re.findall(r"`?((?:flows|attention|gaussian|reduce|theory|diagnostics|experiments)/[\w/]+\.py)", text):
        assert (ROOT / "src/meanformer" / path).is_file(), path


def browsed(address: str) -> str:
    """What a browser makes of a page, when its scripts have run; without one the test is skipped."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom"]
    return subprocess.run([chromium(), *flags, address], capture_output=True, encoding="utf-8", timeout=400).stdout


def test_every_formula_is_well_formed(site):
    """All of them on one page: MathJax leaves a mark where it cannot read one."""
    formula = re.compile(r'<(?:span|div) class="arithmatex">(.*?)</(?:span|div)>', re.DOTALL)
    formulas = {found for page in site.rglob("*.html") for found in formula.findall(page.read_text(encoding="utf-8"))}
    assert len(formulas) > 1000
    scripts = '<script src="assets/mathjax.js"></script><script src="assets/tex-svg.js"></script>'
    page = site / "formulas.html"

    def marks(texts) -> list[str]:
        spans = "".join(f'<p><span class="arithmatex">{text}</span></p>' for text in texts)
        page.write_text(f'<meta charset="utf-8">{scripts}{spans}', encoding="utf-8")
        shown = browsed(page.as_uri())
        page.unlink()
        assert shown.count("<mjx-container") == len(texts)
        return re.findall(r'data-mjx-error="[^"]*"|fill="red".{0,200}', shown)  # bad grammar, unknown names

    assert marks([r"\(\fracc{1}{2}\)"]) and marks([r"\(\frac{1}\)"]) and not marks([r"\(\frac{1}{2}\)"])
    assert marks(sorted(formulas)) == []


def test_a_browser_shows_formulas_and_finds_words_without_a_network(site):
    """The page as it is after its scripts have run: formulas are drawings, and the search has results."""
    shown = browsed(f"{(site / 'start.html').as_uri()}?q=sinkhorn")
    assert shown.count("<mjx-container") > 10
    assert int(re.search(r"(\d+) matching documents", shown)[1]) > 3


# Parts of a page that stick out of a phone, and are in no box that scrolls.
STICKING_OUT = """() => {
  const boxed = (part) => part && part.tagName !== "ARTICLE" &&
    (["auto", "hidden", "scroll"].includes(getComputedStyle(part).overflowX) || boxed(part.parentElement));
  const out = [...document.querySelectorAll("article *")].filter((part) => {
    const { right, width } = part.getBoundingClientRect();
    return width > 0 && right > window.innerWidth + 1 && !boxed(part.parentElement);
  });
  const width = document.scrollingElement.scrollWidth;
  return width > window.innerWidth || out.length ? [width, out[0]?.outerHTML.slice(0, 200)] : null;
}"""


WIDEST = ("math.html", "start.html", "api/theory.html", "index.html")


@pytest.mark.parametrize("pages", ["the widest", pytest.param("all", marks=pytest.mark.nightly)])
def test_no_page_is_wider_than_a_phone(site, pages, browser):
    """Wide formulas, tables and code scroll in boxes of their own."""
    with contextlib.closing(browser.new_page(viewport={"width": 390, "height": 844})) as page:

        def sticks_out(file: Path) -> object:
            page.goto(file.as_uri())
            page.evaluate("() => window.MathJax?.startup.promise")
            return page.evaluate(STICKING_OUT)

        files = [site / name for name in WIDEST] if pages == "the widest" else sorted(site.rglob("*.html"))
        found = {file.relative_to(site).as_posix(): sticks_out(file) for file in files}
        assert {name: part for name, part in found.items() if part} == {}
        # Without the box of its own that a wide formula gets, it is found.
        sticks_out(site / "math.html")
        page.add_style_tag(content=".md-typeset mjx-container.wide { display: inline; overflow: visible; }")
        assert page.evaluate(STICKING_OUT)

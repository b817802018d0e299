"""The page: one file, no network, everything escaped, verdicts that need no colour, and no wider than a phone."""

import base64
import html
import re
import subprocess
from html.parser import HTMLParser

import pytest

from browsers import chromium
from meanformer.report.page import VERDICTS, Markup, Page, cell, number_text, verdict
from meanformer.report.pictures import Pictures
from meanformer.report.run import write_report
from report._folders import SVG, folder, record, results

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Elements(HTMLParser):
    """All elements with their attributes; closes must match opens."""

    def __init__(self, text: str):
        super().__init__()
        self.found, self.open, self.words = [], [], {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words[self.open[-1]] = self.words.get(self.open[-1], "") + data


def example(tmp_path) -> Page:
    (tmp_path / "a.svg").write_text(SVG)
    (tmp_path / "b.gif").write_bytes(b"GIF89a")
    (tmp_path / "c.mp4").write_bytes(b"film")
    page = Page("Title $x$ <script>alert(1)</script>", "sub & title")
    section = page.section("First <b>")
    section.text("one $y$", "two")
    section.tiles([("radius", 4.25, "at the <end>"), ("fate", "CONVERGED", "")])
    section.table(("name", "number"), [("a", 1.5), ("<i>", None)], "a table")
    section.badges([verdict(word) for word in VERDICTS])
    section.figures(Pictures(tmp_path).figure(name, f"caption {name}") for name in ("a.svg", "b.gif", "c.mp4"))
    section.code("x < y")
    section.details("more").text("inside")
    page.section("First <b>").section("inner").display(r"\dot{x}=\Gamma_\mu(x)")
    return page


def test_it_is_well_formed_and_loads_nothing(tmp_path):
    text = example(tmp_path).html()
    elements = Elements(text).found
    for tag, attributes in elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name in ("src", "srcset", "href", "action", "data", "poster", "xlink:href"):
            value = attributes.get(name)
            if value is not None:
                allowed = value.startswith("#") if tag == "a" else value.startswith("data:")
                assert allowed or (tag == "a" and value.startswith("https://arxiv.org/")), (tag, name, value)
        assert not any(name.startswith("on") for name in attributes)
    style, script = (Elements(text).words[tag] for tag in ("style", "script"))
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"fetch|XMLHttpRequest|import\(|https?:", script)
    policy = next(a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_texts_of_users_stay_texts(tmp_path):
    text = example(tmp_path).html()
    assert "<script>alert(1)" not in text
    assert text.count("<script>") == 1  # our own
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert Elements(text).words["title"].startswith("Title x <script>")


def test_pictures_are_inside(tmp_path):
    elements = Elements(example(tmp_path).html()).found
    images = [a["src"] for tag, a in elements if tag == "img"]
    assert images[0] == "data:image/svg+xml;base64," + base64.b64encode(SVG.encode()).decode()
    assert images[1].startswith("data:image/gif;base64,")
    (film,) = [a for tag, a in elements if tag == "video"]
    assert film["src"] == "data:video/mp4;base64," + base64.b64encode(b"film").decode()
    assert {"controls", "loop", "muted"} <= film.keys()


def test_a_missing_picture_is_told(tmp_path):
    page = Page("t")
    page.section("s").add(Pictures(tmp_path).figure("gone.svg", "caption"))
    assert "There is no picture gone.svg in the folder" in page.html()


def test_anchors_are_unique_and_the_contents_lead_to_them(tmp_path):
    elements = Elements(example(tmp_path).html()).found
    anchors = [a["id"] for tag, a in elements if "id" in a]
    links = [a["href"][1:] for tag, a in elements if tag == "a"]
    assert anchors == links == ["first-b", "first-b-2", "inner"]


def test_verdicts_have_a_sign_and_a_word_each():
    badges = {word: re.sub(r"<[^>]*>", " ", verdict(word)).strip().split(maxsplit=1) for word in VERDICTS}
    assert all(words[1] == word for word, words in badges.items())
    assert len({words[0] for words in badges.values()}) == len(VERDICTS)
    assert verdict("<b>").count("<b>") == 0


def test_columns_of_numbers_are_aligned():
    page = Page("t")
    page.section("s").table(("n", "mixed", "word"), [(1.5, 2, "a"), (None, "b", "c"), (3, 1.0, Markup("<b>d</b>"))])
    cells = re.findall(r'<td class="(\w*)">(.*?)</td>', page.html())
    assert cells == [
        ("number", "1.5"), ("", "2"), ("", "a"),
        ("number", "—"), ("", "b"), ("", "c"),
        ("number", "3"), ("", "1"), ("", "<b>d</b>"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value, text",
    [
        (0.123456, "0.1235"),
        (-2.5, "−2.5"),
        (2.447e7, "2.447 × 10⁷"),
        (1.5e-12, "1.5 × 10⁻¹²"),
        (20000, "20,000"),
        (42, "42"),
        (True, "yes"),
        (None, "—"),
        (float("inf"), "∞"),
        (float("nan"), "—"),
        ("word", "word"),
    ],
)
def test_numbers_as_people_write_them(value, text):
    assert number_text(value) == text


def test_powers_of_ten_are_raised_by_markup():
    assert cell(-1.5e-12) == "−1.5 × 10<sup>−12</sup>"
    assert cell(1.23456789e8, 6) == "1.23457 × 10<sup>8</sup>"
    assert cell(["<b>"]) == "[&#x27;&lt;b&gt;&#x27;]"
    assert cell("10⁷ <b>") == "10⁷ &lt;b&gt;"


def test_paper_and_themes_are_cared_for(tmp_path):
    style = Elements(example(tmp_path).html()).words["style"]
    printed = style[style.index("@media print") :]
    for rule in ("nav, button { display: none; }", "break-inside: avoid", "color-scheme: light"):
        assert rule in printed
    assert 'data-theme="dark"' in style
    assert "light-dark(" in style


def test_no_wider_than_a_phone(tmp_path):
    """In a frame of 390 pixels neither a run's report nor a page with long words and wide tables is wider."""
    browser = chromium()
    long = record(
        title="A_very_long_title_" * 12, about="word" * 60 + r" $\Gamma_\mu(x)=" + "+".join("abcdefgh") * 4 + "$"
    )
    report = write_report(folder(tmp_path / "run", long, results()))
    page = example(tmp_path)
    page.section("wide").table([f"column {k}" for k in range(30)], [[k / 7 for k in range(30)]] * 3)
    page.section("code").code("x" * 300)
    page.section("formula").display("+".join(["x_{1}"] * 60))
    frames = "".join(
        f'<iframe width="390" height="800" srcdoc="{html.escape(text)}"></iframe>'
        for text in (report.read_text(), page.html())
    )
    measure = (
        "<script>onload = () => { document.title = [...document.querySelectorAll('iframe')]"
        ".map(f => f.contentDocument)"
        ".map(page => page.documentElement.scrollWidth + ':' + page.querySelectorAll('h2').length)"
        ".join(' ') }</script>"
    )
    wrapper = tmp_path / "phone.html"
    wrapper.write_text(f"<!doctype html><title>none</title>{measure}{frames}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, wrapper.as_uri()], capture_output=True, text=True, timeout=400, check=True
    )
    widths = [tuple(map(int, found.split(":"))) for found in re.search(r"<title>(.*?)</title>", done.stdout)[1].split()]
    assert len(widths) == 2
    for width, headings in widths:
        assert headings > 3  # the page is there
        assert width <= 390

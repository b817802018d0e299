"""Reports of hostile run folders in a real browser: no script but ours runs, and nothing is asked of a network.

What would run sets a mark. That the tests can fail is shown by the same words without escaping, and without the policy.
"""

import html

import pytest

from meanformer.report.model import write_model_report
from meanformer.report.page import policy
from meanformer.report.reproduction import write_reproduction
from meanformer.report.run import write_report
from report import _analyses as analyses
from report._folders import folder, record, results, write

HOSTILE = [
    '<img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "</title></style></textarea><script>window.hit=1</script>",
    '"><svg onload=window.hit=1>',
    "' onmouseover='window.hit=1' autofocus onfocus='window.hit=1",
    "`<img src=x onerror=window.hit=1>`",
    "$<img src=x onerror=window.hit=1>$",
    r"$\mathrm{</title><img src=x onerror=window.hit=1>}$",
    r"\$</svg><img src=x onerror=window.hit=1>\$",
    '<a href="javascript:window.hit=1" id=lure>x</a>',
    "javascript:window.hit=1",
    'https://arxiv.org/"onmouseover="window.hit=1',
    "https://arxiv.org/abs/1`<img src=x onerror=window.hit=1>`",
    '<iframe srcdoc="<script>parent.hit=1</script>"></iframe>',
    '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">',
    '<base href="http://127.0.0.1:9/"><link rel=stylesheet href="http://127.0.0.1:9/x.css">',
    '<style>@import "http://127.0.0.1:9/x.css"; body{background:url(http://127.0.0.1:9/y)}</style>',
    '<form action="javascript:window.hit=1"><button id=lure>x</button></form>',
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "<!--><img src=x onerror=window.hit=1>-->",
    "\u202e<img src=x onerror=window.hit=1>\u2066\u0000\u2028",
]
ALL = " ".join(HOSTILE)
SCRIPTED = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" onload="parent.hit=1;window.hit=1">
<script>parent.hit=1;top.hit=1</script><image href="http://127.0.0.1:9/z.png"/><rect width="9" height="9"/>
<foreignObject><img xmlns="http://www.w3.org/1999/xhtml" src="x" onerror="parent.hit=1"/></foreignObject></svg>"""
RUNS = '<script>window.hit=1</script><img src="x" onerror="window.hit=1">'


class Seen:
    """What happened on a page: whether a foreign script ran, what the policy refused, and what was asked for."""

    def __init__(self, browser, path):
        context = browser.new_context()
        page = context.new_page()
        self.refused: list[str] = []
        self.asked: list[str] = []
        self.errors: list[str] = []
        page.on("console", lambda said: self.refused.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(path.as_uri())
        self.links = page.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))")
        self.theme = page.evaluate(
            "() => { document.querySelector('.theme').click(); return document.documentElement.dataset.theme }"
        )
        # All that can be pressed is pressed, and all that can be pointed at is pointed at.
        page.evaluate(
            """() => { for (const one of document.querySelectorAll("*")) {
                for (const kind of ["mouseover", "focus", "pointermove"]) one.dispatchEvent(new Event(kind));
                if (one.matches("button, summary, th, img, input, canvas, #lure")) one.click();
            } }"""
        )
        page.wait_for_timeout(300)
        self.hit = page.evaluate("window.hit")
        self.handlers = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap(one => [...one.attributes])"
            ".filter(one => one.name.startsWith('on')).length"
        )
        self.bidi = page.evaluate(r"/[\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent)")
        context.close()


def hostile_run(path):
    """A run whose every word is hostile."""
    run = record(title=ALL, name=ALL, about=ALL, command=ALL, cites=HOSTILE, machine=ALL, created=ALL, commit=ALL)
    run |= {"convention": ALL, "source": ALL, "hash": ALL, "versions": {ALL: ALL, "meanformer": ALL}}
    odd = {"kind": ALL, "Q": ALL, "K": {"random": ALL, "shape": [2, 2]}, "V": {"file": ALL}, ALL: ALL}
    measure, flow = {"kind": ALL}, {"solver": ALL, "frame": ALL, "t1": 1.0}
    run["experiment"] = {"attention": {**odd, "of": odd}, "measure": measure, "flow": flow, ALL: ALL}
    check = {"claim": ALL, "bound": 1.0, "measured": 0.5, "slack": 0.5, "holds": True, "why": ALL}
    figures = [{"name": ALL, "file": name, "caption": ALL} for name in ("figures/paths.svg", f"{HOSTILE[0]}.svg")]
    found = results(summary=ALL, outcome=ALL, fate=ALL, numbers={ALL: ALL, "outcome": ALL}, checks=[check])
    made = folder(path, run, found | {"figures": figures})
    (made / "figures" / "paths.svg").write_text(SCRIPTED)
    return write_report(made)


def hostile_model(path):
    labels = [*HOSTILE[:5], "token"]
    base = analyses.results()
    seen = [{"layer": 0, "tokens": [[word, 0.5, 2.0] for word in HOSTILE]}]
    fates = [{"layer": 0, "ending": ALL, "time": 0.5, "words": ALL}, {"layer": 1, "ending": ALL}]
    found = base | {"summary": ALL, "notes": HOSTILE, "most_seen": seen, "fates": fates, "numbers": {ALL: 1.0}}
    found |= {"model": base["model"] | {"name": ALL, "kind": ALL}, "deep": base["deep"] | {"words": ALL}}
    found |= {"input": base["input"] | {"labels": labels, "source": ALL, "kind": ALL}}
    found |= {"figures": [{"name": "ov", "file": "figures/ov.svg", "caption": ALL}]}
    name = "".join(letter for letter in ALL if letter not in "/\0")  # others are no names of files, and refused
    run = analyses.record(title=ALL, name=ALL, about=ALL, command=ALL, cites=HOSTILE, input=name, machine=ALL)
    run["experiment"] = {"model": ALL, "input": {"kind": ALL}, "dtype": ALL}
    made = analyses.folder(path, run, found)
    (made / "figures").mkdir()
    (made / "figures" / "ov.svg").write_text(SCRIPTED)
    return write_model_report(made)


def hostile_paper(path):
    path.mkdir()
    row = {"claim": ALL, "reference": ALL, "ours": ALL, "tolerance": ALL, "verdict": ALL, "why": ALL}
    item = {"id": "A2", "title": ALL, "setting": ALL, "rows": [row], "remarks": HOSTILE, "seconds": 1.0}
    item["figures"] = [{"name": ALL, "file": "a.svg", "caption": ALL}]
    (path / "a.svg").write_text(SCRIPTED)
    words = dict.fromkeys(("key", "title", "authors", "url", "bibtex", "command", "machine", "created"), ALL)
    return write_reproduction(words | {"versions": {ALL: ALL}, "seed": 0}, [item], path)


@pytest.mark.parametrize("make", [hostile_run, hostile_model, hostile_paper])
def test_no_foreign_script_runs(browser, tmp_path, make):
    seen = Seen(browser, make(tmp_path / "run"))
    assert seen.hit is None
    assert seen.refused == []  # nothing was left for the policy to refuse
    assert seen.errors == []
    assert seen.handlers == 0
    assert not seen.bidi
    assert all(url.startswith(("file:", "data:")) for url in seen.asked)
    assert all(link.startswith(("#", "https://arxiv.org/")) for link in seen.links)
    assert seen.theme in ("dark", "light")  # our own scripts do run


def test_a_title_that_is_a_folder(browser, tmp_path):
    """The name of the folder itself is shown, too."""
    made = folder(tmp_path / "<img src=x onerror=window.hit=1>", record(title=None, name=None))
    write(made / "manifest.json", {"segments": []})
    seen = Seen(browser, write_report(made))
    assert (seen.hit, seen.refused) == (None, [])


def page_with(tmp_path, words: str, policed: bool):
    """A report with these words in it as they are."""
    path = write_report(folder(tmp_path / "run", record(about="MARK"), results()))
    text = path.read_text()
    text = text.replace("<p>MARK</p>", words)
    path.write_text(text if policed else text.replace(html.escape(policy()), "").replace(policy(), ""))
    return path


def test_the_marks_are_set_without_escaping_and_without_a_policy(browser, tmp_path):
    assert Seen(browser, page_with(tmp_path, RUNS, policed=False)).hit == 1


def test_the_policy_holds_alone(browser, tmp_path):
    """Should a word ever get through unescaped: no script runs, and what is asked of a network is refused."""
    words = [word for word in HOSTILE if "refresh" not in word]  # to go elsewhere is no matter of a policy
    seen = Seen(browser, page_with(tmp_path, RUNS + " ".join(words), policed=True))
    assert seen.hit is None
    assert len(seen.refused) > 2
    assert any("127.0.0.1:9" in said for said in seen.refused)


def test_scripts_are_named_by_their_hashes(tmp_path):
    assert "unsafe-inline" not in policy().split("script-src")[1]
    assert policy().count("'sha256-") == 3
    assert "default-src 'none'" in policy()
    assert "http" not in policy()

"""The report of a model: what is in its folder is on the page, names of tokens stay names, and the map moves."""

import base64
import hashlib
import json
import re
import subprocess
from html import unescape

import pytest

from browsers import chromium
from meanformer.report.model import model_page, write_model_report
from meanformer.report.tokenmap import MOST_TOKENS, in_script, moving_map
from meanformer.store.errors import FolderError
from meanformer.store.folder import RunFolder
from report._analyses import EVIL, LABELS, band, folder, record, results
from report.test_page import Elements
from report.test_run_report import words_of


def closure_with_nulls() -> dict:
    """The closure with the mean values of its nulls; random weights have small errors, and bad ratios."""
    part = results()["closure"]
    part |= {"random_mean_only": band([0.12, 0.4]), "random_ratio": band([1.75, 0.25])}
    part |= {"matched": band([1.5, 0.6]), "matched_mean_only": band([1.0, 0.8]), "matched_ratio": band([1.5, 0.75])}
    part |= {"resampled_mean_only": band([0.8, 0.5]), "resampled_ratio": band([0.5, 0.6])}
    return part | {"tilt": [[0.2, 0.3, 0.4]] * 2}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = results(closure=closure_with_nulls())
    return write_model_report(folder(tmp_path_factory.mktemp("model") / "run", record(), found))


@pytest.fixture(scope="module")
def page(path) -> str:
    return path.read_text()


def without_figures(tmp_path, **changes) -> str:
    """The page of changed results; nothing is drawn, which takes most of the time."""
    found = results(**changes) | {"figures": [{"name": "none", "file": "none.svg", "caption": ""}]}
    return model_page(RunFolder(tmp_path), record(), found).html()


def rows_of(html: str) -> list[str]:
    return [words_of(row) for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)]


def test_what_was_found_is_told(page):
    words = words_of(page)
    for told in (
        "tiny on page.txt",
        "average cosine 0.05 → 0.35",
        "closure error 0.625",
        "closure beats the mean 50 %",
        "100 MB at most",
        "within the 0.315 to 0.385 of Gaussian tokens",
        "above the 0.158 to 0.193 of random weights",
        "with relative errors of 0.5 to 1.25 (0.75 to 1 for the mean value alone).",
        "It beats the mean value in 1 of 2 layers; in 1 it is worse than predicting nothing. The error is 0.5 to 1.67 "
        "times that of the mean value (nulls, median: 0.25 to 1.75 for random weights, 0.75 to 1.5 for random weights "
        "with logits as large, 0.5 to 0.6 for Gaussian tokens).",
        "the Gaussian flow of 1 of 2 layers blows up, at a time of 0.25 layers",
        "Repeated to 100 layers: 25 % of the pairs of tokens have a cosine above 0.99, there are 3 groups",
        "It stands still.",
        "2 positive, 2 negative and 4 zero eigenvalues. This is no fact about training",
        "after its last layer its first one follows",
        "meanformer model tiny --text page.txt",
        "model = mf.models.load(&quot;tiny&quot;, dtype=&quot;float32&quot;)",
        "hash of the settings abc123",
        "{vaswani2017,",
    ):
        assert told in words, told
    assert "numbers in the layers" not in words
    rows = rows_of(page)
    # Each error has that of the mean value beside it; then their ratios.
    assert "0 1.25 / 0.75 0.2 / 0.12 1.5 / 1 0.4 / 0.8 2 of 3" in rows
    assert "1 0.5 0.25 (0.225 to 0.275) 0.75 (0.675 to 0.825) 0.6 (0.54 to 0.66)" in rows
    assert "1 0 2 0.9 0.2 0.4 0.5 0.2" in rows  # head by head; the last is the tilt
    assert "1 2 0.6 0.75 37.5 2 1 0.5 2, 2, 4" in rows
    assert "0 0 0 1 0" in rows  # attention; the energy, of which there is no number, has no column
    assert "0 blows up 0.25 0.01 3 1" in rows
    assert "1 grows — — 0.5 2" in rows
    assert "2 0.35 2.5 2 0.3 4 900 4" in rows


def test_figures_that_the_folder_has_not_are_drawn(page, path):
    drawn = sorted(file.stem for file in (path.parent / "figures").iterdir())
    assert len(drawn) == 18
    assert page.count("data:image/svg+xml") == len(drawn)  # each of them once
    assert "is not in the folder" not in page


def test_figures_of_the_folder_are_taken_as_they_are(tmp_path):
    html = without_figures(tmp_path)
    assert "data:image" not in html
    assert not (tmp_path / "figures").exists()


def test_it_is_well_formed_and_loads_nothing(page):
    found = Elements(page)
    for tag, attributes in found.found:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:", "https://arxiv.org/"))
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|https?:|innerHTML|eval\(", found.words["script"])
    anchors = [a["id"] for _, a in found.found if "id" in a]
    assert len(anchors) == len(set(anchors)) > 10


def test_names_of_tokens_stay_names(page):
    """A token that ends a script, one that looks like a formula, one that looks like markup."""
    scripts = re.findall(r"<script[^>]*>", page)
    assert len(scripts) == 4  # of all pages, the data, the map, the sorting
    (data,) = re.findall(r'<script type="application/json" class="map-data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["labels"] == ["[CLS]", EVIL[:39] + "…", "$x$", "`y` & <b>", "⏎", "token"]
    assert not set("<>&") & set(data)
    seen = next(row for row in rows_of(page) if "50 %" in row and "12 %" in row)
    assert seen.startswith("0 &lt;/script&gt;&lt;script&gt;document.title")


def test_texts_of_others_stay_texts(tmp_path):
    bad = "<script>alert(1)</script> $x$ `y`"
    run = record(title=bad, name=bad, command=bad, experiment={"model": bad, "input": {"kind": "text"}})
    found = results(summary=bad, notes=[bad], figures=[{"name": bad, "file": "x.svg", "caption": ""}])
    found["model"] |= {"name": bad, "kind": bad}
    found["input"] |= {"source": bad}
    found["fates"][0] |= {"words": bad, "ending": bad}
    found["deep"] |= {"words": bad}
    found["numbers"] |= {"n": 1}
    html = model_page(RunFolder(tmp_path), run, found).html()
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt; $x$") >= 8


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "&lt;", 'a"b\\', "日本"])
def test_data_of_a_script_are_read_as_they_were(text):
    written = in_script({"labels": [text]})
    assert json.loads(written) == {"labels": [text]}
    assert not set("<>&\u2028\u2029") & set(written)


def test_what_was_not_found_has_no_section(tmp_path):
    gone = dict.fromkeys(("closure", "heads", "fates", "deep", "map", "attention", "most_seen", "bands"))
    html = without_figures(tmp_path, **gone, notes=["No Gaussian closure: it is causal."])
    titles = re.findall(r"<h2>(.*?)</h2>", html)
    assert titles == [
        "Result", "The model and its input", "Over depth", "All numbers", "Settings", "Do it again", "Cite",
    ]  # fmt: skip
    assert '<div class="note-box warn"><p>No Gaussian closure: it is causal.</p></div>' in html
    assert "null" not in words_of(html)


def test_an_unfinished_analysis_says_how_to_go_on(tmp_path):
    path = folder(tmp_path / "run", record(), None)
    (path / "items").mkdir()
    (path / "items" / "curves.json").write_text("{}")
    words = words_of(write_model_report(path).read_text())
    assert "not finished (1 of 3 stages are complete)" in words
    assert f"meanformer resume {path}" in words
    assert "tokens" not in words.split("Do it again")[0]


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(FolderError, match="holds no run"):
        write_model_report(tmp_path)


def test_numbers_of_a_chaotic_map_are_called_one_draw(tmp_path):
    deep = results()["deep"]
    far = words_of(without_figures(tmp_path, deep=deep | {"apart": [1e-6, 0.2, 0.9]}))
    near = words_of(without_figures(tmp_path, deep=deep | {"apart": [1e-6, 1e-5, 1e-5]}))
    assert "3 groups of near tokens, the effective rank is 2. This is one draw of a chaotic map" in far
    assert "one draw" not in near


def test_most_seen_beside_uniform_attention(tmp_path):
    found = results()
    seen = [{"layer": 0, "tokens": [["a", 0.5, 3.0], ["b", 0.25, 0.5]]}]
    words = words_of(without_figures(tmp_path, most_seen=seen))
    assert "a 50 % (3 ×) b 25 % (0.5 ×)" in words
    assert "if each token saw all alike:" in words
    masked = without_figures(tmp_path, most_seen=seen, model=found["model"] | {"causal": True})
    assert "under a mask the first ones get more in any case" in words_of(masked)
    old = words_of(without_figures(tmp_path))
    assert "the share of all attention of the layer that they get:" in old


def test_the_plane_of_the_map_is_that_of_the_model(tmp_path):
    map_, model = results()["map"], results()["model"]
    deep = {"layers": [50], "points": [map_["points"][2]], "explained": [0.5]}
    words = {
        tied: words_of(without_figures(tmp_path, map=map_ | {"deep": deep}, model=model | {"tied": tied}))
        for tied in (False, True)
    }
    assert "depths beyond are only seen on it" in words[False]
    assert "of all of them together" in words[True]


def test_layers_of_a_model_that_normalises_first(tmp_path):
    found = results()
    words = words_of(without_figures(tmp_path, model=found["model"] | {"pre": True, "tied": True, "causal": True}))
    assert "on normalised tokens" in words
    assert "at a time of 0.25 in the frame of the normalised tokens, which is not in layers" in words
    assert "A time of 1 is one layer" not in words
    assert "all with the same weights: depth is time" in words
    assert "those before it, and itself" in words
    assert "for each token, those of the tokens that it sees" in words
    assert "the same map again and again" in words


@pytest.mark.parametrize(
    "kind, told", [("image", "image=&quot;"), ("tokens", "tokens=np.load("), ("text", ".read_text(), cut=True")]
)
def test_how_to_have_the_tokens_in_python(tmp_path, kind, told):
    run = record(experiment={"model": "tiny", "input": {"kind": kind}, "dtype": "float64"}, input="input.x")
    html = model_page(RunFolder(tmp_path), run, None).html()
    assert told in html
    assert f"{tmp_path.as_posix()}/input.x" in html
    assert "dtype=&quot;float64&quot;" in html


def test_a_text_that_was_not_to_be_cut_is_not_cut_in_python(tmp_path):
    run = record(experiment={"model": "tiny", "input": {"kind": "text"}, "cut": False})
    html = model_page(RunFolder(tmp_path), run, None).html()
    assert ".read_text(), cut=False)" in html


# The map that moves


def data_of(**changes) -> dict:
    markup = moving_map(results(**changes))
    return json.loads(re.search(r'class="map-data">(.*?)</script>', markup, re.DOTALL)[1])


def test_the_map_has_the_points_of_the_results():
    data = data_of()
    points = results()["map"]["points"]
    assert data["points"][1] == [round(1000 * x) for token in points[1] for x in token]
    assert data["explained"] == ["10", "25", "50"]
    assert data["names"] == ["before the first layer", "after 1 layer", "after the last layer"]
    assert sorted(data["order"]) == list(range(len(LABELS)))
    assert len(data["light"]) == len(data["dark"]) == len(LABELS)
    assert moving_map(results(map=None)) is None


def test_depths_beyond_the_model_come_after_it():
    map_ = results()["map"]
    there = {"layers": [1, 50], "points": [map_["points"][0], map_["points"][2]]}
    data = data_of(map=map_ | {"deep": there})
    assert data["names"][-1] == "after 50 layers, beyond the model"
    assert len(data["points"]) == 4  # layer 1 is in the model
    assert data["explained"] is None  # the shares of the others are not known
    shares = data_of(map=map_ | {"deep": there | {"explained": [0.2, 0.75]}})["explained"]
    assert shares == ["10", "25", "50", "75"]


def test_tokens_without_weight_and_patches(tmp_path):
    given = results()["input"]
    data = data_of(input=given | {"weights": [0.25] * 4 + [0, 0], "grid": [1, 5]})
    assert data["hollow"] == [4, 5]
    assert data["grid"] == [1, 5]
    words = words_of(without_figures(tmp_path, input=given | {"weights": [0.25] * 4 + [0, 0]}))
    assert "Rings are tokens of weight 0" in words


def test_very_many_tokens_are_thinned_out():
    n = 2 * MOST_TOKENS
    points = [[[k / n, 0.0] for k in range(n)]] * 2
    given = results()["input"] | {"n": n, "labels": [str(k) for k in range(n)]}
    data = data_of(map={"points": points, "explained": [1.0, 1.0], "deep": None}, input=given)
    assert len(data["labels"]) == MOST_TOKENS
    assert data["numbers"][-1] == n - 1
    assert data["labels"] == [str(k) for k in data["numbers"]]


# In a browser

PROBE = """<script>
addEventListener("load", () => {
  const box = document.querySelector(".tokenmap"), part = name => box.querySelector("." + name), told = [];
  const canvas = part("map-canvas"), area = canvas.getBoundingClientRect();
  const note = () => told.push([part("map-layer").value, part("map-where").textContent, part("map-told").textContent,
    [...box.querySelectorAll(".chip.on")].map(chip => chip.textContent).join()]);
  const at = (x, y, kind) => canvas.dispatchEvent(new PointerEvent(kind, { clientX: x, clientY: y, bubbles: true }));
  note();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  note();
  const data = JSON.parse(part("map-data").textContent), [left, bottom, right, top] = data.box;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight], scale = Math.min(w / (right - left), h / (top - bottom));
  const inside = (x, most) => Math.min(Math.max(x, 5), most - 5);
  const seen = data.labels.map((_, i) => {
    const x = w / 2 + scale * (data.points[2][2 * i] - (left + right) / 2);
    const y = h / 2 - scale * (data.points[2][2 * i + 1] - (bottom + top) / 2);
    at(area.left + inside(x, w) + 1, area.top + inside(y, h) + 1, "pointermove");  // the frame is 1 pixel wide
    return box.querySelector(".chip.on")?.dataset.token;
  });
  at(0, 0, "pointerleave");
  note();
  part("map-find").value = "TOKEN";
  part("map-find").dispatchEvent(new Event("input"));
  note();
  const hits = [...box.querySelectorAll(".chip.hit")].map(chip => chip.textContent);
  part("map-layer").value = 1;
  part("map-layer").dispatchEvent(new Event("input"));
  const table = document.querySelector(".sortable table"), heading = table.querySelectorAll("th button")[2];
  heading.click();
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[2].textContent);
  const up = column();
  heading.click();
  const down = column();
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const finish = waited => {
    const there = part("map-where").textContent.startsWith("after 1 ");
    if (waited < 30 && !there) return setTimeout(finish, 100, waited + 1);
    note();
    const found = { told, seen, hits, up, down, title: document.title, hidden: box.hidden,
      painted: pixels.some(x => x > 0), width: document.documentElement.scrollWidth };
    document.body.innerHTML = "";
    document.body.textContent = "FOUND" + JSON.stringify(found) + "END";
  };
  finish(0);
});
</script></body>"""


def test_the_map_moves_and_tells_names(tmp_path, page):
    """Layer and token by the address; pointing, searching, the slider; sorting; and no wider than a phone."""
    browser = chromium()
    file = tmp_path / "page.html"
    # The policy of the page allows our scripts alone: this one has to be named, too.
    digest = base64.b64encode(hashlib.sha256(PROBE.split("script>")[1][:-2].encode()).digest()).decode()
    file.write_text(page.replace("script-src ", f"script-src 'sha256-{digest}' ").replace("</body>", PROBE))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    options += ["--window-size=500,900", "--virtual-time-budget=8000", "--force-prefers-reduced-motion"]
    address = f"{file.as_uri()}#layer=2&token=5"
    done = subprocess.run([browser, *options, address], capture_output=True, text=True, timeout=400, check=True)
    found = json.loads(unescape(re.search(r"FOUND(.*)END", done.stdout)[1]))
    assert found["title"] == "tiny on page.txt"  # no token has changed it
    assert not found["hidden"]
    assert found["painted"]
    asked, escaped, left, searched, moved = found["told"]
    assert asked[:2] == ["2", "after the last layer; the plane shows 50 % of the variance"]
    assert asked[2].startswith("token 5: token.")
    assert asked[3] == "token"
    assert escaped[3] == left[3] == ""
    assert found["seen"] == [str(k) for k in range(len(LABELS))]  # each is where it should be
    assert searched[2] == "1 of 6 tokens have this in their names"
    assert found["hits"] == ["token"]
    assert moved[:2] == ["1", "after 1 layer; the plane shows 25 % of the variance"]
    assert found["up"] == ["0.1", "0.25", "0.5", "0.75", "1.5", "2"]
    assert found["down"] == found["up"][::-1]
    assert found["width"] <= 500

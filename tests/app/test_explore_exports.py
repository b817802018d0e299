"""What leaves the page and comes back: experiment file, link, picture, film, numbers, run folders."""

import csv
import io
import json

import numpy as np
import pytest
from _pages import ran
from browser import small, tokens, visit
from PIL import Image
from playwright.sync_api import expect


def rotated() -> dict:
    """An experiment whose numbers are not round, with weights and another attention than the first one."""
    attention = {"kind": "l2", "Q": [[0.7, 0.1], [-0.3, 1]], "K": [[1, 0.2], [0, 0.5]], "V": [[0.3, 0.9], [-0.9, 0.3]]}
    return small(attention=attention | {"tau": 1.7}, measure={"weighting": "zipf"}, seed=11)


def timeless(numbers: dict) -> dict:
    """What a run found, without how long it took."""
    assert numbers["seconds"] > 0
    return {name: value for name, value in numbers.items() if name != "seconds"}


def export(view, name: str):
    """Choose an item of the Export menu, and what is then saved."""
    view.page.get_by_test_id("export").click()
    with view.page.expect_download() as saved:
        view.page.get_by_test_id(f"export-{name}").click()
    return saved.value


@pytest.fixture(scope="module")
def run_again(server, browser, tmp_path_factory):
    """The exported experiment file, what the page showed, and the run folder that `meanformer run` makes of it."""

    with visit(browser, server) as opened:
        view = opened(tokens(server, rotated()))
        shown = view.ran()
        saved = export(view, "toml")
        assert saved.suggested_filename == "meanformer-l2-n16.toml"
        file = tmp_path_factory.mktemp("exported") / saved.suggested_filename
        saved.save_as(file)
        expect(view.page.locator("#status")).to_contain_text("meanformer run meanformer-l2-n16.toml")
        points = view.points(-1)
    return file, shown, points, ran(file, server.folder / "runs" / "exported")


def test_the_experiment_file_gives_the_same_numbers(run_again):
    _, shown, _, folder = run_again
    found = json.loads((folder / "results.json").read_text())
    assert len(shown["numbers"]) > 8
    assert timeless(found["numbers"]) == timeless(shown["numbers"])  # to the last digit


def test_a_run_folder_is_replayed(opened, server, run_again):
    _, shown, points, _ = run_again
    view = opened(tokens(server))
    view.ran()
    view.page.get_by_test_id("open").click()
    view.page.get_by_test_id("open-run").click()
    view.page.get_by_test_id("run-exported").click()
    expect(view.find("leave-replay")).to_be_visible()
    view.until("() => window.meanformer.runner.asked?.message.do === 'replay'")
    assert view.ran()["outcome"]["words"] == shown["outcome"]["words"]
    assert view.points(-1) == points
    # A replay shows a run as it was.
    assert view.ask("() => document.querySelector('#view-tokens .form').inert")
    view.page.get_by_test_id("export").click()
    expect(view.page.get_by_test_id("export-toml")).to_have_attribute("aria-disabled", "true")
    view.page.keyboard.press("Escape")
    view.find("leave-replay").click()
    view.until("() => window.meanformer.runner.asked?.message.do === 'run'")
    view.ran()
    assert view.points(-1) != points


def test_an_experiment_file_is_opened(opened, server, run_again):
    file, shown, _, _ = run_again
    view = opened(tokens(server))
    view.ran()
    view.page.get_by_test_id("open").click()
    view.page.get_by_test_id("open-toml").click()
    view.page.get_by_test_id("open-file").set_input_files(file)
    view.until("() => window.meanformer.getState().tokens.experiment.attention.kind === 'l2'")
    assert timeless(view.ran()["numbers"]) == timeless(shown["numbers"])
    expect(view.find("kind")).to_have_value("l2")


def test_a_bad_experiment_file_is_refused_in_words(opened, server):
    view = opened(tokens(server))
    view.ran()
    view.page.get_by_test_id("open").click()
    view.page.get_by_test_id("open-toml").click()
    dialog = view.page.locator("dialog[open]")
    for text, words in (
        ("this is no TOML", "TOML"),
        ('[attention]\nkind = "softmax"\nfile = "/etc/passwd"\n', "reads no files"),
    ):
        view.page.get_by_test_id("open-text").fill(text)
        view.page.get_by_test_id("open-go").click()
        expect(dialog.locator(".error")).to_contain_text(words)
        assert "Traceback" not in dialog.text_content()
    view.page.keyboard.press("Escape")
    assert view.experiment() == small()


def test_a_link_opens_the_same_state(browser, server, opened):
    view = opened(tokens(server, rotated(), colour="plain", hull=True))
    view.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.address)
    view.ran()
    view.choose("kind", "softmax")
    view.type("cell-V-0-0", "0.125")
    view.ran()
    view.page.get_by_test_id("export").click()
    view.page.get_by_test_id("export-link").click()
    expect(view.page.locator("#status")).to_contain_text("copied")
    address = view.ask("() => navigator.clipboard.readText()")
    assert address.startswith(f"{server.address}/#")
    assert server.entered.place.strip("/") not in address  # it lets nobody in
    other = opened(address)
    other.page.get_by_role("button", name="Go on to the explorer").click()
    other.ran()
    state = "() => window.meanformer.getState()"
    assert other.ask(state) == view.ask(state)
    assert other.points(-1) == view.points(-1)
    expect(other.find("cell-V-0-0")).to_have_value("0.125")
    # The address line holds it too: reloading loses nothing.
    view.until("(text) => location.hash === text", f"#{address.partition('#')[2]}")
    view.page.reload()
    view.ran()
    assert view.ask(state) == other.ask(state)


def test_a_damaged_link_is_told(opened, server):
    view = opened(f"{server.home}#bm90IGpzb24")
    expect(view.page.locator("#alert")).to_be_visible()
    expect(view.page.locator("#alert")).to_contain_text("This link is damaged")
    view.until("() => window.meanformer.getState().tokens.experiment.measure.n === 300")


def test_a_picture_is_saved(opened, server):
    view = opened(tokens(server))
    view.ran()
    saved = export(view, "png")
    assert saved.suggested_filename == "meanformer-softmax-n16.png"
    with Image.open(saved.path()) as image:
        picture = np.asarray(image.convert("RGB")).astype(int)
    stage = view.find("stage").bounding_box()
    assert picture.shape[1] >= stage["width"]
    assert picture.shape[0] >= stage["height"]
    # The tokens are in it: a canvas of WebGL that is read too late is empty.
    assert (picture.max(-1) - picture.min(-1) > 60).sum() > 300


def test_a_film_is_saved(opened, server):
    view = opened(tokens(server))
    view.ran()
    view.find("scrub").fill("3")
    with Image.open(export(view, "gif").path()) as film:
        assert film.format == "GIF"
        assert film.n_frames == 11
        assert film.size[0] <= 720
        frames = []
        for k in (0, 10):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB")).astype(int))
    assert np.abs(frames[1] - frames[0]).max() > 60
    # The page is where it was.
    expect(view.find("time")).to_have_text("t = 0.30 of 1")


def test_numbers_are_saved(opened, server):
    view = opened(tokens(server, small(measure={"weighting": "random"})))
    ended = view.ran()
    text = export(view, "csv").path().read_text()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0][:5] == ["time", "token", "x1", "x2", "weight"]
    assert len(rows) - 1 == ended["count"] * ended["n"] == 11 * 16
    last = [[float(x) for x in row[2:4]] for row in rows[-16:]]
    assert last == view.points(-1)  # every digit
    assert {float(row[0]) for row in rows[-16:]} == {1.0}
    assert sum(float(row[4]) for row in rows[-16:]) == pytest.approx(1)
    assert len({row[4] for row in rows[-16:]}) == 16

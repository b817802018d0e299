"""The Tokens view in a real browser: what a reader does, and what is then seen."""

import re

import numpy as np
import pytest
from browser import coloured, pixels, small, tokens, visit
from playwright.sync_api import expect

FIVE = [[-2.0, -1.0], [2.0, -1.0], [1.5, 1.5], [-1.0, 1.5], [0.0, 0.0]]


def five() -> dict:
    """Five tokens that a pointer can tell apart."""
    return small(measure=None) | {"measure": {"kind": "points", "points": FIVE}}


def radius(view) -> float:
    """The radius of the last frame."""
    return float(np.linalg.norm(view.points(-1), axis=-1).max())


def place_of(view, token: int) -> list[float]:
    """Where a token is on the page, in pixels."""
    return view.ask(
        """(i) => {
          const { stage } = window.meanformer;
          const box = stage.node.getBoundingClientRect();
          const [x, y] = stage.camera.projector()(...stage.position(i));
          return [box.left + x, box.top + y];
        }""",
        token,
    )


def test_it_loads_and_draws_tokens(opened):
    view = opened()
    assert view.ran()["n"] == 300
    expect(view.find("outcome")).to_have_text("Reached t = 6.")
    expect(view.find("clusters")).to_contain_text("cluster")
    expect(view.page.locator("#connection")).to_have_text("Connected")
    expect(view.page.locator("#status")).to_contain_text("101 frames")
    # 300 discs of some pixels each; before the run there is only the grey of the axes.
    assert coloured(view.find("stage")) > 3000
    expect(view.find("chart-energy")).to_contain_text("E_0")
    view.ask("() => window.meanformer.player.seek(1e9)")
    expect(view.find("chart-energy").locator(".chart-reading")).to_have_text("E above 1e308")  # not just "infinite"
    for name in ("radius", "clusters", "rank", "energy"):
        assert coloured(view.find(f"chart-{name}")) > 20


def test_it_plays(browser, server):
    """By itself, unless the reader prefers less motion; then by the button."""
    with visit(browser, server, reduced_motion="no-preference") as opened:
        view = opened(tokens(server, small(flow={"t1": 2})))
        expect(view.find("play")).to_have_attribute("aria-label", "Pause")
        expect(view.find("time")).to_have_text("t = 2.00 of 2")
        expect(view.find("play")).to_have_attribute("aria-label", "Play")
        view.find("speed").select_option("0.25")
        view.find("play").click()
        view.until("() => { const { player } = window.meanformer; return player.playing && player.place > 1; }")
        view.find("play").click()
        early, first = view.find("time").text_content(), pixels(view.find("stage"))
        assert "t = 2.00" not in early
        view.find("play").click()
        view.until("() => window.meanformer.player.place > 3")
        view.find("play").click()
        assert view.find("time").text_content() > early
        assert np.abs(pixels(view.find("stage")) - first).max() > 60


def test_it_scrubs(opened, server):
    view = opened(tokens(server))
    view.ran()
    expect(view.find("time")).to_have_text("t = 0.00 of 1")  # less motion is preferred: nothing has played
    first = pixels(view.find("stage"))
    view.find("scrub").fill("5")
    expect(view.find("time")).to_have_text("t = 0.50 of 1")
    view.find("step-forward").click()
    expect(view.find("time")).to_have_text("t = 0.60 of 1")
    view.find("scrub").press("End")
    expect(view.find("time")).to_have_text("t = 1.00 of 1")
    assert np.abs(pixels(view.find("stage")) - first).max() > 60
    view.find("scrub").press("Home")
    expect(view.find("time")).to_have_text("t = 0.00 of 1")


def test_another_kind_is_another_run(opened, server):
    view = opened(tokens(server))
    view.ran()
    before, formula = radius(view), view.find("formula").text_content()
    view.choose("kind", "l2")
    view.ran()
    assert view.experiment()["attention"]["kind"] == "l2"
    assert view.find("formula").text_content() != formula
    assert abs(radius(view) - before) > 0.01
    expect(view.find("outcome")).to_have_text("Reached t = 1.")


def test_a_cell_of_a_matrix_is_edited(opened, server):
    view = opened(tokens(server))
    view.ran()
    before = radius(view)
    view.type("cell-V-0-0", "-2")
    view.ran()
    assert view.experiment()["attention"]["V"] == [[-2, 0], [0, 1]]
    assert radius(view) < before - 0.1
    expect(view.find("eigenvalues")).to_contain_text("indefinite")
    view.type("cell-V-0-1", "1/4")
    view.ran()
    assert view.experiment()["attention"]["V"] == [[-2, 0.25], [0, 1]]


def test_a_matrix_is_changed_as_a_whole(opened, server):
    """By its eigenvalues, and by the buttons; the numbers in the cells follow."""
    view = opened(tokens(server))
    view.type("eigenvalue-0", "-3")
    view.ran()
    assert sorted(view.experiment()["attention"]["V"][k][k] for k in range(2)) == [-3, 1]
    view.find("matrix-random").click()
    view.find("matrix-symmetric").click()
    view.ran()
    ((_, b), (c, _)) = V = view.experiment()["attention"]["V"]
    assert b == c
    assert b != 0
    assert float(view.find("cell-V-0-1").input_value()) == pytest.approx(V[0][1], abs=1e-6)
    view.find("choose-Q").click()
    view.find("matrix-zero").click()
    view.ran()
    assert view.experiment()["attention"]["Q"] == [[0, 0], [0, 0]]
    expect(view.find("cell-Q-0-0")).to_have_value("0")


def test_what_is_no_number_is_told_beside_its_cell(opened, server):
    view = opened(tokens(server))
    view.ran()
    cell = view.find("cell-V-0-0")
    cell.fill("abc")
    expect(cell).to_have_attribute("aria-invalid", "true")
    words = view.page.locator(f"#{cell.get_attribute('aria-describedby')}")
    expect(words).to_be_visible()
    expect(words).to_contain_text("“abc” is not a number")
    expect(words).to_contain_text("1 stays in force")
    assert view.experiment() == small()
    cell.press("Escape")
    expect(cell).to_have_value("1")
    expect(words).to_be_hidden()


def test_a_refusal_of_the_server_is_told_where_it_belongs(opened, server):
    view = opened(tokens(server))
    view.ran()
    view.choose("law", "normal")
    view.ran()
    cell = view.find("cell-covariance-0-0")
    cell.press_sequentially("-1")  # the focus has selected what was there
    words = view.page.locator("[data-path='measure.cov'] .error")
    expect(words).to_be_visible()
    cell.press("Tab")  # to leave the field settles nothing
    view.page.wait_for_timeout(100)
    expect(words).to_be_visible()
    expect(words).to_contain_text("positive")
    expect(view.find("outcome")).to_contain_text("cannot be run")
    view.type("cell-covariance-0-0", "1")
    view.ran()
    expect(words).to_be_hidden()


def test_a_token_is_dragged(opened, server):
    view = opened(tokens(server, five()))
    view.ran()
    before = view.points(-1)
    (x, y), (far, _) = place_of(view, 2), place_of(view, 0)
    scale = (x - far) / (FIVE[2][0] - FIVE[0][0])  # pixels for one unit
    mouse = view.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x - 20, y + 20, steps=3)
    mouse.move(x - 60, y + 45, steps=3)
    mouse.up()
    view.ran()
    wanted = [FIVE[2][0] - 60 / scale, FIVE[2][1] - 45 / scale]
    assert view.points(0)[2] == pytest.approx(wanted, abs=1.5 / scale)
    assert view.points(0)[2] == view.experiment()["measure"]["points"][2]
    for k in (0, 1, 3, 4):
        assert view.points(0)[k] == pytest.approx(FIVE[k])
    # The others feel it.
    assert np.abs(np.subtract(view.points(-1), before))[[0, 1, 3, 4]].min() > 1e-6
    # Where it was dropped, it is found.
    view.page.mouse.move(1, 1)
    view.page.mouse.move(*place_of(view, 2))
    expect(view.page.locator(".readout")).to_contain_text("Token 3")


def test_a_token_is_moved_by_keys(opened, server):
    view = opened(tokens(server, five()))
    view.ran()
    view.find("stage").focus()
    view.page.keyboard.press("]")
    expect(view.page.locator(".readout")).to_contain_text("Token 1: (−2, −1)")
    view.page.keyboard.press("Shift+ArrowRight")
    view.page.keyboard.press("Shift+ArrowUp")
    view.ran()
    moved = view.points(0)[0]
    assert moved[0] > -2
    assert moved[1] > -1
    assert view.points(0)[1] == FIVE[1]


def test_tokens_move_only_at_the_start(opened, server):
    view = opened(tokens(server, five()))
    view.ran()
    view.find("scrub").press("End")
    expect(view.find("time")).to_have_text("t = 1.00 of 1")
    x, y = place_of(view, 4)
    view.page.mouse.move(x, y)
    view.page.mouse.down()
    view.page.mouse.move(x + 50, y)
    view.page.mouse.up()
    expect(view.page.locator("#status")).to_contain_text("at the start")
    assert view.experiment()["measure"]["points"] == FIVE


def test_blow_up_is_told_in_words(opened, server):
    view = opened(tokens(server))
    view.preset("unnormalised-blowup")
    ended = view.ran()
    assert not ended["outcome"]["ok"]
    assert ended["outcome"]["time"] == pytest.approx(0.148, abs=2e-3)  # as the words of the preset say
    expect(view.find("outcome")).to_contain_text(re.compile(r"bl[eo]w.{0,3}up.* t = 0\.14", re.IGNORECASE))
    assert 1 < ended["count"] < 101


@pytest.mark.parametrize("name, d", [("leaders", 1), ("polytope", 3)])
def test_presets_of_other_dimensions(opened, server, name, d):
    view = opened(tokens(server))
    view.preset(name)
    assert view.ran()["d"] == d
    expect(view.find("preset")).to_have_value(name)
    expect(view.find("d")).to_have_value(str(d))
    assert coloured(view.find("stage")) > 300
    assert view.find("matrix-V").locator("input").count() == d * d
    # A change makes it a setting of one's own; three dimensions are turned by dragging the background.
    if d == 3:
        box, first = view.find("stage").bounding_box(), pixels(view.find("stage"))
        view.page.mouse.move(box["x"] + 12, box["y"] + box["height"] - 12)
        view.page.mouse.down()
        view.page.mouse.move(box["x"] + 112, box["y"] + box["height"] - 52, steps=2)
        view.page.mouse.up()
        view.page.mouse.move(1, 1)
        assert np.abs(pixels(view.find("stage")) - first).max() > 60
    view.type("seed", "77")
    view.ran()
    expect(view.find("preset")).to_have_value("")


def test_five_thousand_tokens(opened, server):
    view = opened(tokens(server, small(flow={"t1": 0.05}, save={"times": 3})))
    view.ran()
    few = coloured(view.find("stage"))
    view.type("n", "5000")
    ended = view.ran()
    assert ended["n"] == 5000
    expect(view.page.locator("#status")).to_contain_text("5,000")
    assert coloured(view.find("stage")) > 5 * few


def test_heads_mask_and_layers(opened, server):
    view = opened(tokens(server))
    plain = view.ran() and view.points(-1)
    view.pick("heads-2")
    view.ran()
    assert len(view.experiment()["attention"]["heads"]) == 2
    view.find("head-1").click()
    view.type("cell-V-1-1", "-1")
    view.ran()
    assert [head["V"][1][1] for head in view.experiment()["attention"]["heads"]].count(-1) == 1
    two = view.points(-1)
    assert np.abs(np.subtract(two, plain)).max() > 0.01
    view.pick("heads-1")
    view.find("mask").check()
    view.ran()
    assert view.experiment()["attention"]["kind"] == "causal"
    masked = view.points(-1)
    assert np.abs(np.subtract(masked, plain)).max() > 0.01
    view.find("mask").uncheck()
    view.pick("dynamics-layers")
    view.type("depth", "7")
    ended = view.ran()
    assert ended["count"] == 8
    expect(view.find("time")).to_have_text("layer 0 of 7")
    view.find("step-forward").click()
    expect(view.find("time")).to_have_text("layer 1 of 7")


def test_what_the_picture_shows(opened, server):
    """Colours and overlays change the picture, not the run; attention received asks for more."""
    view = opened(tokens(server, colour="plain", hull=False, bound=False, paths=False, starts=False))
    view.ran()
    seen = [pixels(view.find("stage"))]
    for name in ("hull", "bound", "starts"):
        view.find(f"show-{name}").check()
        view.until("(name) => window.meanformer.stage.display[name]", name)
        view.page.wait_for_timeout(50)
        seen.append(pixels(view.find("stage")))
        assert np.abs(seen[-1] - seen[-2]).max() > 20, name
    view.choose("colour", "received")
    view.ran()
    view.until("() => window.meanformer.runner.recording.receivedAt(0)")
    expect(view.page.locator(".tokens-legend:visible")).to_contain_text("attention")
    assert np.abs(pixels(view.find("stage")) - seen[-1]).max() > 20


def test_a_newer_change_wins_and_a_run_can_be_cancelled(opened, server):
    view = opened(tokens(server))
    view.ran()
    long = small(flow={"t1": 2000, "solver": "euler", "step": 0.01})
    view.ask("(experiment) => window.meanformer.update(['tokens', 'experiment'], experiment)", long)
    view.find("cancel").click()
    expect(view.page.locator("#status")).to_contain_text("Cancelled")
    expect(view.find("cancel")).to_be_hidden()
    # Many changes at once: only the last counts.
    for t1 in (2, 3, 4):
        view.ask(
            "(experiment) => window.meanformer.update(['tokens', 'experiment'], experiment)", small(flow={"t1": t1})
        )
    view.ran()
    expect(view.find("time")).to_contain_text("of 4")

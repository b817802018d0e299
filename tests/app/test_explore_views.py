"""The Gaussian, Side by side and Density views in a real browser."""

import json
import re

import numpy as np
import pytest
from _pages import ran
from browser import coloured, link, pixels, small
from playwright.sync_api import expect

from browsers import PATIENCE

IDENTITY = [[1, 0], [0, 1]]


def gaussian(V: list, **attention) -> dict:
    return {
        "attention": {"kind": "softmax", "Q": IDENTITY, "K": IDENTITY, "V": V, "tau": 1} | attention,
        "measure": {"kind": "gaussian", "d": 2, "cov": IDENTITY},
        "flow": {"t1": "inf"},
    }


def gaussians(server, experiment: dict, starts: list) -> str:
    return link(server, view="gaussian", gaussian={"experiment": experiment, "starts": starts})


def wait_for_fates(view, count: int) -> list[str]:
    """The rows of the table, when all have their fate."""
    rows = view.find("fates-table").locator("tbody tr")
    expect(rows).to_have_count(count)
    for k in range(count):
        expect(rows.nth(k)).not_to_contain_text("…")
    return [re.sub(r"\s+", " ", row.inner_text()) for row in rows.all()]


def test_a_click_adds_a_start_and_its_fate_is_told(opened, server):
    view = opened(gaussians(server, gaussian(IDENTITY), [[[0.5, 0], [0, 0.5]]]))
    (row,) = wait_for_fates(view, 1)
    # V = A = 1: each variance obeys s' = 2 s^2, so 1/2 blows up at t = 1.
    assert "t* = 1" in row
    disc = view.find("disc")
    box = disc.bounding_box()
    scale = min(box["width"], box["height"]) / 2 / 1.22
    x, y = 0.5, 0.25  # a - b and 2c over the trace
    disc.click(position={"x": box["width"] / 2 + scale * x, "y": box["height"] / 2 - scale * y})
    rows = wait_for_fates(view, 2)
    assert "t* = " in rows[1]
    start = view.ask("() => window.meanformer.getState().gaussian.starts[1]")
    assert start == [pytest.approx([0.75, 0.125], abs=0.02), pytest.approx([0.125, 0.25], abs=0.02)]
    # The largest variance decides: 1 / (2 * 0.75...).
    expect(view.find("fate")).to_contain_text("Start 2 blows up at t* = ")
    shown = float(re.search(r"t\* = ([\d.]+)", view.find("fate").text_content())[1])
    assert shown == pytest.approx(1 / (2 * np.linalg.eigvalsh(start)[-1]), rel=1e-3)
    for name in ("disc", "cone", "ellipses", "spectrum"):
        assert coloured(view.find(name)) > 50, name
    view.find("starts-remove").click()
    wait_for_fates(view, 1)


def test_ranks_are_told(opened, server):
    """V = -1 with A = 1 sends each direction to 0; A of rank one leaves the other direction as it is."""
    start = [[0.5, 0.1], [0.1, 0.5]]
    view = opened(gaussians(server, gaussian([[-1, 0], [0, -1]]), [start]))
    (row,) = wait_for_fates(view, 1)
    assert "rank 0" in row
    view.find("cell-Q-1-1").fill("0")
    view.until("() => window.meanformer.getState().gaussian.experiment.attention.Q[1][1] === 0")
    expect(view.find("fates-table")).to_contain_text("rank 1")


def test_starts_by_keys(opened, server):
    view = opened(gaussians(server, gaussian([[-1, 0], [0, -1]]), []))
    expect(view.find("fate")).to_contain_text("No start")
    view.find("disc").focus()
    view.page.keyboard.press("Enter")
    (row,) = wait_for_fates(view, 1)
    assert "0.5, 0, 0.5" in row
    view.page.keyboard.press("ArrowRight")
    expect(view.find("fates-table")).not_to_contain_text("0.5, 0, 0.5")
    wait_for_fates(view, 1)
    assert view.ask("() => window.meanformer.getState().gaussian.starts[0][0][0]") > 0.5001
    view.page.keyboard.press("Delete")
    expect(view.find("fates-table").locator("tbody tr")).to_have_count(0)


def test_the_exported_gaussian_runs_to_the_same_fate(opened, server, tmp_path):
    view = opened(gaussians(server, gaussian([[-1, 0.5], [0, -0.7]]), [[[0.6, 0.1], [0.1, 0.4]]]))
    (row,) = wait_for_fates(view, 1)
    view.page.get_by_test_id("export").click()
    with view.page.expect_download() as saved:
        view.page.get_by_test_id("export-toml").click()
    saved.value.save_as(tmp_path / "gaussian.toml")
    results = json.loads((ran(tmp_path / "gaussian.toml", tmp_path / "run") / "results.json").read_text())
    assert results["numbers"]["fate"] == "CONVERGED"
    assert results["numbers"]["rank"] == 0
    assert "converges to rank 0" in row


def test_six_kinds_side_by_side(opened, server):
    kinds = ["softmax", "l2", "sinkhorn", "sigmoid", "linear", "unnormalised"]
    view = opened(link(server, view="sides", sides={"experiment": small(flow={"t1": 0.5}), "kinds": kinds}))
    expect(view.page.locator("#status")).to_have_text("6 runs from the same start.", timeout=1000 * PATIENCE)
    runs = "() => window.meanformer.sides.panels.map(({ kind, recording }) => [kind, ...recording.exact.at(-1)])"
    starts = "() => window.meanformer.sides.panels.map(({ recording }) => [...recording.exact[0]])"
    ends, first = view.ask(runs), view.ask(starts)
    assert [end[0] for end in ends] == kinds
    assert len({tuple(end[1:]) for end in ends}) == 6
    assert all(start == first[0] for start in first)
    panels = view.page.locator("#view-sides .sides-grid > :visible")
    expect(panels).to_have_count(6)
    for k in range(6):
        assert coloured(panels.nth(k)) > 300
    # One kind less, and a seventh is offered again.
    expect(view.find("kind-hardmax")).to_be_disabled()
    view.find("kind-linear").uncheck()
    expect(panels).to_have_count(5)
    expect(view.find("kind-hardmax")).to_be_enabled()
    # The time is one for all.
    before = pixels(panels.nth(0)), pixels(panels.nth(1))
    view.find("scrub").press("End")
    expect(view.find("time")).to_contain_text("t = 0.50")
    for k in range(2):
        assert np.abs(pixels(panels.nth(k)) - before[k]).max() > 60


def density(**tables) -> dict:
    experiment = {
        "attention": {"kind": "l2", "Q": [[0.7]], "K": [[0.7]], "V": [[1.0]], "tau": 1},
        "measure": {"kind": "density", "cells": 60, "of": {"kind": "gaussian", "d": 1, "mean": [0], "cov": [[0.5]]}},
        "flow": {"t1": 0.3},
        "save": {"times": 7},
    }
    return experiment | tables


def test_a_density_moves(opened, server):
    view = opened(link(server, view="density", density={"experiment": density()}))
    expect(view.find("density-outcome")).to_contain_text("t = 0.3")
    expect(view.page.locator("#status")).to_contain_text(re.compile(r"7 frames of \d+ cells"))
    assert coloured(view.find("density-map")) > 2000
    first = pixels(view.find("density-curve"))
    view.find("scrub").press("End")
    expect(view.find("time")).to_contain_text("t = 0.30")
    assert np.abs(pixels(view.find("density-curve")) - first).max() > 60
    view.type("cell-V-0-0", "-1")
    view.until("() => window.meanformer.getState().density.experiment.attention.V[0][0] === -1")
    expect(view.find("density-outcome")).to_contain_text("t = 0.3")
    before = view.page.locator("#status").text_content()
    view.type("cells", "90")
    expect(view.page.locator("#status")).to_contain_text(re.compile(r"7 frames of \d+ cells"))
    expect(view.page.locator("#status")).not_to_have_text(before)


def test_views_keep_what_they_show(opened, server):
    """A reader who turns to another view and back finds the first as it was."""
    view = opened(
        link(server, tokens={"experiment": small()}, gaussian={"experiment": gaussian(IDENTITY), "starts": []})
    )
    view.ran()
    view.type("tau", "2")
    view.ran()
    points = view.points(-1)
    view.show("gaussian")
    expect(view.page.locator("#tab-gaussian")).to_have_attribute("aria-selected", "true")
    expect(view.page).to_have_title("Gaussian · meanformer")
    view.page.locator("#tab-gaussian").press("ArrowLeft")
    expect(view.page.locator("#tab-tokens")).to_be_focused()
    expect(view.page.locator("#view-tokens")).to_be_visible()
    expect(view.page.locator("#status")).to_contain_text("16 tokens, 11 frames")
    assert view.points(-1) == points
    assert coloured(view.find("stage")) > 300
    expect(view.find("tau")).to_have_value("2")
    # Keys lead to views as well.
    view.page.keyboard.press("Alt+Digit4")
    expect(view.page.locator("#view-density")).to_be_visible()
    expect(view.find("density-outcome")).not_to_be_empty()


def test_a_density_can_be_cancelled(opened, server):
    # It shrinks, so that its fine grid holds it: minutes of steps.
    long = density(flow={"t1": 40.0})
    long["attention"] |= {"V": [[-1.0]]}
    long["measure"] |= {"cells": 2000}
    view = opened(link(server, view="density", density={"experiment": long}))
    view.find("density-cancel").click()
    expect(view.find("density-outcome")).to_contain_text("Cancelled.")
    expect(view.find("density-cancel")).to_be_hidden()


def test_who_leaves_before_the_last_curves_finds_them_on_return(opened, server):
    view = opened(link(server, tokens={"experiment": small()}))
    view.ran()
    view.show("density")
    view.show("tokens")
    view.until("() => window.meanformer.stage.recording.complete")
    assert view.ask("() => Object.keys(window.meanformer.stage.recording.curves)").count("clusters") == 1

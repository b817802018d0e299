"""What the server sends for an experiment is what the library computes, to the bit, and what `meanformer run` tells."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import meanformer as mf
from app._pages import SMALL, Answer, Answers, Page, Server, changed, ran
from meanformer.app.stream import Curves
from meanformer.experiments.build import build
from meanformer.experiments.config import experiment_of, from_settings
from meanformer.experiments.registry import library
from meanformer.outcome import Ending

NOWHERE = Path("/nonexistent")
V = [[0.6, -0.3], [0.2, 0.4]]
HEADS = {"kind": "multi-head", "heads": [SMALL["attention"], {"kind": "l2", "Q": V, "K": V, "V": [[-0.5, 0], [0, 1]]}]}
LINE: dict[str, Any] = {
    "attention": {"kind": "softmax", "Q": [[1.0]], "K": [[1.0]], "V": [[-1.0]]},
    "measure": {"kind": "density", "of": {"kind": "gaussian", "d": 1}, "cells": 64},
    "flow": {"t1": 0.2},
    "save": {"times": 5},
}
TOKENS: dict[str, dict[str, Any]] = {
    "softmax": SMALL,
    "two heads, weights": {
        **changed(SMALL, measure={"weighting": "zipf"}, flow={"t0": 0.25, "t1": 0.75}),
        "attention": HEADS,
    },
    "rescaled": changed(SMALL, flow={"frame": "rescaled", "t1": 1.0}),
    "on the circle": changed(SMALL, flow={"space": "sphere"}, measure={"kind": "sphere"}),
    "layers": changed(SMALL, flow=None, save=None, layers={"depth": 4, "step": 0.25}),
    "causal": {
        **changed(SMALL, measure={"positions": True}),
        "attention": {"kind": "causal", "of": SMALL["attention"]},
    },
}
TOLERANCE = 1e-13
"""For curves, which are summed in another order than the public functions do."""


def computed(experiment: dict[str, Any]) -> mf.Trajectory:
    """The same, here."""
    return build(from_settings(experiment, "page", NOWHERE)).run(progress=False)


def unqueued(page: Page) -> Answer:
    """The next answer that is more than a word about the queue: the worker may still be at the request before."""
    while (answer := page.receive())["say"] == "queued":
        pass
    return answer


def states(run: mf.Trajectory) -> list[Any]:
    return [run.states[k] for k in range(len(run.times))]


@pytest.fixture(scope="module")
def asked(server: Server) -> dict[str, Answers]:
    """The answers to the experiments above."""
    with server.page() as page:
        return {name: page.run(experiment, ["received"]) for name, experiment in TOKENS.items()}


@pytest.fixture(scope="module")
def runs() -> dict[str, mf.Trajectory]:
    return {name: computed(experiment) for name, experiment in TOKENS.items()}


def test_hello_tells_the_limits(page):
    assert page.hello["version"] == mf.__version__
    assert page.hello["limits"]["n"] == 100_000
    assert page.hello["start"] is None
    assert page.hello["replay"] is None


@pytest.mark.parametrize("name", TOKENS)
def test_frames_are_those_of_the_library_to_the_bit(asked, runs, name):
    answers, run = asked[name], runs[name]
    assert answers.frames("points").dtype == np.float64
    np.testing.assert_array_equal(answers.frames("times"), np.asarray(run.times))
    np.testing.assert_array_equal(answers.frames("points"), np.asarray(run.points))
    start, mu = answers.one("start"), run.system.mu
    np.testing.assert_array_equal(start.arrays["points"], np.asarray(mu.points))
    np.testing.assert_array_equal(start.arrays["weights"], np.asarray(mu.weights))
    assert (start["n"], start["d"], start["of"]) == (16, 2, "tokens")
    assert start["discrete"] == ("layers" in TOKENS[name])
    assert start["frame"] == ("rescaled" if name == "rescaled" else "plain")
    assert (start["t0"], start["t1"]) == (float(run.times[0]), pytest.approx(float(run.times[-1]), rel=1e-15))
    assert ("positions" in start.arrays) == (name == "causal")


@pytest.mark.parametrize("name", TOKENS)
def test_the_end_is_that_of_the_library(asked, runs, name):
    end, run = asked[name].one("end"), runs[name]
    assert end["outcome"]["kind"] == run.outcome.kind == Ending.REACHED.name
    assert end["outcome"]["words"] == str(run.outcome)
    assert end["outcome"]["ok"] is True
    assert end["outcome"]["time"] == float(run.outcome.time)
    assert end["summary"] == run.summary()
    assert end["numbers"]["steps"] == run.stats["steps"]
    labels = end.arrays["labels"]
    assert labels.dtype == np.int32
    assert end["clusters"] == labels.max() + 1 == len(set(labels.tolist()))


@pytest.mark.parametrize("name", TOKENS)
def test_quick_curves_are_those_of_the_public_functions(asked, runs, name):
    answers, run = asked[name], runs[name]
    plain = run.original() if name == "rescaled" else run
    np.testing.assert_allclose(answers.frames("radius"), np.asarray(plain.states.radius), rtol=TOLERANCE)
    ranks = [float(mf.effective_rank(mu)) for mu in states(run)]
    np.testing.assert_allclose(answers.frames("effective_rank"), ranks, rtol=1e-11)
    if name == "on the circle":
        np.testing.assert_allclose(answers.frames("bound"), 1.0, rtol=TOLERANCE)
        return
    field, mu = run.field, run.system.mu
    bounds = [float(mf.support_bound(field, mu, t, run.times[0])) for t in run.times]
    np.testing.assert_allclose(answers.frames("bound"), bounds, rtol=TOLERANCE)
    assert (answers.frames("radius") <= answers.frames("bound") * (1 + 1e-12)).all()


def test_tokens_without_weight_have_no_radius():
    """The farthest one has none: it is drawn, and nobody sees it."""
    mu = mf.PointCloud([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]], weights=[0.5, 0.5, 0.0])
    run = mf.flow(mf.Softmax(*3 * (jnp.eye(2),)), mu, 0.1, save=3)
    x = np.asarray(run.points)
    curves = Curves(run.field, run.system, 0.0).quick(np.asarray(run.times), x, x)
    np.testing.assert_allclose(curves["radius"], np.asarray(run.states.radius), rtol=TOLERANCE)
    assert curves["radius"][0] == 2


@pytest.mark.parametrize("name", ["softmax", "on the circle", "rescaled"])
def test_costly_curves_are_those_of_the_public_functions(asked, runs, name):
    answers, run = asked[name], runs[name]
    # The server links at 1 % of the largest diameter so far.
    spans = np.maximum.accumulate([np.linalg.norm(np.ptp(np.asarray(mu.points), axis=0)) for mu in states(run)])
    counts = [
        mf.clusters(mu, 0.01 * span / np.linalg.norm(np.ptp(np.asarray(mu.points), axis=0))).count
        for mu, span in zip(states(run), spans, strict=True)
    ]
    np.testing.assert_array_equal(answers.curve("clusters"), counts)


def test_the_energy_is_that_of_the_library(page):
    """For symmetric matrices with V = A a theorem knows one."""
    symmetric = changed(
        SMALL, attention={"Q": [[1.0, 0.2], [0.2, 1.0]], "K": "identity", "V": [[1.0, 0.2], [0.2, 1.0]]}
    )
    answers, run = page.run(symmetric), computed(symmetric)
    path = mf.energy_along(run)
    np.testing.assert_allclose(answers.curve("energy"), path.energy, rtol=1e-12)
    assert answers[-1]["energy_name"].startswith(path.name)


def test_without_a_known_energy_the_page_is_told_so(asked):
    last = asked["causal"][-1]
    assert last["energy_name"] is None
    assert last.arrays == {}


@pytest.mark.parametrize("name", ["softmax", "two heads, weights", "causal"])
def test_attention_received_is_what_the_matrix_sends(asked, runs, name):
    """By hand: of the attention of each token, that which goes to j, with the weights of the tokens; 1 on average."""
    run, received = runs[name], asked[name].curve("received")
    assert received.shape == (6, 16)
    for k, mu in enumerate(states(run)):
        P = np.asarray(run.field.matrix(mu))
        P = P[None] if P.ndim == 2 else P
        w = np.asarray(mu.weights)
        by_hand = np.zeros(16)
        for head in P:
            for i in range(16):
                by_hand += w[i] * np.abs(head[i]) / np.abs(head[i]).sum() / len(P)
        np.testing.assert_allclose(received[k], by_hand / w, rtol=1e-6)  # sent in single precision
        assert received[k] @ w == pytest.approx(1.0, rel=1e-6)


def test_what_is_not_wanted_is_not_sent(page):
    assert not any("received" in answer.arrays for answer in page.run(SMALL))


def test_a_blow_up_is_an_outcome(page):
    grows = {
        **changed(SMALL, flow={"t1": 5.0}),
        "attention": {
            "kind": "unnormalised",
            "Q": [[2.0, 0], [0, 2.0]],
            "K": [[2.0, 0], [0, 2.0]],
            "V": [[2, 0], [0, 2]],
        },
    }
    answers, run = page.run(grows), computed(grows)
    end = answers.one("end")
    assert end["outcome"]["kind"] == run.outcome.kind
    assert end["outcome"]["kind"] != "REACHED"
    assert end["outcome"]["words"] == str(run.outcome)
    assert end["outcome"]["ok"] is False or run.outcome.ok
    assert 0 < end["outcome"]["time"] < 5.0
    np.testing.assert_array_equal(answers.frames("points"), np.asarray(run.points))


def test_a_density_is_that_of_the_library(page):
    answers, run = page.run(LINE), computed(LINE)
    # What was asked for, at once; then on the grid of the run, which is larger.
    (first, start), rho = (answer for answer in answers if answer["say"] == "start"), run.system.mu
    assert first["cells"] == LINE["measure"]["cells"] < start["cells"]
    assert (start["of"], start["cells"]) == ("density", rho.cells[0])
    np.testing.assert_array_equal(start.arrays["x"], np.asarray(rho.centres(0)))
    assert start["spacing"] == float(rho.spacing[0])
    np.testing.assert_array_equal(answers.frames("times"), np.asarray(run.times))
    mass = answers.frames("density").sum(axis=1) * start["spacing"] + answers.frames("lost")
    np.testing.assert_allclose(mass, 1.0, rtol=1e-12)
    np.testing.assert_allclose(
        answers.frames("density")[-1] * start["spacing"], np.asarray(run.final.masses), rtol=1e-15
    )
    assert answers.one("end")["outcome"]["kind"] == "REACHED"


def test_fates_are_those_of_the_library(page):
    attention = {"kind": "softmax", "Q": [[1.0, 0], [0, 1.0]], "K": [[1.0, 0], [0, 1.0]], "V": [[1.0, 0], [0, -1.0]]}
    starts = [[[1.0, 0.3], [0.3, 0.5]], [[0.1, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 1.0]]]
    answers = page.ask("gaussians", "gaussian", experiment={"attention": attention}, starts=starts)
    field = mf.Softmax(*(jnp.asarray(attention[name], float) for name in "QKV"))
    fates = mf.fates(field, [mf.Gaussian(jnp.zeros(2), jnp.asarray(cov)) for cov in starts])
    paths = [answer for answer in answers if answer["say"] == "path"]
    assert [path["number"] for path in paths] == [0, 1, 2]
    for path, start, fate in zip(paths, starts, fates, strict=True):
        told = path["fate"]
        own = mf.flow(field, mf.Gaussian(jnp.zeros(2), jnp.asarray(start)), t1=jnp.inf, save=3, progress=False).fate
        assert own is not None
        assert told["words"] == str(own)
        assert (told["kind"], told["rank"]) == (fate.kind, fate.rank)
        assert told["time"] == (float(own.time) if math.isfinite(float(own.time)) else None)
        if fate.kind == "BLEW_UP":  # many at once are marched with a larger tolerance; each knows its error
            slack = float(fate.error) + float(own.error)
            assert told["time"] == pytest.approx(float(fate.time), abs=slack)
        covs = path.arrays["covs"]
        np.testing.assert_allclose(covs[0], start, atol=1e-14)
        assert np.isfinite(covs).all()
        assert (np.linalg.eigvalsh(covs) >= -1e-12 * np.abs(covs).max(axis=(1, 2))[:, None]).all()
        assert (np.diff(path.arrays["times"]) > 0).all()
    assert sum(answers[-1]["counts"].values()) == 3


@pytest.mark.parametrize(
    "starts",
    [[], [[[1.0]]], [[1.0, 0.0], [0.0, 1.0]], "identity", None, [[["a", 0], [0, 1]]], [[[1.0, 0], [0, 1]]] * 41, {}],
)
def test_starts_that_are_no_covariances_are_refused(page, starts):
    number = page.send("gaussians", "g", experiment={"attention": SMALL["attention"]}, starts=starts)
    answer = unqueued(page)
    assert answer["say"] == "refused"
    assert answer["run"] in (0, number)
    assert answer["words"].endswith(".")


# --- experiment files ---


@pytest.mark.parametrize("name", TOKENS)
def test_the_file_means_the_same_settings(page, name):
    text = page.ask("toml", "toml", experiment=TOKENS[name]).one("toml")["text"]
    here, there = experiment_of(text, "page", NOWHERE), from_settings(TOKENS[name], "page", NOWHERE)
    assert here.settings() == there.settings()
    assert here.hash() == there.hash()


@pytest.fixture(scope="module")
def folder(server: Server) -> Path:
    """A run folder among those of the server, of the text of the page, and one that is none of its business."""
    with server.page() as page:
        kept = run_again(page, "rescaled", server.folder / "runs" / "kept")
    shutil.copytree(kept, server.folder / "outside")
    return kept


def run_again(page: Page, name: str, folder: Path) -> Path:
    """The folder of `meanformer run` with the text of the page."""
    text = page.ask("toml", "toml", experiment=TOKENS[name]).one("toml")["text"]
    folder.parent.mkdir(exist_ok=True)
    file = folder.with_suffix(".toml")
    file.write_text(text, encoding="utf-8")
    return ran(file, folder)


@pytest.mark.parametrize("name", ["rescaled", "layers"])
def test_meanformer_run_gives_the_same_numbers(page, asked, folder, tmp_path, name):
    """From the text of the page to the numbers of `meanformer run`, in another process than the page's: every digit."""
    again = folder if name == "rescaled" else run_again(page, name, tmp_path / "again")
    reported = json.loads((again / "results.json").read_text())["numbers"]
    told = dict(asked[name].one("end")["numbers"])
    for numbers in (reported, told):
        numbers.pop("seconds")
    assert told == reported
    np.testing.assert_array_equal(asked[name].frames("points"), np.asarray(mf.load(again).points))


def single() -> list[str]:
    """The experiments of the library without cases and sweeps."""
    return [name for name, file in library().items() if not {"cases", "sweep"} & set(_tables(file))]


def _tables(file: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(set(single()) - {"deep-transformer"}))
def test_a_file_of_the_library_is_read(page, name):
    text = library()[name].read_text(encoding="utf-8")
    answer = page.ask("read", "read", text=text).one("read")
    original = build(experiment_of(text, name, NOWHERE))
    assert answer["title"] == _tables(library()[name])["title"]
    again = build(from_settings(answer["experiment"], name, NOWHERE))
    assert again.verb == original.verb
    _same(again.field, original.field)
    _same(again.measure, original.measure)
    # A matrix can be edited only as rows.
    assert _all_rows(answer["experiment"]["attention"]) or isinstance(original.field, list)


def _same(left: Any, right: Any) -> None:
    import jax

    a, b = jax.tree.leaves(left), jax.tree.leaves(right)
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def _all_rows(table: dict[str, Any]) -> bool:
    own = all(isinstance(table[name], list) for name in ("Q", "K", "V") if name in table)
    inner = [table["of"]] if "of" in table else table.get("heads", [])
    return own and all(_all_rows(part) for part in inner)


def test_a_file_beyond_the_limits_is_refused_in_words(page):
    answer = page.ask("read", "read", text=library()["deep-transformer"].read_text(encoding="utf-8"))[-1]
    assert (answer["say"], answer["path"]) == ("refused", ["measure", "d"])
    assert "at most 8" in answer["words"]


@pytest.mark.parametrize("name", sorted(set(library()) - set(single())))
def test_files_with_many_runs_are_refused_in_words(page, name):
    answer = page.ask("read", "read", text=library()[name].read_text(encoding="utf-8"))[-1]
    assert answer["say"] == "refused"
    assert "one experiment at a time" in answer["words"]


# --- refusals: a few, since each is tested where it is made (test_checked.py, experiments/test_malformed.py) ---

REFUSED: dict[str, tuple[Any, list[Any], str]] = {
    "a wrong shape": (changed(SMALL, attention={"V": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]}), ["attention", "V"], "shape"),
    "an unknown kind": (changed(SMALL, attention={"kind": "softmaxx"}), ["attention"], "softmax"),
    "no measure": (changed(SMALL, measure=None), [], "[measure]"),
    "too many tokens": (changed(SMALL, measure={"n": 10**6}), ["measure", "n"], "100,000"),
    "a file": (changed(SMALL, attention={"Q": {"file": "/etc/passwd"}}), ["attention", "Q", "file"], "no files"),
    "a head": (
        {**SMALL, "attention": {"kind": "multi-head", "heads": [SMALL["attention"], {"kind": "l2"}]}},
        ["attention", "heads", 1],
        "Q",
    ),
    "a matrix of numbers too large": (changed(SMALL, attention={"Q": [[10**400, 0], [0, 1]]}), ["attention", "Q"], ""),
    "a matrix of infinities": (None, ["attention", "Q"], ""),
    "a Gaussian": (
        {**SMALL, "measure": {"kind": "gaussian", "cov": [[1.0, 0.0], [0.0, 1.0]]}},
        ["measure"],
        "",
    ),
    "a sample": (changed(SMALL, save={"sample": 5}), ["save", "sample"], ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_where_it_is_wrong(page, name):
    experiment, place, words = REFUSED[name]
    if experiment is None:
        text = json.dumps({"do": "run", "slot": "main", "run": 1, "experiment": SMALL})
        page.socket.send(text.replace('"Q": [[1.0', '"Q": [[1e999'))
        answer = unqueued(page)
    else:
        answer = page.run(experiment)[-1]
    assert answer["say"] == "refused", dict(answer)
    assert answer["path"][: len(place)] == place
    assert words in answer["words"]
    assert answer["words"].endswith((".", "?"))
    assert not answer["what"].startswith("page")  # as the source is called inside
    assert all(isinstance(answer[part], str) for part in ("what", "got", "expected", "remedy"))
    # The next request is heard as if nothing had been.
    assert page.ask("toml", "toml", experiment=SMALL)[-1]["say"] == "toml"


# --- replay ---


def test_a_replay_is_the_run(page, folder, asked):
    answers, earlier = page.ask("replay", folder="kept"), asked["rescaled"]
    for name in ("times", "points", "radius", "effective_rank", "bound"):
        np.testing.assert_array_equal(answers.frames(name), earlier.frames(name))
    for name in ("clusters", "energy", "received"):
        if any(name in answer.arrays for answer in earlier):
            np.testing.assert_array_equal(answers.curve(name), earlier.curve(name))
    np.testing.assert_array_equal(answers.one("start").arrays["points"], earlier.one("start").arrays["points"])
    left, right = ({**e.one("end")["numbers"], "seconds": 0} for e in (answers, earlier))
    assert left == right
    assert answers.one("start")["frame"] == "rescaled"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "outside", "../outside", "kept/../../outside", "{root}/kept", "kept/", "./kept", "nowhere"]
)
def test_only_listed_runs_are_replayed(page, folder, name):
    answer = page.ask("replay", folder=name.format(root=folder.parent))[-1]
    assert answer["say"] == "refused"
    assert "There is no run" in answer["words"]


def test_a_run_that_cannot_be_shown_is_refused_in_words(page, folder):
    gaussian = mf.flow(mf.Softmax(*[jnp.eye(2)] * 3), mf.Gaussian(jnp.zeros(2), jnp.eye(2)), t1=0.1, progress=False)
    gaussian.save(folder.parent / "gaussian")
    answer = page.ask("replay", folder="gaussian")[-1]
    assert answer["say"] == "refused"
    assert "cannot replay" in answer["words"]


def test_a_damaged_run_is_refused_in_words(page, folder):
    damaged = folder.parent / "damaged"
    shutil.copytree(folder, damaged)
    for file in (damaged / "segments").rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)
    answer = page.ask("replay", folder="damaged")[-1]
    assert answer["say"] == "refused"
    assert answer["words"]

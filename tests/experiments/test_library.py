"""The library, the file to start from, and the examples of the page on experiment files: each builds."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf
from meanformer.experiments.build import build, check
from meanformer.experiments.config import experiment_of, read_experiment
from meanformer.experiments.names import FIGURES, NUMBERS
from meanformer.experiments.registry import describe, library, start, starting_file, titles

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
NAMES = [
    *("tour", "causal", "clusters", "deep-transformer", "density-1d", "gaussian-blowup", "gaussian-low-rank"),
    *("hyperplanes", "leaders", "mean-field", "phase-diagram", "random-ranks", "sigmoid", "sinkhorn-collapse"),
    *("sphere", "two-heads"),
]


def test_the_library_is_complete():
    assert list(library()) == NAMES == list(titles())


@pytest.mark.parametrize("name", NAMES)
def test_each_experiment_builds_and_says_what_it_is(name):
    experiment = read_experiment(name)
    check(experiment)
    assert experiment.title and experiment.about and experiment.cites
    told = describe(name)
    assert told["line"] == experiment.title == titles()[name] and told["name"] == name
    assert 0 < told["seconds"] < 120


def test_the_tour_has_its_scenes():
    cases = read_experiment("tour").expanded()
    scenes = "softmax softmax-leading l2 sinkhorn sigmoid linear unnormalised hardmax multi-head causal sphere"
    assert [name for name, _ in cases] == scenes.split()
    assert all(case.title and case.formula and "\n" in case.caption for _, case in cases)
    assert [name for name, case in cases if case.figures.animation] == ["multi-head"]
    tokens = build(cases[0][1]).measure
    np.testing.assert_allclose(tokens.mean, 0, atol=1e-15)
    # Five petals: each fifth of the plane, the first around the second axis, has tokens about a distance 1 away.
    angle = np.arctan2(tokens.points[:, 1], tokens.points[:, 0])
    petal = np.round((angle - np.pi / 2) / (2 * np.pi / 5)).astype(int) % 5
    assert set(petal) == set(range(5))
    for number in range(5):
        middle = np.asarray(tokens.points)[petal == number].mean(axis=0)
        direction = np.pi / 2 + 2 * np.pi * number / 5
        np.testing.assert_allclose(middle, [np.cos(direction), np.sin(direction)], atol=0.2)
    causal = dict(cases)["causal"]
    assert build(causal).measure.positions is not None and causal.figures.colour == "positions"
    sphere = build(dict(cases)["sphere"])
    assert isinstance(sphere.options["space"], mf.Sphere)
    np.testing.assert_allclose(np.linalg.norm(sphere.measure.points, axis=1), 1, rtol=1e-14)


def test_the_file_to_start_from_runs_as_it_is_and_shows_the_options(tmp_path, monkeypatch):
    text = starting_file("mine")
    experiment = experiment_of(text, "mine.toml", tmp_path)
    check(experiment)
    assert "meanformer run mine.toml" in text
    # What is switched off is right as well.
    off = re.findall(r"^# (\w+ = .*[^\[\n])$", text, re.MULTILINE)
    assert len(off) >= 8
    for line in off:
        tomllib.loads(line)
    heads = re.search(r"^# heads = \[\n(?:# .*\n)+?# \]$", text, re.MULTILINE)
    sweep = text[text.index("# [sweep]") :]
    swept = experiment_of(text + re.sub(r"^# ", "", sweep, flags=re.MULTILINE), "mine.toml", tmp_path)
    assert swept.sweep is not None and swept.sweep.count() == 90
    assert heads and len(tomllib.loads(re.sub(r"^# ", "", heads[0], flags=re.MULTILINE))["heads"]) == 2
    assert starting_file("mine", "clusters") == library()["clusters"].read_text()
    monkeypatch.chdir(tmp_path)
    assert start("mine") == Path("mine.toml")
    assert Path("mine.toml").read_text() == text
    for name in ("mine", "mine.toml", "nowhere/mine"):
        with pytest.raises(mf.InputError, match="cannot be written"):
            start(name)
    with pytest.raises(mf.InputError, match="did you mean 'clusters'"):
        starting_file("mine", "cluster")


def test_the_page_shows_a_real_refusal():
    shown = re.search(r"^```text\n(clusters\.toml, line.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    with pytest.raises(mf.InputError) as refusal:
        experiment_of(EXAMPLES[0].replace("frame", "fram"), "clusters.toml", Path())
    assert str(refusal.value) == shown[1].rstrip("\n")


def test_the_page_names_what_there_is():
    page = PAGE.read_text()
    for example in EXAMPLES:
        data = tomllib.loads(example)
        assert set(data.get("figures", {}).get("draw", [])) <= set(FIGURES)
        assert set(data.get("sweep", {}).get("numbers", [])) <= set(NUMBERS)
    from meanformer.experiments.changes import KINDS_OF

    for kinds in KINDS_OF.values():
        assert all(f"`{kind.model_fields['kind'].default}`" in page for kind in kinds)


def test_listing_the_library_loads_no_jax():
    code = (
        "import sys; from meanformer.experiments.registry import library, titles, starting_file; library(), titles();"
        "starting_file('a'); print(sorted({'jax', 'pydantic', 'matplotlib', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

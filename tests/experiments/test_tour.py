"""The tour with few tokens: all kinds, their numbers, and the files."""

import json

import numpy as np
import pytest
from PIL import Image

import meanformer as mf
from meanformer._checks import InputError
from meanformer.experiments import tour as tours

KINDS = {
    "softmax",
    "softmax-leading",
    "l2",
    "sinkhorn",
    "sigmoid",
    "linear",
    "unnormalised",
    "hardmax",
    "multi-head",
    "causal",
    "sphere",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tour") / "new" / "folder"


@pytest.fixture(scope="module")
def tour(folder) -> tours.Tour:
    return tours.run_tour(folder, n=12, seed=3, frames=2)


def test_every_kind_has_its_row(tour):
    assert {row.name for row in tour.rows} == KINDS
    assert len(tour.rows) == len(KINDS)


def test_radius_is_within_its_bound_where_there_is_one(tour):
    rows = {row.name: row for row in tour.rows}
    assert {name for name, row in rows.items() if row.bound is None} == {"linear", "unnormalised"}
    for row in rows.values():
        assert row.bound is None or row.radius <= row.bound * (1 + 1e-9), row


def test_numbers_are_those_of_the_kinds(tour):
    rows = {row.name: row for row in tour.rows}
    assert rows["sphere"].radius == pytest.approx(1, abs=1e-10)
    # Two heads, each with the two ends of its coordinate: at most four corners, and a straggler per coordinate.
    assert rows["multi-head"].clusters <= 9
    assert rows["unnormalised"].outcome == "STEP_TOO_SMALL"
    assert 0 < rows["unnormalised"].time < 4
    assert "blew up near t" in tours.outcome_words(rows["unnormalised"])
    for name in KINDS - {"unnormalised"}:
        assert rows[name].outcome == "REACHED", rows[name]
        assert tours.outcome_words(rows[name]) == f"reached t = {rows[name].time:.4g}"
    for row in rows.values():
        assert 1 <= row.effective_rank <= 2
        assert 1 <= row.clusters <= 12
        assert row.steps > 0
        assert row.seconds > 0


def test_files(tour, folder):
    assert tour.files == [str(folder / name) for name in ("tour.png", "clusters.gif", "tour.json")]
    with Image.open(folder / "tour.png") as image:
        picture = np.asarray(image.convert("L"), float)
    assert min(picture.shape) > 1200
    assert picture.std() > 10
    # No panel is empty: 4 x 3 cells, each with something drawn in its middle.
    height, width = picture.shape
    for row in range(3):
        for column in range(4):
            cell = picture[height * row // 3 : height * (row + 1) // 3, width * column // 4 : width * (column + 1) // 4]
            assert cell.std() > 5, (row, column)
    with Image.open(folder / "clusters.gif") as image:
        assert image.n_frames >= 2


def test_json_has_all_numbers(tour, folder):
    stored = json.loads((folder / "tour.json").read_text())
    assert stored == json.loads(json.dumps(tour.as_dict()))
    assert {"experiment", "version", "n", "seed", "seconds", "rows", "files"} == stored.keys()
    assert (stored["n"], stored["seed"], stored["version"]) == (12, 3, mf.__version__)
    keys = {"name", "radius", "bound", "clusters", "effective_rank", "steps", "seconds", "outcome", "time"}
    assert all(row.keys() == keys for row in stored["rows"])


def test_tokens_are_those_of_the_seed_and_centred():
    tokens = tours.petal_tokens(200, 0)
    np.testing.assert_allclose(tokens.mean, 0, atol=1e-15)
    np.testing.assert_array_equal(tokens.points, tours.petal_tokens(200, 0).points)
    assert float(abs(tokens.points - tours.petal_tokens(200, 1).points).max()) > 0.1
    labels = tours.petals(tokens)
    assert set(labels) == set(range(5))
    # The tokens of a petal lie, on average, in its direction.
    for petal in range(5):
        x, y = np.asarray(tokens.points)[labels == petal].mean(axis=0)
        angle = np.pi / 2 + 2 * np.pi * petal / 5
        assert np.cos(np.arctan2(y, x) - angle) > 0.97


def test_scenes_are_watched_in_order(tmp_path, monkeypatch):
    """`watch` sees the list, and no work is done for what it leaves out; few tokens are refused before any work."""
    seen = []

    class Enough(Exception):
        pass

    def watch(scenes):
        seen.extend(scene.name for scene in scenes)
        raise Enough

    with pytest.raises(Enough):
        tours.run_tour(tmp_path / "a", n=5, watch=watch)
    assert set(seen) == KINDS
    with pytest.raises(InputError, match="n"):
        tours.run_tour(tmp_path / "b", n=4, watch=watch)
    assert not (tmp_path / "b").exists()


# What the captions of the picture say.


def test_caption_linear_one_map_moves_all():
    scene = next(s for s in tours.scenes() if s.name == "linear")
    tokens = tours.petal_tokens(12, 3)
    run, _ = tours.run_scene(scene, tokens)
    start, end = np.asarray(run.points[0]), np.asarray(run.final.points)
    map_, *_ = np.linalg.lstsq(start, end, rcond=None)
    np.testing.assert_allclose(start @ map_, end, atol=1e-10)

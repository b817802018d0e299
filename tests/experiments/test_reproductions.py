"""A reproduction keeps each item as soon as it is done, and tells what it found. Its papers have tests of their own."""

import json

import pytest
from matplotlib.figure import Figure

import meanformer as mf
from meanformer.experiments.reproductions import PAPERS, paper
from meanformer.experiments.reproductions import runner as reproductions
from meanformer.experiments.reproductions.base import Budget, Found, Item, Paper, Picture, Row, within
from meanformer.experiments.runner import Interrupted, Watch, resume


@pytest.fixture
def computed(monkeypatch):
    """A paper of three cheap items; the list of what is computed, with which budget."""
    calls: list[tuple[str, bool, int]] = []

    def item(name: str) -> Item:
        def compute(budget: Budget) -> Found:
            calls.append((name, budget.quick, budget.seed))
            if name == "A2" and len(calls) == 2:
                raise KeyboardInterrupt
            budget.say(0.5, "half")
            rows = [within("one is one", 1.0, 1.0, 1e-6), within("one is two", 2.0, 1.0, 1e-6)]
            rows.append(Row("a script", "0.1", float("nan"), "", "misleads", "it rounds"))
            return Found(rows, [Picture("empty", Figure(), "Nothing $x$.")], ["A remark."])

        return Item(name, f"Title of {name}", "Setting.", compute)

    names = ("A1", "A2", "A3")
    fake = Paper("fake2025", "A paper", "A. Nobody", "https://arxiv.org", "@article{x}", {n: item(n) for n in names})
    monkeypatch.setattr(reproductions, "paper_of", lambda key: fake)
    return calls


def test_items_are_kept_resumed_and_added(computed, tmp_path):
    shares = []
    watch = Watch(stage=lambda words, share: shares.append(share))
    with pytest.raises(Interrupted):
        reproductions.reproduce("fake2025", tmp_path / "run", items=["A1", "A2"], quick=True, seed=3, watch=watch)
    assert json.loads((tmp_path / "run/items/A1.json").read_text())["remarks"] == ["A remark."]
    folder = resume(tmp_path / "run")
    assert computed == [("A1", True, 3), ("A2", True, 3), ("A2", True, 3)]
    assert folder.status == "done"
    found = folder.results
    assert [item["id"] for item in found["items"]] == ["A1", "A2"]
    assert found["numbers"] == {"claims": 6, "holds": 2, "fails": 2, "undecided": 0, "misleads": 2}
    assert found["items"][0]["rows"][2]["ours"] == "nan"
    assert (tmp_path / "run" / found["items"][0]["figures"][0]["file"]).exists()
    assert shares == sorted(shares)
    reproductions.reproduce("fake2025", tmp_path / "run", items=["A3"], quick=True, seed=3)
    assert computed[3:] == [("A3", True, 3)]
    assert [item["id"] for item in folder.results["items"]] == ["A1", "A2", "A3"]
    assert folder.record["items"] == ["A1", "A2", "A3"]


def test_other_sizes_and_versions_are_not_mixed(computed, tmp_path, monkeypatch):
    monkeypatch.setattr(reproductions, "FEW_MINUTES", 10.0)
    reproductions.reproduce("fake2025", tmp_path / "run", items=["a1"])
    with pytest.raises(mf.InputError, match="holds another run"):
        reproductions.reproduce("fake2025", tmp_path / "run", items=["A1"], quick=True)
    monkeypatch.setattr(reproductions, "_made_by", lambda: {"versions": {"jax": "other"}})
    reproductions.reproduce("fake2025", tmp_path / "run", items=["A1"])
    assert computed == [("A1", False, 0)] * 2


def test_the_papers_are_there():
    ids = {key: list(paper(key).items) for key in PAPERS}
    numbers = [*range(1, 6), "5b", *range(6, 13)]
    assert ids == {
        "castin2025": [f"A{number}" for number in numbers],
        "geshkovski2023": [f"B{number}" for number in range(1, 5)],
    }

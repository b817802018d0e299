"""Run folders that someone else wrote, or edited: all that reads them says what is wrong, in words."""

import copy
import json
import random
import re

import pytest

from meanformer._checks import InputError
from meanformer.cli import commands, folders
from meanformer.experiments import contents
from meanformer.report.run import write_report
from meanformer.store.errors import FolderError
from report import _analyses as analyses
from report._folders import EXPERIMENT, folder, record, results, write

ODD = [
    None,
    True,
    False,
    0,
    -1,
    7,
    2**63,
    -(10**400),
    1e308,
    -0.5,
    "",
    "word",
    "$\\frac{$",
    "../../up",
    "\ud800",
    "<script>",
    [],
    [[]],
    [1, "a", None],
    {},
    {"kind": []},
    {"dict": 3},
    [{"file": 3}],
    [{"name": {}}],
    {"a": {"b": {"c": None}}},
]
HEADS = {"kind": "multi-head", "heads": [EXPERIMENT["attention"]] * 2, "W": ["identity", {"random": "normal"}]}
GRAM = {
    "kind": "sigmoid",
    "Q": {"gram": [[1.0, 2.0]]},
    "K": {"diagonal": [1.0, 2.0]},
    "V": {"rotation": 0.5},
    "bias": 1,
}
SWEPT = EXPERIMENT | {"sweep": {"grid": {"attention.tau": {"log": [0.1, 10.0, 5]}, "measure.n": [10, 20]}, "draws": 4}}
CALL = {"dict": {"verb": "flow", "field": 1, "measure": 2, "options": {"dict": {"t1": 3.0}}}}
PAPER = {"key": "castin2025", "title": "A paper", "authors": "Some", "url": "https://arxiv.org/abs/2501.18322"}
ITEM = {
    "id": "A2",
    "title": "An item",
    "setting": "with $x$",
    "rows": [{"claim": "c", "reference": 1.0, "ours": 1.5, "tolerance": "exact", "verdict": "fails", "why": ""}],
    "figures": [{"name": "p", "file": "figures/paths.svg", "caption": "p"}],
    "remarks": ["remark"],
    "seconds": 2.0,
}
FOLDERS = {
    "run": (record(), results()),
    "heads": (record(experiment=EXPERIMENT | {"attention": HEADS}), results(fate="CONVERGED", notes=["note"])),
    "from Python": (record(experiment=None, call=CALL), results()),
    "layers": (record(experiment={"attention": GRAM, "layers": {"depth": 3, "step": 0.5}}), results()),
    "cases": (
        record(kind="cases", cases=["a"]),
        results(rows=[{"name": "a", "title": "A", "numbers": {"radius": 1.0}, "outcome": "REACHED"}], cases=["a"]),
    ),
    "sweep": (
        record(kind="sweep", axes={"attention.tau": [1.0, 2.0]}, experiment=SWEPT),
        results(failed=[{"task": 1, "error": "e"}]),
    ),
    "reproduction": (
        record(kind="reproduction", items=["A2"], quick=True, experiment=None),
        results(paper=PAPER, items=[ITEM], checks=[]),
    ),
    "model": (
        analyses.record(),
        analyses.results(figures=[{"name": "ov", "file": "figures/paths.svg", "caption": "c"}])
        | {
            "map": analyses.results()["map"]
            | {"deep": {"layers": [9], "points": [[[0.1, 0.2]] * 6], "explained": [0.5]}}
        },
    ),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder of each kind, whose files a test replaces."""
    root = tmp_path_factory.mktemp("folders")
    made = {name: folder(root / name.replace(" ", "-"), *content) for name, content in FOLDERS.items()}
    for path in made.values():
        write(path / "manifest.json", {"segments": []})
    folder(made["cases"] / "cases" / "a", record(), results())
    return made


def readers(path):
    """All that reads a run folder and prints it."""
    yield lambda: folders.print_run(path, as_json=False)
    yield lambda: folders.print_run(path, as_json=True)
    yield lambda: commands.compare([path, path], as_json=False)
    yield lambda: commands.compare([path, path], as_json=True)
    yield lambda: commands.cite(path, as_json=False)
    yield lambda: folders.write_report(path)


def read_all(path) -> int:
    """How many of the readers refuse in words; any other error is a failure."""
    refused = 0
    for read in readers(path):
        try:
            read()
        except (FolderError, InputError) as error:
            refused += 1
            assert len(str(error)) < 2000
    return refused


def parts(value, place=()):
    """All places in nested tables."""
    yield place
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from parts(part, (*place, key))


def mutated(content, rng):
    """A copy with an odd value somewhere, or without a part."""
    content = copy.deepcopy(content)
    *above, last = rng.choice([place for place in parts(content) if place])
    table = content
    for key in above:
        table = table[key]
    how = rng.random()
    if how < 0.15:
        del table[last]
    elif how < 0.25 and isinstance(table, list):
        table.append(copy.deepcopy(rng.choice(ODD)))
    else:
        table[last] = copy.deepcopy(rng.choice(ODD))
    return content


@pytest.mark.parametrize("name", FOLDERS)
def test_what_we_write_is_read(places, name, capsys):
    for file, content in zip(("run.json", "results.json"), FOLDERS[name], strict=True):
        write(places[name] / file, content)
    assert read_all(places[name]) == 0


@pytest.mark.parametrize("count", [25, pytest.param(600, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", FOLDERS)
def test_odd_contents(places, name, count, capsys):
    """Words or success, and nothing else."""
    rng = random.Random(f"{name} {count}")
    refused = 0
    for k in range(count):
        files = dict(zip(("run.json", "results.json"), FOLDERS[name], strict=True))
        for file in files if k % 5 == 4 else [rng.choice(list(files))]:
            for _ in range(rng.choice([1, 1, 3])):
                files[file] = mutated(files[file], rng)
        for file, content in files.items():
            write(places[name] / file, content)
        try:
            refused += read_all(places[name]) > 0
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}, for {json.dumps(files)[:3000]}") from error
    assert refused > count / 4  # the values are odd indeed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"about": 3}, "about: input should be a valid string, got 3"),
        ({"about": "\ud800"}, "about: text should be whole characters, got '\\ud800'"),
        ({"seed": 2**63}, "seed: whole numbers should have at most 18 digits"),
        ({"kind": "other"}, "kind: input should be 'flow', 'layers'"),
        ({"cites": "castin2025"}, "cites: input should be a valid list, got 'castin2025'"),
        ({"experiment": {"attention": {"kind": []}}}, "experiment.attention.kind: input should be a valid string"),
    ],
)
def test_the_words(tmp_path, change, words):
    path = folder(tmp_path / "run", record() | change, results())
    with pytest.raises(FolderError, match=re.escape(words)) as found:
        contents.read(path)
    assert found.value.safe == "nothing was changed"
    assert str(path / "run.json") in found.value.what


def test_tables_without_end(tmp_path):
    deep: dict = {}
    for _ in range(200):
        deep = {"of": deep}
    path = folder(tmp_path / "run", record(experiment={"attention": deep}), results())
    with pytest.raises(FolderError, match="at most 100 deep"):
        write_report(path)


def test_results_do_not_speak_for_the_record(tmp_path, capsys):
    path = folder(tmp_path / "run", record(), results(folder="elsewhere", kind="model", title="forged", name="other"))
    folders.print_run(path, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["folder"], shown["kind"], shown["title"]) == (str(path), "flow", "Tokens gather")

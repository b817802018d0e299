"""The tables of the theory: every test that they name exists, and so does every function; none of ours is left out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import meanformer as mf
from docs.pages import DOCS, ROOT, prose

PAGE, MATH = DOCS / "theory.md", DOCS / "math.md"
STATED, TESTED = ["", "statement", "holds for", "number"], ["", "source", "tested by"]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAME = re.compile(r"\bmf\.(\w+)")
# Public functions of these parts are statements about measures and flows, or numbers that such statements are about.
PARTS = ("meanformer.diagnostics.", "meanformer.gaussian.", "meanformer.metrics.", "meanformer.theory.")


def tables(text: str) -> list[list[list[str]]]:
    """All tables of a page, as cells; the first line is the head, the rule below it is left out."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    found = [
        [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()] for block in blocks
    ]
    return [[head, *lines] for head, _, *lines in found]


def rows(text: str) -> list[dict[str, str]]:
    """The statements, each with its source and tests, which stand in another table under the same number."""
    stated, tested = (
        [line for head, *lines in tables(text) if head == own for line in lines] for own in (STATED, TESTED)
    )
    assert [line[0] for line in stated] == [line[0] for line in tested] == [str(n + 1) for n in range(len(stated))]
    return [
        dict(zip([*STATED, *TESTED[1:]], [*one, *other[1:]], strict=True))
        for one, other in zip(stated, tested, strict=True)
    ]


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests of a module."""
    module = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in module.body if isinstance(node, ast.FunctionDef))


def missing_tests(text: str) -> list[str]:
    """The tests that a text names and that do not exist."""
    named = TEST.findall(text)
    return [f"{path}::{name}" for path, name in named if not (ROOT / path).is_file() or name not in named_in(path)]


def public_functions() -> set[str]:
    """Functions, not classes, that the parts give to users."""
    modules = {name: module for name, module in mf._EXPORTS.items() if module.startswith(PARTS)}
    found = set()
    for name, module in modules.items():
        source = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
        functions = {node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef)}
        found |= {name} & functions
    return found


ROWS = rows(PAGE.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[""])
def test_a_statement_is_complete(row):
    assert all(row.values())
    named = TEST.findall(row["tested by"])
    assert 1 <= len(named) <= 2 and TEST.sub("", row["tested by"]) in {"", ", "}
    assert missing_tests(row["tested by"]) == []
    assert NAME.search(row["number"]) or row["number"] in {"`field.affine`", "`field.matrix`"}


def test_a_test_that_does_not_exist_is_found():
    """The checks above can fail."""
    right, *wrong = "test_row_51", "test_row_52"
    texts = [f"`tests/theory/test_meanfield.py::{name}`" for name in (right, *wrong)]
    assert missing_tests(" ".join([*texts, "`tests/no/test_such.py::test_x`"])) == [
        "tests/theory/test_meanfield.py::test_row_52",
        "tests/no/test_such.py::test_x",
    ]
    assert {"support_bound", "wasserstein", "fates", "check"} <= public_functions()
    assert not {"Stability", "NotConvergedWarning"} & public_functions()


def test_every_name_of_the_page_is_public():
    assert set(NAME.findall(PAGE.read_text())) <= set(mf.__all__)


def test_every_public_function_of_the_theory_is_in_the_tables():
    named = {name for row in ROWS for name in NAME.findall(row["number"])}
    assert public_functions() - named == set()


def test_sources_exist():
    """Sections and rows of the specification, and papers."""
    math = MATH.read_text()
    sections = set(re.findall(r"^###? ([a-m](?:\.\d+)?)\b", math, re.MULTILINE))
    last = math[math.index("\n## i. ") : math.index("\n## j. ")]
    lines = set(re.findall(r"^\| (\d+) \|", last, re.MULTILINE))
    papers = set(re.findall(r"^\[(\w)\]: https://(?:arxiv\.org/abs|doi\.org)/\S+$", PAGE.read_text(), re.MULTILINE))
    used = set()
    for row in ROWS:
        for source in row["source"].split(", "):
            if paper := re.fullmatch(r"\[(\w)\]", source):
                used.add(paper[1])
            elif number := re.fullmatch(r"i\.(\d+)", source):
                assert number[1] in lines, source
            else:
                assert re.fullmatch(r"[a-m](\.\d+){0,2}", source) and ".".join(source.split(".")[:2]) in sections, (
                    source
                )
    assert used == papers
    # The tests that are named after a row stand beside it.
    for row in ROWS:
        numbers = {int(n) for n in re.findall(r"\bi\.(\d+)", row["source"])}
        for name in re.findall(r"::test_row_(\d+)", row["tested by"]):
            assert int(name) in numbers, row["statement"]


def test_the_lipschitz_constants_are_those_of_the_specification():
    """The table of constants has the formulas of MATH d.2."""

    def constants(text: str) -> dict[str, list[str]]:
        lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        names = {"usa": "unnormalised"}
        found = {names.get(cells[0].lower(), cells[0].lower()): cells[1:3] for cells in lines}
        return {name: [cell.replace(" ", "") for cell in cells] for name, cells in found.items()}

    math = MATH.read_text()
    theirs = constants(math[math.index("### d.2") : math.index("### d.3")])
    page = prose(PAGE)
    ours = constants(page[page.index("| kind | $L_x$ on $B_R$") : page.index("### The flow")])
    for kind in ("softmax", "l2", "sigmoid", "linear", "unnormalised"):
        assert ours[kind] == theirs[kind], kind

"""What waits for the night, by `tests/nightly.txt`."""

import ast
from pathlib import Path

import pytest

from nightly import WAITING

TESTS = Path(__file__).parent


def test_what_waits_for_the_night_exists():
    assert sorted(WAITING) == list(Path(TESTS / "nightly.txt").read_text(encoding="utf-8").splitlines())
    for file, _, name in (test.partition("::") for test in WAITING):
        source = (TESTS / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in source, f"{file}::{name}"


@pytest.mark.parametrize("file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: file.stem)
def test_no_file_waits_as_a_whole(file):
    """Nor is a test listed whose own cases say which of them waits."""
    place = file.relative_to(TESTS).as_posix()
    tests = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    tests = [node for node in tests if node.name.startswith("test_")]
    listed = {node.name for node in tests if f"{place}::{node.name}" in WAITING}
    marks = {node.name: [ast.unparse(mark) for mark in node.decorator_list] for node in tests}
    marked = {name for name, all_of_it in marks.items() if "pytest.mark.nightly" in all_of_it}
    assert {node.name for node in tests} - listed - marked
    assert [name for name in listed if any("mark.nightly" in mark for mark in marks[name])] == []

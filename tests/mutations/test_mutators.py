"""The mutation check itself: its changes do what they say, and each mutant can be made."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutations.__main__ import known, state
from mutations.mutants import PARTS
from mutations.mutators import NotApplicable, apply, assign, drop, replace, returns
from nightly import waits

TESTS = Path(__file__).parents[1]
MUTANTS = [mutant for part in PARTS.values() for mutant in part]
SOURCE = """
LIMIT = 3

def outer(a, b):
    c = a + b
    if c <= LIMIT:
        note(c)
        return f(a, b, side="left", k=1)
    def inner(x):
        return (x +
                b)
    return inner(c - b)

class Kind:
    def outer(self):
        self.a, self.b = 1, 2
        return self.a
"""


@pytest.mark.parametrize(
    "function, change, line",
    [
        ("outer", replace("_a <= _b", "_a < _b"), "if c < LIMIT:"),
        ("outer", replace("_a + _b", "_a - _b", nth=0), "c = a - b"),
        ("outer", replace("_a + _b", "_b", near="c"), "c = b"),
        ("outer.inner", replace("_a + _b", "_b + _a"), "return b + x"),
        ("outer", replace("f(_a, *_rest, side='left', **_k)", "g(*_rest, **_k)"), "return g(b, k=1)"),
        ("outer", replace("f(_a, _b, **_)", "f(_b, _a, **_)"), "return f(b, a, side='left', k=1)"),
        ("outer", assign("c", "2 * _"), "c = 2 * (a + b)"),
        ("", assign("LIMIT", "_ + 1"), "LIMIT = 3 + 1"),
        ("outer", drop("note"), "pass"),
        ("outer", returns("0", near="inner"), "return 0"),
        ("Kind.outer", returns("-_"), "return -self.a"),
        ("Kind.outer", assign("self.a, self.b", "_[::-1]"), "self.a, self.b = (1, 2)[::-1]"),
    ],
)
def test_one_place_is_changed(function, change, line):
    before, after = (
        ast.unparse(tree).splitlines() for tree in (ast.parse(SOURCE), apply(ast.parse(SOURCE), function, change))
    )
    assert [new.strip() for old, new in zip(before, after, strict=True) if old != new] == [line]


@pytest.mark.parametrize(
    "function, change, words",
    [
        ("other", returns("0"), "other is defined 0 times"),
        ("outer", replace("_a * _b", "_a"), "no place to replace"),
        ("outer", replace("_a + _b", "_a"), "found 2 places"),
        ("outer", replace("_a + _b", "_a", nth=2), "only 2 places"),
        ("outer", replace("_a + _a", "_a"), "no place"),
        ("outer", replace("_a <= _b", "_a <= _b"), "changes nothing"),
        ("", replace("_a <= _b", "_a < _b"), "no place"),
    ],
)
def test_what_cannot_be_changed_is_an_error(function, change, words):
    with pytest.raises(NotApplicable, match=words):
        apply(ast.parse(SOURCE), function, change)


def test_names_are_used_once():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) > 150


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_can_be_made_and_names_tests_that_exist(mutant):
    for path, text in mutant.sources().items():
        compile(text, str(path), "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        source = Path(__file__).parents[2].joinpath(file).read_text()
        assert not name or re.search(rf"^def {name.partition('[')[0]}\(", source, re.MULTILINE), test


def test_what_a_mutant_names_does_not_wait_for_the_night():
    """Of a test with many cases some may wait: those by day must be enough."""
    named = {test for mutant in MUTANTS for test in mutant.tests}
    assert [test for test in sorted(named) if waits(test)] == []


@pytest.mark.nightly
def test_a_mistake_reaches_the_tests(tmp_path):
    """The whole way: a process that imports the mistake, a test that fails, a verdict that says so and is kept."""
    kept = tmp_path / "verdicts.jsonl"
    command = [sys.executable, "-m", "mutations", "--only", "unaligned_arrays", "--verdicts", str(kept)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "caught   unaligned_arrays" in done.stdout and "1 mutants, 1 caught" in done.stdout
    assert set(known(kept, state())) == {"unaligned_arrays"} and not known(kept, "another state")

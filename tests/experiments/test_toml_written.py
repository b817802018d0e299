"""Experiments written as TOML: what is read back is what was written."""

import math
import tomllib
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from meanformer.experiments.config import experiment_of, from_settings
from meanformer.experiments.registry import library
from meanformer.experiments.toml import written

NOWHERE = Path("/nonexistent")
FLOATS = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 1e-7, 123456789.123456789, 1.0, -2.0]

# TOML has no half of a pair of surrogates, and no null.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


def same(left: Any, right: Any) -> bool:
    """Equal, with the signs of zeros, and whole numbers told from others."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right and (not isinstance(left, float) or math.copysign(1, left) == math.copysign(1, right))


@hypothesis.given(st.dictionaries(TEXT.filter(lambda key: key != "t1"), VALUES, max_size=5))
@hypothesis.settings(max_examples=300)
def test_any_tables_are_read_back(data):
    found = tomllib.loads(written(data))
    # Tables come after what stands alone; within a table the order is kept.
    assert set(found) == set(data)
    assert all(same(found[key], data[key]) for key in data)


def test_numbers_keep_every_digit_and_their_kind():
    data = {"table": {"floats": FLOATS, "whole": [1, -1, 2**62], "rows": [[x, -x] for x in FLOATS]}}
    assert same(tomllib.loads(written(data)), data)


def test_infinity_is_written_as_toml_has_it_where_it_is_a_time():
    text = written({"title": "inf", "flow": {"t1": "inf"}, "measure": {"kind": "inf"}})
    assert tomllib.loads(text) == {"title": "inf", "flow": {"t1": math.inf}, "measure": {"kind": "inf"}}


def test_what_is_not_given_is_not_written():
    data = {"seed": None, "flow": {"t1": 1.0, "step": None}, "attention": {"of": {"kind": "l2", "tau": None}}}
    assert tomllib.loads(written(data)) == {"flow": {"t1": 1.0}, "attention": {"of": {"kind": "l2"}}}


def test_nothing_is_written_as_nothing():
    assert tomllib.loads(written({})) == {}
    assert tomllib.loads(written({"a": {}, "b": []})) == {"a": {}, "b": []}


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n", "\t", "\x00", "\x7f", "]", "#", "'''", '"""', "é", "\U0001f600", "\u2028"]
)
def test_text_stays_text(text):
    data = {text: text, "table": {text: [text, {text: text}]}}
    assert tomllib.loads(written(data)) == data


def test_a_long_list_of_rows_has_a_line_for_each_and_a_table_stays_on_its_line():
    rows = [[float(i), float(-i)] for i in range(40)]
    text = written({"measure": {"points": rows, "law": {"means": rows}}})
    assert text.count("\n  [") == 40
    (line,) = [line for line in text.splitlines() if line.startswith("law = ")]
    assert line.endswith("}")
    assert tomllib.loads(text) == {"measure": {"points": rows, "law": {"means": rows}}}


def test_people_can_read_it():
    data = {"seed": 3, "attention": {"kind": "softmax", "Q": [[1.0, 0.0], [0.0, 1.0]]}, "flow": {"t1": 4.0}}
    assert written(data) == (
        'seed = 3\n\n[attention]\nkind = "softmax"\nQ = [[1.0, 0.0], [0.0, 1.0]]\n\n[flow]\nt1 = 4.0\n'
    )


@pytest.mark.parametrize("name", library())
def test_the_settings_of_each_experiment_of_the_library_survive(name):
    """Written with all defaults and read again, it is the same experiment."""
    file = library()[name]
    first = experiment_of(file.read_text(encoding="utf-8"), name, file.parent)
    again = experiment_of(written(first.settings()), name, file.parent)
    assert again.settings() == first.settings()
    assert again.hash() == first.hash() == from_settings(first.settings(), name, file.parent).hash()

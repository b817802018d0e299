"""Calls at random of every public callable: refused in words, or a result of finite numbers; nothing else.

The calls are made from signatures (`fuzz/calls.py`) and values (`fuzz/values.py`), the same for a seed. By day a few
hundred of them; at night ten thousand of functions and as many of methods, or as many as MEANFORMER_FUZZ_CALLS says.
A failure prints the calls.
"""

import collections
import inspect
import os
import random
import traceback

import pytest

from fuzz.calls import CALLABLES, METHODS, check_result, good, outcome, random_call, random_method, text_of
from fuzz.references import agree
from fuzz.values import value

BY_DAY = 300
AT_NIGHT = int(os.environ.get("MEANFORMER_FUZZ_CALLS", 10_000))
PARTS = 10

pytestmark = pytest.mark.usefixtures("as_a_user")


def test_every_parameter_has_values():
    """A new parameter needs a line in `GOOD`."""
    missing = [
        f"{name}.{parameter}"
        for name, function in CALLABLES.items()
        for parameter in inspect.signature(function).parameters
        if not good(name, parameter)
    ]
    assert missing == []
    assert len(CALLABLES) >= 75


def failure(call, counts):
    """What is wrong with a call, in one paragraph; None if nothing is."""
    try:
        kind, given, result = outcome(call)
        if kind == "result":
            check_result(call, result)
            given = given if call.on is None else {**given, "self": value(call.on)}
            counts["compared with NumPy"] += agree(call, given, result)
    except Exception as error:
        counts["failed"] += 1
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {str(error)[:300]}"
        text = f"{text_of(call)}\n    {what}\n    in {where.filename}:{where.lineno}"
        print(text, flush=True)  # as it is found: the rest may take long
        return text
    counts[kind] += 1
    return None


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(0, BY_DAY), *(pytest.param(seed, AT_NIGHT // PARTS, marks=pytest.mark.nightly) for seed in range(1, PARTS + 1))],
)
def test_calls_at_random(seed, calls):
    check_calls(seed, calls, random_call, CALLABLES)


@pytest.mark.parametrize(
    ("seed", "calls"),
    [
        (0, BY_DAY // 3),
        *(pytest.param(seed, AT_NIGHT // PARTS, marks=pytest.mark.nightly) for seed in range(1, PARTS + 1)),
    ],
)
def test_methods_at_random(seed, calls):
    """What users call on fields, measures, laws and runs."""
    check_calls(seed, calls, random_method, METHODS)


def check_calls(seed, calls, make, names):
    """So many calls in turn, none of which may fail."""
    rng, counts, names = random.Random(seed), collections.Counter(), list(names)
    failures = [failure(make(rng, names[k % len(names)]), counts) for k in range(calls)]
    failures = [text for text in failures if text]
    print(f"{calls} calls with seed {seed}: {dict(counts)}")
    assert not failures, f"{len(failures)} of {calls} calls, {dict(counts)}:\n" + "\n".join(failures)
    # Neither a fuzzer all of whose calls are refused, nor one that refuses nothing, would find anything.
    assert counts["result"] >= calls / 6
    assert counts["refused"] >= calls / 4
    assert counts["compared with NumPy"] >= calls / 100

"""Wrong experiment files: each is refused in one message that names the key or the line, and by nothing else."""

import re
import sys
from collections import Counter

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import meanformer as mf
from meanformer import cli
from meanformer.experiments.build import check
from meanformer.experiments.changes import ALONE, KINDS_OF, TABLES, homes
from meanformer.experiments.config import experiment_of, read_experiment
from meanformer.experiments.registry import library
from oracles.refusals import as_users

VALID = """\
title = "A valid file"
seed = 1

[attention]
kind = "softmax"
Q = "identity"
K = {of = "Q", scale = -1.0}
V = [[1.0, 0.0], [0.0, 2.0]]
tau = 0.5

[measure]
kind = "points"
points = [[1.0, 0.0], [0.0, 1.0]]

[flow]
t1 = 2.0
rtol = 1e-4
"""
NORMAL = 'kind = "normal"\nn = 4'
POINTS = 'kind = "points"\npoints = [[1.0, 0.0], [0.0, 1.0]]'


def refusal(text: str, folder, changes=()) -> str:
    """The message with which a file is refused."""
    with as_users(), pytest.raises(mf.InputError) as error:
        check(experiment_of(text, "wrong.toml", folder, changes))
    return whole(str(error.value))


def whole(message: str) -> str:
    """One message, with all its parts."""
    assert message.count("\n  got:") == message.count("\n  expected:") == message.count("\n  remedy:") == 1, message
    return message


# Each kind of mistake: what is replaced, by what; the line that is named; words of the message.
MISTAKES = {
    "typo in a key": ("tau = 0.5", "tua = 0.5", 9, ["unknown key 'tua' in [attention]", "did you mean `tau`?"]),
    "typo in a top key": ("seed = 1", "sead = 1", 2, ["unknown key 'sead'", "`seed`"]),
    "typo in a table": ("[flow]", "[flows]", 15, ["unknown key 'flows'", "`flow`"]),
    "key of another table": ("seed = 1", "n = 1", 2, ["unknown key 'n'", "belongs in [measure]"]),
    "typo in a kind": ('"softmax"', '"sofmax"', 5, ["attention.kind", "'sofmax'", 'did you mean "softmax"?']),
    "no kind": ('kind = "points"\n', "", 11, ["'kind' is missing in [measure]"]),
    "typo of kind": ('kind = "points"', 'knd = "points"', 11, ["'kind' is missing", "`knd`"]),
    "kind of a wrong type": ('kind = "points"', "kind = [1]", 12, ["measure.kind", "[1]"]),
    "missing key": ("t1 = 2.0\n", "", 15, ["'t1' is missing in [flow]", "the time at which the flow ends"]),
    "text for a number": ("t1 = 2.0", 't1 = "two"', 16, ["flow.t1", "'two'", "a valid number"]),
    "truth for a number": ("tau = 0.5", "tau = true", 9, ["attention.tau", "True", "a valid number"]),
    "number for a table": ("K = {of", "K = 1979-05-27 # {of", 7, ["attention.K", "a matrix: rows"]),
    "fraction for a count": (POINTS, NORMAL.replace("4", "4.5"), 13, ["measure.n", "4.5", "integer"]),
    "not a number": ("tau = 0.5", "tau = nan", 9, ["attention.tau", "nan", "finite"]),
    "not a time": ("t1 = 2.0", "t1 = nan", 16, ["flow.t1", "nan", "a time, or inf"]),
    "infinity for tokens": ("t1 = 2.0", "t1 = inf", 16, ["tokens have no fate", "stationary"]),
    "negative temperature": ("tau = 0.5", "tau = -1.0", 9, ["attention.tau", "-1.0", "greater than 0"]),
    "time backwards": ("t1 = 2.0", "t1 = -2.0", 16, ["forward in time", "t1 = -2"]),
    "rows of different lengths": ("[0.0, 2.0]]", "[0.0]]", 8, ["V", "rows of different lengths"]),
    "one row without brackets": ("[[1.0, 0.0], [0.0, 2.0]]", "[1.0, 2.0]", 8, ["attention.V", "a matrix: rows"]),
    "form of a matrix": ('{of = "Q", scale = -1.0}', "{rotatoin = 0.9}", 7, ["did you mean `rotation`?"]),
    "word for a matrix": ('Q = "identity"', 'Q = "identiy"', 6, ["attention.Q", '"identity"']),
    "matrix of another": ('of = "Q"', 'of = "P"', 7, ["'P'", "'Q' or 'K' or 'V'"]),
    "circle of matrices": ('Q = "identity"', 'Q = {of = "K"}', 7, ["in a circle"]),
    "columns of a matrix": ('"identity"', "[[1.0, 0.0, 0.0]]", 8, ["V must act on the same tokens"]),
    "shape of a matrix": ('of = "Q", scale = -1.0', "diagonal = [1.0]", 6, ["Q and K must have one shape"]),
    "outputs that are no velocities": ("[[1.0, 0.0], [0.0, 2.0]]", "[[1.0, 0.0]]", 4, ["no velocity of the tokens"]),
    "missing file": ('{of = "Q", scale = -1.0}', '{file = "none.npy"}', 7, ["'none.npy'", "no such file"]),
    "pickled file": ('{of = "Q", scale = -1.0}', '{file = "pickled.npy"}', 7, ["'pickled.npy' cannot be read"]),
    "broken file": ('{of = "Q", scale = -1.0}', '{file = "broken.npy"}', 7, ["'broken.npy' cannot be read"]),
    "file of text": ('{of = "Q", scale = -1.0}', '{file = "text.npy"}', 7, ["no array of real numbers"]),
    "file of many numbers": ('{of = "Q", scale = -1.0}', '{file = "cube.npy"}', 7, ["must be a non-empty matrix"]),
    "too many tokens": (POINTS, NORMAL.replace("4", "1_000_000_000_000"), 13, ["cannot fit in memory"]),
    "too many dimensions": (POINTS, f"{NORMAL}\nd = 1_000_000_000", 11, ["cannot fit in memory"]),
    "points of different lengths": ("[0.0, 1.0]]", "[0.0]]", 13, ["points", "rows of different lengths"]),
    "weights": (POINTS, f"{POINTS}\nweights = [0.5, 0.6]", 14, ["weights must sum to one"]),
    "covariance": (POINTS, f"{NORMAL}\ncov = -1.0", 14, ["cov must be positive semi-definite"]),
    "covariance of a mixture": (
        POINTS,
        'kind = "mixture"\nn = 4\nmeans = [[0.0, 0.0], [1.0, 1.0]]\ncovs = [1.0, -1.0]',
        15,
        ["[measure] covs.1", "positive semi-definite"],
    ),
    "box": (POINTS, 'kind = "cube"\nn = 4\nlow = 2.0', 14, ["low < high"]),
    "sphere": ("rtol = 1e-4", "space = {sphere = 2.0}", 15, ["start on the sphere", 'project = "sphere"']),
    "frame of a sphere": ("rtol = 1e-4", 'space = "sphere"\nframe = "rescaled"', 18, ["rescaled frame is Euclidean"]),
    "solver": ("rtol = 1e-4", 'solver = "tsit"', 17, ["solver", '"tsit5"']),
    "solver without a step": ("rtol = 1e-4", 'solver = "euler"', 17, ["no error estimate", "step"]),
    "hardmax without a step": ('kind = "softmax"', 'kind = "hardmax"', 9, ["unknown key 'tau'"]),
    "rule": ("rtol = 1e-4", "stop = [{stationry = 1e-3}]", 17, ["flow.stop.0", "`stationary`"]),
    "mask without positions": (
        VALID[VALID.index("kind") : VALID.index("\n\n[measure]")],
        'kind = "causal"\nof = {kind = "softmax", Q = 1.0, K = 1.0, V = 1.0}',
        4,
        ["positions"],
    ),
    "wrong key inside": (
        VALID[VALID.index("kind") : VALID.index("\n\n[measure]")],
        'kind = "causal"\nof = {kind = "softmax", Q = 1.0, K = 1.0, V = 1.0, eps = 1.0}',
        6,
        ["unknown key 'eps' in [attention.of]"],
    ),
    "kind without a closure": (POINTS, 'kind = "gaussian"', None, None),
    "figure": ("[flow]", '[figures]\ndraw = ["pahts"]\n[flow]', 16, ['did you mean "paths"?']),
    "figure of a sweep": ("[flow]", '[figures]\ndraw = ["heatmap"]\n[flow]', 16, ["'heatmap' is a figure of a sweep"]),
    "coordinates": ("[flow]", "[figures]\ncoordinates = [0, 2]\n[flow]", 16, ["coordinates", "0 to 1"]),
    "colour": ("[flow]", '[figures]\ncolour = "blak"\n[flow]', 16, ["colour is not known"]),
    "number": ("[flow]", '[diagnostics]\nnumbers = ["radus"]\n[flow]', 16, ['did you mean "radius"?']),
    "times outside": ("[flow]", "[save]\ntimes = [1.0, 9.0]\n[flow]", 16, ["save times must lie in the run"]),
    "one time": ("[flow]", "[save]\ntimes = 1\n[flow]", 16, ["save.times", "greater than or equal to 2"]),
    "words for times": ("[flow]", '[save]\ntimes = "final"\n[flow]', 16, ["a flow saves at times"]),
    "flow and layers": ("[flow]", "[layers]\ndepth = 3\n[flow]", 15, ["[flow] or [layers]"]),
    "neither": (VALID[VALID.index("[flow]") :], "", None, ["the table [flow] (or [layers]) is missing"]),
    "no measure": (VALID[VALID.index("[measure]") : VALID.index("[flow]")], "", None, ["table [measure] is missing"]),
    "everything in a row": (VALID, "5", 1, ["this is not TOML"]),
    "nothing": (VALID, "# only words\n", None, ["wrong.toml is empty"]),
    "not TOML": ("tau = 0.5", "tau = = 0.5", 9, ["this is not TOML", "tau = = 0.5"]),
    "no quotes": ('"softmax"', "softmax", 5, ["this is not TOML", "kind = softmax"]),
    "cut": ("rtol = 1e-4\n", 'solver = "tsi', 17, ["this is not TOML"]),
    "twice": ("rtol = 1e-4", "t1 = 3.0", 17, ["this is not TOML", "overwrite"]),
    "swept key": ("[flow]", '[sweep.grid]\n"attention.tua" = [1.0]\n[flow]', 16, ["unknown key 'tua'", "`tau`"]),
    "swept short key": ("[flow]", "[sweep.grid]\ntua = [1.0]\n[flow]", 16, ["'tua' is not known", "'tau'"]),
    "swept value": ("[flow]", "[sweep.grid]\ntau = [1.0, 2.0, -1.0]\n[flow]", 16, ["attention.tau", "-1.0"]),
    "swept shape": ("[flow]", "[sweep.grid]\nQ = [1.0]\n[flow]", None, None),
    "sweep of nothing": ("[flow]", "[sweep]\nkeep = true\n[flow]", 15, ["the sweep sweeps nothing"]),
    "sweep of too much": ("[flow]", "[sweep.grid]\nseed = {range = [0, 10_000_000]}\n[flow]", 16, ["[first, last]"]),
    "form of an axis": ("[flow]", "[sweep.grid]\ntau = {lin = [0, 1, 2]}\n[flow]", 16, ["`linear`"]),
    "logarithm of zero": ("[flow]", "[sweep.grid]\ntau = {log = [0, 1, 2]}\n[flow]", 16, ["positive ends"]),
    "the same value twice": ("[flow]", "[sweep.grid]\ntau = [1.0, 1.0]\n[flow]", 16, ["different values"]),
    "two cases of a name": (
        "[flow]",
        '[[cases]]\nname = "a"\n[[cases]]\nname = "A"\n[flow]',
        18,
        ["two cases are called 'a'"],
    ),
    "case without a name": ("[flow]", '[[cases]]\ntitle = "a"\n[flow]', 15, ["'name' is missing in [cases.0]"]),
    "name of a case": ("[flow]", '[[cases]]\nname = "../a"\n[flow]', 16, ["'../a'", "letters, digits and dashes"]),
    "wrong value in a case": (
        "[flow]",
        '[[cases]]\nname = "a"\nattention = {tau = -3.0}\n[flow]',
        17,
        ["attention.tau", "-3.0"],
    ),
    "wrong value under a case": ("tau = 0.5", 'tau = -0.5\n[[cases]]\nname = "a"', 9, ["attention.tau", "-0.5"]),
    "cases and a sweep": ("[flow]", '[sweep]\ndraws = 2\n[[cases]]\nname = "a"\n[flow]', 15, ["cases or a sweep"]),
}
STILL_VALID = [name for name, (_, _, _, words) in MISTAKES.items() if words is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    np.save(path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(path / "text.npy", np.array(["a"]))
    np.save(path / "cube.npy", np.zeros((2, 2, 2)))
    (path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00 cut")
    return path


def wrong(name: str) -> str:
    old, new, _, _ = MISTAKES[name]
    assert VALID.count(old) >= 1
    return VALID.replace(old, new, 1)


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in STILL_VALID])
def test_each_mistake_is_named(name, folder):
    line, words = MISTAKES[name][2:]
    message = refusal(wrong(name), folder)
    assert message.startswith("wrong.toml")
    for word in words:
        assert word in message, message
    if line is not None:
        assert message.startswith(f"wrong.toml, line {line}"), message


@pytest.mark.parametrize("name", [None, *STILL_VALID])
def test_what_is_not_wrong_is_accepted(name, folder):
    """The file before its mistakes, and changes that look like mistakes."""
    check(experiment_of(VALID if name is None else wrong(name), "right.toml", folder))


def test_several_mistakes_are_told_at_once(folder):
    text = VALID.replace("0.5", "-0.5").replace("2.0]]", '"x"]]').replace("1e-4", "-1.0")
    message = refusal(text, folder)
    assert message.startswith("wrong.toml, line 8: attention.V.1.1")
    assert "also:     wrong.toml, line 9: attention.tau" in message and "line 17: flow.rtol" in message


@pytest.mark.parametrize(
    "change, words",
    [
        ("tau", ["'tau'", "key=value"]),
        ("tua=1", ["'tua'", "did you mean 'tau'?"]),
        ("kind=softmax", ["several places", "attention.kind, measure.kind"]),
        ("atention.tau=1", ["did you mean 'attention'?"]),
        ("attention.tua=1", ["--set attention.tua=1", "unknown key 'tua'", "`tau`"]),
        ("tau=hot", ["--set tau=hot", "'hot'"]),
        ("t1=-1", ["--set t1=-1", "forward in time"]),
        ("attention.Q.scale=2", ["attention.Q, which is no table"]),
        ("attention.V.7=2", ["no part of the list attention.V", "0 to 1"]),
        ("depth=3", ["depth belongs in [layers]"]),
        ("layers.depth=3", ["[flow] or [layers]"]),
        ("n=3", ["n belongs in [measure]"]),
    ],
)
def test_wrong_changes(change, words, folder):
    message = refusal(VALID, folder, [change])
    assert all(word in message for word in words), message


def test_files_that_cannot_be_read(tmp_path):
    for source, words in (
        (tmp_path / "none.toml", "there is no experiment"),
        (tmp_path, "a folder"),
        ("clustrs", "did you mean 'clusters'?"),
    ):
        with pytest.raises(mf.InputError, match=re.escape(words)):
            read_experiment(source)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(mf.InputError, match=r"binary\.toml cannot be read"):
        read_experiment(binary)


# Mutants of the library. Each is wrong by construction, and the line where it was made wrong is known.

TEXTS = {name: path.read_text() for name, path in library().items()}
KEYS = set(homes()) | set(ALONE) | set(TABLES) | set(KINDS_OF) | {"name", "grid", "kind"}
KEY_LINE = re.compile(r"^(\w+|\"[\w.]+\") = (.*)$")
WORDS = ("title", "about", "formula", "caption")
TRUTHS = ("animation", "centre", "positions", "redraw")
# Wrong for every key.
NONSENSE = ["1979-05-27", "nan", "-inf", "[[[]]]", "[[1.0, true]]", "{no = 1}", '{kind = "no"}', '[{kind = "softmax"}]']
OUT_OF_RANGE = {
    "n": ["0", "-3", "2.5", "10_000_000_000_000"],
    "d": ["0", "-1", "10_000_000_000"],
    "tau": ["0.0", "-1.0"],
    "eps": ["0.0", "-1.0"],
    "tol": ["0.0", "2.0", "-1e-8"],
    "t1": ["-1.0", "0"],
    "step": ["0.0", "-0.5"],
    "depth": ["0", "-1", "10_000_000_000_000"],
    "cells": ["1", "0", "10_000_000_000_000"],
    "draws": ["0", "-1", "10_000_000_000"],
    "seed": ["-1", "10_000_000_000_000"],
    "times": ["1", "-2", "10_000_000_000_000"],
    "hidden": ["0", "-1"],
    "frame": ['"resacled"', '"original"'],
    "space": ['"shpere"', "{sphere = -1.0}"],
    "kind": ['"sofmax"', '"none"', '""'],
}


def key_lines(text: str) -> list[int]:
    """The lines `key = value` that are whole statements, outside of texts of several lines."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines()):
        if not inside and KEY_LINE.match(line) and line.count("[") == line.count("]"):
            found.append(number)
        inside ^= line.count('"""') == 1
    return [number for number in found if text.splitlines()[number].count('"""') != 1]


KINDS = ("key", "value", "range", "structure", "text")


@st.composite
def mutants(draw, kinds=KINDS) -> tuple[str, str, int | None, str]:
    """A wrong text, what was done to it, the line (from 1) and a word that the message may name instead."""
    name = draw(st.sampled_from(sorted(TEXTS)))
    lines = TEXTS[name].splitlines()
    number = draw(st.sampled_from(key_lines(TEXTS[name])))
    found = KEY_LINE.match(lines[number])
    assert found is not None
    key, value = found[1].strip('"'), found[2]
    kind = draw(st.sampled_from(kinds))
    if kind == "key":
        place = draw(st.integers(0, len(key) - 1))
        letter = draw(st.sampled_from("abcxyz_"))
        typo = draw(st.sampled_from([key[:place] + letter + key[place:], key[:place] + key[place + 1 :], key + key]))
        hypothesis.assume(typo not in KEYS and typo)
        # The key of a sweep may be changed into another that is right.
        hypothesis.assume("." not in key)
        lines[number] = f'"{typo}" = {value}'
        return "\n".join(lines), kind, number + 1, typo
    if kind == "value":
        wrong_values = list(NONSENSE)
        wrong_values += [] if key in WORDS else ['"§"']
        wrong_values += [] if key in TRUTHS else ["true"]
        lines[number] = f"{found[1]} = {draw(st.sampled_from(wrong_values))}"
        return "\n".join(lines), kind, number + 1, key
    if kind == "range":
        hypothesis.assume(key in OUT_OF_RANGE and f'.{key}" = ' not in TEXTS[name])  # not one that is swept
        lines[number] = f"{found[1]} = {draw(st.sampled_from(OUT_OF_RANGE[key]))}"
        return "\n".join(lines), kind, number + 1, key
    if kind == "structure":
        cases, swept = "[[cases]]" in TEXTS[name], "[sweep]" in TEXTS[name]
        also = "layers" if "[flow]" in lines else "flow"
        extra = ["[optics]\nx = 1", "[[attention]]", '[title]\nkind = "x"', "[[measure.kind]]"]
        extra += [] if cases else ["[flow.t1]"]  # each case has its own
        extra += [] if cases else [f"[{also}]\ndepth = 3" if also == "layers" else "[flow]\nt1 = 1.0"]
        extra += ["[sweep]\ndraws = 2"] if cases else ['[[cases]]\nname = "a"\n[[cases]]\nname = "a"']
        extra += ["[sweep]"] if not swept else ["[sweep.grid]"]
        more = draw(st.sampled_from([*extra, "drop"]))
        if more != "drop":
            return f"{TEXTS[name]}\n{more}\n", kind, None, ""
        hypothesis.assume(key == "kind" or key in ("t1", "depth", "n", "means", "heads", "of", "Q", "V", "name"))
        hypothesis.assume(not (key == "kind" and cases))
        del lines[number]
        return "\n".join(lines), kind, None, key
    stray = draw(st.sampled_from(["= ", "] ", "@", '"', "{", "\\", "key key = "]))
    cut = draw(st.booleans())
    lines = (
        [*lines[:number], f"{found[1]} ="] if cut else [*lines[:number], stray + lines[number], *lines[number + 1 :]]
    )
    return "\n".join(lines), kind, number + 1, ""


def test_300_mutants_of_the_library_are_refused(folder):
    texts, counted = set(), Counter()

    @hypothesis.settings(max_examples=300, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(mutants())
    def refused(mutant):
        text, kind, line, word = mutant
        message = refusal(text, folder)
        assert message.startswith("wrong.toml"), message
        assert line is None or f"line {line}" in message or (word and word in message), f"{kind}\n{text}\n{message}"
        texts.add(text)
        counted[kind] += 1

    refused()
    assert sum(counted.values()) >= 300 and len(texts) >= 250
    assert min(counted[kind] for kind in KINDS) >= 20, counted


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_refuses_mutants_and_leaves_nothing(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["meanformer", "run", "wrong.toml"])
    count = 0

    @hypothesis.settings(max_examples=3, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(mutants([kind]))
    def refused(mutant):
        nonlocal count
        (tmp_path / "wrong.toml").write_text(mutant[0])
        with as_users(), pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, "")
        assert "Traceback" not in err
        assert err.count("wrong.toml") >= 1
        whole(err)
        assert [entry.name for entry in tmp_path.iterdir()] == ["wrong.toml"]
        count += 1

    refused()
    assert count == 3

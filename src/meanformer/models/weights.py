"""Tensors by name, from files that hold numbers and nothing else: safetensors, or `.bin` files read weights-only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import _checks as checks

INDEX = "model.safetensors.index.json"
BIN_INDEX = "pytorch_model.bin.index.json"


class Weights:
    """The tensors of a model, read one by one when they are asked for, in `dtype`; it remembers which were."""

    def __init__(self, readers: Mapping[str, Any], dtype: Any):
        self._readers, self._dtype = dict(readers), np.dtype(dtype)
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._readers:
            near = [n for n in self._readers if n.rsplit(".", 2)[-2:] == name.rsplit(".", 2)[-2:]]
            checks.refuse(
                "the weights lack a tensor that the architecture needs",
                got=f"no {name}" + (f"; there is {near[0]}" if near else f", among {len(self._readers)} tensors"),
                expected="the tensors of the architecture that config.json names",
                remedy="check model_type in config.json, and that all files of the model are there",
            )
        self._used.add(name)
        return np.array(self._readers[name](), self._dtype)

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def unused(self, prefix: str) -> list[str]:
        """The names that begin with `prefix` and were not asked for."""
        return sorted(name for name in self._readers if name.startswith(prefix) and name not in self._used)


def read_weights(folder: Path, dtype: Any) -> Weights:
    """The weights in a folder: safetensors if there are any, one file or several; else `.bin` files."""
    if (folder / "model.safetensors").is_file():
        return Weights(_safetensors(folder / "model.safetensors"), dtype)
    if (folder / INDEX).is_file():
        return Weights(_sharded(folder, INDEX, _safetensors), dtype)
    if (folder / "pytorch_model.bin").is_file():
        return Weights(_readers_of(load_bin(folder / "pytorch_model.bin")), dtype)
    if (folder / BIN_INDEX).is_file():
        return Weights(_sharded(folder, BIN_INDEX, lambda path: _readers_of(load_bin(path))), dtype)
    checks.refuse(
        "this folder has no weights",
        got=f"{folder.name}, with {_listing(folder)}",
        expected=f"model.safetensors, {INDEX}, pytorch_model.bin or {BIN_INDEX}",
        remedy="download the weights too; other formats (h5, msgpack, onnx, gguf) are converted with their own tools",
    )


def load_bin(path: Path) -> Any:
    """What a `.bin` file or checkpoint holds, read weights-only: tensors, lists, tables and numbers; code is refused."""
    try:
        import torch
    except ImportError:
        checks.refuse(
            "a .bin file is read by torch, which is not installed",
            got=path.name,
            expected="torch, or the weights as safetensors",
            remedy="install torch, or convert the file to model.safetensors once",
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a pickle with code in it, or a damaged file
        first = str(error).strip().splitlines()
        checks.refuse(
            f"{path.name} is not a file of weights alone",
            got=first[0] if first else type(error).__name__,
            expected="tensors, lists, tables and numbers: code in a pickle is never run",
            remedy="convert the model to safetensors on a machine where you trust the file",
        )


def _readers_of(state: Any) -> dict[str, Any]:
    """The tensors of a state dictionary."""
    if not isinstance(state, Mapping):
        checks.refuse(
            "this .bin file holds no table of tensors",
            got=checks.described(state),
            expected="names and tensors, a state dictionary",
            remedy="name the folder of a model that save_pretrained has written",
        )
    return {name: (lambda tensor=tensor: tensor.float().numpy()) for name, tensor in state.items()}


def _safetensors(path: Path) -> dict[str, Any]:
    safetensors = need("safetensors", "the weights of a model")
    try:
        file = safetensors.safe_open(str(path), framework="numpy")
        names = list(file.keys())
    except Exception as error:
        checks.refuse(
            f"{path.name} cannot be read",
            got=str(error),
            expected="a whole file in the safetensors format",
            remedy="download it again: it may have been cut short, or be a pointer to a large file",
        )
    return {name: (lambda name=name: _widened(file.get_tensor(name))) for name in names}


def _widened(array: Any) -> np.ndarray:
    """Half precision as float32: sums over many tokens are worth little in it."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def _sharded(folder: Path, index: str, read: Any) -> dict[str, Any]:
    table = json.loads((folder / index).read_text(encoding="utf-8")).get("weight_map") or {}
    files = {name: _inside(folder, str(file), index) for name, file in table.items()}
    opened = {file: read(file) for file in sorted(set(files.values()))}
    lost = [name for name, file in files.items() if name not in opened[file]]
    if lost:
        checks.refuse(
            f"{index} lists a tensor that its file does not hold",
            got=lost[0],
            expected="an index that fits the files beside it",
            remedy="download the files of one version of the model",
        )
    return {name: opened[file][name] for name, file in files.items()}


def _inside(folder: Path, name: str, index: str) -> Path:
    """A file that an index names: it must lie in the folder, and be there."""
    path = folder / name
    if Path(name).name != name or not path.is_file():
        checks.refuse(
            f"{index} names a file that is not in its folder",
            got=name,
            expected="a file beside the index",
            remedy="download all files of the model into one folder",
        )
    return path


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return (", ".join(names[:8]) + (", ..." if len(names) > 8 else "")) or "nothing in it"


def need(module: str, what: str) -> Any:
    """A module of the extra `models`; refused in words if it is not installed."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        checks.refuse(
            f"{what} needs the package {module}",
            got="it is not installed",
            expected="the extra `models`",
            remedy='pip install "meanformer[models]"',
        )
